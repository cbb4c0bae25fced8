"""Sources: rows with one column per class, their labels and ids, read in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray, explained
from evencover.classes import INDICES, MISSING, NAMES, Classes, count_up
from evencover.data.columns import ColumnUses
from evencover.data.readers import RawBlock, Reader
from evencover.errors import InputError, warn_caller
from evencover.ids import id_keys, id_values, keys_of
from evencover.precision import warn_of_precision
from evencover.rows import score_rows
from evencover.sizes import sampled
from evencover.topk import TopK, concatenate_rows, fewer, numbers_per_row, smallest_k

# Numbers that are compared with the precision of the calibration rows.
COMPARED_ELEMENTS = sampled(1 << 16, 600)


class Block(NamedTuple):
    """Consecutive rows of the input."""

    start: int  #: index of the first row in the whole input
    rows: Any  #: (n, K) scores by class: an array, or `TopK`
    labels: IntArray | None = None  #: (n,) class indices, K for unknown names; None without labels
    ids: Array | None = None  #: (n,) 64-bit keys of the user's ids, if any
    source: Source | None = None  #: None for rows in memory
    nodes: IntArray | None = None  #: (n,) labels, where those of groups count on from K + 1

    @property
    def known_labels(self) -> IntArray:
        """The labels, with an arbitrary class for unknown ones."""
        assert self.labels is not None
        return np.minimum(self.labels, self.rows.shape[1] - 1)

    def take(self, rows: slice) -> Block:
        """Return some of the rows, with their labels and ids."""
        columns = (self.labels, self.ids, self.nodes)
        labels, ids, nodes = (None if each is None else each[rows] for each in columns)
        start = self.start + (rows.start or 0)
        return Block(start, self.rows[rows], labels, ids, self.source, nodes)

    def row_name(self, row: int) -> str:
        """Describe a row of this block in messages: its file, and its index there."""
        if self.source is None:
            return f"row {self.start + row}"
        return self.source.reader.row_name(self.start - self.source.offset + row)


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


class Labels(NamedTuple):
    """Labels as they are stored, one per row; what they stand for depends on the classes."""

    values: Array  #: (N,) names or indices
    row_name: Callable[[int], str] | None = None  #: describes a label in messages
    matching: Matching | None = None  #: how separate labels were matched; None for stored ones


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What an input contains, as it is stored."""

    reader: Reader
    class_names: tuple[str, ...] | None = None  #: of the reader's classes
    is_open: bool = False  #: whether there may be other classes than those that rows list
    integers_may_be_names: bool = False  #: whether rows list integers, or columns are 0, 1, 2, ...
    logits: bool | None = None  #: whether the rows are logits; None if the input does not state it
    labels: Labels | None = None
    ids: Any = None  #: (N,) as they are stored
    columns: ColumnUses = field(default_factory=ColumnUses)  #: the use of each column or array

    def among(
        self,
        classes: Classes,
        own: Classes,
        class_of_column: IntArray | None,
        labels_are: str | None,
    ) -> tuple[Classes, IntArray | None]:
        """Match its classes to others: by name, or by index if it has no names.

        Return the classes, and that of each column; None if they are the same.
        """
        name, is_top_k = self.reader.name, self.reader.is_top_k
        is_unclear = self.integers_may_be_names and own.names is None
        is_unclear = is_unclear and classes.number_name is not None
        if not is_top_k:  # columns have all names, or none
            is_unclear = is_unclear and own.index.keys() == classes.index.keys()
            own = Classes(own.n, tuple(own.index)) if is_unclear and labels_are == NAMES else own
        if own.names is not None and not (classes.names is None and count_up(own.names)):
            new, names = classes.match(own.names, name, all_of_them=not is_top_k), classes.names
        else:
            if is_unclear and labels_are != INDICES:
                what, remedy = f"The columns 0, 1, 2, ... of {name}", "or 'names' (--labels-are)"
                if is_top_k:
                    what = f"The integers that {name} lists"
                    remedy = "(--labels-are indices) if they are, or write names as text"
                raise InputError(
                    f"{what} may be indices or names, because the class {classes.number_name!r} "
                    f"has a number as its name; state labels_are='indices' {remedy}."
                )
            if own.n != classes.n and (own.n > classes.n if self.is_open else own.n):
                raise InputError(
                    f"The input must have the {classes.n} classes of the calibration data. "
                    f"Got {own.n} classes in {name}."
                )
            new, names = np.arange(own.n), classes.names or own.names
        if class_of_column is not None:
            new = new[class_of_column]
        is_same = np.array_equal(new, np.arange(classes.n))
        if not is_same and not is_top_k and len(new):
            separate = self.labels is not None and self.labels.matching is not None
            counting = "; labels that are numbers count in that order" if separate else ""
            warn_caller(
                f"The columns of {name} were put into the order of the calibration data{counting}."
            )
        return Classes(classes.n, names), None if is_same else new

    def with_classes_of_labels(self, own: Classes, labels_are: str | None) -> Classes:
        """Return its classes and those of labels that no row lists."""
        if self.labels is None:
            return own
        labels, name = self.labels.values, self.reader.name
        if own.names is None:
            n_classes = int(labels.max(initial=-1)) + 1 if labels.dtype.kind in "iu" else 0
            return Classes(max(own.n, explained(n_classes, labels.nbytes, f"the labels of {name}")))
        if labels.dtype.kind in "iu" and labels_are != NAMES:
            raise InputError(
                f"The labels of {name} must be class names, as its rows list classes by name. "
                "Got numbers; name the classes with class_names= (--class-names) in the order that "
                "the numbers count, or state labels_are='names' (--labels-are names)."
            )
        texts = {str(text) for text in labels.ravel().tolist()}
        names = (*own.names, *sorted(texts - {*own.names, *MISSING}))
        return Classes(len(names), names)


