"""Read tables in pieces, and files of Parquet and Arrow with pyarrow.

What Arrow cannot know is decided elsewhere: which columns are classes, labels and ids (`columns`),
and which list the top classes (`entries`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Self

from evencover.arrays import Array
from evencover.arrow import (
    arrow_kind,
    import_pyarrow,
    is_list,
    matrix_from_arrow,
    rows_of,
    saved_index,
)
from evencover.classes import checked_names
from evencover.data.columns import (
    NAMES_KEY,
    Column,
    Keys,
    choose,
    entry_keys,
)
from evencover.data.location import Identity, Location, absolute, file_identity, reading
from evencover.data.readers import RawBlock, Reader, rows_per_block, rows_per_part, slices
from evencover.data.source import Contents, Labels
from evencover.errors import InputError
from evencover.sizes import at_once
from evencover.threads import map_on_threads

MOST_READERS = 4  # each keeps pieces in memory

# Row groups of up to 64 MB of float32 are read whole. Larger ones are read in batches: small ones
# of lists, to stay in the cache, and large ones of columns, each of which takes a call per class.
WHOLE_ELEMENTS = at_once(1 << 24)
LIST_ELEMENTS, COLUMN_ELEMENTS = at_once(1 << 20, 40), at_once(1 << 23, 70)


@dataclass(frozen=True, kw_only=True)
class Table(ABC):
    """Named columns, stored in pieces such as row groups or record batches."""

    name: str  #: in messages
    columns: tuple[Column, ...]
    piece_rows: tuple[int, ...]  #: rows of each piece
    has_names: bool = True  #: whether the columns have names
    index: str | None = None  #: the column in which pandas stored the index
    class_names: str | None = None  #: of a list column, as JSON
    has_types: ClassVar[bool] = True  #: whether text that looks like an integer is text

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.piece_rows)

    @abstractmethod
    def read(self, names: Sequence[str]) -> list[Any]:
        """Read whole columns as Arrow or NumPy arrays."""

    def column(self, name: str) -> Array:
        """Read one column (N,) of labels or values."""
        return matrix_from_arrow(self.read([name])[0], f"{name!r} of {self.name}")

    @abstractmethod
    def list_length(self, name: str) -> int:
        """Return the length of the lists in a column; 0 without rows."""

    @abstractmethod
    def rows(self, numbers: Sequence[str], n_classes: int, *, is_list: bool) -> Reader:
        """Return a reader of the columns of the classes, or of one list column."""


def table_contents(table: Table, keys: Keys) -> Contents:
    """Find classes, labels and ids in a table with a list column, or one column per class."""
    layout = choose(table.columns, keys, table.name, named=table.has_names, index=table.index)
    n_classes, names = len(layout.numbers), layout.class_names
    if layout.is_list:
        n_classes = table.list_length(layout.numbers[0])
        if table.class_names is not None and n_classes:
            stored = json.loads(table.class_names)
            names = checked_names(stored, n_classes, f"{NAMES_KEY} in {table.name}")
    if table.n_rows and n_classes < 2:
        raise InputError(f"{table.name} must have at least 2 classes. Got {n_classes}.")
    label = layout.label if keys.read_labels else None
    ids = layout.ids if keys.read_ids else None
    return Contents(
        reader=table.rows(layout.numbers, n_classes, is_list=layout.is_list),
        class_names=names,
        logits=layout.logits,
        labels=None if label is None else Labels(table.column(label)),
        ids=None if ids is None else table.read([ids])[0],
        columns=layout.columns,
    )


# ---- files ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FileTable(Table):
    """A table in a file, which every pass opens again."""

    location: Location
    identity: Identity
    content: Any = None  #: what only the opening needs: the open file, or cells

    @classmethod
    @abstractmethod
    def open(cls, location: Location, identity: Identity, keys: Keys | None) -> Self:
        """Read the names and kinds of the columns, and the numbers of rows.

        Without keys, the table need not contain probabilities.
        """

    @abstractmethod
    def batches(self, pieces: range, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Read record batches of at most about `n_rows` rows."""

    def piece_reader(self, names: Sequence[str]) -> Callable[[range], Any] | None:
        """Return a function that threads call for different pieces; None if they cannot."""
        return None

    def list_length(self, name: str) -> int:
        """Return the length of the first list in a column; 0 without rows."""
        for batch in self.batches(range(len(self.piece_rows)), [name], 1):
            if batch.num_rows:
                return matrix_from_arrow(batch.column(0).slice(0, 1), self.name).shape[1]
        return 0

    def rows(self, numbers: Sequence[str], n_classes: int, *, is_list: bool) -> Reader:
        """Return a reader that opens the file again, without what only its opening needs."""
        return TableReader(
            table=replace(self, content=None),
            numbers=list(numbers),
            is_list=is_list,
            pieces=range(len(self.piece_rows)),
            n_rows=self.n_rows,
            n_classes=n_classes,
            name=self.name,
        )


