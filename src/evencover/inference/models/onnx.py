"""Classifiers as ONNX files, run by ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from evencover.errors import InputError, needs, warn_caller
from evencover.inference.models.base import Model, named_classes
from evencover.inference.models.identity import file_digest
from evencover.inference.models.pictures import Preprocessing
from evencover.inference.models.tokens import Tokens

FLOATS = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class OnnxModel(Model):
    """A model with one input of images (n, 3, height, width) or (n, height, width, 3), or of texts.

    How images are prepared is said by ``preprocessor_config.json`` beside the file, as Hugging Face
    writes it; texts by ``tokenizer.json``, unless the model takes strings; class names by
    ``config.json`` or by ``class_names`` (a JSON list) in the model's own metadata.
    """

    def __init__(self, path: Path, device: str | None = None) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise needs("ONNX models", "onnxruntime", "onnx") from None
        self.name, self.path = f"'{path}'", path
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), providers=_providers(onnxruntime, device)
            )
        except InputError:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise InputError(f"Cannot load the model {self.name}: {reason}.") from error
        self.identity = file_digest(path)
        self.class_names = self._find_names()
        inputs = {each.name: each for each in self._session.get_inputs()}
        self._input = next(iter(inputs.values()))
        self._output = self._find_output()
        fixed = self._input.shape[0] if self._input.shape else None
        self.batch_size = fixed if isinstance(fixed, int) else None
        if "input_ids" in inputs:
            self.kind = "texts"
            self._tokens: Tokens | None = Tokens(path.parent, inputs)
        elif len(inputs) == 1 and self._input.type == "tensor(string)":
            self.kind, self._tokens = "texts", None
        elif len(inputs) == 1 and self._input.type in FLOATS and len(self._input.shape) == 4:
            self.kind = "images"
            self._preprocessing = self._find_preprocessing()
        else:
            found = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs.values())
            raise InputError(
                f"The model {self.name} must have one input of images (4 dimensions), of strings, "
                f"or input_ids. Got {found}."
            )

    def _find_output(self) -> str:
        found = [
            each
            for each in self._session.get_outputs()
            if each.type in FLOATS and len(each.shape or (1, 1)) == 2
        ]
        if not found:
            listed = ", ".join(f"{o.name} {o.type} {o.shape}" for o in self._session.get_outputs())
            raise InputError(
                f"The model {self.name} must have an output with one number per class. "
                f"Got {listed}."
            )
        best = next((each for each in found if each.name == "logits"), found[0])
        return str(best.name)

    def _find_names(self) -> list[str] | None:
        known = self._session.get_modelmeta().custom_metadata_map
        if "class_names" in known:
            return [str(name) for name in json.loads(known["class_names"])]
        config = self.path.with_name("config.json")
        if not config.is_file():
            return None
        return named_classes(json.loads(config.read_text("utf-8")).get("id2label"))

    def _find_preprocessing(self) -> Preprocessing:
        shape, kind = self._input.shape, FLOATS[self._input.type]
        channels_last = shape[3] in (1, 3) and shape[1] not in (1, 3)
        sides = shape[1:3] if channels_last else shape[2:4]
        height, width = (side if isinstance(side, int) else None for side in sides)
        n_channels = shape[3] if channels_last else shape[1]
        if isinstance(n_channels, int) and n_channels not in (1, 3):
            raise InputError(
                f"The model {self.name} must take images with 1 or 3 channels. "
                f"Got the shape {shape}."
            )
        layout: dict[str, Any] = {
            "channels_last": channels_last,
            "grey": n_channels == 1,
            "dtype": kind,
        }
        config = self.path.with_name("preprocessor_config.json")
        if config.is_file():
            known = json.loads(config.read_text("utf-8"))
            found = Preprocessing.from_config(known, **layout)
            if (height, width) != (None, None) and found.shape != (height, width):
                raise InputError(
                    f"'{config}' must make images of the size that the model takes. "
                    f"Got {found.shape} for a model of {(height, width)}."
                )
            return found
        size = (height or 224, width or 224)
        warn_caller(
            f"There is no preprocessor_config.json beside {self.name}: images are resized and cut "
            f"to {size[0]} x {size[1]}, with the mean and deviation of ImageNet."
        )
        return Preprocessing.usual(size, **layout)

    def prepare(self, values: list[Any]) -> Any:
        """What the session is fed with."""
        if self.kind == "images":
            return {self._input.name: np.stack([self._preprocessing(each) for each in values])}
        if self._tokens is not None:
            return self._tokens(values)
        texts = np.array(values, dtype=object)
        return {self._input.name: texts[:, None] if len(self._input.shape) == 2 else texts}

    def logits(self, prepared: Any) -> Any:
        """The output called logits, or the first with one number per class."""
        return self._session.run([self._output], prepared)[0]


def _providers(onnxruntime: Any, device: str | None) -> list[Any]:
    """The provider of a device, such as "cpu", "cuda" or "cuda:1", or by its own name."""
    available = onnxruntime.get_available_providers()
    if device is None:
        return [each for each in ("CUDAExecutionProvider", PROVIDERS["cpu"]) if each in available]
    name, _, number = device.partition(":")
    provider = PROVIDERS.get(name.lower(), name)
    if provider not in available:
        raise InputError(
            f"--device must be one that ONNX Runtime can use here: "
            f"{', '.join(each.removesuffix('ExecutionProvider').lower() for each in available)}. "
            f"Got {device!r}."
        )
    return [(provider, {"device_id": number})] if number else [provider]
