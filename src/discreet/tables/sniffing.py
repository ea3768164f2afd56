"""What a text file suggests about how it is written, for the draft of a schema.

Everything found is one of a fixed, public list: encodings, delimiters, signs in numbers, formats of dates,
words for true, false and missing, units. A draft therefore never quotes a cell. Nothing here is used once a
schema declares the dialect.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from discreet.schema.dialect import DELIMITERS, Dialect, FieldDraft, TableDraft, TextFormat
from discreet.schema.notation import UNFILLED
from discreet.tables.cell_encoding import CENSORED, SPACES, date_pattern, looks_like_data, number_pattern
from discreet.tables.pipes import BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LINES_SNIFFED = 1000
_SNIFFED = 2**18  # characters
_UNDEFINED = frozenset(b"\x81\x8d\x8f\x90\x9d")  # bytes that Windows-1252 does not have
_MISSING = (
    "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "-", "--", ".", "?", "k.A.", "k. A.",
    "keine Angabe", "missing", "#DIV/0!", "#VALUE!", "#REF!", "#WERT!", "#NV",
)  # fmt: skip
_UNITS = (
    "€", "$", "£", "¥", "EUR", "USD", "GBP", "CHF", "Fr.", "kr", "zł", "%", "‰", "kg", "g", "mg", "µg", "t",
    "l", "ml", "dl", "m", "cm", "mm", "km", "m²", "ha", "m³", "s", "sec", "min", "h", "Std.", "d", "°C", "°F",
    "°", "kWh", "W", "kW", "V", "Hz", "bpm", "mmHg", "mg/dl", "mg/dL", "mmol/l", "mmol/L", "kg/m²", "km/h",
)  # fmt: skip
_INFINITE = ("inf", "-inf", "+inf", "infinity", "-infinity")  # which the engine reads as numbers
_WORDS = (
    ("true", "false"), ("yes", "no"), ("ja", "nein"), ("oui", "non"), ("sí", "no"), ("si", "no"),
    ("sim", "não"), ("wahr", "falsch"), ("vrai", "faux"), ("y", "n"), ("j", "n"), ("t", "f"),
)  # fmt: skip
_DAYS = (
    "%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%y",
    "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y",
)  # fmt: skip
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S", " %H:%M:%S.%f", "T%H:%M:%S.%f", " %I:%M %p")
_STANDARD = ("%Y-%m-%d", *(f"%Y-%m-%d{time}" for time in _TIMES[1:-1]))  # read without a format
# Each way to write numbers includes those before it with the same sign before decimals.
_SIGNS = ((".", None), (",", None), (".", ","), (",", "."), (".", "'"), (",", " "), (".", " "), (",", "'"))
_Signs: TypeAlias = tuple[str, str | None]


class _Layout(NamedTuple):
    """How well a delimiter explains the first lines; larger is better, field by field."""

    is_table: bool  # most records are equally wide, and no cell holds another delimiter
    has_names: bool
    share: float  # of records that are as wide as most
    width: int
    delimiter: str
    header: bool
    row: int


def sniff_dialect(file: Any, *, header: bool | None, delimiter: str | None) -> Dialect:
    """Return the dialect of a text file, from its encoding, its first lines, and which lines are blank.

    Parameters
    ----------
    file : binary file
        Text file at its beginning; it is read to its end and closed.
    header : bool, optional
        Whether it has a line of names; None to decide by the first lines.
    delimiter : str, optional
        Delimiter that is known already; None to find it.
    """
    encoding, start = _sniff_encoding(file)
    file.seek(0)
    with io.TextIOWrapper(file, encoding=start) as lines:
        sample = "".join(_first_lines(lines))
        layout = max(
            (_lay_out(sample, sign, header) for sign in ((delimiter,) if delimiter else DELIMITERS)),
            key=lambda layout: (*layout[:4], -DELIMITERS.index(layout.delimiter)),
        )
        blank = re.compile(rf"[{re.escape(layout.delimiter)}\s]*")
        below = itertools.chain(sample.splitlines(keepends=True)[layout.row :], lines)
        has_blank = layout.width > 1 and any(len(line) > 1 and blank.fullmatch(line) for line in below)
    return Dialect(
        delimiter=layout.delimiter,
        encoding=encoding,
        header=layout.header,
        header_row=layout.row,
        skip_blank_rows=has_blank,
    )


def _first_lines(lines: io.TextIOWrapper) -> Iterator[str]:
    """Yield the first lines, at most so many that a few screens show them."""
    length = 0
    for _ in range(_LINES_SNIFFED):
        line = lines.readline(_SNIFFED)
        length += len(line)
        yield line
        if not line or length > _SNIFFED:
            return


def _sniff_encoding(file: Any) -> tuple[str, str]:
    """Return the encoding of a file as a schema declares it and as Python calls it; all of it is read."""
    head = file.read(BLOCK)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", "utf-16"
    decoder, undefined = codecs.getincrementaldecoder("utf-8")(), False
    valid, block = True, head
    while block:
        if valid:
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                valid = False
        undefined = undefined or not _UNDEFINED.isdisjoint(block)
        block = file.read(BLOCK)
    if valid and not decoder.getstate()[0]:
        return "utf-8", "utf-8-sig"
    return ("iso-8859-1", "latin-1") if undefined else ("windows-1252", "cp1252")


def _lay_out(sample: str, delimiter: str, header: bool | None) -> _Layout:
    """Return how a delimiter divides the first lines: its width, and where the names are."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    records, line = [], 1
    try:
        for record in reader:
            records.append((line, [cell.strip() for cell in record]))
            line = reader.line_num + 1
    except csv.Error:  # an open quote
        pass
    filled = [(line, cells) for line, cells in records if any(cells)]
    widths = Counter(len(cells) for _, cells in filled[:-1] or filled)
    width = max(widths, key=lambda w: (widths[w] * (w > 1), w), default=1)
    full = [(line, cells) for line, cells in filled if len(cells) == width]
    if not full:
        return _Layout(False, False, 0.0, width, delimiter, True, 1)
    is_header, row, named = find_names(full, header)
    share = min(1.0, len(full) / sum(line >= row for line, _ in filled))
    mixed = sum(any(set(cell) & (set(DELIMITERS[1:]) - {delimiter}) for cell in cells) for _, cells in full)
    is_table = width > 1 and share >= 0.7 and mixed <= 0.5 * len(full)
    return _Layout(is_table, named, round(share, 2), width, delimiter, is_header, row)


