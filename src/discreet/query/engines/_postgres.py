"""PostgreSQL as the engine: the curated table in a server, exact sums there, batches by binary COPY."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from discreet.errors import ParameterError, SourceError
from discreet.noise import Stream
from discreet.query.curation import TABLE, Curation, Version
from discreet.query.engines._sql_text import SqlText
from discreet.query.engines.base import ROWS, Engine, Tally, curated_batches
from discreet.tables import open_table
from discreet.tables.postgres import Address, read_copy
from discreet.tables.sources import withhold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet._types import AnyArray

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_TYPES = {"SMALLINT": "smallint", "INTEGER": "integer", "BIGINT": "bigint", "DOUBLE": "double precision"}
_FORMATS = {"SMALLINT": ">i2", "INTEGER": ">i4", "BIGINT": ">i8", "DOUBLE": ">f8"}
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

    Privacy
    -------
    See :class:`~discreet.query.engines.base.Engine`. A temporary table belongs to this session alone. One in
    a schema can be changed by others, so every pass compares the sum of its rows' hashes with that at the
    time it was filled, under a seed that only this process knows. Give the curator's login no more rights
    than to read the source and to make this table.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    sql: ClassVar[SqlText] = SqlText({"DOUBLE": "DOUBLE PRECISION"})
    fences: ClassVar[bool] = True

    def __init__(self, url: str, *, into: str | None = None, timeout: float = 600.0) -> None:
        """Connect, and set what makes sums fast and repeatable."""
        super().__init__()
        if not timeout > 0:
            raise ParameterError(f"timeout of PostgresEngine must be above 0 seconds, was {timeout!r}.")
        named = url if "table=" in url else f"{url}{'&' if '?' in url else '?'}table={TABLE}"
        address = Address(named)
        self._server = address.connect()
        self._label = address.label
        import psycopg

        self._failures = (psycopg.Error, OSError)
        self._into = into
        self.exposed = into is not None
        self._seed = Stream().integer(64) >> 1  # unknown to whoever would change the table without a trace
        self._server.autocommit = True
        for setting in (
            # Compiling a thousand sums takes longer than adding them up.
            "jit = off",
            "search_path = ''",
            "synchronize_seqscans = off",
            f"statement_timeout = {max(1, round(timeout * 1000))}",
        ):
            self._server.execute(f"SET {setting}")

    def _build(self, source: Any, curation: Curation, salt: str) -> Version:
        """Create the curated table, fill it by binary COPY, and make the session read-only."""
        from psycopg import sql

        tally = Tally(curation)
        names = curation.identifiers()
        kinds = {name: curation.kind(name) for name in names}
        columns = ", ".join(f"{name} {_TYPES[kind]} NOT NULL" for name, kind in kinds.items())
        where = sql.Identifier(self._into or "pg_temp", TABLE)
        record = _record([_FORMATS[kind] for kind in kinds.values()])
        try:
            with open_table(source, schema=curation.schema) as table, self._server.transaction():
                self._server.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(where))
                self._server.execute(sql.SQL("CREATE TABLE {} (" + columns + ")").format(where))
                into = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(where)
                with self._server.cursor() as cursor, cursor.copy(into) as copy:
                    copy.write(_HEADER)
                    for arrays in curated_batches(table, curation, tally, salt):
                        copy.write(_pack_rows(record, [arrays[name] for name in names]))
                    copy.write(_TRAILER)
                if self.exposed:
                    self._keep_witness()
            self._server.execute(sql.SQL("ANALYZE {}").format(where))
            self._server.execute("SET default_transaction_read_only = on")
        except self._failures as problem:
            withhold(problem)
            raise SourceError(
                f"The curated table cannot be built beside {self._label}: the server answered "
                f"{type(problem).__name__}. Ask for the right to make temporary tables, or name a schema "
                "with into=."
            ) from None
        return tally.version

    def _table(self) -> Tree:
        schema = exp.to_identifier(self._into or "pg_temp", quoted=True)
        return exp.Table(this=exp.to_identifier(TABLE), db=schema)

    def _row_hash(self) -> Tree:
        assert self.curation is not None
        cells = [exp.column(name) for name in self.curation.identifiers()]
        row = exp.Anonymous(this="ROW", expressions=cells)
        return exp.Anonymous(this="hash_record_extended", expressions=[row, exp.Literal.number(self._seed)])

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
