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

import time
from typing import TYPE_CHECKING

from discreet.ledger.records import FORMAT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

_STEP = 256
_GENERATIONS = 2**22
_ATTEMPTS = 5
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


def close_mark(connection: sqlite3.Connection) -> None:
    """Mark the main file as closed if it is complete and no other connection uses the ledger.

    While other connections read or write, nothing is done: the last one to close marks the file.
    """
    connection.execute("PRAGMA busy_timeout = 0")
    if not is_open(_mark(connection)):
        return
    before = _last_row(connection)
    # First the checkpoint, then the mark: a copy made in between has all charges and still says open.
    if not _checkpoint(connection, "TRUNCATE"):
        return
    connection.execute("BEGIN IMMEDIATE")
    mark = _mark(connection)
    # Another process may have charged after the checkpoint: then the file is not complete, and stays open.
    if _last_row(connection) == before and is_open(mark):
        _write_mark(connection, _next_mark(mark))
        _checkpoint(connection, "TRUNCATE")
    else:
        connection.execute("ROLLBACK")


def _mark(connection: sqlite3.Connection) -> int:
    ((mark,),) = connection.execute("PRAGMA user_version").fetchall()
    return int(mark)


def _last_row(connection: sqlite3.Connection) -> list[tuple[int]]:
    return connection.execute("SELECT seq FROM book").fetchall()


def _write_mark(connection: sqlite3.Connection, mark: int) -> int:
    """Commit a mark in the open transaction; the next checkpoint makes it durable."""
    connection.execute(f"PRAGMA user_version = {mark}")
    connection.execute("COMMIT")
    return mark


def _checkpoint(connection: sqlite3.Connection, mode: str) -> bool:
    """Copy the journal into the main file; return whether all of it is there."""
    ((busy, frames, copied),) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    return not busy and frames == copied
