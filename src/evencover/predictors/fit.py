"""The fitted value of a predictor: built whole, checked, read-only, and stored as it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, partial
from types import MappingProxyType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from evencover.arrays import Array, to_numpy
from evencover.classes import Classes
from evencover.data.open import as_source
from evencover.data.source import Expected, Source
from evencover.errors import InputError
from evencover.precision import warn_of_precision
from evencover.predictors.acceptance import Acceptance
from evencover.predictors.calibration import CalibrationInputs, CalibrationRows
from evencover.predictors.recall import RecallAtK
from evencover.predictors.rule import BoundScore, SetRule
from evencover.quantiles import ClassAlpha, Thresholds
from evencover.scores import Score

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """All that a fit found, and all that it depends on.

    Every method that fits builds one of these completely and then assigns it, so an error before
    that leaves the old fit as it was. Arrays are read-only; copies and pickles are built by the
    constructor, too.

    Parameters
    ----------
    parameters
        Those of the fit, by name: values of our own, vectors by class in the order of the classes.
    rows
        The calibration rows, with the base scores of their labels.
    thresholds
        Those of the classes, on the method's score.
    state
        What else the method found: a NamedTuple of arrays and numbers, or None.
    inputs
        The inputs of the rows.
    given
        The parameters as the predictor holds them, to notice when they are changed; not stored.
    acceptance
        Which predictions to accept, if that was fitted.
    """

    parameters: Mapping[str, Any]
    rows: CalibrationRows
    thresholds: Thresholds
    state: Any
    inputs: CalibrationInputs
    given: tuple[Any, ...]
    acceptance: Acceptance | None = None

    def __post_init__(self) -> None:
        vars(self).update(
            parameters=MappingProxyType(dict(self.parameters)),
            thresholds=_frozen(self.thresholds),
            state=_frozen(self.state),
            inputs=_frozen(self.inputs),
            acceptance=_frozen(self.acceptance),
        )
        # The parts must fit each other, also if they come from a file.
        rows, n_classes, names = self.rows, self.rows.n_classes, self.rows.class_names
        n_rows, acceptance = len(rows.scores), self.acceptance or ()
        columns = (rows.scores, rows.labels, rows.ids, rows.ranks, rows.label_values)
        _, lower, chance, rank_limit = self.thresholds
        sample, limit = self.inputs.sample, self.inputs.limit
        if n_classes < 2:
            raise InputError(f"There must be at least 2 classes. Got {n_classes}.")
        by_class = (*self.thresholds, *acceptance[:3])
        for parts, n_entries in ((by_class, n_classes), (columns, n_rows)):
            for part in parts:
                if part is not None and np.shape(part) != (n_entries,):
                    raise InputError(
                        f"Thresholds need an entry per class, columns one per row. Got shape "
                        f"{np.shape(part)} for {n_entries}."
                    )
        if (lower is None) != (chance is None) or not _within(chance, 0, 1):
            raise InputError("A pair of thresholds must have a probability in [0, 1].")
        if not _within(rank_limit, 0, n_classes):
            raise InputError(f"Limits on ranks must be between 0 and {n_classes}.")
        if names is not None:
            if len(names) != n_classes or not all(isinstance(name, str) for name in names):
                raise InputError(
                    f"Class names must be text, one per class. Got {len(names)} for {n_classes}."
                )
            if len(set(names) - {""}) < n_classes:
                name = next(name for name in names if not name or names.count(name) > 1)
                raise InputError(
                    f"Class names must be unique and not empty. Got {name!r}; rename a class."
                )
        if not n_rows or not _within(rows.labels, 0, n_classes - 1):
            raise InputError(f"Calibration labels must be between 0 and {n_classes - 1}.")
        if not _within(rows.ranks, 1, n_classes) or rows.ids.dtype != np.uint64:
            raise InputError(f"Ranks of calibration labels must be between 1 and {n_classes}.")
        state = self.state or ()
        for part in (*self.thresholds, *state, rows.scores, rows.label_values, *acceptance):
            if isinstance(part, np.ndarray | float) and np.isnan(part).any():
                raise InputError("There must be no NaN in a fit.")
        if sample.shape[1:] != (2,) or sample.dtype != np.uint64 or not 0 <= limit < 2**64:
            raise InputError("The sample of calibration rows must have two columns of 64 bits.")

    def __reduce__(self) -> Any:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Fit, tuple((values | {"parameters": dict(self.parameters)}).values())

    # ---- what follows ------------------------------------------------------------------------

    @property
    def n_classes(self) -> int:
        """K."""
        return self.rows.n_classes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """One name per class, or None."""
        return self.rows.class_names

    @cached_property
    def alpha(self) -> ClassAlpha:
        """The target miscoverage of each class."""
        alpha = ClassAlpha.of(self.parameters["alpha"], None, self.rows.n_classes)
        return ClassAlpha(_frozen(alpha.values), _frozen(alpha.of_class), alpha.one)

    @property
    def keep_top(self) -> bool:
        """Whether every set contains the most probable class; by default, unless it is exact."""
        chosen = self.parameters["keep_top"]
        return not self.parameters["exact"] if chosen == "auto" else bool(chosen)

    @cached_property
    def rule(self) -> SetRule:
        """The rule that turns rows and ids into sets."""
        parameters, rows = self.parameters, self.rows
        score: Score = parameters["score"].with_counts(rows.class_counts, rows.class_names)
        scoring = BoundScore(
            score,
            bool(parameters["from_logits"]),
            parameters["random_state"],
            assumed=True,
        )
        thresholds = _frozen(score.base_thresholds(self.thresholds))
        return SetRule(scoring, thresholds, self.keep_top, rows.class_names, self.acceptance)

    @cached_property
    def scored_rows(self) -> CalibrationRows:
        """The rows with the scores that the method compares."""
        return self.rows.scored_by(self.rule.scoring.score)

    @cached_property
    def recall(self) -> RecallAtK | None:
        """Recall at k of the calibration rows; None if these have all classes."""
        if not self.rows.is_listed:
            return None
        counts, missing = self.rows.class_counts, np.flatnonzero(self.rows.scores == np.inf)
        listed = counts - np.bincount(self.rows.labels[missing], minlength=self.n_classes)
        return RecallAtK(counts, listed, np.isinf(self.thresholds.upper))

    def once(self, name: str, make: Callable[[], Value]) -> Value:
        """Return what a method derives from the rows and the state; made when first needed."""
        known = vars(self)
        if name not in known:
            known[name] = _frozen(make(), copy=False)
        value: Value = known[name]
        return value

    def open(
        self,
        probabilities: Any,
        labels: Any = None,
        ids: Any = None,
        **how: Any,
    ) -> Source:
        """Open rows as a source with the classes of the fit; see `as_source`."""
        return as_source(probabilities, labels, ids=ids, expected=self.expected, **how)

    @cached_property
    def classes(self) -> Classes:
        """The classes, by which labels and inputs are matched."""
        return Classes(self.rows.n_classes, self.rows.class_names)

    @property
    def expected(self) -> Expected:
        """What an input must be like: the classes, the precision and the listed classes."""
        return Expected(self.classes, self.inputs.precision, self.inputs.k)

    def check_precision(self, rows: Array) -> None:
        """Warn, once, of rows in memory with another precision than the calibration rows."""
        if "is_checked" not in vars(self) and warn_of_precision(rows, self.inputs.precision):
            vars(self)["is_checked"] = True


def _frozen(value: Any, *, copy: bool = True) -> Any:
    """Return an array, or the arrays of a NamedTuple, as a read-only copy, or made read-only."""
    if isinstance(value, np.ndarray):
        if value.flags["W"]:
            value = value.copy() if copy else value
            value.setflags(write=False)
        return value
    if isinstance(value, tuple):
        items = map(partial(_frozen, copy=copy), value)
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    if is_dataclass(value) and not copy:
        for item in vars(value).values():
            _frozen(item, copy=False)
    return value


def _within(values: Array | None, low: float, high: float) -> bool:
    if values is None or not len(values):
        return True
    return bool(low <= values.min() and values.max() <= high)


# ---- the stored form -----------------------------------------------------------------------------


def digest(predictor: Any) -> str:
    """Hash all that is saved of a predictor."""
    return checksum(*stored(predictor))


def checksum(metadata: Any, arrays: Mapping[str, Array]) -> str:
    """Hash metadata and arrays, whatever their order."""
    text = json.dumps(json.loads(json.dumps(metadata)), sort_keys=True)
    content = hashlib.blake2b(text.encode(), digest_size=16)
    for name, values in sorted(arrays.items()):
        content.update(f"{name!r} {values.dtype} {values.shape}".encode())
        content.update(np.ascontiguousarray(values).tobytes())
    return content.hexdigest()


def stored(predictor: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return what a file holds of a fitted predictor: metadata, ready for JSON, and arrays."""
    fit: Fit = predictor._current_fit()
    arrays: dict[str, Array] = {}
    parameters = {
        name: _store(_plain(value), f"parameters.{name}", arrays)
        for name, value in fit.parameters.items()
    }
    metadata = {name: _store(getattr(fit, name), name, arrays) for name in STORED}
    return {"method": predictor.method, "parameters": parameters, "fit": metadata}, arrays


