"""Many calibrations tried on the same rows: true-label scores once, all set sizes in one pass.

Every method learns from the true labels' scores alone, and coverage needs nothing more. Only the
sizes of the sets need the rows again, and one pass counts them for every trial at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

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
from evencover.predictors.rule import BoundScore
from evencover.quantiles import Thresholds
from evencover.randomness import RandomStream, places, random_order
from evencover.scores import Score
from evencover.threads import map_on_threads
from evencover.validation import whole_number

ROWS_AT_ONCE = 2048  # whose set sizes are counted by one task
USES = ("calibration", "test")  # what a row can be for, with random numbers of its own


class Trial(NamedTuple):
    """A predictor calibrated on some rows, to be tested on others (``is_test``, (N,))."""

    score: Score
    predictor: BasePredictor
    is_test: Array

    @property
    def thresholds(self) -> Thresholds:
        """What the predictor learnt, as limits of the base score."""
        return self.predictor.rule().limits


class ScoredRows:
    """Labelled rows with the scores of their true labels.

    Parameters
    ----------
    source
        The rows; read once here, and once by every `tally`.
    scores
        The scores to compute.
    from_logits, temperature, random_state
        As for predictors.
    with_ranks
        Whether some method needs the ranks of the true labels.
    known
        `arrays` of the same rows and scores from an earlier reading; then nothing is read.
    executor
        Where the rows are read; by default this process's threads.

    Attributes
    ----------
    labels
        (N,) true classes.
    calibration_scores, test_scores
        For each score, the base scores of the true labels (N,): of rows that calibrate, and of rows
        whose sets are wanted. They differ in their random numbers.
    true_ranks
        Their ranks (N,); empty unless asked for.
    coins
        The rows' draws (N,) for randomized thresholds.
    """

    labels: IntArray
    calibration_scores: dict[Score, FloatArray]
    test_scores: dict[Score, FloatArray]
    true_ranks: IntArray
    coins: FloatArray

    def __init__(
        self,
        source: Source,
        scores: Sequence[Score],
        *,
        from_logits: bool,
        temperature: float,
        random_state: int,
        with_ranks: bool = False,
        known: dict[str, Array] | None = None,
        executor: Any = None,
    ) -> None:
        if isinstance(source, IterableSource):
            raise InputError(
                "The rows are read twice. Got an iterator, which can be read once; "
                "pass an array or the path of a file."
            )
        require_labels(source, "A comparison")
        self.source, self.executor = source, executor
        logits = from_logits if source.logits is None else source.logits
        bases = list(dict.fromkeys(score.base for score in scores))
        about = (logits, temperature, random_state, source.logits is None)
        self.scorings = {base: BoundScore(base, *about) for base in bases}
        read = TrueLabels(list(self.scorings.values()), with_ranks)
        self.arrays = self._read(read) if known is None or set(known) != set(read.names) else known
        self.labels, self.true_ranks = self.arrays["labels"], self.arrays["ranks"]
        self.coins = self.arrays["coins"]
        place = {score: bases.index(score.base) for score in scores}
        self.calibration_scores = {
            score: self.arrays[f"calibration_score_{at}"] for score, at in place.items()
        }
        self.test_scores = {score: self.arrays[f"test_score_{at}"] for score, at in place.items()}

    def _read(self, read: TrueLabels) -> dict[str, Array]:
        """All that is ever needed of the rows but their sets' sizes, by names for a file."""
        columns = joined(map_source(self.source, None, read, joined, self.executor))
        return dict(zip(read.names, columns, strict=True))

    def calibrate(self, predictor: BasePredictor, score: Score, rows: IntArray) -> None:
        """Fit a predictor on some of the rows."""
        labels, n_classes = self.labels[rows], self.source.n_classes
        names = self.source.class_names
        own = score.with_counts(np.bincount(labels, minlength=n_classes), names)
        scores = own.from_base(self.calibration_scores[score][rows], labels)
        ranks = self.true_ranks[rows] if "ranks" in predictor.needs else None
        predictor.fit_scores(scores, labels, n_classes, ids=rows, ranks=ranks, class_names=names)

    def tally(self, trials: Sequence[Trial]) -> list[Tally]:
        """Count coverage and set sizes of every trial on its test rows."""
        limits = [trial.thresholds for trial in trials]
        covered = self._class_tallies(trials, limits)
        sizes = self._size_counts(trials, limits, covered)
        return [Tally(*pair, counts) for pair, counts in zip(covered, sizes, strict=True)]

    # ---- coverage: from the true labels' scores, all rows at once ----------------------------

    def _class_tallies(
        self, trials: Sequence[Trial], limits: Sequence[Thresholds]
    ) -> list[tuple[IntArray, IntArray]]:
        """Test rows, and those covered, by class (K,) for each trial."""
        by_class = RowsByClass(self.labels, self.source.n_classes)
        coin = by_class.arrange(self.coins)
        scores = {
            score: by_class.arrange(self.test_scores[score])
            for score in {trial.score for trial in trials}
        }
        ranks = by_class.arrange(self.true_ranks) if len(self.true_ranks) else None
        # Trials on the same split share its array.
        tests = {id(trial.is_test): by_class.arrange(trial.is_test) for trial in trials}
        n_tests = {key: by_class.sums(is_test) for key, is_test in tests.items()}

        def count(job: tuple[Trial, Thresholds]) -> tuple[IntArray, IntArray]:
            trial, limit = job
            limits = by_class.spread(limit)
            covered = _kernels.is_member(scores[trial.score], limits, coin, ranks)
            split = id(trial.is_test)
            return n_tests[split].copy(), by_class.sums(covered & tests[split])

        return list(map_on_threads(count, zip(trials, limits, strict=True)))

    # ---- sizes: one pass over the rows for all trials ----------------------------------------

    def _size_counts(
        self,
        trials: Sequence[Trial],
        limits: Sequence[Thresholds],
        class_tallies: list[tuple[IntArray, IntArray]],
    ) -> Array:
        """How many test rows have a set of each size (number of trials, K + 1).

        Where a trial gives empty sets their most probable class, coverage is mended.
        """
        split_of = {id(trial.is_test): trial.is_test for trial in trials}
        place_of = {key: place for place, key in enumerate(split_of)}
        count = SizeCount(
            [
                SizePass(self.scorings[base], own, trials, limits)
                for base in dict.fromkeys(trial.score.base for trial in trials)
                for own in [[p for p, trial in enumerate(trials) if trial.score.base == base]]
            ],
            np.array([place_of[id(trial.is_test)] for trial in trials]),
            np.stack(list(split_of.values())),
        )
        totals = np.zeros((len(trials), self.source.n_classes + 1), dtype=np.int64)
        for counts, mended in self._map_sizes(count):
            for places_of_pass, part in counts:
                totals[places_of_pass] += part
            for place, labels in mended:
                np.add.at(class_tallies[place][1], labels, 1)
        return totals

    def _map_sizes(self, count: SizeCount) -> Iterator[Sizes]:
        """The counts, part by part; on threads, of one score and some rows at a time.

        There are few blocks, and some scores take longer than others: cores would stand idle.
        """
        if self.executor is not None:
            return map_source(self.source, None, count, total_sizes, self.executor)
        counts = [replace(count, passes=[each]) for each in count.passes]
        blocks = blocks_of(self.source, known_ids(self.source, None))
        jobs = ((one, *some) for block in blocks for some in _pieces(*block) for one in counts)
        return map_on_threads(lambda job: job[0](*job[1:]), jobs)


