"""Read tables with pyarrow: Parquet, Arrow, CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from evencover.arrays import (
    LIST_KINDS,
    Array,
    Kind,
    arrow_kind,
    import_pyarrow,
    matrix_from_arrow,
    rows_of,
    saved_index,
    to_numpy,
)
from evencover.data.columns import (
    ID_KEYS,
    LABEL_KEYS,
    NAMES_KEY,
    PROBABILITY_KEYS,
    SAVED_INDEX,
    USUAL,
    Column,
    Contents,
    Keys,
    checked_names,
    choose,
    count_up,
    integers_are_names,
    is_index_name,
    is_reserved,
)
from evencover.data.formats.arrays import ONLY_ARRAY, LazyArrays
from evencover.data.location import Identity, Location, absolute, file_identity, reading
from evencover.data.source import (
    RawBlock,
    Reader,
    rows_per_block,
    rows_per_part,
    slices,
)
from evencover.errors import InputError
from evencover.sizes import at_once
from evencover.threads import map_on_threads
from evencover.validation import are_json_numbers, is_integer_text, parse_json, unique_keys

MOST_READERS = 4  # each keeps pieces in memory

# Row groups of up to 64 MB of float32 are read whole. Larger ones are read in batches: small ones
# of lists, to stay in the cache, and large ones of columns, each of which takes a call per class.
WHOLE_ELEMENTS = at_once(1 << 24)
LIST_ELEMENTS, COLUMN_ELEMENTS = at_once(1 << 20, 40), at_once(1 << 23, 70)


@dataclass(frozen=True, kw_only=True)
class TableFile(ABC):
    """A table in a file, stored in pieces, such as row groups or record batches."""

    location: Location
    columns: tuple[Column, ...]
    piece_rows: tuple[int, ...]  #: rows of each piece
    is_named: bool = True  #: whether the columns have names
    index: str | None = None  #: the column in which pandas stored the index
    class_names: str | None = None  #: of a list column, as JSON

    @classmethod
    @abstractmethod
    def open(cls, location: Location, keys: Keys | None) -> Self:
        """Read the names and kinds of the columns, and the numbers of rows.

        Without keys, the table need not contain probabilities.
        """

    @abstractmethod
    def batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        """Read record batches of at most about `n_rows` rows."""

    def piece_reader(self, columns: list[str]) -> Callable[[range], Any] | None:
        """Return a function that threads call for different pieces; None if they cannot."""
        return None

    def column(self, name: str) -> Array:
        """Read one column (N,)."""
        batches = self.batches(range(len(self.piece_rows)), [name], 1 << 20)
        chunks = [batch.column(0) for batch in batches if batch.num_rows]
        if not chunks:
            return np.zeros(0, dtype=np.int64)
        return matrix_from_arrow(import_pyarrow().chunked_array(chunks), f"'{self.location}'")


@dataclass(frozen=True, kw_only=True)
class TableReader(Reader):
    """Reads the numbers of a table: some pieces of a file, which it opens for each reading."""

    table: TableFile
    identity: Identity
    numbers: list[str]  #: one list column, or one column per class
    is_list: bool
    pieces: range

    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the pieces as blocks."""
        with reading(self.table.location, self.identity):
            for rows in self._matrices():
                yield from slices(rows)

    def _matrices(self) -> Iterator[Array]:
        most_rows = max((self.table.piece_rows[piece] for piece in self.pieces), default=0)
        is_small = most_rows * self.n_classes <= WHOLE_ELEMENTS
        read = self.table.piece_reader(self.numbers) if is_small else None
        if read is not None:

            def matrix(run: tuple[range, int, int]) -> Array:
                return self._matrix(read(run[0]), run[1])

            runs = self._runs(rows_per_block(self.n_classes))
            yield from map_on_threads(matrix, runs, most_threads=MOST_READERS, ahead=1)
            return
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
        return (*file_identity(self.table.location, self.identity), self.first_row)


