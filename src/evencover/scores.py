"""Conformal scores s(x, y): lower means that class y fits the input x better.

A score is a formula of the class's probability p, the mass before it and its 1-based rank in
decreasing order of probability (equal probabilities: by class index), and one uniform u per row.
The paper lists the order ascending, which is a slip: Romano et al. (2020) and every published
number use decreasing order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from evencover import _kernels
from evencover._validation import (
    Array,
    FloatArray,
    InputError,
    IntArray,
    class_labels,
    flag,
    raise_bad_row,
    raise_unknown,
    real_number,
    score_rows,
    whole_number,
)
from evencover.randomness import Use, check_random_state, places, row_ids, uniforms


@dataclass(frozen=True)
class Score(ABC):
    """A stateless conformal score; subclasses supply the formula."""

    name: ClassVar[str]
    needs_order: ClassVar[bool] = True

    @abstractmethod
    def formula(self, p: FloatArray, before: FloatArray, rank: IntArray, u: FloatArray) -> Any:
        """The score from a class's probability, the mass before it, its rank, and the row's u."""

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
    ) -> FloatArray:
        """Score of each row's true label (N,): one pass over the rows, no sort.

        Agrees bit for bit with the label's entry of `matrix` for the same `random_state` and
        `ids` (by default a row's id is its place).
        """
        temperature = real_number(temperature, "temperature", "true_label", 0, open_low=True)
        rows = score_rows(probabilities)
        labels = class_labels(labels, rows.shape[1], len(rows))
        u = self.row_uniforms(check_random_state(random_state, "true_label"), _ids(ids, len(rows)))
        scores, bad = _kernels.true_label_scores(
            self, rows, labels, u, logits=from_logits, temperature=temperature
        )
        if bad >= 0:
            raise_bad_row(rows[bad], bad, logits=from_logits)
        return scores

    def matrix(
        self,
        probabilities: Any,
        *,
        random_state: int = 0,
        ids: Any = None,
        from_logits: bool = False,
        temperature: float = 1.0,
    ) -> FloatArray:
        """Score of every class in every row (N, K)."""
        temperature = real_number(temperature, "temperature", "matrix", 0, open_low=True)
        rows = score_rows(probabilities)
        u = self.row_uniforms(check_random_state(random_state, "matrix"), _ids(ids, len(rows)))
        scores, bad = _kernels.score_matrix(
            self, rows, u, logits=from_logits, temperature=temperature
        )
        if bad >= 0:
            raise_bad_row(rows[bad], bad, logits=from_logits)
        return scores

    def row_uniforms(self, random_state: int, ids: Array) -> FloatArray:
        """The rows' uniforms; u = 1, the class's whole own mass, where nothing is random."""
        return uniforms(random_state, Use.SCORE, ids) if self.is_random else np.ones(len(ids))

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters, as `make_score` takes them."""
        return {"name": self.name, **asdict(self)}


def _ids(ids: Any, n_rows: int) -> Array:
    return places(0, n_rows) if ids is None else row_ids(ids, n_rows)


@dataclass(frozen=True)
class Softmax(Score):
    """s(x, y) = 1 - p_y(x).

    >>> Softmax().matrix([[0.5, 0.25, 0.25]])
    array([[0.5 , 0.75, 0.75]])
    """

    name: ClassVar[str] = "softmax"
    needs_order: ClassVar[bool] = False

    def formula(self, p: FloatArray, before: FloatArray, rank: IntArray, u: FloatArray) -> Any:
        """1 - p."""
        return 1.0 - p


@dataclass(frozen=True)
class APS(Score):
    """Adaptive Prediction Sets (Romano, Sesia, Candès 2020): mass before y, plus u p_y.

    Parameters
    ----------
    randomize
        Draw one u per row; if False, u = 1 and the class's whole mass counts.

    >>> APS(randomize=False).matrix([[0.5, 0.125, 0.375]])
    array([[0.5  , 1.   , 0.875]])
    """

    randomize: bool = True

    name: ClassVar[str] = "aps"

    def __post_init__(self) -> None:
        flag(self.randomize, "randomize", type(self).__name__)

    def formula(self, p: FloatArray, before: FloatArray, rank: IntArray, u: FloatArray) -> Any:
        """Before + u p."""
        return before + u * p


@dataclass(frozen=True)
class RAPS(APS):
    """Regularised APS (Angelopoulos et al. 2021): APS + max(0, lambda (rank - k_reg)).

    Parameters
    ----------
    randomize
        As in APS.
    penalty
        The paper's lambda, the price of each rank beyond `k_reg`.
    k_reg
        The rank up to which nothing is paid.

    >>> RAPS(randomize=False, penalty=1, k_reg=2).matrix([[0.5, 0.125, 0.375]])
    array([[0.5  , 2.   , 0.875]])
    """

    penalty: float = 0.01
    k_reg: int = 5

    name: ClassVar[str] = "raps"

    def __post_init__(self) -> None:
        super().__post_init__()
        real_number(self.penalty, "penalty", "RAPS", 0)
        whole_number(self.k_reg, "k_reg", "RAPS", 0)

    def formula(self, p: FloatArray, before: FloatArray, rank: IntArray, u: FloatArray) -> Any:
        """APS, plus the penalty for the rank."""
        return (before + u * p) + self.penalty * np.maximum(rank - self.k_reg, 0)


SCORES: dict[str, type[Score]] = {cls.name: cls for cls in (Softmax, APS, RAPS)}


def make_score(score: Score | str | dict[str, Any]) -> Score:
    """A score from its name, its `to_dict`, or itself.

    >>> make_score("raps")
    RAPS(randomize=True, penalty=0.01, k_reg=5)
    """
    if isinstance(score, Score):
        return score
    parameters = dict(score) if isinstance(score, dict) else {"name": score}
    name = parameters.pop("name", None)
    if not isinstance(name, str) or name.lower() not in SCORES:
        raise_unknown("score", name, SCORES)
    try:
        return SCORES[name.lower()](**parameters)
    except TypeError:
        raise InputError(f"The score {name!r} does not take the parameters {parameters}.") from None