@dataclass(frozen=True, eq=False)
class TrueLabels:
    """Of a block: labels, ranks (none unless asked for), draws, and the labels' scores."""

    scorings: list[BoundScore]
    with_ranks: bool

    @property
    def names(self) -> list[str]:
        """What the arrays are called."""
        kinds = [f"{use}_score_{at}" for at in range(len(self.scorings)) for use in USES]
        return ["labels", "ranks", "coins", *kinds]

    def __call__(self, block: Block, ids: Array | None) -> tuple[Array, ...]:
        """One pass over the rows."""
        assert block.labels is not None
        any_scoring, ranks = self.scorings[0], np.empty(0, dtype=np.int64)
        values = [score for scoring in self.scorings for score in _scores(scoring, block, ids)]
        if self.with_ranks:
            ranks = any_scoring.true_ranks(block)
        return block.labels, ranks, any_scoring.coins(block, ids), *values


def _pieces(block: Block, ids: Array | None) -> Iterator[tuple[Block, Array | None]]:
    """Some rows of a block at a time."""
    assert block.labels is not None
    for at in range(0, len(block.rows), ROWS_AT_ONCE):
        some = slice(at, at + ROWS_AT_ONCE)
        rows, labels = block.rows[some], block.labels[some]
        piece = block._replace(start=block.start + at, rows=rows, labels=labels)
        yield piece, None if ids is None else ids[some]


