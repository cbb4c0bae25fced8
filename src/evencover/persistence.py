"""save() and load(): safetensors with JSON metadata. Loading runs no code and checks everything."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import evencover
from evencover._validation import Array, EvencoverWarning, InputError, IntArray, NotFittedError
from evencover.data.formats.safetensors_files import safetensors_metadata
from evencover.data.location import as_location, existing_file
from evencover.data.reading import reading
from evencover.output.atomic import atomic_path, refuse_existing
from evencover.predictors import (
    SAVED_PREDICTORS,
    BasePredictor,
    ClusteredPredictor,
    FuzzyPredictor,
    GroupedPredictor,
    MacroPredictor,
    PooledPredictor,
    RC3PPredictor,
    RowGroupedPredictor,
)
from evencover.predictors.by_class import ByClassPredictor
from evencover.predictors.clustering import ClusterGuarantee
from evencover.predictors.grouped import OverGroups
from evencover.predictors.groups import GroupPredictor
from evencover.predictors.pooling import FINE_BINS
from evencover.quantiles import GroupedScores
from evencover.scores import Score, make_score

FORMAT = 1
_KEY = "evencover"
_WHOLE_NUMBERS = (
    *("class_counts_", "group_offsets_", "group_of_class_", "cluster_of_class_"),
    *("own_places_", "own_offsets_", "own_ranks_", "rank_limits_"),
    *("row_groups_", "row_ids_"),
)
# One letter per dimension: K classes, L = K + 1, B bins; "?" is any size, others must agree.
_SHAPES = {
    "group_scores_": "?",
    "group_offsets_": "?",
    "calibration_levels_": "?",
    "tails_": "?",
    "held_out_": "?",
    "own_scores_": "R",
    "own_ranks_": "R",
    "row_scores_": "R",
    "row_groups_": "R",
    "row_ids_": "R",
    "pooled_scores_": "N",
    "own_places_": "N",
    "own_offsets_": "L",
    "cluster_weights_": "KM",
    "cluster_functions_": "MB",
}
_NOT_FOLLOWING = "its thresholds do not follow from its scores"
_ROUNDING = 1e-9  # how far a level may differ between machines
_ONLY_IF_EXACT = ("lower_thresholds_", "upper_probability_")
_PER_THRESHOLD = ("thresholds_", *_ONLY_IF_EXACT)


def save(predictor: BasePredictor, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a calibrated predictor to a file; an existing one is kept unless `force` is given."""
    if not hasattr(predictor, "thresholds_"):
        raise NotFittedError(
            f"This {type(predictor).__name__} is not calibrated yet; nothing to save."
        )
    from safetensors.numpy import save as to_bytes

    path = refuse_existing(path, force=force)
    about, arrays = _content(predictor)
    about = {"format": FORMAT, "version": evencover.__version__, **about}
    with atomic_path(path) as temporary:
        temporary.write_bytes(to_bytes(arrays, {_KEY: json.dumps(about)}))


def digest(predictor: BasePredictor) -> str:
    """Text that differs between two predictors if anything that is saved of them does."""
    about, arrays = _content(predictor)
    content = hashlib.blake2b(json.dumps(about).encode(), digest_size=16)
    for name, values in arrays.items():
        content.update(f"{name} {values.dtype} {values.shape}".encode())
        content.update(values.data)
    return content.hexdigest()


def _content(predictor: BasePredictor) -> tuple[dict[str, Any], dict[str, Array]]:
    arrays = {name: getattr(predictor, name) for name in predictor.fitted_arrays}
    about = {
        "method": predictor.method,
        "parameters": {k: _plain(v) for k, v in predictor.get_params().items()},
        "fitted": {name: _plain(getattr(predictor, name)) for name in predictor.fitted_values},
    }
    return about, {k: np.ascontiguousarray(v) for k, v in arrays.items() if v is not None}


