"""Inputs of the kernels: formulas, random numbers, thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.sizes import at_once

__all__ = [
    "NO_DRAWS",
    "BadRow",
    "Coverage",
    "Draws",
    "Formula",
    "Position",
    "ThresholdTable",
    "Thresholds",
    "is_member",
]


class BadRow(Exception):  # noqa: N818 - callers add the file name
    """The first row that is not probabilities (or logits)."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class Draws(NamedTuple):
    """Streams of each row's uniform u for the score, and of its randomization draw.

    Without a stream, u is 1 and the draw 0. The key of a row is its id, or a mix of the row's
    content and its index, starting at ``first``. The index alone would give rows that arrive one at
    a time the same number; the content alone would give it to equal rows.
    """

    seed: int = 0
    score_use: int | None = None
    exact_use: int | None = None
    ids: Array | None = None
    first: int = 0

    @property
    def any(self) -> bool:
        return self.score_use is not None or self.exact_use is not None

    def of_rows(self, start: int, stop: int) -> Draws:
        ids = None if self.ids is None else self.ids[start:stop]
        return self._replace(ids=ids, first=self.first + start)


NO_DRAWS = Draws()


class Position(NamedTuple):
    """The position of classes in their rows, by decreasing probability and then class index."""

    p: FloatArray  # the class's probability
    before: FloatArray  # the mass of the classes before it
    rank: IntArray  # from 1
    top: FloatArray  # the largest probability of the row
    classes: IntArray
    u: FloatArray  # the row's uniform


class Formula(NamedTuple):
    """The formula of a score.

    The C++ kernels implement three formulas. They are 1 - p; with `needs_order`, before + u p +
    penalty max(0, rank - k_reg); with `by_rank` as well, u top for the first class and top +
    penalty (rank - 2 + u) for others. Other formulas have no penalty and run `function` on the
    NumPy reference.
    """

    needs_order: bool  # if False, `function` gets neither mass nor rank
    function: Callable[[Position], Any]
    penalty: float | None = None
    k_reg: int = 0
    by_rank: bool = False

    @property
    def is_native(self) -> bool:
        return self.penalty is not None


class Thresholds(NamedTuple):
    """Thresholds of a method: one per class, or a randomized pair.

    ``upper`` (K,) is the threshold. For exact coverage ``lower`` (K,) is used instead with
    probability ``1 - upper_probability`` (K,). With ``rank_limit`` (K,) a class must also have at
    most that rank in its row.
    """

    upper: FloatArray
    lower: FloatArray | None = None
    upper_probability: FloatArray | None = None
    rank_limit: IntArray | None = None

    def of_classes(self, indices: IntArray) -> Thresholds:
        """Select the entries at some indices: each class's group, or each row's label."""
        selected: list[Any] = []
        for values in self:
            selected.append(None if values is None else values[indices])
        return Thresholds(*selected)

    def at_least(self, floor: FloatArray, rank_floor: FloatArray | None = None) -> Thresholds:
        """Raise thresholds to `floor` (K,), and rank limits to `rank_floor` (K,)."""
        lower = None if self.lower is None else np.maximum(self.lower, floor)
        ranks = self.rank_limit
        if ranks is not None and rank_floor is not None:
            ranks = np.maximum(ranks, np.clip(rank_floor, 0, len(ranks)).astype(ranks.dtype))
        return self._replace(upper=np.maximum(self.upper, floor), lower=lower, rank_limit=ranks)


class Coverage(NamedTuple):
    """What the sets of labeled rows come to (n,): all that evaluation needs of them."""

    sizes: IntArray
    is_covered: Array  # whether the set contains the label
    top_classes: IntArray  # the most probable class
    is_accepted: Array  # whether the set is just that class


def is_member(
    scores: FloatArray, thresholds: Thresholds, draw: FloatArray, ranks: IntArray | None = None
) -> Array:
    """Return whether classes are in the sets of their rows.

    A class is in if its score is at most ``upper``, or ``lower`` when the row's draw (n,) is at
    least ``upper_probability``; and its rank is at most ``rank_limit``, if given. Scores and ranks
    are those of every class (n, K), or of one class per row (n,) with its thresholds
    (`Thresholds.of_classes`).

    >>> pair = Thresholds(np.array([0.8, 0.8]), np.array([0.2, 0.5]), np.array([0.5, 0.5]))
    >>> is_member(np.array([[0.6, 0.4], [0.6, 0.4]]), pair, np.array([0.1, 0.9]))
    array([[ True,  True],
           [False,  True]])
    >>> is_member(np.array([0.6, 0.4]), pair.of_classes(np.array([0, 1])), np.array([0.9, 0.9]))
    array([False,  True])
    """
    upper, lower, upper_probability, rank_limit = thresholds
    if lower is not None and upper_probability is not None:
        own_draw = draw if scores.ndim == 1 else draw[:, None]
        upper = np.where(own_draw < upper_probability, upper, lower)
    inside = scores <= upper
    if rank_limit is not None:
        assert ranks is not None
        inside &= ranks <= rank_limit
    return inside


# Three ranks per vector fit 16 bits; vectors of 1000 classes fit a cache.
MOST_VECTORS = at_once(1 << 10, 3)
N_TOP = 32  # number of largest thresholds kept per class


