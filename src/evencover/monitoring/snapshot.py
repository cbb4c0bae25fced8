"""The findings of a monitor at one moment: tests, recent coverage, and their messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import FloatArray, IntArray
from evencover.evaluation.statistics import clopper_pearson
from evencover.monitoring.counts import ClassEvidence, LabelLog, PeriodCounts
from evencover.monitoring.evidence import e_values, log_mean_e, raised
from evencover.monitoring.state import OVERALL, WAITING, ModelEntry, MonitorState

MOST_NAMED = 20  # classes in alarm whose periods are included
LATEST = 1000  # labels whose coverage is shown next to that of all


class Evidence(NamedTuple):
    """Give an e-value, and whether it raises an alarm."""

    e_value: float
    alarm: bool


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The findings of a monitor at one moment.

    `alarms`, `any_class` and `overall` test coverage below target; `shifts` and `any_shift` the
    scores since calibration.
    """

    model: ModelEntry
    evidence: ClassEvidence
    tests_shift: bool  #: whether the predictor keeps calibration scores to compare with
    counts: Sequence[int]  #: of all labels: all, covered, with a score, within, answered, right
    latest: Sequence[int]  #: the same of the last `LATEST` labels
    periods: Sequence[PeriodCounts]  #: of all classes together, and of the strongest evidence
    since: Mapping[int, str]  #: the period in which the evidence of each class in alarm began
    waiting: int  #: labels that wait for their row
    expired: int  #: rows that were removed without a label, past the retention
    alarms: IntArray  #: the classes below target, those with the strongest evidence first
    shifts: IntArray  #: the classes whose scores shifted since calibration, in the same order

    @property
    def rows(self) -> IntArray:
        """(K,) labeled examples of each class."""
        return self.evidence.counts[0]

    @property
    def covered(self) -> IntArray:
        """(K,) those whose set contains their label."""
        return self.evidence.counts[1]

    @property
    def totals(self) -> tuple[int, int]:
        """Labeled examples, and those that are covered, with labels of unknown classes."""
        return self.counts[0], self.counts[1]

    @property
    def unknown_labels(self) -> int:
        """The number of labels that are not among the classes."""
        return self.totals[0] - int(self.rows.sum())

    @cached_property
    def e_values(self) -> FloatArray:
        """(K,) evidence as e-values: at level 0.05, 20 is an alarm for a single class."""
        return e_values(self.evidence.log_e)

    @property
    def alarm_level(self) -> float:
        """The e-value at which `alarms` has one more class."""
        n_alarms = min(len(self.alarms) + 1, self.model.n_classes)
        return self.model.n_classes / (n_alarms * self.model.false_alarm)

    @property
    def any_class(self) -> Evidence:
        """Whether any class is below target: an alarm whenever `alarms` has one, or sooner."""
        return self._test(log_mean_e(self.evidence.log_e))

    @property
    def overall(self) -> Evidence:
        """Whether all examples together are below target."""
        return self._test(self.evidence.overall_log_e)

    @property
    def any_shift(self) -> Evidence:
        """Whether the scores of any class shifted since calibration."""
        return self._test(log_mean_e(self.evidence.log_shift))

    def _test(self, log_e: float) -> Evidence:
        return Evidence(float(e_values(log_e)), bool(log_e >= -np.log(self.model.false_alarm)))

    def tests(self) -> dict[str, Evidence]:
        """Return the result of each test by its name in `summary`."""
        tests = self.any_class, self.overall, self.any_shift
        return dict(zip(("below_target", "overall", "score_shift"), tests, strict=True))

    @property
    def alarm(self) -> bool:
        """Whether any test has an alarm."""
        return any(evidence.alarm for evidence in self.tests().values())

    @property
    def coverage_interval(self) -> FloatArray:
        """(K, 2) limits of coverage: of all classes, at all times, with probability 1 - level."""
        return self.evidence.limits.T

    def recent(self) -> dict[str, dict[str, Any]]:
        """Return coverage of all labels, of the last ones and of the latest period.

        The limits hold for one look (Clopper-Pearson, 95%): this is for display and tests nothing.
        """
        of_all = [row for row in self.periods if row.class_index == OVERALL]
        _, period, *of_period = (of_all or [PeriodCounts(OVERALL, "", 0, 0)])[-1]
        found = {
            "all": _share("coverage", *self.counts[:2]),
            "latest_labels": _share("coverage", *self.latest[:2]),
            "latest_period": _share("coverage", *of_period) | {"period": period},
        }
        for part in found.values():
            part["below_target"] = part["interval"][1] < float(self.model.targets.min())
        return found

    def answers(self) -> dict[str, Any] | None:
        """Return the accuracy of answered rows with its limits for one look; None without any."""
        return _share("accuracy", *self.counts[4:]) if self.counts[4] else None

    def summary(self) -> dict[str, Any]:
        """Return every class, the strongest evidence first, and the result of each test.

        Classes in alarm, 20 of each test, come with their coverage by period.
        """
        recent, messages, history = self.recent(), _messages(self), dict[int, list[Any]]()
        for y, period, n_rows, n_covered in self.periods:
            of_period = {"period": period, "rows": n_rows, "coverage": n_covered / n_rows}
            history.setdefault(y, []).append(of_period)
        return {
            "rows": recent["all"]["rows"],
            "coverage": recent["all"]["coverage"],
            "false_alarm": self.model.false_alarm,
            "tolerance": self.model.tolerance,
            "target": float(self.model.targets.min()),
            "alarm": self.alarm,
            "alarm_level": {"one": 1 / self.model.false_alarm, "class": self.alarm_level},
            **{
                name: {**evidence._asdict(), "message": messages[name]}
                for name, evidence in self.tests().items()
            },
            "recent": {**recent, "message": messages["recent"]},
            "answers": self.answers(),
            "waiting": self.waiting,
            "expired": self.expired,
            "unknown_labels": self.unknown_labels,
            "periods": history.pop(OVERALL, []),
            "classes": self._classes(history),
        }

    def _classes(self, history: Mapping[int, list[Any]]) -> list[dict[str, Any]]:
        """Describe every class, the strongest evidence first."""
        names, order = self.model.class_names or range(self.model.n_classes), self.evidence.order
        alarms, shifts = set(self.alarms.tolist()), set(self.shifts.tolist())
        shift = e_values(self.evidence.log_shift) if self.tests_shift else np.full(len(order), None)
        indices, targets = np.arange(len(order)), self.model.targets
        columns = indices, targets, self.rows, self.covered, self.coverage_interval, self.e_values
        return [
            {
                "class": names[y],
                "index": y,
                "rows": n_rows,
                "coverage": covered / n_rows if n_rows else None,
                "target": target,
                "interval": interval,
                "e_value": e_value,
                "shift_e_value": shifted,
                "alarm": y in alarms,
                "shifted": y in shifts,
                "since": self.since.get(y),
                **({"periods": history[y]} if y in history else {}),
            }
            for y, target, n_rows, covered, interval, e_value, shifted in zip(
                *(column[order].tolist() for column in (*columns, shift)), strict=True
            )
        ]


