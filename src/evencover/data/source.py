"""Sources: streams of row blocks from any input."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.data.columns import by_rank
from evencover.data.fingerprint import Fingerprint
from evencover.data.frames import unpacked
from evencover.errors import InputError, listed
from evencover.validation import label_indices, list_of_labels, score_rows, unknown_label

# About 16 MB of float32: smaller blocks make threads wait for each other.
BLOCK_ELEMENTS = 1 << 22
# About 128 MB of float32: the unit of work of one machine.
PART_ELEMENTS = 1 << 25

RawBlocks = Iterator[tuple[Array, Array | None]]


class Block(NamedTuple):
    """Consecutive rows of the input."""

    start: int  #: index of the first row in the whole input
    rows: Array  #: (n, K) scores by class
    labels: IntArray | None  #: (n,) class indices, if any
    source: Source | None  #: None for rows in memory

    @property
    def known_labels(self) -> IntArray:
        """The labels, with an arbitrary class for unknown ones."""
        assert self.labels is not None
        return np.minimum(self.labels, self.rows.shape[1] - 1)

    def place(self, row: int) -> str:
        """Describe a row of this block in messages: its file, and its number there."""
        if self.source is None:
            return f"row {self.start + row}"
        return self.source.place(self.start - self.source.offset + row)


@dataclass(frozen=True)
class SourceInfo:
    """Facts about an input that are known before reading its rows."""

    n_classes: int
    n_rows: int | None = None  #: None if unknown before the end
    class_names: Sequence[str] | None = None
    logits: bool | None = None  #: whether the rows are logits; None if the input does not state it
    name: str = "the input"  #: the name in messages
    has_labels: bool = False  #: whether labels are stored with the rows
    numbers_are_names: bool = False  #: whether integer labels are class names
    allow_unknown: bool = False  #: whether labels may be unknown names: index n_classes
    may_be_ranked: bool = False  #: whether rows may have the top classes by rank, as in top-k files
    used: Mapping[str, str] = field(default_factory=dict)  #: the use of each column or array
    left_out: Mapping[str, str] = field(default_factory=dict)  #: why others are not used
    first_row: int = 0  #: index of the first row in the file; not 0 in a partition of a file


def _fact(name: str, doc: str) -> Any:
    """Make a property that reads a field of `SourceInfo`."""
    return property(attrgetter(f"info.{name}"), doc=doc)


class Source(ABC):
    """A stream of rows with one column per class."""

    info: SourceInfo  #: replaced by `set_info`
    location: Any = None  #: the path or URL of the file, if it is one
    labels: Array | None = None  #: of all rows, if stored apart from the rows
    labels_given: bool = False  #: whether the labels were given separately
    labels_by_name: bool = False  #: whether separate labels were class names
    index: Array | None = None  #: (N,) index of the rows' frame, to join labels with an index
    matching: str | None = None  #: how labels were matched to rows; None if by position
    offset: int = 0  #: index of the first row in the whole input
    ignores_ids: bool = False  #: whether stored ids are not read
    rows_read: Fingerprint = Fingerprint()  #: of all rows, if the engine was asked for it
    watch: Callable[[Iterator[Block]], Iterator[Block]] | None = None  #: wraps the blocks
    unknown: tuple[str, str] | None = None  #: the first label of no class, and its place
    _ids: Array | None = None
    _label_place: Callable[[int], str] | None = None
    _labels_checked: bool = False

    n_classes: int = _fact("n_classes", "Number of classes.")
    n_rows: int | None = _fact("n_rows", "Number of rows, if known.")
    class_names: Sequence[str] | None = _fact("class_names", "One name per class, or None.")
    logits: bool | None = _fact("logits", "Whether the rows are logits; None if unknown.")
    name: str = _fact("name", "The name in messages.")

    @property
    def has_labels(self) -> bool:
        """Whether blocks come with labels."""
        return self.labels is not None or self.info.has_labels

    @property
    def ids(self) -> Array | None:
        """(N,) ids stored with the rows, read on demand."""
        if self.ignores_ids:
            return None
        if self._ids is None:
            self._ids = self._read_ids()
        return self._ids

    def set_info(self, **facts: Any) -> None:
        """Replace facts about the rows.

        Convert separate labels to class indices, unless class names are still unknown. Use the
        smallest integer type, because partitions carry their labels.
        """
        self.info = replace(self.info, **facts)
        if self.labels is None or self.n_rows is None or self._labels_checked:
            return
        if self.class_names is not None or self.labels.dtype.kind not in "UOT":
            checked = self.check_labels(self.labels, self.n_rows)
            self.labels = checked.astype(np.min_scalar_type(self.n_classes))
            self._labels_checked = True

    def _read_ids(self) -> Array | None:
        return None

    @abstractmethod
    def row_blocks(self) -> RawBlocks:
        """Read blocks of rows, with labels if they are stored with the rows."""

    def split(self) -> list[Source] | None:
        """Split the rows into new sources; None if they cannot be opened elsewhere."""
        return None

    def parts(self) -> Sequence[Source] | None:
        """Split the rows into sources that can be pickled and opened on another machine, in order.

        Each has its ``n_rows`` and labels. None for inputs without a file (arrays, iterables).
        """
        parts = self.split()
        start = 0
        for part in parts or ():
            part.info = replace(
                part.info,
                class_names=self.class_names,
                logits=self.logits,
                allow_unknown=self.info.allow_unknown,
            )
            part.watch = part._ids = part._label_place = None  # the engine sends the ids
            if isinstance(part.location, Path):  # a worker may have another working directory
                part.location = part.location.absolute()
            assert part.n_rows is not None
            if self.labels is not None:
                part.labels = self.labels[start : start + part.n_rows]
                part._labels_checked = self._labels_checked
            start += part.n_rows
        return parts

    def cut(self, start: int, n_rows: int) -> Self:
        """Copy this source for `n_rows` of its rows, from `start` on."""
        part = copy(self)
        first_row = self.info.first_row + start
        part.info = replace(self.info, n_rows=n_rows, first_row=first_row)
        return part

    def __getstate__(self) -> dict[str, Any]:
        """Drop the progress bar, which cannot be pickled."""
        return {key: value for key, value in self.__dict__.items() if key != "watch"}

    def place(self, row: int) -> str:
        """Describe a row of this source in messages."""
        of_file = "" if self.name == SourceInfo.name else f" of {self.name}"
        return f"row {self.info.first_row + row}{of_file}"

    def attach_labels(self, labels: Any, place: Callable[[int], str] | None = None) -> None:
        """Use these labels, one per row, instead of any stored with the rows.

        Messages use `place` to describe a row.
        """
        self.labels, self._label_place = list_of_labels(labels), place
        self._labels_checked = False
        self.labels_by_name = self.labels.dtype.kind in "UOT" or self.info.numbers_are_names
        self.set_info()

    def check_labels(self, labels: Any, n_rows: int, start: int = 0) -> IntArray:
        """Convert labels of the rows from `start` on to class indices."""
        if self._labels_checked and len(labels) == n_rows:
            return np.asarray(labels, dtype=np.int64)
        place = self._label_place or self.place
        found = label_indices(
            labels,
            self.class_names,
            self.n_classes,
            n_rows,
            f"'labels' of {self.name}",
            lambda row: place(start + row),
            numbers_are_names=self.info.numbers_are_names and not self._labels_checked,
            allow_unknown=self.info.allow_unknown,
        )
        if self.info.allow_unknown and self.unknown is None and (found == self.n_classes).any():
            row = int(found.argmax())
            self.unknown = str(to_numpy(labels).ravel()[row]), place(start + row)
        return found

    def no_known_label(self) -> InputError:
        """Build the error for rows none of whose labels is among the classes."""
        if self.unknown is None or self.class_names is None:
            return InputError(
                f"Labels must be among the {self.n_classes} classes. Got none that is in "
                f"{self.name}."
            )
        return unknown_label(*self.unknown, self.class_names)

    def blocks(self) -> Iterator[Block]:
        """Read checked blocks: the right number of columns, and labels that are class indices."""
        return self._blocks() if self.watch is None else self.watch(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        start = 0
        for raw, stored in self.row_blocks():
            rows = score_rows(raw)
            if rows.shape[1] != self.n_classes:
                raise InputError(
                    f"All rows of {self.name} must have {self.n_classes} classes. "
                    f"Got {rows.shape[1]} from {self.place(start)} on."
                )
            stop = start + len(rows)
            if start == 0 and self.info.may_be_ranked and _is_ranked(rows):
                raise by_rank(self.name, f"{len(rows)} rows of {rows.shape[1]} decreasing numbers")
            labels = stored if self.labels is None else self.labels[start:stop]
            if labels is not None:
                labels = self.check_labels(labels, len(rows), start)
            yield Block(self.offset + start, rows, labels, self)
            start = stop
        if start == 0:
            raise InputError(f"There must be at least one row. Got none in {self.name}.")
        if self.labels is not None and len(self.labels) != start:
            raise InputError(
                "'labels' must have one entry per row. "
                f"Got {len(self.labels)} labels for {start} rows."
            )


def _is_ranked(rows: Array) -> bool:
    """Return whether every row decreases; one row does with probability 1 / K!."""
    return (
        rows.shape[1] > 2
        and len(rows) > 4
        and all(bool((part[:, 1:] <= part[:, :-1]).all()) for part in (rows[:5], rows))
        and bool((rows[:, 0] > rows[:, -1]).any())
    )


def rows_per_block(n_classes: int) -> int:
    """Return the number of rows of a block."""
    return max(1, BLOCK_ELEMENTS // max(1, n_classes))


def rows_per_part(n_classes: int) -> int:
    """Return the number of rows of a partition."""
    return max(1, PART_ELEMENTS // max(1, n_classes))


def slices(rows: Array, labels: Array | None = None) -> RawBlocks:
    """Split a matrix, and its labels, into blocks without a copy."""
    step = rows_per_block(rows.shape[1])
    for start in range(0, len(rows), step):
        stop = start + step
        yield rows[start:stop], None if labels is None else labels[start:stop]


class ArraySource(Source):
    """An array or memory map, split into blocks."""

    def __init__(self, rows: Any, **facts: Any) -> None:
        self.rows = score_rows(rows)
        n_rows, n_classes = self.rows.shape
        self.info = SourceInfo(n_classes, n_rows, **facts)

    def row_blocks(self) -> RawBlocks:
        """Split the array."""
        return slices(self.rows)


class IterableSource(Source):
    """Blocks from an iterable, such as the batches of a data loader; read once."""

    def __init__(self, blocks: Iterable[Any]) -> None:
        stream = iter(blocks)
        first = next(stream, None)
        if first is None:
            raise InputError("There must be at least one block of rows. Got none.")
        self._stream = itertools.chain([first], stream)
        found = unpacked(first)
        self._first_names = found.facts.get("class_names")
        n_classes, has_labels = score_rows(found.rows).shape[1], found.labels is not None
        self.info = SourceInfo(n_classes, has_labels=has_labels, **found.facts)

    def row_blocks(self) -> RawBlocks:
        """Read the blocks; split large ones."""
        for block in self._stream:
            found = unpacked(block)
            rows = score_rows(found.rows)
            labels = None if found.labels is None else list_of_labels(found.labels)
            if (labels is not None) != self.info.has_labels and self.labels is None:
                raise InputError("All blocks must come with labels, or none.")
            if labels is not None and len(labels) != len(rows):
                raise InputError(
                    "'labels' must have one entry per row. "
                    f"Got {len(labels)} labels for {len(rows)} rows."
                )
            names = found.facts.get("class_names")
            if names is not None and self._first_names != names:
                raise InputError(f"Blocks must have the same columns. Got {listed(names, 5)}.")
            yield from slices(rows, labels)


def reorder_columns(source: Source, class_names: Sequence[str]) -> Source:
    """Reorder columns by name; the source must have all names."""
    whole = ReorderedSource(source, class_names)
    if not isinstance(source, PartsSource):
        return whole
    parts = copy(source)
    parts.sources = [ReorderedSource(each, class_names) for each in source.sources]
    parts.info, parts.labels = replace(parts.info, class_names=class_names), whole.labels
    return parts


class ReorderedSource(Source):
    """A source with classes reordered to match `class_names`.

    Labels by name follow their class. Integer labels given separately refer to the new order.
    Integer labels stored with the rows are ambiguous and rejected.
    """

    def __init__(self, source: Source, class_names: Sequence[str]) -> None:
        assert source.class_names is not None
        position = {name: index for index, name in enumerate(source.class_names)}
        self._source = source
        self._order = np.array([position[name] for name in class_names])
        self.info = replace(source.info, class_names=class_names, may_be_ranked=False)
        self.labels_given, self.labels_by_name = source.labels_given, source.labels_by_name
        self.index, self.watch, self.location = source.index, source.watch, source.location
        self._label_place, self._labels_checked = source._label_place, source._labels_checked
        self.labels, self.unknown = source.labels, source.unknown
        if source.labels is not None and source.labels.dtype.kind in "iu":
            if self.labels_by_name:
                place = np.append(np.argsort(self._order), self.n_classes)  # unknown stay last
                self.labels = place[source.labels].astype(source.labels.dtype)
            elif not self.labels_given:
                raise self._unclear()

    def _unclear(self) -> InputError:
        return InputError(
            f"The labels with {self.name} must be class names, because its columns are in "
            "another order than the calibration data's. Got numbers; use names, or pass the "
            "numbers separately (labels=, --labels), in the calibration data's order."
        )

    def row_blocks(self) -> RawBlocks:
        """Read the blocks with their columns reordered."""
        for rows, labels in self._source.row_blocks():
            if labels is not None and self.labels is None and not self.info.numbers_are_names:
                labels = to_numpy(labels)
                if labels.dtype.kind not in "UOT":
                    raise self._unclear()
            yield np.asarray(rows)[:, self._order], labels

    def split(self) -> list[Source] | None:
        """Reorder the partitions of the source."""
        parts = self._source.parts()
        if parts is None:
            return None
        reordered: list[Source] = []
        for part in parts:
            part.labels = None  # replaced by the reordered labels of the whole
            own = copy(self)
            own._source, own.labels, own._labels_checked = part, None, False
            own.location = part.location
            own.info = replace(
                self.info, n_rows=part.n_rows, name=part.name, first_row=part.info.first_row
            )
            reordered.append(own)
        return reordered

    def place(self, row: int) -> str:
        """Describe a row as the source does."""
        return self._source.place(row)

    def _read_ids(self) -> Array | None:
        return self._source.ids


class PartsSource(Source):
    """Sources with the same classes, concatenated."""

    def __init__(self, sources: Sequence[Source], name: str) -> None:
        self.sources = [source for source in sources if source.n_rows != 0] or list(sources[:1])
        first = self.sources[0]
        for other in self.sources[1:]:
            _reject_mixture(first, other)
        self._starts = list(accumulate((s.n_rows or 0 for s in self.sources), initial=0))
        self.info = replace(
            first.info,
            n_rows=self._starts[-1],
            name=f"'{name}'",
            has_labels=first.has_labels,
            numbers_are_names=False,  # each file checks its labels
        )

    def row_blocks(self) -> RawBlocks:
        """Read the blocks of each file."""
        for source in self.sources:
            start = 0
            for rows, stored in source.row_blocks():
                stop = start + len(rows)
                labels = stored if source.labels is None else source.labels[start:stop]
                if labels is not None and source.info.numbers_are_names:
                    labels = source.check_labels(labels, len(rows), start)
                yield rows, labels
                start = stop

    def check_labels(self, labels: Any, n_rows: int, start: int = 0) -> IntArray:
        """Turn labels into class indices, unless the file that they came with has done so."""
        own = self.sources[min(bisect_right(self._starts, start), len(self.sources)) - 1]
        if self.labels is None and (own._labels_checked or own.info.numbers_are_names):
            self.unknown = self.unknown or own.unknown
            return np.asarray(labels, dtype=np.int64)
        return super().check_labels(labels, n_rows, start)

    def _read_ids(self) -> Array | None:
        found = [source.ids for source in self.sources]
        known = [ids for ids in found if ids is not None]
        return np.concatenate(known) if len(known) == len(found) else None

    def split(self) -> list[Source]:
        """Split each file."""
        parts: list[Source] = []
        for source in self.sources:
            parts += source.parts() or [copy(source)]
        return parts

    def check_label_files(self, columns: Sequence[tuple[str, int]]) -> None:
        """Check that files of labels, (name, rows) each, match the partitions one by one."""
        columns = [column for column in columns if column[1]]  # empty partitions are skipped, too
        for source, (name, n_rows) in zip(self.sources, columns, strict=False):
            if source.n_rows != n_rows:
                raise InputError(
                    f"Every file of labels must match the data file at its position. Got {n_rows} "
                    f"labels in {name} for {source.n_rows} rows in {source.name}."
                )
        if len(columns) != len(self.sources):
            raise InputError(
                "There must be a file of labels for each data file, or one for all. "
                f"Got {len(columns)} files of labels for {len(self.sources)} files of {self.name}."
            )

    def place(self, row: int) -> str:
        """Describe a row by its file and its index there."""
        which = min(bisect_right(self._starts, row), len(self.sources)) - 1
        return self.sources[which].place(row - self._starts[which])


def _reject_mixture(first: Source, other: Source) -> None:
    """Check that two files have the same classes, and that both or neither have labels."""
    names, others = list(first.class_names or ()), list(other.class_names or ())
    if other.n_classes != first.n_classes:
        mine, theirs = f"{other.n_classes} classes", f"{first.n_classes} classes"
    elif other.has_labels != first.has_labels:
        mine, theirs = ("labels" if each.has_labels else "no labels" for each in (other, first))
    elif bool(names) != bool(others):
        mine, theirs = ("class names" if each else "no class names" for each in (others, names))
    elif names != others:
        index = next(i for i in range(len(names)) if names[i] != others[i])
        mine, theirs = f"{others[index]!r} as class {index}", f"{names[index]!r}"
    elif other.logits != first.logits:
        mine, theirs = ("logits" if each.logits else "probabilities" for each in (other, first))
    else:
        return
    raise InputError(
        f"All files must have the same classes, and labels in all or none. "
        f"Got {mine} in {other.name}, and {theirs} in {first.name}."
    )
