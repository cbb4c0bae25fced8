"""The state of monitors in a database: served rows, their labels, and the counts that follow.

Every update is one transaction. A label counts once for each model that served its row, and
another label of the same row replaces it. Rows of one call are counted in a random order, by a
hash of their ids, because the order of a file may depend on the outcome.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import InputError, listed, printable
from evencover.monitoring.database import MEMORY, Database
from evencover.monitoring.evidence import block_of
from evencover.randomness import RandomStream, places, random_order
from evencover.sets import PredictionSets

FORMAT = 2
OVERALL = -1  # the class of counts of all classes, and of labels that are not among the classes
RETENTION, DAY = 90.0, 86400.0  # days, seconds
MOST_IN_MEMORY = 100_000  # sets of served rows without a database
REFERENCE, NOW = 0, 1  # sides of the drift counts
Label = str | int | None  # a class by name or index; None is a class whose name is not known

# `label` and what follows are null until a label of the row was counted. `arrived` also counts
# labels that were replaced since: it decides where blocks begin.
TABLES = {
    "state": "format BIGINT PRIMARY KEY, pruned DOUBLE PRECISION, expired BIGINT DEFAULT 0",
    "models": "model BIGINT PRIMARY KEY, digest TEXT, name TEXT, n_classes BIGINT, "
    "class_names TEXT, false_alarm DOUBLE PRECISION, tolerance DOUBLE PRECISION, targets BYTEA, "
    "version BIGINT",
    "served": "id BIGINT, model BIGINT, time DOUBLE PRECISION, period TEXT, members BYTEA, "
    "within BYTEA, label TEXT, class_index BIGINT, covered BIGINT, is_within BIGINT, "
    "class_block BIGINT, overall_block BIGINT, PRIMARY KEY (id, model)",
    "waiting": "id BIGINT PRIMARY KEY, time DOUBLE PRECISION, period TEXT, label TEXT",
    "periods": "model BIGINT, class_index BIGINT, period TEXT, rows BIGINT, covered BIGINT, "
    "PRIMARY KEY (model, class_index, period)",
    "blocks": "model BIGINT, class_index BIGINT, block BIGINT, arrived BIGINT, rows BIGINT, "
    "covered BIGINT, scored BIGINT, within BIGINT, period TEXT, version BIGINT, "
    "PRIMARY KEY (model, class_index, block)",
    "unknown": "model BIGINT, label TEXT, rows BIGINT, PRIMARY KEY (model, label)",
    "drift": "model BIGINT, side BIGINT, bin BIGINT, rows BIGINT, PRIMARY KEY (model, side, bin)",
}
INDEXES = {"served_time": "served (time)", "blocks_version": "blocks (model, version)"}


def _update(table: str, key: str, add: str = "", put: str = "") -> str:
    """Return the end of an INSERT that adds to columns of known rows, or replaces them."""
    changes = [f"{name} = {table}.{name} + excluded.{name}" for name in add.split()]
    changes += [f"{name} = excluded.{name}" for name in put.split()]
    return f"({key}) DO UPDATE SET {', '.join(changes)}"


LABELED = "label class_index covered is_within class_block overall_block period"
ADD_DRIFT = _update("drift", "model, side, bin", "rows")
ADD_UNKNOWN = _update("unknown", "model, label", "rows")
ADD_PERIODS = _update("periods", "model, class_index, period", "rows covered")
ADD_BLOCKS = _update(
    "blocks", "model, class_index, block", "arrived rows covered scored within", "version"
)
PUT_LABEL = _update("served", "id, model", put=LABELED)
PUT_WAITING = _update("waiting", "id", put="time period label")


@dataclass(frozen=True, eq=False)
class ModelEntry:
    """Describe a model to the state: enough to judge labels of rows that it served."""

    digest: str
    name: str
    n_classes: int
    class_names: Sequence[str] | None
    false_alarm: float
    tolerance: float
    targets: FloatArray  # (K,)

    @cached_property
    def key(self) -> int:
        """The model's number in every table."""
        return int.from_bytes(bytes.fromhex(self.digest[:16]), "big", signed=True)

    @cached_property
    def index_of_name(self) -> dict[str, int]:
        """The index of each class by its name."""
        return {name: index for index, name in enumerate(self.class_names or ())}

    @cached_property
    def _has_numbers(self) -> bool:
        """Whether a number names a class, so that text is never an index."""
        return any(name.isdecimal() for name in self.class_names or ())

    def class_of(self, label: Label) -> int:
        """Return the class of a label, an index or a name; `OVERALL` if it has none."""
        if isinstance(label, str):
            if label in self.index_of_name or not label.isdecimal() or self._has_numbers:
                return self.index_of_name.get(label, OVERALL)
            label = int(label)
        return OVERALL if label is None or not 0 <= label < self.n_classes else label


