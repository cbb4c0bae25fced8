"""Pieces of a file read by threads, while whoever asked for them is busy with those before."""

from __future__ import annotations

import copy
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple
from fnmatch import fnmatchcase
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

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
    ID_KEYS,
    LABEL_KEYS,
    NAMES_KEY,
    SAVED_INDEX,
    USUAL,
    Column,
    Keys,
    Kind,
    are_numbers,
    choose,
    count_up,
    layout_keys,
    note_left_out,
)
from evencover.data.formats import evaluation_logs
from evencover.data.formats.arrays import ONLY_ARRAY, LazyArrays
from evencover.data.frames import found_key, index_ids
from evencover.data.location import Location, reading
from evencover.data.source import Source, rows_per_block, rows_per_part, slices
from evencover.errors import InputError
from evencover.threads import map_on_threads
from evencover.validation import are_json_numbers, parse_json, unique_keys

Piece = TypeVar("Piece")
Content = TypeVar("Content")

MOST_READERS = 4  # each holds pieces in memory


def read_ahead(read: Callable[[Piece], Content], pieces: Iterable[Piece]) -> Iterator[Content]:
    """Yield ``read(piece)`` in the order of the pieces."""
    return map_on_threads(read, pieces, most_threads=MOST_READERS, ahead=1)


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


N_SAMPLED = 200  # lines that tell what kind a column is; only whole numbers are followed further


class Scan:
    """One pass over all lines: what the columns hold, and the values of those to `keep`.

    A column of zeros is no column of whole numbers: some tools write 0 for a class that is never
    probable.
    """

    def __init__(self, keep: Iterable[int]) -> None:
        self.kept: dict[int, list[str]] = {place: [] for place in keep}
        self.kinds: list[Kind] = []
        self._sample: list[list[str]] = []

    def read(self, lines: Iterable[list[str]], width: int) -> int:
        """The number of lines."""
        lines = iter(lines)
        self._sample = list(islice(lines, N_SAMPLED))
        n_lines = 0
        for line in self._sample:
            self._keep(line)
            n_lines += 1
        columns = [[line[i] for line in self._sample if i < len(line)] for i in range(width)]
        self.kinds = [_kind_of_column(cells) for cells in columns]
        whole = [place for place, kind in enumerate(self.kinds) if kind == "integer"]
        zero = {place for place in whole if all(cell.strip() == "0" for cell in columns[place])}
        for line in lines:
            self._keep(line)
            n_lines += 1
            for place in [p for p in whole if p < len(line) and not _is_whole(line[p])]:
                whole.remove(place)
                self.kinds[place] = "float"
            zero -= {place for place in zero if place < len(line) and line[place].strip() != "0"}
        for place in zero:
            self.kinds[place] = "float"
        return n_lines

    def _keep(self, line: list[str]) -> None:
        for place, values in self.kept.items():
            values.append(line[place].strip() if place < len(line) else "")

    def list_length(self, place: int) -> int:
        """How many numbers the first list of a column has."""
        return len(list_cells(self._sample[0][place])) if self._sample else 0


def _kind_of_column(cells: list[str]) -> Kind:
    filled = [cell.strip() for cell in cells if cell.strip()]
    if not filled or any(is_number(cell) for cell in filled):
        return "integer" if filled and all(map(_is_whole, cells)) else "float"
    if all(cell.startswith("[") for cell in filled):
        inside = list_cells(filled[0])
        if not all(map(is_number, inside)):
            return "text list"
        return "integer list" if all(map(_is_whole, inside)) else "list"
    return "flag" if {cell.lower() for cell in filled} <= {"true", "false"} else "text"


def list_cells(cell: str) -> list[str]:
    """The items of a list as Python, NumPy or JSON print it."""
    return cell.strip().strip("[]").replace(",", " ").split()


def column_from_text(values: list[str]) -> Array:
    """Whole numbers if all are, in plain digits, else the texts."""
    if all(map(_is_whole, values)):
        with suppress(ValueError, OverflowError):  # of more digits than 64 bits hold
            return np.array([int(value) for value in values], dtype=np.int64)
    return to_numpy(values)


