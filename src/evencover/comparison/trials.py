"""Many calibrations tried on the same rows: true-label scores once, all set sizes in one pass.

Every method learns from the true labels' scores alone, and coverage needs nothing more. Only the
sizes of the sets need the rows again, and one pass counts them for every trial at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import add
from typing import Any

import numpy as np

from evencover import _kernels
from evencover._kernels import ThresholdTable
from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.source import Block, IterableSource, Source
from evencover.engine.blocks import blocks_of, joined, known_ids, map_source
from evencover.errors import EvencoverWarning, InputError
from evencover.evaluation.report import Tally
from evencover.predictors import BasePredictor
from evencover.predictors.fitting import require_labels
from evencover.predictors.rule import BoundScore, SetRule
from evencover.quantiles import Thresholds
from evencover.randomness import RandomStream, places, random_order
from evencover.scores import Score
from evencover.threads import map_on_threads
from evencover.validation import whole_number

ROWS_AT_ONCE = 2048  # whose set sizes one task counts


@dataclass(frozen=True, eq=False)
class Trial:
    """A predictor calibrated on some rows, to be tested on others (``is_test``, (N,))."""

    score: Score
    predictor: BasePredictor
    is_test: Array

    @cached_property
    def thresholds(self) -> Thresholds:
        """The predictor's thresholds on the base score."""
        return self.predictor.rule().limits


