"""Many calibrations tried on the same rows: true-label scores once, all set sizes in one pass.

Every method learns from the true labels' scores alone, and coverage needs nothing more. Only the
sizes of the sets need the rows again, and one pass counts them for every trial at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evencover import _kernels
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
        parts = list(map_blocks(lambda block: self._true_scores(block, scores), source.blocks()))
        self.labels = np.concatenate([labels for labels, _ in parts])
        self.true_scores = {
            score: np.concatenate([values[place] for _, values in parts])
            for place, score in enumerate(scores)
        }

    def tally(self, trials: Sequence[Trial]) -> list[Tally]:
        """Count coverage and set sizes of every trial on its test rows."""
        totals = [Tally.zeros(self.source.n_classes) for _ in trials]
        for parts in map_blocks(lambda block: self._tallies(block, trials), self.source.blocks()):
            totals = [total + part for total, part in zip(totals, parts, strict=True)]
        return totals

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
                row = block.start + bad
                place = self.source.place(row)
                raise_bad_row(block.rows[bad], row, logits=self.logits, place=place)
            values.append(result)
        return block.labels, values

    def _tallies(self, block: Block, trials: Sequence[Trial]) -> list[Tally]:
        rows = slice(block.start, block.start + len(block.rows))
        ids = places(rows.start, rows.stop)
        coin = uniforms(self.random_state, Use.EXACT, ids)
        labels, n_classes = self.labels[rows], self.source.n_classes
        top_is_true = block.rows.argmax(axis=1) == labels
        result: dict[int, Tally] = {}
        for score, true_scores in self.true_scores.items():
            own = [place for place, trial in enumerate(trials) if trial.score == score]
            if not own:
                continue
            sizes, _ = _kernels.set_sizes(
                score,
                block.rows,
                score.row_uniforms(self.random_state, ids),
                [trials[place].thresholds for place in own],
                coin,
                logits=self.logits,
                temperature=self.temperature,
            )
            for column, place in enumerate(own):
                trial, size = trials[place], sizes[:, column]
                covered = _covered(true_scores[rows], labels, trial.thresholds, coin)
                if not trial.predictor.allow_empty:
                    covered, size = covered | ((size == 0) & top_is_true), np.maximum(size, 1)
                tested = trial.is_test[rows]
                result[place] = Tally(
                    np.bincount(labels[tested], minlength=n_classes),
                    np.bincount(labels[tested & covered], minlength=n_classes),
                    np.bincount(size[tested], minlength=n_classes + 1),
                )
        return [result[place] for place in range(len(trials))]


def _covered(
    scores: FloatArray, labels: IntArray, thresholds: Thresholds, coin: FloatArray
) -> Array:
    """Whether each row's true label is in its set."""
    limit = thresholds.upper[labels]
    if thresholds.lower is not None and thresholds.upper_probability is not None:
        heads = coin < thresholds.upper_probability[labels]
        limit = np.where(heads, limit, thresholds.lower[labels])
    return scores <= limit
