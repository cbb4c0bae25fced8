"""CoverageMonitor: rows and labels into a state, and a snapshot of the evidence that follows."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from evencover import _kernels
from evencover._kernels import NO_DRAWS
from evencover._kernels.reference import mixed, unmixed
from evencover.arrays import Array, IntArray, to_numpy
from evencover.classes import NAMES, Classes, is_integer_text
from evencover.data.fingerprint import Sampler
from evencover.data.source import Block, Source
from evencover.engine.blocks import map_source
from evencover.errors import InputError
from evencover.ids import id_keys
from evencover.monitoring.counts import LabelLog, PeriodCounts
from evencover.monitoring.evidence import Urn
from evencover.monitoring.snapshot import Snapshot, read_snapshot
from evencover.monitoring.state import (
    Label,
    LabelCounts,
    ModelEntry,
    MonitorState,
    Served,
    right_labels,
)
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import require_labels, warn_of_mismatch
from evencover.predictors.fit import Fit
from evencover.predictors.rule import BothSets, SetRule
from evencover.quantiles import Thresholds, exact_fraction
from evencover.randomness import row_indices
from evencover.sets import PredictionSets
from evencover.validation import real_number


def row_contents(rows: Array) -> Array:
    """Hash the numbers of each row (n,) to 64 bits, whatever its place and floating-point type."""
    keys = _kernels.row_keys(rows, NO_DRAWS)  # mixed(mixed(contents) + indices)
    return keys if len(keys) == 1 else mixed(unmixed(keys) - row_indices(0, len(keys)))


def signed(keys: Array) -> IntArray:
    """Return 64-bit keys as signed integers, as databases need them."""
    return keys.astype(np.uint64, copy=False).view(np.int64)


def served_rows(
    model: int, moment: tuple[float, str], rows: Any, keys: Array | None, both: BothSets
) -> Served:
    """Return what is kept of rows that a model served at a time, in a period."""
    ids, (time, period), (sets, within) = None if keys is None else signed(keys), moment, both
    times = np.full(len(rows), time)
    about = model, period, ids, signed(row_contents(rows)), times
    return Served(*about, sets, within, right_labels(sets))


def serve_block(
    model: int, moment: tuple[float, str], rule: SetRule, block: Block
) -> tuple[Served, list[int]]:
    """Compute the sets of a block; also return its labels."""
    served = served_rows(model, moment, block.rows, block.ids, rule.sets_of_block(block))
    return served, [] if block.labels is None else block.labels.tolist()


def day_of(moment: float) -> str:
    """Return the period of a time: its date (UTC)."""
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


class CoverageMonitor:
    """Track the coverage of every class as labels come in.

    The tests stay valid at any number of looks, and over all classes at once. Each has its own
    level `false_alarm`:

    - *Coverage below target*: `Snapshot.alarms`, `any_class` and `overall` test that coverage is
      at least 1 - alpha - tolerance. Of the classes in alarm, at most a fraction `false_alarm` is
      wrong on average. While every class meets the target, the probability that `any_class` ever
      has an alarm is at most `false_alarm`, and so is that of `overall`. This applies to every
      method, guaranteed or not. Sets count as served, with the class that `keep_top` adds, which
      can only make alarms rarer.
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
    LabelCounts(counted=40, corrected=0, repeated=0, waiting=0, several=0)
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
        self._fit = Fit.of(predictor)
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
                *(self._fit.digest, predictor.n_classes_, predictor.class_names_),
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
        self._rule = self._with_test(predictor.rule())
        rows = self._fit.rows
        self._calibration_ids = np.sort(rows.ids[: 0 if rows.by_index else None].view(np.int64))
        self._log, self._lock = LabelLog(self.model, self._urn), Lock()

    # ---- input -----------------------------------------------------------------------------------

    def update(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        period: str | None = None,
        labels_are: str | None = None,
    ) -> LabelCounts:
        """Count labeled rows; compute their sets again from the same rows and ids.

        A row with an id counts once, and another label of the same id replaces the earlier one.
        Rows without ids count in every call.

        Parameters
        ----------
        probabilities, labels, ids, labels_are
            As in `BasePredictor.evaluate`.
        period
            The period of these rows, for the history; names must sort by time. By default today's
            date (UTC).
        """
        how = {} if labels_are is None else {"labels_are": labels_are}
        source = self._source(probabilities, labels, ids, **how)
        require_labels(source, "Monitoring")
        sampler = Sampler(source.n_rows, source.offset)
        rows, labels = self._served_rows(source, period, sampler)
        read = sampler.result()
        if self._fit.inputs.include(read):
            raise InputError(
                "Monitored rows must not be in the calibration set. Got the calibration rows of "
                f"the model in {source.name}; pass later rows."
            )
        warn_of_mismatch(source, read, self._fit.rule.scoring.for_input(source.logits))
        unknown = self.model.n_classes
        return self.state.update(rows, [None if y == unknown else y for y in labels])

    def observe(self, probabilities: Any, *, ids: Any = None, period: str | None = None) -> int:
        """Record rows with ids, so that `label` finds their sets; `period` is as in `update`.

        Return the number of rows that were not recorded before.
        """
        source = self._source(probabilities, ids=ids, read_labels=False)
        if not source.has_ids:
            raise InputError("Rows without labels need 'ids', by which labels find them later.")
        return self.state.record(self._served_rows(source, period)[0])

    def serve(self, rows: Any, keys: Array, ids: Any) -> tuple[PredictionSets, Served]:
        """Compute the sets of a few rows; also return what is to be recorded of them."""
        both, moment = self._rule.both_sets(rows, keys), time.time()
        served = served_rows(self.model.key, (moment, day_of(moment)), rows, keys, both)
        self._reject_ids([served], ids)
        return both[0], served

    def label(
        self,
        ids: Any,
        labels: Any,
        *,
        time: Any = None,
        period: str | None = None,
        labels_are: str | None = None,
    ) -> LabelCounts:
        """Count labels of rows that were recorded, each against the models that served it.

        A label counts once, in the period in which its row was served, unless `period` or `time`
        states another. Another label of the same row replaces it. Labels of unknown ids wait for
        their row, within the retention. A label that is not among the classes counts as a miss of
        overall coverage.

        Parameters
        ----------
        ids, labels
            One id and one label per row: a name or an index of a class of the model that served
            the row.
        time
            When each label was true: ISO texts or dates. Of an id that was served with several
            rows, a label counts for the last one before a time of day, or else before now.
        period
            The period of these labels.
        labels_are
            "names" or "indices": what integers stand for. Needed if the name of a class is a
            number other than its index.
        """
        return self.state.label(self.sent(ids, labels, time, period, labels_are))

    def sent(
        self, ids: Any, labels: Any, times: Any = None, period: Any = None, labels_are: Any = None
    ) -> list[Label]:
        """Return labels of ids as they can be stored."""
        keys, arrived = signed(id_keys(ids, len(ids))).tolist(), time.time()
        n_rows = len(keys)
        # NumPy would make text of all labels in a list if one is text.
        values = labels if isinstance(labels, list) else to_numpy(labels, "'labels'").tolist()
        if not isinstance(values, list) or len(values) != n_rows:
            raise InputError(f"'labels' must have one entry for each of the {n_rows} rows.")
        self._reject_calibration_ids(keys)
        known = known_labels(self.model.classes, self.state.most_classes, values, labels_are)
        moments = [(None, None)] * n_rows if times is None else _moments(times, n_rows)
        given = None if period is None else str(period)
        return [
            Label(key, label, moment or arrived, given or day)
            for key, label, (moment, day) in zip(keys, known, moments, strict=True)
        ]

    def _served_rows(
        self, source: Source, period: str | None, *samplers: Sampler
    ) -> tuple[list[Served], list[int]]:
        """Return what is to be recorded of all rows, and their labels."""
        rule, moment = self._rule, time.time()
        if source.logits is not None:
            rule = self._with_test(self.predictor.rule(logits=source.logits))
        about = self.model.key, (moment, period or day_of(moment)), rule
        blocks = list(map_source(source, partial(serve_block, *about), samplers=samplers))
        parts, labels = [part for part, _ in blocks], [y for _, part in blocks for y in part]
        if source.has_ids:
            self._reject_ids(parts, source.ids)
        return parts, labels

    def _reject_ids(self, parts: Sequence[Served], names: Any) -> None:
        """Raise for ids of calibration rows, and for one id of rows with different contents."""
        joined = Served.join(parts)
        assert joined.ids is not None
        self._reject_calibration_ids(joined.ids)
        keys = joined.ids.tolist()
        if len(set(keys)) == len(keys):
            return
        first: dict[int, tuple[int, int]] = {}
        contents = joined.contents.tolist()
        for index, (key, content) in enumerate(zip(keys, contents, strict=True)):
            earlier, earlier_content = first.setdefault(key, (index, content))
            if content != earlier_content:
                raise InputError(
                    "'ids' must belong to one row each in one call. Got different rows, "
                    f"{earlier} and {index}, of {str(names[index])[:100]!r}; give each row its "
                    "own id."
                )

    def _reject_calibration_ids(self, keys: Any) -> None:
        ids = self._calibration_ids
        if len(ids) and (ids.take(ids.searchsorted(keys), mode="clip") == keys).any():
            raise InputError(
                "'ids' must not be in the calibration set. Got ids of calibration rows; pass later "
                "rows."
            )

    def _with_test(self, rule: SetRule) -> SetRule:
        """Return the rule with that for classes within the quantile of their own scores."""
        return rule if self._urn is None else replace(rule, second=Thresholds(self._urn.limits))

    def _source(
        self, probabilities: Any, labels: Any = None, ids: Any = None, **how: Any
    ) -> Source:
        if Fit.of(self.predictor) is not self._fit:
            raise InputError(
                "'predictor' must not change after its monitor is made. Got one that was "
                "calibrated again; make a new CoverageMonitor."
            )
        return self._fit.open(probabilities, labels, ids, allow_unknown=True, **how)

    # ---- results ---------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Read the state in one transaction; return the findings at this moment."""
        with self._lock:  # the next snapshot reads and computes only what changed
            return read_snapshot(self.state, self._log)

    def periods(self) -> list[PeriodCounts]:
        """Return labeled examples and covered ones by class and period; class -1 is all classes."""
        with self._lock:
            read_snapshot(self.state, self._log)
            return self._log.periods(np.arange(self.model.n_classes))


