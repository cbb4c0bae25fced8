"""Conformal scores s(x, y): lower means that class y fits the input x better."""

from evencover._kernels import Position
from evencover.scores.base import Score
from evencover.scores.ordered import APS, RAPS, SAPS
from evencover.scores.registry import SCORES, make_score, score_names
from evencover.scores.softmax import PAS, Softmax

__all__ = [
    "APS",
    "PAS",
    "RAPS",
    "SAPS",
    "SCORES",
    "Position",
    "Score",
    "Softmax",
    "make_score",
    "score_names",
]
