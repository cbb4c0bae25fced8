"""Calibration rows as methods see them: split at random, and ranked within groups of classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evencover._validation import Array, FloatArray, IntArray
from evencover.engine.scattered import ScatteredRows
from evencover.quantiles import GroupedScores, RankedScores
from evencover.randomness import Use, random_order


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


# In memory, or left with the workers that scored them: the same splits and ranks, bit for bit.
Rows = CalibrationRows | ScatteredRows


class JoinedScores(NamedTuple):
    """The groups of two `RankedScores`, one after the other."""

    first: RankedScores
    second: RankedScores

    @property
    def counts(self) -> IntArray:
        """Number of scores in each group."""
        return np.concatenate([self.first.counts, self.second.counts])

    def at_ranks(self, ranks: IntArray) -> FloatArray:
        """As `GroupedScores.at_ranks`."""
        n_first = len(self.first.counts)
        found = (
            self.first.at_ranks(ranks[..., :n_first]),
            self.second.at_ranks(ranks[..., n_first:]),
        )
        return np.concatenate(found, axis=-1)


def followed_by(first: RankedScores, second: RankedScores) -> RankedScores:
    """The groups of both, one after the other."""
    if not (isinstance(first, GroupedScores) and isinstance(second, GroupedScores)):
        return JoinedScores(first, second)
    offsets = np.append(first.offsets, len(first.scores) + second.offsets[1:])
    return GroupedScores(np.concatenate([first.scores, second.scores]), offsets)
