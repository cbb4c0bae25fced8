"""What would fix it: sentences that follow from the method and the calibration rows."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np

from evencover._validation import IntArray
from evencover.evaluation.report import CoverageReport
from evencover.predictors.base import BasePredictor
from evencover.predictors.clustering import least_count
from evencover.quantiles import Alpha, exact_alpha
from evencover.report.verdict import SURELY_UNDER, class_states, expected_by_chance


class Needs(NamedTuple):
    """How many calibration rows it takes to adapt to a class.

    ``least`` for any threshold of its own (conformal rank k <= n), ``enough`` for one that holds
    the class's coverage within about 10 points (two standard deviations of its Beta law).
    """

    least: int
    enough: int

    @classmethod
    def at(cls, alpha: Alpha) -> Needs:
        """At this level.

        >>> Needs.at(0.1)
        Needs(least=9, enough=34)
        """
        level = exact_alpha(alpha)
        least = ceil(1 / level - 1)
        return cls(least, max(least, ceil(float(level * (1 - level)) / 0.05**2 - 1e-9) - 2))


# Why classes may be let down by methods that are no GroupPredictor.
CAUSES = {
    "interpolated": "Each threshold lies between the class's own and that of everyone, so hard "
    "classes still get too little.",
    "fuzzy": "Each class leans on those that are about as frequent, which may be easier.",
    "rc3p": "Each class has a threshold and a limit on its rank; from few calibration rows the "
    "two together fall short.",
    "grouped": "The classes of a group share a threshold, so the hard ones among them get too "
    "little.",
}


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
        sentences += _for_method(predictor, under, needs)
        sentences += _more_labels(predictor, report, under, needs)
    return sentences + _costs(predictor)


def _is_chance(report: CoverageReport, n_under: int) -> bool:
    chance = expected_by_chance(report.class_counts, report.alpha)
    return n_under <= chance + 2 * float(np.sqrt(chance))


def _for_method(predictor: BasePredictor, under: IntArray, needs: Needs) -> list[str]:
    counts = predictor.class_counts_[under]
    if predictor.method == "classwise":
        return _for_classwise(predictor, counts)
    if predictor.method == "pooled":
        return _for_pooled(predictor, under, needs)
    if getattr(predictor, "n_clusters_", 0):
        return _for_clusters(predictor, under, needs)
    cause = CAUSES.get(
        predictor.method,
        "One threshold serves all classes, so hard classes get too little and easy ones too much.",
    )
    rich = int((counts >= needs.enough).sum())
    ways = []
    if rich:
        ways.append(
            f"{_of(rich, counts)} had at least {needs.enough} calibration rows, enough for "
            "thresholds of their own: try classwise"
        )
    if rich < len(counts):
        ways.append(
            f"{_of(len(counts) - rich, counts)} had fewer than {needs.enough}, and can lean on "
            "other classes: try pooled"
        )
    return [cause + _then(ways)]


def _for_classwise(predictor: BasePredictor, counts: IntArray) -> list[str]:
    alpha, typical = float(exact_alpha(predictor.alpha)), int(np.median(counts))
    spread = 200 * np.sqrt(alpha * (1 - alpha) / (typical + 2))
    cause = (
        f"Each class has a threshold of its own; with {typical:,} calibration rows (the median "
        f"here) coverage still varies by about {spread:.0f} points either way."
    )
    if spread >= 4:
        return [f"{cause} Pooled steadies it by leaning on other classes."]
    return [f"{cause} More than that suggests test rows that differ from the calibration rows."]


def _for_pooled(predictor: BasePredictor, under: IntArray, needs: Needs) -> list[str]:
    weight = 100 * float(np.median(predictor.own_weight_[under]))  # type: ignore[attr-defined]
    cause = (
        "Each class has a threshold of its own that leans on all classes; its own calibration "
        f"rows have a say of {weight:.0f}% here (the median), and they are harder than expected."
    )
    rich = int((predictor.class_counts_[under] >= needs.enough).sum())
    if not rich:
        return [cause]
    return [
        f"{cause} {_of(rich, under)} had at least {needs.enough} calibration rows, enough for "
        "thresholds of their own: try classwise."
    ]


def _for_clusters(predictor: BasePredictor, under: IntArray, needs: Needs) -> list[str]:
    counts = predictor.class_counts_[under]
    null = predictor.cluster_of_class_[under] < 0  # type: ignore[attr-defined]
    sentences = []
    if null.any():
        n_null = int(null.sum())
        sentences.append(
            f"{_of(n_null, counts)} had too few calibration rows to join a cluster, and use the "
            f"threshold of everyone. With about {_rows_to_cluster(predictor)} rows each they would."
        )
    if not null.all():
        inside = counts[~null]
        rich = int((inside >= needs.enough).sum())
        text = (
            f"{_of(len(inside), counts)} share a threshold with classes that are easier than they "
            f"are: pooled, or more clusters than {predictor.n_clusters_}, may part them"  # type: ignore[attr-defined]
        )
        if rich:
            text += (
                f"; {'all' if rich == len(inside) else f'{rich:,}'} of these had at least "
                f"{needs.enough} calibration rows, enough to try classwise"
            )
        sentences.append(f"{text}.")
    return sentences


def _rows_to_cluster(predictor: BasePredictor) -> int:
    """Calibration rows of which a share gamma is enough for the paper's rule."""
    gamma = max(float(getattr(predictor, "gamma_", 0.5)), 0.01)
    return ceil(least_count(predictor.alpha) / gamma)


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


def _costs(predictor: BasePredictor) -> list[str]:
    """Classes in every set are covered, but everybody pays for them."""
    rank_limit = predictor.limits_.rank_limit
    everywhere = np.isinf(predictor.thresholds_)
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


def _of(part: int, whole: IntArray) -> str:
    if part == len(whole):
        return "It" if part == 1 else f"All {part:,}" if part > 2 else "Both"
    return f"{part:,} of the {len(whole):,}"


def _then(ways: list[str]) -> str:
    return f" {'; '.join(ways)}." if ways else " A method that adapts to classes may help."


def _name(report: CoverageReport, index: int) -> str:
    name = report.class_view(index).name
    return name if len(name) <= 40 else f"{name[:39]}…"
