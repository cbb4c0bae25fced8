"""MACRO: one threshold for the mean coverage over classes, by weighting labels."""

from __future__ import annotations

from itertools import accumulate
from math import lcm

import numpy as np

from evencover.arrays import FloatArray, IntArray
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.fit import Fit
from evencover.predictors.guarantees import ONE_THRESHOLD
from evencover.quantiles import Thresholds


class MacroPredictor(BasePredictor):
    """One threshold: a quantile of all scores with equal class weights.

    A row of class y has the weight w = 1 / (K n_y), for K classes with rows. The threshold is the
    smallest score up to which the weights sum to 1 - (alpha - max w), or +inf if there is none
    (Bhattacharyya, Ding, Barber 2026, arXiv 2606.28598).

    Guarantee: *macro* coverage, the mean over these K classes of P(Y in C(X) | Y = y), is at
    least 1 - alpha in finite samples, for rows exchangeable within their class and any class
    frequencies. Proof: exchanging a test row of class y with a calibration row of y moves the
    weighted distribution by at most max w. So the mean miss rate is at most the weight of the
    calibration rows whose upper tail has a weight of at most alpha. No class has a guarantee.

    A p-value is max w plus the weight of the calibration scores that are at least s(x, y). The
    mean over classes of P(p <= a) is at most a.

    Parameters
    ----------
    alpha, score, exact, keep_top, from_logits, random_state
        As for every predictor; ``exact=True`` is rejected, because weights are not ranks.

    >>> p = [[0.75, 0.25], [0.6, 0.4], [0.5, 0.5], [0.25, 0.75], [0.2, 0.8], [0.1, 0.9]]
    >>> MacroPredictor(alpha=0.5).fit(p, [0, 0, 0, 1, 1, 1]).thresholds_
    array([0.25, 0.25])
    """

    method = "macro"
    summary = "one threshold, with equal weight for every class"
    guarantee = "Mean coverage over classes of at least {target} is guaranteed {sets}{single}."
    _usual_cause = ONE_THRESHOLD
    _targets_average = False
    supports = ()
    _depends_on_prevalence = False
    _missing_class_note = "they use the common threshold, and the guarantee excludes them"

    def _calibrate(self, rows: CalibrationRows) -> tuple[Thresholds, None]:
        scores, tails = self._derive(rows, None)
        n_inside = int((tails > float(self._class_alpha(rows).typical)).sum())
        threshold = np.append(scores, np.inf)[n_inside - 1]
        return Thresholds(np.full(rows.n_classes, threshold)), None

    def _derive(self, rows: CalibrationRows, state: None) -> tuple[FloatArray, FloatArray]:
        """Return the scores in increasing order, and the weight from each of them on (N + 1,)."""
        order = rows.by_score
        return rows.scores[order], _tail_weights(rows.labels[order], rows.class_counts)

    def _p_values(
        self, fit: Fit, scores: FloatArray, classes: IntArray, own_share: FloatArray
    ) -> FloatArray:
        calibration_scores, tails = fit.derived
        return tails[np.searchsorted(calibration_scores, scores)]


def _tail_weights(labels: IntArray, class_counts: IntArray) -> FloatArray:
    """Add the largest weight to that of the rows from each of them on (N + 1,); at most 1.

    Summed as integers: weights are multiples of 1 / (K lcm of all counts).
    """
    counts = class_counts.tolist()
    unit = lcm(*{n for n in counts if n})
    weights = [unit // n if n else 0 for n in counts]
    total = unit * sum(n > 0 for n in counts)
    sums = accumulate((weights[y] for y in labels[::-1].tolist()), initial=max(weights))
    return np.fromiter((min(total, tail) / total for tail in sums), np.float64)[::-1]
