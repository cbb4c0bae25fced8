"""Array types for annotations; conversion of arrays, tensors and Arrow objects to NumPy."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evencover.errors import InputError, import_extra

Array = NDArray[Any]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Kinds of columns in a table, and those of lists by what they contain.
# The entries of a list are pairs of a class and its probability.
Plain = Literal["float", "integer", "flag", "text", "other"]
Kind = Plain | Literal["list", "integer list", "text list", "entries"]
LIST_KINDS: dict[Kind, Kind] = {"float": "list", "integer": "integer list", "text": "text list"}


# Zeros compress a thousandfold; small arrays are made for inputs of any size.
MOST_PACKED, ALWAYS_MADE = 1000, 1 << 26


def explained(n_numbers: int, n_bytes: int, what: str) -> int:
    """Return a size that an input declares, if its bytes explain it; otherwise raise InputError.

    Call it before anything of that size is allocated.
    """
    if 8 * n_numbers > MOST_PACKED * n_bytes + ALWAYS_MADE:
        raise InputError(
            f"{what} must not declare more than its bytes can contain. Got {n_numbers:.3g} "
            f"numbers declared in {n_bytes:,} bytes."
        )
    return n_numbers


def import_pyarrow() -> Any:
    """Import pyarrow or raise with install instructions."""
    return import_extra("Arrow and Parquet", "pyarrow", "arrow")


def matrix_from_arrow(values: Any, name: str = "the input", start: int = 0) -> Array:
    """Convert an Arrow table, record batch or (chunked) array to NumPy; lists become rows.

    Messages use `name` and count rows from `start`.
    """
    pa = import_pyarrow()
    if isinstance(values, pa.Table | pa.RecordBatch):
        columns = [matrix_from_arrow(column, name, start) for column in values.columns]
        if len(columns) == 1 and columns[0].ndim == 2:
            return columns[0]
        if any(column.ndim == 2 for column in columns):
            return np.column_stack(columns)
        return rows_of(columns)
    if isinstance(values, pa.ChunkedArray):
        # `combine_chunks` would copy even a single chunk.
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if values.null_count:
        row = start + int(values.is_null().to_numpy(zero_copy_only=False).argmax())
        raise InputError(f"Every row of {name} must have a value. Got null in row {row}.")
    if getattr(values.type, "extension_name", "") == "arrow.uuid":
        return np.array(values.to_pylist(), dtype=object)
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


def rows_of(columns: list[Array]) -> Array:
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


def to_numpy(values: Any, name: str = "The array") -> Array:
    """Convert a NumPy, torch, pandas, polars or Arrow object to NumPy, uncopied if possible.

    Messages use `name`. Raise for masked entries.
    """
    if isinstance(values, np.ndarray) and not hasattr(values, "mask"):
        return values
    if type(values).__module__.startswith("pyarrow"):
        return matrix_from_arrow(values)
    masked = _first_masked(values)
    if masked is not None:
        raise InputError(
            f"{name} must have a value in every entry. Got a masked one in row {masked}; drop "
            "such rows."
        )
    if isinstance(values, np.ndarray):
        return np.asarray(values)
    if hasattr(values, "detach"):  # a torch tensor, perhaps on a device or with a gradient
        tensor = values.detach().cpu()
        return np.asarray(tensor.float() if "bfloat16" in str(tensor.dtype) else tensor)
    nullable = getattr(getattr(values, "dtype", None), "numpy_dtype", None)
    if nullable is not None and hasattr(values, "isna") and not values.isna().any():
        return np.asarray(values.to_numpy(nullable))  # older versions of pandas return objects
    try:
        array = np.asarray(values)
        # NumPy text drops zeros at the end ("a" and "a\0" would be equal), and numbers become text.
        is_lossy = array.dtype.kind == "U" and any(
            not isinstance(value, str) or value.endswith("\0") for value in values
        )
        return np.array(values, dtype=object) if is_lossy else array
    except ValueError:
        raise InputError(
            f"{name} must be rectangular. Got rows of different lengths instead; "
            "give one number per class in every row."
        ) from None


def _first_masked(values: Any) -> int | None:
    """Return the first row with a masked entry, if any, without importing `numpy.ma`."""
    if isinstance(values, list | tuple):
        arrays = ((row, v) for row, v in enumerate(values) if isinstance(v, np.ndarray))
        return next((row for row, each in arrays if _first_masked(each) is not None), None)
    if not isinstance(values, np.ndarray) or not hasattr(values, "mask") or not values.mask.any():
        return None
    return int(np.argwhere(np.atleast_1d(values.mask))[0, 0])
