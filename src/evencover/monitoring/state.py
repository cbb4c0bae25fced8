"""The state of monitors in a database: served rows, their labels, and the models that served them.

Labels are appended and never changed: of several labels of one served row the latest counts, and
every count follows from this table (`counts`). A label counts once for each model that served its
row. Every update is one transaction.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import FloatArray, IntArray
from evencover.classes import Classes
from evencover.errors import InputError
from evencover.monitoring.database import MEMORY, Database
from evencover.randomness import RandomStream, random_order, row_indices
from evencover.sets import PredictionSets

FORMAT = 6
OVERALL = -1  # the class of counts of all classes, and of labels that are not among the classes
RETENTION, DAY = 90.0, 86400.0  # days, seconds
MOST_IN_MEMORY = 100_000  # sets of served rows without a database
WAITING = 0  # the model of labels whose row no model has served yet
BATCH = 1000  # rows whose sets are stored together: one label reads all of them

# `content` is a hash of a row's numbers: an id may stand for several rows. The sets of many rows
# are stored together, those of each as row `number` of its `batch`. In `labels`, `number` counts
# the labels of a model as they arrived; `replaces` is that of an earlier label of the same row.
STORED = {
    "state": "format BIGINT PRIMARY KEY, pruned DOUBLE PRECISION, expired BIGINT DEFAULT 0, "
    "n_batches BIGINT DEFAULT 0",
    "models": "model BIGINT PRIMARY KEY, digest TEXT, n_classes BIGINT, class_names TEXT, "
    "false_alarm DOUBLE PRECISION, tolerance DOUBLE PRECISION, targets BYTEA",
    "served": "id BIGINT, model BIGINT, content BIGINT, time DOUBLE PRECISION, batch BIGINT, "
    "number BIGINT, PRIMARY KEY (id, model, content)",
    "batches": "batch BIGINT PRIMARY KEY, time DOUBLE PRECISION, n_rows BIGINT, period TEXT, "
    "members BYTEA, within BYTEA, answers BYTEA",
    "labels": "model BIGINT, number BIGINT, replaces BIGINT, time DOUBLE PRECISION, id BIGINT, "
    "label TEXT, moment DOUBLE PRECISION, period TEXT, content BIGINT, class_index BIGINT, "
    "covered BIGINT, is_within BIGINT, is_right BIGINT, PRIMARY KEY (model, number)",
}
INDEXES = {"served_time": "served (time)", "labels_id": "labels (id, model, content)"}
HAS_LABEL = "EXISTS (SELECT 1 FROM labels WHERE labels.id = served.id AND {})".format(
    "labels.model = served.model AND labels.content = served.content"
)


@dataclass(frozen=True, eq=False)
class ModelEntry:
    """Describe a model to the state: enough to judge labels of rows that it served."""

    digest: str
    n_classes: int
    class_names: tuple[str, ...] | None
    false_alarm: float
    tolerance: float
    targets: FloatArray  # (K,)

    @cached_property
    def key(self) -> int:
        """The model's number in every table."""
        return int.from_bytes(bytes.fromhex(self.digest[:16]), "big", signed=True)

    @cached_property
    def classes(self) -> Classes:
        """The classes, by which labels resolve."""
        return Classes(self.n_classes, self.class_names)

    def named(self, label: int | str | None) -> int | str | None:
        """Return the name of a class instead of its index, so that other models find it, too."""
        is_index = isinstance(label, int) and 0 <= label < self.n_classes
        return self.class_names[label] if is_index and self.class_names else label  # type: ignore[index]

    def index_of(self, label: int | str | None) -> int:
        """Return the class of a label, an index or a name; OVERALL if it is none of them."""
        if isinstance(label, int):
            return label if 0 <= label < self.n_classes else OVERALL
        return self.classes.index.get(label or "", OVERALL)


class ServedRow(NamedTuple):
    """A row that a model served, as the table has it."""

    id: int
    model: int
    content: int
    time: float
    batch: int
    number: int


