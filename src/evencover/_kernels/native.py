"""C++ kernels: bit-identical to `reference`, with the same signatures.

They implement three formulas (`Formula`); other formulas run on the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

import numpy as np

import evencover._kernels._native as _native
from evencover._kernels import listed, reference
from evencover._kernels.types import (
    NO_DRAWS,
    BadRow,
    Coverage,
    Draws,
    Formula,
    Thresholds,
    ThresholdTable,
)
from evencover.arrays import Array, FloatArray, IntArray
from evencover.rounding import COARSE_TOLERANCE, SUM_TOLERANCE
from evencover.topk import TopK

NAME = "c++"
INSTRUCTION_SET: str = _native.instruction_sets()[0]

p_values_of = reference.p_values_of  # takes scores, not rows
top_classes = reference.top_classes


def random_bits(seed: int, use: int, ids: Array) -> Array:
    return _native.random_bits(INSTRUCTION_SET, seed, use, np.asarray(ids, np.uint64))


def sample_labels(
    labels: IntArray, start: int, is_sampled: Array, largest: int, stride: int
) -> tuple[int, IntArray, IntArray, Array]:
    return _native.sample_labels(INSTRUCTION_SET, labels, start, is_sampled, largest, stride)


def uniforms(seed: int, use: int, ids: Array) -> FloatArray:
    return reference.to_unit_interval(random_bits(seed, use, ids))


def row_keys(rows: Array, draws: Draws) -> Array:
    return _given(_MASS_AND_RANK, rows, draws).call("row_keys")


def row_numbers(rows: Array, draws: Draws) -> tuple[FloatArray, FloatArray]:
    return reference.row_numbers(rows, _with_keys(rows, draws))


def counts_within(ordered: FloatArray, classes: IntArray, values: FloatArray) -> IntArray:
    return _native.counts_within(INSTRUCTION_SET, ordered, classes, values)


def shortfalls(
    classes: IntArray, flags: Array, wanted: FloatArray, has: FloatArray
) -> tuple[IntArray, FloatArray]:
    return _native.shortfalls(INSTRUCTION_SET, classes, flags, wanted, has)


class _Given(NamedTuple):
    """Rows in the layout of C++, and how to score them."""

    formula: Formula
    rows: Array
    draws: Draws
    logits: bool

    def call(self, kernel: str, *more: Any) -> Any:
        """Call a kernel; where rounding explains the sums of rejected rows, divide by them first.

        Random numbers stay those of the rows as they came.
        """
        try:
            scorer = _scorer(self.formula, self.draws, self.logits)
            return getattr(scorer, kernel)(self.rows, self.draws.ids, self.draws.first, *more)
        except BadRow:
            if self.logits:
                raise
        draws = _with_keys(self.rows, self.draws)
        scorer = _scorer(self.formula, draws, False, tolerance=COARSE_TOLERANCE)
        rows = reference.checked_rows(self.rows)
        return getattr(scorer, kernel)(rows, draws.ids, draws.first, *more)


def _in_cpp(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the kernel of that name in `reference`, which remains the fallback."""
    fallback = getattr(reference, function.__name__)

    @wraps(fallback)
    def kernel(formula: Formula, rows: Array, draws: Draws, *arguments: Any, **options: Any) -> Any:
        if not formula.is_native:
            return fallback(formula, rows, _with_keys(rows, draws), *arguments, **options)
        given = _given(formula, rows, draws, options.pop("logits"))
        return function(given, *arguments, **options)

    return kernel


@_in_cpp
def true_label_scores(given: _Given, labels: IntArray) -> FloatArray:
    return given.call("true_label_scores", labels)


@_in_cpp
def score_matrix(given: _Given) -> FloatArray:
    return given.call("score_matrix")


@_in_cpp
def prediction_sets(
    given: _Given, thresholds: Thresholds, *, keep_top: bool
) -> tuple[IntArray, Array]:
    return given.call("prediction_sets", _native.Thresholds(*thresholds), keep_top)


@_in_cpp
def set_coverage(
    given: _Given,
    labels: IntArray,
    thresholds: Thresholds,
    *,
    keep_top: bool,
    appearances: IntArray | None = None,
) -> Coverage:
    call = partial(given.call, "set_coverage")
    return _coverage(call, labels, thresholds, keep_top, appearances)


def _coverage(
    call: Callable[..., Any],
    labels: IntArray,
    thresholds: Thresholds,
    keep_top: bool,
    appearances: IntArray | None,
) -> Coverage:
    counts = np.empty(len(thresholds.upper), dtype=np.int64)
    coverage = Coverage(*call(labels, _native.Thresholds(*thresholds), keep_top, counts))
    if appearances is not None:
        appearances += counts
    return coverage


@_in_cpp
def p_values(given: _Given, *groups: Array) -> FloatArray:
    return given.call("p_values", *groups)


