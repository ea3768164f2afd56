"""Jobs of a service, kept in a SQLite file that all its processes share.

A job is a request that is answered while nobody waits for the response. The file says how far each one is,
and keeps the answers of those that ended; what was charged is in the ledger alone.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from discreet.errors import KeyReused, SourceError
from discreet.noise import Stream
from discreet.server.access_database import check_format
from discreet.server.errors import TOO_MANY_JOBS, ApiException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

State: TypeAlias = Literal["waiting", "running", "canceling", "done", "refused", "canceled", "interrupted"]

OPEN: tuple[State, ...] = ("waiting", "running", "canceling")
"""States of a job that has not ended."""

_MOST_OPEN = 8  # jobs of one caller that wait or run
_KEPT = 20  # jobs of one caller on one data set that are kept, with their answers
FORMAT = 1
"""Version of the tables; a change of them needs a new number and a step in ``server.upgrade``."""

_TABLES = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, dataset TEXT NOT NULL, caller TEXT NOT NULL,
    kind TEXT NOT NULL, question TEXT NOT NULL, request_key TEXT, request_digest BLOB,
    process INTEGER NOT NULL, state TEXT NOT NULL, done INTEGER NOT NULL, planned INTEGER,
    created REAL NOT NULL, ended REAL, error TEXT, answer BLOB);
CREATE INDEX of_caller ON jobs (caller, dataset);
"""
_COLUMNS = "id, dataset, kind, question, state, done, planned, created, ended, error"
_UNENDED = "state IN ('waiting', 'running', 'canceling')"


@dataclass(frozen=True, slots=True)
class StoredJob:
    """What is known about a job.

    Attributes
    ----------
    id : str
        Random name of the job, by which its caller finds it.
    dataset : str
        Name of the data set that it asks.
    kind, question : str
        Kind of the request, and its text.
    state : str
        ``waiting``, ``running`` or ``canceling``; once it has ended ``done``, ``refused``, ``canceled`` or
        ``interrupted``.
    done : int
        Number of aggregates that were answered.
    planned : int or None
        Number of aggregates that the plan has; None before it is made.
    created, ended : float or None
        Times in seconds since 1970; None for a job that has not ended.
    error : str or None
        Error as JSON, of a job that ended without an answer.
    """

    id: str
    dataset: str
    kind: str
    question: str
    state: State
    done: int
    planned: int | None
    created: float
    ended: float | None
    error: str | None


