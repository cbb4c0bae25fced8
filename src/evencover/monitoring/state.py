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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray
from evencover.errors import InputError
from evencover.monitoring.database import MEMORY, Database
from evencover.monitoring.evidence import block_of
from evencover.randomness import RandomStream, places, random_order
from evencover.sets import PredictionSets

FORMAT = 3
OVERALL = -1  # the class of counts of all classes, and of labels that are not among the classes
RETENTION, DAY = 90.0, 86400.0  # days, seconds
MOST_IN_MEMORY = 100_000  # sets of served rows without a database

# `label` and what follows are null until a label of the row was counted. Labels are JSON texts.
# `counts` are of each class by block (`evidence.block_of`) and period; `arrived` also counts labels
# that were replaced since: it decides where blocks begin.
TABLES = {
    "state": "format BIGINT PRIMARY KEY, pruned DOUBLE PRECISION, expired BIGINT DEFAULT 0",
    "models": "model BIGINT PRIMARY KEY, digest TEXT, n_classes BIGINT, class_names TEXT, "
    "false_alarm DOUBLE PRECISION, tolerance DOUBLE PRECISION, targets BYTEA, version BIGINT",
    "served": "id BIGINT, model BIGINT, time DOUBLE PRECISION, period TEXT, members BYTEA, "
    "within BYTEA, label TEXT, class_index BIGINT, covered BIGINT, is_within BIGINT, "
    "class_block BIGINT, overall_block BIGINT, PRIMARY KEY (id, model)",
    "waiting": "id BIGINT PRIMARY KEY, time DOUBLE PRECISION, period TEXT, label TEXT",
    "counts": "model BIGINT, class_index BIGINT, block BIGINT, period TEXT, arrived BIGINT, "
    "rows BIGINT, covered BIGINT, scored BIGINT, within BIGINT, version BIGINT, "
    "PRIMARY KEY (model, class_index, block, period)",
}
INDEXES = {"served_time": "served (time)", "counts_version": "counts (model, version)"}
ADD_COUNTS = "(model, class_index, block, period) DO UPDATE SET version = excluded.version, " + (
    ", ".join(
        f"{name} = counts.{name} + excluded.{name}"
        for name in ("arrived", "rows", "covered", "scored", "within")
    )
)


def _put(key: str, *columns: str) -> str:
    """Return the end of an INSERT that replaces columns of known rows."""
    return f"({key}) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in columns)


@dataclass(frozen=True, eq=False)
class ModelEntry:
    """Describe a model to the state: enough to judge labels of rows that it served."""

    digest: str
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
    def names(self) -> Sequence[str]:
        """(K,) the names of the classes; their indices as text if they have none."""
        return self.class_names or [str(index) for index in range(self.n_classes)]

    @cached_property
    def index_of_name(self) -> dict[str, int]:
        """The index of each class by its name."""
        return {name: index for index, name in enumerate(self.names)}


class ServedRows(NamedTuple):
    """Rows (n,) of a model whose sets were computed.

    The sets are packed: `members`, and `within`, the classes whose score is at most the conformal
    quantile of their own calibration scores (None for each row if the model keeps no such scores).
    Rows without ids have no keys and are not stored.
    """

    period: str
    keys: Sequence[int] | None
    members: Sequence[bytes]
    within: Sequence[bytes | None]


class Judged(NamedTuple):
    """A label as it is counted and stored, judged by the set that was served."""

    id: int | None  # None for a row without an id
    label: str
    period: str
    class_index: int
    covered: int
    is_within: int | None  # None if the model keeps no calibration scores
    class_block: int = 0
    overall_block: int = 0


PUT_LABEL = _put("id, model", *Judged._fields[1:])
PUT_WAITING = _put("id", "time", "period", "label")


class LabelCounts(NamedTuple):
    """Numbers of labels that were counted, corrected, repeated, and that wait for their row.

    A corrected label replaced a different one of the same id.
    """

    counted: int
    corrected: int
    repeated: int
    waiting: int


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


