"""The sizes of sets: how many sets have which, how often each is right, and empty ones."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from evencover._validation import IntArray
from evencover.evaluation.binomial import clopper_pearson
from evencover.evaluation.report import CoverageReport
from evencover.predictors.base import BasePredictor
from evencover.report.page import percent

MANY_EMPTY = 0.01  # from this share on, the page says how to avoid empty sets


def size_histogram(size_counts: IntArray, most: int = 40) -> dict[str, list[int]]:
    """Sets counted by size, in at most about `most` bars of equal width.

    >>> size_histogram(np.array([1, 5, 2, 0]))
    {'from': [0, 1, 2], 'to': [0, 1, 2], 'count': [1, 5, 2]}
    """
    largest = int(np.flatnonzero(size_counts)[-1])
    width = max(1, -(-(largest + 1) // most))
    starts = np.arange(0, largest + 1, width)
    counts = np.add.reduceat(size_counts[: largest + 1], starts)
    ends = np.minimum(starts + width - 1, len(size_counts) - 1)
    return {"from": starts.tolist(), "to": ends.tolist(), "count": counts.tolist()}


def coverage_by_size(size_counts: IntArray, covered: IntArray) -> list[dict[str, Any]]:
    """Rows and covered rows by the size of their set: 0, 1, 2, 3 to 5, 6 to 10, 11 to 20, ...

    Both inputs (K + 1,) count by size; a record has the 95% limits of its coverage, too. Sizes
    that no set has are left out.

    >>> [(r["from"], r["to"], r["coverage"]) for r in
    ...  coverage_by_size(np.array([1, 4, 0, 1, 1]), np.array([0, 3, 0, 1, 1]))]
    [(0, 0, 0.0), (1, 1, 0.75), (3, 4, 1.0)]
    """
    n_classes, table = len(size_counts) - 1, []
    for first, after in pairwise(_steps(n_classes)):
        rows, hits = int(size_counts[first:after].sum()), int(covered[first:after].sum())
        if rows:
            low, high = clopper_pearson(hits, rows).round(4).tolist()
            counts = {"from": first, "to": min(after - 1, n_classes), "rows": rows, "covered": hits}
            table.append(counts | {"coverage": hits / rows, "low": low, "high": high})
    return table


def _steps(n_classes: int) -> list[int]:
    """Where the ranges of sizes begin: every size up to 3, then after 5, 10, 20, 50, 100, ..."""
    steps, power = [0, 1, 2, 3], 1
    while steps[-1] <= n_classes:
        steps += [5 * power + 1, 10 * power + 1, 20 * power + 1]
        power *= 10
    return steps


def about_empty_sets(predictor: BasePredictor, report: CoverageReport) -> str:
    """The share of empty sets and the option that avoids them, if there are many; else nothing."""
    if report.empty_share <= MANY_EMPTY or not predictor.allow_empty:
        return ""
    return (
        f"{percent(report.empty_share)} of the sets are empty. Calibrate with allow_empty=False "
        "(--no-allow-empty in the shell) to keep the most probable class in each of them."
    )
