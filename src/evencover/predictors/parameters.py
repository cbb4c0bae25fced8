"""scikit-learn's parameter protocol without importing scikit-learn."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, Self

from evencover._validation import raise_unknown

# Every method has these; its own come after the first two.
FIRST = ("alpha", "score")


class Parameters:
    """Parameters are the keyword-only fields of a dataclass, stored under their own names.

    A subclass that has more of them is a dataclass, too, and lists only its own. Fields with
    ``init=False`` are no parameters but what is learnt.
    """

    @classmethod
    def parameter_names(cls) -> list[str]:
        """The names of all parameters: alpha, score, the method's own, and what all share."""
        own: Any = cls
        return list(_parameter_names(own))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name; `deep` is there for scikit-learn."""
        return {name: getattr(self, name) for name in self.parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters by name."""
        known = self.parameter_names()
        for name, value in parameters.items():
            if name not in known:
                raise_unknown(f"parameter of {type(self).__name__}", name, known)
            setattr(self, name, value)
        return self

    def with_params(self, **parameters: Any) -> Self:
        """A new predictor that has learnt nothing, with some parameters changed."""
        return type(self)(**self.get_params()).set_params(**parameters)

    def __repr__(self) -> str:
        default = {each.name: each.default for each in fields(self)}  # type: ignore[arg-type]
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(default[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


@cache
def _parameter_names(cls: Any) -> tuple[str, ...]:
    names = [each.name for each in fields(cls) if each.init]
    shared = _common_names(cls)
    common = [name for name in names if name in shared]
    own = [name for name in names if name not in common]
    return (*FIRST, *own, *(name for name in common if name not in FIRST))


def _common_names(cls: type[Parameters]) -> set[str]:
    """The parameters of the class that adds them first."""
    first = next(base for base in reversed(cls.__mro__) if "__dataclass_fields__" in vars(base))
    return {each.name for each in fields(first)}
