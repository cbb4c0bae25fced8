"""Folds of calibration rows: their order by score, copies of a row, and who is held out."""

from __future__ import annotations

from math import floor
from typing import NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import warn_caller
from evencover.predictors.calibration import CalibrationRows
from evencover.quantiles import by_group
from evencover.randomness import RandomStream, random_order, uniforms

N_FOLDS = 5
HOLDOUT_FRACTION = 0.2
NOTABLE_COPIES = 0.05


class Dealt(NamedTuple):
    """Rows in increasing order of score, and what cross-fitting uses them for.

    ``by_score`` (N,) are the rows in that order, ties at random by ``tie_draws`` (N,), if there are
    any. ``learns`` (N,) is, in that order, whether a row is not held out. ``folds`` (N,) are those
    of the rows, and ``is_once`` (N,) is true for one of all copies of a row. Copies, and rows with
    the same id, share a fold and a side.
    """

    by_score: IntArray
    tie_draws: FloatArray | None
    learns: Array
    folds: IntArray
    is_once: Array

    @property
    def learning(self) -> IntArray:
        """The rows to learn from, in increasing order of score."""
        return self.by_score[self.learns]

    def warn_of_copies(self) -> None:
        """Warn of copies of rows where they are a notable share."""
        share = 1 - self.is_once.mean()
        if share > NOTABLE_COPIES:
            warn_caller(
                f"{share:.0%} of the calibration rows are copies of other rows: same label, same "
                "score. Copies add no information, so remove them."
            )


def deal(rows: CalibrationRows, random_state: int, *, with_holdout: bool) -> Dealt:
    """Divide the rows between folds, at random, and hold out a fifth of them if asked."""
    by_score, tie_draws = ascending(rows, random_state)
    order = random_order(random_state, RandomStream.FOLDS, rows.ids)
    copies = find_copies(rows, by_score, has_ties=tie_draws is not None)
    together = with_same_id(copies, rows.ids, order)
    is_once, is_held_out = np.zeros((2, len(rows)), dtype=bool)
    is_once[one_of_each(copies, rows.ids, order)] = True
    if with_holdout:
        is_held_out = hold_out(together, rows.ids, order)
    folds = assign_folds(together, rows.labels, rows.ids, order[~is_held_out[order]])
    return Dealt(by_score, tie_draws, ~is_held_out[by_score], folds, is_once)


def ascending(rows: CalibrationRows, random_state: int) -> tuple[IntArray, FloatArray | None]:
    """Order of the scores, ties at random by each row's key, and the tie-breaking draws (N,).

    Without ties there are no draws.
    """
    order = np.argsort(rows.scores)
    ordered = rows.scores[order]
    is_tied = np.zeros(len(order), dtype=bool)
    is_tied[1:] = ordered[1:] == ordered[:-1]
    if not is_tied.any():
        return order, None
    is_tied[:-1] |= is_tied[1:]
    draws = uniforms(random_state, RandomStream.TIES, rows.ids)
    tied = np.sort(order[is_tied])
    order[is_tied] = tied[np.lexsort((rows.labels[tied], draws[tied], rows.scores[tied]))]
    return order, draws


def find_copies(rows: CalibrationRows, by_score: IntArray, *, has_ties: bool) -> IntArray | None:
    """Give copies among the rows (N,) the same number, that of one of them.

    Equal rows have the same label and value (score, or input where scores are random), with no
    other label sharing the value: ties of a coarse score occur across labels, and at its ends.
    They are copies if half of the distinct rows of their class or more, and at least two, occur
    equally often, and more than once. Otherwise inputs recur by chance, as they will among new
    rows. None if there are no copies.
    """
    values, order = rows.scores, by_score
    if rows.label_values is not None:
        values, order = rows.label_values, np.argsort(rows.label_values)
    elif not has_ties:
        return None
    values, labels = values[order], rows.labels[order]
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    times = np.diff(starts, append=len(rows))
    is_equal = np.minimum.reduceat(labels, starts) == np.maximum.reduceat(labels, starts)
    is_equal &= times > 1
    is_equal[[0, -1]] = False
    starts, times = starts[is_equal], times[is_equal]
    label = labels[starts]
    n_distinct = rows.class_counts - np.bincount(label, times - 1, rows.n_classes)
    kinds, n_kinds = np.unique(label * (len(rows) + 1) + times, return_counts=True)
    label_of_kind = kinds // (len(rows) + 1)
    are_copies = (n_kinds > 1) & (2 * n_kinds >= n_distinct[label_of_kind])
    is_copied = np.isin(label, label_of_kind[are_copies])
    if not is_copied.any():
        return None
    starts, times = starts[is_copied], times[is_copied]
    later = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    copies = np.arange(len(rows))
    copies[order[np.repeat(starts, times) + later]] = np.repeat(order[starts], times)
    return copies


def with_same_id(copies: IntArray | None, ids: Array, order: IntArray) -> IntArray | None:
    """Give rows with the same id the same number (N,), too.

    `order` puts rows with the same id next to each other.
    """
    is_first = np.append(True, ids[order][1:] != ids[order][:-1])
    if is_first.all():
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
    groups: IntArray | None, labels: IntArray, ids: Array, order: IntArray
) -> IntArray:
    """Assign folds (N,) in this order of some rows, even within every class; a group shares one."""
    first = one_of_each(groups, ids, order)
    first = first[by_group(labels[first], int(labels.max()) + 1)]
    number = np.arange(len(labels)) if groups is None else groups
    fold_of = np.zeros(int(number.max()) + 1, dtype=np.int64)
    fold_of[number[first]] = np.arange(len(first)) % N_FOLDS
    return fold_of[number]
