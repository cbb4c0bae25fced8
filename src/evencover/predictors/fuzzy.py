"""FUZZY: every class borrows scores from classes of similar frequency."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import floor
from typing import ClassVar, NamedTuple

import numpy as np

from evencover.arrays import FloatArray, IntArray
from evencover.errors import InputError
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.fit import Fit, check_array
from evencover.quantiles import Alpha, GroupedScores, Thresholds, exact_fraction
from evencover.scores import make_score
from evencover.sizes import at_once
from evencover.validation import OPEN_SHARE, Check, real_number, unless

# Classes whose weights are held at once, and bins that locate a quantile before it is counted.
CLASSES_AT_ONCE, N_BINS = at_once(256, 2), 64
REACH = 11.76  # the distance in standard deviations where a weight is 1e-30


class FuzzyState(NamedTuple):
    """The weighted quantile of each class (K,)."""

    class_limits: FloatArray


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
    alpha, score, exact, keep_top, from_logits, random_state
        As for every predictor.

    Examples
    --------
    >>> from evencover.data import load_languages
    >>> rows, labels, names = load_languages()
    >>> predictor = FuzzyPredictor().fit(rows[:10000], labels[:10000], class_names=names)
    >>> predictor.predict_set(rows[10002:10004]).to_lists(names=True)
    [['Quechua, Huamalíes-Dos de Mayo Huánuco', 'Quechua, Cusco'], ['Telugu']]
    """

    bandwidth: float = 0.03
    holdout: float = 0.2

    method = "fuzzy"
    summary = "each class borrows from classes of similar frequency"
    guarantee = "Coverage of {target} over all examples is guaranteed {sets}{single}."
    _State = FuzzyState
    _usual_cause = "Each class borrows from classes of similar frequency, which may be easier."
    _missing_class_note = "they borrow from the rarest classes"
    _constraints: ClassVar[dict[str, Check]] = {
        "bandwidth": unless((np.inf,), partial(real_number, low=0, open_low=True)),
        "holdout": OPEN_SHARE,
    }

    def _calibrate(self, rows: CalibrationRows) -> tuple[Thresholds, FuzzyState]:
        _, learning = self._split(rows)
        alpha, score = self._class_alpha(rows).typical, make_score(self.score)
        quantiles = weighted_quantiles(
            learning.scores, learning.labels, rows.n_classes, self.bandwidth, alpha
        )
        state = FuzzyState(np.minimum(quantiles, score.maximum(rows.n_classes)))
        offsets = GroupedScores.one(self._derive(rows, state)).thresholds(
            alpha, exact=self.exact, random_state=self.random_state
        )
        offsets = offsets.of_classes(np.zeros(rows.n_classes, dtype=np.int64))
        limits = state.class_limits
        lower = None if offsets.lower is None else largest_within(limits, offsets.lower)
        return offsets._replace(upper=largest_within(limits, offsets.upper), lower=lower), state

    def _split(self, rows: CalibrationRows) -> tuple[CalibrationRows, CalibrationRows]:
        """Split off the rows that are held out."""
        n_held_out = floor(exact_fraction(self.holdout, name="holdout") * len(rows))
        return rows.split(n_held_out, self.random_state)

    def _derive(self, rows: CalibrationRows, state: FuzzyState) -> FloatArray:
        """Return how much the scores that are held out exceed their class's limit, sorted."""
        held_out, _ = self._split(rows)
        return np.sort(held_out.scores - state.class_limits[held_out.labels])

    def _check_fit(self, fit: Fit) -> None:
        check_array(fit.state.class_limits, "class_limits", np.float64, fit.n_classes)
        if not np.isfinite(fit.state.class_limits).all():
            raise InputError("'class_limits' must be finite.")

    def _p_values(
        self, fit: Fit, scores: FloatArray, classes: IntArray, own_share: FloatArray
    ) -> FloatArray:
        held_out: FloatArray = fit.derived
        n, excess = len(held_out), scores - fit.state.class_limits[classes]
        at_least = n - np.searchsorted(held_out, excess)
        return np.asarray((at_least + own_share) / (n + 1.0))

    def _level_rows(self, fit: Fit) -> int:
        return len(fit.derived)


def weighted_quantiles(
    scores: FloatArray, labels: IntArray, n_classes: int, bandwidth: float, alpha: Alpha
) -> FloatArray:
    """Compute each class's quantile at 1 - alpha of all scores, weighted by the kernel (K,).

    Bins of equal size locate the quantile, and the rows of one bin decide it.
    """
    counts = np.bincount(labels, minlength=n_classes)
    by_count = np.argsort(counts, kind="stable")
    rank_of_class = np.empty(n_classes, dtype=np.int64)
    rank_of_class[by_count] = np.arange(n_classes)
    order = np.lexsort((labels, scores))
    scores, ranks = scores[order], rank_of_class[labels[order]]
    n_bins = max(1, min(N_BINS, len(scores)))
    edges = np.linspace(0, len(scores), n_bins + 1).astype(np.int64)
    bins = np.repeat(np.arange(n_bins), np.diff(edges))
    binned = np.bincount(ranks * n_bins + bins, minlength=n_classes * n_bins)
    up_to = np.cumsum(binned.reshape(n_classes, n_bins), axis=1).astype(np.float64)
    positions = np.arange(n_classes) / n_classes
    roots = np.sqrt(counts[by_count] + 1.0)
    level = float(1 - exact_fraction(alpha)) * (1 - 1e-12)  # a sum may be a little short
    result = np.full(n_classes, np.inf)
    for first in range(0, n_classes, CLASSES_AT_ONCE):
        some = slice(first, first + CLASSES_AT_ONCE)
        own, scales = positions[some], roots[some] / bandwidth
        reach = REACH * bandwidth / roots[first]  # of the first class, whose kernel is the widest
        low, high = np.searchsorted(positions, (own[0] - reach, own[-1] + reach))
        mass = _kernel(own, scales, positions[low:high]) @ up_to[low:high]
        aims = level * (mass[:, -1] + 1)
        bin_of_aim = (mass < aims[:, None]).sum(axis=1)
        for number in np.unique(bin_of_aim[bin_of_aim < n_bins]):
            rows = slice(edges[number], edges[number + 1])
            classes = np.flatnonzero(bin_of_aim == number)
            weights = _kernel(own[classes], scales[classes], positions[ranks[rows]])
            before = mass[classes, number - 1] if number else np.zeros(len(classes))
            running = before[:, None] + np.cumsum(weights, axis=1)
            steps = (running < aims[classes, None]).sum(axis=1)
            steps = np.minimum(steps, running.shape[1] - 1)
            result[by_count[first + classes]] = scores[rows][steps]
    return result


def _kernel(positions: FloatArray, scales: FloatArray, others: FloatArray) -> FloatArray:
    """Compute the weights of other positions (m,) for each position (n, m)."""
    weights = np.exp(-0.5 * ((positions[:, None] - others) * scales[:, None]) ** 2)
    return np.where(weights < 1e-30, 0.0, weights)  # subnormal numbers are slow


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
