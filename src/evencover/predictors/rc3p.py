"""RC3P: CLASSWISE with a limit on the rank as well, for smaller sets."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import ClassVar

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.source import Block
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanation import CALIBRATION_ROWS
from evencover.predictors.fitting import CalibrationRows
from evencover.predictors.rule import BoundScore
from evencover.predictors.state import kept
from evencover.quantiles import GroupedScores, Thresholds, conformal_rank


@dataclass(kw_only=True, eq=False, repr=False)
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

    A p-value is the largest level whose set contains y. Sets of different levels are not nested,
    so {y : p > alpha} contains the set at alpha and possibly more classes.

    Parameters
    ----------
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        As for every predictor; ``exact=True`` is rejected, because two limits are involved.

    Attributes
    ----------
    rank_limits_
        (K,) k_y.
    """

    method: ClassVar[str] = "rc3p"
    targets_average: ClassVar[bool] = False
    depends_on_prevalence: ClassVar[bool] = False
    summary: ClassVar[str] = "one threshold and one limit on the rank per class"
    guarantee: ClassVar[str] = (
        "Coverage of 1 - alpha holds for every class if the fraction of its labels beyond the "
        "rank limit is known. It is estimated, so classes with few examples may be covered less."
    )
    needs: ClassVar[tuple[str, ...]] = ("ranks",)
    supports_exact: ClassVar[bool] = False
    supports_class_alpha: ClassVar[bool] = True
    cause: ClassVar[str] = (
        "Each class has a threshold and a rank limit; both are estimated, and with few "
        "calibration examples their combined coverage falls short."
    )
    missing_class_note: ClassVar[str] = "rc3p always includes them"
    origin: ClassVar[str] = (
        "A set includes the class if its score is at most the threshold and its rank is within "
        f"the limit. Both come from the {CALIBRATION_ROWS} of this class."
    )
    own_scores_: FloatArray = kept(float, "R")
    own_offsets_: IntArray = kept(int, "L")
    own_ranks_: IntArray = kept(int, "R")

    def _calibrate(self, rows: CalibrationRows) -> Thresholds:
        assert rows.ranks is not None
        own = GroupedScores.sort(rows.scores, rows.labels, self.n_classes_)
        self.own_scores_, self.own_offsets_ = own
        ranks = GroupedScores.sort(rows.ranks.astype(np.float64), rows.labels, self.n_classes_)
        self.own_ranks_ = ranks.scores.astype(np.int64)
        class_alpha = self.class_alpha
        score_ranks = np.ones(self.n_classes_, dtype=np.int64)
        rank_limits = np.full(self.n_classes_, self.n_classes_)
        for y, n in enumerate(own.counts.tolist()):
            if n == 0:
                continue
            _, seen = self._own(y)
            alpha = class_alpha.exact(class_alpha.of_class[y])
            limit = seen[n - ceil(alpha * n)]  # at most ceil(alpha n) - 1 rows are beyond
            n_beyond = n - int(np.searchsorted(seen, limit, side="right"))
            score_ranks[y] = conformal_rank(n, alpha - Fraction(n_beyond, n))
            rank_limits[y] = limit
        return Thresholds(own.at_ranks(score_ranks), rank_limit=rank_limits)

    def _own(self, y: int) -> tuple[FloatArray, IntArray]:
        """Return the sorted scores of a class, and its sorted ranks."""
        own = slice(self.own_offsets_[y], self.own_offsets_[y + 1])
        return self.own_scores_[own], self.own_ranks_[own]

    @property
    def rank_limits_(self) -> IntArray:
        """The largest rank at which each class is in a set."""
        assert self.limits_.rank_limit is not None
        return self.limits_.rank_limit

    def _p_block(self, scoring: BoundScore, block: Block, ids: Array | None) -> FloatArray:
        scores, ranks = scoring.matrix(block, scoring.draws(block, ids)), scoring.ranks(block)
        return np.stack(
            [self._p_of_class(y, scores[:, y], ranks[:, y]) for y in range(self.n_classes_)],
            axis=1,
        )

    def _p_of_class(self, y: int, scores: FloatArray, ranks: IntArray) -> FloatArray:
        # The limit is the k-th rank for levels from eps_k (excluded) to eps_(k - 1).
        own, seen = self._own(y)
        n = len(own)
        if n == 0:
            return np.ones(len(scores))
        n_less = np.searchsorted(seen, ranks)
        limit = seen[np.minimum(n_less, n - 1)]  # the first limit that admits the rank
        beyond = (n - np.searchsorted(seen, limit, side="right")) / n
        by_score = (n - np.searchsorted(own, scores) + 1) / (n + 1)
        return np.where(n_less == n, 0.0, np.minimum((n - n_less) / n, beyond + by_score))
