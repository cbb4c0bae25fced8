"""Folds of calibration rows: their order by score, copies of a row, and who is held out."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, inf
from operator import call
from typing import Any, NamedTuple

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import warn_caller
from evencover.predictors.calibration import CalibrationRows
from evencover.randomness import RandomStream, random_order, uniforms
from evencover.threads import map_on_threads

N_FOLDS = 5
HELD_OUT = N_FOLDS  # the number that rows have which no model learns from
HOLDOUT_FRACTION = 0.2
NOTABLE_COPIES = 0.05


class Dealt(NamedTuple):
    """Rows in increasing order of score, and what cross-fitting uses them for.

    ``by_score`` (N,) are the rows in that order, ties at random, and ``scores`` (N,) their scores.
    ``indices`` (N,) are where the rows of each class are in it, ascending; class y has
    ``indices[offsets[y]:offsets[y + 1]]``. ``folds`` (N,) are those of the rows, `HELD_OUT` for
    rows that are held out, and ``is_once`` (N,), if there are copies, is true for one of all copies
    of a row. Copies, and rows with the same id, share a fold and a side.
    """

    by_score: IntArray
    scores: FloatArray
    has_ties: bool
    indices: IntArray
    offsets: IntArray
    folds: Array
    is_once: Array | None

    def by_class(self, values: Array) -> Array:
        """Put values of the rows (N,) in the order of ``indices``: by class, then by score."""
        return values[self.by_score[self.indices]]

    def score_at(self, index: IntArray) -> FloatArray:
        """Return the scores at some indices: -inf at -1, and +inf at N."""
        score = self.scores[np.clip(index, 0, len(self.scores) - 1)]
        return np.where(index < 0, -inf, np.where(index < len(self.scores), score, inf))

    def warn_of_copies(self) -> None:
        """Warn of copies of rows where they are a notable share."""
        share = 0.0 if self.is_once is None else 1 - self.is_once.mean()
        if share > NOTABLE_COPIES:
            warn_caller(
                f"{share:.0%} of the calibration rows are copies of other rows: same label, same "
                "score. Copies add no information, so remove them."
            )


def deal(rows: CalibrationRows, random_state: int, *, with_holdout: bool) -> Dealt:
    """Divide the rows between folds, at random, and hold out a fifth of them if asked."""
    values = rows.label_values
    sorts: list[Callable[[], Any]] = [
        lambda: rows.by_score,  # which keeps it
        lambda: random_order(random_state, RandomStream.FOLDS, rows.ids),
        lambda: None if values is None else _kernels.ascending(values),
    ]
    _, order, by_value = map_on_threads(call, sorts)
    scores = rows.scores[rows.by_score]

    def by_class() -> tuple[IntArray, bool, IntArray, IntArray]:
        by_score, has_ties = order_with_ties(rows, scores, random_state)
        return by_score, has_ties, *_kernels.by_group(rows.labels[by_score], rows.n_classes)

    def by_fold() -> tuple[Array, IntArray | None]:
        in_order = (rows.by_score, scores) if values is None else (by_value, values[by_value])
        copies = find_copies(rows, *in_order)
        together = copies if rows.by_index else with_same_id(copies, rows.ids, order)
        is_held_out, learning = np.zeros(len(rows), dtype=bool), order
        if with_holdout:
            is_held_out = hold_out(together, rows.ids, order)
            learning = order[~is_held_out[order]]
        folds = assign_folds(together, rows.labels, rows.n_classes, rows.ids, learning)
        folds[is_held_out] = HELD_OUT
        return folds, copies

    parts: list[Callable[[], Any]] = [by_class, by_fold]
    (by_score, has_ties, indices, offsets), (folds, copies) = map_on_threads(call, parts)
    is_once = None
    if copies is not None:
        is_once = np.zeros(len(rows), dtype=bool)
        is_once[one_of_each(copies, rows.ids, np.arange(len(rows)))] = True
    return Dealt(by_score, scores, has_ties, indices, offsets, folds, is_once)


def order_with_ties(
    rows: CalibrationRows, ordered: FloatArray, random_state: int
) -> tuple[IntArray, bool]:
    """Order the scores, ties at random by each row's key; return whether there are any."""
    is_first, recurs = repeats(ordered)
    if not recurs.any():
        return rows.by_score, False
    order, tied, run = rows.by_score.copy(), rows.by_score[recurs], np.cumsum(is_first[recurs]) - 1
    # By label, then draw, then score: each order keeps the one before where it has ties.
    inside, _ = _kernels.by_group(rows.labels[tied], rows.n_classes)
    draws = tie_draws(rows, tied[inside], random_state)
    inside, _ = _kernels.by_group(run, len(run), inside[_kernels.ascending(draws)])
    order[recurs] = tied[inside]
    return order, True


