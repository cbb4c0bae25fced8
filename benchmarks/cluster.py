"""Compare one worker process with two, and with threads: ``python -m benchmarks.cluster``.

A memory-mapped and cached file of 2,000,000 x 500 float32 (4 GB) is calibrated, predicted and
evaluated by: one thread of this process, a dask cluster of one worker process with one thread, one
of two, and two threads. They take turns; ratios are medians over the turns. A plain read of the
file by one and by two processes shows the limit of the memory bandwidth.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.harness import CACHE, RESULTS, describe_machine, median_ratio, timed

LEAST_SPEEDUP = 1.6  # two workers against one
MOST_OVERHEAD = 0.15  # one worker against one thread
BASE_ROWS = 100_000  # simulated, then repeated
RUNS = ("thread", "worker", "workers", "threads")  # 1 thread, 1 worker, 2 workers, 2 threads
PLAIN = ("plain_read", "plain_read_2")


def main() -> int:
    """Measure, print, write; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--classes", type=int, default=500)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--score", default="aps")
    parser.add_argument("--out", type=Path, default=RESULTS / "cluster.json")
    options = parser.parse_args()
    before = describe_machine()
    arrays = _rows(options.rows, options.classes)
    seconds = measure(arrays, options.score, options.repetitions)
    result = {"machine": before, "rows": options.rows, "classes": options.classes}
    result |= {"score": options.score, "seconds": seconds, **summary(seconds)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    gigabytes = 4e-9 * options.rows * options.classes
    show(seconds, result, gigabytes)
    return 0 if result["bars_met"] else 1


def _rows(n_rows: int, n_classes: int) -> data.Arrays:
    n_base = min(BASE_ROWS, n_rows)
    times = n_rows // n_base
    target = CACHE / "cluster" / f"{times * n_base}x{n_classes}.npy"
    labels = target.with_name(target.stem + "_labels.npy")
    if labels.exists():  # written last
        return data.Arrays(target, labels)
    target.parent.mkdir(parents=True, exist_ok=True)
    return data.repeat_to_file(data.make(n_base, n_classes, seed=0), times, target)


def measure(arrays: data.Arrays, score: str, repetitions: int) -> dict[str, dict[str, list[float]]]:
    """Measure seconds of every job by every contestant, in turns."""
    import distributed

    from evencover.engine.executors import local_cluster

    seconds: dict[str, dict[str, list[float]]] = {}
    with (
        local_cluster(1) as small,
        local_cluster(2) as large,
        distributed.Client(small) as worker,
        distributed.Client(large) as workers,
    ):
        executors = {"thread": None, "worker": worker, "workers": workers, "threads": None}
        for turn in range(repetitions + 1):  # the first one warms up
            for processes, name in enumerate(PLAIN, start=1):
                elapsed = _plain_read(arrays.probabilities, processes)
                if turn:
                    seconds.setdefault("plain_read", {}).setdefault(name, []).append(elapsed)
            for name in RUNS:
                os.environ["EVENCOVER_THREADS"] = "2" if name == "threads" else "1"
                for job, elapsed in _jobs(arrays, score, executors[name]).items():
                    if turn:
                        seconds.setdefault(job, {}).setdefault(name, []).append(elapsed)
    return seconds


def _jobs(arrays: data.Arrays, score: str, executor: Any) -> dict[str, float]:
    from evencover import StandardPredictor, predict_to_folder

    rows, labels = arrays.probabilities, np.load(arrays.labels)
    folder = CACHE / "cluster" / "sets"
    shutil.rmtree(folder, ignore_errors=True)
    predictor = StandardPredictor(score=score)
    jobs: dict[str, Callable[[], Any]] = {
        "calibrate": lambda: predictor.fit(rows, labels, executor=executor),
        "predict": lambda: predict_to_folder(predictor, rows, folder, executor=executor),
        "evaluate": lambda: _evaluate(predictor, rows, labels, executor),
    }
    return {name: timed(job) for name, job in jobs.items()}


def _evaluate(predictor: Any, rows: Path, labels: np.ndarray, executor: Any) -> None:
    import warnings

    with warnings.catch_warnings():  # these are the calibration rows, on purpose
        warnings.simplefilter("ignore")
        predictor.evaluate(rows, labels, executor=executor)


def _plain_read(path: Path, n_processes: int) -> float:
    """Measure seconds until running processes have read all of the file."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(n_processes) as pool:
        pool.map(_import_only, range(n_processes))
        n_rows = len(np.load(path, mmap_mode="r"))
        bounds = np.linspace(0, n_rows, n_processes + 1).astype(int).tolist()
        ranges = [(path, *pair) for pair in pairwise(bounds)]
        return timed(lambda: pool.map(_read, ranges, chunksize=1))


def _import_only(_: int) -> None:
    time.sleep(0.1)  # all processes have started


def _read(part: tuple[Path, int, int]) -> float:
    path, start, stop = part
    rows = np.load(path, mmap_mode="r")
    step = max(1, (1 << 20) // rows.shape[1])
    return max(float(rows[i : min(i + step, stop)].max()) for i in range(start, stop, step))


def summary(seconds: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Compute ratios of each job and of their sum, and compare them with the bars."""
    three = ("calibrate", "predict", "evaluate")
    together = {
        name: [sum(turn) for turn in zip(*(seconds[job][name] for job in three), strict=True)]
        for name in RUNS
    }
    ratios = {}
    for job, each in {**{job: seconds[job] for job in three}, "together": together}.items():
        ratios[job] = {
            "speedup_of_two_workers": median_ratio(each["worker"], each["workers"]),
            "overhead_of_one_worker": median_ratio(each["worker"], each["thread"]) - 1,
            "speedup_of_two_threads": median_ratio(each["thread"], each["threads"]),
        }
    plain = seconds["plain_read"]
    read = {"speedup_of_two_processes": median_ratio(plain[PLAIN[0]], plain[PLAIN[1]])}
    met = (
        ratios["together"]["speedup_of_two_workers"] >= LEAST_SPEEDUP
        and ratios["together"]["overhead_of_one_worker"] <= MOST_OVERHEAD
    )
    return {"ratios": ratios, "plain_read": read, "bars_met": met}


def show(seconds: dict[str, dict[str, list[float]]], result: dict[str, Any], size: float) -> None:
    """Print the table."""
    load = result["machine"]["load_before"]
    print(f"{result['rows']:,} x {result['classes']}, {size:.1f} GB, load {load}")
    for job, each in seconds.items():
        cells = (
            f"{name} {statistics.median(turns):.2f} s ({size / statistics.median(turns):.2f} GB/s)"
            for name, turns in each.items()
        )
        print(f"{job:28}", ", ".join(cells))
    for job, ratios in result["ratios"].items():
        print(f"{job:28}", ", ".join(f"{name} {value:.2f}" for name, value in ratios.items()))
    print(f"{'plain read':28} two processes {result['plain_read']['speedup_of_two_processes']:.2f}")
    print("bars met" if result["bars_met"] else "a bar is missed")


if __name__ == "__main__":
    sys.exit(main())
