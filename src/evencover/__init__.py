"""Prediction sets that cover every class, not just the average one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> its module. Loaded on first use, so that importing evencover costs next to nothing.
_HOME = {
    "APS": "scores",
    "RAPS": "scores",
    "Softmax": "scores",
    "StandardPredictor": "predictors",
    "ClasswisePredictor": "predictors",
    "ClusteredPredictor": "predictors",
    "PooledPredictor": "predictors",
    "ConformalClassifier": "classifier",
    "PredictionSets": "sets",
    "CoverageReport": "evaluation",
    "Comparison": "comparison",
    "compare": "comparison",
    "Recommendation": "advice",
    "recommend": "advice",
    "evaluate": "evaluation",
    "save": "persistence",
    "load": "persistence",
    "InputError": "_validation",
    "EvencoverWarning": "_validation",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from evencover._validation import EvencoverWarning, InputError
    from evencover.advice import Recommendation, recommend
    from evencover.classifier import ConformalClassifier
    from evencover.comparison import Comparison, compare
    from evencover.evaluation import CoverageReport, evaluate
    from evencover.persistence import load, save
    from evencover.predictors import (
        ClasswisePredictor,
        ClusteredPredictor,
        PooledPredictor,
        StandardPredictor,
    )
    from evencover.scores import APS, RAPS, Softmax
    from evencover.sets import PredictionSets


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"evencover.{_HOME[name]}"), name)
    raise AttributeError(f"module 'evencover' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
