"""Kernels for rows of which only some classes are listed (`TopK`).

The NumPy functions are the definition; C++ replaces them where it has the formula. A listed class
has the score, rank and place that it has in the whole row, and no other class is in a set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from evencover._kernels import reference
from evencover._kernels.types import (
    BadRow,
    Coverage,
    Draws,
    Formula,
    Position,
    Thresholds,
    is_member,
)
from evencover.arrays import Array, FloatArray, IntArray
from evencover.rounding import SUM_TOLERANCE, rounded_off, warn_of_rounded_sums
from evencover.topk import TopK

__all__ = [
    "prediction_sets",
    "rank_matrix",
    "row_keys",
    "row_numbers",
    "score_entries",
    "score_matrix",
    "set_coverage",
    "set_sizes",
    "top_classes",
    "true_label_ranks",
    "true_label_scores",
]


class _Whole:
    """Listed rows as a matrix (n, k): the classes of each row, then padding with probability 0."""

    def __init__(self, rows: TopK) -> None:
        rows, self.order = rows.by_class()
        sizes = np.diff(rows.starts)
        self.entries = np.arange(max(1, sizes.max(initial=1)))[None, :] < sizes[:, None]
        self.p = np.zeros(self.entries.shape)
        self.p[self.entries] = rows.values
        self.classes = np.zeros(self.entries.shape, dtype=np.int64)
        self.classes[self.entries] = rows.classes
        in_range = (self.p >= 0) & (self.p <= 2)  # False for NaN
        is_twice = (np.diff(self.classes, axis=1) == 0) & self.entries[:, 1:]
        self.is_good = in_range.all(axis=1) & ~is_twice.any(axis=1) & (sizes > 0)
        whole = np.where(in_range, self.p, 0.0)
        self.total = reference.fixed_point(whole).sum(axis=1) / reference.FIXED_POINT
        self.is_within = self.total - 1 <= SUM_TOLERANCE[rows.dtype.itemsize]

    def stored(self, matrix: Array) -> Array:
        """Return the values of the matrix for the entries, in their order."""
        values = np.empty(len(self.order), dtype=matrix.dtype)
        values[self.order] = matrix[self.entries]
        return values


def divided(*arguments: Any) -> list[Any]:
    """Divide rows whose sum is above 1 by the rounding of their numbers by it; keep their draws.

    Raise `BadRow` if that does not explain a sum.
    """
    [rows] = [each for each in arguments if isinstance(each, TopK)]
    factors = []
    for start, part in _slices(rows):
        whole = _Whole(part)
        most = np.where(whole.is_within, np.inf, rounded_off(whole.p.astype(rows.dtype)))
        _require(whole.is_good & (whole.total - 1 <= most), start)
        factors.append(np.where(whole.is_within, 1.0, whole.total))
    warn_of_rounded_sums()
    values = rows.values / np.repeat(np.concatenate(factors), np.diff(rows.starts))
    keyed = partial(row_keys, rows)
    return [
        rows.with_values(values)
        if each is rows
        else each._replace(ids=keyed(each))
        if isinstance(each, Draws) and each.any
        else each
        for each in arguments
    ]


def _slices(rows: TopK) -> Iterator[tuple[int, TopK]]:
    """Split rows, so that their padded matrices stay small; yield the first row of each, too."""
    step = max(1, reference.SLICE_ELEMENTS // max(1, int(np.diff(rows.starts).max(initial=1))))
    for start in range(0, max(1, len(rows)), step):
        yield start, rows[start : start + step]


def _require(is_good: Array, start: int) -> None:
    if not is_good.all():
        raise BadRow(start + int((~is_good).argmax()))


def row_keys(rows: TopK, draws: Draws) -> Array:
    """Return the keys of the whole rows, with 0 for classes that are not listed."""
    if draws.ids is not None:
        return draws.ids
    rows, _ = rows.by_class()
    n_classes, values = rows.n_classes, rows.values
    near = values.astype(np.float32)
    shifts = np.arange(1, n_classes + 1, dtype=np.uint64) * np.uint64(reference._COLUMN_STEP)
    shifts = shifts.astype(np.uint32).astype(np.uint64)
    words = (near.view(np.uint32) + shifts[rows.classes].astype(np.uint32)).astype(np.uint64)
    first = rows.classes - rows.classes % 2
    is_last = first + 1 == n_classes  # of an odd number of columns
    second = np.minimum(first + 1, n_classes - 1)
    follows = np.zeros(len(values), dtype=bool)  # the neighbor is the entry before
    follows[1:] = (np.diff(rows.classes) == 1) & (rows.classes[1:] % 2 == 1)
    follows[1:] &= np.diff(rows.row_of_entry) == 0
    leads = np.append(follows[1:], False)
    neighbor = shifts[np.where(rows.classes == first, second, first)]
    neighbor[leads] = words[1:][follows[1:]]
    change = words * neighbor - shifts[first] * shifts[second]
    change[is_last] = (words - shifts[rows.classes])[is_last] * np.uint64(reference._COLUMN_STEP)
    change[follows] = 0
    if rows.dtype == np.float64:
        factors = 2 * rows.classes.astype(np.uint64) + np.uint64(1)
        change += (values - near).view(np.uint64) * (factors * np.uint64(reference._REST_STEP))
    zeros = reference.row_contents(np.zeros((1, n_classes), dtype=np.float32))[0]
    sums = np.concatenate([[np.uint64(0)], np.cumsum(change, dtype=np.uint64)])
    contents = zeros + sums[rows.starts[1:]] - sums[rows.starts[:-1]]
    places = np.arange(draws.first, draws.first + len(rows), dtype=np.uint64)
    return reference.mixed(reference.mixed(contents) + places)


def row_numbers(rows: TopK, draws: Draws) -> tuple[FloatArray, FloatArray]:
    """Return each row's uniform u and randomization draw; 1 and 0 if unused."""
    keyed = draws._replace(ids=row_keys(rows, draws)) if draws.any else draws
    return reference.row_numbers(rows, keyed)  # type: ignore[arg-type]


