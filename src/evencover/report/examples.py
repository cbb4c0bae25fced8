"""A few test rows of every class with their sets: the first ones covered, the first ones missed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evencover._validation import Array, FloatArray, IntArray
from evencover.data.source import Block
from evencover.sets import PredictionSets
from evencover.taxonomy import Taxonomy


class Example(NamedTuple):
    """A row and its set, of which the most probable members are kept.

    ``percent`` is the probability of the true class in percent; ``percents`` those of ``members``;
    ``summary`` says the whole set in the words of a taxonomy, if there is one.
    """

    label: int
    covered: bool
    row: int | str
    size: int
    percent: float
    members: list[int]
    percents: list[float]
    summary: str = ""


class Examples:
    """The first few covered and missed rows of each class, whatever the blocks they come in.

    Parameters
    ----------
    n_classes
        K; with very many classes fewer rows and shorter sets are kept, to keep the page small.
    taxonomy
        A tree of classes in whose words sets are said, too.
    """

    def __init__(self, n_classes: int, taxonomy: Taxonomy | None = None) -> None:
        self.taxonomy = taxonomy
        many = n_classes > 3000
        self.n_members = 6 if many else 10
        # How many more are wanted, by class, of missed (column 0) and covered rows (column 1).
        self.room = np.tile(np.array([2, 1] if many else [3, 2]), (n_classes, 1))
        self.kept: list[list[Example]] = [[] for _ in range(n_classes)]

    def among(
        self,
        block: Block,
        sets: PredictionSets,
        covered: Array,
        ids: Array | None,
        temperature: float | None,
    ) -> list[Example]:
        """The rows of a block that may be wanted.

        `covered` (n,) says whose set holds the label; `ids` (n,) are what the user calls the rows,
        if not by their place; `temperature` is None unless the rows are logits.
        """
        labels = block.labels
        assert labels is not None
        places = _first_of_each(labels * 2 + covered, self.room.ravel())
        examples = []
        for place in places.tolist():
            label, members = int(labels[place]), sets[place]
            chances = _percentages(block.rows[place], temperature)
            shown = members[np.argsort(-chances[members], kind="stable")][: self.n_members]
            examples.append(
                Example(
                    label,
                    bool(covered[place]),
                    block.start + place if ids is None else ids[place : place + 1].tolist()[0],
                    len(members),
                    _short(chances[label]),
                    shown.tolist(),
                    [_short(chance) for chance in chances[shown]],
                    "" if self.taxonomy is None else self.taxonomy.describe(members),
                )
            )
        return examples

    def take(self, examples: list[Example]) -> None:
        """Keep what there is room for; blocks must come in order."""
        for example in examples:
            kind = int(example.covered)
            if self.room[example.label, kind]:
                self.room[example.label, kind] -= 1
                self.kept[example.label].append(example)

    def in_order(self) -> list[Example]:
        """All that are kept; rows of the same class in the order of the data."""
        return [example for kept in self.kept for example in kept]

    def columns(self) -> list[list[list[Any]]]:
        """By class, missed rows first: [row, covered, size, percent, members, percents, summary].

        The last is left out without a taxonomy.
        """
        return [
            [
                [e.row, int(e.covered), e.size, e.percent, e.members, e.percents]
                + ([e.summary] if e.summary else [])
                for e in sorted(kept, key=lambda example: example.covered)
            ]
            for kept in self.kept
        ]


def _first_of_each(kinds: IntArray, wanted: IntArray) -> IntArray:
    """Places of the first ``wanted[kind]`` rows of each kind, ascending.

    >>> _first_of_each(np.array([1, 0, 1, 1]), np.array([5, 2])).tolist()
    [0, 1, 2]
    """
    order = np.argsort(kinds, kind="stable")
    counts = np.bincount(kinds, minlength=len(wanted))
    nth = np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[nth < wanted[kinds[order]]])


def _percentages(row: Array, temperature: float | None) -> FloatArray:
    values = row.astype(np.float64)
    if temperature is not None:
        values = np.exp((values - values.max()) / temperature)
    return 100 * values / values.sum()


def _short(percent: float) -> float:
    """Whole percents; one digit more below ten."""
    return round(float(percent)) if percent >= 9.95 else round(float(percent), 1)
