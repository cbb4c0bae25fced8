"""How well sets cover each class: counts, metrics, and the report that shows them."""

from evencover.evaluation.report import CoverageReport, GroupCoverage, Tally, evaluate

__all__ = ["CoverageReport", "GroupCoverage", "Tally", "evaluate"]
