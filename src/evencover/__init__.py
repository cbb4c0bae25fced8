"""Conformal prediction sets with even coverage across classes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "1.1.0"

# Module -> its public names, loaded on first use to keep the import fast.
_NAMES = {
    "scores": "APS PAS RAPS SAPS Softmax Score Position",
    "predictors": "StandardPredictor ClasswisePredictor ClusteredPredictor PooledPredictor "
    "InterpolatedPredictor FuzzyPredictor RC3PPredictor MacroPredictor GroupedPredictor "
    "BasePredictor register",
    "predictors.cutoffs": "fit_cutoffs",
    "quantiles": "Thresholds",
    "classifier": "ConformalClassifier",
    "sets": "PredictionSets",
    "taxonomy": "Taxonomy",
    "topk": "TopK",
    "evaluation": "CoverageReport evaluate",
    "monitoring": "CoverageMonitor",
    "comparison": "Comparison compare Recommendation recommend",
    "report": "write_report",
    "output.folders": "predict_to_folder",
    "serving.onnx": "to_onnx",
    "persistence": "save load",
    "errors": "InputError EvencoverWarning MismatchWarning",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from evencover.classifier import ConformalClassifier as ConformalClassifier
    from evencover.comparison import Comparison as Comparison
    from evencover.comparison import Recommendation as Recommendation
    from evencover.comparison.compare import compare as compare
    from evencover.comparison.compare import recommend as recommend
    from evencover.errors import EvencoverWarning as EvencoverWarning
    from evencover.errors import InputError as InputError
    from evencover.errors import MismatchWarning as MismatchWarning
    from evencover.evaluation import CoverageReport as CoverageReport
    from evencover.evaluation import evaluate as evaluate
    from evencover.monitoring import CoverageMonitor as CoverageMonitor
    from evencover.output.folders import predict_to_folder as predict_to_folder
    from evencover.persistence import load as load
    from evencover.persistence import save as save
    from evencover.predictors import BasePredictor as BasePredictor
    from evencover.predictors import ClasswisePredictor as ClasswisePredictor
    from evencover.predictors import ClusteredPredictor as ClusteredPredictor
    from evencover.predictors import FuzzyPredictor as FuzzyPredictor
    from evencover.predictors import GroupedPredictor as GroupedPredictor
    from evencover.predictors import InterpolatedPredictor as InterpolatedPredictor
    from evencover.predictors import MacroPredictor as MacroPredictor
    from evencover.predictors import PooledPredictor as PooledPredictor
    from evencover.predictors import RC3PPredictor as RC3PPredictor
    from evencover.predictors import StandardPredictor as StandardPredictor
    from evencover.predictors import register as register
    from evencover.predictors.cutoffs import fit_cutoffs as fit_cutoffs
    from evencover.quantiles import Thresholds as Thresholds
    from evencover.report import write_report as write_report
    from evencover.scores import APS as APS
    from evencover.scores import PAS as PAS
    from evencover.scores import RAPS as RAPS
    from evencover.scores import SAPS as SAPS
    from evencover.scores import Position as Position
    from evencover.scores import Score as Score
    from evencover.scores import Softmax as Softmax
    from evencover.serving.onnx import to_onnx as to_onnx
    from evencover.sets import PredictionSets as PredictionSets
    from evencover.taxonomy import Taxonomy as Taxonomy
    from evencover.topk import TopK as TopK


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"evencover.{_HOME[name]}"), name)
        globals()[name] = value  # so that this is called once per name
        return value
    raise AttributeError(f"module 'evencover' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