def score_entries(
    formula: Formula, rows: TopK, draws: Draws, *, logits: bool
) -> tuple[FloatArray, IntArray]:
    """Score and rank every listed class, in the order of the entries."""
    assert not logits, "listed rows are probabilities"
    u, parts = row_numbers(rows, draws)[0], []
    for start, part in _slices(rows):
        whole = _Whole(part)
        _require(whole.is_good & whole.is_within, start)
        before, ranks = reference.positions(whole.p)
        top = whole.p.max(axis=1, keepdims=True, initial=0.0)
        own_u = u[start : start + len(part), None]
        at = Position(whole.p, before, ranks, top, whole.classes, own_u)
        parts.append((whole.stored(formula.function(at)), whole.stored(ranks)))
    scores, all_ranks = map(np.concatenate, zip(*parts, strict=True))
    return scores, all_ranks


def score_matrix(formula: Formula, rows: TopK, draws: Draws, **options: Any) -> FloatArray:
    """Score every class in every row (n, K); +inf for a class that is not listed."""
    return _matrix(rows, score_entries(formula, rows, draws, **options)[0], np.inf)


def rank_matrix(rows: TopK, **options: Any) -> IntArray:
    """Rank every class in every row (n, K); the last rank for a class that is not listed."""
    return _matrix(rows, score_entries(_PLAIN, rows, Draws(), **options)[1], rows.n_classes)


def _matrix(rows: TopK, values: Array, missing: Any) -> Any:
    result = np.full(rows.shape, missing, dtype=values.dtype)
    result[rows.row_of_entry, rows.classes] = values
    return result


def true_label_scores(
    formula: Formula, rows: TopK, draws: Draws, labels: IntArray, **options: Any
) -> FloatArray:
    """Score the labels; +inf for a label that is not listed."""
    return rows.pick(score_entries(formula, rows, draws, **options)[0], labels, np.inf)


def true_label_ranks(rows: TopK, labels: IntArray, **options: Any) -> IntArray:
    """Rank the labels; the last rank for a label that is not listed."""
    _, ranks = score_entries(_PLAIN, rows, Draws(), **options)
    return rows.pick(ranks, labels, rows.n_classes)


_PLAIN = Formula(True, lambda at: at.p)


def _members(
    formula: Formula, rows: TopK, draws: Draws, vectors: Any, **options: Any
) -> list[Array]:
    """Return, for each vector of thresholds, which entries are in the sets."""
    scores, ranks = score_entries(formula, rows, draws, **options)
    draw = np.repeat(row_numbers(rows, draws._replace(score_use=None))[1], np.diff(rows.starts))
    return [is_member(scores, each.of_classes(rows.classes), draw, ranks) for each in vectors]


def top_classes(rows: TopK) -> IntArray:
    """Return the most probable class of each row (n,)."""
    return rows.argmax(axis=1)


def prediction_sets(
    formula: Formula,
    rows: TopK,
    draws: Draws,
    thresholds: Thresholds,
    *,
    keep_top: bool,
    **options: Any,
) -> tuple[IntArray, Array]:
    """Return set sizes, and the classes of all sets, the most probable first."""
    [inside] = _members(formula, rows, draws, [thresholds], **options)
    if keep_top:
        inside[rows.top_entries()] = True
    entries = np.flatnonzero(inside)
    row_of_member = rows.row_of_entry[entries]
    order = np.lexsort((rows.classes[entries], -rows.values[entries], row_of_member))
    return np.bincount(row_of_member, minlength=len(rows)), rows.classes[entries[order]]


def set_coverage(
    formula: Formula,
    rows: TopK,
    draws: Draws,
    labels: IntArray,
    thresholds: Thresholds,
    *,
    keep_top: bool,
    appearances: IntArray | None = None,
    **options: Any,
) -> Coverage:
    """Evaluate the sets of labeled rows; add to `appearances` (K,) how many contain each class."""
    [inside] = _members(formula, rows, draws, [thresholds], **options)
    top = rows.top_entries()
    if keep_top:
        inside[top] = True
    if appearances is not None:
        appearances += np.bincount(rows.classes[inside], minlength=rows.n_classes)
    sizes = np.bincount(rows.row_of_entry[inside], minlength=len(rows))
    covered = rows.pick(inside, labels, False)
    return Coverage(sizes, covered, top_classes(rows), (sizes == 1) & inside[top])


def set_sizes(
    formula: Formula, rows: TopK, draws: Draws, vectors: Sequence[Thresholds], **options: Any
) -> IntArray:
    """Count the sets' members under each vector of thresholds (n, T)."""
    members = _members(formula, rows, draws, vectors, **options)
    return np.stack(
        [np.bincount(rows.row_of_entry[inside], minlength=len(rows)) for inside in members], axis=1
    )
