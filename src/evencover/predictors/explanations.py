"""Explanations of a fit: its guarantee in words, and the origin of the threshold of a class."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray
from evencover.evaluation.report import CoverageReport
from evencover.predictors.fit import Fit
from evencover.predictors.guarantees import ON_AVERAGE, Needs, as_percent
from evencover.quantiles import ClassAlpha

NO_CLASS = "; no single class has a guarantee"
TOP_K_LOSES = (
    "For rows that list only their top classes, coverage is lower by up to the share of labels "
    "that are not listed."
)


MOST_PRICES = 3  # of capped classes that a text states


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


# ---- the guarantee -------------------------------------------------------------------------------


def guarantee_text(fit: Fit) -> str:
    """State the guarantee of a fit, as `info` and the report show it."""
    sentences = [] if fit.alpha.is_one else [f"Classes have their own alpha: {fit.alpha}."]
    sentences.append(fit.method._guarantee_of(fit))
    sentences.append(TOP_K_LOSES if fit.recall is None else fit.recall.sentences)
    capped = np.flatnonzero(fit.is_capped)
    if len(capped):
        are = "is" if len(capped) == 1 else "are"
        sentences.append(
            f"{len(capped):,} of {fit.n_classes:,} classes {are} capped at max_share = "
            f"{fit.method.max_share}. A capped class has no guarantee, and guarantees that concern "
            f"all examples, a cluster or most calibration sets do not hold. {prices(fit, capped)}"
        )
    return " ".join(sentences)


def prices(fit: Fit, capped: IntArray) -> str:
    """State what it would take to cover capped classes, the most expensive first."""
    if not len(capped):
        return ""
    names, shares = fit.class_names, fit.share[capped]
    first = capped[np.argsort(-shares, kind="stable")][:MOST_PRICES].tolist()
    shown = [repr(names[y]) if names else f"class {y}" for y in first]
    them = "it" if len(capped) == 1 else "them"
    advice = f"label more of {them}, or train the model on {them}."
    if np.isnan(shares).any():
        more = ", ..." if len(capped) > len(first) else ""
        return f"Caps are those of the first calibration, of {', '.join(shown)}{more}; {advice}"
    costs = [f"{name}: {fit.share[y]:.0%}" for name, y in zip(shown, first, strict=True)]
    more = f" ({', '.join(costs[1:])})" if len(costs) > 1 else ""
    return (
        f"Covering {shown[0]} at {100 * (1 - fit.alpha.floats[first[0]]):.4g}% would put it into "
        f"{fit.share[first[0]]:.0%} of the sets of other classes{more}; {advice}"
    )


def method_guarantee(fit: Fit, method: Any) -> str:
    """State the guarantee of a method, and that of the floor."""
    text = method.guarantee if fit.alpha.is_one else method._guarantee_by_alpha or method.guarantee
    sets = ON_AVERAGE
    if fit.confidence is not None:
        sets = f"in at least {as_percent(fit.confidence)} of all calibration sets"
    single = NO_CLASS if fit.method.floor is None else ""
    target, twice = target_coverage(fit.alpha), target_coverage(fit.alpha, 2)
    text = text.format(sets=sets, single=single, target=target, twice=twice)
    return f"{text} {floor_sentence(fit)}".rstrip()


def target_coverage(alpha: ClassAlpha, times: int = 1) -> str:
    """Return 1 - alpha (or 1 - 2 alpha) in percent; as a formula if classes have their own alpha.

    >>> target_coverage(ClassAlpha.of(0.1, None, 3)), target_coverage(ClassAlpha.of("1/3", None, 3))
    ('90%', '66.67%')
    """
    if alpha.is_one:
        return f"{100 * max(0.0, 1 - times * float(alpha.typical)):.4g}%"
    return "1 - alpha" if times == 1 else f"1 - {times} alpha"


def floor_sentence(fit: Fit) -> str:
    """State the coverage that the floor guarantees to every class, if there is one."""
    return fit.method._floor.sentence(fit.guarantees == 0, fit.alpha, fit.class_names)


# ---- one class -----------------------------------------------------------------------------------


def explain(fit: Fit, report: CoverageReport, class_index: int) -> Explanation:
    """Explain a class's threshold and, if it is undercovered, why and what to try."""
    view, counts, groups = report.class_view(class_index), fit.rows.class_counts, fit.groups
    n = int(counts[class_index])
    rows = f"{n:,} calibration example{'' if n == 1 else 's'}"
    if fit.is_capped[class_index]:
        origin = prices(fit, np.array([class_index]))
    elif set_by_floor(fit)[class_index]:
        rank = fit.method._floor.ranks(counts, fit.alpha)[class_index]
        origin = f"Its guarantee sets the threshold: the score of rank {rank} among its {rows}."
    elif groups is not None:
        group = int(groups.of_class[class_index])
        n_scores, whose = int(groups.scores.counts[group]), groups.whose[group]
        origin = f"The threshold comes from {n_scores:,} calibration scores {whose}."
    else:
        origin = origin_of_thresholds(fit).format(rows=rows)
    return Explanation(
        view.name,
        view.threshold,
        float(fit.guarantees[class_index]),
        origin,
        {name: float(shares[class_index]) for name, shares in fit.weights.items()},
        cause(fit, np.array([class_index])),
        view.appears,
    )


