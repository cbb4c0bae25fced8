"""Sets under many rules against one plain read, and and calibrating: one thread."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure.loading import load
from benchmarks.plain_read import plain_read


def selections(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of each step, and of its ratio to a plain read in the same turn.

    Jobs have: calibration, test, alpha, repeats, instructions (forced, if this machine has them).
    """
    os.environ["EVENCOVER_THREADS"] = "1"
    import evencover
    from evencover._kernels import native

    if job["instructions"] in native._native.instruction_sets():
        native.INSTRUCTION_SET = job["instructions"]
    calibration, labels = load(job["calibration"])
    rows, _ = load(job["test"])

    def predict(predictor: Any) -> Callable[[], object]:
        predictor.fit(calibration, labels)
        return lambda: predictor.predict_set(rows)

    options = {"alpha": job["alpha"]}
    softmax = evencover.StandardPredictor(**options)
    steps: dict[str, Callable[[], object]] = {
        "plain read": lambda: plain_read(rows, None),
        "APS sets": predict(evencover.StandardPredictor(score="aps", **options)),
        "APS sets, CLASSWISE": predict(evencover.ClasswisePredictor(score="aps", **options)),
        "SAPS sets": predict(evencover.StandardPredictor(score="saps", **options)),
        "PAS sets": predict(evencover.StandardPredictor(score="pas", **options)),
        "RC3P sets": predict(evencover.RC3PPredictor(score="aps", **options)),
        "softmax, calibrate": lambda: softmax.fit(calibration, labels),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(job["repeats"] + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if repeat > 0:  # the first touches memory that later ones find in place
                seconds[name].append(time.perf_counter() - start)
    return {
        "instructions": native.INSTRUCTION_SET,
        "steps": {
            name: {
                "seconds": statistics.median(each),
                "per_plain_read": _ratio(each, seconds["plain read"]),
                "per_aps": _ratio(each, seconds["APS sets"]),
            }
            for name, each in seconds.items()
        },
    }


def _ratio(these: list[float], those: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(these, those, strict=True))
