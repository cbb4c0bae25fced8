"""Kernels for top-k rows (`TopK`), which list some of the classes.

The NumPy functions are the definition; C++ replaces them where it has the formula. A listed class
has the score and rank that it has in the whole row, and no other class is in a set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evencover._kernels import reference
from evencover._kernels.types import (
    Coverage,
    Draws,
    KernelInput,
    Position,
    Thresholds,
    ThresholdTable,
    is_member,
)
from evencover.arrays import Array, FloatArray, IntArray
from evencover.rounding import SUM_TOLERANCE, judge_sums, rounded_off, warn_of_rounded_sums
from evencover.topk import TopK


class _Whole:
    """Listed rows as a matrix (n, k): the classes of each row, then padding with probability 0."""

    def __init__(self, rows: TopK) -> None:
        order = np.lexsort((rows.classes, rows.row_of_entry))
        self.rank_of_entry = np.argsort(order)
        sizes = np.diff(rows.starts)
        self.entries = np.arange(max(1, sizes.max(initial=1)))[None, :] < sizes[:, None]
        self.p = np.zeros(self.entries.shape)
        self.p[self.entries] = rows.values[order]
        self.classes = np.zeros(self.entries.shape, dtype=np.int64)
        self.classes[self.entries] = rows.classes[order]
        in_range = (self.p >= 0) & (self.p <= 2)  # False for NaN
        is_twice = (np.diff(self.classes, axis=1) == 0) & self.entries[:, 1:]
        self.is_good = in_range.all(axis=1) & ~is_twice.any(axis=1) & (sizes > 0)
        whole = np.where(in_range, self.p, 0.0)
        self.total = reference.fixed_point(whole).sum(axis=1) / reference.FIXED_POINT
        off, tolerance = self.total - 1, SUM_TOLERANCE[rows.dtype.itemsize]
        self.is_whole = sizes == rows.n_classes  # nothing is missing to 1
        self.is_within = (off <= tolerance) & ~(self.is_whole & (off < -tolerance))
        self.dtype = rows.dtype

    def stored(self, matrix: Array) -> Array:
        """Return the values of the matrix for the entries, in their order."""
        return matrix[self.entries][self.rank_of_entry]

    def divisors(self) -> FloatArray:
        """Return the sum of each row (n,) that is above 1 by the rounding of its numbers, else 1.

        Rows that list all classes are treated like dense ones: their sum may also be below 1.
        Raise `BadRow` if rounding does not explain a sum.
        """
        reference.reject_rows(~self.is_good)
        if self.is_within.all():
            return np.ones(len(self.p))
        most = np.where(self.is_within, np.inf, rounded_off(self.p.astype(self.dtype)))
        is_bad, is_divided = self.total - 1 > most, ~self.is_within
        whole = np.flatnonzero(self.is_whole)
        if len(whole):
            rows = self.p[whole].astype(self.dtype)
            explained, rounded = judge_sums(np.abs(self.total[whole] - 1), rows)
            is_bad[whole], is_divided[whole] = ~explained, False
            is_divided[whole[rounded]] = True
        reference.reject_rows(is_bad)
        if is_divided.any():
            warn_of_rounded_sums()
        return np.where(is_divided, self.total, 1.0)


def divided(rows: TopK) -> TopK:
    """Divide rows whose sum is above 1 by the rounding of their numbers by it."""
    divisors = reference.in_slices(lambda some: _Whole(some.rows).divisors(), KernelInput(rows))
    return rows.with_values(rows.values / np.repeat(divisors, np.diff(rows.starts)))


def row_keys(rows: TopK, draws: Draws) -> Array:
    """Return the keys of the whole rows, with 0 for classes that are not listed."""
    if draws.ids is not None:
        return draws.ids
    near = rows.values.astype(np.float32)
    steps = np.arange(1, rows.n_classes + 1, dtype=np.uint64) * np.uint64(reference._COLUMN_STEP)
    # The words of zeros in pairs; the last one of an odd number is multiplied by the first step.
    zeros = np.append(steps, steps[: rows.n_classes % 2]).astype(np.uint32).reshape(-1, 2)
    pairs = rows.row_of_entry * len(zeros) + rows.classes // 2
    pairs, first_entries, pair_of_entry = np.unique(pairs, return_index=True, return_inverse=True)
    words = zeros[pairs % len(zeros)]
    words[pair_of_entry, rows.classes % 2] += near.view(np.uint32)
    of_zeros = zeros.prod(axis=1, dtype=np.uint64)
    change = np.zeros(rows.size, dtype=np.uint64)
    change[first_entries] = words.prod(axis=1, dtype=np.uint64) - of_zeros[pairs % len(zeros)]
    if rows.dtype == np.float64:
        factors = 2 * rows.classes.astype(np.uint64) + np.uint64(1)
        change += (rows.values - near).view(np.uint64) * (factors * np.uint64(reference._REST_STEP))
    sums = np.append(np.uint64(0), np.cumsum(change, dtype=np.uint64))
    contents = of_zeros.sum() + sums[rows.starts[1:]] - sums[rows.starts[:-1]]
    indices = np.arange(draws.first, draws.first + len(rows), dtype=np.uint64)
    return reference.mixed(reference.mixed(contents) + indices)


def row_numbers(rows: TopK, draws: Draws) -> tuple[FloatArray, FloatArray]:
    """Return each row's uniform u and randomization draw; 1 and 0 if unused."""
    keyed = draws._replace(ids=row_keys(rows, draws)) if draws.any else draws
    return reference.row_numbers(rows, keyed)  # type: ignore[arg-type]


