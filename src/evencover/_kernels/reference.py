"""NumPy kernels: the bit-exact definition of every result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from evencover._kernels.types import (
    BadRow,
    Coverage,
    Draws,
    KernelInput,
    Position,
    Thresholds,
    ThresholdTable,
    is_member,
)
from evencover.arrays import Array, FloatArray, IntArray
from evencover.rounding import judge_sums, warn_of_rounded_sums
from evencover.sizes import at_once
from evencover.topk import most_numbers_per_row

NAME = "numpy"

# Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): multipliers and Weyl increments of the key.
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def random_bits(seed: int, use: int, ids: Array) -> Array:
    """Return 64 random bits per row: Philox4x32-10 of the counter (id, use), key `seed`."""
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
    """Return one uniform in [0, 1) per row, with 53 random bits."""
    return to_unit_interval(random_bits(seed, use, ids))


def to_unit_interval(bits: Array) -> FloatArray:
    """Convert 64 random bits to uniforms."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


# Constants of the content hash: steps of the columns' words, and of float64 remainders.
_COLUMN_STEP = 0x9E3779B1
_REST_STEP = 0x9E3779B97F4A7C15


def row_contents(rows: Array) -> Array:
    """Hash each row's content to 64 bits; equal values of any float type have equal hashes.

    Multiply the float32 bits of neighboring columns, shifted by the column, in pairs. Sum the
    products modulo 2**64 (as in NH, Black et al. 1999).
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
    """Return the remainders of float64 rows beyond float32; 0 for float32 values."""
    with np.errstate(invalid="ignore"):
        rest = np.where(np.isfinite(near), rows - near, 0.0)
    factors = (2 * np.arange(rows.shape[1], dtype=np.uint64) + np.uint64(1)) * np.uint64(_REST_STEP)
    return (rest.view(np.uint64) * factors).sum(axis=1, dtype=np.uint64)


def mixed(x: Array) -> Array:
    """Apply SplitMix64's finalizer (Steele, Lea, Flood 2014)."""
    shifted = x >> np.uint64(30)
    x = x ^ shifted
    x *= np.uint64(0xBF58476D1CE4E5B9)  # in place, because new memory takes longer than the work
    x ^= np.right_shift(x, np.uint64(27), out=shifted)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= np.right_shift(x, np.uint64(31), out=shifted)
    return x


def unmixed(x: Array) -> Array:
    """Invert `mixed`, which permutes the numbers of 64 bits.

    >>> unmixed(mixed(np.array([7, 2**64 - 1], dtype=np.uint64))).tolist() == [7, 2**64 - 1]
    True
    """
    for shift, factor in _INVERSE:
        x = x ^ (x >> shift) ^ (x >> (shift + shift))
        x *= factor
    return x


_INVERSE = [
    (np.uint64(shift), np.uint64(pow(factor, -1, 2**64)))
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1))
]


def sample_labels(
    labels: IntArray, start: int, n_classes: int, largest: int, stride: int
) -> tuple[int, IntArray, Array]:
    """Hash each label (n,) with its index, from `start` on.

    Return the sum of the hashes, modulo 2**64, and the rows of every `stride`-th class with a hash
    of at most `largest`, with their hashes. Labels that are not among the classes are left out.
    """
    keys = np.arange(start, start + len(labels), dtype=np.uint64) * np.uint64(n_classes)
    hashes = mixed(keys + labels.astype(np.uint64))
    is_drawn = (hashes <= np.uint64(largest)) & (labels % stride == 0) & (labels < n_classes)
    drawn = np.flatnonzero(is_drawn)
    return int(hashes.sum(dtype=np.uint64)), drawn, hashes[drawn]


