"""Sources in files by the end of their names; Parquet files and folders, and DuckDB databases."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.errors import SourceError
from discreet.tables.duckdb import (
    check_readable,
    connect,
    connect_for,
    identifier,
    literal,
    quote_path,
    split_table_name,
)
from discreet.tables.foreign_files import EXCEL, STATISTICS, SheetSource, StatisticsSource
from discreet.tables.sources import DuckSource, Source
from discreet.tables.text_files import CsvSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from discreet.schema import Schema

_PARQUET = (".parquet", ".pq")
_TEXT = (".csv", ".tsv", ".tab", ".txt")
# What lies beside the files of a table and holds none of its rows.
_CHECKSUMS = (".crc", ".md5", ".sha1", ".sha256", ".sha512")
_PACKED = (".bz2", ".gz", ".lz4", ".xz", ".zip", ".zst", ".7z")
_NO_TYPE = '"NULL"'
_SMALL_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"}
_INTEGERS = _SMALL_INTEGERS | {"BIGINT", "UBIGINT", "HUGEINT"}
_EXACT_AS_DOUBLE = _SMALL_INTEGERS | {"FLOAT", "DOUBLE"}
_SMALLEST_PARQUET = 12  # two marks and the length of a footer
# Logs in the folder of a table that decide which of its Parquet files, and which of their rows, are current.
_TABLE_LOGS = {
    "_delta_log": "a Delta",
    "metadata/v[0-9]*.metadata.json*": "an Iceberg",
    "metadata/[0-9]*-*.metadata.json*": "an Iceberg",
    ".hoodie": "a Hudi",
}


class ParquetSource(DuckSource):
    """A Parquet file, the files of a folder and of the folders in it, or those that match a pattern.

    Several files are read in the order of their names, and must have the same columns, in any order. Where
    the types of a column differ, one of them must hold the cells of all exactly, as BIGINT those of INTEGER.
    Folders named ``year=2024`` add a column ``year``.

    Attributes
    ----------
    files : list of Path
        Files in the order in which they are read.
    n_folder_columns : int
        Number of columns, the last ones, that come from the names of folders.
    """

    def __init__(self, path: Path) -> None:
        """Check the marks at both ends of each file, and read their column names."""
        label = f"The {'file' if path.is_file() else 'folder' if path.is_dir() else 'files'} {str(path)!r}"
        self.files = files = list_parquet(path, label)
        check_no_log(files, label)
        for file in files:
            _check_marks(file, label if len(files) == 1 else f"The file {str(file)!r}")
        parts = "=" in str(files[0].parent.relative_to(path)) if path.is_dir() else False
        connection, file_names = connect_for(files), ", ".join(map(quote_path, files))
        # By position DuckDB would round all numbers to the type of the first file.
        options = f"hive_partitioning={'true' if parts else 'false'}, union_by_name=true"
        relation = f"read_parquet([{file_names}], {options})"
        super().__init__(connection, relation, label=label)
        types = [self._read_columns(connection, quote_path(file)) for file in files]
        own = [[name for name, _ in columns] for columns in types]
        place = next((i for i, names in enumerate(own) if not _are_alike(names, own[0])), None)
        if place is not None:
            connection.close()
            raise SourceError(
                f"{label} must have the same columns in each file, and {files[place].name!r} has others than "
                f"{files[0].name!r}. Write them again alike, or name fewer files."
            )
        fault = self._find_mixed_types(connection, [dict(columns) for columns in types])
        if fault is not None:
            connection.close()
            raise SourceError(
                f"{label} must have the same types in each file, and {fault}. Write the files again alike."
            )
        self.n_folder_columns = len(self.names) - len(own[0])
        self.names = [*own[0], *list(self.names)[len(own[0]) :]]

    def read_counts(self) -> list[int]:
        """Return the number of rows of each file, by its footer."""
        listed = ", ".join(map(quote_path, self.files))
        with self.translate_errors(), self._cursor() as cursor:
            query = f"SELECT num_rows FROM parquet_file_metadata([{listed}])"  # noqa: S608 - quoted
            return [int(count) for (count,) in cursor.execute(query).fetchall()]

    def _read_columns(self, connection: DuckDBPyConnection, file_name: str) -> list[tuple[str, str]]:
        """Return the names and types of the top-level columns as the file has them.

        DuckDB, for which names that differ by case alone are equal, would rename the second.
        """
        with self.translate_errors():
            rows = connection.execute(
                f"SELECT name, duckdb_type, coalesce(num_children, 0) FROM parquet_schema({file_name})"  # noqa: S608 - quoted
            ).fetchall()
        columns: list[tuple[str, str]] = []
        nested = 0  # following fields that belong to the column before
        for name, sql_type, children in rows[1:]:
            if nested:
                nested += children - 1
            else:
                columns.append((name, sql_type))
                nested = children
        return columns

    def _find_mixed_types(
        self, connection: DuckDBPyConnection, columns: Sequence[Mapping[str, str]]
    ) -> str | None:
        """Return in words where two files have types of a column of which neither holds all cells exactly.

        Parameters
        ----------
        connection : DuckDBPyConnection
            Connection that reads the statistics in the files.
        columns : sequence of mapping
            For each file, the types of its columns.
        """
        for name in columns[0]:
            # Files without any cell of a column, as pandas writes them, say nothing about its type.
            types = {i: each[name] for i, each in enumerate(columns) if each[name] != _NO_TYPE}
            kinds = set(types.values())
            if len(kinds) < 2 or kinds <= _INTEGERS:
                continue
            wide = [
                i
                for i, sql_type in types.items()
                if sql_type not in _EXACT_AS_DOUBLE
                and not (sql_type == "BIGINT" and self._is_exact_as_double(connection, self.files[i], name))
            ]
            if "DOUBLE" in kinds and not wide:
                continue
            # The file that cannot be read with the others, where there is one.
            first = wide[0] if "DOUBLE" in kinds else min(types)
            other = next(i for i, sql_type in types.items() if sql_type != types[first])
            return (
                f"{name!r} is {types[other]} in {self.files[other].name!r} and {types[first]} in "
                f"{self.files[first].name!r}"
            )
        return None

    def _is_exact_as_double(self, connection: DuckDBPyConnection, file: Path, name: str) -> bool:
        """Return whether the statistics of a column of whole numbers bound them by 2^53."""
        ends = f"SELECT stats_min_value, stats_max_value FROM parquet_metadata({quote_path(file)})"  # noqa: S608
        with self.translate_errors():
            bounds = connection.execute(f"{ends} WHERE path_in_schema = ?", [name]).fetchall()
        return all(end is not None and abs(int(end)) <= 2**53 for ends in bounds for end in ends)


def _are_alike(names: list[str], others: list[str]) -> bool:
    """Return whether two files have the same columns; those that differ by case alone in the same order."""
    folded = {name.lower() for name in names}
    return names == others or (len(folded) == len(names) and sorted(names) == sorted(others))


def list_parquet(path: Path, label: str) -> list[Path]:
    """Return the Parquet files that a path names, in the order of their names; refuse rows in other files."""
    if path.is_dir():
        found = sorted(
            file
            for file in path.rglob("*")
            if not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts)
        )
        _check_all_read(found, label)
        found = [file for file in found if file.is_file()]
        files = [file for file in found if file.suffix.lower() in _PARQUET]
        others = [file for file in found if file.suffix.lower() not in (*_PARQUET, *_CHECKSUMS)]
    elif path.exists() or not glob.has_magic(str(path)):
        return [path]
    else:
        root = Path(path.anchor)
        files = sorted(root.glob(str(path.relative_to(root)) if path.anchor else str(path)))
        others = [file for file in files if _is_text(file)]
    if others:
        check_no_log(files, label)
        # Its rows would be left out without a word.
        raise SourceError(
            f"{label} must hold Parquet files alone, and {str(others[0])!r} is none. "
            + (
                "Several text files are no table here: write them into one Parquet file, as with DuckDB's "
                "COPY (FROM read_csv('FOLDER/*.csv')) TO 'table.parquet', or join them into one text file."
                if _is_text(others[0])
                else "Write it as Parquet, move it elsewhere, or give a pattern that leaves it out, such as "
                "'FOLDER/*.parquet'."
            )
        )
    if not files:
        raise SourceError(f"{label} must hold Parquet files, and there is none. Check the path.")
    return files


def _check_all_read(found: list[Path], label: str) -> None:
    """Raise SourceError for what may stand for files with rows, which would be left out without a word."""
    for path in found:
        if not path.exists():
            problem = "leads to nothing"
        elif path.is_dir() and path.is_symlink():
            problem = "is a link to a folder, whose files are not read from here"
        elif path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
            problem = "is a folder that may not be read"
        elif not path.is_dir() and not path.is_file():
            problem = "is neither a file nor a folder"
        else:
            continue
        raise SourceError(
            f"{label} must hold files that can be read, and {str(path)!r} {problem}. Put the files there, "
            "move it elsewhere, or give a pattern of the files that are meant, such as 'FOLDER/*.parquet'."
        )


def _is_text(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(_TEXT)


def check_no_log(files: list[Path], label: str) -> None:
    """Raise SourceError if files belong to a Delta, Iceberg or Hudi table, which may hold deleted rows."""
    # A link may lie in such a table, or the file that it names.
    parents = {path.parent for file in files for path in (file.absolute(), file.resolve())}
    for folder in sorted({above for parent in parents for above in (parent, *parent.parents)}):
        for log, kind in _TABLE_LOGS.items():
            if next(folder.glob(log), None) is not None:
                raise SourceError(
                    f"{label} must be plain Parquet, and the folder {str(folder)!r} is {kind} table, "
                    "whose files also hold rows that were deleted or replaced. Read it through Spark by its "
                    "name in the catalog, spark://local?table=NAME, or export its current rows."
                )


def _check_marks(path: Path, label: str) -> None:
    """Raise SourceError unless a file begins and ends like a Parquet file."""
    check_readable(path)
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(-min(4, path.stat().st_size), 2)
        tail = file.read(4)
    if (head, tail) != (b"PAR1", b"PAR1") or path.stat().st_size < _SMALLEST_PARQUET:
        raise SourceError(
            f"{label} must be a Parquet file, and is cut short or something else. Write it "
            "again from its origin."
        )


class DuckDBSource(DuckSource):
    """A table of a DuckDB file, which is opened for reading only."""

    def __init__(self, path: Path, table: str | None) -> None:
        """Attach the file for reading, and choose its table."""
        check_readable(path)
        label = f"The file {str(path)!r}"
        connection = connect()
        problem = attach(connection, path, "READ_ONLY")
        if problem is not None:
            connection.close()
            raise SourceError(f"{label} {problem}")
        rows = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'attached' "
            "UNION ALL SELECT schema_name, view_name FROM duckdb_views() "
            "WHERE database_name = 'attached' AND NOT internal ORDER BY ALL"
        ).fetchall()
        try:
            schema, name = _choose_table(rows, table, label)
        except SourceError:
            connection.close()
            raise
        relation = f"attached.{identifier(schema)}.{identifier(name)}"
        super().__init__(connection, relation, label=f"The table {name!r} of {str(path)!r}")


def attach(connection: DuckDBPyConnection, path: Path, mode: str) -> str | None:
    """Attach a DuckDB file as ``attached``; return the problem as the end of a sentence, or None."""
    import duckdb

    try:
        connection.execute(f"ATTACH {literal(str(path.absolute()))} AS attached ({mode})")
    except duckdb.Error as problem:
        if "lock" in str(problem):
            return "is in use by another process that writes to it. Close that one first."
        if "ermission" in str(problem) or "Read-only" in str(problem):
            return "cannot be opened for that. Check who may read and write it."
        return "must be a DuckDB database, and is damaged, of a newer version or something else."
    return None


def _choose_table(rows: list[tuple[str, str]], table: str | None, label: str) -> tuple[str, str]:
    """Return schema and name of the requested table, or of the only one."""
    listed = ", ".join(f"{schema}.{name}" for schema, name in rows) or "none"
    if table is None:
        if len(rows) == 1:
            return rows[0]
        raise SourceError(
            f"{label} must be given with the name of a table, as in file.duckdb?table=name; it has {listed}."
        )
    *schema, name = split_table_name(table)
    # DuckDB's own rule: names that differ by case alone are equal.
    matches = [
        row
        for row in rows
        if row[1].lower() == name.lower() and row[0].lower() == (schema or ["main"])[-1].lower()
    ]
    if len(schema) > 1 or not matches:
        raise SourceError(f"{label} must hold the table {table!r}, and does not; it has {listed}.")
    return matches[0]


def open_file(path: Path, *, table: str | None, schema: Schema | None, header: bool | None) -> Source:
    """Return the source of a file, chosen by the end of its name."""
    kind = "".join(path.suffixes[-2:]).lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if path.is_dir() or (glob.has_magic(path.name) and not path.exists()):
        return ParquetSource(path)
    if _is_text(path):
        return CsvSource(path, schema, header)
    if kind in _PARQUET:
        return ParquetSource(path)
    if kind in (".duckdb", ".db"):
        return DuckDBSource(path, table)
    if kind in EXCEL:
        return SheetSource(path, table, schema, header)
    if kind in STATISTICS:
        return StatisticsSource(path)
    if path.suffix.lower() in _PACKED:
        raise SourceError(
            f"A compressed table must be text in gzip, as in .csv.gz, was {str(path)!r}. Unpack it, or pack "
            "it with gzip."
        )
    if not path.exists():
        check_readable(path)
    raise SourceError(
        "The name of a table must end in .csv, .tsv, .txt (also with .gz), .parquet, .duckdb, .xlsx, .sav or "
        f".dta, was {str(path)!r}. Rename or convert the file."
    )
