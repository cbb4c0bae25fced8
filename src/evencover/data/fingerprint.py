"""What tells labelled rows from others: a digest that parts of the rows can make separately."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from evencover._types import Array, IntArray
from evencover.randomness import places

# About one row in 16 is hashed, one in 128 where there are many classes and rows are long, and the
# smallest hashes are kept. Of many classes only some are looked into: a number costs a read.
ONE_ROW_IN, ONE_CLASS_IN, FEW_CLASSES, MOST_KEPT = (16, 8), (1, 16), 256, 1024
MOST_NUMBERS = 64  # of a row, those around its true class


class Fingerprint(NamedTuple):
    """The first row, and the sum (modulo 2**64) of 64 bits hashed from each row's number and label.

    A sum does not care how the rows were cut into blocks and parts, nor in which order these
    were read. Two data sets that differ share it by chance once in 2**64. ``sample`` holds hashes
    of the content of some rows, chosen by their content, to tell copies in other data.
    """

    first_row: bytes = b""
    total: int = 0
    sample: Array = np.zeros(0, dtype=np.uint64)

    @classmethod
    def of(cls, start: int, rows: Array, labels: IntArray | None) -> Fingerprint:
        """The fingerprint of one block, whose first row is number `start` of the whole input."""
        first = rows[:1].astype(np.float64).tobytes() if start == 0 else b""
        if labels is None:
            return cls(first)
        numbers = places(start, start + len(labels))
        keys = numbers * np.uint64(rows.shape[1]) + labels.astype(np.uint64)
        return cls(first, int(_mixed(keys).sum(dtype=np.uint64)), content_sample(rows, labels))

    def __add__(self, other: Fingerprint) -> Fingerprint:  # type: ignore[override]
        sample = np.sort(np.concatenate([self.sample, other.sample]))[:MOST_KEPT]
        total = (self.total + other.total) % 2**64
        return Fingerprint(self.first_row or other.first_row, total, sample)

    def copies_of(self, sample: Array) -> tuple[int, int]:
        """How many of these rows are in another sample, and how many could have been."""
        limit = sample.max() if len(sample) == MOST_KEPT else np.uint64(2**64 - 1)
        comparable = self.sample[self.sample <= limit]
        return int(np.isin(comparable, sample).sum()), len(comparable)

    def hexdigest(self) -> str:
        """The fingerprint as text."""
        content = self.total.to_bytes(8, "little") + self.first_row
        return hashlib.blake2b(content, digest_size=16).hexdigest()


def content_sample(rows: Array, labels: IntArray) -> Array:
    """Hashes of rows of some classes, those that the bits of their true class's number choose.

    Rows that say 0 or 1 for it are left out: saturated models give many of them by nature.
    """
    looked_at = np.flatnonzero(_looked_into(rows.shape[1])[labels])
    with np.errstate(over="ignore", invalid="ignore"):  # rows are judged later
        own = rows[looked_at, labels[looked_at]].astype(np.float32)
    chosen = (
        _mixed(own.view(np.uint32).astype(np.uint64)) % ONE_ROW_IN[rows.shape[1] > FEW_CLASSES] == 0
    )
    found = looked_at[chosen & (own != 0) & (own != 1)]
    width = min(MOST_NUMBERS, rows.shape[1])
    first = np.minimum(np.maximum(labels[found] - width // 2, 0), rows.shape[1] - width)
    with np.errstate(over="ignore", invalid="ignore"):
        some = rows[found[:, None], first[:, None] + np.arange(width)].astype(np.float32)
    odd = np.arange(1, 2 * width, 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    sums = np.einsum("ij,j->i", some.view(np.uint32).astype(np.uint64), odd)
    return _mixed(sums + labels[found].astype(np.uint64))


@lru_cache(maxsize=8)
def _looked_into(n_classes: int) -> Array:
    """Which classes (K,) a sample is taken from: the same in all data."""
    numbers = np.arange(1, n_classes + 1, dtype=np.uint64)
    return _mixed(numbers) % ONE_CLASS_IN[n_classes > FEW_CLASSES] == 0


def _mixed(keys: Array) -> Array:
    """Scatter 64-bit numbers, one to one: the finaliser of SplitMix64 (Steele et al. 2014)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
