"""Arrow columns: their kinds, and their conversion to NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evencover.errors import InputError, import_extra

# Kinds of columns in a table, and those of lists by what they contain.
# The entries of a list are pairs of a class and its probability.
Plain = Literal["float", "integer", "flag", "text", "other"]
Kind = Plain | Literal["list", "integer list", "text list", "entries"]
LIST_KINDS: dict[Kind, Kind] = {"float": "list", "integer": "integer list", "text": "text list"}


def import_pyarrow() -> Any:
    """Import pyarrow or raise with install instructions."""
    return import_extra("Arrow and Parquet", "pyarrow", "arrow")


def matrix_from_arrow(values: Any, name: str = "the input", start: int = 0) -> NDArray[Any]:
    """Convert an Arrow table, record batch or (chunked) array to NumPy; lists become rows.

    Messages use `name` and count rows from `start`.
    """
    pa = import_pyarrow()
    if isinstance(values, pa.Table | pa.RecordBatch):
        convert = partial(matrix_from_arrow, name=name, start=start)
        columns = list(map(convert, values.columns))
        if len(columns) == 1 and columns[0].ndim == 2:
            return columns[0]
        if 2 in map(np.ndim, columns):
            return np.column_stack(columns)
        return rows_of(columns)
    if isinstance(values, pa.ChunkedArray):
        # `combine_chunks` would copy even a single chunk.
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if values.null_count:
        row = start + int(values.is_null().to_numpy(zero_copy_only=False).argmax())
        raise InputError(f"Every row of {name} must have a value. Got null in row {row}.")
    if getattr(values.type, "extension_name", "") == "arrow.uuid" or getattr(values.type, "tz", ""):
        return np.array(values.to_pylist(), dtype=object)  # NumPy would drop the time zone
    if not is_list(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    if not pa.types.is_fixed_size_list(values.type):
        lengths = np.diff(values.offsets.to_numpy())
        if len(lengths) and (lengths != lengths[0]).any():
            row = int((lengths != lengths[0]).argmax())
            raise InputError(
                f"Every row of {name} must have the same number of classes. "
                f"Got {lengths[0]} in row {start} and {lengths[row]} in row {start + row}."
            )
    flat = values.flatten()
    n_columns = len(flat) // len(values) if len(values) else 0
    if flat.null_count:
        row = start + int(flat.is_null().to_numpy(zero_copy_only=False).argmax()) // n_columns
        raise InputError(f"Every class of {name} must have a value. Got null in row {row}.")
    return matrix_from_arrow(flat, name, start).reshape(len(values), n_columns)


def rows_of(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the matrix of these columns as a transposed view; readers of rows copy it."""
    shape, kind = (len(columns), len(columns[0])), np.result_type(*columns)
    if 0 in shape or kind.hasobject:
        return np.stack(columns).T
    # Arrow reuses the memory of earlier columns; NumPy would allocate it page by page.
    memory = import_pyarrow().allocate_buffer(shape[0] * shape[1] * kind.itemsize)
    return np.stack(columns, out=np.frombuffer(memory, kind).reshape(shape)).T


def saved_index(schema: Any) -> str | None:
    """Return the name of the column in which pandas stored a one-level index, if any."""
    about = schema.pandas_metadata
    columns = about.get("index_columns") if isinstance(about, dict) else None
    index = columns[0] if isinstance(columns, list) and len(columns) == 1 else None
    return index if isinstance(index, str) else None


def is_list(kind: Any) -> bool:
    """Check for an Arrow list type."""
    types = import_pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def arrow_kind(kind: Any) -> Kind:
    """Return the kind of a column of this Arrow type."""
    types = import_pyarrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_floating(kind):
        return "float"
    if types.is_integer(kind):
        return "integer"
    if types.is_boolean(kind):
        return "flag"
    if is_list(kind):
        return LIST_KINDS.get(arrow_kind(kind.value_type), "other")
    return "text" if "string" in str(kind) else "other"
