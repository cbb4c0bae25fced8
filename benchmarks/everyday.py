"""What people run by default: POOLED, compare, one row at a time, and sets under other rules."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.data import Arrays
from benchmarks.plan import ALPHA, EARLIER, OURSELVES, Plan
from benchmarks.processes import run_job

Record = dict[str, Any]
ONE_ROW_PEERS = ("torchcp", "mapie", EARLIER)


def measure_all(
    plan: Plan, pythons: Mapping[str, Path | str], calibration: Arrays, test: Arrays
) -> Record:
    """Everything, by part."""
    return {
        "fits": [_fits(*shape, plan.repeats) for shape in plan.fit_shapes],
        "comparing": _in_turn(
            pythons, (EARLIER,), {"kind": "comparing", "n_splits": plan.n_splits}, plan.repetitions
        ),
        "one_row": {
            score: _in_turn(
                pythons,
                ONE_ROW_PEERS,
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


def _in_turn(
    pythons: Mapping[str, Path | str], peers: tuple[str, ...], job: Record, repetitions: int
) -> dict[str, Record]:
    """Median seconds of each contestant, and of how many times as long a peer took."""
    present = [OURSELVES, *(peer for peer in peers if peer in pythons)]
    runs: dict[str, list[Record]] = {name: [] for name in present}
    for repetition in range(repetitions):
        for name in present:
            print(f"{job['kind']}: {name}, {repetition + 1}", flush=True)
            runs[name].append(_run(pythons[name], {**job, "contestant": name}))
    found: dict[str, Record] = {}
    for name, each in runs.items():
        errors = [run["error"] for run in (*each, *runs[OURSELVES]) if "error" in run]
        found[name] = {"error": errors[0]} if errors else {**each[0], **_medians(each, runs)}
    return found


def _run(python: Path | str, job: Record) -> Record:
    if str(python).startswith("error: "):
        return {"error": str(python).removeprefix("error: ")}
    return run_job(python, job)


def _medians(each: list[Record], runs: dict[str, list[Record]]) -> Record:
    pairs = zip(each, runs[OURSELVES], strict=True)
    return {
        "seconds": statistics.median(run["seconds"] for run in each),
        "ratio": statistics.median(run["seconds"] / own["seconds"] for run, own in pairs),
    }


def _selections(plan: Plan, calibration: Arrays, test: Arrays) -> Record:
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
