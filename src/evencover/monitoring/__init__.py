"""Monitor coverage in production with e-values, which stay valid however often one looks."""

from evencover.monitoring.monitor import CoverageMonitor, Drift, Evidence
from evencover.monitoring.store import Labels, Store
from evencover.monitoring.summary import coverage_table, summary

__all__ = ["CoverageMonitor", "Drift", "Evidence", "Labels", "Store", "coverage_table", "summary"]
