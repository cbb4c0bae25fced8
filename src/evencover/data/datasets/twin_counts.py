"""Rows per class of a twin: a curve through the published quantiles of the class counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evencover._types import FloatArray, IntArray
from evencover.data.datasets.twin_parameters import TwinParameters

# Of the classes, ascending by count: where `TwinParameters.count_quantiles` are known.
SHARES = np.array([0.0, 0.25, 0.5, 0.75, 0.9, 1.0])


def class_counts(parameters: TwinParameters, n_classes: int | None = None) -> IntArray:
    """Rows per class in ascending order, along the published quantiles; they sum to n_rows.

    For fewer classes, neighbours are merged and their counts averaged, so that rows per class and
    the imbalance stay.
    """
    counts = _rounded(_count_curve(parameters), parameters.n_rows)
    if n_classes is None or n_classes == len(counts):
        return counts
    total = np.interp(
        np.linspace(0, len(counts), n_classes + 1),
        np.arange(len(counts) + 1),
        np.append(0, np.cumsum(counts)),
    )
    ratio = n_classes / len(counts)
    return _rounded(np.diff(total) * ratio, round(parameters.n_rows * ratio))


def _count_curve(parameters: TwinParameters) -> FloatArray:
    n_classes, n_rows = parameters.n_classes, parameters.n_rows
    share = np.linspace(0, 1, n_classes)
    part = np.minimum(np.searchsorted(SHARES, share, side="right") - 1, len(SHARES) - 2)
    t = (share - SHARES[part]) / np.diff(SHARES)[part]
    quantiles = np.array(parameters.count_quantiles)
    low, high = quantiles[part], quantiles[part + 1]
    n_rarest = int(0.05 * n_classes)
    is_low, is_high = part == 0, part == len(SHARES) - 2

    def curve(bend_low: float, bend_high: float) -> FloatArray:
        height = np.where(is_low, 1 - (1 - t) ** bend_low, np.where(is_high, t**bend_high, t))
        return low + (high - low) * height

    # The bends of the two ends follow from the rarest classes' share and from the total.
    rarest = parameters.rarest_share * 0.05 * n_rows
    bend_low = _solve(lambda bend: curve(bend, 1)[:n_rarest].sum() - rarest)
    bend_high = _solve(lambda bend: n_rows - curve(bend_low, bend).sum())
    counts = curve(bend_low, bend_high)
    counts[1:-1] *= (n_rows - counts[0] - counts[-1]) / counts[1:-1].sum()  # what is left: 0.2%
    return counts


def _solve(rising: Callable[[float], float]) -> float:
    """The positive root of a rising function, by halving; the nearer limit if there is none."""
    low, high = 0.02, 50.0
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return float(high)


def _rounded(values: FloatArray, total: int) -> IntArray:
    """Whole numbers that sum to `total`: cumulated, then rounded, then in order again."""
    ends = np.rint(np.cumsum(values)).astype(np.int64)
    ends[-1] = total
    return np.sort(np.diff(ends, prepend=0))
