"""Reading and writing of PostgreSQL tables by COPY.

Rows pass as CSV text through a pipe between the server's COPY and DuckDB, which encodes and decodes
them like those of a file: nothing is stored on the way, and no Python object is made per cell.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from discreet.errors import DiscreetError, MissingExtra, ParameterError, SourceError
from discreet.tables.duckdb import connect, open_cursor, split_table_name
from discreet.tables.pipes import BLOCK, pipe_from, write_all
from discreet.tables.sources import draft_by_types, withhold

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import psycopg
    from duckdb import DuckDBPyConnection

    from discreet.schema.dialect import TableDraft

SCHEMES = ("postgresql", "postgres")
_BUFFER = 2**22  # bytes of text that DuckDB gathers before it encodes
# DuckDB type for the text of each server type; anything else stays text.
_SQL_TYPES = {
    "bool": "BOOLEAN", "int2": "BIGINT", "int4": "BIGINT", "int8": "BIGINT", "oid": "BIGINT",
    "float4": "FLOAT", "float8": "DOUBLE", "numeric": "DOUBLE", "date": "DATE",
    "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMP WITH TIME ZONE",
}  # fmt: skip
# The server's calendar is longer than DuckDB's, and it writes years before the first in another way; no
# declared bound is outside these.
_FIRST_MOMENT, _LAST_MOMENT = "0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"
_CALENDAR = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


class Address:
    """Parts of a ``postgresql://`` URL.

    Parameters
    ----------
    url : str
        URL with ``?table=name`` or ``?table=schema.name``; other parameters are libpq's.

    Attributes
    ----------
    label : str
        Server, database and table for messages, without user and password.
    table : tuple of str
        Name of the table, after its schema's if one was given.
    """

    def __init__(self, url: str) -> None:
        """Split the URL into the table and the rest for libpq."""
        parts = urlsplit(url)
        parameters = parse_qsl(parts.query, keep_blank_values=True)
        tables = [value for key, value in parameters if key == "table"]
        if len(tables) != 1:
            raise ParameterError(
                f"A PostgreSQL URL must name one table, and names {len(tables)}. End it in "
                "?table=schema.name."
            )
        self.table = tuple(split_table_name(tables[0]))
        if len(self.table) > 2:
            raise ParameterError(
                f"The table in a PostgreSQL URL must be schema.name, was {tables[0]!r}. The "
                "database is named before the question mark."
            )
        rest = urlencode([pair for pair in parameters if pair[0] != "table"])
        self._target = urlunsplit(parts._replace(query=rest))
        where = f"{parts.hostname or 'localhost'}{parts.path}"
        self.label = f"The table {tables[0]!r} at postgresql://{where}"

    def connect(self) -> psycopg.Connection[Any]:
        """Return a connection to the server."""
        driver = _driver()
        try:
            server: psycopg.Connection[Any] = driver.connect(
                self._target, client_encoding="utf8", application_name="discreet"
            )
            return server
        except driver.Error as problem:
            # A server that answers refuses with this word, in most languages.
            refused = "FATAL" in str(problem)
        # The driver's text repeats the user's name and, for a malformed URL, the password.
        raise SourceError(
            f"{self.label} must be on a server that lets us in, and "
            + (
                "the server there does not. Check user, password (PGPASSFILE) and database with psql."
                if refused
                else "it does not, or no server answers. Check host, port, user and database with psql."
            )
        )

    def identifier(self) -> Any:
        """Return the table's quoted name for use in a query."""
        from psycopg import sql

        return sql.Identifier(*self.table)


def _driver() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtra(
            "A postgresql:// URL needs psycopg, which is not installed. Install it with: "
            "pip install 'discreet[postgres]'"
        ) from None
    return psycopg


