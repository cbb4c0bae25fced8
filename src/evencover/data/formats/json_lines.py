"""JSON lines: one object per row, with a list of numbers, a field per class, or log-likelihoods."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import numpy as np

from evencover._validation import (
    Array,
    InputError,
    are_json_numbers,
    parse_json,
    plain_array,
    unique_keys,
)
from evencover.data.columns import Column, Kind, choose, note_left_out
from evencover.data.formats import lm_eval
from evencover.data.formats.arrays import LazyArrays
from evencover.data.formats.text_cells import column_from_text
from evencover.data.location import Location
from evencover.data.names import ID_KEYS, USUAL, Keys, are_numbers, layout_keys
from evencover.data.objects import found_key
from evencover.data.reading import reading
from evencover.data.source import Source, rows_per_block

N_SAMPLED = 100  # objects that tell what the fields hold

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
            sample = list(islice(_records(location), N_SAMPLED))
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
            self._ids = plain_array(found_ids)
        if label is not None:
            self.attach_labels(column_from_text(labels))

    def _find_fields(
        self, sample: list[Record], keys: Keys
    ) -> tuple[str | None, str | None, Reader]:
        """Learn where the numbers are; the fields of labels and ids, and how labels are read."""
        first = sample[0]
        responses = next((field for field in lm_eval.RESPONSES if field in first), None)
        if responses is not None and keys.probabilities is None:
            self._fields, self._read, self.logits = [responses], lm_eval.log_likelihoods, True
            label = found_key(first, keys.labels, (lm_eval.LABELS,), self.name, "labels_key")
            ids = found_key(first, keys.ids, (lm_eval.IDS,), self.name, "ids_key")
            uses = {"numbers": responses, "labels": label, "ids": ids}
            self.used = {use: field for use, field in uses.items() if field is not None}
            return label, ids, lm_eval.right_choice
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
            return plain_array([_plain(record.get(field, ""), record) for record in records])

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
