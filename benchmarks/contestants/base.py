"""What the harness asks of every implementation."""

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
        """Share of the rows whose set holds their label."""
        return int((self.indices == np.repeat(labels, self.sizes)).sum()) / len(labels)


class ContestantBase(ABC):
    """Calibrate and predict are timed; everything else is not.

    Parameters
    ----------
    method : "standard", "classwise" or "clustered".
    score : "softmax" or "aps".
    alpha : miscoverage level.
    randomize : whether APS draws a uniform; False asks for the variant without one.
    """

    def __init__(self, method: str, score: str, alpha: float, *, randomize: bool) -> None:
        self.method, self.score, self.alpha = method, score, alpha
        self.randomize = randomize
        self.set_up()

    @abstractmethod
    def set_up(self) -> None:
        """Make the objects; raise UnsupportedError where there are none."""

    @staticmethod
    @abstractmethod
    def version() -> str:
        """Version of the package."""

    def prepare(self, array: np.ndarray) -> Any:
        """The array as the package wants it, such as a tensor; must not copy."""
        return array

    @abstractmethod
    def calibrate(self, probabilities: Any, labels: Any) -> None:
        """Learn the thresholds."""

    @abstractmethod
    def predict(self, probabilities: Any) -> Any:
        """The sets, in whatever form the package returns them."""

    @abstractmethod
    def sets(self, predicted: Any) -> Sets:
        """What `predict` returned, as plain arrays."""

    def thresholds(self, n_classes: int) -> np.ndarray | None:
        """The threshold of each class (K,), if the package shows it."""
        return None
