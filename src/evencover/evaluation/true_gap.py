"""How far classes are from the aim, without the noise of the test rows.

CovGap adds the luck of few test rows to the distance itself, so being in every set can look better
than being right. The square of a class's distance has an unbiased estimate, from pairs of its test
rows: luck cancels in the mean over classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evencover._types import FloatArray, IntArray


class TrueGap(NamedTuple):
    """The root of the mean squared distance from the aim, in points, and its two sides.

    ``shortfall`` and ``excess`` are of the classes that were seen below and above the aim; their
    squares add up to that of ``gap``, unless an estimate was negative and is shown as 0.
    """

    gap: float
    shortfall: float
    excess: float
    standard_error: float
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
    """From the rows and covered rows of each class; the error is over classes.

    >>> always = true_gap(np.full(50, 3), np.full(50, 3), 0.1)
    >>> round(always.gap, 6), round(always.excess, 6), always.shortfall
    (10.0, 10.0, 0.0)
    """
    squares = squared_gaps(covered, counts, alpha)
    has_pairs = ~np.isnan(squares)
    n = int(has_pairs.sum())
    if n == 0:
        return TrueGap(np.nan, np.nan, np.nan, np.nan, 0)
    squares = squares[has_pairs]
    is_below = (covered < counts * (1 - alpha))[has_pairs]
    error = float(squares.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan
    return of_squares(
        float(squares.mean()),
        float(np.where(is_below, squares, 0.0).mean()),
        float(np.where(is_below, 0.0, squares).mean()),
        error,
        n,
    )


def of_squares(total: float, below: float, above: float, error: float, n_classes: int) -> TrueGap:
    """Roots of mean squares; the error of a root follows from that of its square."""
    gap, shortfall, excess = (float(np.sqrt(max(square, 0.0))) for square in (total, below, above))
    # Near 0 the root is not smooth: there its error is at most that of a gap of the error's size.
    slope = 2 * max(gap, float(np.sqrt(error)) if error > 0 else 0.0)
    return TrueGap(gap, shortfall, excess, error / slope if slope > 0 else 0.0, n_classes)
