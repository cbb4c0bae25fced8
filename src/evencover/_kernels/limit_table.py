"""Many vectors of limits arranged by class, so that one score is compared with all of them fast.

Numbers are replaced by their ranks within the class: a score is searched once among the class's
limits, and then reaches a limit if its rank is at most the limit's, which is a comparison of short
integers. Ranks keep the order, so nothing is rounded. Most scores reach a few limits only, the
largest of their class; these are listed apart, and then nothing needs to be searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evencover._kernels.limits import Limits
from evencover._validation import Array, FloatArray, IntArray

# Three ranks per vector must fit 16 bits; and so many vectors of 1000 classes fit a cache.
MOST_VECTORS = 1 << 10
# So many of the largest limits of each class are listed.
N_TOP = 32


class LimitTable:
    """T vectors of limits (T at most `MOST_VECTORS`), prepared once for every block of rows.

    Attributes
    ----------
    vectors
        The `Limits` themselves; ``len`` and iteration go to them.
    arrays
        What the C++ kernel reads. Vectors with one limit per class come first, then the
        randomised pairs; ``vector_of`` (T,) tells which is which. +inf, which takes its class in
        without looking at the score, has rank -1 and is counted apart.
    """

    def __init__(self, vectors: Sequence[Limits]) -> None:
        assert 0 < len(vectors) <= MOST_VECTORS
        self.vectors = list(vectors)
        pairs = np.array([each.lower is not None for each in vectors])
        vector_of = np.argsort(pairs, kind="stable")
        plain = [self.vectors[t].upper for t in vector_of[: len(pairs) - pairs.sum()]]
        both = [self.vectors[t] for t in vector_of[len(plain) :]]
        n_classes = len(vectors[0].upper)
        limits = _by_class(
            [*plain, *(each.upper for each in both), *(each.lower for each in both)], n_classes
        )
        chances = _by_class([each.upper_probability for each in both], n_classes)
        finite = np.where(limits == np.inf, -np.inf, limits)
        ranks, chance_ranks = _ranks(finite), _ranks(chances)
        upper_ends, lower_ends = len(plain) + len(both), len(plain) + 2 * len(both)
        self.arrays: dict[str, Any] = {
            "vector_of": vector_of.astype(np.int32),
            **_top(finite, chances, len(plain)),
            "limits": np.sort(finite, axis=1),
            "plain_ranks": np.ascontiguousarray(ranks[:, : len(plain)]),
            "upper_ranks": np.ascontiguousarray(ranks[:, len(plain) : upper_ends]),
            "lower_ranks": np.ascontiguousarray(ranks[:, upper_ends:lower_ends]),
            "chances": np.sort(chances, axis=1),
            "chance_ranks": chance_ranks,
            **_infinite_limits(limits, chances, len(plain)),
        }

    def __len__(self) -> int:
        return len(self.vectors)

    def __iter__(self) -> Iterator[Limits]:
        return iter(self.vectors)

    @classmethod
    def parts(cls, vectors: Sequence[Limits]) -> list[LimitTable]:
        """As many tables as the vectors need."""
        starts = range(0, len(vectors), MOST_VECTORS)
        return [cls(vectors[start : start + MOST_VECTORS]) for start in starts]


def _by_class(vectors: Sequence[FloatArray | None], n_classes: int) -> FloatArray:
    """(K, number of vectors)"""
    columns = [np.asarray(vector, dtype=np.float64) for vector in vectors]
    return np.stack(columns, axis=1) if columns else np.empty((n_classes, 0))


def _ranks(values: FloatArray) -> Array:
    """How many values of the same row are less; -1 for -inf, which nothing reaches."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    place = np.broadcast_to(np.arange(values.shape[1]), values.shape).copy()
    place[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0  # equal values: the first one's place
    ranks = np.empty(values.shape, dtype=np.int16)
    np.put_along_axis(ranks, order, np.maximum.accumulate(place, axis=1).astype(np.int16), axis=1)
    ranks[values == -np.inf] = -1
    return ranks


def _top(limits: FloatArray, chances: FloatArray, n_plain: int) -> dict[str, Any]:
    """The largest limits of each class, the vectors they belong to, and for which coins."""
    n_pairs = chances.shape[1]
    order = np.argsort(-limits, axis=1)[:, :N_TOP]
    slot = np.concatenate([np.arange(n_plain), n_plain + np.tile(np.arange(n_pairs), 2)])
    plain, pairs = np.full((len(limits), n_plain), np.inf), np.full(chances.shape, np.inf)
    coin_from = np.concatenate([-plain, -pairs, chances], axis=1)
    coin_to = np.concatenate([plain, chances, pairs], axis=1)
    return {
        "top_limits": np.take_along_axis(limits, order, axis=1),
        "top_vectors": slot[order].astype(np.int16),
        "coin_from": np.take_along_axis(coin_from, order, axis=1),
        "coin_to": np.take_along_axis(coin_to, order, axis=1),
    }


def _infinite_limits(limits: FloatArray, chances: FloatArray, n_plain: int) -> dict[str, Any]:
    """How many classes +inf takes in: always, or where the coin shows heads or tails."""
    n_pairs = chances.shape[1]
    infinite = limits == np.inf
    upper = infinite[:, n_plain : n_plain + n_pairs]
    lower = infinite[:, n_plain + n_pairs :]
    always = np.concatenate([infinite[:, :n_plain].sum(axis=0), (upper & lower).sum(axis=0)])
    heads, head_offsets = _sorted_columns(chances, upper & ~lower)
    tails, tail_offsets = _sorted_columns(chances, lower & ~upper)
    return {
        "always": always.astype(np.int64),
        "heads": heads,
        "head_offsets": head_offsets,
        "tails": tails,
        "tail_offsets": tail_offsets,
    }


def _sorted_columns(values: FloatArray, chosen: Array) -> tuple[FloatArray, IntArray]:
    """The chosen values of each column, sorted, one column after the other; where each begins."""
    columns = [np.sort(values[chosen[:, j], j]) for j in range(values.shape[1])]
    offsets = np.cumsum([0, *map(len, columns)]).astype(np.int64)
    return np.concatenate([*columns, np.empty(0)]), offsets
