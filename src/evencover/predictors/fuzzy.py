"""FUZZY: every class borrows scores from classes of similar frequency."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import floor
from typing import ClassVar

import numpy as np

from evencover.arrays import FloatArray, IntArray
from evencover.predictors.base import BasePredictor
from evencover.predictors.fitting import CalibrationRows
from evencover.predictors.state import kept
from evencover.quantiles import Alpha, GroupedScores, Thresholds, exact_fraction
from evencover.scores import make_score
from evencover.validation import OPEN_SHARE, Check, real_number, unless

# Classes whose weights are held at once, and bins that locate a quantile before it is counted.
CLASSES_AT_ONCE, N_BINS = 256, 256


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyPredictor(BasePredictor):
    """Fuzzy classwise prediction (Ding, Fermanian, Salmon 2025): a weighted quantile per class.

    Sort classes by their number of rows (ties by index) and space them from 0 to 1. For class y, a
    row of class z has the weight exp(-(distance / h_y)^2 / 2), h_y = bandwidth / sqrt(n_y + 1), so
    frequent classes rely on their own data. The limit l_y is the weighted 1 - alpha quantile of
    all scores, with a row at infinity of weight 1, or the score's maximum if that is infinite. The
    threshold is q_y = l_y + offset. The offset is the conformal quantile of s_i - l_(y_i) over
    held-out rows, which restores marginal coverage.

    Guarantee: marginal coverage P(Y in C(X)) >= 1 - alpha for exchangeable rows, exact in finite
    samples; equality with ``exact=True`` and distinct scores. No class has a guarantee. The authors
    order equally frequent classes at random and use a variance of bandwidth / (n_y + 1).

    A p-value counts held-out rows with s_i - l_(y_i) >= s - l_y. It is valid at every level.

    Parameters
    ----------
    bandwidth
        Standard deviation of the kernel for a class without rows, as a fraction of all classes. 0
        approaches CLASSWISE, infinity STANDARD on the held-out rows.
    holdout
        Fraction of held-out rows, in (0, 1).
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        As for every predictor.

    Attributes
    ----------
    class_limits_
        (K,) l_y.
    """

    bandwidth: float = 0.03
    holdout: float = 0.2

    method: ClassVar[str] = "fuzzy"
    summary: ClassVar[str] = "each class borrows from classes of similar frequency"
    guarantee: ClassVar[str] = (
        "Coverage of 1 - alpha is guaranteed on average over all examples; no single class has a "
        "guarantee."
    )
    cause: ClassVar[str] = (
        "Each class borrows from classes of similar frequency, which may be easier."
    )
    missing_class_note: ClassVar[str] = "they borrow from the rarest classes"
    constraints: ClassVar[dict[str, Check]] = {
        "bandwidth": unless((np.inf,), partial(real_number, low=0, open_low=True)),
        "holdout": OPEN_SHARE,
    }
    class_limits_: FloatArray = kept(float, "K")
    held_out_: FloatArray = kept(float, "?")

    def _calibrate(self, rows: CalibrationRows) -> Thresholds:
        n_held_out = floor(exact_fraction(self.holdout, name="holdout") * self.n_calibration_)
        held_out, learning = rows.split(n_held_out, self.random_state)
        alpha = self.class_alpha.typical
        limits = weighted_quantiles(
            learning.scores, learning.labels, self.n_classes_, self.bandwidth, alpha
        )
        self.class_limits_ = np.minimum(limits, make_score(self.score).maximum(self.n_classes_))
        self.held_out_ = np.sort(held_out.scores - self.class_limits_[held_out.labels])
        offsets = GroupedScores.one(self.held_out_).thresholds(
            alpha, exact=self.exact, random_state=self.random_state
        )
        offsets = offsets.of_classes(np.zeros(self.n_classes_, dtype=np.int64))
        lower = None if offsets.lower is None else largest_within(self.class_limits_, offsets.lower)
        return offsets._replace(
            upper=largest_within(self.class_limits_, offsets.upper), lower=lower
        )

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        n, excess = len(self.held_out_), scores - self.class_limits_[classes]
        at_least = n - np.searchsorted(self.held_out_, excess)
        return np.asarray((at_least + own_share[:, None]) / (n + 1.0))

    def _level_rows(self) -> int:
        return len(self.held_out_)


def weighted_quantiles(
    scores: FloatArray, labels: IntArray, n_classes: int, bandwidth: float, alpha: Alpha
) -> FloatArray:
    """Compute each class's quantile at 1 - alpha of all scores, weighted by the kernel (K,)."""
    order = np.lexsort((labels, scores))
    scores, labels = scores[order], labels[order]
    counts = np.bincount(labels, minlength=n_classes)
    edges = np.linspace(0, len(scores), N_BINS + 1).astype(np.int64)  # of bins of equal size
    bins = np.repeat(np.arange(N_BINS), np.diff(edges))
    binned = np.bincount(labels * N_BINS + bins, minlength=n_classes * N_BINS)
    up_to = np.cumsum(binned.reshape(n_classes, N_BINS), axis=1).astype(np.float64)
    level = float(1 - exact_fraction(alpha)) * (1 - 1e-12)  # a sum may be a little short
    result = np.full(n_classes, np.inf)
    for first, weights in _kernel_weights(counts, bandwidth):
        mass = weights @ up_to
        aim = level * (mass[:, -1] + 1)
        for place, bin_of_aim in enumerate((mass < aim[:, None]).sum(axis=1)):
            if bin_of_aim == N_BINS:
                continue
            inside = slice(edges[bin_of_aim], edges[bin_of_aim + 1])
            before = mass[place, bin_of_aim - 1] if bin_of_aim else 0.0
            running = before + np.cumsum(weights[place, labels[inside]])
            step = min(int(np.searchsorted(running, aim[place])), len(running) - 1)
            result[first + place] = scores[inside][step]
    return result


def _kernel_weights(counts: IntArray, bandwidth: float) -> Iterator[tuple[int, FloatArray]]:
    """Yield the weights of rows of each class to some classes at a time."""
    n_classes = len(counts)
    place = np.empty(n_classes)
    place[np.argsort(counts, kind="stable")] = np.arange(n_classes) / n_classes
    for first in range(0, n_classes, CLASSES_AT_ONCE):
        own = slice(first, first + CLASSES_AT_ONCE)
        scale = np.sqrt(counts[own] + 1.0) / bandwidth
        weights = np.exp(-0.5 * ((place[own, None] - place) * scale[:, None]) ** 2)
        yield first, np.where(weights < 1e-30, 0.0, weights)  # subnormal numbers are slow


def largest_within(limits: FloatArray, offsets: FloatArray) -> FloatArray:
    """Find the largest s whose rounded difference s - limit is at most the offset (K,)."""
    near = limits + offsets
    with np.errstate(invalid="ignore"):
        slack = 4 * np.spacing(np.maximum(np.abs(limits), np.abs(offsets)))
        low, high = near - slack, near + slack
        for _ in range(80):  # halves the slack far below any score's last digit
            middle = low + (high - low) / 2
            inside = middle - limits <= offsets
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(np.isinf(offsets), offsets, low)
