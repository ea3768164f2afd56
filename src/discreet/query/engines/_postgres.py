"""PostgreSQL as the engine: the curated table in a server, exact sums there, batches by binary COPY."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from discreet.errors import ParameterError, SourceError
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
    a schema can be changed by others, so every pass compares its fingerprint. Give the curator's login no
    more rights than to read the source and to make this table.

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
        kinds = {name: "smallint" if curation.small(name) else "integer" for name in names}
        columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in kinds.items())
        where = sql.Identifier(self._into or "pg_temp", TABLE)
        record = _record([2 if kind == "smallint" else 4 for kind in kinds.values()])
        try:
            with open_table(source) as table, self._server.transaction():
                self._server.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(where))
                self._server.execute(sql.SQL("CREATE TABLE {} (" + columns + ")").format(where))
                into = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(where)
                with self._server.cursor() as cursor, cursor.copy(into) as copy:
                    copy.write(_HEADER)
                    for arrays in curated_batches(table, curation, tally, salt):
                        copy.write(_pack_rows(record, [arrays[name] for name in names]))
                    copy.write(_TRAILER)
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

    def _fetch(self, query: Tree) -> list[tuple[Any, ...]]:
        return self._server.execute(self.sql.write(query).encode()).fetchall()

    def batches(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[list[AnyArray]]:
        """Yield the curated integers of columns, at most ``rows`` rows at a time."""
        selected = exp.select(
            *(exp.Cast(this=exp.column(name), to=exp.DataType.build("INT")) for name in columns)
        ).from_(self._table())
        command = f"COPY ({self.sql.write(selected)}) TO STDOUT (FORMAT binary)"
        record = _record([4] * len(columns))
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


def _record(widths: Sequence[int]) -> np.dtype[Any]:
    """Return the layout of a row of fixed-width integers in PostgreSQL's binary COPY."""
    fields: list[tuple[str, str]] = [("n", ">i2")]
    for i, width in enumerate(widths):
        fields += [(f"l{i}", ">i4"), (f"v{i}", f">i{width}")]
    return np.dtype(fields)


def _pack_rows(record: np.dtype[Any], columns: Sequence[AnyArray]) -> bytes:
    """Return columns of integers as rows of PostgreSQL's binary COPY."""
    rows = np.empty(len(columns[0]), record)
    rows["n"] = len(columns)
    for i, values in enumerate(columns):
        rows[f"l{i}"] = record[f"v{i}"].itemsize
        rows[f"v{i}"] = values
    return rows.tobytes()


def _unpack_rows(record: np.dtype[Any], held: bytearray, start: int, rows: int) -> list[AnyArray]:
    """Return the columns of rows of PostgreSQL's binary COPY."""
    block = np.frombuffer(bytes(held[start : start + rows * record.itemsize]), record)
    return [block[f"v{i}"].astype(np.int32) for i in range(len(record.names or ()) // 2)]
