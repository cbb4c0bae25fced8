"""Accept or review: which predictions are right often enough to act on without a person.

A prediction is accepted if the probability of its class, the most probable one of the row, reaches
the cutoff of that class. Half of the labeled rows, chosen by their ids, propose the cutoffs, and
the other half tests them (learn, then test: Angelopoulos et al. 2021).

1. P(right | predicted class c, p) = sigmoid(a + b x + u_c), with u_c ~ N(0, s^2) and x the normal
   score of the rank of p among all rows. Ranks, because networks report probabilities of exactly 1;
   random intercepts, because a class with few predictions borrows from the others.
2. For a level L the cutoff of a class is the lowest one at which the mean of P(right | c, p) over
   its accepted predictions is L or more; "never" if there is none.
3. Six levels L between the target accuracy and nearly 1 are tested on the other half: k of n
   accepted predictions are wrong, and P(Binomial(n, 1 - target) <= k) must be at most
   (1 - confidence) / 6. The lowest level that passes is used; if none passes, nothing is accepted.

The cutoffs do not depend on the half that tests them. So, for exchangeable rows, the accuracy among
accepted predictions is at least the target with probability `confidence` over labeled rows, because
any of six false proposals passes with probability at most 1 - confidence. For a single predicted
class the accuracy is a target. It is guaranteed, with the same confidence for one class at a time,
where the class passes the same test (``is_guaranteed``).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import warn_caller
from evencover.randomness import RandomStream, random_order

CONFIDENCE = 0.9
# Levels to test, as shares of the errors that the target accuracy allows.
ERROR_SHARES = (1.0, 0.7, 0.5, 0.35, 0.2, 0.1)
N_CUTOFFS = 100  # quantiles of the top probability among which cutoffs are chosen
PRIOR_ROWS = 5.0  # pseudo-count of all classes' probabilities among those of a class


class Predictions(NamedTuple):
    """Softmax scores 1 - p of predictions of labeled rows (n,), their classes, and if right."""

    scores: FloatArray
    classes: IntArray
    is_right: Array

    def take(self, rows: Array) -> Predictions:
        """Return some of the predictions."""
        return Predictions(self.scores[rows], self.classes[rows], self.is_right[rows])


class Acceptance(NamedTuple):
    """The predictions to accept.

    ``limits`` (K,) are the largest softmax scores 1 - p of accepted predictions of each class, -inf
    for classes that are never accepted. Of the ``n_tested`` (K,) accepted predictions of the
    testing half, ``n_right`` (K,) are right.
    """

    limits: FloatArray
    n_tested: IntArray
    n_right: IntArray
    accuracy: float
    confidence: float

    @property
    def cutoffs(self) -> FloatArray:
        """The smallest accepted probability of each predicted class (K,); +inf for never."""
        return 1 - self.limits

    @property
    def is_guaranteed(self) -> Array:
        """Whether the accuracy among a class's accepted predictions is tested to reach the target.

        With the stated confidence for each class separately (K,).
        """
        return _passes(self.n_tested, self.n_right, self.accuracy, self.confidence)

    def is_accepted(self, classes: IntArray, scores: FloatArray) -> Array:
        """Return whether predictions with these softmax scores (n,) are accepted."""
        return scores <= self.limits[classes]


class RightModel:
    """P(right | predicted class, top probability), with a random intercept per class.

    The top probabilities are binned at their quantiles; ``x`` (J,) are the normal scores of the
    bins and ``probabilities`` (K, J) the model's.
    """

    def __init__(self, found: Predictions, n_classes: int) -> None:
        from scipy.special import ndtri

        ordered = np.sort(found.scores)
        n_rows = len(ordered)
        self.limits = np.unique(ordered[(np.arange(1, N_CUTOFFS + 1) * n_rows) // N_CUTOFFS - 1])
        self.bins = np.searchsorted(self.limits, found.scores)
        self.shares = np.bincount(self.bins, minlength=len(self.limits)) / n_rows
        middle = np.cumsum(self.shares) - self.shares / 2
        self.x = ndtri(1 - np.clip(middle, 1e-4, 1 - 1e-4))
        self.classes, self.n_classes = found.classes, n_classes
        self._fit(found.is_right.astype(np.float64))

    def _fit(self, is_right: FloatArray) -> None:
        """Maximize the penalized likelihood by Newton steps; estimate s^2 by EM between them."""
        from scipy.special import expit

        x, classes, n_classes = self.x[self.bins], self.classes, self.n_classes
        features = np.stack([np.ones(len(x)), x])

        def per_class(values: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(classes, values, n_classes), dtype=np.float64)

        is_known = np.bincount(classes, minlength=n_classes) > 0
        line, intercepts, variance = np.array([0.0, 1.0]), np.zeros(n_classes), 1.0
        for _ in range(75):
            p = expit(line @ features + intercepts[classes])
            weights, residuals = p * (1 - p) + 1e-9, is_right - p
            curvature = per_class(weights) + 1 / variance
            slope = per_class(residuals) - intercepts / variance
            crossed = np.stack([per_class(weights * feature) for feature in features])
            # Solve for the line first, with the intercepts eliminated.
            information = (weights * features) @ features.T - (crossed / curvature) @ crossed.T
            step = features @ residuals - (crossed / curvature) @ slope
            step = np.clip(np.linalg.solve(information + 1e-6 * np.eye(2), step), -2, 2)
            line = line + step
            intercepts = intercepts + np.clip((slope - crossed.T @ step) / curvature, -3, 3)
            variance = float(np.mean((intercepts**2 + 1 / curvature)[is_known]).clip(1e-3, 25))
        spread = np.where(is_known, 1 / curvature, variance)
        centers = line[0] + max(line[1], 0.0) * self.x + intercepts[:, None]
        # The mean of a sigmoid over a normal distribution (MacKay 1992).
        self.probabilities = expit(centers / np.sqrt(1 + np.pi * spread[:, None] / 8))

    @cached_property
    def accuracies(self) -> FloatArray:
        """The accuracy (K, J) of a class's predictions up to each limit, by the model."""
        cells = self.classes * len(self.limits) + self.bins
        weights = np.bincount(cells, minlength=self.probabilities.size).astype(np.float64)
        weights = weights.reshape(self.probabilities.shape) + PRIOR_ROWS * self.shares
        right = np.cumsum(weights * self.probabilities, axis=1)
        return right / np.cumsum(weights, axis=1)

    def limits_at(self, level: float) -> FloatArray:
        """Return the largest limit of each class (K,) with at least this accuracy; -inf if none."""
        reaches = self.accuracies >= level
        last = reaches.shape[1] - 1 - reaches[:, ::-1].argmax(axis=1)
        return np.where(reaches.any(axis=1), self.limits[last], -np.inf)


