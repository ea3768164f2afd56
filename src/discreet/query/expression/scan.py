"""From an analyst's text to words of the language: everything else ends here, before a parser sees it.

What leaves this module is made of keywords, function names, numbers, operators, and stand-ins for the
columns (``c_0``) and quoted values (``v_0``) that were named. A name or a value reaches neither the
parser nor an engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from discreet.errors import ExpressionRefused
from discreet.query.curation import Same
from discreet.query.expression.words import (
    FUNCTIONS,
    KEYWORDS,
    MOST_CHARACTERS,
    MOST_DEPTH,
    MOST_NODES,
    is_plain,
    refused_function,
    refused_sign,
    refused_word,
)

if TYPE_CHECKING:
    from discreet.schema import Column, Schema

_TOKEN = re.compile(
    r"(?P<blank>[ \t\r\n]+)"
    r"|(?P<comment>--|/\*)"
    r"|(?P<doubled>//|\*\*|==|<=>|<<|>>|->|=>)"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<tail>[A-Za-z0-9_.]*)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)(?P<call>[ \t\r\n]*\()?"
    r"|(?P<sign><=|>=|<>|!=|[-+*/(),=<>])"
    r"|'(?P<value>(?:[^']|'')*)'"
    r'|"(?P<name>(?:[^"]|"")*)"'
)
_DOUBLED = {
    "//": "Write FLOOR(x / 10).",
    "**": "Write POWER(x, 2).",
    "==": "Write a = b.",
    "<=>": "No cell is NULL here: write a = b.",
    "->": "An expression has no functions of its own.",
    "=>": "Write a >= b for at least.",
}
_PREFIXES = frozenset(("NOT", "-", "+"))


@dataclass(frozen=True, slots=True)
class Scanned:
    """A text in the words of the language.

    Attributes
    ----------
    text : str
        With ``c_0``, ``c_1``, ... for columns and ``v_0``, ... for quoted values.
    columns, values : tuple
        What these stand for.
    """

    text: str
    columns: tuple[Column, ...]
    values: tuple[str, ...]


def scan(text: object, schema: Schema) -> Scanned:
    """Read a text word by word.

    Raises
    ------
    ExpressionRefused
        At the first character or word that is not of the language.
    """
    if not isinstance(text, str):
        raise ExpressionRefused("no text", "Write an expression such as 'age * 2'.")
    if len(text) > MOST_CHARACTERS:
        raise ExpressionRefused(
            f"more than {MOST_CHARACTERS} characters", "Ask in several questions, each of a part."
        )
    reader = _Reader(schema)
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _unreadable(text[place])
        reader.take(match)
        place = match.end()
    if not reader.tokens:
        raise ExpressionRefused("no text", "Write an expression such as 'age * 2'.")
    return Scanned(" ".join(reader.tokens), tuple(reader.columns), tuple(reader.values))


@lru_cache(maxsize=16)
def _released(same: Same) -> dict[str, Column]:
    """Return the columns that may be named, by their names without case."""
    return {column.name.casefold(): column for column in same.schema.released}


class _Reader:
    def __init__(self, schema: Schema) -> None:
        self.tokens: list[str] = []
        self.columns: list[Column] = []
        self.values: list[str] = []
        self._released = _released(Same(schema))
        self._names = tuple(column.name for column in schema.released)
        self._nested = self._prefixes = self._operands = 0

    def take(self, match: re.Match[str]) -> None:
        kind = match.lastgroup
        if kind == "blank":
            return
        if kind == "comment":
            raise ExpressionRefused("a comment", "Leave it out.")
        if kind == "doubled":
            sign = match["doubled"]
            raise ExpressionRefused(f"the sign {sign}", _DOUBLED.get(sign, "Leave it out."))
        if match["number"] is not None:
            if match["tail"]:
                raise ExpressionRefused("a number that runs into a word", "Write numbers as 12, 0.5 or 1e6.")
            self._operand(match["number"])
        elif match["word"] is not None:
            self._word(match["word"], called=match["call"] is not None)
        elif kind == "sign":
            self._put(match["sign"])
        elif kind == "value":
            self._value(match["value"].replace("''", "'"))
        else:
            self._quoted(match["name"].replace('""', '"'))

    def _word(self, word: str, *, called: bool) -> None:
        upper = word.upper()
        if upper in KEYWORDS or (called and upper in FUNCTIONS):
            self._put(upper)
        elif called:
            raise refused_function(word)
        elif word.casefold() in self._released:
            self._column(self._released[word.casefold()])
        else:
            raise refused_word(word, self._names)
        if called:
            self._put("(")

    def _value(self, value: str) -> None:
        hidden = next((sign for sign in value if not sign.isprintable()), None)
        if hidden is not None:
            raise refused_sign(hidden)
        self._operand(f"v_{len(self.values)}")
        self.values.append(value)

    def _quoted(self, name: str) -> None:
        column = next((column for column in self._released.values() if column.name == name), None)
        if column is None:
            raise ExpressionRefused(
                "a name in double quotes that is not a column", "Values of a category stand in single quotes."
            )
        if is_plain(name):
            raise ExpressionRefused('the sign "', "Write the name of a column as it is.")
        self._column(column)

    def _column(self, column: Column) -> None:
        self._operand(f"c_{len(self.columns)}")
        self.columns.append(column)

    def _operand(self, token: str) -> None:
        self._operands += 1
        if self._operands > MOST_NODES:
            raise too_many()
        self._put(token)

    def _put(self, token: str) -> None:
        if token in ("(", "CASE"):
            self._nested += 1
        elif token in (")", "END"):
            self._nested -= 1
        self._prefixes = self._prefixes + 1 if token in _PREFIXES else 0
        if max(self._nested, self._prefixes) > MOST_DEPTH:
            raise too_deep()
        self.tokens.append(token)


def too_deep() -> ExpressionRefused:
    """Return what is raised for a text with too many levels."""
    return ExpressionRefused(f"more than {MOST_DEPTH} levels", "Ask in several questions, each of a part.")


def too_many() -> ExpressionRefused:
    """Return what is raised for a text with too many parts."""
    return ExpressionRefused(f"more than {MOST_NODES} parts", "Ask in several questions, each of a part.")


def _unreadable(sign: str) -> ExpressionRefused:
    if sign in "'\"":
        return ExpressionRefused(
            "a quote that is not closed", "Close it; a quote inside quotes is written twice."
        )
    return refused_sign(sign)
