"""Jobs that run in fresh processes: ``python -m benchmarks.jobs job.json result.json``.

Each job is a function of this module, dictionary in and out.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants.base import UnsupportedError
from benchmarks.harness import (
    PeakMemory,
    PeakPrivateMemory,
    Record,
    median_ratio,
    on_blocks,
    plain_read,
    take_turns,
    timed,
)


def load(arrays: dict[str, str], n_rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Read the first rows of the files into memory."""
    rows = np.load(arrays["probabilities"], mmap_mode="r")[:n_rows]
    return np.array(rows), np.load(arrays["labels"])[:n_rows]


def make_contestant(name: str, *parameters: Any, randomize: bool) -> Any:
    module = importlib.import_module(f"benchmarks.contestants.{name}")
    return module.Contestant(*parameters, randomize=randomize)


def warm_up(contestant: Any) -> None:
    """Run once on little data, so that lazy imports and thread pools are not timed.

    Few classes with many rows each, so that clustering happens too.
    """
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(20), size=2000).astype(np.float32)
    labels = np.arange(2000) % 20
    contestant.calibrate(contestant.prepare(rows), contestant.prepare(labels))
    contestant.predict(contestant.prepare(rows[:100]))


def versus(job: Record) -> Record:
    """Time calibration and prediction of one contestant.

    Jobs may have: test_rows, to predict only that many; save, a file for the sets and thresholds.
    """
    parameters = (job["contestant"], job["method"], job["score"], job["alpha"])
    try:
        contestant = make_contestant(*parameters, randomize=job["randomize"])
    except UnsupportedError as reason:
        return {"unsupported": str(reason)}
    rows, labels = load(job["calibration"])
    test_rows, test_labels = load(job["test"], job.get("test_rows"))
    inputs = [contestant.prepare(each) for each in (rows, labels, test_rows)]
    warm_up(make_contestant(*parameters, randomize=job["randomize"]))
    with PeakMemory() as memory:
        start = time.perf_counter()
        contestant.calibrate(inputs[0], inputs[1])
        calibrated = time.perf_counter()
        predicted = contestant.predict(inputs[2])
        end = time.perf_counter()
    sets = contestant.sets(predicted)
    if "save" in job:
        thresholds = contestant.thresholds(rows.shape[1])
        np.savez(
            job["save"],
            sizes=sets.sizes,
            indices=sets.indices,
            thresholds=np.empty(0) if thresholds is None else thresholds,
        )
    return {
        "version": contestant.version(),
        "calibrate_seconds": calibrated - start,
        "predict_seconds": end - calibrated,
        "peak_bytes_over_input": memory.over_start,
        "coverage": sets.coverage(test_labels),
        "average_size": float(sets.sizes.mean()),
    }


def alone(job: Record) -> Record:
    """Time a plain read, the true labels' APS scores, calibration and prediction in turn."""
    os.environ["EVENCOVER_THREADS"] = str(job["threads"])
    import evencover

    rows, labels = load(job["arrays"], job.get("rows"))
    warm_up(make_contestant("evencover", "standard", "aps", job["alpha"], randomize=True))
    predictor = evencover.StandardPredictor(alpha=job["alpha"], score="aps").fit(rows, labels)
    score, ids = evencover.APS(), np.arange(len(rows))

    def score_block(block: slice) -> object:
        return score.true_label(rows[block], labels[block], ids=ids[block])

    with ThreadPoolExecutor(job["threads"]) as threads:
        pool = threads if job["threads"] > 1 else None
        steps: dict[str, Callable[[], object]] = {
            "plain_read": lambda: plain_read(rows, pool),
            "true_label_score": lambda: on_blocks(score_block, rows, pool),
            "calibrate": lambda: predictor.fit(rows, labels),
            "predict": lambda: predictor.predict_set(rows),
        }
        seconds = take_turns(steps, job["repeats"])
    return {
        **{f"{name}_seconds": statistics.median(each) for name, each in seconds.items()},
        "gigabytes_per_second": rows.nbytes / statistics.median(seconds["plain_read"]) / 1e9,
        "average_size": float(predictor.predict_set(rows[:2000]).sizes.mean()),
        "rows": len(rows),
        "classes": rows.shape[1],
        "threads": job["threads"],
    }


