"""STANDARD: one threshold, from all calibration rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evencover.predictors.explanation import ONE_THRESHOLD
from evencover.predictors.fitting import CalibrationRows
from evencover.predictors.groups import Grouping, GroupPredictor
from evencover.predictors.method import ClassValues


@dataclass(kw_only=True, eq=False, repr=False)
class StandardPredictor(GroupPredictor):
    """One threshold for all classes: the conformal quantile of all calibration scores.

    With an alpha per class, the classes that share an alpha share a threshold.

    Guarantee (Vovk et al. 2005): *marginal* coverage, P(Y in C(X)) >= 1 - alpha, for exchangeable
    calibration and test rows; equality with ``exact=True``. No class has a guarantee of its own.

    Parameters
    ----------
    confidence
        Guarantee coverage with this probability over calibration sets; None guarantees it on
        average over them.
    target_prevalence
        Class frequencies of the guarantee: (K,) numbers in proportion, the path of a file, or
        "uniform"; by default those of the calibration set.
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        As for every predictor.

    >>> p = [[0.75, 0.125, 0.125], [0.25, 0.5, 0.25], [0.125, 0.25, 0.625]]
    >>> predictor = StandardPredictor(alpha=0.25).fit(p, [0, 1, 2])
    >>> predictor.thresholds_
    array([0.5, 0.5, 0.5])
    >>> predictor.predict_set([[0.5, 0.5, 0.0], [0.4, 0.3, 0.3]]).to_lists()
    [[0, 1], []]
    """

    target_prevalence: ClassValues | None = None

    method: ClassVar[str] = "standard"
    summary: ClassVar[str] = "one threshold for all classes"
    guarantee: ClassVar[str] = (
        "Coverage of 1 - alpha is guaranteed on average over all examples; no single class has a "
        "guarantee."
    )
    confident_guarantee: ClassVar[str] = (
        "Overall coverage is at least 1 - alpha in at least {confidence} of all calibration "
        "sets; no single class has a guarantee."
    )
    class_alpha_guarantee: ClassVar[str] = (
        "Coverage of 1 - alpha is guaranteed on average over the examples of the classes with the "
        "same alpha; no single class has a guarantee."
    )
    cause: ClassVar[str] = ONE_THRESHOLD

    def _group(self, rows: CalibrationRows) -> Grouping:
        same_alpha = self.class_alpha.of_class
        return rows.by(same_alpha), same_alpha, rows
