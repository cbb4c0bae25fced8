"""How well sets cover each class: counts, metrics, and the report that shows them."""

from evencover.evaluation.report import ClassView, CoverageReport, GroupCoverage, Tally, evaluate

__all__ = ["ClassView", "CoverageReport", "GroupCoverage", "Tally", "evaluate"]
