"""Partial pooling: what the scores of a class are expected to look like, given all classes.

Everything lives in pooled ranks u = #{calibration scores < s} / N, so the scale of the score does
not matter. A prior gives each class a distribution function of u, leaning on the other classes as
much as the class's own rows are few. The level of class y at score s blends it with the class's
own empirical function, c counting as many rows:

    level_y(s) = (#{own scores < s} + c prior_y(u)) / (n_y + c)

c = inf with the common prior is STANDARD's order of the scores; c = 0 is CLASSWISE's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from math import exp, log
from typing import NamedTuple, Protocol

import numpy as np

from evencover import _kernels
from evencover._kernels import HeldOut
from evencover._validation import Array, FloatArray, IntArray

# Coarse bins tell clusters apart; fine bins hold their distribution functions.
COARSE_BINS, FINE_BINS = 16, 256
# What losses know of a distribution function: its values at so many equally spaced ranks, and the
# normal one from a table that is right to 3e-8.
LOSS_POINTS = 128
TABLE_REACH, TABLE_STEPS = 8.0, 16384
# How many rows the spread of all classes together counts when that of one class is estimated.
SPREAD_ROWS = 40.0
# Normal scores of all ranks of up to so many rows are kept, 16 bytes for each.
MOST_KEPT = 1 << 16


class Prior(Protocol):
    """Distribution functions of pooled ranks, one per class."""

    def level(self, classes: IntArray, u: FloatArray) -> FloatArray:
        """The share of class ``classes[i]`` that is expected below rank ``u[i]``."""

    def losses(self, rows: HeldOut) -> FloatArray:
        """Pinball losses of held-out rows by strength and class (S, K)."""


class NormalPrior(NamedTuple):
    """Classes differ in location and spread of their normal scores: a random-effects model.

    The normal scores of all rows together are standard normal. Those of class y have a mean drawn
    from N(a + b log(1 + n_y), between): rare classes tend to be the hard ones. The estimate of a
    class's mean is drawn to that line by the ratio of the variance within to that between
    classes, its variance to the common one.
    """

    mean: FloatArray
    deviation: FloatArray

    @classmethod
    def fit(cls, u: FloatArray, labels: IntArray, n_classes: int) -> NormalPrior:
        """Estimate from pooled ranks in (0, 1) and labels."""
        return cls.of_scores(normal_score(u), labels, n_classes)

    @classmethod
    def of_scores(cls, x: FloatArray, labels: IntArray, n_classes: int) -> NormalPrior:
        """The same from the ranks' normal scores."""
        n, own_mean, squares = _kernels.class_moments(x, labels, n_classes)
        within = max(squares.sum() / max(n.sum() - (n > 0).sum(), 1), 1e-6)
        expected, between = _line(np.log1p(n), own_mean, within, n)
        pull = within / between
        mean = (n * own_mean + pull * expected) / (n + pull)
        variance = (SPREAD_ROWS * within + squares) / (SPREAD_ROWS + np.maximum(n - 1, 0))
        return cls(mean, np.sqrt(variance * (1 + 1 / (n + pull))))

    def level(self, classes: IntArray, u: FloatArray) -> FloatArray:
        """Normal distribution function at the normal score of u."""
        return self.level_at(classes, normal_score(u))

    def level_at(self, classes: IntArray, x: FloatArray) -> FloatArray:
        """The same from the ranks' normal scores."""
        from scipy.special import ndtr

        return ndtr((x - self.mean[classes]) / self.deviation[classes])

    def losses(self, rows: HeldOut) -> FloatArray:
        """Under normal distribution functions from a table."""
        return _kernels.normal_losses(rows, *self, _loss_scores(), _normal_table(), TABLE_REACH)


@cache
def _loss_scores() -> FloatArray:
    return normal_score(np.arange(1, LOSS_POINTS + 1) / LOSS_POINTS)


@cache
def _normal_table() -> FloatArray:
    from scipy.special import ndtr

    return ndtr(np.linspace(-TABLE_REACH, TABLE_REACH, TABLE_STEPS + 1))


