"""Prediction sets as an MLflow model: the `pyfunc` flavor, without pickle.

    from evencover.serving import mlflow as sets
    sets.log_model(predictor, name="sets")              # or save_model(predictor, "folder")
    mlflow.pyfunc.load_model(uri).predict(frame)        # or sets.load_model(folder): the predictor

A row is a list of numbers in the column `probabilities` (`logits`, if the model was calibrated with
them), with its id, if it has one, in the column `id`. Its set comes back as a list, with its size
and whether its most probable class can be accepted without a review.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import evencover
from evencover.errors import InputError, import_extra
from evencover.persistence import load, save
from evencover.predictors.base import BasePredictor

MODEL = "model.safetensors"


def _signature(predictor: BasePredictor) -> Any:
    """Return the signature: lists of numbers in, lists of classes out."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, Schema

    member = DataType.long if predictor.class_names_ is None else DataType.string
    rows = ColSpec(Array(DataType.double), _column(predictor))
    sets = ColSpec(Array(member), "set"), ColSpec(DataType.long, "size")
    acceptance, answers = predictor.acceptance_, list[Any]()
    if acceptance is not None and acceptance.groups:
        kinds = {"answer": DataType.string, "answer_level": DataType.string}
        kinds["answer_probability"] = DataType.double
        answers = [ColSpec(kind, name, required=False) for name, kind in kinds.items()]
    return ModelSignature(
        Schema([rows, ColSpec(DataType.string, "id", required=False)]),
        Schema([*sets, ColSpec(DataType.boolean, "accepted"), *answers]),
    )


def save_model(predictor: BasePredictor, path: str | os.PathLike[str], **options: Any) -> None:
    """Write an MLflow model to a new folder; `options` are those of `mlflow.pyfunc.save_model`."""
    _write(predictor, _import_pyfunc().save_model, path=os.fspath(path), **options)


def log_model(predictor: BasePredictor, name: str = "sets", **options: Any) -> Any:
    """Log the model in MLflow; `options` are those of `mlflow.pyfunc.log_model`."""
    return _write(predictor, _import_pyfunc().log_model, name=name, **options)


def load_model(path: str | os.PathLike[str]) -> BasePredictor:
    """Load the predictor from the folder of a model."""
    files = sorted(Path(path).rglob(MODEL))
    if len(files) != 1:
        raise InputError(f"'{path}' must be the folder of a model that save_model wrote.")
    return load(files[0])


def _write(predictor: BasePredictor, write: Callable[..., Any], **options: Any) -> Any:
    with TemporaryDirectory() as folder:
        data = Path(folder) / "sets"  # MLflow keeps this name
        data.mkdir()
        save(predictor, data / MODEL)
        model = {
            "data_path": str(data),
            "loader_module": __name__,
            "signature": _signature(predictor),
            "pip_requirements": [f"evencover=={evencover.__version__}"],
        }
        return write(**(model | options))


def _load_pyfunc(path: str) -> SetsModel:
    """Load the model for MLflow, which passes the path of the data that were saved."""
    return SetsModel(load_model(path))


class SetsModel:
    """The model that `mlflow.pyfunc.load_model` wraps."""

    def __init__(self, predictor: BasePredictor) -> None:
        self.predictor = predictor

    def predict(self, model_input: Any, params: Any = None) -> Any:
        """Return the frame of `PredictionSets.to_pandas`, one row per input row."""
        lists, ids = model_input[_column(self.predictor)], model_input.get("id")
        rows = np.array([np.asarray(row, dtype=np.float64) for row in lists])
        ids = None if ids is None else ids.tolist()
        return self.predictor.predict_set(rows, ids=ids).to_pandas()


def _column(predictor: BasePredictor) -> str:
    return "logits" if predictor.from_logits else "probabilities"


def _import_pyfunc() -> Any:
    return import_extra("MLflow models", "mlflow.pyfunc", "mlflow", "mlflow")
