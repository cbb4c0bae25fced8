"""Which rows calibrate in a repetition; all others validate."""

from __future__ import annotations

import numpy as np

from evencover._types import Array, IntArray
from evencover.comparison.splitting import calibration_split, random_rows
from evencover.randomness import places


def sample(labels: IntArray, n_classes: int, n_avg: int, repetition: int, seed: int) -> IntArray:
    """n_avg x K rows out of all, without replacement, as in the paper; in increasing order."""
    return random_rows(seed, _ids(len(labels), n_avg, repetition), n_avg * n_classes)


def sample_balanced(labels: IntArray, n_avg: int, repetition: int, seed: int) -> IntArray:
    """n_avg rows of each class; of a class that has no more, all but one."""
    return calibration_split(labels, seed, (n_avg << 8) + repetition, n_per_class=n_avg)


def _ids(n_rows: int, n_avg: int, repetition: int) -> Array:
    """Every calibration size and repetition has a range of ids, and so an order, of its own."""
    return places(0, n_rows) + np.uint64((n_avg << 48) + (repetition << 32))
