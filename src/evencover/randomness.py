"""Derive every random number from (random_state, stream, row key).

Random numbers are stateless: a row gets the same number in any block, thread or machine. The key is
the user's id, or a mix of the row's content and index (`_kernels.row_keys`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, FloatArray
from evencover.validation import whole_number


class RandomStream(IntEnum):
    """The purpose of a random number. Values are part of the file format; never reuse one."""

    SCORE = 1  # the uniform of APS and RAPS when predicting
    EXACT = 2  # the randomization draw for exact coverage
    SPLIT = 3  # the partition of calibration rows into clustering and calibration
    DATA = 4  # splits of a data set into calibration and test sets
    FOLDS = 5  # the fold of each calibration row
    SIMULATED_CLASSES = 6  # centers and difficulties of simulated classes
    SIMULATED_ROWS = 7  # rows of simulated data
    CALIBRATION_SCORE = 8  # the uniform of APS and RAPS when calibrating
    REPEATED_IDS = 9  # the order of rows with the same id
    TIES = 11  # the order of calibration rows with equal scores
    THRESHOLD_TIES = 12  # whether scores equal to a randomized threshold are within it
    EVIDENCE = 13  # the order in which the monitor counts the rows of one call
    ACCEPTANCE = 14  # the half of the rows that proposes which predictions to accept
    CAPS = 15  # the calibration rows that measure in how many sets a class would be
    REVIEWS = 16  # the order in which to review predictions


def check_random_state(value: Any, owner: str) -> int:
    """Check a 64-bit integer seed."""
    return whole_number(value, "random_state", owner, 0, 2**64 - 1)


def uniforms(random_state: int, use: RandomStream, ids: Array) -> FloatArray:
    """Draw one uniform in [0, 1) per row id."""
    return _kernels.uniforms(int(random_state), int(use), ids)


def random_order(random_state: int, use: RandomStream, ids: Array) -> Array:
    """Permute the rows by their ids, independently of their order.

    Rows with the same id are ordered randomly by index.
    """
    key = _kernels.random_bits(int(random_state), int(use), ids)
    order = _kernels.ascending(key)
    in_order = key[order]
    if (in_order[1:] != in_order[:-1]).all():
        return order
    at = row_indices(0, len(ids))
    bits = _kernels.random_bits(int(random_state), int(RandomStream.REPEATED_IDS), at)
    return np.lexsort((at, bits, ids, key))


def row_indices(start: int, stop: int) -> Array:
    """Return each row's index in the whole input."""
    return np.arange(start, stop, dtype=np.uint64)
