"""What a finite number of test rows can tell of a coverage: exact limits, and the noise floor."""

from __future__ import annotations

from typing import Any

import numpy as np

from evencover._types import Array, FloatArray, IntArray
from evencover.quantiles import exact_fraction


def clopper_pearson(successes: Any, trials: Any, confidence: float = 0.95) -> FloatArray:
    """Exact binomial confidence limits (..., 2); (0, 1) for no trials.

    >>> clopper_pearson([8], [10]).round(3).tolist()
    [[0.444, 0.975]]
    """
    from scipy.special import betaincinv

    successes, trials = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    failures, tail = trials - successes, (1 - confidence) / 2
    low = np.where(successes > 0, betaincinv(np.maximum(successes, 1), failures + 1, tail), 0.0)
    high = np.where(failures > 0, betaincinv(successes + 1, np.maximum(failures, 1), 1 - tail), 1.0)
    return np.stack([low, high], axis=-1)


def likely_below(covered: IntArray, counts: IntArray, alpha: float, rate: float = 0.05) -> Array:
    """Which classes are likely covered less than 1 - alpha (K,), false discoveries held at `rate`.

    Benjamini and Hochberg (1995) on P(Binomial(n, 1 - alpha) <= covered). These p-values are of
    separate rows, so the procedure holds as it stands, and discreteness makes it stricter.

    >>> likely_below(np.array([2, 9]), np.array([10, 10]), 0.1).tolist()
    [True, False]
    """
    from scipy.special import bdtr

    p = bdtr(covered.astype(float), counts, float(1 - exact_fraction(alpha)))
    tested = np.flatnonzero(counts > 0)
    order = tested[np.argsort(p[tested], kind="stable")]
    passes = np.flatnonzero(p[order] <= rate * np.arange(1, len(order) + 1) / max(1, len(order)))
    named: Array = np.zeros(len(counts), dtype=bool)
    if len(passes):
        named[order[: passes[-1] + 1]] = True
    return named


def too_few_to_judge(named: Array, counts: IntArray, alpha: float, rate: float = 0.05) -> Array:
    """Find classes with so few rows that `likely_below` could not name them at any coverage (K,).

    With R of m tested classes `named`, one more is named if its p-value is at most
    rate (R + 1) / m. The lowest p-value of n rows, none of them covered, is alpha^n.

    >>> too_few_to_judge(np.array([False] * 4), np.array([0, 1, 2, 3]), 0.1).tolist()
    [False, True, False, False]
    """
    lowest = float(exact_fraction(alpha)) ** counts
    tested = counts > 0
    return tested & (lowest > rate * (named.sum() + 1) / max(1, tested.sum()))


def covgap_noise_floor(class_counts: IntArray, alpha: float) -> float:
    """100 x the mean over classes of E|B/n - (1 - alpha)|, B binomial (n, 1 - alpha).

    De Moivre's formula: E|B - np| = 2 m C(n, m) p^m (1-p)^(n-m+1) with m = floor(np) + 1.

    >>> round(covgap_noise_floor(np.array([100]), 0.1), 3)
    2.374
    """
    from scipy.special import gammaln

    level = 1 - exact_fraction(alpha)
    counts, inverse = np.unique(class_counts, return_inverse=True)
    m = np.array([int(n) * level.numerator // level.denominator + 1 for n in counts], dtype=float)
    log_binomial = gammaln(counts + 1) - gammaln(m + 1) - gammaln(counts - m + 1)
    log_term = log_binomial + m * np.log(float(level)) + (counts - m + 1) * np.log(float(1 - level))
    return float(100 * (2 * m * np.exp(log_term) / counts)[inverse].mean())
