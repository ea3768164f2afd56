"""PostgreSQL as the engine: the curated table in a server, exact sums there, batches by binary COPY."""

from __future__ import annotations

import contextlib
import functools
import select
import tempfile
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from discreet.errors import (
    DataError,
    EngineFailed,
    EngineUnavailable,
    ParameterError,
    SchemaError,
    SourceError,
    TableChanged,
)
from discreet.noise import Stream
from discreet.query.curation import TABLE, Curation, Version
from discreet.query.engines._curated_rows import Tally, curated_batches, no_room
from discreet.query.engines._kept_copy import SharedCopy
from discreet.query.engines.base import ROWS, Engine
from discreet.query.language._sql import SqlText
from discreet.tables import open_table
from discreet.tables.postgres import Address, read_copy
from discreet.tables.sources import withhold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import TypeVar

    import psycopg
    from sqlglot.expressions import Expr as Tree

    from discreet._types import AnyArray
    from discreet.tables import Table

    T = TypeVar("T")

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_BLOCK = 2**20  # bytes that are read at once of a shared copy
_TYPES = {"SMALLINT": "smallint", "INTEGER": "integer", "BIGINT": "bigint", "DOUBLE": "double precision"}
_HASHES = {
    "SMALLINT": "hashint2extended",
    "INTEGER": "hashint4extended",
    "BIGINT": "hashint8extended",
    "DOUBLE": "hashfloat8extended",
}
_NESTED = 64  # calls inside each other, which must not be too deep for a parser
_FORMATS = {"SMALLINT": ">i2", "INTEGER": ">i4", "BIGINT": ">i8", "DOUBLE": ">f8"}
_WAITS = (0.0, 1.0, 2.0, 4.0)  # seconds before each try to connect again
_DTYPES = {">i8": np.int64, ">f8": np.float64}  # of arrays; int32 for all others