def open_table(location: Location, kind: type[TableFile], keys: Keys = USUAL) -> Contents:
    """Open a table with a list column, or one column per class."""
    import_pyarrow()
    name = f"'{location}'"
    with reading(location) as identity:
        table = kind.open(location, keys)
        columns = table.columns
        layout = choose(columns, keys, name, named=table.is_named, index=table.index)
        numbers = [columns[place].name for place in layout.numbers]
        n_rows, n_classes, names = sum(table.piece_rows), len(numbers), layout.class_names
        pieces = range(len(table.piece_rows))
        if layout.is_list:
            rows = (batch.column(0) for batch in table.batches(pieces, numbers, 1))
            first = next((column.slice(0, 1) for column in rows if len(column)), None)
            n_classes = 0 if first is None else matrix_from_arrow(first, name).shape[1]
            if table.class_names is not None and first is not None:
                stored = json.loads(table.class_names)
                names = checked_names(stored, n_classes, f"{NAMES_KEY} in {name}")
        has_labels = layout.label is not None and keys.read_labels
        labels = table.column(columns[layout.label].name) if has_labels else None  # type: ignore[index]
        ids = None if layout.ids is None else table.column(columns[layout.ids].name)
    if n_rows and n_classes < 2:
        raise InputError(f"{name} must have at least 2 classes. Got {n_classes}.")
    reader = TableReader(
        table=replace(table, cells={}) if isinstance(table, TextFile) else table,
        identity=identity,
        numbers=numbers,
        is_list=layout.is_list,
        pieces=pieces,
        n_rows=n_rows,
        n_classes=n_classes,
        name=name,
    )
    return Contents(
        reader,
        names,
        layout.logits,
        labels,
        isinstance(table, TextFile),
        ids,
        integers_are_names=integers_are_names(layout.class_names),
        columns=layout.columns,
    )


def table_columns(location: Location, kind: type[TableFile]) -> LazyArrays:
    """Return the columns of a file that need not contain probabilities, read on demand.

    Those of text files are text. The index of pandas is called ``__index_level_0__``, regardless of
    its name.
    """
    table = kind.open(location, None)
    stored = {SAVED_INDEX if name == table.index else name: name for name, _ in table.columns}
    return LazyArrays(stored, lambda name: table.column(stored[name]))


# ---- Parquet and Arrow ---------------------------------------------------------------------------


def _validated(rows: Any) -> Any:
    """Check a table or record batch; reading an inconsistent one may crash the process."""
    rows.validate(full=True)
    return rows


def _of_schema(schema: Any, piece_rows: Iterable[int]) -> dict[str, Any]:
    """Return the fields of a `TableFile` that a schema and the rows of pieces decide."""
    names = (schema.metadata or {}).get(NAMES_KEY.encode())
    return {
        "columns": tuple(Column(field.name, arrow_kind(field.type)) for field in schema),
        "piece_rows": tuple(piece_rows),
        "index": saved_index(schema),
        "class_names": None if names is None else names.decode(),
    }


@dataclass(frozen=True, kw_only=True)
class ParquetFile(TableFile):
    """A Parquet file; small row groups are read in parallel."""

    @classmethod
    def open(cls, location: Location, keys: Keys | None) -> Self:
        """Read the schema, and the rows of each row group."""
        with _parquet(location) as file:
            groups = file.metadata
            rows = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
            return cls(location=location, **_of_schema(file.schema_arrow, rows))

    def batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        """Read batches of row groups."""
        with _parquet(self.location) as file:
            batches = file.iter_batches(n_rows, row_groups=list(pieces), columns=columns)
            yield from map(_validated, batches)

    def piece_reader(self, columns: list[str]) -> Callable[[range], Any]:
        """Return a function that reads whole row groups."""
        with _parquet(self.location) as file:
            metadata = file.metadata

        def read(pieces: range) -> Any:
            with _parquet(self.location, metadata) as file:
                return _validated(file.read_row_groups(list(pieces), columns))

        return read


def _parquet(location: Location, metadata: Any = None) -> Any:
    import pyarrow.parquet as pq

    if isinstance(location, Path):
        return pq.ParquetFile(location, metadata=metadata, memory_map=True)
    system, path = location.system()
    return pq.ParquetFile(path, metadata=metadata, filesystem=system, pre_buffer=True)


@dataclass(frozen=True, kw_only=True)
class ArrowFile(TableFile):
    """An Arrow IPC (Feather) file, memory-mapped if local."""

    @classmethod
    def open(cls, location: Location, keys: Keys | None) -> Self:
        """Read the schema, and the rows of each record batch."""
        with _arrow_stream(location) as stream:
            file = import_pyarrow().ipc.open_file(stream)
            rows = [file.get_batch(i).num_rows for i in range(file.num_record_batches)]
            return cls(location=location, **_of_schema(file.schema, rows))

    def batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        """Read the record batches as they are."""
        with _arrow_stream(self.location) as stream:
            file = import_pyarrow().ipc.open_file(stream)
            for piece in pieces:
                yield _validated(file.get_batch(piece).select(columns))


