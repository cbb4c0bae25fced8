"""How well sets cover each class: counts, metrics, and the report that shows them."""

from evencover.evaluation.report import ClassView, CoverageReport, evaluate
from evencover.evaluation.tally import Tally

__all__ = ["ClassView", "CoverageReport", "Tally", "evaluate"]
