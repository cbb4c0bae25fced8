"""What tells labelled rows from others: a digest that parts of the rows can make separately."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evencover._validation import Array
from evencover.randomness import places

if TYPE_CHECKING:
    from evencover.data.source import Block


class Fingerprint(NamedTuple):
    """The first row, and the sum (modulo 2**64) of 64 bits hashed from each place and label.

    A sum does not care how the rows were cut into blocks and parts, nor in which order these
    were read. Two data sets that differ share it by chance once in 2**64.
    """

    first_row: bytes = b""
    total: int = 0

    @classmethod
    def of(cls, block: Block) -> Fingerprint:
        """The fingerprint of one block, which knows its place in the whole input."""
        first = block.rows[:1].astype(np.float64).tobytes() if block.start == 0 else b""
        if block.labels is None:
            return cls(first)
        at = places(block.start, block.start + len(block.labels))
        keys = at * np.uint64(block.rows.shape[1]) + block.labels.astype(np.uint64)
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
