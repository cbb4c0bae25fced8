"""Many calibrations tried on the same rows: true-label scores once, all set sizes in one pass.

Every method learns from the true labels' scores alone, and coverage needs nothing more. Only the
sizes of the sets need the rows again, and one pass counts them for every trial at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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
        """What the predictor learnt, as limits of the base score."""
        return self.predictor.score_.base_thresholds(self.predictor.limits_)


class ScoredRows:
    """Labelled rows with the scores of their true labels.

    Attributes
    ----------
    labels
        (N,) true classes.
    true_scores
        For each score, the base scores of the true labels (N,).
    true_ranks
        Their ranks (N,); empty unless asked for.
    """

    labels: IntArray
    true_scores: dict[Score, FloatArray]
    true_ranks: IntArray

    def __init__(
        self,
        source: Source,
        scores: Sequence[Score],
        *,
        from_logits: bool,
        temperature: float,
        random_state: int,
        with_ranks: bool = False,
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
        bases = list(dict.fromkeys(score.base for score in scores))
        parts = list(
            map_blocks(lambda block: self._true_labels(block, bases, with_ranks), source.blocks())
        )
        self.labels, self.true_ranks, *columns = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        base_scores = dict(zip(bases, columns, strict=True))
        self.true_scores = {score: base_scores[score.base] for score in scores}

    def calibrate(self, predictor: BasePredictor, score: Score, rows: IntArray) -> None:
        """Fit a predictor on some of the rows."""
        labels, n_classes = self.labels[rows], self.source.n_classes
        known = score.known(np.bincount(labels, minlength=n_classes))
        scores = known.from_base(self.true_scores[score][rows], labels)
        more: dict[str, Any] = {"ranks": self.true_ranks[rows]} if predictor.needs_ranks else {}
        predictor.fit_scores(scores, labels, n_classes, ids=rows, **more)

    def tally(self, trials: Sequence[Trial]) -> list[Tally]:
        """Count coverage and set sizes of every trial on its test rows."""
        limits = [trial.thresholds for trial in trials]
        totals = [Tally.zeros(self.source.n_classes) for _ in trials]
        for parts in map_blocks(
            lambda block: self._tallies(block, trials, limits), self.source.blocks()
        ):
            totals = [total + part for total, part in zip(totals, parts, strict=True)]
        return totals

    def _true_labels(
        self, block: Block, bases: Sequence[Score], with_ranks: bool
    ) -> tuple[Array, ...]:
        """The labels of a block, their ranks (none unless asked for), and their scores."""
        assert block.labels is not None
        ids = places(block.start, block.start + len(block.rows))
        options: Any = {"logits": self.logits, "temperature": self.temperature}
        values = []
        for base in bases:
            u = base.row_uniforms(self.random_state, ids)
            result, bad = _kernels.true_label_scores(base, block.rows, block.labels, u, **options)
            if bad >= 0:
                row = block.start + bad
                place = self.source.place(row)
                raise_bad_row(block.rows[bad], row, logits=self.logits, place=place)
            values.append(result)
        ranks = np.empty(0, dtype=np.int64)
        if with_ranks:
            ranks, _ = _kernels.true_label_ranks(block.rows, block.labels, **options)
        return block.labels, ranks, *values

    def _tallies(
        self, block: Block, trials: Sequence[Trial], limits: Sequence[Thresholds]
    ) -> list[Tally]:
        rows = slice(block.start, block.start + len(block.rows))
        ids = places(rows.start, rows.stop)
        coin = uniforms(self.random_state, Use.EXACT, ids)
        labels, n_classes = self.labels[rows], self.source.n_classes
        top_is_true = block.rows.argmax(axis=1) == labels
        result: dict[int, Tally] = {}
        for base, true_scores in {s.base: v for s, v in self.true_scores.items()}.items():
            own = [place for place, trial in enumerate(trials) if trial.score.base == base]
            if not own:
                continue
            sizes, _ = _kernels.set_sizes(
                base,
                block.rows,
                base.row_uniforms(self.random_state, ids),
                [limits[place] for place in own],
                coin,
                logits=self.logits,
                temperature=self.temperature,
            )
            for column, place in enumerate(own):
                trial, size = trials[place], sizes[:, column]
                covered = _covered(true_scores[rows], labels, limits[place], coin)
                if (rank_limit := limits[place].rank_limit) is not None:
                    covered &= self.true_ranks[rows] <= rank_limit[labels]
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
