"""Tables for reading: encoded batches of any source, and a thread that prefetches them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from urllib.parse import parse_qs, unquote

import numpy as np

from discreet.arguments import nearest
from discreet.errors import ParameterError, SchemaError, SourceError
from discreet.tables.arrow import read_stream
from discreet.tables.cell_encoding import MISSING_CODE, projection
from discreet.tables.files import list_parquet, open_file
from discreet.tables.postgres import SCHEMES, PostgresSource
from discreet.tables.sources import Source, cell_error, open_memory, read_texts, resize, translate_errors
from discreet.tables.text_files import CsvSource

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Sequence
    from types import TracebackType

    from discreet._types import AnyArray, Words
    from discreet.schema import Column, Schema, TextFormat
    from discreet.schema.dialect import TableDraft

    Piece: TypeAlias = list[AnyArray]


ROWS = 2**16
"""Default number of rows in a batch."""


class Batch(Mapping[str, "AnyArray"]):
    """Consecutive rows of a table, as a mapping of column names to arrays.

    Numbers, integers and dates are float64, clipped to their bounds; a date is counted in days since
    its lower bound, and NaN means missing. Categories are int32 codes: positions in
    ``Column.levels``, where a missing cell has the level ``None``. (Integers are floats too because
    they may be missing, and every declared integer is a float exactly.)

    Attributes
    ----------
    start : int
        Number of rows of the table before this batch.
    n_rows : int
        Number of rows in this batch.
    ids : array of uint64 or None
        Fingerprint of each row's id; equal ids have equal fingerprints, and rows without an id have
        :data:`~discreet.tables.cell_encoding.NO_ID`. None unless requested.
    id_texts : array of bytes or None
        Ids themselves as UTF-8, empty where a row has none; None unless requested.
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
        """Store the arrays and the position of the batch."""
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
    """Table to read rows from, returned by :func:`open_table`; use it in a ``with`` statement.

    Attributes
    ----------
    label : str
        Name of the table in messages.
    names : tuple of str
        Names of its columns, in order.
    names_look_like_data : bool
        Whether the names were read from a line of text that may hold a person's cells: messages then show
        none of them.
    source : Source
        Source that the rows of the table are read from.
    """

    def __init__(self, source: Source) -> None:
        self.label = source.label
        self.names = tuple(source.names)
        self.names_look_like_data: bool = getattr(source, "names_look_like_data", False)
        self.source = source
        _check_names(self.names, self.label)

    def draft(self) -> TableDraft:
        """Return what the table says of itself: names and types, labels, and how its text is written.

        Taken from the table's own description, so that no cell is read. A text file has none: there types
        and formats, not bounds, are guessed from the first 20,480 rows, out of fixed lists.
        """
        return self.source.draft()

    def texts(self, most: int = 100_000) -> Iterator[tuple[str | None, ...]]:
        """Yield the first rows as texts, None for an empty cell; for public tables such as codebooks."""
        yield from read_texts(self.source, most)

    def extra(self, schema: Schema) -> tuple[str, ...]:
        """Return the columns that `schema` does not declare: never read, never published."""
        return tuple(name for name in self.names if name not in schema)

    def count(self) -> int:
        """Return the number of rows."""
        return self.source.count()

    def batches(
        self,
        schema: Schema,
        *,
        rows: int = ROWS,
        names: Container[str] | None = None,
        ids: bool = False,
        id_texts: bool = False,
        id_salt: str = "",
    ) -> Iterator[Batch]:
        """Return the declared columns, encoded, as an iterator over batches.

        Parameters
        ----------
        schema : Schema
            Declarations of the columns to read. Ids, dropped and undeclared columns are not read.
        rows : int
            Number of rows in a batch; the last may have fewer.
        names : container of str, optional
            Names of the declared columns that are read; None for all of them.
        ids : bool
            Whether to read ``schema.id_column`` too, into :attr:`Batch.ids`.
        id_texts : bool
            Whether to read the id as text too, into :attr:`Batch.id_texts`; needs ``ids``.
        id_salt : str
            Text that is hashed before an id; empty for fingerprints that other tables have too.

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
            cell. Numbers out of bounds are clipped without an error.
        """
        if rows < 1:
            raise ParameterError(f"Table.batches: rows must be at least 1, was {rows}.")
        columns = [column for column in schema.released if names is None or column.name in names]
        if not columns:
            raise SchemaError(
                "Table.batches: schema must have a released column, and has only ids and dropped ones. "
                "Give a column another role."
            )
        if ids:
            if schema.id_column is None:
                raise ParameterError(
                    "Table.batches: ids need a schema with an id_column, and it has none. Declare "
                    "which column tells the units apart."
                )
            columns.append(schema.column(schema.id_column))
        if isinstance(self.source, CsvSource):
            self.source.check_schema(schema)
        places = self.find_columns(columns)
        types = [self.source.sql_types[place] for place in places]
        # Built here once so that a declaration that does not fit is an error before anything is read.
        projection(columns, places, types, schema, "")
        return self._read_batches(
            schema, columns, places, types, rows=rows, ids=ids, id_texts=id_texts, id_salt=id_salt
        )

    def read_ids(self, schema: Schema, *, id_salt: str = "") -> Iterator[Words]:
        """Yield the fingerprints of ids, as :attr:`Batch.ids` has them, and read no other column.

        Parameters
        ----------
        schema, id_salt
            As for :meth:`batches`, with a schema that has an ``id_column``.
        """
        assert schema.id_column is not None
        columns = [schema.column(schema.id_column)]
        if isinstance(self.source, CsvSource):
            self.source.check_schema(schema)
        places = self.find_columns(columns)
        types = [self.source.sql_types[place] for place in places]
        for (ids,) in self._read_pieces(schema, columns, places, types, False, id_salt):
            yield ids

    def find_columns(self, columns: Sequence[Column]) -> list[int]:
        """Return the position of each column; raise SchemaError for those that are absent."""
        positions = {name: i for i, name in enumerate(self.names)}
        problems = [
            f"{self.label} must have the declared column {column.name!r}, and has not. "
            f"{self._suggest(column.name)}"
            for column in columns
            if column.name not in positions
        ]
        if problems:
            raise SchemaError(*problems)
        return [positions[column.name] for column in columns]

    def _suggest(self, name: str) -> str:
        """Return a hint about a column that is absent, without names that may be cells."""
        if self.names_look_like_data:
            return "Its first line looks like data: add a line of column names before it."
        close = nearest(name, self.names)
        return f"Did you mean {close!r}?" if close else f"It has {_list_names(self.names)}."

    def _read_batches(
        self,
        schema: Schema,
        columns: Sequence[Column],
        places: Sequence[int],
        types: Sequence[str],
        *,
        rows: int,
        ids: bool,
        id_texts: bool,
        id_salt: str,
    ) -> Iterator[Batch]:
        """Yield batches of ``rows`` rows from the pieces of the engine, numbers clipped."""
        start = 0
        with contextlib.closing(
            self._read_pieces(schema, columns, places, types, id_texts, id_salt)
        ) as pieces:
            for piece in resize(pieces, rows):
                texts = piece.pop() if id_texts else None
                fingerprints = piece.pop() if ids else None
                named = {
                    column.name: column.clip(values) if column.is_number else values
                    for column, values in zip(columns, piece, strict=False)
                }
                n_rows = len(piece[0])
                yield Batch(named, n_rows=n_rows, start=start, ids=fingerprints, id_texts=texts)
                start += n_rows

    def _read_pieces(
        self,
        schema: Schema,
        columns: Sequence[Column],
        places: Sequence[int],
        types: Sequence[str],
        id_texts: bool,
        id_salt: str,
    ) -> Generator[Piece]:
        """Yield arrays as the engine delivers them, every cell checked."""
        source = self.source
        start = getattr(source, "first_row", 0)  # rows before it are read by another process
        with translate_errors(source), source.scan(places) as (connection, relation):
            query = projection(columns, places, types, schema, relation, id_texts=id_texts, id_salt=id_salt)
            with contextlib.closing(read_stream(connection.sql(query).__arrow_c_stream__())) as stream:
                for piece, first_null in stream:
                    for column, values, null in zip(columns, piece, first_null, strict=False):
                        self._check_cells(column, schema.text_format(column), values, null, start)
                    yield piece
                    start += len(piece[0])

    def _check_cells(
        self, column: Column, text: TextFormat, values: AnyArray, null: int | None, start: int
    ) -> None:
        """Raise DataError at the first cell that does not fit, or is missing where one is required."""
        if null is not None:
            must, way_out = describe_fit(column, text)
            raise cell_error(self.source, column.name, start + null + 1, must, way_out)
        if not column.required or column.type == "id":
            return
        missing = values == MISSING_CODE if column.is_category else np.isnan(values)
        if missing.any():
            raise cell_error(
                self.source,
                column.name,
                start + int(missing.argmax()) + 1,
                "hold something",
                WAY_OUT_MISSING,
            )

    def close(self) -> None:
        """Close files and connections."""
        self.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


