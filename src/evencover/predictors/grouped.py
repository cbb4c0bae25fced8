"""GROUPED: coverage for groups of classes, by any method over the groups."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.errors import EvencoverWarning, InputError, warn_caller
from evencover.predictors.base import BasePredictor
from evencover.predictors.fitting import CalibrationRows
from evencover.predictors.registry import predictor_class
from evencover.predictors.state import kept
from evencover.quantiles import Alpha, Thresholds
from evencover.validation import Check, align_classes, one_of

# Methods that make sense with groups in place of classes.
OVER_GROUPS = ("classwise", "standard", "clustered", "pooled", "macro")


@dataclass(kw_only=True, eq=False, repr=False)
class OverGroups(BasePredictor):
    """A method over groups in place of classes; it keeps the rows' scores and groups."""

    confidence: Alpha | None = None
    over_groups: str = "classwise"

    needs: ClassVar[tuple[str, ...]] = ("label values",)
    constraints: ClassVar[dict[str, Check]] = {"over_groups": one_of(*OVER_GROUPS)}
    group_names_: list[str] = kept(list)
    over_groups_: BasePredictor = field(init=False)
    row_scores_: FloatArray = kept(float, "R")
    row_groups_: IntArray = kept(int, "R")
    row_ids_: IntArray = kept(int, "R")
    row_values_: FloatArray | None = kept(float, "R", optional=True)

    def _fit_groups(self, rows: CalibrationRows, group_of_row: IntArray) -> Thresholds:
        """Keep the rows, and fit the method over groups to them."""
        self.row_scores_, self.row_groups_ = rows.scores, group_of_row
        self.row_ids_ = rows.ids.astype(np.uint64).view(np.int64)
        self.row_values_ = rows.label_values
        for warning in self._restore():
            warn_caller(str(warning.message).replace("classes", "groups"))
        return self.over_groups_.limits_

    def _restore(self) -> list[warnings.WarningMessage]:
        """Fit the method over groups to the rows that are kept; return its warnings."""
        scores, groups, ids = self.row_scores_, self.row_groups_, self.row_ids_.view(np.uint64)
        rows = CalibrationRows(scores, groups, ids, label_values=self.row_values_)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", EvencoverWarning)
            self.over_groups_ = self._over_groups()._fit_rows(rows, len(self.group_names_), None)
        return caught

    def _over_groups(self) -> BasePredictor:
        own: dict[str, Any] = {"alpha": self.alpha, "exact": self.exact}
        own |= {} if self.confidence is None else {"confidence": self.confidence}
        return predictor_class(self.over_groups)(**own, random_state=self.random_state)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        known = predictor_class(self.over_groups).parameter_names()
        if self.confidence is not None and "confidence" not in known:
            raise InputError(
                f"The 'confidence' parameter of {type(self).__name__} must be None over groups by "
                f"{self.over_groups!r}, which has none. Got {self.confidence!r} instead."
            )
        self._over_groups()._check_parameters()


def name_groups(groups: Any, n: int, of_what: str) -> tuple[list[str], IntArray]:
    """Return the sorted names of the groups, and the group of each of n classes or rows."""
    values = to_numpy(groups)
    if values.shape != (n,):
        raise InputError(
            f"'groups' must have one entry per {of_what}. Got shape {values.shape} for {n} of them."
        )
    try:
        names, index = np.unique(values, return_inverse=True)
    except TypeError:
        raise InputError(
            "'groups' must be all names or all numbers. Got a mixture; turn the numbers into text."
        ) from None
    return [str(name) for name in names.tolist()], index.astype(np.int64)


@dataclass(kw_only=True, eq=False, repr=False)
class GroupedPredictor(OverGroups):
    """A method applied to groups of classes, as if each group were one class.

    All classes of a group share a threshold. "classwise" fits each group separately (Mondrian
    conformal prediction, Vovk et al. 2003); "clustered" and "pooled" share data between groups.

    Guarantee: that of the method, for groups in place of classes. "classwise":
    P(Y in C(X) | Y in group g) >= 1 - alpha for every group g. One group is STANDARD.

    Parameters
    ----------
    groups
        The group of each class, by name or number: a mapping, Series or two-column frame by class
        name, or a vector (K,) in the order of the classes. None: every class is its own group.
    over_groups
        The method: "classwise", "standard", "clustered", "pooled" or "macro".
    confidence
        As for `StandardPredictor`, for the coverage of a group.
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        As for every predictor; p-values are those of the method over groups.

    Attributes
    ----------
    group_of_class_
        (K,) the group of each class, as an index into `group_names_`.
    group_names_
        The names of the groups, sorted.
    over_groups_
        The fitted predictor whose classes are the groups.

    >>> p = [[0.75, 0.125, 0.125], [0.25, 0.5, 0.25], [0.125, 0.25, 0.625]]
    >>> pets = GroupedPredictor(alpha=0.5, groups=["mammal", "fish", "mammal"]).fit(p, [0, 1, 2])
    >>> pets.thresholds_
    array([0.375, 0.5  , 0.375])
    """

    groups: Mapping[Any, Any] | Sequence[Any] | Array | None = None

    method: ClassVar[str] = "grouped"
    summary: ClassVar[str] = "one threshold per group of classes that you define"
    guarantee: ClassVar[str] = (
        "Each group of classes has the guarantee that the method over groups gives a class "
        "(classwise: coverage of 1 - alpha); a class within its group has no guarantee."
    )
    confident_guarantee: ClassVar[str] = (
        "Each group of classes has the guarantee that the method over groups gives a class "
        "(classwise: coverage of at least 1 - alpha in at least {confidence} of all calibration "
        "sets); a class within its group has no guarantee."
    )
    only_if_asked: ClassVar[bool] = True  # without groups it is the method over groups itself
    cause: ClassVar[str] = (
        "The classes of a group share a threshold, so hard classes are covered less."
    )
    missing_class_note: ClassVar[str] = "they use the threshold of their group"
    group_of_class_: IntArray = kept(int, "K")

    def _calibrate(self, rows: CalibrationRows) -> Thresholds:
        n_classes, groups = self.n_classes_, self.groups
        groups = np.arange(n_classes) if groups is None else groups
        groups = align_classes(groups, self.class_names_, n_classes, "groups")
        self.group_names_, self.group_of_class_ = name_groups(groups, n_classes, "class")
        limits = self._fit_groups(rows, self.group_of_class_[rows.labels])
        return limits.of_classes(self.group_of_class_)

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        return self.over_groups_._p_values(scores, self.group_of_class_[classes], own_share)
