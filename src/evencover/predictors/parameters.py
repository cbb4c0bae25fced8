"""scikit-learn's parameter protocol without importing scikit-learn."""

from __future__ import annotations

import inspect
from typing import Any, Self

from evencover._validation import raise_unknown


class Parameters:
    """Parameters are the keyword arguments of ``__init__``, stored under their own names."""

    @classmethod
    def _signature(cls) -> dict[str, inspect.Parameter]:
        parameters = dict(inspect.signature(cls.__init__).parameters)
        del parameters["self"]
        return parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name; `deep` is there for scikit-learn."""
        return {name: getattr(self, name) for name in self._signature()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters by name."""
        known = self._signature()
        for name, value in parameters.items():
            if name not in known:
                raise_unknown(f"parameter of {type(self).__name__}", name, known)
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name, parameter in self._signature().items()
            if repr(getattr(self, name)) != repr(parameter.default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"
