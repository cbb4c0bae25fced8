"""Measure evencover alone: the memory of a large file, the sets of single rows, and `compare`.

``python -m benchmarks`` runs the first two, and ``python -m benchmarks.alone`` times `compare`: 12
candidates (its default methods and scores) on 10 splits, with rows as peaked and as long-tailed as
those of a model that reads characters. It prints the median time and the memory over the input.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.harness import CACHE, PeakMemory, Record, run_job, timed
from benchmarks.plan import ALPHA, OURSELVES, Plan

ONE_ROW_PEERS = ("torchcp", "mapie")


def memory(plan: Plan, test: data.Arrays) -> Record:
    """Measure peak memory for a file many times the size; delete the file afterwards."""
    if plan.memory_times == 0:
        return {"error": "skipped on request"}
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        print(f"evencover alone, {plan.memory_times * plan.n_rows} rows in a file", flush=True)
        large = data.repeat_to_file(test, plan.memory_times, Path(folder, "large.npy"))
        job = {"kind": "memory", "arrays": large.to_job(), "alpha": ALPHA}
        return run_job(sys.executable, job)


def one_row(
    plan: Plan, pythons: Mapping[str, Path | str], calibration: data.Arrays, test: data.Arrays
) -> dict[str, dict[str, Record]]:
    """Measure the sets of one row at a time, as in a service, by score and contestant."""
    arrays = {"calibration": calibration.to_job(), "test": test.to_job()}
    job = {"kind": "one_row", "alpha": ALPHA, "calls": plan.one_row_calls, **arrays}
    return {
        score: _in_turn(pythons, {**job, "score": score}, plan.repetitions)
        for score in ("softmax", "aps")
    }


def _in_turn(pythons: Mapping[str, Path | str], job: Record, repetitions: int) -> dict[str, Record]:
    """Take median seconds of each contestant, and the slowdown of the peer."""
    present = [OURSELVES, *(peer for peer in ONE_ROW_PEERS if peer in pythons)]
    runs: dict[str, list[Record]] = {name: [] for name in present}
    for repetition in range(repetitions):
        for name in present:
            print(f"{job['kind']}: {name}, {repetition + 1}", flush=True)
            runs[name].append(run_job(pythons[name], {**job, "contestant": name}))
    found: dict[str, Record] = {}
    for name, each in runs.items():
        errors = [run["error"] for run in (*each, *runs[OURSELVES]) if "error" in run]
        found[name] = {"error": errors[0]} if errors else {**each[0], **_medians(each, runs)}
    return found


def _medians(each: list[Record], runs: dict[str, list[Record]]) -> Record:
    pairs = zip(each, runs[OURSELVES], strict=True)
    return {
        "seconds": statistics.median(run["seconds"] for run in each),
        "ratio": statistics.median(run["seconds"] / own["seconds"] for run, own in pairs),
    }


def long_tailed(n_rows: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate rows and labels as of a model that reads characters, of which few are in the data.

    A sixth of the classes have labels, 1 to about 50 rows each (the median is 9). Of the rows, 12%
    have the label behind another class, and 5% give it a probability near zero, so that thresholds
    of some classes with few rows let them into nearly all sets.
    """
    rng = np.random.default_rng(0)
    labeled = rng.choice(n_classes, n_classes // 6, replace=False)
    weights = rng.lognormal(sigma=0.6, size=len(labeled))
    labels = labeled[rng.choice(len(labeled), n_rows, p=weights / weights.sum())]
    kind, each = rng.random(n_rows), np.arange(n_rows)
    is_lost, is_second = kind < 0.05, (kind >= 0.05) & (kind < 0.17)
    others = labeled[rng.integers(0, len(labeled), n_rows)]
    first = np.where(is_lost | is_second, others, labels)
    rows = rng.standard_normal((n_rows, n_classes), dtype=np.float32) * np.float32(2.5)
    rows[each, first] += rng.uniform(22, 34, n_rows).astype(np.float32)
    second = np.where(is_second, labels, others)
    rows[each[~is_lost], second[~is_lost]] += rng.uniform(10, 24, n_rows)[~is_lost]
    for row in rows:  # in place, because the rows fill much of the memory
        np.exp(row - row.max(), out=row)
        row /= row.sum()
    return rows, labels


def main() -> None:
    """Print one line about `compare`."""
    import evencover

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows: the times mean nothing")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore", evencover.EvencoverWarning)  # about small classes
    n_rows, n_classes = (1_000, 60) if options.quick else (12_000, 6_624)
    rows, labels = long_tailed(n_rows, n_classes)
    evencover.compare(rows[:200], labels[:200], n_splits=2)  # imports, thread pools
    with PeakMemory() as memory:
        first = timed(lambda: evencover.compare(rows, labels, n_splits=10))
    more = [timed(lambda: evencover.compare(rows, labels)) for _ in range(options.repeats - 1)]
    seconds, megabytes = statistics.median([first, *more]), memory.over_start / 1e6
    print(
        f"compare, 12 candidates x 10 splits on {n_rows:,} x {n_classes:,} rows: {seconds:.2f} s, "
        f"{megabytes:.0f} MB over the input"
    )


if __name__ == "__main__":
    main()
