"""Read tables with pyarrow: Parquet, Arrow, CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from evencover.arrays import (
    Array,
    arrow_kind,
    import_pyarrow,
    is_list,
    matrix_from_arrow,
    rows_of,
    saved_index,
    saved_range,
    to_numpy,
)
from evencover.data.columns import (
    FLAT_LIGHTEVAL,
    ID_KEYS,
    LABEL_KEYS,
    LIGHTEVAL,
    LIST_KINDS,
    NAMES_KEY,
    SAVED_INDEX,
    USUAL,
    Column,
    Keys,
    Kind,
    are_numbers,
    checked_names,
    choose,
    count_up,
    found_key,
    layout_keys,
    note_left_out,
)
from evencover.data.formats import evaluation_logs
from evencover.data.formats.arrays import ONLY_ARRAY, LazyArrays
from evencover.data.frames import index_ids
from evencover.data.location import Location, reading
from evencover.data.source import (
    RawBlocks,
    Source,
    SourceInfo,
    rows_per_block,
    rows_per_part,
    slices,
)
from evencover.errors import InputError
from evencover.threads import map_on_threads
from evencover.validation import are_json_numbers, parse_json, unique_keys

MOST_READERS = 4  # each keeps pieces in memory

# Row groups of up to 64 MB of float32 are read whole. Larger ones are read in batches: small ones
# of lists, to stay in the cache, and large ones of columns, each of which takes a call per class.
WHOLE_ELEMENTS = 1 << 24
LIST_ELEMENTS, COLUMN_ELEMENTS = 1 << 20, 1 << 23


class TableSource(Source):
    """A table stored in pieces, such as row groups or record batches.

    Keeps only the location and the range of pieces.
    """

    location: Location
    _has_header = True

    def __init__(self, location: Location, keys: Keys = USUAL) -> None:
        import_pyarrow()
        self.location, self._keys, name = location, keys, f"'{location}'"
        self.info = SourceInfo(0, name=name)
        with reading(location) as self.identity:
            schema, self._piece_rows = self._describe()
            self._pieces = range(len(self._piece_rows))
            keys = layout_keys([field.name for field in _fields(schema)], self._keys)
            self.info = self._read_schema(_unfolded(schema, keys), keys)
        if self.n_rows and self.n_classes < 2:
            raise InputError(f"{name} must have at least 2 classes. Got {self.n_classes}.")

    def _describe(self) -> tuple[Any, list[int]]:
        """Return the schema, and the number of rows of each piece."""
        raise NotImplementedError

    def _batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        """Read record batches of at most about `n_rows` rows."""
        raise NotImplementedError

    def _read_schema(self, schema: Any, keys: Keys) -> SourceInfo:
        columns = [Column(field.name, arrow_kind(field.type)) for field in schema]
        layout = choose(columns, keys, self.name, named=self._has_header, index=saved_index(schema))
        note_left_out(layout, self.name)
        n_rows, n_classes, names = sum(self._piece_rows), len(layout.matrix), layout.class_names
        self._columns = [columns[place].name for place in layout.matrix]
        self._is_list = columns[layout.matrix[0]].kind.endswith("list")
        self._label_column = None if layout.label is None else columns[layout.label].name
        self._id_column = None if layout.ids is None else columns[layout.ids].name
        self._ids_are_index = layout.ids_are_index
        self._range = saved_range(schema, n_rows)
        if self._is_list:
            n_classes = getattr(schema.field(self._columns[0]).type, "list_size", 0)
            if n_classes == 0:
                batches = self._batches(self._pieces, self._columns, 1)
                rows = next((each.column(0).slice(0, 1) for each in batches if each.num_rows), None)
                # The number of classes is unknown without rows; reading raises.
                n_classes = 0 if rows is None else matrix_from_arrow(rows, self.name).shape[1]
            stored = (schema.metadata or {}).get(NAMES_KEY.encode())
            if stored is not None:  # a JSON list, as in safetensors files
                names = checked_names(json.loads(stored), n_classes, f"{NAMES_KEY} in {self.name}")
        return SourceInfo(
            n_classes,
            n_rows,
            names,
            layout.logits,
            self.name,
            has_labels=layout.label is not None,
            numbers_are_names=are_numbers(layout.class_names or [""]),
            may_be_ranked=True,
            used=layout.used(columns),
            left_out=layout.left_out,
        )

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

    def _wanted(self) -> list[str]:
        """List the columns to read; separate labels replace those of the file."""
        has_labels = self._label_column is not None and self.labels is None
        return [*self._columns, *([self._label_column] if has_labels else [])]  # type: ignore[list-item]

    def row_blocks(self) -> RawBlocks:
        """Read the pieces as blocks."""
        with reading(self.location, self.identity):
            for blocks in self._read():
                yield from blocks

    def _read(self) -> Iterator[RawBlocks]:
        """Read blocks as they are stored."""
        n_elements = LIST_ELEMENTS if self._is_list else COLUMN_ELEMENTS
        n_rows = max(1, n_elements // max(1, self.n_classes))
        first = self.info.first_row
        for batch in self._batches(self._pieces, self._wanted(), n_rows):
            yield self._as_blocks(batch, first)
            first += batch.num_rows

    def _as_blocks(self, table: Any, first: int) -> RawBlocks:
        """Return rows and labels of a table or record batch that starts at row `first`."""
        found = [matrix_from_arrow(table.column(name), self.name, first) for name in self._columns]
        has_labels = self._label_column in table.schema.names
        labels = self._labels_of(table, first) if has_labels else None
        return slices(found[0] if len(found) == 1 else rows_of(found), labels)

    def _labels_of(self, table: Any, first: int) -> Array:
        """Read the labels; a list of one label is that label."""
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
        """Return the columns of a file that need not contain probabilities, read on demand.

        The index of pandas is called ``__index_level_0__``, regardless of its name.
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
        """Group pieces into runs of enough rows; yield each with its first row and length."""
        first, n_rows, start = self._pieces.start, 0, 0
        for piece in self._pieces:
            n_rows += self._piece_rows[piece]
            if n_rows >= n_enough or piece == self._pieces[-1]:
                yield range(first, piece + 1), start, n_rows
                first, n_rows, start = piece + 1, 0, start + n_rows

    def split(self) -> list[Source]:
        """Group pieces into partitions."""
        parts: list[Source] = []
        for pieces, start, n_rows in self._runs(rows_per_part(self.n_classes)):
            part = self.cut(start, n_rows)
            part._pieces = pieces
            parts.append(part)
        return parts


