"""CSV and TSV, for small files: one column per class, and perhaps one of labels."""

from __future__ import annotations

import copy
import csv
import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from evencover._validation import Array, InputError
from evencover.data.formats.arrays import LABEL_KEYS, column_keys
from evencover.data.location import Location
from evencover.data.reading import reading
from evencover.data.source import Source, rows_per_block

ID_KEYS = ("id", "ids")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class TextSource(Source):
    """Lines of numbers; a first line with anything else in it names the columns.

    The file is read twice: first the labels and the number of rows, then the numbers.
    """

    def __init__(self, location: Location) -> None:
        self.location, self.name = location, f"'{location}'"
        with reading(location):
            lines = _lines(location)
            first = next(lines, [])
            self._has_header = not _are_numbers(first) or _count_up(first)
            names = first if self._has_header else [""] * len(first)
            self._width = len(first)
            self._columns = [i for i, n in enumerate(names) if n not in (*LABEL_KEYS, *ID_KEYS)]
            at = next((names.index(key) for key in LABEL_KEYS if key in names), None)
            labels = [] if self._has_header or at is None else [first[at]]
            self.n_rows = 0 if self._has_header or not first else 1
            for line in lines:
                if at is not None:
                    labels.append(line[at].strip() if at < len(line) else "")
                self.n_rows += 1
        self.n_classes = len(self._columns)
        if self.n_classes < 2:
            raise InputError(
                f"{self.name} must have at least 2 classes (columns). Got {self.n_classes}."
            )
        if self._has_header:
            self.class_names = [names[i] for i in self._columns]
        if at is not None:
            self.attach_labels(column_from_text(labels))

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """As many lines as make a block."""
        step = rows_per_block(self.n_classes)
        with reading(self.location):
            lines = _lines(self.location)
            if self._has_header:
                next(lines, None)
            block: list[list[str]] = []
            start = 0
            for line in lines:
                block.append(line)
                if len(block) == step:
                    yield self._numbers(block, start), None
                    start, block = start + step, []
            if block:
                yield self._numbers(block, start), None

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
        try:
            return np.array([[line[i] for i in self._columns] for line in lines], dtype=np.float64)
        except ValueError:
            pass
        row, cell = next(
            (row, line[i])
            for row, line in enumerate(lines, start)
            for i in self._columns
            if not _is_number(line[i])
        )
        raise InputError(
            f"Every column of {self.name} but 'labels' and 'id' must hold numbers, one per class. "
            f"Got {cell!r} in row {row}."
        )


def text_column(location: Location, key: str) -> Array:
    """One value per line; in CSV and TSV, the column of this name if there are names."""
    if location.suffix.lower() not in _DELIMITERS:
        with location.open("rb") as file:
            lines = file.read().decode("utf-8-sig").split("\n")
        return column_from_text([line.strip() for line in lines if line.strip()])
    first, *rest = list(_lines(location)) or [[]]
    at = next((first.index(name) for name in column_keys(key) if name in first), None)
    if at is None and len(first) != 1:
        raise InputError(f"'{location}' must have a column {key!r}. Got {', '.join(first)}.")
    values = [first, *rest] if at is None else rest
    short = next((row for row, line in enumerate(values) if len(line) <= (at or 0)), None)
    if short is not None:
        raise InputError(f"Every row of '{location}' must have a value. Got none in row {short}.")
    return column_from_text([line[at or 0].strip() for line in values])


def column_from_text(values: list[str]) -> Array:
    """Whole numbers if all are, else the texts."""
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(values)


def _lines(location: Location) -> Iterator[list[str]]:
    """The cells of each line that is not empty."""
    delimiter = _DELIMITERS[location.suffix.lower()]
    with location.open("rb") as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        yield from (line for line in csv.reader(text, delimiter=delimiter, strict=True) if line)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _are_numbers(cells: list[Any]) -> bool:
    return all(_is_number(cell) for cell in cells)


def _count_up(cells: list[str]) -> bool:
    """Whether they are 0, 1, 2, ...: names of columns as pandas gives them, not probabilities."""
    return len(cells) > 2 and [cell.strip() for cell in cells] == list(map(str, range(len(cells))))
