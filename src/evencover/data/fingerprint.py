"""Identify labeled rows by a digest that partitions compute separately."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from math import isqrt
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from evencover import _kernels
from evencover._kernels.reference import mixed
from evencover.arrays import Array, IntArray
from evencover.precision import precision_of
from evencover.sizes import at_once, sampled
from evencover.topk import TopK, fewer, smallest_k

Result = TypeVar("Result")

# With few classes, about one row in 16 is hashed; with many, all rows of some classes, because
# reading a number of each row would be slow. The smallest hashes are kept.
FEW_CLASSES, ONE_ROW_IN, ONE_CLASS_IN, LEAST_CLASSES, MOST_KEPT = 256, 16, 64, 16, 1024
MOST_CLASSES = 256  # with 4 rows each, these have as many as are kept
MOST_NUMBERS = 64  # per row, around the true class
MOST_WAITING = at_once(4096, 3)  # sampled rows of blocks that are not joined yet
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
    with probability 2**-64. ``sample`` (n, 2) has content hashes of some rows, chosen by content to
    detect copies in other data, and the indices of these rows. ``rows`` is a random sample.
    """

    start: int = 2**63
    first_row: str = ""
    total: int = 0
    sample: Array = np.zeros((0, 2), dtype=np.uint64)
    rows: RowSample | None = None
    limit: int = 2**64 - 1  #: the hash up to which the sample is complete
    k: int | None = None  #: the fewest classes that a row lists; None if all rows list all

    @property
    def precision(self) -> float | None:
        """The precision of the numbers; None if they are too few."""
        return None if self.rows is None else precision_of(self.rows.numbers)

    def copies_of(self, hashes: Array, limit: int) -> tuple[int, int]:
        """Count these rows in another sample, and the rows that could be in it."""
        comparable = self.sample[self.sample[:, 0] <= np.uint64(limit), 0]
        return int(np.isin(comparable, hashes).sum()), len(comparable)

    def hexdigest(self) -> str:
        """Return the fingerprint as text: first row and sum."""
        return f"{self.first_row}{self.total:016x}"


def sum_of(labels: IntArray, n_classes: int) -> int:
    """Sum the hashes of labels (n,) and their indices."""
    return _kernels.sample_labels(labels, 0, np.zeros(n_classes, dtype=bool), 0, 1)[0]


