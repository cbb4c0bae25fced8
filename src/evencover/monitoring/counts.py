"""What a monitor remembers: counts, which add up whatever the order and the split of the rows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from evencover._types import Array, IntArray
from evencover.errors import InputError

# Set sizes are counted in bins: 0, 1, 2, 3 to 5, 6 to 10, ...; the last has no end.
SIZE_EDGES = np.array([0, 1, 2, 3, 6, 11, 21, 51, 101, 1001])
MOST_PERIODS = 60  # that are told apart; older ones become one
EARLIER = ""  # its name, which sorts before all others
ONE_ROW = "id "  # how the name of an input begins that is one row
UNLABELED = "unlabeled "  # or whose rows have no labels


@dataclass(eq=False)
class Counts:
    """Whole numbers by class, all of them sums over rows.

    Parameters
    ----------
    n_classes
        K.
    periods
        (2, K) rows, and those whose set holds their label, by period, such as a day.
    urn
        (2, K) rows whose scores were held against their class's calibration scores, and how many
        of these were within.
    sizes, tops
        (2, B) sets by size, (2, K) rows by most probable class, of rows without labels; first those
        that drift is measured from, then those of now.
    inputs
        What must not be counted twice: fingerprints of inputs, ids of single rows, and names of
        services.
    """

    n_classes: int
    periods: dict[str, IntArray] = field(default_factory=dict)
    urn: IntArray = field(init=False)
    sizes: IntArray = field(init=False)
    tops: IntArray = field(init=False)
    inputs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.urn = np.zeros((2, self.n_classes), dtype=np.int64)
        self.sizes = np.zeros((2, len(SIZE_EDGES)), dtype=np.int64)
        self.tops = np.zeros((2, self.n_classes), dtype=np.int64)

    @property
    def rows(self) -> IntArray:
        """(K,) labelled rows of each class."""
        return self._labelled()[0]

    @property
    def covered(self) -> IntArray:
        """(K,) those whose set holds their label."""
        return self._labelled()[1]

    def _labelled(self) -> IntArray:
        return sum(self.periods.values(), np.zeros((2, self.n_classes), dtype=np.int64))

    def add_labelled(self, period: str, rows: IntArray, covered: IntArray) -> None:
        """Count labelled rows (K,) of a period."""
        mine = self.periods.get(period, np.zeros((2, self.n_classes), dtype=np.int64))
        self.periods[period] = mine + np.stack([rows, covered])
        self._forget_old_periods()

    def add_sets(self, sizes: IntArray, top_classes: IntArray, *, reference: bool) -> None:
        """Count the sets (n,) of rows by size and by most probable class."""
        row = 0 if reference else 1
        bins = np.searchsorted(SIZE_EDGES, sizes, side="right") - 1
        self.sizes[row] += np.bincount(bins, minlength=len(SIZE_EDGES))
        self.tops[row] += np.bincount(top_classes, minlength=self.n_classes)

    @property
    def ids(self) -> Array:
        """The ids (n,) of single rows that were counted, as numbers of 64 bits."""
        found = [int(name[len(ONE_ROW) :], 16) for name in self.inputs if name.startswith(ONE_ROW)]
        return np.array(found, dtype=np.uint64)

    def add_ids(self, keys: Array) -> None:
        """Remember the ids (n,) of rows that were counted."""
        self.inputs |= {f"{ONE_ROW}{key:x}" for key in keys.tolist()}

    def _forget_old_periods(self) -> None:
        """One period for all that are too old: the same whether before or after a merge."""
        old = sorted(set(self.periods) - {EARLIER})[:-MOST_PERIODS]
        for name in old:
            before = self.periods.get(EARLIER, np.zeros((2, self.n_classes), dtype=np.int64))
            self.periods[EARLIER] = before + self.periods.pop(name)

    def __add__(self, other: Counts) -> Counts:
        both = Counts(self.n_classes, dict(self.periods), inputs=self.inputs | other.inputs)
        for name in ("urn", "sizes", "tops"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        for period, (rows, covered) in other.periods.items():
            both.add_labelled(period, rows, covered)
        both._forget_old_periods()
        return both

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts) and self.to_dict() == other.to_dict()

    # ---- files ---------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers; of the classes only those that were seen."""
        return {
            "n_classes": self.n_classes,
            "periods": {name: _sparse(self.periods[name]) for name in sorted(self.periods)},
            "urn": _sparse(self.urn),
            "sizes": self.sizes.tolist(),
            "tops": _sparse(self.tops),
            "inputs": sorted(self.inputs),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Counts:
        """What `to_dict` gave, checked."""
        if set(content) != {each.name for each in fields(cls)}:
            raise InputError("it lacks some of its counts")
        counts = cls(int(content["n_classes"]), inputs=frozenset(map(str, content["inputs"])))
        n_classes = counts.n_classes
        for name, listed in content["periods"].items():
            counts.periods[str(name)] = _dense(listed, n_classes)
        counts.urn, counts.tops = (
            _dense(content["urn"], n_classes),
            _dense(content["tops"], n_classes),
        )
        counts.sizes = np.array(content["sizes"], dtype=np.int64)
        labelled = [*counts.periods.values(), counts.urn]
        if counts.sizes.shape != (2, len(SIZE_EDGES)) or (counts.sizes < 0).any():
            raise InputError("its set sizes are no counts")
        if any((part[1] > part[0]).any() for part in labelled):
            raise InputError("more rows are covered than there are")
        return counts


def _sparse(table: IntArray) -> dict[str, list[int]]:
    seen = np.flatnonzero(table.any(axis=0))
    first, second = table[:, seen].tolist()
    return {"classes": seen.tolist(), "first": first, "second": second}


def _dense(listed: dict[str, Any], n_classes: int) -> IntArray:
    classes, first, second = (_whole(listed[name]) for name in ("classes", "first", "second"))
    if not len(classes) == len(first) == len(second) == len(np.unique(classes)):
        raise InputError("its lists have different lengths")
    if len(classes) and not 0 <= classes.min() <= classes.max() < n_classes:
        raise InputError("its classes are not those of the model")
    if len(classes) and min(first.min(), second.min()) < 0:
        raise InputError("its counts are below 0")
    table = np.zeros((2, n_classes), dtype=np.int64)
    table[0, classes], table[1, classes] = first, second
    return table


def _whole(values: Any) -> Array:
    if not all(type(value) is int for value in values):
        raise InputError("its counts must be whole numbers")
    return np.array(values, dtype=np.int64)
