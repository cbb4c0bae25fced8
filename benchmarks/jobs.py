"""Jobs that run in fresh processes: ``python -m benchmarks.jobs job.json result.json``.

Each job is a function of this module, dictionary in and out.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants.base import UnsupportedError
from benchmarks.harness import PeakMemory, PeakPrivateMemory, Record, timed


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


def main(job_file: str, result_file: str) -> None:
    warnings.simplefilter("ignore")  # warnings about small classes are expected
    job = json.loads(Path(job_file).read_text())
    Path(result_file).write_text(json.dumps(globals()[job["kind"]](job)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
