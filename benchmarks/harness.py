"""Paths, processes, environments, memory and machine of every benchmark.

Imports only the standard library and NumPy: peers' environments have no evencover.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"
PEERS = ROOT / "benchmarks" / "peers"
RESULTS = CACHE / "results"
TIME_LIMIT = 300
BLOCK_ELEMENTS = 1 << 22

Record = dict[str, Any]


# The machine ------------------------------------------------------------------------------------


def n_cores() -> int:
    """Count the cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def describe_machine() -> Record:
    """Describe processor, memory, load, versions and kernels."""
    import evencover
    from evencover import _kernels

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": _find("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": n_cores(),
        "memory_gigabytes": round(memory / 1e9, 1),
        # Load of the machine: above 1, times are unreliable.
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "evencover": evencover.__version__,
        "kernels": _kernels.NAME,
    }


def _find(path: str, key: str) -> str | None:
    """Return the value of a key in a file of "key: value" lines, if there is one."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), None)


# Processes --------------------------------------------------------------------------------------


class CannotInstallError(Exception):
    """The environment of a peer could not be made."""


def python_of(peer: str) -> Path:
    """Return the interpreter of the peer's environment; create the environment if missing.

    The pins in peers/<peer>.txt are complete and installed without dependencies, which prevents
    newer versions and CUDA libraries.
    """
    folder = CACHE / peer
    requirements = PEERS / f"{peer}.txt"
    installed = folder / "installed.txt"
    python = folder / "bin" / "python"
    if not (installed.exists() and installed.read_text() == requirements.read_text()):
        print(f"making the environment of {peer} in {folder.relative_to(ROOT)}")
        pip = [python, "-m", "pip", "install", "-q", "--no-deps", "-r", requirements]
        for command in ([sys.executable, "-m", "venv", "--clear", folder], pip):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CannotInstallError(_last_error(done.stderr))
        installed.write_text(requirements.read_text())
    return python


def _last_error(text: str) -> str:
    lines = text.strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no reason given"])[-1]


def run_job(python: Path | str, job: Record) -> Record:
    """Run a job of jobs.py in a fresh process; {"error": reason} if it fails or takes too long."""
    if str(python).startswith("error: "):
        return {"error": str(python).removeprefix("error: ")}
    with tempfile.TemporaryDirectory() as folder:
        job_file, result_file = Path(folder, "job.json"), Path(folder, "result.json")
        job_file.write_text(json.dumps(job))
        try:
            done = subprocess.run(
                [str(python), "-m", "benchmarks.jobs", str(job_file), str(result_file)],
                cwd=ROOT,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"took longer than {TIME_LIMIT} s"}
        if done.returncode < 0:  # 9: usually out of memory
            return {"error": f"ended by signal {-done.returncode}"}
        if done.returncode > 0:
            return {"error": (done.stderr.strip().splitlines() or ["no reason given"])[-1]}
        return json.loads(result_file.read_text())


# Time -------------------------------------------------------------------------------------------


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median_ratio(these: list[float], those: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(these, those, strict=True))


def row_blocks(rows: np.ndarray) -> Iterator[slice]:
    """Split rows into slices of about 16 MB of float32, as evencover reads them."""
    step = max(1, BLOCK_ELEMENTS // rows.shape[1])
    return (slice(start, start + step) for start in range(0, len(rows), step))


# Memory -----------------------------------------------------------------------------------------


class PeakMemory:
    """Peak resident memory inside the `with` block, over that at its start, in bytes.

    On Linux the kernel's high-water mark (VmHWM) is reset at the start, to exclude imports and
    loading; elsewhere it is ru_maxrss.
    """

    over_start: int

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._start = self._peak()
        return self

    def __exit__(self, *error: object) -> None:
        self.over_start = self._peak() - self._start

    @staticmethod
    def _peak() -> int:
        # Not ru_maxrss on Linux: a child inherits it from the process that started it.
        peak = _status("VmHWM")
        return peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class PeakPrivateMemory:
    """Peak of the process's private memory (Linux's RssAnon), over that at the start, in bytes.

    Pages of a memory-mapped file are resident, but are a cache of the system. A thread samples
    every millisecond; None if the system does not report it.
    """

    over_start: int | None

    def __enter__(self) -> Self:
        self._start = self._peak = _status("RssAnon")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._start and not self._stop.wait(0.001):
            self._peak = max(self._peak, _status("RssAnon"))

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self.over_start = self._peak - self._start if self._start else None


def _status(key: str) -> int:
    found = _find("/proc/self/status", key)
    return 1024 * int(found.split()[0]) if found else 0


# Results ----------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table, padded so that it also reads well on a terminal."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: list[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return "| " + " | ".join(padded) + " |"

    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, rows)])


def write_results(folder: Path, name: str, results: Any, text: str) -> None:
    """Print the text; write it as NAME.md and the results as NAME.json."""
    print("\n" + text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / f"{name}.md").write_text(text)