def find_names(records: Sequence[tuple[int, list[str]]], header: bool | None) -> tuple[bool, int, bool]:
    """Return whether there is a line of names, its number or that of the first row, and whether it looks so.

    Parameters
    ----------
    records : sequence of (int, list of str)
        Number and cells of each line, all equally wide and stripped.
    header : bool, optional
        Whether there is a line of names; None to decide by the looks of the lines.
    """
    filled = [(line, cells) for line, cells in records if any(cells)]
    if not filled:
        return True, 1, False
    # A title above the names fills one cell, whose line a spreadsheet writes as wide as the others.
    usual = sorted(_extent(cells) for _, cells in filled)[len(filled) // 2]
    # Never a later line: it may be a row of words below rows of numbers, and its cells would be published.
    row, first = next((line, cells) for line, cells in filled if _extent(cells) >= usual)
    if header is None:
        header = not all(looks_like_data(cell) for cell in first if cell)
    return header, row if header else filled[0][0], _may_be_names(first)


def _extent(cells: list[str]) -> int:
    """Return the number of cells up to the last that is not empty."""
    return max((place for place, cell in enumerate(cells, 1) if cell), default=0)


def _may_be_names(cells: list[str]) -> bool:
    """Return whether a record can be a line of names: texts that differ, none of them a number or a date."""
    named = cells[: _extent(cells)]
    return (
        bool(named) and all(named) and len(set(named)) == len(named) and not any(map(looks_like_data, named))
    )


def draft_fields(names: Sequence[str], rows: Sequence[Sequence[str | None]], dialect: Dialect) -> TableDraft:
    """Return types and formats of the columns of a text file, as its first rows suggest.

    Parameters
    ----------
    names : sequence of str
        Names of the columns, in order.
    rows : sequence of sequences of str or None
        First rows as texts, None for an empty cell.
    dialect : Dialect
        Dialect by which the rows were read, to which the signs in numbers are added.
    """
    columns = [Counter(cell.strip(SPACES) for cell in column if cell) for column in zip(*rows, strict=True)]
    columns = columns or [Counter()] * len(names)
    signs = _sniff_signs(columns, dialect.delimiter)
    dialect = replace(dialect, decimal_char=None if signs[0] == "." else signs[0], group_char=signs[1])
    fields, missing = {}, {}
    for name, cells in zip(names, columns, strict=True):
        fields[name], marks = _draft_field(cells, signs)
        missing.update(dict.fromkeys(marks))
    return TableDraft(fields=fields, dialect=dialect, missing_values=("", *missing))


def _draft_field(cells: Counter[str], signs: _Signs) -> tuple[FieldDraft, list[str]]:
    """Return the draft of one column, and the words for a missing cell among its cells."""
    marks = [mark for mark in _MISSING if mark in cells]
    rest = Counter({cell: times for cell, times in cells.items() if cell and cell not in marks})
    if not rest:
        return FieldDraft(type="string"), []
    for draft in (_draft_boolean, _draft_date):
        field = draft(rest)
        if field is not None:
            return field, marks
    field = _draft_number(rest, signs)
    return (field, marks) if field is not None else (FieldDraft(type="string"), [])


def _draft_boolean(cells: Counter[str]) -> FieldDraft | None:
    words = {cell.casefold() for cell in cells}
    for true, false in _WORDS:
        if words == {true, false}:
            if true == "true":
                return FieldDraft(type="boolean")
            trues = tuple(sorted(cell for cell in cells if cell.casefold() == true))
            falses = tuple(sorted(cell for cell in cells if cell.casefold() == false))
            return FieldDraft(type="boolean", text=TextFormat(true_values=trues, false_values=falses))
    return None


def _draft_date(cells: Counter[str]) -> FieldDraft | None:
    """Return the draft of a column of dates; its format is left open where two would do."""
    formats = [
        day + time
        for day in _DAYS
        for time in _TIMES
        if _mostly(cells, lambda cell: _is_date(cell, day + time))  # noqa: B023 - called at once
    ]
    if not formats:
        return None
    kind = "datetime" if re.search("%[HIMS]", formats[0]) else "date"
    if formats[0] in _STANDARD:
        return FieldDraft(type=kind)
    chosen = formats[0] if len(formats) == 1 else UNFILLED
    return FieldDraft(type=kind, text=TextFormat(date_format=chosen))


def _is_date(cell: str, date_format: str) -> bool:
    if not re.fullmatch(date_pattern(date_format), cell):
        return False
    try:
        datetime.strptime(cell, date_format)
    except ValueError:
        return False
    return True


def _draft_number(cells: Counter[str], signs: _Signs) -> FieldDraft | None:
    """Return the draft of a column of numbers with their units and limits; None for any other column."""
    pattern = _number_regex(signs)
    matches = {cell: pattern.fullmatch(cell) for cell in cells}
    digits = {cell: match[4] for cell, match in matches.items() if match}
    digits |= {cell: cell for cell in cells if cell.casefold() in _INFINITE}
    if not _mostly(cells, digits.__contains__) or any(re.match(r"0\d", text) for text in digits.values()):
        return None
    used = {unit for match in matches.values() if match for unit in (match["before"], match["after"]) if unit}
    limits = any(match["limit"] for match in matches.values() if match)
    whole = not any(signs[0] in text or re.search("[A-Za-z]", text) for text in digits.values())
    text = TextFormat(units=tuple(u for u in _UNITS if u in used), censored=UNFILLED if limits else None)  # type: ignore[arg-type]
    return FieldDraft(type="integer" if whole else "number", text=None if text == TextFormat() else text)


def _number_regex(signs: _Signs) -> re.Pattern[str]:
    """Return the pattern of a number with a unit of the list before or after it, or a limit."""
    units = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
    gap = f"[{SPACES}]*"
    number = number_pattern(TextFormat(decimal_char=signs[0], group_char=signs[1]))
    return re.compile(
        rf"(?P<limit>{CENSORED}{gap})?[+-]?(?:(?P<before>{units}){gap})?{number}(?:{gap}(?P<after>{units}))?"
    )


def _sniff_signs(columns: Sequence[Counter[str]], delimiter: str | None) -> _Signs:
    """Return the signs before decimals and between groups under which most columns are numbers.

    Where ``1,234`` may be both, it is a thousand in a file with commas between cells: a comma before decimals
    would be rare there.
    """
    patterns = [(signs, _number_regex(signs)) for signs in _SIGNS]
    marked = [[cell for cell in column if cell and cell not in _MISSING] for column in columns]
    marked = [cells for cells in marked if any(re.search(r"\d[.,' \u00a0\u202f’]\d", cell) for cell in cells)]
    if not marked:
        return _SIGNS[0]

    def fit(item: tuple[_Signs, re.Pattern[str]]) -> tuple[int, bool, int]:
        (decimal, group), pattern = item
        counted = sum(_mostly(Counter(cells), lambda cell: bool(pattern.fullmatch(cell))) for cells in marked)
        natural = delimiter != "," or (decimal == "." and group in (None, ","))
        return counted, natural, -_SIGNS.index((decimal, group))

    return max(patterns, key=fit)[0]


def _mostly(cells: Counter[str], fits: object) -> bool:
    """Return whether all but one in fifty cells fit: a draft is for the rule, `check` for the exceptions."""
    assert callable(fits)
    wrong = sum(times for cell, times in cells.items() if not fits(cell))
    return wrong * 50 <= cells.total() and wrong < cells.total()