class Served(NamedTuple):
    """Rows (n,) that a model served in a period; without ids they are not recorded.

    `members` are their prediction sets, and `within` the classes whose score is at most the
    conformal quantile of their own calibration scores (None if the model keeps no such scores).
    `right` are the labels that a row's answer would be right for, none for a review (None without
    answers).
    """

    model: int
    period: str
    ids: IntArray | None
    contents: IntArray
    times: FloatArray
    members: PredictionSets
    within: PredictionSets | None = None
    right: PredictionSets | None = None

    @property
    def n_rows(self) -> int:
        """n."""
        return len(self.contents)

    @property
    def n_bytes(self) -> int:
        """About the memory that they take."""
        indices = [sets.indices for sets in self[5:] if sets is not None]
        return 1500 + 64 * self.n_rows + sum(values.nbytes for values in indices)

    def of(self, rows: Any) -> Served:
        """Return some of the rows."""
        columns: Any = (None if column is None else column[rows] for column in self[2:])
        return Served(*self[:2], *columns)

    @classmethod
    def join(cls, parts: Sequence[Served]) -> Served:
        """Join rows of one model and period."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part[2:] for part in parts), strict=True)
        return cls(*parts[0][:2], *map(_joined, columns))

    def judge(self, entry: ModelEntry, labels: Sequence[Label]) -> list[Label]:
        """Return the label of each row as its sets judge it."""
        y = np.array([entry.index_of(label.label) for label in labels], dtype=np.int64)
        columns: list[Any] = [
            [None] * len(labels) if sets is None else sets.have(y).astype(int).tolist()
            for sets in (self.members, self.within, self.right)
        ]
        if self.right is not None:  # a review is neither right nor wrong
            columns[2] = [
                hit if n else None for hit, n in zip(columns[2], self.right.sizes, strict=True)
            ]
        results = zip(labels, self.contents.tolist(), y.tolist(), *columns, strict=True)
        return [
            Label(key, entry.named(name), moment, period or self.period, *judged)
            for (key, name, moment, period, *_), *judged in results
        ]


def _joined(values: Sequence[Any]) -> Any:
    """Join arrays, sets, or nothing."""
    if values[0] is None:
        return None
    if not isinstance(values[0], PredictionSets):
        return np.concatenate(values)
    sizes, indices = ([getattr(sets, name) for sets in values] for name in ("sizes", "indices"))
    joined = np.concatenate(sizes), np.concatenate(indices)
    return PredictionSets.from_sizes(*joined, values[0].n_classes)


def _in_batches(parts: Iterable[Served]) -> Iterator[Served]:
    """Join rows of one model and period that came after another, and divide long parts."""
    for _, alike in groupby(parts, itemgetter(0, 1)):
        group, n_rows = list[Served](), 0
        for part in alike:
            for start in range(0, part.n_rows, BATCH):
                piece = part.of(slice(start, start + BATCH)) if part.n_rows > BATCH else part
                if n_rows + piece.n_rows > BATCH:
                    yield Served.join(group)
                    group, n_rows = [], 0
                group.append(piece)
                n_rows += piece.n_rows
        if group:
            yield Served.join(group)


class Label(NamedTuple):
    """A label as it was sent, and as it is judged by the set that was served.

    The label is an index or a name, or None for an unknown one without its name. It was true at a
    `moment`, and counts in a `period`; None stands for that of its row.
    """

    id: Any
    label: int | str | None
    moment: float
    period: str | None = None
    content: int | None = None  # of the row; these are the last columns of `labels`
    class_index: int = OVERALL
    covered: int = 0
    is_within: int | None = None  # None if the model keeps no calibration scores
    is_right: int | None = None  # None if the row had no answer


class LabelCounts(NamedTuple):
    """Numbers of labels that were counted, corrected, repeated, and that wait for their row.

    A corrected label replaced a different one of the same row. `several` is the number of ids that
    were served with several rows: their labels count for the last row before them.
    """

    counted: int
    corrected: int
    repeated: int
    waiting: int
    several: int = 0


def right_labels(sets: PredictionSets) -> PredictionSets | None:
    """Return the labels that each row's answer is right for, none for a review."""
    answers = sets.answers
    if answers is None:
        return None
    labels = {node: answers.hierarchy.labels_of(node) for node in {*answers.nodes.tolist()}}
    of_rows = [labels[node] for node in answers.nodes.tolist()]
    sizes = np.array([len(classes) for classes in of_rows], dtype=np.int64)
    indices = np.concatenate([np.zeros(0, dtype=np.int64), *of_rows])
    return PredictionSets.from_sizes(sizes, indices, sets.n_classes)


