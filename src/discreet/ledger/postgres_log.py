"""The audit log of a service in PostgreSQL: one chain, to which several machines add lines.

``about``   one row: number and hash of the last line, and bytes since the last rotation; its lock lets
            writers take turns
``parts``   number of the first line of each part: rotation begins a new one, as it begins a new file
``lines``   number and text of every line, the same text as in a file
"""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerUnavailable, SourceError
from discreet.ledger.audit_log import ROTATED, START, LinePosition, chain_lines
from discreet.ledger.postgres import SchemaAddress, driver, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import psycopg

_MARK = "discreet audit log, format 1"
_TIMEOUT = 10.0  # seconds to wait for the server and for another writer
_SILENCE = 30_000  # milliseconds after which the server ends the transaction of a writer that vanished
_BATCH = 1000  # lines that are read at once
_TABLES = """
CREATE TABLE about (seq BIGINT NOT NULL, hash TEXT NOT NULL, bytes BIGINT NOT NULL);
CREATE TABLE parts (first BIGINT PRIMARY KEY);
CREATE TABLE lines (seq BIGINT PRIMARY KEY, line TEXT NOT NULL);
"""


class PostgresLog:
    """Hash-chained log of events in a schema of its own, created with its first line.

    Parameters
    ----------
    url : str
        ``postgresql://host/database#name``; without a name the schema is ``discreet_audit_log``.

    Privacy
    -------
    Internal, as an audit log in a file is. Whoever may write to the database can replace the whole chain, so
    each ledger keeps the hash of a late line; keep ledgers in another database, or note heads elsewhere.
    """

    def __init__(self, url: str) -> None:
        self._address = SchemaAddress.parse(url, default="audit_log", where="audit_log")
        self.name = self._address.shown
        self._psycopg = driver()
        self._lock = threading.Lock()
        self._writer: psycopg.Connection[Any] | None = None
        self._position = LinePosition(0, START)
        self.size = 0

    def __str__(self) -> str:
        return self.name

    # Writing.

    def write_all(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Append several events, all or none, and wait until they are on the disk of the server.

        A line in a file is lost only together with the process that wrote it. A server that fails and starts
        again would lose lines while their writers go on, and a writer could not tell that from a log that
        somebody cut.
        """
        with self._append() as (connection, position, size):
            lines, self._position = chain_lines(position, events)
            if not position.seq:
                connection.execute("INSERT INTO parts VALUES (1)")
            self.size = self._insert(connection, position, lines, self._position, size)

    def rotate(self, summarize: Callable[[Iterable[bytes]], Mapping[str, Any]]) -> str | None:
        """Begin a new part that goes on with the chain; return which lines the old one has, None for none.

        Parameters
        ----------
        summarize : callable
            Function that is given the lines of the old part, while no other process writes, and returns the
            facts of the new part's first line.
        """
        with self._append() as (connection, position, _):
            if not position.seq:
                return None
            ((first,),) = connection.execute("SELECT max(first) FROM parts").fetchall()
            facts = summarize(text for _, text in _read(connection, first, None))
            lines, self._position = chain_lines(position, [(ROTATED, facts)])
            connection.execute("INSERT INTO parts VALUES (%s)", (self._position.seq,))
            self.size = self._insert(connection, position, lines, self._position, 0)
        return f"lines {first} to {position.seq} of {self.name}"

    def _insert(
        self,
        connection: psycopg.Connection[Any],
        before: LinePosition,
        lines: Sequence[bytes],
        last: LinePosition,
        size: int,
    ) -> int:
        """Insert lines after a position, and return the size of the part."""
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO lines VALUES (%s, %s)",
                [(number, line.decode()) for number, line in enumerate(lines, before.seq + 1)],
            )
        size += sum(map(len, lines))
        connection.execute("UPDATE about SET seq = %s, hash = %s, bytes = %s", (*last, size))
        return size

    @contextmanager
    def _append(self) -> Iterator[tuple[psycopg.Connection[Any], LinePosition, int]]:
        """Return a context with the connection of the only writer, the last line and the size of its part."""
        with self._lock:
            try:
                connection, (seq, digest, size) = self._begin()
                if seq < self._position.seq:
                    raise SourceError(
                        f"The audit log {self.name!r} must have line {self._position.seq}, which this "
                        "process wrote or read, and ends before it: it was cut or replaced. Put it back."
                    )
                yield connection, LinePosition(seq, digest), size
                connection.commit()
            except BaseException as problem:
                # Also when interrupted: the connection must not stay inside a transaction.
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
                if isinstance(problem, self._psycopg.Error):
                    raise self._unreachable(problem) from None
                raise

    def _begin(self) -> tuple[psycopg.Connection[Any], tuple[int, str, int]]:
        """Return a connection that holds the lock of the only writer, with the last line and the size."""
        locked = "SELECT seq, hash, bytes FROM about FOR UPDATE"
        if self._writer is not None:
            try:
                return self._writer, self._writer.execute(locked).fetchall()[0]
            except self._psycopg.OperationalError:
                self._writer.close()  # ended while it was idle; nothing was written yet
        self._writer = connection = self._address.connect(_TIMEOUT)
        self._address.lock(connection)
        mark = self._address.mark(connection)
        if mark is None:
            self._address.create(connection, _MARK, _TABLES)
            connection.execute("INSERT INTO about VALUES (0, %s, 0)", (START,))
        self._check_mark(mark)
        connection.commit()
        connection.execute(f"SET idle_in_transaction_session_timeout = {_SILENCE}".encode())
        return connection, connection.execute(locked).fetchall()[0]

    def sync(self) -> None:
        """Do nothing: every commit waits for the disk of the server."""

    def check_writable(self) -> None:
        """Check that a line could be added now."""
        with self._append():
            pass

    def repair(self) -> None:
        """Do nothing: a transaction leaves no half of a line."""

    def load(self, files: Iterable[bytes]) -> None:
        """Fill an empty log with the files of a backup, oldest first, all or none.

        Parameters
        ----------
        files : iterable of bytes
            Contents of the files, whose chain was verified.
        """
        with self._append() as (connection, position, _):
            if position.seq:
                raise SourceError(f"The audit log {self.name!r} must be empty to be restored, and is not.")
            for content in files:
                lines = content.splitlines(keepends=True)
                first, last = json.loads(lines[0])["seq"], json.loads(lines[-1])
                before = LinePosition(first - 1, "")
                connection.execute("INSERT INTO parts VALUES (%s)", (first,))
                self._insert(connection, before, lines, LinePosition(last["seq"], last["hash"]), 0)

    # Reading.

    def exists(self) -> bool:
        """Return whether the log has a line."""
        with ExitStack() as opened:
            return bool(self.open_parts(opened))

    def open_parts(self, opened: ExitStack) -> list[PostgresPart]:
        """Open the parts of the log at one moment, oldest first; those without their first line are left out.

        Parameters
        ----------
        opened : ExitStack
            Stack that closes the connection.
        """
        try:
            connection = opened.enter_context(self._address.connect(_TIMEOUT))
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            mark = self._address.mark(connection)
            if mark is None:
                return []
            self._check_mark(mark)
            rows = connection.execute(
                "SELECT first, line FROM parts LEFT JOIN lines ON seq = first ORDER BY first"
            ).fetchall()
        except self._psycopg.Error as problem:
            raise self._unreachable(problem) from None
        ends = [first for first, _ in rows[1:]] + [None] * len(rows[:1])
        return [
            PostgresPart(self, connection, first, end, line.encode())
            for (first, line), end in zip(rows, ends, strict=True)
            if line is not None
        ]

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        """Return a context with the present lines of the log; no line is added until its first release."""
        with ExitStack() as opened, ExitStack() as held:
            held.enter_context(self._append())
            yield PostgresSnapshot(self.open_parts(opened), held.close)

    def _check_mark(self, mark: str | None) -> None:
        if mark not in (None, _MARK):
            raise SourceError(
                f"audit_log {self.name!r} must be an audit log, and is {mark or 'something else'}. Choose "
                "another name after # in the configuration."
            )

    def _unreachable(self, problem: Exception) -> LedgerUnavailable:
        return LedgerUnavailable(
            f"audit_log {self.name!r} must be a database that can be reached and written, and is not now "
            f"({first_line(problem)}). Check the server, and audit_log of the configuration."
        )

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None


class PostgresPart:
    """The lines of a log between two rotations, as of one moment.

    Parameters
    ----------
    log : PostgresLog
        Log that it is a part of.
    connection : psycopg.Connection
        Connection with the transaction of that moment.
    first : int
        Number of its first line.
    end : int or None
        Number of the first line of the next part; None for the last part.
    head_text : bytes
        Text of its first line.
    """

    def __init__(
        self, log: PostgresLog, connection: Any, first: int, end: int | None, head_text: bytes
    ) -> None:
        self._log = log
        self._connection = connection
        self._first = first
        self._end = end
        self.head_text = head_text
        self.name = log.name

    def lines(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield the place of each line in the part, and the line."""
        try:
            for seq, text in _read(self._connection, self._first + start, self._end):
                yield seq - self._first, text
        except self._log._psycopg.Error as problem:
            raise self._log._unreachable(problem) from None

    def last_lines(self, most: int) -> tuple[list[bytes], int]:
        """Return the last lines of together at most `most` bytes, newest first, and their bytes."""
        found, size = [], 0
        for _, text in _read(self._connection, self._first, self._end, newest_first=True):
            size += len(text)
            if size > most:
                break
            found.append(text[:-1])
        return found, size


class PostgresSnapshot:
    """Lines of a log at one moment.

    Parameters
    ----------
    parts : sequence of PostgresPart
        Parts of the log, oldest first.
    release : callable
        Function that lets other processes add lines again.
    """

    def __init__(self, parts: Sequence[PostgresPart], release: Callable[[], None]) -> None:
        self._parts = parts
        self.release = release

    def copy(self, path: Path) -> None:
        """Write the lines of that moment to a log in files, with the older parts as rotated files."""
        for part in self._parts:
            suffix = "" if part is self._parts[-1] else f".{part._first}"
            with path.with_name(path.name + suffix).open("xb") as target:
                for _, text in part.lines(0):
                    target.write(text)


def _read(
    connection: psycopg.Connection[Any], first: int, end: int | None, *, newest_first: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield number and text of lines, a batch at a time."""
    order = "DESC" if newest_first else "ASC"
    with connection.cursor(name="lines") as cursor:
        cursor.itersize = _BATCH
        cursor.execute(
            f"SELECT seq, line FROM lines WHERE seq >= %s AND seq < coalesce(%s, 9223372036854775807) "  # noqa: S608
            f"ORDER BY seq {order}".encode(),
            (first, end),
        )
        for seq, line in cursor:
            yield seq, line.encode()