def _share(name: str, n_rows: int, n_hits: int) -> dict[str, Any]:
    """Return a share of rows by a name, None for no rows, with its limits for one look."""
    interval = clopper_pearson(n_hits, n_rows).tolist()
    return {"rows": n_rows, name: n_hits / n_rows if n_rows else None, "interval": interval}


def _messages(found: Snapshot) -> dict[str, str]:
    """Return the result of each test, and recent coverage, in a sentence."""
    targets, least = found.model.targets, f"{100 * found.model.targets.min():.4g}%"
    target = f"{least}, the target less a tolerance of {100 * found.model.tolerance:.4g}%"
    target = target if targets.min() == targets.max() else "its target"
    below = f"No class is significantly below {target}."
    if n_alarms := len(found.alarms):
        whose = "1 class is" if n_alarms == 1 else f"{n_alarms:,} classes are"
        below = f"ALARM: {whose} likely below {target}."
    elif found.any_class.alarm:
        below = f"ALARM: at least one class is likely below {target}; none is identified yet."
    overall = f"Overall coverage is not significantly below {least}."
    if found.overall.alarm:
        overall = f"ALARM: overall coverage is likely below {least}."
    shift = "No class has a significant score shift since calibration."
    if not found.tests_shift:
        shift = "Score shift cannot be tested: the model keeps no calibration scores."
    elif found.any_shift.alarm:
        n_shifts = len(found.shifts)
        whose = {0: "at least one class", 1: "1 class"}.get(n_shifts, f"{n_shifts:,} classes")
        shift = f"ALARM: the scores of {whose} likely shifted since calibration."
    parts = found.recent()
    names = {
        "latest_period": f"period {parts['latest_period']['period']}",
        "latest_labels": f"the last {parts['latest_labels']['rows']:,} labels",
    }
    low = " and ".join(
        "{:.1%} of {} (95% interval {:.1%} to {:.1%})".format(
            parts[part]["coverage"], name, *parts[part]["interval"]
        )
        for part, name in names.items()
        if parts[part]["below_target"]
    )
    recent = f"NOTE: recent coverage is below {least}: {low}."
    recent = recent if low else f"Recent coverage is not clearly below {least}."
    return {"below_target": below, "overall": overall, "score_shift": shift, "recent": recent}


def read_snapshot(state: MonitorState, log: LabelLog) -> Snapshot:
    """Read what is new in a state, in one transaction; return the findings."""
    model = log.model
    with state.reading() as run:
        log.advance(run)
        (waiting,) = run("SELECT COUNT(DISTINCT id) AS n FROM labels WHERE model = ?", WAITING)
        (state_row,) = run("SELECT expired FROM state")
    evidence = log.evidence
    alarms, shifts = (
        _raised(log_e, model.false_alarm) for log_e in (evidence.log_e, evidence.log_shift)
    )
    named = np.append(alarms[:MOST_NAMED], shifts[:MOST_NAMED])
    since, shift = log.since(np.union1d(alarms, shifts)), log.urn is not None
    labels = evidence.totals.tolist(), log.latest(LATEST).tolist(), log.periods(named), since
    rest = waiting.n, state_row.expired, alarms, shifts
    return Snapshot(model, evidence, shift, *labels, *rest)


def _raised(log_e: FloatArray, level: float) -> IntArray:
    """Return the classes in alarm, those with the strongest evidence first."""
    named = np.flatnonzero(raised(log_e, level))
    return named[np.argsort(-log_e[named], kind="stable")]
