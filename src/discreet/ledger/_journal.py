"""Mark in a SQLite ledger's main file that says whether the file is complete without its journal.

SQLite writes a commit to the journal (the file that ends in ``-wal``) and copies it into the main file later,
at a checkpoint. A copy of the main file alone, made in between, holds an earlier state of the record: charges
are missing, and nothing in it shows that. So the header of the main file carries a generation:

- even: *closed*. The main file has every charge; no journal is needed.
- odd: *open*. Charges may be in the journal, and the file must not be used without it.

:func:`require_open` brings an odd generation into the main file before the first charge of a process is
committed; :func:`close_mark` writes an even one after a complete checkpoint, before the last connection lets
SQLite delete the journal. A killed process leaves an odd generation and the journal, from which the ledger
opens again.
"""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

from discreet.ledger.records import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_STEP = 256
_GENERATIONS = 2**22
_ATTEMPTS = 5
_CLOSING_ATTEMPTS = 20
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
    Between two reads another process may open or close the ledger. Closing writes the mark before it deletes
    the journal, and opening creates the journal before it writes the mark, so one of several attempts sees a
    consistent pair.
    """
    journal = journal_path(path)
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        if journal.exists() or not is_open(read_mark()) or journal.exists():
            return False
    return True


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


def close_mark(connection: sqlite3.Connection) -> bool:
    """Mark the main file as closed if it is complete and no other connection uses the ledger.

    Two processes that close at the same time keep each other from it, and SQLite deletes the journal all the
    same: so it is tried several times. Only a connection that goes on reading or writing ends the attempts,
    and that one marks the file when it is closed.

    Returns
    -------
    bool
        Whether the main file is marked as closed.
    """
    connection.execute("PRAGMA busy_timeout = 0")
    for attempt in range(_CLOSING_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        if not is_open(_mark(connection)):
            return True
        # First the checkpoint, then the mark: a copy made in between has all charges and still says open.
        before = last_row(connection)
        if _checkpoint(connection, "TRUNCATE") and _write_closed(connection, before):
            return True
    return False


def mark_left_open(connection: sqlite3.Connection, last: list[tuple[int, str]]) -> None:
    """Mark as closed a main file whose journal SQLite has just deleted although it is marked as open.

    Where :func:`close_mark` failed because of another process, and that process was killed before this one
    closed its connection, SQLite takes the closed one for the last, brings the whole journal into the main
    file and deletes it.

    Parameters
    ----------
    connection : sqlite3.Connection
        New connection to the same file.
    last : list of tuple
        Number and hash of the last row that the closed connection saw: the file must still have it.
    """
    known = connection.execute("SELECT 1 FROM record WHERE (seq, hash) = (?, ?)", last[0]).fetchall()
    if known and is_open(_mark(connection)):
        _write_closed(connection, last_row(connection))


def _write_closed(connection: sqlite3.Connection, before: list[tuple[int, str]]) -> bool:
    """Write the mark of a closed file unless the ledger has changed; return whether the main file has it."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:  # another process writes: the file is not complete
        return False
    mark = _mark(connection)
    # Another process may have charged after the checkpoint: then the file is not complete, and stays open.
    if last_row(connection) != before or not is_open(mark):
        connection.execute("ROLLBACK")
        return False
    _write_mark(connection, _next_mark(mark))
    return _checkpoint(connection, "TRUNCATE")


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
