"""Inputs of the kernels: formulas, random numbers, thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray


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


class Native(NamedTuple):
    """A formula of the C++ kernels.

    It is 1 - p; with `needs_order`, before + u p + penalty max(0, rank - k_reg); with `by_rank` as
    well, u top for the first class and top + penalty (rank - 2 + u) for others.
    """

    needs_order: bool = True
    penalty: float = 0.0
    k_reg: int = 0
    by_rank: bool = False


class Formula(NamedTuple):
    """The formula of a score; the NumPy reference runs `function` if it is not `native`."""

    needs_order: bool  # if False, `function` gets neither mass nor rank
    function: Callable[[Position], Any]
    native: Native | None = None


def _probability(at: Position) -> FloatArray:
    return at.p


class KernelInput(NamedTuple):
    """Rows, and how to score them; ranks need no formula."""

    rows: Any  # (n, K), or `TopK`
    formula: Formula = Formula(True, _probability)
    draws: Draws = NO_DRAWS
    logits: bool = False

    def of_rows(self, some: slice) -> KernelInput:
        draws = self.draws.of_rows(some.start, some.stop)
        return self._replace(rows=self.rows[some], draws=draws)


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

    def at_most(self, cap: FloatArray) -> Thresholds:
        """Lower thresholds to `cap` (K,)."""
        lower = None if self.lower is None else np.minimum(self.lower, cap)
        return self._replace(upper=np.minimum(self.upper, cap), lower=lower)


class Coverage(NamedTuple):
    """What the sets of labeled rows come to (n,): all that evaluation needs of them."""

    sizes: IntArray
    is_covered: Array  # whether the set contains the label
    top_classes: IntArray  # the most probable class
    is_alone: Array  # whether the set is just that class
    appearances: IntArray  # in how many sets each class is (K,)


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


class ThresholdTable:
    """T vectors of thresholds, prepared once for all row blocks.

    Attributes
    ----------
    vectors
        The `Thresholds`; ``len`` and iteration use them.
    plain
        Indices of the P vectors without limits on ranks; the following describe only these.
    arrays
        By class, ``upper`` (K, P), and with randomized pairs ``lower`` and ``upper_probability``,
        else None; and the largest of each class (K,). +inf is stored as -inf, because `n_infinite`
        counts the classes that it includes.
    """

    def __init__(self, vectors: Sequence[Thresholds]) -> None:
        self.vectors = list(vectors)
        self.plain = [n for n, each in enumerate(vectors) if each.rank_limit is None]
        if not self.plain:
            return
        pairs = [_as_pair(self.vectors[n]) for n in self.plain]
        self._n_infinite = [_count_infinite(*pair) for pair in pairs]
        upper, lower, chances = (np.stack(each, axis=1) for each in zip(*pairs, strict=True))
        upper[np.isposinf(upper)], lower[np.isposinf(lower)] = -np.inf, -np.inf
        has_pairs = any(self.vectors[n].lower is not None for n in self.plain)
        largest = np.maximum(upper, lower).max(axis=1)
        self.arrays = (upper, *((lower, chances) if has_pairs else (None, None)), largest)

    def n_infinite(self, draw: FloatArray) -> IntArray:
        """Count the classes that are in each row's set by a threshold of +inf (n, P).

        If no count depends on the draw, it is one for all rows (1, P).
        """
        steps = self._n_infinite
        if not any(len(at) for at, _ in steps):
            return np.array([[n[0] for _, n in steps]])
        return np.stack([n[np.searchsorted(at, draw, "right")] for at, n in steps], axis=1)

    def __len__(self) -> int:
        return len(self.vectors)

    def __iter__(self) -> Iterator[Thresholds]:
        return iter(self.vectors)


def _as_pair(thresholds: Thresholds) -> tuple[FloatArray, FloatArray, FloatArray]:
    upper, lower, upper_probability, _ = thresholds
    if lower is None or upper_probability is None:
        return upper, upper, np.ones(len(upper))
    return upper, lower, upper_probability


def _count_infinite(
    upper: FloatArray, lower: FloatArray, upper_probability: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Count a pair's thresholds of +inf by the draw: where the count changes, and the counts.

    From a draw of ``upper_probability`` on, the class has its lower threshold.
    """
    changes = np.isposinf(lower).astype(np.int64) - np.isposinf(upper)
    classes = np.flatnonzero(changes)
    classes = classes[np.argsort(upper_probability[classes])]
    counts = np.cumsum(np.append(np.isposinf(upper).sum(), changes[classes]))
    return upper_probability[classes], counts
