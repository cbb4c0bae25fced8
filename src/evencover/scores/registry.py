"""Scores by name: the built-in ones, those a user registers, and those of installed packages."""

from __future__ import annotations

import inspect
import warnings
from functools import cache
from typing import Any, TypeVar

from evencover.errors import EvencoverWarning, InputError
from evencover.scores.base import Score
from evencover.scores.ordered import APS, RAPS, SAPS
from evencover.scores.softmax import PAS, Softmax
from evencover.validation import raise_unknown

ENTRY_POINTS = "evencover.scores"  # the group under which a package lists its score classes

SCORES: dict[str, type[Score]] = {cls.name: cls for cls in (Softmax, APS, RAPS, SAPS, PAS)}

AnyScore = TypeVar("AnyScore", bound=type[Score])


def register_score(cls: AnyScore) -> AnyScore:
    """Make a score known by its `name`; also a decorator.

    A package does the same for its users by an entry point of the group "evencover.scores".
    """
    if not inspect.isclass(cls) or not issubclass(cls, Score) or inspect.isabstract(cls):
        raise InputError(
            "A score must be a subclass of evencover.scores.Score with 'formula' and 'maximum'. "
            f"Got {cls!r} instead."
        )
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not name or name != name.lower():
        raise InputError(
            f"The 'name' of the score {cls.__qualname__} must be text in lower case. "
            f"Got {name!r} instead."
        )
    holder = SCORES.get(name, cls)
    # A notebook's cell that runs again defines its class anew: that is no other class.
    if (holder.__module__, holder.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InputError(
            f"The score name {name!r} belongs to {holder.__module__}.{holder.__qualname__}; "
            f"give {cls.__module__}.{cls.__qualname__} a 'name' of its own."
        )
    SCORES[name] = cls
    return cls


def score_names() -> list[str]:
    """All names that `make_score` takes, those of installed packages too.

    >>> score_names()[:5]
    ['softmax', 'aps', 'raps', 'saps', 'pas']
    """
    _register_entry_points()
    return list(SCORES)


def make_score(score: Score | str | dict[str, Any]) -> Score:
    """Make a score from its name or its `to_dict`; return a score as it is.

    >>> make_score("raps")
    RAPS(randomize=True, penalty=0.01, k_reg=5)
    """
    if isinstance(score, Score):
        return score
    parameters = dict(score) if isinstance(score, dict) else {"name": score}
    name = parameters.pop("name", None)
    if not isinstance(name, str) or (
        name.lower() not in SCORES and name.lower() not in score_names()
    ):
        raise_unknown("score", name, score_names())
    try:
        return SCORES[name.lower()](**parameters)
    except TypeError:
        raise InputError(f"The score {name!r} does not take the parameters {parameters}.") from None


@cache
def _register_entry_points() -> None:
    """Once, and only when somebody asks for what is not built in: it looks at every package."""
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        try:
            register_score(point.load())
        except Exception as error:  # a stranger's package must not stop those who do not use it
            warnings.warn(
                f"The score {point.name!r} ({point.value}) of an installed package is left out, "
                f"because it does not load: {str(error).rstrip('.') or type(error).__name__}.",
                EvencoverWarning,
                stacklevel=2,
            )