class ThresholdTable:
    """T vectors of thresholds (T at most `MOST_VECTORS`), prepared once for all row blocks.

    Attributes
    ----------
    vectors
        The `Thresholds`; ``len`` and iteration use them.
    arrays
        Input of the C++ kernel. Vectors with one threshold per class come first, then the
        randomized pairs; ``vector_of`` (T,) maps to their indices. +inf, which always includes its
        class, has rank -1 and is counted separately.
    """

    def __init__(self, vectors: Sequence[Thresholds]) -> None:
        assert 0 < len(vectors) <= MOST_VECTORS
        self.vectors = list(vectors)
        pairs = np.array([each.lower is not None for each in vectors])
        vector_of = np.argsort(pairs, kind="stable")
        plain = [self.vectors[t].upper for t in vector_of[: len(pairs) - pairs.sum()]]
        both = [self.vectors[t] for t in vector_of[len(plain) :]]
        n_classes = len(vectors[0].upper)
        all_limits = [*plain, *(each.upper for each in both), *(each.lower for each in both)]
        limits = _by_class(all_limits, n_classes)
        chances = _by_class([each.upper_probability for each in both], n_classes)
        finite = np.where(limits == np.inf, -np.inf, limits)
        plain_ranks, upper_ranks, lower_ranks = (
            np.ascontiguousarray(part)
            for part in np.split(_ranks(finite), [len(plain), len(plain) + len(both)], axis=1)
        )
        self.arrays: dict[str, Any] = {
            "vector_of": vector_of.astype(np.int32),
            **_top(finite, chances, len(plain)),
            "limits": np.sort(finite, axis=1),
            "plain_ranks": plain_ranks,
            "upper_ranks": upper_ranks,
            "lower_ranks": lower_ranks,
            "chances": np.sort(chances, axis=1),
            "chance_ranks": _ranks(chances),
            **_infinite_limits(limits, chances, len(plain)),
        }

    def __len__(self) -> int:
        return len(self.vectors)

    def __iter__(self) -> Iterator[Thresholds]:
        return iter(self.vectors)

    @classmethod
    def parts(cls, vectors: Sequence[Thresholds]) -> list[ThresholdTable]:
        """Split the vectors into tables of at most `MOST_VECTORS`."""
        starts = range(0, len(vectors), MOST_VECTORS)
        return [cls(vectors[start : start + MOST_VECTORS]) for start in starts]


def _by_class(vectors: Sequence[FloatArray | None], n_classes: int) -> FloatArray:
    """Stack vectors as (K, number of vectors)."""
    columns = [np.asarray(vector, dtype=np.float64) for vector in vectors]
    return np.stack(columns, axis=1) if columns else np.empty((n_classes, 0))


def _ranks(values: FloatArray) -> Array:
    """Count the smaller values of the same row; -1 for -inf, which no score reaches."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    place = np.broadcast_to(np.arange(values.shape[1]), values.shape).copy()
    place[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0  # ties: the first index
    ranks = np.empty(values.shape, dtype=np.int16)
    np.put_along_axis(ranks, order, np.maximum.accumulate(place, axis=1).astype(np.int16), axis=1)
    ranks[values == -np.inf] = -1
    return ranks


def _top(limits: FloatArray, chances: FloatArray, n_plain: int) -> dict[str, Any]:
    """Return the largest thresholds of each class, their vectors, and their ranges of draws."""
    n_pairs = chances.shape[1]
    order = np.argsort(-limits, axis=1)[:, :N_TOP]
    slot = np.concatenate([np.arange(n_plain), n_plain + np.tile(np.arange(n_pairs), 2)])
    plain, pairs = np.full((len(limits), n_plain), np.inf), np.full(chances.shape, np.inf)
    draw_from = np.concatenate([-plain, -pairs, chances], axis=1)
    draw_to = np.concatenate([plain, chances, pairs], axis=1)
    return {
        "top_limits": np.take_along_axis(limits, order, axis=1),
        "top_vectors": slot[order].astype(np.int16),
        "draw_from": np.take_along_axis(draw_from, order, axis=1),
        "draw_to": np.take_along_axis(draw_to, order, axis=1),
    }


def _infinite_limits(limits: FloatArray, chances: FloatArray, n_plain: int) -> dict[str, Any]:
    """Count the classes with threshold +inf: always, or by the row's draw."""
    n_pairs = chances.shape[1]
    infinite = limits == np.inf
    upper = infinite[:, n_plain : n_plain + n_pairs]
    lower = infinite[:, n_plain + n_pairs :]
    always = np.concatenate([infinite[:, :n_plain].sum(axis=0), (upper & lower).sum(axis=0)])
    upper_only, upper_only_offsets = _sorted_columns(chances, upper & ~lower)
    lower_only, lower_only_offsets = _sorted_columns(chances, lower & ~upper)
    return {
        "always": always.astype(np.int64),
        "upper_only": upper_only,
        "upper_only_offsets": upper_only_offsets,
        "lower_only": lower_only,
        "lower_only_offsets": lower_only_offsets,
    }


def _sorted_columns(values: FloatArray, chosen: Array) -> tuple[FloatArray, IntArray]:
    """Concatenate the sorted chosen values of each column; return them and their offsets."""
    columns = [np.sort(values[chosen[:, j], j]) for j in range(values.shape[1])]
    offsets = np.cumsum([0, *map(len, columns)]).astype(np.int64)
    return np.concatenate([*columns, np.empty(0)]), offsets
