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
    content["pick_name"] = comparison.pick.name
    content["headline"] = _headline(comparison)
    content["lead"] = _lead(content["headline"], content["reason"], f"Use {comparison.pick.name}: ")
    content["metrics"] = descriptions("comparison", "the aim")
    return content


def _headline(comparison: Comparison) -> str:
    name = comparison.pick.name
    if len(comparison.candidates) == 1:
        return f"Only {name} was tried."
    equal = [
        candidate
        for candidate in comparison.allowed
        if not comparison.difference_to_best(candidate).is_clear
    ]
    if len(equal) == len(comparison.allowed):
        return f"Nothing is clearly best; {name} has the lowest cost."
    return f"Use {name}: the best balance of even coverage and small sets."


def _lead(headline: str, reason: str, advice: str) -> str:
    """The reason, without saying again what the headline has said."""
    if not headline.startswith(advice):
        return reason
    rest = reason.removeprefix(advice)
    return rest[:1].upper() + rest[1:]
