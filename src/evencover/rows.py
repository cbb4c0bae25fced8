"""Check rows of probabilities or logits; raise InputError with a fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from evencover.arrays import Array, FloatArray, to_numpy
from evencover.errors import InputError
from evencover.rounding import judge_sums, rounded_off, rounding_steps
from evencover.topk import TopK, is_sparse

FLOAT_TYPES = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))
BFLOAT16 = np.dtype("V2")  # as files store it: NumPy's placeholder for an unknown type
_LOGITS_HINT = "if these are logits, use from_logits=True (--logits on the command line)."
MOST_TOP_CLASSES = 20  # of a row that has numbers for its top classes only


def are_probabilities(rows: Array) -> bool:
    """Check whether the first rows (n, K), at most 16, all pass as probabilities.

    A few logits can pass by chance. Fewer than 8 numbers must therefore sum to 1 within 1e-6, and a
    single row of two classes is never enough.
    """
    some = rows[:16]
    # Two numbers identify most logits in 0.2 us; all of them take 2 us.
    if some.size < 3 or not (0 <= some[0, 0] <= 1 and 0 <= some[-1, -1] <= 1):
        return False
    if not (some.min() >= 0 and some.max() <= 1):
        return False
    off = np.abs(some.sum(axis=1, dtype=np.float64) - 1)
    return bool((off <= 1e-6).all() if some.size < 8 else judge_sums(off, some)[0].all())


def matrix_shape(shape: Sequence[int], name: str) -> tuple[int, int]:
    """Check that a shape is (N, K), K >= 2."""
    if len(shape) != 2:
        raise InputError(
            f"{name} must be a matrix with one row per example and one column per class. "
            f"Got an array of shape {tuple(shape)} instead."
        )
    if shape[1] < 2:
        raise InputError(
            f"{name} must have at least 2 classes (columns). Got {shape[1]} instead; "
            "for a binary model give the probabilities of both classes."
        )
    return int(shape[0]), int(shape[1])


def score_rows(values: Any) -> Any:
    """Check that `values` is a real (n, K) matrix, K >= 2, and return it as floating-point rows.

    Top-k rows stay as they are, and sparse matrices become such rows.
    """
    if isinstance(values, TopK):
        return values
    if not isinstance(values, np.ndarray) and is_sparse(values):
        return TopK.from_sparse(values)
    rows = to_numpy(values, "'probabilities'")
    matrix_shape(rows.shape, "'probabilities'")
    if rows.dtype in FLOAT_TYPES:
        return rows
    if rows.dtype.name == "bfloat16":  # of JAX and TensorFlow, through ml_dtypes
        return rows.astype(np.float32)
    if rows.dtype == BFLOAT16:
        return (np.ascontiguousarray(rows).view("<u2").astype(np.uint32) << 16).view(np.float32)
    if rows.dtype.newbyteorder("=") in FLOAT_TYPES:
        return rows.astype(rows.dtype.newbyteorder("="))
    if rows.dtype.kind in "biuf":  # "f" is long double here
        return rows.astype(np.float64)
    raise InputError(f"'probabilities' must contain real numbers. Got the type {rows.dtype}.")


def raise_bad_row(row: Array, index: int, *, logits: bool, where: str | None = None) -> NoReturn:
    """Raise for a row that a kernel rejected, with the cause; `where` names it and its file."""
    where = where or f"row {index}"
    if isinstance(row, TopK):
        raise _bad_top_k(row, where)
    values, is_missing = row.astype(np.float64), np.isnan(row)
    rule = "'probabilities' must be numbers between 0 and 1."
    rule = "'logits' must be finite numbers." if logits else rule
    if logits or not np.isfinite(values).all():
        column = int((is_missing if is_missing.any() else ~np.isfinite(values)).argmax())
        kind, cause = "an infinite value", "." if logits else f"; {_LOGITS_HINT}"
        if is_missing.any():
            kind, cause = "NaN", ": a missing value; fill it in, or leave the row out."
        raise InputError(f"{rule} Got {kind} in {where}, class {column}{cause}")
    worst, total = int(values.argmin()), float(values.sum())
    cause = _cause_of_sum(row, values)
    if values[worst] < 0:
        raise InputError(f"{rule} Got {values[worst]:.6g} in {where}, class {worst}; {cause}")
    raise InputError(
        f"Every row of 'probabilities' must sum to 1. {'R' + where[1:]} sums to {total:.6g}, "
        f"which is off by {abs(total - 1):.3g}; {cause}"
    )


def _bad_top_k(row: TopK, where: str) -> InputError:
    """Build the error for a row of listed classes that a kernel rejected."""
    if not row.size:
        return InputError(f"A top-k row must list at least one class. Got none in {where}.")
    classes, counts = np.unique(row.classes, return_counts=True)
    if (counts > 1).any():
        twice = classes[counts.argmax()]
        return InputError(
            f"A top-k row must list each class once. Got class {twice} twice in {where}."
        )
    is_bad = ~((row.values >= 0) & (row.values <= 1))
    if is_bad.any():
        worst = int(is_bad.argmax())
        return InputError(
            "The numbers of a top-k row must be probabilities between 0 and 1. Got "
            f"{row.values[worst]:g} in {where}, class {row.classes[worst]}; turn logits into "
            "probabilities by a softmax over all classes, and log probabilities by exp."
        )
    rule = "to 1 if it lists all classes" if row.size == row.n_classes else "to at most 1"
    return InputError(
        f"The probabilities of a top-k row must sum {rule}. Got "
        f"{row.values.sum(dtype=np.float64):.6g} in {where}; use a softmax over all classes."
    )


def _cause_of_sum(row: Array, values: FloatArray) -> str:
    """Explain why numbers are no probabilities, as far as one row shows."""
    total, n_zeros = float(values.sum()), int((values == 0).sum())
    if values.min() >= 0 and abs(total - 100) <= 1:
        return "these are percentages; divide them by 100."
    if values.min() < 0 or values.max() > 1:
        return _LOGITS_HINT
    n_numbers = len(values) - n_zeros
    if total < 1 and n_numbers <= MOST_TOP_CLASSES and n_zeros > n_numbers:
        return (
            f"it has {n_numbers} numbers and {n_zeros} zeros, so these are the top classes only; "
            "write the probabilities of all classes."
        )
    step, most = (float(found[0]) for found in (rounding_steps(row[None]), rounded_off(row[None])))
    if step and abs(total - 1) < 0.5:
        return (
            f"numbers rounded to steps of {step:.2g} explain at most {most:.2g}; write more "
            "digits, of all classes."
        )
    return (
        "a softmax over all classes sums to 1; sigmoids, or the numbers of some of the classes, "
        "do not."
    )
