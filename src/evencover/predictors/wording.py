"""The words of explanations: origins of thresholds, causes of undercoverage, remedies."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray
from evencover.errors import listed
from evencover.quantiles import Alpha, exact_fraction, least_rows

ON_AVERAGE = "on average over calibration sets"
NO_CLASS = "; no single class has a guarantee"


class Needs(NamedTuple):
    """Numbers of calibration examples needed to adapt to a class.

    ``least`` for any threshold of its own (`quantiles.least_rows`), ``enough`` for one that keeps
    the class's coverage within about 10 points (two standard deviations of its Beta law).
    """

    least: int
    enough: int

    @classmethod
    def at(cls, alpha: Alpha, confidence: Alpha | None = None) -> Needs:
        """Compute them at this level.

        >>> Needs.at(0.1), Needs.at(0.1, confidence=0.9)
        (Needs(least=9, enough=34), Needs(least=22, enough=34))
        """
        level = exact_fraction(alpha)
        least = least_rows(alpha, confidence)
        return cls(least, max(least, ceil(float(level * (1 - level)) / 0.05**2 - 1e-9) - 2))


class Explanation(NamedTuple):
    """One class: the origin of its threshold, its sources, and remedies.

    ``guarantee`` is its guaranteed coverage on average over calibration sets, 0 if it has none.
    ``weights`` are shares that add up to 1 for methods that blend several sources, else empty.
    ``cause`` explains undercoverage, if there is any, and what to try. ``appears`` states in how
    many sets the class is, and how often it is right there.
    """

    name: str
    threshold: float | None
    guarantee: float
    origin: str
    weights: dict[str, float]
    cause: str
    appears: str = ""


def remedy(counts: IntArray, needs: Needs, method: str) -> str:
    """Advise what to try for classes with these numbers of calibration examples, if anything."""
    n_rich = int((counts >= needs.enough).sum())
    ways = []
    if n_rich and 2 * n_rich >= len(counts) and method != "classwise":
        what = "its own threshold" if n_rich == 1 else "their own thresholds"
        ways.append(
            f"{some_of(n_rich, len(counts))} had at least {needs.enough} calibration examples, "
            f"enough for {what}. Try classwise."
        )
    if n_rich < len(counts) and method != "pooled":
        ways.append(
            f"{some_of(len(counts) - n_rich, len(counts))} had fewer than {needs.enough} "
            "calibration examples. Try pooled, which borrows from other classes."
        )
    return " ".join(ways)


def as_percent(share: Alpha) -> str:
    """Return a share in percent.

    >>> as_percent("1/8")
    '12.5%'
    """
    return f"{float(100 * exact_fraction(share)):g}%"


def some_names(names: Sequence[str] | None, which: Array) -> str:
    """Return a few names of classes in brackets; nothing if they have no names.

    >>> some_names(["ant", "bee", "cat"], np.array([True, False, True]))
    " ('ant', 'cat')"
    """
    shown = [] if names is None else [repr(str(names[y])) for y in np.flatnonzero(which).tolist()]
    return f" ({listed(shown, 3)})" if shown else ""


def some_of(part: int, whole: int) -> str:
    """Return 'All 7', 'Both', 'It', or '3 of the 7'.

    >>> some_of(7, 7), some_of(3, 7)
    ('All 7', '3 of the 7')
    """
    if part == whole:
        return "It" if part == 1 else f"All {part:,}" if part > 2 else "Both"
    return f"{part:,} of the {whole:,}"
