"""Sources: rows with one column per class, their labels and ids, read in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.data.columns import ColumnUses
from evencover.errors import InputError, listed, warn_caller
from evencover.ids import id_keys
from evencover.rounding import warn_of_precision
from evencover.sizes import at_once, sampled
from evencover.topk import TopK, concatenate_rows, numbers_per_row
from evencover.validation import label_indices, labels_are_names, score_rows, unknown_label

# About 16 MB of float32: smaller blocks make threads wait for each other.
BLOCK_ELEMENTS = at_once(1 << 22)
# About 128 MB of float32: the unit of work of one machine.
PART_ELEMENTS = at_once(1 << 25, 700)
# Numbers that are compared with the precision of the calibration rows.
COMPARED_ELEMENTS = sampled(1 << 16, 600)


def rows_per_block(n_numbers: int) -> int:
    """Return the number of rows of a block, of `n_numbers` each."""
    return max(1, BLOCK_ELEMENTS // max(1, n_numbers))


def rows_per_part(n_classes: int) -> int:
    """Return the number of rows of a partition."""
    return max(1, PART_ELEMENTS // max(1, n_classes))


class Block(NamedTuple):
    """Consecutive rows of the input."""

    start: int  #: index of the first row in the whole input
    rows: Any  #: (n, K) scores by class: an array, or `TopK`
    labels: IntArray | None = None  #: (n,) class indices, K for unknown names; None without labels
    ids: Array | None = None  #: (n,) 64-bit keys of the user's ids, if any
    source: Source | None = None  #: None for rows in memory

    @property
    def known_labels(self) -> IntArray:
        """The labels, with an arbitrary class for unknown ones, which top-k rows do not list."""
        assert self.labels is not None
        if isinstance(self.rows, TopK):
            return self.labels
        return np.minimum(self.labels, self.rows.shape[1] - 1)

    def take(self, rows: slice) -> Block:
        """Return some of the rows, with their labels and ids."""
        start = self.start + (rows.start or 0)
        return Block(
            start, self.rows[rows], _part(self.labels, rows), _part(self.ids, rows), self.source
        )

    def row_name(self, row: int) -> str:
        """Describe a row of this block in messages: its file, and its index there."""
        if self.source is None:
            return f"row {self.start + row}"
        return self.source.reader.row_name(self.start - self.source.offset + row)


def _part(column: Array | None, rows: slice) -> Any:
    return None if column is None else column[rows]


def _row_from(reader: Reader, start: int, row: int) -> str:
    return reader.row_name(start + row)


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
    is_listed: bool = False  #: whether rows list some of the classes only (`TopK`)

    @abstractmethod
    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the rows, in blocks of at most `rows_per_block`."""

    def split(self) -> Sequence[Reader] | None:
        """Split the rows into readers that can be pickled; None if workers cannot open them."""
        return None

    @property
    def is_censored(self) -> bool:
        """Whether rows may lack classes, so that labels can be unlisted."""
        return self.is_listed

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
    step = rows_per_block(numbers_per_row(rows) * (1 + isinstance(rows, TopK)))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        yield RawBlock(rows[part], _part(labels, part), _part(ids, part))


class Matching(NamedTuple):
    """How separate labels were matched to rows: by id, or by position."""

    n_rows: int
    by_id: bool = False
    n_unused: int = 0  #: labels without a row
    without: str = ""  #: the side without ids, if the other has ids
    is_doubtful: bool = False  #: labels without a row, or a table matched by position: warned of

    @property
    def how(self) -> str:
        """The matching in a few words."""
        return "by id" if self.by_id else "by position"

    @property
    def sentence(self) -> str:
        """Describe the matching."""
        verb = "is" if self.n_unused == 1 else "are"
        unused = f"; {self.n_unused:,} without a row {verb} not used"
        reason = f": no ids in {self.without}" if self.without else ""
        if self.is_doubtful and not self.without:
            reason = "; if both tables have ids, call them 'id' or name them with --ids-key"
        end = (unused if self.n_unused else "") if self.by_id else reason
        return f"Labels were matched {self.how} ({self.n_rows:,} rows){end}."


