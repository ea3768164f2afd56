"""What every place that rows come from offers to :class:`~discreet.tables.table.Table`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import duckdb

from discreet.errors import DataError, DiscreetError, SourceError
from discreet.tables.arrow import StreamBroken
from discreet.tables.encode import declared_type
from discreet.tables.engine import session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager


class Source(Protocol):
    """A place that rows come from.

    Attributes
    ----------
    label : str
        What messages call it; holds no password.
    names, sql_types : sequence of str
        Name and DuckDB type of each column, in order.
    """

    label: str
    names: Sequence[str]
    sql_types: Sequence[str]

    def scan(self, places: Sequence[int]) -> AbstractContextManager[tuple[duckdb.DuckDBPyConnection, str]]:
        """Give a connection and a FROM clause in which column ``i`` is called ``ci``.

        The clause may be used for one query, and need only hold the columns at `places`.
        """

    def count(self) -> int:
        """Count the rows."""

    def declared_types(self) -> list[str]:
        """Name the type of each column in the words of a schema file."""

    def explain(self, message: str) -> DiscreetError | None:
        """Turn the engine's message, which may quote rows, into one that does not."""

    def close(self) -> None:
        """Let go of files and connections."""


class DuckSource:
    """A source that DuckDB scans by itself, any number of times.

    Parameters
    ----------
    connection : DuckDBPyConnection
        Of our own; closed with the source.
    relation : str
        A FROM clause.
    label : str
        What messages call the source.
    names : sequence of str, optional
        The columns' names, where DuckDB does not keep them as they are.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        relation: str,
        *,
        label: str,
        names: Sequence[str] | None = None,
    ) -> None:
        self.label = label
        self._connection = connection
        self._relation = relation
        with self.guarded(), self._cursor() as cursor:
            described = cursor.execute(f"DESCRIBE FROM {relation}").fetchall()
        self.sql_types: Sequence[str] = [row[1] for row in described]
        self.names: Sequence[str] = [row[0] for row in described] if names is None else names
        aliases = ", ".join(f"c{i}" for i in range(len(described)))
        self._aliased = f"{relation} AS source({aliases})"

    @contextlib.contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = session(self._connection)
        try:
            self._prepare(cursor)
            yield cursor
        finally:
            cursor.close()

    def _prepare(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Make known to a fresh connection what the relation needs."""

    @contextlib.contextmanager
    def scan(self, places: Sequence[int]) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """Give a connection and a FROM clause in which column ``i`` is called ``ci``."""
        with self._cursor() as cursor:
            yield cursor, self._aliased

    def count(self) -> int:
        """Count the rows."""
        with self.guarded(), self._cursor() as cursor:
            row = cursor.execute(f"SELECT count(*) FROM {self._relation}").fetchone()  # noqa: S608 - ours
        assert row is not None
        return int(row[0])

    def declared_types(self) -> list[str]:
        """Name the type of each column in the words of a schema file."""
        return [declared_type(sql_type) for sql_type in self.sql_types]

    def explain(self, message: str) -> DiscreetError | None:
        """Leave the message to :func:`guarded`: it may quote rows."""
        return None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def guarded(self) -> AbstractContextManager[None]:
        """See :func:`guarded`."""
        return guarded(self)


@contextlib.contextmanager
def guarded(source: Source) -> Iterator[None]:
    """Turn errors of the engine into ours.

    DuckDB quotes the offending line in its messages. Such a message is neither passed on nor left in
    the chain of causes, where a log would find it.
    """
    try:
        yield
    except (duckdb.Error, StreamBroken) as problem:
        message, kind = withhold(problem), type(problem).__name__
        explained = source.explain(message)
        if explained is None and "Out of Memory" in message:
            explained = SourceError(
                f"Reading {source.label} needs more memory than the engine is given. Rows this "
                "wide fit in smaller pieces: write the table again with smaller row groups."
            )
        raise explained or SourceError(
            f"{source.label} cannot be read: the engine stopped with {kind}, whose text is "
            "withheld because it may quote rows. The table may be damaged; write it again from its "
            "origin."
        ) from None


def withhold(problem: BaseException) -> str:
    """Take the message out of an exception, and out of those it came from; return it."""
    message = str(problem)
    link: BaseException | None = problem
    while link is not None:
        link.args = ("withheld",)
        link = link.__cause__ or link.__context__
    return message


def misplaced(source: Source, column: str, line: int, must: str, way_out: str) -> DataError:
    """Make the error that names the place of a cell, and not what it holds."""
    return DataError(
        f"{source.label}: column {column!r} must {must} in every row, and does not in row {line} "
        f"(the first row of data is row 1). {way_out}",
        column=column,
        line=line,
    )
