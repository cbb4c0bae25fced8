"""One raw input, read: an image as RGB, a text as it is."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evencover.errors import needs
from evencover.inference.inputs import Kind


class UnreadableError(Exception):
    """An input that cannot be read, and why."""


def import_pillow() -> Any:
    """The optional dependency, or a sentence that says how to get it."""
    try:
        import PIL.Image
    except ImportError:
        raise needs("Images", "pillow", "images") from None
    return PIL.Image


def read_value(kind: Kind, value: Any) -> Any:
    """An image or a text; whatever goes wrong with one input is `UnreadableError`."""
    try:
        return _image(value) if kind == "images" else _text(value)
    except MemoryError:
        raise
    except Exception as error:  # decoders raise what they like for a broken file
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableError(" ".join(reason.split())) from error


def _image(value: Any) -> Any:
    """The picture in a file, in bytes, or in what Hugging Face keeps of one, as RGB."""
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    if value is None:
        raise ValueError("there is none")
    with import_pillow().open(io.BytesIO(value) if isinstance(value, bytes) else value) as image:
        return image.convert("RGB")


def _text(value: Any) -> str:
    if isinstance(value, os.PathLike):
        return Path(value).read_text(encoding="utf-8")
    if value is None:
        raise ValueError("there is none")
    return str(value)
