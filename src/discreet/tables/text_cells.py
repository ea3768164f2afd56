"""SQL that reads a cell of text as it is declared to be written: numbers, dates, words for true and false.

A cell that is written in any other way does not fit, and becomes NULL: ``1.5`` is no number where points
stand between groups of three digits. The patterns are those of RE2, which DuckDB uses.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from discreet.tables.duckdb import literal, literals

if TYPE_CHECKING:
    from discreet.schema import TextFormat

SPACES = " \t\u00a0\u202f"
BLANKS = literal(SPACES)
"""Signs that are removed around a cell of text: blank, tab, and the two blanks that do not break a line."""
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
