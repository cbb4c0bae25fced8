"""One virtual environment per peer, with every version pinned in peers/<peer>.txt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.places import CACHE, PEERS, ROOT
from benchmarks.plan import EARLIER, EARLIER_COMMIT


class CannotInstallError(Exception):
    """The environment of a peer could not be made."""


def python_of(peer: str) -> Path:
    """The interpreter of the peer's environment, which is made first if need be.

    The pins are complete and installed without dependencies, so that no run can pull in newer
    versions, nor torch its CUDA libraries.
    """
    folder = CACHE / peer
    wanted = (PEERS / f"{peer}.txt").read_text()
    installed = folder / "installed.txt"
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not (installed.exists() and installed.read_text() == wanted):
        print(f"making the environment of {peer} in {folder.relative_to(CACHE.parent.parent)}")
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        requirements = str(PEERS / f"{peer}.txt")
        _run(str(python), "-m", "pip", "install", "-q", "--no-deps", "-r", requirements)
        if peer == EARLIER:
            source = f"git+file://{ROOT}@{EARLIER_COMMIT}"
            _run(str(python), "-m", "pip", "install", "-q", "--no-deps", source)
        installed.write_text(wanted)
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise CannotInstallError((errors or done.stderr.splitlines() or ["no reason given"])[-1])