class PostgresSource:
    """A table or view of a PostgreSQL server.

    Everything is read in one read-only transaction that keeps its snapshot, so that a count and two
    passes see the same rows; DuckDB never talks to the server.
    """

    def __init__(self, url: str) -> None:
        self._address = Address(url)
        self.label = self._address.label
        self._server = self._address.connect()
        self._engine = connect()
        try:
            with self._translate_errors():
                self._describe()
        except DiscreetError:
            self.close()
            raise

    def _describe(self) -> None:
        """Start the read-only snapshot, fix the text format of cells, and read names and types."""
        driver = _driver()
        self._server.isolation_level = driver.IsolationLevel.REPEATABLE_READ
        self._server.read_only = True
        # The text of cells must not depend on the server's settings, nor the order of rows on
        # where another session's scan happens to be.
        for setting in (
            "DateStyle = 'ISO'",
            "TimeZone = 'UTC'",
            "bytea_output = 'hex'",
            "extra_float_digits = 1",
            "synchronize_seqscans = off",
        ):
            self._server.execute(f"SET LOCAL {setting}")
        cursor = self._server.execute(self._select_query("*", " LIMIT 0"))
        columns = cursor.description or ()
        self.names: Sequence[str] = [column.name for column in columns]
        self.sql_types: Sequence[str] = [
            _SQL_TYPES.get(getattr(self._server.adapters.types.get(c.type_code), "name", ""), "VARCHAR")
            for c in columns
        ]

    def _select_query(self, what: Any, tail: str = "") -> Any:
        from psycopg import sql

        what = sql.SQL(what) if isinstance(what, str) else what
        return sql.SQL("SELECT {} FROM {}{}").format(what, self._address.identifier(), sql.SQL(tail))

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Replace errors of the driver, which may quote rows, by a SourceError."""
        driver = _driver()
        try:
            yield
        except driver.Error as problem:
            withhold(problem)  # a server quotes what it cannot convert
            absent = (driver.errors.UndefinedTable, driver.errors.InvalidSchemaName)
            raise SourceError(
                f"{self.label} does not exist. Check its name and schema."
                if isinstance(problem, absent)
                else f"{self.label} cannot be read: the server answered {type(problem).__name__}. "
                "Ask for the right to SELECT from it, and check that the server is up."
            ) from None

    @contextlib.contextmanager
    def scan(self, places: Sequence[int]) -> Iterator[tuple[DuckDBPyConnection, str]]:
        """Start a COPY; yield a connection and the FROM clause that reads the rows."""
        from psycopg import sql

        texts = sql.SQL(", ").join(map(self._text, places))
        query = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(self._select_query(texts))
        command = query.as_bytes(self._server)
        columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in places)
        # The server quotes an empty string and does not quote a NULL.
        options = (
            "auto_detect=false, header=false, delim=',', quote='\"', escape='\"', comment='', "
            f"nullstr='', allow_quoted_nulls=false, buffer_size={_BUFFER}, columns={{{columns}}}"
        )
        typed = ", ".join(f"CAST(c{i} AS {self.sql_types[i]}) AS c{i}" for i in places)
        # DuckDB closes its end of the pipe before the thread at the other end is joined.
        with (
            pipe_from(lambda end: self._copy_out(command, end)) as end,
            contextlib.closing(open_cursor(self._engine)) as cursor,
        ):
            text = f"read_csv('/dev/fd/{end}', {options})"
            yield cursor, f"(SELECT {typed} FROM {text})"  # noqa: S608 - ours

    def _text(self, place: int) -> Any:
        """Return the SQL for a column's cells as text that DuckDB reads whatever they are."""
        from psycopg import sql

        cell: sql.Composable = sql.Identifier(self.names[place])
        kind = self.sql_types[place]
        if kind in _CALENDAR:
            first, last = (sql.SQL(f"CAST('{moment}' AS {kind})") for moment in (_FIRST_MOMENT, _LAST_MOMENT))
            # GREATEST and LEAST would turn NULL into an end.
            inside = "CASE WHEN {0} < {1} THEN {1} WHEN {0} > {2} THEN {2} ELSE {0} END"
            cell = sql.SQL(inside).format(cell, first, last)
        return sql.SQL("CAST({} AS text)").format(cell)

    def _copy_out(self, command: bytes, end: int) -> None:
        """Send the rows of a COPY into a pipe."""
        # The savepoint keeps the snapshot when a reader leaves before the end.
        with (
            self._translate_errors(),
            self._server.transaction(),
            contextlib.closing(read_copy(self._server, command)) as messages,
        ):
            block = bytearray()
            for message in messages:
                block += message
                if len(block) >= BLOCK:
                    write_all(end, block)
                    block = bytearray()
            write_all(end, block)

    def count(self) -> int:
        """Return the number of rows."""
        with self._translate_errors():
            row = self._server.execute(self._select_query("count(*)")).fetchone()
        assert row is not None
        return int(row[0])

    def draft(self) -> TableDraft:
        """Return the names and types of the columns; no cell is read."""
        return draft_by_types(self.names, self.sql_types)

    def explain(self, message: str) -> DiscreetError | None:
        """Return None: the caller withholds the message, which may quote rows."""
        return None

    def close(self) -> None:
        """End the transaction and close both connections."""
        self._server.close()
        self._engine.close()


