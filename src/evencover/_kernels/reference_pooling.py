"""What POOLED asks of the kernels, in NumPy: the definition that the C++ twin matches bit for bit.

Sums are taken in the order of their index; libraries of linear algebra choose an order by the
machine, and start threads of their own.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from evencover._kernels.reference_rows import exp_nonpositive
from evencover._validation import Array, FloatArray, IntArray


def soft_clusters(
    counts: FloatArray,
    start: FloatArray,
    smoothing: FloatArray,
    *,
    most_steps: int,
    tolerance: float,
) -> FloatArray:
    """A mixture of M multinomials by expectation maximisation: the clusters' weights (K, M).

    Parameters
    ----------
    counts
        (K, B) rows of each class by bin.
    start
        (K, M) the weights to start from.
    smoothing
        (B,) rows that are added to every cluster.
    most_steps, tolerance
        It ends after so many steps, or when no weight changes by as much.
    """
    weights = start
    for _ in range(most_steps):
        masses = np.stack([_sum(weight[:, None] * counts) for weight in weights.T]) + smoothing
        log_shapes = log_positive(masses / np.add.accumulate(masses, axis=1)[:, -1:])
        log_sizes = log_positive((_sum(weights) + 1.0) / (counts.shape[0] + start.shape[1]))
        likelihood = np.repeat(log_sizes[None, :], len(counts), axis=0)
        for count, log_shape in zip(counts.T, log_shapes.T, strict=True):
            likelihood += count[:, None] * log_shape
        before = weights
        weights = exp_nonpositive(likelihood - likelihood.max(axis=1, keepdims=True))
        weights /= np.add.accumulate(weights, axis=1)[:, -1:]
        if np.abs(weights - before).max() < tolerance:
            break
    return weights


def _sum(rows: FloatArray) -> FloatArray:
    """The sum of the rows, one after the other."""
    return np.add.accumulate(rows, axis=0)[-1]


def log_positive(x: FloatArray) -> FloatArray:
    """log(x) of normal x > 0 from IEEE basic operations only, as `exp_nonpositive` is.

    The series of 2 atanh(s), s = (m - 1) / (m + 1), for x = m 2**k with m near 1.
    """
    m, k = np.frexp(x)
    m, k = m * 2.0, k - 1
    large = m > 1.4142135623730951
    m, k = np.where(large, m * 0.5, m), np.where(large, k + 1, k)
    s = (m - 1.0) / (m + 1.0)
    value = np.full_like(s, 1.0 / 23.0)
    for odd in range(21, 0, -2):
        value = value * (s * s) + 1.0 / odd
    return 2.0 * s * value + k * 0.6931471805599453


def mixture_levels(
    weights: FloatArray, functions: FloatArray, classes: IntArray, u: FloatArray
) -> FloatArray:
    """Mixtures' distribution functions of ``classes[i]`` at ``u[i]`` (n,).

    `weights` (K, M) are those of the `functions` (M, B + 1), which are linear between B + 1 equally
    spaced edges from 0 to 1.
    """
    n_bins = functions.shape[1] - 1
    place = np.clip(u, 0.0, 1.0) * n_bins
    left = np.minimum(place, n_bins - 1).astype(np.int64)
    share = place - left
    total = np.zeros(len(u))
    for weight, function in zip(np.ascontiguousarray(weights.T), functions, strict=True):
        here = function[left]
        total += weight[classes] * (here + share * (function[left + 1] - here))
    return total


def mixture_masses(weights: FloatArray, classes: IntArray, bins: Array, n_bins: int) -> FloatArray:
    """The sums (M, n_bins) of the weights (K, M) of the rows' classes, by the rows' bins."""
    columns = np.ascontiguousarray(weights.T)
    return np.stack([np.bincount(bins, each[classes], n_bins) for each in columns])


def bin_counts(
    u: FloatArray, classes: IntArray, n_classes: int, n_bins: int, n_coarse: int
) -> tuple[Array, FloatArray]:
    """The bin of each rank (n,) in [0, 1], and rows by class and coarse bin (n_classes, n_coarse).

    There are `n_bins`, of which as many make a coarse one.
    """
    bins = np.minimum((u * n_bins).astype(np.int16), n_bins - 1).astype(np.int16)
    cells = classes * n_coarse + bins // (n_bins // n_coarse)
    counts = np.bincount(cells, minlength=n_classes * n_coarse).astype(np.float64)
    return bins, counts.reshape(n_classes, n_coarse)


def class_moments(
    values: FloatArray, classes: IntArray, n_classes: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How many values each class has, their mean, and the squares around it, (n_classes,) each."""
    n = np.bincount(classes, minlength=n_classes).astype(np.float64)
    mean = np.bincount(classes, values, n_classes) / np.maximum(n, 1.0)
    squares = np.bincount(classes, (values - mean[classes]) ** 2, n_classes)
    return n, mean, squares.astype(np.float64)


