"""Coverage for other class frequencies than those of the calibration rows (label shift).

If only the frequencies of the classes change, and not what the rows of a class look like, a
calibration row of class y stands for target_y / calibration_y rows. The threshold of class y is
then a weighted conformal quantile (Tibshirani et al. 2019; Podkopaev and Ramdas 2021): the smallest
score up to which the weights sum to 1 - alpha of all weights and the weight of y itself, which
stands for the new row.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from evencover._validation import (
    Array,
    FloatArray,
    InputError,
    IntArray,
    align_classes,
    by_class,
    plain_array,
)
from evencover.errors import warn_caller
from evencover.predictors.base import BasePredictor
from evencover.predictors.state import Field
from evencover.quantiles import Alpha, exact_fraction

UNIFORM = "uniform"
# A sum of weights may be a little short of its value; equal weights then give the plain rank.
SHORT = 1 - 1e-12


@dataclass(kw_only=True, eq=False, repr=False)
class TargetPredictor(BasePredictor):
    """A method whose promise over all rows can be made for class frequencies that are given.

    Parameters
    ----------
    target_prevalence
        None: the promise is for the class frequencies of the calibration rows. Otherwise for these:
        numbers in proportion, such as counts, by class name (a mapping, Series or two-column frame)
        or in the order of the classes (K,); the path of a file with them; or "uniform".
    """

    target_prevalence: (
        Mapping[Any, float] | Sequence[Any] | Array | str | os.PathLike[str] | None
    ) = None

    state: ClassVar[dict[str, Field]] = {"target_prevalence_": Field(float, "K", optional=True)}

    target_prevalence_: FloatArray | None = field(init=False)

    def _promise(self) -> str:
        if self.target_prevalence is None:
            return super()._promise()
        return (
            f"{super()._promise()} Averages over rows are meant for the class frequencies that "
            "were given: if only these differ from the calibration rows, they hold up to the "
            "error of the given frequencies and of those counted in calibration."
        )

    def _read_target(self) -> None:
        """Have the target as shares, and say what no calibration row speaks for."""
        self.target_prevalence_ = None
        if self.target_prevalence is None:
            return
        self.target_prevalence_ = target = target_shares(
            self.target_prevalence, self.n_classes_, self.class_names_
        )
        missing = (self.class_counts_ == 0) & (target > 0)
        if target[~missing].sum() == 0:
            raise InputError(
                "The 'target_prevalence' parameter must be above 0 for a class with calibration "
                "rows. Got such for none."
            )
        if missing.any():
            warn_caller(
                f"{int(missing.sum())} of {self.n_classes_} classes have no calibration examples, "
                f"but {target[missing].sum():.1%} of the target prevalence; the promise leaves "
                "them out."
            )

    def _class_weights(self) -> FloatArray:
        """What a row of each class stands for (K,); a class without rows weighs as the heaviest."""
        assert self.target_prevalence_ is not None
        present = self.class_counts_ > 0
        target = self.target_prevalence_ / self.target_prevalence_[present].sum()
        weights = target * self.n_calibration_ / np.maximum(self.class_counts_, 1)
        return np.where(present, weights, weights[present].max())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.target_prevalence is None:
            return
        owner = type(self).__name__
        if isinstance(self.target_prevalence, str | os.PathLike):
            pass  # a file is read when there are rows
        elif (
            by_class(self.target_prevalence, "target_prevalence") is None
            and plain_array(self.target_prevalence).ndim != 1
        ):
            raise _bad_target("an array that is no list")
        for name, nothing in (("exact", False), ("confidence", None)):
            if getattr(self, name, nothing) not in (nothing, None):
                raise InputError(
                    f"The '{name}' parameter of {owner} must be {nothing} with a target "
                    "prevalence, because thresholds from weighted rows have no rank. "
                    f"Got {getattr(self, name)!r} instead."
                )


def _bad_target(found: str) -> InputError:
    return InputError(
        "The 'target_prevalence' parameter must be 'uniform', a file, or one number of at least 0 "
        f"per class, not all 0. Got {found}."
    )


def target_shares(
    target: Any, n_classes: int, class_names: Sequence[str] | None = None
) -> FloatArray:
    """The target as shares (K,) that sum to 1.

    >>> target_shares([3, 1], 2).tolist(), target_shares("uniform", 4).tolist()
    ([0.75, 0.25], [0.25, 0.25, 0.25, 0.25])
    """
    if isinstance(target, str) and target == UNIFORM:
        return np.full(n_classes, 1 / n_classes)
    if isinstance(target, str | os.PathLike):
        from evencover.data.files import class_values_from_file

        target = class_values_from_file(target, "prevalence")
    aligned = align_classes(target, class_names, n_classes, "target_prevalence")
    try:
        values = aligned.astype(np.float64)
    except (TypeError, ValueError):
        raise _bad_target("what is no number") from None
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise _bad_target(f"values from {values.min():g} to {values.max():g}")
    return values / values.sum()


def weighted_thresholds(
    scores: FloatArray, weights: FloatArray, own_weights: FloatArray, alpha: Alpha
) -> FloatArray:
    """The weighted conformal quantile for new rows of these weights.

    Parameters
    ----------
    scores, weights
        (n,) calibration scores in increasing order, and what each stands for.
    own_weights
        Weights of new rows, one threshold for each.

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
    """The weight of the scores that are at least `new` (n, J), and of the new row, as a share.

    `own_weights` (J,) are those of new rows of each class, of which `own_share` (n,) counts.
    """
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    at_least = sums[-1] - sums[np.searchsorted(scores, new)]
    return np.asarray((at_least + own_share[:, None] * own_weights) / (sums[-1] + own_weights))


def sorted_with(scores: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scores in increasing order, and their weights."""
    order = np.lexsort((weights, scores))  # equal scores by weight, so that sums are the same bits
    return scores[order], weights[order]


def rows_of_group(group: int, n_in_group: int, group_of_row: IntArray) -> Array:
    """Which rows (N,) a group's scores are of; a group as large as all is everyone."""
    if n_in_group == len(group_of_row):
        return np.ones(len(group_of_row), dtype=bool)
    return group_of_row == group
