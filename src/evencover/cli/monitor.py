"""``evencover monitor``: track per-class coverage as labels come in."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from evencover.cli.console import note, print_table, print_text
from evencover.cli.options import (
    READ,
    FalseAlarm,
    Input,
    Json,
    ModelFile,
    Switch,
    Tolerance,
    load_model,
    print_json,
)
from evencover.data.location import as_location
from evencover.errors import InputError
from evencover.output.atomic import only_writer, reject_existing

if TYPE_CHECKING:
    from evencover.data.join import LabeledRows
    from evencover.monitoring import CoverageMonitor

ALARM = 3  # the exit code
States = Annotated[list[Path] | None, Parameter(name="--merge", negative="", consume_multiple=True)]


def run(
    model: ModelFile,
    data: str | None = None,
    /,
    *,
    state: Path,
    merge: States = None,
    reference: str | None = None,
    false_alarm: FalseAlarm = None,
    tolerance: Tolerance = None,
    period: str | None = None,
    again: Switch = False,
    top: int = 20,
    report: Path | None = None,
    quiet_alarms: Switch = False,
    as_json: Json = False,
    read: Input = READ,
) -> None:
    """Track per-class coverage; exit with code 3 on an alarm.

    Parameters
    ----------
    data
        Rows with labels are counted as covered or not; rows without only for drift. Without data
        the state is shown as it is. Where --labels joins by id, rows without a label yet are left
        out, and rows whose id was counted before are not counted again: the files may grow.
    state
        Where the counts are kept (JSON); made if it does not exist.
    merge
        States of other services with the same model, which are added to this one, each once.
    reference
        Rows that drift is measured from, such as the calibration rows; needed once.
    period
        What to call the time of these rows, for the history; today's date (UTC) by default.
    again
        Count the data even if the same rows were counted before.
    top
        How many classes the table shows, those with the strongest evidence.
    report
        Where to write a page (.html): coverage over time, classes in alarm, when it began.
    quiet_alarms
        Exit with code 0 even if there are alarms.
    """
    from evencover.monitoring import CoverageMonitor, summary

    if report is not None:
        reject_existing(report, force=True)
    predictor = load_model(model, data)
    asked = {"false_alarm": false_alarm, "tolerance": tolerance}
    levels = {name: value for name, value in asked.items() if value is not None}
    only_shown = data is None and reference is None and not merge and state.exists()
    lock = only_writer(reject_existing(state, force=True))
    with nullcontext() if only_shown else lock:  # or counts of one would be lost
        monitor = CoverageMonitor.open(state, predictor, **levels)
        if data is not None:
            _count(monitor, data, read, period=period, once=not again)
        if reference is not None:
            _measure_from(monitor, reference, read)
        for path in merge or ():
            other = CoverageMonitor.load(path, predictor)
            if other.counts.inputs & monitor.counts.inputs:
                raise InputError(
                    f"'{path}' holds rows that have been counted before, perhaps by an earlier "
                    "merge; evidence counted twice gives false alarms. Merge all states into a new "
                    "--state."
                )
            monitor += other
        if report is not None:  # before the state: rows that it has counted are refused next time
            from evencover.report.page import write_watch_page

            write_watch_page(monitor, report, title=f"Coverage of {as_location(model).name}")
        if not only_shown:
            monitor.save(state)
    found = summary(monitor)
    if as_json:
        print_json(found)
    else:
        _show(monitor, found, top)
    if monitor.alarm and not quiet_alarms:
        sys.stdout.flush()
        sys.exit(ALARM)


def _count(monitor: CoverageMonitor, data: str, read: Input, **how: Any) -> None:
    from evencover.data.join import LabeledRows

    source = read.open(data, "counting", complete=False)
    if isinstance(source, LabeledRows):
        _count_joined(monitor, source, read.groups(source.whole), **how)
    elif source.has_labels:
        monitor.update(source, groups=read.groups(source), **how)
    else:
        monitor.observe(source, groups=read.groups(source), once=how["once"])


def _count_joined(
    monitor: CoverageMonitor, joined: LabeledRows, groups: Any, *, period: str | None, once: bool
) -> None:
    n_counted = joined.leave_out(monitor.counts.ids) if once else 0
    n_waiting, n_unused = joined.n_waiting, joined.n_unused
    if n_waiting or n_unused or n_counted:
        note(
            f"rows without a label yet: {n_waiting:,}; labels without a row here: {n_unused:,}; "
            f"rows that were counted before: {n_counted:,}."
        )
    if joined.n_rows:
        groups = None if groups is None else groups[joined.is_kept]
        monitor.update(joined, groups=groups, period=period)
        monitor.counts.add_ids(joined.keys)


def _measure_from(monitor: CoverageMonitor, reference: str, read: Input) -> None:
    from dataclasses import replace

    if monitor.counts.sizes[0].any():
        raise InputError("The state has a --reference already; drift is measured from one.")
    plain = replace(read, labels=None, ids=None, row_groups=None)
    monitor.observe(plain.open(reference, "reading the reference"), reference=True)


def _show(monitor: CoverageMonitor, found: dict[str, Any], top: int) -> None:
    print_text(
        f"{found['rows']:,} labelled rows, coverage {_share(found['coverage'])}; every class is "
        f"held to {monitor.promised:.4g} or more (alpha {monitor.predictor.alpha}, tolerance "
        f"{monitor.tolerance:g})"
    )
    titles = ["class", "rows", "coverage", "from", "to", "e-value", "e-value of\nchange", "alarm"]
    classes = [each for each in found["classes"] if each["rows"]][:top]
    if classes:
        print_table(titles, [_cells(each) for each in classes], least=["e-value of\nchange"])
    n_seen = sum(each["rows"] > 0 for each in found["classes"])
    if n_seen > len(classes):
        shown = "class" if len(classes) == 1 else f"{len(classes)} classes"
        print_text(f"The {shown} with the strongest evidence, of {n_seen} with rows.")
    for each in ("promise", "overall", "change"):
        print_text(found[each]["says"])
    drifted = [each for each in found["drift"] if each["drifted"]]
    for drift in drifted[:top]:
        print_text(f"Drift: {drift['what']} were {drift['before']:.1%}, are {drift['now']:.1%}.")
    if drifted:
        print_text("Drift says nothing about coverage.")
    elif found["drift"]:
        print_text("Set sizes and predicted classes come as they did in the reference rows.")


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _cells(each: dict[str, Any]) -> list[str]:
    low, high = each["interval"]
    change = "" if each["change_e_value"] is None else f"{each['change_e_value']:.3g}"
    alarm = " ".join(
        word for word, is_on in (("broken", each["alarm"]), ("worse", each["changed"])) if is_on
    )
    numbers = [f"{each['rows']:,}", _share(each["coverage"]), f"{low:.3f}", f"{high:.3f}"]
    return [str(each["class"]), *numbers, f"{each['e_value']:.3g}", change, alarm]
