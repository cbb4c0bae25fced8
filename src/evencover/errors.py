"""What is raised and warned: one sentence each, that a user can act on."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from unicodedata import category


class InputError(ValueError):
    """The input breaks a rule; the message says which, where, and what to do about it."""


class FileError(InputError):
    """A file cannot be seen or is not what it was, here or on the worker that reads it."""


class NotFittedError(InputError, AttributeError):
    """A predictor was asked for results before it was calibrated."""


class EvencoverWarning(UserWarning):
    """Something worth knowing about the data, with a count."""


def needs(what: str, library: str, extra: str) -> InputError:
    """The sentence that says which optional library to install."""
    return InputError(f"{what} need {library}; install it with pip install 'evencover[{extra}]'.")


def one_line(error: Exception, most: int = 200) -> str:
    """What an error says, in one line that a terminal can show: libraries quote whole files."""
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= most else f"{text[:most]} ..."


def listed(names: Iterable[object], most: int = 20) -> str:
    r"""Names of a stranger's file, in one line and not too many.

    >>> listed(["a", "b\nc"])
    'a, b c'
    """
    texts = [printable(" ".join(str(name).split())) for name in names]
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")


def printable(text: str) -> str:
    r"""Text of strangers without what a terminal would obey, or a file could not hold.

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


def warn_caller(sentence: str) -> None:
    """Warn whoever called into the package: the message points at their line, not at ours."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("evencover"):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, EvencoverWarning, stacklevel=level)
