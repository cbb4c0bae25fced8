"""What a fit keeps: each method declares its fields, which files hold and `load` checks."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.scores import Score, make_score
from evencover.validation import by_class


class Field(NamedTuple):
    """One thing that a fit keeps: an array of numbers, or a plain value.

    Parameters
    ----------
    kind
        float or int: the numbers of an array; for a plain value the type that JSON gives back.
    shape
        One letter per dimension of an array: K classes, L = K + 1, "?" any size; the same other
        letter stands for the same size in all fields. None: a plain value.
    optional
        Whether it may be None.
    """

    kind: type
    shape: str | None = None
    optional: bool = False


def digest(predictor: Any) -> str:
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


def content_of(predictor: Any) -> tuple[dict[str, Any], dict[str, Array]]:
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
        value = to_numpy(value).tolist()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def wrong_field(predictor: Any) -> str | None:
    """What is wrong with the type or shape of a field, if anything is."""
    if type(predictor.n_classes_) is not int or predictor.n_classes_ < 2:
        return "it must have at least 2 classes"
    sizes = {"K": predictor.n_classes_, "L": predictor.n_classes_ + 1}
    for name, field in predictor.all_state().items():
        value = getattr(predictor, name)
        if value is None:
            if not field.optional:
                return f"it lacks {name}"
        elif field.shape is None:
            if not isinstance(value, field.kind) or isinstance(value, bool) != (field.kind is bool):
                return f"{name} must be of the type {field.kind.__name__}"
        else:
            problem = _wrong_array(name, value, field, sizes)
            if problem:
                return problem
    return None


def _wrong_array(name: str, values: Array, field: Field, sizes: dict[str, int]) -> str | None:
    assert field.shape is not None
    if values.dtype != (np.int64 if field.kind is int else np.float64):
        return f"{name} has the type {values.dtype}"
    if values.ndim != len(field.shape) or any(
        letter != "?" and sizes.setdefault(letter, size) != size
        for letter, size in zip(field.shape, values.shape, strict=True)
    ):
        return f"{name} has the shape {values.shape}"
    return f"{name} holds NaN" if np.isnan(values).any() else None


def wrong_value(predictor: Any) -> str | None:
    """What is wrong with what every fit keeps, if anything is."""
    names, counts = predictor.class_names_, predictor.class_counts_
    edges, in_bins = predictor.score_edges_, predictor.score_counts_
    if edges is not None and in_bins is not None:
        if len(in_bins) != len(edges) + 1 or (np.diff(edges) <= 0).any() or (in_bins < 0).any():
            return "its bins of scores are not sorted"
    elif edges is not None or in_bins is not None:
        return "its bins of scores are not whole"
    if not all(list(map(type, each)) == [str, int] for each in predictor.fingerprints_):
        return "its fingerprints are not whole"
    if predictor.row_sample_ is not None and predictor.row_sample_.shape[1] != 2:
        return "its sample of rows is not whole"
    if (counts < 0).any() or counts.sum() != predictor.n_calibration_:
        return "its classes do not add up to its calibration rows"
    if names is not None and not (
        len(names) == predictor.n_classes_ and all(isinstance(name, str) for name in names)
    ):
        return f"it must have {predictor.n_classes_} class names"
    return None