def load(path: str | os.PathLike[str]) -> BasePredictor:
    """Read a predictor that `save` wrote, and check that it is whole and consistent."""
    path = Path(path)
    existing_file(path)
    about, arrays = _read(path)
    try:
        predictor = _unfitted(about)
        for name in predictor.fitted_values:
            setattr(predictor, name, about["fitted"][name])
        for name in predictor.fitted_arrays:
            setattr(predictor, name, arrays.get(name))
        if isinstance(predictor, ClusteredPredictor):
            predictor.guarantee_ = tuple(
                ClusterGuarantee._make(math.nan if v is None else v for v in row)
                for row in about["fitted"]["guarantee_"]
            )
        if isinstance(predictor, PooledPredictor):
            predictor.ingredients_ = [
                (kind, float(strength), float(weight))
                for kind, strength, weight in about["fitted"]["ingredients_"]
            ]
        problem = (
            _wrong_array(predictor)
            or _wrong_value(predictor)
            or _wrong_cluster(predictor)
            or _wrong_rows(predictor)
            or _wrong_threshold(predictor)
        )
    except KeyError as error:
        problem = f"{error} is missing or unknown"
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        problem = str(error) or type(error).__name__
    if problem:
        raise InputError(f"Cannot read '{path}': the model is damaged ({problem}).")
    return predictor


def is_model(path: str | os.PathLike[str]) -> bool:
    """Whether a file says that `save` wrote it; safetensors may also hold data."""
    location = as_location(path)
    if location.suffix.lower() != ".safetensors":
        return False
    with reading(existing_file(location)):
        return _KEY in safetensors_metadata(location)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    from safetensors import safe_open

    with reading(path), safe_open(path, framework="numpy") as file:
        text = (file.metadata() or {}).get(_KEY)
        if text is None:
            raise InputError(f"Cannot read '{path}': it was not written by evencover.")
        about = json.loads(text)
        _refuse_newer(path, about)
        return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _refuse_newer(path: Path, about: Any) -> None:
    if not isinstance(about, dict) or type(about.get("format")) is not int or about["format"] < 1:
        raise InputError(f"Cannot read '{path}': it does not say which format it has.")
    if about["format"] > FORMAT:
        writer = about.get("version", "of a later version")
        raise InputError(
            f"Cannot read '{path}': it has format {about['format']}, and evencover "
            f"{evencover.__version__} reads up to {FORMAT}; use evencover {writer} or later."
        )


def _unfitted(about: dict[str, Any]) -> BasePredictor:
    stored = about["parameters"]
    predictor = SAVED_PREDICTORS[about["method"]](
        **{**stored, "score": make_score(stored["score"])}
    )
    missing = predictor.get_params().keys() - stored.keys()
    if missing:
        raise InputError(f"it lacks {', '.join(sorted(missing))}")
    predictor._check_parameters()
    return predictor


def _wrong_array(predictor: BasePredictor) -> str | None:
    """The array, if any, that is missing or has another type or shape than `save` gives it."""
    sizes = {"K": predictor.n_classes_, "L": predictor.n_classes_ + 1, "B": FINE_BINS + 1}
    for name in predictor.fitted_arrays:
        values = getattr(predictor, name)
        if values is None:
            never_gathered = name == "group_scores_" and getattr(predictor, "gathered_", 1) is False
            if name in _ONLY_IF_EXACT or never_gathered:
                continue
            return f"it lacks {name}"
        if values.dtype != (np.int64 if name in _WHOLE_NUMBERS else np.float64):
            return f"{name} has the type {values.dtype}"
        letters = _SHAPES.get(name, "K")
        if isinstance(predictor, RowGroupedPredictor) and name in _PER_THRESHOLD:
            letters = "G"
        if values.ndim != len(letters) or any(
            letter != "?" and sizes.setdefault(letter, size) != size
            for letter, size in zip(letters, values.shape, strict=True)
        ):
            return f"{name} has the shape {values.shape}"
        if np.isnan(values).any():
            return f"{name} holds NaN"
    return None


def _wrong_value(predictor: BasePredictor) -> str | None:
    names, counts = predictor.class_names_, predictor.class_counts_
    if type(predictor.n_classes_) is not int or predictor.n_classes_ < 2:
        return "it must have at least 2 classes"
    if (counts < 0).any() or counts.sum() != predictor.n_calibration_:
        return "its classes do not add up to its calibration rows"
    if names is not None and not (
        isinstance(names, list)
        and len(names) == predictor.n_classes_
        and all(isinstance(name, str) for name in names)
    ):
        return f"it must have {predictor.n_classes_} class names"
    if not isinstance(predictor.fingerprint_, str | None):
        return "its fingerprint must be text"
    return None