class Expected(NamedTuple):
    """What a model expects of rows, because its calibration rows were like that."""

    classes: Classes
    precision: float | None = None  #: if known; see `rounding`
    k: int | None = None  #: the fewest classes that a row listed; None if rows listed all


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """Rows with one column per class, and their labels and ids: frozen when opened."""

    contents: Contents
    reader: Reader
    classes: Classes
    class_of_column: IntArray | None = None  #: class of each of the reader's; None if the same
    labels: Array | None = None  #: (N,) as the nodes of a block; not of streams
    labels_are: str | None = None  #: "indices" or "names", if the user states it
    ids: Array | None = None  #: (N,) the user's ids as they are written with sets
    keys: Array | None = None  #: (N,) the ids as 64-bit keys
    logits: bool | None = None  #: whether the rows are logits; None if unknown
    allow_unknown: bool = False  #: whether labels may be unknown names
    groups: tuple[str, ...] = ()  #: groups of classes that labels may be
    allow_sorted: bool = False  #: whether the numbers of all rows may decrease
    first_unknown: tuple[str, str] | None = None  #: the first label of no class, and its row
    offset: int = 0  #: index of the first row in the whole input
    expected: Expected | None = None  #: what the model expects of the rows
    watch: Callable[[Iterator[RawBlock]], Iterator[RawBlock]] | None = None  #: wraps the reading

    n_classes = property(attrgetter("classes.n"), doc="K.")
    class_names = property(attrgetter("classes.names"), doc="One name per class, or None.")
    n_rows = property(attrgetter("reader.n_rows"), doc="Number of rows; None for a stream.")
    name = property(attrgetter("reader.name"), doc="The name in messages.")
    columns = property(attrgetter("contents.columns"), doc="The use of each column or array.")

    @classmethod
    def of(
        cls,
        contents: Contents,
        expected: Expected | None = None,
        *,
        class_names: Sequence[str] | None = None,
        labels_are: str | None = None,
        logits: bool | None = None,
        allow_unknown: bool = False,
        groups: tuple[str, ...] = (),
        allow_sorted: bool = False,
    ) -> Source:
        """Decide what classes, labels and ids of an input stand for.

        The classes are those of a model, if one is `expected`. `class_names` are the names of the
        input's classes by index.
        """
        reader = contents.reader
        classes, class_of_column = Classes(reader.n_classes, contents.class_names), None
        if class_names is not None:
            named = Classes(len(class_names), tuple(class_names))
            are_names = not named.index.keys() <= Classes(named.n).index.keys()
            if expected is not None and expected.classes.names is None and are_names:
                if named.n != expected.classes.n:
                    raise InputError(
                        f"'class_names' must name the {expected.classes.n} classes of the "
                        f"calibration data. Got {named.n}."
                    )
                expected = expected._replace(classes=named)
            if reader.n_classes not in (0, named.n) and not reader.is_top_k:
                raise InputError(
                    f"'class_names' must have one name per class. Got {named.n} for "
                    f"{reader.n_classes}."
                )
            are = labels_are if reader.is_top_k else INDICES  # these name columns by index
            classes, class_of_column = contents.among(named, classes, None, are)
        elif expected is None and contents.is_open:
            classes = contents.with_classes_of_labels(classes, labels_are)
            more = classes.n > reader.n_classes
            class_of_column = np.arange(reader.n_classes) if more else None
        if expected is not None:
            of_model = expected.classes
            classes, class_of_column = contents.among(
                of_model, classes, class_of_column, labels_are
            )
        ids = keys = None
        if contents.ids is not None:
            ids = id_values(contents.ids, reader.row_name)
            if ids.ndim != 1 or reader.n_rows not in (None, len(ids)):
                raise InputError(
                    f"'ids' must have one entry per row. Got shape {ids.shape} for {reader.n_rows} "
                    "rows."
                )
            keys = keys_of(ids)
            reader = reader.without_ids() if reader.has_ids else reader
        source = cls(
            contents=contents,
            reader=reader,
            classes=classes,
            class_of_column=class_of_column,
            labels_are=labels_are,
            ids=ids,
            keys=keys,
            logits=contents.logits if logits is None else logits,
            expected=expected,
            allow_unknown=allow_unknown,
            groups=groups,
            allow_sorted=allow_sorted,
        )
        if contents.labels is None:
            return source
        values, row_name, unknown = contents.labels.values, contents.labels.row_name, None
        row_name = row_name or reader.row_name
        labels = source._class_indices(values, reader.n_rows, row_name)
        if allow_unknown and (labels == classes.n).any():
            row = int((labels == classes.n).argmax())
            unknown = str(values.ravel()[row]), row_name(row)
        # Partitions carry their labels, so use the smallest type.
        labels = labels.astype(np.min_scalar_type(classes.n + len(groups)))
        labels.setflags(write=False)
        return replace(source, labels=labels, first_unknown=unknown)

    def expecting(self, expected: Expected | None, **stated: Any) -> Source:
        """Return these rows for a model; `stated` are arguments of `of`."""
        expected = expected or self.expected
        if expected == self.expected and all(getattr(self, n) == v for n, v in stated.items()):
            return self
        kept = ("labels_are", "allow_unknown", "groups", "allow_sorted")
        how: dict[str, Any] = {name: getattr(self, name) for name in kept}
        if self.contents.class_names != self.class_names:  # the user has named the classes
            how["class_names"] = self.class_names
        changed = Source.of(self.contents, expected, logits=self.logits, **(how | stated))
        changed = replace(changed, offset=self.offset, watch=self.watch)
        return changed if self.has_ids else changed.without_ids()

    @property
    def matching(self) -> Matching | None:
        """How separate labels were matched; None for stored ones."""
        return None if self.contents.labels is None else self.contents.labels.matching

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

    def without_ids(self) -> Source:
        """Ignore the ids."""
        return replace(self, ids=None, keys=None, reader=self.reader.without_ids())

    # ---- labels ----------------------------------------------------------------------------------

    def _class_indices(
        self, values: Array, n_rows: int | None, row_name: Callable[[int], str]
    ) -> IntArray:
        """Convert labels to class indices."""
        owner, columns = f"'labels' of {self.name}", self.contents.columns
        are_names = self.classes.are_names(values, owner, self.labels_are)
        is_reordered = self.class_of_column is not None and not self.reader.is_top_k
        if not are_names and is_reordered and self.matching is None:
            raise InputError(
                f"The labels with {self.name} must be class names, because its columns are in "
                "another order than the calibration data's. Got numbers; use names, or pass the "
                "numbers separately (labels=, --labels), in the calibration data's order."
            )
        if not are_names and columns.guessed:
            column = columns.guessed[0]
            raise InputError(
                f"With labels that are numbers, every column of {self.name} must be certain. Got "
                f"{column!r}, which was left out ({columns.left_out[column]}); name the columns of "
                f"the classes with probabilities_key (--probabilities-key): a glob such as 'p_*', "
                f"or '!{column}' for all others."
            )
        how: Any = {"labels_are": self.labels_are, "allow_unknown": self.allow_unknown}
        how["groups"] = self.groups
        labels = self.classes.label_indices(values, n_rows, owner, row_name, **how)
        if columns.left_out and not self.reader.is_top_k and (labels == self.n_classes).any():
            texts = map(str, values.ravel()[labels == self.n_classes].tolist())
            lost = sorted(columns.left_out.keys() & set(texts))
            if lost:
                raise InputError(
                    f"The column {lost[0]!r} of {self.name} must contain probabilities, because it "
                    f"is a label. It was left out ({columns.left_out[lost[0]]}); name the columns "
                    "of the classes with probabilities_key='*' (--probabilities-key)."
                )
        return labels

    def no_known_label(self) -> InputError:
        """Build the error for rows none of whose labels is among the classes."""
        if self.first_unknown is None or self.class_names is None:
            return InputError(
                f"Labels must be among the {self.n_classes} classes. Got none that is in "
                f"{self.name}."
            )
        return self.classes.unknown_label(*self.first_unknown)

    # ---- reading ---------------------------------------------------------------------------------

    @cached_property
    def _column_of_class(self) -> IntArray | None:
        """The reader's column of each class (K,); None if they are the same."""
        return None if self.class_of_column is None else np.argsort(self.class_of_column)

    def blocks(self) -> Iterator[Block]:
        """Read checked blocks; an input without rows is one empty block."""
        if self.expected is not None and self.offset == 0:
            return compared(self._blocks(), self.expected)
        return self._blocks()

    def _blocks(self) -> Iterator[Block]:
        start, raw_blocks = 0, self.reader.row_blocks()
        for raw in raw_blocks if self.watch is None else self.watch(raw_blocks):
            rows = score_rows(raw.rows)
            if rows.shape[1] != self.reader.n_classes:
                raise InputError(
                    f"All rows of {self.name} must have {self.reader.n_classes} classes. "
                    f"Got {rows.shape[1]} from {self.reader.row_name(start)} on."
                )
            if self.class_of_column is not None and isinstance(rows, TopK):
                rows = rows.renumbered(self.class_of_column, self.n_classes)
            elif self.class_of_column is not None:
                rows = rows[:, self._column_of_class]
            part = slice(start, start + len(rows))
            self._check_number(part.stop)

            def row_name(row: int, first: int = start) -> str:
                return self.reader.row_name(first + row)

            nodes = None if self.labels is None else self.labels[part].astype(np.int64)
            if raw.labels is not None:
                nodes = self._class_indices(raw.labels, len(rows), row_name)
            labels = nodes
            if nodes is not None and self.groups:
                labels = np.minimum(nodes, self.n_classes)
            ids = None if self.keys is None else self.keys[part]
            if raw.ids is not None and self.reader.has_ids:
                ids = id_keys(raw.ids, len(rows), row_name)
            yield Block(self.offset + start, rows, labels, ids, self, nodes)
            start = part.stop
        if start == 0:
            labels = np.zeros(0, dtype=np.int64) if self.has_labels else None
            no_rows = np.zeros((0, self.n_classes), dtype=np.float32)
            yield Block(self.offset, no_rows, labels, self.keys, self, labels)
        self._check_number(start, is_end=True)

    def _check_number(self, n_rows: int, *, is_end: bool = False) -> None:
        """Raise if these are not as many rows as at the opening, or as labels and ids."""
        n_opened = self.reader.n_rows
        if n_opened is not None and (n_rows > n_opened or (is_end and n_rows < n_opened)):
            raise InputError(
                f"{self.name} must have the {n_opened} rows it had when it was opened. "
                f"Got {n_rows}; it has changed since."
            )
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
        starts = accumulate((reader.n_rows or 0 for reader in readers), initial=0)
        return [
            self._part(reader, slice(*rows))
            for reader, rows in zip(readers, pairwise(starts), strict=True)
        ]

    def part_of_block(self, block: Block, reader: Reader) -> Source:
        """Return a source for rows of a block that `reader` holds."""
        first = block.start - self.offset
        part = self._part(reader, slice(first, first + len(block.rows)))
        return replace(part, labels=block.nodes, keys=block.ids, class_of_column=None)

    def _part(self, reader: Reader, rows: slice) -> Source:
        columns = (self.labels, self.ids, self.keys)
        labels, ids, keys = (None if each is None else each[rows] for each in columns)
        return replace(
            self,
            contents=replace(self.contents, reader=reader, labels=None, ids=None),
            reader=reader,
            labels=labels,
            ids=ids,
            keys=keys,
            offset=self.offset + rows.start,
            watch=None,
        )


