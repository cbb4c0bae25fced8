"""Sources: rows from anywhere as one stream of row blocks; arrays and iterables as such."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.data.columns import by_rank
from evencover.data.fingerprint import Fingerprint, Sampler
from evencover.data.frames import unpacked
from evencover.errors import InputError, listed
from evencover.validation import label_indices, list_of_labels, score_rows

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


def in_order(source: Source, class_names: Sequence[str]) -> Source:
    """The source with its columns in the order of these names, all of which it has."""
    if not isinstance(source, PartsSource):
        return ReorderedSource(source, class_names)
    whole = ReorderedSource(source, class_names)  # which knows what becomes of all the labels
    parts = copy(source)
    parts.sources = [ReorderedSource(each, class_names) for each in source.sources]
    parts.class_names, parts.labels = class_names, whole.labels
    return parts


class ReorderedSource(Source):
    """A source whose class k is the class of the k-th of `class_names`.

    Labels by name follow their class. Labels that are numbers and were given apart already count
    in the new order. Numbers that came with the rows could count either, and are refused.
    """

    def __init__(self, source: Source, class_names: Sequence[str]) -> None:
        assert source.class_names is not None
        place = {name: index for index, name in enumerate(source.class_names)}
        self._source = source
        self._order = np.array([place[name] for name in class_names])
        self.class_names, self.n_classes = class_names, len(class_names)
        for same in ("n_rows", "logits", "name", "has_labels", "numbers_are_names", "watch"):
            setattr(self, same, getattr(source, same))
        for same in ("labels_given", "labels_by_name", "used", "left_out", "first_row", "index"):
            setattr(self, same, getattr(source, same))
        if source.labels is not None:
            self.labels = self._labels_in_order(source.labels)
            self._label_place, self._labels_checked = source._label_place, source._labels_checked

    def _labels_in_order(self, labels: Array) -> Array:
        if labels.dtype.kind not in "iu":
            return labels
        if self.labels_by_name:
            return np.argsort(self._order)[labels].astype(labels.dtype)
        if self.labels_given:
            return labels
        raise self._unclear()

    def _unclear(self) -> InputError:
        return InputError(
            f"The labels with {self.name} must be class names, because its columns are in another "
            "order than those of the calibration data. Got numbers, which may count either; use "
            "names, or give the numbers apart (labels=, --labels) in the calibration data's order."
        )

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """The blocks with their columns put in order."""
        for rows, labels in self._source.row_blocks():
            if labels is not None and self.labels is None and not self.numbers_are_names:
                labels = to_numpy(labels)
                if labels.dtype.kind not in "UOT":
                    raise self._unclear()
            yield np.asarray(rows)[:, self._order], labels

    def split(self) -> list[Source] | None:
        """The parts of the source, each put in order."""
        parts = self._source.parts()
        assert self.class_names is not None
        return None if parts is None else [ReorderedPart(part, self) for part in parts]

    def place(self, row: int) -> str:
        """What the source calls it."""
        return self._source.place(row)

    def _read_ids(self) -> Array | None:
        return self._source.ids

    @property
    def location(self) -> Any:
        """Where the file is, if it is one."""
        return getattr(self._source, "location", None)

    @location.setter
    def location(self, value: Any) -> None:
        self._source.location = value  # type: ignore[attr-defined]


class ReorderedPart(ReorderedSource):
    """A part of a source that is put in order; its labels, if kept apart, are given later."""

    def __init__(self, part: Source, whole: ReorderedSource) -> None:
        self._source, self._order = part, whole._order
        part.labels = None  # the whole's, which are in order, come instead
        self.class_names, self.n_classes = whole.class_names, whole.n_classes
        for same in ("n_rows", "logits", "name", "has_labels", "first_row"):
            setattr(self, same, getattr(part, same))
        self.numbers_are_names = whole.numbers_are_names


class PartsSource(Source):
    """Sources of the same kind of rows, end to end."""

    def __init__(self, sources: Sequence[Source], name: str) -> None:
        self.name = f"'{name}'"
        self.sources = [source for source in sources if source.n_rows != 0] or list(sources[:1])
        first = self.sources[0]
        for other in self.sources[1:]:
            _refuse_mixture(first, other)
        self._starts = list(accumulate((s.n_rows or 0 for s in self.sources), initial=0))
        self.n_rows, self.n_classes = self._starts[-1], first.n_classes
        self.class_names, self.logits = first.class_names, first.logits
        self.has_labels, self.may_be_ranked = first.has_labels, first.may_be_ranked
        self.used, self.left_out = first.used, first.left_out

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """The blocks of each file."""
        for source in self.sources:
            start = 0
            for rows, labels in source.labelled_blocks():
                if labels is not None and source.numbers_are_names:
                    labels = source._check_labels(labels, len(rows), start)
                yield rows, labels
                start += len(rows)

    def _read_ids(self) -> Array | None:
        found = [source.ids for source in self.sources]
        known = [ids for ids in found if ids is not None]
        return np.concatenate(known) if len(known) == len(found) else None

    def split(self) -> list[Source]:
        """The parts of each file."""
        parts: list[Source] = []
        for source in self.sources:
            parts += source.parts() or [copy(source)]
        return parts

    def refuse_misfits(self, columns: Sequence[tuple[str, int]]) -> None:
        """Check that files of labels, (name, rows) each, fit the parts one by one."""
        columns = [column for column in columns if column[1]]  # as empty parts are left out
        for source, (name, n_rows) in zip(self.sources, columns, strict=False):
            if source.n_rows != n_rows:
                raise InputError(
                    f"Every file of labels must fit the part beside it. Got {n_rows} labels in "
                    f"{name} for {source.n_rows} rows in {source.name}."
                )
        if len(columns) != len(self.sources):
            raise InputError(
                f"There must be a file of labels for each part, or one for all. "
                f"Got {len(columns)} files of labels for {len(self.sources)} parts of {self.name}."
            )

    def place(self, row: int) -> str:
        """The file and the row in it."""
        which = min(bisect_right(self._starts, row), len(self.sources)) - 1
        return self.sources[which].place(row - self._starts[which])


def _refuse_mixture(first: Source, other: Source) -> None:
    """All files must have the same classes, and labels must be in all of them or in none."""
    if other.n_classes != first.n_classes:
        problem = f"{other.n_classes} classes in {other.name}, and {first.n_classes}"
    elif (other.class_names is None) != (first.class_names is None):
        with_names, without = (first, other) if first.class_names else (other, first)
        problem = f"class names in {with_names.name}, and none in {without.name}"
        raise InputError(f"All parts must have class names, or none. Got {problem}.")
    elif list(other.class_names or ()) != list(first.class_names or ()):
        pairs = zip(other.class_names or (), first.class_names or (), strict=True)
        index, (mine, theirs) = next(
            (i, pair) for i, pair in enumerate(pairs) if len(set(pair)) > 1
        )
        problem = f"{mine!r} as class {index} of {other.name}, and {theirs!r}"
    elif other.has_labels != first.has_labels:
        labelled, bare = (first, other) if first.has_labels else (other, first)
        raise InputError(
            f"All parts must come with labels, or none. Got labels in {labelled.name}, "
            f"and none in {bare.name}."
        )
    elif other.logits != first.logits:
        kinds = ["logits" if source.logits else "probabilities" for source in (other, first)]
        problem = f"{kinds[0]} in {other.name}, and {kinds[1]}"
    else:
        return
    raise InputError(f"All parts must have the same classes. Got {problem} in {first.name}.")
