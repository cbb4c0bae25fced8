"""The state of a monitor as plain values, for tables, JSON, reports and services."""

from __future__ import annotations

from typing import Any

import numpy as np

from evencover.monitoring.evidence import e_values
from evencover.monitoring.monitor import CoverageMonitor
from evencover.monitoring.store import OVERALL

STRONGEST = 20  # classes whose periods are included, and fractions compared for drift


def summary(monitor: CoverageMonitor) -> dict[str, Any]:
    """Return every class, the strongest evidence first, and the result of each test.

    The classes with the strongest evidence come with their coverage by period.
    """
    rows, covered, log_e = monitor.rows, monitor.covered, monitor.log_e_values()
    names = monitor.predictor.class_names_ or range(monitor.predictor.n_classes_)
    shift, limits = monitor.shift_log_e_values(), monitor.coverage_interval()
    alarms, shifts = set(monitor.alarms().tolist()), set(monitor.shifts().tolist())
    strongest = log_e if shift is None else np.maximum(log_e, shift)
    order = np.argsort(-strongest, kind="stable").tolist()
    values = e_values(log_e).tolist()
    shifted = None if shift is None else e_values(shift).tolist()
    shares = (covered / np.maximum(rows, 1)).tolist()
    columns = rows.tolist(), limits.tolist(), monitor.targets.tolist()
    classes = [
        {
            "class": names[y],
            "index": y,
            "rows": columns[0][y],
            "coverage": shares[y] if columns[0][y] else None,
            "target": columns[2][y],
            "interval": columns[1][y],
            "e_value": values[y],
            "shift_e_value": None if shifted is None else shifted[y],
            "alarm": y in alarms,
            "shifted": y in shifts,
            "since": monitor.began(y) if y in alarms or y in shifts else None,
        }
        for y in order
    ]
    top = [y for y in order if rows[y]][:STRONGEST]
    history: dict[int, list[dict[str, Any]]] = {y: [] for y in (OVERALL, *top)}
    for y, period, n_rows, n_covered in monitor.periods([OVERALL, *top]):
        history[y].append({"period": period, "rows": n_rows, "coverage": n_covered / n_rows})
    for each in classes[:STRONGEST]:
        each["periods"] = history.get(each["index"], [])
    total, hits = monitor.totals
    drift = monitor.drift()
    drift = drift[: max(STRONGEST, sum(each.drifted for each in drift))]
    return {
        "rows": total,
        "coverage": hits / total if total else None,
        "false_alarm": monitor.false_alarm,
        "tolerance": monitor.tolerance,
        "target": float(monitor.targets.min()),
        "target_text": _target(monitor, "for every class"),
        "alarm": monitor.alarm,
        "alarm_level": {"one": 1 / monitor.false_alarm, "class": monitor.alarm_level()},
        "below_target": {**monitor.any_class()._asdict(), "message": _below(monitor, len(alarms))},
        "overall": {**monitor.overall()._asdict(), "message": _overall(monitor)},
        "score_shift": {**monitor.any_shift()._asdict(), "message": _shift(monitor, len(shifts))},
        "warnings": monitor.label_delay(),
        "waiting": monitor.store.waiting(),
        "unknown_labels": monitor.store.unknown(monitor.about.key),
        "drift": [each._asdict() for each in drift],
        "periods": history[OVERALL],
        "classes": classes,
    }


def coverage_table(monitor: CoverageMonitor) -> str:
    """Return the coverage of every class in every period as CSV; all classes first."""
    import csv
    from io import StringIO

    names = monitor.predictor.class_names_ or range(monitor.predictor.n_classes_)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["class", "period", "rows", "covered", "coverage"])
    for y, period, rows, covered in monitor.periods():
        name = "(all)" if y == OVERALL else names[y]
        writer.writerow([name, period, rows, covered, f"{covered / rows:.6g}"])
    return text.getvalue()


def _target(monitor: CoverageMonitor, whose: str = "") -> str:
    """Name the target coverage: of all classes, or the lowest and the highest."""
    low, high = f"{monitor.targets.min():.4g}", f"{monitor.targets.max():.4g}"
    return f"{low} {whose}".strip() if low == high else f"{low} to {high}, by class"


def _below(monitor: CoverageMonitor, n_alarms: int) -> str:
    same = monitor.targets.min() == monitor.targets.max()
    target = f"the target of {_target(monitor)}" if same else "its target"
    if n_alarms:
        whose = "1 class is" if n_alarms == 1 else f"{n_alarms:,} classes are"
        return f"ALARM: {whose} likely below {target}."
    if monitor.any_class().alarm:
        return f"ALARM: at least one class is likely below {target}; none is identified yet."
    return f"No class is significantly below {target}."


def _overall(monitor: CoverageMonitor) -> str:
    target = f"{monitor.targets.min():.4g}"
    if monitor.overall().alarm:
        return f"ALARM: overall coverage is likely below {target}."
    return f"Overall coverage is not significantly below {target}."


def _shift(monitor: CoverageMonitor, n_shifts: int) -> str:
    if monitor.shift_log_e_values() is None:
        return "Score shift cannot be tested: the model keeps no calibration scores."
    if n_shifts:
        whose = "1 class" if n_shifts == 1 else f"{n_shifts:,} classes"
        return f"ALARM: the scores of {whose} likely shifted since calibration."
    if monitor.any_shift().alarm:
        return "ALARM: the scores of at least one class likely shifted since calibration."
    return "No class has a significant score shift since calibration."
