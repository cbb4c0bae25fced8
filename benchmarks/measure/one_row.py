"""One row at a time, as a service asks: seconds for the set of one row."""

from __future__ import annotations

import importlib
import statistics
import time
from typing import Any

from benchmarks.measure.loading import load


def one_row(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of a call with one row. Jobs have: contestant, score, alpha, calibration,
    test, calls.
    """
    module = importlib.import_module(f"benchmarks.contestants.{job['contestant']}")
    contestant = module.Contestant("standard", job["score"], job["alpha"], randomize=True)
    rows, labels = load(job["calibration"])
    test_rows, _ = load(job["test"], job["calls"])
    prepare = contestant.prepare
    contestant.calibrate(prepare(rows), prepare(labels))
    ones = [prepare(test_rows[row : row + 1].copy()) for row in range(len(test_rows))]
    seconds = []
    for each in ones[: len(ones) // 4] + ones:  # the first quarter is not counted
        start = time.perf_counter()
        contestant.predict(each)
        seconds.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(seconds[len(ones) // 4 :]),
        "version": contestant.version(),
    }
