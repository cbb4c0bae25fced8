"""What the page about a comparison tells, as plain numbers and text."""

from __future__ import annotations

from typing import Any

from evencover.comparison.compare import Comparison
from evencover.evaluation.metrics import descriptions


def comparison_content(comparison: Comparison) -> dict[str, Any]:
    """`Comparison.to_dict`, with names and places for the page."""
    content = comparison.to_dict()
    for row, candidate in zip(content["candidates"], comparison.candidates, strict=True):
        row["name"] = candidate.name
        row["is_best"] = candidate is comparison.best
        row["is_pick"] = candidate is comparison.pick
    content["pick_name"] = comparison.pick.name
    content["headline"] = _headline(comparison)
    content["metrics"] = descriptions("comparison", "the promise")
    return content


def _headline(comparison: Comparison) -> str:
    tied = [
        candidate
        for candidate in comparison.candidates
        if not comparison.difference_to_best(candidate).is_clear
    ]
    name = comparison.pick.name
    if len(comparison.candidates) == 1:
        return f"Only {name} was tried."
    if len(tied) == 1:
        return f"Use {name}: it treats classes most evenly."
    if len(tied) == len(comparison.candidates):
        return f"Nothing is clearly best; {name} has the smallest sets."
    return f"Use {name}: as even as the best, with the smallest sets."
