"""Estimate the class frequencies of new rows without labels (label shift)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evencover._kernels import BadRow
from evencover._kernels.reference import probabilities as probabilities_of
from evencover.arrays import FloatArray, IntArray
from evencover.data.source import Source
from evencover.errors import InputError, warn_caller
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import require_labels
from evencover.predictors.rule import BoundScore
from evencover.predictors.temperature import FIT
from evencover.sizes import sampled

# Of more numbers than this some rows are taken; an iteration ends when it moves no further.
MOST_NUMBERS, MOST_STEPS, STILL = sampled(1 << 22, 900), 100, 1e-5
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
    predictor: BasePredictor, probabilities: Any, calibration: Any, labels: Any = None
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
    fit = predictor._current_fit()
    class_counts, n_calibration = fit.rows.class_counts, len(fit.rows)
    source = fit.open(calibration, labels)
    require_labels(source, "The estimate of a prevalence")
    old, old_labels, counts = _sample_rows(fit.rule.scoring.for_input(source.logits), source)
    if predictor.temperature != FIT and not np.array_equal(counts, class_counts):
        raise InputError(
            f"'calibration' must be the predictor's calibration set, {n_calibration} rows. "
            f"Got {counts.sum()} rows with other class counts; pass those of 'fit'."
        )
    source = fit.open(probabilities, read_labels=False)
    new = _sample_rows(fit.rule.scoring.for_input(source.logits), source)[0]

    def shares(labels: IntArray) -> FloatArray:
        return np.asarray(np.bincount(labels, minlength=fit.n_classes) / len(labels))

    before = shares(old_labels)
    estimate = _estimate(old, before, new)
    rng, estimates, shifts = np.random.default_rng(predictor.random_state), [], []
    for _ in range(N_BOOTSTRAPS):
        drawn = rng.integers(0, len(old), len(old))
        drawn_shares = shares(old_labels[drawn])
        new_drawn = new[rng.integers(0, len(new), len(new))]
        estimates.append(_estimate(old[drawn], drawn_shares, new_drawn))
        shifts.append(estimates[-1] - drawn_shares)
    shift = np.abs(estimate - before).sum() / 2
    noise = np.abs(np.array(shifts) - (estimate - before)).sum(axis=1).mean() / 2
    counted = class_counts / n_calibration
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
    effective = n_calibration * (share @ weights) ** 2 / (share @ weights**2)
    error = np.array(estimates).std(axis=0, ddof=1)
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


def _sample_rows(scoring: BoundScore, source: Source) -> tuple[FloatArray, IntArray, IntArray]:
    """Read the probabilities of evenly spaced rows and their labels; count those of all rows."""
    if source.reader.is_listed:
        raise InputError(
            "The estimate of a prevalence needs the probabilities of all classes. Got top-k rows."
        )
    every = 1
    if source.n_rows is not None:
        every = max(1, source.n_rows * source.n_classes // MOST_NUMBERS)
    blocks, labels, counts = [], [], np.zeros(source.n_classes, dtype=np.int64)
    for block in source.blocks():
        first = -block.start % every
        sampled = slice(first, None, every)
        with scoring.checking(block):
            try:
                rows = probabilities_of(block.rows[sampled], **scoring.options)
            except BadRow as bad:
                raise BadRow(first + every * bad.row) from None
        blocks.append(rows / rows.sum(axis=1, keepdims=True))
        if block.labels is not None:
            labels.append(block.labels[sampled])
            counts += np.bincount(block.labels, minlength=source.n_classes)
        if source.n_rows is None and sum(rows.size for rows in blocks) > 4 * MOST_NUMBERS:
            break
    no_labels = [np.zeros(0, dtype=np.int64)]
    return np.concatenate(blocks), np.concatenate(labels or no_labels), counts
