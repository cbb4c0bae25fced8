"""Do the contestants give the same answers? A race between different answers is worthless."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.comparisons import run_contestant
from benchmarks.data import Arrays
from benchmarks.plan import AGREEMENTS, OURSELVES, Plan

Record = dict[str, Any]

# Peers calculate in float32: scores within its rounding of the threshold may fall on either side.
LARGEST_SHARE = 1e-3


def check_all(
    plan: Plan, pythons: Mapping[str, Path | str], calibration: Arrays, test: Arrays
) -> list[Record]:
    """For each peer and method without randomness: how many of its memberships differ from ours."""
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
    """Memberships in which two files of sets differ, over the rows that both have."""
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
    """One number per (row, class) that is in."""
    sizes = sets["sizes"][:n_rows]
    rows = np.repeat(np.arange(n_rows, dtype=np.int64), sizes)
    return (rows << 32) + sets["indices"][: len(rows)]
