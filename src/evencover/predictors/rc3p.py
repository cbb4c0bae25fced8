"""RC3P: CLASSWISE with a limit on the rank as well, for smaller sets."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar

import numpy as np

from evencover.arrays import FloatArray, IntArray
from evencover.data.source import Block
from evencover.errors import InputError
from evencover.predictors import wording
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.fit import Fit
from evencover.predictors.rule import BoundScore
from evencover.quantiles import GroupedScores, Thresholds, conformal_rank
from evencover.topk import TopK, as_csr


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
    alpha, score, exact, keep_top, from_logits, random_state
        As for every predictor; ``exact=True`` is rejected, because two limits are involved.

    Attributes
    ----------
    rank_limits_
        (K,) k_y.

    Examples
    --------
    >>> from evencover.data import load_languages
    >>> rows, labels, _ = load_languages()
    >>> RC3PPredictor().fit(rows[:10000], labels[:10000]).rank_limits_[:5]
    array([1, 8, 5, 6, 2])
    """

    method: ClassVar[str] = "rc3p"
    summary: ClassVar[str] = "one threshold and one limit on the rank per class"
    guarantee: ClassVar[wording.Guarantee | str] = wording.RC3P_GUARANTEE
    needs: ClassVar[tuple[str, ...]] = ("ranks",)
    _targets_average: ClassVar[bool] = False
    _supports_exact: ClassVar[bool] = False
    _supports_class_alpha: ClassVar[bool] = True
    _depends_on_prevalence: ClassVar[bool] = False
    _origin: ClassVar[str] = wording.RC3P_ORIGIN
    _usual_cause: ClassVar[str] = wording.RC3P_CAUSE
    _missing_class_note: ClassVar[str] = "rc3p always includes them"

    def _calibrate(self, rows: CalibrationRows) -> tuple[Thresholds, None]:
        class_alpha, ranks = self._class_alpha(rows), self._ranks_by_class(rows)
        score_ranks = np.ones(rows.n_classes, dtype=np.int64)
        rank_limits = np.full(rows.n_classes, rows.n_classes)
        for y, n in enumerate(rows.class_counts.tolist()):
            if n == 0:
                continue
            class_ranks = ranks.of(y)
            alpha = class_alpha.exact(class_alpha.of_class[y])
            limit = class_ranks[n - ceil(alpha * n)]  # at most ceil(alpha n) - 1 rows are beyond
            n_beyond = n - int(np.searchsorted(class_ranks, limit, side="right"))
            score_ranks[y] = conformal_rank(n, alpha - Fraction(n_beyond, n))
            rank_limits[y] = limit
        return Thresholds(rows.by_class.at_ranks(score_ranks), rank_limit=rank_limits), None

    def _ranks_by_class(self, rows: CalibrationRows, state: Any = None) -> GroupedScores:
        """Sort the ranks of each class."""
        assert rows.ranks is not None
        return GroupedScores.sort(rows.ranks.astype(np.float64), rows.labels, rows.n_classes)

    @property
    def rank_limits_(self) -> IntArray:
        """The largest rank at which each class is in a set (K,)."""
        limits = self._any_fit.thresholds.rank_limit
        assert limits is not None
        return limits

    def _check_fit(self, fit: Fit) -> None:
        if fit.rows.ranks is None or fit.thresholds.rank_limit is None:
            raise InputError("'rc3p' must have the ranks of calibration rows, and rank limits.")

    def _p_block(self, scoring: BoundScore, block: Block) -> Any:
        own_scores = self._current_fit().scored_rows.by_class
        own_ranks = self._from_fit(RC3PPredictor._ranks_by_class)
        draws = scoring.draws(block)
        if isinstance(block.rows, TopK):
            scores, ranks = scoring.entries(block, draws)
            listed, result = block.rows.classes, np.empty(len(scores))
            order = np.argsort(listed, kind="stable")
            for entries in np.split(order, np.flatnonzero(np.diff(listed[order])) + 1):
                for y in listed[entries[:1]].tolist():
                    own = own_scores.of(y), own_ranks.of(y)
                    result[entries] = _p_of_class(*own, scores[entries], ranks[entries])
            return as_csr(block.rows, result)
        scores, ranks = scoring.matrix(block, draws), scoring.ranks(block)
        columns = [
            _p_of_class(own_scores.of(y), own_ranks.of(y), scores[:, y], ranks[:, y])
            for y in range(self.n_classes_)
        ]
        return np.stack(columns, axis=1)


def _p_of_class(
    own_scores: FloatArray, own_ranks: FloatArray, scores: FloatArray, ranks: IntArray
) -> FloatArray:
    """Compute the p-values (n,) of a class from its sorted calibration scores and ranks."""
    # The limit is the k-th rank for levels from eps_k (excluded) to eps_(k - 1).
    n = len(own_scores)
    if n == 0:
        return np.ones(len(scores))
    n_less = np.searchsorted(own_ranks, ranks)
    limit = own_ranks[np.minimum(n_less, n - 1)]  # the first limit that admits the rank
    beyond = (n - np.searchsorted(own_ranks, limit, side="right")) / n
    by_score = (n - np.searchsorted(own_scores, scores) + 1) / (n + 1)
    return np.where(n_less == n, 0.0, np.minimum((n - n_less) / n, beyond + by_score))
