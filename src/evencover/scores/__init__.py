"""Conformal scores s(x, y): lower means that class y fits the input x better."""

from __future__ import annotations

from typing import Any

from evencover._validation import InputError, raise_unknown
from evencover.scores.base import Place, Score
from evencover.scores.ordered import APS, RAPS, SAPS
from evencover.scores.softmax import PAS, Softmax

SCORES: dict[str, type[Score]] = {cls.name: cls for cls in (Softmax, APS, RAPS, SAPS, PAS)}


def make_score(score: Score | str | dict[str, Any]) -> Score:
    """A score from its name, its `to_dict`, or itself.

    >>> make_score("raps")
    RAPS(randomize=True, penalty=0.01, k_reg=5)
    """
    if isinstance(score, Score):
        return score
    parameters = dict(score) if isinstance(score, dict) else {"name": score}
    name = parameters.pop("name", None)
    if not isinstance(name, str) or name.lower() not in SCORES:
        raise_unknown("score", name, SCORES)
    try:
        return SCORES[name.lower()](**parameters)
    except TypeError:
        raise InputError(f"The score {name!r} does not take the parameters {parameters}.") from None


__all__ = ["APS", "PAS", "RAPS", "SAPS", "SCORES", "Place", "Score", "Softmax", "make_score"]
