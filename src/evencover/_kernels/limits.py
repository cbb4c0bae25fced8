"""The limits that scores are compared with, and the one definition of who is in a set."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evencover._validation import Array, FloatArray, IntArray


class Limits(NamedTuple):
    """What a method learns: one limit per class, or a randomised pair of limits.

    ``upper`` (K,) is the threshold. For exact coverage ``lower`` (K,) is used instead with
    probability ``1 - upper_probability`` (K,). With ``rank_limit`` (K,) a class must also have at
    most that rank in its row.
    """

    upper: FloatArray
    lower: FloatArray | None = None
    upper_probability: FloatArray | None = None
    rank_limit: IntArray | None = None

    def of_classes(self, places: IntArray) -> Limits:
        """The entries at some places: those of each class's group, or of each row's label."""
        return Limits(
            self.upper[places],
            None if self.lower is None else self.lower[places],
            None if self.upper_probability is None else self.upper_probability[places],
            None if self.rank_limit is None else self.rank_limit[places],
        )


def is_member(
    scores: FloatArray, limits: Limits, coin: FloatArray, ranks: IntArray | None = None
) -> Array:
    """Whether classes are in the sets of their rows.

    A class is in if its score is at most ``upper``, or ``lower`` when the row's coin is at least
    ``upper_probability``; and its rank is at most ``rank_limit``, if given.

    Parameters
    ----------
    scores, ranks
        Of every class in every row (n, K); or of one class per row (n,), and then the limits are
        those of that class (`Limits.of_classes`). Without a rank limit no ranks are needed.
    coin
        One per row (n,).

    >>> pair = Limits(np.array([0.8, 0.8]), np.array([0.2, 0.5]), np.array([0.5, 0.5]))
    >>> is_member(np.array([[0.6, 0.4], [0.6, 0.4]]), pair, np.array([0.1, 0.9]))
    array([[ True,  True],
           [False,  True]])
    >>> is_member(np.array([0.6, 0.4]), pair.of_classes(np.array([0, 1])), np.array([0.9, 0.9]))
    array([False,  True])
    """
    limit = limits.upper
    if limits.lower is not None and limits.upper_probability is not None:
        own_coin = coin if scores.ndim == 1 else coin[:, None]
        limit = np.where(own_coin < limits.upper_probability, limits.upper, limits.lower)
    inside = scores <= limit
    if limits.rank_limit is not None:
        assert ranks is not None
        inside &= ranks <= limits.rank_limit
    return inside
