"""Scores by a class's position in the decreasing order of probabilities.

The paper's ascending order is a typo: Romano et al. (2020) and all published numbers use decreasing
order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover._kernels import Native, Position
from evencover.scores.base import Score, in_cpp
from evencover.validation import flag, real_number, whole_number


@dataclass(frozen=True)
class APS(Score):
    """Adaptive Prediction Sets (Romano, Sesia, Candès 2020): mass before y, plus u p_y.

    Parameters
    ----------
    randomize
        Draw one u per row; if False, u = 1 and the class's full probability counts.

    >>> p, before, rank = np.array([[0.5, 0.375, 0.125], [0, 0.5, 0.875], [1, 2, 3]])
    >>> at = Position(p, before, rank, top=0.5, classes=np.array([0, 2, 1]), u=1)
    >>> APS().formula(at)
    array([0.5  , 0.875, 1.   ])
    """

    randomize: bool = True

    name = "aps"
    summary = "cumulative probability down to the class"

    def __post_init__(self) -> None:
        flag(self.randomize, "randomize", type(self).__name__)

    @in_cpp(lambda score: Native())
    def formula(self, at: Position) -> Any:
        """Compute before + u p."""
        return at.before + at.u * at.p

    def maximum(self, n_classes: int) -> float:
        """Return 1."""
        return 1.0

    def least_unlisted(self, at: Position) -> Any:
        """Return the score of no probability at the first rank: the mass before it decides."""
        return self.formula(at._replace(p=0 * at.p))


@dataclass(frozen=True)
class RAPS(APS):
    """Regularized APS (Angelopoulos et al. 2021): APS + max(0, lambda (rank - k_reg)).

    Parameters
    ----------
    randomize
        As in APS.
    penalty
        The paper's lambda, the penalty per rank beyond `k_reg`.
    k_reg
        Number of ranks without a penalty.

    >>> p, before, rank = np.array([[0.5, 0.375, 0.125], [0, 0.5, 0.875], [1, 2, 3]])
    >>> at = Position(p, before, rank, top=0.5, classes=np.array([0, 2, 1]), u=1)
    >>> RAPS(penalty=1, k_reg=2).formula(at)
    array([0.5  , 0.875, 2.   ])
    """

    penalty: float = 0.01
    k_reg: int = 5

    name = "raps"
    summary = "APS, plus a penalty per rank beyond the first few"

    def __post_init__(self) -> None:
        super().__post_init__()
        real_number(self.penalty, "penalty", "RAPS", 0)
        whole_number(self.k_reg, "k_reg", "RAPS", 0)

    @in_cpp(lambda score: Native(penalty=float(score.penalty), k_reg=score.k_reg))
    def formula(self, at: Position) -> Any:
        """Compute APS plus the penalty of the rank."""
        return super().formula(at) + self.penalty * np.maximum(at.rank - self.k_reg, 0)

    def maximum(self, n_classes: int) -> float:
        """Return 1 plus the penalty of the last rank."""
        return 1.0 + self.penalty * max(n_classes - self.k_reg, 0)


@dataclass(frozen=True)
class SAPS(Score):
    """Sorted APS (Huang et al. 2024): the largest probability, and ranks for the rest.

    s = u p_max for the most probable class, else p_max + lambda (rank - 2 + u). Small
    probabilities, which are mostly noise, do not count.

    Parameters
    ----------
    randomize
        As in APS.
    penalty
        The authors' lambda, the penalty per rank. The authors tune it; the default is fixed.

    >>> p, before, rank = np.array([[0.5, 0.375, 0.125], [0, 0.5, 0.875], [1, 2, 3]])
    >>> at = Position(p, before, rank, top=0.5, classes=np.array([0, 2, 1]), u=1)
    >>> SAPS(penalty=0.25).formula(at)
    array([0.5 , 0.75, 1.  ])
    """

    randomize: bool = True
    penalty: float = 0.2

    name = "saps"
    summary = "the largest probability, plus a penalty per rank"

    def __post_init__(self) -> None:
        flag(self.randomize, "randomize", "SAPS")
        real_number(self.penalty, "penalty", "SAPS", 0)

    @in_cpp(lambda score: Native(penalty=float(score.penalty), by_rank=True))
    def formula(self, at: Position) -> Any:
        """Compute u p_max for the top class, else p_max plus the penalty of the rank."""
        behind = at.top + self.penalty * (at.rank - 2 + at.u)
        return np.where(at.rank == 1, at.u * at.top, behind)

    def maximum(self, n_classes: int) -> float:
        """Return 1 plus the penalty of the last rank."""
        return 1.0 + self.penalty * (n_classes - 1)

    def least_unlisted(self, at: Position) -> Any:
        """Return the score at the first rank."""
        return self.formula(at)
