"""GROUPED: coverage for the user's own groups of classes, by any method over the groups."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from evencover._validation import (
    Array,
    EvencoverWarning,
    FloatArray,
    InputError,
    IntArray,
    plain_array,
    raise_unknown,
)
from evencover.predictors.base import BasePredictor
from evencover.predictors.classwise import ClasswisePredictor
from evencover.predictors.clustered import ClusteredPredictor
from evencover.predictors.macro import MacroPredictor
from evencover.predictors.pooled import PooledPredictor
from evencover.predictors.standard import StandardPredictor
from evencover.quantiles import Alpha, Thresholds
from evencover.scores import Score

OVER_GROUPS: dict[str, type[BasePredictor]] = {
    cls.method: cls
    for cls in (
        ClasswisePredictor,
        StandardPredictor,
        ClusteredPredictor,
        PooledPredictor,
        MacroPredictor,
    )
}


class OverGroups(BasePredictor):
    """A method over groups in place of classes; it keeps the rows' scores and groups."""

    fitted_arrays: ClassVar[tuple[str, ...]] = (
        *BasePredictor.fitted_arrays,
        "row_scores_",
        "row_groups_",
        "row_ids_",
    )
    p_value_arrays: ClassVar[tuple[str, ...]] = (
        "row_scores_",
        "row_groups_",
        "row_ids_",
        "over_groups_",
    )
    fitted_values: ClassVar[tuple[str, ...]] = (*BasePredictor.fitted_values, "group_names_")

    over_groups: str
    group_names_: list[str]
    over_groups_: BasePredictor
    row_scores_: FloatArray
    row_groups_: IntArray
    row_ids_: IntArray

    def _keep_rows(self, scores: FloatArray, groups: IntArray, ids: Array) -> None:
        self.row_scores_, self.row_groups_ = scores, groups
        self.row_ids_ = ids.astype(np.uint64).view(np.int64)

    def _group_thresholds(self) -> Thresholds:
        """Fit the method over groups to the rows kept."""
        fitted = self._over_groups()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", EvencoverWarning)
            fitted.fit_scores(
                self.row_scores_,
                self.row_groups_,
                len(self.group_names_),
                ids=self.row_ids_.view(np.uint64),
            )
        for warning in caught:
            sentence = str(warning.message).replace("classes", "groups")
            warnings.warn(sentence, warning.category, stacklevel=6)
        self.over_groups_ = fitted
        return fitted.limits_

    def _over_groups(self) -> BasePredictor:
        return OVER_GROUPS[self.over_groups](
            alpha=self.alpha, exact=self.exact, random_state=self.random_state
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.over_groups not in OVER_GROUPS:
            raise_unknown("method over groups", self.over_groups, OVER_GROUPS)
        self._over_groups()._check_parameters()


def name_groups(groups: Any, n: int, of_what: str) -> tuple[list[str], IntArray]:
    """The names of the groups, sorted, and the group of each of n classes or rows."""
    values = plain_array(groups)
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


class GroupedPredictor(OverGroups):
    """A method applied to groups of classes, as if each group were one class.

    All classes of a group share a threshold. By default, "classwise", every group
    stands alone (Mondrian conformal prediction, Vovk et al. 2003). Many small groups may share
    data as many small classes do, by "clustered" or "pooled": the future work of Ding et al.
    (2023).

    Guarantee: that of the method, with groups for classes. "classwise":
    P(Y in C(X) | Y in group g) >= 1 - alpha for every group g. A class within its group is
    promised nothing.

    One group is STANDARD; every class its own group is the method itself.

    Parameters
    ----------
    groups
        (K,) the group of each class, by name or number; None: every class is its own group.
    over_groups
        The method: "classwise", "standard", "clustered", "pooled" or "macro".
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
    >>> pets = GroupedPredictor(alpha=0.4, groups=["mammal", "fish", "mammal"]).fit(p, [0, 1, 2])
    >>> pets.thresholds_
    array([0.375,   inf, 0.375])
    """

    method: ClassVar[str] = "grouped"
    fitted_arrays: ClassVar[tuple[str, ...]] = (*OverGroups.fitted_arrays, "group_of_class_")

    group_of_class_: IntArray

    def __init__(
        self,
        *,
        alpha: Alpha = 0.1,
        score: Score | str = "softmax",
        groups: Sequence[Any] | Array | None = None,
        over_groups: str = "classwise",
        exact: bool = False,
        allow_empty: bool = True,
        from_logits: bool = False,
        temperature: float = 1.0,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            alpha=alpha,
            score=score,
            exact=exact,
            allow_empty=allow_empty,
            from_logits=from_logits,
            temperature=temperature,
            random_state=random_state,
        )
        self.groups = groups
        self.over_groups = over_groups

    def _calibrate(self, scores: FloatArray, labels: IntArray, ids: Array) -> Thresholds:
        self.group_names_, self.group_of_class_ = self._read_groups()
        self._keep_rows(scores, self.group_of_class_[labels], ids)
        return self._kept_thresholds()

    def _kept_thresholds(self) -> Thresholds:
        return self._group_thresholds().of_classes(self.group_of_class_)

    def _read_groups(self) -> tuple[list[str], IntArray]:
        groups = np.arange(self.n_classes_) if self.groups is None else self.groups
        return name_groups(groups, self.n_classes_, "class")

    def _p_of_scores(
        self, scores: FloatArray, classes: IntArray, own_share: FloatArray
    ) -> FloatArray:
        return self.over_groups_._p_of_scores(scores, self.group_of_class_[classes], own_share)

    def _fate_of_missing_classes(self) -> str:
        return "they use the threshold of their group"
