"""What a fit keeps: each method declares its fields, which files hold and `load` checks."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """One thing that a fit keeps: an array of numbers, or a plain value.

    Parameters
    ----------
    kind
        float or int: the numbers of an array; for a plain value the type that JSON gives back.
    shape
        One letter per dimension of an array: K classes, L = K + 1, "?" any size; the same other
        letter stands for the same size in all fields. None: a plain value.
    optional
        Whether it may be None.
    for_p_values
        Whether only p-values need it: workers that make sets are not sent it.
    """

    kind: type
    shape: str | None = None
    optional: bool = False
    for_p_values: bool = False
