"""Records of JSON, one per row: lines of a file, and rows in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from numbers import Real
from typing import Any, Self

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.arrow import LIST_KINDS, Kind, import_pyarrow
from evencover.data.columns import PROBABILITY_KEYS, Column, Keys, entry_keys
from evencover.data.csv import N_SAMPLED, ONLY_COLUMN, is_kept, no_numbers
from evencover.data.location import Location
from evencover.data.tables import LIST_ELEMENTS, FileTable
from evencover.errors import InputError
from evencover.validation import unique_keys

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RecordTable(FileTable):
    """Records of JSON, one per row; nested fields are called ``outer.inner``.

    Python parses them, because pyarrow takes types from the first rows.
    """

    records: Callable[[Location], Iterator[Any]]

    @classmethod
    def open(
        cls,
        location: Any,
        identity: Any,
        keys: Keys | None,
        records: Callable[[Any], Iterator[Any]] | None = None,
        name: str | None = None,
    ) -> Self:
        """Read all records once, of JSON lines by default; any may have a field that others lack.

        Only a list in memory has no location, but a name.
        """
        records, owner = records or json_lines, name or f"'{location}'"
        samples: dict[str, list[Any]] = {}
        cells: dict[str, list[Any]] = {}
        n_rows = 0
        for record in flat_records(records(location), owner):
            for field_name, value in record.items():
                sample = samples.setdefault(field_name, [])
                if len(sample) < N_SAMPLED and value is not None:
                    sample.append(value)
                if is_kept(field_name, keys) or is_entries(value):
                    known = cells.setdefault(field_name, [])
                    known += [None] * (n_rows - len(known))
                    known.append(value)
            n_rows += 1
        kinds = {name: _kind_of_values(values) for name, values in samples.items()}
        if n_rows == 0:
            kinds = {PROBABILITY_KEYS[0]: "list"}
        if kinds.get(ONLY_COLUMN) == "other":  # entries without a class or a score
            kinds[ONLY_COLUMN] = "entries"
        return cls(
            name=owner,
            location=location,
            identity=identity,
            columns=tuple(Column(name, kind) for name, kind in kinds.items()),
            piece_rows=(n_rows,),
            content=cells,
            records=records,
        )

    def read(self, names: Sequence[str]) -> list[Any]:
        """Return whole columns; None where a record lacks the field."""
        columns = []
        for name in names:
            values = (self.content or {}).get(name)
            if values is None:
                records = flat_records(self.records(self.location), self.name)
                values = [record.get(name) for record in records]
            column = np.full(self.piece_rows[0], None, dtype=object)
            column[: len(values)] = values
            columns.append(column)
        return columns

    def column(self, name: str) -> Array:
        """Read one column (N,) of labels or values; integers stay apart from text."""
        column = self.read([name])[0]
        for row, value in enumerate(column.tolist()):
            if value is None or value != value:  # NaN
                raise self._missing(name, row)
        kinds = set(map(type, column.tolist()))
        return to_numpy(column.tolist()) if len(kinds) == 1 and kinds <= {int, float} else column

    def batches(self, pieces: range, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Convert the fields of some rows to numbers."""
        pa, start, kinds = import_pyarrow(), 0, dict(self.columns)
        n_rows = min(n_rows, max(1, LIST_ELEMENTS // len(names)))
        records = flat_records(self.records(self.location), self.name)
        wanted = ([record.get(name) for name in names] for record in records)
        while block := list(islice(wanted, n_rows)):
            numbers = [
                self._numbers(values, Column(name, kinds[name]), start)
                for name, values in zip(names, zip(*block, strict=True), strict=True)
            ]
            yield pa.RecordBatch.from_arrays(numbers, names=list(names))
            start += len(block)

    def _numbers(self, values: tuple[Any, ...], column: Column, start: int) -> Any:
        pa, is_list_column = import_pyarrow(), column.kind.endswith("list")
        if None in values:
            raise self._missing(column.name, start + values.index(None))
        if not is_list_column and are_json_numbers(values):
            return pa.array(values, pa.float64())
        for row, value in enumerate(values, start):
            inside = value if isinstance(value, list) else [value]
            if isinstance(value, list) != is_list_column or not are_json_numbers(inside):
                bad = next((cell for cell in inside if not are_json_numbers([cell])), value)
                raise no_numbers(column.name, self.name, bad, row)
        return pa.array(values, pa.list_(pa.float64()))

    def _missing(self, name: str, row: int) -> InputError:
        return InputError(f"Every row of {self.name} must have {name!r}. Got none in row {row}.")


def parse_json(text: bytes, owner: str) -> Any:
    """Parse JSON from `owner`; raise InputError if an object has the same key twice."""
    value = json.loads(text)
    if text.count(b":") > _n_keys(value):  # a text has one, or a key that stood twice is lost
        return json.loads(text, object_pairs_hook=partial(unique_keys, owner))
    return value


def _n_keys(value: Any) -> int:
    """Count the keys of a value, of objects in it, and of objects in lists in it."""
    n_keys = 0
    for part in [value, *(value.values() if type(value) is dict else ())]:
        if type(part) is dict:
            n_keys += len(part)
        elif type(part) is list and {dict}.issuperset(map(type, part)):
            n_keys += sum(map(len, part))
    return n_keys


def are_json_numbers(values: Iterable[Any]) -> bool:
    """Check that all values from JSON are numbers; booleans are not."""
    return {int, float}.issuperset(map(type, values))


def plain(values: Sequence[Any]) -> Sequence[Any]:
    """Return scalars of NumPy as Python has them."""
    if not any(issubclass(kind, np.generic) for kind in set(map(type, values))):
        return values
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def json_lines(location: Location) -> Iterator[Any]:
    """Read one JSON value per line."""
    with location.open("rb") as file:
        for row, line in enumerate(line for line in file if line.strip()):
            yield parse_json(line, f"row {row} of '{location}'")


def flat_records(records: Iterable[Any], owner: str) -> Iterator[Record]:
    """Flatten nested objects; a row that is a list becomes the field ""."""
    for row, record in enumerate(records):
        if isinstance(record, list | tuple):
            yield {ONLY_COLUMN: list(record)}
        elif isinstance(record, dict):
            has_inner = dict in map(type, record.values())
            yield unique_keys(f"row {row} of {owner}", list(_flat(record))) if has_inner else record
        else:
            raise InputError(
                f"row {row} of {owner} must be a JSON object. Got {type(record).__name__}."
            )


def _flat(record: Record, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def is_entries(value: Any) -> bool:
    """Return whether a value is a list of objects with a class and its probability."""
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], dict):
        return False
    keys = entry_keys(tuple(value[0]))
    return keys is not None and not isinstance(value[0][keys[1]], list)


def lists_classes(record: Mapping[str, Any]) -> bool:
    """Return whether a record has parallel lists of classes and their probabilities."""
    lists = [key for key, value in record.items() if isinstance(value, list) and value]
    keys = entry_keys(tuple(lists))
    return keys is not None and isinstance(record[keys[1]][0], Real)


def _kind_of_values(values: list[Any]) -> Kind:
    """Return the kind of a field; one number makes it numeric, so that no text hides a class."""
    types = set(map(type, plain(values))) - {type(None)}
    if any(map(is_entries, values)):
        return "entries"
    if 2 * sum(isinstance(value, list) for value in values) > len(values):
        inside = [item for value in values if isinstance(value, list) for item in value[:1000]]
        return LIST_KINDS.get(_kind_of_values(inside), "other")
    if types == {str}:
        return "text"
    if types & {int, float}:
        return "integer" if types == {int} and any(values) else "float"
    return "flag" if types == {bool} else "other"
