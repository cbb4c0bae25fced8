"""What the page tells, as plain numbers and text, from what one pass over the rows gathered."""

from __future__ import annotations

from typing import Any

import numpy as np

from evencover._validation import IntArray
from evencover.evaluation.metrics import descriptions
from evencover.evaluation.report import CoverageReport
from evencover.predictors.base import BasePredictor
from evencover.report.gathering import Gathered, gather
from evencover.report.groups import (
    group_columns,
    sharing_of,
    threshold_columns,
    weight_columns,
)
from evencover.report.page import percent
from evencover.report.remedies import remedies
from evencover.report.sizes import (
    about_empty_sets,
    coverage_by_size,
    size_histogram,
)
from evencover.report.verdict import State, class_states, usual_spread, verdict
from evencover.scores import make_score


def report_content(
    predictor: BasePredictor,
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    groups: Any = None,
    executor: Any = None,
    taxonomy: Any = None,
) -> dict[str, Any]:
    """Everything the page shows, ready for JSON: columns with one entry per class or group."""
    rows: Any = {"ids": ids, "groups": groups, "executor": executor, "taxonomy": taxonomy}
    return describe(predictor, gather(predictor, probabilities, labels, **rows))


def describe(predictor: BasePredictor, seen: Gathered) -> dict[str, Any]:
    """`report_content` of what was gathered."""
    report = seen.report
    spread = usual_spread(report, *_calibrating_rows(predictor))
    return {
        "method": predictor.method,
        "score": make_score(predictor.score).name,
        "alpha": report.alpha,
        "exact": predictor.exact,
        "allow_empty": predictor.allow_empty,
        "n_rows": report.n_rows,
        "n_classes": report.n_classes,
        "n_classes_evaluated": report.n_classes_evaluated,
        "n_calibration": predictor.n_calibration_,
        "guarantee": in_percent(predictor.promise, report.alpha),
        "has_thresholds": report.thresholds is not None,
        "origin": predictor.origin,
        "weights": weight_columns(predictor),
        "facts": predictor._class_facts(),
        "doubts": list(report.doubts),
        "metrics": {name: _or_none(value) for name, value in report.metrics().items()},
        "numbers": descriptions("report", percent(1 - report.alpha), report),
        "true_gap_interval": [_or_none(limit) for limit in report.true_gap_interval],
        "size_quantiles": report.size_quantiles,
        "size_over_classes": round(report.avg_size_over_classes, 2),
        "sizes": size_histogram(report.size_counts),
        "coverage_by_size": coverage_by_size(report.size_counts, seen.covered_by_size),
        "empty_sets": about_empty_sets(predictor, report),
        "states": [state.name.lower() for state in State],
        "verdict": verdict(report, spread),
        "remedies": remedies(predictor, report),
        "classes": class_columns(seen) | threshold_columns(predictor, report),
        "groups": group_columns(predictor),
    }


def in_percent(sentence: str, alpha: float) -> str:
    """A sentence about 1 - alpha with the number in its place.

    >>> in_percent("Coverage of 1 - alpha is guaranteed, not of 1 - 2 alpha.", 0.1)
    'Coverage of 90% is guaranteed, not of 80%.'
    """
    twice = percent(max(0.0, 1 - 2 * alpha))
    return sentence.replace("1 - 2 alpha", twice).replace("1 - alpha", percent(1 - alpha))


def _or_none(value: float) -> float | None:
    """JSON has no NaN; a true gap is unknown where no class has two test rows."""
    return None if np.isnan(value) else value


def _calibrating_rows(predictor: BasePredictor) -> tuple[IntArray, IntArray]:
    """The group of each class, and the rows behind each group; all rows where there are none."""
    sharing = sharing_of(predictor)
    if (sharing.group_of_class < 0).any():
        return np.zeros_like(sharing.group_of_class), np.array([predictor.n_calibration_])
    return sharing.group_of_class, sharing.scores.counts


def class_columns(seen: Gathered) -> dict[str, Any]:
    """One entry per class in each column; counts are whole numbers, shares have four digits."""
    report = seen.report
    assert report.confusions is not None
    assert report.calibration_counts is not None
    assert report.size_sums is not None
    states = class_states(report)
    limits = report.class_coverage_interval.round(4)
    with np.errstate(invalid="ignore"):
        sizes = (report.size_sums / report.class_counts).round(2)
    columns: dict[str, Any] = {
        "name": class_names(report),
        "rows": report.class_counts.tolist(),
        "covered": report.class_covered.tolist(),
        "low": limits[:, 0].tolist(),
        "high": limits[:, 1].tolist(),
        "state": "".join(map(str, states.tolist())),
        "calibration": report.calibration_counts.tolist(),
        "size": [None if np.isnan(size) else size for size in sizes.tolist()],
        "confused": [
            [number for pair in report.confusions.of_class(index) for number in pair]
            for index in range(report.n_classes)
        ],
        "histogram": seen.histogram.ravel().tolist(),
        "examples": seen.examples.columns(),
    }
    if report.cluster_of_class is not None and (report.cluster_of_class >= 0).any():
        columns["cluster"] = report.cluster_of_class.tolist()
    return columns


def class_names(report: CoverageReport) -> list[str]:
    """The classes' names, with a stand-in where there is none."""
    given = [""] * report.n_classes if report.class_names is None else report.class_names
    names = (str(name) for name in given)
    return [name if name.strip() else f"class {place}" for place, name in enumerate(names)]
