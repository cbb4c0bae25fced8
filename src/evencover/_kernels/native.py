"""The kernels in C++: same signatures and same bits as `reference`, which defines them.

Only the built-in scores are known here; any other score runs on the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import evencover._kernels._native as _native
from evencover._kernels import reference
from evencover._kernels.draws import NO_DRAWS, Draws
from evencover._kernels.limit_table import LimitTable
from evencover._validation import Array, FloatArray, IntArray, sum_tolerance

if TYPE_CHECKING:
    from evencover.quantiles import GroupedScores, Thresholds
    from evencover.scores import Score

NAME = "c++"
INSTRUCTION_SET: str = _native.instruction_sets()[0]


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
    _block(_rank_score(), rows, draws, logits=False, temperature=1.0).row_keys(keys)
    return keys


def row_numbers(rows: Array, draws: Draws) -> tuple[FloatArray, FloatArray]:
    """The uniform u of each row's score and the row's coin; 1 and 0 where there is no use."""
    return reference.row_numbers(rows, _with_keys(rows, draws))


def true_label_scores(
    score: Score, rows: Array, draws: Draws, labels: IntArray, *, logits: bool, temperature: float
) -> tuple[FloatArray, int]:
    """Score of each row's own label (n,), and the first bad row (-1: none)."""
    if not _is_built_in(score):
        draws = _with_keys(rows, draws)
        return reference.true_label_scores(
            score, rows, draws, labels, logits=logits, temperature=temperature
        )
    scores = np.empty(len(rows))
    block = _block(score, rows, draws, logits=logits, temperature=temperature)
    bad: int = block.true_label_scores(_integers(labels), scores)
    return (scores, -1) if bad < 0 else (np.empty(0), bad)


def score_matrix(
    score: Score, rows: Array, draws: Draws, *, logits: bool, temperature: float
) -> tuple[FloatArray, int]:
    """Score of every class in every row (n, K), and the first bad row (-1: none)."""
    if not _is_built_in(score):
        draws = _with_keys(rows, draws)
        return reference.score_matrix(score, rows, draws, logits=logits, temperature=temperature)
    scores = np.empty(rows.shape)
    block = _block(score, rows, draws, logits=logits, temperature=temperature)
    bad: int = block.score_matrix(scores)
    return (scores, -1) if bad < 0 else (np.empty((0, rows.shape[1])), bad)


def true_label_ranks(
    rows: Array, labels: IntArray, *, logits: bool, temperature: float
) -> tuple[IntArray, int]:
    """Rank of each row's own label (n,), from 1, and the first bad row (-1: none)."""
    scores, bad = true_label_scores(
        _rank_score(), rows, NO_DRAWS, labels, logits=logits, temperature=temperature
    )
    return _ranks(scores), bad


def rank_matrix(rows: Array, *, logits: bool, temperature: float) -> tuple[IntArray, int]:
    """Rank of every class in every row (n, K), and the first bad row (-1: none)."""
    scores, bad = score_matrix(
        _rank_score(), rows, NO_DRAWS, logits=logits, temperature=temperature
    )
    return _ranks(scores), bad


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
    if not _is_built_in(score) or thresholds.rank_limit is not None:
        return reference.prediction_sets(
            score,
            rows,
            _with_keys(rows, draws),
            thresholds,
            allow_empty=allow_empty,
            logits=logits,
            temperature=temperature,
        )
    sizes = np.empty(len(rows), dtype=np.int64)
    block = _block(score, rows, draws, logits=logits, temperature=temperature)
    classes, bad = block.prediction_sets(_limits(thresholds), allow_empty, sizes)
    if bad >= 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32), bad
    return sizes, classes, -1


