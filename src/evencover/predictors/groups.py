"""Methods in which the classes of a group share a conformal quantile."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.source import Block
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanation import Sharing
from evencover.predictors.fitting import CalibrationRows
from evencover.predictors.prevalence import (
    class_weights,
    sorted_weights,
    weighted_p_values,
    weighted_thresholds,
)
from evencover.predictors.rule import BoundScore
from evencover.predictors.state import kept
from evencover.quantiles import Alpha, GroupedScores, Thresholds

# Groups of calibration scores, the group of each class (K,), and the rows. A group with as many
# scores as there are rows holds all of them.
Grouping = tuple[GroupedScores, IntArray, CalibrationRows]


@dataclass(kw_only=True, eq=False, repr=False)
class GroupPredictor(BasePredictor):
    """Each class belongs to one group and uses the conformal quantile of the group's scores.

    With a target prevalence, which subclasses may have, it is a weighted quantile.
    """

    confidence: Alpha | None = None

    supports_class_alpha: ClassVar[bool] = True
    group_scores_: FloatArray = kept(float, "?")
    group_offsets_: IntArray = kept(int, "?")
    group_of_class_: IntArray = kept(int, "K")
    group_weights_: FloatArray | None = kept(float, "?", optional=True)

    @abstractmethod
    def _group(self, rows: CalibrationRows) -> Grouping:
        """Divide the rows between groups of classes."""

    def _calibrate(self, rows: CalibrationRows) -> Thresholds:
        groups, self.group_of_class_, rows = self._group(rows)
        self.group_scores_, self.group_offsets_ = groups
        self.group_weights_ = None
        if self.target_prevalence_ is not None:
            weights, group_of_row = (
                class_weights(self)[rows.labels],
                self.group_of_class_[rows.labels],
            )
            parts = []
            for group, n in enumerate(groups.counts.tolist()):
                own = ... if n == len(group_of_row) else group_of_row == group
                parts.append(sorted_weights(rows.scores[own], weights[own]))
            self.group_weights_ = np.concatenate(parts)
        return self._group_thresholds()

    def _group_thresholds(self) -> Thresholds:
        class_alpha, alpha = self.class_alpha, self.class_alpha.typical
        if self.group_weights_ is None:
            options = (self.exact, self.confidence, self.random_state)
            if not class_alpha.is_one:
                return self.groups_.thresholds(class_alpha, *options, groups=self.group_of_class_)
            return self.groups_.thresholds(alpha, *options).of_classes(self.group_of_class_)
        limits, own_weights = np.empty(self.n_classes_), class_weights(self)
        for classes, scores, weights in self._weighted_groups():
            limits[classes] = weighted_thresholds(scores, weights, own_weights[classes], alpha)
        return Thresholds(limits)

    def _weighted_groups(self) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
        """Yield the classes of each group, its scores, and their weights."""
        assert self.group_weights_ is not None
        for group in np.unique(self.group_of_class_).tolist():
            own = slice(self.group_offsets_[group], self.group_offsets_[group + 1])
            classes = np.flatnonzero(self.group_of_class_ == group)
            yield classes, self.group_scores_[own], self.group_weights_[own]

    @property
    def groups_(self) -> GroupedScores:
        """The calibration scores of each group, sorted."""
        return GroupedScores(self.group_scores_, self.group_offsets_)

    def refit_exact(self, exact: bool) -> Self | None:
        """Return a copy with the same groups, randomized or not."""
        if type(self)._calibrate is not GroupPredictor._calibrate:  # a subclass may do otherwise
            return None
        other = copy(self).set_params(exact=exact)
        other.limits_ = other._raised(other._group_thresholds())
        return other

    def _p_block(self, scoring: BoundScore, block: Block, ids: Array | None) -> FloatArray:
        if self.group_weights_ is not None or scoring.score.base is not scoring.score:
            return super()._p_block(scoring, block, ids)
        draws, groups = scoring.draws(block, ids, exact=self.exact), self.groups_
        rows = (scoring.score.kernel, block.rows, draws)
        with scoring.checking(block):
            return _kernels.p_values(*rows, *groups, self.group_of_class_, **scoring.options)

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        if self.group_weights_ is None:
            group_of_class = self.group_of_class_[classes]
            return _kernels.p_values_of(scores, *self.groups_, group_of_class, own_share)
        result, own_weights = np.empty_like(scores), class_weights(self)
        for members, known, weights in self._weighted_groups():
            at = np.flatnonzero(np.isin(classes, members))
            result[:, at] = weighted_p_values(
                scores[:, at], known, weights, own_weights[classes[at]], own_share
            )
        return result

    def _sharing(self) -> Sharing | None:
        return Sharing.of_groups(self.groups_, self.group_of_class_)
