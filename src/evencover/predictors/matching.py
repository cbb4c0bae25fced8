"""New rows must be like the calibration rows: as many classes, with the same names."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from evencover._validation import InputError, NotFittedError
from evencover.data.columns import missing_labels
from evencover.data.opening import as_source
from evencover.data.reordered import in_order
from evencover.data.source import Source
from evencover.errors import warn_caller
from evencover.predictors.method import Method


def require_fitted(predictor: Method) -> None:
    """Refuse a predictor that has learnt nothing yet."""
    if not hasattr(predictor, "thresholds_"):
        raise NotFittedError(
            f"This {type(predictor).__name__} is not calibrated yet; call 'fit' with calibration "
            "probabilities and labels first."
        )


def like_calibration(
    predictor: Method, probabilities: Any, labels: Any = None, ids: Any = None
) -> Source:
    """The rows as a source that has the predictor's classes; the caller's own is left alone.

    Columns with names are put into the order of the calibration data. Labels that are numbers
    count the classes in that order, too.
    """
    require_fitted(predictor)
    source = as_source(probabilities)
    names = _names_of_classes(predictor, source)
    if source.class_names is not None and names is not None:
        source = _put_in_order(source, names)
    if source.n_classes != predictor.n_classes_:
        raise InputError(
            f"The input must have the {predictor.n_classes_} classes of the calibration data. "
            f"Got {source.n_classes} classes in {source.name}."
        )
    if source is probabilities:
        source = copy(source)
    if ids is not None:
        source = as_source(source, ids=ids)
    if source.class_names is None or predictor.class_names_ is None:
        source.class_names = predictor.class_names_ or source.class_names
        source.check_kept_labels()
    return source if labels is None else as_source(source, labels)


def _names_of_classes(predictor: Method, source: Source) -> Sequence[str] | None:
    """The names of the calibration classes; their numbers, if the input names them by these."""
    names: Sequence[str] | None = predictor.class_names_
    if names is None and source.class_names is not None:
        numbers = [str(number) for number in range(predictor.n_classes_)]
        return numbers if set(source.class_names) == set(numbers) else None
    return names


def _put_in_order(source: Source, names: Sequence[str]) -> Source:
    assert source.class_names is not None
    if list(source.class_names) == list(names):
        return source
    missing = [name for name in names if name not in set(source.class_names)]
    unknown = [name for name in source.class_names if name not in set(names)]
    if missing or unknown or len(source.class_names) != len(names):
        found = [f"no {_listed(missing)}"] * bool(missing)
        found += [f"the unknown {_listed(unknown)}"] * bool(unknown)
        raise InputError(
            f"{source.name[0].upper()}{source.name[1:]} must have the {len(names)} classes of the "
            f"calibration data, by name. Got {' and '.join(found) or 'a name twice'}; rename the "
            "columns, or pass the numbers without names if their order is the same."
        )
    counting = "; labels that are numbers count in that order" if source.labels_given else ""
    warn_caller(
        f"The columns of {source.name} were put into the order of the calibration data{counting}."
    )
    return in_order(source, names)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(repr, names[:3])) + more


def is_calibration_data(predictor: Method, source: Source) -> bool:
    """Return whether rows that have been read calibrated the predictor."""
    return any(text == source.fingerprint for text, _ in predictor.fingerprints_)


def require_labels(source: Source, what: str) -> None:
    """Refuse rows without labels where they are needed."""
    if not source.has_labels:
        raise missing_labels(what, source.name, source.left_out)
