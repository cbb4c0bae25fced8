"""evencover against one plain read of its input, on a given number of threads."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.measure.loading import load, warm_up
from benchmarks.plain_read import on_blocks, plain_read


def alone(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of: a plain read, the true labels' APS scores, calibration, prediction.

    Jobs have: arrays, rows, threads, alpha, repeats. The steps take turns, so that what disturbs
    the machine disturbs them alike. All read the same array.
    """
    os.environ["EVENCOVER_THREADS"] = str(job["threads"])
    import evencover
    from benchmarks.contestants.evencover import Contestant

    rows, labels = load(job["arrays"], job.get("rows"))
    warm_up(Contestant("standard", "aps", job["alpha"], randomize=True))
    predictor = evencover.StandardPredictor(alpha=job["alpha"], score="aps").fit(rows, labels)
    score = evencover.APS()
    places = np.arange(len(rows))

    def score_block(block: slice) -> object:
        return score.true_label(rows[block], labels[block], ids=places[block])

    with ThreadPoolExecutor(job["threads"]) as threads:
        pool = threads if job["threads"] > 1 else None
        steps: dict[str, Callable[[], object]] = {
            "plain_read": lambda: plain_read(rows, pool),
            "true_label_score": lambda: on_blocks(score_block, rows, pool),
            "calibrate": lambda: predictor.fit(rows, labels),
            "predict": lambda: predictor.predict_set(rows),
        }
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        for repeat in range(job["repeats"] + 1):
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                if repeat > 0:  # the first touches memory that later ones find in place
                    seconds[name].append(time.perf_counter() - start)
    return {
        **{f"{name}_seconds": statistics.median(each) for name, each in seconds.items()},
        "gigabytes_per_second": rows.nbytes / statistics.median(seconds["plain_read"]) / 1e9,
        "average_size": float(predictor.predict_set(rows[:2000]).sizes.mean()),
        "rows": len(rows),
        "classes": rows.shape[1],
        "threads": job["threads"],
    }
