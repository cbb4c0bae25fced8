"""The state of monitors in a database: served rows, their labels, and the models that served them.

Labels are appended and never changed: of several labels of one served row the latest counts, and
every count follows from this table (`snapshot`). A label counts once for each model that served
its row. Rows of one call count in a random order, by a hash of their ids, because the order of a
file may depend on the outcome. Every update is one transaction.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray
from evencover.classes import Classes
from evencover.errors import InputError
from evencover.monitoring.database import MEMORY, Database
from evencover.monitoring.evidence import block_of
from evencover.randomness import RandomStream, places, random_order
from evencover.sets import PredictionSets

FORMAT = 4
OVERALL = -1  # the class of counts of all classes, and of labels that are not among the classes
RETENTION, DAY = 90.0, 86400.0  # days, seconds
MOST_IN_MEMORY = 100_000  # sets of served rows without a database

# A serving is a row with its id, by `content` (a hash of its numbers). `number` counts the labels
# of a model, `ordinal` those of a class, both as they arrived; the blocks follow from them
# (`evidence.block_of`). `label` is JSON; `replaces` is the number of an earlier label.
TABLES = {
    "state": "format BIGINT PRIMARY KEY, pruned DOUBLE PRECISION, expired BIGINT DEFAULT 0",
    "models": "model BIGINT PRIMARY KEY, digest TEXT, n_classes BIGINT, class_names TEXT, "
    "false_alarm DOUBLE PRECISION, tolerance DOUBLE PRECISION, targets BYTEA",
    "served": "id BIGINT, model BIGINT, content BIGINT, time DOUBLE PRECISION, period TEXT, "
    "members BYTEA, within BYTEA, PRIMARY KEY (id, model, content)",
    "waiting": "id BIGINT PRIMARY KEY, label TEXT, moment DOUBLE PRECISION, period TEXT, "
    "time DOUBLE PRECISION",
    "labels": "model BIGINT, number BIGINT, block BIGINT, ordinal BIGINT, class_block BIGINT, "
    "replaces BIGINT, id BIGINT, content BIGINT, label TEXT, moment DOUBLE PRECISION, period TEXT, "
    "class_index BIGINT, covered BIGINT, is_within BIGINT, PRIMARY KEY (model, number)",
}
INDEXES = {
    "served_time": "served (time)",
    "labels_id": "labels (id, model, content)",
    "labels_block": "labels (model, block)",
    "labels_class": "labels (model, class_index, class_block, ordinal)",
    "labels_replaced": "labels (model, replaces) WHERE replaces IS NOT NULL",
}
COUNTS = (  # a label that no later one replaces
    "NOT EXISTS (SELECT 1 FROM labels AS later "
    "WHERE later.model = labels.model AND later.replaces = labels.number)"
)
PUT_WAITING = "(id) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in ("label", "moment", "period", "time")
)
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

    def index_of(self, label: int | str | None) -> int:
        """Return the class of a label, an index or a name; OVERALL if it is none of them."""
        if isinstance(label, int):
            return label if 0 <= label < self.n_classes else OVERALL
        return self.classes.index.get(label or "", OVERALL)

    def label_of(self, index: int) -> int | str:
        """Return the label of a class: its name, or its index if the classes have no names."""
        return index if self.class_names is None else self.class_names[index]


class ServedRows(NamedTuple):
    """Rows (n,) of a model whose sets were computed.

    The sets are packed: `members`, and `within`, the classes whose score is at most the conformal
    quantile of their own calibration scores (None for each row if the model keeps no such scores).
    """

    time: float
    period: str
    keys: Sequence[int]
    contents: Sequence[int]
    members: Sequence[bytes]
    within: Sequence[bytes | None]


class SentLabel(NamedTuple):
    """A label as it was sent: an index, or a name; None for an unknown one without its name.

    It was true at a `moment`, and counts in a `period`; None stands for that of its row.
    """

    label: int | str | None
    moment: float
    period: str | None = None


class Judged(NamedTuple):
    """A label as it is counted, judged by the set that was served."""

    id: Any  # None for a row without an id
    content: Any
    label: str
    moment: float
    period: str
    class_index: int
    covered: int
    is_within: int | None  # None if the model keeps no calibration scores


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


def contains(packed: bytes, index: int, n_classes: int) -> bool:
    """Return whether a packed set contains a class; none contains OVERALL.

    >>> sets = [PredictionSets.from_csr(np.array([0, 2]), np.array([3, 40]), k) for k in (50, 5000)]
    >>> [contains(pack_sets(one)[0], 40, one.n_classes) for one in sets]
    [True, True]
    """
    if packed[:1] == b"l":
        return index in np.frombuffer(packed, np.min_scalar_type(n_classes - 1), offset=1)
    return index >= 0 and bool(packed[1 + index // 8] >> (7 - index % 8) & 1)


def now() -> float:
    """Return the time in seconds."""
    return time.time()


def today() -> str:
    """Return the period of now: the date (UTC)."""
    return datetime.fromtimestamp(now(), UTC).date().isoformat()


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
            *(entry.false_alarm, entry.tolerance, entry.targets.astype("<f8").tobytes()),
        )
        with self._writer.writing():
            self._writer.insert("models", [row])
            return self._entry(entry.key)

    def _entry(self, key: int) -> ModelEntry:
        if key not in self._entries:
            (row,) = self._writer.run("SELECT * FROM models WHERE model = ?", key)
            names = None if row.class_names is None else tuple(json.loads(row.class_names))
            levels = row.false_alarm, row.tolerance, np.frombuffer(row.targets, "<f8")
            self._entries[key] = ModelEntry(row.digest, row.n_classes, names, *levels)
        return self._entries[key]

    # ---- rows ------------------------------------------------------------------------------------

    def record(self, *batches: tuple[int, ServedRows]) -> int:
        """Record rows with ids that models served, and count labels that came before them.

        A row that the model has served with this id is left out; another row is a new serving.
        Return the number of new ones.
        """
        by_model = dict[int, list[Any]]()
        for model, rows in batches:
            by_model.setdefault(model, []).append(rows)
        with self._writer.writing():
            n_new = 0
            for model, parts in by_model.items():
                n_new += self._record(model, *parts)
                self._count_early(model, [key for rows in parts for key in rows.keys])
            self._prune(now())
        return n_new

    def _record(self, model: int, *parts: ServedRows) -> int:
        """Record rows; return the number of new ones."""
        values = [
            (key, model, content, rows.time, rows.period, *sets)
            for rows in parts
            for key, content, *sets in zip(*rows[2:], strict=True)
        ]
        n_new = self._writer.insert("served", values)
        self._n_recorded += n_new
        return n_new

    def _count_early(self, model: int, keys: list[int]) -> None:
        """Count labels that waited for new rows, or that the same ids of other models have."""
        labels = {}
        of_others = self._writer.run_in("SELECT * FROM labels WHERE id", keys)
        for row in sorted(of_others, key=attrgetter("moment")):
            if row.class_index == OVERALL:
                label = json.loads(row.label)
            else:
                label = self._entry(row.model).label_of(row.class_index)
            labels[row.id] = SentLabel(label, row.moment)
        waited = self._writer.run_in("SELECT * FROM waiting WHERE id", keys)
        labels |= {
            row.id: SentLabel(json.loads(row.label), row.moment, row.period) for row in waited
        }
        self._count_labels(labels, model)
        self._writer.run_in("DELETE FROM waiting WHERE id", [row.id for row in waited])

    def _prune(self, moment: float) -> None:
        """Remove rows, waiting labels and sets past the retention.

        The retention is measured from the previous look, a day or more ago, so a clock that jumps
        removes nothing before it has been there for a day.
        """
        (state,) = self._writer.run("SELECT pruned FROM state")
        passed = DAY if state.pruned is None else moment - state.pruned
        if not 0 <= passed < min(DAY, DAY * self.retention / 10):
            before = min(moment, moment - passed) - DAY * self.retention
            self._writer.run("DELETE FROM waiting WHERE time < ?", before)
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
        sets = "UPDATE served SET members = NULL, within = NULL WHERE members IS NOT NULL"
        self._writer.run(f"{sets} AND time < ?", before)

    # ---- labels ----------------------------------------------------------------------------------

    def label(self, keys: Sequence[int], labels: Sequence[SentLabel]) -> LabelCounts:
        """Count labels of served rows, against the models that served them; keep the others.

        Of several labels of one id the last counts.
        """
        by_key, arrived = dict(zip(keys, labels, strict=True)), now()
        with self._writer.writing():
            known, counted, corrected, n_several = self._count_labels(by_key)
            waiting = [
                (key, json.dumps(sent.label), sent.moment, sent.period, arrived)
                for key, sent in by_key.items()
                if key not in known
            ]
            self._writer.insert("waiting", waiting, PUT_WAITING)
        numbers = len(counted), len(corrected - counted), len(waiting)
        return LabelCounts(*numbers[:2], len(keys) - sum(numbers), numbers[2], n_several)

    def update(
        self, model: int, served: ServedRows | None, judged: Sequence[Judged]
    ) -> LabelCounts:
        """Count labels with their rows, which a model served; those with an id once."""
        with self._writer.writing():
            if served is None:
                self._append(model, judged)
                return LabelCounts(len(judged), 0, 0, 0)
            self._record(model, served)
            by_row = {(row.id, row.content): row for row in judged}
            counted, corrected = self._append_new(model, by_row.values())
            self._writer.run_in("DELETE FROM waiting WHERE id", [*{row.id for row in judged}])
            self._prune(now())
        n_repeated = len(judged) - len(counted) - len(corrected)
        return LabelCounts(len(counted), len(corrected), n_repeated, 0)

    def _count_labels(
        self, labels: Mapping[int, SentLabel], model: int | None = None
    ) -> tuple[set[int], set[int], set[int], int]:
        """Count labels by id, for one model or all that served these ids.

        Return the ids of known rows, of counted and of corrected labels, and the number of ids
        that a model served with several rows.
        """
        sql, only = ("", ()) if model is None else ("model = ? AND ", (model,))
        served = self._writer.run_in(f"SELECT * FROM served WHERE {sql}id", [*labels], *only)
        chosen: dict[tuple[int, int], Any] = {}  # of each id and model
        several = set[int]()
        for row in sorted(served, key=attrgetter("time")):
            earlier = chosen.get((row.model, row.id))
            several |= set() if earlier is None else {row.id}
            if earlier is None or row.time <= labels[row.id].moment:
                chosen[row.model, row.id] = row
        counted, corrected, by_model = set[int](), set[int](), dict[int, list[Judged]]()
        names: dict[int, int | str | None] = {}  # an index stands for a class of the last model
        for row in sorted(chosen.values(), key=attrgetter("time"), reverse=True):
            sent, entry = labels[row.id], self._entry(row.model)
            y = entry.index_of(names.setdefault(row.id, sent.label))
            if y != OVERALL:
                names[row.id] = entry.label_of(y)
            if row.members is not None:  # its set is kept for as long as the retention
                judged = by_model.setdefault(row.model, [])
                judged.append(_judge(entry, row, y, sent))
        for key, judged in by_model.items():
            new, changed = self._append_new(key, judged)
            counted |= {row.id for row in new}
            corrected |= {row.id for row in changed}
        return {row.id for row in served}, counted, corrected, len(several)

    def _append_new(
        self, model: int, judged: Iterable[Judged]
    ) -> tuple[list[Judged], list[Judged]]:
        """Append labels that differ from the latest of their rows: first ones, and corrections."""
        judged = list(judged)
        sql = "SELECT id, content, number, label FROM labels WHERE model = ? AND id"
        known = self._writer.run_in(sql, [*{row.id for row in judged}], model)
        latest = {(row.id, row.content): row for row in sorted(known, key=attrgetter("number"))}
        earlier = [latest.get((row.id, row.content)) for row in judged]
        pairs = list(zip(judged, earlier, strict=True))
        new = [row for row, old in pairs if old is None]
        changed = {row: old.number for row, old in pairs if old and old.label != row.label}
        self._append(model, [*new, *changed], changed)
        return new, [*changed]

    def _append(
        self, model: int, judged: Sequence[Judged], replaces: Mapping[Judged, int] | None = None
    ) -> None:
        """Append labels as they arrive; those of one call arrive in a random order."""
        if not judged:
            return
        keys = np.array([row.id or 0 for row in judged], dtype=np.int64).astype(np.uint64)
        keys = places(0, len(judged)) if judged[0].id is None else keys
        judged = [judged[row] for row in random_order(0, RandomStream.EVIDENCE, keys).tolist()]
        sql = "SELECT COALESCE(MAX(number), -1) + 1 AS next FROM labels WHERE model = ?"
        first = self._writer.run(sql, model)[0].next
        numbers, ordinals = [*range(first, first + len(judged))], list[int]()
        arrived = self._arrived(model, {row.class_index for row in judged})
        for row in judged:
            ordinals.append(arrived[row.class_index])
            arrived[row.class_index] += 1
        blocks, class_blocks = (block_of(np.array(n)).tolist() for n in (numbers, ordinals))
        replaced = [(replaces or {}).get(row) for row in judged]
        columns = zip(numbers, blocks, ordinals, class_blocks, replaced, judged, strict=True)
        self._writer.insert("labels", [(model, *row[:-1], *row[-1]) for row in columns])

    def _arrived(self, model: int, classes: Iterable[int]) -> dict[int, int]:
        """Return the number of labels of each class that arrived, with those replaced since."""
        chosen = ", ".join(f"({y})" for y in classes)
        last = "SELECT ordinal + 1 FROM labels WHERE model = ? AND class_index = chosen.y"
        rows = self._writer.run(
            f"WITH chosen (y) AS (VALUES {chosen}) SELECT chosen.y, COALESCE(({last} "
            "ORDER BY class_block DESC, ordinal DESC LIMIT 1), 0) AS n FROM chosen",
            model,
        )
        return {row.y: row.n for row in rows}


def _judge(entry: ModelEntry, row: Any, y: int, sent: SentLabel) -> Judged:
    """Judge a label of a class by the sets that were served."""
    covered, is_within = (
        None if packed is None else int(contains(packed, y, entry.n_classes))
        for packed in (row.members, row.within)
    )
    label = label_text(y, sent.label)
    about = label, sent.moment, sent.period or row.period
    return Judged(row.id, row.content, *about, y, covered or 0, is_within)


def label_text(y: int, label: int | str | None = None) -> str:
    """Return a label as it is stored: its index, or the text of one that is no class."""
    return json.dumps(label if y == OVERALL else y)


def signed(keys: Array) -> list[int]:
    """Return 64-bit keys as signed integers, as databases need them."""
    return keys.astype(np.uint64, copy=False).view(np.int64).tolist()
