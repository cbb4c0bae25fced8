"""The C++ kernels built with sanitizers: no bad memory access, no overflow, no race."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep
ROOT = Path(__file__).parents[2]
CHECKS = {
    "address": ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}
RACE = """
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from evencover._kernels import Draws, Limits, native
from evencover.scores import APS, Softmax

rng = np.random.default_rng(0)
rows = rng.dirichlet(np.ones(60) / 4, 4000).astype(np.float32)
labels, plain = rng.integers(0, 60, 4000), {"logits": False, "temperature": 1.0}
limits, draws = Limits(np.full(60, 0.9)), Draws(0, 1, 2)
scores, offsets, groups = np.sort(rng.random(50)), np.array([0, 50]), np.zeros(60, dtype=int)

def work(number):
    native.INSTRUCTION_SET = native._native.instruction_sets()[-1]
    given = ((Softmax(), APS())[number % 2].kernel, rows, draws)
    native.true_label_scores(*given, labels, **plain)
    native.score_matrix(*given, **plain)
    native.prediction_sets(*given, limits, allow_empty=False, **plain)
    native.set_coverage(*given, labels, limits, allow_empty=True, **plain)
    native.set_sizes(*given, [limits] * 3, **plain)
    native.p_values(*given, scores, offsets, groups, **plain)
    native.row_keys(rows, draws)

with ThreadPoolExecutor(6) as pool:
    list(pool.map(work, range(24)))
print("done")
"""


def built(folder, flags):
    """The package with kernels that were compiled with these flags, in a folder of its own."""
    settings = {
        "cmake.define.CMAKE_CXX_FLAGS": f"{' '.join(flags)} -g -fno-omit-frame-pointer",
        "install.strip": "false",
        "build-dir": str(folder / "build"),
    }
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, ROOT]
    command += [f"--config-settings={name}={value}" for name, value in settings.items()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def run(folder, library, *arguments, **more):
    """Python without the installed package: -S leaves out the links to the work tree."""
    preload = subprocess.run(
        ["gcc", f"-print-file-name={library}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    libraries = [folder, ROOT / "tests", sysconfig.get_paths()["purelib"]]
    environment = os.environ | {
        "LD_PRELOAD": preload,
        "PYTHONPATH": os.pathsep.join(map(str, libraries)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "EVENCOVER_THREADS": "1",
        **more,
    }
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not shutil.which("gcc"), reason="no compiler")
def test_memory_and_undefined_behaviour(tmp_path):
    folder = built(tmp_path, CHECKS["address"])
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    tests = [ROOT / "tests" / "kernels" / f"test_{name}.py" for name in ("native", "bad_rows")]
    where = "import evencover._kernels._native as n; print(n.__file__)"
    assert str(folder) in run(folder, "libasan.so", "-c", where, **options).stdout
    done = run(
        folder,
        "libasan.so",
        *("-m", "pytest", "-q", "-s", "-n0", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *tests),
        **options,
    )
    said = done.stdout + done.stderr
    assert "runtime error" not in said, said[-5000:]
    assert "AddressSanitizer" not in said, said[-5000:]
    assert done.returncode == 0, said[-5000:]


@pytest.mark.skipif(not shutil.which("gcc"), reason="no compiler")
def test_races(tmp_path):
    folder = built(tmp_path, CHECKS["thread"])
    done = run(folder, "libtsan.so", "-c", RACE, TSAN_OPTIONS="halt_on_error=0 exitcode=66")
    ours = [line for line in done.stderr.splitlines() if "_kernels/" in line]
    assert not ours, done.stderr[-5000:]
    assert done.stdout == "done\n", done.stderr[-3000:]
