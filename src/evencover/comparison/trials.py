"""Trials: many calibrations tried on the same rows, which are read twice however many there are.

Every method learns from the true labels' scores alone, and coverage needs nothing more: one pass
scores them. Set sizes and costs need the rows again, and a second pass counts them for all trials.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from operator import iadd
from typing import Any, NamedTuple

import numpy as np

from evencover import _kernels
from evencover._kernels import Draws, ThresholdTable
from evencover.arrays import Array, FloatArray, IntArray
from evencover.comparison.cost import SetShares, Trial
from evencover.comparison.splits import Split, other_rows, random_rows
from evencover.data.fingerprint import Sampler
from evencover.data.source import Block, Source
from evencover.engine.blocks import joined, map_source
from evencover.errors import EvencoverWarning
from evencover.evaluation.metrics import Tally
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.suppliers import Suppliers
from evencover.predictors import BasePredictor
from evencover.predictors.calibration import (
    CalibrationInputs,
    CalibrationRows,
    require_labels,
    require_rereadable,
    warn_of_mismatch,
)
from evencover.predictors.caps import ScoreSample, sampled_of
from evencover.predictors.fit import Fit
from evencover.predictors.rule import BoundScore
from evencover.randomness import row_indices
from evencover.scores import Score, make_score
from evencover.sizes import at_once, sampled
from evencover.threads import map_on_threads
from evencover.topk import concatenate_rows

ROWS_AT_ONCE = at_once(2048, 3)  # whose set sizes one task counts
# Costs are estimated on at most this many rows, and this many numbers are held at once.
MOST_COST_ROWS, MOST_COST_NUMBERS = sampled(4096), sampled(1 << 22, 600)


class Outcome(NamedTuple):
    """A fitted predictor, what it covered, its cost, and the few classes with most labels."""

    predictor: BasePredictor
    tally: Tally
    cost: float
    suppliers: Suppliers

    @property
    def report(self) -> CoverageReport:
        """Coverage and set sizes of the test rows."""
        fit = self.predictor.fit_
        about = {"class_names": fit.class_names, "is_capped": fit.is_capped}
        return CoverageReport.from_tally(self.tally, fit.alpha, **about)


def try_all(
    rows: ScoredRows, predictors: Sequence[BasePredictor], splits: Sequence[Split], seed: int
) -> list[list[Outcome]]:
    """Calibrate and test every predictor on every split; return outcomes by predictor and split."""
    from threadpoolctl import threadpool_limits

    def fit(job: tuple[BasePredictor, Split]) -> Trial:
        predictor, split = job
        random_state = (seed + split.repetition) % 2**64
        fitted = replace(predictor, random_state=random_state, max_share=None)
        return Trial(rows.calibrate(fitted, split.calibration), split.is_test)

    # Linear algebra starts no threads meanwhile. That limit is one for the whole process, and each
    # k-means sets it and puts it back, so it is set here before the first and until the last.
    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):
        warnings.simplefilter("ignore", EvencoverWarning)  # about single splits
        trials = list(map_on_threads(fit, product(predictors, splits)))
    jobs = product(predictors, splits)
    rows.cap([(trial, job[1], job[0].max_share) for trial, job in zip(trials, jobs, strict=True)])
    outcomes = iter(rows.measure(trials))
    return [[next(outcomes) for _ in splits] for _ in predictors]


class ScoredRows:
    """Labeled rows with the scores of their true labels.

    The source is read once here, and once by every `measure`. An `executor` reads elsewhere than on
    this process's threads. ``calibration_scores`` and ``test_scores`` hold, for each score, the
    base scores of the true labels (N,), with the random numbers of calibration and of prediction;
    ``true_ranks`` their ranks, empty unless `with_ranks`; ``rank_draws`` the draws for randomized
    thresholds; ``is_top`` whether the true label is the most probable class.
    """

    def __init__(
        self,
        source: Source,
        scores: Sequence[Score],
        *,
        from_logits: bool = False,
        random_state: int,
        with_ranks: bool = False,
        executor: Any = None,
    ) -> None:
        require_rereadable(source, "A comparison")
        require_labels(source, "A comparison")
        self.source, self.executor, self.n_classes = source, executor, source.n_classes
        logits = from_logits if source.logits is None else source.logits
        input_options = (logits, random_state, source.logits is None)
        self.scorings = {score.base: BoundScore(score.base, *input_options) for score in scores}
        read = partial(score_block, list(self.scorings.values()), with_ranks)
        sampler = Sampler(source.n_rows, source.offset)
        self.labels, self.true_ranks, self.rank_draws, self.is_top, *label_scores = joined(
            map_source(source, read, joined, executor, samplers=[sampler])
        )
        self.fingerprint = sampler.result()
        warn_of_mismatch(source, self.fingerprint, next(iter(self.scorings.values())))
        self.is_known = self.labels < self.n_classes
        if not self.is_known.any():
            raise source.no_known_label()
        self.known_labels = np.minimum(self.labels, self.n_classes - 1)
        calibrating = dict(zip(self.scorings, label_scores[::2], strict=True))
        testing = dict(zip(self.scorings, label_scores[1::2], strict=True))
        self.calibration_scores = {score: calibrating[score.base] for score in scores}
        self.test_scores = {score: testing[score.base] for score in scores}

    def calibrate(self, predictor: BasePredictor, rows: IntArray) -> BasePredictor:
        """Fit a predictor on some of the rows, whose scores need no checks."""
        rows = rows[self.is_known[rows]]
        calibration = CalibrationRows(
            self.calibration_scores[make_score(predictor.score)][rows],
            self.labels[rows],
            rows.astype(np.uint64),
            self.n_classes,
            self.source.class_names,
            self.true_ranks[rows] if "ranks" in predictor.needs else None,
            by_index=False,
            of_base=True,
        )
        predictor.fit_ = Fit.calibrated(predictor, calibration, CalibrationInputs())
        return predictor

    def cap(self, jobs: Iterable[tuple[Trial, Split, Any]]) -> None:
        """Cap the thresholds of trials, in place, at a share of the sets, if it is given.

        Trials of the same split and base score share a sample, and there is one at a time.
        """
        calibrations: dict[int, IntArray] = {}
        by_base: dict[Score, dict[int, list[tuple[BasePredictor, Any]]]] = {}
        for trial, split, max_share in jobs:
            if max_share is not None:
                key = id(split)
                calibrations[key] = split.calibration[self.is_known[split.calibration]]
                by_split = by_base.setdefault(trial.score.base, {})
                by_split.setdefault(key, []).append((trial.predictor, max_share))
        if not by_base:
            return
        chosen = sampled_of(calibrations, self.n_classes)
        rows = np.unique(np.concatenate(list(chosen.values())))
        needs = ("ranks",) if len(self.true_ranks) else ()
        for base, by_split in by_base.items():
            scoring = self.scorings[base]
            all_rows = ScoreSample.read(self.source, scoring, rows, needs, self.executor)
            for key, members in by_split.items():
                sample = all_rows.take(np.searchsorted(rows, chosen[key]))
                for predictor, max_share in members:
                    predictor.fit_ = predictor.fit_.capped(max_share, sample)
                    predictor.max_share = max_share

    def measure(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Count coverage and set sizes of every trial on its test rows, and compute its cost."""
        by_base: dict[Score, list[int]] = {}
        for number, trial in enumerate(trials):
            by_base.setdefault(trial.score.base, []).append(number)
        grouped = {base: [trials[n] for n in numbers] for base, numbers in by_base.items()}
        counters = [SizeCounter.of(self.scorings[base], tried) for base, tried in grouped.items()]
        reading = self._read(partial(read_block, counters, self._sampled()))
        covered = self._count_covered(trials)
        outcomes: dict[int, Outcome] = {}
        for (base, tried), counts in zip(grouped.items(), reading.counts, strict=True):
            shares = SetShares(
                self.scorings[base], reading.sample, reading.keys, self.known_labels,
                self.test_scores[tried[0].score], self.true_ranks,
            )  # fmt: skip
            penalties = shares.penalties(tried, self.is_known, self.is_top)
            for number, sizes, priced in zip(by_base[base], counts, penalties, strict=True):
                trial = trials[number]
                n_unknown = int((~self.is_known & trial.is_test).sum())
                tally = Tally(*covered[number], sizes, n_unknown=n_unknown)
                avg_size = float(sizes @ np.arange(len(sizes)) / max(1, sizes.sum()))
                penalty, included = priced
                wrong = included - tally.covered / max(1, sizes.sum())
                cost, suppliers = avg_size + penalty, Suppliers.of(included, wrong)
                outcomes[number] = Outcome(trial.predictor, tally, cost, suppliers)
        return [outcomes[number] for number in range(len(trials))]

    def _sampled(self) -> Array:
        """Choose the rows (N,) on which costs are estimated."""
        n_rows = len(self.labels)
        ids = row_indices(0, n_rows) + np.uint64(1 << 56)  # a range that no repetition has
        n_sampled = min(n_rows, MOST_COST_ROWS, max(64, MOST_COST_NUMBERS // self.n_classes))
        return ~other_rows(random_rows(0, ids, n_sampled), n_rows)

    def _count_covered(self, trials: Sequence[Trial]) -> list[tuple[IntArray, IntArray]]:
        """Count test rows, and those covered, by class (K,), from the true labels' scores."""
        ranks = self.true_ranks if len(self.true_ranks) else None

        def by_class(rows: Array) -> IntArray:
            return np.bincount(self.labels[rows & self.is_known], minlength=self.n_classes)

        # Trials on the same split share its array.
        n_tests = {id(trial.is_test): trial.is_test for trial in trials}
        tested = {key: by_class(is_test) for key, is_test in n_tests.items()}

        def count(trial: Trial) -> tuple[IntArray, IntArray]:
            limits = trial.thresholds.of_classes(self.known_labels)
            scores = self.test_scores[trial.score]
            hit = _kernels.is_member(scores, limits, self.rank_draws, ranks)
            hit &= scores < np.inf  # a label that is not listed is in no set
            if trial.predictor.fit_.keep_top:
                hit |= self.is_top
            return tested[id(trial.is_test)], by_class(hit & trial.is_test)

        return list(map_on_threads(count, trials))

    def _read(self, read: Callable[[Block], Reading]) -> Reading:
        """Read all rows once; on threads in pieces, because there are few blocks."""
        if self.executor is not None:
            return Reading.total(map_source(self.source, read, Reading.total, self.executor))
        pieces = (
            block.take(slice(first, first + ROWS_AT_ONCE))
            for block in self.source.blocks()
            for first in range(0, len(block.rows), ROWS_AT_ONCE)
        )
        return Reading.total(map_on_threads(read, pieces))


def score_block(scorings: list[BoundScore], with_ranks: bool, block: Block) -> tuple[Array, ...]:
    """Of a block: labels, ranks (empty unless required), rank draws, tops, and the labels' scores.

    These come in pairs, one for calibration and one for tests.
    """
    assert block.labels is not None
    scores: list[FloatArray] = []
    for scoring in scorings:
        calibrating = scoring.true_labels(block, calibrating=True)
        is_random = scoring.score.is_random
        scores += [calibrating, scoring.true_labels(block) if is_random else calibrating]
    ranks = scorings[0].true_ranks(block) if with_ranks else np.empty(0, dtype=np.int64)
    is_top = _kernels.top_classes(block.rows) == block.labels
    return block.labels, ranks, scorings[0].rank_draws(block), is_top, *scores


# ---- one pass over the rows --------------------------------------------------------------------


class Reading(NamedTuple):
    """Test rows by set size (trials, K + 1) of each base score; a sample (m, K) and its keys."""

    counts: list[IntArray]
    sample: Any
    keys: Array

    @classmethod
    def total(cls, parts: Iterable[Reading]) -> Reading:
        """Add up the counts of consecutive blocks, and join their samples."""
        counts: list[IntArray] = []
        samples, keys = [], []
        for part in parts:
            samples.append(part.sample)
            keys.append(part.keys)
            counts = list(map(iadd, counts, part.counts)) if counts else part.counts
        return cls(counts, concatenate_rows(samples), np.concatenate(keys))


def read_block(counters: Sequence[SizeCounter], is_sampled: Array, block: Block) -> Reading:
    """Count the set sizes of a block, and take the rows to estimate costs on."""
    chosen = is_sampled[block.start : block.start + len(block.rows)]
    keys = _kernels.row_keys(block.rows, Draws(ids=block.ids, first=block.start))
    counts = [counter.count(block) for counter in counters]
    return Reading(counts, block.rows[chosen], keys[chosen])


@dataclass(frozen=True, eq=False)
class SizeCounter:
    """Counts the set sizes of all trials of one base score."""

    scoring: BoundScore
    tests: list[Array]
    table: ThresholdTable
    exact: bool
    keeps_top: list[int]

    @classmethod
    def of(cls, scoring: BoundScore, trials: list[Trial]) -> SizeCounter:
        """Arrange the thresholds of the trials for the kernel."""
        thresholds = [trial.thresholds for trial in trials]
        return cls(
            scoring,
            [trial.is_test for trial in trials],
            ThresholdTable(thresholds),
            any(fitted.lower is not None for fitted in thresholds),
            [n for n, trial in enumerate(trials) if trial.predictor.fit_.keep_top],
        )

    def count(self, block: Block) -> IntArray:
        """Count the test rows of one block by set size (trials, K + 1)."""
        n_rows, n_classes = block.rows.shape
        given = self.scoring.of_block(block, exact=self.exact)
        sizes = _kernels.set_sizes(given, self.table)
        is_test = np.stack([flags[block.start : block.start + n_rows] for flags in self.tests], 1)
        if self.keeps_top:
            top = _kernels.top_classes(block.rows)
            scores = _kernels.true_label_scores(given, top)
            draw = _kernels.row_numbers(block.rows, given.draws._replace(score_use=None))[1]
        for column in self.keeps_top:
            limits = self.table.vectors[column].of_classes(top)
            sizes[:, column] += ~_kernels.is_member(
                scores, limits, draw, np.ones(n_rows, dtype=np.int64)
            )
        width = n_classes + 1
        sizes += np.arange(0, width * len(self.tests), width)
        by_size = np.bincount(sizes[is_test], minlength=width * len(self.tests))
        return by_size.reshape(-1, width)
