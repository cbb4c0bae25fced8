"""Guarantees: the floor of every class, the rows that a threshold takes, and the words for both."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import listed
from evencover.predictors.calibration import CalibrationRows
from evencover.quantiles import (
    Alpha,
    ClassAlpha,
    GroupedScores,
    Thresholds,
    conformal_ranks,
    exact_fraction,
    guard_ranks,
    least_rows,
)

AUTO = "auto"
SHOWN_COUNTS = np.array([10, 50, 100])  # examples for which a text shows the guarantee
ON_AVERAGE = "on average over calibration sets"
ONE_THRESHOLD = (
    "All classes share one threshold, so hard classes are covered less and easy classes more."
)


class Floor(NamedTuple):
    """The coverage that every class is guaranteed: its threshold is at least one of its own scores.

    A threshold that is at least the k-th smallest of the class's own n calibration scores covers
    the class with probability k/(n+1) or more. ``coverage`` is the parameter: a number, "auto" or
    None. ``n_conditions`` counts the conditions on a class, its score and its rank if that is
    limited; they share what a set may miss.
    """

    coverage: Alpha | None
    n_conditions: int = 1

    def ranks(self, counts: IntArray, alpha: ClassAlpha) -> IntArray:
        """Return the rank among `counts` own scores that a threshold must reach; 0 for none."""
        if self.coverage is None:
            return np.zeros_like(counts)
        if self.coverage == AUTO:
            return guard_ranks(counts, alpha.divided_by(self.n_conditions))
        ranks = conformal_ranks(counts, self._share())
        return np.where(ranks > counts, 0, ranks)

    def _share(self) -> Alpha:
        return (1 - exact_fraction(self.coverage, name="floor")) / self.n_conditions

    def guarantees(self, counts: IntArray, alpha: ClassAlpha) -> FloatArray:
        """Return the coverage that classes with `counts` own scores are guaranteed."""
        missed = self.n_conditions * (1 - self.ranks(counts, alpha) / (counts + 1))
        return np.maximum(1 - missed, 0)

    def raised(
        self, thresholds: Thresholds, rows: CalibrationRows, alpha: ClassAlpha
    ) -> Thresholds:
        """Raise the thresholds to the class's own score that guarantees the coverage."""
        ranks, rank_floor = self.ranks(rows.class_counts, alpha), None
        if rows.ranks is not None:
            class_ranks = rows.ranks.astype(np.float64)
            by_class = GroupedScores.sort(class_ranks, rows.labels, rows.n_classes)
            rank_floor = by_class.at_ranks(ranks)
        return thresholds.at_least(rows.by_class.at_ranks(ranks), rank_floor)

    def sentence(self, is_below: Array, alpha: ClassAlpha, names: Sequence[str] | None) -> str:
        """State the guaranteed coverage, and the classes with too few examples for it (K,)."""
        if self.coverage is None:
            return ""
        if self.coverage == AUTO:
            return self._graded(alpha)
        coverage = f"coverage of {as_percent(self.coverage)} {ON_AVERAGE}"
        if not is_below.any():
            return f"Every class is guaranteed {coverage}."
        return (
            f"Every class with at least {least_rows(self._share())} calibration examples is "
            f"guaranteed {coverage}; {int(is_below.sum()):,} of {len(is_below):,} classes have "
            f"fewer{some_names(names, is_below)}."
        )

    def _graded(self, alpha: ClassAlpha) -> str:
        """State what "auto" guarantees to classes with some numbers of examples."""
        shares = self.guarantees(SHOWN_COUNTS, ClassAlpha.of(alpha.typical, None, 3))
        ten, fifty, hundred = (f"{share:.0%}" for share in shares)
        formula = "k/(n+1)" if self.n_conditions == 1 else "2k/(n+1) - 1"
        of_alpha = "" if alpha.is_one else f" at alpha = {float(alpha.typical):g}"
        return (
            f"Each class is guaranteed at least {formula} {ON_AVERAGE}: {ten} with 10 examples, "
            f"{fifty} with 50, {hundred} with 100{of_alpha}."
        )


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
