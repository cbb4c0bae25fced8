"""What the cost of a method asks of the kernels, in C++: same bits as `reference_cost`."""

from __future__ import annotations

import numpy as np

import evencover._kernels._native as _native
from evencover._validation import Array, FloatArray, IntArray

INSTRUCTION_SET: str = _native.instruction_sets()[0]


def counts_within(ordered: FloatArray, classes: IntArray, values: FloatArray) -> IntArray:
    """Values of a class up to others: see `reference_cost.counts_within`."""
    counts = np.empty(len(values), dtype=np.int64)
    own = (np.ascontiguousarray(classes, dtype=np.int64), _floats(values))
    _native.counts_within(INSTRUCTION_SET, _floats(ordered), *own, counts)
    return counts


def shortfalls(
    classes: IntArray, flags: Array, wanted: FloatArray, has: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Rows, and what they lack, by class: see `reference_cost.shortfalls`."""
    counts, sums = np.empty(len(has), dtype=np.int64), np.empty(len(has))
    own = (np.ascontiguousarray(classes, dtype=np.int64), np.ascontiguousarray(flags, dtype=bool))
    _native.shortfalls(INSTRUCTION_SET, *own, _floats(wanted), _floats(has), counts, sums)
    return counts, sums


def _floats(values: Array) -> FloatArray:
    return np.ascontiguousarray(values, dtype=np.float64)