class Classes(NamedTuple):
    """The classes of a model."""

    n_classes: int
    names: Sequence[str] | None
    precision: float | None = None  #: of the calibration rows, if known; see `rounding`


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """Rows with one column per class, and their labels and ids: frozen when opened.

    Methods return changed copies.
    """

    reader: Reader
    n_classes: int
    class_names: tuple[str, ...] | None = None  #: one name per class, or None
    logits: bool | None = None  #: whether the rows are logits; None if the input does not state it
    labels: Array | None = None  #: (N,) class indices, n_classes for unknown names; not of streams
    labels_are_names: bool = False  #: whether the labels were class names, not class indices
    matching: Matching | None = None  #: how separate labels were matched; None for stored ones
    ids: Array | None = None  #: (N,) the user's ids as they are written with sets
    keys: Array | None = None  #: (N,) the ids as 64-bit keys
    columns: ColumnUses = field(default_factory=ColumnUses)  #: the use of each column or array
    column_order: IntArray | None = None  #: (K,) columns of the reader in the order of the classes
    new_classes: IntArray | None = None  #: of top-k rows, the index of each class of the reader
    integers_are_names: bool | None = False  #: whether integer labels are names; None: unclear
    allow_unknown: bool = False  #: whether labels may be unknown names
    first_unknown: tuple[str, str] | None = None  #: the first label of no class, and its row
    offset: int = 0  #: index of the first row in the whole input
    precision: float | None = None  #: that the rows must have, if known
    watch: Callable[[Iterator[RawBlock]], Iterator[RawBlock]] | None = None  #: wraps the reading

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None for a stream, which can be read once."""
        return self.reader.n_rows

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.reader.name

    @property
    def has_labels(self) -> bool:
        """Whether blocks come with labels."""
        return self.labels is not None or self.reader.has_labels

    @property
    def has_ids(self) -> bool:
        """Whether blocks come with ids."""
        return self.keys is not None or self.reader.has_ids

    @property
    def how_matched(self) -> str:
        """How labels were matched to rows, as the end of a sentence."""
        if self.matching is None:
            return f"labels come with the rows of {self.name}"
        return f"labels were matched {self.matching.how}"

    # ---- labels, ids and classes -----------------------------------------------------------------

    def with_ids(self, ids: Any) -> Source:
        """Use these ids, one per row."""
        values = to_numpy(ids, "'ids'")
        keys = id_keys(values, values.size if self.n_rows is None else self.n_rows)
        return replace(self, ids=values, keys=keys, reader=self.reader.without_ids())

    def without_ids(self) -> Source:
        """Ignore the ids."""
        return replace(self, ids=None, keys=None, reader=self.reader.without_ids())

    def with_labels(
        self,
        values: Any,
        *,
        row_name: Callable[[int], str] | None = None,
        matching: Matching | None = None,
    ) -> Source:
        """Use these labels, one per row: class indices or class names.

        Messages use `row_name` to describe a row. `matching` states how the labels were matched, if
        they were not stored with the rows.
        """
        row_name = row_name or self.reader.row_name
        changed = replace(self, matching=matching)
        labels, are_names = changed._class_indices(values, self.n_rows, row_name)
        unknown = None
        if self.allow_unknown and (labels == self.n_classes).any():
            row = int((labels == self.n_classes).argmax())
            unknown = str(to_numpy(values).ravel()[row]), row_name(row)
        # Partitions carry their labels, so use the smallest type.
        labels = labels.astype(np.min_scalar_type(self.n_classes))
        labels.setflags(write=False)
        return replace(changed, labels=labels, labels_are_names=are_names, first_unknown=unknown)

    def _class_indices(
        self, values: Any, n_rows: int | None, row_name: Callable[[int], str]
    ) -> tuple[IntArray, bool]:
        """Convert labels to class indices; return whether they were class names."""
        names, integers_are_names = self.class_names, bool(self.integers_are_names)
        are_names = labels_are_names(values, names, integers_are_names)
        if not are_names and self.columns.guessed:
            column = self.columns.guessed[0]
            raise InputError(
                f"With labels that are numbers, every column of {self.name} must be certain. Got "
                f"{column!r}, which was left out ({self.columns.left_out[column]}); name the "
                f"columns of the classes with probabilities_key (--probabilities-key): a glob such "
                f"as 'p_*', or '!{column}' for all others."
            )
        if not are_names and self.integers_are_names is None:
            raise InputError(
                f"The labels of {self.name} must be class names, because some of its columns are "
                "called by numbers. Got numbers, which may be class indices or these names."
            )
        if not are_names and self.column_order is not None and self.matching is None:
            raise self._in_another_order()
        labels = label_indices(
            values,
            names,
            self.n_classes,
            n_rows,
            f"'labels' of {self.reader.name}",
            row_name,
            numbers_are_names=integers_are_names,
            allow_unknown=self.allow_unknown,
        )
        if are_names and self.columns.left_out and (labels == self.n_classes).any():
            texts = to_numpy(values).ravel()[labels == self.n_classes]
            lost = sorted({str(text) for text in texts.tolist()} & set(self.columns.left_out))
            if lost:
                raise InputError(
                    f"The column {lost[0]!r} of {self.name} must contain numbers, because it is a "
                    f"label. It was left out ({self.columns.left_out[lost[0]]})."
                )
        return labels, are_names

    def _in_another_order(self) -> InputError:
        return InputError(
            f"The labels with {self.name} must be class names, because its columns are in another "
            "order than the calibration data's. Got numbers; use names, or pass the numbers "
            "separately (labels=, --labels), in the calibration data's order."
        )

    def aligned(self, classes: Classes) -> Source:
        """Put columns with names into the order of a model's classes.

        Labels by name follow their class. Integer labels that were given separately refer to the
        model's classes; those stored with reordered columns are ambiguous.
        """
        source, names = self, classes.names
        if self.class_names is not None:
            numbers = [str(number) for number in range(classes.n_classes)]
            is_some = self.reader.is_listed and set(self.class_names) <= set(numbers)
            if names is None and (is_some or set(self.class_names) == set(numbers)):
                names = numbers
            if names is not None and list(names) != list(self.class_names):
                source = self._reordered(names)
        if source.reader.is_listed and source.class_names is None:
            source = source.with_more_classes(classes.n_classes)
        if source.n_classes not in (0, classes.n_classes):
            raise InputError(
                f"The input must have the {classes.n_classes} classes of the calibration data. "
                f"Got {source.n_classes} classes in {self.name}."
            )
        names = source.class_names if classes.names is None else tuple(classes.names)
        return replace(
            source,
            n_classes=classes.n_classes,
            class_names=names,
            precision=classes.precision,
        )

    def _reordered(self, names: Sequence[str]) -> Source:
        assert self.class_names is not None
        position = {name: column for column, name in enumerate(self.class_names)}
        unknown = [name for name in self.class_names if name not in set(names)]
        missing = [name for name in names if name not in position and not self.reader.is_listed]
        if missing or unknown:
            problems = [f"no {listed(map(repr, missing), 3)}"] * bool(missing)
            problems += [f"the unknown {listed(map(repr, unknown), 3)}"] * bool(unknown)
            raise InputError(
                f"The classes of {self.name} must be the {len(names)} of the calibration data, by "
                f"name. Got {' and '.join(problems)}; rename the columns, or pass the numbers "
                "without names if their order is the same."
            )
        if self.reader.is_listed:  # a model may have classes that no row lists
            index = {name: place for place, name in enumerate(names)}
            new = np.array([index[name] for name in self.class_names], dtype=np.int64)
            changed = replace(self, new_classes=new, n_classes=len(names))
        else:
            order = np.array([position[name] for name in names])
            new = np.argsort(order)
            columns = order if self.column_order is None else self.column_order[order]
            changed = replace(self, column_order=columns)
        changed = replace(changed, class_names=tuple(names))
        separate = self.matching is not None
        if (np.diff(new) < 0).any():
            counting = "; labels that are numbers count in that order" if separate else ""
            warn_caller(
                f"The columns of {self.name} were put into the order of the calibration "
                f"data{counting}."
            )
        if self.labels is None or (separate and not self.labels_are_names):
            return changed
        if not self.labels_are_names and changed.column_order is not None:
            raise self._in_another_order()
        labels = np.append(new, changed.n_classes)[self.labels]  # unknown ones stay unknown
        return replace(changed, labels=labels.astype(np.min_scalar_type(changed.n_classes)))

    def with_more_classes(self, n_classes: int, names: Sequence[str] | None = None) -> Source:
        """Add classes that no row lists after those that some rows list."""
        if n_classes <= self.n_classes:
            return self
        new = np.arange(self.n_classes) if self.new_classes is None else self.new_classes
        names = None if names is None else tuple(names)
        return replace(self, new_classes=new, n_classes=n_classes, class_names=names)

    def no_known_label(self) -> InputError:
        """Build the error for rows none of whose labels is among the classes."""
        if self.first_unknown is None or self.class_names is None:
            return InputError(
                f"Labels must be among the {self.n_classes} classes. Got none that is in "
                f"{self.name}."
            )
        return unknown_label(*self.first_unknown, self.class_names)

    # ---- reading ---------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Read checked blocks; an input without rows is one empty block."""
        start, raw_blocks, first_rows = 0, self.reader.row_blocks(), list[Any]()
        is_compared = self.precision is None or self.offset > 0
        for raw in raw_blocks if self.watch is None else self.watch(raw_blocks):
            rows = score_rows(raw.rows)
            if self.new_classes is not None:
                rows = rows.renumbered(self.new_classes, self.n_classes)
            if rows.shape[1] != self.n_classes:
                raise InputError(
                    f"All rows of {self.name} must have {self.n_classes} classes. "
                    f"Got {rows.shape[1]} from {self.reader.row_name(start)} on."
                )
            if self.column_order is not None:
                rows = rows[:, self.column_order]
            part = slice(start, start + len(rows))
            labels, ids = self.labels, self.keys
            if self.reader.n_rows is None:
                self._require_one_per_row(part.stop)
            elif part.stop > self.reader.n_rows:
                raise self._changed(part.stop)
            if labels is not None:
                labels = labels[part].astype(np.int64)
            elif self.reader.has_labels:
                row_name = partial(_row_from, self.reader, start)
                labels, _ = self._class_indices(raw.labels, len(rows), row_name)
            if ids is not None:
                ids = ids[part]
            elif self.reader.has_ids:
                ids = id_keys(raw.ids, len(rows))
            yield Block(self.offset + start, rows, labels, ids, self)
            start = part.stop
            if is_compared:
                continue
            # Few rows of a large block suffice, and small blocks are too few alone.
            first_rows.append(rows[: COMPARED_ELEMENTS // max(1, numbers_per_row(rows)) + 1])
            if sum(rows.size for rows in first_rows) >= COMPARED_ELEMENTS:
                warn_of_precision(concatenate_rows(first_rows), self.precision)
                is_compared = True
        if first_rows and not is_compared:
            warn_of_precision(concatenate_rows(first_rows), self.precision)
        if start == 0:
            labels = np.zeros(0, dtype=np.int64) if self.has_labels else None
            no_rows = np.zeros((0, self.n_classes), dtype=np.float32)
            yield Block(self.offset, no_rows, labels, self.keys, self)
        if self.reader.n_rows is None:
            self._require_one_per_row(start, is_end=True)
        elif start != self.reader.n_rows:
            raise self._changed(start)

    def _changed(self, n_rows: int) -> InputError:
        return InputError(
            f"{self.name} must have the {self.n_rows} rows it had when it was opened. "
            f"Got {n_rows}; it has changed since."
        )

    def _require_one_per_row(self, n_rows: int, *, is_end: bool = False) -> None:
        for name, column in (("labels", self.labels), ("ids", self.keys)):
            if column is not None and (len(column) < n_rows or (is_end and len(column) > n_rows)):
                raise InputError(
                    f"'{name}' must have one entry per row. Got {len(column)} {name} for {n_rows} "
                    "rows."
                )

    def parts(self) -> list[Source] | None:
        """Split into sources that can be pickled and read on another machine, in order.

        None for inputs without a file (arrays, iterables).
        """
        readers = self.reader.split()
        if readers is None:
            return None
        parts, start = list[Source](), 0
        for reader in readers:
            assert reader.n_rows is not None
            rows = slice(start, start + reader.n_rows)
            parts.append(self._part(reader, rows))
            start = rows.stop
        return parts

    def part_of_block(self, block: Block, reader: Reader) -> Source:
        """Return a source for rows of a block that `reader` holds."""
        first = block.start - self.offset
        part = self._part(reader, slice(first, first + len(block.rows)))
        changed: Any = {"column_order": None, "new_classes": None}
        return replace(part, labels=block.labels, keys=block.ids, **changed)

    def _part(self, reader: Reader, rows: slice) -> Source:
        return replace(
            self,
            reader=reader,
            labels=_part(self.labels, rows),
            ids=_part(self.ids, rows),
            keys=_part(self.keys, rows),
            offset=self.offset + rows.start,
            watch=None,
        )
