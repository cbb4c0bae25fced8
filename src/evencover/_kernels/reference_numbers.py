"""The random numbers of rows, in NumPy: Philox of a row's id, or of its content and place."""

from __future__ import annotations

import numpy as np

from evencover._kernels.draws import Draws
from evencover._kernels.slices import SLICE_ELEMENTS
from evencover._validation import Array, FloatArray

# Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): multipliers and Weyl increments of the key.
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def random_bits(seed: int, use: int, ids: Array) -> Array:
    """64 random bits per row: Philox4x32-10 of the counter (id, use) under the key `seed`."""
    ids = np.asarray(ids).astype(np.uint64, copy=False)
    a, b = ids & _LOW, ids >> _HALF
    c = np.full_like(ids, use)
    d = np.zeros_like(ids)
    key = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b, c, d = (
            (second >> _HALF) ^ b ^ np.uint64(key[0]),
            second & _LOW,
            (first >> _HALF) ^ d ^ np.uint64(key[1]),
            first & _LOW,
        )
        key = [(k + step) & 0xFFFFFFFF for k, step in zip(key, _INCREMENTS, strict=True)]
    return (a << _HALF) | b


def uniforms(seed: int, use: int, ids: Array) -> FloatArray:
    """One uniform in [0, 1) per row, with 53 random bits."""
    return (random_bits(seed, use, ids) >> np.uint64(11)).astype(np.float64) * 2.0**-53


# The content of a row: a step of its columns' words, and of what float32 leaves over of float64.
_COLUMN_STEP = 0x9E3779B1
_REST_STEP = 0x9E3779B97F4A7C15


def row_contents(rows: Array) -> Array:
    """The content of each row in 64 bits; float16, float32 and float64 of equal values agree.

    The float32 bits of neighbouring columns, shifted by the column, are multiplied in pairs, and
    the products summed modulo 2**64 (as in NH, Black et al. 1999).
    """
    n_columns = rows.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        near = rows.astype(np.float32)
    steps = np.arange(1, n_columns + 1, dtype=np.uint64) * np.uint64(_COLUMN_STEP)
    words = near.view(np.uint32) + steps.astype(np.uint32)
    first, second = words[:, 0 : n_columns - 1 : 2].astype(np.uint64), words[:, 1::2]
    contents = (first * second).sum(axis=1, dtype=np.uint64)
    if n_columns % 2:
        contents += words[:, -1].astype(np.uint64) * np.uint64(_COLUMN_STEP)
    return contents + _rest_contents(rows, near) if rows.dtype == np.float64 else contents


def _rest_contents(rows: Array, near: Array) -> Array:
    """What float32 leaves over of float64 rows: 0 where their values are float32."""
    with np.errstate(invalid="ignore"):
        rest = np.where(np.isfinite(near), rows - near, 0.0)
    factors = (2 * np.arange(rows.shape[1], dtype=np.uint64) + np.uint64(1)) * np.uint64(_REST_STEP)
    return (rest.view(np.uint64) * factors).sum(axis=1, dtype=np.uint64)


def _mixed(x: Array) -> Array:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def row_keys(rows: Array, draws: Draws) -> Array:
    """What the random numbers of each row are drawn for: its id, or its content and place."""
    if draws.ids is not None:
        return draws.ids
    step = max(1, SLICE_ELEMENTS // rows.shape[1])
    parts = [row_contents(rows[at : at + step]) for at in range(0, max(1, len(rows)), step)]
    places = np.arange(draws.first, draws.first + len(rows), dtype=np.uint64)
    return _mixed(_mixed(np.concatenate(parts)) + places)


def row_numbers(rows: Array, draws: Draws) -> tuple[FloatArray, FloatArray]:
    """The uniform u of each row's score and the row's coin; 1 and 0 where there is no use."""
    u, coin = np.ones(len(rows)), np.zeros(len(rows))
    if draws.any:
        keys = row_keys(rows, draws)
        u = u if draws.score_use is None else uniforms(draws.seed, draws.score_use, keys)
        coin = coin if draws.coin_use is None else uniforms(draws.seed, draws.coin_use, keys)
    return u, coin
