"""How a table is written as text: its dialect, the format of the cells of a column, and what a draft holds.

The keys are those of Frictionless: ``delimiter``, ``header``, ``headerRows`` and ``encoding`` of a dialect
and a resource; ``decimalChar``, ``groupChar``, ``format``, ``trueValues``, ``falseValues``,
``missingValues`` of a field. Everything here is declared, hence public: a release reads the table as its
schema says, and not as its rows suggest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from discreet.arguments import nearest
from discreet.schema.notation import quote_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.schema.column import Column, Level
    from discreet.schema.notation import Notation

Censored: TypeAlias = Literal["missing", "limit", "half"]

DELIMITERS = (",", ";", "\t", "|")
ENCODINGS = ("utf-8", "utf-16", "windows-1252", "iso-8859-1")
DECIMAL_CHARS = (".", ",")
GROUP_CHARS = (",", ".", " ", "'")
_DATE_FORMAT = re.compile(r"(?:%[dmYyHMSfbBjIp]|[^%'\x00-\x1f])+")
_ALIASES = {
    "utf8": "utf-8", "utf-8-sig": "utf-8", "utf16": "utf-16", "utf-16le": "utf-16", "utf-16be": "utf-16",
    "utf-16-le": "utf-16", "utf-16-be": "utf-16", "cp1252": "windows-1252", "ansi": "windows-1252",
    "latin-1": "iso-8859-1", "latin1": "iso-8859-1",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """How the cells of one column are written where they are text; None leaves it to the dialect.

    Parameters
    ----------
    date_format : str, optional
        Pattern of a date as in ``strptime``, such as ``%d.%m.%Y``; a time in it is read and left out. None
        for dates like 2024-12-31.
    decimal_char, group_char : str, optional
        Sign before the decimals, and sign between groups of digits.
    true_values, false_values : tuple of str
        Texts that stand for true and for false in a column of booleans; empty for true, false, 1, 0 and the
        like.
    units : tuple of str
        Texts that may stand before or after a number: a unit such as ``kg``, or the sign of a currency.
    censored : {"missing", "limit", "half"}, optional
        Meaning of a number such as ``<0.5`` or ``>100``: a missing cell, the limit itself, or half of the
        limit (of a limit from above, the limit). None: such a cell does not fit.

    Privacy
    -------
    Published with the schema, so that nothing in it may quote a cell of a person.

    Reference
    ---------
    Keys of a field in a file: ``docs/reference/schema.md``.
    """

    date_format: str | None = None
    decimal_char: str | None = None
    group_char: str | None = None
    true_values: tuple[str, ...] = ()
    false_values: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    censored: Censored | None = None

    def __post_init__(self) -> None:
        for name in ("true_values", "false_values", "units"):
            given = getattr(self, name)
            object.__setattr__(self, name, tuple(given) if isinstance(given, list) else given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a text file is written, and the signs in the numbers of all its columns.

    Parameters
    ----------
    delimiter : {",", ";", tab, "|"}, optional
        Sign between two cells; None for the most frequent of them in the line of names.
    encoding : {"utf-8", "utf-16", "windows-1252", "iso-8859-1"}, optional
        Character encoding; None for UTF-8, or UTF-16 where the file begins with its mark.
    decimal_char, group_char : str, optional
        Sign before the decimals (None for a point), and sign between groups of digits (None for none).
        They hold for every cell of text, also in a database or a frame.
    header : bool, default True
        Whether the file has a line of names. Without one the columns are named by the schema, in order.
    header_row : int, default 1
        Line of the names, counted from 1; what is above it is not read.
    skip_blank_rows : bool, default False
        Whether lines that hold delimiters and blanks only are left out. Empty lines always are.

    Privacy
    -------
    Published with the schema. Where it is declared, how a file is read depends on no row.

    Reference
    ---------
    The block ``dialect`` of a file: ``docs/reference/schema.md``.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal_char: str | None = None
    group_char: str | None = None
    header: bool = True
    header_row: int = 1
    skip_blank_rows: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.encoding, str):
            folded = self.encoding.casefold().replace("_", "-")
            object.__setattr__(self, "encoding", _ALIASES.get(folded, folded))

    def text_format(self, column: Column) -> TextFormat:
        """Return how the cells of a column are written, its own declaration before that of the table."""
        own = column.text or TextFormat()
        decimal = own.decimal_char or self.decimal_char or "."
        group = own.group_char or (None if self.group_char == decimal else self.group_char)
        return replace(own, decimal_char=decimal, group_char=group)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDraft:
    """What a table says of one column without any of its cells.

    Parameters
    ----------
    type : str
        Type of the field in a schema file: number, integer, string, boolean or date.
    title : str, optional
        Label of the column in a file that has labels.
    values : tuple, optional
        Values that the file itself lists as possible; None where it lists none.
    missing_values : tuple of str, optional
        Texts that stand for a missing cell in this column alone.
    text : TextFormat, optional
        How cells of text are written; None for the plain form.
    """

    type: str
    title: str | None = None
    values: tuple[Level, ...] | None = None
    missing_values: tuple[str, ...] | None = None
    text: TextFormat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDraft:
    """What a table says of itself without any of its cells.

    Parameters
    ----------
    fields : dict of str to FieldDraft
        Draft of each column by its name, in order.
    dialect : Dialect, optional
        How its text is written; None for a table that is not text.
    missing_values : tuple of str
        Texts of a fixed list that stand for a missing cell in the first rows.
    """

    fields: dict[str, FieldDraft]
    dialect: Dialect | None = None
    missing_values: tuple[str, ...] = ("",)


def dialect_problems(dialect: Any, notation: Notation) -> Iterator[str]:
    """Yield one sentence for each problem of a dialect."""
    if dialect is None:
        return
    if not isinstance(dialect, Dialect):
        yield f"{notation['dialect']} must be a Dialect, was {quote_value(dialect)}. Leave it out."
        return
    for key, value, choices in (
        ("delimiter", dialect.delimiter, DELIMITERS),
        ("encoding", dialect.encoding, ENCODINGS),
        ("decimal_char", dialect.decimal_char, DECIMAL_CHARS),
        ("group_char", dialect.group_char, GROUP_CHARS),
    ):
        if value is not None and value not in choices:
            example = nearest(value, choices) or choices[0]
            yield (
                f"{notation.dialect(key)} must be one of {_join_choices(choices)}, was {quote_value(value)}. "
                f"Write {notation.dialect_line(key, example)}, or leave it out."
            )
    if dialect.group_char is not None and dialect.group_char == (dialect.decimal_char or "."):
        yield _same_signs(notation.dialect("group_char"), dialect.group_char)
    for key in ("header", "skip_blank_rows"):
        flag: Any = getattr(dialect, key)
        if not isinstance(flag, bool):
            yield f"{notation.dialect(key)} must be true or false, was {quote_value(flag)}. Leave it out."
    row = dialect.header_row
    if isinstance(row, bool) or not isinstance(row, int) or not 1 <= row <= 1000:
        yield (
            f"{notation.dialect('header_row')} must be the number of one line from 1 to 1000, was "
            f"{quote_value(row)}. Write {notation.dialect_line('header_row', 1)}."
        )


def text_format_problems(column: Any, notation: Notation) -> Iterator[str]:
    """Yield one sentence for each problem of how the cells of a column are said to be written."""
    marks = column.missing_values
    if marks is not None and not (isinstance(marks, tuple) and all(isinstance(mark, str) for mark in marks)):
        yield (
            f"{notation['missing_values']} must be a list of strings, was {_show(marks)}. "
            f"Write {notation.column(column.name, missing_values=('99',))}."
        )
    text: Any = column.text
    if text is None:
        return
    if not isinstance(text, TextFormat):
        yield f"text must be a TextFormat, was {quote_value(text)}. Leave it out."
        return
    yield from _kind_problems(column, text, notation)
    for key, value, choices in (
        ("decimal_char", text.decimal_char, DECIMAL_CHARS),
        ("group_char", text.group_char, GROUP_CHARS),
        ("censored", text.censored, get_args(Censored)),
    ):
        if value is not None and value not in choices:
            yield (
                f"{notation.text(key)} must be one of {_join_choices(choices)}, was {quote_value(value)}. "
                "Correct it, or leave it out."
            )
    if text.group_char is not None and text.group_char == text.decimal_char:
        yield _same_signs(notation.text("group_char"), text.group_char)
    if text.date_format is not None and not (
        isinstance(text.date_format, str) and _DATE_FORMAT.fullmatch(text.date_format)
    ):
        yield (
            f"{notation.text('date_format')} must be a pattern of %d, %m, %Y, %H, %M, %S and the like, was "
            f"{quote_value(text.date_format)}. Write %d.%m.%Y for 31.12.2024, for example."
        )
    for key in ("true_values", "false_values", "units"):
        words: Any = getattr(text, key)
        if not isinstance(words, tuple) or not all(isinstance(word, str) and word.strip() for word in words):
            yield (
                f"{notation.text(key)} must be a list of strings that are not empty, was {_show(words)}. "
                "Put numbers and words such as yes in quotes."
            )
        elif key == "units" and any(re.match(r"[0-9.,<>+-]", word) for word in words):
            yield (
                f"{notation.text(key)} must be texts that begin with no digit or sign, was "
                f"{_show(words)}. Declare signs inside a number as decimalChar and groupChar."
            )
    if isinstance(text.true_values, tuple) and isinstance(text.false_values, tuple):
        both = set(text.true_values) & set(text.false_values)
        if both:
            yield f"{quote_value(min(both))} stands for both true and false. Take it off one of the lists."


def _kind_problems(column: Any, text: TextFormat, notation: Notation) -> Iterator[str]:
    """Yield the problem of a format for cells of a type that the column does not have."""
    if column.type in ("id", "text"):
        return
    numbers = ("number", "integer")
    booleans = column.type == "category" and isinstance((column.values or ("",))[0], bool)
    for key, fits, meant in (
        ("date_format", column.type in ("date", "datetime"), "dates"),
        ("decimal_char", column.type in numbers, "numbers"),
        ("group_char", column.type in numbers, "numbers"),
        ("units", column.type in numbers, "numbers"),
        ("censored", column.type in numbers, "numbers"),
        ("true_values", booleans, "booleans"),
        ("false_values", booleans, "booleans"),
    ):
        if getattr(text, key) not in (None, ()) and not fits:
            yield f"{notation.text(key)} is for {meant}, and this column holds others. Leave it out."


def _same_signs(key: str, sign: str) -> str:
    return (
        f"{key} must differ from the sign before the decimals, and both are {quote_value(sign)}. Declare "
        "decimalChar too: 1.234,50 has decimalChar ',' and groupChar '.'."
    )


def _join_choices(choices: tuple[str, ...]) -> str:
    return ", ".join(quote_value(choice) for choice in choices)


def _show(words: object) -> str:
    return quote_value(list(words) if isinstance(words, tuple) else words)
