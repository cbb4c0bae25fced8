"""Classes by name: built in, registered by users, or of installed packages."""

from __future__ import annotations

from typing import Any, TypeVar

from evencover.errors import InputError, one_line, warn_caller
from evencover.scores.base import Score
from evencover.scores.ordered import APS, RAPS, SAPS
from evencover.scores.softmax import PAS, Softmax
from evencover.validation import raise_unknown

Value = TypeVar("Value")


class Registry(dict[str, type[Value]]):
    """Map names to subclasses of `base`, whose `attribute` is the name.

    Installed packages add classes as entry points of a `group`.
    """

    def __init__(self, kind: str, base: Any, attribute: str, group: str) -> None:
        super().__init__()
        self.kind, self.base, self.attribute, self.group = kind, base, attribute, group
        self.is_complete = False

    def accepts(self, cls: Any) -> bool:
        """Return whether this is a class that belongs here."""
        return isinstance(cls, type) and issubclass(cls, self.base)

    def add(self, cls: type[Value]) -> None:
        """Register a class by its name; a notebook may define the same class again."""
        if not self.accepts(cls):
            raise InputError(f"A {self.kind} must be a {self.base.__name__}. Got {cls!r}.")
        name, path = getattr(cls, self.attribute, None), f"{cls.__module__}.{cls.__qualname__}"
        if not isinstance(name, str) or not name.strip() or name != name.lower():
            raise InputError(f"'{self.attribute}' of {path} must be lower-case text. Got {name!r}.")
        holder = self.get(name, cls)
        if (holder.__module__, holder.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InputError(
                f"The {self.kind} {name!r} is already {holder.__module__}.{holder.__qualname__}; "
                f"give {path} another '{self.attribute}'."
            )
        self[name] = cls

    def names(self) -> list[str]:
        """Return all names, including those of installed packages."""
        if not self.is_complete:  # the search reads all packages
            self.is_complete = True
            self._add_installed()
        return list(self)

    def find(self, name: Any) -> type[Value]:
        """Return the class of a name, in any case."""
        key = name.lower() if isinstance(name, str) else None
        if key not in self and key not in self.names():
            raise_unknown(self.kind, name, self)
        return self[str(key)]

    def _add_installed(self) -> None:
        from importlib.metadata import entry_points

        for point in entry_points(group=self.group):
            try:
                self.add(point.load())
            except Exception as error:  # a broken package must not affect users of others
                warn_caller(
                    f"The {self.kind} {point.name!r} of an installed package is left out, because "
                    f"it does not load: {one_line(error).rstrip('.')}."
                )


SCORES: Registry[Score] = Registry("score", Score, "name", "evencover.scores")
for _score in (Softmax, APS, RAPS, SAPS, PAS):
    SCORES.add(_score)
score_names = SCORES.names


def make_score(score: Score | str | dict[str, Any]) -> Score:
    """Make a score from its name or `to_dict`; return a score unchanged.

    >>> make_score("raps")
    RAPS(randomize=True, penalty=0.01, k_reg=5)
    """
    if isinstance(score, Score):
        return score
    parameters = dict(score) if isinstance(score, dict) else {"name": score}
    name = parameters.pop("name", None)
    is_known = isinstance(name, str) and name in SCORES
    cls = SCORES[str(name)] if is_known else SCORES.find(name)
    try:
        return cls(**parameters)
    except TypeError:
        raise InputError(f"The score {name!r} does not take the parameters {parameters}.") from None
