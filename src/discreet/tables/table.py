"""One batch is made while the one before it is written.

A table to read from, and the encoded batches it hands out.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar
from urllib.parse import parse_qs, unquote

import numpy as np

from discreet.errors import ParameterError, SchemaError, SourceError
from discreet.schema import Column, Schema, nearest
from discreet.tables._encoding import MISSING_CODE, projection
from discreet.tables.arrow import read_stream
from discreet.tables.files import open_file
from discreet.tables.postgres import SCHEMES, PostgresSource
from discreet.tables.sources import Source, guarded, misplaced, open_memory

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import TracebackType

    from discreet._types import AnyArray, Words

    Piece: TypeAlias = list[AnyArray]

_Batch = TypeVar("_Batch")
_DEPTH = 2  # batches that wait


def ahead(batches: Generator[_Batch, None, None]) -> Iterator[_Batch]:
    """Run a generator of batches in a thread of its own, a little ahead of whoever takes them.

    What it raises is raised here. Once this iterator is closed or has raised, the thread has ended and the
    generator is closed.
    """
    waiting: queue.Queue[tuple[_Batch] | BaseException | None] = queue.Queue(_DEPTH)
    stopped = threading.Event()

    def hand_over(item: tuple[_Batch] | BaseException | None) -> None:
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
                    hand_over((batch,))
                    if stopped.is_set():
                        return
        except BaseException as problem:  # raised again by whoever takes the batches
            last = problem
        hand_over(last)

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


ROWS = 2**16


class Batch(Mapping[str, "AnyArray"]):
    """Some consecutive rows of a table: a mapping of column names to arrays.

    Numbers, integers and dates are float64, clipped to their bounds; a date is counted in days since
    its lower bound, and NaN means missing. Categories are int32 codes: positions in
    ``Column.levels``, where a missing cell has the level ``None``. (Integers are floats too because
    they may be missing, and every declared integer is a float exactly.)

    Attributes
    ----------
    start : int
        How many rows of the table come before.
    n_rows : int
        How many rows there are.
    ids : array of uint64 or None
        A fingerprint of each row's id where it was asked for: equal ids have equal fingerprints, and rows
        without an id have :data:`~discreet.tables._encoding.NO_ID`.
    id_texts : array of bytes or None
        The ids themselves where they were asked for, as UTF-8; empty where there is none.
    """

    __slots__ = ("_columns", "id_texts", "ids", "n_rows", "start")

    def __init__(
        self,
        columns: Mapping[str, AnyArray],
        *,
        n_rows: int,
        start: int,
        ids: Words | None,
        id_texts: AnyArray | None = None,
    ) -> None:
        self._columns = dict(columns)
        self.n_rows = n_rows
        self.start = start
        self.ids = ids
        self.id_texts = id_texts

    def __getitem__(self, name: str) -> AnyArray:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class Table:
    """Where rows come from. Made by :func:`open_table`; use it in a ``with`` statement.

    Attributes
    ----------
    label : str
        What messages call the table.
    names : tuple of str
        Its columns, in order.
    """

    def __init__(self, source: Source) -> None:
        self.label = source.label
        self.names = tuple(source.names)
        self._source = source
        _check_names(self.names, self.label)

    @property
    def types(self) -> dict[str, str]:
        """Name and type of each column, in the words of ``Schema.draft``.

        Taken from the table's own description, so that no cell is read. A text file has none: there
        the types, not the bounds, are guessed from the first 20,480 rows.
        """
        return dict(zip(self.names, self._source.declared_types(), strict=True))

    def extra(self, schema: Schema) -> tuple[str, ...]:
        """Name the columns that `schema` does not declare: never read, never published."""
        return tuple(name for name in self.names if name not in schema)

    def count(self) -> int:
        """Count the rows."""
        return self._source.count()

    def batches(
        self, schema: Schema, *, rows: int = ROWS, ids: bool = False, id_texts: bool = False
    ) -> Iterator[Batch]:
        """Read the declared columns, encoded, a batch at a time.

        Parameters
        ----------
        schema : Schema
            What to read and how. Ids, dropped and undeclared columns are not read.
        rows : int
            Rows in a batch; the last may have fewer.
        ids : bool
            Whether to read ``schema.id_column`` too, into :attr:`Batch.ids`.
        id_texts : bool
            Whether to read it into :attr:`Batch.id_texts` besides; needs ``ids``.

        Returns
        -------
        iterator of Batch
            In the order of the table, in constant memory. A table without rows gives none.

        Raises
        ------
        SchemaError
            At once, if a declared column is absent or of a type that cannot be read as declared.
        DataError
            While reading, at a cell that does not fit: letters in a number, an unlisted value in a
            closed list, a missing cell where one is required. It names row and column, never the
            cell. Numbers out of bounds are clipped in silence.
        """
        if rows < 1:
            raise ParameterError(f"Table.batches: rows must be at least 1, was {rows}.")
        columns = list(schema.released)
        if not columns:
            raise SchemaError(
                "Table.batches: schema must have a column that leaves, and has only ids and dropped "
                "ones. Give a column another role."
            )
        if ids:
            if schema.id_column is None:
                raise ParameterError(
                    "Table.batches: ids need a schema with an id_column, and it has none. Declare "
                    "which column tells the units apart."
                )
            columns.append(schema.column(schema.id_column))
        places = self._find(columns)
        types = [self._source.sql_types[place] for place in places]
        # Built here once so that a declaration that does not fit is named before anything is read.
        projection(columns, places, types, schema.missing_values, "")
        return self._read(schema, columns, places, types, rows=rows, ids=ids, id_texts=id_texts)

    def _find(self, columns: Sequence[Column]) -> list[int]:
        positions = {name: i for i, name in enumerate(self.names)}
        problems = []
        for column in columns:
            if column.name not in positions:
                close = nearest(column.name, self.names)
                hint = f"Did you mean {close!r}?" if close else f"It has {_some(self.names)}."
                problems.append(
                    f"{self.label} must have the declared column {column.name!r}, and has not. {hint}"
                )
        if problems:
            raise SchemaError(*problems)
        return [positions[column.name] for column in columns]

    def _read(
        self,
        schema: Schema,
        columns: Sequence[Column],
        places: Sequence[int],
        types: Sequence[str],
        *,
        rows: int,
        ids: bool,
        id_texts: bool,
    ) -> Iterator[Batch]:
        start = 0
        with contextlib.closing(self._pieces(schema, columns, places, types, id_texts)) as pieces:
            for piece in _resize(pieces, rows):
                texts = piece.pop() if id_texts else None
                fingerprints = piece.pop() if ids else None
                named = {
                    column.name: column.clip(values) if column.is_number else values
                    for column, values in zip(columns, piece, strict=False)
                }
                n_rows = len(piece[0])
                yield Batch(named, n_rows=n_rows, start=start, ids=fingerprints, id_texts=texts)
                start += n_rows

    def _pieces(
        self,
        schema: Schema,
        columns: Sequence[Column],
        places: Sequence[int],
        types: Sequence[str],
        id_texts: bool,
    ) -> Generator[Piece]:
        """Yield arrays as the engine delivers them, every cell checked."""
        start = 0
        source = self._source
        with guarded(source), source.scan(places) as (connection, relation):
            query = projection(columns, places, types, schema.missing_values, relation, id_texts=id_texts)
            with contextlib.closing(read_stream(connection.sql(query).__arrow_c_stream__())) as all_:
                for piece, first_null in all_:
                    for column, values, null in zip(columns, piece, first_null, strict=False):
                        self._check(column, values, null, start)
                    yield piece
                    start += len(piece[0])

    def _check(self, column: Column, values: AnyArray, null: int | None, start: int) -> None:
        if null is not None:
            must, way_out = _UNFIT[column.type or "number"]
            raise misplaced(self._source, column.name, start + null + 1, must, way_out)
        if not column.required or column.type == "id":
            return
        missing = values == MISSING_CODE if column.is_category else np.isnan(values)
        if missing.any():
            raise misplaced(
                self._source,
                column.name,
                start + int(missing.argmax()) + 1,
                "hold something",
                "Declare required: false to publish that a cell is missing as one more value.",
            )

    def close(self) -> None:
        """Let go of files and connections."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


