"""The one pass over the test rows that the page is made from, here or on other workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evencover._validation import Array, FloatArray, IntArray, plain_array
from evencover.data.source import Block
from evencover.engine.blocks import fold_source
from evencover.evaluation.confusions import Confusions
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.tally import Tally
from evencover.predictors.base import BasePredictor
from evencover.predictors.matching import (
    like_calibration,
    require_labels,
)
from evencover.predictors.rule import Rule
from evencover.predictors.unlike import ScoreBins
from evencover.report.examples import Example, Examples
from evencover.report.groups import score_bins
from evencover.sets import PredictionSets
from evencover.taxonomy import Taxonomy


class Gathered(NamedTuple):
    """What one pass over the test rows leaves behind.

    ``histogram`` (K, B) counts the scores of each class's rows by `score_bins`;
    ``covered_by_size`` (K + 1,) counts covered rows by their set's size.
    """

    report: CoverageReport
    histogram: IntArray
    covered_by_size: IntArray
    examples: Examples


class BlockView(NamedTuple):
    """A block and what was found out about its rows."""

    block: Block
    sets: PredictionSets
    is_covered: Array
    top_classes: IntArray
    bins: IntArray
    scores_by_bin: IntArray
    names: Array | None
    temperature: float | None


class Seen(NamedTuple):
    """What is kept of consecutive rows; as in `Gathered`, and all scores by `ScoreBins`."""

    tally: Tally
    confusions: Confusions
    histogram: IntArray
    covered_by_size: IntArray
    scores_by_bin: IntArray
    examples: list[Example]


@dataclass(frozen=True)
class Look:
    """Looks at one block: ``edges`` bound the bins of scores, ``names`` are the user's row ids.

    ``calibration_edges`` are those of the predictor's `ScoreBins`; none, if it keeps none.
    """

    rule: Rule
    edges: FloatArray
    calibration_edges: FloatArray
    names: Array | None

    def __call__(self, block: Block, ids: Array | None) -> BlockView:
        """All that takes time; blocks may be looked at side by side."""
        assert block.labels is not None
        scoring = self.rule.scoring
        scores = scoring.score.from_base(scoring.true_labels(block, ids), block.labels)
        sets = self.rule.sets(block, ids)
        own = slice(block.start, block.start + len(block.rows))
        return BlockView(
            block,
            sets,
            sets.contains(block.labels),
            block.rows.argmax(axis=1),
            np.searchsorted(self.edges[1:-1], scores, side="left"),
            ScoreBins.histogram(self.calibration_edges, scores),
            None if self.names is None else self.names[own],
            scoring.temperature if scoring.logits else None,
        )


@dataclass(frozen=True)
class Together:
    """Merges views of consecutive blocks, and what was seen in consecutive parts."""

    n_classes: int
    n_bins: int
    taxonomy: Taxonomy | None = None

    def __call__(self, parts: Iterable[BlockView | Seen]) -> Seen:
        """One after the other: only rows that may still be shown become examples."""
        tally, confusions = Tally.zeros(self.n_classes), [Confusions.none(self.n_classes)]
        histogram = np.zeros((self.n_classes, self.n_bins), dtype=np.int64)
        covered_by_size = np.zeros(self.n_classes + 1, dtype=np.int64)
        scores_by_bin = np.zeros(1, dtype=np.int64)
        examples = Examples(self.n_classes, self.taxonomy)
        for part in parts:
            scores_by_bin = scores_by_bin + part.scores_by_bin
            if isinstance(part, Seen):
                tally = tally + part.tally
                confusions.append(part.confusions)
                histogram += part.histogram
                covered_by_size += part.covered_by_size
                examples.take(part.examples)
                continue
            labels, sizes = part.block.labels, part.sets.sizes
            assert labels is not None
            tally = tally + Tally.of_rows(labels, part.is_covered, sizes, self.n_classes)
            confusions.append(Confusions.of(labels, part.top_classes, self.n_classes))
            np.add.at(histogram, (labels, part.bins), 1)
            np.add.at(covered_by_size, sizes[part.is_covered], 1)
            examples.take(
                examples.among(part.block, part.sets, part.is_covered, part.names, part.temperature)
            )
            if len(confusions) == 256:  # memory must not grow with the number of rows
                confusions = [Confusions.total(confusions)]
        together = Confusions.total(confusions)
        return Seen(
            tally,
            together,
            histogram,
            covered_by_size,
            scores_by_bin,
            examples.in_order(),
        )


def gather(
    predictor: BasePredictor,
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    groups: Any = None,
    executor: Any = None,
    taxonomy: Any = None,
) -> Gathered:
    """Read labelled rows once, in blocks, and keep only what the page needs."""
    source = like_calibration(predictor, probabilities, labels)
    tree = None if taxonomy is None else Taxonomy.read(taxonomy, source.class_names)
    require_labels(source, "A report")
    n_classes, edges = predictor.n_classes_, score_bins(predictor).edges
    names = None if ids is None else plain_array(ids)
    known = np.zeros(0) if predictor.score_edges_ is None else predictor.score_edges_
    look: Any = Look(predictor.rule(logits=source.logits, groups=groups), edges, known, names)
    together = Together(n_classes, len(edges) - 1, tree)
    seen: Seen = fold_source(source, ids, look, together, most_confused, executor)
    report = predictor.coverage_report(source, seen.tally, seen.confusions, seen.scores_by_bin)
    examples = Examples(n_classes)
    examples.take(seen.examples)
    return Gathered(report, seen.histogram, seen.covered_by_size, examples)


def most_confused(seen: Seen) -> Seen:
    """Only the confusions that are shown."""
    return seen._replace(confusions=seen.confusions.most_frequent())
