"""Find scores by name: built in, registered, or from installed packages."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, TypeVar

from evencover.errors import InputError, one_line, warn_caller
from evencover.scores.base import Score
from evencover.scores.ordered import APS, RAPS, SAPS
from evencover.scores.softmax import PAS, Softmax
from evencover.validation import raise_unknown

ENTRY_POINTS = "evencover.scores"  # entry-point group of score classes

SCORES: dict[str, type[Score]] = {cls.name: cls for cls in (Softmax, APS, RAPS, SAPS, PAS)}

AnyScore = TypeVar("AnyScore", bound=type[Score])


def register_score(cls: AnyScore) -> AnyScore:
    """Register a score by its `name`; also a decorator.

    A package registers scores with an entry point of the group "evencover.scores".
    """
    if not inspect.isclass(cls) or not issubclass(cls, Score) or inspect.isabstract(cls):
        raise InputError(f"A score must be a subclass of evencover.scores.Score. Got {cls!r}.")
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not name or name != name.lower():
        raise InputError(f"'name' of {cls.__qualname__} must be lower-case text. Got {name!r}.")
    holder = SCORES.get(name, cls)
    # Running a notebook cell again redefines the same class.
    if (holder.__module__, holder.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InputError(
            f"The score name {name!r} belongs to {holder.__module__}.{holder.__qualname__}; "
            f"give {cls.__module__}.{cls.__qualname__} another 'name'."
        )
    SCORES[name] = cls
    return cls


def score_names() -> list[str]:
    """Return all names that `make_score` takes, including those of installed packages.

    >>> score_names()[:5]
    ['softmax', 'aps', 'raps', 'saps', 'pas']
    """
    _register_entry_points()
    return list(SCORES)


def make_score(score: Score | str | dict[str, Any]) -> Score:
    """Make a score from its name or `to_dict`; return a score unchanged.

    >>> make_score("raps")
    RAPS(randomize=True, penalty=0.01, k_reg=5)
    """
    if isinstance(score, Score):
        return score
    parameters = dict(score) if isinstance(score, dict) else {"name": score}
    name = parameters.pop("name", None)
    key = name.lower() if isinstance(name, str) else None
    if key not in SCORES and key not in score_names():  # entry points are slow to look up
        raise_unknown("score", name, score_names())
    try:
        return SCORES[str(key)](**parameters)
    except TypeError:
        raise InputError(f"The score {name!r} does not take the parameters {parameters}.") from None


@cache
def _register_entry_points() -> None:
    """Register the scores of installed packages, once: the search reads all packages."""
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        try:
            register_score(point.load())
        except Exception as error:  # a broken package must not affect users of others
            warn_caller(
                f"The score {point.name!r} ({point.value}) of an installed package is left out, "
                f"because it does not load: {one_line(error).rstrip('.')}."
            )
