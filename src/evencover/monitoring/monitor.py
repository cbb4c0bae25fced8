"""CoverageMonitor: counts, which add up in any order, and the evidence that follows from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.data.fingerprint import Fingerprint
from evencover.data.source import Block, Source
from evencover.engine.blocks import map_source
from evencover.errors import InputError, warn_caller
from evencover.monitoring.evidence import (
    coverage_limits,
    difference_log_e,
    e_values,
    log_mean_e,
    raised,
    shortfall_log_e,
    urn_log_e,
)
from evencover.monitoring.store import damaged, read_state, write_state
from evencover.predictors.base import BasePredictor
from evencover.predictors.fitting import (
    align_to_calibration,
    is_calibration_data,
    require_fitted,
    require_labels,
)
from evencover.predictors.rule import SetRule
from evencover.predictors.shift_checks import about_copies
from evencover.predictors.state import digest
from evencover.quantiles import conformal_ranks, exact_fraction
from evencover.validation import real_number

# Set sizes are counted in bins: 0, 1, 2, 3 to 5, 6 to 10, ...; the last has no end.
SIZE_EDGES = np.array([0, 1, 2, 3, 6, 11, 21, 51, 101, 1001])
MOST_PERIODS = 60  # that are told apart; older ones become one
EARLIER = ""  # its name, which sorts before all others
ONE_ROW = "id "  # how the name of an input begins that is one row
UNLABELED = "unlabeled "  # or whose rows have no labels


@dataclass(eq=False)
class Counts:
    """Whole numbers by class, all of them sums over rows.

    Parameters
    ----------
    n_classes
        K.
    periods
        (2, K) rows, and those whose set holds their label, by period, such as a day.
    urn
        (2, K) rows whose scores were held against their class's calibration scores, and how many
        of these were within.
    sizes, tops
        (2, B) sets by size, (2, K) rows by most probable class, of rows without labels; first those
        that drift is measured from, then those of now.
    inputs
        What must not be counted twice: fingerprints of inputs, ids of single rows, and names of
        services.
    """

    n_classes: int
    periods: dict[str, IntArray] = field(default_factory=dict)
    urn: IntArray = field(init=False)
    sizes: IntArray = field(init=False)
    tops: IntArray = field(init=False)
    inputs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.urn = np.zeros((2, self.n_classes), dtype=np.int64)
        self.sizes = np.zeros((2, len(SIZE_EDGES)), dtype=np.int64)
        self.tops = np.zeros((2, self.n_classes), dtype=np.int64)

    @property
    def rows(self) -> IntArray:
        """(K,) labelled rows of each class."""
        return self._labelled()[0]

    @property
    def covered(self) -> IntArray:
        """(K,) those whose set holds their label."""
        return self._labelled()[1]

    def _labelled(self) -> IntArray:
        return sum(self.periods.values(), np.zeros((2, self.n_classes), dtype=np.int64))

    def add_labelled(self, period: str, rows: IntArray, covered: IntArray) -> None:
        """Count labelled rows (K,) of a period."""
        mine = self.periods.get(period, np.zeros((2, self.n_classes), dtype=np.int64))
        self.periods[period] = mine + np.stack([rows, covered])
        self._forget_old_periods()

    def add_sets(self, sizes: IntArray, top_classes: IntArray, *, reference: bool) -> None:
        """Count the sets (n,) of rows by size and by most probable class."""
        row = 0 if reference else 1
        bins = np.searchsorted(SIZE_EDGES, sizes, side="right") - 1
        self.sizes[row] += np.bincount(bins, minlength=len(SIZE_EDGES))
        self.tops[row] += np.bincount(top_classes, minlength=self.n_classes)

    @property
    def ids(self) -> Array:
        """The ids (n,) of single rows that were counted, as numbers of 64 bits."""
        found = [int(name[len(ONE_ROW) :], 16) for name in self.inputs if name.startswith(ONE_ROW)]
        return np.array(found, dtype=np.uint64)

    def add_ids(self, keys: Array) -> None:
        """Remember the ids (n,) of rows that were counted."""
        self.inputs |= {f"{ONE_ROW}{key:x}" for key in keys.tolist()}

    def _forget_old_periods(self) -> None:
        """One period for all that are too old: the same whether before or after a merge."""
        old = sorted(set(self.periods) - {EARLIER})[:-MOST_PERIODS]
        for name in old:
            before = self.periods.get(EARLIER, np.zeros((2, self.n_classes), dtype=np.int64))
            self.periods[EARLIER] = before + self.periods.pop(name)

    def __add__(self, other: Counts) -> Counts:
        both = Counts(self.n_classes, dict(self.periods), inputs=self.inputs | other.inputs)
        for name in ("urn", "sizes", "tops"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        for period, (rows, covered) in other.periods.items():
            both.add_labelled(period, rows, covered)
        both._forget_old_periods()
        return both

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts) and self.to_dict() == other.to_dict()

    # ---- files ---------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers; of the classes only those that were seen."""
        return {
            "n_classes": self.n_classes,
            "periods": {name: _sparse(self.periods[name]) for name in sorted(self.periods)},
            "urn": _sparse(self.urn),
            "sizes": self.sizes.tolist(),
            "tops": _sparse(self.tops),
            "inputs": sorted(self.inputs),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Counts:
        """What `to_dict` gave, checked."""
        if set(content) != {each.name for each in fields(cls)}:
            raise InputError("it lacks some of its counts")
        counts = cls(int(content["n_classes"]), inputs=frozenset(map(str, content["inputs"])))
        n_classes = counts.n_classes
        for name, listed in content["periods"].items():
            counts.periods[str(name)] = _dense(listed, n_classes)
        counts.urn, counts.tops = (_dense(content[name], n_classes) for name in ("urn", "tops"))
        counts.sizes = np.array(content["sizes"], dtype=np.int64)
        labelled = [*counts.periods.values(), counts.urn]
        if counts.sizes.shape != (2, len(SIZE_EDGES)) or (counts.sizes < 0).any():
            raise InputError("its set sizes are no counts")
        if any((part[1] > part[0]).any() for part in labelled):
            raise InputError("more rows are covered than there are")
        return counts


def _sparse(table: IntArray) -> dict[str, list[int]]:
    seen = np.flatnonzero(table.any(axis=0))
    first, second = table[:, seen].tolist()
    return {"classes": seen.tolist(), "first": first, "second": second}


def _dense(listed: dict[str, Any], n_classes: int) -> IntArray:
    classes, first, second = (_whole(listed[name]) for name in ("classes", "first", "second"))
    if not len(classes) == len(first) == len(second) == len(np.unique(classes)):
        raise InputError("its lists have different lengths")
    if len(classes) and not 0 <= classes.min() <= classes.max() < n_classes:
        raise InputError("its classes are not those of the model")
    if len(classes) and min(first.min(), second.min()) < 0:
        raise InputError("its counts are below 0")
    table = np.zeros((2, n_classes), dtype=np.int64)
    table[0, classes], table[1, classes] = first, second
    return table


def _whole(values: Any) -> Array:
    if not all(type(value) is int for value in values):
        raise InputError("its counts must be whole numbers")
    return np.array(values, dtype=np.int64)


class Drift(NamedTuple):
    """One share of the sets, then and now.

    ``what`` it is a share of; ``before`` and ``now``, the shares; ``e_value``, the evidence that
    they differ; ``drifted``, whether it is enough, at most a share of these being wrong on average.
    """

    what: str
    before: float
    now: float
    e_value: float
    drifted: bool


def drifts(counts: Counts, level: float, class_names: Sequence[str] | None) -> list[Drift]:
    """Every share that can be compared, the clearest difference first; none without both sides."""
    n_before, n_now = counts.sizes.sum(axis=1).tolist()
    if not n_before or not n_now:
        return []
    names = [f"sets of {_size_name(place)}" for place in range(len(SIZE_EDGES))]
    names += [
        f"rows predicted as {name}"
        for name in (range(counts.n_classes) if class_names is None else class_names)
    ]
    before, now = np.concatenate([counts.sizes, counts.tops], axis=1)
    seen = np.flatnonzero((before + now) > 0)
    log_e = difference_log_e(
        np.stack([before[seen], n_before - before[seen]], axis=-1),
        np.stack([now[seen], n_now - now[seen]], axis=-1),
    )
    drifted = raised(log_e, level)
    found = [
        Drift(
            names[place],
            float(before[place] / n_before),
            float(now[place] / n_now),
            float(e_values(evidence)),
            bool(is_clear),
        )
        for place, evidence, is_clear in zip(seen, log_e, drifted, strict=True)
    ]
    order = np.argsort(-log_e, kind="stable")
    return [found[place] for place in order]


def _size_name(place: int) -> str:
    first = int(SIZE_EDGES[place])
    if place == len(SIZE_EDGES) - 1:
        return f"{first} classes or more"
    last = int(SIZE_EDGES[place + 1]) - 1
    if first == last:
        return {0: "no class", 1: "one class"}.get(first, f"{first} classes")
    return f"{first} to {last} classes"


class Urn(NamedTuple):
    """Where a class's calibration scores lie: the `ranks`-th smallest of `counts` is the limit.

    The rank is CLASSWISE's, or the last score's where there are too few for it. It does not depend
    on the scores, which makes the chance of a new score to be within exact, whatever the method.
    The rank of the method's own threshold would depend on them, and its urn would have no law.
    """

    ranks: IntArray
    counts: IntArray
    limits: FloatArray

    @classmethod
    def of(cls, predictor: BasePredictor) -> Urn | None:
        """The urns of the classes; None if the predictor keeps no calibration rows."""
        own = predictor.own_scores()
        if own is None:
            return None
        ranks = np.minimum(conformal_ranks(own.counts, predictor.alpha), own.counts)
        return cls(ranks, own.counts, own.at_ranks(ranks))


def count_block(
    rule: SetRule, urn: Urn | None, block: Block, ids: Array | None
) -> tuple[IntArray, IntArray, IntArray]:
    """Count a block's rows, covered rows, and rows within the urn's limit, by class (K,)."""
    assert block.labels is not None
    labels, n_classes = block.labels, block.rows.shape[1]
    _, is_covered, _ = rule.coverage(block, ids)
    is_within = np.zeros(len(labels), dtype=bool)
    if urn is not None:
        is_within = rule.scoring.true_labels(block, ids) <= urn.limits[labels]
    rows, covered, within = (
        np.bincount(each, minlength=n_classes)
        for each in (labels, labels[is_covered], labels[is_within])
    )
    return rows, covered, within


def observe_block(
    rule: SetRule, block: Block, ids: Array | None
) -> tuple[IntArray, IntArray, Fingerprint]:
    """Return set sizes (n,), most probable classes (n,), and a fingerprint of unlabeled rows."""
    tops = block.rows.argmax(axis=1)  # they stand for the labels in the fingerprint
    fingerprint = Fingerprint.of(block.start, block.rows, tops, is_first=block.start == 0)
    return rule.sets(block, ids).sizes, tops, fingerprint


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
        count = partial(count_block, rule, self._urn)
        for rows, covered, within in map_source(source, ids, count):
            new.add_labelled(_period(period), rows, covered)
            if self._urn is not None:
                new.urn += np.stack([rows, within])
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
            *(np.atleast_1d(to_numpy(values)) for values in (classes, covered, rows))
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
        new, fingerprint = Counts(self.predictor.n_classes_), Fingerprint()
        for sizes, tops, of_block in map_source(source, ids, partial(observe_block, rule)):
            new.add_sets(sizes, tops, reference=reference)
            fingerprint += of_block
        if once:
            new.inputs = frozenset([f"{UNLABELED}{fingerprint.hexdigest()}"])
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
        return align_to_calibration(self.predictor, probabilities, labels, ids)

    def _urn_is_coverage(self) -> IntArray:
        """The classes in which a row is covered just if its score is within the urn's limit."""
        predictor, urn = self.predictor, self._urn
        plain = predictor.own_examples_only and predictor.allow_empty and not predictor.exact
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
        return e_values(self.log_e_values())

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
        return Evidence(float(e_values(log_e)), bool(log_e >= -np.log(self.false_alarm)))

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
