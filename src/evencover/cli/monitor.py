"""``evencover monitor``: track per-class coverage as labels come in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evencover.cli.console import note, print_table, print_text
from evencover.cli.options import (
    READ,
    FalseAlarm,
    Input,
    Json,
    ModelFile,
    Retention,
    Switch,
    Tolerance,
    load_model,
    open_state,
    print_json,
)
from evencover.data.location import as_location
from evencover.errors import InputError
from evencover.output.atomic import reject_existing

if TYPE_CHECKING:
    from evencover.monitoring import CoverageMonitor

ALARM = 3  # the exit code


def run(
    model: ModelFile,
    data: str | None = None,
    /,
    *,
    state: str,
    retention: Retention = None,
    reference: str | None = None,
    false_alarm: FalseAlarm = None,
    tolerance: Tolerance = None,
    period: str | None = None,
    again: Switch = False,
    top: int = 20,
    report: Path | None = None,
    periods: Path | None = None,
    quiet_alarms: Switch = False,
    as_json: Json = False,
    read: Input = READ,
) -> None:
    """Track per-class coverage; exit with code 3 on an alarm.

    Parameters
    ----------
    data
        New rows; omit it to add --labels by id.
    state
        State of the monitor: a SQLite file or postgresql://...
    reference
        Rows to compare with for drift, e.g. the calibration set.
    period
        Period of these rows; defaults to today's date (UTC).
    again
        Count rows again that were already counted.
    top
        Number of classes in the table.
    report
        Write an HTML page: coverage over time and alarms.
    periods
        Write coverage by class and period as CSV.
    quiet_alarms
        Exit with code 0 on an alarm.
    """
    from evencover.monitoring import CoverageMonitor, coverage_table, summary

    for path in (report, periods):
        if path is not None:
            reject_existing(path, force=True)
    predictor = load_model(model, data)
    name = as_location(model).name
    monitor = CoverageMonitor(
        predictor, false_alarm, tolerance, store=open_state(state, retention), name=name
    )
    how: dict[str, Any] = {"period": period, "once": not again}
    if data is not None:
        _count(monitor, data, read, **how)
    elif read.labels is not None:
        _label(monitor, read, period)
    if reference is not None:
        _measure_from(monitor, reference, read)
    if report is not None:
        from evencover.report.page import write_watch_page

        write_watch_page(monitor, report, title=f"Coverage of {name}")
    if periods is not None:
        from evencover.output.atomic import atomic_path

        with atomic_path(periods) as temporary:
            temporary.write_bytes(coverage_table(monitor).encode("utf-8", "replace"))
    found = summary(monitor)
    if as_json:
        print_json(found)
    else:
        _show(monitor, found, top)
    if monitor.alarm and not quiet_alarms:
        sys.stdout.flush()
        sys.exit(ALARM)


def _count(monitor: CoverageMonitor, data: str, read: Input, **how: Any) -> None:
    from dataclasses import replace

    if read.labels is not None and how["once"]:
        unlabeled = replace(read, labels=None).open(data, "counting", allow_unknown=True)
        if unlabeled.ids is not None and _label_columns(read)[0] is not None:
            groups = read.groups(unlabeled)
            monitor.observe(unlabeled, groups=groups, **how)
            _label(monitor, read, how["period"])
            return
    source = read.open(data, "counting", allow_unknown=True)
    groups = read.groups(source)
    if source.has_labels:
        monitor.update(source, groups=groups, **how)
    else:
        monitor.observe(source, groups=groups, **how)


def _label(monitor: CoverageMonitor, read: Input, period: str | None) -> None:
    """Count labels of rows that were recorded, by id alone."""
    from evencover.data.columns import are_numbers

    ids, labels, time = _label_columns(read)
    if ids is None:
        raise InputError(f"'{read.labels}' must have a column of ids, 'id', to find rows by id.")
    names = monitor.predictor.class_names_
    if names is not None and are_numbers(names):  # a number is a name, as it is in a table
        labels = labels.astype(str)
    found = monitor.label(ids, labels, time=time, period=period)
    note(
        f"labels counted: {found.counted:,}; repeated: {found.repeated:,}; waiting for "
        f"their row: {found.waiting:,}."
    )


def _label_columns(read: Input) -> tuple[Any, Any, Any]:
    from evencover.data.open import label_columns

    assert read.labels is not None
    return label_columns(read.labels, read.labels_key or "labels", read.ids_key)


def _measure_from(monitor: CoverageMonitor, reference: str, read: Input) -> None:
    from dataclasses import replace

    if monitor.has_reference():
        raise InputError(
            "'--reference' is already set in this state. Start a new state to change it."
        )
    plain = replace(read, labels=None, ids=None, row_groups=None)
    monitor.observe(plain.open(reference, "reading the reference"), reference=True)


def _show(monitor: CoverageMonitor, found: dict[str, Any], top: int) -> None:
    print_text(
        f"{found['rows']:,} labeled examples, coverage {_share(found['coverage'])}; target "
        f"{found['target_text']} (alpha {monitor.predictor.class_alpha}, tolerance "
        f"{monitor.tolerance:g}); alarm level of the next class: e-value "
        f"{found['alarm_level']['class']:,g}"
    )
    titles = ["class", "examples", "coverage", "low", "high", "e-value", "shift\ne-value", "alarm"]
    classes = [each for each in found["classes"] if each["rows"]][:top]
    if classes:
        print_table(titles, [_cells(each) for each in classes], least=["shift\ne-value"])
    n_seen = sum(each["rows"] > 0 for each in found["classes"])
    if n_seen > len(classes):
        shown = "class" if len(classes) == 1 else f"{len(classes)} classes"
        print_text(f"The {shown} with the strongest evidence, of {n_seen} with labeled examples.")
    for each in ("below_target", "overall", "score_shift"):
        print_text(found[each]["message"])
    for label, times in found["unknown_labels"].items():
        print_text(f"Unknown label, counted as a miss: {label!r} ({times:,} times).")
    for sentence in found["warnings"]:
        note(sentence)
    drifted = [each for each in found["drift"] if each["drifted"]]
    for drift in drifted[:top]:
        print_text(f"Drift: {drift['what']}, {drift['before']:.1%} -> {drift['now']:.1%}.")
    if drifted:
        print_text("Drift does not measure coverage.")
    elif found["drift"]:
        print_text("No significant drift from the reference.")


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _cells(each: dict[str, Any]) -> list[str]:
    low, high = each["interval"]
    shift = "" if each["shift_e_value"] is None else f"{each['shift_e_value']:.3g}"
    alarm = " ".join(
        word for word, is_on in (("below", each["alarm"]), ("shift", each["shifted"])) if is_on
    )
    numbers = [f"{each['rows']:,}", _share(each["coverage"]), f"{low:.3f}", f"{high:.3f}"]
    return [str(each["class"]), *numbers, f"{each['e_value']:.3g}", shift, alarm]
