"""CLASSWISE: one threshold per class, from that class's calibration rows alone."""

from __future__ import annotations

import numpy as np

from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.groups import GroupPredictor
from evencover.quantiles import Groups


class ClasswisePredictor(GroupPredictor):
    """One threshold per class: the conformal quantile of that class's calibration scores.

    Guarantee (Vovk 2012): *class-conditional* coverage, P(Y in C(X) | Y = y) >= 1 - alpha for
    every class y, for exchangeable rows within the class; equality with ``exact=True`` and
    distinct scores. Given the calibration set, coverage of a class with n rows follows
    Beta(k, n + 1 - k), k = ceil((n + 1)(1 - alpha)). A class with fewer than 1/alpha - 1 rows is
    always included.

    Parameters
    ----------
    confidence
        As for `StandardPredictor`.
    alpha, score, exact, keep_top, from_logits, random_state
        As for every predictor.

    >>> p = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]
    >>> ClasswisePredictor(alpha=0.5).fit(p, [0, 0, 1]).thresholds_
    array([0.5 , 0.25])
    """

    method = "classwise"
    summary = "one threshold per class, from the class's own examples alone"
    guarantee = "Coverage of {target} for every class is guaranteed {sets}."
    _usual_cause = (
        "Each class has its own threshold. With few calibration examples, its coverage varies "
        "widely between calibration sets; with many, a shortfall suggests a distribution shift."
    )
    _depends_on_prevalence = False
    _remedies = (None, "pooled")
    _missing_class_note = "classwise always includes them"

    def _derive(self, rows: CalibrationRows, state: None) -> Groups:
        return Groups(rows.by_class, np.arange(rows.n_classes))
