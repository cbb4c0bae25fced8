"""What the kernels know of a score: a formula of where a class stands in its row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from evencover._validation import FloatArray, IntArray


class Position(NamedTuple):
    """Where classes stand in their rows: all that a score may depend on.

    The order is by decreasing probability, equal ones by class index.
    """

    p: FloatArray  # the class's probability
    before: FloatArray  # the mass of the classes before it
    rank: IntArray  # from 1
    top: FloatArray  # the largest probability of the row
    classes: IntArray
    u: FloatArray  # the row's uniform


class Formula(NamedTuple):
    """A score as the kernels take it.

    The C++ kernels have three formulas of their own: 1 - p; with `needs_order`
    before + u p + penalty max(0, rank - k_reg); and with `by_rank`, too, u top for the first class
    and top + penalty (rank - 2 + u) for others. A formula that is none of these has no penalty,
    and `function` is called on the NumPy reference.
    """

    needs_order: bool  # if not, `function` is given no mass before the class and no rank
    function: Callable[[Position], Any]
    penalty: float | None = None
    k_reg: int = 0
    by_rank: bool = False

    @property
    def is_native(self) -> bool:
        """Whether the C++ kernels have it."""
        return self.penalty is not None
