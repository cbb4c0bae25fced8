"""The base class of scores: a formula of a class's position in its row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from evencover._kernels import Formula, Native, Position
from evencover.arrays import FloatArray, IntArray
from evencover.quantiles import Thresholds

Function = TypeVar("Function", bound=Callable[..., Any])


def in_cpp(native: Callable[[Any], Native]) -> Callable[[Function], Function]:
    """Mark a formula that the C++ kernels have; `native` describes it for a score.

    A subclass that overrides the formula is not marked.
    """

    def mark(formula: Function) -> Function:
        vars(formula)["native"] = native
        return formula

    return mark


@dataclass(frozen=True)
class Score(ABC):
    """A stateless conformal score. Subclasses supply the formula.

    A score may be an increasing function, class by class, of another score, its `base`. Kernels
    then compute the base; only true-label scores and thresholds are converted.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""  # for help texts
    needs_order: ClassVar[bool] = True

    @abstractmethod
    def formula(self, at: Position) -> Any:
        """Compute scores from positions, arrays that broadcast."""

    @abstractmethod
    def maximum(self, n_classes: int) -> float:
        """Return the largest value that the score can have."""

    def least_unlisted(self, at: Position) -> Any:
        """Return a lower limit of the scores of classes that top-k rows (n,) do not list.

        `at` has the most probability and the first rank that such a class can have in each row, the
        least mass before it, and the u for which scores are smallest. -inf, the default, is always
        true; then no top-k row is accepted because its set has one label.
        """
        return np.full(len(at.p), -np.inf)

    def with_counts(
        self, class_counts: IntArray, class_names: Sequence[str] | None = None
    ) -> Score:
        """Add parameters that depend on the calibration labels or on the class order."""
        return self

    @property
    def kernel(self) -> Formula:
        """The formula of the score itself, not of its base."""
        native = getattr(type(self).formula, "native", None)
        return Formula(self.needs_order, self.formula, native and native(self))

    @property
    def base(self) -> Score:
        """The score that the kernels compute."""
        return self

    def from_base(self, scores: FloatArray, classes: IntArray) -> FloatArray:
        """Convert base scores of the given classes."""
        return scores

    def base_thresholds(self, thresholds: Thresholds) -> Thresholds:
        """Convert thresholds to equivalent ones on the base score."""
        return thresholds

    @property
    def is_random(self) -> bool:
        """Whether the score uses the row's uniform."""
        return bool(getattr(self, "randomize", False))

    def to_dict(self) -> dict[str, Any]:
        """Return name and parameters, as `make_score` takes them."""
        return {"name": self.name, **asdict(self)}
