"""CLUSTERED: classes with similar score distributions share a threshold (the paper's method)."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, nan
from typing import Any, ClassVar

import numpy as np

from evencover._validation import (
    InputError,
    IntArray,
    whole_number,
)
from evencover.errors import warn_caller
from evencover.predictors.calibration import CalibrationRows, followed_by
from evencover.predictors.clustering import (
    ClusterGuarantee,
    automatic_n_clusters,
    automatic_parameters,
    cluster_embeddings,
    cluster_guarantees,
    guarantee_table,
    least_count,
    quantile_embedding,
)
from evencover.predictors.explanation import Details, Sharing, company, some_of, ways_out
from evencover.predictors.groups import Grouping, WeightedGroupPredictor
from evencover.predictors.state import Field
from evencover.quantiles import GroupedScores, exact_fraction


@dataclass(kw_only=True, eq=False, repr=False)
class ClusteredPredictor(WeightedGroupPredictor):
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
    confidence
        None: the promise holds on average over calibrations. A number in (0, 1): with that
        probability over calibrations, coverage is at least 1 - alpha.
    target_prevalence
        None: the promise is for the class frequencies of the calibration rows. Otherwise for these:
        (K,) numbers in proportion, the path of a file with them, or "uniform".
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
        One `ClusterGuarantee` per cluster, the null cluster last.
    """

    gamma: float | str = "auto"
    n_clusters: int | str = "auto"

    method: ClassVar[str] = "clustered"
    summary: ClassVar[str] = "one threshold per cluster of classes with similar scores"
    guarantee: ClassVar[str] = (
        "Coverage of 1 - alpha is guaranteed to each cluster of classes; a class is promised as "
        "much only as far as its scores are like its cluster's, and classes with too few rows to "
        "join a cluster are promised nothing."
    )
    confident_guarantee: ClassVar[str] = (
        "For each cluster of classes, its coverage is at least 1 - alpha in at least {confidence} "
        "of all calibrations; a class is promised as much only as far as its scores are like its "
        "cluster's, and classes with too few rows to join a cluster are promised nothing."
    )
    state: ClassVar[dict[str, Field]] = {
        "cluster_of_class_": Field(int, "K"),
        "n_clusters_": Field(int),
        "gamma_": Field(float),
        "guarantee_": Field(list),
    }

    cluster_of_class_: IntArray = field(init=False)
    n_clusters_: int = field(init=False)
    gamma_: float = field(init=False)
    guarantee_: tuple[ClusterGuarantee, ...] = field(init=False)

    def _group(self, rows: CalibrationRows) -> Grouping:
        gamma, n_clusters = self._resolve_parameters()
        n_clustering = floor(gamma * self.n_calibration_)
        clustering, proper = rows.split(n_clustering, self.random_state)
        cluster_of_class, problem = self._cluster(clustering, n_clusters)
        if problem:
            warn_caller(
                f"Clustering is not possible: {problem}. "
                "All classes use the standard threshold of all calibration rows."
            )
            gamma, proper = Fraction(0), rows
        self.cluster_of_class_ = cluster_of_class
        self.n_clusters_ = int(cluster_of_class.max()) + 1
        self.gamma_ = float(gamma)
        self._warn_of_null_classes()
        groups, group_of_class = cluster_groups(proper, cluster_of_class)
        classes = rows.by(np.arange(self.n_classes_))
        self.guarantee_ = cluster_guarantees(classes, groups, cluster_of_class)
        return Grouping(groups, group_of_class, proper)

    def _cluster(self, rows: CalibrationRows, n_clusters: int) -> tuple[IntArray, str | None]:
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
            warn_caller(
                f"{int(null.sum())} of {self.n_classes_} classes have fewer than "
                f"{least_count(self.alpha)} examples for clustering; "
                "they use the standard threshold."
            )

    def _resolve_parameters(self) -> tuple[Fraction, int]:
        gamma, enough = automatic_parameters(self.class_counts_, self.alpha)
        if self.gamma != "auto":
            gamma = exact_fraction(self.gamma, name="gamma")  # as it was meant, like alpha
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

    # ---- what was learnt ---------------------------------------------------------------------

    def learnt(self) -> dict[str, Any]:
        """Gamma and M: what was asked for, or what the paper's rule gave."""
        return {
            "gamma": self.gamma_ if self.gamma == "auto" else self.gamma,
            "M": self.n_clusters_ if self.n_clusters == "auto" else self.n_clusters,
        }

    def details(self) -> Details:
        """The promise of each cluster (Proposition 3)."""
        return guarantee_table(self.guarantee_)

    def _about_classes(self) -> dict[str, Any]:
        return {**super()._about_classes(), "cluster_of_class": self.cluster_of_class_}

    def _sharing(self) -> Sharing | None:
        if not self.n_clusters_:
            return super()._sharing()
        sizes = np.bincount(self.group_of_class_, minlength=self.n_clusters_ + 1)
        whose = [
            f"of cluster {m}, which it shares with {company(int(sizes[m]))}"
            for m in range(self.n_clusters_)
        ]
        whose.append("of all classes, because this one had too few to join a cluster")
        reference = [f"the calibration rows of cluster {m}" for m in range(self.n_clusters_)]
        reference.append("the calibration rows of all classes")
        return Sharing(self.groups_, self.group_of_class_, whose, reference)

    def _class_facts(self) -> dict[str, list[str]]:
        if not self.n_clusters_:
            return {}
        return {"Cluster": ["none" if m < 0 else str(m) for m in self.cluster_of_class_.tolist()]}

    def _cause(self, under: IntArray) -> str:
        needs, counts = self.row_needs(), self.class_counts_[under]
        if not self.n_clusters_:
            cause = "One threshold serves all classes, so hard classes are covered less and easy"
            return f"{cause} ones more. {ways_out(counts, needs)}"
        null = self.cluster_of_class_[under] < 0
        sentences = []
        if null.any():
            gamma = max(self.gamma_, 0.01)  # of the rows, a share of which must be enough
            sentences.append(
                f"{some_of(int(null.sum()), counts)} had too few calibration rows to join a "
                "cluster, and use the threshold of all classes. With about "
                f"{ceil(least_count(self.alpha) / gamma)} rows each they would."
            )
        inside = counts[~null]
        if len(inside):
            text = (
                f"{some_of(len(inside), counts)} share a threshold with classes that are easier "
                f"than they are: pooled, or more clusters than {self.n_clusters_}, may tell them "
                "apart"
            )
            rich = int((inside >= needs.enough).sum())
            if rich and 2 * rich >= len(counts):
                text += (
                    f"; {'all' if rich == len(inside) else f'{rich:,}'} of these had at least "
                    f"{needs.enough} calibration rows, enough to try classwise"
                )
            sentences.append(f"{text}.")
        return " ".join(sentences)

    # ---- files -------------------------------------------------------------------------------

    def _restore(self) -> None:
        self.guarantee_ = tuple(
            ClusterGuarantee._make(nan if value is None else value for value in row)
            for row in self.guarantee_
        )


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool)


def cluster_groups(
    rows: CalibrationRows, cluster_of_class: IntArray
) -> tuple[GroupedScores, IntArray]:
    """The scores of each cluster and, last, of everyone; and the group of each class.

    Classes outside all clusters (-1) are compared with everyone: the STANDARD threshold.
    """
    everyone = rows.by(np.zeros_like(cluster_of_class))
    groups = followed_by(rows.by(cluster_of_class), everyone)
    return groups, np.where(cluster_of_class < 0, cluster_of_class.max() + 1, cluster_of_class)
