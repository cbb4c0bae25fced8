"""What a method costs, in labels: those that its sets list, and those that they lack.

Every score orders the rows that a class may be listed for. So a class's threshold can be told by
the share t of rows whose set it lets the class into, and a row of the class by the share v at which
its set would hold the label: both are labels per row, comparable between scores. The best t is the
1 - alpha quantile of v, and the pinball loss aims at it:

    cost = AvgSize + 1/alpha * sum over classes of the mean over the class's rows of max(v - t, 0)

A label that is listed costs 1; a row that is missed costs what it would have taken to hold it. A
class in every set pays for that with every row, so sets that say nothing are dear, however evenly
they cover.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evencover import _kernels
from evencover._kernels import Draws
from evencover._threads import map_on_threads
from evencover._types import Array, FloatArray, IntArray
from evencover.comparison.splitting import random_rows
from evencover.comparison.trials import ScoredRows, Trial
from evencover.data.source import Block
from evencover.engine.blocks import map_source
from evencover.engine.merging import joined
from evencover.predictors.scoring import Scoring
from evencover.quantiles import Thresholds, exact_fraction
from evencover.randomness import Use, places

# Shares are counted on so many rows; and so many numbers are held at once.
MOST_ROWS, MOST_NUMBERS = 4096, 1 << 22


def costs(rows: ScoredRows, trials: Sequence[Trial], sizes: Sequence[float]) -> list[float]:
    """The cost of every trial on its test rows; `sizes` are the trials' mean set sizes."""
    sample, bases = _sample(rows), list(rows.scorings)
    found = map_on_threads(lambda base: Reach.of(rows.scorings[base], sample, rows, base), bases)
    reach = dict(zip(bases, found, strict=True))

    def cost(item: tuple[Trial, float]) -> float:
        trial, size = item
        missing = reach[trial.score.base].missing(trial.thresholds, rows, trial.is_test)
        return size + missing / float(exact_fraction(trial.predictor.alpha))

    return list(map_on_threads(cost, zip(trials, sizes, strict=True)))


class Sample(NamedTuple):
    """Some rows (M, K), and their keys (M,)."""

    rows: Array
    keys: Array


def _sample(rows: ScoredRows) -> Sample:
    n_rows, n_classes = len(rows.labels), rows.source.n_classes
    n = min(n_rows, MOST_ROWS, max(64, MOST_NUMBERS // n_classes))
    ids = places(0, n_rows) + np.uint64(1 << 56)  # a range of its own: no repetition has it
    chosen: Array = np.zeros(n_rows, dtype=bool)
    chosen[random_rows(0, ids, n)] = True
    parts = map_source(rows.source, None, Take(chosen), joined, rows.executor)
    return Sample(*joined(parts))


@dataclass(frozen=True, eq=False)
class Take:
    """Of a block, the chosen rows and their keys."""

    chosen: Array

    def __call__(self, block: Block, ids: Array | None) -> tuple[Array, Array]:
        """One pass over the rows."""
        own = self.chosen[block.start : block.start + len(block.rows)]
        keys = _kernels.row_keys(block.rows, Draws(ids=ids, first=block.start))
        return block.rows[own], keys[own]


@dataclass(frozen=True, eq=False)
class Reach:
    """How many of some rows' sets hold a class at a score.

    ``scores`` and ``ranks`` (M, K) are those of the rows, ``ordered`` (K, M) the scores of each
    class in their order; ``shares`` (N,) is, for every row of the data, the share of these rows
    whose set holds the row's label at the row's score.
    """

    scores: FloatArray
    ordered: FloatArray
    ranks: IntArray | None
    shares: FloatArray
    rank_shares: FloatArray | None

    @classmethod
    def of(cls, scoring: Scoring, sample: Sample, rows: ScoredRows, base: object) -> Reach:
        """Score the sample, and look all rows up."""
        score = scoring.score
        use = int(Use.SCORE) if score.is_random else None
        draws = Draws(int(scoring.random_state), use, None, sample.keys)
        scores = _kernels.score_matrix(score.kernel, sample.rows, draws, **scoring.options)
        true = next(found for each, found in rows.test_scores.items() if each.base == base)
        ordered = _ordered(scores)
        shares = _shares(ordered, rows.labels, true)
        if not len(rows.true_ranks):
            return cls(scores, ordered, None, shares, None)
        ranks = _kernels.rank_matrix(sample.rows, **scoring.options)
        rank_shares = _shares(_ordered(ranks), rows.labels, rows.true_ranks)
        return cls(scores, ordered, ranks, shares, rank_shares)

    def missing(self, limits: Thresholds, rows: ScoredRows, is_test: Array) -> float:
        """Sum over classes of the mean over their test rows of max(v - t, 0)."""
        held = _held(self.ordered, limits.upper)
        if limits.lower is not None and limits.upper_probability is not None:
            chance = limits.upper_probability
            held = chance * held + (1 - chance) * _held(self.ordered, limits.lower)
        wanted = self.shares
        if limits.rank_limit is not None:
            assert self.ranks is not None
            assert self.rank_shares is not None
            inside = (self.scores <= limits.upper) & (self.ranks <= limits.rank_limit)
            held, wanted = inside.mean(axis=0), np.maximum(wanted, self.rank_shares)
        labels = rows.labels[is_test]
        lacking = np.maximum(wanted[is_test] - held[labels], 0.0)
        counts = np.bincount(labels, minlength=len(held))
        sums = np.bincount(labels, weights=lacking, minlength=len(held))
        return float((sums[counts > 0] / counts[counts > 0]).sum())


def _ordered(values: Array) -> Array:
    """The values (M, K) of each class in their order (K, M)."""
    ordered = np.ascontiguousarray(values.T)
    ordered.sort(axis=1)
    return ordered


def _held(ordered: FloatArray, limits: FloatArray) -> FloatArray:
    """The share of rows whose score of each class is within the limit (K,).

    A search by halves, for all classes at once.
    """
    classes, n = np.arange(len(ordered)), ordered.shape[1]
    low, high = np.zeros(len(ordered), dtype=np.int64), np.full(len(ordered), n)
    while (low < high).any():
        middle = (low + high) // 2
        within = (low < high) & (ordered[classes, np.minimum(middle, n - 1)] <= limits)
        low, high = np.where(within, middle + 1, low), np.where(within, high, middle)
    return low / n


def _shares(ordered: Array, labels: IntArray, own: Array) -> FloatArray:
    """For each row, the share of its class's values (K, M) that are at most its own (N,)."""
    shares = np.empty(len(labels))
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(len(ordered) + 1))
    for y in np.unique(labels).tolist():
        members = order[starts[y] : starts[y + 1]]
        shares[members] = np.searchsorted(ordered[y], own[members], side="right") / len(ordered[y])
    return shares