def known_labels(
    classes: Classes, most_classes: int, labels: Any, labels_are: str | None
) -> list[int | str]:
    """Return labels as indices, or as names where they are, by the classes of the model alone.

    Indices may be of another model with `most_classes`, which served the row.
    """
    text_is_name = classes.are_names(np.array(["text"]), "'labels'", labels_are)
    result: list[int | str] = []
    for label in labels:
        if isinstance(label, str) and not text_is_name and is_integer_text(label):
            label = int(label)
        elif type(label) is int and classes.are_names(np.array([label]), "'labels'", labels_are):
            label = str(label)
        is_index = type(label) is int and 0 <= label < most_classes
        if not is_index and not (isinstance(label, str) and label.strip()):
            raise InputError(
                "'labels' must be names of classes, or indices from 0 to "
                f"{most_classes - 1}. Got {label!r}."
            )
        result.append(label)
    names = {row: y for row, y in enumerate(result) if type(y) is str and y not in classes.index}
    if text_is_name:  # a name that looks like a class is an error
        rows = list(names)
        classes.label_indices(
            list(names.values()),
            row_name=lambda number: f"row {rows[number]}",
            labels_are=NAMES,
            allow_unknown=True,
        )
    return result


def _moments(times: Any, n_rows: int) -> list[tuple[float | None, str | None]]:
    """Return the time of each label, if it states one, and its date (UTC)."""
    values = to_numpy(times, "'time'")
    if values.shape != (n_rows,):
        raise InputError(
            f"'time' must have one entry per row. Got {values.size} for {n_rows} rows."
        )
    return [_moment(str(moment)) for moment in values]


def _moment(text: str) -> tuple[float | None, str | None]:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.min
    if not 1900 <= moment.year <= 2200:
        raise InputError(
            f"'time' must be ISO dates from 1900 to 2200. Got {text[:50]!r}; write 2026-03-31."
        )
    if moment.tzinfo is None and moment.time() == datetime.min.time():
        return None, moment.date().isoformat()  # a date without a time of day
    moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.timestamp(), moment.date().isoformat()