def _fields(schema: Any) -> Iterator[Any]:
    """List the columns, and the fields of structs as ``outer.inner``."""
    pa = import_pyarrow()
    for field in schema:
        yield field
        if pa.types.is_struct(field.type):
            yield from (inner.with_name(f"{field.name}.{inner.name}") for inner in field.type)


def _unfolded(schema: Any, keys: Keys) -> Any:
    """Replace structs in a schema by the fields that the keys name."""
    wanted = {key for key in keys.names if key is not None} - set(schema.names)
    inner = [field for field in _fields(schema) if field.name in wanted]
    outer = {field.name.partition(".")[0] for field in inner}
    kept = [field for field in schema if field.name not in outer]
    return import_pyarrow().schema([*kept, *inner], schema.metadata)


def _picked(rows: Any, columns: list[str]) -> Any:
    """Select columns of a table or record batch, which may be fields of structs.

    Validate the table first: reading an inconsistent one may crash the process.
    """
    rows.validate(full=True)
    names = rows.schema.names
    if set(columns) <= set(names):
        return rows
    import pyarrow.compute as compute

    paths = ((name, *name.partition(".")[::2]) for name in columns)
    found = [
        rows.column(name) if name in names else compute.struct_field(rows.column(outer), [inner])
        for name, outer, inner in paths
    ]
    return type(rows).from_arrays(found, names=columns)


