"""Lexer of expressions and queries: the tokens of a text.

Tokens know their place and depth, by which a query is cut into clauses; in a scanned expression stand-ins
(``c_0``, ``v_0``) replace the columns and quoted values that were named, so that neither reaches a parser or
an engine. All sentences are constants: what an analyst reads depends on the text and on the schema alone.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from discreet.errors import ExpressionRefused
from discreet.query.curation import SchemaKey
from discreet.query.language._hints import explain_day, explain_word
from discreet.query.language.vocabulary import (
    CALLED,
    DATE_FIELDS,
    FIELD,
    FUNCTIONS,
    KEYWORDS,
    LATER,
    MARK,
    NAMED,
    RESERVED,
    TAKEN,
    refused_function,
    refused_sign,
    refused_word,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from discreet.schema import Column, Schema


_WORDS_OF_A_NAME = 12  # a name without quotes is looked for among so many words
_WHOLE = re.compile(r"[0-9]{1,12}")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_CHARACTERS = 4096
MOST_NODES = 400
MOST_DEPTH = 40
MOST_ITEMS = 64
# Words with which a statement of SQL begins, beside SELECT.
_OPENINGS = (
    "WITH INSERT UPDATE DELETE CREATE DROP ALTER TRUNCATE EXPLAIN COPY ATTACH DETACH PRAGMA SET CALL MERGE "
    "REPLACE GRANT REVOKE VALUES TABLE FROM DESCRIBE SHOW USE BEGIN COMMIT ROLLBACK VACUUM ANALYZE EXECUTE "
    "PREPARE DO LOAD INSTALL EXPORT IMPORT"
)
_PHRASES = ("DATE", "INTERVAL", "EXTRACT")  # words with which a phrase of several tokens may begin


def write_name(name: str) -> str:
    """Return the name of a column as text, in double quotes unless it is a plain word."""
    return name if is_plain(name) else '"{}"'.format(name.replace('"', '""'))


def write_names(columns: Iterable[Column]) -> dict[str, str]:
    """Return the names of columns, each with its text."""
    return {column.name: write_name(column.name) for column in columns}


def is_plain(name: str) -> bool:
    """Return whether a name can be written without quotes."""
    return bool(_PLAIN_NAME.fullmatch(name)) and name.upper() not in TAKEN


# Text in quotes is one token: a value or a name may hold any word. A quote that is never closed is a token by
# itself; a comment that is never closed takes all that follows. An exponent that runs into a word is none.
_TOKEN = re.compile(
    r"(?P<blank>\s+)"
    r"|(?P<comment>--[^\n]*|/\*(?:.*?\*/|.*))"
    r"|(?P<value>'(?:[^']|'')*')"
    r'|(?P<name>"(?:[^"]|"")*")'
    r"|(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2}(?![\w.])|[12][0-9]{3}-(?:0[1-9]|1[0-2])(?![\w.-])|[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}(?![\w.]))"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+(?!\w))?)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<doubled>//|\*\*|==|<=>|<<|>>|->|=>)"
    r"|(?P<sign><=|>=|<>|!=|[-+*/%(),=<>])"
    r"|(?P<other>.)",
    re.DOTALL,
)
_BLANKS = " \t\r\n"  # of an expression; a query may be set with others between its clauses
_LONGEST_SHOWN = 64
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}\.[0-9]{2}0")
_PARENTHESES = re.compile("[()]")
_RUNS_ON = re.compile(r"[\w.]")
_DOUBLED = {
    "//": "Write FLOOR(x / 10).",
    "**": "Write POWER(x, 2).",
    "==": "Write a = b.",
    "<=>": "Write a = b OR (a IS NULL AND b IS NULL).",
    "->": "An expression has no functions of its own.",
    "=>": "Write a >= b for at least.",
}
_PREFIXES = frozenset(("NOT", "-", "+"))
_INTERVAL = re.compile(r"'?\s*([0-9]+)(?:\s+(DAYS?))?\s*'?")


class Token(NamedTuple):
    """A word, number, sign, quoted text or comment of a query, with its place.

    Attributes
    ----------
    text : str
        The characters as typed, with their quotes.
    start, end : int
        Place of the first character, and of the one after the last.
    depth : int
        Number of parentheses around it; a parenthesis itself has that of what is around the pair.
    kind : str
        Group of the lexer: comment, value, name, day, number, word, doubled, sign or other.
    """

    text: str
    start: int
    end: int
    depth: int
    kind: str

    @property
    def word(self) -> str:
        """The token in capitals; empty for a text in quotes, which is no word of the language."""
        # Capitals of other scripts can be ASCII, as of a dotless i: no word of the language is written so.
        return self.text.upper() if self.text[0] not in "'\"" and self.text.isascii() else ""

    @property
    def is_comment(self) -> bool:
        """Whether it is a comment, which no engine reads."""
        return self.kind == "comment"

    @property
    def is_name(self) -> bool:
        """Whether it may name a column or a table: a word, or anything in double quotes."""
        return self.kind == "name" or self.text.isidentifier()

    @property
    def name(self) -> str:
        """The name of the column or table, without its quotes."""
        return self.text[1:-1].replace('""', '"') if self.text[0] == '"' else self.text


def tokenize(text: str) -> list[Token]:
    """Return the tokens of any text, without blanks."""
    tokens, depth = [], 0
    for match in _TOKEN.finditer(text):
        kind, word = match.lastgroup, match[0]
        if kind == "blank":
            continue
        assert kind is not None
        depth -= word == ")"
        tokens.append(Token(word, match.start(), match.end(), depth, kind))
        depth += word == "("
    return tokens


def is_statement(text: str, columns: Collection[str]) -> bool:
    """Return whether a text is an SQL statement rather than a query in words.

    Parameters
    ----------
    text : str
        Text as it was typed.
    columns : collection of str
        Casefolded names of columns, with which a query in words may begin.
    """
    first = next((piece for piece in tokenize(text) if not piece.is_comment), None)
    if first is None:
        return False
    if first.word == "SELECT":
        return True
    return first.word in _OPENINGS.split() and first.text.casefold() not in columns


def split_list(tokens: Sequence[Token], depth: int = 0) -> Iterator[list[Token]]:
    """Yield the tokens between the commas of one depth."""
    part: list[Token] = []
    for token in tokens:
        if token.text == "," and token.depth == depth:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def source_text(tokens: Sequence[Token]) -> str:
    """Return what was typed from the first token to the last, on one line."""
    words: list[str] = []
    end = tokens[0].start if tokens else 0
    for token in tokens:
        words.append(token.text if token.start == end else f" {token.text}")
        end = token.end
    return "".join(words)


def bare(text: str) -> str:
    """Return a text without parentheses around the whole."""
    if not text.startswith("("):
        return text
    if "'" not in text and '"' not in text:
        # The first parenthesis is closed by the last if none before it is the last that is open.
        signs = _PARENTHESES.findall(text, 0, len(text) - 1)
        depth = itertools.accumulate(1 if sign == "(" else -1 for sign in signs)
        return text[1:-1] if text.endswith(")") and all(depth) else text
    outside = [piece for piece in tokenize(text) if piece.depth == 0]
    return text[1:-1] if [piece.text for piece in outside] == ["(", ")"] else text


def unwrap_arguments(text: str) -> str:
    """Return a text without parentheses around the one argument of a function: FLOOR(age / 10)."""
    tokens, opened, pairs = tokenize(text), [], {}
    for i, token in enumerate(tokens):
        if token.text == "(":
            opened.append(i)
        elif token.text == ")" and opened:
            pairs[opened.pop()] = i
    dropped = {
        place
        for i, j in pairs.items()
        if i and tokens[i - 1].word in FUNCTIONS and pairs.get(i + 1) == j - 1
        for place in (i + 1, j - 1)
    }
    if not dropped:
        return text
    ends = [token.end for token in tokens]
    blanks = ["", *(" " * (after.start - end) for after, end in zip(tokens[1:], ends, strict=False))]
    return "".join(blanks[i] + token.text for i, token in enumerate(tokens) if i not in dropped)


def read_whole(text: str) -> int | None:
    """Return a whole number of at most 12 digits; None for any other text."""
    return int(text) if _WHOLE.fullmatch(text) else None


def shorten(text: str) -> str:
    """Return a text short enough for an error message, with a mark for what a screen could not show."""
    visible = "".join(sign if sign.isprintable() else "?" for sign in text)
    return visible if len(visible) <= _LONGEST_SHOWN else f"{visible[: _LONGEST_SHOWN - 3]}..."


@dataclass(frozen=True, slots=True)
class ScannedExpression:
    """Text of an expression with stand-ins for columns and values.

    Attributes
    ----------
    text : str
        Expression with ``c_0``, ``c_1``, ... for columns and ``v_0``, ... for quoted values.
    columns, values : tuple
        Columns and values of the stand-ins, in their order.
    """

    text: str
    columns: tuple[Column, ...]
    values: tuple[str, ...]


def scan(text: object, schema: Schema) -> ScannedExpression:
    """Return the text of an expression with stand-ins, read token by token.

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
    reader, end, taken = _Reader(schema), 0, 0
    tokens = tokenize(text)
    for i, token in enumerate(tokens):
        after = tokens[i + 1] if i + 1 < len(tokens) else None
        if token.start > end:
            _check_blanks(text[end : token.start])
        end = token.end
        if i < taken:  # the rest of a phrase
            continue
        if token.kind == "word" and token.word in _PHRASES:
            taken = i + reader.take_phrase(tokens[i : i + 4])
            if i < taken:
                continue
        called = after is not None and after.text == "(" and not text[end : after.start].strip(_BLANKS)
        try:
            reader.take(token, after, called=called)
        except ExpressionRefused as refusal:
            pieces = (text[token.start : last.end] for last in tokens[i + 1 : i + _WORDS_OF_A_NAME])
            raise (reader.explain_unquoted_name(pieces) or refusal) from None
    _check_blanks(text[end:])
    if not reader.tokens:
        raise ExpressionRefused("no text", "Write an expression such as 'age * 2'.")
    return ScannedExpression(" ".join(reader.tokens), tuple(reader.columns), tuple(reader.values))


