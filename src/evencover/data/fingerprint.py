"""Identify labeled rows by a digest that partitions compute separately."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import isqrt
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, IntArray
from evencover.precision import precision_of
from evencover.sizes import at_once, sampled
from evencover.topk import TopK, fewer, smallest_k

Result = TypeVar("Result")

MOST_PARTS = at_once(16, 2)  # fingerprints of partitions, half a megabyte each
# Rows that are kept to test labels: 256 KB of float32, or enough rows of many classes.
KEPT_ELEMENTS, KEPT_CLASSES = sampled(1 << 16, 600), 512
LEAST_ROWS, MOST_ROWS = sampled(128, 60), 2048


class SampleSize(NamedTuple):
    """How many rows to keep, and of which classes: every `stride`-th."""

    n_rows: int
    stride: int

    @classmethod
    def of(cls, n_classes: int, n_rows: int | None) -> SampleSize:
        """Return the size for an input; few rows of many classes need more of the classes."""
        stride = max(1, n_classes // KEPT_CLASSES)
        if n_rows is not None:
            stride = max(1, min(stride, n_rows // (2 * LEAST_ROWS)))
        n_kept = KEPT_ELEMENTS // -(-n_classes // stride)
        return cls(max(LEAST_ROWS, min(MOST_ROWS, n_kept)), stride)


class RowSample(NamedTuple):
    """A random sample of labeled rows, in random order; blocks and partitions do not affect it.

    Of many classes it has every `stride`-th, and rows with such a label.
    """

    size: SampleSize
    keys: Array  #: (n,) hashes of indices and labels, ascending
    labels: IntArray  #: (n,)
    top: IntArray  #: (n,) most probable class of all
    numbers: Array  #: (n, D) the row's numbers for some classes

    @classmethod
    def join(cls, samples: Sequence[RowSample]) -> RowSample:
        """Merge samples; keep the rows with the smallest keys."""
        size = samples[0].size
        _, keys, labels, top, numbers = map(np.concatenate, zip(*samples, strict=True))
        order = np.argsort(keys)[: size.n_rows]
        return cls(size, keys[order], labels[order], top[order], numbers[order])


class Fingerprint(NamedTuple):
    """The first row, and the sum modulo 2**64 of hashes of each row's number and label.

    The sum does not depend on blocks, partitions or their order. Two different data sets collide
    with probability 2**-64. ``rows`` is a random sample.
    """

    start: int = 2**63
    first_row: str = ""
    total: int = 0
    rows: RowSample | None = None
    k: int | None = None  #: the fewest classes that a row lists; None if all rows list all

    @property
    def precision(self) -> float | None:
        """The precision of the numbers; None if they are too few."""
        return None if self.rows is None else precision_of(self.rows.numbers)

    def hexdigest(self) -> str:
        """Return the fingerprint as text: first row and sum."""
        return f"{self.first_row}{self.total:016x}"


def sum_of(labels: IntArray, n_classes: int) -> int:
    """Sum the hashes of labels (n,) and their indices."""
    return _kernels.sample_labels(labels, 0, n_classes, 0, 1)[0]


@dataclass
class Sampler:
    """Fingerprint an input block by block, with a random sample of the labeled rows.

    Hashes of indices and labels select the sample. If `n_rows` of the whole input is known, few
    more are copied than are kept. `first` is the index of its first row.
    """

    n_rows: int | None = None
    first: int = 0
    _parts: list[Fingerprint] = field(default_factory=list)
    _largest_key: int = 2**64 - 1  # larger ones are not among the smallest
    _n_drawn: int = 0  # sampled rows of the parts

    def fresh(self) -> Sampler:
        """Return a sampler for a partition of the same input."""
        return Sampler(self.n_rows, self.first)

    def of(self, block: Any) -> Fingerprint:
        """Fingerprint a block of the input, on any thread."""
        start, rows, labels, part = block.start, block.rows, block.labels, Fingerprint()
        if not len(rows):
            return part
        k = smallest_k(rows)
        if start == self.first:
            row = rows[:1].to_dense()[0] if isinstance(rows, TopK) else rows[0]
            listed = np.flatnonzero(row)
            content = listed.tobytes() + row[listed].astype(np.float64).tobytes()
            part = Fingerprint(start, hashlib.blake2b(content, digest_size=8).hexdigest())
        if labels is None:
            return part._replace(k=k)
        size = SampleSize.of(rows.shape[1], self.n_rows)
        total, drawn, keys = _kernels.sample_labels(
            labels, start, rows.shape[1], self._largest(size), size.stride
        )
        return part._replace(total=total, k=k, rows=_row_sample(size, rows, labels, drawn, keys))

    def _largest(self, size: SampleSize) -> int:
        """Return a key that few more rows have at most than are kept."""
        if self.n_rows is None:
            return self._largest_key
        enough = size.n_rows + 4 * isqrt(size.n_rows)  # by four standard deviations
        return min(self._largest_key, 2**64 * enough * size.stride // max(self.n_rows, 1))

    def add(self, part: Fingerprint) -> None:
        """Add a block or partition; merge all so far where they take much memory."""
        self._parts.append(part)
        self._n_drawn += 0 if part.rows is None else len(part.rows.keys)
        is_much = part.rows is not None and self._n_drawn > 2 * part.rows.size.n_rows
        if is_much or len(self._parts) > MOST_PARTS:
            merged = self.result()
            self._parts, self._n_drawn = [merged], 0
            if merged.rows is not None:
                self._n_drawn = len(merged.rows.keys)
                if self._n_drawn == merged.rows.size.n_rows:
                    self._largest_key = int(merged.rows.keys[-1])

    def result(self) -> Fingerprint:
        """Merge the fingerprints of all blocks and partitions so far."""
        if not self._parts:
            return Fingerprint()
        _, _, totals, rows, listed = zip(*self._parts, strict=True)
        samples = tuple(filter(None, rows))
        return min(self._parts, key=itemgetter(0))._replace(
            total=sum(totals) % 2**64,
            rows=RowSample.join(samples) if samples else None,
            k=reduce(fewer, listed),
        )


def _row_sample(
    size: SampleSize, rows: Any, labels: IntArray, drawn: IntArray, keys: Array
) -> RowSample:
    """Return the rows that were drawn by their keys."""
    if isinstance(rows, TopK):
        some = rows[drawn]
        numbers, top = some.every(size.stride), some.argmax(axis=1)
    else:
        numbers = rows[drawn, :: size.stride]
        top = numbers.argmax(axis=1)
        if size.stride > 1:
            top = np.array([rows[row].argmax() for row in drawn], dtype=np.int64)
    return RowSample(size, keys, labels[drawn], top, numbers)
