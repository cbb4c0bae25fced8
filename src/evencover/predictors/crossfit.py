"""How to pool, decided on the calibration rows alone: every way is tried on rows it did not see."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from evencover._validation import FloatArray, IntArray
from evencover.predictors.pooling import (
    Blend,
    ClusterPrior,
    NormalPrior,
    OwnRows,
    Prior,
    blended,
    rank_of_place,
)
from evencover.quantiles import Alpha, exact_fraction

N_FOLDS = 5
LOSS_GRID = 128

# A kind of prior ("normal", or a number of soft clusters) and how many rows it counts.
Ingredient = tuple[str | int, float]


class RankedRows(NamedTuple):
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
    def of(cls, scores: FloatArray, labels: IntArray, n_classes: int) -> RankedRows:
        """From scores and labels (N,)."""
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


class Fold(NamedTuple):
    """Rows that were left out, their ranks among the others, and what the others say."""

    held: IntArray
    rank: FloatArray
    own: OwnRows
    priors: dict[str | int, Prior]


class Crossfit(NamedTuple):
    """The level of each row (ingredients, N) under a blend that did not see it, and the folds."""

    levels: FloatArray
    folds: list[Fold]
    ingredients: list[Ingredient]


def crossfit(rows: RankedRows, order: IntArray, ingredients: list[Ingredient]) -> Crossfit:
    """Try every ingredient on folds of the rows; `order` is a random order of them."""
    fold_of_row = _folds(rows.labels, order)
    kinds = dict.fromkeys(kind for kind, _ in ingredients)
    levels = np.empty((len(ingredients), len(rows.labels)))
    folds = []
    for number in range(N_FOLDS):
        held, others = np.flatnonzero(fold_of_row == number), np.flatnonzero(fold_of_row != number)
        learning = RankedRows.of(rows.scores[others], rows.labels[others], rows.n_classes)
        labels, scores = rows.labels[held], rows.scores[held]
        place = np.searchsorted(learning.sorted_scores, scores)
        fold = Fold(
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
    return Crossfit(levels, folds, ingredients)


def _folds(labels: IntArray, order: IntArray) -> IntArray:
    """The fold of each row: by their random order, and as even as can be within every class."""
    order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % N_FOLDS
    return fold


def ingredient_weights(tried: Crossfit, rows: RankedRows, alpha: Alpha) -> FloatArray:
    """How much each ingredient counts: exp(-z^2 / 2), normalised.

    z is how far its held-out pinball loss is above the lowest, in standard errors of the paired
    difference. Rows of one class share its luck, so the error is taken over classes.
    """
    if len(tried.ingredients) == 1:
        return np.ones(1)
    losses = _held_out_losses(tried, rows, alpha)
    above = losses - losses[losses.mean(axis=1).argmin()]
    n_classes = rows.n_classes
    by_class = np.stack(
        [np.bincount(rows.labels, weights=each, minlength=n_classes) for each in above]
    )
    error = np.sqrt(((by_class - by_class.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
    z = by_class.sum(axis=1) / np.maximum(error, 1e-12)
    weights = np.exp(-0.5 * z**2)
    return weights / weights.sum()


def _held_out_losses(tried: Crossfit, rows: RankedRows, alpha: Alpha) -> FloatArray:
    """Pinball loss at 1 - alpha, in ranks, of each row's threshold under every ingredient."""
    aim = float(1 - exact_fraction(alpha))
    grid = np.arange(1, LOSS_GRID + 1) / LOSS_GRID
    classes = np.arange(rows.n_classes)[:, None]
    losses = np.empty_like(tried.levels)
    rank = int(np.ceil(aim * tried.levels.shape[1])) - 1
    targets = np.partition(tried.levels, rank, axis=1)[:, rank]
    for held, rank_of_row, own, priors in tried.folds:
        n = np.maximum(own.counts, 1)[:, None]
        own_below = own.below(classes, np.floor(grid * own.n_rows).astype(np.int64)[None, :])
        expected = {kind: prior.level(classes, grid[None, :]) for kind, prior in priors.items()}
        for place, (kind, strength) in enumerate(tried.ingredients):
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


def blend_of(rows: RankedRows, ingredients: list[tuple[str | int, float, float]]) -> Blend:
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
