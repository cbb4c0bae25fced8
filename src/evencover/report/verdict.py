"""The verdict on each class and on all, and remedies, as sentences that follow from the counts."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from evencover.arrays import Array, IntArray
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.statistics import likely_below
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanation import Needs
from evencover.quantiles import exact_fraction
from evencover.report.page import percent

# Stated once on the page; the rate is that of `CoverageReport.likely_below`.
BY_CHANCE = "Of the classes named, at most about 1 in 20 is expected to be named by chance."


class State(IntEnum):
    """The verdict on a class; the page knows these by their names in lower case."""

    UNTESTED = 0
    BELOW = 1
    ON_TARGET = 2
    ABOVE = 3


def likely_above(report: CoverageReport) -> Array:
    """Return which classes are likely covered more than 1 - alpha (K,).

    >>> from evencover import PredictionSets, evaluate
    >>> sets = PredictionSets.from_mask([[True, False]] * 60)
    >>> likely_above(evaluate(sets, [0] * 50 + [1] * 10)).tolist()
    [True, False]
    """
    missed = report.class_counts - report.class_covered
    return likely_below(missed, report.class_counts, float(1 - exact_fraction(report.alpha)))


def class_states(report: CoverageReport) -> IntArray:
    """Return the `State` of each class (K,).

    >>> from evencover import PredictionSets, evaluate
    >>> sets = PredictionSets.from_mask([[True, False, False]] * 60)
    >>> class_states(evaluate(sets, [0] * 50 + [1] * 10)).tolist()
    [3, 1, 0]
    """
    states = np.full(report.n_classes, int(State.ON_TARGET))
    states[report.likely_below] = State.BELOW
    states[likely_above(report)] = State.ABOVE
    states[~report.evaluated] = State.UNTESTED
    return states


def usual_spread(report: CoverageReport, group_of_class: IntArray, group_rows: IntArray) -> float:
    """Return two standard deviations of the average coverage, if the target is met.

    Given its calibration rows, a group of n has a coverage that is Beta distributed around
    1 - alpha, with variance alpha (1 - alpha) / (n + 2); test rows add their own noise. CLUSTERED
    calibrates with what clustering leaves, so this may be wider than all rows suggest.
    """
    n_rows = np.bincount(group_of_class, weights=report.class_counts, minlength=len(group_rows))
    shares = n_rows / report.n_rows
    inverse = float((shares**2 / (group_rows + 2)).sum()) + 1 / report.n_rows
    return float(2 * np.sqrt(report.alpha * (1 - report.alpha) * inverse))


def verdict(report: CoverageReport, spread: float) -> dict[str, Any]:
    """Return sentences and numbers for the top of the page; `spread` is the `usual_spread`."""
    states = class_states(report)
    n_below = int((states == State.BELOW).sum())
    average, is_met = _on_average(report, spread)
    return {
        "headline": _headline(report, n_below, is_met),
        "is_met_on_average": is_met,
        "average": average,
        "n_likely_below": n_below,
        "n_likely_above": int((states == State.ABOVE).sum()),
        "by_chance": BY_CHANCE if n_below else "",
        "worst": worst(report).tolist(),
    }


def worst(report: CoverageReport, most: int = 5) -> IntArray:
    """Return the lowest of the classes likely below the target, lowest coverage first.

    If there are none, return the classes with the lowest upper limits: their low coverage is least
    likely to be sampling noise.
    """
    high = report.class_coverage_interval[:, 1]
    classes = np.flatnonzero(report.likely_below)
    if len(classes) == 0:
        classes = np.array([view.class_index for view in report.worst_classes(most)])
    order = np.lexsort((classes, high[classes], report.class_coverage[classes]))
    return classes[order][:most]


def _on_average(report: CoverageReport, spread: float) -> tuple[str, bool]:
    """Compare the coverage of all rows with the target, in words; noise is no shortfall."""
    excess = report.marginal_coverage - (1 - report.alpha)
    points, usual = f"{100 * abs(excess):.1f} points", f"{100 * spread:.1f}"
    if excess > spread:
        return f"That is {points} more than needed, so sets are larger than they have to be.", True
    if excess >= 0:
        return "", True
    if -excess <= spread:
        return f"That is within noise: up to {usual} points either way are usual here.", True
    return (
        f"That is {points} short, where up to {usual} are usual. "
        "The test rows may differ from the calibration rows.",
        False,
    )


def _headline(report: CoverageReport, n_below: int, is_met: bool) -> str:
    target, n_classes = percent(1 - report.alpha), report.n_classes_evaluated
    tested = "" if n_classes == report.n_classes else "tested "
    average = "Target met on average" if is_met else "Coverage falls short on average"
    but = "but" if is_met == (n_below > 0) else "and"
    below = f"{n_below:,} of {n_classes:,}" if n_below else f"none of {n_classes:,}"
    are = "is" if n_below == 1 else "are"
    headline = f"{average}, {but} {below} {tested}classes {are} likely below {target}."
    n_low, n_few = report.n_undercovered, int(report.too_few_to_judge.sum())
    found = [f"{n_low:,} {'was' if n_low == 1 else 'were'} 10 points or more below"] * (n_low > 0)
    found += [f"{n_few:,} had too few test examples to be judged"] * (n_few > 0)
    return f"{headline} {', and '.join(found)}." if found else headline


def remedies(predictor: BasePredictor, report: CoverageReport) -> list[str]:
    """Return one to four sentences or short paragraphs, the most useful first."""
    below, needs = np.flatnonzero(report.likely_below), predictor.row_needs()
    if len(below) == 0:
        sentences = [_nothing_to_fix(report, needs)]
    else:
        sentences = [predictor._cause(below), _more_labels(predictor, report, below, needs)]
    return [each for each in (*sentences, _always_included(predictor, report, needs)) if each]


def _nothing_to_fix(report: CoverageReport, needs: Needs) -> str:
    fine = f"No class needs fixing: none is likely below {percent(1 - report.alpha)}."
    typical = int(np.median(report.class_counts[report.evaluated]))
    if typical >= needs.enough:
        return fine
    rows = "1 test row" if typical == 1 else f"{typical:,} test rows"
    return f"{fine} With {rows} of a typical class, only a large shortfall would show."


def _more_labels(
    predictor: BasePredictor, report: CoverageReport, below: IntArray, needs: Needs
) -> str:
    """Return how many more labeled rows are needed, and for which classes first."""
    missing = np.maximum(needs.enough - predictor.class_counts_[below], 0)
    n_short = int((missing > 0).sum())
    if n_short == 0:
        return ""
    first = np.argsort(-missing, kind="stable")[: min(3, n_short)]
    names = "; ".join(  # a name may contain a comma
        f"{_name(report, int(below[place]))} (+{missing[place]})" for place in first.tolist()
    )
    more = " and others" if n_short > len(first) else ""
    all_of_them = "all of them" if len(below) > 1 else "it"
    return (
        f"Collect labels: about {int(missing.sum()):,} more calibration rows would bring "
        f"{all_of_them} to {needs.enough}, enough to hold a class within about 10 points on its "
        f"own. Start with {names}{more}."
    )


def _name(report: CoverageReport, index: int) -> str:
    name = report.class_view(index).name
    return name if len(name) <= 40 else f"{name[:39]}…"


def _always_included(predictor: BasePredictor, report: CoverageReport, needs: Needs) -> str:
    """Return what classes in every set cost, if there are any."""
    if report.thresholds is None:
        return ""
    everywhere, rank_limit = np.isinf(report.thresholds), predictor.limits_.rank_limit
    if rank_limit is not None:
        everywhere &= rank_limit == predictor.n_classes_
    n_everywhere = int(everywhere.sum())
    if not n_everywhere:
        return ""
    classes = f"{n_everywhere:,} classes are" if n_everywhere > 1 else "1 class is"
    return (
        f"{classes} in every set, because a threshold needs at least {needs.least} calibration "
        f"scores; that adds {n_everywhere:,} to the size of each set."
    )
