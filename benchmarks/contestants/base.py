"""The interface of every implementation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np


class UnsupportedError(Exception):
    """The implementation does not offer this method, score or variant."""


class Sets(NamedTuple):
    """Prediction sets as plain arrays: size of each (N,), their classes one after the other."""

    sizes: np.ndarray
    indices: np.ndarray

    @classmethod
    def from_mask(cls, mask: np.ndarray) -> Sets:
        return cls(np.count_nonzero(mask, axis=1), np.nonzero(mask)[1].astype(np.int32))

    @classmethod
    def from_lists(cls, lists: list[list[int]]) -> Sets:
        parts = [np.sort(np.asarray(each, dtype=np.int32)) for each in lists]
        return cls(np.array([len(part) for part in parts]), np.concatenate(parts))

    def coverage(self, labels: np.ndarray) -> float:
        """Fraction of rows whose set contains their label."""
        return int((self.indices == np.repeat(labels, self.sizes)).sum()) / len(labels)


class ContestantBase(ABC):
    """Calibrate and predict are timed; everything else is not.

    Parameters
    ----------
    method : "standard", "classwise" or "clustered".
    score : "softmax" or "aps".
    alpha : miscoverage level.
    randomize : whether APS draws a uniform.
    """

    def __init__(self, method: str, score: str, alpha: float, *, randomize: bool) -> None:
        self.method, self.score, self.alpha = method, score, alpha
        self.randomize = randomize
        self.set_up()

    @abstractmethod
    def set_up(self) -> None:
        """Create the objects; raise UnsupportedError if there are none."""

    @staticmethod
    @abstractmethod
    def version() -> str:
        """Version of the package."""

    def prepare(self, array: np.ndarray) -> Any:
        """Convert the array to the package's type, such as a tensor; must not copy."""
        return array

    @abstractmethod
    def calibrate(self, probabilities: Any, labels: Any) -> None:
        """Fit the thresholds."""

    @abstractmethod
    def predict(self, probabilities: Any) -> Any:
        """Predict the sets in the package's type."""

    @abstractmethod
    def sets(self, predicted: Any) -> Sets:
        """Convert the result of `predict` to plain arrays."""

    def thresholds(self, n_classes: int) -> np.ndarray | None:
        """Return the threshold of each class (K,), if available."""
        return None
