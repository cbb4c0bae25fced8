"""puncc, with a stand-in model that returns its input: rows are probabilities already."""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import Any

import numpy as np
from deel.puncc.api.prediction import IdPredictor
from deel.puncc.classification import APS, LAC, ClasswiseLAC

from benchmarks.contestants.base import ContestantBase, Sets, UnsupportedError

warnings.simplefilter("ignore")


class Contestant(ContestantBase):
    def set_up(self) -> None:
        np.random.seed(0)  # noqa: NPY002 - what puncc draws from
        if (self.method, self.score) == ("standard", "softmax"):
            self.predictor = LAC(IdPredictor(), train=False)
        elif (self.method, self.score) == ("classwise", "softmax"):
            self.predictor = ClasswiseLAC(IdPredictor(), train=False)
        elif (self.method, self.score) == ("standard", "aps") and self.randomize:
            self.predictor = APS(IdPredictor(), train=False, rand=True)
        elif (self.method, self.score) == ("standard", "aps"):
            raise UnsupportedError(
                "its APS without randomization keeps one class more, by definition"
            )
        else:
            raise UnsupportedError(f"{self.method} with {self.score}")

    @staticmethod
    def version() -> str:
        return importlib.metadata.version("puncc")

    def calibrate(self, probabilities: np.ndarray, labels: np.ndarray) -> None:
        self.predictor.fit(X_calib=probabilities, y_calib=labels)

    def predict(self, probabilities: np.ndarray) -> Any:
        return self.predictor.predict(probabilities, alpha=self.alpha)

    def sets(self, predicted: Any) -> Sets:
        return Sets.from_lists(predicted[1])
