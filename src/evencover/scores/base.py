"""What every score is: a formula of a class's position in its row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from evencover import _kernels
from evencover._kernels import BadRow, Draws, Formula, Position
from evencover.arrays import Array, FloatArray, IntArray
from evencover.quantiles import Thresholds
from evencover.randomness import RandomStream, check_random_state, row_ids
from evencover.validation import class_labels, raise_bad_row, real_number, score_rows


@dataclass(frozen=True)
class Score(ABC):
    """A stateless conformal score; subclasses supply the formula.

    A score may be an increasing function, class by class, of another one, its `base`. Then rows
    are read with the base, and only scores of true labels and thresholds are translated.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""  # one short sentence for help texts
    needs_order: ClassVar[bool] = True

    @abstractmethod
    def formula(self, at: Position) -> Any:
        """Compute the score of classes from their positions, arrays that broadcast."""

    @abstractmethod
    def maximum(self, n_classes: int) -> float:
        """Return the largest value that the score can have."""

    def with_counts(
        self, class_counts: IntArray, class_names: Sequence[str] | None = None
    ) -> Score:
        """Fill in what depends on the calibration labels and on the order of the classes."""
        return self

    def _native(self) -> dict[str, Any]:
        """Describe the formula to the C++ kernels, if they have it (see `Formula`).

        A subclass does not inherit this: it may have changed the formula.
        """
        return {}

    @property
    def kernel(self) -> Formula:
        """The score itself, not its base, as the kernels take it."""
        own = self._native() if "_native" in vars(type(self)) else {}
        return Formula(self.needs_order, self.formula, **own)

    @property
    def base(self) -> Score:
        """The score that the rows are read with."""
        return self

    def from_base(self, scores: FloatArray, classes: IntArray) -> FloatArray:
        """Scores from the base score of each class."""
        return scores

    def base_thresholds(self, thresholds: Thresholds) -> Thresholds:
        """Thresholds on the base score that admit exactly what these admit."""
        return thresholds

    @property
    def is_random(self) -> bool:
        """Whether the score depends on the row's uniform."""
        return bool(getattr(self, "randomize", False))

    def true_label(
        self,
        probabilities: Any,
        labels: Any,
        *,
        random_state: int = 0,
        ids: Any = None,
        from_logits: bool = False,
        temperature: float = 1.0,
        calibrating: bool = True,
    ) -> FloatArray:
        """Score each row's true label (N,): one pass over the rows, no sort.

        Agrees bit for bit with the label's entry of `matrix` for the same `random_state`, `ids`
        and `calibrating`: calibration rows have random numbers of their own. Prevalences are those
        of these labels.
        """
        rows = score_rows(probabilities)
        labels = class_labels(labels, rows.shape[1], len(rows))
        options = (random_state, ids, from_logits, temperature, calibrating)
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
        temperature: float = 1.0,
        calibrating: bool = False,
    ) -> FloatArray:
        """Score every class in every row (N, K)."""
        rows = score_rows(probabilities)
        options = (random_state, ids, from_logits, temperature, calibrating)
        scores = self._base_scores(_kernels.score_matrix, rows, options)
        return self.from_base(scores, np.arange(rows.shape[1]))

    def _base_scores(
        self,
        kernel: Callable[..., FloatArray],
        rows: Array,
        options: tuple[int, Any, bool, float, bool],
        *arguments: Any,
    ) -> FloatArray:
        """Call a kernel on the rows; raise InputError for the first bad one."""
        seed, ids, logits, temperature, calibrating = options
        scale = float(real_number(temperature, "temperature", self.name, 0, open_low=True))
        check_random_state(seed, self.name)
        keys = None if ids is None else row_ids(ids, len(rows))
        given = (self.base.kernel, rows, self.draws(seed, keys, calibrating=calibrating))
        try:
            return kernel(*given, *arguments, logits=logits, temperature=scale)
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
        """Describe the random numbers of rows from the input's row `first` on.

        Where nothing is random u = 1, the class's whole own mass. Calibration rows and rows whose
        sets are wanted never share a number, whatever their ids.
        """
        use = RandomStream.CALIBRATION_SCORE if calibrating else RandomStream.SCORE
        score_use = int(use) if self.is_random else None
        coin_use = int(RandomStream.EXACT) if exact else None
        return Draws(int(random_state), score_use, coin_use, ids, first)

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters, as `make_score` takes them."""
        return {"name": self.name, **asdict(self)}
