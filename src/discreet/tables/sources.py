"""The interface of a source of rows, sources that DuckDB scans, and sources in memory.

Sources in memory are frames of pandas, polars and pyarrow, DuckDB relations, and numpy arrays. None of those
packages is needed; frames are recognized through narwhals. The batches of any source are cut anew to one size
by :func:`resize`, and read ahead in a thread by :func:`prefetch`.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import duckdb
import numpy as np

from discreet.errors import DataError, DiscreetError, ParameterError, SourceError
from discreet.schema.dialect import FieldDraft, TableDraft
from discreet.tables.arrow import StreamBroken
from discreet.tables.cell_encoding import declared_type
from discreet.tables.duckdb import connect, connect_shared, open_cursor
from discreet.tables.python_cells import to_column

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from discreet._types import AnyArray

    Piece: TypeAlias = list[AnyArray]

_SMALL = 1 << 16
"""Rows up to which a table is scanned by one thread, in an instance that is open already."""
_Batch = TypeVar("_Batch")
_DEPTH = 2  # batches that wait


class Source(Protocol):
    """Source of rows, as :class:`~discreet.tables.table.Table` uses it.

    Attributes
    ----------
    label : str
        Name of the source in messages, without any password.
    names, sql_types : sequence of str
        Name and DuckDB type of each column, in order.
    """

    label: str
    names: Sequence[str]
    sql_types: Sequence[str]

    def scan(self, places: Sequence[int]) -> AbstractContextManager[tuple[duckdb.DuckDBPyConnection, str]]:
        """Yield a connection and a FROM clause in which column ``i`` is called ``ci``.

        The clause may be used for one query, and need only hold the columns at `places`.
        """

    def count(self) -> int:
        """Return the number of rows."""

    def draft(self) -> TableDraft:
        """Return what the table says of itself, for the draft of a schema."""

    def explain(self, message: str) -> DiscreetError | None:
        """Return an error without rows for the engine's message, which may quote rows; None if unknown."""

    def close(self) -> None:
        """Close files and connections."""


