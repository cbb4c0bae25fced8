"""CLASSWISE: one threshold per class, from that class's calibration rows alone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evencover._validation import IntArray
from evencover.engine.scattered import Rows
from evencover.predictors.groups import GroupPredictor
from evencover.quantiles import RankedScores


class ClasswisePredictor(GroupPredictor):
    """One threshold per class: the conformal quantile of that class's calibration scores.

    Guarantee (Vovk 2012): *class-conditional* coverage, P(Y in C(X) | Y = y) >= 1 - alpha for
    every class y, for exchangeable rows within the class; equality with ``exact=True`` and
    distinct scores. The price is noise: given the calibration data, the coverage of a class with
    n rows follows Beta(k, n + 1 - k), k = ceil((n + 1)(1 - alpha)), and a class with fewer than
    1/alpha - 1 rows is in every set.

    >>> p = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]
    >>> ClasswisePredictor(alpha=0.5).fit(p, [0, 0, 1]).thresholds_
    array([0.5 , 0.25])
    """

    method: ClassVar[str] = "classwise"

    def _group_rows(self, rows: Rows) -> tuple[RankedScores, IntArray]:
        own = np.arange(self.n_classes_)
        return rows.by(own), own

    def _fate_of_missing_classes(self) -> str:
        return "classwise puts them in every set"