def _arrow_stream(location: Location) -> Any:
    pa = import_pyarrow()
    if isinstance(location, Path):
        return pa.memory_map(str(location))
    return pa.PythonFile(location.open("rb"), mode="r")


# ---- text ----------------------------------------------------------------------------------------

N_SAMPLED = 200  # rows that determine the kind of a column; integers are checked to the end
CSV_BYTES = at_once(1 << 24, 400)  # parsed at once
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_INTEGERS = r"^\s*-?[0-9]{1,18}\s*$"
_NUMBER = re.compile(
    r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(inf|infinity|nan)", re.I
)
_FRACTION = re.compile(r"[-+]?[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?|[-+]?[0-9.]+[eE][-+]?[0-9]+")


@dataclass(frozen=True, kw_only=True)
class TextFile(TableFile):
    """A table in a text file, read twice: first for the number of rows and the column types.

    The first reading keeps the cells of labels and ids, which are text.
    """

    cells: Mapping[str, list[Any]] = field(default_factory=dict)

    def column(self, name: str) -> Array:
        """Return one column (N,) as text."""
        return to_numpy(self.cells[name])

    def no_numbers(self, name: str, cell: Any, row: int) -> InputError:
        """Build the error for a cell that is not a number."""
        return InputError(
            f"{name!r} of '{self.location}' must contain numbers, one per class. "
            f"Got {str(cell)[:40]!r} in row {row}."
        )


@dataclass(frozen=True, kw_only=True)
class CsvFile(TextFile):
    """A CSV or TSV file; a first line with anything but numbers is a header."""

    @classmethod
    def open(cls, location: Location, keys: Keys | None) -> Self:
        """Read the whole file once."""
        import pyarrow.compute as compute

        names, is_named = csv_names(location, keys)
        if not names:
            raise InputError(f"'{location}' must have at least one line. Got none.")
        if keys is None and len(names) == 1 and names[0] not in (*LABEL_KEYS, *ID_KEYS):
            names, is_named = [ONLY_ARRAY], False
        kept = [place for place, name in enumerate(names) if _is_kept(name, keys)]
        cells: dict[int, list[Any]] = {place: [] for place in kept}
        kinds: list[Kind] = ["float"] * len(names)
        integers, zeros, n_rows = set[int](), set[int](), 0
        for batch in csv_batches(location, len(names), is_named):
            if n_rows == 0:
                samples = [column.slice(0, N_SAMPLED).to_pylist() for column in batch.columns]
                kinds = [_kind_of_cells(sample) for sample in samples]
                for place, sample in enumerate(samples):  # a comma at the end of every line
                    if not names[place] and not any(map(str.strip, sample)):
                        kinds[place] = "other"
                integers = {place for place, kind in enumerate(kinds) if kind == "integer"}
                zeros = set(integers)
            n_rows += batch.num_rows
            for place in list(integers):
                if not compute.all(compute.match_substring_regex(batch[place], _INTEGERS)).as_py():
                    integers.remove(place)
                    kinds[place] = "float"
                if {cell.strip() for cell in batch[place].unique().to_pylist()} != {"0"}:
                    zeros.discard(place)
            for place, texts in cells.items():
                texts += [cell.strip() for cell in batch[place].to_pylist()]
        for place in zeros:  # some tools write 0 for a class that is never probable
            kinds[place] = "float"
        for place in kept:  # labels and ids, whatever they look like
            kinds[place] = "text"
        return cls(
            location=location,
            columns=tuple(map(Column, names, kinds)),
            piece_rows=(n_rows,),
            is_named=is_named,
            cells={names[place]: texts for place, texts in cells.items()},
        )

    def batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        """Parse the cells of some columns as numbers."""
        names = [name for name, _ in self.columns]
        places, start = [names.index(name) for name in columns], 0
        for batch in csv_batches(self.location, len(names), self.is_named):
            numbers = [self._numbers(batch[place], self.columns[place], start) for place in places]
            yield import_pyarrow().RecordBatch.from_arrays(numbers, names=columns)
            start += batch.num_rows

    def _numbers(self, cells: Any, column: Column, start: int) -> Any:
        import pyarrow.compute as compute

        pa = import_pyarrow()
        is_list = column.kind.endswith("list")
        cells = compute.utf8_trim_whitespace(cells)
        if not is_list:
            with suppress(pa.ArrowInvalid):
                return cells.cast("double")
        numbers = []
        for row, cell in enumerate(cells.to_pylist(), start):
            inside = _list_cells(cell) if is_list else [cell]
            for text in inside:
                if not _is_number(text):
                    raise self.no_numbers(column.name, text, row)
            numbers.append(list(map(float, inside)) if is_list else float(cell))
        return pa.array(numbers)


