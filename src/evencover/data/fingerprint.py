"""What tells labelled rows from others: a digest that parts of the rows can make separately."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from evencover.arrays import Array, IntArray
from evencover.randomness import places

# Of few classes about one row in 16 is hashed, of many all rows of some classes: to look for a
# number in each row would cost a read of memory. The smallest hashes are kept.
FEW_CLASSES, ONE_ROW_IN, ONE_CLASS_IN, LEAST_CLASSES, MOST_KEPT = 256, 16, 64, 16, 1024
MOST_NUMBERS = 64  # of a row, those around its true class
MOST_WAITING = 4096  # rows that wait to be hashed


class Fingerprint(NamedTuple):
    """The first row, and the sum (modulo 2**64) of 64 bits hashed from each row's number and label.

    A sum does not care how the rows were cut into blocks and parts, nor in which order these
    were read. Two data sets that differ share it by chance once in 2**64. ``sample`` (n, 2) has the
    hashes of the content of some rows, chosen by their content, to tell copies in other data, and
    the places of these rows.
    """

    start: int = 2**63
    first_row: str = ""
    total: int = 0
    sample: Array = np.zeros((0, 2), dtype=np.uint64)

    @classmethod
    def of(cls, start: int, rows: Array, labels: IntArray | None, *, is_first: bool) -> Fingerprint:
        """Fingerprint one block, without a sample; it begins with row `start` of the whole input.

        Only the first block of a part `is_first`: its first row may be that of the whole input.
        """
        total = 0 if labels is None else sum_of(start, labels, rows.shape[1])
        if not is_first or not len(rows):
            return cls(total=total)
        row = hashlib.blake2b(rows[0].astype(np.float64).tobytes(), digest_size=8)
        return cls(start, row.hexdigest(), total)

    def __add__(self, other: Fingerprint) -> Fingerprint:  # type: ignore[override]
        first = self if self.start <= other.start else other
        sample = _smallest(self.sample, other.sample) if len(other.sample) else self.sample
        return first._replace(total=(self.total + other.total) % 2**64, sample=sample)

    @property
    def limit(self) -> int:
        """The hash up to which the sample has all rows."""
        return int(self.sample[-1, 0]) if len(self.sample) == MOST_KEPT else 2**64 - 1

    def copies_of(self, hashes: Array, limit: int) -> tuple[int, int]:
        """How many of these rows are in another sample, and how many could have been."""
        comparable = self.sample[self.sample[:, 0] <= np.uint64(limit), 0]
        return int(np.isin(comparable, hashes).sum()), len(comparable)

    def hexdigest(self) -> str:
        """Return the fingerprint as text, first row and sum."""
        return f"{self.first_row}{self.total:016x}"


def sum_of(start: int, labels: IntArray, n_classes: int) -> int:
    """Sum the hashes of labels and their places, from `start` on."""
    keys = places(start, start + len(labels)) * np.uint64(n_classes) + labels.astype(np.uint64)
    return int(_mixed(keys).sum(dtype=np.uint64))


def _smallest(*samples: Array) -> Array:
    both = np.concatenate(samples)
    return both[np.lexsort(both.T[::-1])[:MOST_KEPT]]


class Sampler:
    """Fingerprint a stream of blocks, with a sample of the labeled rows.

    Labels and their numbers choose the rows: the same ones in any data. Rows that say 0 or 1 for
    their label are left out: saturated models give many of them by nature. What is chosen is hashed
    now and then, many rows at once, since every call takes its time.
    """

    def __init__(self) -> None:
        self._found = Fingerprint()
        self._waiting: list[tuple[Array, Array, IntArray, Array]] = []
        self._n_waiting, self._is_first = 0, True

    def add(self, start: int, rows: Array, labels: IntArray | None) -> None:
        """Add a block, which begins with row `start` of the whole input."""
        self._found += Fingerprint.of(start, rows, labels, is_first=self._is_first)
        self._is_first = self._is_first and not len(rows)
        if labels is None:
            return
        looked_into = np.append(_looked_into(rows.shape[1]), False)  # not for unknown labels
        chosen = np.flatnonzero(looked_into[labels])
        own, labels = rows[chosen, labels[chosen]], labels[chosen]
        if rows.shape[1] <= FEW_CLASSES:
            thin = _mixed(_bits(own)) % ONE_ROW_IN == 0
            chosen, own, labels = chosen[thin], own[thin], labels[thin]
        width = min(MOST_NUMBERS, rows.shape[1])
        first = np.minimum(np.maximum(labels - width // 2, 0), rows.shape[1] - width)
        around = sliding_window_view(rows, width, axis=1)[chosen, first]
        self._waiting.append((own, around, labels, chosen + start))
        self._n_waiting += len(chosen)
        if self._n_waiting > MOST_WAITING:
            self.result()

    def result(self) -> Fingerprint:
        """Return the fingerprint of the blocks so far."""
        if self._waiting:
            columns = map(np.concatenate, zip(*self._waiting, strict=True))
            own, some, labels, numbers = columns
            self._waiting, self._n_waiting = [], 0
            odd = np.arange(1, 2 * some.shape[1], 2, dtype=np.uint64)
            odd *= np.uint64(0x9E3779B97F4A7C15)
            hashes = _mixed(np.einsum("ij,j->i", _bits(some), odd) + labels.astype(np.uint64))
            found = np.stack([hashes, numbers.astype(np.uint64)], axis=1)[(own != 0) & (own != 1)]
            self._found = self._found._replace(sample=_smallest(self._found.sample, found))
        return self._found


def _bits(numbers: Array) -> Array:
    """Return the bits of numbers as float32, without checking them."""
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
