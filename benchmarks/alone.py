"""Measure evencover alone by threads, rows and classes; and common defaults."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks import data
from benchmarks.harness import CACHE, Record, n_cores, run_job
from benchmarks.plan import ALPHA, OURSELVES, Plan

ONE_ROW_PEERS = ("torchcp", "mapie")


def _measure(arrays: data.Arrays, rows: int, threads: int, repeats: int) -> Record:
    return run_job(
        sys.executable,
        {
            "kind": "alone",
            "arrays": arrays.to_job(),
            "rows": rows,
            "threads": threads,
            "alpha": ALPHA,
            "repeats": repeats,
        },
    )


def by_threads(plan: Plan, test: data.Arrays) -> list[Record]:
    """Take medians over fresh processes for each number of threads, in turn."""
    counts = range(1, n_cores() + 1) if n_cores() <= 4 else (1, 2, 4, n_cores())
    runs: dict[int, list[Record]] = {threads: [] for threads in counts}
    for repetition in range(plan.repetitions):
        for threads, each in runs.items():
            print(f"evencover alone, threads: {threads}, {repetition + 1}", flush=True)
            each.append(_measure(test, plan.n_rows, threads, plan.repeats))
    return [{**_median(each), "threads": threads} for threads, each in runs.items()]


def _median(runs: list[Record]) -> Record:
    good = [run for run in runs if "error" not in run]
    if not good:
        return {"error": runs[-1]["error"]}
    medians = {key: statistics.median(run[key] for run in good) for key in good[0]}
    for step in ("true_label_score", "calibrate", "predict"):
        # Both were measured in one process, so their ratio is more stable.
        medians[f"{step}_per_plain_read"] = statistics.median(
            run[f"{step}_seconds"] / run["plain_read_seconds"] for run in good
        )
    return {**medians, "runs": runs}


def scaling(plan: Plan) -> dict[str, list[Record]]:
    """Measure cost by the number of rows, and by the number of classes."""
    result: dict[str, list[Record]] = {"rows": [], "classes": []}
    for axis, points in (("rows", plan.scaling_rows), ("classes", plan.scaling_classes)):
        for rows, classes in points:
            print(f"evencover alone, {rows} rows of {classes} classes", flush=True)
            most = max(n for n, k in points if k == classes)
            arrays = data.make(most, classes, seed=3)
            measured = _measure(arrays, rows, n_cores(), plan.repeats)
            result[axis].append({"rows": rows, "classes": classes, **measured})
    return result


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


def everyday(
    plan: Plan, pythons: Mapping[str, Path | str], calibration: data.Arrays, test: data.Arrays
) -> Record:
    """Measure common defaults."""
    return {
        "fits": [_fits(*shape, plan.repeats) for shape in plan.fit_shapes],
        "comparing": run_job(sys.executable, {"kind": "comparing", "n_splits": plan.n_splits}),
        "one_row": {
            score: _in_turn(
                pythons,
                {
                    "kind": "one_row",
                    "score": score,
                    "alpha": ALPHA,
                    "calibration": calibration.to_job(),
                    "test": test.to_job(),
                    "calls": plan.one_row_calls,
                },
                plan.repetitions,
            )
            for score in ("softmax", "aps")
        },
        "selections": _selections(plan, calibration, test),
    }


def _fits(rows: int, classes: int, repeats: int) -> Record:
    print(f"POOLED and CLUSTERED, {rows} scores of {classes} classes", flush=True)
    job = {"kind": "fits", "rows": rows, "classes": classes, "repeats": repeats}
    return {"rows": rows, "classes": classes, **run_job(sys.executable, job)}


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


def _selections(plan: Plan, calibration: data.Arrays, test: data.Arrays) -> Record:
    print("sets under other rules, on one thread", flush=True)
    return run_job(
        sys.executable,
        {
            "kind": "selections",
            "calibration": calibration.to_job(),
            "test": test.to_job(),
            "alpha": ALPHA,
            "repeats": plan.repeats,
            "instructions": "avx2",
        },
    )
