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
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import FloatArray
from evencover.classes import Classes
from evencover.errors import InputError
from evencover.monitoring.database import MEMORY, Database
from evencover.randomness import RandomStream, random_order, row_indices
from evencover.sets import PredictionSets

FORMAT = 5
OVERALL = -1  # the class of counts of all classes, and of labels that are not among the classes
RETENTION, DAY = 90.0, 86400.0  # days, seconds
MOST_IN_MEMORY = 100_000  # sets of served rows without a database
WAITING = 0  # the model of labels whose row no model has served yet

# `content` is a hash of a row's numbers: an id may stand for several rows. `number` counts the
# labels of a model as they arrived; `replaces` is the number of an earlier label of the same row.
STORED = {
    "state": "format BIGINT PRIMARY KEY, pruned DOUBLE PRECISION, expired BIGINT DEFAULT 0",
    "models": "model BIGINT PRIMARY KEY, digest TEXT, n_classes BIGINT, class_names TEXT, "
    "false_alarm DOUBLE PRECISION, tolerance DOUBLE PRECISION, targets BYTEA",
    "served": "id BIGINT, model BIGINT, content BIGINT, time DOUBLE PRECISION, period TEXT, "
    "members BYTEA, within BYTEA, answer BYTEA, PRIMARY KEY (id, model, content)",
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
    """A row whose sets a model computed, as the table has it; without an id it is not recorded.

    The sets are packed: `members`, and `within`, the classes whose score is at most the conformal
    quantile of their own calibration scores (None if the model keeps no such scores). `answer` are
    the labels that the row's answer would be right for, None for a review.
    """

    id: Any
    model: int
    content: int
    time: float
    period: str
    members: bytes
    within: bytes | None
    answer: bytes | None = None


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

    def judged(self, entry: ModelEntry, row: Any) -> Label:
        """Return the label as the sets of its row judge it."""
        y = entry.index_of(self.label)
        covered, *others = (
            None if packed is None else int(contains(packed, y, entry.n_classes))
            for packed in (row.members, row.within, row.answer)
        )
        about = row.id, entry.named(self.label), self.moment, self.period or row.period
        return Label(*about, row.content, y, covered or 0, *others)


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


def pack_sets(sets: PredictionSets) -> list[bytes]:
    """Return each row's set as bytes: a list of classes, or a bit for every class if shorter."""
    n_classes = sets.n_classes
    classes = sets.indices.astype(np.min_scalar_type(n_classes - 1))
    content, size = classes.tobytes(), classes.itemsize
    is_long = sets.sizes * size >= n_classes // 8
    bits = iter(np.packbits(sets[is_long].to_mask(), axis=1) if is_long.any() else ())
    return [
        b"m" + next(bits).tobytes() if as_bits else b"l" + content[start * size : stop * size]
        for (start, stop), as_bits in zip(
            pairwise(sets.indptr.tolist()), is_long.tolist(), strict=True
        )
    ]


def pack_answers(sets: PredictionSets) -> list[bytes | None]:
    """Return the labels that each row's answer is right for, packed; None for a review."""
    answers = sets.answers
    if answers is None:
        return [None] * len(sets)
    labels = {node: answers.hierarchy.labels_of(node) for node in {*answers.nodes.tolist()}}
    of_rows = [labels[node] for node in answers.nodes.tolist()]
    sizes = np.array([len(classes) for classes in of_rows], dtype=np.int64)
    indices = np.concatenate([np.zeros(0, dtype=np.int64), *of_rows])
    packed = pack_sets(PredictionSets.from_sizes(sizes, indices, sets.n_classes))
    return [row if size else None for row, size in zip(packed, sizes.tolist(), strict=True)]


def contains(packed: bytes, index: int, n_classes: int) -> bool:
    """Return whether a packed set contains a class; none contains OVERALL.

    >>> sets = [PredictionSets.from_csr(np.array([0, 2]), np.array([3, 40]), k) for k in (50, 5000)]
    >>> [contains(pack_sets(one)[0], 40, one.n_classes) for one in sets]
    [True, True]
    """
    if packed[:1] == b"l":
        return index in np.frombuffer(packed, np.min_scalar_type(n_classes - 1), offset=1)
    return index >= 0 and bool(packed[1 + index // 8] >> (7 - index % 8) & 1)


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

    def record(self, rows: Sequence[ServedRow]) -> int:
        """Record rows with ids that models served, and count labels that came before them.

        A row that the model has served with this id is left out; another row is a new serving.
        Return the number of new ones.
        """
        ids = [row.id for row in rows]
        with self._writer.writing():
            n_new = self._writer.insert("served", rows)
            self._n_recorded += n_new
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
                models = {row.model for row in rows}
                self._count(labels, [row for row in self._servings(labels) if row.model in models])
                self._writer.run_in(f"DELETE FROM labels WHERE model = {WAITING} AND id", ids)
            self._prune(time.time())
        return n_new

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
            sql = "SELECT time FROM served WHERE members IS NOT NULL ORDER BY time DESC"
            for oldest in self._writer.run(f"{sql} LIMIT 1 OFFSET ?", MOST_IN_MEMORY):
                self._forget(oldest.time)

    def _forget(self, before: float) -> None:
        """Remove rows without a label, and sets of labeled ones, that were served before."""
        unlabeled = f"FROM served WHERE time < ? AND NOT {HAS_LABEL}"
        (old,) = self._writer.run(f"SELECT COUNT(*) AS rows {unlabeled}", before)
        self._writer.run("UPDATE state SET expired = expired + ?", old.rows)
        self._writer.run(f"DELETE {unlabeled}", before)
        sets = "UPDATE served SET members = NULL, within = NULL, answer = NULL"
        self._writer.run(f"{sets} WHERE members IS NOT NULL AND time < ?", before)

    # ---- labels ----------------------------------------------------------------------------------

    def label(self, labels: Sequence[Label]) -> LabelCounts:
        """Count labels of served rows, against the models that served them; keep the others.

        Of several labels of one id the last counts.
        """
        by_id = {label.id: label for label in labels}
        with self._writer.writing():
            served = self._servings(by_id)
            counted, corrected, n_several = self._count(by_id, served)
            waiting = [by_id[key] for key in by_id.keys() - {row.id for row in served}]
            self._append(WAITING, waiting)
        n_repeated = len(labels) - len(counted | corrected) - len(waiting)
        n_corrected = len(corrected - counted)
        return LabelCounts(len(counted), n_corrected, n_repeated, len(waiting), n_several)

    def update(self, rows: Sequence[ServedRow], indices: Sequence[int | None]) -> LabelCounts:
        """Count rows of one model with their labels, None for unknown ones; those with ids once."""
        if not rows:
            return LabelCounts(0, 0, 0, 0)
        labels = [Label(row.id, y, row.time) for row, y in zip(rows, indices, strict=True)]
        with self._writer.writing():
            entry = self._entry(rows[0].model)
            if rows[0].id is None:
                pairs = zip(labels, rows, strict=True)
                self._append(entry.key, [label.judged(entry, row) for label, row in pairs])
                return LabelCounts(len(rows), 0, 0, 0)
            by_id = {row.id: row for row in rows}
            self._n_recorded += self._writer.insert("served", [*by_id.values()])
            new, changed, _ = self._count({label.id: label for label in labels}, by_id.values())
            self._writer.run_in(f"DELETE FROM labels WHERE model = {WAITING} AND id", [*by_id])
            self._prune(time.time())
        return LabelCounts(len(new), len(changed), len(rows) - len(new) - len(changed), 0)

    def _count(
        self, labels: Mapping[int, Label], served: Iterable[Any]
    ) -> tuple[set[int], set[int], int]:
        """Count labels by id for the rows that models served, sorted by time.

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
        by_model: dict[int, list[Label]] = {}
        names: dict[int, int | str | None] = {}  # an index is a class of the last model before it
        for row in sorted(chosen.values(), key=lambda r: (is_before(r), r.time), reverse=True):
            label, entry = labels[row.id], self._entry(row.model)
            name = names.setdefault(row.id, entry.named(label.label))
            if row.members is not None:  # its set is kept for as long as the retention
                judged = label._replace(label=name).judged(entry, row)
                by_model.setdefault(row.model, []).append(judged)
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
