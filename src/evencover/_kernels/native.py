"""The kernels in C++: same signatures and same bits as `reference`, which defines them.

Three formulas are known here (`Formula`); all else runs on the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import evencover._kernels._native as _native
from evencover._kernels import reference
from evencover._kernels.types import NO_DRAWS, BadRow, Draws, Formula, Limits, LimitTable, Position
from evencover.arrays import Array, FloatArray, IntArray
from evencover.validation import SUM_TOLERANCE

NAME = "c++"
INSTRUCTION_SET: str = _native.instruction_sets()[0]

p_values_of = reference.p_values_of  # it reads scores, not rows, and has no twin


def random_bits(seed: int, use: int, ids: Array) -> Array:
    """64 random bits per row: Philox4x32-10 of the counter (id, use) under the key `seed`."""
    ids = np.ascontiguousarray(ids, dtype=np.uint64)
    bits = np.empty(len(ids), dtype=np.uint64)
    _native.random_bits(INSTRUCTION_SET, seed, use, ids, bits)
    return bits


def uniforms(seed: int, use: int, ids: Array) -> FloatArray:
    """One uniform in [0, 1) per row, with 53 random bits."""
    ids = np.ascontiguousarray(ids, dtype=np.uint64)
    values = np.empty(len(ids))
    _native.uniforms(INSTRUCTION_SET, seed, use, ids, values)
    return values


def row_keys(rows: Array, draws: Draws) -> Array:
    """What the random numbers of each row are drawn for: its id, or its content and place."""
    keys = np.empty(len(rows), dtype=np.uint64)
    _block(_MASS_AND_RANK, rows, draws, logits=False, temperature=1.0).row_keys(keys)
    return keys


def row_numbers(rows: Array, draws: Draws) -> tuple[FloatArray, FloatArray]:
    """The uniform u of each row's score and the row's coin; 1 and 0 where there is no use."""
    return reference.row_numbers(rows, _with_keys(rows, draws))


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
    options: Any = {"logits": logits, "temperature": temperature}
    if not formula.is_native:
        draws = _with_keys(rows, draws)
        return reference.true_label_scores(formula, rows, draws, labels, **options)
    scores = np.empty(len(rows))
    block = _block(formula, rows, draws, **options)
    _refuse(block.true_label_scores(_integers(labels), scores))
    return scores


def score_matrix(
    formula: Formula, rows: Array, draws: Draws, *, logits: bool, temperature: float
) -> FloatArray:
    """Score of every class in every row (n, K)."""
    options: Any = {"logits": logits, "temperature": temperature}
    if not formula.is_native:
        return reference.score_matrix(formula, rows, _with_keys(rows, draws), **options)
    scores = np.empty(rows.shape)
    _refuse(_block(formula, rows, draws, **options).score_matrix(scores))
    return scores


def true_label_ranks(
    rows: Array, labels: IntArray, *, logits: bool, temperature: float
) -> IntArray:
    """Rank of each row's own label (n,), from 1."""
    options: Any = {"logits": logits, "temperature": temperature}
    return _ranks(true_label_scores(_MASS_AND_RANK, rows, NO_DRAWS, labels, **options))


def rank_matrix(rows: Array, *, logits: bool, temperature: float) -> IntArray:
    """Rank of every class in every row (n, K), from 1."""
    options: Any = {"logits": logits, "temperature": temperature}
    return _ranks(score_matrix(_MASS_AND_RANK, rows, NO_DRAWS, **options))


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
    options: Any = {"logits": logits, "temperature": temperature}
    if not formula.is_native:
        draws = _with_keys(rows, draws)
        return reference.prediction_sets(
            formula, rows, draws, limits, allow_empty=allow_empty, **options
        )
    sizes = np.empty(len(rows), dtype=np.int64)
    block = _block(formula, rows, draws, **options)
    classes, bad = block.prediction_sets(_arrays(limits), allow_empty, sizes)
    _refuse(bad)
    return sizes, classes