def score_entries(given: KernelInput) -> tuple[FloatArray, IntArray]:
    """Score and rank every listed class, in the order of the entries."""
    assert not given.logits, "top-k rows are probabilities"

    def of_slice(some: KernelInput) -> tuple[FloatArray, IntArray]:
        whole, (u, _) = _Whole(some.rows), row_numbers(some.rows, some.draws)
        p = whole.p / whole.divisors()[:, None]
        before, ranks = reference.positions(p)
        top = p.max(axis=1, keepdims=True, initial=0.0)
        at = Position(p, before, ranks, top, whole.classes, u[:, None])
        return whole.stored(some.formula.function(at)), whole.stored(ranks)

    return reference.in_slices(of_slice, given)


def score_matrix(given: KernelInput) -> FloatArray:
    """Score every class in every row (n, K); +inf for a class that is not listed."""
    return given.rows.with_values(score_entries(given)[0]).to_dense(np.inf)


def rank_matrix(given: KernelInput) -> IntArray:
    """Rank every class in every row (n, K); the last rank for a class that is not listed."""
    rows = given.rows
    return rows.with_values(score_entries(given)[1]).to_dense(rows.n_classes)


def true_label_scores(given: KernelInput, labels: IntArray) -> FloatArray:
    """Score the labels; +inf for a label that is not listed."""
    return given.rows.pick(score_entries(given)[0], labels, np.inf)


def true_label_ranks(given: KernelInput, labels: IntArray) -> IntArray:
    """Rank the labels; the last rank for a label that is not listed."""
    return given.rows.pick(score_entries(given)[1], labels, given.rows.n_classes)


def _members(given: KernelInput, vectors: Any, keep_top: bool = False) -> list[Array]:
    """Return, for each vector of thresholds, which entries are in the sets."""
    rows, (scores, ranks) = given.rows, score_entries(given)
    draw = row_numbers(rows, given.draws._replace(score_use=None))[1]
    draw = np.repeat(draw, np.diff(rows.starts))
    members = [is_member(scores, each.of_classes(rows.classes), draw, ranks) for each in vectors]
    for inside in members if keep_top else ():
        inside[rows.top_entries()] = True
    return members


def prediction_sets(
    given: KernelInput, thresholds: Thresholds, *, keep_top: bool
) -> tuple[IntArray, Array]:
    """Return the boundaries of the rows' classes, and these, the most probable first."""
    rows, [inside] = given.rows, _members(given, [thresholds], keep_top)
    entries = np.flatnonzero(inside)
    row_of_member = rows.row_of_entry[entries]
    order = np.lexsort((rows.classes[entries], -rows.values[entries], row_of_member))
    return np.searchsorted(row_of_member, np.arange(len(rows) + 1)), rows.classes[entries[order]]


def set_coverage(
    given: KernelInput, labels: IntArray, thresholds: Thresholds, *, keep_top: bool
) -> Coverage:
    """Evaluate the sets of labeled rows."""
    rows, [inside] = given.rows, _members(given, [thresholds], keep_top)
    sizes = np.bincount(rows.row_of_entry[inside], minlength=len(rows))
    is_alone = (sizes == 1) & inside[rows.top_entries()]
    appearances = np.bincount(rows.classes[inside], minlength=rows.n_classes)
    is_covered, top = rows.pick(inside, labels, False), rows.argmax(axis=1)
    return Coverage(sizes, is_covered, top, is_alone, appearances)


def set_sizes(given: KernelInput, table: ThresholdTable) -> IntArray:
    """Count the sets' members under each vector of thresholds (n, T)."""
    row_of_entry, n = given.rows.row_of_entry, len(given.rows)
    members = _members(given, table)
    return np.stack([np.bincount(row_of_entry[some], minlength=n) for some in members], axis=1)
