"""Clusters of classes with similar score distributions (section 3.2 of the paper)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np

from evencover._validation import FloatArray, IntArray
from evencover.predictors.explanation import Details
from evencover.quantiles import Alpha, GroupedScores, conformal_ranks, exact_fraction

LEVELS = tuple(Fraction(tenths, 10) for tenths in (5, 6, 7, 8, 9))


def automatic_parameters(class_counts: IntArray, alpha: Alpha) -> tuple[Fraction, Fraction]:
    """The paper's gamma = K/(75 + K), and the n~ from which M = floor(gamma n~ / 2) follows.

    n~ = max(n_min, 1/alpha - 1), and K counts the classes with at least n~ examples.
    """
    enough = max(Fraction(int(class_counts.min())), 1 / exact_fraction(alpha) - 1)
    n_large = int((class_counts >= ceil(enough)).sum())
    return Fraction(n_large, 75 + n_large), enough


def automatic_n_clusters(gamma: Fraction, enough: Fraction) -> int:
    """M = floor(gamma n~ / 2)."""
    return floor(gamma * enough / 2)


def least_count(alpha: Alpha) -> int:
    """Classes with fewer rows for clustering go to the null cluster: 1/min(alpha, .1) - 1."""
    return ceil(1 / min(exact_fraction(alpha), Fraction(1, 10)) - 1)


def quantile_embedding(groups: GroupedScores, alpha: Alpha) -> FloatArray:
    """Each class's conformal score quantiles at .5, .6, .7, .8, .9 and 1 - alpha (K, 5 or 6)."""
    levels = sorted({*LEVELS, 1 - exact_fraction(alpha)})
    ranks = [conformal_ranks(groups.counts, 1 - level) for level in levels]
    return np.ascontiguousarray(groups.at_ranks(np.stack(ranks)).T)


def cluster_embeddings(
    embedding: FloatArray, weights: FloatArray, n_clusters: int, random_state: int
) -> IntArray:
    """Weighted k-means; clusters are numbered from the easiest classes to the hardest."""
    from sklearn import config_context
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    # One thread: the order of k-means' sums, and so its result, must not depend on the machine.
    # Our own numbers need no checks, which take as long as k-means.
    unchecked = config_context(assume_finite=True, skip_parameter_validation=True)
    with unchecked, _libraries().limit(limits=1), warnings.catch_warnings():
        # Points that differ in the last bit only make fewer clusters, which is all right.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Else scikit-learn's defaults, as the paper uses them.
        kmeans = KMeans(n_clusters, random_state=int(random_state) % 2**32)
        cluster = kmeans.fit_predict(embedding, sample_weight=weights)
    found, member = np.unique(cluster, return_inverse=True)
    easiest_first = np.argsort(kmeans.cluster_centers_[found].mean(axis=1), kind="stable")
    return np.argsort(easiest_first)[member].astype(np.int64)


