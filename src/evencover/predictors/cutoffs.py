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
from evencover.errors import InputError
from evencover.predictors.acceptance import CONFIDENCE
from evencover.predictors.right_model import INTERCEPTS, Predictions, RightModel
from evencover.randomness import RandomStream, random_order, row_indices
from evencover.validation import real_number

ERROR_SHARE = 0.85
TEST_SHARE = 0.75
INTERVAL = 0.9


class Cutoffs(NamedTuple):
    """Which predictions to keep, one entry per class.

    A prediction is kept if its score is at least the cutoff, +inf for never. ``expected`` is the
    precision of what is kept, by the model, and ``interval`` (K, 2) has its central 90%; NaN where
    nothing is kept. Of ``n_reviewed`` reviews ``n_right`` found the prediction right.
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

    def is_accepted(self, classes: Any, scores: Any) -> Array:
        """Return whether to keep predictions (n,), given class names; unknown classes never."""
        index = {name: k for k, name in enumerate(self.class_names)}
        found = np.array([index.get(str(name), -1) for name in classes], dtype=np.int64)
        kept: Array = np.asarray(scores) >= np.append(self.cutoffs, np.inf)[found]
        return kept


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
        (n,) whether the review found the prediction right.
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
    for name, value in (("accuracy", accuracy), ("confidence", confidence)):
        real_number(value, name, "fit_cutoffs", 0, 1, open_low=True, open_high=True)
    names, index = np.unique(np.array([str(name) for name in classes]), return_inverse=True)
    found = Predictions(
        -np.asarray(scores, dtype=np.float64), index.ravel(), np.asarray(is_right, dtype=bool)
    )
    n_classes = len(names)
    if not len(found.classes) == len(found.scores) == len(found.is_right) > 0:
        raise InputError(
            "The reviews must have a class, a score and an outcome each. Got "
            f"{len(found.classes)}, {len(found.scores)} and {len(found.is_right)}."
        )
    if not np.isfinite(found.scores).all():
        row = int(np.flatnonzero(~np.isfinite(found.scores))[0])
        raise InputError(f"Scores must be finite. Got {-found.scores[row]} in row {row}.")
    aim = 1 - ERROR_SHARE * (1 - accuracy)
    model = RightModel(found, n_classes)
    limits, guaranteed = model.limits_at(aim), np.zeros(n_classes, dtype=bool)
    for_test = _for_test(found.classes, n_classes, accuracy, confidence, random_state)
    if for_test.any():
        proposed = RightModel(found.take(~for_test), n_classes).limits_at(aim)
        guaranteed = _passes(proposed, found.take(for_test), accuracy, confidence)
        limits = np.where(guaranteed, proposed, limits)
    expected, interval = _precision(model, limits)
    return Cutoffs(
        tuple(names.tolist()),
        -limits,
        np.bincount(found.classes, minlength=n_classes),
        np.bincount(found.classes[found.is_right], minlength=n_classes),
        expected,
        interval,
        guaranteed,
        float(accuracy),
        float(confidence),
    )


def fewest_tested(accuracy: float, confidence: float) -> int:
    """Return how many test reviews, all right, show that a class reaches the accuracy.

    >>> fewest_tested(0.9, 0.9), fewest_tested(0.95, 0.9)
    (22, 45)
    """
    return math.ceil(math.log(1 - confidence) / math.log(accuracy))


def _for_test(
    classes: IntArray, n_classes: int, accuracy: float, confidence: float, random_state: int
) -> Array:
    """Choose three quarters of the reviews of each class with enough of them."""
    order = random_order(random_state, RandomStream.ACCEPTANCE, row_indices(0, len(classes)))
    by_class = order[np.argsort(classes[order], kind="stable")]
    counts = np.bincount(classes, minlength=n_classes)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    n_tested = np.floor(TEST_SHARE * counts).astype(np.int64)
    n_tested[n_tested < fewest_tested(accuracy, confidence)] = 0
    chosen = np.zeros(len(classes), dtype=bool)
    chosen[by_class[np.arange(len(classes)) - starts < np.repeat(n_tested, counts)]] = True
    return chosen


def _passes(limits: FloatArray, tested: Predictions, accuracy: float, confidence: float) -> Array:
    """Return which classes (K,) the test shows to reach the accuracy, each by itself."""
    from scipy.special import bdtr

    kept = tested.take(tested.scores <= limits[tested.classes])
    n_kept = np.bincount(kept.classes, minlength=len(limits))
    n_wrong = np.bincount(kept.classes[~kept.is_right], minlength=len(limits))
    chances = bdtr(n_wrong.astype(np.float64), n_kept, 1 - accuracy)
    passes: Array = (n_kept > 0) & (chances <= 1 - confidence)
    return passes


def _precision(model: RightModel, limits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the expected precision of what is kept of each class (K,), and an interval (K, 2)."""
    rows, kept = model.row_of_class, model.limits <= limits[:, None]
    weights = model.weights[rows] * kept
    totals = weights.sum(axis=1)
    precision = np.full((len(limits), len(INTERCEPTS)), np.nan)
    np.divide(weights @ model.curves.T, totals[:, None], out=precision, where=totals[:, None] > 0)
    shares = model.intercept_shares[rows]
    below, low = np.cumsum(shares, axis=1), (1 - INTERVAL) / 2
    ends = [(below >= level).argmax(axis=1) for level in (low, 1 - low)]
    every = np.arange(len(limits))
    return (precision * shares).sum(axis=1), np.stack([precision[every, e] for e in ends], axis=1)
