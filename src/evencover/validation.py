"""Check the values of parameters; raise InputError with a fix."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn

import numpy as np

from evencover.errors import InputError

LARGEST = np.finfo(np.float64).max.item()


def unique_keys(owner: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dictionary of the pairs; raise InputError if two have the same key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InputError(f"Every name in {owner} must be unique. Got {twice!r} twice.")
    return found


def _check(is_valid: bool, value: Any, name: str, owner: str, rule: str) -> None:
    if not is_valid:
        raise InputError(f"The '{name}' parameter of {owner} must be {rule}. Got {value!r}.")


def whole_number(value: Any, name: str, owner: str, low: int, high: int | None = None) -> int:
    """Check an integer parameter against its range."""
    span = f"of at least {low}" if high is None else f"from {low} to {high}"
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    is_valid = is_whole and low <= value <= (2**63 - 1 if high is None else high)
    _check(is_valid, value, name, owner, f"an integer {span}")
    return int(value)


def real_number(
    value: Any,
    name: str,
    owner: str,
    low: float,
    high: float | None = None,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Check a finite real parameter against its range."""
    is_real = isinstance(value, int | float | np.integer | np.floating)
    is_valid = is_real and not isinstance(value, bool)
    # Reject NaN, and integers that overflow a float.
    is_valid = is_valid and bool(abs(value) <= LARGEST and value >= low)
    is_valid = is_valid and not (open_low and value == low)
    rule = f"a finite number {'above' if open_low else 'of at least'} {low:g}"
    if high is not None:
        is_valid = is_valid and bool(value < high if open_high else value <= high)
        rule += f" and {'below' if open_high else 'at most'} {high:g}"
    _check(is_valid, value, name, owner, rule)
    return float(value)


def flag(value: Any, name: str, owner: str) -> bool:
    """Check a parameter that is True or False."""
    _check(isinstance(value, bool | np.bool_), value, name, owner, "True or False")
    return bool(value)


# Checks the value of a parameter, given its name and its owner's; raises InputError.
Check = Callable[[Any, str, str], Any]


def unless(values: tuple[Any, ...], check: Check) -> Check:
    """Extend a check to accept these values."""

    def checked(value: Any, name: str, owner: str) -> None:
        if isinstance(value, str | float | None) and value in values:
            return
        try:
            check(value, name, owner)
        except InputError as error:
            others = " or ".join(map(repr, values))
            raise InputError(f"{error} It may also be {others}.") from None

    return checked


OPEN_SHARE: Check = partial(real_number, low=0, high=1, open_low=True, open_high=True)


def one_of(*known: str) -> Check:
    """Make a check for a parameter that takes one of some names."""

    def checked(value: Any, name: str, owner: str) -> None:
        if value not in known:
            raise_unknown(f"value of the parameter '{name}' of {owner}:", value, known)

    return checked


def raise_unknown(kind: str, value: Any, known: Iterable[str]) -> NoReturn:
    """Raise for an unknown name, and suggest a known one."""
    known = list(known)
    close = difflib.get_close_matches(str(value).lower(), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise InputError(f"Unknown {kind} {value!r}. Choose one of {', '.join(known)}{hint}")
