"""CoverageMonitor: labeled examples counted in a store, and the evidence that follows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from itertools import pairwise, repeat
from threading import Lock
from typing import Any, NamedTuple, Self

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.data.source import Block, Source
from evencover.engine.blocks import map_source
from evencover.errors import InputError, listed, warn_caller
from evencover.monitoring.evidence import (
    coverage_limits,
    difference_log_e,
    e_values,
    log_mean_e,
    raised,
    rank_test,
    ranks_within,
    shortfall_log_e,
    since_restarts,
    urn_log_e,
    with_restarts,
)
from evencover.monitoring.store import (
    OVERALL,
    About,
    Judged,
    Labels,
    Served,
    Store,
    pack,
    today,
)
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
from evencover.quantiles import Thresholds, conformal_ranks, exact_fraction
from evencover.randomness import row_ids
from evencover.sets import PredictionSets
from evencover.validation import real_number

# Set sizes are counted in bins: 0, 1, 2, 3 to 5, 6 to 10, ...; the last has no end.
SIZE_EDGES = np.array([0, 1, 2, 3, 6, 11, 21, 51, 101, 1001])
UNKNOWN = "unknown"  # what the state calls labels of no class in files and arrays
LATEST, DELAY_LEVEL, FEWEST = 10_000, 1e-3, 10  # labels compared, level, labels of a class


class Drift(NamedTuple):
    """Compare one fraction of the sets with the reference.

    ``what`` names it; ``before`` and ``now`` are the fractions; ``e_value`` is the evidence that
    they differ; ``drifted`` is whether it is significant, at a false discovery rate.
    """

    what: str
    before: float
    now: float
    e_value: float
    drifted: bool


def drifts(counts: IntArray, level: float, class_names: Sequence[str] | None) -> list[Drift]:
    """Compare set sizes and top classes (2, B + K), the most significant difference first."""
    n_before, n_now = counts[:, : len(SIZE_EDGES)].sum(axis=1).tolist()
    if not n_before or not n_now:
        return []
    names = [f"sets of {_size_name(place)}" for place in range(len(SIZE_EDGES))]
    names += [
        f"rows predicted as {name}"
        for name in class_names or range(counts.shape[1] - len(SIZE_EDGES))
    ]
    before, now = counts
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
    """Locate each class's calibration scores: the `ranks`-th smallest of `counts` is the limit.

    The rank is CLASSWISE's, or the last score's where there are too few for it. It does not depend
    on the scores, which makes the probability that a new score is within exact for every method.
    The rank of the method's own threshold depends on them, and its urn has no known law.
    """

    ranks: IntArray
    counts: IntArray
    limits: FloatArray

    @classmethod
    def of(cls, predictor: BasePredictor) -> Urn | None:
        """Return the urns of the classes; None if the predictor keeps no calibration rows."""
        own = predictor.own_scores()
        if own is None:
            return None
        ranks = np.minimum(conformal_ranks(own.counts, predictor.class_alpha), own.counts)
        return cls(ranks, own.counts, own.at_ranks(ranks))


def judge_block(
    rule: SetRule, urn: Urn | None, by_content: bool, block: Block, ids: Array | None
) -> tuple[IntArray, Array, Array | None, Array | None]:
    """Return labels, whether sets contain them, whether they are within the urn, and row keys.

    A label that is not among the classes is `OVERALL`, and a miss.
    """
    assert block.labels is not None
    known, n_classes = block.known_labels, block.rows.shape[1]
    labels = np.where(block.labels < n_classes, block.labels, OVERALL)
    is_covered = rule.coverage(block, ids)[1] & (labels != OVERALL)
    is_within = None
    if urn is not None:
        is_within = rule.scoring.true_labels(block, ids) <= urn.limits[known]
        is_within &= labels != OVERALL
    keys = content_keys(block.rows, labels) if ids is None and by_content else ids
    return labels, is_covered, is_within, keys


def observe_block(
    rule: SetRule, within: SetRule | None, by_content: bool, block: Block, ids: Array | None
) -> tuple[IntArray, list[bytes], list[bytes | None], Array | None]:
    """Return drift places (n, 2), packed sets, packed classes within the urn, and row keys."""
    sets = rule.sets(block, ids)
    drift = drift_places(sets.sizes, block.rows.argmax(axis=1))
    keys = content_keys(block.rows, None) if ids is None and by_content else ids
    if keys is None:
        return drift, [], [], None
    also = None if within is None else within.sets(block, ids)
    return drift, packed(sets), packed(also) if also else [None] * len(sets), keys


def drift_places(sizes: IntArray, top_classes: IntArray) -> IntArray:
    """Return where the drift counts have a row's set size and its most probable class (n, 2)."""
    bins = np.searchsorted(SIZE_EDGES, sizes, side="right") - 1
    return np.stack([bins, top_classes + len(SIZE_EDGES)], axis=-1)


