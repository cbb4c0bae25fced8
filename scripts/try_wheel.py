"""Test an installed wheel with the commands and the Python code of README.

    python try_wheel.py --readme README.md --kernels native

Works in an empty folder, with the package that this Python imports; exits on failure. Requires the
extras that README uses (``evencover[all]``).
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

KERNELS = {"native": "c++", "numpy": "numpy"}


def main() -> None:
    """Run everything, and print the environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readme", type=Path, required=True)
    parser.add_argument("--kernels", choices=KERNELS, help="which kernels must be in use")
    parser.add_argument("--without", default="", help="a command to skip")
    wanted = parser.parse_args()
    readme = wanted.readme.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_installation(wanted.kernels)
        run_readme(readme, wanted.without)
        os.chdir("/")  # Windows cannot remove the working directory


def check_installation(kernels: str | None) -> None:
    """Check that the package is installed and uses the expected kernels."""
    import evencover
    from evencover import _kernels

    home = Path(evencover.__file__).resolve()
    if Path(sysconfig.get_path("platlib")).resolve() not in home.parents:
        sys.exit(f"evencover is not the installed one: {home}")
    if kernels and not _kernels.NAME.startswith(KERNELS[kernels]):
        sys.exit(f"kernels are {_kernels.NAME}, not {kernels}")
    python = ".".join(map(str, sys.version_info[:3]))
    text = f"evencover {evencover.__version__}, Python {python}, kernels {_kernels.NAME}"
    print(text, flush=True)


def run_readme(readme: str, without: str) -> None:
    """Run README's commands, then its Python code, on the bundled data."""
    import numpy as np

    from evencover.data import load_languages

    rows, labels, _ = load_languages()
    arrays = {
        "probabilities": rows[:9000],
        "labels": labels[:9000],
        "test_probabilities": rows[9000:],
        "test_labels": labels[9000:],
        "new_probabilities": rows[:100],
    }
    np.savez("CAL.npz", probs=arrays["probabilities"], labels=arrays["labels"])
    np.savez("TEST.npz", probs=arrays["test_probabilities"], labels=arrays["test_labels"])
    np.save("NEW.npy", arrays["new_probabilities"])
    commands = re.findall(r"^    evencover (.*)$", readme, re.MULTILINE)
    blocks = re.findall(r"^```python\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    if len(commands) < 4 or not blocks:
        sys.exit("README has fewer commands or less Python than expected")
    program = Path(sysconfig.get_path("scripts")) / "evencover"
    for command in ["info", *commands]:
        if command.split()[0] == without:
            continue
        print(f"$ evencover {command}", flush=True)
        subprocess.run([program, *shlex.split(command, comments=True)], check=True)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), dict(arrays))


if __name__ == "__main__":
    main()
