"""Kernels in NumPy make several (n, K) arrays on their way: here they see a few rows at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

SLICE_ELEMENTS = 1 << 18  # 2 MB of float64: in the cache, and little memory on many threads
PER_ROW = {"rows", "labels"}  # the arguments with one entry per row


def in_slices(kernel: Kernel) -> Kernel:
    """A kernel that returns arrays of rows and the first bad row, run on slices of the rows."""
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
            *arrays, bad = kernel(*bound.args, **bound.kwargs)
            if bad >= 0:
                return (*arrays, start + bad)
            parts.append(arrays)
        if len(parts) == 1:
            return (*parts[0], -1)
        return (*(np.concatenate(each) for each in zip(*parts, strict=True)), -1)

    return cast(Kernel, sliced)
