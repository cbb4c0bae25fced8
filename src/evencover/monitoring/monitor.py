"""CoverageMonitor: is the promise of calibration day still kept, class by class?"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from evencover._types import FloatArray, IntArray
from evencover._validation import plain_array, real_number
from evencover.data.fingerprint import Fingerprint
from evencover.data.source import Source
from evencover.engine.blocks import map_source
from evencover.errors import InputError, warn_caller
from evencover.monitoring.counts import UNLABELED, Counts
from evencover.monitoring.drift import Drift, drifts
from evencover.monitoring.evidence import (
    coverage_limits,
    log_mean_e,
    raised,
    shortfall_log_e,
    urn_log_e,
)
from evencover.monitoring.files import damaged, read_state, write_state
from evencover.monitoring.watching import Observing, Urn, Watching
from evencover.predictors.base import BasePredictor
from evencover.predictors.content import digest
from evencover.predictors.matching import (
    is_calibration_data,
    like_calibration,
    require_fitted,
    require_labels,
)
from evencover.predictors.unlike import about_copies
from evencover.quantiles import exact_fraction

Item = TypeVar("Item")


class Evidence(NamedTuple):
    """An e-value, and whether it is large enough for an alarm."""

    e_value: float
    alarm: bool


class CoverageMonitor:
    """Watches the coverage of every class while labels come in.

    Whatever it says holds at every moment, however often somebody looks, and over all classes at
    once. It remembers counts, so states of several services add up (`+`), and the order in which
    rows came does not matter. It asks separate questions, each with its own level `false_alarm`:

    - *Is the promise broken?* `alarms`, `any_class` and `overall` test that coverage is at least
      1 - alpha - tolerance. Of the classes in alarm, at most a share `false_alarm` is wrongly there
      (on average), and while every class keeps the promise, that there is ever any alarm has at
      most this probability. Every class is held to it, also by methods that only aim at it.
    - *Does a class fit worse than on calibration day?* `changes`. With few calibration rows many
      classes are off the promise from the first day; this question takes that noise into account.
      It asks whether the scores of a class's new rows come like those of its calibration rows: how
      many are within the conformal quantile of its own, which is CLASSWISE's threshold, whatever
      the method. Only that is exact: a threshold learnt from other rows, too, has no known law.
    - Without labels: `drift`, of set sizes and predicted classes. It says nothing about coverage.

    Parameters
    ----------
    predictor
        A calibrated predictor.
    false_alarm
        The level of each question, in (0, 1).
    tolerance
        How far below 1 - alpha coverage may be before the promise counts as broken.

    >>> from evencover import ClasswisePredictor
    >>> rows = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]] * 20
    >>> predictor = ClasswisePredictor(alpha=0.1).fit(rows, [0, 0, 1] * 20)
    >>> monitor = CoverageMonitor(predictor)
    >>> monitor.update_counts([0, 1], covered=[90, 60], rows=[100, 100]).alarms().tolist()
    [1]
    """

    def __init__(
        self, predictor: BasePredictor, false_alarm: float = 0.05, tolerance: float = 0.02
    ) -> None:
        require_fitted(predictor)
        self.predictor = predictor
        self.false_alarm = float(exact_fraction(false_alarm, "CoverageMonitor", "false_alarm"))
        self.tolerance = real_number(tolerance, "tolerance", "CoverageMonitor", 0)
        self.promised = float(1 - exact_fraction(predictor.alpha)) - self.tolerance
        if self.promised <= 0:
            raise InputError(
                "The 'tolerance' parameter of CoverageMonitor must be below 1 - alpha, "
                f"{float(1 - exact_fraction(predictor.alpha)):g} here. Got {tolerance!r} instead."
            )
        self.model = digest(predictor)
        self.counts = Counts(predictor.n_classes_)
        self._urn = Urn.of(predictor)
        self._thresholds = predictor.thresholds_

    # ---- rows come in ----------------------------------------------------------------------------

    def update(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        groups: Any = None,
        period: str | None = None,
        once: bool = False,
    ) -> Self:
        """Count labelled rows. Their sets are made anew from row and id, which must be the same.

        Parameters
        ----------
        probabilities, labels, ids, groups
            As in `BasePredictor.evaluate`.
        period
            When, for the history; names must sort by time. By default today's date (UTC).
        once
            Refuse rows that were counted before under this name: two runs on the same file.
        """
        source = self._source(probabilities, labels, ids)
        require_labels(source, "Monitoring")
        rule = self.predictor.rule(logits=source.logits, groups=groups)
        new = Counts(self.predictor.n_classes_)
        for seen in map_source(source, ids, Watching(rule, self._urn)):
            new.add_labelled(_period(period), seen.rows, seen.covered)
            if self._urn is not None:
                new.urn += np.stack([seen.rows, seen.within])
        if is_calibration_data(self.predictor, source):
            raise InputError(
                "Monitored rows must not be used for calibration. Got the calibration rows of "
                f"the model in {source.name}; pass rows that came later."
            )
        for sentence in about_copies(self.predictor, source):
            warn_caller(sentence)
        if once and source.fingerprint is not None:
            if source.fingerprint in self.counts.inputs:
                raise InputError(
                    f"The rows of {source.name} have been counted before; evidence counted twice "
                    "gives false alarms. Count each labelled row once."
                )
            new.inputs = frozenset([source.fingerprint])
        self.counts += new
        return self

    def update_counts(
        self, classes: Any, covered: Any, rows: Any, *, period: str | None = None
    ) -> Self:
        """Count rows by what is known of them: of each class, how many, and how many were covered.

        Whether a class fits worse than on calibration day can be told from this only if its
        threshold is that of its own rows (CLASSWISE).
        """
        classes, covered, rows = np.broadcast_arrays(
            *(np.atleast_1d(plain_array(values)) for values in (classes, covered, rows))
        )
        n_classes = self.predictor.n_classes_
        if any(values.dtype.kind not in "iu" for values in (classes, covered, rows)):
            raise InputError("'classes', 'covered' and 'rows' must be whole numbers.")
        if classes.size and not 0 <= classes.min() <= classes.max() < n_classes:
            raise InputError(
                f"'classes' must be from 0 to {n_classes - 1}. Got values from {classes.min()} "
                f"to {classes.max()}."
            )
        if not ((covered >= 0) & (covered <= rows)).all():
            raise InputError("'covered' must be from 0 to 'rows' in every class.")
        new = Counts(n_classes)
        table = np.zeros((2, n_classes), dtype=np.int64)
        np.add.at(table[0], classes, rows)
        np.add.at(table[1], classes, covered)
        new.add_labelled(_period(period), *table)
        own = self._urn_is_coverage()
        new.urn[:, own] = table[:, own]
        self.counts += new
        return self

    def observe(
        self,
        probabilities: Any,
        *,
        ids: Any = None,
        groups: Any = None,
        reference: bool = False,
        once: bool = False,
    ) -> Self:
        """Count the sets of rows without labels, for `drift`.

        With `reference` the rows are those that drift is measured from: calibration rows, or those
        of a time when all was well. With `once`, rows that were counted before under this name are
        not counted again, with a warning.
        """
        source = self._source(probabilities)
        rule = self.predictor.rule(logits=source.logits, groups=groups)
        new, mark = Counts(self.predictor.n_classes_), Fingerprint()
        for sizes, top_classes, of_block in map_source(source, ids, Observing(rule)):
            new.add_sets(sizes, top_classes, reference=reference)
            mark += of_block
        if once:
            new.inputs = frozenset([f"{UNLABELED}{mark.hexdigest()}"])
            if new.inputs <= self.counts.inputs:
                warn_caller(
                    f"The {int(new.sizes.sum())} rows of {source.name} were counted for drift "
                    "before; they are not counted again."
                )
                return self
        self.counts += new
        return self

    def observe_sets(self, sizes: IntArray, top_classes: IntArray) -> None:
        """The same, for sets that were made already: their sizes and most probable classes (n,)."""
        self.counts.add_sets(sizes, top_classes, reference=False)

    def _source(self, probabilities: Any, labels: Any = None, ids: Any = None) -> Source:
        if self.predictor.thresholds_ is not self._thresholds:
            raise InputError(
                "'predictor' must stay as it was when its monitor was made. Got one that was "
                "calibrated since; make a new CoverageMonitor of it."
            )
        return like_calibration(self.predictor, probabilities, labels, ids)

    def _urn_is_coverage(self) -> IntArray:
        """The classes in which a row is covered just if its score is within the urn's limit."""
        predictor, urn = self.predictor, self._urn
        plain = predictor.own_rows_only and predictor.allow_empty and not predictor.exact
        if urn is None or not plain:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(
            predictor.score_.base_thresholds(predictor.limits_).upper == urn.limits
        )

    # ---- what follows ----------------------------------------------------------------------------

    @property
    def rows(self) -> IntArray:
        """(K,) labelled rows of each class."""
        return self.counts.rows

    @property
    def covered(self) -> IntArray:
        """(K,) those whose set holds their label."""
        return self.counts.covered

    def log_e_values(self) -> FloatArray:
        """(K,) the evidence that a class's coverage is below 1 - alpha - tolerance, as logs."""
        return shortfall_log_e(self.covered, self.rows - self.covered, self.promised)

    def e_values(self) -> FloatArray:
        """(K,) the same as e-values: at level 0.05, 20 is an alarm for a class looked at alone."""
        return _exp(self.log_e_values())

    def alarms(self) -> IntArray:
        """The classes that break the promise, those with the strongest evidence first."""
        return _named(self.log_e_values(), self.false_alarm)

    def any_class(self) -> Evidence:
        """Whether any class breaks the promise: an alarm whenever `alarms` has one, or sooner."""
        return self._evidence(log_mean_e(self.log_e_values()))

    def overall(self) -> Evidence:
        """Whether rows of all classes together are covered less than 1 - alpha - tolerance."""
        hits = self.covered.sum(keepdims=True)
        misses = self.rows.sum(keepdims=True) - hits
        return self._evidence(float(shortfall_log_e(hits, misses, self.promised)[0]))

    def change_log_e_values(self) -> FloatArray | None:
        """(K,) the evidence that classes fit worse than on calibration day; None without rows."""
        if self._urn is None:
            return None
        rows, within = self.counts.urn
        return urn_log_e(within, rows - within, self._urn.ranks, self._urn.counts)

    def changes(self) -> IntArray:
        """The classes whose new rows fit worse than their calibration rows."""
        log_e = self.change_log_e_values()
        return np.empty(0, np.int64) if log_e is None else _named(log_e, self.false_alarm)

    def any_change(self) -> Evidence:
        """Whether any class fits worse than on calibration day."""
        log_e = self.change_log_e_values()
        return self._evidence(0.0 if log_e is None else log_mean_e(log_e))

    def coverage_interval(self, *, each: bool = False) -> FloatArray:
        """(K, 2) limits of each class's coverage, at all times, with probability 1 - false_alarm.

        They hold for all classes at once or, with `each`, for each class by itself.
        """
        level = self.false_alarm / (1 if each else self.predictor.n_classes_)
        return coverage_limits(self.covered, self.rows - self.covered, level)

    def drift(self) -> list[Drift]:
        """How set sizes and predicted classes differ from the reference, the clearest first."""
        return drifts(self.counts, self.false_alarm, self.predictor.class_names_)

    @property
    def alarm(self) -> bool:
        """Whether any of the questions about coverage has an alarm; drift is not about coverage."""
        return self.any_class().alarm or self.overall().alarm or self.any_change().alarm

    def _evidence(self, log_e: float) -> Evidence:
        return Evidence(float(_exp(np.array(log_e))), bool(log_e >= -np.log(self.false_alarm)))

    # ---- merging and files -----------------------------------------------------------------------

    def __add__(self, other: CoverageMonitor) -> CoverageMonitor:
        for name in ("model", "false_alarm", "tolerance"):
            if getattr(self, name) != getattr(other, name):
                raise InputError(
                    f"Only monitors of the same {name} can be merged. "
                    f"Got {getattr(self, name)} and {getattr(other, name)}."
                )
        twice = self.counts.inputs & other.counts.inputs
        if twice:
            raise InputError(
                f"Both monitors counted the same rows ({len(twice)} input"
                f"{'' if len(twice) == 1 else 's'} or ids); evidence counted twice gives false "
                "alarms."
            )
        both = self.empty()
        both.counts = self.counts + other.counts
        return both

    def empty(self) -> Self:
        """A monitor of the same model and levels that has counted nothing; made at once."""
        other = copy(self)
        other.counts = Counts(self.predictor.n_classes_)
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CoverageMonitor) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state, whole or not at all; the one before is kept under NAME.before."""
        write_state(path, self._content())

    @classmethod
    def load(cls, path: str | os.PathLike[str], predictor: BasePredictor) -> CoverageMonitor:
        """Read a state that `save` wrote for this predictor."""
        content = read_state(path)
        if content.get("model") != digest(predictor):
            raise InputError(f"'{path}' belongs to another model; a new model starts a new state.")
        try:
            monitor = cls(predictor, content["false_alarm"], content["tolerance"])
            monitor.counts = Counts.from_dict(content["counts"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise damaged(Path(path), str(error).rstrip(".") or type(error).__name__) from None
        if monitor.counts.n_classes != predictor.n_classes_:
            raise damaged(Path(path), "its classes are not those of the model")
        return monitor

    @classmethod
    def open(
        cls, path: str | os.PathLike[str] | None, predictor: BasePredictor, **levels: float
    ) -> CoverageMonitor:
        """Go on with the state in a file; without one, a new monitor.

        `levels` are `false_alarm` and `tolerance`, if they are wanted; they must be those of the
        state.
        """
        if path is None or not Path(path).exists():
            return cls(predictor, **levels)
        monitor = cls.load(path, predictor)
        for name, value in levels.items():
            if value != getattr(monitor, name):
                raise InputError(
                    f"{name!r} must be {getattr(monitor, name)}, as in '{path}'. Got {value}; a "
                    "level that changes while one looks is none. Start a new state."
                )
        return monitor

    def _content(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "false_alarm": self.false_alarm,
            "tolerance": self.tolerance,
            "counts": self.counts.to_dict(),
        }

    def map_history(self, function: Callable[[Self], Item]) -> dict[str, Item]:
        """What a function says of the monitor as it was at the end of each period."""
        then, found = self.empty(), {}
        for period in sorted(self.counts.periods):
            then.counts.periods[period] = self.counts.periods[period]
            found[period] = function(then)
        return found


def _period(name: str | None) -> str:
    return datetime.now(UTC).date().isoformat() if name is None else str(name)


def _named(log_e: FloatArray, level: float) -> IntArray:
    named = np.flatnonzero(raised(log_e, level))
    return named[np.argsort(-log_e[named], kind="stable")]


def _exp(log_e: FloatArray) -> FloatArray:
    """E-values, the largest number there is for those beyond it."""
    return np.exp(np.minimum(log_e, 709.0))
