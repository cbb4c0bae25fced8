"""The cost of a method, in labels: those in its sets, and those needed to contain missed labels.

A class's threshold is expressed by t, the fraction of rows whose set includes the class, and a row
of the class by v, the fraction at which its set would contain the label. Both are labels per row,
comparable between scores. The best t is the 1 - alpha quantile of v, the target of pinball loss:

    cost = AvgSize + sum over classes of 1/alpha_y * the mean over the class's rows of max(v - t, 0)

A label in a set costs 1; a missed row costs what it would have taken to contain its label. Sets of
all K classes cost K.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil

import numpy as np

from evencover import _kernels
from evencover._kernels import Draws
from evencover.arrays import Array, FloatArray, IntArray
from evencover.comparison.trials import ScoredRows, Trial, random_rows
from evencover.data.source import Block
from evencover.engine.blocks import joined, map_source
from evencover.predictors.rule import BoundScore
from evencover.randomness import RandomStream, places
from evencover.threads import map_on_threads, n_threads

# Shares are estimated on at most this many rows, and this many numbers are held at once.
MOST_ROWS, MOST_NUMBERS = 4096, 1 << 22


def costs(rows: ScoredRows, trials: Sequence[Trial], sizes: Sequence[float]) -> list[float]:
    """Compute the cost of every trial on its test rows; `sizes` are the trials' mean set sizes."""
    n_rows, n_classes = len(rows.labels), rows.source.n_classes
    n = min(n_rows, MOST_ROWS, max(64, MOST_NUMBERS // n_classes))
    ids = places(0, n_rows) + np.uint64(1 << 56)  # a range of its own: no repetition has it
    chosen: Array = np.zeros(n_rows, dtype=bool)
    chosen[random_rows(0, ids, n)] = True
    sample, keys = joined(
        map_source(rows.source, None, partial(sample_rows, chosen), joined, rows.executor)
    )
    missing = np.empty(len(trials))
    for base, scoring in rows.scorings.items():
        own = [number for number, trial in enumerate(trials) if trial.score.base == base]
        if own:
            true = rows.test_scores[trials[own[0]].score]
            shares = ListingShares(scoring, sample, keys, rows, true)
            missing[own] = shares.missing([trials[number] for number in own])
    return (np.array(sizes) + missing).tolist()


def sample_rows(chosen: Array, block: Block, ids: Array | None) -> tuple[Array, Array]:
    """Take the chosen rows (m, K) of a block, and their keys (m,)."""
    own = chosen[block.start : block.start + len(block.rows)]
    keys = _kernels.row_keys(block.rows, Draws(ids=ids, first=block.start))
    return block.rows[own], keys[own]


class ListingShares:
    """The share of sampled rows (M, K) whose set contains a class, for one score.

    ``ordered`` (K, M) are the sample's scores of each class, sorted; ``shares`` (N,) is, for every
    row of the data, the share of the sample whose set contains the row's label at the row's score.
    Where ranks are limited, the sample's ``scores`` and ``ranks`` (M, K) are kept, too.
    """

    def __init__(
        self, scoring: BoundScore, sample: Array, keys: Array, rows: ScoredRows, true: FloatArray
    ) -> None:
        score, options = scoring.score, scoring.options
        use = int(RandomStream.SCORE) if score.is_random else None
        draws = Draws(int(scoring.random_state), use, None, keys)

        def scores_of(some: slice) -> FloatArray:
            own = draws.of_rows(some.start, some.stop)
            return _kernels.score_matrix(score.kernel, sample[some], own, **options)

        def ranks_of(some: slice) -> FloatArray:
            return _kernels.rank_matrix(sample[some], **options).astype(np.float64)

        self.labels, self.is_known = rows.known_labels, rows.is_known
        scores = _by_class(scores_of, *sample.shape)
        with_ranks = len(rows.true_ranks) > 0
        self.ordered = _sorted(scores.copy() if with_ranks else scores)
        self.shares = _shares(self.ordered, self.labels, true)
        if with_ranks:
            ranks = _by_class(ranks_of, *sample.shape)
            self.scores, self.ranks = scores.T, ranks.T
            self.rank_shares = _shares(_sorted(ranks.copy()), self.labels, rows.true_ranks)

    def missing(self, trials: Sequence[Trial]) -> list[float]:
        """For each trial, the sum over classes of 1/alpha times the mean of max(v - t, 0)."""
        listed = self._listed([trial.thresholds.upper for trial in trials])
        exact = [n for n, trial in enumerate(trials) if trial.thresholds.lower is not None]
        lower = self._listed([trials[number].thresholds.lower for number in exact])
        for number, share in zip(exact, lower, strict=True):
            chance = np.asarray(trials[number].thresholds.upper_probability)
            listed[number] = chance * listed[number] + (1 - chance) * share
        return [self._lacking(trial, own) for trial, own in zip(trials, listed, strict=True)]

    def _listed(self, limits: Sequence[FloatArray | None]) -> FloatArray:
        """Compute the share of rows within each threshold of each class (limits, K)."""
        n_classes, n_rows = self.ordered.shape
        wanted = np.array(limits, dtype=np.float64).reshape(-1, n_classes).T
        # One class after the other: its scores are in the cache then.
        classes = np.repeat(np.arange(n_classes), wanted.shape[1])
        counts = _kernels.counts_within(self.ordered, classes, wanted.ravel())
        return np.ascontiguousarray(counts.reshape(wanted.shape).T) / n_rows

    def _lacking(self, trial: Trial, listed: FloatArray) -> float:
        wanted, limits = self.shares, trial.thresholds
        if limits.rank_limit is not None:
            inside = (self.scores <= limits.upper) & (self.ranks <= limits.rank_limit)
            listed, wanted = inside.mean(axis=0), np.maximum(wanted, self.rank_shares)
        counts, sums = _kernels.shortfalls(
            self.labels, trial.is_test & self.is_known, wanted, listed
        )
        seen = counts > 0
        return float((sums[seen] / counts[seen] / trial.predictor.alpha_[seen]).sum())


def _by_class(values_of: Callable[[slice], FloatArray], n_rows: int, n_classes: int) -> FloatArray:
    """Compute the values of all rows, some rows at a time on all cores, transposed (K, M)."""
    turned = np.empty((n_classes, n_rows))

    def fill(some: slice) -> None:
        turned[:, some] = values_of(some).T

    deque(map_on_threads(fill, _slices(n_rows)), maxlen=0)
    return turned


def _sorted(values: FloatArray) -> FloatArray:
    """Sort each class's values (K, M), in place."""
    deque(map_on_threads(lambda some: values[some].sort(axis=1), _slices(len(values))), maxlen=0)
    return values


def _slices(n: int) -> list[slice]:
    """Equal parts, enough for all cores to end at about the same time."""
    step = max(1, ceil(n / (4 * n_threads())))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _shares(ordered: FloatArray, labels: IntArray, own: Array) -> FloatArray:
    """For each row, the share of its class's values (K, M) that are at most its own (N,)."""
    return _kernels.counts_within(ordered, labels, own) / ordered.shape[1]
