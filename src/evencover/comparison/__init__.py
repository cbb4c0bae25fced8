"""Which method and score: compare() on the user's own rows, recommend() from the labels."""

from evencover.comparison.compare import Candidate, Comparison, Difference, compare
from evencover.comparison.recommend import Recommendation, recommend

__all__ = ["Candidate", "Comparison", "Difference", "Recommendation", "compare", "recommend"]
