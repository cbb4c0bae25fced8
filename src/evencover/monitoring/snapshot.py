"""A snapshot of a monitor: everything is read in one transaction, and computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.evaluation.statistics import clopper_pearson
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
from evencover.monitoring.state import COUNTS, OVERALL, ModelEntry, MonitorState

MOST_NAMED = 20  # classes in alarm whose periods are included
LATEST = 1000  # labels whose coverage is shown next to that of all
EMPTY = 0, 0, 0, 0, None  # a block whose labels were all replaced
_TOTALS = "SUM(covered)", "COUNT(is_within)", "SUM(is_within)"
SUMS = ", ".join(["COUNT(covered)", *(f"CAST(COALESCE({sum_}, 0) AS BIGINT)" for sum_ in _TOTALS)])
# What labels after a number change: their own blocks, and those of labels that they replace.
CHANGED = """WITH new AS (
    SELECT class_index, class_block, block, replaces FROM labels WHERE model = ? AND number > ?
), changed AS (
    SELECT class_index, class_block, block FROM new
    UNION SELECT old.class_index, old.class_block, old.block
    FROM new JOIN labels AS old ON old.model = ? AND old.number = new.replaces
)"""


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
    """Counts and log evidence of each class."""

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
        return cls(counts, counts[:, 0], np.zeros(n_classes), np.zeros(n_classes))

    @cached_property
    def strongest(self) -> IntArray:
        """(K,) all classes, those with the strongest evidence first."""
        return _order(np.maximum(self.log_e, self.log_shift))

    def advanced(
        self, blocks: Sequence[Any], targets: FloatArray, urn: Urn | None
    ) -> ClassEvidence:
        """Return the evidence with all blocks of the classes that changed, sorted by class."""
        if not blocks:
            return self
        table = np.array([row[:5] for row in blocks], dtype=np.int64)
        of_row, table = table[:, 0], table[:, 1:]
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
        began = {y: blocks[row][5] for y, row in zip(classes.tolist(), strongest, strict=True)}
        named = classes[1:]
        return ClassEvidence(
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
    latest: tuple[int, int]  #: of the last `LATEST` labels: how many there are, and are covered
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
        n_rows, n_covered = self.evidence.total[:2].tolist()
        return n_rows, n_covered

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

    def tests(self) -> dict[str, Evidence]:
        """Return the result of each test by its name in `summary`."""
        return {
            "below_target": self.any_class,
            "overall": self.overall,
            "score_shift": self.any_shift,
        }

    @property
    def alarm(self) -> bool:
        """Whether any test has an alarm."""
        return any(evidence.alarm for evidence in self.tests().values())

    @cached_property
    def coverage_interval(self) -> FloatArray:
        """(K, 2) limits of coverage: of all classes, at all times, with probability 1 - level."""
        level = self.model.false_alarm / self.model.n_classes
        return coverage_limits(self.covered, self.rows - self.covered, level)

    def recent(self) -> dict[str, dict[str, Any]]:
        """Return coverage of all labels, of the last ones and of the latest period.

        The limits hold for one look (Clopper-Pearson, 95%): this is for display and tests nothing.
        """
        _, period, *of_period = next(
            (row for row in reversed(self.periods) if row.class_index == OVERALL),
            PeriodCounts(OVERALL, "", 0, 0),
        )
        parts = {"all": self.totals, "latest_labels": self.latest, "latest_period": of_period}
        found = {}
        for name, (n_rows, n_covered) in parts.items():
            low, high = clopper_pearson(n_covered, n_rows).tolist()
            found[name] = {
                "rows": n_rows,
                "coverage": n_covered / n_rows if n_rows else None,
                "interval": [low, high],
                "below_target": high < float(self.model.targets.min()),
            }
        found["latest_period"]["period"] = period
        return found

    @property
    def unknown_labels(self) -> int:
        """The number of labels that are not among the classes."""
        return int(self.evidence.total[0] - self.rows.sum())

    def summary(self) -> dict[str, Any]:
        """Return every class, the strongest evidence first, and the result of each test.

        Classes in alarm, 20 of each test, come with their coverage by period.
        """
        model, shift = self.model, self.evidence.log_shift
        names = model.class_names or range(model.n_classes)
        history: dict[int, list[dict[str, Any]]] = {OVERALL: []}
        for y, period, n_rows, n_covered in self.periods:
            of_period = {"period": period, "rows": n_rows, "coverage": n_covered / n_rows}
            history.setdefault(y, []).append(of_period)
        alarms, shifts = set(self.alarms.tolist()), set(self.shifts.tolist())
        order = self.evidence.strongest
        shift_e_values = e_values(shift) if self.tests_shift else np.full(len(order), None)
        covered = self.covered / np.maximum(self.rows, 1)
        columns = self.rows, covered, model.targets, self.coverage_interval, self.e_values
        lists = (column[order].tolist() for column in (*columns, shift_e_values))
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
                order.tolist(), *lists, strict=True
            )
        ]
        for row in classes:
            if row["index"] in history:
                row["periods"] = history[row["index"]]
        recent, messages = self.recent(), _messages(self)
        return {
            "rows": recent["all"]["rows"],
            "coverage": recent["all"]["coverage"],
            "false_alarm": model.false_alarm,
            "tolerance": model.tolerance,
            "target": float(model.targets.min()),
            "alarm": self.alarm,
            "alarm_level": {"one": 1 / model.false_alarm, "class": self.alarm_level},
            **{
                name: {**evidence._asdict(), "message": messages[name]}
                for name, evidence in self.tests().items()
            },
            "recent": {**recent, "message": _recent(self, recent)},
            "waiting": self.waiting,
            "expired": self.expired,
            "unknown_labels": self.unknown_labels,
            "periods": history[OVERALL],
            "classes": classes,
        }

    def _test(self, log_e: float) -> Evidence:
        return Evidence(float(e_values(log_e)), bool(log_e >= -np.log(self.model.false_alarm)))


def _messages(found: Snapshot) -> dict[str, str]:
    """Return the result of each test in a sentence."""
    targets, least = found.model.targets, f"{100 * found.model.targets.min():.4g}%"
    target = f"{least}, the target less a tolerance of {100 * found.model.tolerance:.4g}%"
    target = target if targets.min() == targets.max() else "its target"
    below = f"No class is significantly below {target}."
    if found.any_class.alarm:
        below = f"ALARM: at least one class is likely below {target}; none is identified yet."
    if n_alarms := len(found.alarms):
        whose = "1 class is" if n_alarms == 1 else f"{n_alarms:,} classes are"
        below = f"ALARM: {whose} likely below {target}."
    overall = f"Overall coverage is not significantly below {least}."
    if found.overall.alarm:
        overall = f"ALARM: overall coverage is likely below {least}."
    shift = "No class has a significant score shift since calibration."
    if not found.tests_shift:
        shift = "Score shift cannot be tested: the model keeps no calibration scores."
    elif found.any_shift.alarm:
        n_shifts = len(found.shifts)
        whose = "1 class" if n_shifts == 1 else f"{n_shifts:,} classes"
        whose = whose if n_shifts else "at least one class"
        shift = f"ALARM: the scores of {whose} likely shifted since calibration."
    return {"below_target": below, "overall": overall, "score_shift": shift}


def _recent(snapshot: Snapshot, recent: dict[str, Any]) -> str:
    low = [
        f"{row['coverage']:.1%} of {what} (95% interval {row['interval'][0]:.1%} to "
        f"{row['interval'][1]:.1%})"
        for row, what in (
            (recent["latest_period"], f"period {recent['latest_period']['period']}"),
            (recent["latest_labels"], f"the last {recent['latest_labels']['rows']:,} labels"),
        )
        if row["below_target"]
    ]
    target = f"{100 * snapshot.model.targets.min():.4g}%"
    if low:
        return f"NOTE: recent coverage is below {target}: {' and '.join(low)}."
    return f"Recent coverage is not clearly below {target}."


def _order(log_e: FloatArray) -> IntArray:
    return np.argsort(-log_e, kind="stable")


def _raised(log_e: FloatArray, level: float) -> IntArray:
    """Return the classes in alarm, those with the strongest evidence first."""
    named = np.flatnonzero(raised(log_e, level))
    return named[_order(log_e[named])]


class LabelBlocks:
    """The labels that count of a model, by class and block, up to the last one that was read.

    All of it follows from the table of labels, and may be forgotten at any time.
    """

    def __init__(self, model: ModelEntry, urn: Urn | None) -> None:
        self.model, self._urn = model, urn
        self.tests_shift = urn is not None
        self._forget()

    def _forget(self) -> None:
        self.evidence = ClassEvidence.none(self.model.n_classes)
        self._last: Any = -1, None, None  # the last label: its number, moment and id
        self._blocks: dict[int, dict[int, Any]] = {}  # of each class: four sums, the first period
        self._periods: dict[int, list[Any]] = {}  # of each block of all labels: sums by period

    def advance(self, run: Any) -> None:
        """Count the labels of changed blocks, and compute the evidence of their classes."""
        model = self.model.key
        sql = "SELECT number, moment, id FROM labels WHERE model = ? AND number ="
        if run(f"{sql} ?", model, self._last[0]) != [self._last]:
            self._forget()  # nothing was read yet, or the state was restored from a copy
        last = run(f"{sql} (SELECT MAX(number) FROM labels WHERE model = ?)", model, model)
        if last in ([], [self._last]):
            return
        changed = {OVERALL}
        for y, block, *sums in self._sums(run, "class_index, class_block", "MIN(period)"):
            self._blocks.setdefault(y, {})[block] = sums
            changed.add(y)
        periods: dict[int, list[Any]] = {}
        for block, *sums in self._sums(run, "block", "period"):
            periods.setdefault(block, []).append(sums)
        self._periods |= periods
        overall = self._blocks.setdefault(OVERALL, {})
        for block, parts in periods.items():
            *sums, names = zip(*parts, strict=True)
            overall[block] = [*map(sum, sums), min(filter(None, names), default=None)]
        (self._last,) = last
        blocks = [
            (y, *self._blocks[y].get(block, EMPTY))
            for y in sorted(changed)
            for block in range(max(self._blocks[y]) + 1)
        ]
        self.evidence = self.evidence.advanced(blocks, self.model.targets, self._urn)

    def _sums(self, run: Any, keys: str, period: str) -> list[Any]:
        """Count the labels of each block that later labels change."""
        which, by = ("WHERE class_index >= 0", "") if "class" in keys else ("", ", period")
        if self._last[0] < 0:  # all of them
            labels = f"(SELECT * FROM labels {which}) AS labels WHERE model = ? AND {COUNTS}"
            sql = f"SELECT {keys}, {SUMS}, {period} FROM {labels} GROUP BY {keys}{by}"
            return run(sql, self.model.key)
        return run(
            f"{CHANGED}, chosen AS (SELECT DISTINCT {keys} FROM changed {which}) "
            f"SELECT {keys}, {SUMS}, {period} FROM chosen "
            f"LEFT JOIN (SELECT * FROM labels WHERE model = ? AND {COUNTS}) AS labels "
            f"USING ({keys}) GROUP BY {keys}{by}",
            *(self.model.key, self._last[0], self.model.key, self.model.key),
        )

    def periods(self) -> list[PeriodCounts]:
        """Return the counts of all labels by period."""
        totals: dict[str, list[int]] = {}
        for n_rows, n_covered, *_, period in chain.from_iterable(self._periods.values()):
            if n_rows:
                total = totals.setdefault(period, [0, 0])
                total[:] = total[0] + n_rows, total[1] + n_covered
        return [PeriodCounts(OVERALL, period, *totals[period]) for period in sorted(totals)]


def read_snapshot(state: MonitorState, counted: LabelBlocks) -> Snapshot:
    """Read the state of a model in one transaction; compute only what has changed."""
    model = counted.model
    with state.reading() as run:
        counted.advance(run)
        evidence = counted.evidence
        alarms, shifts = (
            _raised(log_e, model.false_alarm) for log_e in (evidence.log_e, evidence.log_shift)
        )
        named = [*alarms[:MOST_NAMED].tolist(), *shifts[:MOST_NAMED].tolist()]
        periods = [*counted.periods(), *(read_periods(run, model.key, named) if named else ())]
        covered = f"SELECT covered FROM labels WHERE model = ? AND {COUNTS} ORDER BY number DESC"
        (latest,) = run(
            "SELECT COUNT(*) AS rows, COALESCE(CAST(SUM(covered) AS BIGINT), 0) AS covered "
            f"FROM ({covered} LIMIT {LATEST}) AS latest",
            model.key,
        )
        (waiting,) = run("SELECT COUNT(*) AS labels FROM waiting")
        (state_row,) = run("SELECT expired FROM state")
    rest = waiting.labels, state_row.expired, (latest.rows, latest.covered), alarms, shifts
    return Snapshot(model, evidence, counted.tests_shift, periods, *rest)


def read_periods(run: Any, model: int, classes: Sequence[int] = ()) -> list[PeriodCounts]:
    """Return the counts of classes by period; without any, of all classes and of all labels."""
    total = "COUNT(*), CAST(SUM(covered) AS BIGINT) FROM labels"
    where = f"WHERE model = ? AND {COUNTS} AND class_index"
    chosen = f"IN ({', '.join(map(str, classes))})" if classes else ">= 0"
    of_class = f"SELECT class_index, period, {total} {where} {chosen} GROUP BY class_index, period"
    of_all = f"SELECT {OVERALL}, period, {total} {where} IS NOT NULL GROUP BY period"
    parts = [of_class] if classes else [of_all, of_class]
    return sorted(PeriodCounts(*row) for sql in parts for row in run(sql, model))
