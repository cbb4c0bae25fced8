"""A service: sets by the current model, while one thread writes rows and labels to its state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np

from evencover.arrays import IntArray
from evencover.errors import InputError, one_line
from evencover.ids import id_keys
from evencover.monitoring import CoverageMonitor, LabelCounts, MonitorState, Snapshot
from evencover.monitoring.database import StateError
from evencover.monitoring.state import Label, Served
from evencover.persistence import load
from evencover.predictors.base import BasePredictor
from evencover.predictors.fit import Fit
from evencover.predictors.rule import SetRule
from evencover.sets import PredictionSets

RETRY_SECONDS = 2.0  # between attempts to write while the database cannot be used
FLUSH_SECONDS = 1.0  # that readers wait for rows that are being written
BATCH_SECONDS = 0.05  # that rows wait for others, to be written together; labels do not wait
QUEUE_BYTES = 64 * 2**20  # of rows and labels that wait to be written
FULL = "Rows and labels arrive faster than they can be recorded."


class Writer:
    """Write to a state on one thread.

    Predictions put their rows in a queue and go on. All rows of a moment are one transaction. While
    the database cannot be used, rows wait and labels fail. If there is no room, rows are dropped
    and counted, and labels fail.
    """

    def __init__(self, state: MonitorState) -> None:
        self.problem: str | None = None  # why the last attempt failed, or rows were dropped
        self.n_dropped = 0
        self._state, self._n_bytes = state, 0  # of all that waits
        self._served = list[Served]()
        self._is_scheduled = self._is_down = False
        self._lock, self._hurry, self._closing = Lock(), Event(), Event()
        self._thread = ThreadPoolExecutor(1, "evencover-writer")

    @property
    def n_waiting(self) -> int:
        """The number of rows that wait."""
        return sum(part.n_rows for part in self._served[:])

    def record(self, served: Served) -> None:
        """Queue rows, without waiting for anything."""
        if not self._reserve(served.n_bytes):
            self._drop(served.n_rows)
            return
        with self._lock:
            self._served.append(served)
            is_first, self._is_scheduled = not self._is_scheduled, True
        if is_first:
            self._thread.submit(self._write_in_time)

    def count(self, labels: Sequence[Label]) -> Future[LabelCounts]:
        """Queue labels; the future is done once they are stored, after all rows before them."""
        n_bytes = sum(150 + len(str(sent.label)) for sent in labels)
        if self._is_down or not self._reserve(n_bytes):
            raise StateError(self.problem or FULL)

        def write() -> LabelCounts:
            try:
                self._write()
                return self._state.label(labels)
            finally:
                self._reserve(-n_bytes)

        self._hurry.set()
        return self._thread.submit(write)

    def flush(self, seconds: float) -> None:
        """Wait until everything is written, for so long."""
        self._hurry.set()
        with suppress(TimeoutError, StateError):
            self._thread.submit(self._write).result(seconds)

    def close(self) -> None:
        """Write what is in the queue, unless the database cannot be used, and end the thread."""
        self._closing.set()
        self._hurry.set()
        self._thread.shutdown()

    def _reserve(self, n_bytes: int) -> bool:
        """Take room in the queue, or give it back; return whether there was any."""
        with self._lock:
            if n_bytes > 0 and self._n_bytes and self._n_bytes + n_bytes > QUEUE_BYTES:
                self.problem = self.problem or FULL
                return False
            self._n_bytes += n_bytes
            return True

    def _write_in_time(self) -> None:
        """Write the rows that arrive in a moment; try again until the service ends."""
        self._hurry.wait(BATCH_SECONDS)
        self._hurry.clear()
        with self._lock:
            self._is_scheduled = False
        while True:
            try:
                return self._write()
            except StateError:
                if self._closing.wait(RETRY_SECONDS):
                    return self._drop(self.n_waiting)

    def _write(self) -> None:
        """Write the rows in the queue in one transaction."""
        with self._lock:
            batch = self._served[:]
        try:
            if batch or self.problem:
                self._state.record(batch)
            self.problem, self._is_down = None, False
        except StateError as error:
            self.problem, self._is_down = one_line(error), True
            raise
        except Exception as error:  # rows that can never be written must not stop the others
            self.problem, self._is_down = one_line(error), False
            self._drop(sum(part.n_rows for part in batch))
        with self._lock:
            del self._served[: len(batch)]
            self._n_bytes -= sum(part.n_bytes for part in batch)

    def _drop(self, n_rows: int) -> None:
        with self._lock:
            self.n_dropped += n_rows


@dataclass(frozen=True)
class Loaded:
    """A model with its rule and monitor, for the whole of a request."""

    name: str
    predictor: BasePredictor
    fit: Fit
    monitor: CoverageMonitor
    rule: SetRule
    stamp: tuple[int, int, int]  # of the file that it was loaded from

    @property
    def version(self) -> str:
        """The digest of the model."""
        return self.monitor.model.digest

    @property
    def reads(self) -> str:
        """What its rows are: "logits" or "probabilities"."""
        return "logits" if self.predictor.from_logits else "probabilities"

    @cached_property
    def name_bytes(self) -> IntArray:
        """(K,) the size of each class's name in an answer."""
        return np.array([len(json.dumps(name)) + 1 for name in self.monitor.model.classes.index])

    def describe(self) -> dict[str, Any]:
        """Describe the model."""
        predictor, acceptance = self.predictor, self.rule.acceptance
        return {
            "model": self.version,
            "name": self.name,
            "method": predictor.method,
            "score": predictor.score_.name,
            "alpha": str(predictor.fit_.alpha),
            "exact": predictor.exact,
            "keep_top": self.rule.keep_top,
            "accept_accuracy": None if acceptance is None else acceptance.accuracy,
            "reads": self.reads,
            "guarantee": predictor.guarantee_text,
            "capped_classes": predictor.fit_.capped_shares,
            "n_classes": predictor.n_classes_,
            "n_calibration": predictor.n_calibration_,
            "class_names": predictor.class_names_,
            "groups": [] if acceptance is None else list(acceptance.groups),
        }


