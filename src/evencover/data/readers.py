"""Read arrays, frames, dictionaries, streams of batches, and several files one after another."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from evencover.arrays import (
    LIST_KINDS,
    Array,
    Kind,
    arrow_kind,
    matrix_from_arrow,
    saved_index,
    to_numpy,
)
from evencover.data.columns import (
    ID_KEYS,
    LABEL_KEYS,
    NAMES_KEY,
    USUAL,
    Column,
    Contents,
    Keys,
    Layout,
    checked_names,
    choose,
    found_key,
    integers_are_names,
    matrix_key,
    names_logits,
)
from evencover.data.source import RawBlock, Reader, slices
from evencover.errors import InputError, listed
from evencover.topk import TopK
from evencover.validation import score_rows

# ---- arrays --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ArrayReader(Reader):
    """Splits an array, a memory map or top-k rows into blocks."""

    rows: Any
    is_open: bool = False  #: whether there may be other classes than those that rows list

    @property
    def is_censored(self) -> bool:
        """Whether rows lack classes."""
        return self.is_listed and self.rows.size < len(self.rows) * self.rows.n_classes

    def row_blocks(self) -> Iterator[RawBlock]:
        """Split the array."""
        return slices(self.rows)


def read_array(rows: Any, **about: Any) -> ArrayReader:
    """Read rows in memory; `about` are fields of the reader."""
    matrix = score_rows(rows)
    about |= {"is_listed": isinstance(matrix, TopK)}
    return ArrayReader(rows=matrix, n_rows=len(matrix), n_classes=matrix.shape[1], **about)


# ---- frames and dictionaries ---------------------------------------------------------------------

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


def in_memory(frame: Any) -> Any:
    """Return a pandas frame as it is, others as Arrow tables, which share the memory of polars."""
    if not _is_polars(frame):
        return frame
    return (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()


def frame_columns(frame: Any) -> list[Column]:
    """Return names and kinds of all columns of a pandas frame or Arrow table."""
    if _is_arrow(frame):
        return [Column(field.name, arrow_kind(field.type)) for field in frame.schema]
    for place, name in enumerate(frame.columns):
        if name is None or name != name:  # NaN
            raise InputError(f"{FRAME} must name every column. Got {name} for column {place}.")
    return [Column(str(name), _pandas_kind(frame, i)) for i, name in enumerate(frame.columns)]


def _pandas_kind(frame: Any, place: int) -> Kind:
    kind = frame.dtypes.iloc[place]
    letter = getattr(kind, "kind", "O")
    if letter in _BY_LETTER:
        return _BY_LETTER[letter]
    if letter != "O":
        return "other"
    if str(kind) != "object":  # text and categories, or an Arrow type
        return "list" if "list" in str(kind) else "text"
    values = (value for value in frame.iloc[:, place] if value is not None)
    first = next(values, "")
    if isinstance(first, str):
        return "text"
    if not isinstance(first, list | tuple | np.ndarray):
        return "other"
    inner = _BY_LETTER.get(np.asarray(first).dtype.kind, "text")
    return LIST_KINDS.get(inner, "text list")


def _matrix_of(frame: Any, layout: Layout) -> Array:
    """Read the numbers (N, K), without a copy if the frame stores them together."""
    places = list(layout.numbers)
    if _is_arrow(frame):
        return matrix_from_arrow(frame.select(places), FRAME)
    if layout.is_list:
        return to_numpy(frame.iloc[:, places[0]].tolist())
    together = places == list(range(places[0], places[0] + len(places)))
    chosen = frame.iloc[:, places[0] : places[-1] + 1] if together else frame.iloc[:, places]
    values = np.asarray(chosen)
    if values.dtype.kind != "O":
        return values
    return np.asarray(chosen.to_numpy(np.float64, na_value=np.nan))  # nullable numbers


def column_of(frame: Any, place: int) -> Array:
    """Read one column (N,) of a pandas frame or Arrow table."""
    if _is_arrow(frame):
        return matrix_from_arrow(frame.column(place), FRAME)
    return np.asarray(frame.iloc[:, place])


def unpacked(values: Any, keys: Keys = USUAL) -> Contents:
    """Unpack a frame, a dictionary, a Trainer's output, a pair of rows and labels, or rows."""
    if is_frame(values):
        return _of_frame(in_memory(values), keys)
    if isinstance(values, Mapping):
        return _of_dictionary(values, keys)
    if is_trainer_output(values):
        rows = values.predictions
        rows = rows[0] if isinstance(rows, tuple | list) else rows  # hidden states follow it
        return Contents(rows, labels=values.label_ids, logits=True)
    rows, labels = rows_and_labels(values)
    if labels is None:
        return Contents(rows, getattr(rows, "class_names", None))
    return replace(unpacked(rows, keys), labels=labels)


