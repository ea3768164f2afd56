"""Connections to a ledger in a SQLite file: its mark, how they are closed, and what a fork does to them.

SQLite writes a commit to the journal (the file that ends in ``-wal``) and copies it into the main file later,
at a checkpoint. A copy of the main file alone, made in between, holds an earlier state of the record: charges
are missing, and nothing in it shows that. So the header of the main file carries a generation:

- even: *closed*. The main file has every charge; no journal is needed.
- odd: *open*. Charges may be in the journal, and the file must not be used without it.

:func:`require_open` brings an odd generation into the main file before the first charge of a process is
committed; :func:`complete_file` writes an even one after a complete checkpoint, and deletes the journal, when
the last connection of all processes is closed. A killed process leaves an odd generation and the journal,
from which the ledger opens again.

SQLite counts the locks of a process by file, and a fork copies these counts but not the locks. A child that
inherited a connection would believe in locks that the operating system does not know of; the parent, closing
the ledger, would delete the journal that the child writes to, and its charges would be lost. So this process
holds no connection while it forks. Where a thread does not end its transaction in time, the child refuses the
file.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from discreet.ledger._store import ConnectionPool, keep_inherited
from discreet.ledger.records import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

FileNumber = tuple[int, int]
"""Device and inode of a file."""

_FORK_PATIENCE = 2.0
"""Seconds that a fork waits for transactions of other threads."""


_STEP = 256
_GENERATIONS = 2**22
_CLOSING_ATTEMPTS = 5
_PAUSE = 0.01  # seconds between two attempts


def format_number(user_version: int) -> int:
    """Return the format of a ledger from SQLite's ``user_version``."""
    return user_version % _STEP


def is_open(user_version: int) -> bool:
    """Return whether charges may be in the journal."""
    return user_version // _STEP % 2 == 1


