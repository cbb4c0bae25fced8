"""The base class of scores: a formula of a class's position in its row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from evencover import _kernels
from evencover._kernels import BadRow, Draws, Formula, Position
from evencover.arrays import Array, FloatArray, IntArray
from evencover.ids import id_keys
from evencover.quantiles import Thresholds
from evencover.randomness import RandomStream, check_random_state
from evencover.validation import class_labels, raise_bad_row, score_rows


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

    def with_counts(
        self, class_counts: IntArray, class_names: Sequence[str] | None = None
    ) -> Score:
        """Add parameters that depend on the calibration labels or on the class order."""
        return self

    def _native(self) -> dict[str, Any]:
        """Describe the formula for the C++ kernels, if they implement it (see `Formula`).

        Subclasses do not inherit this, because they may change the formula.
        """
        return {}

    @property
    def kernel(self) -> Formula:
        """The formula of the score itself, not of its base."""
        native = self._native() if "_native" in vars(type(self)) else {}
        return Formula(self.needs_order, self.formula, **native)

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

    def true_label(
        self,
        probabilities: Any,
        labels: Any,
        *,
        random_state: int = 0,
        ids: Any = None,
        from_logits: bool = False,
        calibrating: bool = True,
    ) -> FloatArray:
        """Score each row's true label (N,) in one pass, without sorting.

        The result is bit-identical to the label's entry of `matrix` for the same `random_state`,
        `ids` and `calibrating`. Calibration and prediction use different random numbers.
        Prevalences are those of these labels.
        """
        rows = score_rows(probabilities)
        labels = class_labels(labels, rows.shape[1], len(rows))
        options = (random_state, ids, from_logits, calibrating)
        scores = self._base_scores(_kernels.true_label_scores, rows, options, labels)
        counts = np.bincount(labels, minlength=rows.shape[1])
        return self.with_counts(counts).from_base(scores, labels)

    def matrix(
        self,
        probabilities: Any,
        *,
        random_state: int = 0,
        ids: Any = None,
        from_logits: bool = False,
        calibrating: bool = False,
    ) -> FloatArray:
        """Score every class in every row (N, K)."""
        rows = score_rows(probabilities)
        options = (random_state, ids, from_logits, calibrating)
        scores = self._base_scores(_kernels.score_matrix, rows, options)
        return self.from_base(scores, np.arange(rows.shape[1]))

    def _base_scores(
        self,
        kernel: Callable[..., FloatArray],
        rows: Array,
        options: tuple[int, Any, bool, bool],
        *arguments: Any,
    ) -> FloatArray:
        """Call a kernel on the rows; raise InputError for the first bad one."""
        seed, ids, logits, calibrating = options
        check_random_state(seed, self.name)
        keys = None if ids is None else id_keys(ids, len(rows))
        inputs = (self.base.kernel, rows, self.draws(seed, keys, calibrating=calibrating))
        try:
            return kernel(*inputs, *arguments, logits=logits)
        except BadRow as error:
            bad = error.row
        return raise_bad_row(rows[bad], bad, logits=logits)

    def draws(
        self,
        random_state: int,
        ids: Array | None,
        first: int = 0,
        *,
        calibrating: bool = False,
        exact: bool = False,
    ) -> Draws:
        """Describe the random numbers of rows that start at row `first` of the input.

        Without randomization u = 1, the class's full probability. Calibration and prediction never
        share random numbers, even for equal ids.
        """
        use = RandomStream.CALIBRATION_SCORE if calibrating else RandomStream.SCORE
        score_use = int(use) if self.is_random else None
        exact_use = int(RandomStream.EXACT) if exact else None
        return Draws(int(random_state), score_use, exact_use, ids, first)

    def to_dict(self) -> dict[str, Any]:
        """Return name and parameters, as `make_score` takes them."""
        return {"name": self.name, **asdict(self)}