def is_trainer_output(values: Any) -> bool:
    """Return whether values are the output of Trainer.predict (Hugging Face)."""
    return hasattr(values, "predictions") and hasattr(values, "label_ids")


def rows_and_labels(block: Any) -> tuple[Any, Any]:
    """Separate a block and its labels; a torch DataLoader yields lists, not tuples."""
    is_pair = isinstance(block, tuple | list) and len(block) == 2
    if is_pair and (isinstance(block, tuple) or getattr(block[0], "ndim", 0) == 2):
        return block[0], block[1]
    return block, None


def _of_frame(frame: Any, keys: Keys) -> Contents:
    index = saved_index(frame.schema) if _is_arrow(frame) else None
    layout = choose(frame_columns(frame), keys, FRAME, index=index)
    has_labels = layout.label is not None and keys.read_labels
    return Contents(
        _matrix_of(frame, layout),
        layout.class_names,
        layout.logits,
        column_of(frame, layout.label) if has_labels else None,  # type: ignore[arg-type]
        ids=None if layout.ids is None else column_of(frame, layout.ids),
        integers_are_names=integers_are_names(layout.class_names),
        columns=layout.columns,
    )


def _of_dictionary(batch: Mapping[str, Any], keys: Keys) -> Contents:
    owner = "the dictionary"
    key = matrix_key(batch, owner, keys)
    label = found_key(batch, keys.labels, LABEL_KEYS, owner, "labels_key")
    ids = found_key(batch, keys.ids, ID_KEYS, owner, "ids_key")
    names = batch.get(NAMES_KEY)
    if names is not None:
        names = to_numpy(names).tolist()
        names = checked_names(names, len(names), f"{NAMES_KEY!r} in {owner}")
    return Contents(
        batch[key],
        names,
        names_logits(key, batch),
        None if label is None or not keys.read_labels else batch[label],
        ids=None if ids is None else to_numpy(batch[ids]),
    )


