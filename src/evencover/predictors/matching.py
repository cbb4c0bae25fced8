"""New rows must be like the calibration rows: as many classes, with the same names in order."""

from __future__ import annotations

from copy import copy
from typing import Any

from evencover._validation import InputError, NotFittedError
from evencover.data.opening import as_source
from evencover.data.source import Source
from evencover.predictors.method import Method


def require_fitted(predictor: Method) -> None:
    """Refuse a predictor that has learnt nothing yet."""
    if not hasattr(predictor, "thresholds_"):
        raise NotFittedError(
            f"This {type(predictor).__name__} is not calibrated yet; call 'fit' with calibration "
            "probabilities and labels first."
        )


def like_calibration(predictor: Method, probabilities: Any, labels: Any = None) -> Source:
    """The rows as a source that has the predictor's classes; the caller's own is left alone."""
    require_fitted(predictor)
    source = as_source(probabilities, labels)
    if source.n_classes != predictor.n_classes_:
        raise InputError(
            f"The input must have the {predictor.n_classes_} classes of the calibration data. "
            f"Got {source.n_classes} classes in {source.name}."
        )
    if source.class_names is None or predictor.class_names_ is None:
        if source is probabilities:
            source = copy(source)
        source.class_names = predictor.class_names_ or source.class_names
    else:
        _refuse_other_names(source, predictor.class_names_)
    return source


def _refuse_other_names(source: Source, names: Any) -> None:
    assert source.class_names is not None
    for index, pair in enumerate(zip(source.class_names, names, strict=True)):
        if pair[0] != pair[1]:
            raise InputError(
                "The classes must have the names and the order of the calibration data. "
                f"Got {pair[0]!r} as class {index} of {source.name}, which was {pair[1]!r}."
            )


def is_calibration_data(predictor: Method, source: Source) -> bool:
    """Whether rows that have been read are the calibration rows themselves."""
    return predictor.fingerprint_ is not None and predictor.fingerprint_ == source.fingerprint


def require_labels(source: Source, what: str) -> None:
    """Refuse rows without labels where they are needed."""
    if not source.has_labels:
        raise InputError(
            f"{what} needs labels. Got none with {source.name}; pass 'labels' "
            "(--labels on the command line)."
        )
