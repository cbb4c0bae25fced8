"""Methods: ways to share calibration data between classes."""

from __future__ import annotations

from evencover.predictors.base import BasePredictor
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
from evencover.predictors.registry import (
    DEFAULT_METHOD,
    PREDICTORS,
    make_predictor,
    method_names,
    methods_for_all,
    predictor_class,
    register,
)
from evencover.predictors.rule import SetRule
from evencover.predictors.standard import StandardPredictor

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
    register(_method)

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
