"""How to pool, decided on the calibration rows alone: every way is tried on rows it did not see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np

from evencover._kernels import HeldOut
from evencover._threads import map_on_threads
from evencover._validation import Array, FloatArray, IntArray
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.pooling import (
    LOSS_POINTS,
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

# A kind of prior ("normal", or a number of soft clusters) and how many rows it counts.
Ingredient = tuple[str | int, float]


def canonical_order(rows: CalibrationRows) -> IntArray:
    """The order of the scores; equal ones by label, then id, then place."""
    order = np.argsort(rows.scores)
    scores = rows.scores[order]
    equal = scores[1:] == scores[:-1]
    if equal.any():
        tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
        few = order[tied]
        by = (few, rows.ids[few], rows.labels[few], rows.scores[few])
        order[tied] = few[np.lexsort(by)]
    return order


class RankedRows(NamedTuple):
    """Calibration rows in the order of their scores: nothing depends on the scores' scale.

    ``first`` (N,) is how many rows have a lower score, and the same for equal scores.
    """

    labels: IntArray
    first: IntArray
    n_classes: int

    @classmethod
    def of(cls, scores: Array, labels: IntArray, n_classes: int) -> RankedRows:
        """From scores, or anything that stands for them; they must ascend."""
        starts = np.flatnonzero(np.append(True, scores[1:] != scores[:-1])[: len(scores)])
        if len(starts) < len(scores):
            starts = np.repeat(starts, np.diff(starts, append=len(scores)))
        return cls(labels, starts, n_classes)

    def take(self, rows: Array) -> RankedRows:
        """Some of the rows, chosen by flags; they are ranked among themselves."""
        return RankedRows.of(self.first[rows], self.labels[rows], self.n_classes)

    def own_rows(self) -> OwnRows:
        """Where the rows of each class stand."""
        n_rows = len(self.labels)
        return OwnRows.of(np.arange(n_rows), self.labels, self.n_classes, n_rows)

    def priors(self, kinds: Iterable[str | int]) -> Priors:
        """What these rows lead one to expect of every class."""
        u = middle_ranks(self.first)
        rows = (u, self.labels, self.n_classes)
        return Priors(
            NormalPrior.fit(*rows) if "normal" in kinds else None,
            {int(n): ClusterPrior.fit(*rows, int(n)) for n in kinds if n != "normal"},
        )


def middle_ranks(first: IntArray) -> FloatArray:
    """The middle of the ranks of each row and its equals, from how many rows come before."""
    n = len(first)
    starts = np.flatnonzero(first == np.arange(n))
    stops = np.append(starts[1:], n)
    u = (starts + stops) / (2 * n) if n else np.empty(0)
    return u if len(u) == n else np.repeat(u, stops - starts)


class Priors(NamedTuple):
    """The normal prior, if it is wanted, and soft clusters by their number."""

    normal: NormalPrior | None
    clusters: dict[int, ClusterPrior]

    def by_kind(self) -> dict[str | int, Prior]:
        """All of them."""
        found: dict[str | int, Prior] = dict(self.clusters.items())
        return found if self.normal is None else {"normal": self.normal, **found}


class Fold(NamedTuple):
    """Rows that were left out, by class and in the order of their scores, seen by the others.

    ``labels`` (n,), and ``rank`` among the others; ``own_below`` and ``n_own``, how many of the
    others' rows of the same class have a lower score, and how many there are; ``expected``, the
    level that each kind of prior gives them.
    """

    labels: IntArray
    rank: FloatArray
    own_below: FloatArray
    n_own: FloatArray
    expected: dict[str | int, FloatArray]
    own: OwnRows
    priors: dict[str | int, Prior]

    @classmethod
    def of(
        cls, rows: RankedRows, fold_of_row: Array, kinds: Sequence[str | int], number: int
    ) -> Fold:
        """Learn from the rows of all other folds."""
        is_held = fold_of_row == number
        learning, held = rows.take(~is_held), rows.take(is_held)
        first = rows.first[is_held]
        by_class = _by_class(held.labels, rows.n_classes)
        labels, place = held.labels[by_class], (first - held.first)[by_class]
        rank = rank_of_place(place, len(learning.labels))
        priors = learning.priors(kinds).by_kind()
        expected = {kind: prior.level(labels, rank) for kind, prior in priors.items()}
        if 1 in expected:  # the common prior learns nothing, so it may rank among all rows
            among_all = rank_of_place(first[by_class], len(rows.labels))
            expected[1] = priors[1].level(labels, among_all)
        own = learning.own_rows()
        own_below, n_own = own.below(labels, place), np.maximum(own.counts, 1)[labels]
        counts = (own_below.astype(np.float64), n_own.astype(np.float64))
        return cls(labels, rank, *counts, expected, own, priors)

    def levels(self, kind: str | int, strength: float) -> FloatArray:
        """The level of each row (n,) under a blend that did not see it."""
        return blended(self.own_below, self.n_own, self.expected[kind], strength)

    def losses(
        self, aim: float, ingredients: Sequence[Ingredient], targets: FloatArray
    ) -> FloatArray:
        """Pinball loss of each class's rows (ingredients, K) with thresholds at the targets."""
        n_classes, n_rows = len(self.own.counts), self.own.n_rows
        stops = np.floor(np.arange(LOSS_POINTS + 1) / LOSS_POINTS * n_rows).astype(np.int64)
        point = np.repeat(np.arange(LOSS_POINTS, dtype=np.int16), np.diff(stops))
        held = np.bincount(self.labels, minlength=n_classes)
        rows = HeldOut(
            point[self.own.own_places()],
            self.own.offsets,
            self.rank,
            np.concatenate([[0], np.cumsum(held)]),
            LOSS_POINTS,
            aim,
            np.array([strength for _, strength in ingredients]),
            targets,
        )
        losses = np.empty((len(ingredients), n_classes))
        for kind, prior in self.priors.items():
            own = [place for place, (each, _) in enumerate(ingredients) if each == kind]
            strengths = rows.strengths[own]
            losses[own] = prior.losses(rows._replace(strengths=strengths, targets=targets[own]))
        return losses


