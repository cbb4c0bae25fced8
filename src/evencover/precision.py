"""The precision of stored numbers: that of new rows must be that of the calibration rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from evencover.errors import warn_caller
from evencover.topk import numbers_per_row

# Names of steps so coarse that many numbers are equal; finer ones count as full precision (0).
PRECISIONS = {
    1 / 100: "2 digits",
    1 / 255: "8-bit integers",
    2.0**-8: "bfloat16",
    1 / 1_000: "3 digits",
    2.0**-11: "float16",
    1 / 10_000: "4 digits",
    1 / 65_535: "16-bit integers",
    1 / 100_000: "5 digits",
    0.0: "full precision",
}
# Numbers that show a precision, those compared, and how many must be distinct.
ENOUGH_TO_TELL, MOST_COMPARED, LEAST_DISTINCT = 200, 4096, 20


def precision_of(rows: Any) -> float | None:
    """Return the precision of rows (n, K): a step of PRECISIONS; None if there are too few numbers.

    Nine of ten numbers must have it. Zeros and ones have every precision, so they do not count.

    >>> rows = np.random.default_rng(0).dirichlet(np.ones(9), 50)
    >>> [PRECISIONS[precision_of(each)] for each in (rows, rows.round(4), rows.astype("f2"))]
    ['full precision', '4 digits', 'float16']
    """
    for most in (MOST_COMPARED, 16 * MOST_COMPARED):  # more if most numbers are zeros and ones
        numbers = rows[: most // max(1, numbers_per_row(rows)) + 1].ravel()
        numbers = numbers[(numbers != 0) & (numbers != 1) & np.isfinite(numbers)][:MOST_COMPARED]
        if 2 * len(numbers) >= MOST_COMPARED:
            break
    if len(numbers) < ENOUGH_TO_TELL:
        return None
    values = numbers.astype(np.float64)
    slack = 4 * np.finfo(np.float32).eps  # also of float64, because JSON turns float32 into it
    for step, name in PRECISIONS.items():
        if name == "bfloat16":
            short = numbers.astype(np.float32).view(np.uint32)
            fits = (values == short.view(np.float32)) & ((short & 0xFFFF) == 0)
        elif name == "float16":
            with np.errstate(over="ignore"):
                fits = values == numbers.astype(np.float16)
        elif numbers.dtype == np.float16 or step == 0:  # a type that hides decimals
            continue
        else:
            counts = values / step
            fits = np.abs(counts - np.rint(counts)) <= slack * np.abs(counts)
        if fits.mean() >= 0.9:  # a few values that recur may be round by chance
            return step if len(np.unique(values)) >= LEAST_DISTINCT else None
    return 0.0


def warn_of_precision(rows: Any, calibration: float | None) -> bool:
    """Warn of rows much coarser or finer than the calibration rows; return if rows suffice.

    Thresholds fitted to float16 numbers covered 78% of float32 rows instead of 90%, because equal
    scores were no longer equal.
    """
    precision = None
    if calibration in PRECISIONS and rows.size >= ENOUGH_TO_TELL:
        precision = precision_of(rows)
    if calibration is None or precision is None:
        return False
    if precision != calibration and max(precision, calibration) >= 2 * min(precision, calibration):
        warn_caller(
            "Rows must have the precision of the calibration rows, because rounding decides which "
            f"scores are equal. Got {PRECISIONS[precision]}, and {PRECISIONS[calibration]} in "
            "calibration, so coverage may be off; store both in the same way."
        )
    return True
