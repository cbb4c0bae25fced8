"""Sources: rows from anywhere as one stream of row blocks; arrays and iterables as such."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from evencover._validation import (
    Array,
    InputError,
    IntArray,
    label_indices,
    list_of_labels,
    score_rows,
)
from evencover.data.columns import by_rank
from evencover.data.fingerprint import Fingerprint, Sampler
from evencover.data.objects import unpacked
from evencover.errors import listed

# About 16 MB of float32: threads that hand over smaller blocks wait for each other.
BLOCK_ELEMENTS = 1 << 22
# About 128 MB of float32: what one machine of many is given at a time.
PART_ELEMENTS = 1 << 25


class Block(NamedTuple):
    """Consecutive rows of the input.

    Attributes
    ----------
    start
        Number of the first row in the whole input.
    rows
        (n, K) scores by class.
    labels
        (n,) class indices, if there are any.
    source
        Where the rows come from; None if they are at hand.
    """

    start: int
    rows: Array
    labels: IntArray | None
    source: Source | None

    def place(self, row: int) -> str:
        """What a message calls a row of this block: its file, and its number there."""
        if self.source is None:
            return f"row {self.start + row}"
        return self.source.place(self.start - self.source.offset + row)


class Source(ABC):
    """A stream of rows with one column per class.

    Attributes
    ----------
    n_classes, n_rows
        The shape; ``n_rows`` is None where only reading to the end would tell.
    class_names
        One name per class, or None.
    logits
        Whether the input says that it holds logits; None if it does not say.
    name
        What messages call it.
    labels
        Labels of all rows if they are kept apart from the rows, else None.
    has_labels
        Whether blocks come with labels.
    labels_given
        Whether the labels were given apart, rather than found with the rows.
    labels_by_name
        Whether the labels that are kept apart were class names.
    numbers_are_names
        Whether the classes are called by whole numbers, and labels that are numbers are names.
    may_be_ranked
        Whether the rows may hold a few best classes by rank, as top-k files do; they are refused.
    used, left_out
        What columns or arrays were taken for, and why others were not; for `evencover info`.
    first_row
        Number of the first row in the file, for messages; not 0 in a part of a file.
    offset
        Number of the first row in the whole input, of which this may be a part.
    index
        (N,) the index of the frame that holds the rows, which labels with an index are joined by.
    matching
        How labels that were given apart were matched with the rows; None if only by position.
    ignores_ids
        Whether ids that come with the rows are left unread.
    rows_read
        Tells these labelled rows from others; known once they have been read to the end.
    watch
        Wraps the stream of blocks, for a progress bar; None leaves it alone.
    """

    n_classes: int
    n_rows: int | None = None
    class_names: Sequence[str] | None = None
    logits: bool | None = None
    name: str = "the input"
    labels: Array | None = None
    has_labels: bool = False
    labels_given: bool = False
    labels_by_name: bool = False
    numbers_are_names: bool = False
    may_be_ranked: bool = False
    used: Mapping[str, str] = MappingProxyType({})
    left_out: Mapping[str, str] = MappingProxyType({})
    first_row: int = 0
    offset: int = 0
    index: Array | None = None
    matching: str | None = None
    ignores_ids: bool = False
    rows_read: Fingerprint | None = None
    watch: Callable[[Iterator[Block]], Iterator[Block]] | None = None
    _ids: Array | None = None
    _label_place: Callable[[int], str] | None = None
    _labels_checked: bool = False

    @property
    def ids(self) -> Array | None:
        """(N,) ids found with the rows, as they are; read when they are asked for."""
        if self.ignores_ids:
            return None
        if self._ids is None:
            self._ids = self._read_ids()
        return self._ids

    def _read_ids(self) -> Array | None:
        return None

    @abstractmethod
    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Raw blocks of rows, and their labels where they are stored with the rows."""

    def split(self) -> list[Source] | None:
        """New sources for consecutive ranges of the rows; None if the rows cannot travel."""
        return None

    def parts(self) -> Sequence[Source] | None:
        """The same rows as sources that can be pickled and opened on another machine, in order.

        Each knows its ``n_rows`` and takes its labels along. None if there is no file to open
        elsewhere (arrays, iterables).
        """
        parts = self.split()
        start = 0
        for part in parts or ():
            part.class_names, part.logits, part.watch = self.class_names, self.logits, None
            part._ids, part._label_place = None, None  # the engine sends the ids, as numbers
            assert part.n_rows is not None
            if self.labels is not None:
                part.labels, part.has_labels = self.labels[start : start + part.n_rows], True
                part._labels_checked = self._labels_checked
            start += part.n_rows
        return parts

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the progress bar, which stays where it is shown."""
        return {key: value for key, value in self.__dict__.items() if key != "watch"}

    def place(self, row: int) -> str:
        """What a message calls a row of this source."""
        of_file = "" if self.name == Source.name else f" of {self.name}"
        return f"row {self.first_row + row}{of_file}"

    def attach_labels(self, labels: Any, place: Callable[[int], str] | None = None) -> None:
        """Use these labels, one per row, instead of any that come with the rows.

        Class indices are kept in as few bytes as their number allows: parts take them along.
        Messages call a label by what `place` makes of its row's number.
        """
        self.labels, self._label_place = list_of_labels(labels), place
        self.has_labels, self._labels_checked = True, False
        self.labels_by_name = self.labels.dtype.kind in "UOT" or self.numbers_are_names
        self.check_kept_labels()

    def check_kept_labels(self) -> None:
        """Turn labels that are kept apart into class indices, unless names are still to come."""
        if self.labels is None or self.n_rows is None or self._labels_checked:
            return
        if self.class_names is None and self.labels.dtype.kind in "UOT":
            return
        checked = self._check_labels(self.labels, self.n_rows)
        self.labels = checked.astype(np.min_scalar_type(max(0, self.n_classes - 1)))
        self._labels_checked = True

    def blocks(self) -> Iterator[Block]:
        """Checked blocks: right number of columns, labels that are class indices."""
        return self._checked_blocks() if self.watch is None else self.watch(self._checked_blocks())

    @property
    def fingerprint(self) -> str | None:
        """What tells the `rows_read` from others, as text."""
        return None if self.rows_read is None else self.rows_read.hexdigest()

    def _checked_blocks(self) -> Iterator[Block]:
        start = 0
        fingerprint, sampler = Fingerprint(), Sampler()
        for raw, labels in self.labelled_blocks():
            rows = score_rows(raw)
            if rows.shape[1] != self.n_classes:
                raise InputError(
                    f"All rows of {self.name} must have {self.n_classes} classes. "
                    f"Got {rows.shape[1]} from {self.place(start)} on."
                )
            stop = start + len(rows)
            if start == 0 and self.may_be_ranked and _is_ranked(rows):
                raise by_rank(self.name, f"{len(rows)} rows of {rows.shape[1]} falling numbers")
            if labels is not None:
                labels = self._check_labels(labels, len(rows), start)
            block = Block(self.offset + start, rows, labels, self)
            yield block  # work on it may begin
            fingerprint += Fingerprint.of(block.start, rows, labels, is_first=start == 0)
            if labels is not None:
                sampler.add(block.start, rows, labels)
            start = stop
        self.rows_read = fingerprint + sampler.result()
        if start == 0:
            raise InputError(f"There must be at least one row. Got none in {self.name}.")
        if self.labels is not None and len(self.labels) != start:
            raise InputError(
                f"'labels' must have one entry per row. Got {len(self.labels)} labels "
                f"for {start} rows."
            )

    def labelled_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Raw blocks of rows with their raw labels, wherever these are kept."""
        if self.labels is None:
            yield from self.row_blocks()
            return
        start = 0
        for rows, _ in self.row_blocks():
            stop = start + len(rows)
            yield rows, self.labels[start:stop]
            start = stop

    def _check_labels(self, labels: Any, n_rows: int, start: int = 0) -> IntArray:
        """Labels as class indices; `start` is the row of the first of them."""
        place = self._label_place or self.place
        return label_indices(
            labels,
            self.class_names,
            self.n_classes,
            n_rows,
            f"'labels' of {self.name}",
            lambda row: place(start + row),
            numbers_are_names=self.numbers_are_names and not self._labels_checked,
        )


