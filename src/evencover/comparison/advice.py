"""Put the result of a comparison in words: the recommendation, alternatives, and exclusions."""

from __future__ import annotations

from typing import Any


def advice(found: Any) -> str:
    """Describe a `Comparison`: the recommended candidate, the alternatives, and who is excluded."""
    pick, n_classes = found.pick, found.n_classes
    sentences = [_nothing_allowed(found) if pick is None else _pick(found, pick)]
    if found.costs_too_much(found.best):
        sentences.append(
            f"Sets of all {n_classes} classes would cost no more; more calibration rows or a "
            "better model would help."
        )
    for title, other in (("Smallest sets", found.smallest), ("Most even", found.most_even)):
        if other is not pick:
            sentences.append(f"{title}: {other.name} ({_against(other, pick)}).")
    for problem, applies in {
        f"Coverage significantly below {1 - found.alpha:.0%}": found.covers_too_little,
        "No guarantee for one calibration set": lambda each: not found.promises_enough(each),
        f"Cost no lower than that of all {n_classes} classes": found.costs_too_much,
    }.items():
        names = [each.name for each in found.candidates if applies(each) and each is not pick]
        if names:
            sentences.append(f"{problem}: {_listed(names)}.")
    return " ".join(sentences)


def _has(found: Any, candidate: Any) -> str:
    return (
        f"average set size {candidate.mean('avg_size'):.1f}; class coverage typically deviates "
        f"from {1 - found.alpha:.0%} by {candidate.mean('true_gap'):.1f} points"
    )


def _pick(found: Any, pick: Any) -> str:
    has = _has(found, pick)
    others = [each for each in found.allowed if each is not pick]
    if not others:
        return f"Use {pick.name}: {has}."
    n_tied = sum(not found.difference_to_best(each).is_clear for each in others)
    tied = f"tied with {n_tied} of {len(others)}" if n_tied else "significantly below all others"
    return (
        f"Use {pick.name}: it has the lowest cost ({pick.mean('cost'):.1f} labels per row, "
        f"{tied}); {has}."
    )


def _against(other: Any, pick: Any) -> str:
    """Compare an alternative with the recommended candidate."""
    size = other.mean("avg_size") - pick.mean("avg_size")
    gap = other.mean("true_gap") - pick.mean("true_gap")
    return (
        f"{abs(size):.1f} {'more' if size >= 0 else 'fewer'} classes, "
        f"{abs(gap):.1f} points {'more' if gap > 0 else 'less'} deviation"
    )


def _nothing_allowed(found: Any) -> str:
    asked = [f"coverage of {1 - found.alpha:.0%}"]
    if found.max_size is not None:
        asked.append(f"sets of at most {found.max_size:g} classes on average")
    if found.min_coverage is not None:
        asked.append(f"coverage of at least {found.min_coverage:g}")
    if found.confidence is not None:
        asked.append("a guarantee for one calibration set")
    return (
        f"No candidate has {' and '.join(asked)}. The lowest cost otherwise is that of "
        f"{found.best.name}: {_has(found, found.best)}."
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