def set_coverage(
    score: Score,
    rows: Array,
    draws: Draws,
    labels: IntArray,
    thresholds: Thresholds,
    *,
    allow_empty: bool,
    logits: bool,
    temperature: float,
) -> tuple[IntArray, Array, IntArray, int]:
    """What evaluation asks of the `prediction_sets`: see `reference.set_coverage`."""
    options: Any = {"allow_empty": allow_empty, "logits": logits, "temperature": temperature}
    if not _is_built_in(score) or thresholds.rank_limit is not None:
        draws = _with_keys(rows, draws)
        return reference.set_coverage(score, rows, draws, labels, thresholds, **options)
    n = len(rows)
    sizes, is_covered, top_classes = np.empty(n, np.int64), np.empty(n, bool), np.empty(n, np.int64)
    bad: int = _block(score, rows, draws, logits=logits, temperature=temperature).set_coverage(
        _integers(labels),
        _limits(thresholds),
        allow_empty,
        sizes,
        is_covered,
        top_classes,
    )
    n_good = n if bad < 0 else 0
    return sizes[:n_good], is_covered[:n_good], top_classes[:n_good], bad


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
    limited = [each.rank_limit is not None for each in thresholds]
    if not _is_built_in(score) or all(limited):
        draws = _with_keys(rows, draws)
        return reference.set_sizes(
            score, rows, draws, thresholds, logits=logits, temperature=temperature
        )
    if any(limited):
        return _mixed_set_sizes(
            score, rows, draws, list(thresholds), logits=logits, temperature=temperature
        )
    tables = [thresholds] if isinstance(thresholds, LimitTable) else LimitTable.parts(thresholds)
    block = _block(score, rows, draws, logits=logits, temperature=temperature)
    parts = []
    for table in tables:
        sizes = np.empty((len(rows), len(table)), dtype=np.int64)
        bad: int = block.set_sizes(_native.LimitTable(**table.arrays), sizes)
        if bad >= 0:
            return np.empty((0, len(thresholds)), dtype=np.int64), bad
        parts.append(sizes)
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), -1


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
    """(1 - coin + #{group scores >= s}) / (n + 1) of every class (n, K), and the first bad row."""
    if not _is_built_in(score):
        return reference.p_values(
            score,
            rows,
            _with_keys(rows, draws),
            groups,
            group_of_class,
            logits=logits,
            temperature=temperature,
        )
    result = np.empty(rows.shape)
    block = _block(score, rows, draws, logits=logits, temperature=temperature)
    bad: int = block.p_values(
        _floats(groups.scores),
        _integers(groups.offsets),
        _integers(group_of_class),
        result,
    )
    return (result, -1) if bad < 0 else (result[:0], bad)


def _mixed_set_sizes(
    score: Score,
    rows: Array,
    draws: Draws,
    thresholds: Sequence[Thresholds],
    **options: Any,
) -> tuple[IntArray, int]:
    """Those with a rank limit apart from the others."""
    sizes = np.empty((len(rows), len(thresholds)), dtype=np.int64)
    limited = np.array([each.rank_limit is not None for each in thresholds])
    for part in (np.flatnonzero(~limited), np.flatnonzero(limited)):
        counted, bad = set_sizes(
            score, rows, draws, [thresholds[place] for place in part.tolist()], **options
        )
        if bad >= 0:
            return sizes[:0], bad
        sizes[:, part] = counted
    return sizes, -1


def _rank_score() -> Score:
    """The mass up to the class, which is less than 2, plus twice its rank."""
    from evencover.scores import RAPS

    return RAPS(randomize=False, penalty=2.0, k_reg=0)


def _ranks(scores: FloatArray) -> IntArray:
    return (scores // 2).astype(np.int64)


def _with_keys(rows: Array, draws: Draws) -> Draws:
    """The same draws with the keys found: the reference need not look for them."""
    return draws._replace(ids=row_keys(rows, draws)) if draws.any else draws


def _is_built_in(score: Score) -> bool:
    """Exactly one of our classes: a subclass may have changed the formula."""
    from evencover.scores import APS, RAPS, Softmax

    return type(score) in (Softmax, APS, RAPS)


def _block(
    score: Score, rows: Array, draws: Draws, *, logits: bool, temperature: float
) -> _native.Block:
    ids = None if draws.ids is None else np.ascontiguousarray(draws.ids, dtype=np.uint64)
    return _native.Block(
        INSTRUCTION_SET,
        _adjacent_columns(rows),
        **draws._replace(ids=ids)._asdict(),
        needs_order=score.needs_order,
        penalty=float(getattr(score, "penalty", 0.0)),
        k_reg=int(min(getattr(score, "k_reg", 0), 2**62)),
        logits=logits,
        temperature=temperature,
        tolerance=sum_tolerance(rows),
    )


def _adjacent_columns(rows: Array) -> Array:
    """The rows as C++ reads them: any distance between rows, none between columns."""
    width = rows.itemsize
    if rows.strides[1] == width and rows.strides[0] % width == 0 and rows.flags.aligned:
        return rows
    return np.ascontiguousarray(rows)


def _limits(thresholds: Thresholds) -> tuple[Any, ...]:
    return tuple(None if part is None else _floats(part) for part in thresholds[:3])


def _floats(values: Array) -> FloatArray:
    return np.ascontiguousarray(values, dtype=np.float64)


def _integers(values: Array) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.int64)
