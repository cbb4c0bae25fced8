"""The groups of classes that share a threshold: its place, its reason and their scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evencover._validation import FloatArray
from evencover.predictors.base import BasePredictor
from evencover.quantiles import GroupedScores, conformal_ranks

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
    scores = np.sort(predictor.group_scores_[np.isfinite(predictor.group_scores_)])
    if len(scores) == 0:
        return Bins(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    inner = np.unique(np.quantile(scores, np.arange(1, N_BINS) / N_BINS, method="inverted_cdf"))
    inner = _snapped(inner[inner < scores[-1]], predictor.thresholds_, scores)
    shares = np.searchsorted(scores, inner, side="right") / len(scores)
    return Bins(
        np.concatenate([[min(scores[0], 0.0)], inner, [scores[-1]]]),
        np.concatenate([[0.0], shares, [1.0]]),
    )


def _snapped(edges: FloatArray, thresholds: FloatArray, scores: FloatArray) -> FloatArray:
    """Move the nearest edge to each threshold, so that no bin is partly covered; if few."""
    wanted = np.unique(thresholds[np.isfinite(thresholds)])
    if not 0 < len(wanted) <= len(edges) // 2:
        return edges
    edges, taken = edges.copy(), set()
    places = np.searchsorted(scores, edges, side="right")
    for threshold in wanted:
        nearest = int(np.abs(places - np.searchsorted(scores, threshold, side="right")).argmin())
        if nearest not in taken:
            taken.add(nearest)
            edges[nearest] = threshold
    return np.unique(edges[edges < scores[-1]])


def group_columns(predictor: BasePredictor) -> dict[str, Any]:
    """One entry per group: rows, conformal rank, threshold, its place in the bins, scores by bin."""
    groups = GroupedScores(predictor.group_scores_, predictor.group_offsets_)
    bins = score_bins(predictor)
    ranks = conformal_ranks(groups.counts, predictor.alpha)
    thresholds = groups.at_ranks(ranks)
    places = np.interp(thresholds, bins.edges, bins.places)
    # An edge belongs to the bin on its left, as a score equal to the threshold is covered.
    counts = [
        np.diff(np.searchsorted(groups.of(g), bins.edges[1:-1], "right"), prepend=0, append=n)
        for g, n in enumerate(groups.counts.tolist())
    ]
    return {
        "of_class": predictor.group_of_class_.tolist(),
        "rows": groups.counts.tolist(),
        "rank": ranks.tolist(),
        "threshold": [float(f"{q:.6g}") if np.isfinite(q) else None for q in thresholds.tolist()],
        "place": [
            round(place, 4) if np.isfinite(q) else None
            for place, q in zip(places.tolist(), thresholds.tolist(), strict=True)
        ],
        "histogram": np.concatenate(counts).tolist(),
        "bin_edges": [float(f"{edge:.4g}") for edge in bins.edges.tolist()],
        "bin_places": bins.places.round(4).tolist(),
        "kind": _kind(predictor),
    }


def _kind(predictor: BasePredictor) -> str:
    """Whose scores a group holds, as far as the page words it: everyone, own, clusters, shared."""
    own_groups = len(np.unique(predictor.group_of_class_))
    if getattr(predictor, "n_clusters_", 0):
        return "clusters"
    if own_groups == 1:
        return "everyone"
    return "own" if own_groups == predictor.n_classes_ else "shared"
