"""Counts of test rows that add up over disjoint data: coverage, set sizes, confusions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evencover._kernels import Coverage
from evencover.arrays import Array, IntArray
from evencover.sets import PredictionSets


class Tally(NamedTuple):
    """Count what every metric needs; tallies of disjoint data add up.

    ``rows`` and ``covered`` (K,) count test rows and covered rows by class; ``sizes`` (K + 1,)
    counts sets by size; ``size_sums`` (K,) adds sizes by the row's class, None if not counted.
    ``n_unknown`` counts rows with label K, not among the classes; ``sizes`` includes them.
    ``appearances`` (K,) counts the sets that contain each class. ``accepted`` and
    ``accepted_right`` (K,) count accepted rows by predicted class. ``listed`` (K,) counts top-k
    rows that list their label. None where not counted.
    """

    rows: IntArray
    covered: IntArray
    sizes: IntArray
    size_sums: IntArray | None = None
    n_unknown: int = 0
    appearances: IntArray | None = None
    accepted: IntArray | None = None
    accepted_right: IntArray | None = None
    listed: IntArray | None = None

    @classmethod
    def of(cls, sets: PredictionSets, labels: IntArray) -> Tally:
        """Count one part of the data."""
        # The first class of an accepted set is the most probable one.
        first = np.append(sets.indices, 0)[sets.indptr[:-1]].astype(np.int64)
        coverage = Coverage(sets.sizes, sets.have(labels), first, sets.accepted)
        appearances = np.bincount(sets.indices, minlength=sets.n_classes)
        return cls.of_coverage(labels, coverage, appearances)

    @classmethod
    def of_rows(cls, labels: IntArray, is_covered: Array, sizes: IntArray, n_classes: int) -> Tally:
        """Count rows from whether they are covered and their set sizes."""
        rows = np.bincount(labels, minlength=n_classes + 1)
        sums = np.bincount(labels, weights=sizes, minlength=n_classes)
        return cls(
            rows[:n_classes],
            np.bincount(labels[is_covered], minlength=n_classes)[:n_classes],
            np.bincount(sizes, minlength=n_classes + 1),
            sums[:n_classes].astype(np.int64),
            int(rows[n_classes]),
        )

    @classmethod
    def of_coverage(cls, labels: IntArray, coverage: Coverage, appearances: IntArray) -> Tally:
        """Count rows, their sets, and accepted predictions."""
        n_classes, is_accepted = len(appearances), coverage.is_accepted
        accepted = coverage.top_classes[is_accepted]
        right = accepted[accepted == labels[is_accepted]]
        return cls.of_rows(labels, coverage.is_covered, coverage.sizes, n_classes)._replace(
            appearances=appearances,
            accepted=np.bincount(accepted, minlength=n_classes),
            accepted_right=np.bincount(right, minlength=n_classes),
        )

    def __add__(self, other: Tally) -> Tally:  # type: ignore[override]
        pairs = zip(self, other, strict=True)
        return Tally(*(None if a is None or b is None else a + b for a, b in pairs))  # type: ignore[arg-type]


class Confusions(NamedTuple):
    """How often class ``first`` is the most probable one in rows of class ``true``, wrongly.

    ``pairs`` holds ``true * K + first``, ascending; ``counts`` how often each occurs.
    """

    pairs: IntArray
    counts: IntArray
    n_classes: int

    @classmethod
    def of(cls, labels: IntArray, first: IntArray, n_classes: int) -> Confusions:
        """Count the rows whose most probable class is not the true one."""
        wrong = (labels != first) & (labels < n_classes)
        pairs, counts = np.unique(labels[wrong] * n_classes + first[wrong], return_counts=True)
        return cls(pairs, counts, n_classes)

    @classmethod
    def total(cls, parts: list[Confusions]) -> Confusions:
        """Add up the counts of all parts."""
        all_pairs = np.concatenate([part.pairs for part in parts])
        pairs, inverse = np.unique(all_pairs, return_inverse=True)
        counts = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(counts, inverse, np.concatenate([part.counts for part in parts]))
        return cls(pairs, counts, parts[0].n_classes)

    def most_frequent(self, most: int = 5) -> Confusions:
        """Keep only the pairs that `of_class` shows: O(K) of them, where there may be K**2."""
        true = self.pairs // self.n_classes
        order = np.lexsort((self.pairs, -self.counts, true))
        starts = np.searchsorted(true, true)  # pairs ascend, and so do their true classes
        kept = np.sort(order[np.arange(len(order)) - starts < most])
        return Confusions(self.pairs[kept], self.counts[kept], self.n_classes)

    def of_class(self, true: int, most: int = 5) -> list[tuple[int, int]]:
        """List the classes that most often stand first in rows of `true`, with their counts.

        >>> seen = Confusions.of(np.array([0, 0, 0, 1]), np.array([2, 2, 1, 1]), n_classes=3)
        >>> seen.of_class(0), seen.of_class(1)
        ([(2, 2), (1, 1)], [])
        """
        bounds = [true * self.n_classes, (true + 1) * self.n_classes]
        start, stop = np.searchsorted(self.pairs, bounds)
        counts = self.counts[start:stop]
        order = np.argsort(-counts, kind="stable")[:most]
        first = self.pairs[start:stop][order] - true * self.n_classes
        return list(zip(first.tolist(), counts[order].tolist(), strict=True))
