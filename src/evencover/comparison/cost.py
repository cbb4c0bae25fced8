"""What a method costs, in labels: those that its sets list, and those that they lack.

Every score orders the rows that a class may be listed for. So a class's threshold can be told by
the share t of rows whose set it lets the class into, and a row of the class by the share v at which
its set would hold the label: both are labels per row, comparable between scores. The best t is the
1 - alpha quantile of v, and the pinball loss aims at it:

    cost = AvgSize + 1/alpha * sum over classes of the mean over the class's rows of max(v - t, 0)

A label that is listed costs 1; a row that is missed costs what it would have taken to hold it. A
class in every set pays for that with every row, so sets of all K classes cost K, however evenly
they cover.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import numpy as np

from evencover import _kernels
from evencover._kernels import Draws
from evencover.arrays import Array, FloatArray, IntArray
from evencover.comparison.trials import ScoredRows, Trial, random_rows
from evencover.data.source import Block
from evencover.engine.blocks import joined, map_source
from evencover.predictors.rule import BoundScore
from evencover.quantiles import Thresholds, exact_fraction
from evencover.randomness import RandomStream, places
from evencover.threads import map_on_threads, n_threads

# Shares are counted on so many rows; and so many numbers are held at once.
MOST_ROWS, MOST_NUMBERS = 4096, 1 << 22


def costs(rows: ScoredRows, trials: Sequence[Trial], sizes: Sequence[float]) -> list[float]:
    """The cost of every trial on its test rows; `sizes` are the trials' mean set sizes."""
    sample, lacking = _sample(rows), np.empty(len(trials))
    for base in rows.scorings:
        own = [place for place, trial in enumerate(trials) if trial.score.base == base]
        reach = Reach.of(rows.scorings[base], sample, rows, base)
        lacking[own] = reach.missing([trials[place] for place in own], rows)
    alphas = [float(exact_fraction(trial.predictor.alpha)) for trial in trials]
    found = zip(sizes, lacking.tolist(), alphas, strict=True)
    return [size + missing / alpha for size, missing, alpha in found]


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

    ``ordered`` (K, M) are the rows' scores of each class in their order; ``shares`` (N,) is, for
    every row of the data, the share of these rows whose set holds the row's label at the row's
    score. Where ranks have limits, ``scores`` and ``ranks`` (M, K) are those of the rows.
    """

    ordered: FloatArray
    shares: FloatArray
    scores: FloatArray | None = None
    ranks: FloatArray | None = None
    rank_shares: FloatArray | None = None

    @classmethod
    def of(cls, scoring: BoundScore, sample: Sample, rows: ScoredRows, base: object) -> Reach:
        """Score the sample, and look all rows up."""
        score, options = scoring.score, scoring.options
        use = int(RandomStream.SCORE) if score.is_random else None
        draws = Draws(int(scoring.random_state), use, None, sample.keys)

        def scores_of(some: slice) -> FloatArray:
            own = draws.of_rows(some.start, some.stop)
            return _kernels.score_matrix(score.kernel, sample.rows[some], own, **options)

        def ranks_of(some: slice) -> FloatArray:
            return _kernels.rank_matrix(sample.rows[some], **options).astype(np.float64)

        true = next(found for each, found in rows.test_scores.items() if each.base == base)
        scores = _by_class(scores_of, *sample.rows.shape)
        if not len(rows.true_ranks):
            ordered = _ordered(scores)
            return cls(ordered, _shares(ordered, rows.labels, true))
        ordered, ranks = _ordered(scores.copy()), _by_class(ranks_of, *sample.rows.shape)
        shares = _shares(ordered, rows.labels, true)
        rank_shares = _shares(_ordered(ranks.copy()), rows.labels, rows.true_ranks)
        return cls(ordered, shares, scores.T, ranks.T, rank_shares)

    def missing(self, trials: Sequence[Trial], rows: ScoredRows) -> list[float]:
        """For each trial, the sum over classes of the mean over test rows of max(v - t, 0)."""
        limits = [trial.thresholds for trial in trials]
        upper = self._held([each.upper for each in limits])
        pairs = [place for place, each in enumerate(limits) if each.lower is not None]
        lower = self._held([limits[place].lower for place in pairs])
        for place, held in zip(pairs, lower, strict=True):
            chance = np.asarray(limits[place].upper_probability)
            upper[place] = chance * upper[place] + (1 - chance) * held
        every = zip(limits, upper, trials, strict=True)
        return [self._lacking(own, held, rows, trial.is_test) for own, held, trial in every]

    def _held(self, limits: Sequence[FloatArray | None]) -> FloatArray:
        """The share of rows whose score of each class is within each limit (limits, K)."""
        n_classes, n_rows = self.ordered.shape
        wanted = np.array(limits, dtype=np.float64).reshape(-1, n_classes).T
        # One class after the other: its scores are in the cache then.
        classes = np.repeat(np.arange(n_classes), wanted.shape[1])
        counts = _kernels.counts_within(self.ordered, classes, wanted.ravel())
        return np.ascontiguousarray(counts.reshape(wanted.shape).T) / n_rows

    def _lacking(
        self, limits: Thresholds, held: FloatArray, rows: ScoredRows, is_test: Array
    ) -> float:
        wanted = self.shares
        if limits.rank_limit is not None:
            assert self.scores is not None
            assert self.ranks is not None
            assert self.rank_shares is not None
            inside = (self.scores <= limits.upper) & (self.ranks <= limits.rank_limit)
            held, wanted = inside.mean(axis=0), np.maximum(wanted, self.rank_shares)
        counts, sums = _kernels.shortfalls(rows.labels, is_test, wanted, held)
        return float((sums[counts > 0] / counts[counts > 0]).sum())


def _by_class(values_of: Callable[[slice], FloatArray], n_rows: int, n_classes: int) -> FloatArray:
    """The values of all rows, some rows at a time on all cores, turned (K, M)."""
    turned = np.empty((n_classes, n_rows))

    def fill(some: slice) -> None:
        turned[:, some] = values_of(some).T

    deque(map_on_threads(fill, _slices(n_rows)), maxlen=0)
    return turned


def _ordered(values: FloatArray) -> FloatArray:
    """The values (K, M) themselves, each class's put in their order."""
    deque(map_on_threads(lambda some: values[some].sort(axis=1), _slices(len(values))), maxlen=0)
    return values


def _slices(n: int) -> list[slice]:
    """Equal parts, enough for all cores to end at about the same time."""
    step = max(1, ceil(n / (4 * n_threads())))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _shares(ordered: FloatArray, labels: IntArray, own: Array) -> FloatArray:
    """For each row, the share of its class's values (K, M) that are at most its own (N,)."""
    return _kernels.counts_within(ordered, labels, own) / ordered.shape[1]
