"""Random splits of labeled rows into calibration and test rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, IntArray
from evencover.errors import InputError, warn_caller
from evencover.randomness import RandomStream, random_order, row_indices
from evencover.validation import whole_number

CalibrationSize = int | float  # examples of each class, or a fraction of all rows


class Split(NamedTuple):
    """Calibration rows, ascending, and whether each row (N,) is left for testing."""

    size: CalibrationSize
    repetition: int
    calibration: IntArray
    is_test: Array

    @classmethod
    def of(
        cls, size: CalibrationSize, repetition: int, calibration: IntArray, n_rows: int
    ) -> Split:
        """Leave all other rows for testing."""
        return cls(size, repetition, calibration, other_rows(calibration, n_rows))


def draw_splits(
    labels: IntArray,
    n_classes: int,
    sizes: CalibrationSize | Sequence[CalibrationSize],
    n_splits: int,
    random_state: int,
) -> list[Split]:
    """Draw the splits of every calibration size; warn about sizes that the data cannot serve."""
    wanted: list[Any] = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
    n_rows, class_counts = len(labels), np.bincount(labels, minlength=n_classes)[:n_classes]
    splits = [
        Split.of(size, n, calibration_split(labels, random_state, n, size), n_rows)
        for size in wanted
        for n in range(n_splits)
    ]
    unserved = [size for size in wanted if size >= 1 and not _is_served(class_counts, int(size))]
    splits = [split for split in splits if split.size not in unserved]
    if not splits or not all(split.is_test.any() for split in splits):
        raise InputError(
            f"'calibration_sizes' must leave some of the {n_rows} rows for testing. "
            f"Got {', '.join(map(str, wanted))}."
        )
    return splits


def _is_served(class_counts: IntArray, size: int) -> bool:
    """Warn about classes (K,) with too few rows; return whether any class has enough."""
    present = class_counts[class_counts > 0]
    n_few = int((present <= size).sum())
    if n_few == len(present):
        warn_caller(
            f"Calibration size {size} is left out: no class has more than {present.max()} examples."
        )
    elif n_few:
        warn_caller(
            f"Calibration size {size}: {n_few} of {len(present)} classes have no more than {size} "
            "examples; they calibrate on all but one."
        )
    return n_few < len(present)


def calibration_split(
    labels: IntArray, random_state: int, repetition: int = 0, size: CalibrationSize = 0.5
) -> IntArray:
    """Draw the calibration rows of one repetition, in increasing order.

    `size` is a fraction of all rows, or the number of examples of each class; a class with two rows
    or more keeps one of them. Every repetition has a random order of its own.

    >>> labels = np.array([0, 0, 0, 0, 1, 1, 2])
    >>> len(calibration_split(labels, 0))
    3
    >>> labels[calibration_split(labels, 0, size=2)].tolist()
    [0, 0, 1, 2]
    """
    ids = row_indices(0, len(labels)) + np.uint64(repetition << 40)
    if isinstance(size, float | np.floating):
        if not 0 < size < 1:
            raise InputError(f"A fraction of calibration rows must be in (0, 1). Got {size!r}.")
        return random_rows(random_state, ids, max(1, int(size * len(labels))))
    whole_number(size, "calibration_sizes", "compare", 1, 2**16 - 1)
    most = np.maximum(np.bincount(labels) - 1, 1)
    return rows_of_each_class(
        labels, np.minimum(most, size), random_state, ids + np.uint64(int(size) << 48)
    )


def rows_of_each_class(
    labels: IntArray, n_of_class: IntArray, random_state: int, ids: Array
) -> IntArray:
    """Draw so many rows of each class (K,) without replacement, by their ids; ascending."""
    class_counts = np.bincount(labels, minlength=len(n_of_class))
    order = random_order(random_state, RandomStream.DATA, ids)
    order = order[np.argsort(labels[order], kind="stable")]
    first_of_class = np.cumsum(class_counts) - class_counts
    rank_in_class = np.arange(len(labels)) - np.repeat(first_of_class, class_counts)
    return np.sort(order[rank_in_class < n_of_class[labels[order]]])


def random_rows(random_state: int, ids: Array, n: int) -> IntArray:
    """Draw n of all rows without replacement, by their ids; ascending."""
    if n >= len(ids):
        return np.arange(len(ids))
    bits = _kernels.random_bits(int(random_state), int(RandomStream.DATA), ids)
    return np.sort(np.argpartition(bits, n - 1)[:n])


def other_rows(rows: IntArray, n_rows: int) -> Array:
    """Flag all rows but these (N,)."""
    flags: Array = np.ones(n_rows, dtype=bool)
    flags[rows] = False
    return flags
