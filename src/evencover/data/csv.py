"""CSV and TSV files: headers, kinds of columns, and cells as numbers or text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any, ClassVar, Self

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.arrow import Kind, import_pyarrow
from evencover.classes import integers_if_all, is_integer_text
from evencover.data.columns import ID_KEYS, INDEX_NAME, LABEL_KEYS, Column, Keys, is_reserved
from evencover.data.location import Identity, Location
from evencover.data.tables import FileTable
from evencover.errors import InputError, listed
from evencover.sizes import at_once

N_SAMPLED = 200  # rows that determine the kind of a column; integers are checked to the end
CSV_BYTES = at_once(1 << 24, 400)  # parsed at once
DELIMITERS = {".csv": ",", ".tsv": "\t"}
ONLY_COLUMN = ""  # name of the column in a text file with one column that has none
_INTEGER_CELL = re.compile(r"\s*-?[0-9]{1,18}\s*")
_NUMBER_CELL = re.compile(
    r"\s*([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(inf|infinity)|nan)\s*", re.I
)
_WRONG_CELL = re.compile(r"column #(\d+): Row #(\d+): .* invalid value '(.*)'", re.S)


def no_numbers(name: str, owner: str, cell: Any, row: int) -> InputError:
    """Build the error for a cell that is not a number."""
    return InputError(
        f"{name!r} of {owner} must contain numbers, one per class. Got {str(cell)[:40]!r} in row "
        f"{row}."
    )


def is_kept(name: str, keys: Keys | None) -> bool:
    """Return whether a column may be labels or ids; without keys, all are kept."""
    return keys is None or name in (*LABEL_KEYS, *ID_KEYS, keys.labels, keys.ids)


@dataclass(frozen=True, kw_only=True)
class CsvTable(FileTable):
    """A CSV or TSV file, read twice: first for the number of rows and the kinds of columns.

    The first pass keeps the cells of columns that may be labels or ids.
    """

    has_types: ClassVar[bool] = False

    @classmethod
    def open(cls, location: Location, identity: Identity, keys: Keys | None) -> Self:
        """Read the first rows for the kinds of columns, and all rows for cells that are kept."""
        names, has_names = csv_header(location, keys)
        sample = next(csv_batches(location, names, has_names, most_bytes=1 << 16), None)
        kinds, kept = list[Kind](), dict[int, list[Any]]()
        for i, name in enumerate(names):
            cells = [] if sample is None else sample.column(i).slice(0, N_SAMPLED).to_pylist()
            kinds.append(_kind_of_cells(cells, name))
            if is_kept(name, keys):
                kept[i] = []
        read = [i for i, kind in enumerate(kinds) if i in kept or kind == "integer"]
        n_rows = 0
        for batch in csv_batches(location, names, has_names, include=read):
            n_rows += batch.num_rows
            for i, column in zip(read, batch.columns, strict=False):
                cells = column.to_pylist()
                if i in kept:
                    kept[i] += cells
                elif kinds[i] == "integer" and not all(map(_INTEGER_CELL.fullmatch, cells)):
                    kinds[i] = "float"
        reject_open_quotes(location, n_rows + has_names)
        return cls(
            name=f"'{location}'",
            location=location,
            identity=identity,
            columns=tuple(map(Column, names, kinds)),
            piece_rows=(n_rows,),
            has_names=has_names,
            content=dict(zip(map(names.__getitem__, kept), kept.values(), strict=True)),
        )

    def read(self, names: Sequence[str]) -> list[Any]:
        """Return the cells that were kept, or those of whole columns, as text."""
        columns = self.content or {}
        if not columns.keys() >= set(names):
            columns = {name: [] for name in names}
            for batch in self._text(names):
                for name, column in zip(names, batch.columns, strict=True):
                    columns[name] += column.to_pylist()
        return [np.array(columns[name], dtype=object) for name in names]

    def column(self, name: str) -> Array:
        """Read one column (N,) of labels, ids or values; plain integers are integers."""
        return integers_if_all(self.read([name])[0].tolist())

    def _text(self, names: Sequence[str], kind: Any = None) -> Iterator[Any]:
        all_names = list(dict(self.columns))
        wanted = list(map(all_names.index, names))
        return csv_batches(self.location, all_names, self.has_names, include=wanted, kind=kind)

    def batches(self, pieces: range, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Parse the cells of some columns as numbers."""
        pa = import_pyarrow()
        if not dict(self.columns)[names[0]].endswith("list"):
            for batch in self._text(names, pa.float64()):
                yield batch.rename_columns(list(names))
            return
        start = 0
        for batch in self._text(names):
            lists = [self._numbers(cell, names[0], start + i) for i, cell in enumerate(batch[0])]
            yield pa.RecordBatch.from_arrays([pa.array(lists, pa.list_(pa.float64()))], list(names))
            start += batch.num_rows

    def _numbers(self, cell: Any, name: str, row: int) -> list[float]:
        """Parse a list in Python, NumPy or JSON notation."""
        inside = _list_cells(cell.as_py())
        for text in inside:
            if not _NUMBER_CELL.fullmatch(text):
                raise no_numbers(name, self.name, text, row)
        return list(map(float, inside))


