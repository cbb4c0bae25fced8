"""A snapshot of a monitor: everything is read in one transaction, and computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.monitoring.evidence import (
    Urn,
    coverage_limits,
    e_values,
    log_mean_e,
    raised,
    shortfall_log_e,
    since_restarts,
    urn_log_e,
    with_restarts,
)
from evencover.monitoring.state import OVERALL, ModelEntry, MonitorState

STRONGEST = 20  # classes whose periods are included


class Evidence(NamedTuple):
    """Give an e-value, and whether it raises an alarm."""

    e_value: float
    alarm: bool


class PeriodCounts(NamedTuple):
    """Count the labeled examples of a class in a period; class -1 is all classes."""

    class_index: int
    period: str
    rows: int
    covered: int


@dataclass(frozen=True, eq=False)
class ClassEvidence:
    """Counts and log evidence of each class, up to a version of the state."""

    version: int
    counts: IntArray  # (4, K) labeled examples: all, covered, scored, and within their quantile
    total: IntArray  # (4,) the same of all, with those of unknown classes
    log_e: FloatArray  # (K,)
    log_shift: FloatArray  # (K,)
    overall_log_e: float = 0.0
    began: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def none(cls, n_classes: int) -> ClassEvidence:
        """Return the evidence without any label."""
        counts = np.zeros((4, n_classes), dtype=np.int64)
        return cls(0, counts, counts[:, 0], np.zeros(n_classes), np.zeros(n_classes))

    @cached_property
    def strongest(self) -> IntArray:
        """(K,) all classes, those with the strongest evidence first."""
        return _order(np.maximum(self.log_e, self.log_shift))

    def advanced(
        self, version: int, blocks: Sequence[Any], targets: FloatArray, urn: Urn | None
    ) -> ClassEvidence:
        """Return the evidence with all blocks of the classes that changed, sorted by class."""
        if not blocks:
            return self
        table = np.array([row[:6] for row in blocks], dtype=np.int64)
        of_row, table = table[:, 0], table[:, 2:]
        classes, starts = np.unique(of_row, return_index=True)  # OVERALL, the first, always changes
        later, earlier = since_restarts(table, starts)
        row_targets = np.where(of_row == OVERALL, targets.min(), targets[of_row])
        log_e, strongest = with_restarts(
            shortfall_log_e(later[:, 1], later[:, 0] - later[:, 1], row_targets), starts
        )
        log_shift = np.zeros(len(classes))
        if urn is not None:
            ranks, known = (np.where(of_row == OVERALL, 0, n[of_row]) for n in urn[:2])
            before = earlier[:, 3], earlier[:, 2] - earlier[:, 3]
            shift = urn_log_e(later[:, 3], later[:, 2] - later[:, 3], ranks, known, before)
            log_shift, shifted = with_restarts(shift, starts)
            strongest = np.where(log_shift > log_e, shifted, strongest)
        totals = np.add.reduceat(table, starts, axis=0)
        began = {y: blocks[row].period for y, row in zip(classes.tolist(), strongest, strict=True)}
        named = classes[1:]
        return ClassEvidence(
            version,
            _replaced(self.counts, named, totals[1:].T),
            totals[0],
            _replaced(self.log_e, named, log_e[1:]),
            _replaced(self.log_shift, named, log_shift[1:]),
            float(log_e[0]),
            {**self.began, **began},
        )


def _replaced(values: Array, classes: IntArray, new: Array) -> Any:
    values = values.copy()
    values[..., classes] = new
    values.setflags(write=False)
    return values


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The findings of a monitor at one moment.

    `alarms`, `any_class` and `overall` test coverage below target; `shifts` and `any_shift` the
    scores since calibration.
    """

    model: ModelEntry
    evidence: ClassEvidence
    tests_shift: bool  #: whether the predictor keeps calibration scores to compare with
    periods: Sequence[PeriodCounts]  #: of all classes together, and of the strongest evidence
    waiting: int  #: labels that wait for their row
    expired: int  #: rows that were removed without a label, past the retention

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
        n_rows, n_covered = self.evidence.total[:2].tolist()
        return n_rows, n_covered

    @cached_property
    def e_values(self) -> FloatArray:
        """(K,) evidence as e-values: at level 0.05, 20 is an alarm for a single class."""
        return e_values(self.evidence.log_e)

    @cached_property
    def alarms(self) -> IntArray:
        """The classes below target, those with the strongest evidence first."""
        return self._raised(self.evidence.log_e)

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

    @cached_property
    def shifts(self) -> IntArray:
        """The classes whose scores shifted since calibration."""
        return self._raised(self.evidence.log_shift)

    @property
    def any_shift(self) -> Evidence:
        """Whether the scores of any class shifted since calibration."""
        return self._test(log_mean_e(self.evidence.log_shift))

    @property
    def alarm(self) -> bool:
        """Whether any test has an alarm."""
        return self.any_class.alarm or self.overall.alarm or self.any_shift.alarm

    @cached_property
    def coverage_interval(self) -> FloatArray:
        """(K, 2) limits of coverage: of all classes, at all times, with probability 1 - level."""
        level = self.model.false_alarm / self.model.n_classes
        return coverage_limits(self.covered, self.rows - self.covered, level)

    @property
    def unknown_labels(self) -> int:
        """The number of labels that are not among the classes."""
        return int(self.evidence.total[0] - self.rows.sum())

    def summary(self) -> dict[str, Any]:
        """Return every class, the strongest evidence first, and the result of each test.

        The classes with the strongest evidence come with their coverage by period.
        """
        model, shift = self.model, self.evidence.log_shift
        names = model.class_names or range(model.n_classes)
        history: dict[int, list[dict[str, Any]]] = {OVERALL: []}
        for y, period, n_rows, n_covered in self.periods:
            of_period = {"period": period, "rows": n_rows, "coverage": n_covered / n_rows}
            history.setdefault(y, []).append(of_period)
        alarms, shifts = set(self.alarms.tolist()), set(self.shifts.tolist())
        order = self.evidence.strongest
        columns: list[Any] = [self.rows, self.covered / np.maximum(self.rows, 1)]
        columns += [model.targets, self.coverage_interval, self.e_values]
        columns.append(e_values(shift) if self.tests_shift else np.full(len(order), None))
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
                "since": self.evidence.began.get(y) if y in alarms or y in shifts else None,
            }
            for y, n_rows, coverage, target, interval, e_value, shift_e_value in zip(
                *lists, strict=True
            )
        ]
        for row in classes[:STRONGEST]:
            row["periods"] = history.get(row["index"], [])
        n_rows, n_covered = self.totals
        return {
            "rows": n_rows,
            "coverage": n_covered / n_rows if n_rows else None,
            "false_alarm": model.false_alarm,
            "tolerance": model.tolerance,
            "target": float(model.targets.min()),
            "alarm": self.alarm,
            "alarm_level": {"one": 1 / model.false_alarm, "class": self.alarm_level},
            "below_target": {**self.any_class._asdict(), "message": _below(self)},
            "overall": {**self.overall._asdict(), "message": _overall(self)},
            "score_shift": {**self.any_shift._asdict(), "message": _shift(self)},
            "waiting": self.waiting,
            "expired": self.expired,
            "unknown_labels": self.unknown_labels,
            "periods": history[OVERALL],
            "classes": classes,
        }

    def _test(self, log_e: float) -> Evidence:
        return Evidence(float(e_values(log_e)), bool(log_e >= -np.log(self.model.false_alarm)))

    def _raised(self, log_e: FloatArray) -> IntArray:
        n_raised = int(raised(log_e, self.model.false_alarm).sum())
        return _order(log_e)[:n_raised]


