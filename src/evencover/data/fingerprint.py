"""Identify labeled rows by a digest that partitions compute separately."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from evencover._kernels.reference import mixed
from evencover.arrays import Array, IntArray
from evencover.randomness import places

# With few classes, about one row in 16 is hashed; with many, all rows of some classes, because
# reading a number of each row would be slow. The smallest hashes are kept.
FEW_CLASSES, ONE_ROW_IN, ONE_CLASS_IN, LEAST_CLASSES, MOST_KEPT = 256, 16, 64, 16, 1024
MOST_NUMBERS = 64  # per row, around the true class
MOST_WAITING = 4096  # rows buffered before hashing


class Fingerprint(NamedTuple):
    """The first row, and the sum modulo 2**64 of hashes of each row's number and label.

    The sum does not depend on blocks, partitions or their order. Two different data sets collide
    with probability 2**-64. ``sample`` (n, 2) has content hashes of some rows, chosen by content to
    detect copies in other data, and the indices of these rows.
    """

    start: int = 2**63
    first_row: str = ""
    total: int = 0
    sample: Array = np.zeros((0, 2), dtype=np.uint64)

    def __add__(self, other: Fingerprint) -> Fingerprint:  # type: ignore[override]
        first, sample = self if self.start <= other.start else other, self.sample
        if len(other.sample):
            both = np.concatenate([sample, other.sample])
            sample = both[np.lexsort(both.T[::-1])[:MOST_KEPT]]
        return first._replace(total=(self.total + other.total) % 2**64, sample=sample)

    @property
    def limit(self) -> int:
        """The hash up to which the sample is complete."""
        return int(self.sample[-1, 0]) if len(self.sample) == MOST_KEPT else 2**64 - 1

    def copies_of(self, hashes: Array, limit: int) -> tuple[int, int]:
        """Count these rows in another sample, and the rows that could be in it."""
        comparable = self.sample[self.sample[:, 0] <= np.uint64(limit), 0]
        return int(np.isin(comparable, hashes).sum()), len(comparable)

    def hexdigest(self) -> str:
        """Return the fingerprint as text: first row and sum."""
        return f"{self.first_row}{self.total:016x}"


def sum_of(start: int, labels: IntArray, n_classes: int) -> int:
    """Sum the hashes of labels and their indices, from `start` on."""
    keys = places(start, start + len(labels)) * np.uint64(n_classes) + labels.astype(np.uint64)
    return int(mixed(keys).sum(dtype=np.uint64))


class Sampler:
    """Fingerprint a stream of blocks, with a sample of the labeled rows.

    Labels and their numbers select the rows, so the same rows are selected in any data. Rows with 0
    or 1 for their label are left out, because saturated models produce many of them. Selected rows
    are hashed in batches.
    """

    def __init__(self) -> None:
        self._found = Fingerprint()
        self._waiting: list[tuple[Array, Array, IntArray, Array]] = []
        self._n_waiting = 0

    def add(self, start: int, rows: Array, labels: IntArray | None) -> None:
        """Add a block that starts at row `start` of the whole input."""
        if not self._found.first_row and len(rows):
            row = hashlib.blake2b(rows[0].astype(np.float64).tobytes(), digest_size=8)
            self._found += Fingerprint(start, row.hexdigest())
        if labels is None:
            return
        self._found += Fingerprint(total=sum_of(start, labels, rows.shape[1]))
        looked_into = np.append(_looked_into(rows.shape[1]), False)  # not for unknown labels
        chosen = np.flatnonzero(looked_into[labels])
        own, labels = rows[chosen, labels[chosen]], labels[chosen]
        if rows.shape[1] <= FEW_CLASSES:
            thin = mixed(_bits(own)) % ONE_ROW_IN == 0
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
            hashes = mixed(np.einsum("ij,j->i", _bits(some), odd) + labels.astype(np.uint64))
            found = np.stack([hashes, numbers.astype(np.uint64)], axis=1)[(own != 0) & (own != 1)]
            self._found += Fingerprint(sample=found)
        return self._found


def _bits(numbers: Array) -> Array:
    """Return the bits of numbers as float32, unchecked."""
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(np.float32, copy=False).view(np.uint32).astype(np.uint64)


@lru_cache(maxsize=8)
def _looked_into(n_classes: int) -> Array:
    """Return which classes (K,) are sampled."""
    if n_classes <= FEW_CLASSES:
        return np.ones(n_classes, dtype=bool)
    looked_into = np.zeros(n_classes, dtype=bool)
    scattered = np.argsort(mixed(np.arange(1, n_classes + 1, dtype=np.uint64)))
    looked_into[scattered[: max(LEAST_CLASSES, n_classes // ONE_CLASS_IN)]] = True
    return looked_into
