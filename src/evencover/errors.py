"""What is raised and warned: one sentence each, that a user can act on."""

from __future__ import annotations

import sys
import warnings


class InputError(ValueError):
    """The input breaks a rule; the message says which, where, and what to do about it."""


class NotFittedError(InputError, AttributeError):
    """A predictor was asked for results before it was calibrated."""


class EvencoverWarning(UserWarning):
    """Something worth knowing about the data, with a count."""


def needs(what: str, library: str, extra: str) -> InputError:
    """The sentence that says which optional library to install."""
    return InputError(f"{what} need {library}; install it with pip install 'evencover[{extra}]'.")


def warn_caller(sentence: str) -> None:
    """Warn whoever called into the package: the message points at their line, not at ours."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("evencover"):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, EvencoverWarning, stacklevel=level - 1)
