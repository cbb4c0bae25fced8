"""crepes, with a stand-in model that returns its input: rows are probabilities already."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import numpy as np
from crepes import WrapClassifier

from benchmarks.contestants.base import ContestantBase, Sets, UnsupportedError


class _Model:
    def __init__(self, n_classes: int) -> None:
        self.classes_ = np.arange(n_classes)

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        return rows


class Contestant(ContestantBase):
    def set_up(self) -> None:
        if self.method == "clustered" or self.score != "softmax":
            raise UnsupportedError(f"{self.method} with {self.score}")

    @staticmethod
    def version() -> str:
        return importlib.metadata.version("crepes")

    def calibrate(self, probabilities: np.ndarray, labels: np.ndarray) -> None:
        self.classifier = WrapClassifier(_Model(probabilities.shape[1]))
        self.classifier.calibrate(probabilities, labels, class_cond=self.method == "classwise")

    def predict(self, probabilities: np.ndarray) -> Any:
        # Without smoothing: the faster of its two variants. It keeps p >= 1 - confidence instead of
        # p > alpha, which matters to classes with alpha (n + 1) an integer.
        confidence = 1 - self.alpha - 1e-9
        return self.classifier.predict_set(
            probabilities, labels=False, confidence=confidence, smoothing=False
        )

    def sets(self, predicted: Any) -> Sets:
        return Sets.from_mask(np.asarray(predicted).astype(bool))