class ScoredRows:
    """Labeled rows with the scores of their true labels.

    The source is read once here, once by every `tally`, and once by `costs`. An `executor` reads
    elsewhere than on this process's threads. ``calibration_scores`` and ``test_scores`` hold, for
    each score, the base scores of the true labels (N,), with the random numbers of calibration and
    of prediction; ``true_ranks`` their ranks, empty unless `with_ranks`; ``rank_draws`` the draws
    for randomized thresholds.
    """

    def __init__(
        self,
        source: Source,
        scores: Sequence[Score],
        *,
        from_logits: bool = False,
        temperature: float = 1.0,
        random_state: int,
        with_ranks: bool = False,
        executor: Any = None,
    ) -> None:
        if isinstance(source, IterableSource):
            raise InputError(
                "The rows are read several times. Got an iterator, which can be read once; "
                "pass an array or the path of a file."
            )
        require_labels(source, "A comparison")
        self.source, self.executor = source, executor
        logits = from_logits if source.logits is None else source.logits
        about = (logits, temperature, random_state, source.logits is None)
        self.scorings = {score.base: BoundScore(score.base, *about) for score in scores}
        read = partial(score_true_labels, list(self.scorings.values()), with_ranks)
        self.labels, self.true_ranks, self.rank_draws, *found = joined(
            map_source(source, None, read, joined, executor, fingerprint=True)
        )
        self.is_known = self.labels < source.n_classes
        if not self.is_known.any():
            raise source.no_known_label()
        self.known_labels = np.minimum(self.labels, source.n_classes - 1)
        calibrating = dict(zip(self.scorings, found[::2], strict=True))
        testing = dict(zip(self.scorings, found[1::2], strict=True))
        self.calibration_scores = {score: calibrating[score.base] for score in scores}
        self.test_scores = {score: testing[score.base] for score in scores}

    def calibrate(self, predictor: BasePredictor, score: Score, rows: IntArray) -> None:
        """Fit a predictor on some of the rows."""
        n_classes = self.source.n_classes
        rows = rows[self.labels[rows] < n_classes]
        labels = self.labels[rows]
        names = self.source.class_names
        own = score.with_counts(np.bincount(labels, minlength=n_classes), names)
        scores = own.from_base(self.calibration_scores[score][rows], labels)
        ranks = self.true_ranks[rows] if "ranks" in predictor.needs else None
        predictor.fit_scores(scores, labels, n_classes, ids=rows, ranks=ranks, class_names=names)

    def tally(self, trials: Sequence[Trial]) -> list[Tally]:
        """Count coverage and set sizes of every trial on its test rows."""
        covered = self._count_covered(trials)
        bases = dict.fromkeys(trial.score.base for trial in trials)
        counters = [SizeCounter.of(base, self.scorings[base], trials) for base in bases]
        sizes: dict[int, IntArray] = {}
        for counter, (by_size, filled) in zip(counters, self._count_sizes(counters), strict=True):
            sizes |= zip(counter.numbers, by_size, strict=True)
            for column, more in zip(counter.never_empty, filled, strict=True):
                hits = covered[counter.numbers[column]][1]
                hits += more
        n_unknown = [int((~self.is_known & trial.is_test).sum()) for trial in trials]
        return [
            Tally(*pair, sizes[number], n_unknown=n_unknown[number])
            for number, pair in enumerate(covered)
        ]

    def tally_top(self, trials: Sequence[Trial], top: int) -> list[Tally]:
        """Count coverage and sizes of sets cut to their `top` most probable classes."""
        rules = [
            SetRule(
                self.scorings[trial.score.base],
                trial.thresholds,
                trial.predictor.allow_empty,
                self.source.class_names,
            )
            for trial in trials
        ]
        count = CountTop(rules, [trial.is_test for trial in trials], top)
        return add_tallies(map_source(self.source, None, count, add_tallies, self.executor))

    def _count_covered(self, trials: Sequence[Trial]) -> list[tuple[IntArray, IntArray]]:
        """Count test rows, and those covered, by class (K,), from the true labels' scores."""
        ranks = self.true_ranks if len(self.true_ranks) else None

        def by_class(rows: Array) -> IntArray:
            return np.bincount(self.labels[rows & self.is_known], minlength=self.source.n_classes)

        # Trials on the same split share its array.
        splits = {id(trial.is_test): trial.is_test for trial in trials}
        n_tests = {key: by_class(is_test) for key, is_test in splits.items()}

        def count(trial: Trial) -> tuple[IntArray, IntArray]:
            limits = trial.thresholds.of_classes(self.known_labels)
            hit = _kernels.is_member(self.test_scores[trial.score], limits, self.rank_draws, ranks)
            return n_tests[id(trial.is_test)], by_class(hit & trial.is_test)

        return list(map_on_threads(count, trials))

    def _count_sizes(self, counters: list[SizeCounter]) -> Counts:
        """Apply the counters to all rows in one pass.

        There are few blocks, and some scores take longer than others. So on threads one task is one
        counter and some rows.
        """
        if self.executor is not None:
            count = partial(count_sizes, counters)
            return add_counts(map_source(self.source, None, count, add_counts, self.executor))
        blocks = blocks_of(self.source, known_ids(self.source, None))
        tasks = (
            (counter, *piece)
            for block in blocks
            for piece in _pieces(*block)
            for counter in counters
        )
        found = map_on_threads(lambda task: task[0].count(*task[1:]), tasks)
        return add_counts(list(each) for each in zip(*[found] * len(counters), strict=True))


@dataclass(frozen=True, eq=False)
class CountTop:
    """Count the cut sets of a block for each trial, on its test rows."""

    rules: list[SetRule]
    tests: list[Array]
    top: int

    def __call__(self, block: Block, ids: Array | None) -> list[Tally]:
        """Count one block."""
        assert block.labels is not None
        found = []
        for rule, is_test in zip(self.rules, self.tests, strict=True):
            sets = rule.sets(block, ids).top(self.top)
            own = np.flatnonzero(is_test[block.start : block.start + len(block.rows)])
            found.append(Tally.of(sets[own], block.labels[own]))
        return found


def add_tallies(parts: Iterable[list[Tally]]) -> list[Tally]:
    """Add up the tallies of each trial over several blocks."""
    return [reduce(add, of_trial) for of_trial in zip(*parts, strict=True)]


