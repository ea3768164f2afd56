"""A ledger in one SQLite file, or in memory for tests and notebooks."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from discreet.errors import DiscreetError, LedgerError, LedgerTampered, LedgerUnavailable, NotALedger
from discreet.file_system import BINARY, sync_to_disk
from discreet.ledger._connections import (
    FilePool,
    OpenFile,
    defer_forks,
    format_number,
    journal_path,
    lacks_journal,
    require_open,
)
from discreet.ledger._store import PooledStore, Store
from discreet.ledger.records import FORMAT, draw_key
from discreet.ledger.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

APPLICATION = 0x64736372
"""SQLite's application id of a ledger, the letters "dscr"."""

_TABLES = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
CREATE TABLE book (
    one INTEGER PRIMARY KEY CHECK (one = 1), identity TEXT NOT NULL,
    seq INTEGER NOT NULL, hash TEXT NOT NULL
) STRICT;
CREATE TABLE record (
    seq INTEGER PRIMARY KEY, time TEXT NOT NULL, body TEXT NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL
) STRICT;
CREATE TABLE totals (scope TEXT PRIMARY KEY, caps TEXT, spent TEXT NOT NULL) STRICT;
CREATE TABLE questions (
    question TEXT NOT NULL, owner TEXT NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (question, owner)
) STRICT;
CREATE TABLE answers (key TEXT PRIMARY KEY, answer BLOB NOT NULL) STRICT;
CREATE TABLE marks (key TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT;
CREATE TRIGGER record_is_never_changed BEFORE UPDATE ON record
BEGIN SELECT RAISE(ABORT, 'the record is append-only'); END;
CREATE TRIGGER record_is_never_deleted BEFORE DELETE ON record
BEGIN SELECT RAISE(ABORT, 'the record is append-only'); END;
"""

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}


class _SqliteTransaction(Transaction):
    # Text that Python cannot decode also means that the file is damaged.
    failures = (sqlite3.Error, UnicodeDecodeError)

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection

    def select(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        return [self._connection.execute(sql, values).fetchall() for sql, values in queries]

    def write_rows(self, statements: Sequence[tuple[str, Sequence[Sequence[Any]]]]) -> None:
        for sql, rows in statements:
            self._connection.executemany(sql, rows)

    def in_condition(self, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        return f"IN ({', '.join('?' * len(values))})", values

    def stream(self, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        return iter(self._connection.execute(sql, values))


class SqliteFile(PooledStore[OpenFile]):
    """Ledger in one file: WAL with full synchronization, one writer at a time, mode 0600.

    Parameters
    ----------
    path : str
        File that holds the ledger; not on a network disk, where locks cannot be trusted.
    timeout : float
        Seconds to wait for other writers.
    """

    pool_type = FilePool

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__(timeout)
        self._path = Path(path).expanduser().absolute()
        self.url = self.shown = str(self._path)
        self._mark: int | None = None  # last mark that this process has seen in the main file
        weakref.finalize(self, self._pool.close)

    def exists(self) -> bool:
        """Return whether there is a ledger, from the file's header alone, without a lock or a write."""
        try:
            if not self._path.exists():
                return False
            if not self._path.is_file():
                raise self._not_a_ledger("no file")
        except OSError as error:
            raise self._unavailable(error) from error
        application, mark = self._header()
        if application != APPLICATION:
            raise self._not_a_ledger("a database of another program")
        if format_number(mark) != FORMAT:
            raise self._not_a_ledger(
                f"a ledger of format {format_number(mark)}, whose limits this version, which writes format "
                f"{FORMAT}, does not keep: read it with the version of discreet that wrote it"
            )
        return True

    def _header(self) -> tuple[int, int]:
        """Read ``application_id`` and ``user_version`` from the main file.

        Read by SQLite although the bytes are simple: closing a file handle of our own would drop the POSIX
        locks that this process holds on the file through other connections.
        """
        try:
            with (
                defer_forks(self._path),
                contextlib.closing(
                    sqlite3.connect(f"{self._path.as_uri()}?mode=ro&immutable=1", uri=True)
                ) as connection,
            ):
                # While the journal is written into the file, or where a kill stopped that, the header may
                # name pages that are only in the journal. With this, SQLite reads the header all the same.
                connection.execute("PRAGMA writable_schema = ON")
                ((application,),) = connection.execute("PRAGMA application_id").fetchall()
                ((mark,),) = connection.execute("PRAGMA user_version").fetchall()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                raise self._not_a_ledger("another kind of file") from error
            raise self._unavailable(error) from error
        except OSError as error:
            raise self._unavailable(error) from error
        return int(application), int(mark)

    def create(self, fill: Callable[[Transaction], None], key: bytes | None = None) -> bool:
        """Create the file under another name and link it into place, so that it is complete or absent."""
        log = journal_path(self._path)
        if log.exists() and not self._path.exists():
            raise self._not_a_ledger(f"missing, while its journal {log.name} was left behind")
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}.{time.monotonic_ns()}.new")
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            try:
                with (
                    defer_forks(draft),  # the ledger will be the same file
                    contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection,
                ):
                    connection.execute("PRAGMA synchronous = FULL")
                    connection.execute("PRAGMA fullfsync = ON")
                    connection.execute("PRAGMA journal_mode = WAL")
                    _fill(connection, fill)
                with draft.open("rb") as file:
                    os.fsync(file.fileno())
                if key is not None and self.secret(key) != key:
                    raise LedgerError(
                        f"the key beside {self.shown} must be this ledger's, and is another's. Put it out "
                        "of the way if it belongs to no ledger that is still used."
                    )
                try:
                    os.link(draft, self._path)
                except FileExistsError:
                    return False
            finally:
                for name in (draft.name, f"{draft.name}-wal", f"{draft.name}-shm"):
                    draft.with_name(name).unlink(missing_ok=True)
            sync_to_disk(self._path.parent)
        except (OSError, sqlite3.Error) as error:
            raise self._unavailable(error) from error
        return True

    def _write_transaction(self) -> contextlib.AbstractContextManager[Transaction]:
        return self._transaction(self._begin_writing)

    def _begin_writing(self, connection: sqlite3.Connection) -> None:
        """Take the write lock, with a mark in the main file that says that it needs its journal."""
        connection.execute("BEGIN IMMEDIATE")
        if self._mark is None:
            # Where another process has marked the file, nobody need wait for those who read an earlier state.
            self._mark = self._header()[1]
        while (mark := require_open(connection, self._mark, self._timeout)) is not None:
            self._mark = mark
            connection.execute("BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """Return a context that reads one consistent state."""
        try:
            with self._pool.reserve_reader(self._timeout), self._transaction(_begin_reading) as transaction:
                yield transaction
        except TimeoutError as error:
            raise self._unavailable(error) from error

    @contextlib.contextmanager
    def _transaction(self, begin: Callable[[sqlite3.Connection], object]) -> Iterator[Transaction]:
        """Return a context that commits at its end, or undoes all on an exception."""
        open_file = None
        try:
            open_file = self._pool.take() or self._connect()
            begin(open_file.connection)
            self._check_same_file(open_file)
            transaction = _SqliteTransaction(open_file.connection)
            yield transaction
            transaction.flush()
            open_file.connection.execute("COMMIT")
        except BaseException as error:
            # Also when interrupted: no connection goes back to the pool inside a transaction.
            self._undo(open_file, error)
            if isinstance(error, (sqlite3.Error, UnicodeDecodeError)):
                raise self._translate_error(error) from error
            raise
        self._pool.keep(open_file)

    def _undo(self, open_file: OpenFile | None, error: BaseException) -> None:
        if open_file is None:
            return
        if isinstance(error, DiscreetError) and not isinstance(error, LedgerError):
            with contextlib.suppress(sqlite3.Error):
                open_file.connection.execute("ROLLBACK")
                self._pool.keep(open_file)
                return
        open_file.close()

    def _connect(self) -> OpenFile:
        """Return a new connection to the file, unless it lacks the journal that it needs."""
        if not self.exists():
            raise self._unavailable(FileNotFoundError("the file is gone"))
        if lacks_journal(self._path, lambda: self._header()[1]):
            raise LedgerTampered(
                f"the ledger {self.shown} must come with its journal {journal_path(self._path).name}, which "
                "may hold its last charges, and is alone: it was copied or moved while it was in use. Bring "
                "the journal too, or put a backup in its place with `discreet ledger restore`. To copy a "
                "ledger that is in use, run `discreet ledger backup`."
            )
        try:
            return OpenFile.open(self._path, self._timeout)
        except OSError as error:
            raise self._unavailable(error) from error

    def _check_same_file(self, open_file: OpenFile) -> None:
        """Refuse a connection whose file was moved or replaced, since its charges would be lost."""
        if not open_file.is_in_place():
            raise self._unavailable(FileNotFoundError("the file was moved or replaced"))

    @property
    def _key_file(self) -> Path:
        return self._path.with_name(f"{self._path.name}.version-key")

    def known_secret(self) -> bytes | None:
        """Return the key in the file beside the ledger, or None if there is none."""
        try:
            return self._key_file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise self._key_error(problem) from None

    def secret(self, first: bytes | None = None) -> bytes:
        """Return the key, kept in a file of its own so that the ledger may be shown without it."""
        path = self._key_file
        try:
            if not path.exists():
                # Written under another name first, since two processes may create it at the same time.
                draft = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}")
                handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o600)
                try:
                    os.write(handle, first or draw_key())
                    os.fsync(handle)
                    with contextlib.suppress(FileExistsError):
                        path.hardlink_to(draft)
                finally:
                    os.close(handle)
                    draft.unlink()
            return path.read_bytes()
        except OSError as problem:
            raise self._key_error(problem) from None

    def _key_error(self, problem: OSError) -> LedgerUnavailable:
        return LedgerUnavailable(
            f"The file {str(self._key_file)!r} must be readable, and writable at first use, and is not "
            f"({problem.strerror}). Check who may write beside the ledger."
        )

    def close(self) -> None:
        """Close the idle connections; the next use opens new ones."""
        self._pool.close()

    def _not_a_ledger(self, what: str) -> NotALedger:
        return NotALedger(
            f"path of Ledger.open must be a ledger or a file that does not exist yet, and "
            f"{self.shown} is {what}. Nothing was changed; give another path."
        )

    def _translate_error(self, error: sqlite3.Error | UnicodeDecodeError) -> LedgerError:
        """Return the LedgerError for one of SQLite: damage, changed tables, or an unusable file."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _DAMAGED:  # also where Python, not SQLite, could not read the text
            return LedgerTampered(
                f"the file of the ledger must be readable, and {self.shown} is damaged ({error}). "
                "Restore it from a backup that checks."
            )
        if code in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR):
            return LedgerTampered(
                f"the tables of the ledger must be as they were made, and those of {self.shown} are "
                f"not ({error}). Restore it from a backup that checks."
            )
        return self._unavailable(error)

    def _unavailable(self, error: Exception) -> LedgerUnavailable:
        return LedgerUnavailable(
            f"the ledger {self.shown} must be readable and writable, and is not now ({error}). "
            "Nothing is released; mend the disk, folder or lock and try again."
        )


