"""Writing of batches to Parquet, CSV, DuckDB or PostgreSQL, whole or not at all."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import duckdb
import numpy as np

from discreet.errors import ParameterError, SchemaError, SourceError
from discreet.file_system import sync_to_disk
from discreet.schema import Column, Schema
from discreet.tables.arrow import ArrayStream
from discreet.tables.duckdb import connect, connect_shared, identifier, literal, run_over, split_table_name
from discreet.tables.external_sort import sort_by_words
from discreet.tables.files import attach
from discreet.tables.postgres import SCHEMES, write_postgres
from discreet.tables.table import ROWS, duckdb_address
from discreet.tables.temporary import lock, lock_leftover

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import AnyArray, Ints

Layout: TypeAlias = Schema | Sequence["Field | Column"]
Batches: TypeAlias = Iterable[Mapping[str, "AnyArray"]]

_NO_INTEGER = np.iinfo(np.int64).min  # missing cell in an array of integers for the engine
_FORMATS = {
    ".parquet": "FORMAT parquet, COMPRESSION zstd",
    ".csv": "FORMAT csv, HEADER true, DELIMITER ',', COMPRESSION none",
    ".csv.gz": "FORMAT csv, HEADER true, DELIMITER ',', COMPRESSION gzip",
}
_DATABASES = (".duckdb", ".db")
_OPEN_FILES = Path("/dev/fd")
_SQL_TYPES = {"number": "DOUBLE", "integer": "BIGINT", "date": "DATE", "datetime": "TIMESTAMP"}
_POSTGRES_TYPES = {"DOUBLE": "double precision", "VARCHAR": "text"}
_serial = itertools.count()
_LARGEST_GROUP = 122_880  # rows, the engine's own default
_GROUP_BYTES = 2**26  # of numbers in a row group, which the engine holds in memory until it is full
_VECTOR = 2048  # rows that the engine works on at once; it ends row groups at multiples of it
_LARGEST_PIECE = _LARGEST_GROUP // 6


def row_group_size(n_columns: int) -> int:
    """Return the number of rows in a row group of Parquet, which follows from the number of columns."""
    return max(_VECTOR, min(_LARGEST_GROUP, _GROUP_BYTES // (8 * n_columns) // _VECTOR * _VECTOR))


def is_wide(n_columns: int) -> bool:
    """Return whether a table has so many columns that one thread alone may hold rows of it."""
    return row_group_size(n_columns) < _LARGEST_GROUP


@dataclass(frozen=True, slots=True)
class Field:
    """Column of a written table.

    Parameters
    ----------
    name : str
        Name of the column in the written table.
    type : {"number", "integer", "date", "datetime", "category"}
        Type of the written cells. Batches hold floats for the first four, NaN where a cell
        is missing, and codes for a category.
    levels : tuple
        Levels of a category in the order of their codes; None for a missing cell.
    origin : datetime.date, optional
        Date or datetime from which the steps of such a column are counted; None for other types.
    step : timedelta
        Step in which dates and datetimes are counted.
    """

    name: str
    type: Literal["number", "integer", "date", "datetime", "category"] = "number"
    levels: tuple[str | int | bool | None, ...] = ()
    origin: datetime.date | None = None
    step: datetime.timedelta = datetime.timedelta(days=1)

    @classmethod
    def from_column(cls, column: Column) -> Field:
        """Return the field for a column as it was declared."""
        if column.is_category:
            return cls(column.name, "category", levels=tuple(column.levels))
        if column.type in ("date", "datetime"):
            assert isinstance(column.lower, datetime.date)
            return cls(column.name, column.type, origin=column.lower, step=column.step_length)
        return cls(column.name, "integer" if column.type == "integer" else "number")

    @property
    def sql_type(self) -> str:
        """DuckDB type of the column."""
        if self.type != "category":
            return _SQL_TYPES[self.type]
        kinds = {type(level) for level in self.levels if level is not None}
        if kinds == {bool}:
            return "BOOLEAN"
        return "BIGINT" if kinds == {int} else "VARCHAR"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the array that is passed to the engine."""
        dtypes = {"number": np.float64, "category": np.int32}
        return np.dtype(dtypes.get(self.type, np.int64))

    def expression(self, cell: str) -> str:
        """Return the SQL that turns an entry of the array into the written cell."""
        if self.type == "number":
            return f"CASE WHEN NOT isnan({cell}) THEN {cell} END"
        if self.type == "category":
            kind = self.sql_type
            write = literal if kind == "VARCHAR" else str
            levels = ["NULL" if level is None else write(str(level)) for level in self.levels]
            return f"CAST([{', '.join(levels)}] AS {kind}[])[{cell} + 1]"
        present = f"nullif({cell}, {_NO_INTEGER})"
        if self.type == "integer":
            return present
        return moment_expression(present, self.origin, self.step)

    def convert(self, values: AnyArray) -> AnyArray:
        """Return an array of a batch, checked and converted to :attr:`dtype`."""
        values = np.asarray(values)
        if self.type == "number":
            return values.astype(np.float64, copy=False)
        if self.type == "category":
            if values.dtype.kind not in "iub" or not _is_within(values, 0, len(self.levels) - 1):
                raise ParameterError(
                    f"write_table: column {self.name!r} must hold codes from 0 to "
                    f"{len(self.levels) - 1}, and holds something else. Map it to its levels first."
                )
            return values.astype(np.int32, copy=False)
        whole = _to_integers(values)
        low, high = _NO_INTEGER + 1, -(_NO_INTEGER + 1)
        if self.origin is not None:
            kind = type(self.origin)
            low, high = ((end - self.origin) // self.step for end in (kind.min, kind.max))
        if whole is None or not _is_within(whole[whole != _NO_INTEGER], low, high):
            raise ParameterError(
                f"write_table: column {self.name!r} must hold whole numbers to be written as "
                f"{self.type}, and holds others. Write it as a number: Field({self.name!r})."
            )
        return whole


def moment_expression(steps: str, origin: datetime.date | None, step: datetime.timedelta) -> str:
    """Return the SQL for a number of steps since a date or datetime as such."""
    assert origin is not None
    if isinstance(origin, datetime.datetime):
        return f"TIMESTAMP '{origin}' + to_seconds({steps} * {step // datetime.timedelta(seconds=1)})"
    return f"DATE '{origin}' + CAST({steps} AS INTEGER)"


def _to_integers(values: AnyArray) -> Ints | None:
    """Return floats as int64 with a placeholder for NaN; None if one is not whole or does not fit."""
    if values.dtype.kind in "iub":
        return values.astype(np.int64) if _is_within(values, _NO_INTEGER + 1, 2**63 - 1) else None
    missing = np.isnan(values)
    present = np.where(missing, 0.0, values)
    if not (np.abs(present) < 2.0**63).all() or (present != np.rint(present)).any():
        return None
    return np.where(missing, _NO_INTEGER, present.astype(np.int64))


def _is_within(values: AnyArray, low: int, high: int) -> bool:
    return len(values) == 0 or bool(low <= int(values.min()) and int(values.max()) <= high)


def write_table(
    target: str | os.PathLike[str],
    layout: Layout,
    batches: Batches,
    *,
    replace: bool = False,
    order_by: str | None = None,
) -> int:
    """Write batches to a table, whole or not at all.

    Parameters
    ----------
    target : path or URL
        A file that ends in ``.parquet``, ``.csv`` or ``.csv.gz``;
        ``duckdb://path/file.duckdb?table=name``; ``postgresql://host/database?table=schema.name``;
        ``/dev/fd/N``, an open file, which becomes Parquet and need not have a name.
    layout : Schema or sequence of Field or Column
        Columns to write, in order. A schema stands for its released columns.
    batches : iterable of mappings of str to array
        Batches, read once and one at a time: numbers as floats (NaN is missing), dates as days since
        their origin, categories as codes.
    replace : bool
        Whether the new table may replace an existing one.
    order_by : str, optional
        Name of a further column of 64-bit words in each batch, by which rows are sorted and which is not
        written; None keeps the order. Rows that do not fit into memory are sorted in files without a name
        on the target's disk.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    SourceError
        If it cannot be written. Then nothing new is left behind, and an existing table is unchanged.

    Notes
    -----
    A file is written beside the target under a name that starts with a dot, flushed to disk, and
    renamed: a reader sees the old state or the new one, even if the process is killed. Numbers
    keep every bit. A missing cell is NULL, and empty in CSV.
    """
    fields = _layout_fields(layout)
    text = os.fspath(target)
    writer = _Writer(fields, batches, order_by)
    if text.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        _check_lengths(fields)
        columns = [(f.name, _POSTGRES_TYPES.get(f.sql_type, f.sql_type)) for f in fields]
        return write_postgres(text, columns, writer.copy_csv, replace=replace)
    check_target(target, replace=replace)
    path, table = duckdb_address(text)
    if path.suffix.lower() in _DATABASES:
        return _write_duckdb(path, table, writer, replace=replace)
    if path.parent == _OPEN_FILES:
        return writer.copy(str(path), _FORMATS[".parquet"])
    (form,) = (form for end, form in _FORMATS.items() if path.name.lower().endswith(end))
    with _write_atomically(path) as draft:
        return writer.copy(str(draft), form, draft.absolute().parent)


def check_target(target: str | os.PathLike[str], *, replace: bool) -> None:
    """Raise an error for a target that, by its name and folder, cannot be written: before any charge."""
    text = os.fspath(target)
    if text.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        return
    path, table = duckdb_address(text)
    if path.parent == _OPEN_FILES:
        return
    folder = path.absolute().parent
    if not folder.is_dir():
        raise SourceError(
            f"write_table: target must be in a folder that exists, and {str(folder)!r} does not. "
            "Make it first."
        )
    if path.suffix.lower() in _DATABASES:
        return
    if table is not None or not path.name.lower().endswith(tuple(_FORMATS)):
        raise ParameterError(
            "write_table: target must end in .parquet, .csv or .csv.gz, or be "
            f"file.duckdb?table=name or a postgresql:// URL, was {path.name!r}."
        )
    if path.exists() and not replace:
        raise SourceError(f"The file {str(path)!r} exists already. Remove it, or pass replace=True.")


def _layout_fields(layout: Layout) -> list[Field]:
    """Return the fields of a layout; raise an error unless their names differ by more than case."""
    given: Sequence[Field | Column] = layout.released if isinstance(layout, Schema) else layout
    fields = [item if isinstance(item, Field) else Field.from_column(item) for item in given]
    if not fields or any(not field.name for field in fields):
        raise ParameterError("write_table: layout must have at least one column, all with names.")
    folded: dict[str, str] = {}
    for field in fields:
        twin = folded.get(field.name.lower())
        if twin is not None:
            raise SchemaError(
                f"write_table: column names must differ by more than case to be written, and "
                f"{twin!r} and {field.name!r} do not. Rename one of them."
            )
        folded[field.name.lower()] = field.name
    return fields


def _check_lengths(fields: Sequence[Field]) -> None:
    for field in fields:
        if len(field.name.encode()) > 63:
            raise SchemaError(
                f"write_table: column names must be at most 63 bytes long for PostgreSQL, and "
                f"{field.name[:20]!r}... has {len(field.name.encode())}. Rename it."
            )


class _Writer:
    """Writer of one sequence of batches through a COPY or INSERT of the engine."""

    def __init__(self, fields: Sequence[Field], batches: Batches, order_by: str | None) -> None:
        self._fields = fields
        self._batches = batches
        self._order_by = order_by
        cells = [f"{field.expression(f'f{i}')} AS {identifier(field.name)}" for i, field in enumerate(fields)]
        self.select = f"SELECT {', '.join(cells)} FROM batches"  # noqa: S608 - quoted

    def _arrays(self, folder: Path | None) -> Iterator[list[AnyArray]]:
        batches = self._check_batches()
        in_order = batches if self._order_by is None else sort_by_words(batches, folder)
        # Pieces that fill a row group, so that the engine ends it where it should.
        return _resize_batches(in_order, math.gcd(_LARGEST_PIECE, row_group_size(len(self._fields))))

    def _check_batches(self) -> Iterator[list[AnyArray]]:
        """Yield the columns of each batch, checked and converted, the words for sorting last."""
        names = {field.name for field in self._fields}
        if self._order_by is not None:
            names.add(self._order_by)
        for batch in self._batches:
            if set(batch) != names:
                odd = ", ".join(map(repr, sorted(names.symmetric_difference(batch))))
                raise ParameterError(
                    f"write_table: batches must have the columns of the layout, and differ in {odd}."
                )
            columns = [field.convert(batch[field.name]) for field in self._fields]
            if self._order_by is not None:
                columns.append(np.asarray(batch[self._order_by], np.uint64))
            if any(values.shape != columns[0].shape[:1] for values in columns):
                raise ParameterError(
                    "write_table: columns of a batch must be vectors of one length, and are not."
                )
            if len(columns[0]):
                yield columns

    def run(
        self, connection: duckdb.DuckDBPyConnection, command: str, label: str, folder: Path | None
    ) -> int:
        """Run a command that selects from ``batches``; return the number of rows."""
        dtypes = {f"f{i}": field.dtype for i, field in enumerate(self._fields)}
        stream = ArrayStream(dtypes, lambda: self._arrays(folder))
        try:
            (written,) = run_over(connection, command, "batches", stream)
            return int(written)
        except (duckdb.Error, OSError) as problem:
            # OSError: the disk of the target, or the one on which rows are sorted.
            message, kind = str(problem), type(problem).__name__
        full = "No space left" in message or "File too large" in message
        raise SourceError(
            f"{label} cannot be written: the disk is full. Make room and try again."
            if full
            else f"{label} cannot be written: the engine stopped with {kind}. Check the folder."
        )

    def copy(self, file: str, options: str, folder: Path | None = None) -> int:
        """Write to a file; rows are sorted on the disk of `folder`, or of the system's temporary folder."""
        rows = row_group_size(len(self._fields))
        if options == _FORMATS[".parquet"]:
            options += f", ROW_GROUP_SIZE {rows}"
        with contextlib.closing(self._connect()) as connection:
            if is_wide(len(self._fields)):
                # Each thread holds buffers for every column of a row group.
                connection.execute("SET GLOBAL threads = 1")
            command = f"COPY ({self.select}) TO {literal(file)} ({options}, USE_TMP_FILE false)"
            return self.run(connection, command, f"The file {file!r}", folder)

    def _connect(self) -> duckdb.DuckDBPyConnection:
        """Return a connection to write by: to the shared instance for a single batch, or to a new one."""
        batches = iter(self._batches)
        first = list(itertools.islice(batches, 2))
        self._batches = itertools.chain(first, batches)
        is_small = len(first) < 2 and all(np.size(cells) <= ROWS for one in first for cells in one.values())
        return connect_shared() if is_small else connect()

    def copy_csv(self, file: str) -> int:
        """Write CSV text without a header, for PostgreSQL."""
        return self.copy(file, "FORMAT csv, HEADER false, COMPRESSION none")


def _resize_batches(batches: Iterable[list[AnyArray]], size: int) -> Iterator[list[AnyArray]]:
    """Yield the rows again in pieces of one size, but for the last: the same rows give the same file.

    The engine ends a row group where a batch ends, so that otherwise the file would reveal the batches.
    """
    waiting: list[list[AnyArray]] = []
    count = 0
    for batch in batches:
        start = 0
        while start < len(batch[0]):
            piece = [values[start : start + size - count] for values in batch]
            waiting.append(piece)
            count += len(piece[0])
            start += len(piece[0])
            if count == size:
                yield [np.concatenate(parts) for parts in zip(*waiting, strict=True)]
                waiting, count = [], 0
    if waiting:
        yield [np.concatenate(parts) for parts in zip(*waiting, strict=True)]


@contextlib.contextmanager
def _write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`, and rename it to `path` if no error occurs."""
    with _explain_errors(path):
        _remove_leftovers(path)
        draft, locked = _create_draft(path)
    try:
        yield draft
        with _explain_errors(path):
            sync_to_disk(draft)
            draft.replace(path)
            sync_to_disk(path.absolute().parent)
    finally:
        draft.unlink(missing_ok=True)
        os.close(locked)


def _create_draft(path: Path) -> tuple[Path, int]:
    """Create an empty draft of a target; return it with the handle that holds its lock."""
    while True:
        draft = path.with_name(f".{path.name}.{os.getpid()}-{next(_serial)}.partial")
        with contextlib.suppress(FileExistsError):
            draft.open("xb").close()
            # Another writer may have removed it as a leftover before it was locked.
            locked = lock(draft, folder=False)
            if locked is not None:
                return draft, locked


def _remove_leftovers(path: Path) -> None:
    """Remove drafts that killed writers of the same target left."""
    drafts = re.compile(rf"\.{re.escape(path.name)}\.\d+-\d+\.partial")
    for leftover in path.absolute().parent.iterdir():
        if drafts.fullmatch(leftover.name):
            locked = lock_leftover(leftover, folder=False)
            if locked is not None:
                leftover.unlink(missing_ok=True)
                os.close(locked)


@contextlib.contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise SourceError(
            f"The file {str(path)!r} cannot be written ({problem.strerror}). Check that its folder "
            "may be written to and has room."
        ) from None


def _write_duckdb(path: Path, table: str | None, writer: _Writer, *, replace: bool) -> int:
    """Write a table of a DuckDB file; a file created for it is removed again on failure."""
    if table is None:
        raise ParameterError(
            f"write_table: target must name a table, as in {path.name}?table=name, and does not."
        )
    parts = split_table_name(table)
    if len(parts) > 2:
        raise ParameterError(f"write_table: the table must be name or schema.name, was {table!r}.")
    schema, name = ["main", *parts][-2:]
    full_name = f"attached.{identifier(schema)}.{identifier(name)}"
    label = f"The table {name!r} of {str(path)!r}"
    fresh = not path.exists()
    try:
        with contextlib.closing(connect()) as connection:
            problem = attach(connection, path, "READ_WRITE")
            if problem is not None:
                raise SourceError(f"The file {str(path)!r} {problem}")
            here = "database_name = 'attached' AND lower(schema_name) = lower(?)"
            if not connection.execute(f"FROM duckdb_schemas() WHERE {here}", [schema]).fetchall():
                raise SourceError(f"{label} must be in a schema that exists. Create {schema!r} first.")
            existing = connection.execute(
                f"FROM duckdb_tables() WHERE {here} AND lower(table_name) = lower(?)",
                [schema, name],
            ).fetchall()
            if existing and not replace:
                raise SourceError(f"{label} exists already. Drop it, or pass replace=True.")
            command = f"CREATE OR REPLACE TABLE {full_name} AS {writer.select}"
            written = writer.run(connection, command, label, path.absolute().parent)
            connection.execute("DETACH attached")
            return written
    except BaseException:
        # Also when interrupted: no incomplete file is left behind.
        if fresh:
            for leftover in (path, path.with_name(path.name + ".wal")):
                leftover.unlink(missing_ok=True)
        raise
