"""Predictors whose classes share calibration scores by groups: one threshold per group."""

from __future__ import annotations

from copy import copy
from typing import ClassVar, Self

import numpy as np

from evencover import _kernels
from evencover._kernels import Draws
from evencover._kernels.reference import p_values_of
from evencover._validation import Array, FloatArray, InputError, IntArray
from evencover.engine.scattered import CalibrationRows, Rows, ScatteredRows
from evencover.predictors.base import BasePredictor
from evencover.quantiles import GroupedScores, RankedScores, Thresholds, group_thresholds


class GroupPredictor(BasePredictor):
    """Each class belongs to one group and uses the conformal quantile of the group's scores."""

    fitted_arrays: ClassVar[tuple[str, ...]] = (
        *BasePredictor.fitted_arrays,
        "group_scores_",
        "group_offsets_",
        "group_of_class_",
    )

    fitted_values: ClassVar[tuple[str, ...]] = (*BasePredictor.fitted_values, "gathered_")
    p_value_arrays: ClassVar[tuple[str, ...]] = ("group_scores_", "group_offsets_")

    group_scores_: FloatArray | None  # None unless gathered_
    gathered_: bool
    group_offsets_: IntArray
    group_of_class_: IntArray

    def _group_rows(self, rows: Rows) -> tuple[RankedScores, IntArray]:
        """Groups of calibration scores, in memory or not, and the group of each class (K,)."""
        raise InputError(
            f"'gather' must be True for the method {self.method!r}, which needs all scores in one "
            "place; without, there are standard, classwise and clustered."
        )

    def _group(
        self, scores: FloatArray, labels: IntArray, ids: Array
    ) -> tuple[GroupedScores, IntArray]:
        """Groups of calibration scores, and the group of each class (K,)."""
        groups, group_of_class = self._group_rows(CalibrationRows(scores, labels, ids))
        assert isinstance(groups, GroupedScores)
        return groups, group_of_class

    @property
    def groups_(self) -> GroupedScores:
        """The calibration scores of each group, sorted."""
        assert self.group_scores_ is not None
        return GroupedScores(self.group_scores_, self.group_offsets_)

    def _calibrate(self, scores: FloatArray, labels: IntArray, ids: Array) -> Thresholds:
        groups, self.group_of_class_ = self._group(scores, labels, ids)
        self.group_scores_, self.group_offsets_ = groups
        self.gathered_ = True
        thresholds = groups.thresholds(self.alpha, exact=self.exact)
        return thresholds.of_classes(self.group_of_class_)

    @property
    def learns_groups_only(self) -> bool:
        """Whether the thresholds follow from the groups alone; a subclass may do otherwise."""
        return type(self)._calibrate is GroupPredictor._calibrate

    def with_exact(self, exact: bool) -> Self:
        """A copy with the same groups, randomised or not: nothing is learnt again."""
        other = copy(self).set_params(exact=exact)
        thresholds = self.groups_.thresholds(self.alpha, exact=exact)
        limits = thresholds.of_classes(self.group_of_class_)
        other.thresholds_, other.lower_thresholds_, other.upper_probability_ = limits[:3]
        return other

    def _calibrate_scattered(self, rows: ScatteredRows) -> Thresholds:
        groups, self.group_of_class_ = self._group_rows(rows)
        self.group_scores_, self.gathered_ = None, False
        self.group_offsets_ = np.concatenate([[0], np.cumsum(groups.counts)])
        thresholds = group_thresholds(groups, self.alpha, exact=self.exact)
        return thresholds.of_classes(self.group_of_class_)

    def _p_values(self, rows: Array, draws: Draws, logits: bool) -> tuple[FloatArray, int]:
        score = self.score_
        if score.base is not score:
            return super()._p_values(rows, draws, logits)
        return _kernels.p_values(
            score,
            rows,
            draws,
            self.groups_,
            self.group_of_class_,
            logits=logits,
            temperature=self.temperature,
        )

    def _p_of_scores(
        self, scores: FloatArray, classes: IntArray, own_share: FloatArray
    ) -> FloatArray:
        return p_values_of(scores, self.groups_, self.group_of_class_[classes], own_share)