def packed(sets: PredictionSets) -> list[Any]:
    """Return each row's set as bytes."""
    ends = sets.indptr.tolist()
    return [pack(sets.indices[start:stop], sets.n_classes) for start, stop in pairwise(ends)]


def content_keys(rows: Array, labels: IntArray | None) -> Array:
    """Hash each row with its label (n,), for rows without ids."""
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    tails = repeat(b"") if labels is None else (str(label).encode() for label in labels.tolist())
    digests = (
        blake2b(row.tobytes() + tail, digest_size=8).digest()
        for row, tail in zip(rows, tails, strict=False)
    )
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def nth_copies(keys: Array) -> Array:
    """Make keys of equal rows distinct, in any order: add n to the key of the n-th."""
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    first = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]))
    copies = np.empty(len(keys), dtype=np.uint64)
    copies[order] = np.arange(len(keys)) - np.repeat(first, np.diff(first, append=len(keys)))
    return keys + copies


class Evidence(NamedTuple):
    """Give an e-value, and whether it raises an alarm."""

    e_value: float
    alarm: bool


class CoverageMonitor:
    """Track the coverage of every class as labels come in.

    The tests stay valid at any number of looks, and over all classes at once. Each has its own
    level `false_alarm`:

    - *Coverage below target*: `alarms`, `any_class` and `overall` test that coverage is at least
      1 - alpha - tolerance. Of the classes in alarm, at most a fraction `false_alarm` is wrong on
      average. While every class meets the target, the probability that there is ever an alarm is
      at most `false_alarm`. This applies to every method, guaranteed or not.
    - *Score shift*: `shifts`. With few calibration examples many classes are below target from
      the start; this test accounts for that noise. It counts how many scores of a class's new
      examples are within the conformal quantile of its own calibration scores (CLASSWISE's
      threshold), for every method: only this count has an exact distribution.
    - *Drift* of set sizes and predicted classes, without labels: `drift`. It does not measure
      coverage.

    The level holds if the arrival of labels does not depend on the outcome. Labels that arrive
    sooner for misses, or for hard classes, invalidate it; `label_delay` compares delays.

    Parameters
    ----------
    predictor
        A calibrated predictor.
    false_alarm
        The level of each test, in (0, 1); 0.05 in a new state.
    tolerance
        How far below 1 - alpha coverage may be without an alarm; 0.02 in a new state.
    store
        A SQLite file, ``postgresql://...``, or a `Store`; None keeps the state in memory. A state
        may have any number of models and processes.
    name
        Name of the model in the state.

    >>> from evencover import ClasswisePredictor
    >>> rows = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]] * 20
    >>> predictor = ClasswisePredictor(alpha=0.1).fit(rows, [0, 0, 1] * 20)
    >>> monitor = CoverageMonitor(predictor)
    >>> monitor.update_counts([0, 1], covered=[90, 60], rows=[100, 100]).alarms().tolist()
    [1]
    """

    def __init__(
        self,
        predictor: BasePredictor,
        false_alarm: float | None = None,
        tolerance: float | None = None,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        name: str = "",
    ) -> None:
        require_fitted(predictor)
        self.predictor, self.model = predictor, digest(predictor)
        asked = {"false_alarm": false_alarm, "tolerance": tolerance}
        level = exact_fraction(
            0.05 if false_alarm is None else false_alarm, "CoverageMonitor", "false_alarm"
        )
        least = 0.02 if tolerance is None else tolerance
        least = real_number(least, "tolerance", "CoverageMonitor", 0)
        coverage = 1 - predictor.alpha_
        if coverage.min() <= least:
            raise InputError(
                "The 'tolerance' parameter of CoverageMonitor must be below 1 - alpha, "
                f"{coverage.min():g} here. Got {tolerance!r} instead."
            )
        self.store = store if isinstance(store, Store) else Store(store)
        n_classes = predictor.n_classes_
        self.about = self.store.add_model(
            About(
                *(self.model, name, n_classes, predictor.class_names_),
                *(float(level), least, coverage - least),
            )
        )
        self.false_alarm, self.tolerance = self.about.false_alarm, self.about.tolerance
        for parameter, value in asked.items():
            if value is not None and float(value) != getattr(self.about, parameter):
                raise InputError(
                    f"{parameter!r} must be {getattr(self.about, parameter)}, as in "
                    f"'{self.store.name}'. Got {value}; start a new state to change it."
                )
        self.targets = self.about.targets
        self._urn = Urn.of(predictor)
        kept = predictor.kept_ids_  # without ids, the place of the first row only
        if kept is None or len(kept) != predictor.n_calibration_ or len(kept) == 1:
            kept = np.empty(0, dtype=np.int64)
        self._calibration_ids = np.sort(kept)
        self._version, self._blocks = 0, dict[int, list[list[int]]]()
        self._log_e, self._log_shift = np.zeros(n_classes), np.zeros(n_classes)
        self._counts = np.zeros((4, n_classes), dtype=np.int64)
        self._overall, self._n = 0.0, np.zeros(2, dtype=np.int64)
        self._began = dict[int, str]()
        self._lock = Lock()

    # ---- input -----------------------------------------------------------------------------------

    def update(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        groups: Any = None,
        period: str | None = None,
        once: bool | None = None,
    ) -> Self:
        """Count labeled rows; compute their sets again from the same rows and ids.

        Parameters
        ----------
        probabilities, labels, ids, groups
            As in `BasePredictor.evaluate`.
        period
            The time of these rows, for the history; names must sort by time. By default today's
            date (UTC).
        once
            Count a row with an id once (the default); True also recognizes rows without ids by
            their content, False counts every row.
        """
        source = self._source(probabilities, labels, ids)
        require_labels(source, "Monitoring")
        rule = self.predictor.rule(logits=source.logits, groups=groups)
        judge = partial(judge_block, rule, self._urn, once is True)
        parts = [*zip(*map_source(source, ids, judge, fingerprint=True), strict=True)]
        if is_calibration_data(self.predictor, source):
            raise InputError(
                "Monitored rows must not be in the calibration set. Got the calibration rows of "
                f"the model in {source.name}; pass later rows."
            )
        for sentence in about_copies(self.predictor, source):
            warn_caller(sentence)
        if not parts:
            return self
        classes, covered = (np.concatenate(part) for part in parts[:2])
        within = None if self._urn is None else np.concatenate(parts[2])
        keys = self._keys(parts[3], source, ids, once)
        name = today() if period is None else str(period)
        names = [UNKNOWN] * len(classes)  # sources do not keep the names of unknown labels
        judged = Judged(classes, covered, within, [name] * len(classes), keys, labels=names)
        self._note_repeated(len(classes), self.store.add_judged(self.about.key, judged))
        return self

    def _keys(self, parts: Any, source: Source, ids: Any, once: bool | None) -> Array | None:
        if once is False or any(part is None for part in parts):
            return None
        keys: Array = np.concatenate(parts)
        if ids is None and source.ids is None:
            return nth_copies(keys)
        self._reject_calibration_ids(keys)
        return keys

    def _reject_calibration_ids(self, keys: Array) -> None:
        own = self._calibration_ids
        keys = keys.astype(np.uint64, copy=False).view(np.int64)
        place = np.minimum(np.searchsorted(own, keys), len(own) - 1)
        n_calibrated = int((own[place] == keys).sum()) if len(own) else 0
        if n_calibrated:
            raise InputError(
                f"'ids' must not be in the calibration set. Got {n_calibrated} ids of calibration "
                "rows; pass later rows."
            )

    @staticmethod
    def _note_repeated(n_rows: int, n_new: int) -> None:
        if n_new < n_rows:
            warn_caller(
                f"{n_rows - n_new:,} of {n_rows:,} rows were already counted; they count once."
            )

    def update_counts(
        self, classes: Any, covered: Any, rows: Any, *, period: str | None = None
    ) -> Self:
        """Count examples by class: how many, and how many were covered.

        The test for score shift can use them only where a class's threshold is that of its own
        examples (CLASSWISE).
        """
        classes, covered, rows = np.broadcast_arrays(
            *(np.atleast_1d(to_numpy(values)) for values in (classes, covered, rows))
        )
        n_classes = self.predictor.n_classes_
        if any(values.dtype.kind not in "iu" for values in (classes, covered, rows)):
            raise InputError("'classes', 'covered' and 'rows' must be integers.")
        if classes.size and not 0 <= classes.min() <= classes.max() < n_classes:
            raise InputError(
                f"'classes' must be from 0 to {n_classes - 1}. Got values from {classes.min()} "
                f"to {classes.max()}."
            )
        if not ((covered >= 0) & (covered <= rows)).all():
            raise InputError("'covered' must be from 0 to 'rows' in every class.")
        scored = np.isin(classes, self._urn_is_coverage())
        counts = np.stack([rows, covered, rows * scored, covered * scored], axis=-1)
        name = today() if period is None else str(period)
        self.store.add_counts(self.about.key, classes, counts.astype(np.int64), name)
        return self

    def observe(
        self,
        probabilities: Any,
        *,
        ids: Any = None,
        groups: Any = None,
        period: str | None = None,
        reference: bool = False,
        once: bool | None = None,
    ) -> Self:
        """Record rows without labels: count their sets for `drift`, and await labels of their ids.

        With `reference` the rows are those that drift is measured from, such as the calibration
        rows. `period` and `once` are as in `update`.
        """
        source = self._source(probabilities, ids=ids)
        rule = self.predictor.rule(logits=source.logits, groups=groups)
        within = None if reference else self._within(rule)
        observe = partial(observe_block, rule, within, once is True and not reference)
        parts = [*zip(*map_source(source, ids, observe), strict=True)]
        if not parts:
            return self
        drift = np.concatenate(parts[0])
        keys = None if reference else self._keys(parts[3], source, ids, once)
        if keys is None:
            self.store.add_drift(self.about.key, 0 if reference else 1, drift.ravel())
            return self
        members, also = ([each for part in p for each in part] for p in parts[1:3])
        name = today() if period is None else str(period)
        served = Served(keys, name, members, also, drift)
        self._note_repeated(len(keys), self.store.add_served(self.about.key, served))
        return self

    def served(self, rows: Array, ids: Any, sets: PredictionSets, rule: SetRule) -> None:
        """Record rows (n, K) with ids whose `sets` a service has computed by `rule`."""
        within = self._within(rule)
        also = None if within is None else within.predict_set(rows, ids)
        drift = drift_places(sets.sizes, rows.argmax(axis=1))
        if ids is None:
            self.store.add_drift(self.about.key, 1, drift.ravel())
            return
        lists = packed(also) if also else [None] * len(sets)
        keys = row_ids(ids, len(sets))
        self.store.add_served(self.about.key, Served(keys, today(), packed(sets), lists, drift))

    def label(
        self, ids: Any, labels: Any, *, time: Any = None, period: str | None = None
    ) -> Labels:
        """Count labels of rows that were recorded, each against the model that served it.

        A label counts once, in the period in which its row was served, unless `time` (dates, ISO
        texts or Unix seconds) or `period` states another. Labels of unknown ids wait
        for their row, within the retention. A label that is not among the classes counts as a miss
        of `overall`.
        """
        keys = row_ids(ids, len(ids))
        given = self._given(labels, len(keys))
        self._reject_calibration_ids(keys)
        periods = _periods(time, len(keys)) if period is None else [str(period)] * len(keys)
        return self.store.add_labels(keys, given, periods)

    def label_rows(
        self, rows: Array, labels: Any, rule: SetRule, *, ids: Any = None, time: Any = None
    ) -> Labels:
        """Count labels of rows (n, K) that were not served here."""
        given = self._given(labels, len(rows))
        classes = np.array([self.about.class_of(label) for label in given], dtype=np.int64)
        named = np.maximum(classes, 0)
        covered = rule.predict_set(rows, ids).contains(named) & (classes >= 0)
        within_rule, within = self._within(rule), None
        if within_rule is not None:
            within = within_rule.predict_set(rows, ids).contains(named) & (classes >= 0)
        keys = None if ids is None else row_ids(ids, len(rows))
        if keys is not None:
            self._reject_calibration_ids(keys)
        periods = [period or today() for period in _periods(time, len(rows))]
        judged = Judged(classes, covered, within, periods, keys, labels=given)
        n_counted = self.store.add_judged(self.about.key, judged)
        return Labels(n_counted, len(rows) - n_counted, 0)

    def _given(self, labels: Any, n_rows: int) -> list[str | int]:
        """Return labels; reject numbers that are no index, or also the name of another class."""
        given, index = _labels(labels, n_rows), self.about.index_of_name
        numbers = {each for each in given if isinstance(each, int)}
        most = self.store.most_classes() if numbers else 0
        wrong = sorted(each for each in numbers if not 0 <= each < most)
        if wrong:
            raise InputError(
                f"'labels' that are numbers must be class indices from 0 to {most - 1}. "
                f"Got {listed(wrong, 3)}."
            )
        unclear = sorted(each for each in numbers if index.get(str(each), each) != each)
        if unclear:
            raise InputError(
                "'labels' must be text where numbers name classes. Got "
                f"{listed(unclear, 3)}: the index of one class, the name of another."
            )
        return given

    def _within(self, rule: SetRule) -> SetRule | None:
        """Return the rule for classes within the quantile of their own calibration scores."""
        if self._urn is None:
            return None
        return replace(rule, limits=Thresholds(self._urn.limits), allow_empty=True)

    def _source(self, probabilities: Any, labels: Any = None, ids: Any = None) -> Source:
        if digest(self.predictor) != self.model:
            raise InputError(
                "'predictor' must not change after its monitor is made. Got one that was "
                "calibrated again; make a new CoverageMonitor."
            )
        return align_to_calibration(self.predictor, probabilities, labels, ids, allow_unknown=True)

    def _urn_is_coverage(self) -> IntArray:
        """Return the classes in which covered means that the score is within the urn."""
        predictor, urn = self.predictor, self._urn
        plain = predictor.own_examples_only and predictor.allow_empty and not predictor.exact
        if urn is None or not plain:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(
            predictor.score_.base_thresholds(predictor.limits_).upper == urn.limits
        )

    # ---- results ---------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read the blocks that changed since the last look, and compute their evidence."""
        with self._lock:
            self._read_blocks()

    def _read_blocks(self) -> None:
        changed: set[int] = set()
        for y, block, *counts, period, version in self.store.blocks(self.about.key, self._version):
            own = self._blocks.setdefault(y, [])
            own += [[0, 0, 0, 0, period] for _ in range(block - len(own))]
            own[block : block + 1] = [[*counts, period]]
            changed.add(y)
            self._version = max(self._version, version)
        if not changed:
            return
        classes = sorted(changed)  # OVERALL first
        lists = [self._blocks[y] for y in classes]
        starts = np.cumsum([0, *map(len, lists[:-1])])
        table = np.array([row[:4] for own in lists for row in own], dtype=np.int64)
        later, earlier = since_restarts(table, starts)
        sizes = np.diff(starts, append=len(table))
        each = np.repeat(classes, sizes)
        targets = np.where(each == OVERALL, self.targets.min(), self.targets[each])
        log_e, strongest = with_restarts(
            shortfall_log_e(later[:, 1], later[:, 0] - later[:, 1], targets), starts
        )
        totals = np.add.reduceat(table, starts, axis=0)
        if classes[0] == OVERALL:
            self._overall, self._n = float(log_e[0]), totals[0, :2]
        own_classes = np.array(classes, dtype=np.int64)
        named = own_classes != OVERALL
        self._log_e[own_classes[named]] = log_e[named]
        self._counts[:, own_classes[named]] = totals[named].T
        periods = [row[4] for own in lists for row in own]
        if self._urn is not None:
            ranks, known = (np.where(each == OVERALL, 0, n[each]) for n in self._urn[:2])
            before = earlier[:, 3], earlier[:, 2] - earlier[:, 3]
            shift = urn_log_e(later[:, 3], later[:, 2] - later[:, 3], ranks, known, before)
            log_shift, shifted = with_restarts(shift, starts)
            self._log_shift[own_classes[named]] = log_shift[named]
            strongest = np.where(log_shift > log_e, shifted, strongest)
        self._began |= {y: periods[at] for y, at in zip(classes, strongest.tolist(), strict=True)}

    @property
    def rows(self) -> IntArray:
        """(K,) labeled examples of each class."""
        self._refresh()
        return self._counts[0].copy()

    @property
    def covered(self) -> IntArray:
        """(K,) those whose set contains their label."""
        self._refresh()
        return self._counts[1].copy()

    @property
    def totals(self) -> tuple[int, int]:
        """Labeled examples, and those that are covered, with labels of unknown classes."""
        self._refresh()
        n_rows, n_covered = self._n.tolist()
        return n_rows, n_covered

    def log_e_values(self) -> FloatArray:
        """(K,) log evidence that a class's coverage is below its target."""
        self._refresh()
        return self._log_e.copy()

    def e_values(self) -> FloatArray:
        """(K,) the same as e-values: at level 0.05, 20 is an alarm for a single class."""
        return e_values(self.log_e_values())

    def alarms(self) -> IntArray:
        """Return the classes below target, those with the strongest evidence first."""
        return _named(self.log_e_values(), self.false_alarm)

    def alarm_level(self) -> float:
        """Return the e-value at which `alarms` has one more class."""
        n_named = min(len(self.alarms()) + 1, len(self.targets))
        return len(self.targets) / (n_named * self.false_alarm)

    def any_class(self) -> Evidence:
        """Test whether any class is below target: an alarm whenever `alarms` has one, or sooner."""
        return self._evidence(log_mean_e(self.log_e_values()))

    def overall(self) -> Evidence:
        """Test whether all examples together are below target."""
        self._refresh()
        return self._evidence(self._overall)

    def shift_log_e_values(self) -> FloatArray | None:
        """(K,) log evidence of score shift; None if the predictor keeps no calibration scores."""
        self._refresh()
        return None if self._urn is None else self._log_shift.copy()

    def shifts(self) -> IntArray:
        """Return the classes whose scores shifted since calibration."""
        log_e = self.shift_log_e_values()
        return np.empty(0, np.int64) if log_e is None else _named(log_e, self.false_alarm)

    def any_shift(self) -> Evidence:
        """Test whether the scores of any class shifted since calibration."""
        log_e = self.shift_log_e_values()
        return self._evidence(0.0 if log_e is None else log_mean_e(log_e))

    def began(self, index: int) -> str | None:
        """Return the period in which the strongest evidence about a class begins."""
        self._refresh()
        return self._began.get(index)

    def coverage_interval(self, *, each: bool = False) -> FloatArray:
        """(K, 2) limits of each class's coverage, at all times, with probability 1 - false_alarm.

        They hold for all classes at once or, with `each`, for each class by itself.
        """
        level = self.false_alarm / (1 if each else self.predictor.n_classes_)
        covered = self.covered
        return coverage_limits(covered, self.rows - covered, level)

    def periods(self, classes: Sequence[int] | None = None) -> list[tuple[int, str, int, int]]:
        """Return (class, period, rows, covered), by class and period; class -1 is all classes."""
        return [(y, p, n, c) for y, p, n, c in self.store.periods(self.about.key, classes)]

    def drift(self) -> list[Drift]:
        """Compare set sizes and predicted classes with the reference, most significant first."""
        n_places = len(SIZE_EDGES) + self.predictor.n_classes_
        counts = self.store.drift(self.about.key, n_places)
        return drifts(counts, self.false_alarm, self.predictor.class_names_)

    def has_reference(self) -> bool:
        """Return whether drift can be measured."""
        n_places = len(SIZE_EDGES) + self.predictor.n_classes_
        return bool(self.store.drift(self.about.key, n_places)[0].any())

    def label_delay(self) -> list[str]:
        """Return warnings if label delays differ between classes, or between hits and misses.

        Rank tests (Kruskal-Wallis, Mann-Whitney) of the latest 10,000 labels of served rows, at
        level 0.001 each, over classes with 10 labels or more. Delays are ranked within periods, so
        that delays and coverage may both change over time. Where they differ, the labels of a
        period are not a random sample of it until all have arrived.
        """
        found = self.store.delays(self.about.key, LATEST)
        if not found:
            return []
        classes, covered, periods, delays = (np.array(each) for each in zip(*found, strict=True))
        delays = ranks_within(periods, delays)
        warnings = []
        if rank_test(classes, delays, FEWEST) < DELAY_LEVEL:
            warnings.append(
                "Label delays differ between classes: results for recent periods are biased until "
                "all labels have arrived."
            )
        if rank_test(covered, delays, FEWEST) < DELAY_LEVEL:
            warnings.append(
                "Label delays differ between covered and missed examples: the level of the tests "
                "does not hold."
            )
        return warnings

    @property
    def alarm(self) -> bool:
        """Whether any test of coverage has an alarm; drift is not about coverage."""
        return self.any_class().alarm or self.overall().alarm or self.any_shift().alarm

    def _evidence(self, log_e: float) -> Evidence:
        return Evidence(float(e_values(log_e)), bool(log_e >= -np.log(self.false_alarm)))