class ParquetSource(TableSource):
    """A Parquet file; small row groups are read in parallel."""

    def _describe(self) -> tuple[Any, list[int]]:
        with self._open() as file:
            groups = file.metadata
            rows = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
            return file.schema_arrow, rows

    def _batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        with self._open() as file:
            batches = file.iter_batches(n_rows, row_groups=list(pieces), columns=columns)
            yield from (_picked(batch, columns) for batch in batches)

    def _read(self) -> Iterator[RawBlocks]:
        most_rows = max((self._piece_rows[piece] for piece in self._pieces), default=0)
        if most_rows * self.n_classes > WHOLE_ELEMENTS:
            yield from super()._read()
            return
        with self._open() as file:
            metadata = file.metadata
        columns = self._wanted()

        def read(run: tuple[range, int, int]) -> RawBlocks:
            pieces, start, _ = run
            with self._open(metadata) as file:
                table = _picked(file.read_row_groups(list(pieces), columns), columns)
                return self._as_blocks(table, self.info.first_row + start)

        runs = self._runs(rows_per_block(self.n_classes))
        yield from map_on_threads(read, runs, most_threads=MOST_READERS, ahead=1)

    def _open(self, metadata: Any = None) -> Any:
        import pyarrow.parquet as pq

        if isinstance(self.location, Path):
            return pq.ParquetFile(self.location, metadata=metadata, memory_map=True)
        system, path = self.location.system()
        return pq.ParquetFile(path, metadata=metadata, filesystem=system, pre_buffer=True)


class ArrowSource(TableSource):
    """An Arrow IPC (Feather) file, memory-mapped if local."""

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
                yield _picked(batch.select(list(dict.fromkeys(names))), columns)

    def _stream(self) -> Any:
        pa = import_pyarrow()
        if isinstance(self.location, Path):
            return pa.memory_map(str(self.location))
        return pa.PythonFile(self.location.open("rb"), mode="r")


N_SAMPLED = 200  # rows that determine the kind of a column; integers are checked to the end
CSV_BYTES = 1 << 24  # parsed at once
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_INTEGER = r"^\s*-?[0-9]{1,18}\s*$"
_TYPES = {"float": "double", "integer": "int64", "flag": "bool", "text": "string", "list": "double"}


class TextSource(TableSource):
    """A table in a text file, read twice: first for the number of rows and the column types.

    Ids are text. Labels are integers if all are, in plain digits, else text.
    """

    _integer_labels: set[str]

    def _schema(self, names: list[str], kinds: list[Kind]) -> Any:
        pa = import_pyarrow()
        fields = []
        for name, kind in zip(names, kinds, strict=True):
            known = pa.type_for_alias(_TYPES.get(kind.removesuffix(" list"), "null"))
            fields.append((name, pa.list_(known) if kind.endswith("list") else known))
        return pa.schema(fields)

    def _no_numbers(self, name: str, found: Any, row: int) -> InputError:
        return InputError(
            f"{name!r} of {self.name} must contain numbers, one per class. "
            f"Got {str(found)[:40]!r} in row {row}."
        )

    def _labels(self, texts: Any) -> Any:
        import pyarrow.compute as compute

        if self._label_column not in self._integer_labels:
            return texts
        return compute.utf8_trim_whitespace(texts).cast("int64")


class CsvSource(TextSource):
    """A CSV or TSV file; a first line with anything but numbers is a header."""

    def _describe(self) -> tuple[Any, list[int]]:
        import pyarrow.compute as compute

        self._names, self._has_header = csv_names(self.location)
        if not self._names:
            raise InputError(f"{self.name} must have at least 2 classes (columns). Got 0.")
        kinds: list[Kind] = ["float"] * len(self._names)
        ids = [i for i, name in enumerate(self._names) if name in (*ID_KEYS, self._keys.ids)]
        integers, zeros, n_rows = set[int](), set[int](), 0
        for batch in csv_batches(self.location, len(self._names), self._has_header):
            if n_rows == 0:
                samples = [column.slice(0, N_SAMPLED).to_pylist() for column in batch.columns]
                kinds = [_kind_of_cells(cells) for cells in samples]
                integers = {i for i, kind in enumerate(kinds) if kind == "integer"}
                zeros = set(integers)
            n_rows += batch.num_rows
            for i in list(integers):
                if not compute.all(compute.match_substring_regex(batch[i], _INTEGER)).as_py():
                    integers.remove(i)
                    kinds[i] = "float"
                if {cell.strip() for cell in batch[i].unique().to_pylist()} != {"0"}:
                    zeros.discard(i)
            for i in ids:  # ids may be numbers and text
                if not all(map(_is_number, batch[i].to_pylist())):
                    kinds[i] = "text"
        self._integer_labels = {self._names[i] for i in integers}
        for i in zeros:  # some tools write 0 for a class that is never probable
            kinds[i] = "float"
        return self._schema(self._names, kinds), [n_rows]

    def _batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        places, first = [self._names.index(name) for name in columns], 0
        for batch in csv_batches(self.location, len(self._names), self._has_header):
            found = [self._converted(batch[i], self._names[i], first) for i in places]
            yield import_pyarrow().RecordBatch.from_arrays(found, names=columns)
            first += batch.num_rows

    def _converted(self, cells: Any, name: str, first: int) -> Any:
        import pyarrow.compute as compute

        pa = import_pyarrow()
        cells = compute.utf8_trim_whitespace(cells)
        if name == self._label_column:
            return self._labels(cells)
        if name == self._id_column:
            return cells
        if not self._is_list:
            with suppress(pa.ArrowInvalid):
                return cells.cast("double")
        numbers = []
        for row, cell in enumerate(cells.to_pylist(), first):
            inside = _list_cells(cell) if self._is_list else [cell]
            bad = next((each for each in inside if not _is_number(each)), None)
            if bad is not None:
                raise self._no_numbers(name, bad, row)
            found = [float(each) for each in inside]
            numbers.append(found if self._is_list else found[0])
        return pa.array(numbers)

    @classmethod
    def columns_of(cls, location: Location) -> LazyArrays:
        """Return the columns by name, as text; a single column has no name."""
        names, has_header = csv_names(location, always=True)
        if len(names) == 1 and names[0] not in (*LABEL_KEYS, *ID_KEYS):
            names, has_header = [ONLY_ARRAY], False
        batches = list(csv_batches(location, len(names), has_header)) if names else []

        def read(name: str) -> Array:
            cells = chain(*(batch[names.index(name)].to_pylist() for batch in batches))
            return np.array([cell.strip() for cell in cells], dtype=str)

        return LazyArrays(names, read)


