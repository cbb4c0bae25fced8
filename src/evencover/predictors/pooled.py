"""POOLED: every class leans on the others exactly as much as its own data is thin."""

from __future__ import annotations

from itertools import product
from math import floor, inf
from typing import ClassVar, NamedTuple

import numpy as np

from evencover._kernels.reference import p_values_of
from evencover._validation import (
    Array,
    FloatArray,
    InputError,
    IntArray,
    raise_unknown,
    real_number,
    whole_number,
)
from evencover.predictors.base import BasePredictor
from evencover.predictors.pooling import (
    Blend,
    ClusterPrior,
    NormalPrior,
    OwnRows,
    Prior,
    blended,
    rank_of_place,
)
from evencover.quantiles import Alpha, GroupedScores, Thresholds, exact_alpha
from evencover.randomness import Use, random_order
from evencover.scores import Score

N_FOLDS = 5
HOLDOUT_SHARE = 0.2
LOSS_GRID = 128
STRENGTHS = (30.0, 100.0, 300.0, inf)
# Kinds of prior: normal, or a number of soft clusters.
PRIORS: tuple[str | int, ...] = ("normal", 1, 4, 8)


class PooledPredictor(BasePredictor):
    """Partial pooling of all classes: one threshold per class, learnt from everybody's rows.

    A class's score distribution is estimated as a blend of its own rows and of what the other
    classes lead one to expect of it: a normal model of how classes differ, and soft clusters.
    The prior counts as much as a number of rows, so a class with many rows speaks for itself and
    one without any is given the expected distribution. All classes then use one and the same
    *level* of these distributions, chosen so that the sets hold 1 - alpha of held-out labels.
    How to blend is decided by cross-fitting on the calibration rows: every prior and strength is
    weighted by how well it predicts the held-out rows' quantile (pinball loss in ranks), and all
    that are within noise of the best have a say.

    Guarantee. ``split="holdout"``: marginal coverage P(Y in C(X)) >= 1 - alpha, exact in finite
    samples, for exchangeable rows, because the level is learnt from rows that had no other part
    in the method. ``split="crossfit"``: the level is learnt from all rows, each under a blend that
    did not see it; coverage is 1 - alpha up to the instability of the blend, with no finite-sample
    guarantee. Class-conditional coverage is the aim of the method, not a guarantee.

    Parameters
    ----------
    prior
        "auto" blends them all; "normal", or a number of soft clusters (1: every class is
        expected to look like all classes together).
    strength
        How many rows the prior counts; "auto" blends several, 0 is CLASSWISE, and infinity with
        ``prior=1`` is STANDARD.
    split
        "crossfit" or "holdout".
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        As for every predictor. P-values count calibration rows whose cross-fitted (held-out)
        level is at least the level at which y enters the set.

    Attributes
    ----------
    own_weight_
        (K,) weight of each class's own rows in its distribution, n / (n + strength).
    normal_weight_, cluster_weights_
        (K,), (K, M): weights of what is expected of it; all weights of a class add up to 1.
    ingredients_
        (prior, strength, weight) of each way to pool that was considered.
    level_
        The level that all classes share.
    """

    method: ClassVar[str] = "pooled"
    fitted_arrays: ClassVar[tuple[str, ...]] = (
        *BasePredictor.fitted_arrays,
        "pooled_scores_",
        "own_places_",
        "own_offsets_",
        "own_weight_",
        "normal_mean_",
        "normal_deviation_",
        "normal_weight_",
        "cluster_weights_",
        "cluster_functions_",
        "calibration_levels_",
    )
    p_value_arrays: ClassVar[tuple[str, ...]] = (
        "pooled_scores_",
        "own_places_",
        "calibration_levels_",
    )
    fitted_values: ClassVar[tuple[str, ...]] = (
        *BasePredictor.fitted_values,
        "ingredients_",
        "level_",
    )

    pooled_scores_: FloatArray
    own_places_: IntArray
    own_offsets_: IntArray
    own_weight_: FloatArray
    normal_mean_: FloatArray
    normal_deviation_: FloatArray
    normal_weight_: FloatArray
    cluster_weights_: FloatArray
    cluster_functions_: FloatArray
    calibration_levels_: FloatArray
    ingredients_: list[tuple[str | int, float, float]]
    level_: float

    def __init__(
        self,
        *,
        alpha: Alpha = 0.1,
        score: Score | str = "softmax",
        prior: int | str = "auto",
        strength: float | str = "auto",
        split: str = "crossfit",
        exact: bool = False,
        allow_empty: bool = True,
        from_logits: bool = False,
        temperature: float = 1.0,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            alpha=alpha,
            score=score,
            exact=exact,
            allow_empty=allow_empty,
            from_logits=from_logits,
            temperature=temperature,
            random_state=random_state,
        )
        self.prior = prior
        self.strength = strength
        self.split = split

    # ---- calibration -------------------------------------------------------------------------

    def _calibrate(self, scores: FloatArray, labels: IntArray, ids: Array) -> Thresholds:
        # Sums depend on the order of the rows in their last bits: give it by the rows themselves.
        canonical = np.lexsort((ids, labels, scores))
        scores, labels, ids = scores[canonical], labels[canonical], ids[canonical]
        order = random_order(self.random_state, Use.SPLIT, ids, canonical)
        n_held_out = floor(HOLDOUT_SHARE * len(order)) if self.split == "holdout" else 0
        held_out, learning = order[:n_held_out], np.sort(order[n_held_out:])
        rows = _Rows.of(scores[learning], labels[learning], self.n_classes_)
        order = random_order(self.random_state, Use.FOLDS, ids[learning], canonical[learning])
        crossfit = _crossfit(rows, order, self._ingredients())
        weights = _weights(crossfit, rows, self.alpha)
        self.ingredients_ = [
            (kind, strength, float(weight))
            for (kind, strength), weight in zip(self._ingredients(), weights, strict=True)
        ]
        blend = _blend(rows, self.ingredients_)
        levels = weights @ crossfit.levels
        if self.split == "holdout":
            place = np.searchsorted(rows.sorted_scores, scores[held_out])
            levels = blend.level(labels[held_out], place)
        self._keep(blend, rows.sorted_scores, np.sort(levels))
        if self.strength == 0:
            self.level_ = float(1 - exact_alpha(self.alpha))
            return self._own_groups().thresholds(self.alpha, exact=self.exact)
        everyone = GroupedScores.sort(levels, np.zeros(len(levels), dtype=np.int64), 1)
        common = everyone.thresholds(self.alpha, exact=self.exact)
        self.level_ = float(common.upper[0])
        lower, probability = common.lower, common.upper_probability
        return Thresholds(
            self._scores_at(blend, self.level_),
            None if lower is None else self._scores_at(blend, float(lower[0])),
            None if probability is None else np.repeat(probability, self.n_classes_),
        )

    def _scores_at(self, blend: Blend, level: float) -> FloatArray:
        """The largest score of each class whose level is at most `level`."""
        return np.concatenate([self.pooled_scores_, [np.inf, -np.inf]])[blend.last_place(level)]

    def _keep(self, blend: Blend, sorted_scores: FloatArray, levels: FloatArray) -> None:
        self.pooled_scores_, self.calibration_levels_ = sorted_scores, levels
        self.own_places_, self.own_offsets_ = blend.own.places, blend.own.offsets
        self.own_weight_, self.normal_weight_ = blend.own_weight, blend.normal_weight
        self.normal_mean_, self.normal_deviation_ = blend.normal
        self.cluster_weights_, self.cluster_functions_ = blend.clusters

    @property
    def _fitted_blend(self) -> Blend:
        return Blend(
            OwnRows(self.own_places_, self.own_offsets_, len(self.pooled_scores_)),
            self.own_weight_,
            NormalPrior(self.normal_mean_, self.normal_deviation_),
            self.normal_weight_,
            ClusterPrior(self.cluster_weights_, self.cluster_functions_),
        )

    def _own_groups(self) -> GroupedScores:
        """Each class's own scores, sorted."""
        place = self.own_places_ % (len(self.pooled_scores_) + 1)
        return GroupedScores(self.pooled_scores_[place], self.own_offsets_)

    # ---- prediction --------------------------------------------------------------------------

    def _p_of_scores(
        self, scores: FloatArray, classes: IntArray, own_share: FloatArray
    ) -> FloatArray:
        if self.strength == 0:
            return p_values_of(scores, self._own_groups(), classes, own_share)
        place = np.searchsorted(self.pooled_scores_, scores)
        level = self._fitted_blend.level(np.broadcast_to(classes, scores.shape), place)
        n_levels = len(self.calibration_levels_)
        at_least = n_levels - np.searchsorted(self.calibration_levels_, level)
        return np.asarray((at_least + own_share[:, None]) / (n_levels + 1))

    def _fate_of_missing_classes(self) -> str:
        return "they are given the distribution that the others lead one to expect"

    # ---- parameters --------------------------------------------------------------------------

    def _ingredients(self) -> list[tuple[str | int, float]]:
        kinds = PRIORS if self.prior == "auto" else (self.prior,)
        strengths = STRENGTHS if self.strength == "auto" else (float(self.strength),)
        return list(product(kinds, strengths))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        owner = type(self).__name__
        if self.split not in ("crossfit", "holdout"):
            raise_unknown("split", self.split, ("crossfit", "holdout"))
        if self.strength not in ("auto", inf):
            real_number(self.strength, "strength", owner, 0)
        if isinstance(self.prior, str):
            if self.prior not in ("auto", "normal"):
                raise InputError(
                    f"The 'prior' parameter of {owner} must be 'auto', 'normal' or a number of "
                    f"soft clusters. Got {self.prior!r} instead."
                )
        else:
            whole_number(self.prior, "prior", owner, 1)