class Crossfit(NamedTuple):
    """The folds, what all rows together lead one to expect, and the ways to pool."""

    folds: list[Fold]
    priors: Priors
    ingredients: list[Ingredient]

    def levels(self, ingredient: Ingredient) -> FloatArray:
        """The level of each row (N,) under a blend that did not see it, fold after fold."""
        return np.concatenate([fold.levels(*ingredient) for fold in self.folds])

    def blended_levels(self, weights: FloatArray) -> FloatArray:
        """The levels (N,) of all ingredients together."""
        total = np.zeros(sum(len(fold.labels) for fold in self.folds))
        for weight, ingredient in zip(weights, self.ingredients, strict=True):
            total += weight * self.levels(ingredient)
        return total


def crossfit(rows: RankedRows, order: IntArray, ingredients: list[Ingredient]) -> Crossfit:
    """Try every ingredient on folds of the rows; `order` is a random order of them."""
    kinds = tuple(dict.fromkeys(kind for kind, _ in ingredients))
    fold = partial(Fold.of, rows, _folds(rows, order), kinds)
    # On all rows, too, as one job among those of the folds.
    found: Iterator[Any] = map_on_threads(
        lambda number: rows.priors(kinds) if number < 0 else fold(number), range(-1, N_FOLDS)
    )
    priors, *folds = found
    return Crossfit(folds, priors, ingredients)


def _folds(rows: RankedRows, order: IntArray) -> Array:
    """The fold of each row: by their random order, and as even as can be within every class."""
    order = order[_by_class(rows.labels[order], rows.n_classes)]
    fold = np.empty(len(order), dtype=np.int8)
    fold[order] = np.arange(len(order)) % N_FOLDS
    return fold


def _by_class(labels: IntArray, n_classes: int) -> IntArray:
    """The order of the classes, which leaves rows of one class as they stand."""
    kind = np.uint16 if n_classes <= 2**16 else np.int64  # short integers are sorted by radix
    return np.argsort(labels.astype(kind), kind="stable")


def ingredient_weights(tried: Crossfit, alpha: Alpha) -> FloatArray:
    """How much each ingredient counts: exp(-z^2 / 2), normalised.

    z is how far its held-out pinball loss is above the lowest, in standard errors of the paired
    difference. Rows of one class share its luck, so the error is taken over classes.
    """
    if len(tried.ingredients) == 1:
        return np.ones(1)
    losses = _held_out_losses(tried, float(1 - exact_fraction(alpha)))
    above = losses - losses[losses.sum(axis=1).argmin()]
    error = np.sqrt(((above - above.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
    z = above.sum(axis=1) / np.maximum(error, 1e-12)
    weights = np.exp(-0.5 * z**2)
    return weights / weights.sum()


def _held_out_losses(tried: Crossfit, aim: float) -> FloatArray:
    """Pinball loss at `aim`, in ranks, of each class's rows under every ingredient."""
    targets = np.array(list(map_on_threads(partial(_quantile, tried, aim), tried.ingredients)))
    parts = map_on_threads(lambda fold: fold.losses(aim, tried.ingredients, targets), tried.folds)
    total = next(parts)
    for part in parts:
        total += part
    return total


def _quantile(tried: Crossfit, aim: float, ingredient: Ingredient) -> float:
    """The level that a share `aim` of the rows is within."""
    levels = tried.levels(ingredient)
    rank = ceil(aim * len(levels)) - 1
    return float(np.partition(levels, rank)[rank])


def blend_of(
    rows: RankedRows, priors: Priors, weights: Sequence[tuple[Ingredient, float]]
) -> Blend:
    """All ingredients in one, with what is learnt from all rows."""
    own = rows.own_rows()
    n = own.counts.astype(float)
    own_weight, normal_weight = np.zeros(len(n)), np.zeros(len(n))
    # A blend has both kinds of prior, whatever they weigh.
    cluster_weights = {number: np.zeros(len(n)) for number in priors.clusters or (1,)}
    for (kind, strength), weight in weights:
        own_share = np.zeros(len(n)) if strength == inf else n / np.maximum(n + strength, 1e-12)
        own_weight += weight * own_share
        prior_weight = normal_weight if kind == "normal" else cluster_weights[int(kind)]
        prior_weight += weight * (1 - own_share)
    clusters = priors.clusters or rows.priors([1]).clusters
    merged = ClusterPrior(
        np.concatenate([clusters[m].weights * w[:, None] for m, w in cluster_weights.items()], 1),
        np.concatenate([clusters[m].functions for m in cluster_weights]),
    )
    normal = priors.normal or rows.priors(["normal"]).normal
    assert normal is not None
    return Blend(own, own_weight, normal, normal_weight, merged)
