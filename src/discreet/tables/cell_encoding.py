"""Encoding of cells as numbers and codes: one SQL projection for every source.

The projection is generated from the schema and runs inside DuckDB, where a column of text becomes a
column of codes without a Python object per cell. In what comes out a NULL has one meaning, the same
for every column: *this cell does not fit what was declared*. A missing cell is NaN in a number, and in
a category the code of the level ``None``, or -1 where none is declared.

Column names never enter the SQL: columns are called ``c0``, ``c1``, ... by their position in the source.

Two forms are avoided: ``x IN (...)`` and ``list_contains``, which DuckDB turns into a join that loses the
order of rows; and ``TRY_CAST(x AS ENUM(...))``, which writes out the whole list for each value that is not in
it.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import re
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from discreet.errors import SchemaError
from discreet.tables.duckdb import literal, literals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.schema import Column, Schema, TextFormat

SPACES = " \t\u00a0\u202f"
BLANKS = literal(SPACES)
"""Signs that are removed around a cell of text: blank, tab, and the two blanks that do not break a line."""
_NUMBER = re.compile(r"[+-]?[\d., ']*\d[\d., ']*(e[+-]?\d+)?\s*[%€$£]?", re.IGNORECASE)
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?")
_GAP = f"[{SPACES}]*"
CENSORED = "[<>≤≥]=?"
_BELOW = f"{_GAP}[<≤].*"
# Signs that are written for the declared one: typesetters have several blanks and apostrophes.
_GROUPS = {" ": f"[{SPACES}]", "'": "['’]"}
_PARTS = {
    "d": r"\d{1,2}", "m": r"\d{1,2}", "Y": r"\d{4}", "y": r"\d{2}", "H": r"\d{1,2}", "I": r"\d{1,2}",
    "M": r"\d{1,2}", "S": r"\d{1,2}", "f": r"\d{1,9}", "j": r"\d{1,3}", "p": "[AaPp][Mm]", "b": "[A-Za-z]{3}",
    "B": "[A-Za-z]{3,9}",
}  # fmt: skip
Cells: TypeAlias = Literal["text", "float", "integer", "boolean", "date", "datetime", "other"]
MISSING_CODE = -1
"""Code of a missing cell in a category without a level for it."""
NO_ID = 0
"""Fingerprint of a missing id: rows without one are one unit together."""
_LONGEST_MAP = 2_000
"""Longest list in which a cell is looked up one value after the other, as DuckDB does in a MAP."""
_EPOCH, _MICROSECOND = datetime.datetime(1970, 1, 1), datetime.timedelta(microseconds=1)
_FIRST_MOMENT, _LAST_MOMENT = "0001-01-01 00:00:00", "9999-12-31 23:59:59"
_PLAIN_TYPES: dict[str, Cells] = {
    "VARCHAR": "text", '"NULL"': "text", "UUID": "text",
    "DOUBLE": "float", "FLOAT": "float",
    "TINYINT": "integer", "SMALLINT": "integer", "INTEGER": "integer", "BIGINT": "integer",
    "HUGEINT": "integer", "UTINYINT": "integer", "USMALLINT": "integer", "UINTEGER": "integer",
    "UBIGINT": "integer", "UHUGEINT": "integer", "BIGNUM": "integer",
    "BOOLEAN": "boolean",
    "DATE": "date", "TIMESTAMP": "datetime", "TIMESTAMP_S": "datetime", "TIMESTAMP_MS": "datetime",
    "TIMESTAMP_NS": "datetime", "TIMESTAMP WITH TIME ZONE": "datetime",
}  # fmt: skip
_DECLARED: dict[Cells, str] = {
    "text": "string",
    "float": "number",
    "integer": "integer",
    "boolean": "boolean",
    "date": "date",
    "datetime": "datetime",
    "other": "string",
}
_SHORT_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
"""Integers that all fit into 64 bits: a longer one could make a cast fail, which would tell about a row."""
_WIDE_NUMBER = re.compile(r"DECIMAL\((19|[23]\d),.*|U?HUGEINT|BIGNUM")
"""Numbers past 64 bits: a cast to DOUBLE rounds them twice, while one by way of their text rounds once."""
_NAN = f"CAST({literal('nan')} AS DOUBLE)"


def looks_like_data(name: str) -> bool:
    """Return whether a column name is a number or a date, and may thus be a cell."""
    return any(pattern.fullmatch(name.strip()) for pattern in (_NUMBER, _DATE))


def number_pattern(text: TextFormat) -> str:
    """Return the pattern of a number: its sign is the first group, its digits are the second."""
    group = _GROUPS.get(text.group_char or "", re.escape(text.group_char or ""))
    whole = rf"\d{{1,3}}(?:{group}\d{{2,3}})*{group}\d{{3}}|\d+" if text.group_char else r"\d+"
    point = re.escape(text.decimal_char or ".")
    digits = rf"(?:{whole})(?:{point}\d*)?|{point}\d+"
    unit = "|".join(_escape(word) for word in sorted(text.units, key=len, reverse=True))
    before = f"(?:(?:{unit}){_GAP})?" if unit else ""
    after = f"(?:{_GAP}(?:{unit}))?" if unit else ""
    return rf"{before}([+-]?){_GAP}{before}((?:{digits})(?:[eE][+-]?\d+)?){after}"


def parse_number(cell: str, text: TextFormat) -> str:
    """Return the SQL for the number in a cell of text, NULL where there is none."""
    if text.decimal_char in (None, ".") and text.group_char is None and not text.units and not text.censored:
        return f"TRY_CAST({cell} AS DOUBLE)"
    limited = text.censored in ("limit", "half")
    prefix = f"(?:{CENSORED}{_GAP})?" if limited else ""
    pattern = literal(f"^{_GAP}{prefix}{number_pattern(text)}{_GAP}$")
    digits = f"regexp_extract({cell}, {pattern}, 2)"
    if text.group_char is not None:
        group = _GROUPS.get(text.group_char, re.escape(text.group_char))
        digits = f"regexp_replace({digits}, {literal(group)}, '', 'g')"
    if text.decimal_char != ".":
        digits = f"replace({digits}, {literal(text.decimal_char or '.')}, '.')"
    number = f"TRY_CAST(regexp_extract({cell}, {pattern}, 1) || {digits} AS DOUBLE)"
    if text.censored == "half":
        return f"{number} * CASE WHEN regexp_full_match({cell}, {literal(_BELOW)}) THEN 0.5 ELSE 1 END"
    return number


def is_censored(cell: str, text: TextFormat) -> str:
    """Return the SQL condition that a cell holds a limit and not a number: ``<0.5``."""
    pattern = f"{_GAP}{CENSORED}{_GAP}{number_pattern(text)}{_GAP}"
    return f"coalesce(regexp_full_match({cell}, {literal(pattern)}), false)"


def parse_moment(cell: str, text: TextFormat, kind: str) -> str:
    """Return the SQL for the DATE or TIMESTAMP in a cell of text, NULL where there is none."""
    if text.date_format is None:
        return f"TRY_CAST({cell} AS {kind})"
    # The engine takes a year of two digits for one of the first century.
    shape = literal(date_pattern(text.date_format))
    moment = f"CAST(TRY_STRPTIME({cell}, {literal(text.date_format)}) AS {kind})"
    return f"CASE WHEN regexp_full_match({cell}, {shape}) THEN {moment} END"


@cache
def date_pattern(date_format: str) -> str:
    """Return the pattern of dates of a format, with as many digits as a year must have."""
    parts = re.split(r"%([A-Za-z])", date_format)
    return "".join(_PARTS[part] if i % 2 else _escape(part) for i, part in enumerate(parts))


def parse_boolean(cell: str, text: TextFormat) -> str:
    """Return the SQL for ``true`` or ``false`` by the declared words or these two, NULL for any other."""
    cases = [
        f"WHEN coalesce(list_position([{literals(words)}], {cell}), 0) > 0 THEN '{name}'"
        for words, name in ((text.true_values, "true"), (text.false_values, "false"))
        if words
    ]
    # Rows that were made up, or read before, hold the levels and not the words of the file.
    return f"CASE {' '.join(cases)} WHEN lower({cell}) IN ('true', 'false') THEN lower({cell}) END"


def _escape(word: str) -> str:
    """Return a text as a pattern; RE2 knows no escaped blank or letter beyond ASCII."""
    return re.sub(r"([^\w\s]|_)", lambda match: f"\\{match[1]}" if match[1].isascii() else match[1], word)


def cell_kind(sql_type: str) -> Cells:
    """Return the kind of cells that a DuckDB type holds."""
    if sql_type.startswith("ENUM("):
        return "text"
    decimal = re.fullmatch(r"DECIMAL\(\d+,\s*(\d+)\)", sql_type)
    if decimal:
        return "float" if int(decimal[1]) else "integer"
    return _PLAIN_TYPES.get(sql_type, "other")


def md5_words(text: str) -> tuple[str, str]:
    """Return the SQL for both halves of the MD5 of a text, each a UBIGINT whose lowest byte is its first.

    The engine's own functions for them spell out all bits and take five times as long.
    """
    number = f"md5_number({text})"
    return f"CAST({number} & {2**64 - 1} AS UBIGINT)", f"CAST({number} >> 64 AS UBIGINT)"


def declared_type(sql_type: str) -> str:
    """Return the type under which a draft of a schema declares cells of a DuckDB type."""
    return _DECLARED[cell_kind(sql_type)]


def projection(
    columns: Sequence[Column],
    places: Sequence[int],
    sql_types: Sequence[str],
    schema: Schema,
    relation: str,
    *,
    id_texts: bool = False,
    id_salt: str = "",
) -> str:
    """Return the query that encodes declared columns.

    Parameters
    ----------
    columns : sequence of Column
        Columns to read, in order: numbers, integers, dates, datetimes, categories, or an id.
    places, sql_types : sequence of int, sequence of str
        Position of each column in the source, and its DuckDB type.
    schema : Schema
        Schema that says what stands for a missing cell besides NULL and NaN, and how text is written.
    relation : str
        FROM clause whose columns are called ``c0``, ``c1``, ...
    id_texts : bool
        Whether to append the id as text after all other columns, empty where it is missing.
    id_salt : str
        Text that is hashed before an id, so that fingerprints tell nothing to whoever does not know it.

    Returns
    -------
    str
        A query with columns of DOUBLE (numbers, integers; dates as steps since the lower bound),
        INTEGER (codes) and UBIGINT (an id's fingerprint).
    """
    present, parsed, encoded, texts = [], [], [], []
    for i, (column, place, sql_type) in enumerate(zip(columns, places, sql_types, strict=True)):
        cells = cell_kind(sql_type)
        _check_fit(column, cells, sql_type)
        text = schema.text_format(column)
        present.append(f"{_null_if_missing(f'c{place}', sql_type, column, schema)} AS r{i}")
        parsed.append(f"r{i}, {_parse(column, f'r{i}', sql_type, text, id_salt)} AS p{i}")
        encoded.append(f"{_encode(column, f'r{i}', f'p{i}')} AS e{i}")
        if id_texts and column.type == "id":
            texts.append(f"coalesce(CAST(r{i} AS VARCHAR), '') AS t{i}")
    return (
        f"SELECT {', '.join(encoded + texts)} FROM (SELECT {', '.join(parsed)} "  # noqa: S608 - no outside text
        f"FROM (SELECT {', '.join(present)} FROM {relation}))"
    )


def _check_fit(column: Column, cells: Cells, sql_type: str) -> None:
    """Raise SchemaError if cells of a DuckDB type cannot be read as the column is declared."""
    if column.type == "id" and cells not in ("text", "integer"):
        raise SchemaError(id_problem(column.name, sql_type))
    has_text_levels = column.type == "category" and isinstance((column.values or ("",))[0], str)
    if cells in ("date", "datetime"):
        wrong = not (has_text_levels or column.is_calendar)
    else:
        wrong = cells == "other" or (column.is_calendar and cells != "text")
    if wrong:
        raise SchemaError(
            f"Column {column.name!r} must be of the type that the table has, was declared "
            f"{column.type} where the table has {sql_type}. Declare another type, or role: drop."
        )


def id_problem(name: str, found: str) -> str:
    """Return the error text for a column that cannot hold ids: engines spell other types differently."""
    return (
        f"Column {name!r} must hold ids that are integers, text or UUIDs, and the table has {found}. Cast "
        "the id to text in a view."
    )


def _null_if_missing(cell: str, sql_type: str, column: Column, schema: Schema) -> str:
    """Return the SQL for a cell that is NULL where it is missing; blanks around text are removed."""
    cells = cell_kind(sql_type)
    missing_values = schema.missing_values_of(column)
    if cells == "text":
        text = f"CAST({cell} AS VARCHAR)"
        if not _keeps_blanks(column):
            text, missing_values = f"trim({text}, {BLANKS})", tuple(m.strip() for m in missing_values)
        tokens = literals(missing_values)
        conditions = [_is_listed(text, tokens)] if tokens else []
        if schema.text_format(column).censored == "missing":
            conditions.append(is_censored(text, schema.text_format(column)))
        return f"CASE WHEN NOT ({' OR '.join(conditions)}) THEN {text} END" if conditions else text
    conditions = []
    if cells in ("float", "integer"):
        values = [value for value in map(_as_number, missing_values) if value is not None]
        numbers = [f"CAST({value!r} AS DOUBLE)" for value in values]
        if numbers:
            conditions.append(_is_listed(_number(cell, sql_type), ", ".join(numbers)))
    if cells == "float":
        conditions.append(f"isnan({_number(cell, sql_type)})")
    return f"CASE WHEN NOT ({' OR '.join(conditions)}) THEN {cell} END" if conditions else cell


def _keeps_blanks(column: Column) -> bool:
    """Return whether blanks around a cell of text matter: in an id, and where a declared value has some."""
    return column.type == "id" or any(isinstance(v, str) and v != v.strip() for v in column.values or ())


def _is_listed(cell: str, values: str) -> str:
    return f"(coalesce(list_position([{values}], {cell}), 0) > 0 OR {cell} IS NULL)"


def _as_number(token: str) -> float | None:
    try:
        value = float(token)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _parse(column: Column, cell: str, sql_type: str, text: TextFormat, id_salt: str) -> str:
    """Return the SQL for a cell as a value of its column, NULL where it does not fit."""
    cells = cell_kind(sql_type)
    if column.type == "id":
        # Two units whose fingerprints coincide (probability n^2 / 2^65) count as one unit, which bounds
        # their rows together and so weakens no promise.
        salted = f"{literal(f'{id_salt}:')} || " if id_salt else ""
        return md5_words(f"{salted}CAST({cell} AS VARCHAR)")[1]
    if column.type == "date":
        assert isinstance(column.lower, datetime.date)
        date = _parse_moment(cell, cells, text, "DATE")
        return f"CAST({date} - DATE '{column.lower.isoformat()}' AS DOUBLE)"
    if column.type == "datetime":
        return _count_steps(_parse_moment(cell, cells, text, "TIMESTAMP"), column)
    if column.is_number:
        number = parse_number(cell, text) if cells == "text" else _number(cell, sql_type)
        if column.type == "number" or cells == "integer":
            return number
        return f"CASE WHEN {number} = floor({number}) OR isnan({number}) THEN {number} END"
    values = column.values or ()
    if sql_type in _SHORT_INTEGERS and _are_whole(values):
        # A number is found among numbers ten times as fast as its text among texts.
        codes = ", ".join(f"CAST({value} AS BIGINT): {i}" for i, value in enumerate(values))
        return f"MAP {{{codes}}}[CAST({cell} AS BIGINT)]"
    texts = [_canonical(value) for value in values]
    declared = cells == "text" and (text.true_values or text.false_values)
    spelled = parse_boolean(cell, text) if declared else _spell(cell, sql_type, values[0])
    if len(texts) > _LONGEST_MAP:
        return _hashed_position(spelled, texts)
    codes = ", ".join(f"{literal(text)}: {i}" for i, text in enumerate(texts))
    return f"MAP {{{codes}}}[{spelled}]"


def _parse_moment(cell: str, cells: Cells, text: TextFormat, kind: str) -> str:
    """Return the SQL for a cell as a DATE or TIMESTAMP, NULL where it is none."""
    return parse_moment(cell, text, kind) if cells == "text" else f"TRY_CAST({cell} AS {kind})"


def _count_steps(moment: str, column: Column) -> str:
    """Return the SQL for the whole steps from a column's lower bound to a moment, rounded down."""
    assert isinstance(column.lower, datetime.datetime)
    first, step = (part // _MICROSECOND for part in (column.lower - _EPOCH, column.step_length))
    # Moments beyond the calendar, infinite ones too, would overflow; they are clipped to the bounds anyway.
    inside = f"least(greatest({moment}, TIMESTAMP '{_FIRST_MOMENT}'), TIMESTAMP '{_LAST_MOMENT}')"
    since = f"(epoch_us({inside}) - {first})"
    # Whole numbers throughout: microseconds of 9999 years are no doubles. NULL, where no moment was read,
    # must not become a bound.
    floor = f"({since} - (({since} % {step}) + {step}) % {step}) // {step}"
    return f"CASE WHEN {moment} IS NOT NULL THEN CAST({floor} AS DOUBLE) END"


def _hashed_position(cell: str, texts: Sequence[str]) -> str:
    """Return the SQL for the position of a cell in a long list, NULL where it is not listed.

    Notes
    -----
    A list of pieces of text, each with the MD5 digests of about four listed values and a position behind
    each. The digest of a cell says which piece may hold it. An undeclared value with the digest of a declared
    one would count as that.
    """
    pieces = [""] * math.ceil(len(texts) / 4)
    for position, text in enumerate(texts):
        digest = hashlib.md5(text.encode(), usedforsecurity=False)
        number = int.from_bytes(digest.digest()[8:], "little")
        pieces[number % len(pieces)] += f"{digest.hexdigest()}{position:09}."
    place = f"CAST({md5_words(cell)[1]} % {len(pieces)} AS BIGINT) + 1"
    piece = f"string_split({literal(','.join(pieces))}, ',')[{place}]"
    return f"TRY_CAST(left(split_part({piece}, md5({cell}), 2), 9) AS INTEGER)"


def _number(cell: str, sql_type: str) -> str:
    """Return the SQL for a cell as the nearest double."""
    if sql_type == "BOOLEAN":
        return f"CAST(CAST({cell} AS INTEGER) AS DOUBLE)"
    if _WIDE_NUMBER.fullmatch(sql_type):
        cell = f"CAST({cell} AS VARCHAR)"
    return f"TRY_CAST({cell} AS DOUBLE)"


def _are_whole(values: Sequence[object]) -> bool:
    """Return whether a list of levels is short and of integers that every engine spells in full."""
    return len(values) <= _LONGEST_MAP and all(type(v) is int and abs(v) < 2**53 for v in values)


def _canonical(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _spell(cell: str, sql_type: str, example: object) -> str:
    """Return the SQL for a cell spelled like the level `example`: ``true``, ``7``, or unchanged."""
    cells, number = cell_kind(sql_type), _number(cell, sql_type)
    # 7.0 is how a float column spells the level 7.
    whole = (
        f"CASE WHEN abs({number}) < 9007199254740992 AND {number} = floor({number}) "
        f"THEN CAST(CAST({number} AS BIGINT) AS VARCHAR)"
    )
    if isinstance(example, bool):
        if cells in ("float", "integer"):
            return f"CASE {number} WHEN 0 THEN 'false' WHEN 1 THEN 'true' END"
        return f"CAST(TRY_CAST({cell} AS BOOLEAN) AS VARCHAR)"
    if isinstance(example, int):
        return f"{whole} END"
    if cells == "float":
        return f"{whole} ELSE CAST({cell} AS VARCHAR) END"
    return f"CAST({cell} AS VARCHAR)"


def _encode(column: Column, cell: str, parsed: str) -> str:
    if column.type == "id":
        return f"coalesce({parsed}, {NO_ID})"
    if column.is_number:
        return f"CASE WHEN {cell} IS NULL THEN {_NAN} ELSE {parsed} END"
    levels = column.levels
    missing = levels.index(None) if None in levels else MISSING_CODE
    known = parsed if column.other is None else f"coalesce({parsed}, {levels.index(column.other)})"
    return f"CASE WHEN {cell} IS NULL THEN {missing} ELSE {known} END"
