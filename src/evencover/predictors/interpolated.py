"""INTERPOLATED: between CLASSWISE and STANDARD, threshold by threshold (Interp-Q)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import CalibrationRows
from evencover.quantiles import Thresholds, conformal_quantile
from evencover.scores import make_score
from evencover.validation import Check, real_number


@dataclass(kw_only=True, eq=False, repr=False)
class InterpolatedPredictor(BasePredictor):
    """q_y = tau q_y(CLASSWISE) + (1 - tau) q(STANDARD): Interp-Q of Ding, Fermanian, Salmon (2025).

    The score's maximum replaces an infinite threshold, unless both are infinite or it has all the
    weight. So a class with fewer than 1/alpha - 1 rows is not always included; with the softmax
    score and tau = 0.99 it is included where its probability exceeds about 0.01.

    Guarantee: marginal coverage of at least 1 - 2 alpha, for exchangeable rows, because a score
    above the blend is above one of the two thresholds. tau = 0 is STANDARD and tau = 1 is
    CLASSWISE, with their guarantees. In between, no class has a guarantee.

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

    method = "interpolated"
    summary = "thresholds between those of classwise and standard"
    guarantee = "Coverage of {twice} over all examples is guaranteed {sets}{single}."
    _targets_average = False  # but at something between
    supports = ()
    _constraints: ClassVar[dict[str, Check]] = {"tau": partial(real_number, low=0, high=1)}
    _usual_cause = (
        "Each threshold lies between those of classwise and standard, so hard classes are still "
        "covered less."
    )
    _missing_class_note = "the largest score replaces their own threshold"

    def _calibrate(self, rows: CalibrationRows) -> tuple[Thresholds, None]:
        alpha = self._class_alpha(rows).typical
        quantiles, common = rows.by_class.quantiles(alpha), conformal_quantile(rows.scores, alpha)
        largest = make_score(self.score).maximum(rows.n_classes)
        # Rounding may take a score beyond its maximum.
        largest = max(largest, rows.scores[rows.scores < np.inf].max(initial=-np.inf))
        own, shared = np.minimum(quantiles, largest), min(common, largest)
        is_infinite = (np.isinf(quantiles) | (self.tau == 0)) & (np.isinf(common) | (self.tau == 1))
        blend = self.tau * own + (1 - self.tau) * shared
        return Thresholds(np.where(is_infinite, np.inf, blend)), None
