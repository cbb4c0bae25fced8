"""Scores by name: the built-in ones, those a user registers, and those of installed packages."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, TypeVar

from evencover.errors import InputError, one_line, warn_caller
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
        raise InputError(f"A score must be a subclass of evencover.scores.Score. Got {cls!r}.")
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not name or name != name.lower():
        raise InputError(
            f"The 'name' of the score {cls.__qualname__} must be text in lower case. Got {name!r}."
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
    key = name.lower() if isinstance(name, str) else None
    if key not in SCORES and key not in score_names():  # entry points take time to look up
        raise_unknown("score", name, score_names())
    try:
        return SCORES[str(key)](**parameters)
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
            warn_caller(
                f"The score {point.name!r} ({point.value}) of an installed package is left out, "
                f"because it does not load: {one_line(error).rstrip('.')}."
            )
