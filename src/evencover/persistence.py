"""save() and load(): safetensors with JSON metadata. Loading runs no code and checks everything."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

import evencover
from evencover._validation import Array, InputError, NotFittedError
from evencover.clustering import ClusterGuarantee
from evencover.data.atomic import atomic_path, refuse_existing
from evencover.data.files import existing_file
from evencover.predictors import PREDICTORS, BasePredictor
from evencover.quantiles import GroupedScores
from evencover.scores import Score, make_score

FORMAT = 1
_KEY = "evencover"


def save(predictor: BasePredictor, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a calibrated predictor to a file; an existing one is kept unless `force` is given."""
    if not hasattr(predictor, "thresholds_"):
        raise NotFittedError(
            f"This {type(predictor).__name__} is not calibrated yet; nothing to save."
        )
    from safetensors.numpy import save as to_bytes

    path = refuse_existing(path, force=force)
    arrays = {name: getattr(predictor, name) for name in predictor.fitted_arrays}
    arrays = {name: np.ascontiguousarray(v) for name, v in arrays.items() if v is not None}
    about = {
        "format": FORMAT,
        "version": evencover.__version__,
        "method": predictor.method,
        "parameters": {k: _plain(v) for k, v in predictor.get_params().items()},
        "fitted": {name: _plain(getattr(predictor, name)) for name in predictor.fitted_values},
    }
    with atomic_path(path) as temporary:
        temporary.write_bytes(to_bytes(arrays, {_KEY: json.dumps(about, ensure_ascii=False)}))


def load(path: str | os.PathLike[str]) -> BasePredictor:
    """Read a predictor that `save` wrote, and check that it is whole and consistent."""
    path = existing_file(path)
    about, arrays = _read(path)
    try:
        predictor = PREDICTORS[about["method"]](**_parameters(about["parameters"]))
        for name in predictor.fitted_values:
            setattr(predictor, name, about["fitted"][name])
        for name in predictor.fitted_arrays:
            setattr(predictor, name, arrays.get(name))
        if "guarantee_" in predictor.fitted_values:
            predictor.guarantee_ = tuple(  # type: ignore[attr-defined]
                ClusterGuarantee._make(math.nan if v is None else v for v in row)
                for row in about["fitted"]["guarantee_"]
            )
        problem = _inconsistency(predictor)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        problem = str(error) or type(error).__name__
    if problem:
        raise InputError(f"Cannot read '{path}': the model is damaged ({problem}).")
    return predictor


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(_KEY)
            if text is None:
                raise InputError(f"Cannot read '{path}': it was not written by evencover.")
            about = json.loads(text)
            _refuse_newer(path, about)
            return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise InputError(
            f"Cannot read '{path}': it is not a whole safetensors file ({error})."
        ) from None


def _refuse_newer(path: Path, about: Any) -> None:
    if not isinstance(about, dict) or not isinstance(about.get("format"), int):
        raise InputError(f"Cannot read '{path}': it does not say which format it has.")
    if about["format"] > FORMAT:
        writer = about.get("version", "of a later version")
        raise InputError(
            f"Cannot read '{path}': it has format {about['format']}, and evencover "
            f"{evencover.__version__} reads up to {FORMAT}; use evencover {writer} or later."
        )


def _parameters(stored: dict[str, Any]) -> dict[str, Any]:
    return {**stored, "score": make_score(stored["score"])}


def _inconsistency(predictor: BasePredictor) -> str | None:
    """What does not fit together, if anything. Thresholds must follow from the stored scores."""
    predictor._check_parameters()
    n_classes = predictor.n_classes_
    groups = GroupedScores(predictor.group_scores_, predictor.group_offsets_)
    per_class = ("thresholds_", "class_counts_", "group_of_class_")
    if any(getattr(predictor, name).shape != (n_classes,) for name in per_class):
        return f"it must have {n_classes} thresholds, counts and groups"
    if predictor.class_names_ is not None and len(predictor.class_names_) != n_classes:
        return f"it must have {n_classes} class names"
    if (
        groups.offsets[0] != 0
        or groups.offsets[-1] != len(groups.scores)
        or (groups.counts < 0).any()
    ):
        return "its groups of scores overlap"
    if not (
        0 <= predictor.group_of_class_.min() <= predictor.group_of_class_.max() < len(groups.counts)
    ):
        return "a class belongs to a group that does not exist"
    if any((np.diff(groups.of(group)) < 0).any() for group in range(len(groups.counts))):
        return "its scores are not sorted"
    expected = groups.thresholds(predictor.alpha, exact=predictor.exact)
    stored = (predictor.thresholds_, predictor.lower_thresholds_, predictor.upper_probability_)
    for mine, theirs in zip(expected.of_classes(predictor.group_of_class_), stored, strict=True):
        same = mine is theirs if mine is None or theirs is None else np.array_equal(mine, theirs)
        if not same:
            return "its thresholds do not follow from its scores"
    return None


def _plain(value: Any) -> Any:
    """A value that JSON holds without loss; fractions and decimals as text, NaN as null."""
    if isinstance(value, Score):
        return value.to_dict()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
