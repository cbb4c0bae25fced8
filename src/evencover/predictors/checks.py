"""What is wrong with a predictor that was read from a file, if anything is."""

from __future__ import annotations

import numpy as np

from evencover._validation import Array
from evencover.predictors.method import Method
from evencover.predictors.state import Field


def wrong_field(predictor: Method) -> str | None:
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


def wrong_value(predictor: Method) -> str | None:
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
