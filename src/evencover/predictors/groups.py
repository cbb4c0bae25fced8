"""Predictors whose classes share calibration scores by groups: one threshold per group."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from evencover import _kernels
from evencover._validation import Array, FloatArray, IntArray
from evencover.data.source import Block
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import Rows
from evencover.predictors.checks import unlike, wrong_groups
from evencover.predictors.explanation import Sharing
from evencover.predictors.scoring import Scoring, naming_bad_rows
from evencover.predictors.state import Field
from evencover.quantiles import GroupedScores, RankedScores, Thresholds, group_thresholds


@dataclass(kw_only=True, eq=False, repr=False)
class GroupPredictor(BasePredictor):
    """Each class belongs to one group and uses the conformal quantile of the group's scores."""

    supports_scattered: ClassVar[bool] = True
    state: ClassVar[dict[str, Field]] = {
        "group_scores_": Field(float, "?", optional=True, for_p_values=True),
        "group_offsets_": Field(int, "?", for_p_values=True),
        "group_of_class_": Field(int, "K"),
        "gathered_": Field(bool),
    }

    group_scores_: FloatArray | None = field(init=False)  # None unless gathered_
    group_offsets_: IntArray = field(init=False)
    group_of_class_: IntArray = field(init=False)
    gathered_: bool = field(init=False)

    @abstractmethod
    def _group(self, rows: Rows) -> tuple[RankedScores, IntArray]:
        """Groups of calibration scores, in memory or not, and the group of each class (K,)."""

    def _calibrate(self, rows: Rows) -> Thresholds:
        groups, self.group_of_class_ = self._group(rows)
        self.gathered_ = isinstance(groups, GroupedScores)
        self.group_scores_ = groups.scores if isinstance(groups, GroupedScores) else None
        self.group_offsets_ = np.concatenate([[0], np.cumsum(groups.counts)])
        thresholds = group_thresholds(groups, self.alpha, exact=self.exact)
        return thresholds.of_classes(self.group_of_class_)

    @property
    def groups_(self) -> GroupedScores:
        """The calibration scores of each group, sorted."""
        assert self.group_scores_ is not None
        return GroupedScores(self.group_scores_, self.group_offsets_)

    def refit_exact(self, exact: bool) -> Self | None:
        """A copy with the same groups, randomised or not: nothing is learnt again."""
        if type(self)._calibrate is not GroupPredictor._calibrate:  # a subclass may do otherwise
            return None
        other = copy(self).set_params(exact=exact)
        other._keep_thresholds(self._thresholds_of_groups(exact))
        return other

    def _thresholds_of_groups(self, exact: bool) -> Thresholds:
        return self.groups_.thresholds(self.alpha, exact=exact).of_classes(self.group_of_class_)

    def _p_block(self, scoring: Scoring, block: Block, ids: Array | None) -> FloatArray:
        if scoring.score.base is not scoring.score:
            return super()._p_block(scoring, block, ids)
        draws = scoring.draws(block, ids, exact=self.exact)
        with naming_bad_rows(block, logits=scoring.logits):
            return _kernels.p_values(
                scoring.score.kernel,
                block.rows,
                draws,
                *self.groups_,
                self.group_of_class_,
                **scoring.options,
            )

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        group_of_class = self.group_of_class_[classes]
        return _kernels.p_values_of(scores, *self.groups_, group_of_class, own_share)

    def _sharing(self) -> Sharing | None:
        return Sharing.of_groups(self.groups_, self.group_of_class_)

    def _check_state(self) -> str | None:
        offsets, group_of_class = self.group_offsets_, self.group_of_class_
        if not 0 <= group_of_class.min() <= group_of_class.max() < len(offsets) - 1:
            return "a class belongs to a group that does not exist"
        if self.gathered_ != (self.group_scores_ is not None):
            return "it lacks group_scores_" if self.gathered_ else "it says it kept no scores"
        if not self.gathered_:
            return self._wrong_pair()
        problem = wrong_groups(self.groups_)
        return problem or unlike(self, self._thresholds_of_groups(self.exact))

    def _wrong_pair(self) -> str | None:
        """Without the scores, thresholds can only be held against each other."""
        lower, chance = self.lower_thresholds_, self.upper_probability_
        if (lower is None) == self.exact or (chance is None) == self.exact:
            return "its thresholds do not follow from its parameters"
        if lower is not None and (lower > self.thresholds_).any():
            return "its lower thresholds are above the upper ones"
        first = np.unique(self.group_of_class_, return_index=True, return_inverse=True)
        if not np.array_equal(self.thresholds_, self.thresholds_[first[1]][first[2]]):
            return "classes of one group have different thresholds"
        return None
