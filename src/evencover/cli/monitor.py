"""``evencover monitor``: track per-class coverage as labels come in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from evencover.cli import options
from evencover.cli.console import note, print_text
from evencover.errors import InputError
from evencover.text_tables import aligned

if TYPE_CHECKING:
    from evencover.monitoring import CoverageMonitor, LabelCounts

ALARM = 3  # the exit code
MOST_SHOWN = 20  # classes in the table


def run(
    model: options.ModelFile,
    data: str | None = None,
    /,
    *,
    state: str,
    retention: options.Retention = None,
    false_alarm: options.FalseAlarm = None,
    tolerance: options.Tolerance = None,
    period: str | None = None,
    as_json: options.Json = False,
    read: options.Input = options.READ,
) -> None:
    """Track per-class coverage; exit with code 3 on an alarm.

    Parameters
    ----------
    data
        New rows; omit it to add --labels by id.
    state
        State of the monitor: a SQLite file or postgresql://...
    period
        Period of these rows; defaults to today's date (UTC).
    """
    from evencover.monitoring import CoverageMonitor

    predictor = options.load_model(model, data)
    opened = options.open_state(state, retention)
    monitor = CoverageMonitor(predictor, false_alarm, tolerance, state=opened)
    if data is not None:
        _count(monitor, data, read, period)
    elif read.labels is not None:
        _label(monitor, read, period)
    snapshot = monitor.snapshot()
    findings = snapshot.summary()
    if as_json:
        options.print_json(findings)
    else:
        _show(findings)
    if snapshot.alarm:
        sys.stdout.flush()
        sys.exit(ALARM)


def _count(monitor: CoverageMonitor, data: str, read: options.Input, period: str | None) -> None:
    from dataclasses import replace

    if read.labels is not None:
        unlabeled = replace(read, labels=None).open(
            data, "counting", monitor.predictor, read_labels=False
        )
        ids, labels, time = _label_columns(read)
        if unlabeled.ids is not None and ids is not None:
            monitor.sent(ids, labels, time, period, read.labels_are)  # raises before rows are kept
            note(f"new rows: {monitor.observe(unlabeled, period=period):,}.")
            _label(monitor, read, period)
            return
    source = read.open(data, "counting", monitor.predictor)
    if source.has_labels:
        _note_labels(monitor.update(source, period=period))
    else:
        note(f"new rows: {monitor.observe(source, period=period):,}.")
    if source.ids is None:
        note("the rows have no ids, so the same rows count again in every run.")


def _label(monitor: CoverageMonitor, read: options.Input, period: str | None) -> None:
    """Count labels of rows that were recorded, by id alone."""
    ids, labels, time = _label_columns(read)
    if ids is None:
        raise InputError(f"'{read.labels}' must have a column of ids, 'id', to find rows by id.")
    counts = monitor.label(ids, labels, time=time, period=period, labels_are=read.labels_are)
    _note_labels(counts)


def _note_labels(labels: LabelCounts) -> None:
    note(
        f"labels counted: {labels.counted:,}; corrected: {labels.corrected:,}; repeated: "
        f"{labels.repeated:,}; waiting for their row: {labels.waiting:,}."
    )
    if labels.several:
        note(
            f"{labels.several:,} ids have several rows; their labels count for the last row before "
            "the label's time."
        )


def _label_columns(read: options.Input) -> tuple[Any, Any, Any]:
    from evencover.data.labels import separate_labels

    assert read.labels is not None
    labels = separate_labels(read.labels, read.labels_key, read.ids_key, with_times=True)
    return labels.ids, labels.values, labels.times


def _show(findings: dict[str, Any]) -> None:
    for test in ("below_target", "overall", "score_shift", "recent"):
        print_text(findings[test]["message"])
    print_text(aligned(["coverage of", "examples", "coverage", "low", "high"], _recent(findings)))
    if answers := findings["answers"]:
        low, high = answers["interval"]
        print_text(
            f"{answers['accuracy']:.1%} of {answers['rows']:,} answers to labeled examples are "
            f"right (95% interval {low:.1%} to {high:.1%})."
        )
    print_text(
        f"{findings['rows']:,} labeled examples; alarm level of the next class: e-value "
        f"{findings['alarm_level']['class']:,g}"
    )
    titles = ["class", "examples", "coverage", "low", "high", "e-value", "shift\ne-value", "alarm"]
    labeled = [row for row in findings["classes"] if row["rows"]]
    classes = labeled[:MOST_SHOWN]
    if classes:
        print_text(aligned(titles, [_cells(row) for row in classes]))
    if len(labeled) > len(classes):
        shown = "class" if len(classes) == 1 else f"{len(classes)} classes"
        print_text(
            f"The {shown} with the strongest evidence, of {len(labeled)} with labeled examples."
        )
    if findings["unknown_labels"]:
        n_unknown = findings["unknown_labels"]
        print_text(f"Labels that are not among the classes, counted as misses: {n_unknown:,}.")


def _recent(findings: dict[str, Any]) -> list[list[str]]:
    """Return coverage of all labels, of the last ones and of the latest period, with limits."""
    recent, rows = findings["recent"], list[list[str]]()
    period = f"period {recent['latest_period']['period']}"
    for name, part in (
        ("all labels", recent["all"]),
        (f"last {recent['latest_labels']['rows']:,} labels", recent["latest_labels"]),
        (period, recent["latest_period"]),
    ):
        shares = map(_share, (part["coverage"], *part["interval"]))
        if not rows or part["rows"] < recent["all"]["rows"]:
            rows.append([name, f"{part['rows']:,}", *shares])
    return rows


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"


def _cells(row: dict[str, Any]) -> list[str]:
    low, high = row["interval"]
    shift = "" if row["shift_e_value"] is None else f"{row['shift_e_value']:.3g}"
    alarm = " ".join(
        word for word, is_on in (("below", row["alarm"]), ("shift", row["shifted"])) if is_on
    )
    numbers = [f"{row['rows']:,}", _share(row["coverage"]), _share(low), _share(high)]
    return [str(row["class"]), *numbers, f"{row['e_value']:.3g}", shift, alarm]
