"""Note at the end of every Python process of a measurement which of our modules it has loaded."""

import atexit
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def note() -> None:
    """Add the paths of loaded modules below the root, one per line, to EVIDENCE_MODULES."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    paths = [Path(file) for file in files if file]
    ours = [path.relative_to(ROOT) for path in paths if path.is_relative_to(ROOT)]
    names = sorted(path.as_posix() for path in ours if path.suffix == ".py")
    with Path(os.environ["EVIDENCE_MODULES"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}\n" for name in names if not name.startswith("."))


if "EVIDENCE_MODULES" in os.environ:
    atexit.register(note)
