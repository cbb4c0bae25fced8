"""What the page about a comparison tells, as plain numbers and text."""

from __future__ import annotations

from typing import Any

from evencover.comparison.result import Comparison
from evencover.evaluation.metrics import descriptions


def comparison_content(comparison: Comparison) -> dict[str, Any]:
    """`Comparison.to_dict`, with names and places for the page."""
    content = comparison.to_dict()
    for row, candidate in zip(content["candidates"], comparison.candidates, strict=True):
        row["name"] = candidate.name
        row["is_pick"] = candidate is comparison.pick
    content["headline"] = _headline(comparison)
    advice = f"Use {comparison.best.name}: "
    content["lead"] = _lead(content["headline"], content["reason"], advice)
    content["metrics"] = descriptions("comparison", "the aim")
    return content


def _headline(comparison: Comparison) -> str:
    name = comparison.best.name
    if comparison.pick is None:
        return "No candidate meets the requirements."
    if len(comparison.candidates) == 1:
        return f"Only {name} was tried."
    others = [each for each in comparison.allowed if each is not comparison.pick]
    if others and not any(comparison.difference_to_best(each).is_clear for each in others):
        return f"Nothing is clearly best; {name} has the lowest cost."
    return f"Use {name}: the best balance of even coverage and small sets."


def _lead(headline: str, reason: str, advice: str) -> str:
    """The reason, without saying again what the headline has said."""
    if not headline.startswith(advice):
        return reason
    rest = reason.removeprefix(advice)
    return rest[:1].upper() + rest[1:]
