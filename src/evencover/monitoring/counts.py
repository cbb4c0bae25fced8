"""The labels of a model as they arrived, and the evidence that their counts give of each class."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.monitoring.evidence import (
    Urn,
    block_of,
    coverage_limits,
    shortfall_log_e,
    since_restarts,
    urn_log_e,
    with_restarts,
)
from evencover.monitoring.state import OVERALL, ModelEntry
from evencover.sizes import at_once

AT_ONCE = at_once(50_000, 40)  # labels that are read by one query
# An outcome counts in six columns: a label, and five bits. Outcome 0 is a label that a later
# one replaced; others are 1 + covered + 2 scored + 4 within its quantile + 8 answered + 16 right.
_BITS = np.arange(-1, 32)
OUTCOMES = np.stack([_BITS >= 0, *(_BITS >= 0) * (_BITS >> np.arange(5)[:, None] & 1)], axis=1)


class PeriodCounts(NamedTuple):
    """Count the labeled examples of a class in a period; class -1 is all classes."""

    class_index: int
    period: str
    rows: int
    covered: int


class ClassEvidence(NamedTuple):
    """Counts and log evidence of each class, and of all labels together."""

    totals: IntArray  # (6,) all labels, and by outcome
    overall_log_e: float
    counts: IntArray  # (6, K) the same of each class
    log_e: FloatArray  # (K,)
    log_shift: FloatArray  # (K,)
    strongest: IntArray  # (K,) the block with the largest share of the evidence
    limits: FloatArray  # (2, K) limits of coverage: of all classes, at all times

    @property
    def order(self) -> IntArray:
        """(K,) all classes, those with the strongest evidence first."""
        return np.argsort(-np.maximum(self.log_e, self.log_shift), kind="stable")


class CountedLabels(NamedTuple):
    """What is kept of each label (n,)."""

    class_index: Array
    class_block: Array  # the restart of its class's bets that it belongs to
    block: Array  # the same among all labels
    period: Array  # index among the names of the periods
    outcome: Array

    @classmethod
    def none(cls) -> CountedLabels:
        """Return no labels."""
        return cls(*(np.zeros(0, dtype=dtype) for dtype in ("i4", "i4", "i4", "i4", "i1")))

    def of(self, chosen: Any) -> CountedLabels:
        """Return some of the labels."""
        return CountedLabels(*(column[chosen] for column in self))

    def sums(self, groups: Array, n_groups: int) -> IntArray:
        """Sum the counts of the labels in each group (G, 6)."""
        n_kinds = len(OUTCOMES)
        kinds = np.bincount(groups * n_kinds + self.outcome, minlength=n_groups * n_kinds)
        return kinds.reshape(n_groups, n_kinds) @ OUTCOMES


class LabelLog:
    """The labels of a model up to the last one that was read, 17 bytes for each.

    All of it follows from the table of labels, and may be forgotten at any time.
    """

    def __init__(self, model: ModelEntry, urn: Urn | None) -> None:
        self.model, self.urn = model, urn
        self._forget()

    def _forget(self) -> None:
        n_classes = self.model.n_classes
        self.labels, self.period_names = CountedLabels.none(), list[str]()
        self._last: Any = -1, None, None  # the last label: its number, moment and id
        self._n_arrived = np.zeros(n_classes, dtype=np.int64)  # of each class, also replaced ones
        counts, none = np.zeros((6, n_classes), dtype=np.int64), np.zeros(n_classes)
        limits = np.stack([none, none + 1])
        self.evidence = ClassEvidence(
            np.zeros(6, dtype=np.int64), 0.0, counts, none, none, counts[0], limits
        )

    def advance(self, run: Any) -> None:
        """Read the labels that arrived; compute the evidence of their classes."""
        last = "SELECT number, moment, id FROM labels WHERE model = ? AND number = ?"
        if run(last, self.model.key, self._last[0]) != [self._last]:
            self._forget()  # nothing was read yet, or the state was restored from a copy
        sql = (
            "SELECT number, moment, id, class_index, covered, is_within, is_right, period, "
            "replaces FROM labels WHERE model = ? AND number > ? ORDER BY number LIMIT ?"
        )
        changed = np.zeros(self.model.n_classes + 1, dtype=bool)  # the last one is OVERALL
        while rows := run(sql, self.model.key, self._last[0], AT_ONCE):
            self._last = rows[-1][:3]
            changed[self._append(*zip(*rows, strict=True))] = True
            if len(rows) < AT_ONCE:
                break
        if changed.any():
            self.evidence = self._evidence(np.flatnonzero(changed[:-1]))

    def _append(self, number: Any, _: Any, __: Any, classes: Any, *outcomes: Any) -> Array:
        """Append labels; return their classes, and those of the labels that they replace."""
        y, (*judged, periods, replaces) = np.array(classes), outcomes
        code = {name: index for index, name in enumerate(self.period_names)}
        for name in periods:
            code.setdefault(name, len(code))
        self.period_names = [*code]
        new = CountedLabels(
            y.astype(np.int32),
            block_of(self._ordinals(y)).astype(np.int32),
            block_of(np.array(number)).astype(np.int32),
            np.array([code[name] for name in periods], dtype=np.int32),
            np.array([_outcome(*of_label) for of_label in zip(*judged, strict=True)], np.int8),
        )
        self.labels = CountedLabels(*map(np.concatenate, zip(self.labels, new, strict=True)))
        replaced = np.array([earlier for earlier in replaces if earlier is not None], dtype=int)
        self.labels.outcome[replaced] = 0
        return np.concatenate([y, self.labels.class_index[replaced]])

    def _ordinals(self, y: IntArray) -> IntArray:
        """Return the ordinals of labels in their classes; those of OVERALL are not used."""
        order = np.argsort(y, kind="stable")
        classes, starts, n_new = np.unique(y[order], return_index=True, return_counts=True)
        known = classes >= 0
        earlier = np.where(known, self._n_arrived[classes], 0)
        ordinals = np.empty(len(y), dtype=np.int64)
        ordinals[order] = np.arange(len(y)) + np.repeat(earlier - starts, n_new)
        self._n_arrived[classes[known]] += n_new[known]
        return ordinals

    def _evidence(self, classes: IntArray) -> ClassEvidence:
        """Compute the evidence of all labels, and that of the classes that changed."""
        targets, labels = self.model.targets, self.labels
        table = labels.sums(labels.block, int(labels.block[-1]) + 1)
        overall, _ = _below(table, np.zeros(1, dtype=int), np.full(len(table), targets.min()))
        evidence = self.evidence._replace(totals=table.sum(axis=0), overall_log_e=float(overall[0]))
        if not len(classes):
            return evidence
        rank = np.full(self.model.n_classes + 1, -1)
        rank[classes] = np.arange(len(classes))
        labels = labels.of(rank[labels.class_index] >= 0)
        n_blocks = block_of(self._n_arrived[classes] - 1) + 1
        starts, y = np.cumsum(n_blocks) - n_blocks, np.repeat(classes, n_blocks)
        groups = starts[rank[labels.class_index]] + labels.class_block
        table = labels.sums(groups, len(y))
        log_e, strongest = _below(table, starts, targets[y])
        log_shift = np.zeros(len(classes))
        if self.urn is not None:
            log_shift, shifted = _shift(table, starts, self.urn, y)
            strongest = np.where(log_shift > log_e, shifted, strongest)
        counts = np.add.reduceat(table, starts, axis=0).T
        level = self.model.false_alarm / self.model.n_classes
        limits = coverage_limits(counts[1], counts[0] - counts[1], level).T
        columns = counts, log_e, log_shift, strongest - starts, limits
        replaced: list[Any] = [values.copy() for values in evidence[2:]]
        for values, new in zip(replaced, columns, strict=True):
            values[..., classes] = new
            values.setflags(write=False)
        return ClassEvidence(*evidence[:2], *replaced)

    # ---- looks at the labels -----------------------------------------------------------------

    def latest(self, n_labels: int) -> IntArray:
        """Return the counts (6,) of the last labels."""
        chosen = self.labels.of(np.flatnonzero(self.labels.outcome)[-n_labels:])
        return chosen.sums(np.zeros(1, dtype=int), 1)[0]

    def periods(self, classes: Any = ()) -> list[PeriodCounts]:
        """Return the counts of all labels by period, and those of some classes."""
        n_names = len(self.period_names)
        part = self.labels.of(self._among(classes)[self.labels.class_index])
        groups, group = np.unique(part.class_index * n_names + part.period, return_inverse=True)
        numbers = np.concatenate([np.arange(-n_names, 0), groups])
        sums = self.labels.sums(self.labels.period, n_names), part.sums(group, len(groups))
        found = []
        for number, (n_rows, n_covered, *_) in zip(numbers, np.concatenate(sums), strict=True):
            y, period = divmod(int(number), n_names)
            if n_rows:
                found.append(
                    PeriodCounts(y, self.period_names[period], int(n_rows), int(n_covered))
                )
        return sorted(found)

    def _among(self, classes: Any) -> Array:
        """Return whether each class is chosen (K + 1,); OVERALL, the last, is not."""
        is_chosen = np.zeros(self.model.n_classes + 1, dtype=bool)
        is_chosen[classes] = True
        return is_chosen

    def since(self, classes: IntArray) -> dict[int, str]:
        """Return the first period of each class's strongest block."""
        first: dict[int, str] = {}
        if not len(classes):
            return first
        strongest = np.append(self.evidence.strongest, OVERALL)
        y, blocks, _, periods, outcomes = self.labels
        chosen = self._among(classes)[y] & (blocks == strongest[y]) & (outcomes > 0)
        for index, name in zip(y[chosen].tolist(), periods[chosen].tolist(), strict=True):
            period = self.period_names[name]
            first[index] = min(first.get(index, period), period)
        return first


def _outcome(covered: int, is_within: int | None, is_right: int | None) -> int:
    scored = 0 if is_within is None else 2 + 4 * is_within
    return 1 + covered + scored + (0 if is_right is None else 8 + 16 * is_right)


def _below(table: IntArray, starts: IntArray, targets: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return log evidence against coverage from sums by block, and the strongest block."""
    later, _ = since_restarts(table, starts)
    return with_restarts(shortfall_log_e(later[:, 1], later[:, 0] - later[:, 1], targets), starts)


def _shift(table: IntArray, starts: IntArray, urn: Urn, y: IntArray) -> tuple[FloatArray, IntArray]:
    """Return log evidence of a shift of scores from sums by block, and the strongest block."""
    later, earlier = since_restarts(table, starts)
    before = earlier[:, 3], earlier[:, 2] - earlier[:, 3]
    hits, misses = later[:, 3], later[:, 2] - later[:, 3]
    return with_restarts(urn_log_e(hits, misses, urn.ranks[y], urn.counts[y], before), starts)