def today() -> str:
    """Return the period of now: the date (UTC)."""
    return datetime.fromtimestamp(time.time(), UTC).date().isoformat()


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
            *(entry.key, entry.digest, entry.n_classes, names),
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
            self._entries[key] = ModelEntry(row.digest, row.n_classes, names, *levels)
        return self._entries[key]

    # ---- rows ------------------------------------------------------------------------------------

    def record(self, *batches: tuple[int, ServedRows]) -> int:
        """Record rows with ids that models served, and count labels that came before them.

        Rows whose id the model has served before are left out. Return the number of new rows.
        """
        now = time.time()
        with self._writer.writing():
            n_new = sum(self._record(model, rows, now) for model, rows in batches)
            self._prune(now)
        return n_new

    def _record(self, model: int, rows: ServedRows, now: float) -> int:
        values = [
            (key, model, now, rows.period, *sets)
            for key, *sets in zip(rows.keys or (), rows.members, rows.within, strict=True)
        ]
        table = "served (id, model, time, period, members, within)"
        new = [row.id for row in self._writer.insert(table, values, "DO NOTHING RETURNING id")]
        self._n_recorded += len(new)
        self._count_early(model, new)
        return len(new)

    def _count_early(self, model: int, keys: list[int]) -> None:
        """Count labels that waited for new rows, or that the same rows of other models have."""
        early = "SELECT id, label, NULL AS period FROM served WHERE label IS NOT NULL AND id"
        waiting = "SELECT id, label, period FROM waiting WHERE id"
        labels = {
            row.id: (row.label, row.period)
            for sql in (early, waiting)
            for row in self._writer.run_in(sql, keys)
        }
        self._count_labels(labels, model)
        self._writer.run_in("DELETE FROM waiting WHERE id", [*labels])

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
        self, keys: Sequence[int], labels: Sequence[str], periods: Sequence[str | None]
    ) -> LabelCounts:
        """Count labels of served rows, against the models that served them; keep the others.

        Labels are names of classes. Of several labels of one id the last counts.
        """
        with self._writer.writing():
            return self._count_by_key(keys, labels, periods)

    def update(
        self,
        model: int,
        served: ServedRows,
        labels: Sequence[str | None],
        periods: Sequence[str | None],
    ) -> LabelCounts:
        """Record rows and count their labels for this model, those with an id once.

        A label is None if it is not among the classes and its name is not known.
        """
        with self._writer.writing():
            if served.keys is not None:
                self._record(model, served, time.time())
                return self._count_by_key(served.keys, labels, periods, model)
            entry, rows = self._entry(model), zip(served.members, served.within, strict=True)
            judged = [
                _judge(entry, None, *sets, json.dumps(label), period or served.period)
                for sets, label, period in zip(rows, labels, periods, strict=True)
            ]
            self._add_labels(model, judged)
            return LabelCounts(len(labels), 0, 0, 0)

    def _count_by_key(
        self,
        keys: Sequence[int],
        labels: Sequence[str | None],
        periods: Sequence[str | None],
        model: int | None = None,
    ) -> LabelCounts:
        by_key = dict(zip(keys, zip(map(json.dumps, labels), periods, strict=True), strict=True))
        known, counted, corrected = self._count_labels(by_key, model)
        now = time.time()
        waiting = [
            (key, now, period, label) for key, (label, period) in by_key.items() if key not in known
        ]
        self._writer.insert("waiting", waiting, PUT_WAITING)
        n_new, n_corrected, n_waiting = len(counted), len(corrected - counted), len(waiting)
        n_repeated = len(labels) - n_new - n_corrected - n_waiting
        return LabelCounts(n_new, n_corrected, n_repeated, n_waiting)

    def _count_labels(
        self, labels: Mapping[int, tuple[str, str | None]], model: int | None = None
    ) -> tuple[set[int], set[int], set[int]]:
        """Count labels and their periods by key, for one model or all that served these rows.

        Return the keys of known rows, of counted and of corrected labels.
        """
        sql, only = ("", ()) if model is None else ("model = ? AND ", (model,))
        served = self._writer.run_in(f"SELECT * FROM served WHERE {sql}id", [*labels], *only)
        counted, corrected = set[int](), set[int]()
        for key in sorted({row.model for row in served}):
            # Without its set, which is kept for as long as the retention, no label is judged.
            rows = [
                row
                for row in served
                if row.model == key and row.members is not None and row.label != labels[row.id][0]
            ]
            replaced = [row for row in rows if row.label is not None]
            corrected |= {row.id for row in replaced}
            counted |= {row.id for row in rows if row.label is None}
            judged = []
            for row in rows:
                label, period = labels[row.id]
                sets = row.members, row.within
                judged.append(_judge(self._entry(key), row.id, *sets, label, period or row.period))
            self._add_counts(key, replaced, sign=-1)
            self._add_labels(key, judged)
        return {row.id for row in served}, counted, corrected

    def _add_labels(self, model: int, judged: list[Judged]) -> None:
        """Count labels as they arrive; those of one call arrive in a random order."""
        if not judged:
            return
        keys = np.array([row.id or 0 for row in judged], dtype=np.int64).astype(np.uint64)
        keys = places(0, len(judged)) if judged[0].id is None else keys
        judged = [judged[row] for row in random_order(0, RandomStream.EVIDENCE, keys).tolist()]
        blocks = self._blocks(model, [row.class_index for row in judged])
        overall_blocks = self._blocks(model, [OVERALL] * len(judged))
        judged = [
            row._replace(
                class_block=overall if row.class_index == OVERALL else block, overall_block=overall
            )
            for row, block, overall in zip(judged, blocks, overall_blocks, strict=True)
        ]
        self._add_counts(model, judged)
        if judged[0].id is not None:
            table = f"served (id, {', '.join(Judged._fields[1:])}, model)"
            self._writer.insert(table, [(*row, model) for row in judged], PUT_LABEL)

    def _blocks(self, model: int, classes: list[int]) -> list[int]:
        """Return the block of each new label (n,) among all labels of its class that arrived."""
        sql = "SELECT class_index, CAST(SUM(arrived) AS BIGINT) AS n FROM counts WHERE model = ?"
        known = self._writer.run_in(
            f"{sql} AND class_index", [*set(classes)], model, then="GROUP BY class_index"
        )
        arrived = Counter({row.class_index: row.n for row in known})
        ordinals = []
        for y in classes:
            ordinals.append(arrived[y])
            arrived[y] += 1
        return block_of(np.array(ordinals, dtype=np.int64)).tolist()

    def _add_counts(self, model: int, judged: Sequence[Any], sign: int = 1) -> None:
        """Add labels to the counts of their class and of all, or take them back (`sign` -1)."""
        if not judged:
            return
        (entry,) = self._writer.run(
            "UPDATE models SET version = version + 1 WHERE model = ? RETURNING version", model
        )
        counts: dict[tuple[int, int, str], list[int]] = {}
        for row in judged:
            is_scored = sign * (row.is_within is not None)
            values = (sign > 0, sign, sign * row.covered, is_scored, sign * (row.is_within or 0))
            for part in {(row.class_index, row.class_block), (OVERALL, row.overall_block)}:
                sums = counts.setdefault((*part, row.period), [0] * 5)
                sums[:] = map(add, sums, values)
        rows = [(model, *part, *sums, entry.version) for part, sums in counts.items()]
        self._writer.insert("counts", rows, ADD_COUNTS)


def _judge(
    entry: ModelEntry,
    key: int | None,
    members: bytes,
    within: bytes | None,
    label: str,
    period: str,
) -> Judged:
    """Judge a label by the set that was served."""
    y = entry.index_of_name.get(json.loads(label), OVERALL)
    covered, is_within = (
        None if packed is None else int(y != OVERALL and contains(packed, y, entry.n_classes))
        for packed in (members, within)
    )
    return Judged(key, label, period, y, covered or 0, is_within)


def signed(keys: Array) -> list[int]:
    """Return 64-bit keys as signed integers, as databases need them."""
    return keys.astype(np.uint64, copy=False).view(np.int64).tolist()
