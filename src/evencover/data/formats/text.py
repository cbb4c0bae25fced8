"""CSV and TSV, for small files: one column per class or one of lists, and perhaps labels."""

from __future__ import annotations

import copy
import csv
import io
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from evencover._validation import Array, InputError, plain_array
from evencover.data.columns import Column, choose, note_left_out
from evencover.data.formats.arrays import ONLY_ARRAY, LazyArrays
from evencover.data.formats.text_cells import Scan, column_from_text, is_number, list_cells
from evencover.data.location import Location
from evencover.data.names import ID_KEYS, LABEL_KEYS, USUAL, Keys, are_numbers, count_up
from evencover.data.reading import reading
from evencover.data.source import Source, rows_per_block

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
            self._ids = plain_array(list(scan.kept[layout.ids]))
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
