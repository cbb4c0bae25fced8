"""Array types for annotations; conversion of arrays, tensors and frames to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evencover.arrow import matrix_from_arrow
from evencover.errors import InputError

Array = NDArray[Any]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Zeros compress a thousandfold; small arrays are made for inputs of any size.
MOST_PACKED, ALWAYS_MADE = 1000, 1 << 26


def data_frame(columns: dict[str, Any], index: Any = None) -> Any:
    """Build a pandas data frame, or raise with install instructions."""
    try:
        from pandas import DataFrame
    except ImportError:
        error = "to_pandas needs pandas; install it with 'pip install pandas'."
        raise InputError(error) from None
    return DataFrame(columns, index=index)


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
