"""Arrow and Parquet: a list column or one column per class, read batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from evencover._validation import Array, InputError
from evencover.data.files import LABEL_KEYS, LOGIT_KEY, PROBABILITY_KEYS, reading
from evencover.data.source import Source, rows_per_block, slices


def import_pyarrow() -> Any:
    """The optional dependency, or a sentence that says how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise InputError(
            "Arrow and Parquet need pyarrow; install it with 'pip install evencover[arrow]'."
        ) from None
    return pyarrow


def matrix_from_arrow(values: Any, name: str = "the input", start: int = 0) -> Array:
    """NumPy array of an Arrow table, record batch or (chunked) array; lists become rows.

    Messages call it `name` and count its rows from `start`.
    """
    pa = import_pyarrow()
    if isinstance(values, pa.Table | pa.RecordBatch):
        columns = [matrix_from_arrow(column, name, start) for column in values.columns]
        is_matrix = len(columns) == 1 and columns[0].ndim == 2
        return columns[0] if is_matrix else np.column_stack(columns)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # no chunks at all
            values = pa.array([], values.type)
    if values.null_count:
        row = start + int(values.is_null().to_numpy(zero_copy_only=False).argmax())
        raise InputError(f"Every row of {name} must have a value. Got null in row {row}.")
    if not _is_list(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    if not pa.types.is_fixed_size_list(values.type):
        lengths = np.diff(values.offsets.to_numpy())
        if len(lengths) and (lengths != lengths[0]).any():
            row = int((lengths != lengths[0]).argmax())
            raise InputError(
                f"Every row of {name} must have the same number of classes. "
                f"Got {lengths[0]} in row {start} and {lengths[row]} in row {start + row}."
            )
    flat = values.flatten()
    n_columns = len(flat) // len(values) if len(values) else 0
    if flat.null_count:
        row = start + int(flat.is_null().to_numpy(zero_copy_only=False).argmax()) // n_columns
        raise InputError(f"Every class of {name} must have a value. Got null in row {row}.")
    return matrix_from_arrow(flat, name, start).reshape(len(values), n_columns)


def _is_list(kind: Any) -> bool:
    types = import_pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_list_of_numbers(kind: Any) -> bool:
    types = import_pyarrow().types
    return _is_list(kind) and bool(
        types.is_floating(kind.value_type) or types.is_integer(kind.value_type)
    )


class _TableSource(Source):
    """What Arrow and Parquet files share: which columns are which."""

    path: Path

    def _read_schema(self, schema: Any) -> None:
        names = list(schema.names)
        self._label_column = next((name for name in LABEL_KEYS if name in names), None)
        lists = [name for name in names if _is_list_of_numbers(schema.field(name).type)]
        named = [name for name in (*PROBABILITY_KEYS, LOGIT_KEY) if name in lists] or lists
        if len(named) > 1:
            raise InputError(
                f"{self.name} must have one list column of probabilities. "
                f"Got {', '.join(map(repr, named))}."
            )
        types = import_pyarrow().types
        self._columns = named or [
            name
            for name in names
            if name != self._label_column and types.is_floating(schema.field(name).type)
        ]
        if not self._columns:
            raise InputError(
                f"{self.name} must have a list column of probabilities, or one column of "
                f"probabilities per class. Got the columns {', '.join(names) or 'none'}."
            )
        if named:
            self.logits = {LOGIT_KEY: True}.get(
                named[0], False if named[0] in PROBABILITY_KEYS else None
            )
        else:
            self.class_names = self._columns
        self.has_labels = self._label_column is not None

    def _batches(self) -> Iterable[Any]:
        raise NotImplementedError

    def _set_n_classes(self) -> None:
        if self.class_names is not None:
            self.n_classes = len(self.class_names)
        else:
            with reading(self.path):
                first = next((batch for batch in self._batches() if batch.num_rows), None)
            if first is None:
                raise InputError(f"There must be at least one row. Got none in {self.name}.")
            self.n_classes = matrix_from_arrow(first.column(self._columns[0]), self.name).shape[1]
        if self.n_classes < 2:
            raise InputError(f"{self.name} must have at least 2 classes. Got {self.n_classes}.")

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Batches of the file, cut where they are large."""
        with reading(self.path):
            first = 0
            for batch in self._batches():
                if batch.num_rows == 0:
                    continue
                rows = matrix_from_arrow(batch.select(self._columns), self.name, first)
                labels = None
                if self._label_column is not None and self.labels is None:
                    labels = matrix_from_arrow(batch.column(self._label_column), self.name, first)
                first += batch.num_rows
                start = 0
                for part in slices(rows):
                    stop = start + len(part)
                    yield part, None if labels is None else labels[start:stop]
                    start = stop

    def _wanted(self) -> list[str]:
        return [*self._columns, *([self._label_column] if self._label_column else [])]


class ParquetSource(_TableSource):
    """A Parquet file, one row group after the other."""

    def __init__(self, path: Path) -> None:
        import_pyarrow()
        import pyarrow.parquet as pq

        self.path, self.name = path, f"'{path}'"
        with reading(path):
            self._file = pq.ParquetFile(path)
        self.n_rows = self._file.metadata.num_rows
        self._read_schema(self._file.schema_arrow)
        self._set_n_classes()

    def _batches(self) -> Iterable[Any]:
        step = rows_per_block(getattr(self, "n_classes", 1024))
        return self._file.iter_batches(step, columns=self._wanted())


class ArrowSource(_TableSource):
    """An Arrow IPC (Feather) file, memory-mapped."""

    def __init__(self, path: Path) -> None:
        pa = import_pyarrow()
        self.path, self.name = path, f"'{path}'"
        with reading(path):
            self._file = pa.ipc.open_file(pa.memory_map(str(path)))
            self._read_schema(self._file.schema)
            self.n_rows = sum(batch.num_rows for batch in self._batches())
        self._set_n_classes()

    def _batches(self) -> Iterable[Any]:
        return (self._file.get_batch(i) for i in range(self._file.num_record_batches))