class _Rows(NamedTuple):
    """Calibration rows in ranks: nothing depends on the scale of the score.

    ``place`` is each row's place in the order of all scores; ``u`` its middle rank, which is the
    same for equal scores.
    """

    scores: FloatArray
    labels: IntArray
    place: IntArray
    u: FloatArray
    sorted_scores: FloatArray
    n_classes: int

    @classmethod
    def of(cls, scores: FloatArray, labels: IntArray, n_classes: int) -> _Rows:
        order = np.argsort(scores, kind="stable")
        place = np.empty(len(scores), dtype=np.int64)
        place[order] = np.arange(len(scores))
        ranked = scores[order]
        below = np.searchsorted(ranked, scores, side="left")
        u = (below + np.searchsorted(ranked, scores, side="right")) / (2 * len(scores))
        return cls(scores, labels, place, u, ranked, n_classes)

    def rank(self, scores: FloatArray) -> FloatArray:
        """The rank of other scores among these."""
        return rank_of_place(np.searchsorted(self.sorted_scores, scores), len(self.scores))

    def own_rows(self) -> OwnRows:
        """Where the rows of each class stand."""
        return OwnRows.of(self.place, self.labels, self.n_classes, len(self.labels))

    def prior(self, kind: str | int) -> Prior:
        """What these rows lead one to expect of every class."""
        if kind == "normal":
            return NormalPrior.fit(self.u, self.labels, self.n_classes)
        return ClusterPrior.fit(self.u, self.labels, self.n_classes, int(kind))


