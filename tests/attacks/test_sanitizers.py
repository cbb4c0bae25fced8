"""The C++ kernels built with sanitizers: no bad memory access, no overflow, no race."""

import shutil
import subprocess

import pytest
from kernels.builds import built, run, run_kernel_tests

pytestmark = pytest.mark.deep
CHECKS = {
    "address": ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}
RACE = """
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from evencover._kernels import Draws, KernelInput, Thresholds, ThresholdTable, native
from evencover.scores import APS, Softmax

rng = np.random.default_rng(0)
rows = rng.dirichlet(np.ones(60) / 4, 4000).astype(np.float32)
labels = rng.integers(0, 60, 4000)
limits, draws = Thresholds(np.full(60, 0.9)), Draws(0, 1, 2)
scores, offsets, groups = np.sort(rng.random(50)), np.array([0, 50]), np.zeros(60, dtype=int)
sets = native._native.instruction_sets()

def work(number):
    native.INSTRUCTION_SET = sets[number % len(sets)]
    given = KernelInput(rows, (Softmax(), APS())[number % 2].kernel, draws)
    native.true_label_scores(given, labels)
    native.score_matrix(given)
    native.prediction_sets(given, limits, keep_top=True)
    native.set_coverage(given, labels, limits, keep_top=False)
    native.set_sizes(given, ThresholdTable([limits] * 3))
    native.p_values(given, scores, offsets, groups)
    native.row_keys(rows, draws)
    native.by_group(labels, 60, native.ascending(rows[:, 0].astype(float)))
    native.rank_within(labels, 60)
    native.row_numbers(rows, draws)
    native.true_label_ranks(given, labels)
    native.rank_matrix(given)

with ThreadPoolExecutor(6) as pool:
    list(pool.map(work, range(24)))
print("done")
"""


def sanitized(folder, name, library):
    """The package built with a sanitizer, and the libraries to load before everything else.

    A sanitizer looks for what throws exceptions when it is loaded, so that must be there too.
    """
    flags = " ".join([*CHECKS[name], "-g", "-fno-omit-frame-pointer"])
    paths = [
        subprocess.run(
            ["gcc", f"-print-file-name={each}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for each in (library, "libstdc++.so")
    ]
    return built(folder, CMAKE_CXX_FLAGS=flags), " ".join(paths)


@pytest.mark.skipif(not shutil.which("gcc"), reason="no compiler")
def test_memory_and_undefined_behaviour(tmp_path):
    folder, preload = sanitized(tmp_path, "address", "libasan.so")
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    _, done = run_kernel_tests(folder, LD_PRELOAD=preload, **options)
    said = done.stdout + done.stderr
    assert "runtime error" not in said, said[-5000:]
    assert "AddressSanitizer" not in said, said[-5000:]
    assert done.returncode == 0, said[-5000:]


@pytest.mark.skipif(not shutil.which("gcc"), reason="no compiler")
def test_races(tmp_path):
    folder, preload = sanitized(tmp_path, "thread", "libtsan.so")
    options = {"LD_PRELOAD": preload, "TSAN_OPTIONS": "halt_on_error=0 exitcode=66"}
    done = run(folder, "-c", RACE, **options)
    ours = [line for line in done.stderr.splitlines() if "_kernels/" in line]
    assert not ours, done.stderr[-5000:]
    assert done.stdout == "done\n", done.stderr[-3000:]
