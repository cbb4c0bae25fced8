"""How well sets cover each class: counts, metrics, and the report that shows them."""

from evencover.evaluation.conditional import worst_slab
from evencover.evaluation.metrics import Tally
from evencover.evaluation.report import ClassView, CoverageReport, evaluate

__all__ = ["ClassView", "CoverageReport", "Tally", "evaluate", "worst_slab"]
