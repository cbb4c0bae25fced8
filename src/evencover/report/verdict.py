"""The ten-second answer: is the promise kept on average, and for which classes is it broken."""

from __future__ import annotations

from typing import Any

import numpy as np

from evencover._validation import IntArray
from evencover.evaluation.binomial import clopper_pearson
from evencover.evaluation.report import CoverageReport
from evencover.quantiles import exact_fraction

# States of a class, as the page knows them.
UNTESTED, SURELY_UNDER, AS_PROMISED, SURELY_OVER = range(4)


def class_states(report: CoverageReport) -> IntArray:
    """The state of each class (K,): surely under or over means the whole 95% interval is.

    >>> from evencover import PredictionSets, evaluate
    >>> sets = PredictionSets.from_mask([[True, False, False]] * 60)
    >>> class_states(evaluate(sets, [0] * 50 + [1] * 10)).tolist()
    [3, 1, 0]
    """
    low, high = report.class_coverage_interval.T
    target = 1 - report.alpha
    states = np.full(report.n_classes, AS_PROMISED)
    states[high < target] = SURELY_UNDER
    states[low > target] = SURELY_OVER
    states[~report.evaluated] = UNTESTED
    return states


def expected_by_chance(class_counts: IntArray, alpha: float) -> float:
    """How many classes would look surely undercovered if all had exactly 1 - alpha.

    A class of n rows does if at most c are covered, c being the largest count with
    P(Binomial(n, 1 - alpha) <= c) < 0.025; exact limits make this less than 2.5% of the classes.

    >>> round(expected_by_chance(np.full(1000, 20), 0.1), 1)
    11.3
    """
    from scipy.special import bdtr

    level, total = float(1 - exact_fraction(alpha)), 0.0
    for n, repeats in zip(*np.unique(class_counts, return_counts=True), strict=True):
        below = bdtr(np.arange(n + 1), n, level)  # the distribution function at 0..n
        total += repeats * below[below < 0.025].max(initial=0.0)
    return float(total)


def usual_spread(report: CoverageReport, group_of_class: IntArray, group_rows: IntArray) -> float:
    """Two standard deviations of the average coverage that a promise kept would show.

    Given its calibration rows, a group of n has a coverage that is Beta distributed around
    1 - alpha, with variance alpha (1 - alpha) / (n + 2); test rows add their own noise. CLUSTERED
    calibrates with what clustering leaves, so this may be wider than all rows suggest.
    """
    n_rows = np.bincount(group_of_class, weights=report.class_counts, minlength=len(group_rows))
    shares = n_rows / report.n_rows
    inverse = float((shares**2 / (group_rows + 2)).sum()) + 1 / report.n_rows
    return float(2 * np.sqrt(report.alpha * (1 - report.alpha) * inverse))


def verdict(report: CoverageReport, spread: float) -> dict[str, Any]:
    """Sentences and numbers for the top of the page; `spread` is the `usual_spread`."""
    states = class_states(report)
    n_under, n_over = int((states == SURELY_UNDER).sum()), int((states == SURELY_OVER).sum())
    chance = expected_by_chance(report.class_counts, report.alpha)
    is_chance = n_under <= chance + 2 * np.sqrt(chance)
    average, is_kept = _on_average(report, spread)
    return {
        "headline": _headline(n_under, report.n_classes_evaluated, is_chance, is_kept),
        "is_kept_on_average": is_kept,
        "average": average,
        "average_limits": _marginal_limits(report),
        "n_surely_under": n_under,
        "n_surely_over": n_over,
        "expected_by_chance": chance,
        "is_no_more_than_chance": bool(is_chance),
        "worst": [view.class_index for view in report.worst_classes(5)],
    }


def _marginal_limits(report: CoverageReport) -> list[float]:
    return clopper_pearson(int(report.class_covered.sum()), report.n_rows).tolist()


def _on_average(report: CoverageReport, spread: float) -> tuple[str, bool]:
    """Whether the promise is kept over all rows, in words; noise is not called a breach."""
    shortfall = 1 - report.alpha - report.marginal_coverage
    if shortfall <= 0:
        return "The promise is kept.", True
    if shortfall <= spread:
        return (
            "The promise is kept as far as one can tell: give or take "
            f"{100 * spread:.1f} points is usual with so many rows.",
            True,
        )
    return (
        f"The promise is broken: {100 * shortfall:.1f} points short, where give or take "
        f"{100 * spread:.1f} is usual. The test rows may differ from the calibration rows.",
        False,
    )


def _headline(n_under: int, n_classes: int, is_chance: bool, is_kept: bool) -> str:
    if n_under == 0:
        others = "no class is surely let down"
        return (
            f"The promise is kept on average, and {others}."
            if is_kept
            else f"The promise is broken on average, although {others}."
        )
    classes = f"{n_under:,} of {n_classes:,} classes"
    if not is_kept:
        return f"The promise is broken on average, and surely for {classes}."
    if is_chance:
        return (
            f"The promise is kept on average; {classes} look let down, "
            "no more than chance would show."
        )
    return f"The promise is kept on average, but surely broken for {classes}."
