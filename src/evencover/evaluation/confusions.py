"""Which class stands first where another one is true: sparse counts that add up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evencover._types import IntArray


class Confusions(NamedTuple):
    """How often class ``first`` is the most probable one in rows of class ``true``, wrongly.

    ``pairs`` holds ``true * K + first``, ascending; ``counts`` how often each occurs.
    """

    pairs: IntArray
    counts: IntArray
    n_classes: int

    @classmethod
    def none(cls, n_classes: int) -> Confusions:
        """No counts yet."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, n_classes)

    @classmethod
    def of(cls, labels: IntArray, first: IntArray, n_classes: int) -> Confusions:
        """Count the rows whose most probable class is not the true one."""
        wrong = labels != first
        pairs, counts = np.unique(labels[wrong] * n_classes + first[wrong], return_counts=True)
        return cls(pairs, counts, n_classes)

    @classmethod
    def total(cls, parts: list[Confusions]) -> Confusions:
        """The counts of all parts together."""
        pairs, inverse = np.unique(
            np.concatenate([part.pairs for part in parts]), return_inverse=True
        )
        counts = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(counts, inverse, np.concatenate([part.counts for part in parts]))
        return cls(pairs, counts, parts[0].n_classes)

    def most_frequent(self, most: int = 5) -> Confusions:
        """Only the pairs that `of_class` shows: O(K) of them, where there may be K**2."""
        true = self.pairs // self.n_classes
        order = np.lexsort((self.pairs, -self.counts, true))
        starts = np.searchsorted(true, true)  # pairs ascend, and so do their true classes
        kept = np.sort(order[np.arange(len(order)) - starts < most])
        return Confusions(self.pairs[kept], self.counts[kept], self.n_classes)

    def of_class(self, true: int, most: int = 5) -> list[tuple[int, int]]:
        """The classes that most often stand first in rows of `true`, with their counts.

        >>> seen = Confusions.of(np.array([0, 0, 0, 1]), np.array([2, 2, 1, 1]), n_classes=3)
        >>> seen.of_class(0), seen.of_class(1)
        ([(2, 2), (1, 1)], [])
        """
        start, stop = np.searchsorted(
            self.pairs, [true * self.n_classes, (true + 1) * self.n_classes]
        )
        counts = self.counts[start:stop]
        order = np.argsort(-counts, kind="stable")[:most]
        first = self.pairs[start:stop][order] - true * self.n_classes
        return list(zip(first.tolist(), counts[order].tolist(), strict=True))
