"""Methods: ways to share calibration data between classes."""

from __future__ import annotations

from typing import Any

from evencover._validation import raise_unknown
from evencover.predictors.base import BasePredictor
from evencover.predictors.classwise import ClasswisePredictor
from evencover.predictors.clustered import ClusteredPredictor
from evencover.predictors.fuzzy import FuzzyPredictor
from evencover.predictors.grouped import GroupedPredictor
from evencover.predictors.interpolated import InterpolatedPredictor
from evencover.predictors.macro import MacroPredictor
from evencover.predictors.pooled import PooledPredictor
from evencover.predictors.rc3p import RC3PPredictor
from evencover.predictors.row_grouped import RowGroupedPredictor
from evencover.predictors.standard import StandardPredictor

PREDICTORS: dict[str, type[BasePredictor]] = {
    cls.method: cls
    for cls in (
        StandardPredictor,
        ClasswisePredictor,
        ClusteredPredictor,
        PooledPredictor,
        InterpolatedPredictor,
        FuzzyPredictor,
        RC3PPredictor,
        MacroPredictor,
        GroupedPredictor,
    )
}

# What a file may hold: also the method that needs more than probabilities and labels.
SAVED_PREDICTORS = PREDICTORS | {RowGroupedPredictor.method: RowGroupedPredictor}


def make_predictor(method: BasePredictor | str, **parameters: Any) -> BasePredictor:
    """A predictor from the method's name, or itself.

    >>> make_predictor("classwise", alpha=0.05)
    ClasswisePredictor(alpha=0.05)
    """
    if isinstance(method, BasePredictor):
        return method
    if not isinstance(method, str) or method.lower() not in PREDICTORS:
        raise_unknown("method", method, PREDICTORS)
    cls = PREDICTORS[method.lower()]
    for name in parameters:
        if name not in cls._signature():
            raise_unknown(f"parameter of the method {method!r}:", name, cls._signature())
    return cls(**parameters)


__all__ = [
    "PREDICTORS",
    "SAVED_PREDICTORS",
    "BasePredictor",
    "ClasswisePredictor",
    "ClusteredPredictor",
    "FuzzyPredictor",
    "GroupedPredictor",
    "InterpolatedPredictor",
    "MacroPredictor",
    "PooledPredictor",
    "RC3PPredictor",
    "RowGroupedPredictor",
    "StandardPredictor",
    "make_predictor",
]
