"""Kernels for rows of which only some classes are listed (`TopK`).

The NumPy functions are the definition; C++ replaces them where it has the formula. A listed class
has the score, rank and place that it has in the whole row, and no other class is in a set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evencover._kernels import reference
from evencover._kernels.types import Coverage, Draws, Formula, Position, Thresholds, is_member
from evencover.arrays import Array, FloatArray, IntArray
from evencover.rounding import SUM_TOLERANCE, rounded_off, warn_of_rounded_sums
from evencover.topk import TopK


class _Whole:
    """Listed rows as a matrix (n, k): the classes of each row, then padding with probability 0."""

    def __init__(self, rows: TopK) -> None:
        order = np.lexsort((rows.classes, rows.row_of_entry))
        self.places = np.argsort(order)  # of the entries
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
        self.is_within = self.total - 1 <= SUM_TOLERANCE[rows.dtype.itemsize]

    def stored(self, matrix: Array) -> Array:
        """Return the values of the matrix for the entries, in their order."""
        return matrix[self.entries][self.places]


def divided(*arguments: Any) -> list[Any]:
    """Divide rows whose sum is above 1 by the rounding of their numbers by it; keep their draws.

    Raise `BadRow` if that does not explain a sum.
    """
    [rows] = [each for each in arguments if isinstance(each, TopK)]
    values = rows.values / np.repeat(_divisors(rows), np.diff(rows.starts))
    warn_of_rounded_sums()
    keyed = [
        each._replace(ids=row_keys(rows, each)) if isinstance(each, Draws) and each.any else each
        for each in arguments
    ]
    return [rows.with_values(values) if each is rows else each for each in keyed]


@reference.in_slices
def _divisors(rows: TopK) -> FloatArray:
    """Return the sum of each row that is above 1 by rounding, and 1 for other rows."""
    whole = _Whole(rows)
    most = np.where(whole.is_within, np.inf, rounded_off(whole.p.astype(rows.dtype)))
    reference.reject_rows(~(whole.is_good & (whole.total - 1 <= most)))
    return np.where(whole.is_within, 1.0, whole.total)


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
    places = np.arange(draws.first, draws.first + len(rows), dtype=np.uint64)
    return reference.mixed(reference.mixed(contents) + places)


def row_numbers(rows: TopK, draws: Draws) -> tuple[FloatArray, FloatArray]:
    """Return each row's uniform u and randomization draw; 1 and 0 if unused."""
    keyed = draws._replace(ids=row_keys(rows, draws)) if draws.any else draws
    return reference.row_numbers(rows, keyed)  # type: ignore[arg-type]


@reference.in_slices
def score_entries(
    formula: Formula, rows: TopK, draws: Draws, *, logits: bool
) -> tuple[FloatArray, IntArray]:
    """Score and rank every listed class, in the order of the entries."""
    assert not logits, "listed rows are probabilities"
    whole, (u, _) = _Whole(rows), row_numbers(rows, draws)
    reference.reject_rows(~(whole.is_good & whole.is_within))
    before, ranks = reference.positions(whole.p)
    top = whole.p.max(axis=1, keepdims=True, initial=0.0)
    at = Position(whole.p, before, ranks, top, whole.classes, u[:, None])
    return whole.stored(formula.function(at)), whole.stored(ranks)


def score_matrix(formula: Formula, rows: TopK, draws: Draws, **options: Any) -> FloatArray:
    """Score every class in every row (n, K); +inf for a class that is not listed."""
    return rows.with_values(score_entries(formula, rows, draws, **options)[0]).to_dense(np.inf)


def rank_matrix(rows: TopK, **options: Any) -> IntArray:
    """Rank every class in every row (n, K); the last rank for a class that is not listed."""
    _, ranks = score_entries(_PLAIN, rows, Draws(), **options)
    return rows.with_values(ranks).to_dense(rows.n_classes)


def true_label_scores(
    formula: Formula, rows: TopK, draws: Draws, labels: IntArray, **options: Any
) -> FloatArray:
    """Score the labels; +inf for a label that is not listed."""
    return rows.pick(score_entries(formula, rows, draws, **options)[0], labels, np.inf)


def true_label_ranks(rows: TopK, labels: IntArray, **options: Any) -> IntArray:
    """Rank the labels; the last rank for a label that is not listed."""
    return rows.pick(score_entries(_PLAIN, rows, Draws(), **options)[1], labels, rows.n_classes)


_PLAIN = Formula(True, lambda at: at.p)


def _members(
    formula: Formula, rows: TopK, draws: Draws, vectors: Any, keep_top: bool = False, **options: Any
) -> list[Array]:
    """Return, for each vector of thresholds, which entries are in the sets."""
    scores, ranks = score_entries(formula, rows, draws, **options)
    draw = np.repeat(row_numbers(rows, draws._replace(score_use=None))[1], np.diff(rows.starts))
    members = [is_member(scores, each.of_classes(rows.classes), draw, ranks) for each in vectors]
    for inside in members if keep_top else ():
        inside[rows.top_entries()] = True
    return members


def prediction_sets(
    formula: Formula, rows: TopK, draws: Draws, thresholds: Thresholds, **options: Any
) -> tuple[IntArray, Array]:
    """Return the boundaries of the rows' classes, and these, the most probable first."""
    [inside] = _members(formula, rows, draws, [thresholds], **options)
    entries = np.flatnonzero(inside)
    row_of_member = rows.row_of_entry[entries]
    order = np.lexsort((rows.classes[entries], -rows.values[entries], row_of_member))
    return np.searchsorted(row_of_member, np.arange(len(rows) + 1)), rows.classes[entries[order]]


def set_coverage(
    formula: Formula,
    rows: TopK,
    draws: Draws,
    labels: IntArray,
    thresholds: Thresholds,
    appearances: IntArray | None = None,
    **options: Any,
) -> Coverage:
    """Evaluate the sets of labeled rows; add to `appearances` (K,) how many contain each class."""
    [inside] = _members(formula, rows, draws, [thresholds], **options)
    if appearances is not None:
        appearances += np.bincount(rows.classes[inside], minlength=rows.n_classes)
    sizes = np.bincount(rows.row_of_entry[inside], minlength=len(rows))
    is_accepted = (sizes == 1) & inside[rows.top_entries()]
    return Coverage(sizes, rows.pick(inside, labels, False), rows.argmax(axis=1), is_accepted)


def set_sizes(
    formula: Formula, rows: TopK, draws: Draws, vectors: Sequence[Thresholds], **options: Any
) -> IntArray:
    """Count the sets' members under each vector of thresholds (n, T)."""
    members = _members(formula, rows, draws, vectors, **options)
    return np.stack(
        [np.bincount(rows.row_of_entry[inside], minlength=len(rows)) for inside in members], axis=1
    )
