"""The kernels in NumPy: the definition that the C++ twin must match bit for bit.

They take plain arrays of rows and a score's `Formula`, and raise `BadRow` at a row that holds no
probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from evencover._kernels.draws import Draws
from evencover._kernels.formula import Formula, Position
from evencover._kernels.limit_table import LimitTable
from evencover._kernels.limits import Limits, is_member
from evencover._kernels.reference_cost import counts_within, shortfalls
from evencover._kernels.reference_numbers import random_bits, row_keys, row_numbers, uniforms
from evencover._kernels.reference_rows import label_position, positions, probabilities
from evencover._kernels.slices import in_slices
from evencover._validation import Array, FloatArray, IntArray

NAME = "numpy"


@in_slices
def true_label_scores(
    formula: Formula,
    rows: Array,
    draws: Draws,
    labels: IntArray,
    *,
    logits: bool,
    temperature: float,
) -> FloatArray:
    """Score of each row's own label (n,)."""
    p = probabilities(rows, logits=logits, temperature=temperature)
    own = p[np.arange(len(labels)), labels]
    before, rank = label_position(p, labels) if formula.needs_order else (own, labels)
    u, _ = row_numbers(rows, draws)
    return formula.function(Position(own, before, rank, p.max(axis=1), labels, u))


@in_slices
def true_label_ranks(
    rows: Array, labels: IntArray, *, logits: bool, temperature: float
) -> IntArray:
    """Rank of each row's own label (n,), from 1."""
    return label_position(probabilities(rows, logits=logits, temperature=temperature), labels)[1]


@in_slices
def score_matrix(
    formula: Formula, rows: Array, draws: Draws, *, logits: bool, temperature: float
) -> FloatArray:
    """Score of every class in every row (n, K)."""
    p = probabilities(rows, logits=logits, temperature=temperature)
    before, rank = positions(p) if formula.needs_order else (p, np.empty(0, dtype=np.int64))
    top, classes = p.max(axis=1, keepdims=True), np.arange(p.shape[1])
    u, _ = row_numbers(rows, draws)
    return formula.function(Position(p, before, rank, top, classes, u[:, None]))


@in_slices
def rank_matrix(rows: Array, *, logits: bool, temperature: float) -> IntArray:
    """Rank of every class in every row (n, K), from 1."""
    return positions(probabilities(rows, logits=logits, temperature=temperature))[1]


@in_slices
def prediction_sets(
    formula: Formula,
    rows: Array,
    draws: Draws,
    limits: Limits,
    *,
    allow_empty: bool,
    logits: bool,
    temperature: float,
) -> tuple[IntArray, Array]:
    """Set sizes (n,), and the classes of all sets one after the other (int32).

    Who is in a set is for `is_member` to say. Without `allow_empty` an empty set is given the
    row's most probable class, the first of equals.
    """
    [mask] = _members(formula, rows, draws, [limits], logits=logits, temperature=temperature)
    if not allow_empty:
        empty = np.flatnonzero(~mask.any(axis=1))
        mask[empty, rows[empty].argmax(axis=1)] = True
    return mask.sum(axis=1), np.nonzero(mask)[1].astype(np.int32)


# Rows (n, K) and their ids, or None -> where each row's classes begin (n + 1,), and the classes.
ReadySets = Callable[[Array, Array | None], tuple[IntArray, Array]]


def ready_sets(
    formula: Formula,
    draws: Draws,
    limits: Limits,
    *,
    allow_empty: bool,
    logits: bool,
    temperature: float,
) -> ReadySets:
    """What gives the `prediction_sets` of a few rows at a time; `draws` has no ids of its own."""
    options: Any = {"allow_empty": allow_empty, "logits": logits, "temperature": temperature}

    def sets(rows: Array, ids: Array | None) -> tuple[IntArray, Array]:
        own = draws if ids is None else draws._replace(ids=ids)
        sizes, classes = prediction_sets(formula, rows, own, limits, **options)
        return np.concatenate([[0], np.cumsum(sizes)]), classes

    return sets


