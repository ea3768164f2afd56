"""DuckDB instances with bounded memory, without network, and with rows in order; quoting for SQL."""

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
"""Memory that a DuckDB instance may use."""
_MOST_THREADS = 4  # each holds a row group or a text buffer; more would not fit the memory limit

_SMALL_FILES = 1 << 22
"""Bytes up to which files are scanned by one thread, in an instance that is open already."""


def connect() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB instance in memory that reads only the files it is given.

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
    return _disable_progress_bar(connection)


def connect_shared() -> duckdb.DuckDBPyConnection:
    """Return a connection to the instance in which this process scans small files and tables in memory.

    Opening an instance takes longer than scanning such a table. The shared one stores nothing: what a
    connection registers is its own and ends with it. It starts no threads, which a forked process would lose.
    """
    return open_cursor(_shared_instance(os.getpid()))


def connect_for(files: Iterable[Path]) -> duckdb.DuckDBPyConnection:
    """Return a connection that scans files: to the shared instance if they are small, or to a new one."""
    return connect_shared() if sum(file.stat().st_size for file in files) <= _SMALL_FILES else connect()


@cache
def _shared_instance(_: int) -> duckdb.DuckDBPyConnection:
    connection = connect()
    connection.execute("SET GLOBAL threads = 1")
    # A file that was replaced must be read anew, even within the resolution of its time.
    connection.execute("SET GLOBAL enable_external_file_cache = false")
    return connection


def open_cursor(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Return another connection to an instance; one that streams a result can do nothing else."""
    return _disable_progress_bar(connection.cursor())


def _disable_progress_bar(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    # The bar would be drawn to standard output; each connection has its own setting.
    return connection.execute("SET enable_progress_bar = false")


def run_over(
    connection: duckdb.DuckDBPyConnection, command: str, name: str, stream: ArrayStream
) -> tuple[Any, ...]:
    """Run a command that reads a stream under a name, in one transaction.

    A stream whose batches fail ends early, and the engine does not notice: its writes are rolled back here,
    and the failure is raised unchanged.

    Returns
    -------
    tuple
        The one row that the command returns.
    """
    connection.register(name, stream)
    connection.begin()
    try:
        (row,) = connection.execute(command).fetchall()
        if stream.failure is not None:
            raise stream.failure
    except BaseException:
        # Also when interrupted: the caller's connection must not stay inside a transaction.
        connection.rollback()
        raise
    connection.commit()
    connection.unregister(name)
    return row


def identifier(name: str) -> str:
    """Return the quoted name of a table or column."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a quoted string."""
    return "'" + text.replace("'", "''") + "'"


def literals(texts: Iterable[str]) -> str:
    """Return quoted strings, separated by commas."""
    return ", ".join(literal(text) for text in texts)


def quote_path(path: Path) -> str:
    """Return a quoted path that names one file, even if it contains the signs of a pattern."""
    return literal(re.sub(r"([*?\[])", r"[\1]", str(path.absolute())))


def check_readable(path: Path) -> None:
    """Raise SourceError unless the path is a file that can be opened and is not empty."""
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as problem:
        raise SourceError(
            f"A table must be a file that can be read, and {str(path)!r} is not "
            f"({problem.strerror}). Check its name and who may read it."
        ) from None
    if empty:
        raise SourceError(
            f"A file must hold a table, and {str(path)!r} is empty. A table without "
            "rows still has its column names."
        )


def split_table_name(table: str) -> list[str]:
    """Return the parts of ``schema.table``, split at dots outside double quotes and without the quotes."""
    parts = re.findall(r'"(?:[^"]|"")*"|[^."]+', table)
    if not table or ".".join(parts) != table:
        raise SourceError(
            f"The table in a URL must be a name or schema.name, was {table!r}. Put a name with dots "
            'or quotes in it in double quotes: table="a.b".'
        )
    return [p[1:-1].replace('""', '"') if p.startswith('"') else p for p in parts]
