"""Methods in which the classes of a group share a conformal quantile, and GROUPED, one of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.classes import align_classes
from evencover.errors import InputError
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.fit import Fit
from evencover.quantiles import Alpha, Groups, Thresholds, conformal_ranks, exact_fraction
from evencover.scores import Score
from evencover.validation import Check, unless


@dataclass(kw_only=True, eq=False, repr=False)
class GroupPredictor(BasePredictor):
    """Each class belongs to one group and uses the conformal quantile of the group's scores."""

    confidence: Alpha | None = None

    supports: ClassVar[tuple[str, ...]] = ("exact", "class alpha")
    _constraints: ClassVar[dict[str, Check]] = {"confidence": unless((None,), exact_fraction)}

    def _check_parameters(self) -> Score:
        """Raise InputError for an invalid parameter; return the score."""
        score = super()._check_parameters()
        if self.exact and self.confidence is not None:
            raise InputError(
                f"'exact' and 'confidence' of {type(self).__name__} cannot be combined: each has "
                "ranks of its own; use one of them."
            )
        return score

    @abstractmethod
    def _derive(self, rows: CalibrationRows, state: Any) -> Groups:
        """Divide the rows between groups of classes."""

    def _calibrate(self, rows: CalibrationRows) -> tuple[Thresholds, Any]:
        return self._thresholds(self._derive(rows, None), rows), None

    def _thresholds(self, groups: Groups, rows: CalibrationRows) -> Thresholds:
        return groups.thresholds(
            self._class_alpha(rows),
            exact=self.exact,
            random_state=self.random_state,
            confidence=self.confidence,
        )

    def _own_guarantees(self, fit: Fit) -> FloatArray:
        """Return the guarantee of classes (K,) that are alone in their group."""
        groups: Groups = fit.derived
        counts = groups.scores.counts[groups.of_class]
        ranks = conformal_ranks(counts, fit.alpha, self.confidence)
        coverage = 1 - fit.alpha.floats if self.exact else ranks / (counts + 1)
        is_alone = np.bincount(groups.of_class)[groups.of_class] == 1
        return np.where(is_alone, coverage, 0.0)


@dataclass(kw_only=True, eq=False, repr=False)
class GroupedPredictor(GroupPredictor):
    """One threshold per group of classes, from the calibration scores of the whole group.

    Guarantee (Mondrian conformal prediction, Vovk et al. 2003): P(Y in C(X) | Y in group g) >=
    1 - alpha for every group g, for exchangeable rows within the group. A class within its group
    has no guarantee. One group is STANDARD; every class its own group is CLASSWISE.

    Parameters
    ----------
    groups
        The group of each class, by name or number: a mapping, a Series or pairs by class
        name, or a vector (K,) in the order of the classes. None: every class is its own group.
    confidence
        As for `StandardPredictor`, for the coverage of a group.
    alpha, score, exact, keep_top, from_logits, random_state
        As for every predictor.

    >>> p = [[0.75, 0.125, 0.125], [0.25, 0.5, 0.25], [0.125, 0.25, 0.625]]
    >>> pets = GroupedPredictor(alpha=0.5, groups=["mammal", "fish", "mammal"]).fit(p, [0, 1, 2])
    >>> pets.thresholds_
    array([0.375, 0.5  , 0.375])
    """

    groups: Mapping[Any, Any] | Sequence[Any] | Array | None = None

    method = "grouped"
    summary = "one threshold per group of classes that you define"
    guarantee = "Coverage of {target} for each group of classes is guaranteed {sets}{single}."
    supports = ("exact",)
    _only_if_asked = True  # without groups it is CLASSWISE
    _usual_cause = "The classes of a group share a threshold, so hard classes are covered less."
    _missing_class_note = "they use the threshold of their group"

    def _check_fit(self, fit: Fit) -> None:
        self._group_of_class(fit.rows)

    def _derive(self, rows: CalibrationRows, state: None) -> Groups:
        group_of_class = self._group_of_class(rows)
        return Groups(rows.by(group_of_class), group_of_class)

    def _group_of_class(self, rows: CalibrationRows) -> IntArray:
        """Return the number of the group of each class (K,)."""
        groups = np.arange(rows.n_classes) if self.groups is None else self.groups
        groups = align_classes(groups, rows.class_names, rows.n_classes, "groups")
        try:
            return np.unique(groups, return_inverse=True)[1]
        except TypeError:
            raise InputError(
                "'groups' must be all names or all numbers. Got a mixture; turn the numbers into "
                "text."
            ) from None
