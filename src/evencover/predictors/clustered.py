"""Clusters of classes with similar score distributions (section 3.2 of the paper)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from math import ceil, floor
from typing import Any, ClassVar, NamedTuple

import numpy as np

from evencover.arrays import FloatArray, IntArray
from evencover.errors import InputError, warn_caller
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.fit import Fit, check_array
from evencover.predictors.groups import GroupPredictor
from evencover.predictors.method import Method
from evencover.predictors.standard import StandardPredictor
from evencover.quantiles import (
    Alpha,
    GroupedScores,
    Groups,
    Thresholds,
    conformal_ranks,
    exact_fraction,
)
from evencover.validation import OPEN_SHARE, Check, real_number, unless, whole_number

OF_CLASS = (
    "the distance of its scores from those of its cluster; classes with too few examples to join "
    "a cluster have no guarantee"
)
LEVELS = tuple(Fraction(tenths, 10) for tenths in (5, 6, 7, 8, 9))


def automatic_parameters(
    class_counts: IntArray, alpha: Alpha, gamma: float | str = "auto"
) -> tuple[Fraction, int]:
    """Compute the paper's gamma = K/(75 + K), unless given, and M = floor(gamma n~ / 2).

    n~ = max(n_min, 1/alpha - 1), and K counts the classes with at least n~ examples.
    """
    enough = max(Fraction(int(class_counts.min())), 1 / exact_fraction(alpha) - 1)
    n_large = int((class_counts >= ceil(enough)).sum())
    automatic = Fraction(n_large, 75 + n_large)
    share = automatic if gamma == "auto" else exact_fraction(gamma, name="gamma")
    return share, floor(share * enough / 2)


def least_count(alpha: Alpha) -> int:
    """Return the fewest rows for clustering, 1/min(alpha, .1) - 1; others form the null cluster."""
    return ceil(1 / min(exact_fraction(alpha), Fraction(1, 10)) - 1)


def quantile_embedding(groups: GroupedScores, alpha: Alpha) -> FloatArray:
    """Return score quantiles of each class at .5, .6, .7, .8, .9 and 1 - alpha (K, 5 or 6)."""
    levels = sorted({*LEVELS, 1 - exact_fraction(alpha)})
    ranks = [conformal_ranks(groups.counts, 1 - level) for level in levels]
    return np.ascontiguousarray(groups.at_ranks(np.stack(ranks)).T)


def cluster_embeddings(
    embedding: FloatArray, weights: FloatArray, n_clusters: int, random_state: int
) -> IntArray:
    """Run weighted k-means; number clusters from the easiest classes to the hardest."""
    from sklearn import config_context
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    # One thread: the order of k-means' sums, and so its result, must not depend on the machine.
    # Our own numbers need no checks, which take as long as k-means.
    unchecked = config_context(assume_finite=True, skip_parameter_validation=True)
    # Squares of scores beyond 1e150, which only damaged models have, overflow.
    overflowing = np.errstate(over="ignore", invalid="ignore")
    with unchecked, overflowing, _libraries().limit(limits=1), warnings.catch_warnings():
        # Points that differ in the last bit only make fewer clusters, which is all right.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Else scikit-learn's defaults, so one start; the authors' code has ten.
        kmeans = KMeans(n_clusters, random_state=int(random_state) % 2**32)
        cluster = kmeans.fit_predict(embedding, sample_weight=weights)
    used, member = np.unique(cluster, return_inverse=True)
    easiest_first = np.argsort(kmeans.cluster_centers_[used].mean(axis=1), kind="stable")
    return np.argsort(easiest_first)[member].astype(np.int64)


@cache
def _libraries() -> Any:
    """Find the libraries that k-means computes with, which takes as long as k-means."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class ClusterState(NamedTuple):
    """The cluster of each class (K,), gamma, and the number of rows that found the clusters."""

    cluster_of_class: IntArray
    gamma: float
    n_clustering: int

    @property
    def n_clusters(self) -> int:
        """The number of clusters, without the null cluster."""
        return int(self.cluster_of_class.max()) + 1


