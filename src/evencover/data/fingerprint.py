"""What tells labelled rows from others: a digest that parts of the rows can make separately."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from evencover._types import Array, IntArray
from evencover.randomness import places

# Of few classes about one row in 16 is hashed, of many all rows of some classes: to look for a
# number in each row would cost a read of memory. The smallest hashes are kept.
FEW_CLASSES, ONE_ROW_IN, ONE_CLASS_IN, LEAST_CLASSES, MOST_KEPT = 256, 16, 64, 16, 1024
MOST_NUMBERS = 64  # of a row, those around its true class
MOST_WAITING = 4096  # rows that wait to be hashed


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
        """That of one block, without a sample; it begins with row `start` of the whole input."""
        first = rows[:1].astype(np.float64).tobytes() if start == 0 else b""
        if labels is None:
            return cls(first)
        numbers = places(start, start + len(labels))
        keys = numbers * np.uint64(rows.shape[1]) + labels.astype(np.uint64)
        return cls(first, int(_mixed(keys).sum(dtype=np.uint64)))

    def __add__(self, other: Fingerprint) -> Fingerprint:  # type: ignore[override]
        sample = self.sample
        if len(other.sample):
            sample = np.sort(np.concatenate([sample, other.sample]))[:MOST_KEPT]
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


class Sampler:
    """Collects the rows that their label and its number choose: the same rows in any data.

    Rows that say 0 or 1 for it are left out: saturated models give many of them by nature. What is
    chosen is hashed now and then, many rows at once, since every call takes its time.
    """

    def __init__(self) -> None:
        self.sample: Array = np.zeros(0, dtype=np.uint64)
        self._waiting: list[tuple[Array, Array, IntArray]] = []
        self._n_waiting = 0

    def add(self, rows: Array, labels: IntArray) -> None:
        """Look at a block."""
        chosen = np.flatnonzero(_looked_into(rows.shape[1])[labels])
        own, labels = rows[chosen, labels[chosen]], labels[chosen]
        if rows.shape[1] <= FEW_CLASSES:
            thin = _mixed(_bits(own)) % ONE_ROW_IN == 0
            chosen, own, labels = chosen[thin], own[thin], labels[thin]
        width = min(MOST_NUMBERS, rows.shape[1])
        first = np.minimum(np.maximum(labels - width // 2, 0), rows.shape[1] - width)
        around = sliding_window_view(rows, width, axis=1)[chosen, first]
        self._waiting.append((own, around, labels))
        self._n_waiting += len(chosen)
        if self._n_waiting > MOST_WAITING:
            self._hash()

    def result(self) -> Fingerprint:
        """What was found, as part of a fingerprint."""
        if self._waiting:
            self._hash()
        return Fingerprint(sample=self.sample)

    def _hash(self) -> None:
        own, some, labels = (np.concatenate(each) for each in zip(*self._waiting, strict=True))
        self._waiting, self._n_waiting = [], 0
        odd = np.arange(1, 2 * some.shape[1], 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        hashes = _mixed(np.einsum("ij,j->i", _bits(some), odd) + labels.astype(np.uint64))
        hashes = hashes[(own != 0) & (own != 1)]
        self.sample = np.sort(np.concatenate([self.sample, hashes]))[:MOST_KEPT]


def _bits(numbers: Array) -> Array:
    """The bits of numbers as float32; whether they make sense is judged elsewhere."""
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(np.float32, copy=False).view(np.uint32).astype(np.uint64)


@lru_cache(maxsize=8)
def _looked_into(n_classes: int) -> Array:
    """Which classes (K,) a sample is taken from."""
    if n_classes <= FEW_CLASSES:
        return np.ones(n_classes, dtype=bool)
    looked_into = np.zeros(n_classes, dtype=bool)
    scattered = np.argsort(_mixed(np.arange(1, n_classes + 1, dtype=np.uint64)))
    looked_into[scattered[: max(LEAST_CLASSES, n_classes // ONE_CLASS_IN)]] = True
    return looked_into


def _mixed(keys: Array) -> Array:
    """Scatter 64-bit numbers, one to one: the finaliser of SplitMix64 (Steele et al. 2014)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