def restored_fit(metadata: dict[str, Any], arrays: dict[str, Array], predictor: Any) -> Fit:
    """Build the fit of a predictor from what `stored` returned."""
    hints = get_type_hints(Fit) | {"state": predictor._State}
    if metadata.keys() != set(STORED):
        raise InputError(f"it must have {', '.join(STORED)}")
    values = {name: restored(hints[name], metadata[name], name, arrays) for name in STORED}
    if arrays:
        raise InputError(f"{', '.join(arrays)} are unknown")
    return Fit(predictor.get_params(), **values, given=tuple(predictor.get_params().values()))


STORED = [field.name for field in fields(Fit) if field.name not in ("parameters", "given")]


def _plain(value: Any) -> Any:
    """Return a parameter that JSON holds without loss, fractions as text; or a vector of floats."""
    if isinstance(value, Score):
        value = value.to_dict()
    if isinstance(value, np.floating):
        value = float(str(value))  # a float32 0.01 is the decimal that the user wrote
    if isinstance(value, np.ndarray) and value.dtype == np.float64:
        return value
    if isinstance(value, np.generic) or hasattr(value, "__array__"):
        value = to_numpy(value).tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _store(value: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Return a value as JSON holds it; put its arrays into `arrays`, and null in their place."""
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return None
    if hasattr(value, "_asdict") or is_dataclass(value):
        parts = {part: getattr(value, part) for part in _parts(type(value))}
        return {part: _store(item, f"{name}.{part}", arrays) for part, item in parts.items()}
    return [_store(item, name, arrays) for item in value] if isinstance(value, tuple) else value


def _parts(cls: Any) -> dict[str, Any]:
    """Return the types of the fields of a NamedTuple or dataclass, by name."""
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls)] if is_dataclass(cls) else cls._fields
    return {name: hints[name] for name in names}


def restored(hint: Any, value: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Build a value of this type from its stored form, and take its arrays out of `arrays`.

    Raise InputError for what `_store` would not have written.
    """
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is UnionType:  # with None
        if value is None and not any(key == name or key.startswith(f"{name}.") for key in arrays):
            return None
        return restored(arguments[0], value, name, arrays)
    if kind is np.ndarray or kind is NDArray:  # NumPy 2.5 has its own alias from Python 3.12 on
        if value is not None or name not in arrays:
            raise InputError(f"it lacks {name}")
        array = arrays.pop(name)
        dtype = arguments[0] if kind is NDArray else get_args(arguments[1])[0]
        if dtype is not Any and array.dtype != dtype:
            raise InputError(f"{name} has the type {array.dtype}")
        return array
    if kind is tuple and isinstance(value, list):
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(
            restored(item_type, item, name, arrays)
            for item_type, item in zip(kinds, value, strict=True)
        )
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        parts = _parts(hint)
        if not isinstance(value, dict) or value.keys() != parts.keys():
            raise InputError(f"{name} must have {', '.join(parts)}")
        return hint(
            **{
                part: restored(item_type, value[part], f"{name}.{part}", arrays)
                for part, item_type in parts.items()
            }
        )
    if kind is tuple or type(value) is not hint:
        raise InputError(f"{name} must be of the type {getattr(hint, '__name__', hint)}")
    return value