class _Fold(NamedTuple):
    """Rows that were left out, their ranks among the others, and what the others say."""

    held: IntArray
    rank: FloatArray
    own: OwnRows
    priors: dict[str | int, Prior]


class _Crossfit(NamedTuple):
    """The level of each row (ingredients, N) under a blend that did not see it, and the folds."""

    levels: FloatArray
    folds: list[_Fold]
    ingredients: list[tuple[str | int, float]]


def _crossfit(
    rows: _Rows, order: IntArray, ingredients: list[tuple[str | int, float]]
) -> _Crossfit:
    fold_of_row = _folds(rows.labels, order)
    kinds = dict.fromkeys(kind for kind, _ in ingredients)
    levels = np.empty((len(ingredients), len(rows.labels)))
    folds = []
    for number in range(N_FOLDS):
        held, others = np.flatnonzero(fold_of_row == number), np.flatnonzero(fold_of_row != number)
        learning = _Rows.of(rows.scores[others], rows.labels[others], rows.n_classes)
        labels, scores = rows.labels[held], rows.scores[held]
        place = np.searchsorted(learning.sorted_scores, scores)
        fold = _Fold(
            held,
            learning.rank(scores),
            learning.own_rows(),
            {kind: learning.prior(kind) for kind in kinds},
        )
        expected = {kind: prior.level(labels, fold.rank) for kind, prior in fold.priors.items()}
        if 1 in expected:  # the common prior learns nothing, so it may rank among all rows
            expected[1] = fold.priors[1].level(labels, rows.rank(scores))
        own_below, n = fold.own.below(labels, place), np.maximum(fold.own.counts[labels], 1)
        for row, (kind, strength) in enumerate(ingredients):
            levels[row, held] = blended(own_below, n, expected[kind], strength)
        folds.append(fold)
    return _Crossfit(levels, folds, ingredients)


