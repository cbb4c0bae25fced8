"""Weighted conformal quantiles, for other class frequencies than those of the calibration rows.

If only the frequencies of the classes change, and not what the rows of a class look like, a
calibration row of class y stands for target_y / calibration_y rows. The threshold of class y is
then a weighted conformal quantile (Tibshirani et al. 2019; Podkopaev and Ramdas 2021): the smallest
score up to which the weights sum to 1 - alpha of all weights and the weight of y itself, which
stands for the new row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from evencover.arrays import FloatArray, IntArray, to_numpy
from evencover.errors import InputError, listed, warn_caller
from evencover.quantiles import Alpha, exact_fraction
from evencover.validation import align_classes, as_written, by_class

# A sum of weights may be a little short of its value; equal weights then give the plain rank.
SHORT = 1 - 1e-12
UNIFORM = "uniform"


def read_target(target: Any) -> Any:
    """Return a target prevalence by class, as a vector, or "uniform"; read it from a file."""
    if isinstance(target, str) and target == UNIFORM:
        return target
    if isinstance(target, str | os.PathLike):
        from evencover.data.open import class_values_from_file

        target = class_values_from_file(target, "prevalence")
    named = by_class(target, "target_prevalence")
    return np.array(as_written(to_numpy(target))) if named is None else named


def target_shares(
    target: Any, n_classes: int, class_names: Sequence[str] | None = None
) -> FloatArray:
    """Return what `read_target` returned as shares (K,) that sum to 1.

    >>> target_shares([3, 1], 2).tolist(), target_shares("uniform", 4).tolist()
    ([0.75, 0.25], [0.25, 0.25, 0.25, 0.25])
    """
    if isinstance(target, str):
        return np.full(n_classes, 1 / n_classes)
    aligned = align_classes(target, class_names, n_classes, "target_prevalence")
    try:
        values = aligned.astype(np.float64)
    except (TypeError, ValueError):
        values = np.full(n_classes, np.nan)
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise InputError(
            "The 'target_prevalence' parameter must be 'uniform', a file, or one number of at "
            f"least 0 per class, not all 0. Got {listed(aligned.tolist(), 5)}."
        )
    return values / values.sum()


def check_target(shares: FloatArray, class_counts: IntArray) -> None:
    """Raise if no class of the target has calibration rows; warn if some have none."""
    missing = (class_counts == 0) & (shares > 0)
    if shares[~missing].sum() == 0:
        raise InputError("'target_prevalence' is zero for every class with calibration examples.")
    if missing.any():
        warn_caller(
            f"{int(missing.sum())} of {len(shares)} classes have no calibration examples, "
            f"but {shares[missing].sum():.1%} of the target prevalence; the guarantee "
            "excludes them."
        )


def class_weights(shares: FloatArray, class_counts: IntArray) -> FloatArray:
    """Return the weight of a row of each class (K,); a class without rows has the largest."""
    present = class_counts > 0
    target = shares / shares[present].sum()
    weights = target * int(class_counts.sum()) / np.maximum(class_counts, 1)
    return np.where(present, weights, weights[present].max())


def weighted_thresholds(
    scores: FloatArray, weights: FloatArray, own_weights: FloatArray, alpha: Alpha
) -> FloatArray:
    """Compute the weighted conformal quantile for new rows of each of `own_weights`.

    `scores` (n,) are calibration scores in increasing order, `weights` (n,) what each stands for.

    >>> weighted_thresholds(np.arange(1.0, 10), np.ones(9), np.array([1.0, 3.0]), 0.1)
    array([ 9., inf])
    """
    sums = np.cumsum(weights)
    total = sums[-1] if len(sums) else 0.0
    aim = float(1 - exact_fraction(alpha)) * SHORT * (total + own_weights)
    return np.append(scores, np.inf)[np.searchsorted(sums, aim)]


def weighted_p_values(
    new: FloatArray,
    scores: FloatArray,
    weights: FloatArray,
    own_weights: FloatArray,
    own_share: FloatArray,
) -> FloatArray:
    """Compute weighted p-values: the share of scores at least `new` (n, J), and of the row itself.

    `own_weights` (J,) are those of new rows of each class, of which `own_share` (n, J) counts.
    """
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    at_least = sums[-1] - sums[np.searchsorted(scores, new)]
    return np.asarray((at_least + own_share * own_weights) / (sums[-1] + own_weights))


def sorted_weights(scores: FloatArray, weights: FloatArray) -> FloatArray:
    """Return weights in increasing order of the scores; equal scores by weight."""
    return weights[np.lexsort((weights, scores))]
