"""The bars for what people run by default (`everyday.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.plan import EARLIER

Record = dict[str, Any]
# What is measured; "at least" or "at most"; how much; and the number with a note.
Bar = tuple[str, str, float, Callable[[], tuple[float, str]]]


class NotMeasuredError(Exception):
    """There is no number to hold against the bar."""


def bars(results: Record) -> list[Bar]:
    """Those of POOLED, compare, one row, and sets under other rules."""
    found = results["everyday"]
    return [
        *(
            (
                f"POOLED, fit_scores, {rows:,} x {classes:,}, over CLUSTERED's",
                "at most",
                limit,
                lambda rows=rows, classes=classes: _fit_ratio(found["fits"], rows, classes),
            )
            for rows, classes, limit in ((50_000, 1_000, 3.0), (1_000_000, 10_000, 5.0))
        ),
        (
            "compare, four methods, three scores, bundled data, against 0.1.0",
            "at least",
            5.0,
            lambda: _times_faster(found["comparing"], EARLIER, 1),
        ),
        *(
            (
                f"predict_set of one row, {score}, against {peer}",
                "at least",
                limit,
                lambda score=score, peer=peer: _times_faster(found["one_row"][score], peer, 1e6),
            )
            for score in ("softmax", "aps")
            for peer, limit in ((EARLIER, 10.0), ("torchcp", 1.0), ("mapie", 1.0))
        ),
        *(
            (
                f"{step}, one thread, AVX2, over one plain read",
                "at most",
                limit,
                lambda step=step: _selection(found["selections"], step, "per_plain_read"),
            )
            for step, limit in (("APS sets", 6.0), ("APS sets, CLASSWISE", 12.0))
        ),
        *(
            (
                f"{step}, one thread, AVX2, over APS sets",
                "at most",
                2.0,
                lambda step=step: _selection(found["selections"], step, "per_aps"),
            )
            for step in ("SAPS sets", "PAS sets", "RC3P sets")
        ),
    ]


def _fit_ratio(fits: list[Record], rows: int, classes: int) -> tuple[float, str]:
    for each in fits:
        if (each["rows"], each["classes"]) == (rows, classes):
            if "error" in each:
                raise NotMeasuredError(each["error"])
            pooled, clustered = 1e3 * each["pooled_seconds"], 1e3 * each["clustered_seconds"]
            return each["ratio"], f"{pooled:.0f} ms against {clustered:.0f} ms"
    raise NotMeasuredError("not part of a small run")


def _times_faster(found: Record, peer: str, unit: float) -> tuple[float, str]:
    if peer not in found:
        raise NotMeasuredError(f"{peer} did not run")
    theirs, ours = found[peer], found["evencover"]
    if "error" in theirs:
        raise NotMeasuredError(theirs["error"])
    name = "s" if unit == 1 else "microseconds"
    return theirs["ratio"], (
        f"{unit * ours['seconds']:.3g} {name} against {unit * theirs['seconds']:.3g}"
    )


def _selection(found: Record, step: str, ratio: str) -> tuple[float, str]:
    if "error" in found:
        raise NotMeasuredError(found["error"])
    if found["instructions"] != "avx2":
        raise NotMeasuredError(f"this machine has no AVX2 but {found['instructions']}")
    each = found["steps"][step]
    return each[ratio], f"{1e3 * each['seconds']:.1f} ms"