def _folds(labels: IntArray, order: IntArray) -> IntArray:
    """The fold of each row: by their random order, and as even as can be within every class."""
    order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % N_FOLDS
    return fold


def _weights(crossfit: _Crossfit, rows: _Rows, alpha: Alpha) -> FloatArray:
    """How much each ingredient counts: exp(-z^2 / 2), normalised.

    z is how far its held-out pinball loss is above the lowest, in standard errors of the paired
    difference. Rows of one class share its luck, so the error is taken over classes.
    """
    if len(crossfit.ingredients) == 1:
        return np.ones(1)
    losses = _held_out_losses(crossfit, rows, alpha)
    above = losses - losses[losses.mean(axis=1).argmin()]
    n_classes = rows.n_classes
    by_class = np.stack(
        [np.bincount(rows.labels, weights=each, minlength=n_classes) for each in above]
    )
    error = np.sqrt(((by_class - by_class.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
    z = by_class.sum(axis=1) / np.maximum(error, 1e-12)
    weights = np.exp(-0.5 * z**2)
    return weights / weights.sum()


def _held_out_losses(crossfit: _Crossfit, rows: _Rows, alpha: Alpha) -> FloatArray:
    """Pinball loss at 1 - alpha, in ranks, of each row's threshold under every ingredient."""
    aim = float(1 - exact_alpha(alpha))
    grid = np.arange(1, LOSS_GRID + 1) / LOSS_GRID
    classes = np.arange(rows.n_classes)[:, None]
    losses = np.empty_like(crossfit.levels)
    rank = int(np.ceil(aim * crossfit.levels.shape[1])) - 1
    targets = np.partition(crossfit.levels, rank, axis=1)[:, rank]
    for held, rank_of_row, own, priors in crossfit.folds:
        n = np.maximum(own.counts, 1)[:, None]
        own_below = own.below(classes, np.floor(grid * own.n_rows).astype(np.int64)[None, :])
        expected = {kind: prior.level(classes, grid[None, :]) for kind, prior in priors.items()}
        for place, (kind, strength) in enumerate(crossfit.ingredients):
            levels = blended(own_below, n, expected[kind], strength)
            threshold = _crossing(levels, grid, targets[place])
            error = rank_of_row - threshold[rows.labels[held]]
            losses[place, held] = np.maximum(aim * error, (aim - 1) * error)
    return losses


def _crossing(levels: FloatArray, grid: FloatArray, target: float) -> FloatArray:
    """The rank at which each class's level reaches the target, linear between grid points."""
    step = np.minimum((levels < target).sum(axis=1), len(grid) - 1)
    here = levels[np.arange(len(levels)), step]
    before = np.where(step > 0, levels[np.arange(len(levels)), np.maximum(step - 1, 0)], 0.0)
    share = np.clip((target - before) / np.maximum(here - before, 1e-12), 0, 1)
    return np.asarray((step + share) / len(grid))


def _blend(rows: _Rows, ingredients: list[tuple[str | int, float, float]]) -> Blend:
    """All ingredients in one, from all rows."""
    own = rows.own_rows()
    n = own.counts.astype(float)
    own_weight, normal_weight = np.zeros(len(n)), np.zeros(len(n))
    cluster_weights: dict[int, FloatArray] = {}
    for kind, strength, weight in ingredients:
        own_share = np.zeros(len(n)) if strength == inf else n / np.maximum(n + strength, 1e-12)
        own_weight += weight * own_share
        prior_weight = weight * (1 - own_share)
        if kind == "normal":
            normal_weight += prior_weight
        else:
            cluster_weights[int(kind)] = cluster_weights.get(int(kind), 0.0) + prior_weight
    normal = NormalPrior.fit(rows.u, rows.labels, rows.n_classes)
    clusters = [
        (ClusterPrior.fit(rows.u, rows.labels, rows.n_classes, kind), weight[:, None])
        for kind, weight in cluster_weights.items()
    ] or [(ClusterPrior.fit(rows.u, rows.labels, rows.n_classes, 1), np.zeros((len(n), 1)))]
    merged = ClusterPrior(
        np.concatenate([prior.weights * weight for prior, weight in clusters], axis=1),
        np.concatenate([prior.functions for prior, _ in clusters]),
    )
    return Blend(own, own_weight, normal, normal_weight, merged)
