"""Coverage in production: evidence that holds whenever one looks, and what is remembered for it."""

from evencover.monitoring.monitor import CoverageMonitor, Drift, Evidence
from evencover.monitoring.summary import summary

__all__ = ["CoverageMonitor", "Drift", "Evidence", "summary"]