def rows_per_block(n_classes: int) -> int:
    """How many rows make a block."""
    return max(1, BLOCK_ELEMENTS // max(1, n_classes))


def rows_per_part(n_classes: int) -> int:
    """How many rows make a part."""
    return max(1, PART_ELEMENTS // max(1, n_classes))


def slices(rows: Any) -> Iterator[Any]:
    """A matrix cut into blocks, without a copy."""
    step = rows_per_block(rows.shape[1])
    return (rows[start : start + step] for start in range(0, len(rows), step))


class ArraySource(Source):
    """An array or memory map, cut into blocks."""

    def __init__(self, rows: Any, class_names: Sequence[str] | None = None) -> None:
        self.rows = score_rows(rows)
        self.n_rows, self.n_classes = self.rows.shape
        self.class_names = class_names

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Slices of the array; nothing is copied."""
        return ((rows, None) for rows in slices(self.rows))


def _is_ranked(rows: Array) -> bool:
    """Whether the numbers of every row fall; by chance one row in K! does."""
    return (
        rows.shape[1] > 2
        and len(rows) > 4
        and all(bool((part[:, 1:] <= part[:, :-1]).all()) for part in (rows[:5], rows))
        and bool((rows[:, 0] > rows[:, -1]).any())
    )


class IterableSource(Source):
    """Blocks that somebody else makes, such as the batches of a data loader; read once."""

    def __init__(self, blocks: Iterable[Any]) -> None:
        stream = iter(blocks)
        first = next(stream, None)
        if first is None:
            raise InputError("There must be at least one block of rows. Got none.")
        self._stream = itertools.chain([first], stream)
        found = unpacked(first)
        self.n_classes = score_rows(found.rows).shape[1]
        self.has_labels = found.labels is not None
        self.class_names = self._first_names = found.class_names
        self.logits, self.numbers_are_names = found.logits, found.numbers_are_names

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """The blocks, cut where they are too large."""
        for block in self._stream:
            found = unpacked(block)
            rows = score_rows(found.rows)
            labels = None if found.labels is None else list_of_labels(found.labels)
            if (labels is not None) != self.has_labels and self.labels is None:
                raise InputError("All blocks must come with labels, or none.")
            if labels is not None and len(labels) != len(rows):
                raise InputError(
                    f"Each block must have one label per row. Got {len(labels)} labels "
                    f"for {len(rows)} rows."
                )
            if found.class_names is not None and self._first_names != found.class_names:
                raise InputError(
                    "All blocks must have the same columns in the same order. "
                    f"Got {listed(found.class_names, 5)} in one of them."
                )
            start = 0
            for part in slices(rows):
                stop = start + len(part)
                yield part, None if labels is None else labels[start:stop]
                start = stop
