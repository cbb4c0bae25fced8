"""What cross-fitting asks of the kernels, in NumPy: the definition that the C++ twin matches."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from evencover._validation import Array, FloatArray, IntArray


class LeftOut(NamedTuple):
    """Rows in the order of their scores, without those of one fold; and where these stand.

    Parameters
    ----------
    labels, middles
        (n,) of the rows that are kept, in their order: the classes, and twice the middle of the
        places of each row and its equals.
    places, offsets
        The places of the rows of class y, ascending, are ``places[offsets[y]:offsets[y + 1]]``.
    held_labels, held_places, held_below, held_first, held_offsets
        Likewise by class, and within it in their order, for those left out: the classes; how many
        rows that are kept have a lower score, all of them and those of the same class; and how
        many rows have in all.
    """

    labels: IntArray
    middles: IntArray
    places: IntArray
    offsets: IntArray
    held_labels: IntArray
    held_places: IntArray
    held_below: IntArray
    held_first: IntArray
    held_offsets: IntArray


def left_out(
    labels: IntArray, first: IntArray, fold: Array, number: int, n_classes: int
) -> LeftOut:
    """Leave the rows of one fold out.

    Parameters
    ----------
    labels, first
        (N,) of all rows in the order of their scores: the classes, and how many rows have a lower
        score.
    fold, number
        (N,) the fold of each row (int8), and the one that is left out.
    """
    is_held = fold == number
    kept, own = labels[~is_held], first[~is_held]
    starts = np.flatnonzero(np.append(True, own[1:] != own[:-1])[: len(own)])
    stops = np.append(starts[1:], len(own))[: len(starts)]
    places = np.argsort(kept, kind="stable")
    offsets = _offsets(kept, n_classes)
    by_class = np.flatnonzero(is_held)[np.argsort(labels[is_held], kind="stable")]
    held_labels, held_first = labels[by_class], first[by_class]
    held_places = np.searchsorted(own, held_first)
    keys = held_labels * (len(kept) + 1)
    held_below = np.searchsorted(kept[places] * (len(kept) + 1) + places, keys + held_places)
    return LeftOut(
        kept,
        np.repeat(starts + stops, stops - starts),
        places,
        offsets,
        held_labels,
        held_places,
        held_below - offsets[held_labels],
        held_first,
        _offsets(held_labels, n_classes),
    )


def _offsets(labels: IntArray, n_classes: int) -> IntArray:
    return np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=n_classes))])


class Blends(NamedTuple):
    """Ways to blend what is known of rows.

    Parameters
    ----------
    own, counts
        (N,) how many of the rows of its class are below each row, out of how many.
    expected
        (kinds, N) the share that each kind of prior expects below it.
    kinds, strengths
        (I,) the kind of prior of each blend, and how many rows it counts.
    """

    own: FloatArray
    counts: FloatArray
    expected: FloatArray
    kinds: IntArray
    strengths: FloatArray

    def levels(self, ingredient: int) -> FloatArray:
        """(own + c prior) / (n + c), or the prior if c is infinite."""
        strength, prior = self.strengths[ingredient], self.expected[self.kinds[ingredient]]
        if strength == inf:
            return prior
        return (self.own + strength * prior) / (self.counts + strength)


def blended_quantile(blends: Blends, ingredient: int, rank: int) -> float:
    """The level at a rank, from 0, under one blend."""
    return float(np.partition(blends.levels(ingredient), rank)[rank])


def blended_levels(blends: Blends, weights: FloatArray) -> FloatArray:
    """The levels (N,) under all blends together, by their weights (I,)."""
    total = np.zeros(len(blends.own))
    for ingredient, weight in enumerate(weights):
        total += weight * blends.levels(ingredient)
    return total
