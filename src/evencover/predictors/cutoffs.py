"""Cutoffs for every class from reviewed predictions: a class, a score, and whether it is right.

1. `RightModel` gives P(right | class, score) from all reviews. The cutoff of a class is the lowest
   one at which the mean of P(right) over what is kept is 1 - 0.85 (1 - accuracy) or more. Fewer
   errors than allowed, because among a few reviews the best cutoff looks better than it is.
2. A class is guaranteed if its cutoff was tested on reviews of its own that had no part in it. So
   classes with enough reviews give three quarters of them to the test, chosen by a hash before any
   outcome is looked at, and the other reviews propose the cutoff. With k of n kept test reviews
   wrong, the class is guaranteed if P(Binomial(n, 1 - accuracy) <= k) <= 1 - confidence. All other
   cutoffs are estimates, from all reviews.

The reviews must be a random sample of the predictions of each class, fixed beforehand.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.detections import Detections
from evencover.evaluation.statistics import clopper_pearson
from evencover.predictors.acceptance import CONFIDENCE
from evencover.predictors.right_model import Predictions, RightModel
from evencover.randomness import RandomStream, random_order, row_indices
from evencover.validation import OPEN_SHARE

ERROR_SHARE = 0.85
TEST_SHARE = 0.75
INTERVAL = 0.9


class Cutoffs(NamedTuple):
    """Which predictions to keep, one entry per class.

    A prediction is kept if its score is at least the cutoff, +inf for never. Of ``n_reviewed``
    reviews ``n_right`` found the prediction right. ``expected`` is the precision of what is kept by
    the model, which borrows from other classes; NaN where nothing is kept. ``interval`` (K, 2) has
    90% limits of the precision from the kept reviews of the class alone.
    """

    class_names: tuple[str, ...]
    cutoffs: FloatArray
    n_reviewed: IntArray
    n_right: IntArray
    expected: FloatArray
    interval: FloatArray
    is_guaranteed: Array
    accuracy: float
    confidence: float

    def index_of(self, classes: Any) -> IntArray:
        """Return the index of each class name (n,); -1 for a class without reviews."""
        index = {name: k for k, name in enumerate(self.class_names)}
        return np.array([index.get(str(name), -1) for name in classes], dtype=np.int64)

    def is_accepted(self, classes: Any, scores: Any) -> Array:
        """Return whether to keep predictions (n,), given class names; unknown classes never."""
        kept: Array = np.asarray(scores) >= np.append(self.cutoffs, np.inf)[self.index_of(classes)]
        return kept

    def rows(self) -> list[dict[str, Any]]:
        """Return a record per class; ``guaranteed`` is the confidence, or None."""
        columns = {
            "class": self.class_names,
            "cutoff": ["never" if math.isinf(each) else each for each in self.cutoffs.tolist()],
            "reviewed": self.n_reviewed.tolist(),
            "right": self.n_right.tolist(),
            "expected_precision": [None if p != p else p for p in self.expected.tolist()],
            "low": self.interval[:, 0].tolist(),
            "high": self.interval[:, 1].tolist(),
            "guaranteed": [self.confidence if safe else None for safe in self.is_guaranteed],
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def summary(self) -> str:
        """Describe how many classes are kept and guaranteed."""
        n_safe = int(self.is_guaranteed.sum())
        safe = f"{n_safe} are guaranteed, each with confidence {self.confidence:g}, unless results "
        safe += "decided what to review. The other cutoffs are"
        return (
            f"{len(self.cutoffs)} classes, {np.isinf(self.cutoffs).sum()} of them never kept, from "
            f"{self.n_reviewed.sum()} reviews. {safe if n_safe else 'All cutoffs are'} estimates: "
            f"guarantees need {fewest_reviews(self.accuracy, self.confidence)} reviews of a class."
        )


def fit_cutoffs(
    classes: Any,
    scores: Any,
    is_right: Any,
    *,
    accuracy: float = 0.9,
    confidence: float = CONFIDENCE,
    random_state: int = 0,
) -> Cutoffs:
    """Find the cutoff of each class on its scores from a few reviewed predictions.

    Parameters
    ----------
    classes
        (n,) names of the predicted classes.
    scores
        (n,) any number that rises with confidence.
    is_right
        (n,) whether the review found the prediction right: booleans, 1 and 0, or "yes" and "no".
    accuracy
        Target precision of what is kept.
    confidence
        Probability with which a guaranteed class reaches it.

    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random(400)
    >>> names = np.where(rng.random(400) < 0.5, "wren", "robin")
    >>> found = fit_cutoffs(names, scores, rng.random(400) < scores**0.2, accuracy=0.9)
    >>> found.class_names, found.cutoffs.round(1).tolist()
    (('robin', 'wren'), [0.2, 0.2])
    """
    from scipy.special import bdtr

    for name, value in (("accuracy", accuracy), ("confidence", confidence)):
        OPEN_SHARE(value, name, "fit_cutoffs")
    reviews = Detections.of(classes, scores, is_right)
    names, index = np.unique(reviews.classes, return_inverse=True)
    found, n_classes = Predictions(-reviews.scores, index, reviews.is_right), len(names)
    n_reviewed, n_right = found.counts(n_classes)
    aim = 1 - ERROR_SHARE * (1 - accuracy)
    model = RightModel(found, n_classes)
    n_tested = np.floor(TEST_SHARE * n_reviewed)
    n_tested[n_reviewed < fewest_reviews(accuracy, confidence)] = 0
    for_test = _turns(index, random_state, RandomStream.ACCEPTANCE)[1] < n_tested[index]
    proposed = RightModel(found.take(~for_test), n_classes).limits_at(aim)
    n_kept, n_well = found.take(for_test & (found.scores <= proposed[index])).counts(n_classes)
    chances = bdtr((n_kept - n_well).astype(np.float64), n_kept, 1 - accuracy)
    guaranteed = (n_kept > 0) & (chances <= 1 - confidence)
    limits = np.where(guaranteed, proposed, model.limits_at(aim))
    n_kept, n_well = found.take(found.scores <= limits[index]).counts(n_classes)
    return Cutoffs(
        tuple(names.tolist()),
        -limits,
        n_reviewed,
        n_right,
        model.accuracies_within(limits),
        clopper_pearson(n_well, n_kept, INTERVAL),
        guaranteed,
        float(accuracy),
        float(confidence),
    )


def fewest_reviews(accuracy: float, confidence: float) -> int:
    """Return how many reviews a class needs for a guarantee, if all that test it are right.

    >>> fewest_reviews(0.9, 0.9), fewest_reviews(0.95, 0.9)
    (30, 60)
    """
    return math.ceil(math.ceil(math.log(1 - confidence) / math.log(accuracy)) / TEST_SHARE)


def review_order(classes: Any, random_state: int = 0) -> IntArray:
    """Return the rows of all predictions in the order in which to review them.

    Classes take turns, so the first n have a random sample of each class, for any n.
    """
    _, index = np.unique(classes, return_inverse=True)
    order, turns = _turns(index, random_state, RandomStream.REVIEWS)
    return order[np.argsort(turns[order], kind="stable")]


def _turns(classes: IntArray, random_state: int, use: RandomStream) -> tuple[IntArray, IntArray]:
    """Return a random order of rows (n,), and how many of its class precede each row (n,)."""
    order = random_order(random_state, use, row_indices(0, len(classes)))
    counts, turns = np.bincount(classes), np.empty_like(classes)
    in_class = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
    turns[order[np.argsort(classes[order], kind="stable")]] = in_class
    return order, turns
