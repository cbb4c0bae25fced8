"""Who is in a set: one value that turns a block of rows and their ids into sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evencover import _kernels
from evencover._validation import Array, IntArray
from evencover.data.source import Block
from evencover.evaluation.confusions import Confusions
from evencover.evaluation.tally import Tally
from evencover.predictors.scoring import Scoring, naming_bad_rows
from evencover.quantiles import Thresholds
from evencover.sets import PredictionSets


@dataclass(frozen=True)
class Rule:
    """All that decides whether a class is in the set of a row; made once, used for every block.

    Parameters
    ----------
    scoring
        The score, with what the calibration labels decide filled in, and its options.
    limits
        The largest base score of each class that is in a set, and what else limits it.
    exact
        Whether a coin chooses between two limits.
    allow_empty
        If False, an empty set is given the most probable class.
    class_names
        One per class, or None.
    """

    scoring: Scoring
    limits: Thresholds
    exact: bool
    allow_empty: bool
    class_names: Sequence[str] | None

    def sets(self, block: Block, ids: Array | None = None) -> PredictionSets:
        """The prediction set of each row."""
        with naming_bad_rows(block, logits=self.scoring.logits):
            return self._sets(block, ids)

    def coverage(self, block: Block, ids: Array | None = None) -> tuple[IntArray, Array, IntArray]:
        """Set sizes, whether the sets hold the rows' labels, and the most probable classes."""
        with naming_bad_rows(block, logits=self.scoring.logits):
            return self._coverage(block, ids)

    def tally(self, block: Block, ids: Array | None = None) -> tuple[Tally, Confusions]:
        """The counts that every metric follows from."""
        assert block.labels is not None
        sizes, is_covered, top_classes = self.coverage(block, ids)
        n_classes = block.rows.shape[1]
        return (
            Tally.of_rows(block.labels, is_covered, sizes, n_classes),
            Confusions.of(block.labels, top_classes, n_classes),
        )

    def _sets(self, block: Block, ids: Array | None) -> PredictionSets:
        scoring = self.scoring
        sizes, classes = _kernels.prediction_sets(
            scoring.score.base.kernel,
            block.rows,
            scoring.draws(block, ids, exact=self.exact),
            self.limits,
            allow_empty=self.allow_empty,
            **scoring.options,
        )
        return PredictionSets.from_sizes(sizes, classes, block.rows.shape[1], self.class_names)

    def _coverage(self, block: Block, ids: Array | None) -> tuple[IntArray, Array, IntArray]:
        assert block.labels is not None
        scoring = self.scoring
        return _kernels.set_coverage(
            scoring.score.base.kernel,
            block.rows,
            scoring.draws(block, ids, exact=self.exact),
            block.labels,
            self.limits,
            allow_empty=self.allow_empty,
            **scoring.options,
        )
