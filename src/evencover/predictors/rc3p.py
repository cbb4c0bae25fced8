"""RC3P: CLASSWISE with a limit on the rank as well, for smaller sets."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from evencover.arrays import IntArray
from evencover.errors import InputError
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.fit import Fit
from evencover.quantiles import GroupedScores, Thresholds, conformal_rank


class RC3PPredictor(BasePredictor):
    """Rank-calibrated class-conditional prediction (Shi, Ghosh, Belkhouja, Doppa, Yan 2024).

    C(x) = {y : rank_x(y) <= k_y and s(x, y) <= q_y}. k_y is the smallest rank that less than a
    fraction alpha of the class's calibration rows exceed, epsilon_y is that fraction, and q_y is
    the conformal quantile of the class's scores at level 1 - (alpha - epsilon_y). A class without
    rows has neither limit.

    Guarantee: P(Y in C(X) | Y = y) >= 1 - alpha for every class if epsilon_y is the true fraction
    (the authors' condition). As in their work, it is estimated from the same rows. Classes with
    few rows are undercovered: a new row exceeds the largest observed rank with probability up to
    1 / (n_y + 1).

    Parameters
    ----------
    alpha, score, exact, keep_top, from_logits, random_state
        As for every predictor; ``exact=True`` is rejected, because two limits are involved.

    Examples
    --------
    >>> from evencover.data import load_languages
    >>> rows, labels, _ = load_languages()
    >>> RC3PPredictor().fit(rows[:10000], labels[:10000]).rank_limits_[:5]
    array([1, 8, 5, 6, 2])
    """

    method = "rc3p"
    summary = "one threshold and one limit on the rank per class"
    guarantee = (
        "Coverage of {target} holds for every class if the fraction of its labels beyond the rank "
        "limit is known. It is estimated, so classes with few examples may be covered less."
    )
    needs = ("ranks",)
    _targets_average = False
    supports = ("class alpha",)
    _depends_on_prevalence = False
    _origin = (
        "A set includes the class if its score is at most the threshold and its rank is within the "
        "limit. Both come from the {rows} of this class."
    )
    _usual_cause = (
        "Each class has a threshold and a rank limit; both are estimated, and with few calibration "
        "examples their combined coverage falls short."
    )
    _missing_class_note = "rc3p always includes them"

    def _calibrate(self, rows: CalibrationRows) -> tuple[Thresholds, None]:
        assert rows.ranks is not None
        class_alpha, class_ranks = self._class_alpha(rows), rows.ranks.astype(np.float64)
        ranks = GroupedScores.sort(class_ranks, rows.labels, rows.n_classes)
        score_ranks = np.ones(rows.n_classes, dtype=np.int64)
        rank_limits = np.full(rows.n_classes, rows.n_classes)
        for y, n in enumerate(rows.class_counts.tolist()):
            if n == 0:
                continue
            ranks_of_class = ranks.of(y)
            alpha = class_alpha.exact(class_alpha.of_class[y])
            limit = ranks_of_class[n - ceil(alpha * n)]  # at most ceil(alpha n) - 1 rows are beyond
            n_beyond = n - int(np.searchsorted(ranks_of_class, limit, side="right"))
            score_ranks[y] = conformal_rank(n, alpha - Fraction(n_beyond, n))
            rank_limits[y] = limit
        return Thresholds(rows.by_class.at_ranks(score_ranks), rank_limit=rank_limits), None

    @property
    def rank_limits_(self) -> IntArray:
        """The largest rank at which each class is in a set (K,)."""
        limits = self._any_fit.thresholds.rank_limit
        assert limits is not None
        return limits

    def _check_fit(self, fit: Fit) -> None:
        if fit.rows.ranks is None or fit.thresholds.rank_limit is None:
            raise InputError("'rc3p' must have the ranks of calibration rows, and rank limits.")
