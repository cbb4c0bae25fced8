"""Load trained classifiers: functions, and Hugging Face models."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from evencover.errors import InputError, import_extra, one_line
from evencover.inference.inputs import Modality, size_and_time

MAX_TOKENS = 512  # if the model states no limit


class Model(NamedTuple):
    """A trained classifier."""

    name: str  # in messages
    identity: str  # changes with the model
    outputs: Callable[[list[Any]], Any]  # (n, K) numbers of n prepared inputs
    prepare: Callable[[Any], Any] | None = None  # of one image or text, on several threads
    kind: Modality | None = None  # None if it takes both
    class_names: Sequence[str] | None = None
    returns_logits: bool = False  # for certain; if not, its first outputs decide


def open_model(model: str | os.PathLike[str] | Callable[[list[Any]], Any]) -> Model:
    """Open a function, ``module:function``, or the folder or name of a Hugging Face model."""
    if callable(model):
        return _function_model(model, getattr(model, "__qualname__", type(model).__name__))
    path, text = Path(model), os.fspath(model)
    if ":" in text and not path.exists():
        return _function_model(_import_function(text), text)
    if path.is_dir() or not (path.exists() or path.is_absolute() or path.suffix == ".onnx"):
        return _hugging_face_model(text)
    reason = "there is no such file or folder" if not path.exists() else "it is neither"
    raise InputError(
        "The model must be the folder or name of a Hugging Face model, or module:function, which "
        f"may run ONNX files (examples/infer_onnx.py). Got '{text}': {reason}."
    )


def _function_model(function: Callable[..., Any], target: str) -> Model:
    """Wrap a function of a list of images or texts, and its optional attributes.

    These are ``class_names``; ``prepare``, which worker threads apply to one input at a time; and
    ``identity``, a text that changes with the weights.
    """
    module = function.__module__ if inspect.isroutine(function) else type(function).__module__
    source = getattr(sys.modules.get(module), "__file__", None)
    code = size_and_time(Path(source)) if source else ""
    return Model(
        f"'{target}'",
        # Independent of its folder.
        f"{Path(target).name} {code} {getattr(function, 'identity', '')}",
        function,
        getattr(function, "prepare", None),
        class_names=getattr(function, "class_names", None),
    )


def _import_function(target: str) -> Callable[..., Any]:
    """Import ``module:function`` or ``file.py:function``; create one instance of a class."""
    location, _, attribute = target.rpartition(":")
    try:
        if location.endswith(".py"):
            path = Path(location).absolute()
            module = ModuleType(path.stem)
            module.__file__ = str(path)
            sys.modules[path.stem] = module  # for dataclasses and pickle
            exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
        else:
            sys.path.insert(0, os.getcwd())
            module = importlib.import_module(location)
        function = attrgetter(attribute)(module)
        function = function() if inspect.isclass(function) else function
    except Exception as error:
        raise InputError(
            f"Cannot load the model '{target}': it raised {type(error).__name__}: {error}."
        ) from error
    if not callable(function):
        raise InputError(f"'{target}' must be a function. Got {type(function).__name__}.")
    return function


def _hugging_face_model(name: str) -> Model:
    """Load a classifier of images or texts with its own processor, on a GPU if there is one."""
    torch, transformers = (
        import_extra("Hugging Face models", module, "torch", "torch and transformers")
        for module in ("torch", "transformers")
    )
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def load(loader: str) -> Any:
        return getattr(transformers, loader).from_pretrained(name, trust_remote_code=False)

    try:
        config = load("AutoConfig")
        architecture = (config.architectures or ["no architecture"])[0]
        kind: Modality = "images" if architecture.endswith("ForImageClassification") else "texts"
        if kind == "texts" and not architecture.endswith("ForSequenceClassification"):
            raise ValueError(f"it must classify images or texts. Got {architecture}")
        task = "ImageClassification" if kind == "images" else "SequenceClassification"
        network = load(f"AutoModelFor{task}").to(device).eval()
        processor = load("AutoImageProcessor" if kind == "images" else "AutoTokenizer")
    except Exception as error:
        reason = one_line(error).rstrip(".")
        if "trust_remote_code" in str(error):
            reason = "it contains code, which evencover does not run; wrap it in a function"
        raise InputError(f"Cannot load the model '{name}': {reason}.") from error

    def outputs(prepared: list[Any]) -> Any:
        if kind == "images":
            tensors = {key: torch.cat([image[key] for image in prepared]) for key in prepared[0]}
        else:
            most = getattr(config, "max_position_embeddings", MAX_TOKENS)
            limits = {"truncation": True, "max_length": min(most, processor.model_max_length)}
            tensors = processor(prepared, padding=True, return_tensors="pt", **limits)
        with torch.inference_mode():
            moved = {key: tensor.to(device) for key, tensor in tensors.items()}
            return network(**moved).logits.float().cpu().numpy()

    names = [str(config.id2label[index]) for index in range(config.num_labels)]
    is_numbered = all(label == f"LABEL_{index}" for index, label in enumerate(names))
    files = sorted(path for path in Path(name).glob("[!.]*") if path.is_file())
    return Model(
        f"'{name}'",
        # A commit of the hub, or the files of a folder.
        f"{getattr(config, '_commit_hash', '')} {[(p.name, size_and_time(p)) for p in files]}",
        outputs,
        None if kind == "texts" else lambda image: processor(images=[image], return_tensors="pt"),
        kind,
        None if is_numbered else names,
        returns_logits=True,
    )