def tie_draws(rows: CalibrationRows, some: IntArray, random_state: int) -> FloatArray:
    """Return the draws of some rows, which order rows with equal scores."""
    return uniforms(random_state, RandomStream.TIES, rows.ids[some])


def repeats(ordered: Array) -> tuple[Array, Array]:
    """Return whether each of some ordered numbers differs from the one before, and if any equal it.

    >>> [flags.tolist() for flags in repeats(np.array([1, 2, 2]))]
    [[True, True, False], [False, True, True]]
    """
    is_first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    recurs = ~is_first
    recurs[:-1] |= ~is_first[1:]
    return is_first, recurs


def find_copies(rows: CalibrationRows, order: IntArray, values: Array) -> IntArray | None:
    """Give copies among the rows (N,) the same number, that of one of them.

    Equal rows have the same label and value (score, or input where scores are random), with no
    other label sharing the value: ties of a coarse score occur across labels, and at its ends.
    `values` (N,) ascend in this order of the rows.
    They are copies if half of the distinct rows of their class or more, and at least two, occur
    equally often, and more than once. Otherwise inputs recur by chance, as they will among new
    rows. None if there are no copies.
    """
    is_first, recurs = repeats(values)
    recurs[: np.searchsorted(values, values[0], side="right")] = False
    recurs[np.searchsorted(values, values[-1]) :] = False
    recurring = order[recurs]
    if not len(recurring):
        return None
    labels, starts = rows.labels[recurring], np.flatnonzero(is_first[recurs])
    times = np.diff(starts, append=len(recurring))
    is_equal = np.minimum.reduceat(labels, starts) == np.maximum.reduceat(labels, starts)
    label, n_equal = labels[starts[is_equal]], times[is_equal]
    n_distinct = rows.class_counts - np.bincount(label, n_equal - 1, rows.n_classes)
    kinds, n_kinds = np.unique(label * (len(rows) + 1) + n_equal, return_counts=True)
    label_of_kind = kinds // (len(rows) + 1)
    are_copies = (n_kinds > 1) & (2 * n_kinds >= n_distinct[label_of_kind])
    is_copied = is_equal & np.isin(labels[starts], label_of_kind[are_copies])
    if not is_copied.any():
        return None
    copies = np.arange(len(rows))
    among = np.repeat(is_copied, times)
    copies[recurring[among]] = np.repeat(recurring[starts], times)[among]
    return copies


def with_same_id(copies: IntArray | None, ids: Array, order: IntArray) -> IntArray | None:
    """Give rows with the same id the same number (N,), too.

    `order` puts rows with the same id next to each other.
    """
    is_first, recurs = repeats(ids[order])
    if not recurs.any():
        return copies
    by_id = np.empty(len(ids), dtype=np.int64)
    by_id[order] = order[is_first][np.cumsum(is_first) - 1]
    return by_id if copies is None else copies[by_id]


def one_of_each(groups: IntArray | None, ids: Array, order: IntArray) -> IntArray:
    """Return one row of each group, in this order; None: every row is its own group.

    It is the row with the smallest id. The first one in the order would be early in large groups.
    """
    if groups is None:
        return order
    by_id = np.lexsort((ids, groups))
    is_chosen = np.zeros(len(groups), dtype=bool)
    is_chosen[by_id[np.append(True, groups[by_id][1:] != groups[by_id][:-1])]] = True
    return order[is_chosen[order]]


def hold_out(groups: IntArray | None, ids: Array, order: IntArray) -> Array:
    """Choose the first fifth of the rows (N,) in this order, whole groups."""
    groups = np.arange(len(order)) if groups is None else groups
    chosen = groups[one_of_each(groups, ids, order)]
    n_rows = np.cumsum(np.bincount(groups)[chosen])
    return np.isin(groups, chosen[n_rows <= floor(HOLDOUT_FRACTION * len(order))])


def assign_folds(
    groups: IntArray | None, labels: IntArray, n_classes: int, ids: Array, order: IntArray
) -> Array:
    """Assign folds (N,) in this order of some rows, even within every class; a group shares one."""
    first, _ = _kernels.by_group(labels, n_classes, one_of_each(groups, ids, order))
    folds = np.zeros(len(labels), dtype=np.int8)
    dealt = np.tile(np.arange(N_FOLDS, dtype=np.int8), len(first) // N_FOLDS + 1)[: len(first)]
    if groups is None:
        folds[first] = dealt
        return folds
    folds[groups[first]] = dealt
    return folds[groups]
