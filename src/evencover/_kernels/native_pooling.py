"""What POOLED asks of the kernels, in C++: same signatures and same bits as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

import evencover._kernels._native as _native
from evencover._kernels.reference_folds import Blends, LeftOut
from evencover._kernels.reference_pooling import HeldOut
from evencover._validation import Array, FloatArray, IntArray

INSTRUCTION_SET: str = _native.instruction_sets()[0]


def soft_clusters(
    counts: FloatArray,
    start: FloatArray,
    smoothing: FloatArray,
    *,
    most_steps: int,
    tolerance: float,
) -> FloatArray:
    """The clusters' weights by expectation maximisation: see `reference_pooling.soft_clusters`."""
    weights = np.array(start, dtype=np.float64, order="C")
    options = (_floats(smoothing), int(most_steps), float(tolerance))
    _native.soft_clusters(INSTRUCTION_SET, _floats(counts), *options, weights)
    return weights


def mixture_levels(
    weights: FloatArray, functions: FloatArray, classes: IntArray, u: FloatArray
) -> FloatArray:
    """Mixtures' distribution functions: see `reference_pooling.mixture_levels`."""
    levels = np.empty(len(u))
    mixture = (_floats(weights), _floats(functions.T))
    _native.mixture_levels(INSTRUCTION_SET, *mixture, _integers(classes), _floats(u), levels)
    return levels


def mixture_masses(weights: FloatArray, classes: IntArray, bins: Array, n_bins: int) -> FloatArray:
    """Sums of weights by bin: see `reference_pooling.mixture_masses`."""
    masses = np.zeros((n_bins, weights.shape[1]))
    rows = (_integers(classes), np.ascontiguousarray(bins, dtype=np.int16))
    _native.mixture_masses(INSTRUCTION_SET, _floats(weights), *rows, masses)
    return np.ascontiguousarray(masses.T)


def bin_counts(
    u: FloatArray, classes: IntArray, n_classes: int, n_bins: int, n_coarse: int
) -> tuple[Array, FloatArray]:
    """Rows by class and bin: see `reference_pooling.bin_counts`."""
    bins, counts = np.empty(len(u), dtype=np.int16), np.zeros((n_classes, n_coarse))
    _native.bin_counts(INSTRUCTION_SET, _floats(u), _integers(classes), n_bins, bins, counts)
    return bins, counts


def class_moments(
    values: FloatArray, classes: IntArray, n_classes: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Counts, means and squares: see `reference_pooling.class_moments`."""
    n, mean, squares = np.empty((3, n_classes))
    _native.class_moments(INSTRUCTION_SET, _floats(values), _integers(classes), n, mean, squares)
    return n, mean, squares


def weighted_line(
    x: FloatArray, y: FloatArray, noise: FloatArray, between: float, has_slope: bool
) -> tuple[float, float, float, float]:
    """Weighted least squares: see `reference_pooling.weighted_line`."""
    points = (_floats(x), _floats(y), _floats(noise))
    found: tuple[float, float, float, float] = _native.weighted_line(
        INSTRUCTION_SET, *points, float(between), bool(has_slope)
    )
    return found


def left_out(
    labels: IntArray, first: IntArray, fold: Array, number: int, n_classes: int
) -> LeftOut:
    """Rows without those of one fold: see `reference_folds.left_out`."""
    n_held = int(np.count_nonzero(fold == number))
    kept = np.empty((3, len(labels) - n_held), dtype=np.int64)
    held, offsets = np.empty((4, n_held), np.int64), np.empty((2, n_classes + 1), np.int64)
    rows = (_integers(labels), _integers(first), np.ascontiguousarray(fold, dtype=np.int8))
    _native.left_out(INSTRUCTION_SET, *rows, int(number), kept, held, offsets)
    every: Any = (*kept, offsets[0], *held, offsets[1])
    return LeftOut(*every)


def blended_quantile(blends: Blends, ingredient: int, rank: int) -> float:
    """The level at a rank: see `reference_folds.blended_quantile`."""
    found: float = _native.blended_quantile(
        INSTRUCTION_SET, _native.Blends(*blends), int(ingredient), int(rank)
    )
    return found


def blended_levels(blends: Blends, weights: FloatArray) -> FloatArray:
    """Levels under all blends: see `reference_folds.blended_levels`."""
    levels = np.empty(len(blends.own))
    _native.blended_levels(INSTRUCTION_SET, _native.Blends(*blends), _floats(weights), levels)
    return levels


def normal_losses(
    rows: HeldOut,
    mean: FloatArray,
    deviation: FloatArray,
    scores: FloatArray,
    table: FloatArray,
    reach: float,
) -> FloatArray:
    """Pinball losses under normal priors: see `reference_pooling.normal_losses`."""
    losses = np.empty((len(rows.strengths), rows.n_classes))
    prior = (_floats(mean), _floats(deviation), _floats(scores), _floats(table), float(reach))
    _native.normal_losses(INSTRUCTION_SET, _native.HeldOut(*rows), *prior, losses)
    return losses


def cluster_losses(rows: HeldOut, weights: FloatArray, functions: FloatArray) -> FloatArray:
    """Pinball losses under soft clusters: see `reference_pooling.cluster_losses`."""
    losses = np.empty((len(rows.strengths), rows.n_classes))
    prior = (_floats(weights), _floats(functions.T))
    _native.cluster_losses(INSTRUCTION_SET, _native.HeldOut(*rows), *prior, losses)
    return losses


def _floats(values: Array) -> FloatArray:
    return np.ascontiguousarray(values, dtype=np.float64)


def _integers(values: Array) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.int64)
