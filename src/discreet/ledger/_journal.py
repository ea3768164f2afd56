"""Mark in a SQLite ledger's main file that says whether it is whole without its journal.

SQLite writes a commit to the journal (the file that ends in ``-wal``) and carries it into the main file
later. A copy of the main file alone made meanwhile has an earlier state of the record, consistent in itself:
charges are forgotten and nothing in it shows that. So the main file carries a generation in its header:

- even: *closed*. The main file has every charge; there need be no journal.
- odd: *open*. Charges may be in the journal, and the file is used together with it or not at all.

:func:`require_open` brings an odd generation into the main file before the first charge of a process is
committed; :func:`close_mark` writes an even one after everything was carried over, before the last connection
lets SQLite delete the journal. A process that is killed leaves an odd generation and the journal beside it,
which is how it opens again.
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
_LOOKS = 5
_PAUSE = 0.01  # seconds between two looks at a file that seems to lack its journal


def format_of(user_version: int) -> int:
    """Return the format that SQLite's ``user_version`` of a ledger names."""
    return user_version % _STEP


def is_open(user_version: int) -> bool:
    """Return whether charges may be in the journal."""
    return user_version // _STEP % 2 == 1


def _following(user_version: int) -> int:
    """Return the mark of the next generation."""
    return FORMAT + (user_version // _STEP + 1) % _GENERATIONS * _STEP


def journal_of(path: Path) -> Path:
    """Return where SQLite keeps the journal of a file."""
    return path.with_name(f"{path.name}-wal")


def lacks_journal(path: Path, read_mark: Callable[[], int]) -> bool:
    """Return whether a ledger's main file needs a journal that is not there.

    Parameters
    ----------
    path : Path
        Path of the main file.
    read_mark : callable
        Reads ``user_version`` from the main file alone. It must not make SQLite create a journal.

    Notes
    -----
    Between two looks another process may open or close the ledger. Closing writes the mark before it deletes
    the journal and opening creates the journal before it writes the mark, so one of several looks sees both
    as they belong together.
    """
    journal = journal_of(path)
    for look in range(_LOOKS):
        if look:
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
        Mark last seen in the main file by this process; None at first.
    timeout : float
        Seconds to wait for readers of an earlier state and for others who carry the journal over.

    Returns
    -------
    int or None
        None: it is, and the transaction goes on. Otherwise the transaction was ended to bring this mark into
        the main file; begin again with it as `known`.

    Raises
    ------
    TimeoutError
        The mark could not be brought into the main file until the timeout.
    """
    mark = _mark(connection)
    if mark == known and is_open(mark):
        return None
    if is_open(mark):
        # Another process wrote it, and may not have carried it over yet: this writer makes sure.
        connection.execute("ROLLBACK")
    else:
        mark = _write_mark(connection, _following(mark))
    # While another connection carries the journal over, SQLite says "busy" at once and does not wait.
    end = time.monotonic() + timeout
    while not _carried_over(connection, "FULL"):
        if time.monotonic() > end:
            raise TimeoutError("readers hold an earlier state")
        time.sleep(_PAUSE)
    return mark


def close_mark(connection: sqlite3.Connection) -> None:
    """Mark the main file as closed if everything is in it and no other connection uses the ledger.

    Does nothing where others read or write: the last to close does it.
    """
    connection.execute("PRAGMA busy_timeout = 0")
    if not is_open(_mark(connection)):
        return
    before = _last_row(connection)
    # Carried over first and marked then: a copy made in between has all charges and still says open.
    if not _carried_over(connection, "TRUNCATE"):
        return
    connection.execute("BEGIN IMMEDIATE")
    mark = _mark(connection)
    if _last_row(connection) == before and is_open(mark):
        _write_mark(connection, _following(mark))
        _carried_over(connection, "TRUNCATE")
    else:
        connection.execute("ROLLBACK")


def _mark(connection: sqlite3.Connection) -> int:
    ((mark,),) = connection.execute("PRAGMA user_version").fetchall()
    return int(mark)


def _last_row(connection: sqlite3.Connection) -> list[tuple[int]]:
    return connection.execute("SELECT seq FROM book").fetchall()


def _write_mark(connection: sqlite3.Connection, mark: int) -> int:
    """Commit a mark in the transaction that is open; carrying it over makes it durable."""
    connection.execute(f"PRAGMA user_version = {mark}")
    connection.execute("COMMIT")
    return mark


def _carried_over(connection: sqlite3.Connection, mode: str) -> bool:
    """Carry the journal into the main file; return whether all of it is there."""
    ((busy, frames, carried),) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    return not busy and frames == carried