@_in_cpp
def set_sizes(given: _Given, vectors: Sequence[Thresholds] | ThresholdTable) -> IntArray:
    # A table has no ranks: vectors with rank limits are counted one by one.
    own = list(vectors)
    plain = [place for place, each in enumerate(own) if each.rank_limit is None]
    if isinstance(vectors, ThresholdTable) and len(plain) == len(own):
        return given.call("set_sizes", _native.ThresholdTable(**vectors.arrays))
    sizes = np.empty((len(given.rows), len(own)), dtype=np.int64)
    tables = ThresholdTable.parts([own[place] for place in plain])
    if tables:
        parts = [given.call("set_sizes", _native.ThresholdTable(**each.arrays)) for each in tables]
        sizes[:, plain] = np.concatenate(parts, axis=1)
    for place in set(range(len(own))) - set(plain):
        starts, _ = given.call("prediction_sets", _native.Thresholds(*own[place]), False)
        sizes[:, place] = np.diff(starts)
    return sizes


def ready_sets(
    formula: Formula, draws: Draws, thresholds: Thresholds, *, keep_top: bool, **options: Any
) -> reference.ReadySets:
    if not formula.is_native:
        return reference.ready_sets(formula, draws, thresholds, keep_top=keep_top, **options)
    select = _scorer(formula, draws, **options).prediction_sets
    own = _native.Thresholds(*thresholds)

    def sets(rows: Array, ids: Array | None) -> tuple[IntArray, Array]:
        try:
            return select(_adjacent_columns(rows), ids, 0, own, keep_top)
        except BadRow:
            given = _given(formula, rows, draws._replace(ids=ids), **options)
            return given.call("prediction_sets", own, keep_top)

    return sets


# ---- rows of which only some classes are listed --------------------------------------------------


def _listed_in_cpp(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the kernel of that name in `listed`, which remains the fallback."""
    fallback = getattr(listed, function.__name__.removeprefix("listed_"))

    @wraps(fallback)
    def kernel(formula: Formula, rows: TopK, draws: Draws, *arguments: Any, **options: Any) -> Any:
        if not formula.is_native:
            return fallback(formula, rows, draws, *arguments, **options)
        scorer = _scorer(formula, draws, options.pop("logits"))
        arrays = _native.ListedRows(rows.starts, rows.classes, rows.values, rows.n_classes)

        def call(name: str, *more: Any) -> Any:
            return getattr(scorer, name)(arrays, draws.ids, draws.first, *more)

        return function(call, *arguments, **options)

    return kernel


@_listed_in_cpp
def listed_true_label_scores(call: Callable[..., Any], labels: IntArray) -> FloatArray:
    return call("listed_label_scores", labels)


@_listed_in_cpp
def listed_score_entries(call: Callable[..., Any]) -> tuple[FloatArray, IntArray]:
    return call("listed_scores")


@_listed_in_cpp
def listed_prediction_sets(
    call: Callable[..., Any], thresholds: Thresholds, *, keep_top: bool
) -> tuple[IntArray, Array]:
    return call("listed_sets", _native.Thresholds(*thresholds), keep_top)


@_listed_in_cpp
def listed_set_coverage(
    call: Callable[..., Any],
    labels: IntArray,
    thresholds: Thresholds,
    *,
    keep_top: bool,
    appearances: IntArray | None = None,
) -> Coverage:
    call = partial(call, "listed_coverage")
    return _coverage(call, labels, thresholds, keep_top, appearances)


def true_label_ranks(rows: Array, labels: IntArray, **options: Any) -> IntArray:
    given = _given(_MASS_AND_RANK, rows, NO_DRAWS, **options)
    return _ranks(given.call("true_label_scores", labels))


def rank_matrix(rows: Array, **options: Any) -> IntArray:
    return _ranks(_given(_MASS_AND_RANK, rows, NO_DRAWS, **options).call("score_matrix"))


# The mass up to the class, which is less than 2, plus twice its rank.
_MASS_AND_RANK = Formula(True, lambda at: at.before + at.u * at.p + 2.0 * at.rank, penalty=2.0)


def _ranks(masses_and_ranks: FloatArray) -> IntArray:
    return (masses_and_ranks // 2).astype(np.int64)


def _with_keys(rows: Array, draws: Draws) -> Draws:
    """Compute the row keys once, for use by the reference."""
    return draws._replace(ids=row_keys(rows, draws)) if draws.any else draws


def _given(formula: Formula, rows: Array, draws: Draws, logits: bool = False) -> _Given:
    return _Given(formula, _adjacent_columns(rows), draws, logits)


def _scorer(
    formula: Formula,
    draws: Draws,
    logits: bool,
    tolerance: float = SUM_TOLERANCE[8],
) -> Any:
    return _native.Scorer(
        INSTRUCTION_SET,
        *draws[:3],
        formula.needs_order,
        formula.penalty,
        int(min(formula.k_reg, 2**62)),
        formula.by_rank,
        logits,
        [SUM_TOLERANCE[2], SUM_TOLERANCE[4], tolerance],
    )


def _adjacent_columns(rows: Array) -> Array:
    """Return rows in the C++ layout: any row stride, contiguous columns."""
    width = rows.itemsize
    if rows.strides[1] == width and rows.strides[0] % width == 0 and rows.flags.aligned:
        return rows
    return np.require(rows, requirements=["C", "A"])