_UNFIT = {
    "number": ("hold a number", "Correct it, or list what stands for a missing cell there."),
    "integer": (
        "hold a whole number",
        "Correct it, declare type: number, or list what stands for a missing cell.",
    ),
    "date": (
        "hold a date like 2024-12-31",
        "Correct it, or list what stands for a missing cell there.",
    ),
    "category": (
        "hold one of the declared values",
        "Complete the list, or declare closed: false to read the rest as 'other'.",
    ),
}


def open_table(source: Any, *, delimiter: str | None = None, encoding: str = "utf-8") -> Table:
    """Open a table for reading.

    Parameters
    ----------
    source : path, URL, frame, DuckDB relation or mapping of arrays
        A file that ends in ``.csv``, ``.tsv`` (also with ``.gz``), ``.parquet`` or ``.duckdb``;
        ``duckdb://path/file.duckdb?table=name`` or the path with ``?table=name``;
        ``postgresql://host/database?table=schema.name``; a frame of pandas, polars or pyarrow; a
        DuckDB relation; a mapping of names to one-dimensional arrays.
    delimiter : str, optional
        Of a text file; read off its header if left out.
    encoding : {"utf-8", "latin-1"}
        Of a text file.

    Returns
    -------
    Table
        Close it, or use it in a ``with`` statement.

    Raises
    ------
    SourceError
        If there is no such table, or it cannot be read.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=120)])
    >>> with open_table({"age": [34, 150]}) as table:
    ...     [batch["age"].tolist() for batch in table.batches(schema)]
    [[34.0, 120.0]]
    """
    opened = _open_source(source, delimiter=delimiter, encoding=encoding)
    try:
        return Table(opened)
    except SourceError:
        opened.close()
        raise


