"""Load trained classifiers: ONNX, Hugging Face, or a Python function."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import mmap
import os
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from evencover.arrays import Array
from evencover.errors import InputError, import_extra, one_line
from evencover.inference.inputs import KINDS, Kind, digest_of
from evencover.output.folders import content_digest

CONFIG = "preprocessor_config.json"
BILINEAR = 2
LARGE = 384  # ConvNext processors resize instead of cropping from this size on
MAX_TOKENS = 512  # if neither tokenizer nor model state a limit
TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
TOKENS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}

_FUNCTION = re.compile(r"(.+\.py|[A-Za-z_][\w.]*):[A-Za-z_][\w.]*")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Protobuf encoding of the key of a weight file's name, and of the name's length.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x80-\xff]*[\x00-\x7f])")


class Model(ABC):
    """A trained classifier."""

    name: str  # in messages
    identity: str  # changes with the weights
    kind: Kind | None = None  # None if it takes both
    class_names: Sequence[str] | None = None
    batch_size: int | None = None  # number of inputs per batch, if fixed
    device: str = ""
    libraries: Sequence[str] = ()  # modules whose versions can change its outputs
    preprocessing: str = ""  # all settings: equal texts give equal numbers
    source: str = ""  # of the preprocessing
    is_default: bool = False  # whether the preprocessing of images is unspecified

    def prepare(self, value: Any) -> Any:
        """Prepare one image or text; must be thread-safe."""
        return value

    def collate(self, prepared: list[Any]) -> Any:
        """Join prepared inputs to a batch; must be thread-safe."""
        return prepared

    @abstractmethod
    def logits(self, batch: Any) -> Any:
        """Return (n, K) numbers, one row per input of the batch."""


def open_model(
    model: str | os.PathLike[str] | Model, device: str | None = None, **options: Any
) -> Model:
    """Open an ONNX file, a Hugging Face folder or name, or ``module:function``.

    `options` are `mean`, `std`, `scale`, `size` and `channels` of images, for ONNX models; None
    uses the model's configuration.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if not isinstance(model, Model):
        path, text = Path(model), os.fspath(model)
        exported = path / "model.onnx"
        is_file = path.exists() or path.is_absolute() or path.suffix.lower() in (".onnx", ".py")
        if path.is_file() and path.suffix.lower() == ".onnx":
            return OnnxModel(path, device, options)
        if exported.is_file() and not list(path.glob("*.safetensors")):
            return OnnxModel(exported, device, options)
        if not path.is_dir() and _FUNCTION.fullmatch(text):
            model = FunctionModel(text, device)
        elif path.is_dir() or (not is_file and _HUB_NAME.fullmatch(text)):
            model = HuggingFaceModel(text, device)
        else:
            found = "it is none of these" if path.exists() else "there is no such file or folder"
            raise InputError(
                "The model must be an ONNX file (.onnx), a folder or name of a Hugging Face model, "
                f"or module:function. Got '{text}': {found}."
            )
    _reject(options, model.name, "which has its own preprocessing")
    return model


def _reject(options: Mapping[str, Any], model: str, reason: str) -> None:
    for name in options:
        raise InputError(
            f"'{name}' (--{name}) must go with an ONNX model of images. "
            f"Got the model {model}, {reason}; leave it out."
        )


