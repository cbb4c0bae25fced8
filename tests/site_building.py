"""Builds the site from a copy of its sources: what is generated stays out of the work tree."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = ("_build", "api", "commands", "studies", "tutorials", "__pycache__")


def copy_sources(folder):
    """The sources of the site, as they would be in a fresh clone; the path of docs/."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(ROOT / "CONTRIBUTING.md", folder)  # a page of the site includes it
    (folder / "docs").mkdir()
    for path in (ROOT / "docs").iterdir():
        if path.name in GENERATED:
            continue
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, folder / "docs" / path.name)
    return folder / "docs"


def build(docs, builder, *options):
    """Build in a process of its own, since Sphinx sets warnings and logging for all; where it is.

    A warning is an error.
    """
    target = docs.parent / builder
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder]
    done = subprocess.run(
        [*command, *options, "-d", docs.parent / "doctrees", docs, target],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return target
