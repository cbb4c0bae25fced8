"""What the cost of a method asks of the kernels, in NumPy: the definition of the C++ twin."""

from __future__ import annotations

import numpy as np

from evencover._validation import Array, FloatArray, IntArray


def counts_within(ordered: FloatArray, classes: IntArray, values: FloatArray) -> IntArray:
    """How many of the ascending values of ``classes[i]`` (K, M) are at most ``values[i]`` (n,)."""
    n = ordered.shape[1]
    low, high = np.zeros(len(values), dtype=np.int64), np.full(len(values), n)
    while (low < high).any():
        middle = (low + high) // 2
        within = (low < high) & (ordered[classes, np.minimum(middle, n - 1)] <= values)
        low, high = np.where(within, middle + 1, low), np.where(within, high, middle)
    return low


def shortfalls(
    classes: IntArray, flags: Array, wanted: FloatArray, has: FloatArray
) -> tuple[IntArray, FloatArray]:
    """By class (K,), how many rows are flagged, and the sum over them of max(wanted - has, 0).

    `wanted` (n,) is what each row wants of its class, `has` (K,) what the class has.
    """
    own = classes[flags]
    lacking = np.maximum(wanted[flags] - has[own], 0.0)
    sums = np.bincount(own, lacking, len(has)).astype(np.float64)
    return np.bincount(own, minlength=len(has)).astype(np.int64), sums
