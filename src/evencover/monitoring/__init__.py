"""Monitor coverage in production with e-values, which stay valid however often one looks."""

from evencover.monitoring.monitor import CoverageMonitor, Drift, Evidence
from evencover.monitoring.summary import summary

__all__ = ["CoverageMonitor", "Drift", "Evidence", "summary"]
