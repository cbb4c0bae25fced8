"""CSV and TSV files: headers, kinds of columns, and cells as numbers or text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

from evencover.arrays import Array, Kind, import_pyarrow, to_numpy
from evencover.classes import integers_if_all, is_integer_text
from evencover.data.columns import (
    ID_KEYS,
    LABEL_KEYS,
    Column,
    Keys,
    is_index_name,
    is_reserved,
)
from evencover.data.location import Identity, Location
from evencover.data.tables import FileTable
from evencover.errors import InputError, listed
from evencover.sizes import at_once

N_SAMPLED = 200  # rows that determine the kind of a column; integers are checked to the end
CSV_BYTES = at_once(1 << 24, 400)  # parsed at once
DELIMITERS = {".csv": ",", ".tsv": "\t"}
_INTEGER = re.compile(r"\s*-?[0-9]{1,18}\s*")
_NUMBER = re.compile(
    r"\s*([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(inf|infinity)|nan)\s*", re.I
)


_WRONG_CELL = re.compile(r"column #(\d+): Row #(\d+): .* invalid value '(.*)'", re.S)


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def _is_integer(cell: str) -> bool:
    return _INTEGER.fullmatch(cell) is not None


@dataclass(frozen=True, kw_only=True)
class TextTable(FileTable):
    """A table in a text file, read twice: first for the number of rows and the column kinds.

    The first pass keeps the cells of columns that may be labels or ids.
    """

    has_types: ClassVar[bool] = False
    cells: Mapping[str, list[Any]] = field(default_factory=dict)

    def closed(self) -> Self:
        """Return the table without the cells."""
        return replace(self, cells={})

    def no_numbers(self, name: str, cell: Any, row: int) -> InputError:
        """Build the error for a cell that is not a number."""
        return InputError(
            f"{name!r} of {self.name} must contain numbers, one per class. "
            f"Got {str(cell)[:40]!r} in row {row}."
        )


def is_kept(name: str, keys: Keys | None) -> bool:
    """Return whether a column may be labels or ids; without keys, all are kept."""
    return keys is None or name in (*LABEL_KEYS, *ID_KEYS, keys.labels, keys.ids)


@dataclass(frozen=True, kw_only=True)
class CsvTable(TextTable):
    """A CSV or TSV file."""

    @classmethod
    def open(cls, location: Location, identity: Identity, keys: Keys | None) -> Self:
        """Read the first rows for the kinds of columns, and all rows for cells that are kept."""
        names, has_names = csv_header(location, keys)
        sample = next(csv_batches(location, names, has_names, most_bytes=1 << 16), None)
        kinds: list[Kind] = ["float"] * len(names)
        if sample is not None:
            columns = [column.slice(0, N_SAMPLED).to_pylist() for column in sample.columns]
            kinds = [_kind_of_cells(cells) for cells in columns]
            for i, cells in enumerate(columns):  # a comma at the end of every line
                if not names[i] and not any(map(str.strip, cells)):
                    kinds[i] = "other"
        kept = {i for i, name in enumerate(names) if is_kept(name, keys)}
        integers = {i for i, kind in enumerate(kinds) if kind == "integer"} - kept
        text: dict[int, list[Any]] = {i: [] for i in sorted(kept | integers)}
        n_rows = 0
        for batch in csv_batches(location, names, has_names, include=list(text)):
            n_rows += batch.num_rows
            for i, column in zip(text, batch.columns, strict=False):
                cells = column.to_pylist()
                if i in kept:
                    text[i] += cells
                elif kinds[i] == "integer" and not all(map(_is_integer, cells)):
                    kinds[i] = "float"
        reject_open_quotes(location, n_rows + has_names)
        return cls(
            name=f"'{location}'",
            location=location,
            identity=identity,
            columns=tuple(map(Column, names, kinds)),
            piece_rows=(n_rows,),
            has_names=has_names,
            cells={names[i]: text[i] for i in sorted(kept)},
        )

    def read(self, names: Sequence[str]) -> list[Any]:
        """Return the cells that were kept, or those of whole columns, as text."""
        if self.cells.keys() >= set(names):
            return [to_numpy(self.cells[name]) for name in names]
        place = {name: i for i, (name, _) in enumerate(self.columns)}
        wanted = [place[name] for name in names]
        texts: list[list[str]] = [[] for _ in names]
        for batch in csv_batches(self.location, list(place), self.has_names, include=wanted):
            for column, cells in zip(batch.columns, texts, strict=True):
                cells += column.to_pylist()
        return [to_numpy(cells) for cells in texts]

    def column(self, name: str) -> Array:
        """Read one column (N,) of labels, ids or values; plain integers are integers."""
        return integers_if_all(self.read([name])[0].tolist())

    def batches(self, pieces: range, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Parse the cells of some columns as numbers."""
        pa = import_pyarrow()
        all_names = [name for name, _ in self.columns]
        wanted = [all_names.index(name) for name in names]
        is_list = dict(self.columns)[names[0]].endswith("list")
        kind, start = pa.string() if is_list else pa.float64(), 0
        batches = csv_batches(self.location, all_names, self.has_names, include=wanted, kind=kind)
        for batch in batches:
            columns = batch.columns
            if is_list:
                columns = [self._lists(batch.column(0), names[0], start)]
            yield pa.RecordBatch.from_arrays(columns, names=list(names))
            start += batch.num_rows

    def _lists(self, cells: Any, name: str, start: int) -> Any:
        """Parse lists in Python, NumPy or JSON notation."""
        lists = [_list_cells(cell) for cell in cells.to_pylist()]
        for row, inside in enumerate(lists, start):
            for cell in inside:
                if not _is_number(cell):
                    raise self.no_numbers(name, cell, row)
        numbers = [list(map(float, inside)) for inside in lists]
        return import_pyarrow().array(numbers, import_pyarrow().list_(import_pyarrow().float64()))


