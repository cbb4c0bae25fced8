"""A function of the user's own that maps a batch to logits."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from evencover.errors import InputError
from evencover.inference.inputs import KINDS
from evencover.inference.models.base import Model
from evencover.inference.records import content_digest


class FunctionModel(Model):
    """``module:function`` or ``file.py:function``, or anything there that can be called.

    It takes a list of RGB pictures (pillow) or of texts and returns one row of logits for each. It
    may have attributes: ``class_names``; ``prepare``, which is applied to each input by workers, so
    that the function gets a list of what it gives; ``inputs`` ("images" or "texts"); ``identity``,
    a text that changes with the weights; ``batch_size``, if it takes just so many inputs at a time.
    A parameter ``device`` gets what --device says.
    """

    def __init__(self, target: str, device: str | None = None) -> None:
        self.name = f"'{target}'"
        place, _, path = target.rpartition(":")
        module = _module(place, target)
        function = _found(module, path, target)
        if inspect.isclass(function):
            try:
                function = function()
            except Exception as error:
                raise _broken(target, error) from error
        if not callable(function):
            raise InputError(f"{self.name} must be a function. Got {type(function).__name__}.")
        self._prepare: Callable[[Any], Any] | None = getattr(function, "prepare", None)
        self.class_names = _names(getattr(function, "class_names", None))
        self.kind = getattr(function, "inputs", None)
        if self.kind is not None and self.kind not in KINDS:
            raise InputError(
                f"'inputs' of {self.name} must be 'images' or 'texts'. Got {self.kind!r}."
            )
        self.batch_size = getattr(function, "batch_size", None)
        source = getattr(module, "__file__", None)
        content = content_digest(Path(source)) if source else ""
        own = getattr(function, "identity", "")  # wherever the file may lie
        self.identity = f"{Path(place).name}:{path} {content} {own}".strip()
        if device is not None:
            if "device" not in inspect.signature(function).parameters:
                raise InputError(
                    f"{self.name} has no parameter 'device', so --device cannot be used with it."
                )
            function = partial(function, device=device)
        self._function = function

    def prepare(self, values: list[Any]) -> Any:
        """The values, each prepared if the function says how."""
        return values if self._prepare is None else [self._prepare(value) for value in values]

    def logits(self, prepared: Any) -> Any:
        """What the function says."""
        return self._function(prepared)


def _module(name: str, target: str) -> Any:
    """The module, from a file or from where Python finds it, the current folder included."""
    if name.endswith(".py"):
        path = Path(name)
        if not path.is_file():
            raise InputError(f"Cannot find the model '{target}': there is no file '{name}'.")
        module = ModuleType(path.stem)
        module.__file__ = str(path.absolute())
        sys.modules[path.stem] = module  # where dataclasses and pickles look for it
        try:
            exec(compile(path.read_bytes(), module.__file__, "exec"), module.__dict__)
        except Exception as error:
            del sys.modules[path.stem]
            raise _broken(target, error) from error
        return module
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.split(".")[0] == error.name.split(".")[0]:
            raise InputError(
                f"Cannot find the model '{target}': there is no module {name!r} in this folder or "
                "among the installed ones."
            ) from None
        raise _broken(target, error) from error
    except Exception as error:
        raise _broken(target, error) from error


def _broken(target: str, error: Exception) -> InputError:
    return InputError(
        f"Cannot load the model '{target}': it raised {type(error).__name__}: {error}."
    )


def _found(module: Any, path: str, target: str) -> Any:
    for part in path.split("."):
        if not hasattr(module, part):
            raise InputError(
                f"Cannot find the model '{target}': {module.__name__!r} has no {part!r}."
            )
        module = getattr(module, part)
    return module


def _names(names: Any) -> list[str] | None:
    return None if names is None else [str(name) for name in names]
