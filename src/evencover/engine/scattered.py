"""Calibration rows that stay with the workers that scored them, yet are split and ranked exactly.

The same splits and ranks, bit for bit, as if they were all in one memory: found by passes over all
parts (`selection`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evencover import _kernels
from evencover._types import Array, FloatArray, IntArray
from evencover.data.fingerprint import Fingerprint
from evencover.engine.blocks import Part, Work
from evencover.engine.executors import Workers
from evencover.engine.selection import (
    Extent,
    Search,
    added,
    floats_of,
    histogram,
    order_keys,
    select,
)
from evencover.randomness import Use, order_of_repeated_ids, places


class ScoredPart(NamedTuple):
    """What a worker keeps of a part; ``ids`` is None where they are the rows' numbers."""

    start: int
    scores: FloatArray
    labels: Array
    ids: Array | None
    fingerprint: Fingerprint

    def places(self) -> Array:
        """The rows' numbers in the whole input."""
        return places(self.start, self.start + len(self.scores))

    def split_keys(self, random_state: int) -> tuple[Array, ...]:
        """What the random order of rows goes by, first things first (`random_order`)."""
        at = self.places()
        ids = at if self.ids is None else self.ids
        bits = _kernels.random_bits(random_state, int(Use.SPLIT), ids)
        return bits, *order_of_repeated_ids(random_state, ids, at)


def score_part(work: Work, part: Part) -> ScoredPart:
    """Score the rows of a part."""
    (scores, labels), fingerprint = work(part)
    return ScoredPart(part.start, scores, labels, part.ids, fingerprint)


@dataclass(frozen=True)
class Chosen:
    """A choice of rows: those up to a row of the random order (``first``), or those after it.

    ``last`` holds the `split_keys` of that row; None stands before all rows.
    """

    random_state: int
    last: tuple[int, ...] | None
    first: bool

    def __call__(self, part: ScoredPart) -> Array:
        """Whether each row of the part is chosen."""
        n = len(part.scores)
        before, same = np.zeros(n, dtype=bool), np.full(n, self.last is not None)
        for keys, limit in zip(part.split_keys(self.random_state), self.last or (), strict=False):
            before |= same & (keys < np.uint64(limit))
            same &= keys == np.uint64(limit)
        return (before | same) == self.first


@dataclass(frozen=True)
class ScoreView:
    """Ranks the scores of the chosen rows within groups of classes."""

    group_of_class: IntArray
    chosen: Chosen | None

    def __call__(self, part: ScoredPart) -> tuple[Array, IntArray]:
        """Key and group of each row; group -1 is none."""
        groups = self.group_of_class[part.labels]
        if self.chosen is not None:
            groups = np.where(self.chosen(part), groups, -1)
        return order_keys(part.scores), groups


@dataclass(frozen=True)
class SplitView:
    """Ranks by the next of the `split_keys` the rows whose keys so far are these."""

    random_state: int
    keys: tuple[int, ...]

    def __call__(self, part: ScoredPart) -> tuple[Array, IntArray]:
        """Key and group (0, or -1 for none) of each row."""
        all_keys = part.split_keys(self.random_state)
        groups = np.zeros(len(part.scores), dtype=np.int64)
        for keys, wanted in zip(all_keys, self.keys, strict=False):
            groups[keys != np.uint64(wanted)] = -1
        return all_keys[len(self.keys)], groups


View = Callable[[ScoredPart], tuple[Array, IntArray]]


@dataclass(frozen=True)
class ScatteredRows:
    """Calibration rows that stay with the workers.

    Parameters
    ----------
    workers
        Who has them.
    parts
        A handle (`Workers.keep`) on each `ScoredPart`.
    chosen
        Which rows of the parts are meant; None for all.
    """

    workers: Workers
    parts: Sequence[Any]
    chosen: Chosen | None = None

    @classmethod
    def score(cls, workers: Workers, work: Work, parts: Iterable[Part]) -> ScatteredRows:
        """Have the workers score all parts."""
        return cls(workers, [workers.keep(score_part, work, part) for part in parts])

    def fingerprint(self) -> Fingerprint:
        """What tells these rows from others."""
        return self._total(_fingerprint)

    def split(self, n_first: int, random_state: int) -> tuple[ScatteredRows, ScatteredRows]:
        """The first `n_first` rows in the random order of their ids, and the others."""
        keys: tuple[int, ...] = ()
        ranks = np.array([[n_first]])
        # Rows with the same random bits are told apart by `order_of_repeated_ids`.
        while n_first and len(keys) < 4:
            view = SplitView(random_state, keys)
            found = self.select(view, ranks, self.extent(view, 1))
            keys, ranks = (*keys, int(found.low[0, 0])), found.ranks
        last = keys if n_first else None
        first, rest = (Chosen(random_state, last, first) for first in (True, False))
        return replace(self, chosen=first), replace(self, chosen=rest)

    def by(self, group_of_class: IntArray) -> ScatteredScores:
        """Their scores in groups of classes; classes of group -1 are left out."""
        view = ScoreView(group_of_class, self.chosen)
        return ScatteredScores(self, view, self.extent(view, int(group_of_class.max()) + 1))

    def extent(self, view: View, n_groups: int) -> Extent:
        """One pass: how many rows the groups have, and from where to where they reach."""
        return self._total(partial(_extent, view, n_groups))

    def select(self, view: View, ranks: IntArray, extent: Extent) -> Search:
        """Several passes: the search for these ranks (R, G), at its end."""
        return select(ranks, extent, lambda search: self._total(partial(_histogram, view, search)))

    def _total(self, function: Callable[[ScoredPart], Any]) -> Any:
        return self.workers.fold(function, self.parts, added)


class ScatteredScores(NamedTuple):
    """`GroupedScores` that nobody holds together: counts and ranks, but no list of scores."""

    rows: ScatteredRows
    view: View
    extent: Extent

    @property
    def counts(self) -> IntArray:
        """Number of scores in each group."""
        return self.extent.counts

    def at_ranks(self, ranks: IntArray) -> FloatArray:
        """As `GroupedScores.at_ranks`, for ranks (G,) or (R, G)."""
        inside = (ranks >= 1) & (ranks <= self.counts)
        found = self.rows.select(self.view, np.atleast_2d(ranks), self.extent)
        outside = np.where(ranks < 1, -np.inf, np.inf)
        return np.where(inside, floats_of(found.low).reshape(ranks.shape), outside)


def _fingerprint(part: ScoredPart) -> Fingerprint:
    return part.fingerprint


def _extent(view: View, n_groups: int, part: ScoredPart) -> Extent:
    return Extent.of(*view(part), n_groups)


def _histogram(view: View, search: Search, part: ScoredPart) -> IntArray:
    return histogram(*view(part), search)
