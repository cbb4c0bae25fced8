"""The service behind the addresses: the model of now, its monitor, and their files."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from evencover._types import Array
from evencover.engine.blocks import Part, known_ids
from evencover.errors import InputError
from evencover.monitoring import CoverageMonitor, summary
from evencover.monitoring.counts import Counts
from evencover.monitoring.files import read_state
from evencover.persistence import load
from evencover.predictors.base import BasePredictor
from evencover.predictors.content import digest
from evencover.predictors.matching import like_calibration
from evencover.predictors.ready import few_rows
from evencover.predictors.rule import Rule
from evencover.randomness import row_ids
from evencover.report.watch_page import watch_html
from evencover.serving.http.requests import RefusedError, Rows
from evencover.sets import PredictionSets, decreasing_within_rows

MOST_IDS = 100_000  # of labelled rows that are remembered, so that a repeated request counts once
SERVICE = "service "  # how its name begins among the inputs of its state
KEPT_SECONDS = 1.0  # for which a summary is given again: making it takes longer than asking for it


@dataclass(frozen=True)
class Limits:
    """What a request may take: bytes, rows, and seconds until it has arrived."""

    body: int = 16 * 2**20
    rows: int = 10_000
    seconds: float = 10.0


@dataclass
class Loaded:
    """A model with its monitor; requests that began with it end with it."""

    predictor: BasePredictor
    monitor: CoverageMonitor
    stamp: tuple[int, int, int]
    counted: OrderedDict[int, None] = field(default_factory=OrderedDict)
    is_dirty: bool = False
    rule: Rule | None = field(init=False)

    def __post_init__(self) -> None:
        needs_groups = "row groups" in self.predictor.needs
        self.rule = None if needs_groups else self.predictor.rule()

    def sets(self, given: Rows) -> PredictionSets:
        """What `predict_set` gives, on this thread: a few rows are not worth starting others."""
        if few_rows(self.predictor, given.rows) is not None:
            return self.predictor.predict_set(given.rows, ids=given.ids, groups=given.groups)
        source = like_calibration(self.predictor, given.rows)
        rule = self.rule or self.predictor.rule(groups=given.groups)
        if self.rule is not None:
            self.predictor._check_groups(given.groups)
        blocks = Part(source, known_ids(source, given.ids)).blocks()
        return PredictionSets.concatenate(rule.sets(block, ids) for block, ids in blocks)


class Service:
    """Answers requests with the model of now, and counts for its monitor.

    Parameters
    ----------
    model
        The file of the model; `reload` looks whether there is a new one.
    state
        Where the monitor's state is kept; None keeps it in memory only.
    options
        `false_alarm` and `tolerance` of a new monitor.
    """

    def __init__(self, model: Path, state: Path | None = None, **options: Any) -> None:
        self.model, self.state, self.options = Path(model), state, options
        # Counts change under the first, which is never held while a file is written: requests for
        # sets wait for it. Writers take the second before it, those who send labels the third.
        self._lock, self._file_lock, self._label_lock = (threading.Lock() for _ in range(3))
        self._kept: dict[str, tuple[float, Any]] = {}
        self.now = self._load()

    # ---- requests ------------------------------------------------------------------------------

    def sets(self, given: Rows) -> tuple[PredictionSets, str]:
        """The sets of rows, the most probable class first, and the model's digest."""
        loaded = self.now
        sets = loaded.sets(given)
        top_classes = given.rows.argmax(axis=1)
        with self._lock:
            loaded.monitor.observe_sets(sets.sizes, top_classes)
            loaded.is_dirty = True
        rows = np.repeat(np.arange(len(given)), sets.sizes)
        values = given.rows[rows, sets.indices].astype(np.float64)
        classes = sets.indices[decreasing_within_rows(sets.sizes, values)]
        names = loaded.predictor.class_names_
        listed = PredictionSets.from_sizes(sets.sizes, classes, sets.n_classes, names)
        return listed, loaded.monitor.model

    def labels(self, given: Rows) -> dict[str, Any]:
        """Count labelled rows; what was counted is in the file when this returns."""
        with self._label_lock:  # so that a request that is sent twice at once counts once
            loaded = self.now
            new = self._not_counted(loaded, given)
            if new.any():
                part = self._counted(loaded, given, np.flatnonzero(new).tolist())
                self._add(loaded, part)
                self._remember(loaded, given, new)
                self._kept.clear()
        n_new = int(new.sum())
        return {"counted": n_new, "repeated": len(given) - n_new, "model": loaded.monitor.model}

    def _add(self, loaded: Loaded, part: Counts) -> None:
        """Count what is on disk; nothing, if it cannot be written: the client asks again."""
        with self._file_lock:
            ahead = loaded.monitor.empty()
            with self._lock:
                ahead.counts = loaded.monitor.counts + part
            try:
                self._write(loaded, ahead)
            except InputError as error:
                raise RefusedError(503, f"{error} Send the labels again later.") from error
            with self._lock:
                loaded.monitor.counts += part

    @staticmethod
    def _counted(loaded: Loaded, given: Rows, kept: list[int]) -> Counts:
        """What some of the rows add to the counts; a bad row, and nothing is counted."""
        labels, ids, groups = (
            None if values is None else [values[n] for n in kept]
            for values in (given.labels, given.ids, given.groups)
        )
        return (
            loaded.monitor.empty().update(given.rows[kept], labels, ids=ids, groups=groups).counts
        )

    def coverage(self) -> dict[str, Any]:
        """All that the monitor has to say."""
        return dict(self._recent("coverage", summary))

    def page(self) -> str:
        """The live page."""
        title = f"Coverage of {self.model.name}"
        return str(self._recent("page", lambda monitor: watch_html(monitor, title, refresh=10)))

    def describe(self) -> dict[str, Any]:
        """What the model is."""
        loaded = self.now
        predictor = loaded.predictor
        names = predictor.class_names_
        return {
            "model": loaded.monitor.model,
            "file": self.model.name,
            "method": predictor.method,
            "score": predictor.score_.name,
            "alpha": str(predictor.alpha),
            "exact": predictor.exact,
            "reads": "logits" if predictor.from_logits else "probabilities",
            "guarantee": predictor.promise,
            "n_classes": predictor.n_classes_,
            "n_calibration": predictor.n_calibration_,
            "needs_groups": "row groups" in predictor.needs,
            "class_names": None if names is None else list(names),
        }

    def _recent(self, what: str, make: Any) -> Any:
        then, value = self._kept.get(what, (0.0, None))
        if value is None or time.monotonic() - then > KEPT_SECONDS:
            value = make(self._copy_of(self.now))
            self._kept[what] = (time.monotonic(), value)
        return value

    # ---- rows that come twice --------------------------------------------------------------------

    def _not_counted(self, loaded: Loaded, given: Rows) -> Array:
        """Which rows have an id that was not counted lately, nor twice here."""
        if given.ids is None:
            return np.ones(len(given), dtype=bool)
        keys = row_ids(given.ids, len(given)).tolist()
        seen: set[int] = set()
        new = np.ones(len(given), dtype=bool)
        for place, key in enumerate(keys):
            new[place] = key not in loaded.counted and key not in seen
            seen.add(key)
        return new

    def _remember(self, loaded: Loaded, given: Rows, new: Array) -> None:
        if given.ids is None:
            return
        keys = row_ids(given.ids, len(given))[new].tolist()
        loaded.counted.update(dict.fromkeys(keys))
        while len(loaded.counted) > MOST_IDS:
            loaded.counted.popitem(last=False)

    # ---- files -----------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the monitor's state, if there is anything new."""
        with self._file_lock:
            loaded = self.now
            if not loaded.is_dirty:
                return
            loaded.is_dirty = False  # before the copy: what comes later is new again
            try:
                self._write(loaded, self._copy_of(loaded))
            except InputError:
                loaded.is_dirty = True
                raise

    def _copy_of(self, loaded: Loaded) -> CoverageMonitor:
        with self._lock:
            return loaded.monitor + loaded.monitor.empty()

    def _write(self, loaded: Loaded, monitor: CoverageMonitor) -> None:
        if self.state is not None:
            is_old = loaded is not self.now  # labels that came while a new model was taken up
            monitor.save(self._state_of(monitor.model) if is_old else self.state)

    def reload(self) -> bool:
        """Take up a new model if the file has changed; requests go on with the old one meanwhile.

        The state of the old model is kept under a name of its own, and a new one begins; or that
        of the new model goes on, if it was here before.
        """
        if self._stamp() == self.now.stamp:
            return False
        stamp, predictor = self._stamp(), load(self.model)
        with self._file_lock:
            old = self.now
            if digest(predictor) == old.monitor.model:
                old.stamp = stamp
                return False
            kept = None if self.state is None else self._state_of(digest(predictor))
            monitor = _signed(CoverageMonitor.open(kept, predictor, **self.options))
            if self.state is not None and kept is not None:
                self._copy_of(old).save(self._state_of(old.monitor.model))
                monitor.save(self.state)
                kept.unlink(missing_ok=True)
            self.now = Loaded(predictor, monitor, stamp)
            self._kept.clear()
        return True

    def _load(self) -> Loaded:
        stamp, predictor = self._stamp(), load(self.model)
        if self.state is not None and self.state.exists():
            model = read_state(self.state).get("model")
            if model != digest(predictor):  # the model was replaced while nothing was running
                os.replace(self.state, self._state_of(str(model)))
                with suppress(FileNotFoundError):
                    os.replace(self._state_of(digest(predictor)), self.state)
        monitor = _signed(CoverageMonitor.open(self.state, predictor, **self.options))
        return Loaded(predictor, monitor, stamp)

    def _state_of(self, model: str) -> Path:
        """Where the state of an earlier model is kept."""
        assert self.state is not None
        return self.state.with_name(f"{self.state.stem}.{model[:8]}{self.state.suffix}")

    def _stamp(self) -> tuple[int, int, int]:
        """What changes when the file does."""
        try:
            about = self.model.stat()
        except OSError as error:
            raise InputError(f"Cannot read '{self.model}': {error.strerror or error}.") from error
        return about.st_mtime_ns, about.st_size, about.st_ino


def _signed(monitor: CoverageMonitor) -> CoverageMonitor:
    """The monitor with the name of a service among what it has counted.

    A state grows from day to day, so it cannot be told by its content; by this name it is refused
    where it was merged before.
    """
    if not any(name.startswith(SERVICE) for name in monitor.counts.inputs):
        monitor.counts.inputs |= {f"{SERVICE}{uuid4().hex}"}
    return monitor