def fit_acceptance(
    found: Predictions,
    n_classes: int,
    ids: Array,
    *,
    accuracy: float,
    confidence: float = CONFIDENCE,
    random_state: int = 0,
) -> Acceptance:
    """Find which predictions to accept so that their accuracy reaches the target."""
    order = random_order(random_state, RandomStream.ACCEPTANCE, ids)
    half = len(order) // 2
    model = RightModel(found.take(order[:half]), n_classes)
    tested = found.take(order[half:])
    nothing = np.full(n_classes, -np.inf)
    for share in (*ERROR_SHARES, None):
        limits = nothing if share is None else model.limits_at(1 - (1 - accuracy) * share)
        is_accepted = tested.scores <= limits[tested.classes]
        n_right = np.bincount(tested.classes[is_accepted & tested.is_right], minlength=n_classes)
        n_tested = np.bincount(tested.classes[is_accepted], minlength=n_classes)
        if share is None or _passes(n_tested.sum(), n_right.sum(), accuracy, confidence):
            break
    if not n_tested.any():
        warn_caller(
            f"No prediction is accepted: with {len(ids)} rows, no rule is shown to have accuracy "
            f"{accuracy:g} with confidence {confidence:g}. Use more labeled rows, or a lower "
            "accuracy."
        )
    return Acceptance(limits, n_tested, n_right, accuracy, confidence)


def _passes(n_tested: IntArray, n_right: IntArray, accuracy: float, confidence: float) -> Array:
    """Return whether `n_right` of `n_tested` predictions prove the accuracy of one of six rules."""
    from scipy.special import bdtr

    n_wrong = np.asarray(n_tested - n_right, dtype=np.float64)
    chance = bdtr(n_wrong, n_tested, 1 - accuracy)
    return (n_tested > 0) & (chance <= (1 - confidence) / len(ERROR_SHARES))