def _line(
    feature: FloatArray, means: FloatArray, within: float, n: FloatArray
) -> tuple[FloatArray, float]:
    """The mean that a class's feature leads one to expect (K,), and the variance around it.

    Weighted least squares; the variance between classes is the one at which the weighted squares
    are what they should be (Paule and Mandel 1982), found by halving.
    """
    seen = n > 0
    x, y, noise = feature[seen] - feature[seen].mean(), means[seen], within / n[seen]
    has_slope = np.ptp(x) > 1e-9 and len(x) > 2
    wanted = len(x) - 1 - has_slope
    line = partial(_kernels.weighted_line, x, y, noise, has_slope=bool(has_slope))
    between = _root(lambda between: line(between=between)[3] - wanted, 1e-3, 1e3)
    centre_x, centre_y, slope, _ = line(between=between)
    return centre_y + slope * (feature - feature[seen].mean() - centre_x), between


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function of a positive number is 0, or the end that is nearer to it.

    False position on a logarithmic scale, the end that stays being halved (the Illinois rule).
    """
    ends, values = [log(low), log(high)], [function(low), function(high)]
    if values[0] <= 0 or values[1] >= 0:
        return low if values[0] <= 0 else high
    kept = -1
    for _ in range(60):
        middle = (ends[0] * values[1] - ends[1] * values[0]) / (values[1] - values[0])
        value = function(exp(middle))
        side = 0 if value > 0 else 1
        ends[side], values[side] = middle, value
        if side == kept:
            values[1 - side] /= 2
        kept = side
        if value == 0 or ends[1] - ends[0] < 1e-12:
            break
    return exp(middle)


class ClusterPrior(NamedTuple):
    """Soft clusters: a class's distribution is a mixture of M, by its posterior weights (K, M).

    ``functions`` (M, bins + 1) are the clusters' distribution functions at equally spaced ranks.
    One cluster is the common prior, in which every class looks like all of them together.
    """

    weights: FloatArray
    functions: FloatArray

    @classmethod
    def fit(cls, u: FloatArray, labels: IntArray, n_classes: int, n_clusters: int) -> ClusterPrior:
        """Mixture of multinomials over coarse bins, by expectation maximisation."""
        return cls.fit_all(u, labels, n_classes, [n_clusters])[n_clusters]

    @classmethod
    def fit_all(
        cls, u: FloatArray, labels: IntArray, n_classes: int, numbers: Iterable[int]
    ) -> dict[int, ClusterPrior]:
        """The same for several numbers of clusters, each of which begins alike."""
        found = {}
        for n_clusters in numbers:
            if n_clusters == 1:
                found[1] = cls.common(n_classes)
                continue
            if not found.keys() - {1}:
                binned = _kernels.bin_counts(u, labels, n_classes, FINE_BINS, COARSE_BINS)
                start = _Start.of(binned[1])
            weights = start.cluster_weights(n_clusters)
            mass = _kernels.mixture_masses(weights, labels, binned[0], FINE_BINS) + 1e-9
            functions = np.zeros((n_clusters, FINE_BINS + 1))
            np.cumsum(mass, axis=1, out=functions[:, 1:])
            functions[:, 1:] /= mass.sum(axis=1, keepdims=True)
            found[n_clusters] = cls(weights, functions)
        return found

    @classmethod
    def common(cls, n_classes: int) -> ClusterPrior:
        """One cluster: all rows together are uniform in their ranks, exactly."""
        return cls(np.ones((n_classes, 1)), np.linspace(0, 1, FINE_BINS + 1)[None, :])

    def level(self, classes: IntArray, u: FloatArray) -> FloatArray:
        """The mixture's distribution function, linear between the bins' edges."""
        classes, u = np.broadcast_arrays(classes, u)
        levels = _kernels.mixture_levels(*self, classes.ravel(), u.ravel())
        return levels.reshape(u.shape)

    def losses(self, rows: HeldOut) -> FloatArray:
        """Under the mixtures' distribution functions."""
        every = FINE_BINS // LOSS_POINTS
        return _kernels.cluster_losses(rows, self.weights, self.functions[:, every::every])


def rank_scores(twice: IntArray, n: int) -> FloatArray:
    """Normal scores of the ranks twice / 2n: middles and edges of n places."""
    return _all_rank_scores(n)[twice] if n <= MOST_KEPT else normal_score(twice / (2 * n))


@lru_cache(maxsize=8)  # folds have one size or two, and so have splits of the same data
def _all_rank_scores(n: int) -> FloatArray:
    return normal_score(np.arange(2 * n + 1) / max(1, 2 * n))


def normal_score(u: FloatArray) -> FloatArray:
    """Standard normal quantile of a rank; ranks 0 and 1 are kept finite."""
    from scipy.special import ndtri

    return ndtri(np.clip(u, 1e-7, 1 - 1e-7))