def csv_header(location: Location, keys: Keys | None) -> tuple[list[str], bool]:
    """Return the column names, and whether the first line is a header.

    Without keys it is one. Otherwise, different integers in plain digits are a header if no other
    row is all such integers, and other numbers are data. Numbers next to text are names only if the
    text is a name that no class has, such as "label", or if the user states it.
    """
    with location.open("rb") as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        reader = csv.reader(
            text, delimiter=DELIMITERS.get(location.suffix.lower(), "\t"), strict=True
        )
        first, second = next(filter(None, reader), []), next(filter(None, reader), [])
    if not first:
        raise InputError(f"'{location}' must have at least one line. Got none.")
    if keys is None:
        is_only = len(first) == 1 and first[0] not in (*LABEL_KEYS, *ID_KEYS)
        return ([ONLY_COLUMN], False) if is_only else (first, True)
    asked = {keys.labels, keys.ids, None if keys.probabilities == "*" else keys.probabilities}
    is_header, numbers = keys.has_header, list(filter(_NUMBER_CELL.fullmatch, first))
    if is_header is None and (asked > {None} or (keys.classes and keys.classes <= set(first))):
        is_header = True
    elif is_header is None and len(numbers) == len(first):
        plain = list(map(str.strip, first))
        is_header = all(map(str.isdecimal, plain)) and len(set(plain)) == len(plain)
        is_unclear = plain == ["1", "0"] or (not second and {*plain} == {"0", "1"})
        if is_header and (is_unclear or _has_row_of_integers(location, first)):
            raise InputError(
                f"The first line of '{location}' may be a header or a row, because it has integers "
                f"only, and so have others. Got {listed(first, 4)}; state which with --header or "
                "--no-header (header=True or False)."
            )
    elif is_header is None:
        is_header, doubtful = True, ""
        for cell in first:
            if cell in numbers and any(map(str.isdigit, cell)):
                doubtful = doubtful or cell
                is_header &= cell.isdecimal()
            elif cell not in numbers:
                is_header &= bool(INDEX_NAME.fullmatch(cell.strip())) or is_reserved(cell)
        if doubtful and not is_header:
            raise InputError(
                f"The first line of '{location}' must name the columns, because not all of them "
                f"are numbers. Got {doubtful!r} there; write a header, or state with --header that "
                "this is a name."
            )
        is_header = True
    return (first, True) if is_header else (list(map("column {}".format, range(len(first)))), False)


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

    numbered = list(map(str, range(len(names))))  # names may recur
    wanted = numbered if include is None else list(map(str, include)) or numbered[:1]
    delimiter = DELIMITERS.get(location.suffix.lower(), "\t")
    with location.open("rb") as file:
        longest = max(map(len, [file.readline(), file.readline(), file.readline()]))
        file.seek(0)
        read_options = arrow_csv.ReadOptions(
            use_threads=False,  # keeps row numbers in errors
            block_size=max(min(most_bytes, CSV_BYTES), 4 * longest),  # a row must fit
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
            cell = _WRONG_CELL.search(str(error))
            if cell:
                row = int(cell[2]) - 1 - has_header
                raise no_numbers(names[int(cell[1])], f"'{location}'", cell[3], row) from None
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
        parts = iter(partial(file.read, 1 << 20), b"")
        if sum(map(methodcaller("count", b'"'), parts)) % 2 == 0:
            return
        file.seek(0)
        if sum(bool(line.strip()) for line in file) > n_rows:
            raise InputError(
                f"Every quotation mark of '{location}' must be closed. Got an odd number of them "
                "and a cell with a line break in it."
            )


def _kind_of_cells(cells: list[str], name: str) -> Kind:
    filled = list(filter(None, map(str.strip, cells)))
    if not filled:  # an unnamed one comes from a comma at the end of every line
        return "float" if name else "other"
    if any(map(_NUMBER_CELL.fullmatch, filled)):
        return "integer" if all(map(_INTEGER_CELL.fullmatch, cells)) else "float"
    if set(map(itemgetter(0), filled)) == {"["}:
        inside = _list_cells(filled[0])
        if not all(map(_NUMBER_CELL.fullmatch, inside)):
            return "text list"
        return "integer list" if all(map(is_integer_text, inside)) else "list"
    return "flag" if set(map(str.lower, filled)) <= {"true", "false"} else "text"


def _list_cells(cell: str) -> list[str]:
    return cell.strip().strip("[]").replace(",", " ").split()