def _open_source(source: Any, *, delimiter: str | None, encoding: str) -> Source:
    if isinstance(source, str) and source.startswith(tuple(f"{s}://" for s in SCHEMES)):
        return PostgresSource(source)
    if isinstance(source, str):
        path, table = duckdb_address(source)
        return open_file(path, table=table, delimiter=delimiter, encoding=encoding)
    if isinstance(source, os.PathLike):
        return open_file(Path(source), table=None, delimiter=delimiter, encoding=encoding)
    return open_memory(source)


def duckdb_address(text: str) -> tuple[Path, str | None]:
    """Take apart ``duckdb://path?table=name`` or ``path?table=name``; a plain path has no table."""
    is_url = text.startswith("duckdb://")
    text = text.removeprefix("duckdb://")
    place, mark, query = text.rpartition("?")
    if not mark or not query.startswith("table="):
        place, query = text, ""
    table = parse_qs(query).get("table", [None])[0]
    scheme = place.partition("://")[0] if "://" in place else None
    if scheme or not place or "\0" in place:
        raise SourceError(
            f"A table must be given by a path, duckdb:// or postgresql://, was {place[:40]!r}. "
            "Download the file first."
        )
    return Path(unquote(place) if is_url else place), table


def _check_names(names: Sequence[str], label: str) -> None:
    seen: set[str] = set()
    for place, name in enumerate(names, 1):
        if not name.strip():
            raise SourceError(
                f"{label} must have a name for every column, and column {place} has none. Name it, "
                "or write the file without row numbers (index=False in pandas)."
            )
        if name in seen:
            raise SourceError(
                f"{label} must have each column once, and has {name!r} twice. Rename one of them."
            )
        seen.add(name)


def _some(names: Sequence[str], most: int = 8) -> str:
    listed = ", ".join(repr(name[:40]) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def _resize(pieces: Iterator[Piece], rows: int) -> Iterator[Piece]:
    """Cut and join pieces so that each but the last has as many rows as asked for."""
    kept: list[Piece] = []
    n_kept = 0
    for piece in pieces:
        at, length = 0, len(piece[0])
        while at < length:
            end = min(length, at + rows - n_kept)
            kept.append([values[at:end] for values in piece])
            n_kept += end - at
            at = end
            if n_kept == rows:
                yield _join(kept)
                kept, n_kept = [], 0
    if kept:
        yield _join(kept)


def _join(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
