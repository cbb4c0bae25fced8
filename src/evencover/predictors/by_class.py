"""Predictors that keep the calibration scores of every class, and derive the rest from them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from evencover._validation import FloatArray, IntArray
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.state import Field
from evencover.quantiles import GroupedScores, Thresholds


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
