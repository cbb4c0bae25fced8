"""What is seen of a block of rows: whether labels were covered, and how large the sets are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evencover._types import Array, FloatArray, IntArray
from evencover.data.fingerprint import Fingerprint
from evencover.data.source import Block
from evencover.predictors.base import BasePredictor
from evencover.predictors.rule import Rule
from evencover.quantiles import conformal_ranks


class Urn(NamedTuple):
    """Where a class's calibration scores lie: the `ranks`-th smallest of `counts` is the limit.

    The rank is CLASSWISE's, or the last score's where there are too few for it. It does not depend
    on the scores, which makes the chance of a new score to be within exact, whatever the method.
    The rank of the method's own threshold would depend on them, and its urn would have no law.
    """

    ranks: IntArray
    counts: IntArray
    limits: FloatArray

    @classmethod
    def of(cls, predictor: BasePredictor) -> Urn | None:
        """The urns of the classes; None if the predictor keeps no calibration rows."""
        own = predictor.own_scores()
        if own is None:
            return None
        ranks = np.minimum(conformal_ranks(own.counts, predictor.alpha), own.counts)
        return cls(ranks, own.counts, own.at_ranks(ranks))


class Seen(NamedTuple):
    """Of a block: by class, rows, covered rows and rows within the urn's limit; and the sets."""

    rows: IntArray
    covered: IntArray
    within: IntArray
    sizes: IntArray
    top_classes: IntArray


@dataclass(frozen=True)
class Watching:
    """Counts a block of labelled rows."""

    rule: Rule
    urn: Urn | None

    def __call__(self, block: Block, ids: Array | None) -> Seen:
        """One look at the sets, one at the scores."""
        assert block.labels is not None
        labels, n_classes = block.labels, block.rows.shape[1]
        sizes, is_covered, top_classes = self.rule.coverage(block, ids)
        rows = np.bincount(labels, minlength=n_classes)
        covered = np.bincount(labels[is_covered], minlength=n_classes)
        within = np.zeros_like(rows)
        if self.urn is not None:
            scores = self.rule.scoring.true_labels(block, ids)
            within = np.bincount(labels[scores <= self.urn.limits[labels]], minlength=n_classes)
        return Seen(rows, covered, within, sizes, top_classes)


@dataclass(frozen=True)
class Observing:
    """Counts a block without labels: sizes (n,) and most probable classes (n,) of its sets.

    The fingerprint tells the rows from others, the most probable classes standing for labels.
    """

    rule: Rule

    def __call__(self, block: Block, ids: Array | None) -> tuple[IntArray, IntArray, Fingerprint]:
        """One look at the sets."""
        tops = block.rows.argmax(axis=1)
        mark = Fingerprint.of(block.start, block.rows, tops, is_first=block.start == 0)
        return self.rule.sets(block, ids).sizes, tops, mark