def row_keys(rows: Array, draws: Draws) -> Array:
    """Return the key of each row's random numbers: its id, or its content and index."""
    if draws.ids is not None:
        return draws.ids
    step = max(1, SLICE_ELEMENTS // rows.shape[1])
    parts = [row_contents(rows[at : at + step]) for at in range(0, max(1, len(rows)), step)]
    indices = np.arange(draws.first, draws.first + len(rows), dtype=np.uint64)
    return mixed(mixed(np.concatenate(parts)) + indices)


def row_numbers(rows: Array, draws: Draws) -> tuple[FloatArray, FloatArray]:
    """Return each row's uniform u and randomization draw; 1 and 0 if unused."""
    u, draw = np.ones(len(rows)), np.zeros(len(rows))
    if draws.any:
        keys = row_keys(rows, draws)
        u = u if draws.score_use is None else uniforms(draws.seed, draws.score_use, keys)
        draw = draw if draws.exact_use is None else uniforms(draws.seed, draws.exact_use, keys)
    return u, draw


FIXED_POINT = 2.0**52

# 12! down to 0!, for Horner's scheme after the first coefficient 1 / 13!.
_FACTORIALS = [float(math.factorial(n)) for n in range(12, -1, -1)]


def exp_nonpositive(x: FloatArray) -> FloatArray:
    """Compute exp(x) for x <= 0 from IEEE basic operations only.

    Libraries' exp differ in the last bit, which would change scores between machines and kernels.
    Cody-Waite reduction and a degree-13 Taylor polynomial: within 2 ulp; 0 below -700.
    """
    x = np.maximum(x, -701.0)
    k = np.rint(x * 1.4426950408889634)
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    value = np.full_like(r, 1.0 / math.factorial(13))
    for factorial in _FACTORIALS:
        value = value * r + 1.0 / factorial
    return np.where(x < -700.0, 0.0, np.ldexp(value, k.astype(np.int32)))


def probabilities(rows: Array, *, logits: bool) -> FloatArray:
    """Return the rows as float64 probabilities; raise `BadRow` if they are not.

    Rows whose sum is off 1 by the rounding of their numbers are divided by it. Logits go through a
    stable softmax whose denominator is summed in fixed point.
    """
    n_classes = rows.shape[1]
    p = rows.astype(np.float64, copy=False)
    if not logits:
        in_range = ((p >= 0) & (p <= 2)).all(axis=1)  # False for NaN
        with np.errstate(invalid="ignore", over="ignore"):
            total = fixed_point(p).sum(axis=1) / FIXED_POINT
            wraps = ~(p.sum(axis=1) < 2)  # 4097 ones sum to 1 modulo 64 bits
            explained, rounded = judge_sums(np.abs(total - 1), rows)
        reject_rows(~(in_range & explained) | wraps)
        if len(rounded):
            warn_of_rounded_sums()
            p = p.copy()
            p[rounded] /= total[rounded, None]
        return p
    top = p.max(axis=1, keepdims=True)
    # NaN and +inf spread to the maximum; -inf is a masked class.
    reject_rows(~np.isfinite(top[:, 0]))
    e = exp_nonpositive(p - top)
    scale = 2.0 ** (62 - n_classes.bit_length())  # the sum of K values <= scale fits 63 bits
    total = np.rint(e * scale).astype(np.int64).sum(axis=1)
    return e / (total.astype(np.float64) / scale)[:, None]


def checked_rows(rows: Array) -> FloatArray:
    """Return `probabilities` of a block, a slice at a time to limit memory."""
    result, step = np.empty(rows.shape), max(1, SLICE_ELEMENTS // rows.shape[1])
    for start in range(0, len(rows), step):
        some = slice(start, start + step)
        try:
            result[some] = probabilities(rows[some], logits=False)
        except BadRow as bad:
            raise BadRow(start + bad.row) from None
    return result


def reject_rows(bad: Array) -> None:
    """Raise for the first bad row."""
    if bad.any():
        raise BadRow(int(bad.argmax()))


def fixed_point(p: FloatArray) -> IntArray:
    """Convert probabilities to multiples of 2**-52."""
    return np.rint(p * FIXED_POINT).astype(np.int64)


def label_position(p: FloatArray, labels: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the mass before each row's label by decreasing probability, and its rank from 1.

    One pass, no sort. Ties are ordered by class index.
    """
    own = p[np.arange(len(labels)), labels][:, None]
    columns = np.arange(p.shape[1])
    before = (p > own) | ((p == own) & (columns < labels[:, None]))
    mass = np.where(before, fixed_point(p), 0).sum(axis=1)
    return mass / FIXED_POINT, before.sum(axis=1) + 1


def positions(p: FloatArray) -> tuple[FloatArray, IntArray]:
    """Compute `label_position` for every class: (n, K) masses and ranks."""
    order = np.argsort(-p, axis=1, kind="stable")
    mass = np.zeros(p.shape, dtype=np.int64)
    np.cumsum(np.take_along_axis(fixed_point(p), order, axis=1)[:, :-1], axis=1, out=mass[:, 1:])
    before, rank = np.empty_like(mass), np.empty_like(mass)
    np.put_along_axis(before, order, mass, axis=1)
    np.put_along_axis(rank, order, np.arange(1, p.shape[1] + 1)[None, :], axis=1)
    return before / FIXED_POINT, rank


# 2 MB of float64: fits the cache, and limits memory on many threads.
SLICE_ELEMENTS = at_once(1 << 18)


def in_slices(kernel: Callable[..., Any], given: KernelInput, *by_row: Array) -> Any:
    """Call a kernel on slices of the rows, and concatenate its arrays.

    Its other arguments, `by_row`, have one entry per row.
    """
    n_rows, parts = len(given.rows), []
    step = max(1, SLICE_ELEMENTS // max(1, most_numbers_per_row(given.rows)))
    for start in range(0, max(1, n_rows), step):
        some = slice(start, start + step)
        try:
            parts.append(kernel(given.of_rows(some), *(values[some] for values in by_row)))
        except BadRow as bad:
            raise BadRow(start + bad.row) from None
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], tuple):
        if isinstance(parts[0], Coverage):
            *columns, counts = zip(*parts, strict=True)
            return Coverage._make([*map(np.concatenate, columns), sum(counts)])
        return tuple(map(np.concatenate, zip(*parts, strict=True)))
    return np.concatenate(parts)


def true_label_scores(given: KernelInput, labels: IntArray) -> FloatArray:
    """Score each row's label (n,)."""

    def of_slice(some: KernelInput, labels: IntArray) -> FloatArray:
        p, formula = probabilities(some.rows, logits=some.logits), some.formula
        own = p[np.arange(len(labels)), labels]
        before, rank = label_position(p, labels) if formula.needs_order else (own, labels)
        u, _ = row_numbers(some.rows, some.draws)
        return formula.function(Position(own, before, rank, p.max(axis=1), labels, u))

    return in_slices(of_slice, given, labels)


def true_label_ranks(given: KernelInput, labels: IntArray) -> IntArray:
    """Rank each row's label (n,), from 1."""

    def of_slice(some: KernelInput, labels: IntArray) -> IntArray:
        return label_position(probabilities(some.rows, logits=some.logits), labels)[1]

    return in_slices(of_slice, given, labels)


def score_matrix(given: KernelInput) -> FloatArray:
    """Score every class in every row (n, K)."""

    def of_slice(some: KernelInput) -> FloatArray:
        p, formula = probabilities(some.rows, logits=some.logits), some.formula
        before, rank = positions(p) if formula.needs_order else (p, np.empty(0, dtype=np.int64))
        top, classes = p.max(axis=1, keepdims=True), np.arange(p.shape[1])
        u, _ = row_numbers(some.rows, some.draws)
        return formula.function(Position(p, before, rank, top, classes, u[:, None]))

    return in_slices(of_slice, given)


def rank_matrix(given: KernelInput) -> IntArray:
    """Rank every class in every row (n, K), from 1."""
    return in_slices(lambda some: positions(probabilities(some.rows, logits=some.logits))[1], given)


def prediction_sets(
    given: KernelInput, thresholds: Thresholds, *, keep_top: bool
) -> tuple[IntArray, Array]:
    """Return the boundaries of the rows' classes (n + 1,), and the classes of all sets (int32)."""

    def of_slice(some: KernelInput) -> tuple[IntArray, Array]:
        mask = _sets(some, thresholds, keep_top)
        indices, classes = np.nonzero(mask)
        order = np.lexsort((-some.rows[indices, classes], indices))
        return mask.sum(axis=1), classes[order].astype(np.int32)

    sizes, classes = in_slices(of_slice, given)
    return np.append(0, np.cumsum(sizes)), classes


def _sets(given: KernelInput, thresholds: Thresholds, keep_top: bool) -> Array:
    """Return which classes are in each row's set (n, K)."""
    [mask] = _members(given, [thresholds])
    if keep_top:
        mask[np.arange(len(given.rows)), top_classes(given.rows)] = True
    return mask


# Rows (n, K) and ids, or None -> boundaries of the rows' classes (n + 1,), and the classes; then
# the same of the second sets, if there are any.
ReadySets = Callable[[Array, Array | None], tuple[Array, ...]]


def ready_sets(
    given: KernelInput, thresholds: Thresholds, second: Thresholds | None, *, keep_top: bool
) -> ReadySets:
    """Prepare `prediction_sets` for a few rows at a time; `given` has neither rows nor ids.

    `second` thresholds give second sets of the same rows, whose classes are in any order.
    """

    def sets(rows: Array, ids: Array | None) -> tuple[Array, ...]:
        own = given._replace(rows=rows, draws=given.draws._replace(ids=ids))
        first = prediction_sets(own, thresholds, keep_top=keep_top)
        return first if second is None else first + prediction_sets(own, second, keep_top=False)

    return sets


def top_classes(rows: Array) -> IntArray:
    """Return the most probable class of each row (n,); of equal ones, the first."""
    return rows.argmax(axis=1)


def set_coverage(
    given: KernelInput, labels: IntArray, thresholds: Thresholds, *, keep_top: bool
) -> Coverage:
    """Evaluate the sets of labeled rows."""

    def of_slice(some: KernelInput, labels: IntArray) -> Coverage:
        mask = _sets(some, thresholds, keep_top)
        sizes, top, each_row = mask.sum(axis=1), top_classes(some.rows), np.arange(len(labels))
        is_alone = (sizes == 1) & mask[each_row, top]
        return Coverage(sizes, mask[each_row, labels], top, is_alone, mask.sum(axis=0))

    return in_slices(of_slice, given, labels)


def set_sizes(given: KernelInput, table: ThresholdTable) -> IntArray:
    """Count the sets' members under each of T vectors of thresholds (n, T)."""

    def of_slice(some: KernelInput) -> IntArray:
        return np.stack([mask.sum(axis=1) for mask in _members(some, table)], axis=1)

    return in_slices(of_slice, given)


def _members(given: KernelInput, vectors: Sequence[Thresholds] | ThresholdTable) -> Iterator[Array]:
    """Yield which classes are in each row's set (n, K), for one vector after the other."""
    has_rank_limit = any(each.rank_limit is not None for each in vectors)
    scores, ranks = score_matrix(given), rank_matrix(given) if has_rank_limit else None
    _, draw = row_numbers(given.rows, given.draws._replace(score_use=None))
    for each in vectors:
        yield is_member(scores, each, draw, ranks)


def p_values(
    given: KernelInput, group_scores: FloatArray, group_offsets: IntArray, group_of_class: IntArray
) -> FloatArray:
    """Compute (1 - draw + #{group scores >= s}) / (n + 1) for every class (n, K).

    The sorted scores of group g are ``group_scores[group_offsets[g]:group_offsets[g + 1]]``;
    group -1 has none.
    """

    def of_slice(some: KernelInput) -> FloatArray:
        _, draw = row_numbers(some.rows, some.draws._replace(score_use=None))
        groups = (group_scores, group_offsets, group_of_class)
        return p_values_of(score_matrix(some), *groups, own_share=1.0 - draw[:, None])

    return in_slices(of_slice, given)


# ---- orders ------------------------------------------------------------------------------------


def ascending(values: Array) -> IntArray:
    """Order numbers (N,) stably; -0.0 equals 0.0."""
    return np.argsort(values, kind="stable")


def by_group(
    groups: IntArray, n_groups: int, rows: IntArray | None = None
) -> tuple[IntArray, IntArray]:
    """Order rows, by default all, by group, -1 first, and within it as they came.

    Return the rows, and the groups' offsets: group g has those from ``offsets[g]`` to
    ``offsets[g + 1]``.
    """
    order = np.arange(len(groups)) if rows is None else rows
    numbers = groups[order] + 1  # -1 becomes 0
    offsets = np.cumsum(np.bincount(numbers, minlength=n_groups + 1))
    # The last 16 bits, then those before: NumPy sorts them by radix, in a fifth of the time for 64.
    for shift in range(0, int(n_groups).bit_length(), 16):
        step = np.argsort((numbers >> shift).astype(np.uint16), kind="stable")
        order, numbers = order[step], numbers[step]
    return order, offsets


def rank_within(groups: IntArray, n_groups: int) -> IntArray:
    """Count the earlier rows of each row's group (N,)."""
    order, ends = by_group(groups, n_groups)
    counts = np.diff(ends)
    rank = np.empty(len(groups), dtype=np.int64)
    rank[order] = np.arange(len(groups)) - np.repeat(ends[:-1], counts)
    return rank


def p_values_of(
    scores: FloatArray,
    group_scores: FloatArray,
    group_offsets: IntArray,
    group_of_class: IntArray,
    own_share: FloatArray,
) -> FloatArray:
    """Compute `p_values` from the scores (n, K).

    Each row adds `own_share` (n, 1), or (n, K), to its count.
    """
    result, own_share = np.empty_like(scores), np.broadcast_to(own_share, scores.shape)
    by_group = np.argsort(group_of_class, kind="stable")
    groups, starts = np.unique(group_of_class[by_group], return_index=True)
    for group, members in zip(groups, np.split(by_group, starts[1:]), strict=True):
        calibration = group_scores[group_offsets[group] : group_offsets[group + 1]]
        at_least = len(calibration) - np.searchsorted(calibration, scores[:, members], side="left")
        result[:, members] = (at_least + own_share[:, members]) / (len(calibration) + 1.0)
    return result
