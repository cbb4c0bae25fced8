"""What a fit keeps: each method declares its fields, which files hold and `load` checks."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import field
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.quantiles import Thresholds, is_per_class
from evencover.scores import Score, make_score
from evencover.validation import by_class

BY_CLASS = "by class"  # in place of an alpha per class, which is saved as an array


class Field(NamedTuple):
    """One thing that a fit keeps: an array, a plain value, or thresholds.

    ``kind`` is float or int for an array, `Thresholds`, or the type that JSON gives back. ``shape``
    has one letter per dimension of an array: K classes, L = K + 1, "?" any size; any other letter
    stands for the same size in all fields. None is a plain value.
    """

    kind: type
    shape: str | None = None
    optional: bool = False

    def columns(self, name: str) -> dict[str, Field]:
        """Return the fields by name; thresholds have several."""
        if self.kind is not Thresholds:
            return {name: self}
        return {
            f"{name}.upper": Field(float, self.shape),
            f"{name}.lower": Field(float, self.shape, True),
            f"{name}.upper_probability": Field(float, self.shape, True),
            f"{name}.rank_limit": Field(int, self.shape, True),
        }


def kept(kind: type, shape: str | None = None, optional: bool = False, **options: Any) -> Any:
    """Declare a fitted attribute of a method: a `Field` that `save` writes and `load` checks."""
    return field(init=False, metadata={"kept": Field(kind, shape, optional)}, **options)


def digest(predictor: Any) -> str:
    """Hash all that is saved of a predictor."""
    return checksum(*content_of(predictor))


def checksum(about: Any, arrays: dict[str, Array]) -> str:
    """Hash metadata and arrays, whatever their order."""
    text = json.dumps(json.loads(json.dumps(about)), sort_keys=True)
    content = hashlib.blake2b(text.encode(), digest_size=16)
    for name, values in sorted(arrays.items()):
        content.update(f"{name!r} {values.dtype} {values.shape}".encode())
        content.update(np.ascontiguousarray(values).tobytes())
    return content.hexdigest()


def content_of(predictor: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return parameters and plain values, ready for JSON, and arrays."""
    # A score by name is the same score: a model that was loaded must not differ from the saved one.
    parameters = {**predictor.get_params(), "score": make_score(predictor.score)}
    for name, value in parameters.items():
        if not isinstance(value, str) and name != "alpha":
            parameters[name] = by_class(value, "parameter") or value
    fitted, arrays = {}, {}
    for name, each in predictor.all_state().items():
        value = attrgetter(name)(predictor)
        if each.shape is None:
            fitted[name] = value
        elif value is not None:
            arrays[name] = np.ascontiguousarray(value)
    if is_per_class(predictor.alpha):
        parameters["alpha"], arrays["alpha"] = BY_CLASS, predictor.alpha_
    return _plain({"method": predictor.method, "parameters": parameters, "fitted": fitted}), arrays


def _plain(value: Any) -> Any:
    """Return a value that JSON holds without loss; fractions as text, NaN as null."""
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


def damage(predictor: Any) -> str | None:
    """Describe what is wrong with the fitted state that was loaded, if anything is."""
    n_classes, names = predictor.n_classes_, predictor.class_names_
    if type(n_classes) is not int or n_classes < 2:
        return "it must have at least 2 classes"
    sizes = {"K": n_classes, "L": n_classes + 1}
    for name, each in predictor.all_state().items():
        value = attrgetter(name)(predictor)
        if value is None:
            if not each.optional:
                return f"it lacks {name}"
        elif each.shape is None:
            if not isinstance(value, each.kind) or isinstance(value, bool) != (each.kind is bool):
                return f"{name} must be of the type {each.kind.__name__}"
        elif value.dtype != (np.int64 if each.kind is int else np.float64):
            return f"{name} has the type {value.dtype}"
        elif value.ndim != len(each.shape) or any(
            letter != "?" and sizes.setdefault(letter, size) != size
            for letter, size in zip(each.shape, value.shape, strict=True)
        ):
            return f"{name} has the shape {value.shape}"
        elif np.isnan(value).any():
            return f"{name} holds NaN"
    if not all(list(map(type, each)) == [str, int] for each in predictor.fingerprints_):
        return "its fingerprints are not whole"
    if predictor.class_counts_.sum() != predictor.n_calibration_:
        return "its classes do not add up to its calibration rows"
    if names is not None and (len(names) != n_classes or {*map(type, names)} != {str}):
        return f"it must have {n_classes} class names"
    return None
