"""Fitting on scores alone: POOLED and CLUSTERED in turn, on the same simulated scores."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

METHODS = ("clustered", "pooled")


def fits(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of `fit_scores` by method, and of their ratio. Jobs have: rows, classes,
    repeats.

    Scores are normal with a mean of their own for each class.
    """
    import evencover

    rng = np.random.default_rng(0)
    labels = rng.integers(0, job["classes"], job["rows"])
    scores = rng.normal(size=job["rows"]) + rng.normal(size=job["classes"])[labels]
    predictors = {
        "clustered": evencover.ClusteredPredictor(),
        "pooled": evencover.PooledPredictor(),
    }
    few = slice(0, 2000)
    for predictor in predictors.values():  # imports, and the threads of libraries
        predictor.fit_scores(scores[few], labels[few] % 20, 20)
    seconds: dict[str, list[float]] = {method: [] for method in METHODS}
    for _ in range(job["repeats"]):
        for method in METHODS:
            start = time.perf_counter()
            predictors[method].fit_scores(scores, labels, job["classes"])
            seconds[method].append(time.perf_counter() - start)
    ratios = [b / a for a, b in zip(seconds["clustered"], seconds["pooled"], strict=True)]
    return {
        **{f"{method}_seconds": statistics.median(each) for method, each in seconds.items()},
        "ratio": statistics.median(ratios),
        "rows": job["rows"],
        "classes": job["classes"],
    }
