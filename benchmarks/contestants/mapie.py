"""MAPIE, with a stand-in model that returns its input: rows are probabilities already."""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import Any

import numpy as np
from mapie.classification import SplitConformalClassifier
from sklearn.base import BaseEstimator, ClassifierMixin

from benchmarks.contestants.base import ContestantBase, Sets, UnsupportedError

warnings.simplefilter("ignore")


class _Model(ClassifierMixin, BaseEstimator):
    def __init__(self, n_classes: int = 2) -> None:
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)
        self.n_features_in_ = n_classes

    def fit(self, rows: np.ndarray, labels: np.ndarray) -> _Model:
        return self

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        return rows

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return rows.argmax(axis=1)

    def __sklearn_is_fitted__(self) -> bool:
        return True


class Contestant(ContestantBase):
    def set_up(self) -> None:
        if self.method != "standard":
            raise UnsupportedError(self.method)
        if self.score == "aps" and not self.randomize:
            raise UnsupportedError("APS whose calibration scores are not randomized")

    @staticmethod
    def version() -> str:
        return importlib.metadata.version("mapie")

    def calibrate(self, probabilities: np.ndarray, labels: np.ndarray) -> None:
        self.classifier = SplitConformalClassifier(
            _Model(probabilities.shape[1]),
            confidence_level=1 - self.alpha,
            conformity_score="lac" if self.score == "softmax" else "aps",
            random_state=0,
        ).conformalize(probabilities, labels)

    def predict(self, probabilities: np.ndarray) -> Any:
        # The variant that Romano et al. define; the default keeps one more class per set.
        extra = {"include_last_label": "randomized"} if self.score == "aps" else None
        return self.classifier.predict_set(probabilities, conformity_score_params=extra)

    def sets(self, predicted: Any) -> Sets:
        _, mask = predicted
        return Sets.from_mask(mask[:, :, 0])

    def thresholds(self, n_classes: int) -> np.ndarray:
        # Fitted only when it predicts.
        quantiles = self.classifier._mapie_classifier.conformity_score_function_.quantiles_
        return np.full(n_classes, float(np.ravel(quantiles)[0]))
