"""Read tables in pieces, and files of Parquet and Arrow with pyarrow.

What Arrow cannot know is decided elsewhere: which columns are classes, labels and ids (`columns`),
and which list the top classes (`entries`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Self

from evencover.arrays import Array
from evencover.arrow import arrow_kind, import_pyarrow, is_list, matrix_from_arrow, saved_index
from evencover.data.columns import NAMES_KEY, Column, Keys, entry_keys
from evencover.data.location import Identity, Location, file_identity, reading
from evencover.data.readers import RawBlock, Reader, rows_per_block, rows_per_part, slices
from evencover.sizes import at_once
from evencover.threads import map_on_threads

MOST_READERS = 4  # each keeps pieces in memory

# Row groups of up to 64 MB of float32 are read whole. Larger ones are read in batches: small ones
# of lists, to stay in the cache, and large ones of columns, each of which takes a call per class.
WHOLE_ELEMENTS = at_once(1 << 24)
LIST_ELEMENTS, COLUMN_ELEMENTS = at_once(1 << 20, 40), at_once(1 << 23, 70)
READ_ROWS = at_once(1 << 16)  # of labels, ids and entries


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

    @abstractmethod
    def read(self, names: Sequence[str]) -> list[Any]:
        """Read whole columns as Arrow or NumPy arrays."""

    def column(self, name: str) -> Array:
        """Read one column (N,) of labels or values."""
        return matrix_from_arrow(self.read([name])[0], f"{name!r} of {self.name}")

    @abstractmethod
    def rows(self, numbers: Sequence[str], *, is_list: bool) -> Reader:
        """Return a reader of the columns of the classes, or of one list column."""


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

    def piece_reader(self, names: list[str]) -> Callable[[range], Any] | None:
        """Return a function that threads call for different pieces; None if they cannot."""
        return None

    def rows(self, numbers: Sequence[str], *, is_list: bool) -> Reader:
        """Return a reader that opens the file again, without what only its opening needs."""
        pieces, n_classes = range(len(self.piece_rows)), len(numbers)
        if is_list:  # as in the first row
            batches = (batch for batch in self.batches(pieces, numbers, 1) if batch.num_rows)
            first = next((batch.slice(0, 1) for batch in batches), None)
            n_classes = 0 if first is None else matrix_from_arrow(first, self.name).shape[1]
        return TableReader(
            table=replace(self, content=None),
            numbers=list(numbers),
            is_list=is_list,
            pieces=pieces,
            n_rows=sum(self.piece_rows),
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
        """Read the pieces as blocks; small ones of lists on threads, as Arrow reads columns."""
        most_rows = max(self.table.piece_rows[self.pieces.start : self.pieces.stop], default=0)
        with reading(self.table.location, self.table.identity):
            read = self.table.piece_reader(self.numbers) if self.is_list else None
            if read is None or most_rows * self.n_classes > WHOLE_ELEMENTS:
                matrices = self._in_order()
            else:
                matrices = map_on_threads(
                    lambda run: matrix_from_arrow(read(run[0]), self.name, self.first_row + run[1]),
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
            yield matrix_from_arrow(batch, self.name, self.first_row + start)
            start += batch.num_rows

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
        table = replace(self.table, location=self.table.location.absolute())
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
            kind = "entries" if entry_keys(tuple(struct_names(field.type.value_type))) else "other"
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


@dataclass(frozen=True, kw_only=True)
class ArrowTable(FileTable):
    """An Arrow IPC (Feather) file, memory-mapped if local."""

    @classmethod
    def open(cls, location: Location, identity: Identity, keys: Keys | None) -> Self:
        """Read the schema, and the rows of each piece."""
        file = cls._file(location)
        schema, piece_rows = cls._pieces(file)
        about = of_schema(schema, piece_rows)
        return cls(
            name=f"'{location}'", location=location, identity=identity, content=file, **about
        )

    @staticmethod
    def _file(location: Location) -> Any:
        pa = import_pyarrow()
        if isinstance(location, Path):
            return pa.ipc.open_file(pa.memory_map(str(location)))
        return pa.ipc.open_file(pa.PythonFile(location.open("rb"), "r"))

    @staticmethod
    def _pieces(file: Any) -> tuple[Any, list[int]]:
        """Return the schema of an open file, and the rows of each piece."""
        batches = map(file.get_batch, range(file.num_record_batches))
        return file.schema, list(map(attrgetter("num_rows"), batches))

    def read(self, names: Sequence[str]) -> list[Any]:
        """Read whole columns."""
        pa, (schema, _) = import_pyarrow(), self._pieces(self.content or self._file(self.location))
        batches = self.batches(range(len(self.piece_rows)), names, READ_ROWS)
        fields = [schema.field(name) for name in names]
        return list(pa.Table.from_batches(batches, pa.schema(fields)).columns)

    def batches(self, pieces: range, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Read the record batches as they are."""
        file = self.content or self._file(self.location)
        for batch in map(file.get_batch, pieces):
            rows = batch.select(list(names))
            rows.validate(full=True)  # reading an inconsistent one may crash the process
            yield rows


@dataclass(frozen=True, kw_only=True)
class ParquetTable(ArrowTable):
    """A Parquet file; small row groups are read in parallel."""

    @staticmethod
    def _file(location: Location, metadata: Any = None) -> Any:
        import pyarrow.parquet as pq

        if isinstance(location, Path):
            return pq.ParquetFile(location, metadata=metadata, memory_map=True)
        system, path = location.system()
        return pq.ParquetFile(path, metadata=metadata, filesystem=system, pre_buffer=True)

    @staticmethod
    def _pieces(file: Any) -> tuple[Any, list[int]]:
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        return file.schema_arrow, list(map(attrgetter("num_rows"), groups))

    def batches(self, pieces: range, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Read batches of row groups."""
        file = self.content or self._file(self.location)
        for batch in file.iter_batches(n_rows, row_groups=list(pieces), columns=list(names)):
            batch.validate(full=True)
            yield batch.select(list(names))

    def piece_reader(self, names: list[str]) -> Callable[[range], Any]:
        """Return a function that reads whole row groups."""
        metadata = self._file(self.location).metadata

        def read(pieces: range) -> Any:
            with self._file(self.location, metadata) as file:
                rows = file.read_row_groups(list(pieces), names).select(names)
                rows.validate(full=True)
                return rows

        return read