class PostgresEngine(Engine):
    """A curated table in a PostgreSQL server.

    Parameters
    ----------
    url : str
        ``postgresql://host/database``; a ``?table=`` says where rows come from and does not matter here.
    into : str, optional
        A schema in which the curated table is made, for a server whose temporary space is small. By default
        it is a temporary table, which no other session can see.
    timeout : float
        Seconds after which the server gives a question up.
    shared : Path, optional
        File of the encrypted copy of the curated rows that processes of one service share: the first one that
        registers the table makes it, and the others load it in place of the source. None shares nothing.
    secret : bytes
        Secret of the ledger, from which the key of that copy follows.

    Privacy
    -------
    See :class:`~discreet.query.engines.base.Engine`. A temporary table belongs to this session alone. One in
    a schema can be changed by others, so every pass compares the sum of its rows' hashes with that at the
    time it was filled, under a seed that only this process knows. Give the curator's login no more rights
    than to read the source and to make this table.

    A connection that is lost is replaced: a temporary table is filled again from the source, one in a schema
    is compared with its hashes. If the rows are others, nothing is answered any more. While there is no
    connection, questions are refused before they are charged. With a shared copy, a temporary table is filled
    again from that.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    sql: ClassVar[SqlText] = SqlText({"DOUBLE": "DOUBLE PRECISION"})
    fences: ClassVar[bool] = True
    row_seconds: ClassVar[float] = 6e-8

    def __init__(
        self,
        url: str,
        *,
        into: str | None = None,
        timeout: float = 600.0,
        shared: Path | None = None,
        secret: bytes = b"",
    ) -> None:
        """Connect to the server."""
        super().__init__()
        self._shared, self._secret = shared, secret
        if not timeout > 0:
            raise ParameterError(f"timeout of PostgresEngine must be above 0 seconds, was {timeout!r}.")
        named = url if "table=" in url else f"{url}{'&' if '?' in url else '?'}table={TABLE}"
        self._address = Address(named)
        self._timeout = timeout
        self._server = self._connect()
        import psycopg

        self._failures = (psycopg.Error, OSError)
        self._into = into
        self.exposed = into is not None
        self._seed = Stream().integer(64) >> 1  # unknown to whoever would change the table without a trace
        # Held during a pass, since a connection serves one thread at a time.
        self._lock = threading.Lock()
        # How the table is filled again on another connection; None before it was filled, and once closed.
        self._refill: Callable[[], Version] | None = None
        self._restoring = self._changed = False

    def _connect(self) -> psycopg.Connection[Any]:
        """Return a connection with the settings that make sums fast and repeatable."""
        server = self._address.connect()
        server.autocommit = True
        for setting in (
            # Compiling a thousand sums takes longer than adding them up.
            "jit = off",
            "search_path = ''",
            "synchronize_seqscans = off",
            f"statement_timeout = {max(1, round(self._timeout * 1000))}",
        ):
            server.execute(f"SET {setting}")
        return server

    def register(self, source: Any, curation: Curation, *, salt: str = "") -> Version:
        """Build the curated table from a source; errors of this curator's step may name a row.

        Parameters
        ----------
        source, curation, salt
            As for :meth:`Engine.register <discreet.query.engines.base.Engine.register>`. The source is read
            again when a lost connection has taken a temporary table with it.
        """
        version = super().register(source, curation, salt=salt)
        self._refill = partial(self._build, source, curation, salt)
        return version

    def ensure_ready(self) -> None:
        """Return if the engine can be asked; a connection that was lost is replaced first.

        Raises
        ------
        EngineUnavailable
            A connection was lost, and is not restored yet.
        TableChanged
            It was restored to other rows than those that were registered.
        """
        if not self._lock.acquire(blocking=False):
            # Another thread has the connection: for a question, or because it restores it.
            if self._restoring:
                raise EngineUnavailable
            return
        try:
            restored = self._is_connected() or self._restore()
        finally:
            self._lock.release()
        if not restored:
            raise EngineUnavailable

    def run(self, act: Callable[[], T]) -> T:
        """Return what `act` returns, repeated if the connection was lost and could be replaced."""
        with self._lock:
            # A server that restarts may end the first connections that it grants.
            for _ in _WAITS:
                try:
                    return super().run(act)
                except EngineFailed:
                    if self._is_connected() or not self._restore():
                        raise
        raise EngineFailed

    def _is_connected(self) -> bool:
        """Return whether the server has kept the connection, as far as this machine has heard. No waiting."""
        if self._refill is None:
            return True
        with contextlib.suppress(*self._failures):
            heard = select.poll()
            heard.register(self._server.fileno(), select.POLLIN)
            while heard.poll(0):  # a farewell, then the end; or a notice
                self._server.pgconn.consume_input()
        return not self._server.closed

    def _restore(self) -> bool:
        """Connect again and make the table whole; return whether that worked within some seconds.

        Raises
        ------
        TableChanged
            The rows are not those that were registered.
        """
        if self._refill is None:
            return False
        self._restoring = True
        try:
            return any(self._rebuild(wait) for wait in _WAITS)
        finally:
            self._restoring = False

    def _rebuild(self, wait: float) -> bool:
        """Wait, connect, and compare the table with what was registered; return False without a server."""
        if self._changed:
            raise TableChanged
        time.sleep(wait)
        self._server.close()
        with contextlib.suppress(*self._failures, SourceError):
            self._server = self._connect()
            self._changed = not self._is_unchanged()
            if not self._changed:
                return True
        if self._changed:
            self._server.close()
            raise TableChanged
        return False

    def _is_unchanged(self) -> bool:
        """Return whether the table, filled again if it was temporary, has the rows that were registered."""
        from psycopg.errors import UndefinedTable

        assert self._refill is not None
        try:
            if not self.exposed:
                return self._refill() == self.version
            self._server.execute("SET default_transaction_read_only = on")
            ((_, found),) = self._fetch(self._selection(self._witness()))
        except (DataError, SchemaError, UndefinedTable):
            # Its text may name a row to the curator, and this is in the midst of an analyst's question.
            return False
        return bool(found == self._filled)

    def _build(self, source: Any, curation: Curation, salt: str) -> Version:
        """Create the curated table, fill it by binary COPY, and make the session read-only."""
        from psycopg import sql

        tally = Tally(curation)
        kinds = {name: curation.kind(name) for name in curation.identifiers()}
        columns = ", ".join(f"{name} {_TYPES[kind]} NOT NULL" for name, kind in kinds.items())
        where = sql.Identifier(self._into or "pg_temp", TABLE)
        try:
            with self._open_rows(source, curation, salt, tally) as rows, self._server.transaction():
                self._server.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(where))
                self._server.execute(sql.SQL("CREATE TABLE {} (" + columns + ")").format(where))
                into = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(where)
                with self._server.cursor() as cursor, cursor.copy(into) as copy:
                    copy.write(_HEADER)
                    for packed in rows:
                        copy.write(packed)
                    copy.write(_TRAILER)
                if self.exposed:
                    self._keep_witness()
            self._server.execute(sql.SQL("ANALYZE {}").format(where))
            self._server.execute("SET default_transaction_read_only = on")
        except self._failures as problem:
            withhold(problem)
            raise SourceError(
                f"The curated table cannot be built beside {self._address.label}: the server answered "
                f"{type(problem).__name__}. Ask for the right to make temporary tables, or name a schema "
                "with into=."
            ) from None
        return tally.version

    @contextlib.contextmanager
    def _open_rows(
        self, source: Any, curation: Curation, salt: str, tally: Tally
    ) -> Iterator[Iterator[bytes]]:
        """Yield the curated rows as COPY takes them, from the source, or from the copy that is shared."""
        with contextlib.ExitStack() as opened:
            if self._shared is None:
                table = opened.enter_context(open_table(source, schema=curation.schema))
                yield _packed_batches(table, curation, salt, tally)
                return
            try:
                file = opened.enter_context(tempfile.TemporaryFile())
                shared = SharedCopy(self._shared, self._secret, source, curation, salt)
                with shared.lock():
                    version = shared.read(file)
                    if version is None:
                        with open_table(source, schema=curation.schema) as table:
                            file.writelines(_packed_batches(table, curation, salt, tally))
                        version = tally.version
                        shared.write(file, version)
                tally.version = version
                file.seek(0)
            except OSError as problem:
                withhold(problem)
                raise no_room(type(problem).__name__) from None
            yield iter(partial(file.read, _BLOCK), b"")

    def _table(self) -> Tree:
        schema = exp.to_identifier(self._into or "pg_temp", quoted=True)
        return exp.Table(this=exp.to_identifier(TABLE), db=schema)

    def _row_hash(self) -> Tree:
        """Return one hash of all cells of a row, each hashed with the hash of those before it as its seed.

        This takes half the time of the server's hash of a record.
        """
        assert self.curation is not None
        names = self.curation.identifiers()
        blocks: list[Tree] = []
        for start in range(0, len(names), _NESTED):
            cells: Tree = exp.Literal.number(self._seed ^ start)
            for name in names[start : start + _NESTED]:
                cell = exp.column(name)
                cells = exp.Anonymous(this=_HASHES[self.curation.kind(name)], expressions=[cell, cells])
            blocks.append(cells)
        # Not hashed once more: the server's hash of a number of 64 bits first folds it to 32.
        return functools.reduce(lambda *two: exp.Anonymous(this="int8xor", expressions=[*two]), blocks)

    def _fetch(self, query: Tree) -> list[tuple[Any, ...]]:
        return self._server.execute(self.sql.write(query).encode()).fetchall()

    def batches(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[list[AnyArray]]:
        """Yield curated columns, at most ``rows`` rows at a time: int32, or float64 of unrounded numbers."""
        assert self.curation is not None
        selected = exp.select(*map(exp.column, columns)).from_(self._table())
        command = f"COPY ({self.sql.write(selected)}) TO STDOUT (FORMAT binary)"
        record = _record([_FORMATS[self.curation.kind(name)] for name in columns])
        held = bytearray()
        start = len(_HEADER)
        with contextlib.closing(read_copy(self._server, command.encode())) as messages:
            for message in messages:
                held += message
                if len(held) >= start + rows * record.itemsize:
                    yield _unpack_rows(record, held, start, rows)
                    del held[: start + rows * record.itemsize]
                    start = 0
        length = (len(held) - start - len(_TRAILER)) // record.itemsize
        if length:
            yield _unpack_rows(record, held, start, length)

    def close(self) -> None:
        """Drop the curated table and log out."""
        self._refill = None
        with contextlib.suppress(*self._failures):
            if self._into is not None and self.version is not None:
                self._server.execute("SET default_transaction_read_only = off")
                self._server.execute(f"DROP TABLE IF EXISTS {self.sql.write(self._table())}".encode())
        self._server.close()


def _record(formats: Sequence[str]) -> np.dtype[Any]:
    """Return the layout of a row of fixed-width numbers in PostgreSQL's binary COPY."""
    fields: list[tuple[str, str]] = [("n", ">i2")]
    for i, form in enumerate(formats):
        fields += [(f"l{i}", ">i4"), (f"v{i}", form)]
    return np.dtype(fields)


