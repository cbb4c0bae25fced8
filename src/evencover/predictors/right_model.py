"""P(right | predicted class, score): a curve that all classes share, and their own intercepts."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray

N_LIMITS = 100  # quantiles of the scores among which limits are chosen
PRIOR_ROWS = 5.0  # pseudo-count of all classes' scores among those of a class
# The intercepts of classes, their distribution before any class is seen, and what it weighs.
INTERCEPTS = np.arange(-10.0, 11.0)
PRIOR_WEIGHTS = np.exp(-((INTERCEPTS / 1.5) ** 2) / 2)
PRIOR_CLASSES = 2.0
# Normal prior of the curve's constant, slope and bend: few rows must not invent a curve.
CURVE_MEAN = np.array([0.0, 1.0, 0.0])
CURVE_PRECISION = np.array([1e-6, 2.0, 10.0])
N_STEPS = 30


class Predictions(NamedTuple):
    """Predictions of labeled rows (n,): scores, low if confident, classes, and if right."""

    scores: FloatArray
    classes: IntArray
    is_right: Array

    def take(self, rows: Array) -> Predictions:
        """Return some of the predictions."""
        return Predictions(self.scores[rows], self.classes[rows], self.is_right[rows])

    def counts(self, n_classes: int) -> tuple[IntArray, IntArray]:
        """Count the predictions of each class (K,), and those that are right."""
        right = np.bincount(self.classes[self.is_right], minlength=n_classes)
        return np.bincount(self.classes, minlength=n_classes), right


class RightModel:
    """P(right | class c, x) = sigmoid(b0 + b1 x + b2 x^2 + u_c), fitted to predictions.

    x is the normal score of the rank of a score among all scores, because networks report
    probabilities of exactly 1. The intercepts u_c have an unknown distribution on a grid, which is
    estimated too (nonparametric maximum likelihood: Kiefer and Wolfowitz 1956). One normal
    distribution would pull the many clean classes towards the few that are often confused, and so
    expect too little of them.

    ``limits`` (J,) are the quantiles of the scores; ``probabilities`` (R, J) belong to the bins
    that they end. ``row_of_class`` (K,) finds the row of a class; the last row is that of all
    classes without predictions.
    """

    def __init__(self, found: Predictions, n_classes: int) -> None:
        from scipy.special import ndtri

        ordered, n_rows = np.sort(found.scores), len(found.scores)
        ends = ordered[(np.arange(1, N_LIMITS + 1) * n_rows) // N_LIMITS - 1] if n_rows else ordered
        self.limits = np.unique(ends)
        self.bins = np.searchsorted(self.limits, found.scores)
        n_bins = len(self.limits)
        self.shares = np.bincount(self.bins, minlength=n_bins) / max(1, n_rows)
        middle = np.cumsum(self.shares) - self.shares / 2
        self.x = ndtri(1 - np.clip(middle, 1e-4, 1 - 1e-4))
        known, rows = np.unique(found.classes, return_inverse=True)
        self.row_of_class = np.full(n_classes, len(known))
        self.row_of_class[known] = np.arange(len(known))
        cells, shape = rows * n_bins + self.bins, (len(known), n_bins)
        n_cells = len(known) * n_bins
        self.counts = np.bincount(cells, minlength=n_cells).reshape(shape).astype(np.float64)
        self.right = np.bincount(cells, found.is_right, n_cells).reshape(shape)
        with _linear_algebra().limit(limits=1):
            self._fit()

    def _fit(self) -> None:
        """Maximize the penalized likelihood by EM, with one Newton step for the curve in each."""
        from scipy.special import expit, log_expit, logit

        features = np.stack([np.ones_like(self.x), self.x, self.x**2])
        wrong = self.counts - self.right
        prior = PRIOR_WEIGHTS / PRIOR_WEIGHTS.sum()
        distribution, shares = prior, np.empty((0, len(prior)))
        curve = CURVE_MEAN.copy()
        curve[0] = logit((self.right.sum() + 1) / (self.counts.sum() + 2))
        for _ in range(N_STEPS):
            logits = curve @ features + INTERCEPTS[:, None]
            fits = self.right @ log_expit(logits).T + wrong @ log_expit(-logits).T
            shares = _normalized(np.exp(fits - fits.max(axis=1, keepdims=True)) * distribution)
            distribution = _normalized(shares.sum(axis=0) + PRIOR_CLASSES * prior)
            p, counts = expit(logits), shares.T @ self.counts
            slope = features @ (shares.T @ self.right - counts * p).sum(axis=0)
            slope -= CURVE_PRECISION * (curve - CURVE_MEAN)
            information = (features * (counts * p * (1 - p)).sum(axis=0)) @ features.T
            step = np.linalg.solve(information + np.diag(CURVE_PRECISION), slope)
            curve = curve + np.clip(step, -1, 1)
        logits = curve @ features + INTERCEPTS[:, None]
        # The mean of P(right) over the slope and the bend, of which few rows know little: of normal
        # logits (MacKay 1992), with the information that is left without intercepts (Louis 1982).
        x = features[1:]
        gradients = np.stack([(self.right @ f)[:, None] - self.counts @ (p * f).T for f in x])
        gradients -= (shares * gradients).sum(axis=2, keepdims=True)
        lost = (shares * gradients).reshape(2, -1) @ gradients.reshape(2, -1).T
        covariance = np.linalg.inv((information + np.diag(CURVE_PRECISION))[1:, 1:] - lost)
        variance = np.maximum((covariance @ x * x).sum(axis=0), 0.0)
        logits /= np.sqrt(1 + np.pi * variance / 8)
        # More confident predictions are not less often right, so curves fall from the first limit.
        self.curves = np.maximum.accumulate(expit(logits)[:, ::-1], axis=1)[:, ::-1]
        self.intercept_shares = np.vstack([shares, distribution])
        self.probabilities = self.intercept_shares @ self.curves

    @cached_property
    def weights(self) -> FloatArray:
        """The predictions of a class in each bin (R, J), with the prior's."""
        of_none = np.zeros((1, len(self.limits)))
        return np.vstack([self.counts, of_none]) + PRIOR_ROWS * self.shares

    @cached_property
    def accuracies(self) -> FloatArray:
        """The accuracy (R, J) of a class's predictions up to each limit."""
        right = np.cumsum(self.weights * self.probabilities, axis=1)
        return right / np.cumsum(self.weights, axis=1)

    def accuracies_within(self, limits: FloatArray) -> FloatArray:
        """Return the accuracy of each class (K,) up to one of the limits; NaN for none."""
        last = np.maximum(np.searchsorted(self.limits, limits, side="right") - 1, 0)
        return np.where(limits > -np.inf, self.accuracies[self.row_of_class, last], np.nan)

    def limits_at(self, level: float) -> FloatArray:
        """Return the largest limit of each class (K,) with at least this accuracy; -inf if none."""
        return self._last(self.accuracies >= level)

    def limits_above(self, probability: float) -> FloatArray:
        """Return the largest limit (K,) up to which each prediction is as probably right."""
        return self._last(self.probabilities >= probability)

    def _last(self, reaches: Array) -> FloatArray:
        counts = reaches.sum(axis=1)  # each row is true up to a limit
        return np.append(self.limits, -np.inf)[counts - 1][self.row_of_class]

    def chances(self, scores: FloatArray, classes: IntArray) -> FloatArray:
        """Return P(right) of predictions (n,) that are within the limits."""
        bins = np.searchsorted(self.limits, scores)
        found: FloatArray = self.probabilities[self.row_of_class[classes], bins]
        return found


@cache
def _linear_algebra() -> Any:
    """Find NumPy's, whose sums depend on the number of its threads. One is faster for few rows."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _normalized(weights: FloatArray) -> FloatArray:
    normalized: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return normalized
