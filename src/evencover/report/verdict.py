"""The headline, the state of each class, and remedies, from the counts."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from evencover.arrays import IntArray
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.statistics import likely_below
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanations import cause, rows_behind
from evencover.predictors.fit import Fit
from evencover.predictors.guarantees import Needs


class State(IntEnum):
    """The state of a class; the report uses the names in lower case."""

    UNTESTED = 0
    BELOW = 1
    ON_TARGET = 2
    ABOVE = 3


def class_states(report: CoverageReport) -> IntArray:
    """Return the `State` of each class (K,).

    >>> from evencover import PredictionSets, evaluate
    >>> sets = PredictionSets.from_mask([[True, False, False]] * 60)
    >>> class_states(evaluate(sets, [0] * 50 + [1] * 10)).tolist()
    [3, 1, 0]
    """
    missed = report.class_counts - report.class_covered
    states = np.full(report.n_classes, int(State.ON_TARGET))
    states[report.likely_below] = State.BELOW
    states[likely_below(missed, report.class_counts, report.class_target)] = State.ABOVE
    states[~report.evaluated] = State.UNTESTED
    return states


def usual_spread(predictor: BasePredictor, report: CoverageReport) -> float:
    """Return two standard deviations of the average coverage, if the target is met.

    Given n calibration rows, coverage is Beta distributed around 1 - alpha, with variance
    alpha (1 - alpha) / (n + 2); test rows add their own noise.
    """
    inverse = 1 / (rows_behind(Fit.of(predictor), report) + 2) + 1 / report.n_rows
    return float(2 * np.sqrt(report.alpha * (1 - report.alpha) * inverse))


def headline(predictor: BasePredictor, report: CoverageReport) -> str:
    """Return the first sentence of the report on a predictor."""
    return str(verdict(report, usual_spread(predictor, report))["headline"])


def verdict(report: CoverageReport, spread: float, keep_top: bool = False) -> dict[str, Any]:
    """Return sentences and numbers for the top of the report; `spread` is the `usual_spread`."""
    states = class_states(report)
    n_below = int((states == State.BELOW).sum())
    average, is_met = _on_average(report, spread, keep_top)
    headline = _headline(report, n_below, is_met)
    if not report.labels_fit:
        headline, average, is_met = "Rows and labels do not belong together.", "", False
    return {
        "headline": headline,
        "details": _details(report),
        "is_met_on_average": is_met,
        "average": average,
        "n_likely_below": n_below,
        "n_likely_above": int((states == State.ABOVE).sum()),
        "worst": worst(report).tolist(),
    }


def worst(report: CoverageReport, most: int = 5) -> IntArray:
    """Return the classes likely below their target, the largest shortfall first.

    If there are none, return the classes with the lowest upper limits: their low coverage is least
    likely to be sampling noise.
    """
    high = report.class_coverage_interval[:, 1]
    classes = np.flatnonzero(report.likely_below)
    if len(classes) == 0:
        classes = np.array([view.class_index for view in report.worst_classes(most)])
    excess = (report.class_coverage - report.class_target)[classes]
    order = np.lexsort((classes, high[classes], excess))
    return classes[order][:most]


def _on_average(report: CoverageReport, spread: float, keep_top: bool) -> tuple[str, bool]:
    """Compare overall coverage with the target; sampling noise is no shortfall."""
    excess = report.marginal_coverage - (1 - report.alpha)
    points, usual = f"{100 * abs(excess):.1f} points", f"{100 * spread:.1f}"
    if excess > spread:
        why = "; every set contains the most probable class" if keep_top else ""
        return f"{points} above the target{why}.", True
    if excess >= 0:
        return "", True
    if -excess <= spread:
        return f"Within sampling noise of ±{usual} points.", True
    why = "The test examples may differ from the calibration set."
    if report.is_capped is not None and report.is_capped.any():
        why = "Capped classes are covered less, or the test examples differ."
    return f"{points} below the target; sampling noise explains {usual}. {why}", False


def _headline(report: CoverageReport, n_below: int, is_met: bool) -> str:
    n_few = int(report.too_few_to_judge.sum())
    n_judged = report.n_classes_evaluated - n_few
    classes = f"{n_judged:,} {'tested ' * (n_judged < report.n_classes)}classes"
    if n_few:
        classes = f"the {n_judged:,} classes that can be judged"
    average = "Target met on average" if is_met else "Target missed on average"
    but = "but" if is_met == (n_below > 0) else "and"
    below = f"{n_below:,}" if n_below else "none"
    are = "is" if n_below == 1 else "are"
    return f"{average}, {but} {below} of {classes} {are} likely below {report.target_text}."


def _details(report: CoverageReport) -> str:
    """Count classes with too few examples for a test."""
    n_few = int(report.too_few_to_judge.sum())
    if not n_few:
        return ""
    return f"{n_few:,} class{'es have' if n_few > 1 else ' has'} too few test examples for a test."


def remedies(predictor: BasePredictor, report: CoverageReport) -> list[str]:
    """Return causes and remedies, the most useful first."""
    below, needs = np.flatnonzero(report.likely_below), predictor.fit_.row_needs
    if len(below) == 0:
        sentences = [_nothing_to_fix(report, needs)]
    else:
        sentences = [cause(predictor.fit_, below), _more_labels(predictor, report, below, needs)]
    return list(filter(None, [*sentences, _always_included(predictor, needs)]))


def _nothing_to_fix(report: CoverageReport, needs: Needs) -> str:
    fine = f"No class is likely below {report.target_text}."
    typical = int(np.median(report.class_counts[report.evaluated]))
    if typical >= needs.enough:
        return fine
    examples = "1 test example" if typical == 1 else f"{typical:,} test examples"
    return f"{fine} With {examples} per class (median), only a large shortfall is detectable."


def _more_labels(
    predictor: BasePredictor, report: CoverageReport, below: IntArray, needs: Needs
) -> str:
    """Return how many more labels are needed, and for which classes first."""
    missing = np.maximum(needs.enough - predictor.class_counts_[below], 0)
    n_short = int((missing > 0).sum())
    if n_short == 0:
        return ""
    first = np.argsort(-missing, kind="stable")[: min(3, n_short)]
    names = "; ".join(  # a name may contain a comma
        f"{_name(report, int(below[number]))} (+{missing[number]})" for number in first.tolist()
    )
    more = " and others" if n_short > len(first) else ""
    these = "each of these classes" if len(below) > 1 else "this class"
    return (
        f"Collect about {int(missing.sum()):,} more labels to give {these} {needs.enough} "
        "calibration examples, enough for its own threshold to keep coverage within about 10 "
        f"points. Start with {names}{more}."
    )


def _name(report: CoverageReport, index: int) -> str:
    name = report.class_view(index).name
    return name if len(name) <= 40 else f"{name[:39]}…"


def _always_included(predictor: BasePredictor, needs: Needs) -> str:
    """Return the cost of classes that are always included, if there are any."""
    thresholds, _, _, rank_limit = predictor.fit_.thresholds
    everywhere = np.isinf(thresholds)
    if rank_limit is not None:
        everywhere &= rank_limit == predictor.n_classes_
    n_everywhere = int(everywhere.sum())
    if not n_everywhere:
        return ""
    classes = f"{n_everywhere:,} classes are" if n_everywhere > 1 else "1 class is"
    if predictor.fit_.recall is not None:
        return (
            f"{classes} included in every row that lists them. A finite threshold needs at least "
            f"{needs.least} calibration examples."
        )
    return (
        f"{classes} always included, which adds {n_everywhere:,} to the size of each set. A "
        f"finite threshold needs at least {needs.least} calibration examples."
    )
