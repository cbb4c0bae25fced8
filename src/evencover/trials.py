"""Many calibrations tried on the same rows: true-label scores once, all set sizes in one pass.

Every method learns from the true labels' scores alone, and coverage needs nothing more. Only the
sizes of the sets need the rows again, and one pass counts them for every trial at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evencover import _kernels
from evencover._kernels.limit_table import LimitTable
from evencover._validation import Array, FloatArray, InputError, IntArray, raise_bad_row
from evencover.data.source import Block, IterableSource, Source
from evencover.engine import map_blocks
from evencover.evaluation import Tally
from evencover.predictors import BasePredictor
from evencover.quantiles import Thresholds
from evencover.randomness import Use, places, uniforms
from evencover.scores import Score


class Trial(NamedTuple):
    """A predictor calibrated on some rows, to be tested on others (``is_test``, (N,))."""

    score: Score
    predictor: BasePredictor
    is_test: Array

    @property
    def thresholds(self) -> Thresholds:
        """What the predictor learnt."""
        fitted = self.predictor
        return Thresholds(fitted.thresholds_, fitted.lower_thresholds_, fitted.upper_probability_)


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
    known
        `arrays` of the same rows and scores from an earlier reading; then nothing is read.

    Attributes
    ----------
    labels
        (N,) true classes.
    true_scores
        For each score, the scores of the true labels (N,).
    """

    labels: IntArray
    true_scores: dict[Score, FloatArray]

    def __init__(
        self,
        source: Source,
        scores: Sequence[Score],
        *,
        from_logits: bool,
        temperature: float,
        random_state: int,
        known: dict[str, Array] | None = None,
    ) -> None:
        if isinstance(source, IterableSource):
            raise InputError(
                "The rows are read twice. Got an iterator, which can be read once; "
                "pass an array or the path of a file."
            )
        if not source.has_labels:
            raise InputError(f"Labels are needed. Got none with {source.name}; pass 'labels'.")
        self.source = source
        self.logits = from_logits if source.logits is None else source.logits
        self.temperature, self.random_state = temperature, random_state
        arrays = self._read(scores) if known is None else known
        self.labels = arrays["labels"]
        self.true_scores = {score: arrays[f"score_{i}"] for i, score in enumerate(scores)}

    @property
    def arrays(self) -> dict[str, Array]:
        """All that was read, by names that a file can hold."""
        scores = {f"score_{i}": values for i, values in enumerate(self.true_scores.values())}
        return {"labels": self.labels, **scores}

    def calibrate(self, predictor: BasePredictor, score: Score, rows: IntArray) -> None:
        """Fit a predictor on some of the rows."""
        predictor.fit_scores(
            self.true_scores[score][rows], self.labels[rows], self.source.n_classes, ids=rows
        )

    def tally(self, trials: Sequence[Trial]) -> list[Tally]:
        """Count coverage and set sizes of every trial on its test rows."""
        covered = self._class_tallies(trials)
        sizes = self._size_counts(trials, covered)
        return [Tally(*pair, counts) for pair, counts in zip(covered, sizes, strict=True)]

    # ---- coverage: from the true labels' scores, all rows at once ----------------------------

    def _class_tallies(self, trials: Sequence[Trial]) -> list[tuple[IntArray, IntArray]]:
        """Test rows, and those covered, by class (K,) for each trial."""
        by_class = RowsByClass(self.labels, self.source.n_classes)
        coin = by_class.arrange(uniforms(self.random_state, Use.EXACT, places(0, len(self.labels))))
        scores = {score: by_class.arrange(self.true_scores[score]) for score, _, _ in trials}
        # Trials on the same split share its array.
        tests = {id(trial.is_test): by_class.arrange(trial.is_test) for trial in trials}
        n_tests = {key: by_class.sums(is_test) for key, is_test in tests.items()}

        def count(trial: Trial) -> tuple[IntArray, IntArray]:
            covered = by_class.covered(scores[trial.score], trial.thresholds, coin)
            split = id(trial.is_test)
            return n_tests[split].copy(), by_class.sums(covered & tests[split])

        return list(map_blocks(count, trials))

    # ---- sizes: one pass over the rows for all trials ----------------------------------------

    def _size_counts(
        self, trials: Sequence[Trial], class_tallies: list[tuple[IntArray, IntArray]]
    ) -> Array:
        """How many test rows have a set of each size (number of trials, K + 1).

        Where a trial gives empty sets their most probable class, coverage is mended.
        """
        n_classes = self.source.n_classes
        split_of = {id(trial.is_test): trial.is_test for trial in trials}
        place_of = {key: place for place, key in enumerate(split_of)}
        is_test = np.stack(list(split_of.values()))
        passes = [
            SizePass(score, own, trials, [place_of[id(trials[place].is_test)] for place in own])
            for score in dict.fromkeys(trial.score for trial in trials)
            for own in [[p for p, trial in enumerate(trials) if trial.score == score]]
        ]
        totals = np.zeros((len(trials), n_classes + 1), dtype=np.int64)

        def count(block: Block) -> list[tuple[IntArray, list[tuple[int, IntArray]]]]:
            rows = slice(block.start, block.start + len(block.rows))
            return [self._count_sizes(each, block, is_test[:, rows]) for each in passes]

        for results in map_blocks(count, self.source.blocks()):
            for each, (counts, mended) in zip(passes, results, strict=True):
                totals[each.places] += counts
                for place, labels in mended:
                    np.add.at(class_tallies[place][1], labels, 1)
        return totals

    def _count_sizes(
        self, each: SizePass, block: Block, is_test: Array
    ) -> tuple[IntArray, list[tuple[int, IntArray]]]:
        """Counts of sizes for one score's trials; the labels that mended empty sets cover."""
        ids = places(block.start, block.start + len(block.rows))
        u = each.score.row_uniforms(self.random_state, ids)
        coin = uniforms(self.random_state, Use.EXACT, ids)
        options = {"logits": self.logits, "temperature": self.temperature}
        sizes = np.concatenate(
            [
                _kernels.set_sizes(each.score, block.rows, u, table, coin, **options)[0]  # type: ignore[arg-type]
                for table in each.tables
            ],
            axis=1,
        )
        tested, mended = is_test[each.split_of_trial].T, []
        for column in each.never_empty:
            empty = sizes[:, column] == 0
            sizes[empty, column] = 1
            rows = np.flatnonzero(empty & tested[:, column])
            labels = self.labels[block.start + rows]
            top_is_true = block.rows[rows].argmax(axis=1) == labels
            mended.append((each.places[column], labels[top_is_true]))
        width = self.source.n_classes + 1
        sizes += np.arange(0, width * sizes.shape[1], width)
        counts = np.bincount(sizes[tested], minlength=width * sizes.shape[1])
        return counts.reshape(-1, width), mended

    # ---- the first reading -------------------------------------------------------------------

    def _read(self, scores: Sequence[Score]) -> dict[str, Array]:
        blocks = self.source.blocks()
        parts = list(map_blocks(lambda block: self._true_scores(block, scores), blocks))
        arrays = {"labels": np.concatenate([labels for labels, _ in parts])}
        for place in range(len(scores)):
            arrays[f"score_{place}"] = np.concatenate([values[place] for _, values in parts])
        return arrays

    def _true_scores(
        self, block: Block, scores: Sequence[Score]
    ) -> tuple[IntArray, list[FloatArray]]:
        assert block.labels is not None
        ids = places(block.start, block.start + len(block.rows))
        values = []
        for score in scores:
            u = score.row_uniforms(self.random_state, ids)
            result, bad = _kernels.true_label_scores(
                score,
                block.rows,
                block.labels,
                u,
                logits=self.logits,
                temperature=self.temperature,
            )
            if bad >= 0:
                raise_bad_row(block.rows[bad], block.start + bad, logits=self.logits)
            values.append(result)
        return block.labels, values


