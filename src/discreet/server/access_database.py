"""Databases of an access store, a SQLite file or a schema in PostgreSQL for several machines, and its clock.

``about``       one row: format, the latest time seen, in PostgreSQL also the number of the last change
``tokens``      bearer, data set, digest and times of every token
``grants``      role of a name on a data set
``sessions``    digest, token, CSRF token and end of every browser session that a token opened
``identities``  people who signed in through a provider: name in the ledger, issuer, subject, groups
``sign_ins``    digest, person, CSRF token and end of every browser session that a sign-in opened
``attempts``    digests of attempts to sign in that were used, until they have expired
``stops``       data sets that are stopped, by which caller and since when
``saved``       questions that people saved, by which caller and for which data set
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
import time
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from discreet import formatting
from discreet.errors import DiscreetWarning, SourceError
from discreet.ledger.postgres import (
    SchemaAddress,
    driver,
    first_line,
    is_postgres,
    with_placeholders,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import psycopg

FORMAT = 2
"""Version of the tables; a change of them needs a new number and a step in ``server.upgrade``. A table that
is only added needs neither: it is created where it is missing, and earlier versions leave it alone."""

_KIND = "discreet access, format "
_FAR_BEHIND = 3600.0  # seconds, more than clocks of machines differ by
_TIMEOUT = 10.0  # seconds to wait for another writer, and for a server
_SILENCE = 5000  # milliseconds after which PostgreSQL ends the transaction of a writer that vanished
_TABLES = """
CREATE TABLE IF NOT EXISTS about (format INTEGER NOT NULL, latest REAL NOT NULL{version});
CREATE TABLE IF NOT EXISTS tokens (
    id {number}, name TEXT NOT NULL, dataset TEXT NOT NULL, digest {bytes} NOT NULL UNIQUE,
    created REAL NOT NULL, expires REAL NOT NULL, revoked REAL);
CREATE TABLE IF NOT EXISTS grants (
    name TEXT NOT NULL, dataset TEXT NOT NULL, role TEXT NOT NULL, PRIMARY KEY (name, dataset));
CREATE TABLE IF NOT EXISTS sessions (
    digest {bytes} PRIMARY KEY, token INTEGER NOT NULL REFERENCES tokens (id), form TEXT NOT NULL,
    expires REAL NOT NULL{rowid});
