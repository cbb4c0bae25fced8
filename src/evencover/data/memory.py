"""Read what Python holds: frames, dictionaries, outputs of trainers, and iterables of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.arrow import LIST_KINDS, Kind, matrix_from_arrow
from evencover.classes import checked_names
from evencover.data.arrays import beside
from evencover.data.columns import USUAL, Column, Keys, matrix_key
from evencover.data.entries import of_table
from evencover.data.readers import ArrayReader, RawBlock, Reader, read_array, slices
from evencover.data.records import is_entries
from evencover.data.source import Contents, Labels
from evencover.data.tables import Table, of_schema
from evencover.errors import InputError, listed

_BY_LETTER: dict[str, Kind] = {"f": "float", "i": "integer", "u": "integer", "b": "flag"}
FRAME = "the frame"


def is_frame(values: Any) -> bool:
    """Return whether values have named columns: a pandas or polars frame, or an Arrow table."""
    has_columns = hasattr(values, "columns")
    return has_columns and (_is_pandas(values) or _is_polars(values) or _is_arrow(values))


def _is_pandas(values: Any) -> bool:
    return hasattr(values, "iloc") and hasattr(values, "dtypes")  # pandas and compatible frames


def _is_polars(values: Any) -> bool:
    return type(values).__module__.startswith("polars") and hasattr(values, "columns")


def _is_arrow(values: Any) -> bool:
    return type(values).__module__.startswith("pyarrow") and hasattr(values, "schema")


@dataclass(frozen=True, kw_only=True)
class FrameTable(Table):
    """A pandas or polars frame, or an Arrow table, in memory."""

    frame: Any

    @classmethod
    def of(cls, frame: Any) -> FrameTable:
        """Read names and kinds of all columns; polars shares its memory with Arrow."""
        if _is_polars(frame):
            frame = (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
        if _is_arrow(frame):
            about = of_schema(frame.schema, [frame.num_rows])
            return cls(name=FRAME, frame=frame, **about)
        for i, name in enumerate(frame.columns):
            is_text = isinstance(name, str)
            if not is_text and (name is None or str(name) == "<NA>" or name != name):  # NaN
                raise InputError(f"{FRAME} must name every column. Got {name} for column {i}.")
        columns = [
            Column(str(name), _pandas_kind(frame, i)) for i, name in enumerate(frame.columns)
        ]
        return cls(name=FRAME, frame=frame, columns=tuple(columns), piece_rows=(len(frame),))

    def read(self, names: Sequence[str]) -> list[Any]:
        """Return whole columns."""
        if _is_arrow(self.frame):
            return [self.frame.column(i) for i in self._indices(names)]
        return [self.frame.iloc[:, i] for i in self._indices(names)]

    def column(self, name: str) -> Array:
        """Return one column (N,)."""
        values = self.read([name])[0]
        owner = f"{name!r} of {FRAME}"
        return matrix_from_arrow(values, owner) if _is_arrow(self.frame) else np.asarray(values)

    def _indices(self, names: Sequence[str]) -> list[int]:
        all_names = [column.name for column in self.columns]
        return [all_names.index(name) for name in names]

    def rows(self, numbers: Sequence[str], *, is_list: bool) -> Reader:
        """Return a reader of the numbers, without a copy if the frame stores them together."""
        return read_array(self._matrix(numbers, is_list=is_list), name=FRAME)

    def _matrix(self, numbers: Sequence[str], *, is_list: bool) -> Array:
        indices = self._indices(numbers)
        if _is_arrow(self.frame):
            return matrix_from_arrow(self.frame.select(indices), FRAME)
        if is_list:
            return to_numpy(self.frame.iloc[:, indices[0]].tolist())
        together = indices == list(range(indices[0], indices[0] + len(indices)))
        chosen = slice(indices[0], indices[-1] + 1) if together else indices
        frame = self.frame.iloc[:, chosen]
        values = np.asarray(frame)
        if values.dtype.kind != "O":
            return values
        return np.asarray(frame.to_numpy(np.float64, na_value=np.nan))  # nullable numbers


def _pandas_kind(frame: Any, i: int) -> Kind:
    kind = frame.dtypes.iloc[i]
    letter = getattr(kind, "kind", "O")
    if letter in _BY_LETTER:
        return _BY_LETTER[letter]
    if letter != "O":
        return "other"
    if str(kind) != "object":  # text and categories, or an Arrow type
        return "list" if "list" in str(kind) else "text"
    values = (value for value in frame.iloc[:, i] if value is not None)
    first = next(values, "")
    if isinstance(first, str):
        return "text"
    if is_entries(first):
        return "entries"
    if not isinstance(first, list | tuple | np.ndarray):
        return "other"
    inner = _BY_LETTER.get(np.asarray(first).dtype.kind, "text")
    return LIST_KINDS.get(inner, "text list")


# ---- rows and blocks -----------------------------------------------------------------------------


def in_memory(values: Any, keys: Keys = USUAL) -> Contents:
    """Read a frame, a dictionary, a Trainer's output, or rows."""
    if is_frame(values):
        return of_table(FrameTable.of(values), keys)
    if isinstance(values, Mapping):
        owner = "the dictionary"
        key, logits = matrix_key(values, owner, keys)
        reader = read_array(values[key])
        about = beside(values, {key}, keys, owner, values.__getitem__, reader.n_classes)
        return Contents(reader=reader, logits=logits, **about)
    if is_trainer_output(values):
        rows, labels = values.predictions, Labels(to_numpy(values.label_ids, "'labels'"))
        rows = rows[0] if isinstance(rows, tuple | list) else rows  # hidden states follow it
        return Contents(reader=read_array(rows), labels=labels, logits=True)
    names = getattr(values, "class_names", None)  # of top-k rows
    if names is not None:
        names = checked_names(names, len(names), "'class_names' of TopK")
    return Contents(reader=read_array(values), class_names=names)


