"""Scores by a class's probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover._kernels import Native, Position
from evencover.arrays import FloatArray, IntArray, to_numpy
from evencover.classes import align_classes, by_class
from evencover.errors import InputError
from evencover.quantiles import Thresholds
from evencover.scores.base import Score, in_cpp


@dataclass(frozen=True)
class Softmax(Score):
    """Softmax score: s(x, y) = 1 - p_y(x).

    >>> p, classes = np.array([0.5, 0.25, 0.25]), np.arange(3)
    >>> at = Position(p, before=p, rank=classes, top=0.5, classes=classes, u=1)
    >>> Softmax().formula(at)
    array([0.5 , 0.75, 0.75])
    """

    name = "softmax"
    summary = "1 - the class's probability"
    needs_order = False

    @in_cpp(lambda score: Native(needs_order=False))
    def formula(self, at: Position) -> Any:
        """Compute 1 - p."""
        return 1.0 - at.p

    def maximum(self, n_classes: int) -> float:
        """Return 1."""
        return 1.0

    def least_unlisted(self, at: Position) -> Any:
        """Return the score of the most probability."""
        return self.formula(at)


# 1 - p is a multiple of this for every probability p, so (1 - p) - 1 is exact.
GRID = 2.0**-53


@dataclass(frozen=True)
class PAS(Score):
    """Prevalence-adjusted softmax (Ding, Fermanian, Salmon 2025): s(x, y) = -p_y(x) / prevalence_y.

    For correct probabilities, one threshold on p_y / prevalence_y gives the smallest sets of a
    given macro coverage (the mean over classes), as p_y does for marginal coverage. With STANDARD
    it raises the coverage of rare classes. Within a class it orders rows as `Softmax` does, so
    CLASSWISE sets are the same.

    With independent prevalences every method keeps its guarantee. "auto" estimates them from the
    calibration labels. CLASSWISE then keeps its guarantee, which is conditional on the labels. The
    marginal guarantee of other methods holds up to the error of the estimates.

    Parameters
    ----------
    prevalence
        One positive number per class, such as the training counts (only ratios matter): a mapping,
        Series or pairs by class name, or a vector in class order. "auto" counts the
        calibration labels, with at least 1 per class.

    >>> p, classes = np.array([0.5, 0.25, 0.25]), np.arange(3)
    >>> at = Position(p, before=p, rank=classes, top=0.5, classes=classes, u=1)
    >>> PAS(prevalence=[8, 1, 1]).formula(at)
    array([-0.0625, -0.25  , -0.25  ])
    """

    prevalence: str | Sequence[Any] | Mapping[Any, float] = "auto"

    name = "pas"
    summary = "-p / prevalence: probability relative to class frequency"
    needs_order = False

    def __post_init__(self) -> None:
        if isinstance(self.prevalence, str) and self.prevalence == "auto":
            return
        named = by_class(self.prevalence, "prevalence")  # as pairs: scores are hashable
        if named is None:
            values: Any = _positive_numbers(self.prevalence)
        else:
            numbers = _positive_numbers(list(named.values()), list(named))
            values = tuple(zip(named, numbers, strict=True))
        object.__setattr__(self, "prevalence", values)

    def formula(self, at: Position) -> Any:
        """Compute -p / prevalence, with p rounded as `Softmax` rounds it."""
        return ((1.0 - at.p) - 1.0) / self._prevalence()[at.classes]

    def maximum(self, n_classes: int) -> float:
        """Return 0."""
        return 0.0

    def with_counts(
        self, class_counts: IntArray, class_names: Sequence[str] | None = None
    ) -> Score:
        """Align the prevalences with the classes; "auto" counts the calibration labels."""
        if self.prevalence == "auto":
            return PAS(tuple(np.maximum(class_counts, 1).tolist()))
        n_classes = len(class_counts)
        return PAS(align_classes(self.prevalence, class_names, n_classes, "prevalence").tolist())

    @property
    def base(self) -> Score:
        """The `Softmax` score."""
        return Softmax()

    def from_base(self, scores: FloatArray, classes: IntArray) -> FloatArray:
        """Compute ((1 - p) - 1) / prevalence."""
        return (scores - 1.0) / self._prevalence()[classes]

    def base_thresholds(self, thresholds: Thresholds) -> Thresholds:
        """Return the largest softmax score of each class whose PAS is within the threshold."""
        lower = None if thresholds.lower is None else self._base_limits(thresholds.lower)
        return thresholds._replace(upper=self._base_limits(thresholds.upper), lower=lower)

    def _base_limits(self, limits: FloatArray) -> FloatArray:
        classes = np.arange(len(limits))
        near = np.floor(np.clip(1.0 + limits * self._prevalence(), -1.0, 2.0) / GRID)
        result = np.full(len(limits), -np.inf)
        for step in (-2, -1, 0, 1, 2):  # rounding moves the threshold by less than two steps
            candidate = (near + step) * GRID
            inside = self.from_base(candidate, classes) <= limits
            result = np.where(inside, candidate, result)
        return np.where(limits == np.inf, np.inf, result)

    def _prevalence(self) -> FloatArray:
        if self.prevalence == "auto":
            raise InputError("PAS has no calibration labels here; give 'prevalence'.")
        values = align_classes(self.prevalence, None, len(self.prevalence), "prevalence")
        return values.astype(np.float64)


def _positive_numbers(values: Any, classes: Sequence[str] | None = None) -> tuple[float, ...]:
    numbers = to_numpy(values)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise InputError(
            "The 'prevalence' parameter of PAS must be 'auto' or one number per class. "
            f"Got {values!r} instead."
        )
    is_good = np.isfinite(numbers) & (numbers > 0)
    if not is_good.all():
        worst = int(is_good.argmin())
        which = worst if classes is None else classes[worst]
        raise InputError(
            "The 'prevalence' parameter of PAS must be finite and above 0. "
            f"Got {numbers[worst]} for class {which}; use 1 for an unseen class."
        )
    return tuple(numbers.tolist())