def _is_kept(name: str, keys: Keys | None) -> bool:
    """Return whether a column may be labels or ids; without keys, all are kept."""
    return keys is None or name in (*LABEL_KEYS, *ID_KEYS, keys.labels, keys.ids)


def csv_names(location: Location, keys: Keys | None) -> tuple[list[str], bool]:
    """Return the column names, and whether the first line is a header.

    Without keys it is one. Otherwise a line of numbers is data, unless they are different integers
    above numbers with digits after the point. Numbers next to text are names only if the text is a
    name that no class has, such as "label", or if a key states that columns have names.
    """
    with location.open("rb") as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=_DELIMITERS[location.suffix.lower()], strict=True)
        lines = ([cell.strip() for cell in line] for line in reader if line)
        first = next(lines, [])
        is_certain = keys is None or not {keys.probabilities, keys.labels, keys.ids} <= {None}
        if all(map(_is_number, first)) and not is_certain:
            is_header = all(map(str.isdecimal, first)) and len(set(first)) == len(first)
            is_header = is_header and not set(first) <= {"0", "1"}
            second = next(lines, [])
            is_header = is_header and (count_up(first) or any(map(_FRACTION.fullmatch, second)))
            return first if is_header else [f"column {i}" for i in range(len(first))], is_header
    known = all(is_index_name(cell) or is_reserved(cell) for cell in first if not _is_number(cell))
    numbers = [cell for cell in first if _is_number(cell) and any(map(str.isdigit, cell))]
    is_data = not all(map(str.isdecimal, numbers)) or not (is_certain or known)
    if keys is not None and numbers and is_data:
        raise InputError(
            f"'{location}' must name its columns in the first line, because not all of them are "
            f"numbers. Got {numbers[0]!r} there; write a header, or confirm that this is a name "
            "with probabilities_key (--probabilities-key)."
        )
    return first, True


def csv_batches(location: Location, width: int, has_header: bool) -> Iterator[Any]:
    """Read record batches of text; columns are named by position."""
    pa = import_pyarrow()
    import pyarrow.compute as compute
    import pyarrow.csv as arrow_csv

    wrong: list[Any] = []

    def reject(row: Any) -> str:
        wrong.append(row)
        return "error"

    names = [str(place) for place in range(width)]
    delimiter = _DELIMITERS[location.suffix.lower()]
    with location.open("rb") as file:
        longest = max(len(file.readline()) for _ in range(3))  # a row must fit into a block
        file.seek(0)
        n_quotes = sum(part.count(b'"') for part in iter(partial(file.read, 1 << 20), b""))
        file.seek(0)
        read_options = arrow_csv.ReadOptions(
            use_threads=False,  # keeps row numbers in errors
            block_size=max(CSV_BYTES, 4 * longest),
            column_names=names,
            skip_rows_after_names=int(has_header),
        )
        parse_options = arrow_csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=reject
        )
        types = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        try:
            for batch in arrow_csv.open_csv(file, read_options, parse_options, types):
                has_break = partial(compute.match_substring, pattern="\n")
                if n_quotes % 2 and any(compute.any(has_break(c)).as_py() for c in batch.columns):
                    raise InputError(  # rows may have become one cell
                        f"Every quotation mark of '{location}' must be closed. Got a cell with a "
                        "line break in it and an odd number of marks in the file."
                    )
                yield batch
        except pa.ArrowInvalid:
            if not wrong:
                raise
            raise InputError(
                f"Every row of '{location}' must have {width} columns. Got "
                f"{wrong[0].actual_columns} in row {wrong[0].number - 1 - has_header}; text with "
                f"a {'tab' if delimiter == chr(9) else 'comma'} in it needs quotes."
            ) from None


def _kind_of_cells(cells: list[str]) -> Kind:
    filled = [cell.strip() for cell in cells if cell.strip()]
    if not filled or any(map(_is_number, filled)):
        is_integer = filled and all(re.match(_INTEGERS, cell) for cell in cells)
        return "integer" if is_integer else "float"
    if all(cell.startswith("[") for cell in filled):
        inside = _list_cells(filled[0])
        if not all(map(_is_number, inside)):
            return "text list"
        return "integer list" if all(map(is_integer_text, inside)) else "list"
    return "flag" if {cell.lower() for cell in filled} <= {"true", "false"} else "text"


