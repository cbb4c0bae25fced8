"""C++ kernels: bit-identical to `reference`, with the same signatures.

They implement three formulas (`Formula`); other formulas run on the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import evencover._kernels._native as _native
from evencover._kernels import reference, topk
from evencover._kernels.types import (
    BadRow,
    Coverage,
    Draws,
    KernelInput,
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

ascending, rank_within = _native.ascending, _native.rank_within


def random_bits(seed: int, use: int, ids: Array) -> Array:
    return _native.random_bits(INSTRUCTION_SET, seed, use, np.asarray(ids, np.uint64))


def by_group(
    groups: IntArray, n_groups: int, rows: IntArray | None = None
) -> tuple[IntArray, IntArray]:
    return _native.by_group(groups, n_groups, rows)


def sample_labels(
    labels: IntArray, start: int, n_classes: int, largest: int, stride: int
) -> tuple[int, IntArray, Array]:
    return _native.sample_labels(INSTRUCTION_SET, labels, start, n_classes, largest, stride)


def uniforms(seed: int, use: int, ids: Array) -> FloatArray:
    return reference.to_unit_interval(random_bits(seed, use, ids))


def row_keys(rows: Rows, draws: Draws) -> Array:
    if isinstance(rows, TopK):
        return topk.row_keys(rows, draws)
    return _call(KernelInput(rows, draws=draws), "row_keys", native=_MASS_AND_RANK)


def row_numbers(rows: Rows, draws: Draws) -> tuple[FloatArray, FloatArray]:
    keyed = _keyed(KernelInput(rows, draws=draws)).draws
    return reference.row_numbers(rows, keyed)  # type: ignore[arg-type]


def _call(given: KernelInput, kernel: str, *more: Any, native: Native | None = None) -> Any:
    """Call a kernel; where rounding explains the sums of rejected rows, divide by them first.

    Random numbers stay those of the rows as they came.
    """
    native, rows = native or given.formula.native, given.rows
    if not isinstance(rows, TopK):
        rows = _adjacent_columns(rows)
    try:
        scorer = _scorer(native, given.draws, given.logits)
        return getattr(scorer, kernel)(*_laid_out(rows, given.draws), *more)
    except BadRow:
        if given.logits:
            raise
    draws = _keyed(given).draws
    divided = topk.divided(rows) if isinstance(rows, TopK) else reference.checked_rows(rows)
    scorer = _scorer(native, draws, given.logits, COARSE_TOLERANCE)
    return getattr(scorer, kernel)(*_laid_out(divided, draws), *more)


def _laid_out(rows: Rows, draws: Draws) -> tuple[Any, Array | None, int]:
    """Return rows, ids and the index of the first row as C++ takes them."""
    if isinstance(rows, TopK):
        rows = _native.TopKRows(rows.starts, rows.classes, rows.values, rows.n_classes)
    return rows, draws.ids, draws.first


def true_label_scores(given: KernelInput, labels: IntArray) -> FloatArray:
    if given.formula.native is None:
        return _in_numpy(given).true_label_scores(_keyed(given), labels)
    return _call(given, "true_label_scores", labels)


def score_entries(given: KernelInput) -> tuple[FloatArray, IntArray]:
    if given.formula.native is None:
        return topk.score_entries(given)
    return _call(given, "score_entries")


def score_matrix(given: KernelInput) -> FloatArray:
    if given.formula.native is None:
        return reference.score_matrix(_keyed(given))
    return _call(given, "score_matrix")


def prediction_sets(
    given: KernelInput, thresholds: Thresholds, *, keep_top: bool
) -> tuple[IntArray, Array]:
    if given.formula.native is None:
        return _in_numpy(given).prediction_sets(_keyed(given), thresholds, keep_top=keep_top)
    return _call(given, "prediction_sets", _native.Thresholds(*thresholds), keep_top)


def set_coverage(
    given: KernelInput, labels: IntArray, thresholds: Thresholds, *, keep_top: bool
) -> Coverage:
    if given.formula.native is None:
        return _in_numpy(given).set_coverage(_keyed(given), labels, thresholds, keep_top=keep_top)
    counts, own = np.empty(len(thresholds.upper), np.int64), _native.Thresholds(*thresholds)
    return Coverage._make([*_call(given, "set_coverage", labels, own, keep_top, counts), counts])


def p_values(given: KernelInput, *groups: Array) -> FloatArray:
    if given.formula.native is None:
        return reference.p_values(_keyed(given), *groups)
    return _call(given, "p_values", *groups)


def set_sizes(given: KernelInput, table: ThresholdTable) -> IntArray:
    if given.formula.native is None:
        return reference.set_sizes(_keyed(given), table)
    sizes = np.empty((len(given.rows), len(table)), dtype=np.int64)
    if table.plain:  # all columns, as nearly always, are a view
        columns = slice(None) if len(table.plain) == len(table) else table.plain
        draw = row_numbers(given.rows, given.draws._replace(score_use=None))[1]
        sizes[:, columns] = _call(given, "set_sizes", *table.arrays) + table.n_infinite(draw)
    for index, thresholds in enumerate(table):  # ranks are limited, so count one by one
        if thresholds.rank_limit is not None:
            starts, _ = _call(given, "prediction_sets", _native.Thresholds(*thresholds), False)
            sizes[:, index] = np.diff(starts)
    return sizes


def ready_sets(
    given: KernelInput, thresholds: Thresholds, second: Thresholds | None, *, keep_top: bool
) -> reference.ReadySets:
    if given.formula.native is None:
        return reference.ready_sets(given, thresholds, second, keep_top=keep_top)
    select = _scorer(given.formula.native, given.draws, given.logits).prediction_sets
    own = _native.Thresholds(*thresholds)
    more = keep_top, None if second is None else _native.Thresholds(*second)

    def sets(rows: Array, ids: Array | None) -> tuple[Array, ...]:
        try:
            return select(_adjacent_columns(rows), ids, 0, own, *more)
        except BadRow:
            now = given._replace(rows=rows, draws=given.draws._replace(ids=ids))
            return _call(now, "prediction_sets", own, *more)

    return sets


def true_label_ranks(given: KernelInput, labels: IntArray) -> IntArray:
    return _ranks(_call(given, "true_label_scores", labels, native=_MASS_AND_RANK))


def rank_matrix(given: KernelInput) -> IntArray:
    return _ranks(_call(given, "score_matrix", native=_MASS_AND_RANK))


# The mass up to the class, which is less than 2, plus twice its rank.
_MASS_AND_RANK = Native(penalty=2.0)


def _ranks(masses_and_ranks: FloatArray) -> IntArray:
    return (masses_and_ranks // 2).astype(np.int64)


def _in_numpy(given: KernelInput) -> Any:
    """Return the module for formulas that are not in C++."""
    return topk if isinstance(given.rows, TopK) else reference


def _keyed(given: KernelInput) -> KernelInput:
    """Compute the row keys once, for use by the reference."""
    rows, draws = given.rows, given.draws
    return given._replace(draws=draws._replace(ids=row_keys(rows, draws))) if draws.any else given


def _scorer(native: Any, draws: Draws, logits: bool, tolerance: float = SUM_TOLERANCE[8]) -> Any:
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