def _packed_batches(table: Table, curation: Curation, salt: str, tally: Tally) -> Iterator[bytes]:
    """Yield the rows of a table, curated and counted, a batch at a time as rows of binary COPY."""
    names = curation.identifiers()
    record = _record([_FORMATS[curation.kind(name)] for name in names])
    for arrays in curated_batches(table, curation, tally, salt):
        yield _pack_rows(record, [arrays[name] for name in names])


def _pack_rows(record: np.dtype[Any], columns: Sequence[AnyArray]) -> bytes:
    """Return columns of numbers as rows of PostgreSQL's binary COPY."""
    rows = np.empty(len(columns[0]), record)
    rows["n"] = len(columns)
    for i, values in enumerate(columns):
        rows[f"l{i}"] = record[f"v{i}"].itemsize
        rows[f"v{i}"] = values
    return rows.tobytes()


def _unpack_rows(record: np.dtype[Any], held: bytearray, start: int, rows: int) -> list[AnyArray]:
    """Return the columns of rows of PostgreSQL's binary COPY."""
    block = np.frombuffer(bytes(held[start : start + rows * record.itemsize]), record)
    columns = [block[f"v{i}"] for i in range(len(record.names or ()) // 2)]
    return [column.astype(_DTYPES.get(column.dtype.str, np.int32)) for column in columns]