@dataclass(frozen=True, kw_only=True)
class TableReader(Reader):
    """Reads the numbers of a table: some pieces of a file, which it opens for each reading."""

    table: FileTable
    numbers: list[str]  #: one list column, or one column per class
    is_list: bool
    pieces: range

    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the pieces as blocks; small ones on threads."""
        most_rows = max(self.table.piece_rows[self.pieces.start : self.pieces.stop], default=0)
        with reading(self.table.location, self.table.identity):
            read = self.table.piece_reader(self.numbers)
            if read is None or most_rows * self.n_classes > WHOLE_ELEMENTS:
                matrices = self._in_order()
            else:
                matrices = map_on_threads(
                    lambda run: self._matrix(read(run[0]), run[1]),
                    self._runs(rows_per_block(self.n_classes)),
                    most_threads=MOST_READERS,
                    ahead=1,
                )
            for rows in matrices:
                yield from slices(rows)

    def _in_order(self) -> Iterator[Array]:
        """Read batches of the pieces one by one."""
        n_elements = LIST_ELEMENTS if self.is_list else COLUMN_ELEMENTS
        n_rows, start = max(1, n_elements // max(1, self.n_classes)), 0
        for batch in self.table.batches(self.pieces, self.numbers, n_rows):
            yield self._matrix(batch, start)
            start += batch.num_rows

    def _matrix(self, rows: Any, start: int) -> Array:
        """Return the numbers of a table or record batch that starts at row `start`."""
        first = self.first_row + start
        columns = [matrix_from_arrow(rows.column(name), self.name, first) for name in self.numbers]
        return columns[0] if self.is_list else rows_of(columns)

    def _runs(self, n_enough: int) -> Iterator[tuple[range, int, int]]:
        """Group pieces into runs of enough rows; yield each with its first row and length."""
        first, n_rows, start = self.pieces.start, 0, 0
        for piece in self.pieces:
            n_rows += self.table.piece_rows[piece]
            if n_rows >= n_enough or piece == self.pieces[-1]:
                yield range(first, piece + 1), start, n_rows
                first, n_rows, start = piece + 1, 0, start + n_rows

    def split(self) -> list[Reader]:
        """Group pieces into partitions."""
        table = replace(self.table, location=absolute(self.table.location))
        return [
            replace(self.cut(start, n_rows), table=table, pieces=pieces)
            for pieces, start, n_rows in self._runs(rows_per_part(self.n_classes))
        ]

    def identity_of_rows(self) -> tuple[Any, ...]:
        """Identify the rows by their file."""
        return (*file_identity(self.table.location, self.table.identity), self.first_row)


def of_schema(schema: Any, piece_rows: Iterable[int]) -> dict[str, Any]:
    """Return the fields of a `Table` that a schema and the rows of pieces decide."""
    names, columns = (schema.metadata or {}).get(NAMES_KEY.encode()), []
    for field in schema:
        kind = arrow_kind(field.type)
        if is_list(field.type) and import_pyarrow().types.is_struct(field.type.value_type):
            kind = "entries" if entry_keys(struct_names(field.type.value_type)) else "other"
        columns.append(Column(field.name, kind))
    return {
        "columns": tuple(columns),
        "piece_rows": tuple(piece_rows),
        "index": saved_index(schema),
        "class_names": None if names is None else names.decode(),
    }


def struct_names(struct: Any) -> list[str]:
    """Return the names of the fields of an Arrow type."""
    return [struct.field(i).name for i in range(struct.num_fields)]


def _validated(rows: Any) -> Any:
    """Check a table or record batch; reading an inconsistent one may crash the process."""
    rows.validate(full=True)
    return rows


@dataclass(frozen=True, kw_only=True)
class ParquetTable(FileTable):
    """A Parquet file; small row groups are read in parallel."""

    @classmethod
    def open(cls, location: Location, identity: Identity, keys: Keys | None) -> Self:
        """Read the schema, and the rows of each row group."""
        file = cls._file(location)
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        about = of_schema(file.schema_arrow, map(attrgetter("num_rows"), groups))
        return cls(
            name=f"'{location}'", location=location, identity=identity, content=file, **about
        )

    @staticmethod
    def _file(location: Location, metadata: Any = None) -> Any:
        import pyarrow.parquet as pq

        if isinstance(location, Path):
            return pq.ParquetFile(location, metadata=metadata, memory_map=True)
        system, path = location.system()
        return pq.ParquetFile(path, metadata=metadata, filesystem=system, pre_buffer=True)

    def read(self, names: Sequence[str]) -> list[Any]:
        """Read whole columns."""
        file = self.content or self._file(self.location)
        return list(_validated(file.read(list(names))).select(list(names)).columns)

    def batches(self, pieces: range, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Read batches of row groups."""
        file = self.content or self._file(self.location)
        batches = file.iter_batches(n_rows, row_groups=list(pieces), columns=list(names))
        yield from map(_validated, batches)

    def piece_reader(self, names: Sequence[str]) -> Callable[[range], Any]:
        """Return a function that reads whole row groups."""
        metadata = self._file(self.location).metadata

        def read(pieces: range) -> Any:
            with self._file(self.location, metadata) as file:
                return _validated(file.read_row_groups(list(pieces), list(names)))

        return read