def _scores(scoring: BoundScore, block: Block, ids: Array | None) -> list[FloatArray]:
    """The scores of the rows if they calibrate, and if their sets are wanted."""
    calibrating = scoring.true_labels(block, ids, calibrating=True)
    if not scoring.score.is_random:
        return [calibrating, calibrating]
    return [calibrating, scoring.true_labels(block, ids)]


# For each pass the places of its trials and their counts by size; and for trials that leave no
# set empty, their places and the labels that are covered by that.
Sizes = tuple[list[tuple[list[int], IntArray]], list[tuple[int, IntArray]]]


@dataclass(frozen=True, eq=False)
class SizeCount:
    """Of a block: how many of the test rows have a set of each size, for every trial."""

    passes: list[SizePass]
    split_of_trial: IntArray
    is_test: Array

    def __call__(self, block: Block, ids: Array | None) -> Sizes:
        """One pass over the rows for each score."""
        is_test = self.is_test[:, block.start : block.start + len(block.rows)]
        counts, mended = [], []
        for each in self.passes:
            tested = is_test[self.split_of_trial[each.places]].T
            sizes = each.sizes(block, ids)
            mended += _mend(each, sizes, block, tested)
            width = block.rows.shape[1] + 1
            sizes += np.arange(0, width * sizes.shape[1], width)
            by_size = np.bincount(sizes[tested], minlength=width * sizes.shape[1])
            counts.append((each.places, by_size.reshape(-1, width)))
        return counts, mended


def _mend(
    each: SizePass, sizes: IntArray, block: Block, tested: Array
) -> list[tuple[int, IntArray]]:
    """Give empty sets their most probable class, where a trial wants that."""
    assert block.labels is not None
    mended = []
    for column in each.never_empty:
        empty = sizes[:, column] == 0
        sizes[empty, column] = 1
        rows = np.flatnonzero(empty & tested[:, column])
        labels = block.labels[rows]
        top_is_true = block.rows[rows].argmax(axis=1) == labels
        mended.append((each.places[column], labels[top_is_true]))
    return mended


def total_sizes(parts: Iterable[Sizes]) -> Sizes:
    """The counts of consecutive blocks together."""
    counts: list[tuple[list[int], IntArray]] = []
    mended: list[tuple[int, IntArray]] = []
    for part, more in parts:
        counts = (
            part
            if not counts
            else [(own, total + here) for (own, total), (_, here) in zip(counts, part, strict=True)]
        )
        mended += more
    return counts, mended


class SizePass:
    """The trials of one score, with their limits arranged for the kernel.

    ``places`` are the trials' places among all, those with a limit on ranks last.
    """

    def __init__(
        self,
        scoring: BoundScore,
        places: list[int],
        trials: Sequence[Trial],
        limits: Sequence[Thresholds],
    ) -> None:
        by_rank = [place for place in places if limits[place].rank_limit is not None]
        plain = [place for place in places if limits[place].rank_limit is None]
        self.scoring, self.places = scoring, [*plain, *by_rank]
        self.parts: list[ThresholdTable | list[Thresholds]] = [
            *ThresholdTable.parts([limits[place] for place in plain])
        ]
        if by_rank:
            self.parts.append([limits[place] for place in by_rank])
        self.exact = any(limits[place].lower is not None for place in places)
        self.never_empty = [
            column
            for column, place in enumerate(self.places)
            if not trials[place].predictor.allow_empty
        ]

    def sizes(self, block: Block, ids: Array | None) -> IntArray:
        """The size of each row's set under every trial (n, trials)."""
        scoring = self.scoring
        draws = scoring.draws(block, ids, exact=self.exact)
        formula, options = scoring.score.kernel, scoring.options
        parts = [
            _kernels.set_sizes(formula, block.rows, draws, part, **options) for part in self.parts
        ]
        return np.concatenate(parts, axis=1)


