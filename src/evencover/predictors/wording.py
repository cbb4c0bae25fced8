"""The words of methods: guarantees, origins of thresholds, causes of undercoverage, remedies."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import listed
from evencover.quantiles import Alpha, GroupedScores, exact_fraction, least_rows

# Where a threshold comes from; {rows} stands for "12 calibration examples" of the class.
ORIGIN = (
    "A set includes the class if its score is at most the threshold. The threshold comes from the "
    "{rows} of this class and those of other classes."
)
RC3P_ORIGIN = (
    "A set includes the class if its score is at most the threshold and its rank is within the "
    "limit. Both come from the {rows} of this class."
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


class Sharing(NamedTuple):
    """Whose calibration scores make a threshold, for methods that keep them in groups.

    For each group, ``whose`` follows "the 54th smallest of 60 calibration scores".
    """

    scores: GroupedScores
    group_of_class: IntArray
    whose: Sequence[str]

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
        whose = [f"shared with {company(n)}" for n in members.tolist()]
        if n_groups == 1:
            whose = ["of all classes"] * len(members)
        elif n_groups == len(group_of_class):
            whose = ["of this class"] * len(members)
        return cls(scores, group_of_class, whose)


def company(n_classes: int) -> str:
    """Describe the other classes of a group."""
    if n_classes == 1:
        return "no other class"
    others = "1 other class" if n_classes == 2 else f"{n_classes - 1:,} other classes"
    return f"{others} with similar scores"


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


# ---- guarantees ----------------------------------------------------------------------------------

ON_AVERAGE = "on average over calibration sets"
SAME_ALPHA = "Coverage over the classes with the same alpha"
SHOWN_COUNTS = (10, 50, 100)  # examples of a class for which a text shows its guarantee


class Guarantee(NamedTuple):
    """What a method guarantees, in words.

    ``average`` holds on average over calibration sets. With a confidence, ``whose`` coverage is
    what it concerns, and ``also`` follows. ``but`` is an exception, which a floor makes untrue.
    ``by_alpha`` is the guarantee if classes have an alpha of their own and it is another one.
    """

    average: str
    whose: str = ""
    also: str = ""
    but: str = ""
    by_alpha: Guarantee | None = None

    def text(self, *, confidence: Alpha | None, one_alpha: bool, has_floor: bool) -> str:
        """State the guarantee under these terms."""
        if self.by_alpha is not None and not one_alpha:
            terms: Any = {"confidence": confidence, "one_alpha": True, "has_floor": has_floor}
            return self.by_alpha.text(**terms)
        text = self.average
        if confidence is not None:
            sets = f"{as_percent(confidence)} of all calibration sets"
            text = f"{self.whose} is at least 1 - alpha in at least {sets}{self.also}"
        return f"{text}; {self.but}." if self.but and not has_floor else f"{text}."


AVERAGE = "Coverage of 1 - alpha is guaranteed"
NO_CLASS = "no single class has a guarantee"
CLUSTER_CLASSES = (
    "the distance of its scores from those of its cluster; classes with too few examples to join "
    "a cluster have no guarantee"
)
STANDARD_GUARANTEE = Guarantee(
    f"{AVERAGE} on average over all examples",
    "Overall coverage",
    but=NO_CLASS,
    by_alpha=Guarantee(
        f"{AVERAGE} on average over the examples of the classes with the same alpha",
        SAME_ALPHA,
        but=NO_CLASS,
    ),
)
CLASSWISE_GUARANTEE = Guarantee(
    f"{AVERAGE} for every class, on average over calibration sets. With few calibration examples, "
    "the coverage of a class varies widely between calibration sets",
    "The coverage of each class",
)
CLUSTERED_GUARANTEE = Guarantee(
    f"{AVERAGE} for each cluster of classes. A class has the guarantee up to {CLUSTER_CLASSES}",
    "The coverage of each cluster",
    also=f". A class has the guarantee up to {CLUSTER_CLASSES}",
    by_alpha=Guarantee(
        f"{AVERAGE} for a class up to {CLUSTER_CLASSES}",
        "The coverage of a class",
        also=f", up to {CLUSTER_CLASSES}",
    ),
)
GROUPED_GUARANTEE = Guarantee(
    f"{AVERAGE} for each group of classes",
    "The coverage of each group of classes",
    but="a class within its group has no guarantee",
)
INTERPOLATED_GUARANTEE = Guarantee(
    "Coverage of 1 - 2 alpha is guaranteed on average over all examples", but=NO_CLASS
)
FUZZY_GUARANTEE = Guarantee(f"{AVERAGE} on average over all examples", but=NO_CLASS)
MACRO_GUARANTEE = Guarantee(
    "Mean coverage over classes of at least 1 - alpha is guaranteed", but=NO_CLASS
)
RC3P_GUARANTEE = Guarantee(
    "Coverage of 1 - alpha holds for every class if the fraction of its labels beyond the rank "
    "limit is known. It is estimated, so classes with few examples may be covered less"
)


def few_of_alpha(few: Array, class_names: Sequence[str] | None) -> str:
    """State which classes (K,) have an alpha with too few examples."""
    return (
        f"{int(few.sum())} of {len(few)} classes{some_names(class_names, few)} have an alpha with "
        "too few calibration examples together"
    )


def pooled_guarantee(
    graded: str | None,
    floor: str,
    one_alpha: bool,
    is_holdout: bool,
    few: Array,
    class_names: Sequence[str] | None,
) -> str:
    """State the guarantee of a fit of POOLED.

    `graded` is that of floor="auto", `floor` the sentence about any floor; `few` (K,) are the
    classes whose alpha has too few examples.
    """
    for_classes = f". {floor}" if floor else " without guaranteeing it."
    if graded is not None:
        for_classes = f"; guarantees each class {graded}."
    relation = "guaranteed to be at least" if is_holdout else "close to"
    overall = "Overall coverage" if one_alpha else SAME_ALPHA
    text = f"Targets 1 - alpha for every class{for_classes} {overall} is {relation} 1 - alpha."
    if not few.any():
        return text
    consequence = "with split='holdout' nothing is guaranteed for that alpha"
    return f"{text} {few_of_alpha(few, class_names)}: {consequence}."


def floor_guarantee(
    floor: Alpha, least: int, is_below: Array, class_names: Sequence[str] | None
) -> str:
    """State the coverage that a floor guarantees, and which classes have too few examples."""
    coverage = f"coverage of {as_percent(floor)} {ON_AVERAGE}"
    if not is_below.any():
        return f"Every class is guaranteed {coverage}."
    return (
        f"Every class with at least {least} calibration examples is guaranteed {coverage}; "
        f"{int(is_below.sum()):,} of {len(is_below):,} classes have fewer"
        f"{some_names(class_names, is_below)}."
    )


def graded_guarantee(coverage: FloatArray, n_conditions: int, alpha: float | None) -> str:
    """State what floor="auto" guarantees to classes with `SHOWN_COUNTS` examples (n,).

    `alpha` is named if classes have their own.
    """
    first, *more = (
        f"{100 * share:.0f}% with {n}"
        for share, n in zip(coverage.tolist(), SHOWN_COUNTS, strict=True)
    )
    formula = "k/(n+1)" if n_conditions == 1 else "2k/(n+1) - 1"
    of_alpha = "" if alpha is None else f" at alpha = {alpha:g}"
    return f"at least {formula} {ON_AVERAGE}: {first} examples, {', '.join(more)}{of_alpha}"


def as_percent(share: Alpha) -> str:
    """Return a share in percent.

    >>> as_percent("1/8")
    '12.5%'
    """
    return f"{float(100 * exact_fraction(share)):g}%"


# ---- causes of undercoverage ---------------------------------------------------------------------

SHARED = "Thresholds shared with other classes may not suit these."
ONE_THRESHOLD = (
    "All classes share one threshold, so hard classes are covered less and easy classes more."
)
GROUPED_CAUSE = "The classes of a group share a threshold, so hard classes are covered less."
INTERPOLATED_CAUSE = (
    "Each threshold lies between those of classwise and standard, so hard classes are still "
    "covered less."
)
FUZZY_CAUSE = "Each class borrows from classes of similar frequency, which may be easier."
RC3P_CAUSE = (
    "Each class has a threshold and a rank limit; both are estimated, and with few calibration "
    "examples their combined coverage falls short."
)


def classwise_cause(counts: IntArray, alpha: float) -> str:
    """Explain the undercoverage of classes with thresholds of their own."""
    typical = int(np.median(counts))
    spread = 200 * np.sqrt(alpha * (1 - alpha) / (typical + 2))
    cause = (
        f"Each class has its own threshold. With {typical:,} calibration examples (the median "
        f"here), its coverage varies by about ±{spread:.0f} points."
    )
    if spread >= 4:
        return f"{cause} Pooled reduces this by borrowing from other classes."
    return f"{cause} A larger shortfall suggests a distribution shift."


def clustered_cause(
    counts: IntArray, is_null: Array, n_clusters: int, enough_to_join: int, needs: Needs
) -> str:
    """Explain the undercoverage of classes, of which some are in the null cluster."""
    sentences = []
    if is_null.any():
        sentences.append(
            f"{some_of(int(is_null.sum()), counts)} had too few calibration examples to join a "
            f"cluster and use the standard threshold. About {enough_to_join} examples each would "
            "do."
        )
    if not is_null.all():
        sentences.append(
            f"{some_of(int((~is_null).sum()), counts)} share a threshold with easier classes. Try "
            f"pooled, or more than {n_clusters} clusters."
        )
    sentences.append(enough_for_classwise(counts[~is_null], needs))
    return " ".join(sentences).strip()


def pooled_cause(counts: IntArray, own_weights: FloatArray, needs: Needs) -> str:
    """Explain the undercoverage of classes that borrow from others."""
    borrowed = 100 * (1 - float(np.median(own_weights)))
    whose = "The threshold is" if len(counts) == 1 else "The median threshold of these classes is"
    cause = f"{whose} {borrowed:.0f}% borrowed from other classes, which made it too strict."
    return f"{cause} {enough_for_classwise(counts, needs)}".strip()


# ---- phrases ------------------------------------------------------------------------------------


def some_names(names: Sequence[str] | None, which: Array) -> str:
    """Return a few names of classes in brackets; nothing if they have no names.

    >>> some_names(["ant", "bee", "cat"], np.array([True, False, True]))
    " ('ant', 'cat')"
    """
    shown = [] if names is None else [repr(str(names[y])) for y in np.flatnonzero(which).tolist()]
    return f" ({listed(shown, 3)})" if shown else ""


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
    what = "its own threshold" if rich == 1 else "their own thresholds"
    return (
        f"{some_of(rich, counts)} had at least {needs.enough} calibration examples, enough for "
        f"{what}. Try classwise."
    )
