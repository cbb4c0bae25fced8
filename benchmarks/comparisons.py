"""evencover and its peers in turn, each in a fresh process, on the same arrays."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.data import Arrays
from benchmarks.environments import CannotInstallError, python_of
from benchmarks.plan import (
    ALPHA,
    BASELINE,
    COMPARISONS,
    KNOWN_DIFFERENCES,
    OURSELVES,
    Plan,
)
from benchmarks.processes import run_job

Record = dict[str, Any]


def interpreters(plan: Plan) -> dict[str, Path | str]:
    """The Python of each contestant; for a peer that cannot be installed, "error: reason"."""
    found: dict[str, Path | str] = {OURSELVES: sys.executable, BASELINE: sys.executable}
    for peer in plan.peers:
        try:
            found[peer] = python_of(peer)
        except CannotInstallError as reason:
            found[peer] = f"error: cannot be installed: {reason}"
    return found


def run_contestant(pythons: Mapping[str, Path | str], contestant: str, job: Record) -> Record:
    """The result of one process."""
    python = pythons[contestant]
    if str(python).startswith("error: "):
        return {"error": str(python).removeprefix("error: ")}
    return run_job(python, {"kind": "versus", "contestant": contestant, "alpha": ALPHA, **job})


def compare_all(
    plan: Plan, pythons: Mapping[str, Path | str], calibration: Arrays, test: Arrays
) -> list[Record]:
    """One record per contestant and comparison, with medians and all single runs."""
    records = []
    for method, score, randomize, peers in COMPARISONS:
        job = {
            "method": method,
            "score": score,
            "randomize": randomize,
            "calibration": calibration.to_job(),
            "test": test.to_job(),
        }
        present = [peer for peer in peers if peer in pythons]
        runs: dict[str, list[Record]] = {name: [] for name in (OURSELVES, *present)}
        ratios: dict[str, list[Record]] = {peer: [] for peer in present}
        for repetition in range(plan.repetitions):
            for peer in present:
                failed = runs[peer] and "error" in runs[peer][-1]
                if failed or (peer == "crepes" and repetition > 0):  # once is slow enough
                    continue
                print(f"{method} {score}: evencover and {peer}, {repetition + 1}", flush=True)
                own = run_contestant(pythons, OURSELVES, job)
                theirs = run_contestant(pythons, peer, {**job, **_reduced(plan, peer, method)})
                runs[OURSELVES].append(own)
                runs[peer].append(theirs)
                if "error" not in own and "error" not in theirs:
                    ratios[peer].append(_ratio(own, theirs))
            if not present:  # a small run; our own part must work all the same
                runs[OURSELVES].append(run_contestant(pythons, OURSELVES, job))
        for name, each in runs.items():
            record = {"method": method, "score": score, "contestant": name, **_summary(each)}
            record["note"] = KNOWN_DIFFERENCES.get((method, score, name), "")
            if ratios.get(name):
                record["ratio"] = {
                    step: statistics.median(pair[step] for pair in ratios[name])
                    for step in ("calibrate", "predict", "total")
                }
            records.append({**record, "runs": each})
    return records


def _reduced(plan: Plan, peer: str, method: str) -> Record:
    """crepes compares each score with all calibration scores one by one: far too slow in full."""
    if peer != "crepes":
        return {}
    return {"test_rows": plan.crepes_rows[method], "extrapolate_to": plan.n_rows}


def _ratio(own: Record, theirs: Record) -> Record:
    """How many times as long the peer took, from two runs one after the other."""
    steps = ("calibrate", "predict")
    pair = {step: theirs[f"{step}_seconds"] / own[f"{step}_seconds"] for step in steps}
    pair["total"] = _total(theirs) / _total(own)
    return pair


def _total(run: Record) -> float:
    return float(run["calibrate_seconds"] + run["predict_seconds"])


def _summary(runs: list[Record]) -> Record:
    good = [run for run in runs if "error" not in run]
    if not good:
        return {"error": runs[-1]["error"] if runs else "was not run"}
    first = good[0]
    return {
        "version": first["version"],
        "calibrate_seconds": statistics.median(run["calibrate_seconds"] for run in good),
        "predict_seconds": statistics.median(run["predict_seconds"] for run in good),
        "total_seconds": statistics.median(_total(run) for run in good),
        "peak_bytes_over_input": statistics.median(run["peak_bytes_over_input"] for run in good),
        "coverage": first["coverage"],
        "average_size": first["average_size"],
        "extrapolated_from_rows": first["extrapolated_from_rows"],
    }
