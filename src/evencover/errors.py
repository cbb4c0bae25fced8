"""Errors and warnings, and texts that are safe to show in them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any
from unicodedata import category


class InputError(ValueError):
    """Invalid input; the message names the parameter, the rule, the value found and the fix."""


class FileError(InputError):
    """A file is missing or has changed, here or on a worker."""


class NotFittedError(InputError, AttributeError):
    """A predictor was used before it was calibrated."""


class EvencoverWarning(UserWarning):
    """A property of the data that affects results."""


class MismatchWarning(EvencoverWarning):
    """Labels do not belong to their rows; commands stop."""


def import_extra(what: str, module: str, extra: str, library: str | None = None) -> Any:
    """Import an optional library, or raise with install instructions."""
    try:
        return import_module(module)
    except ImportError:
        raise needs(what, library or module, extra) from None


def needs(what: str, library: str, extra: str) -> InputError:
    """Return the error that names the extra to install."""
    return InputError(f"{what} need {library}; install it with pip install 'evencover[{extra}]'.")


def one_line(error: Exception, most: int = 200) -> str:
    """Shorten the message of an error to one line."""
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= most else f"{text[:most]} ..."


def listed(names: Iterable[object], most: int = 20) -> str:
    r"""Join names in one line, at most `most` of them.

    >>> listed(["a", "b\nc"])
    'a, b c'
    """
    texts = [printable(" ".join(str(name).split())) for name in names]
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")


def printable(text: str) -> str:
    r"""Replace control characters, which a terminal would obey, and lone surrogates.

    >>> printable("caf\u00e9 \x1b[31m")
    'café �[31m'
    """
    if text.isascii() and text.isprintable():
        return text
    kept = ("\n", "\t")
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if category(each)[0] == "C" and each not in kept else each
        for each in text
    )


def warn_caller(message: str, category: type[EvencoverWarning] = EvencoverWarning) -> None:
    """Warn at the line that called into the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("evencover"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
