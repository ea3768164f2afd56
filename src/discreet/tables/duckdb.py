"""DuckDB as this package runs it: bounded, offline, in order."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb

from discreet.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from discreet.tables.arrow import ArrayStream

MEMORY_LIMIT = "512MB"
_MOST_THREADS = 4  # each holds a row group or a text buffer; more would not fit the memory limit


def connect() -> duckdb.DuckDBPyConnection:
    """Open a DuckDB instance in memory that reads only what it is pointed at.

    It loads and installs no extension, hence has no network; spills nothing to disk, so that no
    private row is left in a temporary file; and keeps rows in the order of their source.
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": MEMORY_LIMIT,
            "threads": min(_MOST_THREADS, os.cpu_count() or 1),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "preserve_insertion_order": True,
            "temp_directory": "",
        },
    )
    # This optimizer turns x IN (...) into a join, which loses the order of rows (duckdb#24398).
    connection.execute("SET GLOBAL disabled_optimizers = 'in_clause'")
    # A moment belongs to the day it has in UTC, whatever the zone of the machine.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return _quiet(connection)


def borrow() -> duckdb.DuckDBPyConnection:
    """Open a connection to the one instance in which this process scans small tables that it holds itself.

    Opening an instance takes longer than scanning such a table. Nothing is kept in this one: what a
    connection registers is its own and goes with it. It starts no threads, which a forked process would lose.
    """
    return session(_lent(os.getpid()))


@cache
def _lent(_: int) -> duckdb.DuckDBPyConnection:
    connection = connect()
    connection.execute("SET GLOBAL threads = 1")
    return connection


def session(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Open a second connection to an instance; one that streams a result can do nothing else."""
    return _quiet(connection.cursor())


def _quiet(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    # The bar would be drawn into our standard output; the setting is each connection's own.
    return connection.execute("SET enable_progress_bar = false")


def run_over(
    connection: duckdb.DuckDBPyConnection, command: str, name: str, stream: ArrayStream
) -> tuple[Any, ...]:
    """Run a command that reads a stream of ours under a name, whole or not at all.

    A stream whose batches fail ends early, and the engine knows nothing of it: what it wrote is taken back
    here, and the failure is raised as it was.

    Returns
    -------
    tuple
        The one row that the command answers with.
    """
    connection.register(name, stream)
    connection.begin()
    try:
        (row,) = connection.execute(command).fetchall()
        if stream.failure is not None:
            raise stream.failure
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    connection.unregister(name)
    return row


def identifier(name: str) -> str:
    """Quote a name of a table or column."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a string."""
    return "'" + text.replace("'", "''") + "'"


def literals(texts: Iterable[str]) -> str:
    """Quote strings, with commas between them."""
    return ", ".join(literal(text) for text in texts)


def one_file(path: Path) -> str:
    """Quote a path so that it names one file, even if it has the signs of a pattern in it."""
    return literal(re.sub(r"([*?\[])", r"[\1]", str(path.absolute())))


def check_readable(path: Path) -> None:
    """Raise unless the path is a file that can be opened and is not empty."""
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as problem:
        raise SourceError(
            f"open_table: source must be a file that can be read, and {str(path)!r} is not "
            f"({problem.strerror}). Check its name and who may read it."
        ) from None
    if empty:
        raise SourceError(
            f"open_table: source must hold a table, and {str(path)!r} is empty. A table without "
            "rows still has its column names."
        )


def split_table_name(table: str) -> list[str]:
    """Split ``schema.table`` at the dots outside double quotes, and take the quotes off."""
    parts = re.findall(r'"(?:[^"]|"")*"|[^."]+', table)
    if not table or ".".join(parts) != table:
        raise SourceError(
            f"The table in a URL must be a name or schema.name, was {table!r}. Put a name with dots "
            'or quotes in it in double quotes: table="a.b".'
        )
    return [p[1:-1].replace('""', '"') if p.startswith('"') else p for p in parts]