WAY_OUT_MISSING = "Declare required: false to publish that a cell is missing as one more value."


def describe_fit(column: Column, text: TextFormat) -> tuple[str, str]:
    """Return what a cell of a column must do to fit, and the way out for one that does not."""
    if column.is_category:
        return (
            "hold one of the declared values",
            "Complete the list, or declare closed: false to read the rest as 'other'.",
        )
    if column.type == "date":
        written = "like 2024-12-31" if text.date_format is None else f"written as {text.date_format}"
        return f"hold a date {written}", "Correct it, or list what stands for a missing cell there."
    if column.type == "datetime":
        written = "like 2024-12-31 23:59" if text.date_format is None else f"written as {text.date_format}"
        return f"hold a datetime {written}", "Correct it, or list what stands for a missing cell there."
    written = "" if text.decimal_char in (None, ".") else f" with {text.decimal_char!r} before decimals"
    if column.type == "integer":
        return (
            f"hold a whole number{written}",
            "Correct it, declare type: number, or list what stands for a missing cell.",
        )
    return (
        f"hold a number{written}",
        "Correct it, list what stands for a missing cell, or declare units or censored.",
    )


def open_table(source: Any, *, schema: Schema | None = None, header: bool | None = None) -> Table:
    """Open a table for reading.

    Parameters
    ----------
    source : path, URL, frame, DuckDB relation or mapping of arrays
        A file that ends in ``.csv``, ``.tsv``, ``.txt`` (also with ``.gz``), ``.parquet`` or ``.duckdb``; a
        folder or a pattern of Parquet files; ``duckdb://path/file.duckdb?table=name`` or the path with
        ``?table=name``; ``postgresql://host/database?table=schema.name``; a frame of pandas, polars or
        pyarrow; a DuckDB relation; a mapping of names to one-dimensional arrays.
    schema : Schema, optional
        Schema whose ``dialect`` says how a text file is written. None to find that out from the file, which
        only a draft may do.
    header : bool, optional
        Whether a text file has a line of names, where no schema says it; None to decide by its looks.

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
    from discreet.tables.encoded import EncodedTable

    if isinstance(source, EncodedTable):
        return source
    opened = _open_source(source, schema, header)
    try:
        return Table(opened)
    except SourceError:
        opened.close()
        raise


def _open_source(source: Any, schema: Schema | None, header: bool | None) -> Source:
    if isinstance(source, str) and source.startswith(tuple(f"{s}://" for s in SCHEMES)):
        return PostgresSource(source)
    if isinstance(source, str | os.PathLike):
        path, table = duckdb_address(source) if isinstance(source, str) else (Path(source), None)
        return open_file(path, table=table, schema=schema, header=header)
    return open_memory(source)


def list_files(source: str | os.PathLike[str]) -> list[Path] | None:
    """Return the files, by absolute path, that a table is read from; None for a table in a server."""
    if isinstance(source, str) and source.startswith(tuple(f"{s}://" for s in SCHEMES)):
        return None
    path = (duckdb_address(source)[0] if isinstance(source, str) else Path(source)).absolute()
    return list_parquet(path, f"The files {str(path)!r}")


_STORE = "An object store is not read: copy the files to a private folder first, as with `{}`, and name it."
_WAREHOUSE = (
    "A warehouse is not read: export the declared columns to Parquet files in a private folder, and name it."
)
_DATABASE = (
    "Of database servers, PostgreSQL alone is read: export the declared columns to a Parquet or CSV file in "
    "a private folder, and name it."
)
_STAGING = (
    (("s3://", "s3a://", "s3n://"), _STORE.format("aws s3 sync")),
    (("gs://", "gcs://"), _STORE.format("gcloud storage rsync -r")),
    (
        ("abfs://", "abfss://", "az://", "azure://", "adl://", "wasb://", "wasbs://"),
        _STORE.format("azcopy copy --recursive"),
    ),
    (("file://",), "Leave out file://, and give the path alone."),
    (("mysql:", "mariadb:", "oracle:", "mssql:", "sqlite:", "mongodb:", "jdbc:"), _DATABASE),
    (("hdfs://",), _STORE.format("hdfs dfs -get")),
    (("snowflake://", "bigquery://", "redshift://", "trino://", "databricks://"), _WAREHOUSE),
    (
        ("delta://", "iceberg://"),
        "Delta and Iceberg tables are read through Spark: spark://local?table=name.",
    ),
    (("spark://",), "Tables in Spark are for queries, and for releases with --engine spark."),
)
"""How to bring tables that are not read from where they are to a place that is."""


def duckdb_address(text: str) -> tuple[Path, str | None]:
    """Return path and table of ``duckdb://path?table=name`` or ``path?table=name``; None for no table."""
    is_url = text.startswith("duckdb://")
    text = text.removeprefix("duckdb://")
    place, mark, query = text.rpartition("?")
    if not mark or not query.startswith("table="):
        place, query = text, ""
    table = parse_qs(query).get("table", [None])[0]
    scheme = place.partition("://")[0] if "://" in place else None
    if scheme or not place or "\0" in place:
        shown = re.sub("//[^/]*@", "//", place)[:40]  # without user and password
        way_out = next(
            (text for start, text in _STAGING if place.lower().startswith(start)), "Download the file first."
        )
        raise SourceError(
            f"A table must be given by a path, duckdb:// or postgresql://, was {shown!r}. {way_out}"
        )
    return Path(unquote(place) if is_url else place), table


def _check_names(names: Sequence[str], label: str) -> None:
    """Raise SourceError unless every column has a name, each once."""
    seen: dict[str, int] = {}
    for place, name in enumerate(names, 1):
        if not name.strip():
            raise SourceError(
                f"{label} must have a name for every column, and column {place} has none. Name it, "
                "or write the file without row numbers (index=False in pandas); if the first line of a file "
                "holds a row, declare dialect: {header: false}."
            )
        if name in seen:
            # By position: without a header, the names of a text file are the cells of a person.
            raise SourceError(
                f"{label} must have each column once, and columns {seen[name]} and {place} have the same "
                "name. Rename one of them; if the first line of a file is data, add a line of names before "
                "it."
            )
        seen[name] = place


def _list_names(names: Sequence[str], most: int = 8) -> str:
    listed = ", ".join(repr(name[:40]) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"