@dataclass(kw_only=True, eq=False, repr=False)
class ClusteredPredictor(GroupPredictor):
    """One threshold per cluster of classes.

    A random fraction gamma of the calibration rows (D1) represents each class by its score
    quantiles, which weighted k-means clusters. The rest (D2) calibrates each cluster. Classes with
    too few rows in D1 form the null cluster, which uses the STANDARD threshold of D2. With too
    little data to cluster, `fit` warns and uses STANDARD on all rows.

    Guarantees, for exchangeable rows: Proposition 1, *cluster-conditional* coverage
    P(Y in C(X) | Y in cluster m) >= 1 - alpha for every cluster m. Proposition 2, class-conditional
    coverage for the classes of a cluster whose score distributions are equal. Proposition 3,
    coverage >= 1 - alpha - epsilon for the classes of a cluster whose score distributions are
    within epsilon of each other in Kolmogorov-Smirnov distance.
    Classes of the null cluster have no guarantee of their own. With an alpha per class, each class
    uses the rank for its own alpha among its cluster's scores, Proposition 3 holds with that
    alpha, and clusters are found at the median alpha.

    Parameters
    ----------
    gamma
        Fraction of the calibration rows for clustering, in (0, 1); "auto" is the paper's
        K / (75 + K), K being the number of classes with enough rows.
    n_clusters
        Number of clusters M; "auto" is the paper's floor(gamma n~ / 2), where n~ is the
        larger of the smallest class count and 1/alpha - 1.
    confidence
        As for `StandardPredictor`.
    alpha, score, exact, keep_top, from_logits, random_state
        As for every predictor.

    Examples
    --------
    >>> from evencover.data import load_languages
    >>> rows, labels, names = load_languages()
    >>> predictor = ClusteredPredictor().fit(rows[:10000], labels[:10000], class_names=names)
    >>> predictor.predict_set(rows[10002:10004]).to_lists(names=True)
    [['Quechua, Huamalíes-Dos de Mayo Huánuco', 'Quechua, Cusco', 'Quechua, Arequipa-La Unión'],
     ['Telugu']]
    >>> predictor.n_clusters_
    3
    """

    gamma: float | str = "auto"
    n_clusters: int | str = "auto"

    method = "clustered"
    summary = "one threshold per cluster of classes with similar scores"
    guarantee = (
        "Coverage of {target} for each cluster of classes is guaranteed {sets}. A class has the "
        f"guarantee up to {OF_CLASS}."
    )
    _guarantee_by_alpha = (
        f"Coverage of 1 - alpha for a class is guaranteed {{sets}}, up to {OF_CLASS}."
    )
    _State = ClusterState
    _constraints: ClassVar[dict[str, Check]] = {
        "gamma": unless(("auto",), OPEN_SHARE),
        "n_clusters": unless(("auto",), partial(whole_number, low=1)),
    }
    _usual_cause = (
        "The classes of a cluster share a threshold, so hard classes are covered less. Classes "
        "with too few calibration examples to join a cluster use the standard threshold."
    )

    def _calibrate(self, rows: CalibrationRows) -> tuple[Thresholds, ClusterState]:
        """Find the clusters on a part of the rows, and calibrate them on the others."""
        alpha = self._class_alpha(rows).typical  # clustering depends on one alpha
        gamma, n_clusters = automatic_parameters(rows.class_counts, alpha, self.gamma)
        if self.n_clusters != "auto":
            n_clusters = int(self.n_clusters)
        n_clustering = floor(gamma * len(rows))
        clustering, proper = rows.split(n_clustering, self.random_state)
        cluster_of_class, problem = self._cluster(clustering, n_clusters, alpha)
        if problem:
            warn_caller(
                f"Clustering is not possible: {problem}. "
                "All classes use the standard threshold of all calibration rows."
            )
            state = ClusterState(cluster_of_class, 0.0, 0)
            return self._thresholds(self._derive(rows, state), rows), state
        n_null = int(((cluster_of_class < 0) & (rows.class_counts > 0)).sum())
        if n_null:
            warn_caller(
                f"{n_null} of {rows.n_classes} classes have fewer than {least_count(alpha)} "
                "examples for clustering; they use the standard threshold."
            )
        state = ClusterState(cluster_of_class, float(gamma), n_clustering)
        return self._thresholds(self._clusters(proper, state), rows), state

    def _cluster(
        self, rows: CalibrationRows, n_clusters: int, alpha: Fraction
    ) -> tuple[IntArray, str | None]:
        """Return the cluster of each class, or all -1 and why there are no clusters."""
        cluster_of_class = np.full(rows.n_classes, -1, dtype=np.int64)
        if n_clusters < 2:
            return cluster_of_class, f"the number of clusters would be {n_clusters}"
        counts, least = rows.by_class.counts, least_count(alpha)
        large = np.flatnonzero(counts >= least)
        if len(large) <= n_clusters:
            return cluster_of_class, (
                f"{len(large)} of {rows.n_classes} classes have at least {least} rows for it, and "
                f"{n_clusters} clusters need more"
            )
        embedding = quantile_embedding(rows.by_class, alpha)[large]
        # Labels that top-k rows do not list count as the largest score; k-means needs numbers.
        finite = rows.scores[rows.scores < np.inf]
        embedding = np.minimum(embedding, finite.max(initial=0.0))
        if max(len(np.unique(values)) for values in embedding.T) < n_clusters:
            n_clusters = min(n_clusters, len(np.unique(embedding, axis=0)))
        if n_clusters < 2:
            return cluster_of_class, "all classes have the same score quantiles"
        weights = np.sqrt(counts[large])
        member = cluster_embeddings(embedding, weights, n_clusters, self.random_state)
        cluster_of_class[large] = member
        return cluster_of_class, None

    def _derive(self, rows: CalibrationRows, state: ClusterState) -> Groups:
        if not state.n_clusters:  # as STANDARD
            return rows.by_alpha(self._class_alpha(rows))
        _, proper = rows.split(state.n_clustering, self.random_state)
        return self._clusters(proper, state)

    def _clusters(self, proper: CalibrationRows, state: ClusterState) -> Groups:
        """Group the scores of the rows that calibrate by cluster."""
        # The null cluster is compared with all classes, whose scores are the last group.
        clusters = state.cluster_of_class
        group_of_class = np.where(clusters < 0, state.n_clusters, clusters)
        return Groups(
            proper.by(clusters).with_all(proper.scores[proper.by_score]),
            group_of_class,
            has_all=True,
        )

    def _check_fit(self, fit: Fit) -> None:
        state: ClusterState = fit.state
        check_array(state.cluster_of_class, "cluster_of_class", np.int64, fit.n_classes)
        clusters = np.unique(state.cluster_of_class)
        clusters = clusters[clusters != -1]
        if not np.array_equal(clusters, np.arange(len(clusters))):
            raise InputError("'cluster_of_class' must count the clusters from 0 on.")
        whole_number(state.n_clustering, "n_clustering", "the fit", 0, len(fit.rows) - 1)
        real_number(state.gamma, "gamma", "the fit", 0, 1, open_high=True)

    @property
    def cluster_of_class_(self) -> IntArray:
        """The cluster of each class (K,), -1 for the null cluster."""
        return self._any_fit.state.cluster_of_class

    @property
    def n_clusters_(self) -> int:
        """The number of clusters; 0 for the STANDARD fallback."""
        return self._any_fit.state.n_clusters

    @property
    def gamma_(self) -> float:
        """The fraction of rows used for clustering; 0 for the STANDARD fallback."""
        return self._any_fit.state.gamma

    def _guarantor(self, fit: Fit) -> type[Method]:
        return type(self) if fit.state.n_clusters else StandardPredictor

    def _own_guarantees(self, fit: Fit) -> FloatArray:
        is_null = (fit.state.cluster_of_class < 0) & (fit.state.n_clusters > 0)
        return np.where(is_null, 0.0, super()._own_guarantees(fit))

    def _fitted_values(self, fit: Fit) -> dict[str, Any]:
        """Gamma and M: what was asked for, or what the paper's rule gave."""
        return {
            "gamma": fit.state.gamma if self.gamma == "auto" else self.gamma,
            "M": fit.state.n_clusters if self.n_clusters == "auto" else self.n_clusters,
        }
