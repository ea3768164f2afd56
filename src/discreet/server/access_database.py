"""Databases of an access store: a SQLite file for one machine, a PostgreSQL schema for several.

``about``       one row: format, the latest time seen, in PostgreSQL also the number of the last change
``tokens``      bearer, data set, digest and times of every token
``grants``      role of a name on a data set
``sessions``    digest, token, CSRF token and end of every browser session
``stops``       data sets that are stopped, by which caller and since when
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from discreet.errors import SourceError
from discreet.ledger.postgres_schema import (
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

_FORMAT = 2
_MARK = f"discreet access, format {_FORMAT}"
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
"""
_SQLITE_TABLES = _TABLES.format(version="", number="INTEGER PRIMARY KEY", bytes="BLOB", rowid="")
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
    """

    shown: str

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
            f"access {self.shown!r} must be a file or database that can be read, and is not. Look whether it "
            "is still there."
        )

    def _unwritable(self) -> SourceError:
        return SourceError(
            f"access {self.shown!r} must be a file or database that can be written, and is not. Look for a "
            "full disk, or for another process that holds it."
        )

    def _foreign(self, what: str) -> SourceError:
        return SourceError(
            f"access {self.shown!r} must be a store of tokens, and is {what}. Choose another place in the "
            "configuration."
        )

    def _check_format(self, written: object) -> None:
        if written != _FORMAT:
            raise SourceError(
                f"access {self.shown!r} must have format {_FORMAT}, and has {written}: it was written by "
                "another version. Use that one."
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
            connection.executescript(_SQLITE_TABLES)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("SELECT count(*) FROM about").fetchone()[0] == 0:
                    connection.execute("INSERT INTO about VALUES (?, 0)", (_FORMAT,))
            self._check_format(connection.execute("SELECT format FROM about").fetchone()[0])
        except sqlite3.DatabaseError:
            connection.close()
            raise self._foreign("something else") from None
        except SourceError:
            connection.close()
            raise
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
                    self._address.create(connection, _MARK, _POSTGRES_TABLES)
                    connection.execute("INSERT INTO about VALUES (%s, 0, 0)", (_FORMAT,))
                elif mark != _MARK:
                    raise self._foreign(mark or "something else")
        except self._psycopg.Error as problem:
            raise self._unreachable(problem) from None

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
                raise self._unreachable(problem) from None

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
            raise self._unreachable(problem) from None
        return self._writer

    def _unreachable(self, problem: Exception) -> SourceError:
        return SourceError(
            f"access {self.shown!r} must be a database that can be reached and written, and is not now "
            f"({first_line(problem)}). Look at the server, and at access of the configuration."
        )

    def close(self) -> None:
        with self._write_lock, self._lock:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
