"""RC3P: CLASSWISE with a limit on the rank as well, for smaller sets."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar, Self

import numpy as np

from evencover import _kernels
from evencover._kernels import Draws
from evencover._validation import Array, FloatArray, InputError, IntArray, plain_array
from evencover.predictors.by_class import ByClassPredictor
from evencover.quantiles import GroupedScores, Thresholds, conformal_rank, exact_alpha


class RC3PPredictor(ByClassPredictor):
    """Rank-calibrated class-conditional prediction (Shi, Ghosh, Belkhouja, Doppa, Yan 2024).

    C(x) = {y : rank_x(y) <= k_y and s(x, y) <= q_y}. k_y is the smallest rank beyond which
    fewer than a share alpha of the class's calibration rows have their label, epsilon_y that
    share, and q_y the conformal quantile of the class's scores at level
    1 - (alpha - epsilon_y). A class without rows has neither limit.

    Guarantee: P(Y in C(X) | Y = y) >= 1 - alpha for every class if epsilon_y is the true share
    (the authors' condition). It is estimated from the same rows here, as they do, so a class
    with few rows is covered less: k_y is at most the largest rank seen, which a new row exceeds
    with probability up to 1 / (n_y + 1).

    A p-value is the largest level whose set holds y. Sets of different levels are not nested
    here, so {y : p > alpha} holds the set at alpha and may hold more.

    Parameters
    ----------
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        As for every predictor; ``exact=True`` is refused, because two limits are at work.

    Attributes
    ----------
    rank_limits_
        (K,) k_y.
    """

    method: ClassVar[str] = "rc3p"
    supports_exact: ClassVar[bool] = False
    needs_ranks: ClassVar[bool] = True
    fitted_arrays: ClassVar[tuple[str, ...]] = (
        *ByClassPredictor.fitted_arrays,
        "own_ranks_",
        "rank_limits_",
    )

    own_ranks_: IntArray
    rank_limits_: IntArray

    def fit_scores(
        self,
        scores: Any,
        labels: Any,
        n_classes: int,
        *,
        ids: Any = None,
        class_names: Sequence[str] | None = None,
        ranks: Any = None,
    ) -> Self:
        """Learn the thresholds from the true labels' scores (N,) and `ranks` (N,), from 1."""
        values = plain_array(() if ranks is None else ranks)
        if values.shape != np.shape(scores) or values.dtype.kind not in "iu":
            raise InputError(
                "The method 'rc3p' needs 'ranks', the rank of each true label in its row, as "
                f"whole numbers. Got {'none' if ranks is None else f'shape {values.shape}'}."
            )
        if values.size and not 1 <= values.min() <= values.max() <= n_classes:
            raise InputError(
                f"'ranks' must be between 1 and {n_classes}, the number of classes. "
                f"Got values from {values.min()} to {values.max()}."
            )
        self._ranks = values
        try:
            return super().fit_scores(scores, labels, n_classes, ids=ids, class_names=class_names)
        finally:
            del self._ranks

    def _calibrate(self, scores: FloatArray, labels: IntArray, ids: Array) -> Thresholds:
        ranks = GroupedScores.sort(self._ranks.astype(np.float64), labels, self.n_classes_)
        self.own_ranks_ = ranks.scores.astype(np.int64)
        thresholds = super()._calibrate(scores, labels, ids)
        assert thresholds.rank_limit is not None
        self.rank_limits_ = thresholds.rank_limit
        return thresholds

    def _kept_thresholds(self) -> Thresholds:
        alpha, classes = exact_alpha(self.alpha), self.classes_
        score_ranks = np.ones(self.n_classes_, dtype=np.int64)
        rank_limits = np.full(self.n_classes_, self.n_classes_)
        for y, n in enumerate(classes.counts.tolist()):
            if n == 0:
                continue
            own = self.own_ranks_[self.own_offsets_[y] : self.own_offsets_[y + 1]]
            rank_limits[y] = own[n - ceil(alpha * n)]  # at most ceil(alpha n) - 1 rows are beyond
            n_beyond = n - int(np.searchsorted(own, rank_limits[y], side="right"))
            score_ranks[y] = conformal_rank(n, alpha - Fraction(n_beyond, n))
        return Thresholds(classes.at_ranks(score_ranks), rank_limit=rank_limits)

    def _fate_of_missing_classes(self) -> str:
        return "rc3p puts them in every set"

    def _p_values(self, rows: Array, draws: Draws, logits: bool) -> tuple[FloatArray, int]:
        options: Any = {"logits": logits, "temperature": self.temperature}
        score, classes = self.score_, np.arange(self.n_classes_)
        scores, bad = _kernels.score_matrix(score.base, rows, draws, **options)
        if bad >= 0:
            return scores, bad
        scores = score.from_base(scores, classes)
        ranks, _ = _kernels.rank_matrix(rows, **options)
        return np.stack(
            [self._p_of_class(y, scores[:, y], ranks[:, y]) for y in classes.tolist()], axis=1
        ), -1

    def _p_of_class(self, y: int, scores: FloatArray, ranks: IntArray) -> FloatArray:
        """The limit is the k-th rank for levels from eps_k (excluded) to eps_(k - 1)."""
        own = self.classes_.of(y)
        n = len(own)
        if n == 0:
            return np.ones(len(scores))
        seen = self.own_ranks_[self.own_offsets_[y] : self.own_offsets_[y + 1]]
        n_less = np.searchsorted(seen, ranks)
        limit = seen[np.minimum(n_less, n - 1)]  # the first limit that admits the rank
        beyond = (n - np.searchsorted(seen, limit, side="right")) / n
        by_score = (n - np.searchsorted(own, scores) + 1) / (n + 1)
        return np.where(n_less == n, 0.0, np.minimum((n - n_less) / n, beyond + by_score))