def _named(log_e: FloatArray, level: float) -> IntArray:
    named = np.flatnonzero(raised(log_e, level))
    return named[np.argsort(-log_e[named], kind="stable")]


def _labels(labels: Any, n_rows: int) -> list[str | int]:
    values = to_numpy(labels, "'labels'")
    if values.shape != (n_rows,):
        raise InputError(
            f"'labels' must have one entry per row. Got shape {values.shape} for {n_rows} rows."
        )
    found = values.tolist()
    wrong = [each for each in found if type(each) not in (int, str) or each == ""]
    if wrong:
        raise InputError(
            f"'labels' must be class names or indices. Got {listed(map(repr, wrong[:3]))}."
        )
    return found


def _periods(time: Any, n_rows: int) -> list[str | None]:
    """Return the dates (UTC) of moments, one per row or one for all; None where there is none."""
    if time is None:
        return [None] * n_rows
    if isinstance(time, str | int | float | datetime):
        values = [time] * n_rows
    else:
        moments = to_numpy(time, "'time'")
        if moments.dtype.kind == "M":  # whatever its unit; nanoseconds would become integers
            moments = moments.astype("datetime64[us]")
        values = moments.tolist()
    if len(values) != n_rows:
        raise InputError(
            f"'time' must have one entry per row. Got {len(values)} for {n_rows} rows."
        )
    return [_date(value) for value in values]


def _date(value: Any) -> str:
    try:
        if isinstance(value, str):
            with suppress(ValueError):  # of seconds, which files of text hold as text
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return (value.astimezone(UTC) if value.tzinfo else value).date().isoformat()
        return today(float(value))
    except (TypeError, ValueError, OverflowError, OSError):
        raise InputError(
            f"'time' must be ISO dates or Unix seconds. Got {value!r}; write 2026-03-31."
        ) from None