class ServedRows(NamedTuple):
    """Rows (n,) of a model whose sets were computed.

    Rows with ids, or with labels, come with their packed sets: `members`, and `within`, the classes
    whose score is at most the conformal quantile of their own calibration scores (None for each row
    if the model keeps no such scores). Rows without ids are not stored.
    """

    period: str
    drift: IntArray  # (n, 2) bins of the set size and the top class
    keys: Array | None = None
    members: Sequence[bytes] = ()
    within: Sequence[bytes | None] = ()


class Judged(NamedTuple):
    """What is counted of the label of a row, by the set that was served."""

    key: int | None  # None for a row without an id
    period: str
    label: Label  # as sent, for unknown ones and for other models
    class_index: int
    covered: int
    is_within: int | None  # None if the model keeps no calibration scores


class LabelCounts(NamedTuple):
    """Numbers of labels that were counted, corrected, repeated, and that wait for their row.

    A corrected label replaced a different one of the same id.
    """

    counted: int
    corrected: int
    repeated: int
    waiting: int


def objects(values: Iterable[Any]) -> Array:
    """Return texts, bytes or None as an array, which NumPy would pad to the longest."""
    values = list(values)
    array: Array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def pack_sets(sets: PredictionSets) -> list[bytes]:
    """Return each row's set as bytes: a list of classes, or a bit for every class if shorter."""
    n_classes = sets.n_classes
    classes = sets.indices.astype(np.min_scalar_type(n_classes - 1))
    content, size = classes.tobytes(), classes.itemsize
    is_long = sets.sizes * size >= n_classes // 8
    bits = iter(np.packbits(sets[is_long].to_mask(), axis=1))
    return [
        b"m" + next(bits).tobytes() if as_bits else b"l" + content[start * size : stop * size]
        for (start, stop), as_bits in zip(
            pairwise(sets.indptr.tolist()), is_long.tolist(), strict=True
        )
    ]