@lru_cache(maxsize=16)
def _released_columns(same: SchemaKey) -> dict[str, Column]:
    """Return the columns that may be named, by name in lower case."""
    return {column.name.casefold(): column for column in same.schema.released}


class _Reader:
    def __init__(self, schema: Schema) -> None:
        self.tokens: list[str] = []
        self.columns: list[Column] = []
        self.values: list[str] = []
        self._released = _released_columns(SchemaKey(schema))
        self._nested = self._prefixes = self._operands = 0

    def explain_unquoted_name(self, pieces: Iterable[str]) -> ExpressionRefused | None:
        """Return the error for a name of several words that is not in quotes; None if no piece is a name."""
        for piece in pieces:
            column = self._released.get(piece.casefold())
            if column is not None:
                return ExpressionRefused(
                    f"the name {piece} without quotes",
                    f"Write {write_name(column.name)}.",
                    f"The name {piece} needs quotes.",
                )
        return None

    def take(self, token: Token, after: Token | None, *, called: bool) -> None:
        """Append a token in the words of the language, or refuse it.

        Parameters
        ----------
        token : Token
            The token to read.
        after : Token or None
            The next one, which may run into a number; None at the end.
        called : bool
            Whether a parenthesis follows, as after the name of a function.
        """
        if token.kind == "comment":
            raise ExpressionRefused("a comment", "Leave it out.")
        if token.kind == "doubled":
            raise ExpressionRefused(f"the sign {token.text}", _DOUBLED.get(token.text, "Leave it out."))
        if token.kind == "day":
            raise ExpressionRefused("a date without quotes", explain_day(token.text, "admitted"))
        if token.kind == "number":
            if _THOUSANDS.fullmatch(token.text):
                whole, part = token.text.split(".")
                written = f"{whole}.{part.rstrip('0')}".removesuffix(".")
                raise ExpressionRefused(
                    f"the number {token.text}",
                    f"Write {written}, or {whole}{part} if the point sets thousands apart.",
                )
            if after is not None and after.start == token.end and _RUNS_ON.match(after.text):
                raise ExpressionRefused("a number that runs into a word", "Write numbers as 12, 0.5 or 1e6.")
            self._operand(token.text)
        elif token.kind == "word":
            if after is not None and after.text == "." and after.start == token.end:
                raise refused_sign(".")  # of t.age the table is not the mistake
            self._word(token.text, called=called)
        elif token.kind == "sign":
            self._put(token.text)
        elif token.kind == "value":
            self._value(token.text[1:-1].replace("''", "'"))
        elif token.kind == "name":
            self._add_named_column(token.name)
        else:
            raise _unreadable(token.text)

    def take_phrase(self, tokens: Sequence[Token]) -> int:
        """Append a phrase of several tokens, and return how many it has; 0 if none begins here.

        The phrases are ``DATE '2024-01-31'``, ``INTERVAL '30' DAY`` and ``EXTRACT(YEAR FROM``.
        """
        first, second, third, fourth = ([t.word for t in tokens] + [""] * 4)[:4]
        follows = tokens[1].kind if len(tokens) > 1 else ""
        if first == "DATE" and follows == "value":
            self._put(f"{MARK}DATE")
            self._put("(")
            self._value(tokens[1].text[1:-1].replace("''", "'"))
            self._put(")")
            return 2
        if first == "INTERVAL" and follows in ("value", "number"):
            return self._interval(tokens[1], third)
        if first == "EXTRACT" and second == "(":
            if third not in DATE_FIELDS or fourth != "FROM":
                raise ExpressionRefused("EXTRACT of something other than a part of a date", FIELD)
            self._put(MARK + third)
            self._put("(")
            return 4
        return 0

    def _interval(self, length: Token, unit: str) -> int:
        """Append the number of days of an interval, and return how many tokens it has."""
        match = _INTERVAL.fullmatch(length.text.upper())
        if match is None or (match[2] is None and unit not in ("DAY", "DAYS")):
            raise ExpressionRefused("an interval of something other than whole days", LATER)
        self._operand(match[1])
        return 2 if match[2] else 3

    def _word(self, word: str, *, called: bool) -> None:
        """Append a keyword, a function or a column, or refuse the word."""
        upper = word.upper() if word.isascii() else ""
        if upper in KEYWORDS or (called and upper in RESERVED):
            self._put(upper)
        elif called and upper in CALLED:
            self._put(MARK + CALLED[upper])
        elif called:
            raise refused_function(word)
        elif word.casefold() in self._released:
            self._column(self._released[word.casefold()])
        else:
            meant = None if upper in NAMED else explain_word(word, self._released.values())
            raise meant or refused_word(word, write_names(self._released.values()))

    def _value(self, value: str) -> None:
        hidden = next((sign for sign in value if not sign.isprintable()), None)
        if hidden is not None:
            raise refused_sign(hidden)
        self._operand(f"v_{len(self.values)}")
        self.values.append(value)

    def _add_named_column(self, name: str) -> None:
        column = next((column for column in self._released.values() if column.name == name), None)
        if column is None:
            raise ExpressionRefused(
                "a name in double quotes that is not a column",
                "Values of a category stand in single quotes, numbers without quotes.",
            )
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


def _check_blanks(blanks: str) -> None:
    """Refuse blanks that an expression does not have, such as one that does not break a line."""
    other = blanks.strip(_BLANKS)
    if other:
        raise refused_sign(other[0])


def too_deep() -> ExpressionRefused:
    """Return the error for a text with too many levels."""
    return ExpressionRefused.not_allowed(
        f"more than {MOST_DEPTH} levels", "Ask in several questions, each of a part."
    )


def too_many() -> ExpressionRefused:
    """Return the error for a text with too many parts."""
    return ExpressionRefused.not_allowed(
        f"more than {MOST_NODES} parts", "Ask in several questions, each of a part."
    )


def _unreadable(sign: str) -> ExpressionRefused:
    if sign in "'\"":
        return ExpressionRefused(
            "a quote that is not closed", "Close it; a quote inside quotes is written twice."
        )
    return refused_sign(sign)