def pack_sets(sets: PredictionSets | None) -> bytes | None:
    """Return sets as bytes: where each ends and a list of classes, or a bit for every class.

    Lists take less time, and bits are used where lists would be more than twice as long.
    """
    if sets is None:
        return None
    classes = sets.indices.astype(np.min_scalar_type(sets.n_classes - 1))
    ends = sets.indptr[1:].astype("<u4")
    if ends.nbytes + classes.nbytes > 2 * len(sets) * -(-sets.n_classes // 8):
        return b"m" + np.packbits(sets.to_mask(), axis=1).tobytes()
    return b"l" + ends.tobytes() + classes.tobytes()


def unpack_sets(packed: bytes | None, n_rows: int, n_classes: int, rows: Any) -> Any:
    """Return the sets of some of `n_rows` packed rows.

    >>> sets = [PredictionSets.from_csr(np.array([0, 2]), np.array([3, 40]), k) for k in (50, 5000)]
    >>> [unpack_sets(pack_sets(one), 1, one.n_classes, [0]).to_lists() for one in sets]
    [[[3, 40]], [[3, 40]]]
    """
    if packed is None:
        return None
    if packed[:1] == b"m":
        bits = np.frombuffer(packed, np.uint8, offset=1).reshape(n_rows, -1)[rows]
        return PredictionSets.from_mask(np.unpackbits(bits, axis=1, count=n_classes).view(bool))
    starts = np.append(0, np.frombuffer(packed, "<u4", n_rows, 1).astype(np.int64))
    classes = np.frombuffer(packed[1 + 4 * n_rows :], np.min_scalar_type(n_classes - 1))
    return PredictionSets.from_csr(starts, classes, n_classes)[rows]


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
        self._writer = Database(path, STORED, INDEXES, FORMAT)
        # Readers have a connection of their own, so that they never wait for writers.
        self._reader = self._writer if path == MEMORY else Database(path, STORED, INDEXES, FORMAT)
        self.name = self._writer.name
        self._entries: dict[int, ModelEntry] = {}
        self.most_classes = 0  # of a model: labels may be of rows that an earlier one served
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
        targets = entry.targets.astype("<f8").tobytes()
        levels = entry.false_alarm, entry.tolerance, targets
        with self._writer.writing():
            row = entry.key, entry.digest, entry.n_classes, names, *levels
            self._writer.insert("models", [row])
            (most,) = self._writer.run("SELECT MAX(n_classes) AS n_classes FROM models")
            self.most_classes = most.n_classes
            return self._entry(entry.key)

    def _entry(self, key: int) -> ModelEntry:
        if key not in self._entries:
            (row,) = self._writer.run("SELECT * FROM models WHERE model = ?", key)
            names = None if row.class_names is None else tuple(json.loads(row.class_names))
            levels = row.false_alarm, row.tolerance, np.frombuffer(row.targets, "<f8")
            self._entries[key] = ModelEntry(row.digest, row.n_classes, names, *levels)
        return self._entries[key]

    # ---- rows ------------------------------------------------------------------------------------

    def record(self, parts: Sequence[Served]) -> int:
        """Record rows with ids that models served, and count labels that came before them.

        A row that the model has served with this id is left out; another row is a new serving.
        Return the number of new ones.
        """
        with self._writer.writing():
            n_new, rows, fresh = self._insert(parts)
            ids = [row.id for row in rows]
            # Their labels waited, or were counted for other models that served these ids.
            sql = "SELECT model, id, label, moment, period FROM labels WHERE id"
            labels = {
                row.id: Label(
                    *(row.id, json.loads(row.label), row.moment),
                    row.period if row.model == WAITING else None,
                )
                for row in self._writer.run_in(sql, ids, then="ORDER BY time")
            }
            if labels:
                models = {part.model for part in parts}
                served = [row for row in self._servings(labels) if row.model in models]
                self._count(labels, served, fresh)
                self._writer.run_in(f"DELETE FROM labels WHERE model = {WAITING} AND id", ids)
            self._prune(time.time())
        return n_new

    def _insert(self, parts: Iterable[Served]) -> tuple[int, list[ServedRow], dict[int, Served]]:
        """Insert rows, but none that is there; return the number of new ones, and all by batch."""
        (state,) = self._writer.run("SELECT n_batches FROM state")
        rows, fresh = list[ServedRow](), dict[int, Served]()
        for batch, part in enumerate(_in_batches(parts), state.n_batches):
            fresh[batch] = part
            assert part.ids is not None
            columns = part.ids.tolist(), part.contents.tolist(), part.times.tolist()
            rows += [
                ServedRow(key, part.model, content, moment, batch, number)
                for number, (key, content, moment) in enumerate(zip(*columns, strict=True))
            ]
        n_new = self._writer.insert("served", rows)
        if n_new:
            packed = [
                (
                    batch,
                    float(part.times.max()),
                    part.n_rows,
                    part.period,
                    *map(pack_sets, part[5:]),
                )
                for batch, part in fresh.items()
            ]
            self._writer.insert("batches", packed)
            self._writer.run("UPDATE state SET n_batches = n_batches + ?", len(fresh))
        self._n_recorded += n_new
        return n_new, rows, fresh

    def _servings(self, ids: Iterable[int]) -> list[Any]:
        return self._writer.run_in("SELECT * FROM served WHERE id", [*ids], then="ORDER BY time")

    def _prune(self, moment: float) -> None:
        """Remove rows, waiting labels and sets past the retention.

        The retention is measured from the previous look, a day or more ago, so a clock that jumps
        removes nothing before it has been there for a day.
        """
        (state,) = self._writer.run("SELECT pruned FROM state")
        passed = DAY if state.pruned is None else moment - state.pruned
        if not 0 <= passed < min(DAY, DAY * self.retention / 10):
            before = min(moment, moment - passed) - DAY * self.retention
            self._writer.run(f"DELETE FROM labels WHERE model = {WAITING} AND time < ?", before)
            self._writer.run("UPDATE state SET pruned = ?", moment)
            self._forget(before)
        if self.name == MEMORY and self._n_recorded > MOST_IN_MEMORY // 10:
            self._n_recorded = 0
            n_kept = 0
            for batch in self._writer.run("SELECT time, n_rows FROM batches ORDER BY time DESC"):
                n_kept += batch.n_rows
                if n_kept > MOST_IN_MEMORY:
                    self._forget(batch.time)
                    break

    def _forget(self, before: float) -> None:
        """Remove rows without a label, and sets of labeled ones, that were served before."""
        unlabeled = f"FROM served WHERE time < ? AND NOT {HAS_LABEL}"
        (old,) = self._writer.run(f"SELECT COUNT(*) AS rows {unlabeled}", before)
        self._writer.run("UPDATE state SET expired = expired + ?", old.rows)
        self._writer.run(f"DELETE {unlabeled}", before)
        self._writer.run("DELETE FROM batches WHERE time < ?", before)

    # ---- labels ----------------------------------------------------------------------------------

    def label(self, labels: Sequence[Label]) -> LabelCounts:
        """Count labels of served rows, against the models that served them; keep the others.

        Of several labels of one id the last counts.
        """
        by_id = {label.id: label for label in labels}
        with self._writer.writing():
            served = self._servings(by_id)
            counted, corrected, n_several = self._count(by_id, served, {})
            waiting = [by_id[key] for key in by_id.keys() - {row.id for row in served}]
            self._append(WAITING, waiting)
        n_repeated = len(labels) - len(counted | corrected) - len(waiting)
        n_corrected = len(corrected - counted)
        return LabelCounts(len(counted), n_corrected, n_repeated, len(waiting), n_several)

    def update(self, parts: Sequence[Served], indices: Sequence[int | None]) -> LabelCounts:
        """Count rows of one model with their labels, None for unknown ones; those with ids once."""
        if not indices:
            return LabelCounts(0, 0, 0, 0)
        with self._writer.writing():
            entry, given = self._entry(parts[0].model), iter(indices)
            if parts[0].ids is None:
                judged = [
                    part.judge(entry, [Label(None, next(given), t) for t in part.times.tolist()])
                    for part in parts
                ]
                self._append(entry.key, list(chain.from_iterable(judged)))
                return LabelCounts(len(indices), 0, 0, 0)
            _, rows, fresh = self._insert(parts)
            by_id = {row.id: row for row in rows}
            labels = {row.id: Label(row.id, next(given), row.time) for row in rows}
            new, changed, _ = self._count(labels, by_id.values(), fresh)
            self._writer.run_in(f"DELETE FROM labels WHERE model = {WAITING} AND id", [*by_id])
            self._prune(time.time())
        return LabelCounts(len(new), len(changed), len(rows) - len(new) - len(changed), 0)

    def _count(
        self, labels: Mapping[int, Label], served: Iterable[Any], fresh: Mapping[int, Served]
    ) -> tuple[set[int], set[int], int]:
        """Count labels by id for the rows that models served, sorted by time; some are `fresh`.

        Return the ids of counted and of corrected labels, and the number of ids that a model served
        with several rows.
        """

        def is_before(row: Any) -> bool:
            return bool(row.time <= labels[row.id].moment)

        chosen: dict[tuple[int, int], Any] = {}  # of each model and id
        several = set[int]()
        for row in served:
            place = row.model, row.id
            if place in chosen:
                several.add(row.id)
            if place not in chosen or is_before(row):
                chosen[place] = row
        by_batch: dict[tuple[int, int], tuple[list[Any], list[Label]]] = {}
        names: dict[int, int | str | None] = {}  # an index is a class of the last model before it
        for row in sorted(chosen.values(), key=lambda r: (is_before(r), r.time), reverse=True):
            label, entry = labels[row.id], self._entry(row.model)
            name = names.setdefault(row.id, entry.named(label.label))
            rows, named = by_batch.setdefault((row.model, row.batch), ([], []))
            rows.append(row)
            named.append(label._replace(label=name))
        by_model: dict[int, list[Label]] = {}
        for (model, batch), (rows, named) in by_batch.items():
            part = fresh.get(batch)
            numbers = [row.number for row in rows]
            part = self._read_batch(model, batch, rows) if part is None else part.of(numbers)
            if part is not None:  # its sets are kept for as long as the retention
                by_model.setdefault(model, []).extend(part.judge(self._entry(model), named))
        counted, corrected = set[int](), set[int]()
        sql = "SELECT id, content, number, label FROM labels WHERE model = ? AND id"
        for model, judged_labels in by_model.items():
            ids = [label.id for label in judged_labels]
            known = self._writer.run_in(sql, ids, model)  # ordered by SQL, it would read all labels
            latest = {(row.id, row.content): row for row in sorted(known, key=attrgetter("number"))}
            new, replaces = list[Label](), list[int | None]()
            for label in judged_labels:
                earlier = latest.get((label.id, label.content))
                if earlier is None or json.loads(earlier.label) != label.label:
                    new.append(label)
                    replaces.append(None if earlier is None else earlier.number)
                    (counted if earlier is None else corrected).add(label.id)
            self._append(model, new, replaces)
        return counted, corrected, len(several)

    def _read_batch(self, model: int, batch: int, rows: Sequence[Any]) -> Served | None:
        """Return some rows of a batch, unless its sets were removed."""
        for stored in self._writer.run("SELECT * FROM batches WHERE batch = ?", batch):
            about = stored.n_rows, self._entry(model).n_classes, [row.number for row in rows]
            sets = [unpack_sets(packed, *about) for packed in stored[-3:]]
            ids, _, contents, times, *_ = map(np.array, zip(*rows, strict=True))
            return Served(model, stored.period, ids, contents, times, *sets)
        return None

    def _append(
        self, model: int, labels: Sequence[Label], replaces: Sequence[int | None] = ()
    ) -> None:
        """Append labels as they arrive.

        Those of one call arrive in a random order, by a hash of their ids, because the order of a
        file may depend on the outcome.
        """
        if not labels:
            return
        keys = row_indices(0, len(labels))
        if labels[0].id is not None:
            keys = np.array([label.id for label in labels], dtype=np.int64).astype(np.uint64)
        order = random_order(0, RandomStream.EVIDENCE, keys).tolist()
        sql = "SELECT COALESCE(MAX(number), -1) + 1 AS next FROM labels WHERE model = ?"
        (first,) = self._writer.run(sql, model)
        arrived, replaces = time.time(), replaces or [None] * len(labels)
        rows = [
            (model, number, replaces[row], arrived, key, json.dumps(label), *rest)
            for number, row in enumerate(order, first.next)
            for key, label, *rest in [labels[row]]
        ]
        self._writer.insert("labels", rows)
