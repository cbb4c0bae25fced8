"""Which candidate of a comparison to use, why, and what the others would cost or gain, in words."""

from __future__ import annotations

from typing import Any


def advice(found: Any) -> str:
    """Sentences about a `Comparison`: the compromise, the other points, what was left out."""
    pick = found.pick
    sentences = [_pick(found, pick)] if found.allowed else [_nothing_allowed(found, pick)]
    for title, other in (("Smallest sets", found.smallest), ("Most even", found.most_even)):
        if other is not pick:
            sentences.append(f"{title}: {other.name}, {_against(other, pick)}.")
    silent = [c.name for c in found.candidates if not found.is_informative(c)]
    if 0 < len(silent) < len(found.candidates):
        sentences.append(
            f"Never advised, because their sets hold more than a third of the {found.n_classes} "
            f"classes or mostly classes without a limit: {_listed(silent)}."
        )
    bold = [c.name for c in found.candidates if not found.promises_enough(c)]
    if bold:
        sentences.append(f"Without a promise for one calibration: {_listed(bold)}.")
    short = [c.name for c in found.candidates if found.covers_too_little(c)]
    if short:
        sentences.append(
            f"Covering clearly less than {1 - found.alpha:.0%} of all rows: {_listed(short)}."
        )
    return " ".join(sentences)


def _has(found: Any, pick: Any) -> str:
    return (
        f"its sets hold {pick.mean('avg_size'):.1f} classes on average, and a class is typically "
        f"{pick.mean('true_gap'):.1f} points from {1 - found.alpha:.0%}"
    )


def _pick(found: Any, pick: Any) -> str:
    has = _has(found, pick)
    others = [c for c in found.allowed if c is not pick]
    if not others:
        return f"Use {pick.name}: {has}."
    equal = [c for c in others if not found.difference_to_best(c).is_clear]
    if len(equal) == 0:
        beyond = "clearly below all others"
    elif len(equal) == len(others):
        beyond = f"not clearly below the other{'' if len(others) == 1 else f' {len(others)}'}"
    else:
        beyond = f"clearly below all but {len(equal)} of the other {len(others)}"
    return (
        f"Use {pick.name}: it has the lowest cost ({pick.mean('cost'):.1f} labels per row, "
        f"{beyond}); {has}."
    )


def _against(other: Any, pick: Any) -> str:
    """What the other candidate has more and less of."""
    size = other.mean("avg_size") - pick.mean("avg_size")
    gap = other.mean("true_gap") - pick.mean("true_gap")
    more = "more" if size >= 0 else "fewer"
    less = "less" if gap <= 0 else "more"
    return f"{abs(size):.1f} classes {more} in a set for {abs(gap):.1f} points {less} gap"


def _nothing_allowed(found: Any, pick: Any) -> str:
    asked = []
    if found.max_size is not None:
        asked.append(f"sets of at most {found.max_size:g} classes on average")
    if found.min_coverage is not None:
        asked.append(f"a coverage of at least {found.min_coverage:g}")
    if found.confidence is not None:
        asked.append("a promise for one calibration")
    if asked and found.is_informative(pick):
        all_say = all(found.is_informative(each) for each in found.candidates)
        nothing = "Nothing here" if all_say else "Nothing whose sets say something"
        what = f"{nothing} has {' and '.join(asked)}."
    else:
        what = (
            "None of these has sets that say much; more calibration rows or a better model would."
        )
    return f"{what} The lowest cost is that of {pick.name}: {_has(found, pick)}."


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