def compared(blocks: Iterator[Block], expected: Expected) -> Iterator[Block]:
    """Pass blocks on; warn at once of another precision, and at the end of fewer classes."""
    first_rows, n_numbers, k = list[Any](), 0, None
    for block in blocks:
        yield block
        if isinstance(block.rows, TopK):
            k = fewer(k, smallest_k(block.rows))
        if expected.precision is not None and n_numbers < COMPARED_ELEMENTS:
            # Few rows of a large block suffice, and small blocks are too few alone.
            n_rows = COMPARED_ELEMENTS // max(1, numbers_per_row(block.rows)) + 1
            first_rows.append(block.rows[:n_rows])
            n_numbers += first_rows[-1].size
            if n_numbers >= COMPARED_ELEMENTS:
                warn_of_precision(concatenate_rows(first_rows), expected.precision)
    if 0 < n_numbers < COMPARED_ELEMENTS:
        warn_of_precision(concatenate_rows(first_rows), expected.precision)
    if k is not None and (expected.k is None or k < expected.k):
        n_listed = f"all {expected.classes.n}" if expected.k is None else expected.k
        warn_caller(
            "Rows should list at least as many classes as the calibration rows, because a label "
            f"that is not listed is in no set. Got rows with {k}, and {n_listed} in calibration, "
            "so coverage is lower."
        )
