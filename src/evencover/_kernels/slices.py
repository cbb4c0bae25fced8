"""Kernels in NumPy make several (n, K) arrays on their way: here they see a few rows at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from evencover._kernels.bad_row import BadRow

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

SLICE_ELEMENTS = 1 << 18  # 2 MB of float64: in the cache, and little memory on many threads
PER_ROW = {"rows", "labels"}  # the arguments with one entry per row


def in_slices(kernel: Kernel) -> Kernel:
    """A kernel that returns an array of rows, or several, run on slices of the rows."""
    signature = inspect.signature(kernel)

    @wraps(kernel)
    def sliced(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        per_row = {name: bound.arguments[name] for name in PER_ROW & bound.arguments.keys()}
        draws = bound.arguments.get("draws")
        n_rows, n_classes = per_row["rows"].shape
        step = max(1, SLICE_ELEMENTS // max(1, n_classes))
        parts = []
        for start in range(0, max(1, n_rows), step):
            bound.arguments.update({n: v[start : start + step] for n, v in per_row.items()})
            if draws is not None:
                bound.arguments["draws"] = draws.of_rows(start, start + step)
            try:
                parts.append(kernel(*bound.args, **bound.kwargs))
            except BadRow as bad:
                raise BadRow(start + bad.row) from None
        return _joined(parts)

    return cast(Kernel, sliced)


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], tuple):
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))
    return np.concatenate(parts)
