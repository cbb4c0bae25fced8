"""Calibration on out-of-fold probabilities, without a separate calibration set."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import combinations
from typing import Any

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.data.frames import index_of
from evencover.data.join import RowValues, match
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.errors import InputError, warn_caller
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import require_labels
from evencover.predictors.registry import DEFAULT_METHOD, make_predictor

# How unlikely a fold's coverage must be, over all folds, before it is reported.
RATE = 1e-3
# Share of rows on which the final model may differ from the folds', and how much more than they do
# from each other: 0.63 times as much is usual, trees reach 1, LDA with n = d reaches 1.15.
MOST_DIFFERENT, MOST_RELATIVE = 0.1, 1.05


def from_cross_val(
    probabilities: Any,
    labels: Any,
    folds: Any,
    predictor: BasePredictor | str | None = None,
    *,
    class_names: Sequence[str] | None = None,
) -> BasePredictor:
    """Calibrate a predictor on out-of-fold probabilities, for a model fitted on all rows.

    Each row's probabilities come from a model that was not fitted on it. There is no guarantee
    for the model fitted on all rows: coverage is near 1 - alpha if it agrees with the fold models
    and can be far lower otherwise; see docs/howto/stronger_guarantees.md.

    Parameters
    ----------
    probabilities, labels
        (N, K) out-of-fold probabilities and (N,) class indices. A class that is 0 in all rows of a
        fold is unknown to its model, and its rows in the fold count as misses.
    folds
        (N,) the fold in which each row was held out, by name or number. A fold with deviating
        coverage gives a warning. A Series is joined to the rows as `labels` are.
    predictor
        The method, as a predictor or its name; None is the default, POOLED, at alpha = 0.1.
    class_names
        One name per class.

    >>> from evencover.data import load_languages
    >>> p, y, _ = load_languages()  # as if it came from five models
    >>> predictor = from_cross_val(p, y, np.arange(len(y)) % 5, "standard")
    >>> predictor.n_calibration_
    20200
    """
    fitted = make_predictor(DEFAULT_METHOD if predictor is None else predictor)
    source = as_source(probabilities, labels, class_names=class_names)
    fold_of_row = to_numpy(match(source, RowValues(folds, index_of(folds), True), "folds")[0])
    if fold_of_row.shape != (source.n_rows,):
        raise InputError(
            f"'folds' must have one entry per row. Got shape {fold_of_row.shape} for "
            f"{source.n_rows} rows."
        )
    names, number = np.unique(fold_of_row, return_inverse=True)
    if len(names) < 2:
        raise InputError(f"'folds' must name at least 2 folds. Got {len(names)}.")
    require_labels(source, "Calibration")
    is_miss = _unknown_to_fold(source, number)
    trial = fit_with_misses(copy(fitted), source, is_miss, out_of_fold=True)
    # Looked at as new rows: the thresholds are common to all folds, so each covers about as much.
    covered = trial.predict_set(source).contains(source.labels) & ~is_miss
    _warn_of_odd_folds(covered, number, names)
    fitted.fit_ = trial.fit_
    return fitted


def fit_with_misses(
    predictor: BasePredictor, source: Source, is_miss: Array, *, out_of_fold: bool = False
) -> BasePredictor:
    """Fit to rows of which some (N,) have a label that the model cannot predict."""
    score = predictor._check_parameters()
    how: Any = {"is_miss": is_miss, "out_of_fold": out_of_fold}
    predictor.fit_ = predictor._fit_source(score, source, **how)
    return predictor


def _unknown_to_fold(source: Source, fold_of_row: Array) -> Array:
    """Return whether each label (N,) has probability 0 in all rows of its fold."""
    largest = np.full((int(fold_of_row.max()) + 1, source.n_classes), -np.inf)
    labels: list[IntArray] = []
    for block in source.blocks():
        assert block.labels is not None
        folds = fold_of_row[block.start : block.start + len(block.rows)]
        for fold in np.unique(folds):
            largest[fold] = np.maximum(largest[fold], block.rows[folds == fold].max(axis=0))
        labels.append(block.labels)
    return largest[fold_of_row, np.concatenate(labels)] == (-np.inf if source.logits else 0)


def warn_of_unstable_model(changed: float, of_folds: Sequence[Array], final: Array) -> None:
    """Warn if the final model differs from the models of the folds.

    `changed` is the share of calibration rows with another top class in the final model, which was
    fitted on them; `of_folds` and `final` are predicted classes of held-out rows. More data should
    bring the final model nearer to each of the others than these are to each other.
    """
    apart = np.mean([(classes != final).mean() for classes in of_folds])
    among = np.mean([(a != b).mean() for a, b in combinations(of_folds, 2)])
    if changed > MOST_DIFFERENT and apart > MOST_RELATIVE * among:
        warn_caller(
            "The model fitted on all rows differs from the fold models in the top class of "
            f"{changed:.0%} of the calibration rows and {apart:.0%} of new rows (fold models among "
            f"each other: {among:.0%}). Coverage may be far below 1 - alpha; use a holdout "
            "(cv=None) or a more stable model."
        )


def _warn_of_odd_folds(covered: Array, fold_of_row: Array, names: Array) -> None:
    """Warn of folds whose coverage differs from most."""
    from scipy.special import bdtr, bdtrc

    n_rows, n_covered = np.bincount(fold_of_row), np.bincount(fold_of_row, weights=covered)
    typical = float(np.median(n_covered / n_rows))  # which one odd fold does not move
    usual = (typical * n_rows.sum() + 1) / (n_rows.sum() + 2)  # and is never all or nothing
    low = bdtr(n_covered, n_rows, usual)
    high = np.where(n_covered > 0, bdtrc(np.maximum(n_covered - 1, 0), n_rows, usual), 1.0)
    for fold in np.flatnonzero(2 * np.minimum(low, high) < RATE / len(names)):
        warn_caller(
            f"Fold {names[fold]} differs from the others: coverage is "
            f"{n_covered[fold] / n_rows[fold]:.1%} of its {n_rows[fold]} examples, and "
            f"{usual:.1%} in a typical fold. Check its data and its model."
        )
