"""In which order, and with what beside them, the classes of each set are listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from evencover._kernels.reference_rows import probabilities as probabilities_of
from evencover._types import Array, FloatArray, IntArray
from evencover._validation import flag, raise_unknown, whole_number
from evencover.data.source import Block
from evencover.engine.blocks import map_source
from evencover.predictors.base import BasePredictor
from evencover.predictors.matching import like_calibration
from evencover.predictors.rule import Rule
from evencover.sets import PredictionSets
from evencover.taxonomy import MOST_PARTS, Taxonomy

Order = Literal["probability", "index"]
ORDERS = ("probability", "index")
SLICE_ELEMENTS = 1 << 18  # logits become probabilities a few rows at a time


@dataclass(frozen=True)
class Listed:
    """The sets of some rows as they are written.

    Parameters
    ----------
    sizes
        (n,) how many classes each set has.
    counts
        (n,) how many of them are listed.
    classes
        The listed class indices of all rows, one row after the other.
    n_classes
        The number of classes K.
    probabilities
        The probability of each listed class, if that is wanted.
    summaries
        Each whole set in the words of a taxonomy, if there is one.
    """

    sizes: IntArray
    counts: IntArray
    classes: Array
    n_classes: int
    probabilities: FloatArray | None = None
    summaries: list[str] | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def of_sets(cls, sets: PredictionSets) -> Listed:
        """All classes, in the order in which the sets hold them."""
        return cls(sets.sizes, sets.sizes, sets.indices, sets.n_classes)

    @classmethod
    def concatenate(cls, parts: Iterable[Listed]) -> Listed:
        """Rows of all parts, one part after the other."""
        parts = list(parts)
        values = [part.probabilities for part in parts if part.probabilities is not None]
        return cls(
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.classes for part in parts]),
            parts[0].n_classes,
            np.concatenate(values) if values else None,
            None
            if parts[0].summaries is None
            else [text for part in parts for text in part.summaries or ()],
        )


@dataclass(frozen=True)
class Listing:
    """How the classes of a set are listed.

    Parameters
    ----------
    order
        "probability": the most probable first, equal ones by class index; or "index".
    with_probabilities
        Whether each class comes with its probability.
    top
        List at most this many classes of a set, the most probable ones; None lists all.
    taxonomy, parts
        Beside the classes, write the smallest nodes of this tree that cover the whole set, at
        most this many.
    """

    order: Order = "probability"
    with_probabilities: bool = False
    top: int | None = None
    taxonomy: Taxonomy | None = None
    parts: int = MOST_PARTS

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise_unknown("order", self.order, ORDERS)
        flag(self.with_probabilities, "with_probabilities", "predict")
        if self.top is not None:
            whole_number(self.top, "top", "predict", 1)
        whole_number(self.parts, "parts", "predict", 1)

    def blocks(
        self,
        predictor: BasePredictor,
        probabilities: Any,
        *,
        ids: Any = None,
        groups: Any = None,
        executor: Any = None,
    ) -> Iterator[Listed]:
        """The listed sets as a stream; parameters are those of `predict_set_blocks`."""
        source = like_calibration(predictor, probabilities)
        listed = RuleAndListing(predictor.rule(logits=source.logits, groups=groups), self)
        return map_source(source, ids, listed, Listed.concatenate, executor)


@dataclass(frozen=True)
class RuleAndListing:
    """Turns a block of rows and their ids into listed sets; it travels to workers."""

    rule: Rule
    listing: Listing

    def __call__(self, block: Block, ids: Array | None = None) -> Listed:
        """The sets of the block, listed while its numbers are at hand."""
        sets, tree = self.rule.sets(block, ids), self.listing.taxonomy
        listed = self._listed(block, sets)
        if tree is None:
            return listed
        return replace(listed, summaries=tree.describe_sets(sets, self.listing.parts))

    def _listed(self, block: Block, sets: PredictionSets) -> Listed:
        listing = self.listing
        if (listing.order, listing.with_probabilities, listing.top) == ("probability", False, None):
            return Listed.of_sets(sets)
        sizes, classes = sets.sizes, sets.indices
        rows = np.repeat(np.arange(len(sizes)), sizes)
        counts = sizes if listing.top is None else np.minimum(sizes, listing.top)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        is_listed = place < counts[rows]
        rows, classes = rows[is_listed], classes[is_listed]
        if listing.order == "index":
            classes = classes[np.lexsort((classes, rows))]
        values = None
        if listing.with_probabilities:
            values = self._probabilities(block.rows, rows, classes)
        return Listed(sizes, counts, classes, sets.n_classes, values)

    def _probabilities(self, numbers: Array, rows: IntArray, classes: Array) -> FloatArray:
        """The probabilities of these classes in these rows, which ascend."""
        scoring = self.rule.scoring
        if not scoring.logits:
            return numbers[rows, classes].astype(np.float64)
        values = np.empty(len(rows))
        step = max(1, SLICE_ELEMENTS // numbers.shape[1])
        for start in range(0, len(numbers), step):
            own = slice(*np.searchsorted(rows, [start, start + step]))
            p = probabilities_of(numbers[start : start + step], **scoring.options)
            values[own] = p[rows[own] - start, classes[own]]
        return values
