"""Explanations of thresholds, causes of undercoverage, and remedies."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray
from evencover.errors import listed
from evencover.quantiles import Alpha, GroupedScores, exact_fraction, least_rows

ONE_THRESHOLD = (
    "All classes share one threshold, so hard classes are covered less and easy classes more."
)
CALIBRATION_ROWS = "{rows}"  # stands for "12 calibration examples" in `BasePredictor.origin`


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


class Sharing(NamedTuple):
    """Whose calibration scores make a threshold, for methods that keep them in groups.

    For each group, ``whose`` follows "the 54th smallest of 60 calibration scores", and
    ``reference`` is what its scores are called next to those of a class.
    """

    scores: GroupedScores
    group_of_class: IntArray
    whose: Sequence[str]
    reference: Sequence[str]

    def origin(self, class_index: int) -> str:
        """Describe where the threshold of a class comes from."""
        group = int(self.group_of_class[class_index])
        n_scores = int(self.scores.counts[group])
        return f"The threshold comes from {n_scores:,} calibration scores {self.whose[group]}."

    @classmethod
    def of_groups(cls, scores: GroupedScores, group_of_class: IntArray) -> Sharing:
        """Describe groups of all classes, of one class each, or of some classes."""
        members = np.bincount(group_of_class)
        n_groups = len(np.unique(group_of_class))
        reference = "the calibration examples of its group"
        whose = [f"shared with {company(n)}" for n in members.tolist()]
        if n_groups == 1:
            whose = ["of all classes"] * len(members)
            reference = "the calibration examples of all classes"
        elif n_groups == len(group_of_class):
            whose = ["of this class"] * len(members)
            reference = "its own calibration examples"
        return cls(scores, group_of_class, whose, [reference] * len(members))


def company(n_classes: int) -> str:
    """Describe the other classes of a group."""
    if n_classes == 1:
        return "no other class"
    others = "1 other class" if n_classes == 2 else f"{n_classes - 1:,} other classes"
    return f"{others} with similar scores"


class Details(NamedTuple):
    """A table of fitted values.

    ``records`` are its numbers, called ``name`` in JSON; ``heading``, ``titles`` and ``cells`` are
    for people.
    """

    name: str
    records: list[dict[str, Any]]
    heading: str
    titles: list[str]
    cells: list[list[str]]


class Explanation(NamedTuple):
    """One class: the origin of its threshold, its sources, and remedies.

    ``weights`` are shares that add up to 1 for methods that blend several sources, else empty.
    ``cause`` explains undercoverage, if there is any, and what to try.
    """

    name: str
    threshold: float | None
    origin: str
    weights: dict[str, float]
    cause: str


def some_names(names: Sequence[str] | None, which: Array) -> str:
    """Return a few names of classes in brackets; nothing if they have no names.

    >>> some_names(["ant", "bee", "cat"], np.array([True, False, True]))
    " ('ant', 'cat')"
    """
    some = [] if names is None else [repr(str(names[y])) for y in np.flatnonzero(which).tolist()]
    return f" ({listed(some, 3)})" if some else ""


def some_of(part: int, whole: Sequence[int] | IntArray) -> str:
    """Return 'All 7', 'Both', 'It', or '3 of the 7'.

    >>> some_of(7, range(7)), some_of(3, range(7))
    ('All 7', '3 of the 7')
    """
    if part == len(whole):
        return "It" if part == 1 else f"All {part:,}" if part > 2 else "Both"
    return f"{part:,} of the {len(whole):,}"


def ways_out(counts: IntArray, needs: Needs) -> str:
    """Advise what to try for classes with these numbers of calibration rows."""
    poor = int((counts < needs.enough).sum())
    ways = [enough_for_classwise(counts, needs)]
    if poor:
        ways.append(
            f"{some_of(poor, counts)} had fewer than {needs.enough} calibration examples. "
            "Try pooled, which borrows from other classes."
        )
    return " ".join(ways).strip() or "Try pooled, which adapts to classes."


def enough_for_classwise(counts: IntArray, needs: Needs) -> str:
    """Advise thresholds per class; return "" unless at least half have the rows."""
    rich = int((counts >= needs.enough).sum())
    if rich == 0 or 2 * rich < len(counts):
        return ""
    own = "its own threshold" if rich == 1 else "their own thresholds"
    return (
        f"{some_of(rich, counts)} had at least {needs.enough} calibration examples, enough for "
        f"{own}. Try classwise."
    )
