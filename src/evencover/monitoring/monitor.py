"""CoverageMonitor: rows and labels into a state, and a snapshot of the evidence that follows."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.data.fingerprint import Sampler
from evencover.data.source import Block, Source
from evencover.engine.blocks import map_source
from evencover.errors import InputError, listed, warn_caller
from evencover.ids import id_keys
from evencover.monitoring.evidence import Urn
from evencover.monitoring.snapshot import (
    ClassEvidence,
    PeriodCounts,
    Snapshot,
    read_periods,
    read_snapshot,
)
from evencover.monitoring.state import (
    LabelCounts,
    ModelEntry,
    MonitorState,
    ServedRows,
    pack_sets,
    signed,
    today,
)
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import require_labels, warn_of_mismatch
from evencover.predictors.fit import digest
from evencover.predictors.rule import SetRule
from evencover.predictors.shift_checks import about_copies
from evencover.quantiles import Thresholds, exact_fraction
from evencover.sets import PredictionSets
from evencover.validation import real_number


def pack_block(rule: SetRule, within_rule: SetRule | None, block: Block) -> tuple[list[Any], ...]:
    """Return keys, packed sets, packed sets within the quantiles, and labels of a block."""
    members = pack_sets(rule.sets(block))
    within = [None] * len(members) if within_rule is None else pack_sets(within_rule.sets(block))
    keys = [] if block.ids is None else signed(block.ids)
    return keys, members, within, [] if block.labels is None else block.labels.tolist()


class CoverageMonitor:
    """Track the coverage of every class as labels come in.

    The tests stay valid at any number of looks, and over all classes at once. Each has its own
    level `false_alarm`:

    - *Coverage below target*: `Snapshot.alarms`, `any_class` and `overall` test that coverage is
      at least 1 - alpha - tolerance. Of the classes in alarm, at most a fraction `false_alarm` is
      wrong on average. While every class meets the target, the probability that there is ever an
      alarm is at most `false_alarm`. This applies to every method, guaranteed or not. Sets count
      as served, with the class that `keep_top` adds, which can only make alarms rarer.
    - *Score shift*: `Snapshot.shifts`. With few calibration examples many classes are below target
      from the start; this test accounts for that noise. It counts how many scores of a class's new
      examples are within the conformal quantile of its own calibration scores (CLASSWISE's
      threshold), for every method and without `keep_top`: only this count has an exact
      distribution.

    The level holds if the arrival of labels does not depend on the outcome. Labels that arrive
    sooner for misses, or for hard classes, invalidate it. Rows of one call count in a random order.

    Parameters
    ----------
    predictor
        A calibrated predictor.
    false_alarm
        The level of each test, in (0, 1); 0.05 in a new state.
    tolerance
        How far below 1 - alpha coverage may be without an alarm; 0.02 in a new state.
    state
        A SQLite file, ``postgresql://...``, or a `MonitorState`; None keeps the state in memory.
        A state may have any number of models and processes.

    >>> from evencover import ClasswisePredictor
    >>> rows = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]] * 20
    >>> predictor = ClasswisePredictor(alpha=0.1).fit(rows, [0, 0, 1] * 20)
    >>> monitor = CoverageMonitor(predictor)
    >>> monitor.update([[0.9, 0.1]] * 40, [1] * 40)
    LabelCounts(counted=40, corrected=0, repeated=0, waiting=0)
    >>> monitor.snapshot().alarms.tolist()
    [1]
    """

    def __init__(
        self,
        predictor: BasePredictor,
        false_alarm: float | None = None,
        tolerance: float | None = None,
        *,
        state: MonitorState | str | os.PathLike[str] | None = None,
    ) -> None:
        self._fit = predictor._current_fit()
        asked = {"false_alarm": false_alarm, "tolerance": tolerance}
        level = exact_fraction(
            0.05 if false_alarm is None else false_alarm, "false_alarm", "CoverageMonitor"
        )
        least = 0.02 if tolerance is None else tolerance
        least = real_number(least, "tolerance", "CoverageMonitor", 0)
        coverage = 1 - predictor.alpha_
        if coverage.min() <= least:
            raise InputError(
                "The 'tolerance' parameter of CoverageMonitor must be below 1 - alpha, "
                f"{coverage.min():g} here. Got {tolerance!r} instead."
            )
        self.predictor = predictor
        self.state = state if isinstance(state, MonitorState) else MonitorState(state)
        self.model = self.state.add_model(
            ModelEntry(
                *(digest(predictor), predictor.n_classes_, predictor.class_names_),
                *(float(level), least, coverage - least),
            )
        )
        for parameter, value in asked.items():
            if value is not None and float(value) != getattr(self.model, parameter):
                raise InputError(
                    f"{parameter!r} must be {getattr(self.model, parameter)}, as in "
                    f"'{self.state.name}'. Got {value}; start a new state to change it."
                )
        self._urn = Urn.of(predictor)
        rows = self._fit.rows
        self._calibration_ids = np.sort(rows.ids[: 0 if rows.by_index else None].view(np.int64))
        self._evidence = ClassEvidence.none(predictor.n_classes_)

    # ---- input -----------------------------------------------------------------------------------

    def update(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        period: str | None = None,
    ) -> LabelCounts:
        """Count labeled rows; compute their sets again from the same rows and ids.

        A row with an id counts once, and another label of the same id replaces the earlier one.
        Rows without ids count in every call.

        Parameters
        ----------
        probabilities, labels, ids
            As in `BasePredictor.evaluate`.
        period
            The period of these rows, for the history; names must sort by time. By default today's
            date (UTC).
        """
        source = self._source(probabilities, labels, ids)
        require_labels(source, "Monitoring")
        sampler = Sampler(source.n_rows, source.offset)
        served, classes = self._served_rows(source, period, sampler)
        read = sampler.result()
        if self._fit.inputs.include(read):
            raise InputError(
                "Monitored rows must not be in the calibration set. Got the calibration rows of "
                f"the model in {source.name}; pass later rows."
            )
        warn_of_mismatch(source, read, self._fit.rule.scoring.for_input(source.logits))
        for sentence in about_copies(self._fit, read):
            warn_caller(sentence)
        names = [*self.model.names, None]  # sources do not keep the names of unknown labels
        labels, periods = [names[y] for y in classes], _periods(None, period, len(classes))
        return self.state.update(self.model.key, served, labels, periods)

    def observe(self, probabilities: Any, *, ids: Any = None, period: str | None = None) -> int:
        """Record rows with ids, so that `label` finds their sets; `period` is as in `update`.

        Return the number of rows that were not recorded before.
        """
        source = self._source(probabilities, ids=ids, read_labels=False)
        served, _ = self._served_rows(source, period)
        if served.members and served.keys is None:
            raise InputError("Rows without labels need 'ids', by which labels find them later.")
        return self.state.record((self.model.key, served))

    def served(self, rows: Array, ids: Any, sets: PredictionSets, rule: SetRule) -> ServedRows:
        """Return what is to be recorded of rows (n, K) whose `sets` a service has computed."""
        within_rule, keys = self._within(rule), signed(id_keys(ids, len(sets)))
        self._reject_calibration_ids(keys)
        within = None if within_rule is None else pack_sets(within_rule.predict_set(rows, ids))
        return ServedRows(today(), keys, pack_sets(sets), within or [None] * len(sets))

    def label(
        self, ids: Any, labels: Any, *, time: Any = None, period: str | None = None
    ) -> LabelCounts:
        """Count labels of rows that were recorded, each against the models that served it.

        Labels are names or indices of this model's classes. A label counts once, in the period in
        which its row was served, unless `period` or `time` (dates or ISO texts, one per label)
        states another. Another label of the same id replaces it. Labels of unknown ids wait for
        their row, within the retention. A label that is not among the classes counts as a miss of
        overall coverage.
        """
        keys = signed(id_keys(ids, len(ids)))
        names = self._names(labels, len(keys))
        self._reject_calibration_ids(keys)
        return self.state.label(keys, names, _periods(time, period, len(keys)))

    def _names(self, labels: Any, n_rows: int) -> list[str]:
        """Return labels as names of classes; text is an index if no class has a number's name."""
        values = to_numpy(labels, "'labels'")
        if values.shape != (n_rows,):
            raise InputError(
                f"'labels' must have one entry per row. Got shape {values.shape} for {n_rows} rows."
            )
        names, index = self.model.names, self.model.index_of_name
        is_index = not any(name.isdecimal() for name in self.model.class_names or ())
        result, wrong = [], []
        for label in values.tolist():
            if isinstance(label, str) and label:
                number = int(label) if is_index and label.isdecimal() else len(names)
                is_other = label not in index and number < len(names)
                result.append(names[number] if is_other else label)
            elif type(label) is int and 0 <= label < len(names):
                result.append(names[label])
                if index.get(str(label), label) != label:  # the index of one, the name of another
                    wrong.append(label)
            else:
                wrong.append(label)
        if wrong:
            raise InputError(
                f"'labels' must be names of classes or indices from 0 to {len(names) - 1}; text if "
                f"classes have numbers as names. Got {listed(map(repr, wrong), 3)}."
            )
        return result

    def _served_rows(
        self, source: Source, period: str | None, sampler: Sampler | None = None
    ) -> tuple[ServedRows, list[int]]:
        """Return the sets of all rows, and their labels if they have any."""
        rule = self.predictor.rule(logits=source.logits)
        pack = partial(pack_block, rule, self._within(rule))
        blocks = [([], [], [], []), *map_source(source, pack, sampler=sampler)]
        columns = (list(chain.from_iterable(parts)) for parts in zip(*blocks, strict=True))
        keys, members, within, classes = columns
        self._reject_calibration_ids(keys)
        return ServedRows(period or today(), keys or None, members, within), classes

    def _reject_calibration_ids(self, keys: list[int]) -> None:
        first, last = (np.searchsorted(self._calibration_ids, keys, s) for s in ("left", "right"))
        n_known = int((last > first).sum())
        if n_known:
            raise InputError(
                f"'ids' must not be in the calibration set. Got {n_known} ids of calibration "
                "rows; pass later rows."
            )

    def _within(self, rule: SetRule) -> SetRule | None:
        """Return the rule for classes within the quantile of their own calibration scores."""
        if self._urn is None:
            return None
        limits = Thresholds(self._urn.limits)
        return replace(rule, thresholds=limits, keep_top=False, acceptance=None)

    def _source(
        self, probabilities: Any, labels: Any = None, ids: Any = None, *, read_labels: bool = True
    ) -> Source:
        if self.predictor._current_fit() is not self._fit:
            raise InputError(
                "'predictor' must not change after its monitor is made. Got one that was "
                "calibrated again; make a new CoverageMonitor."
            )
        options = {"allow_unknown": True, "read_labels": read_labels}
        return self._fit.open(probabilities, labels, ids, **options)

    # ---- results ---------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Read the state in one transaction; return the findings at this moment."""
        snapshot = read_snapshot(self.state, self.model, self._urn, self._evidence)
        self._evidence = snapshot.evidence  # the next snapshot computes only what changed
        return snapshot

    def periods(self) -> list[PeriodCounts]:
        """Return labeled examples and covered ones by class and period; class -1 is all classes."""
        with self.state.reading() as run:
            return read_periods(run, self.model.key)


def _periods(time: Any, period: str | None, n_rows: int) -> list[str | None]:
    """Return the period of each row, the date (UTC) of its time; None where neither is given."""
    if period is not None or time is None:
        return [None if period is None else str(period)] * n_rows
    times = to_numpy(time, "'time'")
    if times.shape != (n_rows,):
        raise InputError(f"'time' must have one entry per row. Got {times.size} for {n_rows} rows.")
    return [_date(str(moment)) for moment in times]


def _date(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"'time' must be ISO dates. Got {text!r}; write 2026-03-31.") from None
    return (moment.astimezone(UTC) if moment.tzinfo else moment).date().isoformat()
