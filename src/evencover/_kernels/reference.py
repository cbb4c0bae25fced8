"""The kernels in NumPy: the definition that the C++ twin must match bit for bit.

Sums of probabilities are taken in 64-bit fixed point (p * 2**52, rounded once), which is exact
and so the same in any order: with a sort, without one, or stopped early.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evencover._kernels.draws import Draws
from evencover._kernels.slices import SLICE_ELEMENTS, in_slices
from evencover._validation import Array, FloatArray, IntArray, sum_tolerance

if TYPE_CHECKING:
    from evencover._kernels.limit_table import LimitTable
    from evencover.quantiles import GroupedScores, Thresholds
    from evencover.scores import Score

NAME = "numpy"
FIXED_POINT = 2.0**52

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
        contents += words[:, -1] * np.uint64(_COLUMN_STEP)
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


# 12! down to 0!, for Horner's scheme after the first coefficient 1 / 13!.
_FACTORIALS = [float(math.factorial(n)) for n in range(12, -1, -1)]


def _exp_nonpositive(x: FloatArray) -> FloatArray:
    """exp(x) for x <= 0 from IEEE basic operations only.

    Libraries' exp differ in the last bit, which would move scores between machines and kernels.
    Cody-Waite reduction and a degree-13 Taylor polynomial: within 2 ulp; 0 below -700.
    """
    x = np.maximum(x, -701.0)
    k = np.rint(x * 1.4426950408889634)
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    value = np.full_like(r, 1.0 / math.factorial(13))
    for factorial in _FACTORIALS:
        value = value * r + 1.0 / factorial
    return np.where(x < -700.0, 0.0, np.ldexp(value, k.astype(np.int32)))


def probabilities(rows: Array, *, logits: bool, temperature: float) -> tuple[FloatArray, int]:
    """The rows as float64 probabilities, and the first bad row (-1: all are good).

    Logits go through a stable softmax whose denominator is summed in fixed point.
    """
    n_classes = rows.shape[1]
    p = rows.astype(np.float64, copy=False)
    if not logits:
        tolerance = sum_tolerance(rows)
        in_range = ((p >= 0) & (p <= 1 + tolerance)).all(axis=1)  # False for NaN
        with np.errstate(invalid="ignore", over="ignore"):
            total = fixed_point(p).sum(axis=1)
            wraps = ~(p.sum(axis=1) < 2)  # 4097 ones are 1 again in 64 bits
        bad = ~(in_range & (np.abs(total - FIXED_POINT) <= tolerance * FIXED_POINT)) | wraps
        return p, int(bad.argmax()) if bad.any() else -1
    top = p.max(axis=1, keepdims=True)
    bad = ~np.isfinite(top[:, 0])  # NaN and +inf spread to the maximum; -inf is a masked class
    if bad.any():
        return p, int(bad.argmax())
    e = _exp_nonpositive((p - top) / temperature)
    scale = 2.0 ** (62 - n_classes.bit_length())  # the sum of K values <= scale fits 63 bits
    total = np.rint(e * scale).astype(np.int64).sum(axis=1)
    return e / (total.astype(np.float64) / scale)[:, None], -1


def fixed_point(p: FloatArray) -> IntArray:
    """Probabilities as whole multiples of 2**-52."""
    return np.rint(p * FIXED_POINT).astype(np.int64)


def label_position(p: FloatArray, labels: IntArray) -> tuple[FloatArray, IntArray]:
    """Mass before each row's label in decreasing order of probability, and its 1-based rank.

    One pass, no sort. Equal probabilities are ordered by class index.
    """
    own = p[np.arange(len(labels)), labels][:, None]
    columns = np.arange(p.shape[1])
    before = (p > own) | ((p == own) & (columns < labels[:, None]))
    mass = np.where(before, fixed_point(p), 0).sum(axis=1)
    return mass / FIXED_POINT, before.sum(axis=1) + 1


def positions(p: FloatArray) -> tuple[FloatArray, IntArray]:
    """`label_position` for every class at once: (n, K) masses and ranks."""
    order = np.argsort(-p, axis=1, kind="stable")
    mass = np.zeros(p.shape, dtype=np.int64)
    np.cumsum(np.take_along_axis(fixed_point(p), order, axis=1)[:, :-1], axis=1, out=mass[:, 1:])
    before, rank = np.empty_like(mass), np.empty_like(mass)
    np.put_along_axis(before, order, mass, axis=1)
    np.put_along_axis(rank, order, np.arange(1, p.shape[1] + 1)[None, :], axis=1)
    return before / FIXED_POINT, rank


@in_slices
def true_label_scores(
    score: Score, rows: Array, draws: Draws, labels: IntArray, *, logits: bool, temperature: float
) -> tuple[FloatArray, int]:
    """Score of each row's own label (n,), and the first bad row (-1: none)."""
    p, bad = probabilities(rows, logits=logits, temperature=temperature)
    if bad >= 0:
        return np.empty(0), bad
    from evencover.scores import Place

    own = p[np.arange(len(labels)), labels]
    before, rank = label_position(p, labels) if score.needs_order else (own, labels)
    u, _ = row_numbers(rows, draws)
    return score.formula(Place(own, before, rank, p.max(axis=1), labels, u)), -1


@in_slices
def true_label_ranks(
    rows: Array, labels: IntArray, *, logits: bool, temperature: float
) -> tuple[IntArray, int]:
    """Rank of each row's own label (n,), from 1, and the first bad row (-1: none)."""
    p, bad = probabilities(rows, logits=logits, temperature=temperature)
    if bad >= 0:
        return np.empty(0, dtype=np.int64), bad
    return label_position(p, labels)[1], -1


