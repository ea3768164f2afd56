"""Sources in files of other programs: spreadsheets of Excel, and tables of SPSS and Stata.

These formats hold at most some million rows, and are read into memory as a whole. A column whose cells are
all of one type keeps it; in any other one every cell is text, written as the schema says that text is.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import MissingExtra, SourceError
from discreet.schema.dialect import Dialect, FieldDraft, TableDraft
from discreet.tables.cell_encoding import looks_like_data
from discreet.tables.duckdb import check_readable
from discreet.tables.python_cells import PLAIN, to_column, to_text
from discreet.tables.sniffing import draft_fields, find_names
from discreet.tables.sources import MemorySource

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.schema import Schema, TextFormat

EXCEL = (".xlsx", ".xlsm", ".xls", ".xlsb", ".ods")
STATISTICS = (".sav", ".zsav", ".dta")
_TYPES = {"b": "boolean", "i": "integer", "f": "number", "O": "string"}
_SPECIAL = 90  # codes from here on, and negative ones, stand for answers such as "do not know"


class SheetSource(MemorySource):
    """A sheet of a workbook; rows without any cell are left out.

    Parameters
    ----------
    path : Path
        Workbook whose name ends in ``.xlsx``, ``.xls`` or ``.ods``.
    sheet : str, optional
        Name of the sheet; None for the only one that is not empty.
    schema : Schema, optional
        Schema whose dialect says in which row the names are; None to find that out.
    header : bool, optional
        Whether there is a row of names, where there is no schema; None to decide by its looks.
    """

    def __init__(
        self, path: Path, sheet: str | None, schema: Schema | None, header: bool | None = None
    ) -> None:
        """Read the cells of the sheet, and divide them into names and columns."""
        check_readable(path)
        label = f"The file {str(path)!r}"
        sheet, rows = _read_sheet(path, sheet, label)
        texts = [[to_text(cell) or "" for cell in row] for row in rows]
        if schema is None:
            has_names, row, _ = find_names(list(enumerate(texts, 1)), header)
            dialect = Dialect(header=has_names, header_row=row)
        else:
            dialect = schema.dialect or Dialect()
        self.dialect = dialect
        first = dialect.header_row - 1
        names = [" ".join(cell.split()) for cell in texts[first]] if first < len(texts) else []
        while names and not names[-1]:
            names.pop()
        if not dialect.header:
            width = max(map(len, texts), default=0)
            names = [f"column_{i}" for i in range(1, width + 1)] if schema is None else list(schema.names)
        if not names:
            raise SourceError(
                f"{label} must have names in row {dialect.header_row} of the sheet {sheet!r}, and has none. "
                "Say where they are: dialect: {headerRows: [2]}."
            )
        self.names_look_like_data = dialect.header and any(map(looks_like_data, names))
        below = range(dialect.header_row if dialect.header else first, len(rows))
        self.lines = [i + 1 for i in below if any(texts[i][: len(names)])]
        cells = [[rows[line - 1][place] for line in self.lines] for place in range(len(names))]
        columns = [
            to_column(column, _text_format(schema, name)) for name, column in zip(names, cells, strict=True)
        ]
        self._columns = columns
        held = {f"c{i}": column for i, column in enumerate(columns)}
        super().__init__(held, names, f"The sheet {sheet!r} of {str(path)!r}", len(self.lines))

    def draft(self) -> TableDraft:
        """Return names and types; of columns with text, formats as its cells suggest."""
        texts = [[to_text(cell) for cell in column.tolist()] for column in self._columns]
        guessed = draft_fields(self.names, list(zip(*texts, strict=True)), self.dialect)
        fields = {
            name: guessed.fields[name] if column.dtype.kind == "O" else FieldDraft(type=_drafted_type(column))
            for name, column in zip(self.names, self._columns, strict=True)
        }
        dialect = guessed.dialect if guessed.dialect != Dialect() else None
        return TableDraft(fields=fields, dialect=dialect, missing_values=guessed.missing_values)


def _drafted_type(column: AnyArray) -> str:
    """Return the type of a draft for a column; moments that are all at midnight are dates."""
    if column.dtype.kind == "M":
        timed = (column != column.astype("datetime64[D]")) & ~np.isnat(column)
        return "datetime" if timed.any() else "date"
    return _TYPES[column.dtype.kind]


def _read_sheet(path: Path, sheet: str | None, label: str) -> tuple[str, list[list[Any]]]:
    """Return the name and all rows of a sheet; an empty cell is None."""
    library = _load("python_calamine", "An Excel file", "excel")
    try:
        with library.CalamineWorkbook.from_path(path) as workbook:
            names = workbook.sheet_names
            sheets = {
                name: [
                    [None if isinstance(cell, str) and not cell.strip() else cell for cell in row]
                    for row in workbook.get_sheet_by_name(name).to_python(skip_empty_area=False)
                ]
                for name in (names if sheet is None else [name for name in names if name == sheet])
            }
    except Exception:  # the library has no common class for its errors, which may quote cells
        raise SourceError(
            f"{label} must be a workbook, and is damaged, protected by a password or something else. Save it "
            "again from the program it comes from."
        ) from None
    listed = ", ".join(map(repr, names))
    if sheet is not None and sheet not in sheets:
        raise SourceError(f"{label} must have the sheet {sheet!r}, and has not; it has {listed}.")
    filled = {name: rows for name, rows in sheets.items() if rows}
    if len(filled) != 1:
        raise SourceError(
            f"{label} must be given with the name of a sheet, as in file.xlsx?table=name; it has {listed}."
            if filled
            else f"{label} must hold a table, and its sheets are empty."
        )
    return filled.popitem()


class StatisticsSource(MemorySource):
    """A table of SPSS or Stata; cells with a value label are read as their label.

    A column is read by its labels if these name each code of a run of whole numbers, besides special codes
    such as 99; a scale of which only the ends have labels stays numeric. Missing values that the file
    declares are missing.
    """

    def __init__(self, path: Path) -> None:
        """Read the cells, and replace codes by their labels."""
        check_readable(path)
        label = f"The file {str(path)!r}"
        library = _load("pyreadstat", f"A file that ends in {path.suffix}", "stat")
        read = library.read_dta if path.suffix.lower() == ".dta" else library.read_sav
        try:
            cells, meta = read(str(path), output_format="dict")
        except Exception:  # the library has no common class for its errors
            raise SourceError(
                f"{label} must be a table of SPSS or Stata, and is damaged or something else. Save it again."
            ) from None
        self._titles = meta.column_names_to_labels
        self._values: dict[str, tuple[str, ...]] = {}
        held: dict[str, AnyArray] = {}
        for i, (name, column) in enumerate(cells.items()):
            labels = _label_codes(meta.variable_value_labels.get(name, {}))
            if labels:
                self._values[name] = tuple(labels.values())
                column = [labels.get(cell, cell) for cell in column]
            held[f"c{i}"] = to_column([None if cell == "" else cell for cell in column])
        if not held:
            raise SourceError(f"{label} must have a column, and has none.")
        self._columns = list(held.values())
        super().__init__(held, list(cells), label, len(held["c0"]))

    def draft(self) -> TableDraft:
        """Return names, types, titles, and the labels as the lists of values."""
        fields = {
            name: FieldDraft(
                type="string" if name in self._values else _drafted_type(column),
                title=self._titles.get(name) or None,
                values=self._values.get(name),
            )
            for name, column in zip(self.names, self._columns, strict=True)
        }
        return TableDraft(fields=fields)


def _label_codes(labels: dict[Any, str]) -> dict[Any, str]:
    """Return the label of each code, each label once; nothing if ordinary codes have no label."""
    ordinary = [code for code in labels if isinstance(code, str) or 0 <= code < _SPECIAL] or list(labels)
    numbers = [code for code in ordinary if not isinstance(code, str)]
    if len(labels) < 2 or (numbers and max(numbers) - min(numbers) + 1 != len(numbers)):
        return {}
    times = Counter(labels.values())
    return {
        code: text if times[text] == 1 and text.strip() else f"{text} ({to_text(code)})".strip()
        for code, text in labels.items()
    }


def _load(module: str, what: str, extra: str) -> Any:
    with contextlib.suppress(ImportError):
        return import_module(module)
    raise MissingExtra(
        f"{what} needs {module.replace('_', '-')}, which is not installed. Install it with: "
        f'pip install "discreet[{extra}]"'
    )


def _text_format(schema: Schema | None, name: str) -> TextFormat:
    """Return how the text in a column is written."""
    return schema.text_format(schema.column(name)) if schema is not None and name in schema else PLAIN