def read_copy(server: Any, command: bytes) -> Generator[memoryview]:
    """Yield the messages of a COPY ... TO STDOUT; each is valid until the next one.

    This calls libpq directly: the driver's own iteration runs its event loop for every row and takes five
    times as long. A caller that stops early closes the generator, which ends the COPY.
    """
    from psycopg import pq

    link = server.pgconn
    answer: Any = link.exec_(command)
    try:
        while answer.status == pq.ExecStatus.COPY_OUT:
            size, message = link.get_copy_data(0)
            if size < 0:
                break
            yield message
    except GeneratorExit:
        server.cancel()
        while link.get_copy_data(0)[0] > 0:
            pass
        raise
    finally:
        while (rest := link.get_result()) is not None:
            answer = rest
    if answer.status != pq.ExecStatus.COMMAND_OK:
        code = answer.error_field(pq.DiagnosticField.SQLSTATE) or b"XX000"
        raise _driver().errors.lookup(code.decode())


def write_postgres(
    url: str,
    columns: Sequence[tuple[str, str]],
    copy_to: Callable[[str], int],
    *,
    replace: bool,
) -> int:
    """Create a table and fill it in one transaction; return the number of rows.

    Parameters
    ----------
    url : str
        URL of the server and database, with ``?table=`` for the new table.
    columns : sequence of (name, SQL type)
        Columns of the new table, in order.
    copy_to : callable
        Function that writes rows as CSV without a header into a file, and returns their number.
    replace : bool
        Whether an existing table of that name may be dropped.
    """
    address, driver, written = Address(url), _driver(), [0]
    from psycopg import sql

    def feed(end: int) -> None:
        written[0] = copy_to(f"/dev/fd/{end}")

    definitions = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns
    )
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.closing(address.connect()))
        table = address.identifier()
        try:
            if replace:
                server.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
            server.execute(sql.SQL("CREATE TABLE {} ({})").format(table, definitions))
            command = sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(table)
            with (
                server.cursor() as cursor,
                cursor.copy(command) as copy,
                pipe_from(feed) as end,
            ):
                while block := os.read(end, BLOCK):
                    copy.write(block)
            server.commit()
            return written[0]
        except driver.Error as problem:
            taken = isinstance(problem, driver.errors.DuplicateTable)
            kind = type(problem).__name__
    raise SourceError(
        f"{address.label} exists already. Drop it, name another, or pass replace=True."
        if taken
        else f"{address.label} cannot be written: the server answered {kind}. Nothing was left "
        "there. Ask for the right to CREATE in that schema, and check that the server has room."
    )