class RowsByClass:
    """Rows in the order of their classes, so that a class's numbers lie side by side."""

    def __init__(self, labels: IntArray, n_classes: int) -> None:
        kind = np.uint16 if n_classes < 2**16 else np.int64  # short ones are sorted by radix
        self._order = np.argsort(labels.astype(kind), kind="stable")
        self._counts = np.bincount(labels, minlength=n_classes)
        self._classes = np.repeat(np.arange(n_classes), self._counts)
        self._present = np.flatnonzero(self._counts)
        self._starts = (np.cumsum(self._counts) - self._counts)[self._present]

    def arrange(self, values: Array) -> Array:
        """Values of the rows in that order."""
        return values[self._order]

    def spread(self, thresholds: Thresholds) -> Thresholds:
        """The limits of each row's own class, in that order."""
        return thresholds.of_classes(self._classes)

    def sums(self, flags: Array) -> IntArray:
        """How many rows of each class (K,) are flagged."""
        result = np.zeros(len(self._counts), dtype=np.int64)
        result[self._present] = np.add.reduceat(flags, self._starts, dtype=np.int64)
        return result


# ---- splits --------------------------------------------------------------------------------------


def calibration_split(
    labels: IntArray,
    random_state: int,
    repetition: int = 0,
    *,
    calibration_fraction: float | None = None,
    n_per_class: int | Sequence[int] | IntArray | None = None,
) -> IntArray:
    """The rows that calibrate in one repetition, in increasing order.

    Parameters
    ----------
    labels
        (N,) class indices.
    random_state, repetition
        Every repetition has a random order of its own.
    calibration_fraction, n_per_class
        A share of all rows (one half by default), or so many of each class: one number for all,
        or one per class. A class that has two rows or more keeps one of them.

    >>> labels = np.array([0, 0, 0, 0, 1, 1, 2])
    >>> len(calibration_split(labels, 0))
    3
    >>> labels[calibration_split(labels, 0, n_per_class=2)].tolist()
    [0, 0, 1, 2]
    """
    if calibration_fraction is not None and n_per_class is not None:
        raise InputError("Give 'calibration_fraction' or 'n_per_class', not both.")
    # Every repetition has its own range of ids, and so its own random order.
    ids = places(0, len(labels)) + np.uint64(repetition << 40)
    if n_per_class is not None:
        return _rows_of_each_class(labels, random_state, ids, n_per_class)
    share = 0.5 if calibration_fraction is None else calibration_fraction
    if not isinstance(share, float | np.floating) or not 0 < share < 1:
        raise InputError(
            "The 'calibration_fraction' parameter of compare must be a number in (0, 1). "
            f"Got {share!r} instead."
        )
    return random_rows(random_state, ids, max(1, int(share * len(labels))))


def random_rows(random_state: int, ids: Array, n: int) -> IntArray:
    """So many rows out of all, without replacement, by their ids; in increasing order."""
    if n >= len(ids):
        return np.arange(len(ids))
    bits = _kernels.random_bits(int(random_state), int(RandomStream.DATA), ids)
    return np.sort(np.argpartition(bits, n - 1)[:n])


def other_rows(rows: IntArray, n_rows: int) -> Array:
    """All rows but these, as flags (N,)."""
    flags: Array = np.ones(n_rows, dtype=bool)
    flags[rows] = False
    return flags


def _rows_of_each_class(
    labels: IntArray, random_state: int, ids: Array, n_per_class: Any
) -> IntArray:
    counts = np.bincount(labels)
    if np.ndim(n_per_class) == 0:
        whole_number(n_per_class, "n_per_class", "compare", 1)
    wanted = np.asarray(n_per_class)
    if wanted.ndim and (len(wanted) < len(counts) or wanted.dtype.kind not in "iu"):
        raise InputError(
            "The 'n_per_class' parameter of compare must be one whole number, or one per class. "
            f"Got type {wanted.dtype} and shape {wanted.shape} instead."
        )
    wanted = np.minimum(wanted[: len(counts)] if wanted.ndim else wanted, np.maximum(counts - 1, 1))
    order = random_order(random_state, RandomStream.DATA, ids)
    order = order[np.argsort(labels[order], kind="stable")]
    place = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[place < wanted[labels[order]]])


Job = TypeVar("Job")


Fit = TypeVar("Fit")


def fit_all(fit: Callable[[Job], Fit], jobs: Iterable[Job]) -> list[Fit]:
    """``fit(job)`` of every job, in their order.

    Nothing is said of what a split lacks: it is in the table, not news. Libraries of linear
    algebra start no threads of their own meanwhile. Their limit is one for the whole process, and
    each k-means sets it and puts it back, so it is set here before the first and until the last.
    """
    from threadpoolctl import threadpool_limits

    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):
        warnings.simplefilter("ignore", EvencoverWarning)
        return list(map_on_threads(fit, jobs))
