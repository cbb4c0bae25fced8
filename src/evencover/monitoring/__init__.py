"""Monitor coverage in production with e-values, which stay valid at any number of looks."""

from evencover.monitoring.counts import PeriodCounts
from evencover.monitoring.monitor import CoverageMonitor
from evencover.monitoring.snapshot import Evidence, Snapshot
from evencover.monitoring.state import LabelCounts, MonitorState

__all__ = [
    "CoverageMonitor",
    "Evidence",
    "LabelCounts",
    "MonitorState",
    "PeriodCounts",
    "Snapshot",
]