class Memory(Store):
    """Ledger that lives as long as its process, for tests and notebooks."""

    url = shown = ":memory:"
    lasting = False

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._key: bytes | None = None
        self._connection: sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Return whether the tables were created."""
        return self._connection is not None

    def create(self, fill: Callable[[Transaction], None], key: bytes | None = None) -> bool:
        """Create the tables and fill them."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, connection.close)
        _fill(connection, fill)
        # Drawn at creation, since nothing else may draw between a charge and its noise.
        self._connection, self._key = connection, key or draw_key()
        return True

    def write_all(self, operations: Sequence[Callable[[Transaction], T]]) -> list[T | Exception]:
        """Execute operations in one transaction; one thread at a time."""
        with self.read() as transaction:
            return transaction.execute_all(operations)

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """Return a context that holds the ledger exclusively and undoes all on an exception."""
        if self._pid != os.getpid():
            raise LedgerUnavailable(
                "a ledger in memory must be used in the process that opened it, and this is another: "
                "its charges would be lost. Open the ledger with a path."
            )
        with self._lock:
            if self._connection is None:
                raise LedgerError("the ledger must be open, and was closed. Open a new one.")
            self._connection.execute("BEGIN")
            try:
                transaction = _SqliteTransaction(self._connection)
                yield transaction
                transaction.flush()
            except BaseException:
                # Also when interrupted: the only connection must not stay inside a transaction.
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def known_secret(self) -> bytes | None:
        """Return the key, or None before the ledger was created."""
        return self._key

    def secret(self, first: bytes | None = None) -> bytes:
        """Return the key, which ends with the ledger."""
        assert self._key is not None
        return self._key

    def close(self) -> None:
        """Close the database, and forget every charge in it."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _begin_reading(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")


def _fill(connection: sqlite3.Connection, fill: Callable[[Transaction], None]) -> None:
    connection.executescript(_TABLES)
    connection.execute("BEGIN IMMEDIATE")
    transaction = _SqliteTransaction(connection)
    fill(transaction)
    transaction.flush()
    connection.execute("COMMIT")
