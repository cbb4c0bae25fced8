"""Connections to SQLite and PostgreSQL: transactions, lock timeouts, and rows with names.

Writers take turns, in SQLite by BEGIN IMMEDIATE and in PostgreSQL by an advisory lock, so any
number of processes may share a database. The SQL is the same for both.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from evencover.errors import InputError, import_extra, one_line

LOCK_SECONDS = 5.0  # to wait for another writer
MEMORY = ":memory:"
MAX_VALUES = 30_000  # of one statement; SQLite takes 32,766
WRITERS_LOCK = 0x65766E63  # PostgreSQL's advisory lock of evencover's writers
# A URL whose host and database can be shown: user, password and options have no part in them.
_PLAIN = re.compile(
    r"postgres(?:ql)?://(?:[^@/?#]*@)?([\w.,-]*|\[[0-9a-fA-F:.]+\])(?::\d+)?(/[\w.-]*)?(?:\?[^@#]*)?"
)

_ADDRESS = re.compile(r"^[A-Za-z][\w+.-]+:|://|password *=", re.ASCII | re.IGNORECASE)


class StateError(InputError):
    """The database cannot be read or written now."""


class Database:
    """A connection, which is opened again after it was lost.

    Parameters
    ----------
    location
        A SQLite file, made if it does not exist, ``postgresql://...`` or ``:memory:``.
    tables, indexes
        Columns of each table and index; ``state.format`` is the number of this format.
    """

    def __init__(
        self, location: str, tables: Mapping[str, str], indexes: Mapping[str, str], number: int
    ) -> None:
        self.is_postgresql = location.startswith(("postgresql://", "postgres://"))
        plain, self.name = _PLAIN.fullmatch(location), location
        if self.is_postgresql and plain:
            self.name = f"postgresql://{plain[1]}{plain[2] or ''}"
        elif _ADDRESS.search(location):  # nothing of it is shown: any part may be a password
            raise InputError(
                "'state' must be a SQLite file or postgresql://USER:PASSWORD@HOST/DATABASE. Got an "
                "address that is neither; write special characters of a password as percent codes, "
                "such as %2F for a slash, and begin a file with './' if its name has a colon."
            )
        self._location, self._format = location, number
        self._schema = [f"TABLE IF NOT EXISTS {name} ({tables[name]})" for name in tables]
        self._schema += [f"INDEX IF NOT EXISTS {name} ON {indexes[name]}" for name in indexes]
        self._lock = threading.RLock()
        self._connection: Any = None
        self._file: tuple[int, int] | None = None  # device and inode of the SQLite file
        with self._reporting("open"):
            self._open()

    # ---- connections -----------------------------------------------------------------------------

    def _open(self) -> Any:
        """Return the connection; make one and set it up first if there is none."""
        if self._connection is None:
            connection = self._connect()
            try:
                self._set_up(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _connect(self) -> Any:
        if self.is_postgresql:
            how: dict[str, Any] = {"autocommit": True, "connect_timeout": int(LOCK_SECONDS)}
            how["tcp_user_timeout"] = int(2000 * LOCK_SECONDS)
            psycopg = _import_psycopg()
            try:  # libpq quotes what it cannot read, such as "%zz", a part of a password
                psycopg.conninfo.conninfo_to_dict(self._location)
            except psycopg.Error:
                raise StateError(f"Cannot open '{self.name}': its URL cannot be read.") from None
            return psycopg.connect(self._location, **how)
        path, is_new = self._location, self._file is None
        if not is_new:  # a state that was deleted is not replaced by an empty one
            path = f"{Path(path).absolute().as_uri()}?mode=rw"
        how = {"isolation_level": None, "check_same_thread": False, "uri": not is_new}
        return sqlite3.connect(path, LOCK_SECONDS, **how)

    def _set_up(self, connection: Any) -> None:
        """Check that a database is a state of this format; make one in a new database."""
        run = partial(self._run, connection)
        if self.is_postgresql:
            run("SET search_path TO evencover")
            run(f"SET lock_timeout TO {int(1000 * LOCK_SECONDS)}")
        tables = "information_schema.tables WHERE table_schema = 'evencover'"
        names = (
            f"table_name AS name FROM {tables}" if self.is_postgresql else "name FROM sqlite_master"
        )
        known = {row.name for row in run(f"SELECT {names}")}
        if known and "state" not in known:
            raise InputError(
                f"'{self.name}' must be a monitor's state or a new file. Got another database."
            )
        for state in run("SELECT format FROM state") if known else ():
            if state.format != self._format:
                raise InputError(
                    f"'{self.name}' must have format {self._format}. Got {state.format}, which "
                    "another version of evencover wrote; use that one, or start a new state."
                )
        if not self.is_postgresql:
            run("PRAGMA journal_mode=WAL")
            run("PRAGMA synchronous=FULL")
        with self._writing(connection):
            schema = "SELECT 1 FROM pg_namespace WHERE nspname = 'evencover'"
            if self.is_postgresql and not run(schema):  # a user who may not make one can use it
                run("CREATE SCHEMA evencover")
            for definition in self._schema:
                run(f"CREATE {definition}")
            if not run("SELECT format FROM state"):
                run("INSERT INTO state (format) VALUES (?)", self._format)
        if not self.is_postgresql and self._location != MEMORY:
            self._file = _file_id(self._location)

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
        """Raise a database's errors as StateError; drop a connection that was lost."""
        errors: Any = _import_psycopg().Error if self.is_postgresql else sqlite3.Error
        try:
            yield
        except errors as error:
            if self.is_postgresql and getattr(self._connection, "closed", True):
                self.close()
            raise StateError(f"Cannot {what} '{self.name}': {one_line(error)}.") from None

    def _require_file(self) -> None:
        """Raise StateError if the file was deleted or replaced: what is written there is lost."""
        is_open = self._connection is not None
        if is_open and self._file is not None and _file_id(self._location) != self._file:
            self.close()
            raise StateError(
                f"Cannot use '{self.name}': it was deleted or replaced. Restart to begin a new "
                "state, or restore the file."
            )

    # ---- transactions and statements -------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run the statements within as one transaction, alone among all writers."""
        with self._lock, self._reporting("write to"):
            self._require_file()
            with self._writing(self._open()):
                yield
            self._require_file()

    @contextmanager
    def _writing(self, connection: Any) -> Iterator[None]:
        with self._transaction(connection, "BEGIN" if self.is_postgresql else "BEGIN IMMEDIATE"):
            if self.is_postgresql:
                self._run(connection, "SELECT pg_advisory_xact_lock(?)", WRITERS_LOCK)
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Run the queries within on one snapshot of the database."""
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if self.is_postgresql else "BEGIN"
        with self._lock, self._reporting("read"):
            self._require_file()
            with self._transaction(self._open(), begin):
                yield

    @contextmanager
    def _transaction(self, connection: Any, begin: str) -> Iterator[None]:
        self._run(connection, begin)
        try:
            yield
            self._run(connection, "COMMIT")
        except BaseException:
            with suppress(Exception):
                self._run(connection, "ROLLBACK")
            raise

    def run(self, sql: str, *values: Any) -> list[Any]:
        """Execute a statement of a transaction; return its rows as named tuples."""
        return self._run(self._connection, sql, *values)

    def _run(self, connection: Any, sql: str, *values: Any) -> list[Any]:
        cursor = connection.execute(sql.replace("?", "%s") if self.is_postgresql else sql, values)
        if not cursor.description:
            return []
        row = _row_type(tuple(column[0] for column in cursor.description))
        return [row._make(values) for values in cursor.fetchall()]

    def run_in(self, sql: str, keys: Sequence[int], *values: Any, then: str = "") -> list[Any]:
        """Execute a statement whose condition ends in IN, for any number of keys."""
        rows: list[Any] = []
        for start in range(0, len(keys), MAX_VALUES):
            part = keys[start : start + MAX_VALUES]
            rows += self.run(f"{sql} IN ({', '.join('?' * len(part))}) {then}", *values, *part)
        return rows

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> int:
        """Insert rows, but none whose key is there; return the number of new ones."""
        n_new, step = 0, MAX_VALUES // len(rows[0]) if rows else 1
        # One statement for many rows: each one would hand Python's lock over and back.
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            marks = ", ".join([f"({', '.join('?' * len(part[0]))})"] * len(part))
            sql = f"INSERT INTO {table} VALUES {marks} ON CONFLICT DO NOTHING"
            sql = sql.replace("?", "%s") if self.is_postgresql else sql
            n_new += self._connection.execute(sql, list(chain.from_iterable(part))).rowcount
        return n_new


def _import_psycopg() -> Any:
    return import_extra("States in PostgreSQL", "psycopg", "postgresql")


@cache
def _row_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