@cache
def _libraries() -> Any:
    """The libraries that k-means computes with; to look for them takes as long as k-means."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class ClusterGuarantee(NamedTuple):
    """What Proposition 3 promises the classes of one cluster: coverage >= 1 - alpha - epsilon.

    Attributes
    ----------
    cluster
        Its number; -1 is the null cluster, whose classes have no promise of their own.
    n_classes
        Classes in it.
    n_rows
        Calibration rows behind its threshold.
    ks_largest
        The largest Kolmogorov-Smirnov distance between a class and its cluster, as seen
        in the calibration scores; sampling noise makes it larger than the truth.
    ks_if_identical
        The median of what `ks_largest` would be if all its classes had one and the
        same distribution: all that noise alone explains.
    epsilon_low, epsilon_high
        Limits for the true largest distance, valid for all clusters at
        once with probability 95%. Wide, because they make no assumption.
    """

    cluster: int
    n_classes: int
    n_rows: int
    ks_largest: float
    ks_if_identical: float
    epsilon_low: float
    epsilon_high: float


def cluster_guarantees(
    classes: GroupedScores, clusters: GroupedScores, cluster_of_class: IntArray
) -> tuple[ClusterGuarantee, ...]:
    """`ClusterGuarantee` of each cluster, the null cluster last if it has classes.

    `classes` holds all calibration scores by class: their bands hold for all classes at once, and
    so for any clusters, also those found from the same scores. `clusters` holds the scores of
    rows that had no part in finding the clusters, and last those of everyone.
    """
    n_clusters = len(clusters.counts) - 1
    distance = _distance_to_cluster(classes, clusters, cluster_of_class)
    class_error = _dkw_band(classes.counts, len(cluster_of_class))
    cluster_error = _dkw_band(clusters.counts, n_clusters)
    by_chance = _medians_of_largest_ks(classes.counts, clusters.counts, cluster_of_class)
    table = []
    for cluster in range(n_clusters):
        members = np.flatnonzero(cluster_of_class == cluster)
        error = class_error[members] + cluster_error[cluster]
        table.append(
            ClusterGuarantee(
                cluster,
                len(members),
                int(clusters.counts[cluster]),
                float(distance[members].max()),
                float(by_chance[cluster]),
                float(np.maximum(distance[members] - error, 0).max()),
                float(np.minimum(distance[members] + error, 1).max()),
            )
        )
    n_null = int((cluster_of_class < 0).sum())
    if n_null:
        nan = float("nan")
        table.append(ClusterGuarantee(-1, n_null, int(clusters.counts[-1]), nan, nan, nan, nan))
    return tuple(table)


def _distance_to_cluster(
    classes: GroupedScores, clusters: GroupedScores, cluster_of_class: IntArray
) -> FloatArray:
    """Kolmogorov-Smirnov distance of each class's scores from its cluster's (0 without data)."""
    counts = classes.counts
    class_of_score = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(classes.scores)) - np.repeat(classes.offsets[:-1], counts)
    size = counts[class_of_score]
    largest = np.zeros(len(classes.scores))
    cluster_of_score = cluster_of_class[class_of_score]
    # Short integers are sorted by radix.
    kind = np.int16 if len(counts) < 2**15 else np.int64
    by_cluster = np.argsort(cluster_of_score.astype(kind), kind="stable")
    clusters_found = np.unique(cluster_of_class[cluster_of_class >= 0])
    bounds = np.searchsorted(cluster_of_score[by_cluster], [clusters_found, clusters_found + 1])
    for cluster, start, stop in zip(clusters_found, *bounds, strict=True):
        rows = by_cluster[start:stop]
        reference, own = clusters.of(cluster), classes.scores[rows]
        n_reference = max(len(reference), 1)
        at = np.searchsorted(reference, own, side="right") / n_reference
        just_before = np.searchsorted(reference, own, side="left") / n_reference
        # Between two scores of the class only the cluster's function moves, so the supremum is
        # reached at a score of the class or just before it.
        largest[rows] = np.maximum(
            (place[rows] + 1) / size[rows] - at, just_before - place[rows] / size[rows]
        )
    distance = np.zeros(len(counts))
    filled = np.flatnonzero(counts)
    distance[filled] = np.maximum.reduceat(largest, classes.offsets[:-1][filled])
    return distance


def _dkw_band(counts: IntArray, n_bands: int) -> FloatArray:
    """Half-widths that hold for all empirical distribution functions at once with 97.5%.

    Dvoretzky-Kiefer-Wolfowitz with Massart's constant, and a union bound.
    """
    return np.sqrt(np.log(2 * max(n_bands, 1) / 0.025) / (2 * np.maximum(counts, 1)))


def _medians_of_largest_ks(
    class_counts: IntArray, cluster_counts: IntArray, cluster_of_class: IntArray
) -> FloatArray:
    """For each cluster the median of the largest KS distance if its classes were drawn from it."""
    from scipy.special import kolmogorov

    members = np.flatnonzero(cluster_of_class >= 0)
    cluster = cluster_of_class[members]
    # Kolmogorov's function is what takes time: once for all classes of a cluster with as many rows.
    width = int(class_counts.max(initial=0)) + 1
    kinds, kind = np.unique(cluster * width + class_counts[members], return_inverse=True)
    cluster_of_kind, n = kinds // width, kinds % width
    m = np.maximum(cluster_counts[cluster_of_kind], 1)
    root = np.sqrt(n * m / (n + m))
    stephens = root + 0.12 + 0.11 / root  # makes the asymptotic law accurate for small samples
    low, high = np.zeros(len(cluster_counts)), np.ones(len(cluster_counts))
    for _ in range(20):  # to one in a million
        middle = (low + high) / 2
        above = np.minimum(kolmogorov(stephens * middle[cluster_of_kind]), 1 - 1e-16)
        below = np.bincount(cluster, np.log1p(-above)[kind], len(cluster_counts))
        low, high = np.where(below < np.log(0.5), [middle, high], [low, middle])
    return high


def guarantee_table(guarantees: Sequence[ClusterGuarantee]) -> Details:
    """What is promised to the classes of each cluster, for people."""
    return Details(
        "clusters",
        [row._asdict() for row in guarantees],
        "Coverage of a class is at least 1 - alpha - epsilon (Proposition 3), epsilon being the "
        "largest distance\n(Kolmogorov-Smirnov) of a class's scores from its cluster's:",
        ["cluster", "classes", "rows", "seen", "if identical", "epsilon, 95% limits"],
        [_cells(row) for row in guarantees],
    )


def _cells(row: ClusterGuarantee) -> list[str]:
    counts = [str(row.n_classes), str(row.n_rows)]
    if row.cluster < 0:
        return ["null", *counts, "", "", "no promise"]
    if np.isnan(row.epsilon_high):  # scores that were never in one place
        return [str(row.cluster), *counts, "", "", "not measured"]
    limits = f"{row.epsilon_low:.2f} to {row.epsilon_high:.2f}"
    seen = [f"{row.ks_largest:.2f}", f"{row.ks_if_identical:.2f}"]
    return [str(row.cluster), *counts, *seen, limits]
