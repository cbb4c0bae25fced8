"""What tells labelled rows from others: a digest that parts of the rows can make separately."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from evencover._types import Array, IntArray
from evencover.randomness import places


class Fingerprint(NamedTuple):
    """The first row, and the sum (modulo 2**64) of 64 bits hashed from each row's number and label.

    A sum does not care how the rows were cut into blocks and parts, nor in which order these
    were read. Two data sets that differ share it by chance once in 2**64.
    """

    first_row: bytes = b""
    total: int = 0

    @classmethod
    def of(cls, start: int, rows: Array, labels: IntArray | None) -> Fingerprint:
        """The fingerprint of one block, whose first row is number `start` of the whole input."""
        first = rows[:1].astype(np.float64).tobytes() if start == 0 else b""
        if labels is None:
            return cls(first)
        numbers = places(start, start + len(labels))
        keys = numbers * np.uint64(rows.shape[1]) + labels.astype(np.uint64)
        return cls(first, int(_mixed(keys).sum(dtype=np.uint64)))

    def __add__(self, other: Fingerprint) -> Fingerprint:  # type: ignore[override]
        return Fingerprint(self.first_row or other.first_row, (self.total + other.total) % 2**64)

    def hexdigest(self) -> str:
        """The fingerprint as text."""
        content = self.total.to_bytes(8, "little") + self.first_row
        return hashlib.blake2b(content, digest_size=16).hexdigest()


def _mixed(keys: Array) -> Array:
    """Scatter 64-bit numbers, one to one: the finaliser of SplitMix64 (Steele et al. 2014)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