@dataclass(frozen=True)
class Preprocessing:
    """Resize, crop the center, and map each pixel to (pixel * scale - mean) / std."""

    resize: tuple[int, int] | int | None  # (height, width), or the length of the shorter side
    crop: tuple[int, int] | None = None  # (height, width)
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    resample: int = BILINEAR  # pillow's number of the filter
    channels: int = 3  # 1 for grayscale, 3 for RGB

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Preprocessing:
        """Read a ``preprocessor_config.json`` as Hugging Face writes it."""
        resize: tuple[int, int] | int | None = None
        crop: tuple[int, int] | None = None
        if config.get("do_resize", True):
            resize = _pair(config.get("size", 224))
            # An integer is the shorter side if the center is cropped, otherwise both sides.
            crops = config.get("do_center_crop") or config.get("crop_pct") is not None
            if isinstance(config.get("size"), int) and not crops:
                resize = (config["size"], config["size"])
            if config.get("crop_pct") is not None and isinstance(resize, int):
                whole = (resize, resize)
                smaller = int(resize / config["crop_pct"]), whole
                resize, crop = smaller if resize < LARGE else (whole, None)
        if config.get("do_center_crop"):
            size = _pair(config.get("crop_size", config.get("size", 224)))
            crop = (size, size) if isinstance(size, int) else size
        normalizes = config.get("do_normalize", True)
        return cls(
            resize,
            crop,
            config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0,
            tuple(config["image_mean"]) if normalizes else (0.0,),
            tuple(config["image_std"]) if normalizes else (1.0,),
            config.get("resample", BILINEAR),
        )

    @property
    def shape(self) -> tuple[int | None, int | None]:
        """Height and width of the result, if fixed."""
        return self.crop or (self.resize if isinstance(self.resize, tuple) else (None, None))

    def __str__(self) -> str:
        """Return every setting: runs with equal texts give equal numbers."""
        steps = ["RGB" if self.channels == 3 else "grayscale"]
        if self.resize is not None:
            sides = self.resize if isinstance(self.resize, tuple) else ("shorter side", self.resize)
            steps.append(f"resize to {_sides(sides)} (filter {self.resample})")
        if self.crop is not None:
            steps.append(f"crop to {_sides(self.crop)}")
        steps.append(f"scale {'1/255' if self.scale == 1 / 255 else self.scale}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            steps.append(f"{name} {' '.join(map(str, values))}")
        return ", ".join(steps)

    def __call__(self, image: Any) -> Array:
        """Convert an RGB image to a float32 array (height, width, channels)."""
        image = image.convert("L") if self.channels == 1 else image
        if self.resize is not None:
            short = min(image.size)
            height, width = (
                self.resize
                if isinstance(self.resize, tuple)
                else (int(self.resize * side / short) for side in image.size[::-1])
            )
            image = image.resize((width, height), self.resample)
        if self.crop is not None:  # smaller images get a black border
            height, width = self.crop
            left, top = (image.width - width) // 2, (image.height - height) // 2
            image = image.crop((left, top, left + width, top + height))
        pixels = np.asarray(image, np.float32).reshape(image.height, image.width, self.channels)
        mean, std = (np.asarray(each, np.float32) for each in (self.mean, self.std))
        normalized: Array = (pixels * np.float32(self.scale) - mean) / std
        return normalized


def _pair(size: Any) -> tuple[int, int] | int:
    """Return (height, width), or the length of the shorter side."""
    if isinstance(size, dict):
        if "shortest_edge" in size:
            return int(size["shortest_edge"])
        return int(size["height"]), int(size["width"])
    return int(size)


def _fits(wanted: Sequence[int | None], got: Sequence[int | None]) -> bool:
    return all(side in (None, given) for side, given in zip(wanted, got, strict=True))


def _sides(size: Sequence[object]) -> str:
    return " x ".join("any" if side is None else str(side) for side in size)


class OnnxModel(Model):
    """A model with one input: images (n, 3, height, width) or (n, height, width, 3), or texts.

    ``preprocessor_config.json`` next to the file (Hugging Face format) or `options` define the
    preprocessing of images. ``tokenizer.json`` prepares texts, unless the model takes strings.
    ``config.json`` or ``class_names`` (a JSON list) in the model's metadata names the classes.
    """

    def __init__(self, path: Path, device: str | None, options: Mapping[str, Any]) -> None:
        onnxruntime = import_extra("ONNX models", "onnxruntime", "onnx")
        self.name, self.path = f"'{path}'", path
        try:
            providers = _providers(onnxruntime, device)
            self._session = onnxruntime.InferenceSession(str(path), providers=providers)
        except InputError:
            raise
        except Exception as error:
            reason = one_line(error).rstrip(".")
            raise InputError(f"Cannot load the model {self.name}: {reason}.") from error
        self.identity = digest_of(*map(content_digest, [path, *_weight_files(path)]))
        self.device = self._session.get_providers()[0]
        self.libraries = ("onnxruntime",)
        metadata = self._session.get_modelmeta().custom_metadata_map
        if "class_names" in metadata:
            self.class_names = [str(name) for name in json.loads(metadata["class_names"])]
        else:
            config = _read_json(path.with_name("config.json"))
            self.class_names = _named_classes(config.get("id2label"))
        inputs = {each.name: each for each in self._session.get_inputs()}
        self._input = next(iter(inputs.values()))
        self._output = self._find_output()
        fixed = self._input.shape[0] if self._input.shape else None
        self.batch_size = fixed if isinstance(fixed, int) else None
        self._tokenizer: Any = None
        if len(inputs) == 1 and self._input.type in TYPES and len(self._input.shape) == 4:
            self.kind = "images"
            self._find_preprocessing(options)
            return
        _reject(options, self.name, "which takes no images")
        self.kind = "texts"
        if "input_ids" in inputs:
            self._find_tokenizer(inputs)
        elif len(inputs) != 1 or self._input.type != "tensor(string)":
            found = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs.values())
            raise InputError(
                f"The model {self.name} must have one input of images (4 dimensions), of strings, "
                f"or input_ids. Got {found}."
            )

    def _find_output(self) -> str:
        outputs = self._session.get_outputs()
        found = [each for each in outputs if each.type in TYPES and len(each.shape or (1, 1)) == 2]
        if not found:
            listed = ", ".join(f"{o.name} {o.type} {o.shape}" for o in outputs)
            raise InputError(f"{self.name} must return one number per class. Got {listed}.")
        return str(next((each for each in found if each.name == "logits"), found[0]).name)

    def _find_preprocessing(self, options: Mapping[str, Any]) -> None:
        """Take each setting from the options, the model's configuration, or the default."""
        shape = self._input.shape
        self._channels_last = shape[3] in (1, 3) and shape[1] not in (1, 3)
        self._dtype = TYPES[self._input.type]
        fixed = [side if isinstance(side, int) else None for side in shape]
        size, channels = (fixed[1:3], fixed[3]) if self._channels_last else (fixed[2:], fixed[1])
        if channels not in (None, 1, 3):
            raise InputError(f"The model {self.name} must take 1 or 3 channels. Got {shape}.")
        given = _checked_options(options)
        normalizing = given.keys() & {"mean", "std", "scale"}
        config = self.path.with_name(CONFIG)
        if config.is_file():
            found, self.source = _read_preprocessing(config), f"from '{config}'"
        else:
            found = Preprocessing((size[0] or 0, size[1] or 0))
            self.source = f"by default, since there is no {CONFIG} next to the model"
            self.is_default = not normalizing
        if given:
            self.source = f"from {', '.join(f'--{name}' for name in given)}; others {self.source}"
        if "size" in given:
            found = replace(found, resize=given.pop("size"), crop=None)
        found = replace(found, **{"channels": channels or 3, **given})
        if 0 in found.shape:
            raise InputError(
                f"'size' (--size) must be given for the model {self.name}, which takes images of "
                f"any size and has no {CONFIG}."
            )
        if self._dtype == np.uint8:
            _reject(dict.fromkeys(normalizing), self.name, "which takes bytes")
            found = replace(found, scale=1.0, mean=(0.0,), std=(1.0,))
            self.is_default = False
        either = (1, found.channels)
        for name, is_right, got in (
            ("size", _fits(size, found.shape), _sides(found.shape)),
            ("channels", _fits([channels], [found.channels]), found.channels),
            ("mean", len(found.mean) in either, f"{len(found.mean)} numbers"),
            ("std", len(found.std) in either, f"{len(found.std)} numbers"),
        ):
            if not is_right:
                raise InputError(
                    f"'{name}' (--{name}) must go with the model {self.name}, which takes "
                    f"{_sides(size)} pixels of {channels or found.channels} channels. "
                    f"Got {got} ({self.source})."
                )
        self._preprocessing, self.preprocessing = found, str(found)

    def _find_tokenizer(self, inputs: Mapping[str, Any]) -> None:
        """Open the tokenizer next to the model; truncate and pad texts to one length."""
        tokenizers = import_extra("Texts for ONNX models", "tokenizers", "onnx")
        file = self.path.with_name("tokenizer.json")
        if not file.is_file():
            raise InputError(f"A model of texts must have a tokenizer. There is no '{file}'.")
        unknown = [name for name in inputs if name not in TOKENS]
        if unknown:
            raise InputError(f"{self.name} must take only {', '.join(TOKENS)}. Got {unknown}.")
        self._token_inputs = list(inputs)
        self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
        settings = _read_json(self.path.with_name("tokenizer_config.json"))
        length = inputs["input_ids"].shape[1]
        fixed = length if isinstance(length, int) else None
        stated = settings.get("model_max_length") or MAX_TOKENS
        longest = fixed or int(stated if stated < 1 << 24 else MAX_TOKENS)
        self._tokenizer.enable_truncation(longest)
        token = settings.get("pad_token")
        token = token["content"] if isinstance(token, dict) else token or "[PAD]"
        self._tokenizer.enable_padding(
            length=fixed, pad_token=token, pad_id=self._tokenizer.token_to_id(token) or 0
        )
        self.libraries = (*self.libraries, "tokenizers")
        # Includes the truncation and padding.
        self.preprocessing = f"tokenizer {digest_of(self._tokenizer.to_str())}, {longest} tokens"
        self.source = f"from '{file}'"

    def prepare(self, value: Any) -> Any:
        """Convert an image to the model's input; return a text unchanged."""
        if self.kind != "images":
            return value
        pixels = self._preprocessing(value)
        if not self._channels_last:
            pixels = pixels.transpose(2, 0, 1)
        return np.ascontiguousarray(pixels, dtype=self._dtype)

    def collate(self, prepared: list[Any]) -> Any:
        """Return the inputs of the session by name."""
        if self.kind == "images":
            return {self._input.name: np.stack(prepared)}
        if self._tokenizer is None:
            texts = np.array(prepared, dtype=object)
            return {self._input.name: texts[:, None] if len(self._input.shape) == 2 else texts}
        found = self._tokenizer.encode_batch(prepared)
        return {
            name: np.array([getattr(each, TOKENS[name]) for each in found], dtype=np.int64)
            for name in self._token_inputs
        }

    def logits(self, batch: Any) -> Any:
        """Return the output called logits, or the first with one number per class."""
        return self._session.run([self._output], batch)[0]


