"""Measure the memory that a large file takes, and the sets of one row at a time."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks import data
from benchmarks.harness import CACHE, Record, run_job
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