def unpacked(block: Any, keys: Keys = USUAL) -> Contents:
    """Unpack a block of a stream: rows, or a pair of rows and labels."""
    rows, labels = rows_and_labels(block)
    contents = in_memory(rows, keys)
    if labels is None:
        return contents
    return replace(contents, labels=Labels(to_numpy(labels, "'labels'")))


def is_trainer_output(values: Any) -> bool:
    """Return whether values are the output of Trainer.predict (Hugging Face)."""
    return hasattr(values, "predictions") and hasattr(values, "label_ids")


def rows_and_labels(block: Any) -> tuple[Any, Any]:
    """Separate a block and its labels; a torch DataLoader yields lists, not tuples."""
    is_pair = isinstance(block, tuple | list) and len(block) == 2
    if is_pair and (isinstance(block, tuple) or getattr(block[0], "ndim", 0) == 2):
        return block[0], block[1]
    return block, None


@dataclass(frozen=True, kw_only=True)
class StreamReader(Reader):
    """Reads an iterable of blocks, such as the batches of a data loader, once."""

    stream: Iterator[Any]
    class_names: tuple[str, ...] | None
    keys: Keys = USUAL

    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the blocks; split large ones."""
        start = 0
        for item in self.stream:
            block = unpacked(item, self.keys)
            assert isinstance(block.reader, ArrayReader)
            rows, ids = block.reader.rows, block.ids
            is_read = block.labels is not None and self.keys.read_labels
            labels = block.labels.values if is_read and block.labels is not None else None
            if block.class_names != self.class_names:
                names = listed(block.class_names or ["no names"], 5)
                raise InputError(f"Blocks must have the same columns. Got {names}.")
            for name, column in (("labels", labels), ("ids", ids)):
                if (column is not None) != getattr(self, f"has_{name}"):
                    raise InputError(
                        f"All blocks must come with {name}, or none. Got a change from row {start} "
                        f"on; put the {name} into every block."
                    )
            if labels is not None and labels.shape[:1] != (len(rows),):
                raise InputError(
                    f"'labels' must have one entry per row. Got {labels.size} labels for "
                    f"{len(rows)} rows."
                )
            yield from slices(rows, labels, ids)
            start += len(rows)

    def without_ids(self) -> StreamReader:
        """Ignore the ids of the blocks."""
        return replace(self, has_ids=False, keys=replace(self.keys, read_ids=False))


def read_stream(blocks: Iterable[Any], keys: Keys = USUAL) -> Contents:
    """Read blocks of rows one by one; the first block shows what all of them contain."""
    stream = iter(blocks)
    item = next(stream, None)
    if item is None:
        reader = StreamReader(stream=stream, n_classes=0, n_rows=0, class_names=None)
        return Contents(reader=reader)
    first = unpacked(item, keys)
    reader = StreamReader(
        stream=itertools.chain([item], stream),
        n_classes=first.reader.n_classes,
        is_top_k=first.reader.is_top_k,
        may_lack_classes=first.reader.is_top_k,
        n_rows=None,
        class_names=first.class_names,
        keys=keys,
        has_labels=keys.read_labels and first.labels is not None,
        has_ids=first.ids is not None,
    )
    return replace(first, reader=reader, labels=None, ids=None)
