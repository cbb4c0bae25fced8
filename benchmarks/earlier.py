"""Files read and written by this version and by 0.1.0: ``python -m benchmarks.earlier``.

Both use the same libraries, each in a process of its own that has done everything once, and take
turns. Reading is a file as blocks of rows, every number looked at: a file that is mapped has been
read only then. Writing is a whole command for four times as many rows, which lists classes by their
index, as 0.1.0 did. What the same command takes for one row is told, and taken off before the
two are compared: a command has more options now, and results are flushed to the disk. Files hold
more now, the sets' sizes, so the seconds are compared by the byte.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data, machine
from benchmarks.environments import python_of
from benchmarks.places import CACHE, RESULTS
from benchmarks.plan import EARLIER
from benchmarks.reading import _write_hdf5, _write_parquet, _write_zarr
from benchmarks.report import table

LIMIT = 1.05
READ = ("p.npy", "p.npz", "fixed.parquet", "columns.parquet", "p.zarr", "chunks.h5", "p.csv")
WRITTEN = ("sets.parquet", "sets.npz", "sets.csv", "sets.jsonl", "sets")  # the last is a folder
VERSIONS = ("seconds", "earlier_seconds")  # this one, and 0.1.0
MANY, ONE = "new.npy", "one.npy"  # rows whose sets are written
SMALL = "model"  # a file of a few kilobytes
PROGRAM = """
import contextlib, io, json, sys, time
from evencover.cli import main
from evencover.data import as_source

def read(path):
    return sum(float(block.rows.max()) for block in as_source(path).blocks())

def command(*arguments):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main(list(arguments))
        except SystemExit as stop:
            if stop.code:
                raise

for line in sys.stdin:
    what, *arguments = json.loads(line)
    start = time.perf_counter()
    globals()[what](*arguments)
    print(time.perf_counter() - start, flush=True)
"""


@contextmanager
def process(python: Path | str) -> Iterator[subprocess.Popen[str]]:
    """A version that waits for work; 0.1.0 borrows the libraries of this environment."""
    libraries = {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
    with subprocess.Popen(
        [str(python), "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | ({} if str(python) == sys.executable else libraries),
    ) as child:
        yield child
        assert child.stdin is not None
        child.stdin.close()


def seconds(child: subprocess.Popen[str], work: list[str]) -> float:
    """How long a version takes for it."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(work) + "\n")
    child.stdin.flush()
    return float(child.stdout.readline())


def write_inputs(folder: Path, n_rows: int, n_classes: int) -> None:
    """The same rows as files of every kind; of CSV a tenth."""
    arrays = data.make(n_rows, n_classes, seed=2)
    rows, labels = np.load(arrays.probabilities), np.load(arrays.labels)
    np.save(folder / "p.npy", rows)
    np.savez(folder / "p.npz", probs=rows, labels=labels)
    for name in ("fixed.parquet", "columns.parquet"):
        _write_parquet(folder / name, rows, labels)
    _write_zarr(folder / "p.zarr", rows, labels)
    _write_hdf5(folder / "chunks.h5", rows, labels)
    names = ",".join(f"class {i}" for i in range(n_classes))
    np.savetxt(folder / "p.csv", rows[::10], "%.6g", ",", header=names, comments="")
    np.save(folder / MANY, np.tile(rows, (4, 1)))
    np.save(folder / ONE, rows[:1])
    few = slice(0, min(n_rows, 20 * n_classes))
    np.savez(folder / "calibration.npz", probs=rows[few], labels=labels[few])