def score_true_labels(
    scorings: list[BoundScore], with_ranks: bool, block: Block, ids: Array | None
) -> tuple[Array, ...]:
    """Of a block: labels, ranks (empty unless required), rank draws, and the labels' scores.

    These come in pairs, one for calibration and one for tests.
    """
    assert block.labels is not None
    scores: list[FloatArray] = []
    for scoring in scorings:
        calibrating = scoring.true_labels(block, ids, calibrating=True)
        is_random = scoring.score.is_random
        scores += [calibrating, scoring.true_labels(block, ids) if is_random else calibrating]
    ranks = scorings[0].true_ranks(block) if with_ranks else np.empty(0, dtype=np.int64)
    return block.labels, ranks, scorings[0].rank_draws(block, ids), *scores


def _pieces(block: Block, ids: Array | None) -> Iterator[tuple[Block, Array | None]]:
    """Split a block into pieces of some rows."""
    assert block.labels is not None
    for at in range(0, len(block.rows), ROWS_AT_ONCE):
        some = slice(at, at + ROWS_AT_ONCE)
        rows, labels = block.rows[some], block.labels[some]
        piece = block._replace(start=block.start + at, rows=rows, labels=labels)
        yield piece, None if ids is None else ids[some]


# For each counter: test rows by set size (trials, K + 1); and, for the trials that leave no set
# empty, rows by class (never_empty, K) that are covered because of that.
Counts = list[tuple[IntArray, IntArray]]


def count_sizes(counters: list[SizeCounter], block: Block, ids: Array | None) -> Counts:
    """Apply all counters to a block."""
    return [counter.count(block, ids) for counter in counters]


def add_counts(parts: Iterable[Counts]) -> Counts:
    """Add up the counts of several blocks."""
    parts = iter(parts)
    totals = next(parts)
    for part in parts:
        for total, more in zip(totals, part, strict=True):
            for array, values in zip(total, more, strict=True):
                array += values
    return totals


@dataclass(frozen=True, eq=False)
class SizeCounter:
    """Counts the set sizes of all trials of one base score.

    ``numbers`` are the trials' places among all, those with a limit on ranks last, because the
    kernel takes the others together (``tables``).
    """

    scoring: BoundScore
    numbers: list[int]
    tests: list[Array]
    tables: list[ThresholdTable | list[Thresholds]]
    exact: bool
    never_empty: list[int]

    @classmethod
    def of(cls, base: Score, scoring: BoundScore, trials: Sequence[Trial]) -> SizeCounter:
        """Arrange the thresholds of a base score's trials for the kernel."""
        own = [number for number, trial in enumerate(trials) if trial.score.base == base]
        own.sort(key=lambda number: trials[number].thresholds.rank_limit is not None)
        limits = [trials[number].thresholds for number in own]
        by_rank = [each for each in limits if each.rank_limit is not None]
        tables: list[ThresholdTable | list[Thresholds]] = [
            *ThresholdTable.parts(limits[: len(limits) - len(by_rank)])
        ]
        return cls(
            scoring,
            own,
            [trials[number].is_test for number in own],
            [*tables, by_rank] if by_rank else tables,
            any(each.lower is not None for each in limits),
            [at for at, number in enumerate(own) if not trials[number].predictor.allow_empty],
        )

    def count(self, block: Block, ids: Array | None) -> tuple[IntArray, IntArray]:
        """Count one block; see `Counts`."""
        assert block.labels is not None
        n_rows, n_classes = block.rows.shape
        formula, options = self.scoring.score.kernel, self.scoring.options
        draws = self.scoring.draws(block, ids, exact=self.exact)
        parts = [
            _kernels.set_sizes(formula, block.rows, draws, table, **options)
            for table in self.tables
        ]
        sizes = np.concatenate(parts, axis=1)
        is_test = np.stack([each[block.start : block.start + n_rows] for each in self.tests], 1)
        filled = np.zeros((len(self.never_empty), n_classes), dtype=np.int64)
        for counts, column in zip(filled, self.never_empty, strict=True):
            empty = sizes[:, column] == 0
            sizes[empty, column] = 1
            rows = np.flatnonzero(empty & is_test[:, column])
            labels = block.labels[rows]
            counts += np.bincount(
                labels[block.rows[rows].argmax(axis=1) == labels], minlength=n_classes
            )
        width = n_classes + 1
        sizes += np.arange(0, width * len(self.tests), width)
        by_size = np.bincount(sizes[is_test], minlength=width * len(self.tests))
        return by_size.reshape(-1, width), filled