@dataclass
class Sampler:
    """Fingerprint an input block by block, with a sample of the labeled rows.

    Labels and their numbers select the rows, so the same rows are selected in any data. Rows with 0
    or 1 for their label are left out, because saturated models produce many of them. Another sample
    is random: hashes of indices and labels select it. If `n_rows` of the whole input is known, few
    more are copied than are kept. `first` is the index of its first row.
    """

    n_rows: int | None = None
    first: int = 0
    _parts: list[Fingerprint] = field(default_factory=list)
    _largest_key: int = 2**64 - 1  # larger ones are not among the smallest
    _n_waiting: int = 0  # sampled rows of the parts
    _n_drawn: int = 0  # random rows of the parts

    def fresh(self) -> Sampler:
        """Return a sampler for a partition of the same input."""
        return Sampler(self.n_rows, self.first)

    def of(self, start: int, rows: Any, labels: IntArray | None) -> Fingerprint:
        """Fingerprint a block that starts at row `start` of the whole input, on any thread."""
        part = Fingerprint()
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
        total, of_classes, drawn, keys = _kernels.sample_labels(
            labels, start, _sampled_classes(rows.shape[1]), self._largest(size), size.stride
        )
        return part._replace(
            total=total,
            k=k,
            sample=_content_sample(start, rows, labels, of_classes),
            rows=_row_sample(size, rows, labels, drawn, keys),
        )

    def _largest(self, size: SampleSize) -> int:
        """Return a key that few more rows have at most than are kept."""
        if self.n_rows is None:
            return self._largest_key
        enough = size.n_rows + 4 * isqrt(size.n_rows)  # by four standard deviations
        return min(self._largest_key, 2**64 * enough * size.stride // max(self.n_rows, 1))

    def add(self, part: Fingerprint) -> None:
        """Add a block or partition; merge all so far where they take much memory."""
        self._parts.append(part)
        self._n_waiting += len(part.sample)
        self._n_drawn += 0 if part.rows is None else len(part.rows.keys)
        are_many = len(self._parts) > MOST_PARTS or self._n_waiting > MOST_WAITING
        if are_many or (part.rows is not None and self._n_drawn > 2 * part.rows.size.n_rows):
            merged = self.result()
            self._parts, self._n_waiting, self._n_drawn = [merged], len(merged.sample), 0
            if merged.rows is not None:
                self._n_drawn = len(merged.rows.keys)
                if self._n_drawn == merged.rows.size.n_rows:
                    self._largest_key = int(merged.rows.keys[-1])

    def collected(self, results: Iterable[tuple[Result, Fingerprint]]) -> Iterator[Result]:
        """Pass the results of blocks or partitions on; add their fingerprints."""
        for result, part in results:
            self.add(part)
            yield result

    def result(self) -> Fingerprint:
        """Merge the fingerprints of all blocks and partitions so far."""
        if not self._parts:
            return Fingerprint()
        _, _, totals, samples, rows, _, listed = zip(*self._parts, strict=True)
        sample, random_samples = np.concatenate(samples), tuple(filter(None, rows))
        sample = sample[np.lexsort(sample.T[::-1])[:MOST_KEPT]]
        return min(self._parts, key=itemgetter(0))._replace(
            total=sum(totals) % 2**64,
            sample=sample,
            rows=RowSample.join(random_samples) if random_samples else None,
            limit=int(sample[-1, 0]) if len(sample) == MOST_KEPT else 2**64 - 1,
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


def _content_sample(start: int, rows: Any, labels: IntArray, chosen: IntArray) -> Array:
    """Return hashes (n, 2) of rows of sampled classes, and the indices of these rows."""
    labels = labels[chosen]
    if isinstance(rows, TopK):
        rows = rows[chosen]
        values = rows.pick(rows.values, labels, 0)
    else:
        values = rows[chosen, labels]
    is_chosen = (values != 0) & (values != 1)
    if rows.shape[1] <= FEW_CLASSES:
        is_chosen &= mixed(_bits(values)) % ONE_ROW_IN == 0
    chosen, labels = chosen[is_chosen], labels[is_chosen]
    width = min(MOST_NUMBERS, rows.shape[1])
    columns = rows.classes if isinstance(rows, TopK) else np.arange(width)
    factors = (2 * columns.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    if isinstance(rows, TopK):  # all numbers, because most around the label are not listed
        upto = np.append(np.uint64(0), np.cumsum(_bits(rows.values) * factors, dtype=np.uint64))
        contents = (upto[rows.starts[1:]] - upto[rows.starts[:-1]])[is_chosen]
    else:
        first = np.minimum(np.maximum(labels - width // 2, 0), rows.shape[1] - width)
        around = rows[chosen[:, None], first[:, None] + columns]
        contents = np.einsum("ij,j->i", _bits(around), factors)
    hashes = mixed(contents + labels.astype(np.uint64))
    return np.stack([hashes, (chosen + start).astype(np.uint64)], axis=1)


def _bits(numbers: Array) -> Array:
    """Return the bits of numbers as float32, unchecked."""
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(np.float32, copy=False).view(np.uint32).astype(np.uint64)


@lru_cache(maxsize=8)
def _sampled_classes(n_classes: int) -> Array:
    """Return which classes (K,) are sampled."""
    if n_classes <= FEW_CLASSES:
        return np.ones(n_classes, dtype=bool)
    is_sampled = np.zeros(n_classes, dtype=bool)
    scattered = np.argsort(mixed(np.arange(1, n_classes + 1, dtype=np.uint64)))
    n_sampled = min(MOST_CLASSES, max(LEAST_CLASSES, n_classes // ONE_CLASS_IN))
    is_sampled[scattered[:n_sampled]] = True
    return is_sampled