def _list_cells(cell: str) -> list[str]:
    """Split a list in Python, NumPy or JSON notation."""
    return cell.strip().strip("[]").replace(",", " ").split()


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell.strip()) is not None


Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class JsonLinesFile(TextFile):
    """JSON objects, one per line; nested fields are called ``outer.inner``.

    Python parses them, because pyarrow rejects fields of mixed types, such as ids.
    """

    @classmethod
    def open(cls, location: Location, keys: Keys | None) -> Self:
        """Read the whole file once; any row may have a field that others lack."""
        samples: dict[str, list[Any]] = {}
        cells: dict[str, list[Any]] = {}
        n_rows = 0
        for record in _records(location):
            for name, value in record.items():
                sample = samples.setdefault(name, [])
                if len(sample) < N_SAMPLED and value is not None:
                    sample.append(value)
                if _is_kept(name, keys):
                    known = cells.setdefault(name, [])
                    known += [None] * (n_rows - len(known))
                    known.append(value)
            n_rows += 1
        columns = tuple(
            Column(name, "text" if _is_kept(name, keys) else _kind_of_values(values))
            for name, values in samples.items()
        )
        if n_rows == 0:
            columns = (Column(PROBABILITY_KEYS[0], "list"),)
        return cls(location=location, columns=columns, piece_rows=(n_rows,), cells=cells)

    def column(self, name: str) -> Array:
        """Return one column (N,) as text; a missing value is an error."""
        texts: list[str] = []
        for row in range(self.piece_rows[0]):
            value = self.cells[name][row] if row < len(self.cells[name]) else None
            if value is None or value != value:  # NaN
                raise self._missing(name, row)
            texts.append(str(value))
        return to_numpy(texts)

    def batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        """Convert the fields of some rows to numbers."""
        pa, start, kinds = import_pyarrow(), 0, dict(self.columns)
        n_rows = min(n_rows, max(1, LIST_ELEMENTS // len(columns)))
        wanted = ([record.get(name) for name in columns] for record in _records(self.location))
        while block := list(islice(wanted, n_rows)):
            numbers = [
                self._numbers(values, Column(name, kinds[name]), start)
                for name, values in zip(columns, zip(*block, strict=True), strict=True)
            ]
            yield pa.RecordBatch.from_arrays(numbers, names=columns)
            start += len(block)

    def _numbers(self, values: tuple[Any, ...], column: Column, start: int) -> Any:
        pa, is_list = import_pyarrow(), column.kind.endswith("list")
        if None in values:
            raise self._missing(column.name, start + values.index(None))
        if not is_list and are_json_numbers(values):
            return pa.array(values, pa.float64())
        for row, value in enumerate(values, start):
            inside = value if isinstance(value, list) else [value]
            if isinstance(value, list) != is_list or not are_json_numbers(inside):
                bad = next((cell for cell in inside if not are_json_numbers([cell])), value)
                raise self.no_numbers(column.name, bad, row)
        return pa.array(values, pa.list_(pa.float64()))

    def _missing(self, name: str, row: int) -> InputError:
        owner = f"'{self.location}'"
        return InputError(f"Every row of {owner} must have {name!r}. Got none in row {row}.")


def json_objects(location: Location) -> Iterator[Record]:
    """Read one JSON object per line."""
    with location.open("rb") as file:
        for row, line in enumerate(line for line in file if line.strip()):
            owner = f"row {row} of '{location}'"
            record = parse_json(line, owner)
            if not isinstance(record, dict):
                raise InputError(f"{owner} must be a JSON object. Got {type(record).__name__}.")
            yield record


def _records(location: Location) -> Iterator[Record]:
    for row, record in enumerate(json_objects(location)):
        yield unique_keys(f"row {row} of '{location}'", list(_flat(record)))


def _flat(record: Record, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _kind_of_values(values: list[Any]) -> Kind:
    """Return the kind of a field; one number makes it numeric, so that no text hides a class."""
    types = set(map(type, values))
    if types == {str}:
        return "text"
    if types & {int, float}:
        return "integer" if types == {int} and any(values) else "float"
    if types == {bool}:
        return "flag"
    inside = [item for value in values if isinstance(value, list) for item in value[:1000]]
    return LIST_KINDS.get(_kind_of_values(inside), "other") if inside else "other"