def csv_header(location: Location, keys: Keys | None) -> tuple[list[str], bool]:
    """Return the column names, and whether the first line is a header.

    Without keys it is one. Otherwise, different integers in plain digits are a header if no other
    row is all such integers, and other numbers are data. Numbers next to text are names only if the
    text is a name that no class has, such as "label", or if the user states it.
    """
    with location.open("rb") as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=DELIMITERS[location.suffix.lower()], strict=True)
        first, second = next(filter(None, reader), []), next(filter(None, reader), [])
    if not first:
        raise InputError(f"'{location}' must have at least one line. Got none.")
    numbered = [f"column {i}" for i in range(len(first))]
    is_header = None if keys is None else keys.has_header
    if keys is not None and is_header is None:
        keyed = {keys.labels, keys.ids, None if keys.probabilities == "*" else keys.probabilities}
        is_header = (
            True if keyed > {None} or (keys.classes and keys.classes <= set(first)) else None
        )
    if keys is None:
        is_only = len(first) == 1 and first[0] not in (*LABEL_KEYS, *ID_KEYS)
        return ([ONLY_COLUMN], False) if is_only else (first, True)
    if is_header is not None:
        return (first, True) if is_header else (numbered, False)
    if all(map(_is_number, first)):
        if not all(map(str.isdecimal, first)) or len(set(first)) < len(first):
            return numbered, False
        is_unclear = first == ["1", "0"] or (not second and {*first} == {"0", "1"})
        if is_unclear or _has_row_of_integers(location, first):
            raise InputError(
                f"The first line of '{location}' may be a header or a row, because it has integers "
                f"only, and so have others. Got {listed(first, 4)}; state which with --header or "
                "--no-header (header=True or False)."
            )
        return first, True
    numbers = [cell for cell in first if _is_number(cell) and any(map(str.isdigit, cell))]
    others = [cell for cell in first if not _is_number(cell)]
    is_known = all(is_index_name(cell.strip()) or is_reserved(cell) for cell in others)
    if numbers and not (is_known and all(map(str.isdecimal, numbers))):
        raise InputError(
            f"The first line of '{location}' must name the columns, because not all of them are "
            f"numbers. Got {numbers[0]!r} there; write a header, or state with --header that this "
            "is a name."
        )
    return first, True


