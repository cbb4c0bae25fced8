"""Rounded probabilities: the step of their numbers, and sums that rounding explains."""

from __future__ import annotations

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import warn_caller

# Tolerance of the sum of a row of probabilities, by the bytes of its type.
SUM_TOLERANCE = {2: 1e-2, 4: 1e-3, 8: 1e-3}
COARSE_TOLERANCE = SUM_TOLERANCE[2]
# Steps of rounded numbers, coarsest first: 2 to 8 decimals, and 8-bit and 16-bit integers.
STEPS_PER_UNIT = (100, 255, 1_000, 10_000, 65_535, 100_000, 10**6, 10**7, 10**8)
# Rounding that loses more of a row than this loses too much to be mended by a division.
MOST_ROUNDED_OFF = 0.1


def is_near_one(off: FloatArray, rows: Array) -> Array:
    """Check whether rounding of the stored type explains how far each row's sum is `off` 1 (n,).

    Rows are checked for bfloat16 (float32 that uses only its upper half) one by one. The result
    does not depend on blocks, partitions or kernels.
    """
    near = off <= SUM_TOLERANCE[rows.dtype.itemsize]
    unsure = np.flatnonzero(~near & (off <= COARSE_TOLERANCE)) if rows.dtype == np.float32 else ()
    for row in unsure:
        near[row] = not (np.ascontiguousarray(rows[row]).view(np.uint32) & 0xFFFF).any()
    return near


def rounding_steps(rows: Array) -> FloatArray:
    """Return the coarsest step of which all numbers of a row are multiples (n,); 0 if none.

    The type of float16 numbers explains their sums; their own steps hide decimals.

    >>> rounding_steps(np.array([[0.25, 0.5, 0.26], [0.1234, 0.8, 0.0766], [1 / 7, 2 / 7, 4 / 7]]))
    array([0.01  , 0.0001, 0.    ])
    """
    steps = np.zeros(len(rows))
    slack = 4 * np.finfo(rows.dtype).eps  # 12.3 / 100 is not always the double nearest to 0.123
    values = rows.astype(np.float64)
    is_known = np.isfinite(values).all(axis=1) & (rows.dtype != np.float16)
    left = np.flatnonzero(is_known)
    for per_unit in STEPS_PER_UNIT:
        counts = values[left] * per_unit
        fits = (np.abs(counts - np.rint(counts)) <= slack * np.abs(counts)).all(axis=1)
        steps[left[fits]] = 1 / per_unit
        left = left[~fits]
    return steps


def rounded_off(rows: Array) -> FloatArray:
    """Return how far off 1 rounding to few digits may leave the sum of each row (n,); 0 if none.

    Rounding changes a number by up to half a step, so K numbers change their sum by up to K / 2
    steps. Zeros count only next to numbers of one or two steps, because a tail that rounds to zero
    passes through these; five numbers and otherwise zeros are the top five classes. Every row is
    judged by itself, so one from a service is treated like the same one in a file.

    >>> rounded_off(np.array([[0.33, 0.33, 0.33], [0.9, 0.0, 0.0]]))
    array([0.015, 0.005])
    """
    steps = rounding_steps(rows)
    smallest = np.where(rows > 0, rows, np.inf).min(axis=1, initial=np.inf)
    counts = np.where(smallest < 2.5 * steps, rows.shape[1], (rows != 0).sum(axis=1))
    # A sum exactly half a step per number off is explained, whatever its last bit.
    return np.minimum(counts * steps / 2, MOST_ROUNDED_OFF) * (1 + 1e-9)


def judge_sums(off: FloatArray, rows: Array) -> tuple[Array, IntArray]:
    """Return whether rounding explains how far sums are `off` 1 (n,), and the rows to divide.

    Rows within the tolerance of their type stay as they are. Those that few digits explain must be
    divided by their sum.
    """
    explained = is_near_one(off, rows)
    others = np.flatnonzero(~explained & (off <= MOST_ROUNDED_OFF))
    rounded = others[off[others] <= rounded_off(rows[others])]
    explained[rounded] = True
    return explained, rounded


def warn_of_rounded_sums() -> None:
    """Warn that rows were divided by their sums."""
    warn_caller(
        "Rows whose sum is off 1 by the rounding of their numbers were divided by their sum; write "
        "more digits to avoid that."
    )
