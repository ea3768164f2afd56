"""Sources in files: CSV and TSV, Parquet, DuckDB databases."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from typing import TYPE_CHECKING

from discreet.errors import DataError, DiscreetError, ParameterError, SourceError
from discreet.tables.cell_encoding import declared_type
from discreet.tables.duckdb import check_readable, connect, identifier, literal, quote_path, split_table_name
from discreet.tables.sources import DuckSource

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

ENCODINGS = ("utf-8", "latin-1")
_DELIMITERS = (",", ";", "\t", "|")
_LONGEST_HEADER = 2**20
_ROWS_SNIFFED = 20480
_NUMBER = re.compile(r"[+-]?[\d., ']*\d[\d., ']*(e[+-]?\d+)?\s*[%€$£]?", re.IGNORECASE)
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?")
_SMALLEST_PARQUET = 12  # two marks and the length of a footer


class CsvSource(DuckSource):
    """A text file with a header line.

    Cells are read as text and take their type from the schema. Unless given, the delimiter is the most
    frequent of comma, semicolon, tab and bar in the header. An empty cell is missing, quoted or not.

    Attributes
    ----------
    names_look_like_data : bool
        Whether a name is a number or a date: the file may have no header, and its names be a person's cells.
    """

    def __init__(self, path: Path, *, delimiter: str | None, encoding: str) -> None:
        """Read the header, and prepare the scan of the file with its names."""
        check_readable(path)
        label = f"The file {str(path)!r}"
        zipped = path.suffix.lower() == ".gz"
        header = _read_header(path, label, encoding=encoding, zipped=zipped)
        if delimiter is None:
            unquoted = Counter(re.sub(r'"(?:[^"]|"")*"', "", header))
            delimiter = max(_DELIMITERS, key=lambda sign: unquoted[sign])
        names = next(csv.reader(io.StringIO(header, newline=""), delimiter=delimiter), [])
        self.names_look_like_data = any(map(_looks_like_data, names))
        self._encoding = encoding
        self._options = (
            f"delim={literal(delimiter)}, quote='\"', escape='\"', comment='', header=true, skip=0, "
            f"encoding={literal(encoding)}, compression={literal('gzip' if zipped else 'none')}, "
            "nullstr='', hive_partitioning=false"
        )
        self._file = quote_path(path)
        types = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
        relation = f"read_csv({self._file}, auto_detect=false, columns={{{types}}}, {self._options})"
        super().__init__(connect(), relation, label=label, names=names)

    def declared_types(self) -> list[str]:
        """Return the type of each column guessed from the first rows; no other cells are read for it."""
        with self.translate_errors(), self._cursor() as cursor:
            relation = f"read_csv({self._file}, sample_size={_ROWS_SNIFFED}, {self._options})"
            described = cursor.execute(f"DESCRIBE FROM {relation}").fetchall()
        return [declared_type(row[1]) for row in described]

    def explain(self, message: str) -> DiscreetError | None:
        """Return an error that says what is wrong with the text and on which line; None if unknown."""
        match = re.search(r"CSV Error on Line: (\d+)", message)
        line = int(match[1]) - 1 if match else None
        place = f"{self.label}, row {line} of the data" if match else self.label
        counts = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
        if counts:
            return DataError(
                f"{place}, must have {counts[1]} cells like the header, and has {counts[2]}. Put "
                "cells that hold the delimiter in double quotes, or name another delimiter.",
                line=line,
            )
        if "Invalid unicode" in message:
            return SourceError(
                f"{place}, must be {self._encoding} text, and is not. Write the file again as "
                "UTF-8, or open it with encoding='latin-1' if that is what it is."
            )
        if "unterminated quote" in message:
            return DataError(
                f"{place}, has a double quote that is not closed. Write a double quote inside a "
                'quoted cell twice: "".',
                line=line,
            )
        if "Maximum line size" in message:
            return DataError(
                f"{place}, is longer than any line may be. A double quote may be missing.",
                line=line,
            )
        if "GZIP" in message:
            return _gzip_error(self.label)
        if "state machine" in message:
            return SourceError(
                f"{self.label} must be CSV with one kind of line end, and is not. Write it again "
                "with the line ends of one system."
            )
        return None


def _looks_like_data(name: str) -> bool:
    return any(pattern.fullmatch(name.strip()) for pattern in (_NUMBER, _DATE))


def _read_header(path: Path, label: str, *, encoding: str, zipped: bool) -> str:
    """Return the first record, without its line end."""
    raw = b""
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            # A line end inside double quotes belongs to a name.
            while len(raw) < _LONGEST_HEADER:
                line = file.readline(_LONGEST_HEADER)
                raw += line
                if not line or raw.count(b'"') % 2 == 0:
                    break
    except (OSError, EOFError, zlib.error):
        raise _gzip_error(label) from None
    try:
        header = raw.removeprefix(codecs.BOM_UTF8).decode(encoding)
    except UnicodeDecodeError:
        raise SourceError(
            f"{label} must be {encoding} text, and is not. Write it again as UTF-8, or open it "
            "with encoding='latin-1' if that is what it is; a spreadsheet must be exported as CSV."
        ) from None
    header = header.removesuffix("\n").removesuffix("\r")
    if not header.strip() or "\0" in header or len(raw) >= _LONGEST_HEADER:
        raise SourceError(
            f"{label} must start with a line of column names, and does not. Add one; a spreadsheet "
            "must be exported as CSV."
        )
    return header


def _gzip_error(label: str) -> SourceError:
    return SourceError(
        f"{label} must be a whole gzip file, and is damaged, cut short or something else. Write it "
        "again, or take .gz off its name if it is plain text."
    )


class ParquetSource(DuckSource):
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        """Check the marks at both ends of the file, and read its column names."""
        check_readable(path)
        label = f"The file {str(path)!r}"
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(-min(4, path.stat().st_size), 2)
            tail = file.read(4)
        if (head, tail) != (b"PAR1", b"PAR1") or path.stat().st_size < _SMALLEST_PARQUET:
            raise SourceError(
                f"{label} must be a Parquet file, and is cut short or something else. Write it "
                "again from its origin."
            )
        connection, file_name = connect(), quote_path(path)
        super().__init__(connection, f"read_parquet({file_name}, hive_partitioning=false)", label=label)
        self.names = self._read_names(connection, file_name)

    def _read_names(self, connection: DuckDBPyConnection, file_name: str) -> list[str]:
        """Return the top-level column names as the file has them.

        DuckDB, for which names that differ by case alone are equal, would rename the second.
        """
        with self.translate_errors():
            rows = connection.execute(
                f"SELECT name, coalesce(num_children, 0) FROM parquet_schema({file_name})"  # noqa: S608 - quoted
            ).fetchall()
        names: list[str] = []
        nested = 0  # following fields that belong to the column before
        for name, children in rows[1:]:
            if nested:
                nested += children - 1
            else:
                names.append(name)
                nested = children
        return names


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


def open_file(path: Path, *, table: str | None, delimiter: str | None, encoding: str) -> DuckSource:
    """Return the source of a file, chosen by the end of its name."""
    if encoding not in ENCODINGS:
        raise ParameterError(
            f"open_table: encoding must be one of {', '.join(ENCODINGS)}, was {encoding!r}. Write "
            "a file in another encoding again as UTF-8."
        )
    if delimiter is not None and delimiter not in _DELIMITERS:
        raise ParameterError(
            f"open_table: delimiter must be one of {_DELIMITERS}, was {delimiter!r}. Leave it out "
            "to have it read off the header."
        )
    if path.is_dir():
        raise SourceError(
            f"open_table: source must be one file, and {str(path)!r} is a folder. Name a file in it."
        )
    kind = "".join(path.suffixes[-2:]).lower() if path.suffix.lower() == ".gz" else path.suffix
    kind = kind.lower()
    if kind in (".csv", ".csv.gz", ".tsv", ".tsv.gz"):
        given = "\t" if delimiter is None and kind.startswith(".tsv") else delimiter
        return CsvSource(path, delimiter=given, encoding=encoding)
    if kind in (".parquet", ".pq"):
        return ParquetSource(path)
    if kind in (".duckdb", ".db"):
        return DuckDBSource(path, table)
    raise SourceError(
        f"open_table: source must end in .csv, .tsv (also with .gz), .parquet or .duckdb, was "
        f"{str(path)!r}. Rename or convert the file."
    )
