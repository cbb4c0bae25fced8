"""What the cells of a text file hold: numbers, whole numbers, lists, or text."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

import numpy as np

from evencover._validation import Array, plain_array
from evencover.data.columns import Kind

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
    return plain_array(values)


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
