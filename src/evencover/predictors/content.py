"""What is kept of a fitted predictor: plain values for JSON, arrays, and a digest of both."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np

from evencover._validation import Array, by_class, plain_array
from evencover.predictors.method import Method
from evencover.scores import Score, make_score


def digest(predictor: Method) -> str:
    """Text that differs between two predictors if anything that is saved of them does."""
    return checksum(*content_of(predictor))


def checksum(about: Any, arrays: dict[str, Array]) -> str:
    """Text that differs between two contents if anything in them does; the order is no content."""
    text = json.dumps(json.loads(json.dumps(about)), sort_keys=True)
    content = hashlib.blake2b(text.encode(), digest_size=16)
    for name, values in sorted(arrays.items()):
        content.update(f"{name!r} {values.dtype} {values.shape}".encode())
        content.update(np.ascontiguousarray(values).tobytes())
    return content.hexdigest()


def content_of(predictor: Method) -> tuple[dict[str, Any], dict[str, Array]]:
    """Parameters and plain values, ready for JSON, and arrays."""
    state = {name: getattr(predictor, name) for name in predictor.all_state()}
    is_array = {name: field.shape is not None for name, field in predictor.all_state().items()}
    # A score by name is the same score: a model that was loaded must not differ from the saved one.
    parameters = {**predictor.get_params(), "score": make_score(predictor.score)}
    about = {
        "method": predictor.method,
        "parameters": {k: _plain(_named(v)) for k, v in parameters.items()},
        "fitted": {name: _plain(value) for name, value in state.items() if not is_array[name]},
    }
    arrays = {name: v for name, v in state.items() if is_array[name] and v is not None}
    return about, {name: np.ascontiguousarray(values) for name, values in arrays.items()}


def _named(value: Any) -> Any:
    """Values by class as a dictionary, whatever held them."""
    named = None if isinstance(value, str) else by_class(value, "parameter")
    return value if named is None else named


def _plain(value: Any) -> Any:
    """A value that JSON holds without loss; fractions and decimals as text, NaN as null."""
    if isinstance(value, Score):
        return value.to_dict()
    if isinstance(value, np.floating):
        value = float(str(value))  # a float32 0.01 is the decimal that the user wrote
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.generic) or hasattr(value, "__array__"):
        value = plain_array(value).tolist()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