def _read_preprocessing(config: Path) -> Preprocessing:
    try:
        return Preprocessing.from_config(_read_json(config))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"'{config}' must state size, image_mean and image_std in Hugging Face's format. "
            f"Got {type(error).__name__}: {error}."
        ) from error


def _checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the options to fields of Preprocessing; raise InputError for invalid ones."""

    def is_positive(number: float) -> bool:
        return 0 < number < math.inf

    sides = range(1, 8193)
    # Option -> rule, check of each number, allowed lengths, and conversion.
    rules: dict[str, tuple[str, Callable[[float], bool], tuple[int, ...], Callable[..., Any]]] = {
        "mean": ("one finite number, or one per channel", math.isfinite, (1, 3), tuple),
        "std": ("one positive number, or one per channel", is_positive, (1, 3), tuple),
        "scale": ("one positive number", is_positive, (1,), lambda n: n[0]),
        "size": (
            "one integer from 1 to 8192, or height and width",
            *(sides.__contains__, (1, 2), lambda n: (int(n[0]), int(n[-1]))),
        ),
        "channels": ("1 or 3", (1, 3).__contains__, (1,), lambda n: int(n[0])),
    }
    found: dict[str, Any] = {}
    for name, value in options.items():
        rule, is_valid, lengths, as_field = rules[name]
        try:
            numbers = np.atleast_1d(np.asarray(value, np.float64)).tolist()
        except (TypeError, ValueError):
            numbers = []
        if len(numbers) not in lengths or not all(map(is_valid, numbers)):
            raise InputError(f"'{name}' (--{name}) must be {rule}. Got {value!r}.")
        found[name] = as_field(numbers)
    return found


def _providers(onnxruntime: Any, device: str | None) -> list[Any]:
    """Return the provider of a device ("cpu", "cuda", "cuda:1"), or by its own name."""
    available = onnxruntime.get_available_providers()
    if device is None:
        return [each for each in ("CUDAExecutionProvider", PROVIDERS["cpu"]) if each in available]
    name, _, number = device.partition(":")
    provider = PROVIDERS.get(name.lower(), name)
    if provider not in available:
        raise InputError(f"--device must be one of {', '.join(available)}. Got {device!r}.")
    return [(provider, {"device_id": number})] if number else [provider]


def _weight_files(path: Path) -> list[Path]:
    """List the weight files that an ONNX file names."""
    names = set()
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        for found in _LOCATION.finditer(content):
            length = sum((byte & 127) << 7 * i for i, byte in enumerate(found[1]))
            names.add(os.fsdecode(content[found.end() : found.end() + length]))
    files = [path.parent / name for name in sorted(names) if "\0" not in name]
    return [file for file in files if file.is_file()]


def _named_classes(id_to_label: Any) -> list[str] | None:
    """Return the class names of a Hugging Face configuration; None if it only numbers them."""
    if not id_to_label:
        return None
    names = {int(index): str(name) for index, name in id_to_label.items()}
    if set(names) != set(range(len(names))):
        return None
    ordered = [names[index] for index in range(len(names))]
    is_numbered = all(name == f"LABEL_{index}" for index, name in enumerate(ordered))
    return None if is_numbered else ordered


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


class HuggingFaceModel(Model):
    """A classifier of images or texts from a folder or the hub, with its own processor."""

    def __init__(self, name: str, device: str | None = None) -> None:
        torch, transformers = (
            import_extra("Hugging Face models", module, "torch", "torch and transformers")
            for module in ("torch", "transformers")
        )
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.name = f"'{name}'"
        self._torch = torch
        self._device = _torch_device(torch, device)
        self.device = self._device.type
        self.libraries = ("torch", "transformers")
        self._lock = threading.Lock()
        try:
            self._load(transformers, name)
        except InputError:
            raise
        except Exception as error:
            raise _not_loaded(name, error) from error
        self.class_names = _named_classes(self._config.id2label)
        self.preprocessing = type(self._processor).__name__
        self.source = f"from the model {self.name}"
        folder = Path(name)
        if folder.is_dir():
            files = sorted(each for each in folder.glob("[!.]*") if each.is_file())
            self.identity = digest_of(*((each.name, content_digest(each)) for each in files))
        else:
            self.identity = f"{name} {getattr(self._config, '_commit_hash', None)}"

    def _load(self, transformers: Any, name: str) -> None:
        def load(loader: Any) -> Any:
            return loader.from_pretrained(name, trust_remote_code=False)

        self._config = load(transformers.AutoConfig)
        architecture = (self._config.architectures or [""])[0]
        if architecture.endswith("ForImageClassification"):
            self.kind = "images"
            if transformers.utils.is_torchvision_available():
                self.libraries = (*self.libraries, "torchvision")
            self._processor = load(transformers.AutoImageProcessor)
            model = load(transformers.AutoModelForImageClassification)
        elif architecture.endswith("ForSequenceClassification"):
            self.kind = "texts"
            self.libraries = (*self.libraries, "tokenizers")
            self._processor = load(transformers.AutoTokenizer)
            model = load(transformers.AutoModelForSequenceClassification)
        else:
            raise InputError(
                f"The model {self.name} must classify images or texts (ForImageClassification, "
                f"ForSequenceClassification). Got {architecture or 'no architecture'}."
            )
        self._model = model.to(self._device).eval()

    def prepare(self, value: Any) -> Any:
        """Convert an image to tensors; return a text unchanged."""
        if self.kind == "texts":
            return value
        return self._processor(images=[value], return_tensors="pt")

    def collate(self, prepared: list[Any]) -> Any:
        """Return tensors by name; texts are tokenized together."""
        if self.kind == "images":
            names = prepared[0].keys()
            return {name: self._torch.cat([each[name] for each in prepared]) for name in names}
        with self._lock:  # each tokenizer call sets padding and truncation
            return self._processor(
                prepared,
                padding=True,
                truncation=True,
                max_length=self._max_tokens(),
                return_tensors="pt",
            )

    def _max_tokens(self) -> int:
        own = getattr(self._config, "max_position_embeddings", None)
        limits = (self._processor.model_max_length, own)
        return min((int(each) for each in limits if each and each < 1 << 24), default=MAX_TOKENS)

    def logits(self, batch: Any) -> Any:
        """Return the logits as float32 in main memory."""
        tensors = {name: tensor.to(self._device) for name, tensor in batch.items()}
        with self._torch.inference_mode():
            return self._model(**tensors).logits.float().cpu().numpy()


def _torch_device(torch: Any, device: str | None) -> Any:
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=chosen).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = one_line(error).rstrip(".")
        raise InputError(
            f"--device must be one that PyTorch can use here. Got {chosen!r}: {reason}."
        ) from error


def _not_loaded(name: str, error: Exception) -> InputError:
    if "trust_remote_code" in str(error):
        reason = (
            "it contains code, which evencover does not run; wrap it in a function "
            "(file.py:function)"
        )
    elif Path(name).is_dir():
        reason = f"a file is missing or damaged ({one_line(error).rstrip('.')})"
    else:
        reason = "it is neither a local folder nor reachable on the Hugging Face hub"
    return InputError(f"Cannot load the model '{name}': {reason}.")


class FunctionModel(Model):
    """A callable given as ``module:function`` or ``file.py:function``.

    It takes a list of RGB images (pillow) or texts and returns one row of logits for each. Optional
    attributes are ``class_names``; ``prepare``, applied to each input by worker threads; ``inputs``
    ("images" or "texts"); ``identity``, a text that changes with the weights; and ``batch_size``,
    if fixed. A parameter ``device`` receives the value of --device.
    """

    def __init__(self, target: str, device: str | None = None) -> None:
        self.name = f"'{target}'"
        place, _, path = target.rpartition(":")
        try:
            module = _import(place)
            function = attrgetter(path)(module)
            function = function() if inspect.isclass(function) else function
        except Exception as error:
            raise InputError(
                f"Cannot load the model {self.name}: it raised {type(error).__name__}: {error}."
            ) from error
        if not callable(function):
            raise InputError(f"{self.name} must be a function. Got {type(function).__name__}.")
        self._prepare: Callable[[Any], Any] | None = getattr(function, "prepare", None)
        names = getattr(function, "class_names", None)
        self.class_names = None if names is None else [str(name) for name in names]
        self.kind = getattr(function, "inputs", None)
        if self.kind not in (None, *KINDS):
            raise InputError(f"'inputs' of {self.name} must be one of {KINDS}. Got {self.kind!r}.")
        self.batch_size = getattr(function, "batch_size", None)
        self.device = device or ""
        source = getattr(module, "__file__", None)
        content = content_digest(Path(source)) if source else ""
        own = getattr(function, "identity", "")
        # Independent of its folder.
        self.identity = f"{Path(place).name}:{path} {content} {own}".strip()
        if device is not None:
            if "device" not in inspect.signature(function).parameters:
                raise InputError(f"--device must be left out: {self.name} has no such parameter.")
            function = partial(function, device=device)
        self._function = function

    def prepare(self, value: Any) -> Any:
        """Apply the function's ``prepare``, if any."""
        return value if self._prepare is None else self._prepare(value)

    def logits(self, batch: Any) -> Any:
        """Call the function."""
        return self._function(batch)


def _import(name: str) -> ModuleType:
    """Import a module from a file or by name, including the working directory."""
    if not name.endswith(".py"):
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)
        return importlib.import_module(name)
    path = Path(name).absolute()
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    code = compile(path.read_bytes(), path, "exec")
    sys.modules[path.stem] = module  # for dataclasses and pickle
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module
