"""What would fix it: sentences that follow from the method and the calibration rows."""

from __future__ import annotations

import numpy as np

from evencover._validation import IntArray
from evencover.evaluation.report import CoverageReport
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanation import Needs
from evencover.report.verdict import SURELY_UNDER, class_states, expected_by_chance


def remedies(predictor: BasePredictor, report: CoverageReport) -> list[str]:
    """One to four sentences or short paragraphs, the most useful first."""
    under = np.flatnonzero(class_states(report) == SURELY_UNDER)
    needs = Needs.at(predictor.alpha)
    sentences: list[str] = []
    if len(under) == 0:
        sentences.append("Nothing needs fixing: no class is surely below the promise.")
    elif _is_chance(report, len(under)):
        sentences.append(
            "Nothing clearly needs fixing: so few classes would look let down by chance alone. "
            "More test rows would tell."
        )
    else:
        sentences.append(predictor._cause(under))
        sentences += _more_labels(predictor, report, under, needs)
    return sentences + _costs(predictor, report)


def _is_chance(report: CoverageReport, n_under: int) -> bool:
    chance = expected_by_chance(report.class_counts, report.alpha)
    return n_under <= chance + 2 * float(np.sqrt(chance))


def _more_labels(
    predictor: BasePredictor, report: CoverageReport, under: IntArray, needs: Needs
) -> list[str]:
    """How many more labelled rows, and for which classes first."""
    missing = np.maximum(needs.enough - predictor.class_counts_[under], 0)
    short = np.flatnonzero(missing)
    if len(short) == 0:
        return []
    first = short[np.argsort(-missing[short], kind="stable")][:3]
    names = ", ".join(
        f"{_name(report, int(under[place]))} (+{missing[place]})" for place in first.tolist()
    )
    more = " and others" if len(short) > len(first) else ""
    return [
        f"Collect labels: about {int(missing.sum()):,} more calibration rows would bring all of "
        f"them to {needs.enough}, which holds a class within about 10 points by itself. First: "
        f"{names}{more}."
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
    needs = Needs.at(predictor.alpha)
    classes = f"{n_everywhere:,} classes are" if n_everywhere > 1 else "1 class is"
    return [
        f"{classes} in every set, because fewer than {needs.least} calibration scores cannot "
        f"support a threshold; that adds {n_everywhere:,} to the size of each set."
    ]


def _name(report: CoverageReport, index: int) -> str:
    name = report.class_view(index).name
    return name if len(name) <= 40 else f"{name[:39]}…"
