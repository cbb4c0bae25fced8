"""How far classes are from the aim, without the noise of the test rows.

CovGap adds the luck of few test rows to the distance itself, so being in every set can look better
than being right. The square of a class's distance has an unbiased estimate, from pairs of its test
rows: luck cancels in the mean over classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evencover._types import FloatArray, IntArray

CONFIDENCE = 0.95


class TrueGap(NamedTuple):
    """The root of the mean squared distance from 1 - alpha, in points, with a 95% interval."""

    gap: float
    low: float
    high: float
    n_classes: int


def squared_gaps(covered: IntArray, counts: IntArray, alpha: float) -> FloatArray:
    """The unbiased estimate of (coverage - (1 - alpha))^2 of each class (K,), in squared points.

    With k of n rows covered and t = 1 - alpha it is ((k - n t)^2 - k (1 - t)^2 - (n - k) t^2) /
    (n (n - 1)), the mean over pairs of different rows of (hit - t)(other hit - t); it may be
    negative. NaN for a class with fewer than two rows, which has no pair.
    """
    t = 1 - alpha
    square = (covered - counts * t) ** 2
    own = covered * (1 - t) ** 2 + (counts - covered) * t**2
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = (square - own) / (counts * (counts - 1.0))
    return np.where(counts >= 2, 1e4 * estimate, np.nan)


def true_gap(covered: IntArray, counts: IntArray, alpha: float) -> TrueGap:
    """Estimate the gap from the rows and covered rows of each class.

    The interval is Student's t over classes for the mean square m, clipped at 0 before the root.
    The variance seen among classes is too small where m is, by chance, too small. So the interval
    also takes the binomial variance into account: its lower limit that of classes at 1 - alpha, its
    upper limit v that of classes at a squared distance v, solving (v - m)^2 = t^2 var(v).

    >>> always = true_gap(np.full(50, 3), np.full(50, 3), 0.1)
    >>> round(always.gap, 6), round(always.low, 6), round(always.high, 1)
    (10.0, 0.0, 18.2)
    """
    from scipy.special import stdtrit

    squares = squared_gaps(covered, counts, alpha)
    rows = counts[~np.isnan(squares)].astype(np.float64)
    squares, n = squares[~np.isnan(squares)], len(rows)
    if n == 0:
        return TrueGap(np.nan, np.nan, np.nan, 0)
    mean = float(squares.mean())
    if n == 1:
        return TrueGap(_root(mean), np.nan, np.nan, 1)
    t = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    noise = 1e4 * alpha * (1 - alpha)  # the variance of one row
    if_none = t**2 * (2 * noise**2 / (rows * (rows - 1))).sum() / n**2
    growth = t**2 * (4 * noise / rows).sum() / n**2
    seen = t * float(squares.std(ddof=1)) / np.sqrt(n)
    grown = growth / 2 + np.sqrt(max(growth**2 / 4 + growth * mean + if_none, 0.0))
    low = mean - max(seen, float(np.sqrt(if_none)))
    return TrueGap(_root(mean), _root(low), _root(mean + max(seen, grown)), n)


def root_and_error(square: float, error: float) -> tuple[float, float]:
    """Take the root of a mean square; the error of the root follows from that of the square."""
    gap = _root(square)
    # Near 0 the root is not smooth: there its error is at most that of a gap of the error's size.
    slope = 2 * max(gap, _root(error))
    return gap, error / slope if slope > 0 else 0.0


def _root(square: float) -> float:
    return float(np.sqrt(max(square, 0.0)))