def _wrong_cluster(predictor: BasePredictor) -> str | None:
    if not isinstance(predictor, ClusteredPredictor):
        return None
    clusters, null = predictor.cluster_of_class_, predictor.n_clusters_
    if (
        null != clusters.max() + 1
        or clusters.min() < -1
        or len(predictor.group_offsets_) != null + 2  # the clusters, and everyone
        or not np.array_equal(predictor.group_of_class_, np.where(clusters < 0, null, clusters))
        or {row.cluster for row in predictor.guarantee_} != set(clusters.tolist())
    ):
        return "its clusters do not fit its classes"
    numbers = [predictor.gamma_, *(value for row in predictor.guarantee_ for value in row)]
    if not all(isinstance(value, int | float) for value in numbers):
        return "its guarantee must be numbers"
    return None


def _wrong_threshold(predictor: BasePredictor) -> str | None:
    """Thresholds must follow from what the method keeps."""
    if isinstance(predictor, GroupPredictor):
        offsets, group_of_class = predictor.group_offsets_, predictor.group_of_class_
        if not 0 <= group_of_class.min() <= group_of_class.max() < len(offsets) - 1:
            return "a class belongs to a group that does not exist"
        if type(predictor.gathered_) is not bool:
            return "it does not say whether its scores were gathered"
        if predictor.group_scores_ is None:
            return _wrong_pair(predictor)
        groups = predictor.groups_
        return _wrong_groups(groups) or _unlike(predictor, groups, group_of_class)
    if isinstance(predictor, PooledPredictor):
        return _wrong_pool(predictor) or _wrong_level(predictor)
    with warnings.catch_warnings():  # what was said when it was fitted
        warnings.simplefilter("ignore", EvencoverWarning)
        expected = predictor._kept_thresholds()
    if expected is not None and not all(map(_same, expected, predictor.limits_)):
        return _NOT_FOLLOWING
    return None


def _wrong_rows(predictor: BasePredictor) -> str | None:
    """Rows must be as many as were read, in order, and of classes that exist."""
    n_rows, counts = predictor.n_calibration_, predictor.class_counts_
    if isinstance(predictor, ByClassPredictor):
        if not np.array_equal(predictor.classes_.counts, counts) or predictor.own_offsets_[0] != 0:
            return "its rows do not fit its classes"
        if len(predictor.own_scores_) != n_rows:
            return "its scores do not fit its rows"
        problem = _wrong_groups(predictor.classes_)
        if isinstance(predictor, RC3PPredictor) and not problem:
            ranks = GroupedScores(predictor.own_ranks_.astype(float), predictor.own_offsets_)
            if not 1 <= ranks.scores.min() <= ranks.scores.max() <= predictor.n_classes_:
                return "its ranks do not fit its classes"
            return _wrong_groups(ranks)
        return problem
    if isinstance(predictor, MacroPredictor):
        if len(predictor.pooled_scores_) != n_rows or len(predictor.tails_) != n_rows + 1:
            return "its scores do not fit its rows"
        if (np.diff(predictor.tails_) > 0).any() or not (
            0 < predictor.tails_[-1] <= predictor.tails_[0] == 1
        ):
            return "its weights are not sorted"
        return _wrong_order(predictor.pooled_scores_)
    if isinstance(predictor, FuzzyPredictor):
        if len(predictor.held_out_) >= n_rows or not np.isfinite(predictor.class_limits_).all():
            return "its scores do not fit its rows"
        return _wrong_order(predictor.held_out_)
    if isinstance(predictor, OverGroups):
        names, rows = predictor.group_names_, predictor.row_groups_
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return "its groups must have names"
        if len(rows) != n_rows or not 0 <= rows.min() <= rows.max() < len(names):
            return "its rows do not fit its groups"
        if isinstance(predictor, GroupedPredictor):
            expected, groups = predictor._read_groups()
            by_group = np.bincount(groups, weights=counts, minlength=len(expected))
            if names != expected or not _same(groups, predictor.group_of_class_):
                return "its groups do not fit its classes"
            if not np.array_equal(np.bincount(rows, minlength=len(names)), by_group):
                return "its rows do not fit its groups"
    return None


def _wrong_order(scores: Array) -> str | None:
    return "its scores are not sorted" if (scores[1:] < scores[:-1]).any() else None