def weighted_line(
    x: FloatArray, y: FloatArray, noise: FloatArray, between: float, has_slope: bool
) -> tuple[float, float, float, float]:
    """A line by weighted least squares: its centre (2 numbers), slope, and the squares it leaves.

    A point weighs 1 / (between + its noise).
    """
    add, weight = np.add.reduce, 1.0 / (between + noise)
    total = add(weight)
    centre_x, centre_y = add(x * weight) / total, add(y * weight) / total
    off_x, off_y = x - centre_x, y - centre_y
    weighted = weight * off_x
    slope = add(weighted * off_y) / add(weighted * off_x) if has_slope else 0.0
    off_y -= slope * off_x
    found = (centre_x, centre_y, slope, add(weight * off_y * off_y))
    return tuple(map(float, found))  # type: ignore[return-value]


class HeldOut(NamedTuple):
    """Rows by class, and what thresholds are tried on them.

    Parameters
    ----------
    own_points, own_offsets
        For each row that a prior was learnt from, the first of G equally spaced ranks (1/G to 1)
        that is above it (int16); those of class y are ``[own_offsets[y]:own_offsets[y + 1]]``.
    held_ranks, held_offsets
        Likewise the ranks of the rows that were held out.
    n_points
        G.
    aim
        The level whose pinball loss is wanted.
    strengths, targets
        (S,) how many rows the prior counts, and the level that all classes share then.
    """

    own_points: Array
    own_offsets: IntArray
    held_ranks: FloatArray
    held_offsets: IntArray
    n_points: int
    aim: float
    strengths: FloatArray
    targets: FloatArray

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.own_offsets) - 1


def normal_losses(
    rows: HeldOut,
    mean: FloatArray,
    deviation: FloatArray,
    scores: FloatArray,
    table: FloatArray,
    reach: float,
) -> FloatArray:
    """Pinball losses by strength and class (S, K) under normal priors.

    Their distribution function is linear between the entries of `table`, from -reach to reach;
    `scores` (G,) are the normal scores of the ranks.
    """
    x = (scores - mean[:, None]) / deviation[:, None]
    place = (np.clip(x, -reach, reach) + reach) * ((len(table) - 1) / (2.0 * reach))
    left = np.minimum(place.astype(np.int32), len(table) - 2)
    return _losses(rows, table[left] + (place - left) * (table[left + 1] - table[left]))


def cluster_losses(rows: HeldOut, weights: FloatArray, functions: FloatArray) -> FloatArray:
    """Pinball losses (S, K) under mixtures (K, M) of distribution functions (M, G)."""
    levels = weights[:, :1] * functions[0]
    for weight, function in zip(weights.T[1:], functions[1:], strict=True):
        levels = levels + weight[:, None] * function
    return _losses(rows, levels)


def _losses(rows: HeldOut, expected: FloatArray) -> FloatArray:
    n_classes, n_points = expected.shape
    counts = np.diff(rows.own_offsets)
    cell = np.repeat(np.arange(n_classes), counts) * n_points + rows.own_points
    below = np.bincount(cell, minlength=n_classes * n_points).reshape(n_classes, n_points)
    below = below.cumsum(axis=1).astype(np.float64)
    n_own = np.maximum(counts, 1).astype(np.float64)
    held = np.repeat(np.arange(n_classes), np.diff(rows.held_offsets))
    losses = []
    for strength, share in zip(rows.strengths, rows.targets, strict=True):
        if strength == inf:  # the prior, without the class's own rows
            threshold = _crossing(expected, np.full(n_classes, share))
        else:  # the levels, times n + strength
            threshold = _crossing(below + strength * expected, share * (n_own + strength))
        error = rows.held_ranks - threshold[held]
        loss = np.maximum(rows.aim * error, (rows.aim - 1.0) * error)
        losses.append(np.bincount(held, loss, n_classes))
    return np.stack(losses)


def _crossing(levels: FloatArray, target: FloatArray) -> FloatArray:
    """The rank at which each class's level reaches its target, linear between the points."""
    classes, n_points = np.arange(len(levels)), levels.shape[1]
    point, n = np.zeros(len(levels), dtype=np.int64), n_points
    while n > 1:  # levels rise: by halves
        half = n // 2
        point += half * (levels[classes, point + half - 1] < target)
        n -= half
    point = np.minimum(point + (levels[classes, point] < target), n_points - 1)
    before = np.where(point > 0, levels[classes, np.maximum(point - 1, 0)], 0.0)
    rise = np.maximum(levels[classes, point] - before, 1e-12)
    return (point + np.clip((target - before) / rise, 0.0, 1.0)) / n_points
