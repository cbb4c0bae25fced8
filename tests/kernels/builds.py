"""The package with its kernels built in another way, and Python that runs it."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]


def built(folder, **defined):
    """The package in a folder of its own, with these CMake variables."""
    settings = {f"cmake.define.{name}": value for name, value in defined.items()}
    settings |= {"install.strip": "false", "build-dir": str(folder / "build")}
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, ROOT]
    command += [f"--config-settings={name}={value}" for name, value in settings.items()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def run(folder, *arguments, **environment):
    """Python without the installed package: -S leaves out the links to the work tree."""
    libraries = [folder, ROOT / "tests", sysconfig.get_paths()["purelib"]]
    given = {
        "PYTHONPATH": os.pathsep.join(map(str, libraries)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "EVENCOVER_THREADS": "1",
        **environment,
    }
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env=os.environ | given,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def run_kernel_tests(folder, **environment):
    """All that compares native kernels with the reference, with the kernels of a folder."""
    names = ("native", "bad_rows", "top_k_rows", "set_sizes", "sorting", "thresholds")
    environment["EVENCOVER_TESTS"] = ""  # sanitizers and emulators are slow
    tests = [ROOT / "tests" / "kernels" / f"test_{name}.py" for name in names]
    quiet = ("-q", "-s", "-n0", "-m", "not deep", "-p", "no:cacheprovider", f"--rootdir={ROOT}")
    where = "import evencover._kernels._native as n; print(n.__file__, *n.instruction_sets())"
    asked = run(folder, "-c", where, **environment)
    assert str(folder) in asked.stdout, asked.stderr
    return asked.stdout.split()[1:], run(folder, "-m", "pytest", *quiet, *tests, **environment)
