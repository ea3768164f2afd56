"""Hints for what people type by mistake: units, values without quotes, signs of print, words out of place."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

from discreet.arguments import nearest
from discreet.errors import ExpressionRefused

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from discreet.schema import Column

_VALUES = "Values of a category stand in straight single quotes: 'surgery'."
_UNIT = "Leave the unit out: numbers are in the unit that is declared for their column."
SIGNS: dict[str, tuple[str, str]] = {
    **{sign: (f"the quotation mark {sign}", _VALUES) for sign in "“”„‟«»‘’‚‛‹›´"},
    "≥": ("the sign ≥", "Write a >= b."),
    "≤": ("the sign ≤", "Write a <= b."),
    "≠": ("the sign ≠", "Write a <> b."),
    **{sign: (f"the sign {sign}", "Write a minus as -.") for sign in "−–—‐‑"},
    **{sign: (f"the sign {sign}", "Write a product as a * b.") for sign in "×·∙"},
    "÷": ("the sign ÷", "Write a quotient as a / b."),
    **{sign: (f"the sign {sign}", _UNIT) for sign in "€£¥°"},
}
"""Signs of print and units, which are often meant as a sign of the language, with the hint for each."""

_BEGINNINGS = ("COUNT", "SUM", "MEAN", "SELECT")
_MEANT: dict[str, str] = {
    **dict.fromkeys(
        ("HOW", "WHAT", "WHICH", "WHO", "SHOW", "GIVE", "LIST", "FIND", "TELL", "PLEASE"),
        "Write questions as COUNT WHERE age > 40, or MEAN(age) BY sex.",
    ),
    **dict.fromkeys(("PER", "EACH"), "Write BY before the columns of the groups."),
    **dict.fromkeys(("FOR", "IF"), "Write WHERE before a condition."),
    **dict.fromkeys(("COUNT", "SUM", "MEAN"), "An expression speaks of one row: ask for it by itself."),
    "TO": "Write age BETWEEN 40 AND 60.",
    "EQUALS": "Write a = b.",
}
RELATIONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
_NEED_MORE = (
    *RELATIONS,
    "AND",
    "OR",
    "NOT",
    "+",
    "-",
    "*",
    "/",
    "%",
    ",",
    "IN",
    "BETWEEN",
    "IS",
    "WHEN",
    "THEN",
)
_CANNOT_BEGIN = (
    *RELATIONS,
    "AND",
    "OR",
    "*",
    "/",
    ",",
    "IN",
    "BETWEEN",
    "IS",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
)
_CASE = "Write CASE WHEN age < 40 THEN 1 ELSE 0 END."
_MORE = {
    **dict.fromkeys(("+", "-", "*", "/", ","), "Write a column or a number after it."),
    **dict.fromkeys(("WHEN", "THEN"), _CASE),
    "%": "Write a percentage as a number: 0.4, or 40.",
    "IN": "Write age IN (40, 50).",
    "BETWEEN": "Write age BETWEEN 40 AND 60.",
    "IS": "Write x IS NULL, or x = 1.",
}
_NOTHING = "Write a condition such as age > 40 AND sex = 'F'."


_DAY_FORMS = (
    re.compile(r"(?P<year>[0-9]{4})[-/.](?P<month>[0-9]{1,2})[-/.](?P<day>[0-9]{1,2})"),
    re.compile(r"(?P<day>[0-9]{1,2})\.(?P<month>[0-9]{1,2})\.(?P<year>[0-9]{4})"),
    re.compile(r"(?P<day>1[3-9]|2[0-9]|3[01])[-/](?P<month>[0-9]{1,2})[-/](?P<year>[0-9]{4})"),
    re.compile(r"(?P<month>[0-9]{1,2})[-/](?P<day>1[3-9]|2[0-9]|3[01])[-/](?P<year>[0-9]{4})"),
)
_YEAR_OR_MONTH = re.compile(r"([12][0-9]{3})(?:-[0-9]{2})?")


def explain_day(text: str, column: str) -> str:
    """Return the hint for a date in another form than the language has: that very day, if it is clear which.

    Parameters
    ----------
    text : str
        Text that was typed, without its quotes.
    column : str
        Name of a column of dates for an example.
    """
    for form in _DAY_FORMS:
        match = form.fullmatch(text.strip())
        try:
            if match is not None:
                return f"Write '{datetime.date(*(int(match[part]) for part in ('year', 'month', 'day')))}'."
        except ValueError:
            return "There is no such day. Write a day as '2024-01-31'."
    if match := _YEAR_OR_MONTH.fullmatch(text.strip()):
        return f"Write a day as '{match[1]}-12-31', or YEAR({column}) = {match[1]}."
    return "Write a day as '2024-01-31'."


def explain_word(word: str, columns: Collection[Column]) -> ExpressionRefused | None:
    """Return the error for a word that is no column and was meant as something else; None for another word.

    Parameters
    ----------
    word : str
        Word as it was typed.
    columns : collection of Column
        Columns that may be named, whose values and units are compared with the word.
    """
    problem = f"Unknown column {word}."
    folded = word.casefold()
    for column in columns:
        for level in column.levels:
            if isinstance(level, str) and level.casefold() == folded:
                quoted = "'{}'".format(level.replace("'", "''"))
                name = f'"{column.name}"' if not column.name.isidentifier() else column.name
                hint = f"Write a value in single quotes: {name} = {quoted}."
                return ExpressionRefused(f"the unknown column {word}", hint, problem)
    for column in columns:
        if column.measure is not None and column.measure.casefold() == folded:
            hint = f"Leave the unit out: {column.name} is in {column.measure}."
            return ExpressionRefused(f"the unknown column {word}", hint, problem)
    capitals = word.upper() if word.isascii() else ""
    if capitals in _MEANT:
        return ExpressionRefused(f"the word {capitals}", _MEANT[capitals])
    if nearest(word, tuple(column.name for column in columns)) is None:
        close = nearest(capitals, _BEGINNINGS)
        if close is not None and capitals not in _BEGINNINGS and capitals[:1] == close[:1]:
            return ExpressionRefused(f"the unknown column {word}", f"Did you mean {close}?", problem)
    return None


COMPARED_TWICE = (
    "a comparison of a comparison",
    "Write 40 < age AND age < 60, or put one of them in parentheses: (age > 40) = smoker.",
)


def explain_order(tokens: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong with words of the language in an order that has no meaning, and the way out.

    Parameters
    ----------
    tokens : sequence of str
        Words, numbers and signs of an expression; stand-ins for its columns and values.

    Returns
    -------
    (str, str)
        Construct that is refused, and the hint.
    """
    depth = 0
    for i, (word, after) in enumerate(zip(tokens, (*tokens[1:], ""), strict=True)):
        depth += (word == "(") - (word == ")")
        if depth < 0:
            return "a ) without its (", "Leave it out, or write the ( before it."
        if depth == 0 and word == "," and i and _is_number(tokens[i - 1]) and _is_number(after):
            return (
                "a comma between two numbers",
                "Write 3.5 with a point, 50000 without a sign between the thousands, and lists in "
                "parentheses: age IN (40, 50).",
            )
        if found := _explain_pair(word, after):
            return found
    if depth > 0:
        return "a ( that is not closed", "Close it."
    if tokens and tokens[0] in _CANNOT_BEGIN:
        return f"nothing before {tokens[0]}", _NOTHING
    if tokens.count("CASE") > tokens.count("END"):
        return "a CASE without END", _CASE
    if "BETWEEN" in tokens and "AND" not in tokens:
        return "a BETWEEN without AND", "Write age BETWEEN 40 AND 60."
    return (
        "words in an order that has no meaning",
        "Write an expression such as CASE WHEN age < 40 THEN 1 ELSE 0 END.",
    )


def _explain_pair(word: str, after: str) -> tuple[str, str] | None:
    """Return what is wrong with two tokens side by side, the second empty at the end; None if nothing is."""
    if word in _NEED_MORE and after in ("", ")"):
        return f"nothing after {word}", _MORE.get(word, _NOTHING)
    if word in ("AND", "OR") and after in RELATIONS:
        return f"{after} after {word}", f"Name the column again: age > 40 {word} age < 60."
    if word == "IN" and after != "(":
        return "IN without a list in parentheses", "Write age IN (40, 50)."
    if word == "(" and after == ")":
        return "nothing in parentheses", "Write a column or a number in them: ABS(age)."
    if _is_number(word) and _is_number(after):
        return "two numbers side by side", "Write one number without blanks, or a sign between two."
    if _is_operand(word) and _is_operand(after):
        return "two values side by side", "Write a sign, AND or OR between them."
    return None


def _is_number(token: str) -> bool:
    return token[:1].isdigit() or token[:1] == "."


def _is_operand(token: str) -> bool:
    """Return whether a token is a number, a column or a value."""
    return _is_number(token) or token.startswith(("c_", "v_"))