class Service:
    """Answer requests with the current model, and record rows and labels for its monitor.

    Parameters
    ----------
    model
        The file of the model; `reload` checks whether there is a new one.
    state
        A SQLite file, ``postgresql://...`` or a `MonitorState` for the monitor; None keeps it in
        memory.
    """

    def __init__(self, model: Path, state: MonitorState | Any = None) -> None:
        self.model = Path(model)
        self.state = state if isinstance(state, MonitorState) else MonitorState(state)
        self.problem: str | None = None  # why the last reload failed
        self.now = self._load(self._stamp(), load(self.model))
        self.writer = Writer(self.state)

    def sets(
        self, rows: Any, ids: Sequence[Any] | None = None, loaded: Loaded | None = None
    ) -> PredictionSets:
        """Return the sets of rows by a model, the current one by default, top class first.

        Rows are an array or `TopK`; those with ids are recorded for the monitor.
        """
        loaded = loaded or self.now
        loaded.fit.check_precision(rows)  # warns once
        rows = loaded.rule.checked(rows)
        if ids is None:
            return loaded.rule.few_sets(rows, None)
        sets, served = loaded.monitor.serve(rows, id_keys(ids, len(rows)), ids)
        self.writer.record(served)
        return sets

    def labels(
        self,
        ids: Sequence[Any],
        labels: Sequence[Any],
        time: Sequence[str] | None = None,
        labels_are: str | None = None,
    ) -> Future[LabelCounts]:
        """Count labels of rows that were served, or will be."""
        return self.writer.count(self.now.monitor.sent(ids, labels, time, None, labels_are))

    def snapshot(self) -> Snapshot:
        """Return the findings of the monitor, also of rows that wait, if they can be written."""
        self.writer.flush(FLUSH_SECONDS)
        return self.now.monitor.snapshot()

    def health(self) -> dict[str, Any]:
        """Return whether rows are recorded and the model is loaded, without asking the database."""
        problem = self.problem or self.writer.problem
        return {
            "status": "ok" if problem is None else "degraded",
            "problem": problem,
            "model": self.now.version,
            "queued_rows": self.writer.n_waiting,
            "dropped_rows": self.writer.n_dropped,
        }

    def reload(self) -> bool:
        """Reload the model if its file has changed; return whether it is another model.

        Requests use the old model meanwhile, and labels of its rows still count for it.
        """
        stamp, loaded = self._stamp(), self.now
        if stamp == loaded.stamp:
            return False
        predictor = load(self.model)
        if Fit.of(predictor).digest == loaded.version:
            self.now = replace(loaded, stamp=stamp)
            return False
        self.now = self._load(stamp, predictor)
        return True

    def close(self) -> None:
        """Write what is queued, and close the state."""
        self.writer.close()
        self.state.close()

    def _load(self, stamp: tuple[int, int, int], predictor: BasePredictor) -> Loaded:
        fit, monitor = Fit.of(predictor), CoverageMonitor(predictor, state=self.state)
        return Loaded(self.model.stem, predictor, fit, monitor, predictor.rule(), stamp)

    def _stamp(self) -> tuple[int, int, int]:
        try:
            status = self.model.stat()
        except OSError as error:
            raise InputError(f"Cannot read '{self.model}': {error.strerror or error}.") from error
        return status.st_mtime_ns, status.st_size, status.st_ino