class SizePass:
    """The trials of one score, with their limits arranged for the kernel."""

    def __init__(
        self, score: Score, places: list[int], trials: Sequence[Trial], split_of_trial: list[int]
    ) -> None:
        self.score, self.places = score, places
        self.split_of_trial = np.array(split_of_trial)
        own = [trials[place] for place in places]
        self.tables = LimitTable.parts([trial.thresholds for trial in own])
        self.never_empty = [
            column for column, trial in enumerate(own) if not trial.predictor.allow_empty
        ]


class RowsByClass:
    """Rows in the order of their classes, so that a class's numbers lie side by side."""

    def __init__(self, labels: IntArray, n_classes: int) -> None:
        kind = np.uint16 if n_classes < 2**16 else np.int64  # short ones are sorted by radix
        self._order = np.argsort(labels.astype(kind), kind="stable")
        self._counts = np.bincount(labels, minlength=n_classes)
        self._present = np.flatnonzero(self._counts)
        self._starts = (np.cumsum(self._counts) - self._counts)[self._present]

    def arrange(self, values: Array) -> Array:
        """Values of the rows in that order."""
        return values[self._order]

    def covered(self, scores: FloatArray, thresholds: Thresholds, coin: FloatArray) -> Array:
        """Whether each row's true label is in its set; all in that order."""
        limit = np.repeat(thresholds.upper, self._counts)
        if thresholds.lower is not None and thresholds.upper_probability is not None:
            tails = coin >= np.repeat(thresholds.upper_probability, self._counts)
            limit = np.where(tails, np.repeat(thresholds.lower, self._counts), limit)
        return scores <= limit

    def sums(self, flags: Array) -> IntArray:
        """How many rows of each class (K,) are flagged."""
        result = np.zeros(len(self._counts), dtype=np.int64)
        result[self._present] = np.add.reduceat(flags, self._starts, dtype=np.int64)
        return result
