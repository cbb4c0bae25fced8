"""Tally: the counts that decide every metric."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evencover._types import Array, IntArray
from evencover.sets import PredictionSets


class Tally(NamedTuple):
    """Counts that decide every metric; the tallies of two parts of the data add up.

    ``rows`` and ``covered`` (K,) count test rows, and those whose set holds their label, by class;
    ``sizes`` (K + 1,) counts sets by size; ``size_sums`` (K,) adds them up by the rows' classes,
    and is None where that was not counted.
    """

    rows: IntArray
    covered: IntArray
    sizes: IntArray
    size_sums: IntArray | None = None

    @classmethod
    def zeros(cls, n_classes: int) -> Tally:
        """The tally of no rows."""
        lengths = (n_classes, n_classes, n_classes + 1, n_classes)
        return cls(*(np.zeros(n, dtype=np.int64) for n in lengths))

    @classmethod
    def of(cls, sets: PredictionSets, labels: IntArray) -> Tally:
        """Count one part of the data."""
        return cls.of_rows(labels, sets.contains(labels), sets.sizes, sets.n_classes)

    @classmethod
    def of_rows(cls, labels: IntArray, is_covered: Array, sizes: IntArray, n_classes: int) -> Tally:
        """Count rows by what is known of their sets."""
        return cls(
            np.bincount(labels, minlength=n_classes),
            np.bincount(labels[is_covered], minlength=n_classes),
            np.bincount(sizes, minlength=n_classes + 1),
            np.bincount(labels, weights=sizes, minlength=n_classes).astype(np.int64),
        )

    def __add__(self, other: Tally) -> Tally:  # type: ignore[override]
        rows, covered, sizes = (a + b for a, b in zip(self[:3], other[:3], strict=True))
        if self.size_sums is None or other.size_sums is None:
            return Tally(rows, covered, sizes)
        return Tally(rows, covered, sizes, self.size_sums + other.size_sums)
