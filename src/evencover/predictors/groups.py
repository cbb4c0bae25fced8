"""Coverage for this calibration: methods whose thresholds can be made to hold with a confidence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.source import Block
from evencover.errors import InputError
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanation import Needs, Sharing
from evencover.predictors.fitting import CalibrationRows
from evencover.predictors.prevalence import (
    TargetPredictor,
    rows_of_group,
    sorted_with,
    weighted_p_values,
    weighted_thresholds,
)
from evencover.predictors.rule import Scoring
from evencover.predictors.state import Field
from evencover.quantiles import Alpha, GroupedScores, Thresholds, conformal_ranks, exact_fraction


@dataclass(kw_only=True, eq=False, repr=False)
class ConfidentPredictor(BasePredictor):
    """A method that promises coverage on average over calibrations or, if asked, for this one.

    Parameters
    ----------
    confidence
        None: coverage of at least 1 - alpha on average over calibrations. A number in (0, 1):
        with that probability over calibrations, coverage is at least 1 - alpha for good.
    """

    confidence: Alpha | None = None

    # What the guarantee becomes, with {confidence} in the place of the probability.
    confident_guarantee: ClassVar[str]

    def _promise(self) -> str:
        if self.confidence is None:
            return super()._promise()
        share = f"{float(100 * exact_fraction(self.confidence)):g}%"
        return self.confident_guarantee.replace("{confidence}", share)

    def _terms(self) -> str:
        if self.confidence is None:
            return super()._terms()
        least = self.row_needs().least
        return f"at alpha = {self.alpha} and confidence = {self.confidence}, which takes {least}"

    def group_ranks(self, counts: IntArray) -> IntArray:
        """With the confidence."""
        return conformal_ranks(counts, self.alpha, self.confidence)

    def row_needs(self) -> Needs:
        """How many rows a threshold takes."""
        return Needs.at(self.alpha, self.confidence)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.confidence is None:
            return
        owner = type(self).__name__
        exact_fraction(self.confidence, owner, "confidence")
        if self.exact:
            raise InputError(
                f"The 'exact' parameter of {owner} must be False with a confidence, because a "
                "threshold that is randomised to 1 - alpha on average is below it half of the "
                "time. Got True instead."
            )


class Grouping(NamedTuple):
    """Groups of calibration scores, the group of each class (K,), and the rows.

    A group with as many scores as there are rows holds all of them.
    """

    groups: GroupedScores
    group_of_class: IntArray
    rows: CalibrationRows


@dataclass(kw_only=True, eq=False, repr=False)
class GroupPredictor(ConfidentPredictor):
    """Each class belongs to one group and uses the conformal quantile of the group's scores."""

    state: ClassVar[dict[str, Field]] = {
        "group_scores_": Field(float, "?", for_p_values=True),
        "group_offsets_": Field(int, "?", for_p_values=True),
        "group_of_class_": Field(int, "K"),
    }

    group_scores_: FloatArray = field(init=False)
    group_offsets_: IntArray = field(init=False)
    group_of_class_: IntArray = field(init=False)

    @abstractmethod
    def _group(self, rows: CalibrationRows) -> Grouping:
        """How the rows are shared between classes."""

    def _calibrate(self, rows: CalibrationRows) -> Thresholds:
        groups, self.group_of_class_, calibrating = self._group(rows)
        self.group_scores_, self.group_offsets_ = groups
        self._keep_weights(calibrating)
        return self._limits_of(groups, self.exact)

    def _keep_weights(self, rows: CalibrationRows) -> None:
        """Keep what each of the groups' scores stands for, if they differ."""

    def _limits_of(self, groups: GroupedScores, exact: bool) -> Thresholds:
        thresholds = groups.thresholds(
            self.alpha, exact=exact, confidence=self.confidence, random_state=self.random_state
        )
        return thresholds.of_classes(self.group_of_class_)

    @property
    def groups_(self) -> GroupedScores:
        """The calibration scores of each group, sorted."""
        return GroupedScores(self.group_scores_, self.group_offsets_)

    def refit_exact(self, exact: bool) -> Self | None:
        """A copy with the same groups, randomised or not: nothing is learnt again."""
        if type(self)._calibrate is not GroupPredictor._calibrate:  # a subclass may do otherwise
            return None
        other = copy(self).set_params(exact=exact)
        other._keep_thresholds(self._limits_of(self.groups_, exact))
        return other

    def _p_block(self, scoring: Scoring, block: Block, ids: Array | None) -> FloatArray:
        if scoring.score.base is not scoring.score:
            return super()._p_block(scoring, block, ids)
        draws = scoring.draws(block, ids, exact=self.exact)
        with scoring.checking(block):
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