class JobStore:
    """All jobs of a service, those that run and those that ended.

    Parameters
    ----------
    path : path
        SQLite file; created with mode 0600 if it does not exist.
    clock : callable
        Returns seconds since 1970 that never go back, as those of :meth:`AccessStore.now`.

    Privacy
    -------
    A job is found by its id together with its caller and its data set: a wrong id and the id of somebody
    else's job give the same result. How far a job is follows from its public plan and from answers that were
    paid for. Answers in the file were paid for, and were in the ledger and in the audit log before.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """Open the file, and create it if it does not exist."""
        self.path = Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        written = read_format(self.path)
        if written is not None:
            check_format("jobs", str(self.path), written, FORMAT)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            # No job is lost that matters: after a power failure its answers are still in the ledger.
            self._connection.executescript(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=10000;"
            )
        except (OSError, sqlite3.Error):
            raise self._unusable() from None
        if written is None:
            self._create()

    def _create(self) -> None:
        """Create the tables, unless another process just did."""
        with self._transaction() as cursor:
            if not cursor.execute("PRAGMA user_version").fetchone()[0]:
                for statement in filter(str.strip, _TABLES.split(";")):
                    cursor.execute(statement)
                cursor.execute(f"PRAGMA user_version = {FORMAT}")

    def create(
        self, dataset: str, caller: str, kind: str, question: str, *, key: str | None, digest: bytes
    ) -> tuple[str, bool]:
        """Record a new job and return its id and True; with a key sent before, the old id and False.

        Parameters
        ----------
        dataset, caller : str
            Names of the data set and of the caller, who alone will find the job.
        kind, question : str
            Kind of the request, and its text.
        key : str or None
            Idempotency key of the request.
        digest : bytes
            Hash of the request, by which a key that is sent with another one is noticed.

        Raises
        ------
        ApiException
            The caller has too many jobs that wait or run.
        KeyReused
            The key was sent with another request.
        """
        with self._transaction() as cursor:
            if key is not None:
                found = cursor.execute(
                    "SELECT id, request_digest FROM jobs "
                    "WHERE caller = ? AND dataset = ? AND request_key = ?",
                    (caller, dataset, key),
                ).fetchone()
                if found is not None:
                    if found[1] != digest:
                        raise KeyReused
                    return found[0], False
            self._end_lost(cursor, caller)
            opened = f"SELECT count(*) FROM jobs WHERE caller = ? AND {_UNENDED}"  # noqa: S608 - no input
            if cursor.execute(opened, (caller,)).fetchone()[0] >= _MOST_OPEN:
                raise ApiException(TOO_MANY_JOBS)
            name = f"{Stream().integer(128):032x}"
            cursor.execute(
                "INSERT INTO jobs (id, dataset, caller, kind, question, request_key, request_digest, "
                "process, state, done, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'waiting', 0, ?)",
                (name, dataset, caller, kind, question, key, digest, os.getpid(), self._clock()),
            )
            cursor.execute(
                f"DELETE FROM jobs WHERE caller = ?1 AND dataset = ?2 AND NOT {_UNENDED} "  # noqa: S608
                "AND number NOT IN (SELECT number FROM jobs WHERE caller = ?1 AND dataset = ?2 "
                "ORDER BY number DESC LIMIT ?3)",
                (caller, dataset, _KEPT),
            )
        return name, True

    def find(self, dataset: str, caller: str, job: str) -> StoredJob | None:
        """Return a job of a caller; None for any id that is not one."""
        found = self._select(dataset, caller, "AND id = ?", job)
        return found[0] if found else None

    def jobs_of(self, dataset: str, caller: str) -> list[StoredJob]:
        """Return the jobs of a caller on a data set, newest first."""
        return self._select(dataset, caller, "ORDER BY number DESC")

    def answer(self, job: str) -> bytes | None:
        """Return the answer of a job as JSON; None if there is none."""
        with self._transaction() as cursor:
            found = cursor.execute("SELECT answer FROM jobs WHERE id = ?", (job,)).fetchone()
        return None if found is None else found[0]

    def _select(self, dataset: str, caller: str, more: str, *values: object) -> list[StoredJob]:
        with self._transaction() as cursor:
            self._end_lost(cursor, caller)
            rows = cursor.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE dataset = ? AND caller = ? {more}",  # noqa: S608 - no input
                (dataset, caller, *values),
            ).fetchall()
        return [StoredJob(*row) for row in rows]

    # Of the process that runs a job.

    def advance(self, job: str, done: int, planned: int | None) -> bool:
        """Record how far a job is; return False if it shall end instead.

        Parameters
        ----------
        job : str
            Id of the job.
        done : int
            Number of aggregates that were answered.
        planned : int or None
            Number of aggregates of the plan; None before it is made.
        """
        with self._transaction() as cursor:
            cursor.execute(
                "UPDATE jobs SET state = 'running', done = ?, planned = ? "
                "WHERE id = ? AND state IN ('waiting', 'running')",
                (done, planned, job),
            )
            return cursor.rowcount == 1

    def end(self, job: str, state: State, *, error: str | None = None, answer: bytes | None = None) -> None:
        """Record how a job ended, with its error or its answer as JSON."""
        with self._transaction() as cursor:
            cursor.execute(
                f"UPDATE jobs SET state = ?, error = ?, answer = ?, ended = ?, done = CASE ? WHEN 'done' "  # noqa: S608
                f"THEN max(done, ifnull(planned, 0)) ELSE done END WHERE id = ? AND {_UNENDED}",
                (state, error, answer, self._clock(), state, job),
            )

    def cancel(self, dataset: str, caller: str, job: str) -> None:
        """Have a job of a caller end before its next aggregate; no effect on one that has ended."""
        with self._transaction() as cursor:
            cursor.execute(
                "UPDATE jobs SET state = 'canceling' WHERE dataset = ? AND caller = ? AND id = ? "
                "AND state IN ('waiting', 'running')",
                (dataset, caller, job),
            )

    def end_all(self) -> None:
        """End what an earlier run of the service left open; called while no process of it runs jobs."""
        with self._transaction() as cursor:
            self._interrupt(cursor, "1 = 1")

    def _end_lost(self, cursor: sqlite3.Cursor, caller: str) -> None:
        """End the jobs of a caller whose process is gone."""
        rows = cursor.execute(
            f"SELECT DISTINCT process FROM jobs WHERE caller = ? AND {_UNENDED}",  # noqa: S608 - no input
            (caller,),
        ).fetchall()
        for (process,) in rows:
            if not _is_alive(process):
                self._interrupt(cursor, "process = ?", process)

    def _interrupt(self, cursor: sqlite3.Cursor, which: str, *values: object) -> None:
        cursor.execute(
            f"UPDATE jobs SET state = 'interrupted', ended = ? WHERE {_UNENDED} AND {which}",  # noqa: S608
            (self._clock(), *values),
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        """Yield a cursor inside a transaction, which is undone by an exception."""
        with self._lock:
            cursor = self._connection.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                cursor.execute("COMMIT")
            except sqlite3.Error:
                self._undo(cursor)
                raise self._unusable() from None
            except BaseException:
                # A refusal, or an interrupt: nothing of it stays.
                self._undo(cursor)
                raise

    @staticmethod
    def _undo(cursor: sqlite3.Cursor) -> None:
        with contextlib.suppress(sqlite3.Error):
            cursor.execute("ROLLBACK")

    def _unusable(self) -> SourceError:
        return SourceError(
            f"jobs {str(self.path)!r} must be a file that can be read and written, and is not. Check "
            "whether the disk is full."
        )

    def close(self) -> None:
        """Record that this process runs no job any more, and close the file."""
        with contextlib.suppress(SourceError), self._transaction() as cursor:
            self._interrupt(cursor, "process = ?", os.getpid())
        self._connection.close()


def read_format(path: Path) -> int | None:
    """Return the format of a file of jobs without changing it; None if there is none.

    The first version of the tables had no number: it is format 0.

    Raises
    ------
    SourceError
        Something else is there.
    """
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            ((written,),) = file.execute("PRAGMA user_version").fetchall()
            names = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error:
        names, written = {""}, 0
    if not names and not written:
        return None  # a process that was killed before it made the tables
    if "jobs" not in names:
        raise SourceError(
            f"jobs {str(path)!r} must be a file of jobs, and is something else. Nothing was changed; move "
            "the file away."
        )
    return int(written)


def _is_alive(process: int) -> bool:
    """Return whether a process of this machine still runs."""
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
