"""Monitor coverage in production with e-values, which stay valid at any number of looks."""

from evencover.monitoring.monitor import CoverageMonitor, Drift, Evidence
from evencover.monitoring.store import Labels, Store
from evencover.monitoring.summary import coverage_table, summary

__all__ = ["CoverageMonitor", "Drift", "Evidence", "Labels", "Store", "coverage_table", "summary"]
