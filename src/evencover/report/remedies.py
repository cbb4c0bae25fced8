"""What would help: sentences that follow from the method and the calibration rows."""

from __future__ import annotations

import numpy as np

from evencover._validation import IntArray
from evencover.evaluation.report import CoverageReport
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanation import Needs
from evencover.report.page import percent


def remedies(predictor: BasePredictor, report: CoverageReport) -> list[str]:
    """One to four sentences or short paragraphs, the most useful first."""
    below = np.flatnonzero(report.likely_below)
    needs = predictor.row_needs()
    if len(below) == 0:
        sentences = [_nothing_to_fix(report, needs)]
    else:
        sentences = [predictor._cause(below), *_more_labels(predictor, report, below, needs)]
    return sentences + _costs(predictor, report)


def _nothing_to_fix(report: CoverageReport, needs: Needs) -> str:
    """No class is named; with few test rows that says little."""
    fine = f"No class needs fixing: none is likely below {percent(1 - report.alpha)}."
    typical = int(np.median(report.class_counts[report.evaluated]))
    if typical >= needs.enough:
        return fine
    rows = "1 test row" if typical == 1 else f"{typical:,} test rows"
    return f"{fine} With {rows} of a typical class, only a large shortfall would show."


def _more_labels(
    predictor: BasePredictor, report: CoverageReport, below: IntArray, needs: Needs
) -> list[str]:
    """How many more labelled rows, and for which classes first."""
    missing = np.maximum(needs.enough - predictor.class_counts_[below], 0)
    short = np.flatnonzero(missing)
    if len(short) == 0:
        return []
    first = short[np.argsort(-missing[short], kind="stable")][:3]
    names = "; ".join(  # a name may hold a comma
        f"{_name(report, int(below[place]))} (+{missing[place]})" for place in first.tolist()
    )
    more = " and others" if len(short) > len(first) else ""
    all_of_them = "all of them" if len(below) > 1 else "it"
    return [
        f"Collect labels: about {int(missing.sum()):,} more calibration rows would bring "
        f"{all_of_them} to {needs.enough}, enough to hold a class within about 10 points on its "
        f"own. Start with {names}{more}."
    ]


def _costs(predictor: BasePredictor, report: CoverageReport) -> list[str]:
    """Classes in every set are covered, but everybody pays for them."""
    if report.thresholds is None:
        return []
    rank_limit = predictor.limits_.rank_limit
    everywhere = np.isinf(report.thresholds)
    if rank_limit is not None:
        everywhere &= rank_limit == predictor.n_classes_
    n_everywhere = int(everywhere.sum())
    if not n_everywhere:
        return []
    needs = predictor.row_needs()
    classes = f"{n_everywhere:,} classes are" if n_everywhere > 1 else "1 class is"
    return [
        f"{classes} in every set, because a threshold needs at least {needs.least} calibration "
        f"scores; that adds {n_everywhere:,} to the size of each set."
    ]


def _name(report: CoverageReport, index: int) -> str:
    name = report.class_view(index).name
    return name if len(name) <= 40 else f"{name[:39]}…"