# ---- streams and several files -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StreamReader(Reader):
    """Reads an iterable of blocks, such as the batches of a data loader, once."""

    stream: Iterator[Any]
    class_names: Sequence[str] | None
    keys: Keys = USUAL
    ignores_ids: bool = False

    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the blocks; split large ones."""
        start = 0
        for item in self.stream:
            block = unpacked(item, self.keys)
            rows = score_rows(block.rows)
            labels = block.labels if self.keys.read_labels else None
            ids = None if self.ignores_ids else block.ids
            if block.class_names is not None and self.class_names != block.class_names:
                names = listed(block.class_names, 5)
                raise InputError(f"Blocks must have the same columns. Got {names}.")
            for name, column in (("labels", labels), ("ids", ids)):
                if (column is not None) != getattr(self, f"has_{name}"):
                    raise InputError(
                        f"All blocks must come with {name}, or none. Got a change from row {start} "
                        f"on; put the {name} into every block."
                    )
            if labels is not None:
                labels = to_numpy(labels, "'labels'")
                if labels.shape[:1] != (len(rows),):
                    raise InputError(
                        f"'labels' must have one entry per row. Got {labels.size} labels for "
                        f"{len(rows)} rows."
                    )
            yield from slices(rows, labels, ids)
            start += len(rows)

    def without_ids(self) -> StreamReader:
        """Ignore the ids of the blocks."""
        return replace(self, has_ids=False, ignores_ids=True)


def read_stream(blocks: Iterable[Any], keys: Keys = USUAL) -> Contents:
    """Read blocks of rows one by one; the first block shows what all of them contain."""
    stream = iter(blocks)
    item = next(stream, None)
    if item is None:
        return Contents(StreamReader(stream=stream, n_classes=0, n_rows=0, class_names=None))
    first = unpacked(item, keys)
    reader = StreamReader(
        stream=itertools.chain([item], stream),
        n_classes=score_rows(first.rows).shape[1],
        is_listed=isinstance(first.rows, TopK),
        n_rows=None,
        class_names=first.class_names,
        keys=keys,
        has_labels=keys.read_labels and first.labels is not None,
        has_ids=first.ids is not None,
    )
    return replace(first, rows=reader, labels=None, ids=None)


@dataclass(frozen=True, kw_only=True)
class ConcatenatedReader(Reader):
    """Reads several files with the same classes, one after the other."""

    readers: tuple[Reader, ...]

    @property
    def _starts(self) -> list[int]:
        return list(accumulate((reader.n_rows or 0 for reader in self.readers), initial=0))

    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the blocks of each file."""
        return itertools.chain.from_iterable(reader.row_blocks() for reader in self.readers)

    def split(self) -> Sequence[Reader]:
        """Split each file."""
        return [part for reader in self.readers for part in reader.split() or [reader]]

    def row_name(self, row: int) -> str:
        """Describe a row by its file and its index there."""
        starts = self._starts
        which = min(bisect_right(starts, row), len(self.readers)) - 1
        return self.readers[which].row_name(row - starts[which])


def concatenated(files: Sequence[Contents], name: str) -> Contents:
    """Concatenate files with the same classes; files without rows are skipped."""
    files = [file for file in files if file.rows.n_rows != 0] or list(files[:1])
    first = files[0]
    for other in files[1:]:
        _reject_mixture(first, other)
    readers = tuple(file.rows for file in files)
    reader = ConcatenatedReader(
        readers=readers,
        n_classes=readers[0].n_classes,
        n_rows=sum(reader.n_rows for reader in readers),
        name=f"'{name}'",
    )
    labels = [file.labels for file in files if file.labels is not None]
    if len({array.dtype.kind in "iu" for array in labels}) > 1:
        raise InputError(f"The labels of all files of '{name}' must be names, or all numbers.")
    ids = [file.ids for file in files]
    left_out = {column: why for file in files for column, why in file.columns.left_out.items()}
    guessed = tuple(dict.fromkeys(column for file in files for column in file.columns.guessed))
    return replace(
        first,
        rows=reader,
        labels=np.concatenate(labels) if labels else None,
        ids=None if any(array is None for array in ids) else np.concatenate(ids),  # type: ignore[arg-type]
        columns=first.columns._replace(left_out=left_out, guessed=guessed),
    )


def _reject_mixture(first: Contents, other: Contents) -> None:
    """Check that two files have the same classes, and that both or neither have labels."""
    for mine, theirs in zip(_facts(other), _facts(first), strict=False):
        if mine != theirs:
            raise InputError(
                f"All files must have the same classes, and labels in all or none. "
                f"Got {mine} in {other.rows.name}, and {theirs} in {first.rows.name}."
            )


def _facts(file: Contents) -> Iterator[str]:
    """Describe what all files of an input must have in common, in the words of a message."""
    yield f"{file.rows.n_classes} classes"
    yield "no labels" if file.labels is None else "labels"
    yield "class names" if file.class_names else "no class names"
    yield "logits" if file.logits else "probabilities"
    for index, name in enumerate(file.class_names or ()):
        yield f"{name!r} as class {index}"
