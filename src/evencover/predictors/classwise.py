"""CLASSWISE: one threshold per class, from that class's calibration rows alone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evencover.arrays import IntArray
from evencover.predictors.fitting import CalibrationRows
from evencover.predictors.groups import Grouping, GroupPredictor


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
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        As for every predictor.

    >>> p = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]
    >>> ClasswisePredictor(alpha=0.5).fit(p, [0, 0, 1]).thresholds_
    array([0.5 , 0.25])
    """

    method: ClassVar[str] = "classwise"
    depends_on_prevalence: ClassVar[bool] = False
    summary: ClassVar[str] = "one threshold per class, from the class's own examples alone"
    guarantee: ClassVar[str] = (
        "Coverage of 1 - alpha is guaranteed for every class, on average over calibration sets. "
        "With few calibration examples, the coverage of a class varies widely between "
        "calibration sets."
    )
    own_examples_only: ClassVar[bool] = True
    confident_guarantee: ClassVar[str] = (
        "The coverage of each class is at least 1 - alpha in at least {confidence} of all "
        "calibration sets."
    )
    missing_class_note: ClassVar[str] = "classwise always includes them"

    def _group(self, rows: CalibrationRows) -> Grouping:
        own = np.arange(self.n_classes_)
        return rows.by(own), own, rows

    def _cause(self, under: IntArray) -> str:
        alpha = float(self.class_alpha.typical)
        typical = int(np.median(self.class_counts_[under]))
        spread = 200 * np.sqrt(alpha * (1 - alpha) / (typical + 2))
        cause = (
            f"Each class has its own threshold. With {typical:,} calibration examples (the median "
            f"here), its coverage varies by about ±{spread:.0f} points."
        )
        if spread >= 4:
            return f"{cause} Pooled reduces this by borrowing from other classes."
        return f"{cause} A larger shortfall suggests a distribution shift."
