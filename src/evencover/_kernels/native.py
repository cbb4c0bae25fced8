"""C++ kernels: bit-identical to `reference`, with the same signatures.

They implement three formulas (`Formula`); other formulas run on the reference.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import evencover._kernels._native as _native
from evencover._kernels import reference, topk
from evencover._kernels.types import (
    NO_DRAWS,
    BadRow,
    Coverage,
    Draws,
    Formula,
    Native,
    Thresholds,
    ThresholdTable,
)
from evencover.arrays import Array, FloatArray, IntArray
from evencover.rounding import COARSE_TOLERANCE, SUM_TOLERANCE
from evencover.topk import TopK

NAME = "c++"
Rows = Array | TopK
INSTRUCTION_SET: str = _native.instruction_sets()[0]

p_values_of = reference.p_values_of  # takes scores, not rows
top_classes = reference.top_classes


def random_bits(seed: int, use: int, ids: Array) -> Array:
    return _native.random_bits(INSTRUCTION_SET, seed, use, np.asarray(ids, np.uint64))


def ascending(values: Array) -> IntArray:
    return _native.ascending(values)


def by_group(
    groups: IntArray, n_groups: int, rows: IntArray | None = None
) -> tuple[IntArray, IntArray]:
    return _native.by_group(groups, n_groups, rows)


def rank_within(groups: IntArray, n_groups: int) -> IntArray:
    return _native.rank_within(groups, n_groups)


def sample_labels(
    labels: IntArray, start: int, n_classes: int, largest: int, stride: int
) -> tuple[int, IntArray, Array]:
    return _native.sample_labels(INSTRUCTION_SET, labels, start, n_classes, largest, stride)


def uniforms(seed: int, use: int, ids: Array) -> FloatArray:
    return reference.to_unit_interval(random_bits(seed, use, ids))


def row_keys(rows: Rows, draws: Draws) -> Array:
    if isinstance(rows, TopK):
        return topk.row_keys(rows, draws)
    return _given(_MASS_AND_RANK, rows, draws).call("row_keys")


def row_numbers(rows: Rows, draws: Draws) -> tuple[FloatArray, FloatArray]:
    return reference.row_numbers(rows, _with_keys(rows, draws))  # type: ignore[arg-type]


class _Given(NamedTuple):
    """Rows in the layout of C++, and how to score them."""

    native: Native
    rows: Rows
    draws: Draws
    logits: bool

    def call(self, kernel: str, *more: Any) -> Any:
        """Call a kernel; where rounding explains the sums of rejected rows, divide by them first.

        Random numbers stay those of the rows as they came.
        """
        try:
            return self._call(kernel, self.rows, self.draws, SUM_TOLERANCE[8], *more)
        except BadRow:
            if self.logits:
                raise
        if isinstance(self.rows, TopK):
            divided: Rows = topk.divided(self.rows)
        else:
            divided = reference.checked_rows(self.rows)
        draws = _with_keys(self.rows, self.draws)
        return self._call(kernel, divided, draws, COARSE_TOLERANCE, *more)

    def _call(self, kernel: str, rows: Rows, draws: Draws, tolerance: float, *more: Any) -> Any:
        scorer: Any = _scorer(self.native, draws, self.logits, tolerance)
        if isinstance(rows, TopK):
            rows = _native.TopKRows(rows.starts, rows.classes, rows.values, rows.n_classes)
        return getattr(scorer, kernel)(rows, draws.ids, draws.first, *more)


def true_label_scores(
    formula: Formula, rows: Rows, draws: Draws, labels: IntArray, *, logits: bool
) -> FloatArray:
    if formula.native is None:
        numpy, keyed = _in_numpy(rows, draws)
        return numpy.true_label_scores(formula, rows, keyed, labels, logits=logits)
    return _given(formula.native, rows, draws, logits).call("true_label_scores", labels)


def score_entries(
    formula: Formula, rows: TopK, draws: Draws, *, logits: bool
) -> tuple[FloatArray, IntArray]:
    if formula.native is None:
        return topk.score_entries(formula, rows, draws, logits=logits)
    return _given(formula.native, rows, draws, logits).call("score_entries")


def score_matrix(formula: Formula, rows: Array, draws: Draws, *, logits: bool) -> FloatArray:
    if formula.native is None:
        return reference.score_matrix(formula, rows, _with_keys(rows, draws), logits=logits)
    return _given(formula.native, rows, draws, logits).call("score_matrix")


def prediction_sets(
    formula: Formula,
    rows: Rows,
    draws: Draws,
    thresholds: Thresholds,
    *,
    keep_top: bool,
    logits: bool,
) -> tuple[IntArray, Array]:
    if formula.native is None:
        numpy, keyed = _in_numpy(rows, draws)
        options = {"keep_top": keep_top, "logits": logits}
        return numpy.prediction_sets(formula, rows, keyed, thresholds, **options)
    given = _given(formula.native, rows, draws, logits)
    return given.call("prediction_sets", _native.Thresholds(*thresholds), keep_top)


def set_coverage(
    formula: Formula,
    rows: Rows,
    draws: Draws,
    labels: IntArray,
    thresholds: Thresholds,
    *,
    keep_top: bool,
    logits: bool,
    appearances: IntArray | None = None,
) -> Coverage:
    if formula.native is None:
        numpy, keyed = _in_numpy(rows, draws)
        options = {"keep_top": keep_top, "logits": logits, "appearances": appearances}
        return numpy.set_coverage(formula, rows, keyed, labels, thresholds, **options)
    given = _given(formula.native, rows, draws, logits)
    counts = np.empty(len(thresholds.upper), dtype=np.int64)
    own = _native.Thresholds(*thresholds)
    coverage = Coverage(*given.call("set_coverage", labels, own, keep_top, counts))
    if appearances is not None:
        appearances += counts
    return coverage


def p_values(
    formula: Formula,
    rows: Array,
    draws: Draws,
    group_scores: FloatArray,
    group_offsets: IntArray,
    group_of_class: IntArray,
    *,
    logits: bool,
) -> FloatArray:
    groups = (group_scores, group_offsets, group_of_class)
    if formula.native is None:
        return reference.p_values(formula, rows, _with_keys(rows, draws), *groups, logits=logits)
    return _given(formula.native, rows, draws, logits).call("p_values", *groups)


def set_sizes(
    formula: Formula, rows: Array, draws: Draws, table: ThresholdTable, *, logits: bool
) -> IntArray:
    if formula.native is None:
        return reference.set_sizes(formula, rows, _with_keys(rows, draws), table, logits=logits)
    given = _given(formula.native, rows, draws, logits)
    sizes = np.empty((len(rows), len(table)), dtype=np.int64)
    if table.plain:
        sizes[:, table.plain] = given.call("set_sizes", *table.arrays)
        draw = row_numbers(rows, draws._replace(score_use=None))[1]
        sizes[:, table.plain] += table.n_infinite(draw)
    for index, thresholds in enumerate(table):  # ranks are limited, so count one by one
        if thresholds.rank_limit is not None:
            starts, _ = given.call("prediction_sets", _native.Thresholds(*thresholds), False)
            sizes[:, index] = np.diff(starts)
    return sizes


def ready_sets(
    formula: Formula, draws: Draws, thresholds: Thresholds, *, keep_top: bool, **options: Any
) -> reference.ReadySets:
    native = formula.native
    if native is None:
        return reference.ready_sets(formula, draws, thresholds, keep_top=keep_top, **options)
    select = _scorer(native, draws, **options).prediction_sets
    own = _native.Thresholds(*thresholds)

    def sets(rows: Array, ids: Array | None) -> tuple[IntArray, Array]:
        try:
            return select(_adjacent_columns(rows), ids, 0, own, keep_top)
        except BadRow:
            given = _given(native, rows, draws._replace(ids=ids), **options)
            return given.call("prediction_sets", own, keep_top)

    return sets


def true_label_ranks(rows: Array, labels: IntArray, **options: Any) -> IntArray:
    given = _given(_MASS_AND_RANK, rows, NO_DRAWS, **options)
    return _ranks(given.call("true_label_scores", labels))


def rank_matrix(rows: Array, **options: Any) -> IntArray:
    return _ranks(_given(_MASS_AND_RANK, rows, NO_DRAWS, **options).call("score_matrix"))


# The mass up to the class, which is less than 2, plus twice its rank.
_MASS_AND_RANK = Native(penalty=2.0)


def _ranks(masses_and_ranks: FloatArray) -> IntArray:
    return (masses_and_ranks // 2).astype(np.int64)


def _in_numpy(rows: Rows, draws: Draws) -> tuple[Any, Draws]:
    """Return the module for formulas that are not in C++, and draws with keys."""
    return topk if isinstance(rows, TopK) else reference, _with_keys(rows, draws)


def _with_keys(rows: Rows, draws: Draws) -> Draws:
    """Compute the row keys once, for use by the reference."""
    return draws._replace(ids=row_keys(rows, draws)) if draws.any else draws


def _given(native: Native, rows: Rows, draws: Draws, logits: bool = False) -> _Given:
    rows = rows if isinstance(rows, TopK) else _adjacent_columns(rows)
    return _Given(native, rows, draws, logits)


def _scorer(native: Native, draws: Draws, logits: bool, tolerance: float = SUM_TOLERANCE[8]) -> Any:
    return _native.Scorer(
        INSTRUCTION_SET,
        *draws[:3],
        native.needs_order,
        native.penalty,
        int(min(native.k_reg, 2**62)),
        native.by_rank,
        logits,
        [SUM_TOLERANCE[2], SUM_TOLERANCE[4], tolerance],
    )


def _adjacent_columns(rows: Array) -> Array:
    """Return rows in the C++ layout: any row stride, contiguous columns."""
    width = rows.itemsize
    if rows.strides[1] == width and rows.strides[0] % width == 0 and rows.flags.aligned:
        return rows
    return np.require(rows, requirements=["C", "A"])
