"""Texts as the numbers that an ONNX model takes, by the tokenizer beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evencover._types import Array
from evencover.errors import InputError, needs

MOST_TOKENS = 512
PARTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


class Tokens:
    """A tokenizer that cuts and fills up texts to one length.

    Parameters
    ----------
    folder
        Where ``tokenizer.json`` is.
    inputs
        The inputs of the model by name, which may fix the length.
    """

    def __init__(self, folder: Path, inputs: Mapping[str, Any]) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise needs("Texts for ONNX models", "tokenizers", "onnx") from None
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise InputError(
                f"A model of texts must come with its tokenizer. There is no '{file}'."
            )
        unknown = [name for name in inputs if name not in PARTS]
        if unknown:
            raise InputError(
                f"A model of texts must take only {', '.join(PARTS)}. Got {', '.join(unknown)}."
            )
        self._names = list(inputs)
        self._tokenizer = Tokenizer.from_file(str(file))
        settings = _read(folder / "tokenizer_config.json")
        length = inputs["input_ids"].shape[1]
        fixed = length if isinstance(length, int) else None
        wish = settings.get("model_max_length") or MOST_TOKENS
        most = fixed or int(wish if wish < 1 << 24 else MOST_TOKENS)
        self._tokenizer.enable_truncation(most)
        token = settings.get("pad_token")
        token = token["content"] if isinstance(token, dict) else token or "[PAD]"
        self._tokenizer.enable_padding(
            length=fixed, pad_token=token, pad_id=self._tokenizer.token_to_id(token) or 0
        )

    def __call__(self, texts: list[str]) -> dict[str, Array]:
        """The model's inputs by name."""
        found = self._tokenizer.encode_batch(texts)
        return {
            name: np.array([getattr(each, PARTS[name]) for each in found], dtype=np.int64)
            for name in self._names
        }


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}
