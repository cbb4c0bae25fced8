"""INTERPOLATED: between CLASSWISE and STANDARD, threshold by threshold (Interp-Q)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.predictors import wording
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import CalibrationRows
from evencover.quantiles import GroupedScores, Thresholds
from evencover.scores import make_score
from evencover.validation import Check, real_number

MANY = 50  # rows, times this, against calibration rows: when to look at all limits of a class


@dataclass(kw_only=True, eq=False, repr=False)
class InterpolatedPredictor(BasePredictor):
    """q_y = tau q_y(CLASSWISE) + (1 - tau) q(STANDARD): Interp-Q of Ding, Fermanian, Salmon (2025).

    The score's maximum replaces an infinite threshold, unless both are infinite or it has all the
    weight. So a class with fewer than 1/alpha - 1 rows is not always included; with the softmax
    score and tau = 0.99 it is included where its probability exceeds about 0.01.

    Guarantee: marginal coverage of at least 1 - 2 alpha, for exchangeable rows, because a score
    above the blend is above one of the two thresholds. tau = 0 is STANDARD and tau = 1 is
    CLASSWISE, with their guarantees. In between, no class has a guarantee.

    A p-value is the level at which y leaves the set; P(p <= a) <= 2 a.

    Parameters
    ----------
    tau
        Weight of the class's own threshold, in [0, 1].
    alpha, score, exact, keep_top, from_logits, random_state
        As for every predictor; ``exact=True`` is rejected, because two ranks are involved.

    >>> p = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]
    >>> InterpolatedPredictor(alpha=0.5, tau=0.5).fit(p, [0, 0, 1]).thresholds_
    array([0.375, 0.25 ])
    """

    tau: float = 0.9

    method: ClassVar[str] = "interpolated"
    summary: ClassVar[str] = "thresholds between those of classwise and standard"
    guarantee: ClassVar[wording.Guarantee | str] = wording.INTERPOLATED_GUARANTEE
    _targets_average: ClassVar[bool] = False  # but at something between
    _supports_exact: ClassVar[bool] = False
    _constraints: ClassVar[dict[str, Check]] = {"tau": partial(real_number, low=0, high=1)}
    _usual_cause: ClassVar[str] = wording.INTERPOLATED_CAUSE
    _missing_class_note: ClassVar[str] = "the largest score replaces their own threshold"

    def _calibrate(self, rows: CalibrationRows) -> tuple[Thresholds, None]:
        blend, alpha = self._blend(rows), self._class_alpha(rows).typical
        thresholds = blend.between(blend.by_class.quantiles(alpha), blend.pooled.quantiles(alpha))
        return Thresholds(thresholds), None

    def _blend(self, rows: CalibrationRows, state: Any = None) -> Blend:
        # Rounding may take a score beyond its maximum, but limits must not rise again after it.
        finite = rows.scores[rows.scores < np.inf]
        most = make_score(self.score).maximum(rows.n_classes)
        largest = max(most, float(finite.max(initial=-np.inf)))
        pooled = GroupedScores.one(np.sort(rows.scores))
        return Blend(rows.by_class, pooled, self.tau, largest)

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        return self._from_fit(InterpolatedPredictor._blend).p_values(scores, classes)


class Blend(NamedTuple):
    """Quantiles between those of each class and of all classes.

    ``largest`` is the largest score that there can be.
    """

    by_class: GroupedScores
    pooled: GroupedScores
    tau: float
    largest: float

    def between(self, quantile: FloatArray, common: FloatArray) -> FloatArray:
        """Return the thresholds between those of a class and the common ones."""
        no_own, no_common = quantile == np.inf, common == np.inf
        quantile, common = (
            np.where(no_own, self.largest, quantile),
            np.where(no_common, self.largest, common),
        )
        always = (no_own | (self.tau == 0)) & (no_common | (self.tau == 1))
        return np.where(always, np.inf, self.tau * quantile + (1 - self.tau) * common)

    def p_values(self, scores: FloatArray, classes: IntArray) -> FloatArray:
        """Return the level at which each class leaves the set, for scores (n, J) of `classes`."""
        m, m_all = self.by_class.counts[classes] + 1, len(self.pooled.scores) + 1

        def is_out(own_step: IntArray, step: IntArray) -> Array:
            """Return whether y is out at the (own_step + 1)-th largest own score, and so on."""
            quantile = self.by_class.at_ranks(np.maximum(m - own_step, 1), classes)
            common = self.pooled.at_ranks(np.maximum(m_all - step, 1), np.array(0))
            return scores > self.between(quantile, common)

        # The pooled rank moves at levels j / (N + 1), that of y at levels i / (n + 1).
        if MANY * len(scores) >= m_all:
            after = self._pooled_steps(scores, classes)
        else:
            last = np.full(scores.shape, m_all)
            after = first_true(lambda j: is_out(j * m // m_all, j), np.ones_like(last), last)
        low, high = (after - 1) * m // m_all + 1, np.minimum(after * m // m_all, m - 1)
        step = first_true(lambda i: is_out(i, after - 1), low, high + 1)
        return np.where(step <= high, np.minimum(step / m, after / m_all), after / m_all)

    def _pooled_steps(self, scores: FloatArray, classes: IntArray) -> IntArray:
        """Find the first step of the pooled rank that excludes y, by search among y's limits.

        Worth it for many rows, since a class has a limit for every calibration row.
        """
        m_all = len(self.pooled.scores) + 1
        steps = np.arange(1, m_all)
        common = self.pooled.at_ranks(m_all - steps, np.array(0))
        after = np.empty(scores.shape, dtype=np.int64)
        for column, y in enumerate(classes.tolist()):
            quantile = np.append(np.inf, self.by_class.of(y)[::-1])  # by the step of y's own rank
            first = np.maximum(-(-np.arange(len(quantile) + 1) * m_all // len(quantile)), 1)
            limits = self.between(np.repeat(quantile, np.diff(first)), common)  # they fall
            after[:, column] = m_all - np.searchsorted(limits[::-1], scores[:, column])
        return after


def first_true(holds: Callable[[IntArray], Array], low: IntArray, high: IntArray) -> IntArray:
    """Find the first number from low to high - 1 at which a rising condition holds, else high."""
    high = np.maximum(low, high)
    while (low < high).any():
        middle = (low + high) // 2
        true = holds(middle) | (low >= high)
        low, high = np.where(true, low, middle + 1), np.where(true, middle, high)
    return low
