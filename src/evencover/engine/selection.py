"""The k-th smallest of numbers that nobody holds together, exactly: histograms, refined.

Each wanted rank has an interval of keys that holds it. A pass counts the keys of every part in a
few equal cells of that interval; the counts add up, tell the cell that holds the rank, and that
cell is the next interval. A cell of one key is the answer, bit for bit. Keys are the floats' bits
arranged in their order, so cells can be halved until nothing is left to halve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from evencover._types import Array, FloatArray, IntArray

MOST_CELLS = 1 << 18  # in one pass: 2 MB of counts from each part
_SIGN = np.uint64(1 << 63)


def order_keys(values: FloatArray) -> Array:
    """Unsigned integers in the order of the floats; -0.0 counts as 0.0.

    >>> keys = order_keys(np.array([-np.inf, -1.5, 0.0, 1e-300, 2.0, np.inf]))
    >>> bool((np.diff(keys.astype(object)) > 0).all()), floats_of(keys).tolist()
    (True, [-inf, -1.5, 0.0, 1e-300, 2.0, inf])
    """
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def floats_of(keys: Array) -> FloatArray:
    """The floats of their `order_keys`."""
    return np.where(keys & _SIGN, keys & ~_SIGN, ~keys).view(np.float64)


class Extent(NamedTuple):
    """How many keys each group has, its smallest and its largest (G,)."""

    counts: IntArray
    low: Array
    high: Array

    @classmethod
    def of(cls, keys: Array, groups: IntArray, n_groups: int) -> Extent:
        """The extent of one part; rows of group -1 belong to none."""
        low = np.full(n_groups, ~np.uint64(0))
        high = np.zeros(n_groups, dtype=np.uint64)
        inside = groups >= 0
        keys, groups = keys[inside], groups[inside]
        np.minimum.at(low, groups, keys)
        np.maximum.at(high, groups, keys)
        return cls(np.bincount(groups, minlength=n_groups), low, high)

    def __add__(self, other: Extent) -> Extent:  # type: ignore[override]
        return Extent(
            self.counts + other.counts,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


class Search(NamedTuple):
    """Wanted ranks, several for each group: (R, G) each.

    The key wanted is the ``ranks``-th smallest (from 1) of those in its group from ``low`` to
    ``high``; the search is over where both are the same. Intervals have ``n_cells`` cells, a power
    of 2.
    """

    ranks: IntArray
    low: Array
    high: Array
    n_cells: int

    @classmethod
    def begin(cls, ranks: IntArray, extent: Extent) -> Search:
        """Look for these ranks, which must be between 1 and the size of their group."""
        low, high = (
            np.broadcast_to(extent.low, ranks.shape),
            np.broadcast_to(extent.high, ranks.shape),
        )
        wanted = (ranks >= 1) & (ranks <= extent.counts)
        n_cells = 1 << max(2, (MOST_CELLS // max(1, ranks.size)).bit_length() - 1)
        return cls(ranks, np.where(wanted, low, 0), np.where(wanted, high, 0), n_cells)

    @property
    def is_over(self) -> bool:
        """Whether every rank has been found."""
        return bool((self.low == self.high).all())

    @property
    def shift(self) -> Array:
        """Each interval's cells are 2**shift keys wide (R, G)."""
        bits = _bit_lengths(self.high - self.low)
        return np.maximum(bits - (self.n_cells.bit_length() - 1), 0).astype(np.uint64)


def _bit_lengths(values: Array) -> IntArray:
    """Bits of each number; by halves, because a float holds no more than 53."""
    upper = np.frexp((values >> np.uint64(32)).astype(np.float64))[1]
    lower = np.frexp((values & np.uint64(2**32 - 1)).astype(np.float64))[1]
    return np.where(upper > 0, upper + 32, lower)


def histogram(keys: Array, groups: IntArray, search: Search) -> IntArray:
    """Keys of one part in each cell of each interval (R, G, cells)."""
    n_groups, n_cells, shift = search.ranks.shape[1], search.n_cells, search.shift
    counts = []
    for low, high, width in zip(search.low, search.high, shift, strict=True):
        inside = (groups >= 0) & (low < high)[groups]
        inside &= (keys >= low[groups]) & (keys <= high[groups])
        rows = groups[inside]
        cells = ((keys[inside] - low[rows]) >> width[rows]).astype(np.int64)
        counts.append(np.bincount(rows * n_cells + cells, minlength=n_groups * n_cells))
    return np.stack(counts).reshape(-1, n_groups, n_cells)


def refine(search: Search, counts: IntArray) -> Search:
    """The cell that holds each rank becomes its interval."""
    up_to = np.cumsum(counts, axis=2)
    cell = (up_to < search.ranks[:, :, None]).sum(axis=2)
    is_open = search.low < search.high
    cell = np.where(is_open, cell, 0)
    before = np.take_along_axis(up_to - counts, cell[:, :, None], axis=2)[:, :, 0]
    low = search.low + (cell.astype(np.uint64) << search.shift)
    width = (np.uint64(1) << search.shift) - np.uint64(1)
    last = low + np.minimum(width, search.high - low)  # beyond the interval it might overflow
    return Search(
        np.where(is_open, search.ranks - before, search.ranks),
        np.where(is_open, low, search.low),
        np.where(is_open, last, search.high),
        search.n_cells,
    )


def select(
    ranks: IntArray,
    extent: Extent,
    count: Callable[[Search], IntArray],
) -> Search:
    """The search for these ranks (R, G), at its end.

    ``low`` holds the keys, ``ranks`` what is left of each rank: its position among equal keys.
    Ranks that are not in their group have the key 0. ``count(search)`` is the sum of the parts'
    `histogram`.
    """
    search = Search.begin(ranks, extent)
    while not search.is_over:
        search = refine(search, count(search))
    return search


def added(parts: Any) -> Any:
    """The sum of histograms, or of extents."""
    parts = iter(parts)
    result = next(parts)
    for part in parts:
        result = result + part
    return result