def memory(job: Record) -> Record:
    """Measure the memory of CLUSTERED with APS for a large file; sets are counted, not kept."""
    import evencover

    rows = np.load(job["arrays"]["probabilities"], mmap_mode="r")
    labels = np.load(job["arrays"]["labels"])
    warm_up(make_contestant("evencover", "clustered", "aps", job["alpha"], randomize=True))
    predictor = evencover.ClusteredPredictor(alpha=job["alpha"], score="aps")
    with PeakPrivateMemory() as private:
        start = time.perf_counter()
        predictor.fit(rows, labels)
        calibrated = time.perf_counter()
        n_rows, covered, total_size = 0, 0, 0
        for sets in predictor.predict_set_blocks(rows):
            covered += int(sets.contains(labels[n_rows : n_rows + len(sets)]).sum())
            total_size += len(sets.indices)
            n_rows += len(sets)
        end = time.perf_counter()
    return {
        "rows": len(rows),
        "classes": rows.shape[1],
        "input_bytes": rows.nbytes,
        "calibrate_seconds": calibrated - start,
        "predict_seconds": end - calibrated,
        "peak_private_bytes": private.over_start,
        "coverage": covered / n_rows,
        "average_size": total_size / n_rows,
    }


def fits(job: Record) -> Record:
    """Time `fit_scores` of POOLED and CLUSTERED in turn, on normal scores."""
    import evencover

    rng = np.random.default_rng(0)
    labels = rng.integers(0, job["classes"], job["rows"])
    scores = rng.normal(size=job["rows"]) + rng.normal(size=job["classes"])[labels]
    clustered, pooled = evencover.ClusteredPredictor(), evencover.PooledPredictor()
    steps: dict[str, Callable[[], object]] = {
        "clustered": lambda: clustered.fit_scores(scores, labels, job["classes"]),
        "pooled": lambda: pooled.fit_scores(scores, labels, job["classes"]),
    }
    seconds = take_turns(steps, job["repeats"])
    return {
        **{f"{method}_seconds": statistics.median(each) for method, each in seconds.items()},
        "ratio": median_ratio(seconds["pooled"], seconds["clustered"]),
    }


def comparing(job: Record) -> Record:
    """Time one call of `compare` on the bundled data, with four methods and three scores."""
    import evencover
    from evencover.data import load_languages

    rows, labels, _ = load_languages()
    few = slice(0, 2000)
    evencover.compare(rows[few, :20] + 1 / 40, labels[few] % 20, from_logits=True, n_splits=2)
    methods = ["standard", "classwise", "clustered", "pooled"]
    scores = ["softmax", "aps", "raps"]
    options = {"methods": methods, "scores": scores, "n_splits": job["n_splits"]}
    return {"seconds": timed(lambda: evencover.compare(rows, labels, **options))}


def one_row(job: Record) -> Record:
    """Time the set of one row at a time, as in a service."""
    parameters = (job["contestant"], "standard", job["score"], job["alpha"])
    contestant = make_contestant(*parameters, randomize=True)
    rows, labels = load(job["calibration"])
    test_rows, _ = load(job["test"], job["calls"])
    contestant.calibrate(contestant.prepare(rows), contestant.prepare(labels))
    ones = [contestant.prepare(test_rows[row : row + 1].copy()) for row in range(len(test_rows))]
    warm = ones[: len(ones) // 4]
    seconds = [timed(lambda each=each: contestant.predict(each)) for each in warm + ones]
    return {"seconds": statistics.median(seconds[len(warm) :]), "version": contestant.version()}


def selections(job: Record) -> Record:
    """Time sets under several rules on one thread, in turn with a plain read."""
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
    seconds = take_turns(steps, job["repeats"])
    return {
        "instructions": native.INSTRUCTION_SET,
        "steps": {
            name: {
                "seconds": statistics.median(each),
                "per_plain_read": median_ratio(each, seconds["plain read"]),
                "per_aps": median_ratio(each, seconds["APS sets"]),
            }
            for name, each in seconds.items()
        },
    }


def main(job_file: str, result_file: str) -> None:
    warnings.simplefilter("ignore")  # warnings about small classes are expected
    job = json.loads(Path(job_file).read_text())
    Path(result_file).write_text(json.dumps(globals()[job["kind"]](job)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