def is_number(cell: str) -> bool:
    """Whether a text is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_whole(cell: str) -> bool:
    digits = cell.strip().removeprefix("-")
    return digits.isascii() and digits.isdecimal()


_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class TextSource(Source):
    """Lines of numbers; a first line with anything else in it names the columns.

    The file is read twice: first the labels, the kinds of columns and the number of rows, then the
    numbers.
    """

    may_be_ranked = True

    def __init__(self, location: Location, keys: Keys = USUAL) -> None:
        self.location, self.name = location, f"'{location}'"
        with reading(location) as self.identity:
            lines = _lines(location)
            first = next(lines, [])
            self._has_header = not _are_numbers(first) or _count_up(first)
            self._width = len(first)
            if not first:
                raise InputError(f"{self.name} must have at least 2 classes (columns). Got 0.")
            names = [f"column {place}" for place in range(self._width)]
            names = [name.strip() for name in first] if self._has_header else names
            rest = lines if self._has_header or not first else chain([first], lines)
            known = {*LABEL_KEYS, *ID_KEYS, keys.labels, keys.ids}
            scan = Scan([place for place, name in enumerate(names) if name in known])
            self.n_rows = scan.read(rest, self._width)
            for place in scan.kept:  # ids may be numbers and text
                is_id = names[place] in (*ID_KEYS, keys.ids)
                if is_id and not all(map(is_number, scan.kept[place])):
                    scan.kinds[place] = "text"
        columns = [Column(*pair) for pair in zip(names, scan.kinds, strict=True)]
        layout = choose(columns, keys, self.name, named=self._has_header)
        note_left_out(layout, self.name)
        self._columns, self._names = layout.matrix, names
        self._is_list = columns[layout.matrix[0]].kind.endswith("list")
        self.n_classes = scan.list_length(layout.matrix[0]) if self._is_list else len(self._columns)
        if self.n_classes < 2:
            raise InputError(
                f"{self.name} must have at least 2 classes (columns). Got {self.n_classes}."
            )
        self.class_names, self.logits = layout.class_names, layout.logits
        self.numbers_are_names = are_numbers(self.class_names or [""])
        self.used, self.left_out = layout.used(columns), layout.left_out
        if layout.ids is not None:
            self._ids = to_numpy(list(scan.kept[layout.ids]))
        if layout.label is not None:
            self.attach_labels(column_from_text(scan.kept[layout.label]))

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """As many lines as make a block."""
        step = rows_per_block(self.n_classes)
        with reading(self.location, self.identity):
            lines = _lines(self.location)
            if self._has_header:
                next(lines, None)
            start = 0
            while block := list(islice(lines, step)):
                yield self._numbers(block, start), None
                start += step

    def split(self) -> list[Source]:
        """The whole file: where a line begins is not known."""
        return [copy.copy(self)]

    def _numbers(self, lines: list[list[str]], start: int) -> Array:
        for row, line in enumerate(lines, start):
            if len(line) != self._width:
                raise InputError(
                    f"Every line of {self.name} must have {self._width} columns. "
                    f"Got {len(line)} in row {row}."
                )
        cells = [[line[i] for i in self._columns] for line in lines]
        if self._is_list:
            cells = [list_cells(line[0]) for line in cells]
            short = next((r for r, line in enumerate(cells) if len(line) != self.n_classes), None)
            if short is not None:
                raise InputError(
                    f"Every row of {self.name} must have {self.n_classes} classes. "
                    f"Got {len(cells[short])} in row {start + short}."
                )
        try:
            return np.array(cells, dtype=np.float64)
        except ValueError:
            pass
        row, place, cell = next(
            (row, place, cell)
            for row, line in enumerate(cells, start)
            for place, cell in enumerate(line)
            if not is_number(cell)
        )
        column = self._names[self._columns[0 if self._is_list else place]]
        raise InputError(
            f"Every column of {self.name} but 'labels' and 'id' must hold numbers, one per class. "
            f"Got {cell!r} in row {row}, {column!r}."
        )


def text_columns(location: Location) -> LazyArrays:
    """Give the columns of CSV or TSV by name, as text; an only column, or lines, have no name."""
    if location.suffix.lower() not in _DELIMITERS:
        with location.open("rb") as file:
            lines = file.read().decode("utf-8-sig").split("\n")
        return LazyArrays(
            [ONLY_ARRAY],
            lambda _: np.array([line.strip() for line in lines if line.strip()], dtype=str),
        )
    table = list(_lines(location)) or [[]]
    first = [name.strip() for name in table[0]]
    if len(first) == 1 and first[0] not in (*LABEL_KEYS, *ID_KEYS):
        return LazyArrays([ONLY_ARRAY], lambda _: _column(location, first, table, 0))
    return LazyArrays(first, lambda name: _column(location, first, table[1:], first.index(name)))


def _column(location: Location, first: list[str], values: list[list[str]], at: int) -> Array:
    """Return the cells of one column; every line must have as many cells as the first."""
    long = next((row for row, line in enumerate(values) if len(line) > len(first)), None)
    if long is not None:
        raise InputError(
            f"Every row of '{location}' must have {len(first)} value{'s'[: len(first) - 1]}. "
            f"Got {len(values[long])} in row {long}; text with a "
            f"{'tab' if location.suffix.lower() == '.tsv' else 'comma'} in it needs quotes."
        )
    short = next((row for row, line in enumerate(values) if len(line) <= at), None)
    if short is not None:
        raise InputError(f"Every row of '{location}' must have a value. Got none in row {short}.")
    return np.array([line[at].strip() for line in values], dtype=str)


def _lines(location: Location) -> Iterator[list[str]]:
    """The cells of each line that is not empty."""
    delimiter = _DELIMITERS[location.suffix.lower()]
    with location.open("rb") as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        yield from (line for line in csv.reader(text, delimiter=delimiter, strict=True) if line)


def _are_numbers(cells: list[Any]) -> bool:
    return all(is_number(cell) for cell in cells)


def _count_up(cells: list[str]) -> bool:
    """Whether they are 0, 1, 2, ...: names of columns as pandas gives them, not probabilities."""
    return len(cells) > 2 and count_up(cell.strip() for cell in cells)


N_SAMPLED_RECORDS = 100  # objects that tell what the fields hold

Record = dict[str, Any]
Reader = Callable[[Any, Record], Any]  # of a field, and the object it is in


class JsonLinesSource(Source):
    """Objects, one per line; fields of objects inside them are called ``outer.inner``.

    The file is read twice: first the labels and the number of rows, then the numbers.
    """

    may_be_ranked = True
    _fields: list[str]
    _read: Reader | None

    def __init__(self, location: Location, keys: Keys = USUAL) -> None:
        self.location, self.name = location, f"'{location}'"
        with reading(location) as self.identity:
            sample = list(islice(_records(location), N_SAMPLED_RECORDS))
            if not sample:
                raise InputError(f"There must be at least one row. Got none in {self.name}.")
            label, ids, read_label = self._find_fields(sample, keys)
            self.n_classes = len(self._values(sample[0], 0))
            if self.n_classes < 2:
                raise InputError(f"{self.name} must have at least 2 classes. Got {self.n_classes}.")
            labels: list[str] = []
            found_ids: list[str] = []
            self.n_rows = 0
            known = {name for each in sample for name, value in each.items() if value is not None}
            for row, record in enumerate(_records(location)):
                self.n_rows += 1
                late = record.keys() - known if self._read is None else ()
                for name in late:  # perhaps of a class that the first rows lack
                    is_class = fnmatchcase(name, keys.probabilities or "*")
                    if is_class and are_json_numbers([record[name]]):
                        self._get(sample[0], name, 0)
                if label is not None:
                    labels.append(read_label(self._get(record, label, row), record))
                if ids is not None:
                    found_ids.append(_plain(self._get(record, ids, row), record))
        if ids is not None:
            self._ids = to_numpy(found_ids)
        if label is not None:
            self.attach_labels(column_from_text(labels))

    def _find_fields(
        self, sample: list[Record], keys: Keys
    ) -> tuple[str | None, str | None, Reader]:
        """Learn where the numbers are; the fields of labels and ids, and how labels are read."""
        first = sample[0]
        responses = next((field for field in evaluation_logs.RESPONSES if field in first), None)
        if responses is not None and keys.probabilities is None:
            self._fields, self._read, self.logits = (
                [responses],
                evaluation_logs.log_likelihoods,
                True,
            )
            label = found_key(
                first, keys.labels, (evaluation_logs.LABELS,), self.name, "labels_key"
            )
            ids = found_key(first, keys.ids, (evaluation_logs.IDS,), self.name, "ids_key")
            uses = {"numbers": responses, "labels": label, "ids": ids}
            self.used = {use: field for use, field in uses.items() if field is not None}
            return label, ids, evaluation_logs.right_choice
        names = list(dict.fromkeys(name for record in sample for name in record))
        columns = [Column(name, _kind([r.get(name) for r in sample], name)) for name in names]
        layout = choose(columns, layout_keys(names, keys), self.name)
        note_left_out(layout, self.name)
        self._fields = [columns[place].name for place in layout.matrix]
        is_list = columns[layout.matrix[0]].kind.endswith("list")
        self._read = _whole if is_list else None
        self.class_names = layout.class_names
        self.logits = layout.logits
        self.numbers_are_names = are_numbers(self.class_names or [""])
        self.used, self.left_out = layout.used(columns), layout.left_out
        label_name = None if layout.label is None else columns[layout.label].name
        ids_name = None if layout.ids is None else columns[layout.ids].name
        return label_name, ids_name, _plain

    def _get(self, record: Record, field: str, row: int) -> Any:
        value = record.get(field)
        if value is None:
            raise InputError(
                f"Every row of {self.name} must have {field!r}. Got none in row {row}."
            )
        return value

    def _values(self, record: Record, row: int) -> list[float]:
        values = [self._get(record, field, row) for field in self._fields]
        try:
            found = values if self._read is None else self._read(values[0], record)
            if are_json_numbers(found):
                return found
        except (TypeError, ValueError):  # of what is no list of responses
            found = values
        bad_ones = ((i, value) for i, value in enumerate(found) if not are_json_numbers([value]))
        place, bad = next(bad_ones, (0, values[0]))
        field = self._fields[place if self._read is None else 0]
        raise InputError(
            f"{field!r} of {self.name} must hold numbers, one per class. "
            f"Got {str(bad)[:40]!r} in row {row}."
        )

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """As many lines as make a block."""
        step = rows_per_block(self.n_classes)
        start = 0
        with reading(self.location, self.identity):
            records = _records(self.location)
            while block := list(islice(records, step)):
                rows = [self._values(record, row) for row, record in enumerate(block, start)]
                for row, values in enumerate(rows, start):
                    if len(values) != self.n_classes:
                        raise InputError(
                            f"Every row of {self.name} must have the same number of classes. "
                            f"Got {self.n_classes} in row 0 and {len(values)} in row {row}."
                        )
                yield np.array(rows, dtype=np.float64), None
                start += step

    def split(self) -> list[Source]:
        """The whole file: where a line begins is not known."""
        return [copy.copy(self)]

    @classmethod
    def columns_of(cls, location: Location) -> LazyArrays:
        """Give the fields of a file that need not hold probabilities, as text."""
        records = list(_records(location))

        def read(field: str) -> Array:
            return to_numpy([_plain(record.get(field, ""), record) for record in records])

        return LazyArrays(records[0] if records else (), read)


def _records(location: Location) -> Iterator[Record]:
    with location.open("rb") as file:
        for row, line in enumerate(line for line in file if line.strip()):
            owner = f"row {row} of '{location}'"
            record = parse_json(line, owner)
            if not isinstance(record, dict):
                raise InputError(
                    f"Every line must be a JSON object. Got {type(record).__name__} in {owner}."
                )
            yield unique_keys(owner, list(_flat(record)))


def _flat(record: Record, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _whole(values: Any, _: Record) -> list[Any]:
    return values if isinstance(values, list) else [values]


def _plain(value: Any, _: Record) -> str:
    """A label or id as text; a list of one (several answers may be right) as that one."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return str(value)


def _kind(values: list[Any], name: str = "") -> Kind:
    """Tell what a field holds; one number makes it numbers, so that no other value hides a class.

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
    kinds: dict[Kind, Kind] = {"float": "list", "integer": "integer list", "text": "text list"}
    return kinds.get(_kind(inside), "other") if inside else "other"