def _wrong_pair(predictor: GroupPredictor) -> str | None:
    """Without the scores, thresholds can only be held against each other."""
    lower, chance = predictor.lower_thresholds_, predictor.upper_probability_
    if (lower is None) == predictor.exact or (chance is None) == predictor.exact:
        return "its thresholds do not follow from its parameters"
    if lower is not None and (lower > predictor.thresholds_).any():
        return "its lower thresholds are above the upper ones"
    thresholds, groups = predictor.thresholds_, predictor.group_of_class_
    first = np.unique(groups, return_index=True, return_inverse=True)
    if not np.array_equal(thresholds, thresholds[first[1]][first[2]]):
        return "classes of one group have different thresholds"
    return None


def _wrong_groups(groups: GroupedScores) -> str | None:
    scores, offsets = groups
    if offsets[0] != 0 or offsets[-1] != len(scores) or (groups.counts < 0).any():
        return "its groups of scores overlap"
    falls = np.flatnonzero(scores[1:] < scores[:-1]) + 1
    return None if np.isin(falls, offsets).all() else "its scores are not sorted"


def _unlike(
    predictor: BasePredictor, groups: GroupedScores, group_of_class: IntArray
) -> str | None:
    expected = groups.thresholds(predictor.alpha, exact=predictor.exact).of_classes(group_of_class)
    same = all(map(_same, expected, predictor.limits_))
    return None if same else _NOT_FOLLOWING


def _same(mine: Array | None, theirs: Array | None) -> bool:
    return mine is theirs if mine is None or theirs is None else np.array_equal(mine, theirs)


def _wrong_pool(predictor: PooledPredictor) -> str | None:
    places, offsets = predictor.own_places_, predictor.own_offsets_
    n_rows = len(predictor.pooled_scores_)
    classes = np.repeat(np.arange(predictor.n_classes_), np.diff(offsets))
    if offsets[0] != 0 or not np.array_equal(places // (n_rows + 1), classes):
        return "its rows do not fit its classes"
    if (np.diff(places) <= 0).any():
        return "its rows are not sorted"
    if not np.array_equal(np.sort(places % (n_rows + 1)), np.arange(n_rows)):
        return "its rows do not fit its scores"
    n_held_out = predictor.n_calibration_ - n_rows if predictor.split == "holdout" else n_rows
    if len(predictor.calibration_levels_) != n_held_out:
        return "its levels do not fit its rows"
    for values in (predictor.pooled_scores_, predictor.calibration_levels_):
        if (values[1:] < values[:-1]).any():
            return "its scores are not sorted"
    weights = predictor.own_weight_ + predictor.normal_weight_
    if not np.allclose(weights + predictor.cluster_weights_.sum(axis=1), 1):
        return "its weights do not add up to 1"
    return None


def _wrong_level(predictor: PooledPredictor) -> str | None:
    """A threshold must be where its class's level passes the common one, up to rounding."""
    classes = np.arange(predictor.n_classes_)
    if predictor.strength == 0:
        return _unlike(predictor, predictor._own_groups(), classes)
    levels = predictor.calibration_levels_
    everyone = GroupedScores(levels, np.array([0, len(levels)]))
    common = everyone.thresholds(predictor.alpha, exact=predictor.exact).of_classes(0 * classes)
    blend, limits = predictor._fitted_blend, (predictor.thresholds_, predictor.lower_thresholds_)
    same = common.upper[0] == predictor.level_
    same = same and _same(common.upper_probability, predictor.upper_probability_)
    for thresholds, level in zip(limits, (common.upper, common.lower), strict=True):
        same = same and (thresholds is None) == (level is None)
        if same and thresholds is not None and level is not None:
            low = predictor._scores_at(blend, float(level[0]) - _ROUNDING)
            high = predictor._scores_at(blend, float(level[0]) + _ROUNDING)
            same = bool(((low <= thresholds) & (thresholds <= high)).all())
    return None if same else _NOT_FOLLOWING


def _plain(value: Any) -> Any:
    """A value that JSON holds without loss; fractions and decimals as text, NaN as null."""
    if isinstance(value, Score):
        return value.to_dict()
    if isinstance(value, np.floating):
        value = float(str(value))  # a float32 0.01 is the decimal that the user wrote
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