class DuckSource:
    """Source that DuckDB scans by itself, any number of times.

    Parameters
    ----------
    connection : DuckDBPyConnection
        Connection that belongs to the source and is closed with it.
    relation : str
        FROM clause that DuckDB can scan repeatedly.
    label : str
        Name of the source in messages.
    names : sequence of str, optional
        Names of the columns, where DuckDB would change them; None to take DuckDB's.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        relation: str,
        *,
        label: str,
        names: Sequence[str] | None = None,
    ) -> None:
        """Read the types, and the names unless given, from DuckDB's description."""
        self.label = label
        self._connection = connection
        self._relation = relation
        described = self._describe()
        self.names: Sequence[str] = [name for name, _ in described] if names is None else names
        self.sql_types: Sequence[str] = [sql_type for _, sql_type in described[: len(self.names)]]
        aliases = ", ".join(f"c{i}" for i in range(len(described)))
        self._aliased = f"{relation} AS source({aliases})"

    def _describe(self) -> list[tuple[str, str]]:
        """Return name and type of each column, as DuckDB describes them."""
        with self.translate_errors(), self._cursor() as cursor:
            return [row[:2] for row in cursor.execute(f"DESCRIBE FROM {self._relation}").fetchall()]

    @contextlib.contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = open_cursor(self._connection)
        try:
            self._prepare(cursor)
            yield cursor
        finally:
            cursor.close()

    def _prepare(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Register on a new connection the objects that the relation needs."""

    @contextlib.contextmanager
    def scan(self, places: Sequence[int]) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """Yield a connection and a FROM clause in which column ``i`` is called ``ci``."""
        with self._cursor() as cursor:
            yield cursor, self._aliased

    def count(self) -> int:
        """Return the number of rows."""
        with self.translate_errors(), self.scan(()) as (cursor, relation):
            row = cursor.execute(f"SELECT count(*) FROM {relation}").fetchone()  # noqa: S608 - ours
        assert row is not None
        return int(row[0])

    def draft(self) -> TableDraft:
        """Return the names and types of the columns; no cell is read."""
        return draft_by_types(self.names, self.sql_types)

    def explain(self, message: str) -> DiscreetError | None:
        """Return None: :func:`translate_errors` withholds the message, which may quote rows."""
        return None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def translate_errors(self) -> AbstractContextManager[None]:
        """See :func:`translate_errors`."""
        return translate_errors(self)


def draft_by_types(names: Sequence[str], sql_types: Sequence[str]) -> TableDraft:
    """Return the draft of a table whose columns have types of their own."""
    types = map(declared_type, sql_types)
    return TableDraft(fields={name: FieldDraft(type=type_) for name, type_ in zip(names, types, strict=True)})


def read_texts(source: Source, most: int) -> Iterator[tuple[str | None, ...]]:
    """Yield the first rows of a source as texts."""
    places = range(len(source.names))
    with translate_errors(source), source.scan(places) as (connection, relation):
        cells = ", ".join(f"CAST(c{i} AS VARCHAR)" for i in places)
        yield from connection.execute(f"SELECT {cells} FROM {relation} LIMIT {most}").fetchall()  # noqa: S608 - ours


@contextlib.contextmanager
def translate_errors(source: Source) -> Iterator[None]:
    """Replace errors of the engine by errors of this package.

    DuckDB quotes the offending line in its messages. Such a message is neither passed on nor left in
    the chain of causes, where a log would record it.
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
    """Remove the message from an exception and from its causes; return it."""
    message = str(problem)
    link: BaseException | None = problem
    while link is not None:
        link.args = ("withheld",)
        link = link.__cause__ or link.__context__
    return message


def cell_error(source: Source, column: str, line: int, must: str, way_out: str) -> DataError:
    """Return the error that names row and column of a cell, but not its content."""
    return DataError(
        f"{source.label}: column {column!r} must {must} in every row, and does not in row {line} "
        f"(the first row of data is row 1). {way_out} `discreet check` lists every such cell.",
        column=column,
        line=line,
    )


class MemorySource(DuckSource):
    """Source in memory that DuckDB scans in place, batch by batch."""

    def __init__(self, held: Any, names: Sequence[str], label: str, n_rows: int | None = None) -> None:
        self._held = held
        small = n_rows is not None and n_rows <= _SMALL
        super().__init__(connect_shared() if small else connect(), "held", label=label, names=names)

    def _prepare(self, cursor: duckdb.DuckDBPyConnection) -> None:
        cursor.register("held", self._held)


class _ArrowOnly:
    """Frame with its Arrow stream alone, which DuckDB reads without pyarrow."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self._frame.__arrow_c_stream__(requested_schema)


def open_memory(source: Any) -> MemorySource:
    """Return the source of a frame, a relation or a mapping of arrays."""
    if isinstance(source, duckdb.DuckDBPyRelation):
        return MemorySource(_ArrowOnly(source), source.columns, "The DuckDB relation")
    if isinstance(source, Mapping):
        return _open_arrays(source)
    import narwhals as nw  # loaded here, since most tables are files

    try:
        frame = nw.from_native(source)
    except TypeError:
        raise ParameterError(
            "open_table: source must be a path, a URL, a frame of pandas, polars or pyarrow, a "
            f"DuckDB relation or a mapping of arrays, was {type(source).__name__}. Write the table "
            "to a Parquet file and give its path."
        ) from None
    except Exception as problem:  # narwhals raises pandas' and its own for names that stand twice
        raise SourceError(
            f"open_table: source must be a frame whose column names differ, and narwhals refuses "
            f"this {type(source).__name__} ({type(problem).__name__}). Rename its columns."
        ) from None
    if isinstance(frame, nw.LazyFrame):
        raise ParameterError(
            f"open_table: source must hold its rows, and a lazy {type(source).__name__} does not. "
            "Call its collect() first, or give the path of the file behind it."
        )
    names = list(frame.columns)
    if not all(isinstance(name, str) for name in names):
        raise SourceError(
            "open_table: source must have strings for column names, and this frame has others. "
            "Rename its columns."
        )
    # pandas needs pyarrow for its Arrow stream; DuckDB reads its columns without.
    held = source if frame.implementation.is_pandas() else _ArrowOnly(source)
    return MemorySource(held, names, f"The {frame.implementation.name.lower()} frame", len(frame))


def _open_arrays(source: Mapping[Any, Any]) -> MemorySource:
    """Return the source of a mapping of names to arrays of one length."""
    held: dict[str, AnyArray] = {}
    for i, (name, values) in enumerate(source.items()):
        held[f"c{i}"] = array = _to_scannable(name, values)
        if len(array) != len(held["c0"]):
            raise SourceError(
                f"open_table: source must have columns of one length, and {name!r} has "
                f"{len(array)} rows where the first has {len(held['c0'])}."
            )
    if not held:
        raise SourceError("open_table: source must have a column, and this mapping is empty.")
    return MemorySource(held, list(source), "The mapping of arrays", len(held["c0"]))


def _to_scannable(name: object, values: Any) -> AnyArray:
    """Return an array in one of the types that DuckDB scans."""
    if not isinstance(name, str):
        raise SourceError(f"open_table: column names must be strings, and {name!r} is not.")
    array = values if isinstance(values, np.ma.MaskedArray) else _to_array(name, values)
    if array.ndim != 1:
        raise SourceError(
            f"open_table: column {name!r} must be one-dimensional, had shape {array.shape}. Give "
            "each column of a matrix a name of its own."
        )
    if array.strides[0] <= 0:
        array = array.copy()  # DuckDB walks through memory upward
    kind = array.dtype.kind
    if kind in "bui":
        return np.asanyarray(array, array.dtype.newbyteorder("="))
    if kind == "f":
        return np.asanyarray(array, np.float64)
    if kind == "M":
        return np.asanyarray(array, "datetime64[us]")
    if kind in "UOT":
        return to_column(array.tolist())
    raise SourceError(
        f"open_table: column {name!r} must hold numbers, booleans, dates or strings, was of dtype "
        f"{array.dtype}. Convert it."
    )


def _to_array(name: str, values: Any) -> AnyArray:
    """Return the cells as an array; raise DataError where bytes among texts cannot be decoded."""
    with contextlib.suppress(UnicodeDecodeError):
        return np.asarray(values)
    # Raised here and not where it was caught: numpy's error holds the cell.
    line = next(
        (i for i, cell in enumerate(values, 1) if isinstance(cell, bytes) and not cell.isascii()), None
    )
    raise DataError(
        f"open_table: column {name!r}, row {line}, must be text, and is bytes that are not ASCII. Decode the "
        "column first.",
        column=name,
        line=line,
    )


def resize(pieces: Iterator[Piece], rows: int) -> Iterator[Piece]:
    """Yield the rows of all pieces again in pieces of ``rows`` rows; the last may have fewer."""
    parts: list[Piece] = []
    count = 0
    for piece in pieces:
        start, length = 0, len(piece[0])
        while start < length:
            end = min(length, start + rows - count)
            parts.append([values[start:end] for values in piece])
            count += end - start
            start = end
            if count == rows:
                yield _join(parts)
                parts, count = [], 0
    if parts:
        yield _join(parts)


def _join(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]


def prefetch(batches: Generator[_Batch, None, None]) -> Iterator[_Batch]:
    """Yield the batches of a generator that runs in its own thread, two batches in advance.

    Exceptions of the generator are raised here. Once this iterator is closed or has raised, the thread has
    ended and the generator is closed.
    """
    waiting: queue.Queue[tuple[_Batch] | BaseException | None] = queue.Queue(_DEPTH)
    stopped = threading.Event()

    def put(item: tuple[_Batch] | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def work() -> None:
        last: BaseException | None = None
        try:
            with closing(batches):
                for batch in batches:
                    put((batch,))
                    if stopped.is_set():
                        return
        except BaseException as problem:  # raised again in the consumer's thread
            last = problem
        put(last)

    worker = threading.Thread(target=work, name="batches", daemon=True)
    worker.start()
    try:
        while True:
            item = waiting.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        stopped.set()
        worker.join()