class _Start(NamedTuple):
    """What every number of clusters starts from: rows by class and bin, and an order of classes.

    ``place`` (K,) is where the middle of a class's rows stands, in (0, 1), if classes are in the
    order of their mean rank.
    """

    counts: FloatArray
    pooled: FloatArray
    order: IntArray
    place: FloatArray

    @classmethod
    def of(cls, counts: FloatArray) -> _Start:
        n_bins, n = counts.shape[1], counts.sum(axis=1)
        pooled = (counts.sum(axis=0) + 1) / (counts.sum() + n_bins)
        centre = (np.arange(n_bins) + 0.5) / n_bins
        mean = ((counts * centre).sum(axis=1) + 2 * (pooled * centre).sum()) / (n + 2)
        order = np.argsort(mean, kind="stable")
        return cls(counts, pooled, order, (np.cumsum(n[order]) - n[order] / 2) / n.sum())

    def cluster_weights(self, n_clusters: int) -> FloatArray:
        """Posterior weight of each cluster for each class (K, M).

        Starts from the order of the classes, cut into M parts of equal size; each cluster is
        smoothed with a few rows of the pooled distribution.
        """
        weights = np.zeros((len(self.counts), n_clusters))
        weights[self.order, np.minimum((self.place * n_clusters).astype(int), n_clusters - 1)] = 1
        return _kernels.soft_clusters(
            self.counts, weights, 5 * self.pooled, most_steps=50, tolerance=1e-4
        )


class OwnRows(NamedTuple):
    """Where the rows of each class stand among all rows, to count those below a place.

    ``places`` holds ``class * (N + 1) + place``, ascending; ``offsets`` (K + 1,) where each class
    begins.
    """

    places: IntArray
    offsets: IntArray
    n_rows: int

    @classmethod
    def of(cls, places: IntArray, labels: IntArray, n_classes: int, n_rows: int) -> OwnRows:
        """From the place of each row in the order of all N scores, and its label."""
        counts = np.bincount(labels, minlength=n_classes)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return cls(np.sort(labels * (n_rows + 1) + places), offsets, n_rows)

    @classmethod
    def by_class(cls, places: IntArray, offsets: IntArray, n_rows: int) -> OwnRows:
        """From the places of the rows of each class, ascending, one class after the other."""
        first = np.arange(len(offsets) - 1) * (n_rows + 1)
        return cls(places + np.repeat(first, np.diff(offsets)), offsets, n_rows)

    @property
    def counts(self) -> IntArray:
        """Rows of each class."""
        return np.diff(self.offsets)

    def below(self, classes: IntArray, place: Array) -> IntArray:
        """How many rows of ``classes[i]`` stand before ``place[i]``."""
        found = np.searchsorted(self.places, classes * (self.n_rows + 1) + place)
        return found - self.offsets[classes]


class Blend(NamedTuple):
    """The level of every class at every place: its own rows, blended with what is expected of it.

    The weights of a class's own rows (K,), of the normal prior (K,) and of the clusters, which
    are those of `clusters` (K, M), add up to 1 for every class.
    """

    own: OwnRows
    own_weight: FloatArray
    normal: NormalPrior
    normal_weight: FloatArray
    clusters: ClusterPrior

    def level(self, classes: IntArray, place: Array) -> FloatArray:
        """The level of ``classes[i]`` at a score that ``place[i]`` of the N scores are below."""
        u, own_rows = rank_of_place(place, self.own.n_rows), np.maximum(self.own.counts, 1)
        own = self.own.below(classes, place) / own_rows[classes]
        total = self.own_weight[classes] * own + self.clusters.level(classes, u)
        if self.normal_weight.any():
            x = rank_scores(2 * place, self.own.n_rows)
            total = total + self.normal_weight[classes] * self.normal.level_at(classes, x)
        return total

    def last_place(self, level: FloatArray) -> IntArray:
        """The last place at which each class's level is at most its `level` (K,); -1 if none is.

        Levels rise with the place, so this is a search by halves, for all classes at once.
        """
        classes = np.arange(len(self.own_weight))
        low = np.full(len(classes), -1)
        high = np.full(len(classes), self.own.n_rows + 1)
        while (high - low > 1).any():
            middle = (low + high) // 2
            within = self.level(classes, np.maximum(middle, 0)) <= level
            within |= middle < 0
            low, high = np.where(within, middle, low), np.where(within, high, middle)
        return low


def rank_of_place(place: Array, n_rows: int) -> FloatArray:
    """The pooled rank of a score that `place` of n scores are below.

    It lies half-way between its neighbours, whose middle ranks are (place -+ 0.5) / n.
    """
    return place / max(1, n_rows)
