"""Which rows calibrate in one repetition; all others test, validate or train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evencover import _kernels
from evencover._types import Array, IntArray
from evencover._validation import whole_number
from evencover.errors import InputError
from evencover.randomness import Use, places, random_order


def calibration_split(
    labels: IntArray,
    random_state: int,
    repetition: int = 0,
    *,
    calibration_fraction: float | None = None,
    n_per_class: int | Sequence[int] | IntArray | None = None,
) -> IntArray:
    """The rows that calibrate in one repetition, in increasing order.

    Parameters
    ----------
    labels
        (N,) class indices.
    random_state, repetition
        Every repetition has a random order of its own.
    calibration_fraction, n_per_class
        A share of all rows (one half by default), or so many of each class: one number for all,
        or one per class. A class that has two rows or more keeps one of them.

    >>> labels = np.array([0, 0, 0, 0, 1, 1, 2])
    >>> len(calibration_split(labels, 0))
    3
    >>> labels[calibration_split(labels, 0, n_per_class=2)].tolist()
    [0, 0, 1, 2]
    """
    if calibration_fraction is not None and n_per_class is not None:
        raise InputError("Give 'calibration_fraction' or 'n_per_class', not both.")
    # Every repetition has its own range of ids, and so its own random order.
    ids = places(0, len(labels)) + np.uint64(repetition << 40)
    if n_per_class is not None:
        return _rows_of_each_class(labels, random_state, ids, n_per_class)
    share = 0.5 if calibration_fraction is None else calibration_fraction
    if not isinstance(share, float | np.floating) or not 0 < share < 1:
        raise InputError(
            "The 'calibration_fraction' parameter of compare must be a number in (0, 1). "
            f"Got {share!r} instead."
        )
    return random_rows(random_state, ids, max(1, int(share * len(labels))))


def random_rows(random_state: int, ids: Array, n: int) -> IntArray:
    """So many rows out of all, without replacement, by their ids; in increasing order."""
    if n >= len(ids):
        return np.arange(len(ids))
    bits = _kernels.random_bits(int(random_state), int(Use.DATA), ids)
    return np.sort(np.argpartition(bits, n - 1)[:n])


def other_rows(rows: IntArray, n_rows: int) -> Array:
    """All rows but these, as flags (N,)."""
    flags: Array = np.ones(n_rows, dtype=bool)
    flags[rows] = False
    return flags


def _rows_of_each_class(
    labels: IntArray, random_state: int, ids: Array, n_per_class: Any
) -> IntArray:
    counts = np.bincount(labels)
    if np.ndim(n_per_class) == 0:
        whole_number(n_per_class, "n_per_class", "compare", 1)
    wanted = np.asarray(n_per_class)
    if wanted.ndim and (len(wanted) < len(counts) or wanted.dtype.kind not in "iu"):
        raise InputError(
            "The 'n_per_class' parameter of compare must be one whole number, or one per class. "
            f"Got type {wanted.dtype} and shape {wanted.shape} instead."
        )
    wanted = np.minimum(wanted[: len(counts)] if wanted.ndim else wanted, np.maximum(counts - 1, 1))
    order = random_order(random_state, Use.DATA, ids)
    order = order[np.argsort(labels[order], kind="stable")]
    place = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[place < wanted[labels[order]]])