def contains(packed: bytes, index: int, n_classes: int) -> bool:
    """Return whether a packed set contains a class.

    >>> sets = [PredictionSets.from_csr(np.array([0, 2]), np.array([3, 40]), k) for k in (50, 5000)]
    >>> [contains(pack_sets(one)[0], 40, one.n_classes) for one in sets]
    [True, True]
    """
    if packed[:1] == b"l":
        return index in np.frombuffer(packed, np.min_scalar_type(n_classes - 1), offset=1)
    return bool(packed[1 + index // 8] >> (7 - index % 8) & 1)


def today(now: float | None = None) -> str:
    """Return the period of a moment: its date (UTC)."""
    return datetime.fromtimestamp(time.time() if now is None else now, UTC).date().isoformat()


class MonitorState:
    """The state of any number of models, in memory or in a database that processes may share.

    Parameters
    ----------
    location
        A SQLite file, made if it does not exist, or ``postgresql://...``; None keeps it in memory.
    retention
        Days to keep the sets of served rows, and labels without a row.
    """

    def __init__(
        self, location: str | os.PathLike[str] | None = None, *, retention: float = RETENTION
    ) -> None:
        if not retention > 0:
            raise InputError(f"'retention' must be above 0 days. Got {retention!r}.")
        self.retention = float(retention)
        path = MEMORY if location is None else os.fspath(location)
        self._writer = Database(path, TABLES, INDEXES, FORMAT)
        # Readers have a connection of their own, so that they never wait for writers.
        self._reader = self._writer if path == MEMORY else Database(path, TABLES, INDEXES, FORMAT)
        self.name = self._writer.name
        self._entries: dict[int, ModelEntry] = {}
        self._n_recorded = 0  # since the last look at the memory

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        self._writer.close()
        self._reader.close()

    @contextmanager
    def reading(self) -> Iterator[Callable[..., list[Any]]]:
        """Yield a function that runs queries, all on one snapshot of the state."""
        with self._reader.reading():
            yield self._reader.run

    # ---- models ----------------------------------------------------------------------------------

    def add_model(self, entry: ModelEntry) -> ModelEntry:
        """Register a model; return its entry, with the levels of its first registration."""
        names = None if entry.class_names is None else json.dumps(list(entry.class_names))
        row = (
            *(entry.key, entry.digest, printable(entry.name), entry.n_classes, names),
            *(entry.false_alarm, entry.tolerance, entry.targets.astype("<f8").tobytes(), 0),
        )
        with self._writer.writing():
            self._writer.insert("models", [row])
            return self._entry(entry.key)

    def _entry(self, key: int) -> ModelEntry:
        if key not in self._entries:
            (row,) = self._writer.run("SELECT * FROM models WHERE model = ?", key)
            names = None if row.class_names is None else json.loads(row.class_names)
            levels = row.false_alarm, row.tolerance, np.frombuffer(row.targets, "<f8")
            self._entries[key] = ModelEntry(row.digest, row.name, row.n_classes, names, *levels)
        return self._entries[key]

    # ---- rows ------------------------------------------------------------------------------------

    def record(self, *batches: tuple[int, ServedRows]) -> int:
        """Record rows that models served, and count labels that came before them.

        Rows whose id the model has served before are left out. Return the number of new rows.
        """
        now = time.time()
        with self._writer.writing():
            n_new = sum(self._record(model, rows, now) for model, rows in batches)
            self._prune(now)
        return n_new

    def _record(self, model: int, rows: ServedRows, now: float) -> int:
        if rows.keys is None:
            self._add_drift(model, NOW, rows.drift)
            return len(rows.drift)
        keys, indices = np.unique(rows.keys.astype(np.uint64), return_index=True)
        first = dict(zip(signed(keys), indices.tolist(), strict=True))
        values = [
            (key, model, now, rows.period, rows.members[row], rows.within[row])
            for key, row in first.items()
        ]
        table = "served (id, model, time, period, members, within)"
        new = [row.id for row in self._writer.insert(table, values, "DO NOTHING RETURNING id")]
        if new:
            self._add_drift(model, NOW, rows.drift[[first[key] for key in new]])
            self._count_early(model, new)
        self._n_recorded += len(new)
        return len(new)

    def _count_early(self, model: int, keys: list[int]) -> None:
        """Count labels that waited for new rows, or that the same rows of other models have."""
        early = self._writer.run_in("SELECT id, label FROM served WHERE label > '' AND id", keys)
        labels = {row.id: (json.loads(row.label), None) for row in early}
        early = self._writer.run_in("SELECT id, label, period FROM waiting WHERE id", keys)
        labels |= {row.id: (json.loads(row.label), row.period) for row in early}
        if labels:
            self._count_labels(labels, model)
            self._writer.run_in("DELETE FROM waiting WHERE id", [*labels])

    def add_reference(self, model: int, bins: IntArray) -> None:
        """Count set sizes and top classes of the rows that drift is measured from."""
        with self._writer.writing():
            self._add_drift(model, REFERENCE, bins)

    def _add_drift(self, model: int, side: int, bins: IntArray) -> None:
        distinct, times = np.unique(bins, return_counts=True)
        pairs = zip(distinct.tolist(), times.tolist(), strict=True)
        self._writer.insert("drift", [(model, side, *pair) for pair in pairs], ADD_DRIFT)

    def _prune(self, now: float) -> None:
        """Remove rows, waiting labels and sets past the retention.

        The retention is measured from the previous look, a day or more ago, so a clock that jumps
        removes nothing before it has been there for a day.
        """
        (state,) = self._writer.run("SELECT pruned FROM state")
        passed = DAY if state.pruned is None else now - state.pruned
        if not 0 <= passed < min(DAY, DAY * self.retention / 10):
            before = min(now, now - passed) - DAY * self.retention
            self._writer.run("DELETE FROM waiting WHERE time < ?", before)
            self._writer.run("UPDATE state SET pruned = ?", now)
            self._forget(before)
        if self.name == MEMORY and self._n_recorded > MOST_IN_MEMORY // 10:
            self._n_recorded = 0
            sql = "SELECT time FROM served WHERE members IS NOT NULL ORDER BY time DESC"
            for oldest in self._writer.run(f"{sql} LIMIT 1 OFFSET ?", MOST_IN_MEMORY):
                self._forget(oldest.time)

    def _forget(self, before: float) -> None:
        """Remove rows without a label, and sets of labeled ones, that were served before."""
        unlabeled = "FROM served WHERE time < ? AND label IS NULL"
        (old,) = self._writer.run(f"SELECT COUNT(*) AS rows {unlabeled}", before)
        self._writer.run("UPDATE state SET expired = expired + ?", old.rows)
        self._writer.run(f"DELETE {unlabeled}", before)
        sets = "UPDATE served SET members = NULL, within = NULL WHERE members IS NOT NULL"
        self._writer.run(f"{sets} AND time < ?", before)

    # ---- labels ----------------------------------------------------------------------------------

    def label(
        self, keys: Array, labels: Sequence[Label], periods: Sequence[str | None]
    ) -> LabelCounts:
        """Count labels of served rows, against the models that served them; keep the others.

        Of several labels of one id the last counts.
        """
        with self._writer.writing():
            self._reject_numbers({label for label in labels if isinstance(label, int)})
            return self._count_by_key(keys, labels, periods)

    def update(
        self,
        model: int,
        served: ServedRows,
        labels: Sequence[Label],
        periods: Sequence[str | None],
    ) -> LabelCounts:
        """Record rows and count their labels for this model, those with an id once."""
        with self._writer.writing():
            self._record(model, served, time.time())
            if served.keys is not None:
                return self._count_by_key(served.keys, labels, periods, model)
            entry, sets = self._entry(model), zip(served.members, served.within, strict=True)
            self._add_labels(
                model,
                [
                    _judge(entry, None, *row, label, period or served.period)
                    for row, label, period in zip(sets, labels, periods, strict=True)
                ],
            )
            return LabelCounts(len(labels), 0, 0, 0)

    def _count_by_key(
        self,
        keys: Array,
        labels: Sequence[Label],
        periods: Sequence[str | None],
        model: int | None = None,
    ) -> LabelCounts:
        by_key = dict(zip(signed(keys), zip(labels, periods, strict=True), strict=True))
        known, counted, corrected = self._count_labels(by_key, model)
        now = time.time()
        waiting = [
            (key, now, period, json.dumps(label))
            for key, (label, period) in by_key.items()
            if key not in known
        ]
        self._writer.insert("waiting", waiting, PUT_WAITING)
        n_new, n_corrected, n_waiting = len(counted), len(corrected - counted), len(waiting)
        n_repeated = len(labels) - n_new - n_corrected - n_waiting
        return LabelCounts(n_new, n_corrected, n_repeated, n_waiting)

    def _reject_numbers(self, labels: set[int]) -> None:
        """Raise InputError for numbers that are no class index of any model."""
        (models,) = self._writer.run("SELECT MAX(n_classes) AS most FROM models")
        wrong = sorted(label for label in labels if not 0 <= label < models.most)
        if wrong:
            raise InputError(
                f"'labels' that are numbers must be class indices from 0 to {models.most - 1}. "
                f"Got {listed(wrong, 3)}."
            )

    def _count_labels(
        self, labels: Mapping[int, tuple[Label, str | None]], model: int | None = None
    ) -> tuple[set[int], set[int], set[int]]:
        """Count labels and their periods by key, for one model or all that served these rows.

        Return the keys of known rows, of counted and of corrected labels.
        """
        sql, only = ("", ()) if model is None else ("model = ? AND ", (model,))
        served = self._writer.run_in(f"SELECT * FROM served WHERE {sql}id", [*labels], *only)
        counted, corrected = set[int](), set[int]()
        for key in sorted({row.model for row in served}):
            # Without its set, which is kept for as long as the retention, no label is judged.
            rows = [row for row in served if row.model == key and row.members is not None]
            entry, added, replaced = self._entry(key), list[Judged](), []
            for row in rows:
                label, period = labels[row.id]
                judged = _judge(entry, row.id, row.members, row.within, label, period or row.period)
                is_other = row.class_index != judged.class_index
                if row.label is None:
                    counted.add(row.id)
                elif is_other or (row.class_index == OVERALL and row.label != json.dumps(label)):
                    corrected.add(row.id)
                    replaced.append(row)
                else:
                    continue
                added.append(judged)
            self._remove_labels(key, replaced)
            self._add_labels(key, added)
        return {row.id for row in served}, counted, corrected

    def _add_labels(self, model: int, judged: list[Judged]) -> None:
        """Count labels as they arrive; those of one call arrive in a random order."""
        if not judged:
            return
        keys = np.array([row.key or 0 for row in judged], dtype=np.int64).astype(np.uint64)
        keys = places(0, len(judged)) if judged[0].key is None else keys
        judged = [judged[row] for row in random_order(0, RandomStream.EVIDENCE, keys).tolist()]
        blocks = self._blocks(model, [row.class_index for row in judged])
        overall_blocks = self._blocks(model, [OVERALL] * len(judged))
        self._add_counts(model, judged, blocks, overall_blocks)
        if judged[0].key is not None:
            values = [
                (row.key, model, json.dumps(row.label), *row[3:], *of_row, row.period)
                for row, *of_row in zip(judged, blocks, overall_blocks, strict=True)
            ]
            table = f"served (id, model, {LABELED.replace(' ', ', ')})"
            self._writer.insert(table, values, PUT_LABEL)

    def _remove_labels(self, model: int, rows: Sequence[Any]) -> None:
        """Take back what was counted of labels that are replaced."""
        if rows:
            judged = [
                Judged(
                    *(row.id, row.period, json.loads(row.label)),
                    *(row.class_index, row.covered, row.is_within),
                )
                for row in rows
            ]
            blocks, overall_blocks = zip(
                *((row.class_block, row.overall_block) for row in rows), strict=True
            )
            self._add_counts(model, judged, blocks, overall_blocks, sign=-1)

    def _blocks(self, model: int, classes: list[int]) -> list[int]:
        """Return the block of each new label (n,) among all labels of its class that arrived."""
        sql = "SELECT class_index, CAST(SUM(arrived) AS BIGINT) AS n FROM blocks WHERE model = ?"
        known = self._writer.run_in(
            f"{sql} AND class_index", [*set(classes)], model, then="GROUP BY class_index"
        )
        arrived = Counter({row.class_index: row.n for row in known})
        ordinals = []
        for y in classes:
            ordinals.append(arrived[y])
            arrived[y] += 1
        return block_of(np.array(ordinals, dtype=np.int64)).tolist()

    def _add_counts(
        self,
        model: int,
        judged: Sequence[Judged],
        blocks: Sequence[int],
        overall_blocks: Sequence[int],
        sign: int = 1,
    ) -> None:
        """Add labels to the counts of blocks and periods, or take them back (`sign` -1)."""
        (entry,) = self._writer.run(
            "UPDATE models SET version = version + 1 WHERE model = ? RETURNING version", model
        )
        of_blocks: dict[tuple[int, int], list[Any]] = {}
        of_periods: dict[tuple[int, str], list[int]] = {}
        unknown = Counter[str]()
        for row, block, overall_block in zip(judged, blocks, overall_blocks, strict=True):
            y, is_scored = row.class_index, int(row.is_within is not None)
            is_within = row.is_within or 0
            values = (sign > 0, sign, sign * row.covered, sign * is_scored, sign * is_within)
            if y == OVERALL:
                label = "unknown" if row.label is None else printable(str(row.label))
                unknown[label] += sign
            for part in {(y, block if y != OVERALL else overall_block), (OVERALL, overall_block)}:
                sums = of_blocks.setdefault(part, [0, 0, 0, 0, 0, row.period])
                sums[:5] = map(add, sums, values)
            for whose in {(y, row.period), (OVERALL, row.period)}:
                counts = of_periods.setdefault(whose, [0, 0])
                counts[:] = map(add, counts, values[1:3])
        rows = [(model, *part, *sums, entry.version) for part, sums in of_blocks.items()]
        self._writer.insert("blocks", rows, ADD_BLOCKS)
        rows = [(model, *whose, *counts) for whose, counts in of_periods.items()]
        self._writer.insert("periods", rows, ADD_PERIODS)
        by_label = [(model, label, times) for label, times in unknown.items()]
        self._writer.insert("unknown", by_label, ADD_UNKNOWN)


def _judge(
    entry: ModelEntry,
    key: int | None,
    members: bytes,
    within: bytes | None,
    label: Label,
    period: str,
) -> Judged:
    """Judge a label by the set that was served."""
    y = entry.class_of(label)
    covered, is_within = (
        None if packed is None else int(y != OVERALL and contains(packed, y, entry.n_classes))
        for packed in (members, within)
    )
    return Judged(key, period, label, y, covered or 0, is_within)


def signed(keys: Array) -> list[int]:
    """Return 64-bit keys as signed integers, as databases need them."""
    return keys.astype(np.uint64, copy=False).view(np.int64).tolist()