def measure(n_rows: int, n_classes: int, repeats: int) -> list[dict[str, Any]]:
    """One record per file and command: medians of both versions, and of their ratio."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=CACHE) as name,
        process(sys.executable) as ours,
        process(python_of(EARLIER)) as theirs,
    ):
        folder, versions = Path(name), dict(zip(VERSIONS, (ours, theirs), strict=True))
        write_inputs(folder, n_rows, n_classes)
        records = []
        for task in (*(f"read {file}" for file in READ), *(f"write {out}" for out in WRITTEN)):
            records.append(_compared(task, folder, versions, repeats))
        return [*records, _compared(f"write {SMALL}", folder, versions, repeats)]


def _compared(task: str, folder: Path, versions: dict[str, Any], repeats: int) -> dict[str, Any]:
    kind, what = task.split()
    writes = kind == "write" and what != SMALL
    found: dict[str, list[tuple[float, float]]] = {version: [] for version in versions}
    for repeat in range(repeats + 1):
        turns = list(versions.items())[:: 1 if repeat % 2 else -1]  # nobody is always second
        for version, child in turns:
            if repeat == 0 and kind == "write":
                seconds(child, _work(SMALL, folder, version, "model"))
            elapsed, fixed = seconds(child, _work(what, folder, version, str(repeat))), 0.0
            if writes:
                fixed = seconds(child, _work(what, folder, version, f"one-{repeat}", ONE))
            if repeat > 0:  # the first loads libraries and fills the system's cache
                found[version].append((elapsed, fixed))
    record: dict[str, Any] = {"task": task}
    for version, times in found.items():
        whole, fixed = map(statistics.median, zip(*times, strict=True))
        size = _size(folder / f"{version}-0-{what}" if writes else folder / what)
        record |= {version: whole, f"{version}_of_one_row": fixed, f"{version}_bytes": size}
    larger = record["seconds_bytes"] / record["earlier_seconds_bytes"] if writes else 1.0
    pairs = zip(found["seconds"], found["earlier_seconds"], strict=True)
    ratio = statistics.median((a - b) / (c - d) for (a, b), (c, d) in pairs) / larger
    print(f"{task}: {ratio:.2f}", flush=True)
    return record | {"ratio": ratio, "met": None if what == SMALL else ratio <= LIMIT}


def _size(path: Path) -> int:
    """Bytes of a file, or of all in a folder; 0 if there is none."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _work(what: str, folder: Path, version: str, repeat: str, rows: str = MANY) -> list[str]:
    if what in READ:
        return ["read", str(folder / what)]
    if what == SMALL:
        model = str(folder / f"{version}-{repeat}.safetensors")
        given = ["calibrate", str(folder / "calibration.npz"), "--method", "standard"]
        return ["command", *given, "-o", model, "--force"]
    output = str(folder / f"{version}-{repeat}-{what}")
    given = ["predict", str(folder / f"{version}-model.safetensors"), str(folder / rows)]
    order = ["--order", "index"] if version == VERSIONS[0] else []
    return ["command", *given, "-o", output, *order]


def markdown(results: dict[str, Any]) -> str:
    """The table, and on what it was measured."""
    m = results["machine"]
    verdict = {True: "yes", False: "**no**", None: "no bar"}
    lines = [
        [
            record["task"],
            *(f"{1e3 * record[version]:.1f}" for version in VERSIONS),
            *(f"{1e3 * record[f'{version}_of_one_row']:.1f}" for version in VERSIONS),
            *(f"{record[f'{version}_bytes'] / 1e6:.1f}" for version in VERSIONS),
            f"{record['ratio']:.2f}",
            verdict[record["met"]],
        ]
        for record in results["tasks"]
    ]
    head = ["what", "now ms", "0.1.0 ms", "one row, now ms", "one row, 0.1.0 ms"]
    head += ["now MB", "0.1.0 MB", "ratio", f"at most {LIMIT}"]
    return (
        "# Reading and writing, beside 0.1.0\n\n"
        f"{m['date']}: {m['cpu']}, {m['cores']} cores; load before the run: {m['load_before']}. "
        f"{results['rows']:,} x {results['classes']:,} float32 read, and sets of four times as "
        f"many rows written, medians of {results['repeats']}. The ratio is of the time for a byte, "
        "without what a command takes for one row: it has more options to read than in 0.1.0, and "
        "what is written is flushed to the disk before it gets its name.\n\n"
        f"{table(head, lines)}\n"
    )


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.earlier", description=__doc__)
    parser.add_argument("--small", action="store_true", help="tiny files: checks the harness")
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args()
    n_rows, n_classes, repeats = (400, 20, 1) if options.small else (100_000, 500, 9)
    out = options.out or (CACHE / "small" if options.small else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    results = {
        "machine": machine.describe(),
        "rows": n_rows,
        "classes": n_classes,
        "repeats": repeats,
        "tasks": measure(n_rows, n_classes, repeats),
    }
    text = markdown(results)
    print("\n" + text)
    (out / "earlier.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "earlier.md").write_text(text)


if __name__ == "__main__":
    main()
