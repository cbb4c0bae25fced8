"""Coverage for other class frequencies than those of the calibration rows (label shift).

If only the frequencies of the classes change, and not what the rows of a class look like, a
calibration row of class y stands for target_y / calibration_y rows. The threshold of class y is
then a weighted conformal quantile (Tibshirani et al. 2019; Podkopaev and Ramdas 2021): the smallest
score up to which the weights sum to 1 - alpha of all weights and the weight of y itself, which
stands for the new row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evencover._kernels import BadRow
from evencover._kernels.reference import probabilities as probabilities_of
from evencover.arrays import FloatArray, IntArray
from evencover.data.source import Source
from evencover.errors import InputError, listed, warn_caller
from evencover.predictors.fitting import align_to_calibration, require_labels
from evencover.predictors.method import MethodContract
from evencover.predictors.temperature import FIT
from evencover.quantiles import Alpha, exact_fraction
from evencover.validation import align_classes

# A sum of weights may be a little short of its value; equal weights then give the plain rank.
SHORT = 1 - 1e-12


def read_target(method: MethodContract) -> FloatArray | None:
    """Return the target prevalence as shares (K,); warn of classes without calibration rows."""
    if method.target_prevalence is None:
        return None
    target = target_shares(method.target_prevalence, method.n_classes_, method.class_names_)
    missing = (method.class_counts_ == 0) & (target > 0)
    if target[~missing].sum() == 0:
        raise InputError(
            "The 'target_prevalence' parameter must be above 0 for a class with calibration rows. "
            "Got such for none."
        )
    if missing.any():
        warn_caller(
            f"{int(missing.sum())} of {method.n_classes_} classes have no calibration examples, "
            f"but {target[missing].sum():.1%} of the target prevalence; the guarantee "
            "excludes them."
        )
    return target


def class_weights(method: MethodContract) -> FloatArray:
    """Return the weight of a row of each class (K,); a class without rows has the largest."""
    assert method.target_prevalence_ is not None
    present = method.class_counts_ > 0
    target = method.target_prevalence_ / method.target_prevalence_[present].sum()
    weights = target * method.n_calibration_ / np.maximum(method.class_counts_, 1)
    return np.where(present, weights, weights[present].max())


def target_shares(
    target: Any, n_classes: int, class_names: Sequence[str] | None = None
) -> FloatArray:
    """Return the target as shares (K,) that sum to 1.

    >>> target_shares([3, 1], 2).tolist(), target_shares("uniform", 4).tolist()
    ([0.75, 0.25], [0.25, 0.25, 0.25, 0.25])
    """
    if isinstance(target, str) and target == "uniform":
        return np.full(n_classes, 1 / n_classes)
    if isinstance(target, str | os.PathLike):
        from evencover.data.open import class_values_from_file

        target = class_values_from_file(target, "prevalence")
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

    `own_weights` (J,) are those of new rows of each class, of which `own_share` (n,) counts.
    """
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    at_least = sums[-1] - sums[np.searchsorted(scores, new)]
    return np.asarray((at_least + own_share[:, None] * own_weights) / (sums[-1] + own_weights))


def sorted_weights(scores: FloatArray, weights: FloatArray) -> FloatArray:
    """Return weights in increasing order of the scores; equal scores by weight."""
    return weights[np.lexsort((weights, scores))]


# Of more numbers than this some rows are taken; an iteration ends when it moves no further.
MOST_NUMBERS, MOST_STEPS, STILL = 1 << 22, 100, 1e-5
# A shift below twice its bootstrap noise is none: an estimate of it would do more harm than good.
N_BOOTSTRAPS, MOST_NOISE = 10, 0.5


class PrevalenceEstimate(NamedTuple):
    """Estimate class frequencies of new rows, with standard errors.

    ``prevalence`` (K,) is the `target_prevalence`: the estimate if ``is_shift``, otherwise the
    calibration frequencies. ``standard_error`` (K,) is by bootstrap;
    ``effective_rows`` is the effective number of calibration rows.
    """

    prevalence: FloatArray
    standard_error: FloatArray
    effective_rows: float
    is_shift: bool


