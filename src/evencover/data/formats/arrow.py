"""Arrow and Parquet: a list column or one column per class, read batch by batch."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from evencover._arrow import (
    arrow_kind,
    import_pyarrow,
    is_list,
    matrix_from_arrow,
    rows_of,
    saved_index,
    saved_range,
)
from evencover._validation import Array, InputError
from evencover.data.columns import Column, choose, note_left_out
from evencover.data.formats.arrays import LazyArrays
from evencover.data.formats.read_ahead import read_ahead
from evencover.data.frames import index_ids
from evencover.data.location import Location
from evencover.data.names import (
    NAMES_KEY,
    SAVED_INDEX,
    USUAL,
    Keys,
    are_numbers,
    layout_keys,
)
from evencover.data.reading import reading
from evencover.data.source import Source, rows_per_block, rows_per_part, slices

# Row groups of up to 64 MB of float32 are read whole; larger ones in batches: lists in small ones,
# which stay in the cache, and columns in large ones, each of which costs a call per class.
WHOLE_ELEMENTS = 1 << 24
LIST_ELEMENTS, COLUMN_ELEMENTS = 1 << 20, 1 << 23

RawBlocks = list[tuple[Array, Array | None]]


class TableSource(Source):
    """What Arrow and Parquet files share: which columns are which, and pieces that are read whole.

    Only the location is kept, and which pieces (row groups or record batches) are meant.
    """

    def __init__(self, location: Location, keys: Keys = USUAL) -> None:
        import_pyarrow()
        self.location, self.name = location, f"'{location}'"
        with reading(location) as self.identity:
            schema, self._piece_rows = self._describe()
            self._pieces = range(len(self._piece_rows))
            self.n_rows = sum(self._piece_rows)
            keys = layout_keys([field.name for field in _fields(schema)], keys)
            schema = _unfolded(schema, keys)
            self._read_schema(schema, keys)
            self.n_classes = self._count_classes(schema)
        if self.n_rows and self.n_classes < 2:
            raise InputError(f"{self.name} must have at least 2 classes. Got {self.n_classes}.")
        if self.class_names is not None and len(self.class_names) != self.n_classes:
            raise InputError(
                f"{self.name} must name every class. Got {len(self.class_names)} names for "
                f"{self.n_classes} classes."
            )

    def _describe(self) -> tuple[Any, list[int]]:
        """The schema, and the number of rows of each piece."""
        raise NotImplementedError

    def _batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        """Record batches of at most about `n_rows` rows."""
        raise NotImplementedError

    def _read_schema(self, schema: Any, keys: Keys) -> None:
        columns = [Column(field.name, arrow_kind(field.type)) for field in schema]
        layout = choose(columns, keys, self.name, index=saved_index(schema))
        note_left_out(layout, self.name)
        self._columns = [columns[place].name for place in layout.matrix]
        self._is_list = columns[layout.matrix[0]].kind.endswith("list")
        self._label_column = None if layout.label is None else columns[layout.label].name
        self._id_column = None if layout.ids is None else columns[layout.ids].name
        self._ids_are_index = layout.ids_are_index
        self._range = saved_range(schema, self.n_rows)
        self.has_labels = self._label_column is not None
        self.class_names, self.logits = layout.class_names, layout.logits
        self.numbers_are_names = are_numbers(self.class_names or [""])
        if self._is_list:  # whose labels, if they are numbers, count the list's places
            self.class_names = self._stored_names(schema)
        self.may_be_ranked = True
        self.used, self.left_out = layout.used(columns), layout.left_out

    def _stored_names(self, schema: Any) -> list[str] | None:
        """Class names of a list column: a JSON list in the metadata, as in safetensors files."""
        known = (schema.metadata or {}).get(NAMES_KEY.encode())
        return None if known is None else [str(name) for name in json.loads(known)]

    def _read_ids(self) -> Array | None:
        if self._id_column is None:
            return None if self._range is None else index_ids(self._range)
        with reading(self.location, self.identity):
            batches = list(self._batches(self._pieces, [self._id_column], 1 << 20))
            chunks = [batch.column(0) for batch in batches if batch.num_rows]
            if not chunks:
                return None
            ids = matrix_from_arrow(import_pyarrow().chunked_array(chunks), self.name)
        return index_ids(ids) if self._ids_are_index else ids

    def _count_classes(self, schema: Any) -> int:
        if not self._is_list:
            return len(self._columns)
        kind = schema.field(self._columns[0]).type
        if import_pyarrow().types.is_fixed_size_list(kind):
            return int(kind.list_size)
        batches = self._batches(self._pieces, self._columns, 1)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:  # nobody knows; reading it says that there are no rows
            return 0
        return matrix_from_arrow(first.column(0).slice(0, 1), self.name).shape[1]

    @property
    def _takes_labels(self) -> bool:
        return self._label_column is not None and self.labels is None

    def _wanted(self) -> list[str]:
        """The columns to read."""
        labels = [self._label_column] if self._label_column and self._takes_labels else []
        return [*self._columns, *labels]

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """What is read at once, in blocks."""
        with reading(self.location, self.identity):
            for blocks in self._read():
                yield from blocks

    def _read(self) -> Iterator[RawBlocks]:
        """Lists of blocks, as they are read together."""
        n_elements = LIST_ELEMENTS if self._is_list else COLUMN_ELEMENTS
        n_rows = max(1, n_elements // max(1, self.n_classes))
        first = self.first_row
        for batch in self._batches(self._pieces, self._wanted(), n_rows):
            yield self._as_blocks(batch, first)
            first += batch.num_rows

    def _as_blocks(self, table: Any, first: int) -> RawBlocks:
        """Rows and labels of a table or record batch that begins with row `first`."""
        columns = [
            matrix_from_arrow(table.column(name), self.name, first) for name in self._columns
        ]
        labels = self._labels_of(table, first) if self._takes_labels else None
        rows = columns[0] if len(columns) == 1 else rows_of(columns)
        blocks: RawBlocks = []
        start = 0
        for part in slices(rows):
            stop = start + len(part)
            blocks.append((part, None if labels is None else labels[start:stop]))
            start = stop
        return blocks

    def _labels_of(self, table: Any, first: int) -> Array:
        """The labels; a list of one (several answers could be right) is that one."""
        column = table.column(self._label_column)
        if not is_list(column.type):
            return matrix_from_arrow(column, self.name, first)
        import pyarrow.compute as compute

        lengths = np.asarray(compute.list_value_length(column).fill_null(0))
        if (lengths != 1).any():
            row = int((lengths != 1).argmax())
            raise InputError(
                f"Every row of {self.name} must have one label in {self._label_column!r}. "
                f"Got {lengths[row]} in row {first + row}."
            )
        return matrix_from_arrow(compute.list_flatten(column), self.name, first)

    @classmethod
    def columns_of(cls, location: Location) -> LazyArrays:
        """Give the columns of a file that need not hold probabilities, each read when asked for.

        An index of pandas is called ``__index_level_0__``, whatever its own name.
        """
        table = cls.__new__(cls)
        table.location = location
        schema, piece_rows = table._describe()
        index = saved_index(schema)
        counted = saved_range(schema, sum(piece_rows))
        counted = None if counted is None else index_ids(counted)
        stored = {SAVED_INDEX if name == index else name: name for name in schema.names}
        stored |= {} if counted is None else {SAVED_INDEX: SAVED_INDEX}

        def read(name: str) -> Array:
            if name == SAVED_INDEX and counted is not None:
                return counted
            column = stored[name]
            batches = table._batches(range(len(piece_rows)), [column], 1 << 20)
            values = [batch.column(0) for batch in batches]
            chunks = import_pyarrow().chunked_array(values, schema.field(column).type)
            return matrix_from_arrow(chunks, f"'{location}'")

        return LazyArrays(stored, read)

    def _runs(self, n_enough: int) -> Iterator[tuple[range, int, int]]:
        """Runs of pieces that have so many rows together; their rows, and the first of these."""
        first, n_rows, start = self._pieces.start, 0, self.first_row
        for piece in self._pieces:
            n_rows += self._piece_rows[piece]
            if n_rows >= n_enough or piece == self._pieces[-1]:
                yield range(first, piece + 1), n_rows, start
                first, n_rows, start = piece + 1, 0, start + n_rows

    def split(self) -> list[Source]:
        """Runs of pieces that make a part together."""
        parts: list[Source] = []
        for pieces, n_rows, start in self._runs(rows_per_part(self.n_classes)):
            part = copy.copy(self)
            part._pieces, part.n_rows, part.first_row = pieces, n_rows, start
            parts.append(part)
        return parts


def _fields(schema: Any) -> Iterator[Any]:
    """The columns, and the fields of structs as ``outer.inner``."""
    pa = import_pyarrow()
    for field in schema:
        yield field
        if pa.types.is_struct(field.type):
            yield from (inner.with_name(f"{field.name}.{inner.name}") for inner in field.type)


def _unfolded(schema: Any, keys: Keys) -> Any:
    """A schema in which fields of structs that the keys name stand in the place of the structs."""
    wanted = {key for key in astuple(keys) if key is not None} - set(schema.names)
    inner = [field for field in _fields(schema) if field.name in wanted]
    outer = {field.name.partition(".")[0] for field in inner}
    kept = [field for field in schema if field.name not in outer]
    return import_pyarrow().schema([*kept, *inner], schema.metadata)


def _picked(rows: Any, columns: list[str]) -> Any:
    """A table or record batch with these columns, which may be fields of structs."""
    if set(columns) <= set(rows.schema.names):
        return rows
    import pyarrow.compute as compute

    found = []
    for name in columns:
        outer, _, inner = name.partition(".")
        known = name in rows.schema.names
        found.append(
            rows.column(name) if known else compute.struct_field(rows.column(outer), [inner])
        )
    return type(rows).from_arrays(found, names=columns)


def _checked(rows: Any) -> Any:
    """A table or record batch that is consistent: reading on in another one may end the process."""
    rows.validate(full=True)
    return rows


class ParquetSource(TableSource):
    """A Parquet file: row groups, read side by side where they are small."""

    def _describe(self) -> tuple[Any, list[int]]:
        with self._open() as file:
            groups = file.metadata
            rows = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
            return file.schema_arrow, rows

    def _batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        with self._open() as file:
            batches = file.iter_batches(n_rows, row_groups=list(pieces), columns=columns)
            yield from (_picked(_checked(batch), columns) for batch in batches)

    def _read(self) -> Iterator[RawBlocks]:
        most_rows = max((self._piece_rows[piece] for piece in self._pieces), default=0)
        if most_rows * self.n_classes > WHOLE_ELEMENTS:
            yield from super()._read()
            return
        with self._open() as file:
            metadata = file.metadata
        columns = self._wanted()

        def read(run: tuple[range, int, int]) -> RawBlocks:
            pieces, _, first = run
            with self._open(metadata) as file:
                table = _checked(file.read_row_groups(list(pieces), columns))
                return self._as_blocks(_picked(table, columns), first)

        yield from read_ahead(read, self._runs(rows_per_block(self.n_classes)))

    def _open(self, metadata: Any = None) -> Any:
        import pyarrow.parquet as pq

        if isinstance(self.location, Path):
            return pq.ParquetFile(self.location, metadata=metadata, memory_map=True)
        system, path = self.location.system()
        return pq.ParquetFile(path, metadata=metadata, filesystem=system, pre_buffer=True)


class ArrowSource(TableSource):
    """An Arrow IPC (Feather) file, memory-mapped where it is on this machine."""

    def _describe(self) -> tuple[Any, list[int]]:
        with self._stream() as stream:
            file = import_pyarrow().ipc.open_file(stream)
            rows = [file.get_batch(i).num_rows for i in range(file.num_record_batches)]
            return file.schema, rows

    def _batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        pa = import_pyarrow()
        with self._stream() as stream:
            file = pa.ipc.open_file(stream)
            for piece in pieces:
                batch = file.get_batch(piece)
                names = [n if n in batch.schema.names else n.partition(".")[0] for n in columns]
                yield _picked(_checked(batch.select(list(dict.fromkeys(names)))), columns)

    def _stream(self) -> Any:
        pa = import_pyarrow()
        if isinstance(self.location, Path):
            return pa.memory_map(str(self.location))
        return pa.PythonFile(self.location.open("rb"), mode="r")