def calibration_split(
    labels: IntArray,
    random_state: int,
    repetition: int = 0,
    *,
    calibration_fraction: float | None = None,
    n_per_class: int | Sequence[int] | IntArray | None = None,
) -> IntArray:
    """Draw the calibration rows of one repetition, in increasing order.

    They are a fraction of all rows (one half by default), or `n_per_class` of each class: one
    number for all, or one per class. A class that has two rows or more keeps one of them. Every
    repetition has a random order of its own.

    >>> labels = np.array([0, 0, 0, 0, 1, 1, 2])
    >>> len(calibration_split(labels, 0))
    3
    >>> labels[calibration_split(labels, 0, n_per_class=2)].tolist()
    [0, 0, 1, 2]
    """
    if calibration_fraction is not None and n_per_class is not None:
        raise InputError("Give 'calibration_fraction' or 'n_per_class', not both.")
    ids = places(0, len(labels)) + np.uint64(repetition << 40)
    if n_per_class is not None:
        return _rows_of_each_class(labels, random_state, ids, n_per_class)
    share = 0.5 if calibration_fraction is None else calibration_fraction
    if not isinstance(share, float | np.floating) or not 0 < share < 1:
        raise InputError(f"'calibration_fraction' must be a number in (0, 1). Got {share!r}.")
    return random_rows(random_state, ids, max(1, int(share * len(labels))))


def random_rows(random_state: int, ids: Array, n: int) -> IntArray:
    """Draw n of all rows without replacement, by their ids; in increasing order."""
    if n >= len(ids):
        return np.arange(len(ids))
    bits = _kernels.random_bits(int(random_state), int(RandomStream.DATA), ids)
    return np.sort(np.argpartition(bits, n - 1)[:n])


def other_rows(rows: IntArray, n_rows: int) -> Array:
    """Flag all rows but these (N,)."""
    flags: Array = np.ones(n_rows, dtype=bool)
    flags[rows] = False
    return flags


def _rows_of_each_class(
    labels: IntArray, random_state: int, ids: Array, n_per_class: Any
) -> IntArray:
    counts, wanted = np.bincount(labels), np.asarray(n_per_class)
    if wanted.ndim == 0:
        whole_number(n_per_class, "n_per_class", "compare", 1)
        wanted = np.full(len(counts), wanted)
    if len(wanted) < len(counts) or wanted.dtype.kind not in "iu":
        raise InputError(
            "'n_per_class' must be one integer, or one per class. "
            f"Got type {wanted.dtype} and shape {wanted.shape}."
        )
    wanted = np.minimum(wanted[: len(counts)], np.maximum(counts - 1, 1))
    order = random_order(random_state, RandomStream.DATA, ids)
    order = order[np.argsort(labels[order], kind="stable")]
    place = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[place < wanted[labels[order]]])


def fit_all(fit: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """Return ``fit(job)`` of every job, in order, without warnings about single splits.

    Linear algebra starts no threads meanwhile. That limit is one for the whole process, and each
    k-means sets it and puts it back, so it is set here before the first and until the last.
    """
    from threadpoolctl import threadpool_limits

    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):
        warnings.simplefilter("ignore", EvencoverWarning)
        return list(map_on_threads(fit, jobs))