CREATE TABLE IF NOT EXISTS stops (dataset TEXT PRIMARY KEY, who TEXT NOT NULL, since REAL NOT NULL);
CREATE TABLE IF NOT EXISTS identities (
    name TEXT PRIMARY KEY, issuer TEXT NOT NULL, subject TEXT NOT NULL, display TEXT NOT NULL,
    member_of TEXT NOT NULL, latest REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sign_ins (
    digest {bytes} PRIMARY KEY, name TEXT NOT NULL REFERENCES identities (name), form TEXT NOT NULL,
    expires REAL NOT NULL{rowid});
CREATE TABLE IF NOT EXISTS attempts (digest {bytes} PRIMARY KEY, expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS saved (
    id TEXT PRIMARY KEY, caller TEXT NOT NULL, dataset TEXT NOT NULL, title TEXT NOT NULL,
    text TEXT NOT NULL, price TEXT NOT NULL, created REAL NOT NULL, UNIQUE (caller, dataset, title));
"""
SQLITE_TABLES = _TABLES.format(version="", number="INTEGER PRIMARY KEY", bytes="BLOB", rowid="")
# SQLite numbers rows by itself, in the column rowid.
_POSTGRES_TABLES = _TABLES.format(
    version=", version BIGINT NOT NULL",
    number="INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    bytes="BYTEA",
    rowid=", rowid BIGINT GENERATED ALWAYS AS IDENTITY",
).replace("REAL", "DOUBLE PRECISION")


class Rows(Protocol):
    """Result of a statement."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement changed."""

    def fetchall(self) -> Sequence[tuple[Any, ...]]:
        """Return all rows of the result."""


class AccessDatabase(ABC):
    """Database of an access store. It may be used by any thread, but not after a fork.

    Attributes
    ----------
    shown : str
        Its address without secrets, for messages.
    tables : tuple of str
        Names of the tables; rows of later ones refer to rows of earlier ones.
    keep_numbers : str
        Words of an INSERT that gives the numbers of rows itself, as a copy does.
    after_numbers : tuple of str
        Statements after which the numbers of new rows follow those that were given.
    """

    shown: str
    tables = tuple(re.findall(r"EXISTS (\w+)", _TABLES))
    keep_numbers = ""
    after_numbers: tuple[str, ...] = ()

    @abstractmethod
    def rows(self, statement: str, *values: object) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a SELECT with ``?`` for values."""

    @abstractmethod
    def version(self) -> object:
        """Return a value that differs after any process, on any machine, has written."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Callable[[str, Sequence[object]], Rows]]:
        """Return a context with a function that runs statements, in one transaction without other writers."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def _unreadable(self) -> SourceError:
        return SourceError(
            f"access {self.shown!r} must be a file or database that can be read, and is not. Check whether "
            "it is still there."
        )

    def _unwritable(self) -> SourceError:
        return SourceError(
            f"access {self.shown!r} must be a file or database that can be written, and is not. Look for a "
            "full disk, or for another process that holds it."
        )


def _foreign(shown: str, what: str) -> SourceError:
    return SourceError(
        f"access {shown!r} must be a store of tokens, and is {what}. Nothing was changed; choose another "
        "place in the configuration."
    )


def check_format(key: str, shown: str, written: int, known: int) -> None:
    """Refuse a store in a format that this version does not write, before anything in it is changed.

    Parameters
    ----------
    key : str
        Key of the configuration that names the store.
    shown : str
        Its address without secrets.
    written, known : int
        Format that the store has, and the one that this version writes.

    Raises
    ------
    SourceError
        The formats differ; the message says what to do.
    """
    if written < known:
        raise SourceError(
            f"{key} {shown!r} must have format {known}, and has {written}, that of an earlier version. "
            "Nothing was changed; stop the service and run `discreet service upgrade`."
        )
    if written > known:
        raise SourceError(
            f"{key} {shown!r} must have format {known} or less, and has {written}, that of a later version. "
            "Nothing was changed; install the version of discreet that wrote it, or a later one."
        )


def read_format(address: str | os.PathLike[str]) -> int | None:
    """Return the format of an access store without changing it; None if there is none.

    Raises
    ------
    SourceError
        Something else is there, or it cannot be read.
    """
    text = os.fspath(address)
    return _read_postgres_format(text) if is_postgres(text) else _read_sqlite_format(Path(text))


def _read_sqlite_format(path: Path) -> int | None:
    """Return the format in a file; None if there is no file, or none that was finished."""
    try:
        if not path.exists() or path.stat().st_size == 0:
            return None
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            rows = file.execute("SELECT format FROM about").fetchall()
    except OSError as problem:
        raise SourceError(
            f"access {str(path)!r} must be a file that can be read, and is not ({problem.strerror}). Choose "
            "another place in the configuration."
        ) from None
    except sqlite3.Error:
        raise _foreign(str(path), "something else") from None
    # A process that was killed while it made the file left the table without its row.
    return int(rows[0][0]) if rows else None


def _read_postgres_format(url: str) -> int | None:
    address = SchemaAddress.parse(url, default="access", where="access")
    try:
        with address.connect(_TIMEOUT) as connection:
            mark = address.mark(connection)
    except driver().Error as problem:
        raise unreachable_error(address.shown, problem) from None
    return None if mark is None else _parse_mark(address.shown, mark)


def write_mark(number: int) -> str:
    """Return the mark of a schema whose tables have a format."""
    return f"{_KIND}{number}"


def _parse_mark(shown: str, mark: str) -> int:
    """Return the format in the mark of a schema, or refuse a schema that holds something else."""
    number = mark.removeprefix(_KIND)
    if not (mark.startswith(_KIND) and number.isdigit()):
        raise _foreign(shown, mark or "something else")
    return int(number)


def unreachable_error(shown: str, problem: Exception) -> SourceError:
    """Return the error for a database that does not answer, with the first line of the driver's message."""
    return SourceError(
        f"access {shown!r} must be a database that can be reached and written, and is not now "
        f"({first_line(problem)}). Look at the server, and at access of the configuration."
    )


def open_access_database(address: str | os.PathLike[str]) -> AccessDatabase:
    """Open the database of an access store, creating it if it does not exist.

    Parameters
    ----------
    address : str or path
        File, or ``postgresql://host/database#name``; without a name the schema is ``discreet_access``.
    """
    text = os.fspath(address)
    return _PostgresAccess(text) if is_postgres(text) else _SqliteAccess(Path(text))


class _SqliteAccess(AccessDatabase):
    """One file of mode 0600, with one connection for reading and one for writing."""

    def __init__(self, path: Path) -> None:
        self._path, self.shown = path, str(path)
        # Two locks, so that a lookup does not wait for a write to reach the disk.
        self._lock, self._write_lock = threading.Lock(), threading.Lock()
        self._writer = self._open_file()
        self._reader = self._connect()

    def rows(self, statement: str, *values: object) -> Sequence[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error:
            raise self._unreadable() from None

    def version(self) -> object:
        """Return SQLite's number of changes by others; this reads no disk."""
        return self.rows("PRAGMA data_version")[0][0]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[str, Sequence[object]], Rows]]:
        """Return a context that holds the write lock of the file."""
        with self._write_lock:
            cursor = self._writer.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    yield cursor.execute
                    cursor.execute("COMMIT")
                except BaseException:
                    # Also when interrupted: the connection must not stay inside a transaction.
                    cursor.execute("ROLLBACK")
                    raise
            except sqlite3.Error:
                raise self._unwritable() from None
            finally:
                cursor.close()

    def _open_file(self) -> sqlite3.Connection:
        """Create the file and its tables where they are missing, and return the writing connection."""
        written = _read_sqlite_format(self._path)
        if written is not None:
            check_format("access", self.shown, written, FORMAT)
        try:
            # With its mode before anything is in it; SQLite creates its helper files with the same mode.
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as problem:
            raise SourceError(
                f"access {self.shown!r} must be a file that can be written, and is not "
                f"({problem.strerror}). Choose another place in the configuration."
            ) from None
        connection = self._connect()
        try:
            connection.executescript(SQLITE_TABLES)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("SELECT count(*) FROM about").fetchone()[0] == 0:
                    connection.execute("INSERT INTO about VALUES (?, 0)", (FORMAT,))
        except sqlite3.DatabaseError:
            connection.close()
            raise self._unwritable() from None
        return connection

    def _connect(self) -> sqlite3.Connection:
        """Return a connection in WAL mode that waits for the disk at every commit."""
        connection = sqlite3.connect(
            self._path, timeout=_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(
                "PRAGMA fullfsync = ON"
            )  # macOS keeps a revoked token's row in the disk's cache
            connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.DatabaseError:
            pass  # reported by the first statement that reads a table
        return connection

    def close(self) -> None:
        with self._write_lock, self._lock:
            self._reader.close()
            self._writer.close()


class _PostgresAccess(AccessDatabase):
    """A schema of its own, with one connection for reading and one for writing, opened again if they end."""

    keep_numbers = "OVERRIDING SYSTEM VALUE "
    after_numbers = (
        "SELECT setval(pg_get_serial_sequence('tokens', 'id'), (SELECT coalesce(max(id), 1) FROM tokens))",
    )

    def __init__(self, url: str) -> None:
        self._address = SchemaAddress.parse(url, default="access", where="access")
        self.shown = self._address.shown
        self._psycopg = driver()
        self._lock, self._write_lock = threading.Lock(), threading.Lock()
        self._reader: psycopg.Connection[Any] | None = None
        self._writer: psycopg.Connection[Any] | None = None
        self._create()

    def _create(self) -> None:
        """Create schema and tables unless they are there, in one transaction."""
        try:
            with self._address.connect(_TIMEOUT) as connection:
                self._address.lock(connection)
                mark = self._address.mark(connection)
                if mark is None:
                    self._address.create(connection, write_mark(FORMAT), _POSTGRES_TABLES)
                    connection.execute("INSERT INTO about VALUES (%s, 0, 0)", (FORMAT,))
                else:
                    check_format("access", self.shown, _parse_mark(self.shown, mark), FORMAT)
                    found = "SELECT to_regclass(%s)"
                    if any(connection.execute(found, (name,)).fetchone() == (None,) for name in self.tables):
                        connection.execute(_POSTGRES_TABLES.encode())  # of a version with fewer tables
        except self._psycopg.Error as problem:
            raise unreachable_error(self.shown, problem) from None

    def rows(self, statement: str, *values: object) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a SELECT, over a new connection if the server ended the one before."""
        with self._lock:
            if self._reader is not None:
                try:
                    return self._reader.execute(with_placeholders(statement), values).fetchall()
                except self._psycopg.OperationalError:
                    # The server ended the connection while it was idle; a read may be repeated.
                    self._reader.close()
                    self._reader = None
                except self._psycopg.Error:
                    raise self._unreadable() from None
            try:
                self._reader = self._address.connect(_TIMEOUT, autocommit=True)
                return self._reader.execute(with_placeholders(statement), values).fetchall()
            except self._psycopg.Error as problem:
                raise unreachable_error(self.shown, problem) from None

    def version(self) -> object:
        return self.rows("SELECT version FROM about")[0][0]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[str, Sequence[object]], Rows]]:
        """Return a context that holds the lock of the row ``about``."""
        with self._write_lock:
            connection = self._begin()
            try:
                yield lambda statement, values: connection.execute(with_placeholders(statement), values)
                connection.commit()
            except BaseException as problem:
                # Also when interrupted: the connection must not stay inside a transaction.
                self._writer = None
                connection.close()
                if isinstance(problem, self._psycopg.Error):
                    raise self._unwritable() from None
                raise

    def _begin(self) -> psycopg.Connection[Any]:
        """Return a connection that holds the lock of the only writer, and has counted its change."""
        count = b"UPDATE about SET version = version + 1"
        if self._writer is not None:
            try:
                self._writer.execute(count)
            except self._psycopg.OperationalError:
                self._writer.close()  # ended while it was idle; nothing was written yet
            else:
                return self._writer
        try:
            self._writer = self._address.connect(_TIMEOUT)
            self._writer.execute(f"SET idle_in_transaction_session_timeout = {_SILENCE}".encode())
            self._writer.execute(count)
        except self._psycopg.Error as problem:
            raise unreachable_error(self.shown, problem) from None
        return self._writer

    def close(self) -> None:
        with self._write_lock, self._lock:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()


class SteadyClock:
    """Seconds since 1970 that pass as the monotonic clock does, and jump ahead alone, with the wall clock.

    Parameters
    ----------
    clock : callable
        Wall clock that returns seconds since 1970; it may jump either way.
    latest : float
        Latest time seen before, by this process or another.
    where : str
        What has stored that time, for a warning.

    Privacy
    -------
    A wall clock that is set back makes nothing valid again that had expired, and one that ran ahead makes
    nothing last longer that begins after it was put right.
    """

    def __init__(self, clock: Callable[[], float], latest: float, *, where: str) -> None:
        """Start from the latest time seen, with a warning if the wall clock is far behind it."""
        self._clock = clock
        self._lock = threading.Lock()
        self._lead = latest - time.monotonic()  # over the monotonic clock; it never becomes smaller
        behind = latest - clock()
        if behind > _FAR_BEHIND:
            warnings.warn(
                f"The clock of this machine is {formatting.duration(behind)} behind the latest time in "
                f"{where}: it is behind now, or it was ahead before. Tokens that had expired by then stay "
                "expired, so create new ones. Set the clock if it is wrong.",
                DiscreetWarning,
                stacklevel=3,
            )

    def now(self) -> float:
        """Return the time, never less than at an earlier call."""
        self.advance(self._clock())
        return self._lead + time.monotonic()

    def advance(self, latest: float) -> None:
        """Take a time that was seen elsewhere as the present one, if it is later."""
        with self._lock:
            self._lead = max(self._lead, latest - time.monotonic())
