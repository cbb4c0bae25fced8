"""The prior of POOLED: a random-effects model of the classes' normal scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.predictors.folds import HELD_OUT, N_FOLDS
from evencover.quantiles import distinct
from evencover.sizes import at_once
from evencover.threads import on_slices

ROWS_AT_ONCE = at_once(1 << 14)  # or classes, that one thread computes at a time
SPREAD_ROWS = 40.0  # pseudo-count of the variance within classes


def normal_scores(n_scores: int, n: int, indices: Callable[[slice], Array]) -> FloatArray:
    """Compute Phi^-1(index / n), bounded; `indices` returns those of some of the scores."""
    from scipy.special import ndtri

    scores = np.empty(n_scores)

    def compute(some: slice) -> None:
        ndtri(np.clip(indices(some) / n, 1e-7, 1 - 1e-7), out=scores[some])

    on_slices(compute, n_scores, ROWS_AT_ONCE)
    return scores


class NormalModel(NamedTuple):
    """Mean and standard deviation (K,) of each class's normal scores."""

    mean: FloatArray
    deviation: FloatArray

    @classmethod
    def fit(
        cls, n: IntArray, total: FloatArray, squares: FloatArray, *, padding: float
    ) -> NormalModel:
        """Fit random effects to each class's count, sum and sum of squares (K,).

        The class means follow N(a + b log(1 + n_y), between + within / n_y): rare classes tend to
        be the hard ones. Each mean shrinks toward the line by within / between, each variance
        toward `within`. For each row, `padding` rows of the pooled variance are added to `within`.
        """
        if not n.any():  # one fold holds all rows
            return cls(np.zeros(len(n)), np.ones(len(n)))
        own_mean = total / np.maximum(n, 1)
        spread = np.maximum(squares - n * own_mean**2, 0.0)
        everyone, missing = squares.sum() - total.sum() ** 2 / n.sum(), padding * n.sum()
        freedom = n.sum() - (n > 0).sum() + missing
        within = max((spread.sum() + missing * everyone / n.sum()) / freedom, 1e-6)
        expected, between = _class_line(n, own_mean, within)
        kappa = within / between
        mean = (n * own_mean + kappa * expected) / (n + kappa)
        variance = (SPREAD_ROWS * within + spread) / (SPREAD_ROWS + np.maximum(n - 1, 0))
        return cls(mean, np.sqrt(variance * (1 + 1 / (n + kappa))))


def fit_models(cell: IntArray, x: FloatArray, n_classes: int) -> tuple[IntArray, NormalModel]:
    """Fit the model of each fold to the rows of the others, and the last one to all that learn.

    A row has the normal score x and the cell fold * K + label; those that are held out do not
    learn. Overwrite x. Return the numbers of rows behind the models, and the models (folds + 1, K).
    """
    shape = (N_FOLDS + 1, n_classes)
    n, total = np.bincount(cell, None, np.prod(shape)), np.bincount(cell, x, np.prod(shape))
    squares = np.bincount(cell, np.multiply(x, x, out=x), np.prod(shape))
    n, total, squares = (moment.reshape(shape) for moment in (n, total, squares))
    for moment in (n, total, squares):
        moment[HELD_OUT] = 0
        np.subtract(moment.sum(axis=0), moment, out=moment)
    # One example per class does not identify the variance within classes, so what is missing to
    # 1.5 counts as such. A fold is padded like all rows.
    of_all = n[HELD_OUT]
    padding = max(1.5 * (of_all > 0).sum() / of_all.sum() - 1, 1e-9)
    models = NormalModel(*np.empty((2, *shape)))

    def fit(some: slice) -> None:
        for fold in range(some.start, some.stop):
            fitted = NormalModel.fit(n[fold], total[fold], squares[fold], padding=padding)
            models.mean[fold], models.deviation[fold] = fitted

    on_slices(fit, N_FOLDS + 1, max(1, ROWS_AT_ONCE // n_classes))
    return n, models


def _class_line(n: IntArray, means: FloatArray, within: float) -> tuple[FloatArray, float]:
    """Fit a + b log(1 + n_y) to the class means; return it (K,) and the variance around it.

    Weighted least squares; the variance is the one at which the weighted squares equal their
    degrees of freedom (Paule and Mandel 1982), found by Newton's method. The slope shrinks to 0
    within two standard errors, and a class without examples counts as having as many as the
    rarest: a line through nearly equal counts is noise, which extrapolation would multiply.
    """
    # Classes of the same size have the same weight, so sums over them suffice.
    sizes, size_of_class = distinct(n)
    seen = sizes > 0
    x = np.log1p(np.maximum(sizes, sizes[seen][0]))
    n_classes = np.bincount(size_of_class)
    y = np.bincount(size_of_class, means) / n_classes
    spread = np.bincount(size_of_class, (means - y[size_of_class]) ** 2)
    n_classes, spread = n_classes * seen, spread * seen
    noise = within / np.maximum(sizes, 1)
    freedom, has_slope = n_classes.sum() - 1, seen.sum() > 1 and n_classes.sum() > 2
    between = slope = information = 0.0
    for _ in range(100):
        w = 1 / (between + noise)
        weight = n_classes * w
        center, mean = weight @ x / weight.sum(), weight @ y / weight.sum()
        along, off = x - center, y - mean
        if has_slope:
            information = weight @ along**2  # 1 / var(slope)
            slope = (weight * along) @ off / information
        squares = spread + n_classes * (off - slope * along) ** 2
        step = (w @ squares - (freedom - has_slope)) / max(w**2 @ squares, 1e-300)
        if step <= 1e-9 * between:
            break
        between += step
    slope *= max(0.0, 1 - 4 / max(slope**2 * information, 1e-300))
    line = mean + slope * (x - center)
    return line[size_of_class], min(max(between, 1e-3), 1e3)
