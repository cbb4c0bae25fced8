"""Predictors that keep the calibration scores of every class, and derive the rest from them."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from evencover._validation import Array, FloatArray, IntArray
from evencover.predictors.base import BasePredictor
from evencover.quantiles import GroupedScores, Thresholds


class ByClassPredictor(BasePredictor):
    """Thresholds are a function of the sorted scores of each class."""

    fitted_arrays: ClassVar[tuple[str, ...]] = (
        *BasePredictor.fitted_arrays,
        "own_scores_",
        "own_offsets_",
    )
    p_value_arrays: ClassVar[tuple[str, ...]] = ("own_scores_", "own_offsets_")

    own_scores_: FloatArray
    own_offsets_: IntArray

    def _calibrate(self, scores: FloatArray, labels: IntArray, ids: Array) -> Thresholds:
        self.own_scores_, self.own_offsets_ = GroupedScores.sort(scores, labels, self.n_classes_)
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