def _below(snapshot: Snapshot) -> str:
    n_alarms, targets = len(snapshot.alarms), snapshot.model.targets
    target = "its target"
    if targets.min() == targets.max():
        tolerance = f"{100 * snapshot.model.tolerance:.4g}%"
        target = f"{100 * targets[0]:.4g}%, the target less a tolerance of {tolerance}"
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


def _order(log_e: FloatArray) -> IntArray:
    return np.argsort(-log_e, kind="stable")


def read_snapshot(
    state: MonitorState, model: ModelEntry, urn: Urn | None, known: ClassEvidence
) -> Snapshot:
    """Read the state of a model in one transaction; compute only what changed since `known`."""
    with state.reading() as run:
        (row,) = run("SELECT version FROM models WHERE model = ?", model.key)
        if row.version < known.version:  # the state was restored from an older copy
            known = ClassEvidence.none(model.n_classes)
        blocks = run(
            "SELECT class_index, block, SUM(rows), SUM(covered), SUM(scored), SUM(within), "
            "MIN(period) AS period FROM counts WHERE model = ? AND class_index IN "
            "(SELECT class_index FROM counts WHERE model = ? AND version > ?) "
            "GROUP BY class_index, block ORDER BY class_index, block",
            *(model.key, model.key, known.version),
        )
        evidence = known.advanced(row.version, blocks, model.targets, urn)
        top = evidence.strongest[:STRONGEST].tolist()
        periods = read_periods(run, model.key, [OVERALL, *top])
        (waiting,) = run("SELECT COUNT(*) AS labels FROM waiting")
        (state_row,) = run("SELECT expired FROM state")
    shift = urn is not None
    return Snapshot(model, evidence, shift, periods, waiting.labels, state_row.expired)


def read_periods(run: Any, model: int, classes: Sequence[int] | None = None) -> list[PeriodCounts]:
    """Return the counts by class and period, of some classes or of all."""
    chosen = "" if classes is None else f"AND class_index IN ({', '.join('?' * len(classes))})"
    rows = run(
        "SELECT class_index, period, CAST(SUM(rows) AS BIGINT), CAST(SUM(covered) AS BIGINT) "
        f"FROM counts WHERE model = ? {chosen} GROUP BY class_index, period HAVING SUM(rows) > 0 "
        "ORDER BY class_index, period",
        *(model, *(classes or ())),
    )
    return [PeriodCounts(*row) for row in rows]
