"""All methods by name: ours, those that a user registers, and those of installed packages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from evencover.errors import InputError, warn_caller
from evencover.predictors.base import BasePredictor
from evencover.scores import Score, register_score
from evencover.validation import raise_unknown

ENTRY_POINTS = "evencover.predictors"
DEFAULT_METHOD = "pooled"

PREDICTORS: dict[str, type[BasePredictor]] = {}

Registered = TypeVar("Registered", bound=type)


def register(cls: Registered) -> Registered:
    """Register your own method or score by its name, as a decorator or a call.

    Commands, `compare`, experiments, reports and model files then accept it.

    >>> from evencover import BasePredictor, Thresholds, register
    >>> import numpy as np
    >>> @register
    ... class Everything(BasePredictor):
    ...     method = "everything"
    ...     summary = "Include every class."
    ...     def _calibrate(self, rows):
    ...         return Thresholds(np.full(rows.n_classes, np.inf)), None
    >>> make_predictor("everything")
    Everything()
    >>> del PREDICTORS["everything"]
    """
    if issubclass(cls, Score):
        register_score(cls)
        return cls
    if not issubclass(cls, BasePredictor):
        raise InputError(f"Only predictors and scores can be registered. Got {cls!r}.")
    name = getattr(cls, "method", "")
    if name != name.lower() or not name.strip():
        raise InputError(
            f"The 'method' of {cls.__name__} must be its name in lower case. Got {name!r}."
        )
    known = PREDICTORS.get(name, cls)  # a notebook may define the same class again
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InputError(
            f"The method {name!r} is already registered, as {PREDICTORS[name].__name__}."
        )
    PREDICTORS[name] = cls
    return cls


@cache
def load_installed() -> None:
    """Register what installed packages add under the entry point `evencover.predictors`."""
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            register(entry.load())
        except Exception as error:  # a third-party package may raise anything
            warn_caller(
                f"The method {entry.name!r} of an installed package cannot be used: {error}"
            )


def method_names() -> list[str]:
    """Return the methods that need no more than probabilities and labels."""
    load_installed()
    return list(PREDICTORS)


def methods_for_all() -> list[str]:
    """Return what "all" methods are: those that need no parameter from the user."""
    return [name for name in method_names() if not PREDICTORS[name]._only_if_asked]


def predictor_class(method: Any) -> type[BasePredictor]:
    """Return the class of a method by its name."""
    name = method.lower() if isinstance(method, str) else None
    if name not in PREDICTORS:
        load_installed()
    if name not in PREDICTORS:
        raise_unknown("method", method, PREDICTORS)
    return PREDICTORS[name]


def make_predictor(method: BasePredictor | str, **parameters: Any) -> BasePredictor:
    """Make a predictor from the method's name; return a predictor as it is.

    >>> make_predictor("classwise", alpha=0.05)
    ClasswisePredictor(alpha=0.05)
    """
    if isinstance(method, BasePredictor):
        return method
    cls = predictor_class(method)
    known = cls._parameter_names()
    for name in parameters:
        if name not in known:
            raise_unknown(f"parameter of the method {method!r}:", name, known)
    return cls(**parameters)