@in_slices
def set_coverage(
    formula: Formula,
    rows: Array,
    draws: Draws,
    labels: IntArray,
    limits: Limits,
    *,
    allow_empty: bool,
    logits: bool,
    temperature: float,
) -> tuple[IntArray, Array, IntArray]:
    """What evaluation asks of the `prediction_sets`, all (n,).

    Their sizes, whether they hold the rows' labels, and each row's most probable class (the first
    of equals).
    """
    options: Any = {"allow_empty": allow_empty, "logits": logits, "temperature": temperature}
    sizes, classes = prediction_sets(formula, rows, draws, limits, **options)
    mask = np.zeros(rows.shape, dtype=bool)
    mask[np.repeat(np.arange(len(rows)), sizes), classes] = True
    return sizes, mask[np.arange(len(rows)), labels], rows.argmax(axis=1)


@in_slices
def set_sizes(
    formula: Formula,
    rows: Array,
    draws: Draws,
    vectors: Sequence[Limits] | LimitTable,
    *,
    logits: bool,
    temperature: float,
) -> IntArray:
    """Sizes (n, T) of the sets under each of T vectors of limits, from one pass over the rows."""
    sizes = np.empty((len(rows), len(vectors)), dtype=np.int64)
    masks = _members(formula, rows, draws, vectors, logits=logits, temperature=temperature)
    for place, mask in enumerate(masks):
        sizes[:, place] = mask.sum(axis=1)
    return sizes


def _members(
    formula: Formula,
    rows: Array,
    draws: Draws,
    vectors: Sequence[Limits] | LimitTable,
    **options: Any,
) -> Iterator[Array]:
    """Which classes are in each row's set (n, K), under one vector of limits after the other."""
    scores = score_matrix(formula, rows, draws, **options)
    has_rank_limit = any(each.rank_limit is not None for each in vectors)
    ranks = rank_matrix(rows, **options) if has_rank_limit else None
    _, coin = row_numbers(rows, draws._replace(score_use=None))
    for each in vectors:
        yield is_member(scores, each, coin, ranks)


@in_slices
def p_values(
    formula: Formula,
    rows: Array,
    draws: Draws,
    group_scores: FloatArray,
    group_offsets: IntArray,
    group_of_class: IntArray,
    *,
    logits: bool,
    temperature: float,
) -> FloatArray:
    """(1 - coin + #{group scores >= s}) / (n + 1) for every class (n, K).

    The sorted scores of group g are ``group_scores[group_offsets[g]:group_offsets[g + 1]]``;
    group -1 has none.
    """
    scores = score_matrix(formula, rows, draws, logits=logits, temperature=temperature)
    _, coin = row_numbers(rows, draws._replace(score_use=None))
    return p_values_of(scores, group_scores, group_offsets, group_of_class, 1.0 - coin)


def p_values_of(
    scores: FloatArray,
    group_scores: FloatArray,
    group_offsets: IntArray,
    group_of_class: IntArray,
    own_share: FloatArray,
) -> FloatArray:
    """`p_values` from the scores (n, K); each row counts as `own_share` (n,) of one more."""
    result = np.empty_like(scores)
    for group in np.unique(group_of_class):
        members = group_of_class == group
        calibration = group_scores[group_offsets[group] : group_offsets[group + 1]]
        at_least = len(calibration) - np.searchsorted(calibration, scores[:, members], side="left")
        result[:, members] = (at_least + own_share[:, None]) / (len(calibration) + 1.0)
    return result


__all__ = [
    "NAME",
    "counts_within",
    "p_values",
    "p_values_of",
    "prediction_sets",
    "random_bits",
    "rank_matrix",
    "ready_sets",
    "row_keys",
    "row_numbers",
    "score_matrix",
    "set_coverage",
    "set_sizes",
    "shortfalls",
    "true_label_ranks",
    "true_label_scores",
    "uniforms",
]
