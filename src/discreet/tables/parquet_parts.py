"""Parts of a table in Parquet files: runs of rows that separate processes read, and files that hold them."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import SourceError
from discreet.tables.duckdb import connect, identifier, quote_path
from discreet.tables.files import ParquetSource
from discreet.tables.sources import DuckSource
from discreet.tables.table import ROWS, Table
from discreet.tables.writers import write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from discreet._types import AnyArray
    from discreet.schema import Schema
    from discreet.tables.table import Batch
    from discreet.tables.writers import Batches, Layout

PART_ROWS = 16 * ROWS
"""Number of rows in a part of a table that is not very long: about a million."""
_POSITION = "file_row_number"
"""Name by which DuckDB calls the position of a row in its file."""


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One file of a table.

    Attributes
    ----------
    path : str
        Absolute path, the same on every machine that reads it.
    n_rows : int
        Number of rows by the footer.
    """

    path: str
    n_rows: int


@dataclass(frozen=True, slots=True)
class ParquetParts:
    """Files of a table in the order in which it is read, of which any run of rows can be read alone.

    Attributes
    ----------
    label : str
        Name of the table in messages.
    names : tuple of str
        Names of the columns, those of folders such as ``year=2024`` last.
    folder_types : tuple of (str, str)
        Name and SQL type of each column that the names of folders hold.
    files : tuple of ParquetFile
        Files in the order of their names.
    """

    label: str
    names: tuple[str, ...]
    folder_types: tuple[tuple[str, str], ...]
    files: tuple[ParquetFile, ...]

    @classmethod
    def from_path(cls, path: str | Path) -> ParquetParts:
        """List a Parquet file, the files of a folder, or those of a pattern; only footers are read.

        Raises
        ------
        SourceError
            There are no such files, or they differ in the names or types of their columns.
        """
        with contextlib.closing(ParquetSource(Path(path))) as source:
            names = tuple(source.names)
            own = len(names) - source.n_folder_columns
            folder_types = tuple(zip(names[own:], tuple(source.sql_types)[own:], strict=True))
            label, paths = source.label, source.files
            count = source.read_counts()
        if any(name.lower() == _POSITION for name in names):
            raise SourceError(
                f"{label} must have no column {_POSITION!r}, by which the engine numbers rows. Rename it."
            )
        files = (ParquetFile(str(path.absolute()), n_rows) for path, n_rows in zip(paths, count, strict=True))
        parts = cls(label, names, folder_types, tuple(files))
        types: tuple[str, ...] = ()
        for file in parts.files:
            with contextlib.closing(ParquetRows(parts, [(file, 0, file.n_rows)])) as rows:
                types = types or tuple(rows.sql_types)
                if tuple(rows.sql_types) != types:
                    place = next(i for i, sql_type in enumerate(types) if rows.sql_types[i] != sql_type)
                    raise SourceError(
                        f"{label} must have the same types in each file, and {names[place]!r} is "
                        f"{rows.sql_types[place]} in {Path(file.path).name!r} and {types[place]} in "
                        f"{Path(parts.files[0].path).name!r}. Write the files again alike."
                    )
        return parts

    @property
    def n_rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.n_rows for file in self.files)

    def open_rows(self, start: int, stop: int) -> Table:
        """Open the rows from `start` up to `stop`, in the order of the whole table."""
        ends = [0, *accumulate(file.n_rows for file in self.files)]
        runs = [
            (file, max(start - first, 0), min(stop, last) - first)
            for file, (first, last) in zip(self.files, pairwise(ends), strict=True)
            if first < stop and last > start
        ]
        return Table(ParquetRows(self, runs, first_row=start))

    def read_batches(self, schema: Schema, first: int, last: int) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of the whole table from number `first` up to `last`, each with its number.

        They have fingerprints of ids where the schema has an id column.
        """
        with self.open_rows(first * ROWS, min(last * ROWS, self.n_rows)) as table:
            yield from enumerate(table.batches(schema, ids=schema.id_column is not None), first)


class ParquetRows(DuckSource):
    """Runs of rows of Parquet files, read by one thread.

    Parameters
    ----------
    parts : ParquetParts
        Table that the files belong to.
    runs : sequence of (ParquetFile, int, int)
        Files in order, each with the first row that is read and the one after the last.
    first_row : int
        Number of rows of the table before the first one, for messages.
    """

    def __init__(
        self, parts: ParquetParts, runs: Sequence[tuple[ParquetFile, int, int]], *, first_row: int = 0
    ) -> None:
        """Select the runs one after the other, by the position of each row in its file."""
        self.first_row = first_row
        declared = ", ".join(f"{identifier(name)}: {sql}" for name, sql in parts.folder_types)
        folders = f"true, hive_types={{{declared}}}" if declared else "false"
        # One thread: as many tasks as a machine has processors run beside each other.
        connection = connect().execute("SET threads = 1")
        # By name: the order of columns may differ between files. Of names that differ by case alone, which
        # DuckDB would take for one, it is the same.
        listed = ", ".join(map(identifier, parts.names))
        selected = listed if len({name.lower() for name in parts.names}) == len(parts.names) else "*"
        selects = [
            f"SELECT {selected} FROM read_parquet({quote_path(Path(file.path))}, "  # noqa: S608 - quoted
            f"hive_partitioning={folders}) WHERE {_POSITION} >= {start} AND {_POSITION} < {stop}"
            for file, start, stop in runs
        ]
        relation = f"({' UNION ALL '.join(selects)})"
        super().__init__(connection, relation, label=parts.label, names=parts.names)


def write_parts(target: str | Path, layout: Layout, batches: Batches) -> int:
    """Write batches to the files part-00000.parquet and so on of a new folder; return the number of rows.

    Parameters
    ----------
    target : path
        Folder that is made; removed again if something fails.
    layout : Schema or sequence of Field or Column
        Columns to write, as for :func:`~discreet.tables.write_table`.
    batches : iterable of mappings of str to array
        Batches, read once and one at a time; a part ends with the batch that has its last row.
    """
    folder = Path(target)
    folder.mkdir()
    try:
        arriving, number, n_rows = iter(batches), 0, 0
        first = next(arriving, None)
        # A table without rows has one part too, which has its columns.
        while first is not None or not number:
            n_rows += write_table(folder / part_name(number), layout, _take_part(first, arriving))
            first, number = next(arriving, None), number + 1
    except BaseException:
        # Also when interrupted: a folder that lacks parts must not be taken for the table.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return n_rows


def _take_part(first: Mapping[str, AnyArray] | None, arriving: Iterator[Any]) -> Iterator[Any]:
    """Yield batches until there are as many rows as a part has."""
    batch, n_rows = first, 0
    while batch is not None:
        yield batch
        n_rows += len(next(iter(batch.values())))
        batch = next(arriving, None) if n_rows < PART_ROWS else None


def part_name(number: int) -> str:
    """Return the name of a part in the folder of a table."""
    return f"part-{number:05d}.parquet"