def _next_mark(user_version: int) -> int:
    """Return the mark of the next generation."""
    return FORMAT + (user_version // _STEP + 1) % _GENERATIONS * _STEP


def journal_path(path: Path) -> Path:
    """Return the path of SQLite's journal of a file."""
    return path.with_name(f"{path.name}-wal")


def lacks_journal(path: Path, read_mark: Callable[[], int]) -> bool:
    """Return whether a ledger's main file needs a journal that is missing.

    Parameters
    ----------
    path : Path
        Path of the main file.
    read_mark : callable
        Function that reads ``user_version`` from the main file without making SQLite create a journal.

    Notes
    -----
    Other processes may open and close the ledger meanwhile. Each of them writes the next generation, so a
    generation that is read twice was there all the time between, when the journal was looked for: and a file
    that is marked as open always has one.
    """
    seen = None
    while is_open(mark := read_mark()) and not journal_path(path).exists():
        if mark == seen:
            return True
        seen = mark
    return False


def require_open(connection: sqlite3.Connection, known: int | None, timeout: float) -> int | None:
    """Ensure, inside ``BEGIN IMMEDIATE``, that the main file is marked as open.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection that holds the write lock.
    known : int or None
        Mark that this process last saw in the main file; None at first.
    timeout : float
        Seconds to wait for readers of an earlier state and for checkpoints of other connections.

    Returns
    -------
    int or None
        None if it is marked and the transaction goes on. Otherwise the transaction was ended to bring the
        returned mark into the main file; begin again with it as `known`.

    Raises
    ------
    TimeoutError
        The mark could not be brought into the main file within the timeout.
    """
    mark = _mark(connection)
    if mark == known and is_open(mark):
        return None
    if is_open(mark):
        # Another process wrote it, possibly only to the journal: this writer makes sure.
        connection.execute("ROLLBACK")
    else:
        mark = _write_mark(connection, _next_mark(mark))
    # During a checkpoint of another connection SQLite reports "busy" at once and does not wait.
    end = time.monotonic() + timeout
    while not _checkpoint(connection, "FULL"):
        if time.monotonic() > end:
            raise TimeoutError("readers hold an earlier state")
        time.sleep(_PAUSE)
    return mark


def complete_file(connect: Callable[[], sqlite3.Connection], path: Path, last: list[tuple[int, str]]) -> bool:
    """Complete the main file and delete the journal if no other connection uses the ledger.

    Another process that uses it does the same when it closes it. Where that one is killed, the journal stays,
    and the ledger opens with it.

    Parameters
    ----------
    connect : callable
        Function that returns a new connection to the file which locks out all others, or raises
        sqlite3.OperationalError where there are others.
    path : Path
        Path of the main file.
    last : list of tuple
        Number and hash of the last row that was seen: a file without it was replaced, and is not marked.

    Returns
    -------
    bool
        Whether the main file is complete.

    Notes
    -----
    The others are locked out until the connection is closed, which includes the deletion of the journal. So
    no process sees a file that is marked as open and has no journal.
    """
    for attempt in range(_CLOSING_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        try:
            connection = connect()
        except sqlite3.OperationalError:  # another connection uses the ledger, or closes it now
            continue
        try:
            with contextlib.closing(connection):
                complete = write_closed_mark(connection, last)
                # The index of the journal is in this connection's memory, and SQLite deletes only one in use.
                path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
                return complete
        except BaseException:
            # Also when interrupted, or on a full disk: SQLite has brought all into the main file and deleted
            # the journal, and the file is marked as open.
            journal_path(path).touch(0o600)
            raise
    return False


def write_closed_mark(connection: sqlite3.Connection, last: list[tuple[int, str]]) -> bool:
    """Bring the journal into the main file, and mark that as closed unless it lacks a row that was seen.

    Nobody else may write through another connection meanwhile.
    """
    known = connection.execute("SELECT 1 FROM record WHERE (seq, hash) = (?, ?)", last[0]).fetchall()
    # First the checkpoint: a copy made in between has all charges, and a full disk has room for the mark.
    if known and is_open(mark := _mark(connection)) and _checkpoint(connection, "TRUNCATE"):
        connection.execute("BEGIN IMMEDIATE")
        _write_mark(connection, _next_mark(mark))
        _checkpoint(connection, "TRUNCATE")
    return not is_open(_mark(connection))


def _mark(connection: sqlite3.Connection) -> int:
    ((mark,),) = connection.execute("PRAGMA user_version").fetchall()
    return int(mark)


def last_row(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    """Return number and hash of the last row of the record."""
    return connection.execute("SELECT seq, hash FROM book").fetchall()


def _write_mark(connection: sqlite3.Connection, mark: int) -> int:
    """Commit a mark in the open transaction; the next checkpoint makes it durable."""
    connection.execute(f"PRAGMA user_version = {mark}")
    connection.execute("COMMIT")
    return mark


def _checkpoint(connection: sqlite3.Connection, mode: str) -> bool:
    """Copy the journal into the main file; return whether all of it is there."""
    ((busy, frames, copied),) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    return not busy and frames == copied


def file_number(path: Path) -> FileNumber:
    """Return device and inode of the file at a path."""
    status = path.stat()
    return status.st_dev, status.st_ino


def writable(path: Path, timeout: float, *, locking_mode: str = "NORMAL") -> sqlite3.Connection:
    """Return a connection that writes durably to a file, and never creates one that was just removed."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        # Before everything that reads the file: only its first access decides how the journal is shared.
        connection.execute(f"PRAGMA locking_mode = {locking_mode}")
        connection.execute("PRAGMA synchronous = FULL")
        # On macOS a plain fsync leaves the charge in the disk's cache; elsewhere this changes nothing.
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
    except BaseException:
        # Also when interrupted: nobody else has a reference to close it by.
        connection.close()
        raise
    return connection


@dataclass(frozen=True, slots=True)
class OpenFile:
    """Connection, with device and inode of the file that it was opened on, its path, and its process."""

    connection: sqlite3.Connection
    file: FileNumber
    path: Path
    process: int

    @classmethod
    def open(cls, path: Path, timeout: float) -> OpenFile:
        """Connect to a file; raise OSError where this process inherited locks on it that it does not hold."""
        file = file_number(path)
        _CONNECTIONS.add(file)
        try:
            connection = writable(path, timeout)
        except BaseException:
            _CONNECTIONS.remove(file)
            raise
        return cls(connection, file, path, os.getpid())

    def close(self) -> None:
        """Close the connection; if it is the last one of all processes, the file needs no journal then."""
        if self.process != os.getpid():
            keep_inherited(self)
            return
        last: list[tuple[int, str]] = []
        with _CONNECTIONS.defer_forks(self.file):
            with _keep_journal(self.path) as is_kept:
                # A failure leaves mark and journal as they are, and the ledger opens with them.
                with contextlib.suppress(sqlite3.Error):
                    if self.connection.in_transaction:
                        self.connection.execute("ROLLBACK")
                    last = last_row(self.connection)
                    # Nobody charges a file that was moved while it was open; and where no other file can be
                    # opened, marking it first is the best that can be done.
                    if not (is_kept and self.is_in_place()):
                        write_closed_mark(self.connection, last)
                # Closing undoes what was not committed, also where a rollback itself would fail.
                self.connection.close()
            if _CONNECTIONS.remove(self.file) and last and self.is_in_place():
                with contextlib.suppress(OSError, sqlite3.Error):
                    connect = partial(writable, self.path, timeout=0, locking_mode="EXCLUSIVE")
                    complete_file(connect, self.path, last)

    def is_in_place(self) -> bool:
        """Return whether the file is still at its path."""
        try:
            return file_number(self.path) == self.file
        except OSError:
            return False


@contextlib.contextmanager
def _keep_journal(path: Path) -> Iterator[bool]:
    """Return a context in which closing a connection leaves SQLite's journal where it is, if it can be had.

    SQLite deletes the journal with the last connection, whether the main file is marked as closed or not. A
    connection that can only read is never the one that deletes it.
    """
    with contextlib.ExitStack() as stack:
        is_kept = False
        with contextlib.suppress(sqlite3.Error):
            reader = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
            stack.enter_context(contextlib.closing(reader))
            last_row(reader)
            is_kept = True
        yield is_kept


class FilePool(ConnectionPool[OpenFile]):
    """Idle connections to a ledger's file, closed before each fork."""

    def __init__(self, write_batch: Callable[..., Sequence[Any]]) -> None:
        super().__init__(write_batch)
        _CONNECTIONS.register(self)

    def keep(self, connection: OpenFile) -> None:
        """Keep a connection for its next use, or close it if there are enough or a fork waits for it."""
        if _CONNECTIONS.forks or connection.process != os.getpid():
            connection.close()
        else:
            super().keep(connection)


class _Connections:
    """Number of connections of this process to each file, none of them while it forks.

    No lock is held over a fork: other modules take locks of their own before it, and a thread that has one of
    those may close a ledger, because the garbage collector found it. A child that inherits a connection all
    the same refuses its file.
    """

    def __init__(self) -> None:
        self.forks = 0  # of other threads, that have begun and not ended
        self._pools: weakref.WeakSet[FilePool] = weakref.WeakSet()
        # Reentrant: the garbage collector may close a ledger while this thread holds the lock.
        self._changed = threading.Condition(threading.RLock())
        self._numbers: Counter[FileNumber] = Counter()
        self._deferring: Counter[FileNumber] = Counter()
        self._inherited: set[FileNumber] = set()

    def register(self, pool: FilePool) -> None:
        """Close the idle connections of a pool before each fork from now on."""
        with self._changed:
            self._pools.add(pool)

    def add(self, file: FileNumber) -> None:
        """Count a connection that will be made, once no fork is under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self.forks, 2 * _FORK_PATIENCE)
            self._check_own(file)
            self._numbers[file] += 1

    def remove(self, file: FileNumber) -> bool:
        """Count a connection that was closed; return whether it was the last one to its file."""
        with self._changed:
            _subtract(self._numbers, file)
            return file not in self._numbers

    @contextlib.contextmanager
    def defer_forks(self, file: FileNumber) -> Iterator[None]:
        """Return a context in which connections to a file are made and closed; forks wait for its end."""
        with self._changed:
            self._check_own(file)
            self._deferring[file] += 1
        try:
            yield
        finally:
            with self._changed:
                _subtract(self._deferring, file)

    def _check_own(self, file: FileNumber) -> None:
        """Raise OSError where this process inherited connections to a file."""
        if file in self._inherited:
            raise OSError(
                "another thread used it while this process was forked: start processes by 'spawn', or fork "
                "while nothing is charged"
            )

    def before_fork(self) -> None:
        """Close idle connections, and wait for the others."""
        with self._changed:
            self.forks += 1
        end = time.monotonic() + _FORK_PATIENCE
        while True:
            with self._changed:
                pools = list(self._pools)
            for pool in pools:
                pool.close()
            with self._changed:
                if not (self._numbers or self._deferring):
                    return
            if time.monotonic() > end:
                return
            time.sleep(0.002)

    def after_fork_in_child(self) -> None:
        """Refuse files to which this process inherited connections."""
        self.forks, self._changed = 0, threading.Condition(threading.RLock())
        self._inherited |= {*self._numbers, *self._deferring}
        self._numbers.clear()
        self._deferring.clear()

    def after_fork(self) -> None:
        """Let the threads that wait go on."""
        with self._changed:
            self.forks -= 1
            self._changed.notify_all()


def _subtract(numbers: Counter[FileNumber], file: FileNumber) -> None:
    """Subtract 1 from a file's number, and forget the file at 0."""
    numbers[file] -= 1
    if numbers[file] <= 0:  # below 0 in a child that closes what it did not count
        del numbers[file]


def defer_forks(path: Path) -> contextlib.AbstractContextManager[None]:
    """Return a context in which SQLite reads or makes a file; forks wait for its end."""
    return _CONNECTIONS.defer_forks(file_number(path))


_CONNECTIONS = _Connections()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_CONNECTIONS.before_fork,
        after_in_parent=_CONNECTIONS.after_fork,
        after_in_child=_CONNECTIONS.after_fork_in_child,
    )