def csv_names(location: Location, *, always: bool = False) -> tuple[list[str], bool]:
    """Return the column names, and whether the first line is a header (it is if `always`)."""
    with location.open("rb") as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        lines = csv.reader(text, delimiter=_DELIMITERS[location.suffix.lower()], strict=True)
        first = [name.strip() for name in next(filter(None, lines), [])]
    # 0, 1, 2, ... are default names of pandas, not probabilities.
    if always or not all(map(_is_number, first)) or (len(first) > 2 and count_up(first)):
        return first, True
    return [f"column {place}" for place in range(len(first))], False


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
        return "integer" if filled and all(map(_is_integer, cells)) else "float"
    if all(cell.startswith("[") for cell in filled):
        inside = _list_cells(filled[0])
        if not all(map(_is_number, inside)):
            return "text list"
        return "integer list" if all(map(_is_integer, inside)) else "list"
    return "flag" if {cell.lower() for cell in filled} <= {"true", "false"} else "text"


def _list_cells(cell: str) -> list[str]:
    """Split a list in Python, NumPy or JSON notation."""
    return cell.strip().strip("[]").replace(",", " ").split()


def column_from_text(values: list[str]) -> Array:
    """Convert to integers if all texts are plain digits."""
    if all(map(_is_integer, values)):
        return np.array([int(value) for value in values], dtype=np.int64)
    return to_numpy(values)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_integer(cell: str) -> bool:
    return re.match(_INTEGER, cell) is not None


Record = dict[str, Any]


