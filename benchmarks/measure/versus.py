"""One contestant, one method: seconds to calibrate and to predict, peak memory, and the answer."""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np

from benchmarks.contestants.base import UnsupportedError
from benchmarks.measure.loading import load, warm_up
from benchmarks.peak_memory import PeakMemory


def versus(job: dict[str, Any]) -> dict[str, Any]:
    """Jobs have: contestant, method, score, alpha, randomize, calibration, test; and may have:

    test_rows, to predict only that many; extrapolate_to, to scale the seconds to that many rows;
    save, a file for the sets and thresholds.
    """
    module = importlib.import_module(f"benchmarks.contestants.{job['contestant']}")
    parameters = (job["method"], job["score"], job["alpha"])
    try:
        contestant = module.Contestant(*parameters, randomize=job["randomize"])
    except UnsupportedError as reason:
        return {"unsupported": str(reason)}
    rows, labels = load(job["calibration"])
    test_rows, test_labels = load(job["test"], job.get("test_rows"))
    n_classes = rows.shape[1]
    prepare = contestant.prepare
    inputs = prepare(rows), prepare(labels), prepare(test_rows)
    warm_up(module.Contestant(*parameters, randomize=job["randomize"]))

    with PeakMemory() as memory:
        start = time.perf_counter()
        contestant.calibrate(inputs[0], inputs[1])
        calibrated = time.perf_counter()
        predicted = contestant.predict(inputs[2])
        end = time.perf_counter()

    sets = contestant.sets(predicted)
    scale = job["extrapolate_to"] / len(test_rows) if "extrapolate_to" in job else 1.0
    if "save" in job:
        thresholds = contestant.thresholds(n_classes)
        np.savez(
            job["save"],
            sizes=sets.sizes,
            indices=sets.indices,
            thresholds=np.empty(0) if thresholds is None else thresholds,
        )
    return {
        "version": contestant.version(),
        "calibrate_seconds": calibrated - start,
        "predict_seconds": (end - calibrated) * scale,
        "extrapolated_from_rows": len(test_rows) if scale != 1.0 else None,
        "peak_bytes_over_input": memory.over_start,
        "coverage": sets.coverage(test_labels),
        "average_size": float(sets.sizes.mean()),
    }
