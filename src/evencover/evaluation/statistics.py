"""Coverage from few test rows: confidence intervals, noise floor, tests, TrueGap, Shortfall."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray


def clopper_pearson(successes: Any, trials: Any, confidence: float = 0.95) -> FloatArray:
    """Compute exact binomial confidence limits (..., 2); (0, 1) for no trials.

    >>> clopper_pearson([8], [10]).round(3).tolist()
    [[0.444, 0.975]]
    """
    from scipy.special import betaincinv

    successes, trials = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    failures, tail = trials - successes, (1 - confidence) / 2
    low = np.where(successes > 0, betaincinv(np.maximum(successes, 1), failures + 1, tail), 0.0)
    high = np.where(failures > 0, betaincinv(successes + 1, np.maximum(failures, 1), 1 - tail), 1.0)
    return np.stack([low, high], axis=-1)


def share_with_limits(successes: Any, trials: Any) -> FloatArray:
    """Return the share of successes, NaN for no trials, and its exact 95% limits (3,).

    >>> share_with_limits(8, 10).round(3).tolist()
    [0.8, 0.444, 0.975]
    """
    share = successes / trials if trials else np.nan
    return np.append(share, clopper_pearson(successes, trials))


def likely_below(covered: IntArray, counts: IntArray, alpha: Any, rate: float = 0.05) -> Array:
    """Find classes likely covered less than 1 - alpha (K,), false discoveries held at `rate`.

    `alpha` is one number, or one per class (K,), here and below.

    Benjamini and Hochberg (1995) on P(Binomial(n, 1 - alpha) <= covered). These p-values are of
    separate rows, so the procedure holds as it stands, and discreteness makes it stricter.

    >>> likely_below(np.array([2, 9]), np.array([10, 10]), 0.1).tolist()
    [True, False]
    """
    from scipy.special import bdtr

    p = bdtr(covered.astype(float), counts, 1 - np.asarray(alpha, dtype=float))
    tested = np.flatnonzero(counts > 0)
    order = tested[np.argsort(p[tested], kind="stable")]
    passes = np.flatnonzero(p[order] <= rate * np.arange(1, len(order) + 1) / max(1, len(order)))
    named: Array = np.zeros(len(counts), dtype=bool)
    if len(passes):
        named[order[: passes[-1] + 1]] = True
    return named


def too_few_to_judge(named: Array, counts: IntArray, alpha: Any, rate: float = 0.05) -> Array:
    """Find classes with so few rows that `likely_below` could not name them at any coverage (K,).

    With R of m tested classes `named`, one more is named if its p-value is at most
    rate (R + 1) / m. The lowest p-value of n rows, none of them covered, is alpha^n.

    >>> too_few_to_judge(np.array([False] * 4), np.array([0, 1, 2, 3]), 0.1).tolist()
    [False, True, False, False]
    """
    lowest = np.asarray(alpha, dtype=float) ** counts
    tested = counts > 0
    return tested & (lowest > rate * (named.sum() + 1) / max(1, tested.sum()))


def covgap_noise_floor(class_counts: IntArray, alpha: Any) -> float:
    """Compute 100 x the mean over classes of E|B/n - (1 - alpha)|, B binomial (n, 1 - alpha).

    De Moivre's formula: E|B - np| = 2 m C(n, m) p^m (1-p)^(n-m+1) with m = floor(np) + 1.

    >>> round(covgap_noise_floor(np.array([100]), 0.1), 3)
    2.374
    """
    from scipy.special import gammaln

    counts, miss = class_counts, np.asarray(alpha, dtype=float)
    m = np.floor(counts - counts * miss + 1e-9) + 1
    log_binomial = gammaln(counts + 1) - gammaln(m + 1) - gammaln(counts - m + 1)
    log_term = log_binomial + m * np.log1p(-miss) + (counts - m + 1) * np.log(miss)
    return float(100 * (2 * m * np.exp(log_term) / counts).mean())


class TrueGap(NamedTuple):
    """The root of the mean squared distance from 1 - alpha, in points, with a 95% interval."""

    gap: float
    low: float
    high: float


def squared_gaps(covered: IntArray, counts: IntArray, alpha: Any) -> FloatArray:
    """Estimate (coverage - (1 - alpha))^2 of each class (K,) without bias, in squared points.

    With k of n rows covered and t = 1 - alpha it is ((k - n t)^2 - k (1 - t)^2 - (n - k) t^2) /
    (n (n - 1)), the mean over pairs of different rows of (hit - t)(other hit - t); it may be
    negative. NaN for a class with fewer than two rows, which has no pair.
    """
    t = 1 - alpha
    square = (covered - counts * t) ** 2
    of_single_rows = covered * (1 - t) ** 2 + (counts - covered) * t**2
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = (square - of_single_rows) / (counts * (counts - 1.0))
    return np.where(counts >= 2, 1e4 * estimate, np.nan)


def squared_shortfalls(covered: IntArray, counts: IntArray, alpha: Any) -> FloatArray:
    """Estimate min(coverage - (1 - alpha), 0)^2 of each class (K,), in squared points.

    The mean over pairs of different rows as in `squared_gaps`, of those pairs only whose class is
    covered less than 1 - alpha on its other n - 2 rows. So the rows that decide whether a class
    counts are not those that measure it, and the expected value is exactly

        (c - (1 - alpha))^2 P(Binomial(n - 2, c) < (n - 2) (1 - alpha))

    for a class of coverage c. That is 0 at the target, whatever n. No unbiased estimate exists,
    because the square is not a polynomial in c. NaN for fewer than three rows.

    >>> squared_shortfalls(np.array([6, 9, 10]), np.array([10, 10, 10]), 0.1).round(1).tolist()
    [633.3, 80.0, 0.0]
    """
    t, missed = 1 - alpha, counts - covered
    pairs = (missed * (missed - 1.0), 2.0 * covered * missed, covered * (covered - 1.0))
    total = np.zeros(len(counts))
    for hits, n_pairs in enumerate(pairs):
        is_below = covered - hits < (counts - 2) * t - 1e-9
        total += n_pairs * is_below * (1 - t) ** hits * (-t) ** (2 - hits)
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = total / (counts * (counts - 1.0))
    return np.where(counts >= 3, 1e4 * estimate, np.nan)


def root_mean(squares: FloatArray) -> float:
    """Take the root of the mean over classes, without NaN, clipped at 0; NaN if all are."""
    known = squares[~np.isnan(squares)]
    return _root(float(known.mean())) if len(known) else float("nan")


def true_gap(covered: IntArray, counts: IntArray, alpha: Any) -> TrueGap:
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
    known = ~np.isnan(squares)
    rows, alpha = counts[known].astype(np.float64), np.broadcast_to(alpha, counts.shape)[known]
    squares, n = squares[known], len(rows)
    if n == 0:
        return TrueGap(np.nan, np.nan, np.nan)
    mean = float(squares.mean())
    if n == 1:
        return TrueGap(_root(mean), np.nan, np.nan)
    t = float(stdtrit(n - 1, 0.975))
    noise = 1e4 * alpha * (1 - alpha)  # the variance of one row
    if_none = t**2 * (2 * noise**2 / (rows * (rows - 1))).sum() / n**2
    growth = t**2 * (4 * noise / rows).sum() / n**2
    by_classes = t * float(squares.std(ddof=1)) / np.sqrt(n)
    grown = growth / 2 + np.sqrt(max(growth**2 / 4 + growth * mean + if_none, 0.0))
    low = mean - max(by_classes, float(np.sqrt(if_none)))
    return TrueGap(_root(mean), _root(low), _root(mean + max(by_classes, grown)))


def root_and_error(square: float, error: float) -> tuple[float, float]:
    """Take the root of a mean square; the error of the root follows from that of the square."""
    gap = _root(square)
    # Near 0 the root is not smooth: there its error is at most that of a gap of the error's size.
    slope = 2 * max(gap, _root(error))
    return gap, error / slope if slope > 0 else 0.0


def _root(square: float) -> float:
    return float(np.sqrt(max(square, 0.0)))