class JsonLinesSource(TextSource):
    """JSON objects, one per line; nested fields are called ``outer.inner``.

    Python parses them, because pyarrow rejects fields of mixed types, such as lm-eval's.
    """

    _responses: str | None = None

    def __init__(self, location: Location, keys: Keys = USUAL) -> None:
        super().__init__(location, keys)
        if self._late and not self._is_list:
            raise self._missing(self._late[0], 0)
        if self._responses is not None:
            self.set_info(logits=True)

    def _describe(self) -> tuple[Any, list[int]]:
        first = next(_records(self.location), None)
        if first is None:
            raise InputError(f"There must be at least one row. Got none in {self.name}.")
        responses = next((key for key in evaluation_logs.RESPONSES if key in first), None)
        if responses is not None and self._keys.probabilities is None:
            given, usual = self._keys, evaluation_logs
            labels = found_key(first, given.labels, (usual.LABELS,), self.name, "labels_key")
            ids = found_key(first, given.ids, (usual.IDS,), self.name, "ids_key")
            self._keys, self._responses = Keys(responses, labels, ids), responses
        records = self._records()
        sample = list(islice(records, N_SAMPLED))
        names = list(dict.fromkeys(name for record in sample for name in record))
        known = {name for each in sample for name, value in each.items() if value is not None}
        self._late: list[str] = []  # numeric fields that the first rows lack
        labels_too = (self._keys.labels, LIGHTEVAL.labels, FLAT_LIGHTEVAL.labels)
        self._integer_labels = {name for name in names if name in (*LABEL_KEYS, *labels_too)}
        n_rows, pattern = 0, self._keys.probabilities or "*"
        for record in chain(sample, records):
            n_rows += 1
            integers = self._integer_labels
            integers -= {n for n in integers if not _is_integer(_as_text(record.get(n, "")))}
            self._late += [
                name
                for name in record.keys() - known
                if fnmatchcase(name, pattern) and are_json_numbers([record[name]])
            ]
        kinds = [_kind([record.get(name) for record in sample], name) for name in names]
        return self._schema(names, kinds), [n_rows]

    def _batches(self, pieces: range, columns: list[str], n_rows: int) -> Iterator[Any]:
        pa, records, first = import_pyarrow(), self._records(), 0
        n_rows = min(n_rows, max(1, LIST_ELEMENTS // len(columns)))
        wanted = ([record.get(name) for name in columns] for record in records)
        while block := list(islice(wanted, n_rows)):
            values = zip(columns, zip(*block, strict=True), strict=True)
            found = [self._converted(each, name, first) for name, each in values]
            yield pa.RecordBatch.from_arrays(found, names=columns)
            first += len(block)

    def _converted(self, values: tuple[Any, ...], name: str, first: int) -> Any:
        pa = import_pyarrow()
        if None in values:
            raise self._missing(name, first + values.index(None))
        if name == self._label_column:
            return self._labels(pa.array(map(_as_text, values), pa.string()))
        if name == self._id_column:
            return pa.array(map(_as_text, values), pa.string())
        if not self._is_list and are_json_numbers(values):
            return pa.array(values, pa.float64())
        for row, value in enumerate(values, first):
            inside = value if isinstance(value, list) else [value]
            if isinstance(value, list) != self._is_list or not are_json_numbers(inside):
                bad = next((each for each in inside if not are_json_numbers([each])), value)
                raise self._no_numbers(name, bad, row)
        return pa.array(values, pa.list_(pa.float64()))

    def _records(self) -> Iterator[Record]:
        """Read the objects; of lm-eval samples only the numbers, the label and the id."""
        for row, record in enumerate(_records(self.location)):
            if self._responses is None:
                yield record
                continue
            wanted = {key: record.get(key) for key in self._keys.names if key is not None}
            responses, labels = wanted[self._responses], self._keys.labels
            if responses is not None:
                try:
                    wanted[self._responses] = evaluation_logs.log_likelihoods(responses, record)
                except (TypeError, ValueError):
                    raise self._no_numbers(self._responses, responses, row) from None
            if labels is not None and wanted[labels] is not None:
                wanted[labels] = evaluation_logs.right_choice(wanted[labels], record)
            yield wanted

    def _missing(self, name: str, row: int) -> InputError:
        return InputError(f"Every row of {self.name} must have {name!r}. Got none in row {row}.")

    @classmethod
    def columns_of(cls, location: Location) -> LazyArrays:
        """Return the fields of a file that need not contain probabilities, as text."""
        records = list(_records(location))

        def read(field: str) -> Array:
            return to_numpy([_as_text(record.get(field, "")) for record in records])

        return LazyArrays(records[0] if records else (), read)


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


def _as_text(value: Any) -> str:
    """Return a label or id as text; a list of one label is that label."""
    return str(value[0] if isinstance(value, list) and len(value) == 1 else value)


def _kind(values: list[Any], name: str = "") -> Kind:
    """Return the kind of a field. One number makes it numeric: other values must not hide a class.

    Ids may be numbers and text.
    """
    values = [value for value in values if value is not None]
    types = set(map(type, values))
    if types == {str} or (types == {int, str} and name in ID_KEYS):
        return "text"
    if types & {int, float}:
        return "integer" if types == {int} and any(values) else "float"
    if types == {bool}:
        return "flag"
    inside = [value for each in values if isinstance(each, list) for value in each[:1000]]
    return LIST_KINDS.get(_kind(inside), "other") if inside else "other"
