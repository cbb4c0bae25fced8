"""A snapshot as plain values, for tables, JSON, pages and services."""

from __future__ import annotations

from typing import Any

import numpy as np

from evencover.monitoring.evidence import e_values
from evencover.monitoring.monitor import CoverageMonitor
from evencover.monitoring.snapshot import STRONGEST, Snapshot
from evencover.monitoring.state import OVERALL


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """Return every class, the strongest evidence first, and the result of each test.

    The classes with the strongest evidence come with their coverage by period.
    """
    model, shift = snapshot.model, snapshot.shift_log_e_values
    names = model.class_names or range(model.n_classes)
    history: dict[int, list[dict[str, Any]]] = {OVERALL: []}
    for y, period, n_rows, n_covered in snapshot.periods:
        of_period = {"period": period, "rows": n_rows, "coverage": n_covered / n_rows}
        history.setdefault(y, []).append(of_period)
    alarms, shifts = set(snapshot.alarms.tolist()), set(snapshot.shifts.tolist())
    order = snapshot.strongest
    columns: list[Any] = [snapshot.rows, snapshot.covered / np.maximum(snapshot.rows, 1)]
    columns += [model.targets, snapshot.coverage_interval, snapshot.e_values]
    columns.append(np.full(len(order), None) if shift is None else e_values(shift))
    lists = [order.tolist(), *(column[order].tolist() for column in columns)]
    classes: list[dict[str, Any]] = [
        {
            "class": names[y],
            "index": y,
            "rows": n_rows,
            "coverage": coverage if n_rows else None,
            "target": target,
            "interval": interval,
            "e_value": e_value,
            "shift_e_value": shift_e_value,
            "alarm": y in alarms,
            "shifted": y in shifts,
            "since": snapshot.began.get(y) if y in alarms or y in shifts else None,
        }
        for y, n_rows, coverage, target, interval, e_value, shift_e_value in zip(
            *lists, strict=True
        )
    ]
    for row in classes[:STRONGEST]:
        row["periods"] = history.get(row["index"], [])
    n_rows, n_covered = snapshot.totals
    n_drifted = sum(change.drifted for change in snapshot.drift)
    return {
        "rows": n_rows,
        "coverage": n_covered / n_rows if n_rows else None,
        "false_alarm": model.false_alarm,
        "tolerance": model.tolerance,
        "target": float(model.targets.min()),
        "target_text": _target(snapshot, "for every class"),
        "alarm": snapshot.alarm,
        "alarm_level": {"one": 1 / model.false_alarm, "class": snapshot.alarm_level},
        "below_target": {**snapshot.any_class._asdict(), "message": _below(snapshot)},
        "overall": {**snapshot.overall._asdict(), "message": _overall(snapshot)},
        "score_shift": {**snapshot.any_shift._asdict(), "message": _shift(snapshot)},
        "waiting": snapshot.waiting,
        "expired": snapshot.expired,
        "unknown_labels": dict(snapshot.unknown_labels),
        "drift": [change._asdict() for change in snapshot.drift[: max(STRONGEST, n_drifted)]],
        "periods": history[OVERALL],
        "classes": classes,
    }


def coverage_table(monitor: CoverageMonitor) -> str:
    """Return the coverage of every class in every period as CSV; all classes first."""
    import csv
    from io import StringIO

    names = monitor.model.class_names or range(monitor.model.n_classes)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["class", "period", "rows", "covered", "coverage"])
    for y, period, rows, covered in monitor.periods():
        name = "(all)" if y == OVERALL else names[y]
        writer.writerow([name, period, rows, covered, f"{covered / rows:.6g}"])
    return text.getvalue()


def _target(snapshot: Snapshot, whose: str = "") -> str:
    """Name the target coverage: of all classes, or the lowest and the highest."""
    targets = snapshot.model.targets
    low, high = (f"{100 * target:.4g}%" for target in (targets.min(), targets.max()))
    return f"{low} {whose}".strip() if low == high else f"{low} to {high}, by class"


def _below(snapshot: Snapshot) -> str:
    n_alarms, targets = len(snapshot.alarms), snapshot.model.targets
    same = targets.min() == targets.max()
    tolerance = f"{100 * snapshot.model.tolerance:.4g}%"
    target = f"{_target(snapshot)}, the target less a tolerance of {tolerance}"
    target = target if same else "its target"
    if n_alarms:
        whose = "1 class is" if n_alarms == 1 else f"{n_alarms:,} classes are"
        return f"ALARM: {whose} likely below {target}."
    if snapshot.any_class.alarm:
        return f"ALARM: at least one class is likely below {target}; none is identified yet."
    return f"No class is significantly below {target}."


def _overall(snapshot: Snapshot) -> str:
    target = f"{100 * snapshot.model.targets.min():.4g}%"
    if snapshot.overall.alarm:
        return f"ALARM: overall coverage is likely below {target}."
    return f"Overall coverage is not significantly below {target}."


def _shift(snapshot: Snapshot) -> str:
    if not snapshot.tests_shift:
        return "Score shift cannot be tested: the model keeps no calibration scores."
    n_shifts = len(snapshot.shifts)
    if n_shifts:
        whose = "1 class" if n_shifts == 1 else f"{n_shifts:,} classes"
        return f"ALARM: the scores of {whose} likely shifted since calibration."
    if snapshot.any_shift.alarm:
        return "ALARM: the scores of at least one class likely shifted since calibration."
    return "No class has a significant score shift since calibration."
