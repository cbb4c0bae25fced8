"""compare() methods and scores on labeled data; recommend() a method from the labels."""

from evencover.comparison.compare import Recommendation, compare, recommend
from evencover.comparison.result import Candidate, Comparison, Difference

__all__ = ["Candidate", "Comparison", "Difference", "Recommendation", "compare", "recommend"]
