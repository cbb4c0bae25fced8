"""How to pool, decided on the calibration rows alone: every way is tried on rows it did not see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np

from evencover import _kernels
from evencover._kernels import Blends, HeldOut, LeftOut
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
    rank_of_place,
    rank_scores,
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

    def without(self, fold_of_row: Array, number: int) -> LeftOut:
        """Leave the rows of one fold out; the others are ranked among themselves."""
        return _kernels.left_out(self.labels, self.first, fold_of_row, number, self.n_classes)

    def all(self) -> LeftOut:
        """Leave no row out."""
        return self.without(np.zeros(len(self.labels), dtype=np.int8), -1)


def priors_of(rows: LeftOut, kinds: Iterable[str | int]) -> Priors:
    """What the rows that were kept lead one to expect of every class."""
    n_rows, n_classes = len(rows.labels), len(rows.offsets) - 1
    numbers = [int(kind) for kind in kinds if kind != "normal"]
    u = rows.middles / max(1, 2 * n_rows)
    normal = None
    if "normal" in kinds:
        x = rank_scores(rows.middles, n_rows)
        normal = NormalPrior.of_scores(x, rows.labels, n_classes)
    return Priors(normal, ClusterPrior.fit_all(u, rows.labels, n_classes, numbers))


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

    ``rank`` (n,) is theirs among the others, ``n_own`` how many of the others are of their class;
    ``expected`` (kinds, n), the level that each kind of prior gives them.
    """

    rows: LeftOut
    rank: FloatArray
    n_own: FloatArray
    expected: FloatArray
    priors: dict[str | int, Prior]

    @classmethod
    def of(
        cls, rows: RankedRows, fold_of_row: Array, kinds: Sequence[str | int], number: int
    ) -> Fold:
        """Learn from the rows of all other folds."""
        split = rows.without(fold_of_row, number)
        n_learning, labels = len(split.labels), split.held_labels
        rank = rank_of_place(split.held_places, n_learning)
        priors = priors_of(split, kinds).by_kind()
        expected = np.empty((len(kinds), len(labels)))
        for place, kind in enumerate(kinds):
            prior = priors[kind]
            if kind == 1:  # the common prior learns nothing, so it may rank among all rows
                expected[place] = rank_of_place(split.held_first, len(rows.labels))
            elif isinstance(prior, NormalPrior):
                x = rank_scores(2 * split.held_places, n_learning)
                expected[place] = prior.level_at(labels, x)
            else:
                expected[place] = prior.level(labels, rank)
        n_own = np.maximum(np.diff(split.offsets), 1)[labels].astype(np.float64)
        return cls(split, rank, n_own, expected, priors)

    def losses(
        self, aim: float, ingredients: Sequence[Ingredient], targets: FloatArray
    ) -> FloatArray:
        """Pinball loss of each class's rows (ingredients, K) with thresholds at the targets."""
        n_rows = len(self.rows.labels)
        stops = np.floor(np.arange(LOSS_POINTS + 1) / LOSS_POINTS * n_rows).astype(np.int64)
        point = np.repeat(np.arange(LOSS_POINTS, dtype=np.int16), np.diff(stops))
        rows = HeldOut(
            point[self.rows.places],
            self.rows.offsets,
            self.rank,
            self.rows.held_offsets,
            LOSS_POINTS,
            aim,
            np.array([strength for _, strength in ingredients]),
            targets,
        )
        losses = np.empty((len(ingredients), len(self.rows.offsets) - 1))
        for kind, prior in self.priors.items():
            own = [place for place, (each, _) in enumerate(ingredients) if each == kind]
            strengths = rows.strengths[own]
            losses[own] = prior.losses(rows._replace(strengths=strengths, targets=targets[own]))
        return losses


class Crossfit(NamedTuple):
    """All rows, what they lead one to expect, the folds, and the ways to pool.

    ``blends`` are these ways for the rows of one fold after the other: each row's level is one
    under a blend that did not see it.
    """

    rows: LeftOut
    priors: Priors
    folds: list[Fold]
    ingredients: list[Ingredient]
    blends: Blends

    @property
    def labels(self) -> IntArray:
        """The class of each row (N,), fold after fold."""
        return np.concatenate([fold.rows.held_labels for fold in self.folds])


def crossfit(rows: RankedRows, order: IntArray, ingredients: list[Ingredient]) -> Crossfit:
    """Try every ingredient on folds of the rows; `order` is a random order of them."""
    kinds = tuple(dict.fromkeys(kind for kind, _ in ingredients))
    fold = partial(Fold.of, rows, _folds(rows, order), kinds)

    def job(number: int) -> Any:  # on all rows, too, as one job among those of the folds
        if number >= 0:
            return fold(number)
        every = rows.all()
        return every, priors_of(every, kinds)

    (every, priors), *folds = map_on_threads(job, range(-1, N_FOLDS))
    blends = Blends(
        np.concatenate([fold.rows.held_below for fold in folds]).astype(np.float64),
        np.concatenate([fold.n_own for fold in folds]),
        np.concatenate([fold.expected for fold in folds], axis=1),
        np.array([kinds.index(kind) for kind, _ in ingredients]),
        np.array([strength for _, strength in ingredients]),
    )
    return Crossfit(every, priors, folds, ingredients, blends)


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
    rank = ceil(aim * len(tried.blends.own)) - 1  # a share `aim` of the rows is within that level
    quantile = partial(_kernels.blended_quantile, tried.blends, rank=rank)
    targets = np.array(list(map_on_threads(quantile, range(len(tried.ingredients)))))
    parts = map_on_threads(lambda fold: fold.losses(aim, tried.ingredients, targets), tried.folds)
    total = next(parts)
    for part in parts:
        total += part
    return total


def blend_of(tried: Crossfit, ingredient_weights: FloatArray) -> Blend:
    """All ingredients in one, with what is learnt from all rows."""
    rows, priors = tried.rows, tried.priors
    own = OwnRows.by_class(rows.places, rows.offsets, len(rows.labels))
    n = own.counts.astype(float)
    own_weight, normal_weight = np.zeros(len(n)), np.zeros(len(n))
    # A blend has both kinds of prior, whatever they weigh.
    cluster_weights = {number: np.zeros(len(n)) for number in priors.clusters or (1,)}
    for (kind, strength), weight in zip(tried.ingredients, ingredient_weights, strict=True):
        own_share = np.zeros(len(n)) if strength == inf else n / np.maximum(n + strength, 1e-12)
        own_weight += weight * own_share
        prior_weight = normal_weight if kind == "normal" else cluster_weights[int(kind)]
        prior_weight += weight * (1 - own_share)
    clusters = priors.clusters or {1: ClusterPrior.common(len(n))}
    merged = ClusterPrior(
        np.concatenate([clusters[m].weights * w[:, None] for m, w in cluster_weights.items()], 1),
        np.concatenate([clusters[m].functions for m in cluster_weights]),
    )
    normal = priors.normal or priors_of(rows, ["normal"]).normal
    assert normal is not None
    return Blend(own, own_weight, normal, normal_weight, merged)
