"""The state of a monitor as plain values, for tables, JSON, pages and services."""

from __future__ import annotations

from typing import Any

import numpy as np

from evencover.monitoring.evidence import e_values
from evencover.monitoring.monitor import CoverageMonitor


def summary(monitor: CoverageMonitor) -> dict[str, Any]:
    """Return every class, the strongest evidence first, and the result of each test."""
    rows, covered, log_e = monitor.rows, monitor.covered, monitor.log_e_values()
    names = monitor.predictor.class_names_ or range(monitor.predictor.n_classes_)
    change, limits = monitor.change_log_e_values(), monitor.coverage_interval()
    alarms, changes = set(monitor.alarms().tolist()), set(monitor.changes().tolist())
    strongest = log_e if change is None else np.maximum(log_e, change)
    classes = [
        {
            "class": names[y],
            "index": y,
            "rows": int(rows[y]),
            "coverage": float(covered[y] / rows[y]) if rows[y] else None,
            "interval": limits[y].tolist(),
            "e_value": float(e_values(log_e[y])),
            "change_e_value": None if change is None else float(e_values(change[y])),
            "alarm": y in alarms,
            "changed": y in changes,
        }
        for y in np.argsort(-strongest, kind="stable").tolist()
    ]
    total, hits = int(rows.sum()), int(covered.sum())
    return {
        "rows": total,
        "coverage": hits / total if total else None,
        "promised": monitor.promised,
        "false_alarm": monitor.false_alarm,
        "tolerance": monitor.tolerance,
        "alarm": monitor.alarm,
        "promise": {**monitor.any_class()._asdict(), "says": _promise(monitor, len(alarms))},
        "overall": {**monitor.overall()._asdict(), "says": _overall(monitor)},
        "change": {**monitor.any_change()._asdict(), "says": _change(monitor, len(changes))},
        "drift": [each._asdict() for each in monitor.drift()],
        "classes": classes,
    }


def _promise(monitor: CoverageMonitor, n_alarms: int) -> str:
    promised, evidence = f"{monitor.promised:.4g}", monitor.any_class()
    if n_alarms:
        whose = "1 class is" if n_alarms == 1 else f"{n_alarms:,} classes are"
        return f"ALARM: {whose} likely covered less than {promised}."
    if evidence.alarm:
        return f"ALARM: some class is likely covered less than {promised}, not yet clear which."
    return f"No class is known to be covered less than {promised}."


def _overall(monitor: CoverageMonitor) -> str:
    if monitor.overall().alarm:
        return f"ALARM: all rows together are likely covered less than {monitor.promised:.4g}."
    return f"All rows together are not known to be covered less than {monitor.promised:.4g}."


def _change(monitor: CoverageMonitor, n_changes: int) -> str:
    if monitor.change_log_e_values() is None:
        return "Whether a class fits worse than on calibration day is unknown: no rows were kept."
    if n_changes:
        whose = "1 class likely fits" if n_changes == 1 else f"{n_changes:,} classes likely fit"
        return f"ALARM: {whose} worse than on calibration day."
    if monitor.any_change().alarm:
        return "ALARM: some class likely fits worse than on calibration day, not yet clear which."
    return "No class is known to fit worse than on calibration day."