@dataclass(frozen=True, kw_only=True)
class ArrowTable(FileTable):
    """An Arrow IPC (Feather) file, memory-mapped if local."""

    @classmethod
    def open(cls, location: Location, identity: Identity, keys: Keys | None) -> Self:
        """Read the schema, and the rows of each record batch."""
        file = cls._file(location)
        batches = map(file.get_batch, range(file.num_record_batches))
        about = of_schema(file.schema, map(attrgetter("num_rows"), batches))
        return cls(
            name=f"'{location}'", location=location, identity=identity, content=file, **about
        )

    @staticmethod
    def _file(location: Location) -> Any:
        pa = import_pyarrow()
        if isinstance(location, Path):
            return pa.ipc.open_file(pa.memory_map(str(location)))
        return pa.ipc.open_file(pa.PythonFile(location.open("rb"), "r"))

    def read(self, names: Sequence[str]) -> list[Any]:
        """Read whole columns."""
        file = self.content or self._file(self.location)
        schema = import_pyarrow().schema([file.schema.field(name) for name in names])
        batches = list(self.batches(range(len(self.piece_rows)), names, 0))
        return list(import_pyarrow().Table.from_batches(batches, schema).columns)

    def batches(self, pieces: range, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Read the record batches as they are."""
        file = self.content or self._file(self.location)
        for batch in map(file.get_batch, pieces):
            yield _validated(batch.select(list(names)))
