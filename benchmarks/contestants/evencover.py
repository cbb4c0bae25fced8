"""evencover, through its public interface."""

from __future__ import annotations

from typing import Any

import numpy as np

import evencover
from benchmarks.contestants.base import ContestantBase, Sets

PREDICTORS = {
    "standard": evencover.StandardPredictor,
    "classwise": evencover.ClasswisePredictor,
    "clustered": evencover.ClusteredPredictor,
}


class Contestant(ContestantBase):
    def set_up(self) -> None:
        score = evencover.Softmax() if self.score == "softmax" else evencover.APS(self.randomize)
        # The sets that the other packages make, too.
        self.predictor = PREDICTORS[self.method](alpha=self.alpha, score=score, keep_top=False)

    @staticmethod
    def version() -> str:
        return evencover.__version__

    def calibrate(self, probabilities: np.ndarray, labels: np.ndarray) -> None:
        self.predictor.fit(probabilities, labels)

    def predict(self, probabilities: np.ndarray) -> Any:
        return self.predictor.predict_set(probabilities)

    def sets(self, predicted: Any) -> Sets:
        return Sets(predicted.sizes, predicted.indices)

    def thresholds(self, n_classes: int) -> np.ndarray:
        return self.predictor.thresholds_