@dataclass(kw_only=True, eq=False, repr=False)
class WeightedGroupPredictor(GroupPredictor, TargetPredictor):
    """Groups of several classes, whose rows weigh the same or as a target prevalence says."""

    state: ClassVar[dict[str, Field]] = {"group_weights_": Field(float, "?", optional=True)}

    group_weights_: FloatArray | None = field(init=False)  # None without a target

    def _keep_weights(self, rows: CalibrationRows) -> None:
        self.group_weights_ = None
        self._read_target()
        if self.target_prevalence_ is None:
            return
        weights = self._class_weights()[rows.labels]
        group_of_row = self.group_of_class_[rows.labels]
        kept = []
        for group, n in enumerate(self.groups_.counts.tolist()):
            own = rows_of_group(group, n, group_of_row)
            kept.append(sorted_with(rows.scores[own], weights[own])[1])
        self.group_weights_ = np.concatenate(kept)

    def group_ranks(self, counts: IntArray) -> IntArray:
        """None (0) if weights decide, and not ranks."""
        if self.target_prevalence is None:
            return super().group_ranks(counts)
        return np.zeros_like(counts)

    def _weighted(self) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
        """For each group: its classes, its scores, and their weights."""
        assert self.group_weights_ is not None
        offsets = self.group_offsets_
        for group in np.unique(self.group_of_class_).tolist():
            own = slice(offsets[group], offsets[group + 1])
            classes = np.flatnonzero(self.group_of_class_ == group)
            yield classes, self.groups_.scores[own], self.group_weights_[own]

    def _limits_of(self, groups: GroupedScores, exact: bool) -> Thresholds:
        if self.group_weights_ is None:
            return super()._limits_of(groups, exact)
        limits, own_weights = np.empty(self.n_classes_), self._class_weights()
        for classes, scores, weights in self._weighted():
            limits[classes] = weighted_thresholds(scores, weights, own_weights[classes], self.alpha)
        return Thresholds(limits)

    def _p_block(self, scoring: Scoring, block: Block, ids: Array | None) -> FloatArray:
        if self.group_weights_ is None:
            return super()._p_block(scoring, block, ids)
        return BasePredictor._p_block(self, scoring, block, ids)

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        if self.group_weights_ is None:
            return super()._p_values(scores, classes, own_share)
        result, own_weights = np.empty_like(scores), self._class_weights()
        for members, kept, weights in self._weighted():
            at = np.flatnonzero(np.isin(classes, members))
            result[:, at] = weighted_p_values(
                scores[:, at], kept, weights, own_weights[classes[at]], own_share
            )
        return result


@dataclass(kw_only=True, eq=False, repr=False)
class ByClassPredictor(BasePredictor):
    """Thresholds are a function of the sorted scores of each class."""

    state: ClassVar[dict[str, Field]] = {
        "own_scores_": Field(float, "R", for_p_values=True),
        "own_offsets_": Field(int, "L", for_p_values=True),
    }

    own_scores_: FloatArray = field(init=False)
    own_offsets_: IntArray = field(init=False)

    def _calibrate(self, rows: CalibrationRows) -> Thresholds:
        self.own_scores_, self.own_offsets_ = GroupedScores.sort(
            rows.scores, rows.labels, self.n_classes_
        )
        return self._kept_thresholds()

    @abstractmethod
    def _kept_thresholds(self) -> Thresholds:
        """The thresholds from the scores of each class."""

    @property
    def classes_(self) -> GroupedScores:
        """The calibration scores of each class, sorted."""
        return GroupedScores(self.own_scores_, self.own_offsets_)

    @property
    def everyone_(self) -> GroupedScores:
        """All calibration scores as one group, sorted."""
        return GroupedScores(np.sort(self.own_scores_), np.array([0, len(self.own_scores_)]))