def _has_row_of_integers(location: Location, names: Sequence[str]) -> bool:
    """Return whether any row after the first has only integers in plain digits."""
    import pyarrow.compute as compute

    for batch in csv_batches(location, names, True):
        is_integer: Any = True
        for column in batch.columns:
            cells = to_numpy(compute.match_substring_regex(column, r"^\s*-?[0-9]+\s*$"))
            is_integer = is_integer & cells
            if not is_integer.any():
                break
        else:
            return True
    return False


ONLY_COLUMN = ""  # name of the column in a text file with one column that has none


def csv_batches(
    location: Location,
    names: Sequence[str],
    has_header: bool,
    *,
    include: Sequence[int] | None = None,
    kind: Any = None,
    most_bytes: int = CSV_BYTES,
) -> Iterator[Any]:
    """Read record batches of some columns by index, as text or another kind."""
    pa = import_pyarrow()
    import pyarrow.csv as arrow_csv

    wrong: list[Any] = []

    def reject(row: Any) -> str:
        wrong.append(row)
        return "error"

    numbered = [str(i) for i in range(len(names))]  # names may recur
    wanted = numbered if include is None else [str(i) for i in include] or numbered[:1]
    delimiter = DELIMITERS[location.suffix.lower()]
    with location.open("rb") as file:
        longest = max(len(file.readline()) for _ in range(3))  # a row must fit into a block
        file.seek(0)
        read_options = arrow_csv.ReadOptions(
            use_threads=False,  # keeps row numbers in errors
            block_size=max(min(most_bytes, CSV_BYTES), 4 * longest),
            column_names=numbered,
            skip_rows_after_names=int(has_header),
        )
        parse_options = arrow_csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=reject
        )
        options = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, kind or pa.string()),
            include_columns=wanted,
            null_values=[],
        )
        try:
            yield from arrow_csv.open_csv(file, read_options, parse_options, options)
        except pa.ArrowInvalid as error:
            found = re.search(
                r"column #(\d+): Row #(\d+): .* invalid value '(.*)'", str(error), re.S
            )
            if found:
                name, row = names[int(found[1])], int(found[2]) - 1 - has_header
                raise InputError(
                    f"{name!r} of '{location}' must contain numbers, one per class. "
                    f"Got {found[3][:40]!r} in row {row}."
                ) from None
            if not wrong:
                raise
            raise InputError(
                f"Every row of '{location}' must have {len(names)} columns. Got "
                f"{wrong[0].actual_columns} in row {wrong[0].number - 1 - has_header}; text with "
                f"a {'tab' if delimiter == chr(9) else 'comma'} in it needs quotes."
            ) from None


def reject_open_quotes(location: Location, n_rows: int) -> None:
    """Raise if a quotation mark is not closed, because rows may have become one cell."""
    with location.open("rb") as file:
        if sum(part.count(b'"') for part in iter(partial(file.read, 1 << 20), b"")) % 2 == 0:
            return
        file.seek(0)
        if sum(bool(line.strip()) for line in file) > n_rows:
            raise InputError(
                f"Every quotation mark of '{location}' must be closed. Got an odd number of them "
                "and a cell with a line break in it."
            )


def _kind_of_cells(cells: list[str]) -> Kind:
    filled = [cell.strip() for cell in cells if cell.strip()]
    if not filled or any(map(_is_number, filled)):
        return "integer" if filled and all(map(_is_integer, cells)) else "float"
    if all(cell.startswith("[") for cell in filled):
        inside = _list_cells(filled[0])
        if not all(map(_is_number, inside)):
            return "text list"
        return "integer list" if all(map(is_integer_text, inside)) else "list"
    return "flag" if {cell.lower() for cell in filled} <= {"true", "false"} else "text"


def _list_cells(cell: str) -> list[str]:
    return cell.strip().strip("[]").replace(",", " ").split()
