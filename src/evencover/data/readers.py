"""Readers: the rows of one input in blocks, from memory or from several files one after another."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple, Self

from evencover.arrays import Array
from evencover.rows import score_rows
from evencover.sizes import at_once
from evencover.topk import TopK, numbers_per_row

# About 16 MB of float32: smaller blocks make threads wait for each other.
BLOCK_ELEMENTS = at_once(1 << 22)
# About 128 MB of float32: the unit of work of one machine.
PART_ELEMENTS = at_once(1 << 25, 700)


def rows_per_block(n_numbers: int) -> int:
    """Return the number of rows of a block, of `n_numbers` each."""
    return max(1, BLOCK_ELEMENTS // max(1, n_numbers))


def rows_per_part(n_classes: int) -> int:
    """Return the number of rows of a partition."""
    return max(1, PART_ELEMENTS // max(1, n_classes))


class RawBlock(NamedTuple):
    """Rows as a reader yields them; streams also yield the labels and ids of each block."""

    rows: Any
    labels: Array | None = None
    ids: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Reader(ABC):
    """Reads the rows of one input, any number of times unless it is a stream."""

    n_classes: int  #: 0 if unknown, because there are no rows
    n_rows: int | None  #: None for a stream
    name: str = "the input"  #: the name in messages
    first_row: int = 0  #: index of the first row in its file; not 0 in a partition
    has_labels: bool = False  #: whether each block comes with labels
    has_ids: bool = False  #: whether each block comes with ids
    is_top_k: bool = False  #: whether rows list their classes (`TopK`)
    may_lack_classes: bool = False  #: whether rows may lack classes, so that labels can be unlisted

    @abstractmethod
    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the rows, in blocks of at most `rows_per_block`."""

    def split(self) -> Sequence[Reader] | None:
        """Split the rows into readers that can be pickled; None if workers cannot open them."""
        return None

    def without_ids(self) -> Reader:
        """Return a reader whose blocks come without ids."""
        return self

    def cut(self, start: int, n_rows: int) -> Self:
        """Copy this reader for `n_rows` of its rows, from `start` on."""
        return replace(self, first_row=self.first_row + start, n_rows=n_rows)

    def row_name(self, row: int) -> str:
        """Describe a row in messages."""
        of_file = "" if self.name == Reader.name else f" of {self.name}"
        return f"row {self.first_row + row}{of_file}"

    def identity_of_rows(self) -> tuple[Any, ...] | None:
        """Identify the rows without reading them; None if that is impossible."""
        return None


def slices(rows: Any, labels: Array | None = None, ids: Array | None = None) -> Iterator[RawBlock]:
    """Split a matrix, its labels and its ids into blocks without a copy."""
    # A listed class is two numbers; these blocks are half as long, so threads end together.
    listed = 2 * numbers_per_row(rows) if isinstance(rows, TopK) else rows.shape[1]
    step = rows_per_block(listed)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        some_labels = None if labels is None else labels[part]
        yield RawBlock(rows[part], some_labels, None if ids is None else ids[part])


@dataclass(frozen=True, kw_only=True)
class ArrayReader(Reader):
    """Splits an array, a memory map or top-k rows into blocks."""

    rows: Any

    def row_blocks(self) -> Iterator[RawBlock]:
        """Split the array."""
        return slices(self.rows)


def read_array(rows: Any, **about: Any) -> ArrayReader:
    """Read rows in memory; `about` are fields of the reader."""
    matrix = score_rows(rows)
    n_rows, n_classes = matrix.shape
    if isinstance(matrix, TopK):
        about |= {"is_top_k": True, "may_lack_classes": matrix.size < n_rows * n_classes}
    return ArrayReader(rows=matrix, n_rows=n_rows, n_classes=n_classes, **about)


@dataclass(frozen=True, kw_only=True)
class ConcatenatedReader(Reader):
    """Reads several files with the same classes, one after the other."""

    readers: tuple[Reader, ...]

    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the blocks of each file."""
        return itertools.chain.from_iterable(reader.row_blocks() for reader in self.readers)

    def split(self) -> Sequence[Reader]:
        """Split each file."""
        return [part for reader in self.readers for part in reader.split() or [reader]]

    def row_name(self, row: int) -> str:
        """Describe a row by its file and its index there."""
        starts = list(accumulate((reader.n_rows or 0 for reader in self.readers), initial=0))
        which = min(bisect_right(starts, row), len(self.readers)) - 1
        return self.readers[which].row_name(row - starts[which])
