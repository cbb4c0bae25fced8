"""Frames of pandas and polars, and Arrow tables, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.arrow import LIST_KINDS, Kind, matrix_from_arrow
from evencover.data.columns import (
    Column,
)
from evencover.data.readers import Reader, read_array
from evencover.data.records import is_entries
from evencover.data.tables import Table, of_schema
from evencover.errors import InputError

_BY_LETTER: dict[str, Kind] = {"f": "float", "i": "integer", "u": "integer", "b": "flag"}
FRAME = "the frame"


def is_frame(values: Any) -> bool:
    """Return whether values have named columns: a pandas or polars frame, or an Arrow table."""
    has_columns = hasattr(values, "columns")
    return has_columns and (_is_pandas(values) or _is_polars(values) or _is_arrow(values))


def _is_pandas(values: Any) -> bool:
    return hasattr(values, "iloc") and hasattr(values, "dtypes")  # pandas and compatible frames


def _is_polars(values: Any) -> bool:
    return type(values).__module__.startswith("polars") and hasattr(values, "columns")


def _is_arrow(values: Any) -> bool:
    return type(values).__module__.startswith("pyarrow") and hasattr(values, "schema")


@dataclass(frozen=True, kw_only=True)
class FrameTable(Table):
    """A pandas or polars frame, or an Arrow table, in memory."""

    frame: Any

    @classmethod
    def of(cls, frame: Any) -> FrameTable:
        """Read names and kinds of all columns; polars shares its memory with Arrow."""
        if _is_polars(frame):
            frame = (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
        if _is_arrow(frame):
            about = of_schema(frame.schema, [frame.num_rows])
            return cls(name=FRAME, frame=frame, **about)
        for i, name in enumerate(frame.columns):
            if name is None or name != name:  # NaN
                raise InputError(f"{FRAME} must name every column. Got {name} for column {i}.")
        columns = [
            Column(str(name), _pandas_kind(frame, i)) for i, name in enumerate(frame.columns)
        ]
        return cls(name=FRAME, frame=frame, columns=tuple(columns), piece_rows=(len(frame),))

    def read(self, names: Sequence[str]) -> list[Any]:
        """Return whole columns."""
        if _is_arrow(self.frame):
            return [self.frame.column(i) for i in self._indices(names)]
        return [self.frame.iloc[:, i] for i in self._indices(names)]

    def column(self, name: str) -> Array:
        """Return one column (N,)."""
        values = self.read([name])[0]
        owner = f"{name!r} of {FRAME}"
        return matrix_from_arrow(values, owner) if _is_arrow(self.frame) else np.asarray(values)

    def _indices(self, names: Sequence[str]) -> list[int]:
        all_names = [column.name for column in self.columns]
        return [all_names.index(name) for name in names]

    def rows(self, numbers: Sequence[str], *, is_list: bool) -> Reader:
        """Return a reader of the numbers, without a copy if the frame stores them together."""
        return read_array(self._matrix(numbers, is_list=is_list), name=FRAME)

    def _matrix(self, numbers: Sequence[str], *, is_list: bool) -> Array:
        indices = self._indices(numbers)
        if _is_arrow(self.frame):
            return matrix_from_arrow(self.frame.select(indices), FRAME)
        if is_list:
            return to_numpy(self.frame.iloc[:, indices[0]].tolist())
        together = indices == list(range(indices[0], indices[0] + len(indices)))
        chosen = slice(indices[0], indices[-1] + 1) if together else indices
        frame = self.frame.iloc[:, chosen]
        values = np.asarray(frame)
        if values.dtype.kind != "O":
            return values
        return np.asarray(frame.to_numpy(np.float64, na_value=np.nan))  # nullable numbers


def _pandas_kind(frame: Any, i: int) -> Kind:
    kind = frame.dtypes.iloc[i]
    letter = getattr(kind, "kind", "O")
    if letter in _BY_LETTER:
        return _BY_LETTER[letter]
    if letter != "O":
        return "other"
    if str(kind) != "object":  # text and categories, or an Arrow type
        return "list" if "list" in str(kind) else "text"
    values = (value for value in frame.iloc[:, i] if value is not None)
    first = next(values, "")
    if isinstance(first, str):
        return "text"
    if is_entries(first):
        return "entries"
    if not isinstance(first, list | tuple | np.ndarray):
        return "other"
    inner = _BY_LETTER.get(np.asarray(first).dtype.kind, "text")
    return LIST_KINDS.get(inner, "text list")
