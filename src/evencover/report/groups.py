"""Thresholds and the groups of classes that share them: their places, reasons and scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evencover._validation import FloatArray
from evencover.evaluation.report import CoverageReport
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanation import Sharing
from evencover.quantiles import GroupedScores

N_BINS = 20


class Bins(NamedTuple):
    """Bins of scores, each with about as many calibration scores as any other.

    Scores crowd at one end (most softmax scores are near 0, thresholds near 1), so equal steps
    would show one full bar and hide what matters. ``edges`` (B + 1,) are scores; ``places``
    (B + 1,) is where they are drawn: the share of calibration scores up to there.
    """

    edges: FloatArray
    places: FloatArray


def score_bins(predictor: BasePredictor) -> Bins:
    """Bins for the scores of all classes alike, so that classes can be compared by eye."""
    kept = sharing_of(predictor).scores.scores
    scores = np.sort(kept[np.isfinite(kept)])
    if len(scores) == 0:
        return _bins_without_scores(predictor.thresholds_)
    inner = np.unique(np.quantile(scores, np.arange(1, N_BINS) / N_BINS, method="inverted_cdf"))
    inner = _snapped(inner[inner < scores[-1]], predictor.thresholds_, scores)
    shares = np.searchsorted(scores, inner, side="right") / len(scores)
    return Bins(
        np.concatenate([[min(scores[0], 0.0)], inner, [max(scores[-1], np.nextafter(0, 1))]]),
        np.concatenate([[0.0], shares, [1.0]]),
    )


def _bins_without_scores(thresholds: FloatArray) -> Bins:
    """For methods that keep no scores: finest where the thresholds are, bars of equal width."""
    finite = thresholds[np.isfinite(thresholds)]
    top = max(1.0, finite.max(initial=1.0))
    crowd = np.quantile(finite, np.arange(1, 10) / 10) if len(finite) else finite
    edges = np.unique(np.concatenate([np.linspace(0, top, 11), crowd]))
    return Bins(edges, np.linspace(0, 1, len(edges)))


def _snapped(edges: FloatArray, thresholds: FloatArray, scores: FloatArray) -> FloatArray:
    """Move the nearest free edge to each threshold, if few: no bin is then partly covered."""
    wanted = np.unique(thresholds[np.isfinite(thresholds)])
    if not 0 < len(wanted) <= len(edges) // 2:
        return edges
    places, moved = np.searchsorted(scores, edges, side="right"), edges.copy()
    free = np.ones(len(edges), dtype=bool)
    for threshold in wanted:
        distance = np.abs(places - np.searchsorted(scores, threshold, side="right"))
        nearest = int(np.where(free, distance, len(scores) + 1).argmin())
        free[nearest], moved[nearest] = False, threshold
    return np.unique(moved[moved < scores[-1]])


def threshold_columns(predictor: BasePredictor, report: CoverageReport) -> dict[str, Any]:
    """One entry per class: its threshold and where in the bins that is; None if in every set.

    Both are None everywhere for a method that has no thresholds of classes.
    """
    if report.thresholds is None:
        return {name: [None] * report.n_classes for name in ("threshold", "place")}
    bins, thresholds = score_bins(predictor), report.thresholds
    places = np.interp(thresholds, bins.edges, bins.places)
    finite = np.isfinite(thresholds)
    return {
        "threshold": [
            float(f"{q:.6g}") if known else None
            for q, known in zip(thresholds.tolist(), finite, strict=True)
        ],
        "place": [
            round(place, 4) if known else None
            for place, known in zip(places.tolist(), finite, strict=True)
        ],
    }


def weight_columns(predictor: BasePredictor) -> dict[str, list[float]]:
    """What each class's threshold comes from, in shares; nothing if the method has no such."""
    return {name: shares.round(4).tolist() for name, shares in predictor._weights().items()}


def group_columns(predictor: BasePredictor) -> dict[str, Any]:
    """The bins and, with one entry per group, calibration rows, conformal rank, scores by bin."""
    bins, sharing = score_bins(predictor), sharing_of(predictor)
    groups = sharing.scores
    ranks = predictor.group_ranks(groups.counts)
    # An edge belongs to the bin on its left, as a score equal to the threshold is covered.
    counts = [
        np.diff(np.searchsorted(groups.of(g), bins.edges[1:-1], "right"), prepend=0, append=n)
        for g, n in enumerate(groups.counts.tolist())
    ]
    return {
        "of_class": sharing.group_of_class.tolist(),
        "whose": list(sharing.whose),
        "reference": list(sharing.reference),
        "rows": groups.counts.tolist(),
        "rank": ranks.tolist(),
        "histogram": [int(count) for group in counts for count in group],
        "bin_edges": _distinct(bins.edges),
        "bin_places": bins.places.round(4).tolist(),
    }


def _distinct(edges: FloatArray) -> list[float]:
    """Edges with four digits, or as many as it takes to tell them apart.

    >>> _distinct(np.array([0.123456, 0.99996, 1.0]))
    [0.12346, 0.99996, 1.0]
    """
    short = edges.tolist()
    for digits in range(4, 17):
        short = [float(f"{edge:.{digits}g}") for edge in edges.tolist()]
        if len(set(short)) == len(short):
            break
    return short


def sharing_of(predictor: BasePredictor) -> Sharing:
    """The calibration scores behind each threshold; no groups if the method keeps none."""
    sharing = predictor._sharing()
    if sharing is not None:
        return sharing
    nowhere = np.full(predictor.n_classes_, -1, dtype=np.int64)
    return Sharing(GroupedScores(np.zeros(0), np.zeros(1, dtype=np.int64)), nowhere, (), ())
