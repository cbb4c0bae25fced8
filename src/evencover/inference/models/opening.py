"""From what a user calls a model to the model: which kind it is."""

from __future__ import annotations

import os
import re
from pathlib import Path

from evencover.errors import InputError
from evencover.inference.models.base import Model
from evencover.inference.models.function import FunctionModel
from evencover.inference.models.hugging_face import HuggingFaceModel
from evencover.inference.models.onnx import OnnxModel

_FUNCTION = re.compile(r"(.+\.py|[A-Za-z_][\w.]*):[A-Za-z_][\w.]*")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def open_model(model: str | os.PathLike[str] | Model, device: str | None = None) -> Model:
    """An ONNX file, a folder or name of Hugging Face's, or ``module:function``."""
    if isinstance(model, Model):
        return model
    path, text = Path(model), os.fspath(model)
    if path.is_file() and path.suffix.lower() == ".onnx":
        return OnnxModel(path, device)
    if path.is_dir():
        exported = path / "model.onnx"
        if exported.is_file() and not list(path.glob("*.safetensors")):
            return OnnxModel(exported, device)
        return HuggingFaceModel(text, device)
    if _FUNCTION.fullmatch(text):
        return FunctionModel(text, device)
    is_missing_file = path.suffix.lower() in (".onnx", ".py") or path.is_absolute()
    if path.exists() or is_missing_file or not _HUB_NAME.fullmatch(text):
        found = "it is none of these" if path.exists() else "there is no such file or folder"
        raise InputError(
            "The model must be an ONNX file (.onnx), a folder or name of a Hugging Face model, or "
            f"module:function. Got '{text}': {found}."
        )
    return HuggingFaceModel(text, device)