def origin_of_thresholds(fit: Fit) -> str:
    """State where thresholds come from; {rows} in it are the calibration rows of a class."""
    return fit.method._origin


def set_by_floor(fit: Fit) -> Array:
    """Return whether the floor sets a class's threshold (K,)."""
    ranks = fit.method._floor.ranks(fit.rows.class_counts, fit.alpha)
    return (ranks > 0) & (fit.scored_rows.by_class.at_ranks(ranks) == fit.thresholds.upper)


def cause(fit: Fit, under: IntArray) -> str:
    """Explain why the classes `under` may be undercovered, and what to try."""
    is_capped = fit.is_capped[under]
    under, sentences = under[~is_capped], [prices(fit, under[is_capped])]
    if len(under):
        advice = remedy(fit.rows.class_counts[under], fit.row_needs, fit.method._remedies)
        sentences += [fit.method._cause(fit, under), advice]
    return " ".join(filter(None, sentences))


def remedy(counts: IntArray, needs: Needs, methods: tuple[str | None, str | None]) -> str:
    """Advise which method to try for classes with these numbers of calibration examples, if any.

    `methods` are those for classes with many examples and for classes with few.
    """
    n_rich = int((counts >= needs.enough).sum())
    for_many, for_few = methods
    ways = []
    if n_rich and 2 * n_rich >= len(counts) and for_many:
        what = "its own threshold" if n_rich == 1 else "their own thresholds"
        ways.append(
            f"{some_of(n_rich, len(counts))} had at least {needs.enough} calibration examples, "
            f"enough for {what}. Try {for_many}."
        )
    if n_rich < len(counts) and for_few:
        ways.append(
            f"{some_of(len(counts) - n_rich, len(counts))} had fewer than {needs.enough} "
            f"calibration examples. Try {for_few}, which borrows from other classes."
        )
    return " ".join(ways)


def rows_behind(fit: Fit, report: CoverageReport) -> float:
    """Return the number of calibration rows behind the average coverage, as if in one group."""
    if fit.groups is None:
        return fit.method._level_rows(fit)
    counts, of_class = fit.groups.scores.counts, fit.groups.of_class
    rows = np.bincount(of_class, weights=report.class_counts, minlength=len(counts))
    return float(1 / ((rows / report.n_rows) ** 2 / (counts + 2)).sum() - 2)


def some_of(part: int, whole: int) -> str:
    """Return 'All 7', 'Both', 'It', or '3 of the 7'.

    >>> some_of(7, 7), some_of(3, 7)
    ('All 7', '3 of the 7')
    """
    if part == whole:
        return "It" if part == 1 else f"All {part:,}" if part > 2 else "Both"
    return f"{part:,} of the {whole:,}"