@in_slices
def score_matrix(
    score: Score, rows: Array, draws: Draws, *, logits: bool, temperature: float
) -> tuple[FloatArray, int]:
    """Score of every class in every row (n, K), and the first bad row (-1: none)."""
    p, bad = probabilities(rows, logits=logits, temperature=temperature)
    if bad >= 0:
        return np.empty((0, rows.shape[1])), bad
    from evencover.scores import Place

    before, rank = positions(p) if score.needs_order else (p, np.empty(0, dtype=np.int64))
    top, classes = p.max(axis=1, keepdims=True), np.arange(p.shape[1])
    u, _ = row_numbers(rows, draws)
    return score.formula(Place(p, before, rank, top, classes, u[:, None])), -1


@in_slices
def rank_matrix(rows: Array, *, logits: bool, temperature: float) -> tuple[IntArray, int]:
    """Rank of every class in every row (n, K), and the first bad row (-1: none)."""
    p, bad = probabilities(rows, logits=logits, temperature=temperature)
    if bad >= 0:
        return np.empty((0, rows.shape[1]), dtype=np.int64), bad
    return positions(p)[1], -1


@in_slices
def prediction_sets(
    score: Score,
    rows: Array,
    draws: Draws,
    thresholds: Thresholds,
    *,
    allow_empty: bool,
    logits: bool,
    temperature: float,
) -> tuple[IntArray, Array, int]:
    """Set sizes (n,), the classes of all sets one after the other (int32), the first bad row.

    A row's set holds class y if its score is at most ``upper[y]``, or ``lower[y]`` when the row's
    coin is at least ``upper_probability[y]``; and its rank is at most ``rank_limit[y]``, if given.
    """
    options: Any = {"logits": logits, "temperature": temperature}
    scores, bad = score_matrix(score, rows, draws, **options)
    if bad >= 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32), bad
    mask = scores <= _limits(thresholds, rows, draws)
    if thresholds.rank_limit is not None:
        mask &= rank_matrix(rows, **options)[0] <= thresholds.rank_limit
    if not allow_empty:
        empty = np.flatnonzero(~mask.any(axis=1))
        mask[empty, rows[empty].argmax(axis=1)] = True
    return mask.sum(axis=1), np.nonzero(mask)[1].astype(np.int32), -1


@in_slices
def set_coverage(
    score: Score,
    rows: Array,
    draws: Draws,
    labels: IntArray,
    thresholds: Thresholds,
    **options: Any,
) -> tuple[IntArray, Array, IntArray, int]:
    """What evaluation asks of the `prediction_sets`, all (n,), and the first bad row.

    Their sizes, whether they hold the rows' labels, and each row's most probable class (the first
    of equals).
    """
    sizes, classes, bad = prediction_sets(score, rows, draws, thresholds, **options)
    if bad >= 0:
        return sizes, np.empty(0, dtype=bool), np.empty(0, dtype=np.int64), bad
    mask = np.zeros(rows.shape, dtype=bool)
    mask[np.repeat(np.arange(len(rows)), sizes), classes] = True
    return sizes, mask[np.arange(len(rows)), labels], rows.argmax(axis=1), -1


@in_slices
def set_sizes(
    score: Score,
    rows: Array,
    draws: Draws,
    thresholds: Sequence[Thresholds] | LimitTable,
    *,
    logits: bool,
    temperature: float,
) -> tuple[IntArray, int]:
    """Sizes (n, T) of the sets under each of T threshold vectors, from one pass over the rows."""
    options: Any = {"logits": logits, "temperature": temperature}
    scores, bad = score_matrix(score, rows, draws, **options)
    if bad >= 0:
        return np.empty((0, len(thresholds)), dtype=np.int64), bad
    ranks: Any = None
    if any(each.rank_limit is not None for each in thresholds):
        ranks, _ = rank_matrix(rows, **options)
    sizes = np.empty((len(rows), len(thresholds)), dtype=np.int64)
    for place, each in enumerate(thresholds):
        mask = scores <= _limits(each, rows, draws)
        if each.rank_limit is not None:
            mask &= ranks <= each.rank_limit
        sizes[:, place] = mask.sum(axis=1)
    return sizes, -1


@in_slices
def p_values(
    score: Score,
    rows: Array,
    draws: Draws,
    groups: GroupedScores,
    group_of_class: IntArray,
    *,
    logits: bool,
    temperature: float,
) -> tuple[FloatArray, int]:
    """(1 - coin + #{group scores >= s}) / (n + 1) for every class (n, K); the first bad row."""
    scores, bad = score_matrix(score, rows, draws, logits=logits, temperature=temperature)
    if bad >= 0:
        return scores, bad
    _, coin = row_numbers(rows, draws)
    return p_values_of(scores, groups, group_of_class, 1.0 - coin), -1


def p_values_of(
    scores: FloatArray, groups: GroupedScores, group_of_class: IntArray, own_share: FloatArray
) -> FloatArray:
    """`p_values` from the scores (n, K); each row counts as `own_share` (n,) of one more."""
    result = np.empty_like(scores)
    for group in np.unique(group_of_class):
        members = group_of_class == group
        calibration = groups.of(group)
        at_least = len(calibration) - np.searchsorted(calibration, scores[:, members], side="left")
        result[:, members] = (at_least + own_share[:, None]) / (len(calibration) + 1.0)
    return result


def _limits(thresholds: Thresholds, rows: Array, draws: Draws) -> FloatArray:
    """The threshold of each class, per row where the coin decides."""
    if thresholds.lower is None or thresholds.upper_probability is None:
        return thresholds.upper
    _, coin = row_numbers(rows, draws._replace(score_use=None))
    heads = coin[:, None] < thresholds.upper_probability
    return np.where(heads, thresholds.upper, thresholds.lower)
