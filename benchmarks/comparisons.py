"""Run evencover and its peers in turn, in fresh processes: seconds, memory and agreement."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.data import Arrays
from benchmarks.harness import CannotInstallError, Record, python_of, run_job
from benchmarks.plan import (
    AGREEMENTS,
    ALPHA,
    BASELINE,
    COMPARISONS,
    KNOWN_DIFFERENCES,
    OURSELVES,
    Plan,
)

# Peers calculate in float32: scores within rounding of the threshold may fall on either side.
LARGEST_SHARE = 1e-3


def interpreters(plan: Plan) -> dict[str, Path | str]:
    """Return the Python of each contestant, or "error: reason" if a peer cannot be installed."""
    found: dict[str, Path | str] = {OURSELVES: sys.executable, BASELINE: sys.executable}
    for peer in plan.peers:
        try:
            found[peer] = python_of(peer)
        except CannotInstallError as reason:
            found[peer] = f"error: cannot be installed: {reason}"
    return found


def run_contestant(pythons: Mapping[str, Path | str], contestant: str, job: Record) -> Record:
    """Return the result of one process."""
    job = {"kind": "versus", "contestant": contestant, "alpha": ALPHA, **job}
    return run_job(pythons[contestant], job)


def compare_all(
    plan: Plan, pythons: Mapping[str, Path | str], calibration: Arrays, test: Arrays
) -> list[Record]:
    """Return one record per contestant and comparison, with medians and all single runs."""
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
                if runs[peer] and "error" in runs[peer][-1]:
                    continue
                print(f"{method} {score}: evencover and {peer}, {repetition + 1}", flush=True)
                own = run_contestant(pythons, OURSELVES, job)
                theirs = run_contestant(pythons, peer, job)
                runs[OURSELVES].append(own)
                runs[peer].append(theirs)
                if "error" not in own and "error" not in theirs:
                    ratios[peer].append(_ratio(own, theirs))
            if not present:  # a small run; our own part must still work
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


def _ratio(own: Record, theirs: Record) -> Record:
    """Return the slowdown of the peer, from two consecutive runs."""
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
    }


def check_all(
    plan: Plan, pythons: Mapping[str, Path | str], calibration: Arrays, test: Arrays
) -> list[Record]:
    """Count, for each peer and method without randomness, memberships that differ from ours."""
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for method, score, peers in AGREEMENTS:
            job = {
                "method": method,
                "score": score,
                "randomize": False,
                "calibration": calibration.to_job(),
                "test": test.to_job(),
                "test_rows": plan.agreement_rows,
            }
            ours = Path(folder, f"{method}_{score}.npz")
            own = run_contestant(pythons, OURSELVES, {**job, "save": str(ours)})
            for peer in peers:
                if peer not in pythons:
                    continue
                print(f"{method} {score}: are the sets of {peer} ours?", flush=True)
                theirs = Path(folder, f"{method}_{score}_{peer}.npz")
                rows = plan.crepes_rows[method] if peer == "crepes" else plan.agreement_rows
                result = run_contestant(
                    pythons, peer, {**job, "test_rows": rows, "save": str(theirs)}
                )
                record: Record = {"method": method, "score": score, "contestant": peer}
                failure = own.get("error") or result.get("error")
                if failure:
                    record |= {"error": failure}
                elif "unsupported" in result:
                    record |= {"not_offered": result["unsupported"]}
                else:
                    record |= difference(np.load(ours), np.load(theirs))
                records.append(record)
    return records


def difference(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Record:
    """Count memberships in which two files of sets differ, over their common rows."""
    n_rows = min(len(ours["sizes"]), len(theirs["sizes"]))
    mine, other = _keys(ours, n_rows), _keys(theirs, n_rows)
    differing = len(np.setxor1d(mine, other, assume_unique=True))
    share = differing / max(len(mine), 1)
    record: Record = {
        "rows": n_rows,
        "memberships": len(mine),
        "differing": differing,
        "agrees": share <= LARGEST_SHARE,
    }
    if len(theirs["thresholds"]):
        finite = np.isfinite(ours["thresholds"]) & np.isfinite(theirs["thresholds"])
        gap = np.abs(ours["thresholds"] - theirs["thresholds"])[finite]
        record["largest_threshold_difference"] = float(gap.max(initial=0.0))
        infinite = np.isinf(ours["thresholds"]) != np.isinf(theirs["thresholds"])
        record["classes_infinite_in_one_only"] = int(infinite.sum())
    return record


def _keys(sets: Mapping[str, np.ndarray], n_rows: int) -> np.ndarray:
    """Encode each member as one number per (row, class)."""
    sizes = sets["sizes"][:n_rows]
    rows = np.repeat(np.arange(n_rows, dtype=np.int64), sizes)
    return (rows << 32) + sets["indices"][: len(rows)]