def ready_sets(
    formula: Formula,
    draws: Draws,
    limits: Limits,
    *,
    allow_empty: bool,
    logits: bool,
    temperature: float,
) -> reference.ReadySets:
    """What gives the `prediction_sets` of a few rows at a time: see `reference.ready_sets`."""
    options: Any = {"allow_empty": allow_empty, "logits": logits, "temperature": temperature}
    if not formula.is_native:
        return reference.ready_sets(formula, draws, limits, **options)
    ready = _native.ReadySets(
        INSTRUCTION_SET,
        _arrays(limits),
        *draws[:3],
        *_formula(formula),
        logits,
        temperature,
        allow_empty,
        tuple(SUM_TOLERANCE[size] for size in (2, 4, 8)),
    ).sets

    def sets(rows: Array, ids: Array | None) -> tuple[IntArray, Array]:
        places, classes, bad = ready(_adjacent_columns(rows), ids)
        _refuse(bad)
        return places, classes

    return sets


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
    """What evaluation asks of the `prediction_sets`: see `reference.set_coverage`."""
    options: Any = {"logits": logits, "temperature": temperature}
    if not formula.is_native:
        draws = _with_keys(rows, draws)
        return reference.set_coverage(
            formula, rows, draws, labels, limits, allow_empty=allow_empty, **options
        )
    n = len(rows)
    sizes, is_covered, top_classes = np.empty(n, np.int64), np.empty(n, bool), np.empty(n, np.int64)
    block = _block(formula, rows, draws, **options)
    _refuse(
        block.set_coverage(
            _integers(labels), _arrays(limits), allow_empty, sizes, is_covered, top_classes
        )
    )
    return sizes, is_covered, top_classes


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
    options: Any = {"logits": logits, "temperature": temperature}
    if not formula.is_native:
        return reference.set_sizes(formula, rows, _with_keys(rows, draws), vectors, **options)
    block = _block(formula, rows, draws, **options)
    # A table has no ranks: vectors with limits on them are counted one by one.
    own = list(vectors)
    plain = [place for place, each in enumerate(own) if each.rank_limit is None]
    if isinstance(vectors, LimitTable) and len(plain) == len(own):
        tables = [vectors]
    else:
        tables = LimitTable.parts([own[place] for place in plain])
    parts = []
    for table in tables:
        parts.append(np.empty((len(rows), len(table)), dtype=np.int64))
        _refuse(block.set_sizes(_native.LimitTable(**table.arrays), parts[-1]))
    if len(plain) == len(own):
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    sizes = np.empty((len(own), len(rows)), dtype=np.int64)
    if parts:
        sizes[plain] = np.concatenate(parts, axis=1).T
    for place in set(range(len(own))) - set(plain):
        _refuse(block.prediction_sets(_arrays(own[place]), True, sizes[place])[1])
    return np.ascontiguousarray(sizes.T)


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
    options: Any = {"logits": logits, "temperature": temperature}
    if not formula.is_native:
        draws = _with_keys(rows, draws)
        return reference.p_values(
            formula, rows, draws, group_scores, group_offsets, group_of_class, **options
        )
    result = np.empty(rows.shape)
    block = _block(formula, rows, draws, **options)
    groups = (_floats(group_scores), _integers(group_offsets), _integers(group_of_class))
    _refuse(block.p_values(*groups, result))
    return result


def _mass_and_rank(at: Position) -> Any:
    """The mass up to the class, which is less than 2, plus twice its rank."""
    return (at.before + at.u * at.p) + 2.0 * at.rank


_MASS_AND_RANK = Formula(needs_order=True, function=_mass_and_rank, penalty=2.0, k_reg=0)


def _ranks(masses_and_ranks: FloatArray) -> IntArray:
    return (masses_and_ranks // 2).astype(np.int64)


def _refuse(bad: int) -> None:
    """C++ answers with the first bad row, or -1."""
    if bad >= 0:
        raise BadRow(bad)


def _with_keys(rows: Array, draws: Draws) -> Draws:
    """The same draws with the keys found: the reference need not look for them."""
    return draws._replace(ids=row_keys(rows, draws)) if draws.any else draws


def _block(
    formula: Formula, rows: Array, draws: Draws, *, logits: bool, temperature: float
) -> _native.Block:
    ids = None if draws.ids is None else np.ascontiguousarray(draws.ids, dtype=np.uint64)
    return _native.Block(
        INSTRUCTION_SET,
        _adjacent_columns(rows),
        **draws._replace(ids=ids)._asdict(),
        **dict(zip(("needs_order", "penalty", "k_reg", "by_rank"), _formula(formula), strict=True)),
        logits=logits,
        temperature=temperature,
        tolerance=SUM_TOLERANCE[rows.dtype.itemsize],
    )


def _formula(formula: Formula) -> tuple[bool, float, int, bool]:
    assert formula.penalty is not None
    k_reg = int(min(formula.k_reg, 2**62))
    return formula.needs_order, float(formula.penalty), k_reg, formula.by_rank


def _adjacent_columns(rows: Array) -> Array:
    """The rows as C++ reads them: any distance between rows, none between columns."""
    width = rows.itemsize
    if rows.strides[1] == width and rows.strides[0] % width == 0 and rows.flags.aligned:
        return rows
    return np.require(rows, requirements=["C", "A"])


def _arrays(limits: Limits) -> tuple[Any, ...]:
    *floats, ranks = limits
    known = [None if part is None else _floats(part) for part in floats]
    return (*known, None if ranks is None else _integers(ranks))


def _floats(values: Array) -> FloatArray:
    return np.ascontiguousarray(values, dtype=np.float64)


def _integers(values: Array) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.int64)


def counts_within(ordered: FloatArray, classes: IntArray, values: FloatArray) -> IntArray:
    """Values of a class up to others: see `reference_cost.counts_within`."""
    counts = np.empty(len(values), dtype=np.int64)
    own = (np.ascontiguousarray(classes, dtype=np.int64), _floats(values))
    _native.counts_within(INSTRUCTION_SET, _floats(ordered), *own, counts)
    return counts


def shortfalls(
    classes: IntArray, flags: Array, wanted: FloatArray, has: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Rows, and what they lack, by class: see `reference_cost.shortfalls`."""
    counts, sums = np.empty(len(has), dtype=np.int64), np.empty(len(has))
    own = (np.ascontiguousarray(classes, dtype=np.int64), np.ascontiguousarray(flags, dtype=bool))
    _native.shortfalls(INSTRUCTION_SET, *own, _floats(wanted), _floats(has), counts, sums)
    return counts, sums
