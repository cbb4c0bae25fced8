"""The monitor's state in SQLite or PostgreSQL: served rows, labels that count once, and counts.

Every update is one transaction. Writers take turns, in SQLite by BEGIN IMMEDIATE and in PostgreSQL
by an advisory lock, so any number of processes may share a state. The SQL is the same for both.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import InputError, needs, one_line, printable
from evencover.monitoring.evidence import block_of

FORMAT = 1
OVERALL = -1  # the class of counts of all classes, and of labels that are not among the classes
BUSY_SECONDS = 10.0  # to wait for another writer
RETENTION = 90.0  # days
PRUNE_SECONDS = 60.0
MOST_IN_MEMORY = 100_000  # served rows without a database
MEMORY = ":memory:"
CHUNK = 3000  # rows of an INSERT; SQLite takes 32,766 values
LOCK = 0x65766E63  # of PostgreSQL's advisory locks, the one of evencover's writers

TABLES = """
CREATE TABLE IF NOT EXISTS format (number BIGINT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS models (
  model BIGINT PRIMARY KEY, digest TEXT NOT NULL, name TEXT NOT NULL, since DOUBLE PRECISION,
  n_classes BIGINT, class_names TEXT, false_alarm DOUBLE PRECISION, tolerance DOUBLE PRECISION,
  targets BYTEA, version BIGINT);
CREATE TABLE IF NOT EXISTS served (
  id BIGINT, model BIGINT, time DOUBLE PRECISION, period TEXT, members BYTEA, within BYTEA,
  PRIMARY KEY (id, model));
CREATE INDEX IF NOT EXISTS served_time ON served (time);
CREATE TABLE IF NOT EXISTS labeled (
  id BIGINT, model BIGINT, time DOUBLE PRECISION, period TEXT, class BIGINT, covered BIGINT,
  within BIGINT, delay DOUBLE PRECISION, PRIMARY KEY (id, model));
CREATE INDEX IF NOT EXISTS labeled_time ON labeled (model, time);
CREATE TABLE IF NOT EXISTS waiting (
  id BIGINT PRIMARY KEY, time DOUBLE PRECISION, period TEXT, label TEXT);
CREATE TABLE IF NOT EXISTS counts (
  model BIGINT, class BIGINT, period TEXT, rows BIGINT, covered BIGINT,
  PRIMARY KEY (model, class, period));
CREATE TABLE IF NOT EXISTS blocks (
  model BIGINT, class BIGINT, block BIGINT, rows BIGINT, covered BIGINT, scored BIGINT,
  within BIGINT, period TEXT, version BIGINT, PRIMARY KEY (model, class, block));
CREATE INDEX IF NOT EXISTS blocks_version ON blocks (model, version);
CREATE TABLE IF NOT EXISTS unknown (
  model BIGINT, label TEXT, rows BIGINT, PRIMARY KEY (model, label));
CREATE TABLE IF NOT EXISTS drift (
  model BIGINT, side BIGINT, place BIGINT, rows BIGINT, PRIMARY KEY (model, side, place));
"""


class StoreError(InputError):
    """The database cannot be read or written now."""


@dataclass(frozen=True, eq=False)
class About:
    """Describe a model to the state: enough to judge labels of rows that it served."""

    digest: str
    name: str
    n_classes: int
    class_names: Sequence[str] | None
    false_alarm: float
    tolerance: float
    targets: FloatArray  # (K,)

    @property
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

    def class_of(self, label: str | int) -> int:
        """Return the class of a label, an index or a name; `OVERALL` if it has none."""
        if isinstance(label, str):
            if label in self.index_of_name or not label.isdecimal() or self._has_numbers:
                return self.index_of_name.get(label, OVERALL)
            label = int(label)
        return label if 0 <= label < self.n_classes else OVERALL


class Served(NamedTuple):
    """Record served rows: their keys (n,), sets, and classes within their quantile.

    ``within`` lists, for each row, the classes whose score is at most the conformal quantile of
    their own calibration scores, packed as the sets are; None if the model keeps no such scores.
    """

    keys: Array
    period: str
    members: Sequence[bytes]
    within: Sequence[bytes | None]
    drift: IntArray  # (n, 2) places of the rows' set size and top class in the drift counts


class Labels(NamedTuple):
    """Numbers of labels that were counted, repeated, and that wait for their row."""

    counted: int
    repeated: int
    waiting: int


class Judged(NamedTuple):
    """Labeled rows (n,) of a model: all that is counted of them."""

    classes: IntArray
    covered: Array
    within: Array | None
    periods: Sequence[str]
    keys: Array | None = None
    delays: Sequence[float | None] | None = None
    labels: Sequence[str | int] | None = None  # as given, to name unknown ones

    def take(self, places: list[int]) -> Judged:
        """Return the rows at some places, without keys and delays."""
        within = None if self.within is None else self.within[places]
        periods = [self.periods[place] for place in places]
        labels = None if self.labels is None else [self.labels[place] for place in places]
        return Judged(self.classes[places], self.covered[places], within, periods, labels=labels)


def pack(classes: Array, n_classes: int) -> bytes:
    """Return a set as bytes: a list of classes, or a bit for every class if that is shorter."""
    listed = classes.astype(np.min_scalar_type(n_classes - 1))
    if listed.nbytes < n_classes // 8:
        return b"l" + listed.tobytes()
    mask = np.zeros(n_classes, dtype=bool)
    mask[classes] = True
    return b"m" + np.packbits(mask).tobytes()


def contains(packed: bytes, index: int, n_classes: int) -> bool:
    """Return whether a packed set contains a class.

    >>> [contains(pack(np.array([3, 40]), k), 40, k) for k in (50, 5000)]
    [True, True]
    """
    if packed[:1] == b"l":
        return index in np.frombuffer(packed, np.min_scalar_type(n_classes - 1), offset=1)
    return bool(packed[1 + index // 8] >> (7 - index % 8) & 1)


def today(now: float | None = None) -> str:
    """Return the period of a moment: its date (UTC)."""
    return datetime.fromtimestamp(time.time() if now is None else now, UTC).date().isoformat()


class Store:
    """A database of monitors' states.

    Parameters
    ----------
    location
        A SQLite file, made if it does not exist, or ``postgresql://...``; None keeps it in memory.
    retention
        Days to keep served rows, and labels without a row.
    """

    def __init__(
        self, location: str | os.PathLike[str] | None = None, *, retention: float = RETENTION
    ) -> None:
        text = MEMORY if location is None else os.fspath(location)
        self.is_postgresql = text.startswith(("postgresql://", "postgres://"))
        self.name = MEMORY if location is None else text
        if self.is_postgresql:  # without user and password
            parts = urlsplit(text)
            self.name = f"postgresql://{parts.hostname or ''}{parts.path}"
        if not retention > 0:
            raise InputError(f"'retention' must be above 0 days. Got {retention!r}.")
        self.retention = float(retention)
        self._location, self._lock = text, threading.RLock()
        self._connection: Any = None
        self._pruned = 0.0
        self._models: dict[int, About] = {}
        with self._reporting("open"):
            self._connect()

    # ---- connections -----------------------------------------------------------------------------

    def _connect(self) -> None:
        if self.is_postgresql:
            try:
                import psycopg
            except ImportError:
                raise needs("States in PostgreSQL", "psycopg", "postgresql") from None
            self._connection = psycopg.connect(
                self._location, autocommit=True, connect_timeout=int(BUSY_SECONDS)
            )
            with self.transaction():
                if self.run("SELECT to_regnamespace('evencover')")[0][0] is None:
                    self.run("CREATE SCHEMA evencover")
                self.run("SET search_path TO evencover")
                self._make_tables()
            self.run("SET search_path TO evencover")  # again: a rolled back one is undone
            return
        if sqlite3.sqlite_version_info < (3, 35):
            raise InputError(
                f"SQLite must be 3.35 or later. Got {sqlite3.sqlite_version}; use a newer Python, "
                "or PostgreSQL."
            )
        self._connection = sqlite3.connect(
            self._location, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        tables = {name for (name,) in self.run("SELECT name FROM sqlite_master")}
        if tables and "format" not in tables:
            raise InputError(
                f"'{self.name}' must be a monitor's state or a new file. Got another database."
            )
        self.run("PRAGMA journal_mode=WAL")
        self.run("PRAGMA synchronous=FULL")
        with self.transaction():
            self._make_tables()

    def _make_tables(self) -> None:
        for statement in TABLES.split(";\n"):
            if statement.strip():
                self.run(statement)
        self.run(
            "INSERT INTO format SELECT CAST(? AS BIGINT) WHERE NOT EXISTS (SELECT 1 FROM format)",
            FORMAT,
        )
        found = self.run("SELECT MAX(number) FROM format")[0][0]
        if found != FORMAT:
            raise InputError(
                f"'{self.name}' must have format {FORMAT}. Got {found}; use another evencover, or "
                "start a new state."
            )

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()

    @contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        """Raise a database's errors as StoreError; reconnect after a lost connection."""
        errors: tuple[type[Exception], ...] = (sqlite3.Error,)
        if self.is_postgresql:
            with suppress(ImportError):
                import psycopg

                errors = (psycopg.Error,)
        try:
            yield
        except errors as error:
            if self.is_postgresql and getattr(self._connection, "closed", True):
                self.close()
            raise StoreError(f"Cannot {what} '{self.name}': {one_line(error)}.") from error

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """Run the statements within as one transaction.

        One that is not `durable` survives a crash of the process, but not a power failure.
        """
        with self._lock, self._reporting("write to"):
            if self._connection is None:
                self._connect()
            sqlite = not self.is_postgresql
            if sqlite and not durable:
                self.run("PRAGMA synchronous=NORMAL")
            try:
                self.run("BEGIN IMMEDIATE" if sqlite else "BEGIN")
                try:
                    if not sqlite:
                        self.run("SELECT pg_advisory_xact_lock(?)", LOCK)
                    if not sqlite and not durable:
                        self.run("SET LOCAL synchronous_commit TO OFF")
                    yield
                    self.run("COMMIT")
                except BaseException:
                    with suppress(Exception):
                        self.run("ROLLBACK")
                    raise
            finally:
                if sqlite and not durable:
                    self.run("PRAGMA synchronous=FULL")

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute one statement, and return its rows."""
        with self._lock:
            if self._connection is None:
                self._connect()
            if self.is_postgresql:
                sql = sql.replace("?", "%s")
            cursor = self._connection.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []

    def read(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute a query by itself."""
        with self._reporting("read"):
            return self.run(sql, *values)

    def _where_in(
        self, sql: str, keys: Sequence[int], *more: Any, then: str = ""
    ) -> list[tuple[Any, ...]]:
        """Execute a statement whose condition ends in IN, for any number of keys."""
        found: list[tuple[Any, ...]] = []
        for at in range(0, len(keys), CHUNK):
            part = keys[at : at + CHUNK]
            found += self.run(f"{sql} IN ({', '.join('?' * len(part))}) {then}", *more, *part)
        return found

    def _insert(
        self, table: str, rows: Iterable[Sequence[Any]], then: str = "DO NOTHING"
    ) -> list[tuple[Any, ...]]:
        """Insert rows; of "DO NOTHING RETURNING ..." return those that were new."""
        found: list[tuple[Any, ...]] = []
        rows = list(rows)
        for at in range(0, len(rows), CHUNK):
            part = rows[at : at + CHUNK]
            marks = ", ".join([f"({', '.join('?' * len(part[0]))})"] * len(part))
            values = [value for row in part for value in row]
            found += self.run(f"INSERT INTO {table} VALUES {marks} ON CONFLICT {then}", *values)
        return found

    # ---- models ----------------------------------------------------------------------------------

    def add_model(self, about: About) -> About:
        """Register a model; return its entry, with the levels of its first registration."""
        names = None if about.class_names is None else json.dumps(list(about.class_names))
        row = (
            *(about.key, about.digest, printable(about.name), time.time(), about.n_classes, names),
            *(about.false_alarm, about.tolerance, about.targets.astype("<f8").tobytes(), 0),
        )
        with self.transaction():
            self._insert("models", [row])
            return self._about(about.key)

    def _about(self, key: int) -> About:
        if key in self._models:
            return self._models[key]
        ((digest, name, n_classes, names, false_alarm, tolerance, targets),) = self.run(
            "SELECT digest, name, n_classes, class_names, false_alarm, tolerance, targets "
            "FROM models WHERE model = ?",
            key,
        )
        names = None if names is None else json.loads(names)
        values = np.frombuffer(targets, "<f8")
        about = About(digest, name, n_classes, names, false_alarm, tolerance, values)
        self._models[key] = about
        return about

    def most_classes(self) -> int:
        """Return the number of classes of the model with the most."""
        return int(self.read("SELECT MAX(n_classes) FROM models")[0][0])

    # ---- updates ---------------------------------------------------------------------------------

    def add_served(self, model: int, served: Served) -> int:
        """Record rows once, count them for drift, and count labels that waited for them."""
        now = time.time()
        keys = signed(served.keys)
        rows = zip(
            keys,
            *([value] * len(keys) for value in (model, now, served.period)),
            *(served.members, served.within),
            strict=True,
        )
        with self.transaction(durable=False):
            new = self._insert("served", first_of_each(rows), "DO NOTHING RETURNING id")
            added = {key for (key,) in new}
            if added:
                first = {key: place for place, key in reversed([*enumerate(keys)]) if key in added}
                self._add_drift(model, 1, served.drift[[*first.values()]].ravel())
                early = self._where_in(
                    "SELECT id, label, period FROM waiting WHERE id", sorted(added)
                )
                if early:
                    found = {key: (json.loads(text), period) for key, text, period in early}
                    labels = {key: found[key] for key in keys if key in found}
                    self._count_served(labels, now, {model})
                    self._where_in("DELETE FROM waiting WHERE id", [*labels])
            if now - self._pruned > PRUNE_SECONDS:
                self._prune(now)
        return len(added)

    def _prune(self, now: float) -> None:
        for table in ("served", "waiting"):
            self.run(f"DELETE FROM {table} WHERE time < ?", now - 86400 * self.retention)
        if self.name == MEMORY:
            self.run(
                "DELETE FROM served WHERE time < "
                "(SELECT time FROM served ORDER BY time DESC LIMIT 1 OFFSET ?)",
                MOST_IN_MEMORY,
            )
        self._pruned = now

    def add_drift(self, model: int, side: int, places: IntArray) -> None:
        """Count set sizes and top classes of rows that are not recorded."""
        with self.transaction(durable=False):
            self._add_drift(model, side, places)

    def _add_drift(self, model: int, side: int, places: IntArray) -> None:
        found, times = np.unique(places, return_counts=True)
        rows = [(model, side, p, n) for p, n in zip(found.tolist(), times.tolist(), strict=True)]
        self._insert("drift", rows, ADD_DRIFT)

    def add_labels(
        self, keys: Array, labels: Sequence[str | int], periods: Sequence[str | None]
    ) -> Labels:
        """Count labels of served rows, against the models that served them; keep the others."""
        now = time.time()
        given: dict[int, tuple[str | int, str | None]] = {}
        for key, label, period in zip(signed(keys), labels, periods, strict=True):
            given.setdefault(key, (label, period))
        with self.transaction():
            counted = self._count_served(given, now)
            rest = [key for key in given if key not in counted]
            known = {key for (key,) in self._where_in("SELECT id FROM labeled WHERE id", rest)}
            waiting = [
                (key, now, given[key][1], json.dumps(given[key][0]))
                for key in rest
                if key not in known
            ]
            self._insert("waiting", waiting)
        n_counted, n_waiting = len(counted), len(waiting)
        return Labels(n_counted, len(keys) - n_counted - n_waiting, n_waiting)

    def _count_served(
        self,
        labels: dict[int, tuple[str | int, str | None]],
        now: float,
        models: set[int] | None = None,
    ) -> set[int]:
        """Count labels by key, and return the keys that were counted for a model."""
        found = self._where_in(
            "SELECT id, model, time, period, members, within FROM served WHERE id", [*labels]
        )
        order = {key: place for place, key in enumerate(labels)}  # of arrival
        found.sort(key=lambda row: order[row[0]])
        counted: set[int] = set()
        for model in sorted({row[1] for row in found} if models is None else models):
            about, rows = self._about(model), [row for row in found if row[1] == model]
            given = [labels[row[0]] for row in rows]
            classes = np.array([about.class_of(label) for label, _ in given], dtype=np.int64)
            n = about.n_classes
            pairs = [*zip(rows, classes.tolist(), strict=True)]
            covered = [y >= 0 and contains(row[4], y, n) for row, y in pairs]
            within = [y >= 0 and row[5] is not None and contains(row[5], y, n) for row, y in pairs]
            scored = all(row[5] is not None for row in rows)
            judged = Judged(
                classes,
                np.array(covered, dtype=bool),
                np.array(within, dtype=bool) if scored else None,
                [period or row[3] for row, (_, period) in zip(rows, given, strict=True)],
                np.array([row[0] for row in rows], dtype=np.int64),
                None if models else [now - row[2] for row in rows],
                [label for label, _ in given],
            )
            counted |= self._count(model, judged)
            ids = [row[0] for row in rows]
            self._where_in("DELETE FROM served WHERE model = ? AND id", ids, model)
        return counted

    def add_judged(self, model: int, judged: Judged) -> int:
        """Count labeled rows, those with a key once; return how many were new."""
        with self.transaction():
            new = self._count(model, judged)
        return len(judged.classes) if judged.keys is None else len(new)

    def _count(self, model: int, judged: Judged) -> set[int]:
        """Count rows within a transaction; return the keys of those that were new."""
        new: set[int] = set()
        if judged.keys is not None:
            keys, n_rows = signed(judged.keys), len(judged.keys)
            unknown = [None] * n_rows
            is_within = unknown if judged.within is None else judged.within.astype(int).tolist()
            rows = zip(
                *(keys, [model] * n_rows, [time.time()] * n_rows, judged.periods),
                *(judged.classes.tolist(), judged.covered.astype(int).tolist(), is_within),
                judged.delays or unknown,
                strict=True,
            )
            added = self._insert("labeled", first_of_each(rows), "DO NOTHING RETURNING id")
            new = {key for (key,) in added}
            first = {key: place for place, key in reversed([*enumerate(keys)])}
            judged = judged.take(sorted(first[key] for key in new))
        classes, n_rows = judged.classes, len(judged.classes)
        if not n_rows:
            return new
        pairs = zip(judged.labels or (), classes.tolist(), strict=False)
        unknown_labels = Counter(printable(str(label)) for label, y in pairs if y == OVERALL)
        more = [(model, label, times) for label, times in unknown_labels.items()]
        self._insert("unknown", more, ADD_UNKNOWN)
        is_scored = np.full(n_rows, judged.within is not None)
        within = is_scored if judged.within is None else judged.within
        values = np.stack([np.ones(n_rows), judged.covered, is_scored, within], axis=-1)
        named = np.flatnonzero(classes != OVERALL)
        places = np.append(named, np.arange(n_rows))
        both = np.append(classes[named], np.full(n_rows, OVERALL))
        periods = [judged.periods[place] for place in places.tolist()]
        self._add_counts(model, both, values[places].astype(np.int64), periods)
        return new

    def add_counts(self, model: int, classes: IntArray, counts: IntArray, period: str) -> None:
        """Add counts (n, 4) of rows, covered, scored and within by class.

        Their order is unknown, so no bet restarts within them.
        """
        seen = counts[:, 0] > 0
        classes, counts = classes[seen], counts[seen]
        both = np.concatenate([classes, np.full(len(classes), OVERALL)])
        with self.transaction():
            self._add_counts(model, both, np.concatenate([counts, counts]), [period] * len(both))

    def _add_counts(
        self, model: int, classes: IntArray, values: IntArray, periods: Sequence[str]
    ) -> None:
        """Add counts (n, 4), in their order of arrival, to those of periods and blocks."""
        ((version,),) = self.run(
            "UPDATE models SET version = version + 1 WHERE model = ? RETURNING version", model
        )
        order = np.argsort(classes, kind="stable")
        classes, values, when = classes[order], values[order], np.array(periods)[order]
        distinct, starts, sizes = np.unique(classes, return_index=True, return_counts=True)
        sql = "SELECT class, CAST(SUM(rows) AS BIGINT) FROM blocks WHERE model = ? AND class"
        seen = dict(self._where_in(sql, distinct.tolist(), model, then="GROUP BY class"))
        before = np.array([seen.get(y, 0) for y in distinct.tolist()], dtype=np.int64)
        earlier = np.cumsum(values[:, 0]) - values[:, 0]
        ordinals = earlier + np.repeat(before - earlier[starts], sizes)
        names, period = np.unique(when, return_inverse=True)
        for table, parts in (("counts", period), ("blocks", block_of(ordinals))):
            keys = np.stack([classes, parts], axis=-1)
            groups, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
            sums = np.zeros((len(groups), 4), dtype=np.int64)
            np.add.at(sums, place.reshape(-1), values)
            if table == "counts":
                rows = [
                    (model, y, str(names[p]), *own[:2])
                    for (y, p), own in zip(groups.tolist(), sums.tolist(), strict=True)
                ]
                self._insert(table, rows, ADD_COUNTS)
            else:
                rows = [
                    (model, y, b, *own, str(when[at]), version)
                    for (y, b), own, at in zip(groups.tolist(), sums.tolist(), first, strict=True)
                ]
                self._insert(table, rows, ADD_BLOCKS)

    # ---- queries ---------------------------------------------------------------------------------

    def blocks(self, model: int, after: int) -> list[tuple[Any, ...]]:
        """Return what changed after a version: class, block, its counts, period and version."""
        return self.read(
            "SELECT class, block, rows, covered, scored, within, period, version FROM blocks "
            "WHERE model = ? AND version > ? ORDER BY class, block",
            *(model, after),
        )

    def periods(self, model: int, classes: Sequence[int] | None = None) -> list[tuple[Any, ...]]:
        """Return (class, period, rows, covered), of some classes or of all, by class and period."""
        sql = "SELECT class, period, rows, covered FROM counts WHERE model = ?"
        with self._reporting("read"):
            if classes is None:
                found = self.run(sql, model)
            else:
                found = self._where_in(f"{sql} AND class", classes, model)
        return sorted(found)

    def drift(self, model: int, n_places: int) -> IntArray:
        """Return the drift counts (2, n_places): of the reference, and of now."""
        counts = np.zeros((2, n_places), dtype=np.int64)
        for side, place, n in self.read(
            "SELECT side, place, rows FROM drift WHERE model = ?", model
        ):
            counts[side, place] = n
        return counts

    def unknown(self, model: int, most: int = 20) -> dict[str, int]:
        """Return the labels that are not among the classes, the most frequent first."""
        sql = "SELECT label, rows FROM unknown WHERE model = ? ORDER BY rows DESC, label LIMIT ?"
        return dict(self.read(sql, model, most))

    def delays(self, model: int, most: int) -> list[tuple[Any, ...]]:
        """Return (class, covered, period, delay) of the latest labels, those by id."""
        found = self.read(
            "SELECT class, covered, period, delay FROM labeled WHERE model = ? "
            "ORDER BY time DESC LIMIT ?",
            *(model, most),
        )
        return [each for each in found if each[3] is not None]

    def waiting(self) -> int:
        """Return the number of labels that wait for their row."""
        return int(self.read("SELECT COUNT(*) FROM waiting")[0][0])


ADD = "({key}) DO UPDATE SET rows = {table}.rows + excluded.rows"
ADD_DRIFT = ADD.format(key="model, side, place", table="drift")
ADD_UNKNOWN = ADD.format(key="model, label", table="unknown")
ADD_COUNTS = (
    ADD.format(key="model, class, period", table="counts")
    + ", covered = counts.covered + excluded.covered"
)
ADD_BLOCKS = (
    ADD.format(key="model, class, block", table="blocks")
    + "".join(f", {n} = blocks.{n} + excluded.{n}" for n in ("covered", "scored", "within"))
    + ", version = excluded.version"
)


def signed(keys: Array) -> list[int]:
    """Return 64-bit keys as signed integers, as databases need them."""
    return keys.astype(np.uint64, copy=False).view(np.int64).tolist()


def first_of_each(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Leave out rows whose key, the first column, came before."""
    found: dict[Any, tuple[Any, ...]] = {}
    for row in rows:
        found.setdefault(row[0], row)
    return [*found.values()]
