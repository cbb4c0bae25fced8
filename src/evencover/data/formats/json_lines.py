"""JSON lines: one object per row, with a list of numbers, a field per class, or log-likelihoods."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from evencover._validation import Array, InputError
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
            for row, record in enumerate(_records(location)):
                self.n_rows += 1
                if label is not None:
                    labels.append(read_label(self._get(record, label, row), record))
                if ids is not None:
                    found_ids.append(_plain(self._get(record, ids, row), record))
        if ids is not None:
            self._ids = np.array(found_ids)
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
        columns = [
            Column(name, _kind([r.get(name) for r in sample], is_id=name in ID_KEYS))
            for name in first
        ]
        layout = choose(columns, layout_keys(first, keys), self.name)
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
            return [float(value) for value in found]
        except (TypeError, ValueError):
            raise InputError(
                f"{self._fields[0]!r} of {self.name} must hold one number per class. "
                f"Got {str(values[0])[:40]!r} in row {row}."
            ) from None

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
            return np.array([_plain(record.get(field, ""), record) for record in records])

        return LazyArrays(records[0] if records else (), read)


def _records(location: Location) -> Iterator[Record]:
    with location.open("rb") as file:
        for row, line in enumerate(file):
            if not line.strip():
                continue
            record = json.loads(line)
            if not isinstance(record, dict):
                raise InputError(
                    f"Every line of '{location}' must be a JSON object. "
                    f"Got {type(record).__name__} in row {row}."
                )
            yield _flat(record)


def _flat(record: Record, before: str = "") -> Record:
    flat: Record = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[f"{before}{name}"] = value
    return flat


def _whole(values: Any, _: Record) -> list[Any]:
    return list(values)


def _plain(value: Any, _: Record) -> str:
    """A label or id as text; a list of one (several answers may be right) as that one."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return str(value)


def _kind(values: list[Any], *, is_id: bool = False) -> Kind:
    values = [value for value in values if value is not None]
    if not values:
        return "other"
    if all(isinstance(value, bool) for value in values):
        return "flag"
    if all(isinstance(value, int | float) for value in values):
        is_whole = all(isinstance(value, int) for value in values) and any(values)
        return "integer" if is_whole else "float"
    if all(isinstance(value, str) for value in values):
        return "text"
    if is_id and all(isinstance(value, str | int) for value in values):
        return "text"
    if not all(isinstance(value, list) and value for value in values):
        return "other"
    inner = _kind([value for each in values[:5] for value in each])
    kinds: dict[Kind, Kind] = {"float": "list", "integer": "integer list", "text": "text list"}
    return kinds.get(inner, "other")
