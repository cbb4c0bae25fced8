"""Every random number, as a function of (random_state, its use, the row's key).

Nothing here has a state: the same row gets the same number in any block, thread or machine, and
two uses never share a stream. A row's key is the id that the user gives it; otherwise a mix of its
content and its place in the input (`_kernels.row_keys`), so that rows differ however they arrive.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import Any

import numpy as np

from evencover import _kernels
from evencover._validation import Array, FloatArray, InputError, plain_array, whole_number


class Use(IntEnum):
    """What a random number is for; the numbers are part of the file format, never reuse one."""

    SCORE = 1  # the uniform of APS and RAPS, for rows whose sets are wanted
    EXACT = 2  # the coin of the exact-coverage variant
    SPLIT = 3  # which calibration rows find clusters and which calibrate
    DATA = 4  # splits of a data set into calibration and test rows
    FOLDS = 5  # which fold a calibration row belongs to
    TWIN_CLASSES = 6  # the classes of a simulated twin: their centres and difficulties
    TWIN_ROWS = 7  # the rows of a simulated twin
    CALIBRATION_SCORE = 8  # the uniform of APS and RAPS, for calibration rows
    REPEATED_IDS = 9  # which of the rows with the same id comes first
    TEMPERATURE = 10  # which calibration rows a temperature is learnt from


def check_random_state(value: Any, owner: str) -> int:
    """A seed is a whole number of 64 bits; there is no hidden global state to fall back on."""
    return whole_number(value, "random_state", owner, 0, 2**64 - 1)


def uniforms(random_state: int, use: Use, ids: Array) -> FloatArray:
    """One uniform in [0, 1) per row id."""
    return _kernels.uniforms(int(random_state), int(use), ids)


def random_order(random_state: int, use: Use, ids: Array, row_places: Array | None = None) -> Array:
    """A permutation of the rows that depends on their ids only, not on how they are arranged.

    Rows with the same id are in the random order of their places in the input: `row_places`, if
    the rows are arranged otherwise here.
    """
    key = _kernels.random_bits(int(random_state), int(use), ids)
    order = np.argsort(key)
    in_order = key[order]
    if (in_order[1:] != in_order[:-1]).all():
        return order
    at = places(0, len(ids)) if row_places is None else row_places
    return np.lexsort((*order_of_repeated_ids(random_state, ids, at)[::-1], key))


def order_of_repeated_ids(random_state: int, ids: Array, row_places: Array) -> tuple[Array, ...]:
    """What the order goes by where the random bits of `ids` are the same, first things first."""
    bits = _kernels.random_bits(int(random_state), int(Use.REPEATED_IDS), row_places)
    return ids, bits, row_places


def row_ids(ids: Any, n_rows: int) -> Array:
    """The user's stable ids as 64-bit numbers. Text is hashed (BLAKE2b), integers are kept.

    >>> row_ids(["patient 7", "patient 8"], 2).dtype
    dtype('uint64')
    """
    values = plain_array(ids, "'ids'")
    if values.shape != (n_rows,):
        raise InputError(
            f"'ids' must have one entry per row. Got shape {values.shape} for {n_rows} rows."
        )
    if values.dtype.kind in "iu":
        return values.astype(np.uint64)
    if values.dtype.kind in "UO" and all(isinstance(value, str) for value in values.tolist()):
        _refuse_halves(values.tolist())
        digests = (hashlib.blake2b(v.encode(), digest_size=8).digest() for v in values.tolist())
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
    raise InputError(f"'ids' must be integers or text. Got the type {values.dtype} instead.")


def _refuse_halves(texts: list[str]) -> None:
    """Refuse text that no file can hold: half of a character."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"'ids' must be text that UTF-8 can hold. Got {error.object[error.start]!r}."
        ) from None


def places(start: int, stop: int) -> Array:
    """Each row's place in the whole input."""
    return np.arange(start, stop, dtype=np.uint64)