def estimate_prevalence(
    predictor: MethodContract, probabilities: Any, calibration: Any, labels: Any = None
) -> PrevalenceEstimate:
    """Estimate the class frequencies of new rows without labels, for `target_prevalence`.

    It maximizes the likelihood by expectation maximization (Saerens, Latinne, Decaestecker 2002),
    after a factor per class that reproduces the class counts of the calibration set
    (bias-corrected calibration, Alexandari et al. 2020). It assumes that only the frequencies
    differ. If the estimate differs from the calibration frequencies by less than twice its
    bootstrap error, it warns and returns these. Overall coverage changes by at most half the sum
    of the absolute errors of the estimate.

    Parameters
    ----------
    predictor
        A calibrated predictor.
    probabilities
        New rows, as in `predict_set`; a sample if there are very many.
    calibration, labels
        The calibration set, as in `fit`.

    >>> from evencover import StandardPredictor
    >>> rows, labels = np.array([[0.9, 0.1], [0.2, 0.8]] * 50), [0, 1] * 50
    >>> predictor = StandardPredictor().fit(rows, labels)
    >>> found = estimate_prevalence(predictor, rows[[0, 0, 0, 1] * 50], rows, labels)
    >>> found.prevalence.round(2).tolist(), found.is_shift
    ([0.85, 0.15], True)
    """
    source = align_to_calibration(predictor, calibration, labels)
    require_labels(source, "The estimate of a prevalence")
    old, own, counts = _some_rows(predictor, source)
    if predictor.temperature != FIT and not np.array_equal(counts, predictor.class_counts_):
        raise InputError(
            f"'calibration' must be the predictor's calibration set, {predictor.n_calibration_} "
            f"rows. Got {counts.sum()} rows with other class counts; pass those of 'fit'."
        )
    new = _some_rows(predictor, align_to_calibration(predictor, probabilities))[0]

    def shares(labels: IntArray) -> FloatArray:
        return np.asarray(np.bincount(labels, minlength=source.n_classes) / len(labels))

    before = shares(own)
    estimate = _estimate(old, before, new)
    rng, moves = np.random.default_rng(predictor.random_state), []
    for _ in range(N_BOOTSTRAPS):
        some = rng.integers(0, len(old), len(old))
        share = shares(own[some])
        again = _estimate(old[some], share, new[rng.integers(0, len(new), len(new))])
        moves.append((again, again - share))
    estimates, shifts = (np.array(each) for each in zip(*moves, strict=True))
    shift = np.abs(estimate - before).sum() / 2
    noise = np.abs(shifts - (estimate - before)).sum(axis=1).mean() / 2
    counted = predictor.class_counts_ / predictor.n_calibration_
    is_shift = bool(noise < MOST_NOISE * shift)
    if not is_shift:
        warn_caller(
            "The estimated class frequencies differ from those of the calibration rows by "
            f"{shift:.2f} in total variation, where sampling noise alone gives {noise:.2f}; the "
            "calibration frequencies are used instead."
        )
        estimate = counted
    share = counted[counted > 0]
    weights = estimate[counted > 0] / share
    effective = predictor.n_calibration_ * (share @ weights) ** 2 / (share @ weights**2)
    error = estimates.std(axis=0, ddof=1)
    return PrevalenceEstimate(estimate, error, float(effective), is_shift)


def _estimate(old: FloatArray, before: FloatArray, new: FloatArray) -> FloatArray:
    """Estimate the frequencies (K,) of new rows, those of the old ones being `before`.

    A class without old rows has the mean of its probabilities: no factor is known for it.
    """
    target, known = new.mean(axis=0), np.flatnonzero(before)
    old, before, new = old[:, known], before[known], new[:, known]
    factors = np.ones(len(known))
    for _ in range(MOST_STEPS):
        expected = factors * (_inverse(old @ factors) @ old) / len(old)
        factors *= before / np.maximum(expected, np.finfo(float).tiny)
        if np.abs(expected - before).sum() < STILL:
            break
    weights, share, ratios = new.sum(axis=1), before, factors / before
    for _ in range(MOST_STEPS):
        improved = share * ratios * ((weights * _inverse(new @ (share * ratios))) @ new)
        improved /= max(improved.sum(), np.finfo(float).tiny)
        moved, share = float(np.abs(improved - share).sum()), improved
        if moved < STILL:
            break
    target[known] = share * weights.sum() / len(new)
    return target


def _inverse(values: FloatArray) -> FloatArray:
    """Invert; a row with zero probability for every class counts for none."""
    return np.divide(1, values, out=np.zeros_like(values), where=values > 0)


def _some_rows(predictor: MethodContract, source: Source) -> tuple[FloatArray, IntArray, IntArray]:
    """Read the probabilities of evenly spaced rows and their labels; count those of all rows."""
    scoring = predictor.bound_score(source.logits)
    every = 1
    if source.n_rows is not None:
        every = max(1, source.n_rows * source.n_classes // MOST_NUMBERS)
    blocks, labels, counts = [], [], np.zeros(source.n_classes, dtype=np.int64)
    for block in source.blocks():
        first = -block.start % every
        some = slice(first, None, every)
        with scoring.checking(block):
            try:
                rows = probabilities_of(block.rows[some], **scoring.options)
            except BadRow as bad:
                raise BadRow(first + every * bad.row) from None
        blocks.append(rows / rows.sum(axis=1, keepdims=True))
        own = np.zeros(0, dtype=np.int64) if block.labels is None else block.labels
        labels.append(own[some])
        counts += np.bincount(own, minlength=source.n_classes)
        if source.n_rows is None and sum(each.size for each in blocks) > 4 * MOST_NUMBERS:
            break
    return np.concatenate(blocks), np.concatenate(labels), counts
