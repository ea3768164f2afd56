"""Sources in text files: CSV and TSV in every dialect that a schema may declare.

UTF-8 is read by DuckDB itself. Other encodings, and files with a title or with rows of delimiters alone, pass
through a pipe from a thread that writes the rows as UTF-8, so that no decoded row is stored.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from typing import TYPE_CHECKING

from discreet.errors import DataError, DiscreetError, ParameterError, SourceError
from discreet.schema.dialect import DELIMITERS, Dialect, TableDraft
from discreet.tables.cell_encoding import looks_like_data
from discreet.tables.duckdb import check_readable, connect_for, literal, quote_path
from discreet.tables.pipes import BLOCK, pipe_from, write_all
from discreet.tables.sniffing import draft_fields, sniff_dialect
from discreet.tables.sources import DuckSource, read_texts, withhold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from discreet.schema import Schema

ROWS_SNIFFED = 20480
_LONGEST_HEADER = 2**20
_LINES = 4096  # that are written into a pipe at once
_CODECS = {"utf-8": "utf-8-sig", "utf-16": "utf-16", "windows-1252": "cp1252", "iso-8859-1": "latin-1"}


class CsvSource(DuckSource):
    """A text file, read as its schema declares, or as its first lines suggest where there is no schema.

    Cells are read as text and take their type from the schema. An empty cell is missing, quoted or not.

    Parameters
    ----------
    path : Path
        File whose name ends in ``.csv``, ``.tsv``, ``.tab`` or ``.txt``, also with ``.gz``.
    schema : Schema, optional
        Schema whose dialect is used; what it leaves open is the plain form, with the most frequent delimiter
        of the line of names. None to find the dialect in the file.
    header : bool, optional
        Whether there is a line of names, where there is no schema; None to decide by its looks.

    Attributes
    ----------
    names_look_like_data : bool
        Whether a name is a number or a date: the file may have no header, and its names be a person's cells.
    skips_ragged : bool
        Whether lines with too few or too many cells are left out instead of being an error.
    """

    def __init__(self, path: Path, schema: Schema | None, header: bool | None = None) -> None:
        """Read the header, and prepare the scan of the file with its names."""
        check_readable(path)
        self._path = path
        self._zipped = path.suffix.lower() == ".gz"
        self.label = label = f"The file {str(path)!r}"
        with self._reading_errors():
            self.dialect = self._sniff(header) if schema is None else (schema.dialect or Dialect())
            self._codec = _CODECS[self.dialect.encoding or self._marked_encoding()]
            record = self._read_header()
            delimiter = self.dialect.delimiter or self._find_delimiter(record)
            cells = next(csv.reader(io.StringIO(record, newline=""), delimiter=delimiter), [])
        names = [" ".join(cell.split()) for cell in cells]
        self._n_cells = len(names)
        if self.dialect.header:
            while names and not names[-1]:  # spreadsheets write the columns beside a table too
                names.pop()
        elif schema is None:
            names = [f"column_{i}" for i in range(1, self._n_cells + 1)]
        else:
            names = list(schema.names)
            self._check_width(len(names))
        self.names_look_like_data = self.dialect.header and any(map(looks_like_data, names))
        self._delimiter = delimiter
        plain = self._codec == "utf-8-sig" and self.dialect.header and self.dialect.header_row == 1
        self._piped = not plain or self.dialect.skip_blank_rows
        self.skips_ragged = False
        super().__init__(connect_for([path]), self._clause(quote_path(path)), label=label, names=names)

    def check_schema(self, schema: Schema) -> None:
        """Raise ParameterError if the file was opened in another dialect than this schema declares."""
        if schema.dialect is not None and schema.dialect != self.dialect:
            raise ParameterError(
                f"{self.label} must be opened as the schema declares, and was opened in another dialect. "
                "Write open_table(path, schema=schema)."
            )

    def _describe(self) -> list[tuple[str, str]]:
        return [(f"c{i}", "VARCHAR") for i in range(self._n_cells)]

    def _clause(self, file: str) -> str:
        """Return the clause that reads a file, or the pipe, which brings the lines below the names."""
        piped = self._piped
        types = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(self._n_cells))
        zipped = self._zipped and not piped
        return (
            f"read_csv({file}, auto_detect=false, columns={{{types}}}, delim={literal(self._delimiter)}, "
            "quote='\"', escape='\"', comment='', nullstr='', hive_partitioning=false, encoding='utf-8', "
            f"header={'true' if self.dialect.header and not piped else 'false'}, skip=0, "
            f"compression={literal('gzip' if zipped else 'none')}"
            f"{', ignore_errors=true' if self.skips_ragged else ''})"
        )

    @contextlib.contextmanager
    def scan(self, places: Sequence[int]) -> Iterator[tuple[DuckDBPyConnection, str]]:
        """Yield a connection and a FROM clause; where it needs one, a pipe is written meanwhile."""
        aliases = ", ".join(f"c{i}" for i in range(self._n_cells))
        if not self._piped:
            with self._cursor() as cursor:
                yield cursor, f"{self._clause(quote_path(self._path))} AS source({aliases})"
            return
        # DuckDB closes its end of the pipe before the thread at the other end is joined.
        with pipe_from(self._write_lines) as end, self._cursor() as cursor:
            yield cursor, f"{self._clause(literal(f'/dev/fd/{end}'))} AS source({aliases})"

    def _write_lines(self, end: int) -> None:
        """Write the lines below the names into a pipe, as UTF-8; blank ones as empty lines."""
        blank = re.compile(rf"[{re.escape(self._delimiter)}\s]*")
        keeps_lines = self._n_cells > 1  # of a single column, an empty line would be a row
        with self._reading_errors(), self._open() as file:
            self._skip_names(file)
            if not self.dialect.skip_blank_rows:
                while block := file.read(BLOCK):
                    write_all(end, bytearray(block.encode()))
                return
            waiting: list[str] = []
            quoted = False
            for line in file:
                if not quoted and blank.fullmatch(line):
                    line = "\n" if keeps_lines else ""
                elif line.count('"') % 2:
                    quoted = not quoted
                waiting.append(line)
                if len(waiting) == _LINES:
                    write_all(end, bytearray("".join(waiting).encode()))
                    waiting = []
            write_all(end, bytearray("".join(waiting).encode()))

    def draft(self) -> TableDraft:
        """Return names, types and formats, guessed from the first rows; no other cells are read for it."""
        self.skips_ragged = True
        try:
            rows = list(read_texts(self, ROWS_SNIFFED))
        finally:
            self.skips_ragged = False
        return draft_fields(self.names, rows, self.dialect)

    def records(self) -> Iterator[tuple[int, int]]:
        """Yield line and number of cells of each record below the names that is not blank."""
        skipped = self.dialect.skip_blank_rows
        with self._reading_errors(), self._open() as file:
            above = 1 + self._skip_names(file)
            reader = csv.reader(file, delimiter=self._delimiter)
            start = 0
            for record in reader:
                blank = not any(map(str.strip, record)) if skipped else not record and self._n_cells > 1
                # A delimiter at the end of a line begins no cell.
                spare = len(record) == self._n_cells + 1 and not record[-1]
                if not blank:
                    yield above + start, (len(record) or 1) - spare
                start = reader.line_num

    @property
    def n_cells(self) -> int:
        """Number of cells in each line, also of those without a name."""
        return self._n_cells

    def _sniff(self, header: bool | None) -> Dialect:
        """Return the dialect that the file suggests."""
        with gzip.open(self._path) if self._zipped else self._path.open("rb") as file:
            delimiter = "\t" if ".tsv" in self._path.name.lower() else None
            return sniff_dialect(file, header=header, delimiter=delimiter)

    def _marked_encoding(self) -> str:
        """Return the encoding that the mark at the beginning of the file tells; UTF-8 without one."""
        with gzip.open(self._path) if self._zipped else self._path.open("rb") as file:
            head = file.read(2)
        return "utf-16" if head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"

    def _open(self) -> io.TextIOWrapper:
        """Return the file as text, with one kind of line ends."""
        opened = gzip.open if self._zipped else open
        return opened(self._path, "rt", encoding=self._codec)

    def _read_header(self) -> str:
        """Return the record of the names, or the first row where there are none, without its line end."""
        with self._open() as file:
            for _ in range(self.dialect.header_row - 1):
                file.readline(_LONGEST_HEADER)
            header = _read_record(file)
            while header == "\n" and not self.dialect.header:
                header = _read_record(file)
            header = header.removesuffix("\n")
        # A first row of empty cells between tabs is a row; a line of empty names is no header.
        is_empty = not (header.strip() if self.dialect.header else header)
        if is_empty or "\0" in header or len(header) >= _LONGEST_HEADER:
            raise SourceError(
                f"{self.label} must have a line of column names as line {self.dialect.header_row}, and has "
                "not. Add one, or say where it is: dialect: {headerRows: [2]}."
            )
        return header

    def _skip_names(self, file: io.TextIOWrapper) -> int:
        """Read what is above the rows, and return how many lines that were."""
        above = sum(bool(file.readline()) for _ in range(self.dialect.header_row - 1))
        return above + (_read_record(file).count("\n") if self.dialect.header else 0)

    def _find_delimiter(self, header: str) -> str:
        if ".tsv" in self._path.name.lower():
            return "\t"
        unquoted = Counter(re.sub(r'"(?:[^"]|"")*"', "", header))
        return max(DELIMITERS, key=lambda sign: unquoted[sign])

    def _check_width(self, declared: int) -> None:
        if declared != self._n_cells:
            raise SourceError(
                f"{self.label} must have as many columns as the schema, which names them by their order "
                f"(header: false), and has {self._n_cells} where the schema has {declared}. Declare every "
                "column; role: drop keeps one out."
            )

    @contextlib.contextmanager
    def _reading_errors(self) -> Iterator[None]:
        """Replace errors of reading and decoding, which may quote rows, by a SourceError."""
        try:
            yield
        except UnicodeError as problem:
            withhold(problem)
            if isinstance(problem, UnicodeDecodeError):
                problem.object = b""  # it holds bytes of rows
            raise self._encoding_error() from None
        except csv.Error:
            raise SourceError(
                f"{self.label} has a cell that is longer than any may be. A double quote may be missing."
            ) from None
        except BrokenPipeError:  # the reader has left
            raise
        except (OSError, EOFError, zlib.error):
            raise (
                _gzip_error(self.label)
                if self._zipped
                else SourceError(
                    f"{self.label} cannot be read to its end. Check the disk, and write it again."
                )
            ) from None

    def _encoding_error(self) -> SourceError:
        encoding = self.dialect.encoding if hasattr(self, "dialect") else None
        return SourceError(
            f"{self.label} must be {encoding or 'UTF-8'} text, and is not. Declare what it is, such as "
            "dialect: {encoding: windows-1252} for a file from Windows; `discreet init` finds it out."
        )

    def explain(self, message: str) -> DiscreetError | None:
        """Return an error that says what is wrong with the text and on which line; None if unknown."""
        match = re.search(r"CSV Error on Line: (\d+)", message)
        above = self.dialect.header_row if self._piped and self.dialect.header else 0
        line = int(match[1]) + above if match else None
        place = f"{self.label}, line {line}," if match else f"{self.label},"
        counts = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
        if counts:
            # The engine counts records, which may have several lines each.
            line = next((line for line, n_cells in self.records() if n_cells != self._n_cells), line)
            return DataError(
                f"{self.label}, line {line}, must have {counts[1]} cells like the line of names, and has "
                f"{counts[2]}. Put cells that hold the delimiter in double quotes. `discreet check` lists "
                "every such line.",
                line=line,
            )
        if "Invalid unicode" in message:
            return self._encoding_error()
        if "unterminated quote" in message:
            return DataError(
                f"{place} has a double quote that is not closed. Write a double quote inside a "
                'quoted cell twice: "".',
                line=line,
            )
        if "Maximum line size" in message:
            return DataError(
                f"{place} is longer than any line may be. A double quote may be missing.", line=line
            )
        if "GZIP" in message:
            return _gzip_error(self.label)
        if "state machine" in message:
            return SourceError(
                f"{self.label} must be CSV with one kind of line end, and is not. Write it again "
                "with the line ends of one system."
            )
        return None


def _read_record(file: io.TextIOWrapper) -> str:
    """Return the next record with its line end; a line end inside double quotes belongs to a cell."""
    record = ""
    while len(record) < _LONGEST_HEADER:
        line = file.readline(_LONGEST_HEADER)
        record += line
        if not line or record.count('"') % 2 == 0:
            break
    return record


def _gzip_error(label: str) -> SourceError:
    return SourceError(
        f"{label} must be a whole gzip file, and is damaged, cut short or something else. Write it "
        "again, or take .gz off its name if it is plain text."
    )
