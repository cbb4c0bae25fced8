"""CLUSTERED: classes with similar score distributions share a threshold (the paper's method)."""

from __future__ import annotations

import warnings
from fractions import Fraction
from math import floor
from typing import Any, ClassVar

import numpy as np

from evencover._validation import (
    EvencoverWarning,
    InputError,
    IntArray,
    whole_number,
)
from evencover.engine.scattered import Rows, followed_by
from evencover.predictors.clustering import (
    ClusterGuarantee,
    automatic_n_clusters,
    automatic_parameters,
    cluster_embeddings,
    cluster_guarantees,
    least_count,
    quantile_embedding,
    unmeasured_guarantees,
)
from evencover.predictors.groups import GroupPredictor
from evencover.quantiles import Alpha, GroupedScores, RankedScores, exact_alpha
from evencover.scores import Score


class ClusteredPredictor(GroupPredictor):
    """One threshold per cluster of classes; clusters are found on one part of the rows.

    A random share gamma of the calibration rows (D1) places each class by its score quantiles,
    and weighted k-means groups the classes. The rest (D2) calibrates each cluster. Classes with
    too few rows in D1 form the null cluster, which uses the STANDARD threshold of D2. Where there
    is too little data to cluster at all, this is STANDARD on all rows, with a warning.

    Guarantees, for exchangeable rows: Proposition 1, *cluster-conditional* coverage
    P(Y in C(X) | Y in cluster m) >= 1 - alpha for every cluster m. Proposition 2, class-conditional
    coverage for the classes of a cluster whose score distributions are equal. Proposition 3,
    coverage >= 1 - alpha - epsilon for the classes of a cluster whose score distributions are
    within epsilon of each other in Kolmogorov-Smirnov distance; `guarantee_` estimates it.
    Classes of the null cluster have no promise of their own.

    Parameters
    ----------
    gamma
        Share of the calibration rows used for clustering, in (0, 1); "auto" is the paper's
        K / (75 + K), K being the number of classes with enough rows.
    n_clusters
        Number of clusters M; "auto" is the paper's floor(gamma n~ / 2), where n~ is the
        larger of the smallest class count and 1/alpha - 1.
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        as for every predictor.

    Attributes
    ----------
    cluster_of_class_
        (K,) cluster of each class, -1 for the null cluster; clusters are numbered
        from the easiest classes to the hardest.
    n_clusters_, gamma_
        What was used; both 0 if it fell back to STANDARD.
    guarantee_
        One `ClusterGuarantee` per cluster, the null cluster last; after ``fit(gather=False)`` its
        distances, which need all scores in one place, are NaN.
    """

    method: ClassVar[str] = "clustered"
    fitted_arrays: ClassVar[tuple[str, ...]] = (*GroupPredictor.fitted_arrays, "cluster_of_class_")
    fitted_values: ClassVar[tuple[str, ...]] = (
        *GroupPredictor.fitted_values,
        "n_clusters_",
        "gamma_",
        "guarantee_",
    )

    cluster_of_class_: IntArray
    n_clusters_: int
    gamma_: float
    guarantee_: tuple[ClusterGuarantee, ...]

    def __init__(
        self,
        *,
        alpha: Alpha = 0.1,
        score: Score | str = "softmax",
        gamma: float | str = "auto",
        n_clusters: int | str = "auto",
        exact: bool = False,
        allow_empty: bool = True,
        from_logits: bool = False,
        temperature: float = 1.0,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            alpha=alpha,
            score=score,
            exact=exact,
            allow_empty=allow_empty,
            from_logits=from_logits,
            temperature=temperature,
            random_state=random_state,
        )
        self.gamma = gamma
        self.n_clusters = n_clusters

    def _group_rows(self, rows: Rows) -> tuple[RankedScores, IntArray]:
        gamma, n_clusters = self._resolve_parameters()
        n_clustering = floor(gamma * self.n_calibration_)
        clustering, proper = rows.split(n_clustering, self.random_state)
        cluster_of_class, problem = self._cluster(clustering, n_clusters)
        if problem:
            warnings.warn(
                f"Clustering is not possible: {problem}. "
                "All classes use the standard threshold of all calibration rows.",
                EvencoverWarning,
                stacklevel=5,
            )
            gamma, proper = Fraction(0), rows
        self.cluster_of_class_ = cluster_of_class
        self.n_clusters_ = int(cluster_of_class.max()) + 1
        self.gamma_ = float(gamma)
        self._warn_of_null_classes()
        groups, group_of_class = cluster_groups(proper, cluster_of_class)
        classes = rows.by(np.arange(self.n_classes_))
        if isinstance(groups, GroupedScores) and isinstance(classes, GroupedScores):
            self.guarantee_ = cluster_guarantees(classes, groups, cluster_of_class)
        else:
            self.guarantee_ = unmeasured_guarantees(groups.counts, cluster_of_class)
        return groups, group_of_class

    def _cluster(self, rows: Rows, n_clusters: int) -> tuple[IntArray, str | None]:
        """The cluster of each class, or all -1 and the reason why there are no clusters."""
        cluster_of_class = np.full(self.n_classes_, -1, dtype=np.int64)
        if n_clusters < 2:
            return cluster_of_class, f"the number of clusters would be {n_clusters}"
        groups = rows.by(np.arange(self.n_classes_))
        large = np.flatnonzero(groups.counts >= least_count(self.alpha))
        if len(large) <= n_clusters:
            return cluster_of_class, (
                f"{len(large)} of {self.n_classes_} classes have at least "
                f"{least_count(self.alpha)} rows for it, and {n_clusters} clusters need more"
            )
        embedding = quantile_embedding(groups, self.alpha)[large]
        n_clusters = min(n_clusters, len(np.unique(embedding, axis=0)))
        if n_clusters < 2:
            return cluster_of_class, "all classes have the same score quantiles"
        weights = np.sqrt(groups.counts[large])
        cluster_of_class[large] = cluster_embeddings(
            embedding, weights, n_clusters, self.random_state
        )
        return cluster_of_class, None

    def _warn_of_null_classes(self) -> None:
        null = (self.cluster_of_class_ < 0) & (self.class_counts_ > 0)
        if self.n_clusters_ and null.any():
            warnings.warn(
                f"{int(null.sum())} of {self.n_classes_} classes have fewer than "
                f"{least_count(self.alpha)} examples for clustering; "
                "they use the standard threshold.",
                EvencoverWarning,
                stacklevel=6,
            )

    def _resolve_parameters(self) -> tuple[Fraction, int]:
        gamma, enough = automatic_parameters(self.class_counts_, self.alpha)
        if self.gamma != "auto":
            gamma = exact_alpha(self.gamma)  # the fraction that was meant, as for alpha
        if self.n_clusters != "auto":
            return gamma, int(self.n_clusters)
        return gamma, automatic_n_clusters(gamma, enough)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        owner = type(self).__name__
        if self.n_clusters != "auto":
            whole_number(self.n_clusters, "n_clusters", owner, 1)
        if self.gamma != "auto" and not (_is_real(self.gamma) and 0 < float(self.gamma) < 1):
            raise InputError(
                f"The 'gamma' parameter of {owner} must be 'auto' or a number in (0, 1). "
                f"Got {self.gamma!r} instead."
            )


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool)


def cluster_groups(rows: Rows, cluster_of_class: IntArray) -> tuple[RankedScores, IntArray]:
    """The scores of each cluster and, last, of everyone; and the group of each class.

    Classes outside all clusters (-1) are compared with everyone: the STANDARD threshold.
    """
    everyone = rows.by(np.zeros_like(cluster_of_class))
    groups = followed_by(rows.by(cluster_of_class), everyone)
    return groups, np.where(cluster_of_class < 0, cluster_of_class.max() + 1, cluster_of_class)
