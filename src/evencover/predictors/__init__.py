"""Methods: ways to share calibration data between classes."""

from __future__ import annotations

from typing import Any, TypeVar

from evencover.predictors.base import PREDICTORS, BasePredictor
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.classwise import ClasswisePredictor
from evencover.predictors.clustered import ClusteredPredictor
from evencover.predictors.fit import Fit
from evencover.predictors.fuzzy import FuzzyPredictor
from evencover.predictors.groups import GroupedPredictor
from evencover.predictors.interpolated import InterpolatedPredictor
from evencover.predictors.macro import MacroPredictor
from evencover.predictors.pooled import PooledPredictor
from evencover.predictors.rc3p import RC3PPredictor
from evencover.predictors.rule import SetRule
from evencover.predictors.standard import StandardPredictor
from evencover.scores import SCORES

__all__ = [
    "DEFAULT_METHOD",
    "PREDICTORS",
    "BasePredictor",
    "CalibrationRows",
    "ClasswisePredictor",
    "ClusteredPredictor",
    "Fit",
    "FuzzyPredictor",
    "GroupedPredictor",
    "InterpolatedPredictor",
    "MacroPredictor",
    "PooledPredictor",
    "RC3PPredictor",
    "SetRule",
    "StandardPredictor",
    "make_predictor",
    "method_names",
    "methods_for_all",
    "predictor_class",
    "register",
]

Registered = TypeVar("Registered", bound=type)

DEFAULT_METHOD = "pooled"
method_names, predictor_class = PREDICTORS.names, PREDICTORS.find

# In the order in which help texts and tables list them.
for _method in (
    StandardPredictor,
    ClasswisePredictor,
    ClusteredPredictor,
    PooledPredictor,
    InterpolatedPredictor,
    FuzzyPredictor,
    RC3PPredictor,
    MacroPredictor,
    GroupedPredictor,
):
    PREDICTORS.add(_method)


def register(cls: Registered) -> Registered:
    """Register your own method or score by its name, as a decorator or a call.

    Commands, `compare`, experiments, reports and model files then accept it.

    >>> from evencover import BasePredictor, Thresholds, register
    >>> import numpy as np
    >>> @register
    ... class Everything(BasePredictor):
    ...     method = "everything"
    ...     summary = "Include every class."
    ...     def _calibrate(self, rows):
    ...         return Thresholds(np.full(rows.n_classes, np.inf)), None
    >>> make_predictor("everything")
    Everything()
    >>> del PREDICTORS["everything"]
    """
    known: Any = SCORES if SCORES.accepts(cls) else PREDICTORS
    known.add(cls)
    return cls


def methods_for_all(*, class_alpha: bool = False) -> list[str]:
    """Return what "all" methods are: those that need no parameter from the user.

    With `class_alpha`, only those that take one alpha per class.
    """
    return [
        name
        for name in method_names()
        if not PREDICTORS[name]._only_if_asked
        and ("class alpha" in PREDICTORS[name].supports or not class_alpha)
    ]


def make_predictor(method: BasePredictor | str, **parameters: Any) -> BasePredictor:
    """Make a predictor from the method's name; return a predictor as it is.

    >>> make_predictor("classwise", alpha=0.05)
    ClasswisePredictor(alpha=0.05)
    """
    if isinstance(method, BasePredictor):
        return method
    return predictor_class(method)().set_params(**parameters)
