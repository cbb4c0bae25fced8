"""Image and text classifiers of transformers, from a folder or by name."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from evencover.errors import InputError, needs
from evencover.inference.models.base import Model, named_classes
from evencover.inference.models.identity import folder_digest

MOST_TOKENS = 512  # where neither tokenizer nor model say how much they take


class HuggingFaceModel(Model):
    """A model for image or sequence classification, with its own processor or tokenizer.

    Parameters
    ----------
    name
        A folder, or a name on the hub.
    device
        Such as "cpu", "cuda" or "cuda:1"; the first GPU if there is one, by default.
    """

    def __init__(self, name: str, device: str | None = None) -> None:
        try:
            import torch
            import transformers
        except ImportError:
            raise needs("Hugging Face models", "torch and transformers", "torch") from None
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.name = f"'{name}'"
        self._torch = torch
        self._device = _device(torch, device)
        self._lock = threading.Lock()
        try:
            config = transformers.AutoConfig.from_pretrained(name)
            architecture = (config.architectures or [""])[0]
            self._load(transformers, name, architecture)
        except InputError:
            raise
        except Exception as error:
            raise _not_loaded(name, error) from error
        self._config = config
        self.class_names = named_classes(config.id2label)
        revision = getattr(config, "_commit_hash", None)
        is_folder = Path(name).is_dir()
        self.identity = folder_digest(Path(name)) if is_folder else f"{name} {revision}"

    def _load(self, transformers: Any, name: str, architecture: str) -> None:
        if architecture.endswith("ForImageClassification"):
            self.kind = "images"
            loader = transformers.AutoModelForImageClassification
            self._processor = transformers.AutoImageProcessor.from_pretrained(name)
        elif architecture.endswith("ForSequenceClassification"):
            self.kind = "texts"
            loader = transformers.AutoModelForSequenceClassification
            self._processor = transformers.AutoTokenizer.from_pretrained(name)
        else:
            raise InputError(
                f"The model {self.name} must classify images or texts (ForImageClassification, "
                f"ForSequenceClassification). Got {architecture or 'none that it names'}."
            )
        self._model = loader.from_pretrained(name).to(self._device).eval()

    def prepare(self, values: list[Any]) -> Any:
        """Tensors, as the processor or tokenizer makes them."""
        if self.kind == "images":
            return self._processor(images=values, return_tensors="pt")
        with self._lock:  # a tokenizer sets padding and truncation anew in each call
            return self._processor(
                values,
                padding=True,
                truncation=True,
                max_length=self._most_tokens(),
                return_tensors="pt",
            )

    def _most_tokens(self) -> int:
        limits = (
            self._processor.model_max_length,
            getattr(self._config, "max_position_embeddings", None),
        )
        return min((int(each) for each in limits if each and each < 1 << 24), default=MOST_TOKENS)

    def logits(self, prepared: Any) -> Any:
        """The logits, as float32 on the processor."""
        with self._torch.inference_mode():
            return self._model(**prepared.to(self._device)).logits.float().cpu().numpy()


def _device(torch: Any, device: str | None) -> Any:
    wish = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=wish).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(
            f"--device must be one that PyTorch can use here. Got {wish!r}: {reason}."
        ) from error


def _not_loaded(name: str, error: Exception) -> InputError:
    if Path(name).is_dir():
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return InputError(
            f"Cannot load the model '{name}': the folder is not that of a Hugging Face model, or a "
            f"part of it is missing or damaged ({reason.rstrip('.')})."
        )
    return InputError(
        f"Cannot find the model '{name}': there is no such file or folder here, and none of this "
        "name on the Hugging Face hub or in its cache that could be reached."
    )
