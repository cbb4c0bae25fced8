"""Calibration rows as methods see them: split at random, and ranked within groups of classes."""

from __future__ import annotations

from math import floor
from typing import NamedTuple

import numpy as np

from evencover._validation import Array, FloatArray, IntArray
from evencover.errors import warn_caller
from evencover.quantiles import GroupedScores
from evencover.randomness import Use, random_order, uniforms

N_FOLDS = 5
HOLDOUT_FRACTION = 0.2
NOTABLE_COPIES = 0.05


class CalibrationRows(NamedTuple):
    """What a method learns from, in memory: one entry per calibration row.

    Parameters
    ----------
    scores, labels, ids
        (N,) scores of the true labels, the labels, and the rows' keys.
    ranks
        (N,) ranks of the true labels, from 1, for methods that need "ranks".
    groups
        (N,) the group of each row, as the user names it, for methods that need "row groups".
    label_values
        (N,) the input's number for the true label, for methods that need "label values"; only
        where the score is random, because else equal scores identify copies of a row.
    """

    scores: FloatArray
    labels: IntArray
    ids: Array
    ranks: IntArray | None = None
    groups: Array | None = None
    label_values: FloatArray | None = None

    def split(self, n_first: int, random_state: int) -> tuple[CalibrationRows, CalibrationRows]:
        """The first `n_first` rows in the random order of their ids, and the others."""
        order = random_order(random_state, Use.SPLIT, self.ids)
        return self.take(order[:n_first]), self.take(order[n_first:])

    def by(self, group_of_class: IntArray) -> GroupedScores:
        """Their scores in groups of classes; classes of group -1 are left out."""
        if not group_of_class.any():  # all are in group 0: no row needs to be asked
            return GroupedScores(np.sort(self.scores), np.array([0, len(self.scores)]))
        n_groups = int(group_of_class.max()) + 1
        return GroupedScores.sort(self.scores, group_of_class[self.labels], n_groups)

    def take(self, rows: Array | slice) -> CalibrationRows:
        """Some of the rows."""
        return CalibrationRows(*(None if column is None else column[rows] for column in self))  # type: ignore[arg-type]


def followed_by(first: GroupedScores, second: GroupedScores) -> GroupedScores:
    """The groups of both, one after the other."""
    offsets = np.append(first.offsets, len(first.scores) + second.offsets[1:])
    return GroupedScores(np.concatenate([first.scores, second.scores]), offsets)


# ---- order, copies and folds ---------------------------------------------------------------------


def ascending(rows: CalibrationRows, random_state: int) -> tuple[IntArray, FloatArray | None]:
    """Order of the scores, ties at random by each row's key, and the tie-breaking draws (N,).

    Without ties there are no draws.
    """
    order = np.argsort(rows.scores)
    ordered = rows.scores[order]
    if (ordered[1:] != ordered[:-1]).all():
        return order, None
    draws = uniforms(random_state, Use.TIES, rows.ids)
    return np.lexsort((rows.labels, draws, rows.scores)), draws


def find_copies(rows: CalibrationRows, by_score: IntArray, *, has_ties: bool) -> IntArray | None:
    """Number the rows (N,) so that copies share a number; warn where copies are a notable share.

    Copies have the same label and value (score, or input where scores are random), with no other
    label sharing the value: ties of a coarse score occur across labels, and at its ends. None if
    there are no copies.
    """
    values, order = rows.scores, by_score
    if rows.label_values is not None:
        values, order = rows.label_values, np.argsort(rows.label_values)
    elif not has_ties:
        return None
    n_rows, labels = len(order), rows.labels[order]
    is_first = np.append(True, values[order][1:] != values[order][:-1])
    starts, run = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    one_label = np.minimum.reduceat(labels, starts) == np.maximum.reduceat(labels, starts)
    one_label[[0, -1]] = False
    repeats = int((one_label[run] & ~is_first).sum())
    if not repeats:
        return None
    if repeats > NOTABLE_COPIES * n_rows:
        warn_caller(
            f"{repeats / n_rows:.0%} of the calibration rows are copies of other rows: same label, "
            "same score. Copies add no information, so remove them."
        )
    copies = np.empty(n_rows, dtype=np.int64)
    copies[order] = np.cumsum(~(one_label[run] & ~is_first)) - 1
    return copies


def with_same_id(copies: IntArray | None, ids: Array, order: IntArray) -> IntArray | None:
    """Number rows (N,) so that copies, and rows with the same id, share a number.

    `order` puts rows with the same id next to each other.
    """
    is_first = np.append(True, ids[order][1:] != ids[order][:-1])
    if is_first.all():
        return copies
    by_id = np.empty(len(ids), dtype=np.int64)
    by_id[order] = np.cumsum(is_first) - 1
    if copies is None:
        return by_id
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n_copies = int(copies.max()) + 1
    shape = (n_copies + int(by_id.max()) + 1,) * 2
    links = coo_array((np.ones(len(ids)), (copies, n_copies + by_id)), shape=shape)
    return connected_components(links, directed=False)[1][copies]


def one_of_each(groups: IntArray | None, order: IntArray) -> IntArray:
    """One row of each group, in this order; None: every row is its own group."""
    if groups is None:
        return order
    return order[np.sort(np.unique(groups[order], return_index=True)[1])]


def hold_out(groups: IntArray | None, order: IntArray) -> Array:
    """Choose the first fifth of the rows (N,) in this order, whole groups."""
    groups = np.arange(len(order)) if groups is None else groups
    chosen = groups[one_of_each(groups, order)]
    n_rows = np.cumsum(np.bincount(groups)[chosen])
    return np.isin(groups, chosen[n_rows <= floor(HOLDOUT_FRACTION * len(order))])


def assign_folds(groups: IntArray | None, labels: IntArray, order: IntArray) -> IntArray:
    """Assign folds (N,) in this order of some rows, even within every class; a group shares one."""
    first = one_of_each(groups, order)
    first = first[by_group(labels[first], int(labels.max()) + 1)]
    number = np.arange(len(labels)) if groups is None else groups
    fold_of = np.zeros(int(number.max()) + 1, dtype=np.int64)
    fold_of[number[first]] = np.arange(len(first)) % N_FOLDS
    return fold_of[number]


def by_group(groups: IntArray, n_groups: int) -> IntArray:
    """Stable order by group; NumPy sorts short integers by radix."""
    return np.argsort(groups.astype(np.uint16 if n_groups <= 2**16 else np.int64), kind="stable")
