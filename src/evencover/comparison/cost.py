"""The cost of sets: labels in them, and labels needed to contain the missed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import ceil
from typing import Any

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.predictors import BasePredictor
from evencover.predictors.rule import BoundScore
from evencover.quantiles import Thresholds
from evencover.scores import Score, make_score
from evencover.threads import n_threads, on_slices
from evencover.validation import LARGEST


@dataclass(frozen=True, eq=False)
class Trial:
    """A predictor calibrated on some rows, to be tested on others (``is_test``, (N,))."""

    predictor: BasePredictor
    is_test: Array

    @property
    def score(self) -> Score:
        """The predictor's score."""
        return make_score(self.predictor.score)

    @cached_property
    def thresholds(self) -> Thresholds:
        """The predictor's thresholds on the base score."""
        return self.predictor.rule().thresholds


class SetShares:
    """The share of sampled rows (M, K) whose set contains a class, for one base score; the costs.

    The cost of a method is in labels: those in its sets, and those needed to contain missed labels.
    A class's threshold is expressed by t, the fraction of rows whose set includes the class, and a
    row of the class by v, the fraction at which its set would contain the label. Both are labels
    per row, comparable between scores. The best t is the 1 - alpha quantile of v, the target of
    pinball loss:

        cost = AvgSize + sum over classes of 1/alpha_y * the mean over its rows of max(v - t, 0)

    A label in a set costs 1; a missed row costs what it would have taken to contain its label. A
    row whose label is in its set as the most probable class (`keep_top`) is not missed. Sets of all
    K classes cost K.

    ``ordered`` (K, M) are the sample's scores of each class, sorted; ``label_shares`` (N,) is, for
    every row of the data, the share of the sample whose set contains the row's label at the row's
    score. Where ranks are limited, the sample's ``scores`` and ``ranks`` (M, K) are kept, too.
    """

    def __init__(
        self,
        scoring: BoundScore,
        sample: Any,
        keys: Array,
        labels: IntArray,
        label_scores: FloatArray,
        label_ranks: IntArray,
    ) -> None:
        given = scoring.kernel_input(sample, scoring.draws(keys))

        def scores_of(rows: slice) -> FloatArray:
            return _kernels.score_matrix(given.of_rows(rows))

        def ranks_of(rows: slice) -> FloatArray:
            return _kernels.rank_matrix(given.of_rows(rows)).astype(np.float64)

        self.labels = labels
        scores = _by_class(scores_of, *sample.shape)
        with_ranks = len(label_ranks) > 0
        self.ordered = _sorted(scores.copy() if with_ranks else scores)
        self.label_shares = _share_at_most(self.ordered, labels, label_scores)
        if with_ranks:
            ranks = _by_class(ranks_of, *sample.shape)
            self.scores, self.ranks = scores.T, ranks.T
            self.rank_shares = _share_at_most(_sorted(ranks.copy()), labels, label_ranks)

    def penalties(
        self, trials: Sequence[Trial], is_known: Array, is_top: Array
    ) -> list[tuple[float, FloatArray]]:
        """Compute, for each trial, the sum over classes of 1/alpha times the mean of max(v - t, 0).

        Return it with the share of sets that include each class (K,). Test rows count if their
        label `is_known` (N,). Where a trial keeps the most probable class, rows whose label
        `is_top` (N,) are not missed.
        """
        limits = [trial.thresholds for trial in trials]
        included = self._share_within([thresholds.upper for thresholds in limits])
        pairs = [n for n, thresholds in enumerate(limits) if thresholds.lower is not None]
        lower = self._share_within([limits[number].lower for number in pairs])
        for number, share in zip(pairs, lower, strict=True):
            chance = np.asarray(limits[number].upper_probability)
            included[number] = chance * included[number] + (1 - chance) * share
        return [
            self._penalty(trial, share, is_known, is_top)
            for trial, share in zip(trials, included, strict=True)
        ]

    def _share_within(self, thresholds: Sequence[FloatArray | None]) -> FloatArray:
        """Compute the share of rows within each threshold of each class (thresholds, K)."""
        n_classes, n_rows = self.ordered.shape
        by_class = np.array(thresholds, dtype=np.float64).reshape(-1, n_classes).T
        by_class = np.minimum(by_class, LARGEST)  # unlisted classes, with score +inf, are in no set
        within = map(partial(np.searchsorted, side="right"), self.ordered, by_class)
        return np.stack(list(within), axis=1) / n_rows

    def _penalty(
        self, trial: Trial, included: FloatArray, is_known: Array, is_top: Array
    ) -> tuple[float, FloatArray]:
        thresholds, alphas, wanted = trial.thresholds, trial.predictor.alpha_, self.label_shares
        is_test = trial.is_test & is_known
        if thresholds.rank_limit is not None:
            is_inside = self.scores <= np.minimum(thresholds.upper, LARGEST)
            is_inside &= self.ranks <= thresholds.rank_limit
            included, wanted = is_inside.mean(axis=0), np.maximum(wanted, self.rank_shares)
        if trial.predictor.fit_.keep_top:
            wanted = np.where(is_top, 0.0, wanted)
        labels = self.labels[is_test]
        lacking = np.maximum(wanted[is_test] - included[labels], 0.0)
        counts = np.bincount(labels, minlength=len(included))
        sums = np.bincount(labels, lacking, minlength=len(included))
        tested = counts > 0
        return float((sums[tested] / counts[tested] / alphas[tested]).sum()), included


def _by_class(values_of: Callable[[slice], FloatArray], n_rows: int, n_classes: int) -> FloatArray:
    """Compute the values of all rows, some rows at a time on all cores, transposed (K, M)."""
    transposed = np.empty((n_classes, n_rows))

    def fill(rows: slice) -> None:
        transposed[:, rows] = values_of(rows).T

    on_slices(fill, n_rows, _per_task(n_rows))
    return transposed


def _sorted(values: FloatArray) -> FloatArray:
    """Sort each class's values (K, M), in place."""
    n = len(values)
    on_slices(lambda classes: values[classes].sort(axis=1), n, _per_task(n))
    return values


def _per_task(n: int) -> int:
    """Return how many of n make tasks enough for all cores to end at about the same time."""
    return max(1, ceil(n / (4 * n_threads())))


def _share_at_most(ordered: FloatArray, labels: IntArray, values: Array) -> FloatArray:
    """For each row, the share of its class's values (K, M) that are at most its value (N,)."""
    counts, by_class = np.empty(len(labels)), np.argsort(labels, kind="stable")
    classes, starts = np.unique(labels[by_class], return_index=True)
    for label, rows in zip(classes, np.split(by_class, starts[1:]), strict=True):
        counts[rows] = np.searchsorted(ordered[label], values[rows], side="right")
    return counts / ordered.shape[1]
