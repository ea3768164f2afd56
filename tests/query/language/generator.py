"""Expressions by the thousand: drawn from the grammar, or thrown together from words of any kind.

One generator serves hypothesis, which shrinks what it finds, and a deterministic stream for the long run.
"""

from __future__ import annotations

import hashlib
from typing import Protocol


class Choices(Protocol):
    """Where choices come from."""

    def below(self, n: int) -> int:
        """Return a whole number from 0 to n - 1."""


class HashChoices:
    """Choices that follow from a number: the same run again, without a random generator."""

    def __init__(self, seed: int) -> None:
        self._seed, self._block, self._left = seed, 0, b""

    def below(self, n: int) -> int:
        if len(self._left) < 2:
            self._left = hashlib.blake2b(f"{self._seed}/{self._block}".encode()).digest()
            self._block += 1
        value, self._left = int.from_bytes(self._left[:2]), self._left[2:]
        return value % n


NUMBERS = (
    "age",
    "income",
    "delta",
    "tiny",
    "huge",
    "wide",
    "owner",
    "score",
    "admitted",
    "(discharged - admitted)",
    "YEAR(discharged)",
    "(admitted + 30)",
    '"hours-per-week"',
    '"case"',
)
CONSTANTS = (
    "0", "1", "2", "3", "7", "10", "40", "0.5", "0.1", ".25", "1e-9", "1e6", "1e50", "33.", "0.333",
    "1e-40", "2.5e3",
)  # fmt: skip
_RELATIONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
_LEVELS = {
    "ward": ("'surgery'", "'médecine'", "'O''Hara'", "'A;B--'", "'other'"),
    "owner": ("0", "1"),
    "smoker": ("TRUE", "FALSE"),
    "score": ("1", "5", "10"),
}
SOUP = (
    "age", "income", "delta", "ward", "smoker", "owner", "agee", "person", "rowid", "x", "1", "0", "1e999",
    "0x10", "1_000", ".5", "5.", "'surgery'", "'x'", "'", '"age"', '"case"', "''", "(", ")", ",", "+", "-",
    "*", "/", "%", "=", "<", ">", "<>", "<=", "!=", "!", "==", "||", "::", ";", "--", "/*", "*/", "@", "$1",
    "?", ":a", "[", "]", "{", "}", "~", "^", "&", "|", "\\", "`", "#", ".", "..", "\x00", "\n", "\t", "é",
    "\u202e", "𝟏", "SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "CASE",
    "WHEN", "THEN", "ELSE", "END", "TRUE", "FALSE", "LIKE", "OVER", "CAST", "AS", "DATE", "INTERVAL", "ANY",
    "EXISTS", "UNION", "FILTER", "DISTINCT", "ESCAPE", "ABS(", "SQRT(", "LN(", "EXP(", "FLOOR(", "POWER(",
    "LEAST(", "GREATEST(", "RANDOM(", "SUM(", "COUNT(*)", "read_csv('/etc/passwd')", "pg_sleep(1)",
    "getenv('HOME')", "error('x')", "curated", "c0", "c_0", "v_0", "s_0", "information_schema", "IF(",
    "COALESCE(", "lambda", "->", "=>", ":=", "<=>", "//", "**", "<<", "XOR", "DIV",
)  # fmt: skip


class Generator:
    """Draws texts."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def text(self, depth: int = 4) -> str:
        """Draw an expression, most often one of the language."""
        drawn = self._choices.below(10)
        if drawn < 7:
            return self.number(depth)
        return self.condition(depth) if drawn < 9 else self.wild(depth)

    def number(self, depth: int) -> str:
        """Draw a number, with guards that let bounds be derived."""
        if depth <= 0:
            return self._of(NUMBERS) if self._choices.below(3) else self._of(CONSTANTS)
        inner = depth - 1
        match self._choices.below(20):
            case 16:
                date = self._of(
                    ("admitted", "discharged", "(discharged + age)", "COALESCE(discharged, admitted)")
                )
                return f"{self._of(('YEAR', 'MONTH', 'DAY', 'QUARTER', 'ISODOW'))}({date})"
            case 17:
                whole = self._of(("age", "score", "FLOOR(income)", "(discharged - admitted)", "(age * -3)"))
                return f"MOD({whole}, {self._of(('7', '-3', 'score', 'age'))})"
            case 18:
                word = self._of(("CEIL({})", "ROUND({})", "ROUND({}, 2)", "ROUND({}, -1)"))
                return word.format(f"LEAST(GREATEST({self.number(inner)}, -1e9), 1e9)")
            case 19:
                return f"NULLIF({self.number(inner)}, {self.number(0)})"
            case 0 | 1:
                return f"({self.number(inner)} + {self.number(inner)})"
            case 2 | 3:
                return f"{self.number(inner)} - {self.number(inner)}"
            case 4 | 5:
                return f"({self.number(inner)}) * ({self.number(inner)})"
            case 6:
                guard = self._of(("1", "0.5", "1e-9", "100"))
                return f"({self.number(inner)}) / GREATEST({guard}, ABS({self.number(inner)}))"
            case 7:
                return f"- ({self.number(inner)})"
            case 8:
                return f"EXP(LEAST({self._of(('1', '5', '200', '30'))}, {self.number(inner)}))"
            case 9:
                return f"LN(GREATEST({self._of(('1', '1e-9', '0.5', '1e20'))}, {self.number(inner)}))"
            case 10:
                return f"SQRT(ABS({self.number(inner)}))"
            case 11:
                return f"FLOOR(LEAST(GREATEST({self.number(inner)}, -1e9), 9e15))"
            case 12:
                return f"POWER({self.number(inner)}, {self._choices.below(9)})"
            case 13:
                word = self._of(("LEAST", "GREATEST"))
                items = ", ".join(self.number(inner) for _ in range(1 + self._choices.below(3)))
                return f"{word}({items})"
            case 14:
                whens = " ".join(
                    f"WHEN {self.condition(inner)} THEN {self.number(inner)}"
                    for _ in range(1 + self._choices.below(2))
                )
                default = f" ELSE {self.number(inner)}" if self._choices.below(2) else ""
                return f"CASE {whens}{default} END"
            case 15:
                return f"COALESCE({self.number(inner)}, {self.number(0)})"
            case _:
                return self.counted(inner)

    def counted(self, depth: int) -> str:
        """Draw a condition that counts as 0 or 1."""
        return f"({self.condition(depth)})"

    def condition(self, depth: int) -> str:
        """Draw a condition."""
        inner = depth - 1
        if depth <= 0:
            name = self._of(tuple(_LEVELS))
            return f"{name} {self._of(('=', '<>'))} {self._of(_LEVELS[name])}"
        match self._choices.below(10):
            case 0 | 1 | 2:
                return f"({self.number(inner)}) {self._of(_RELATIONS)} ({self.number(inner)})"
            case 3:
                return f"({self.number(inner)}) BETWEEN {self.number(0)} AND {self.number(0)}"
            case 4:
                name = self._of(tuple(_LEVELS))
                listed = ", ".join(self._of(_LEVELS[name]) for _ in range(1 + self._choices.below(3)))
                return f"{name} {self._of(('', 'NOT '))}IN ({listed})"
            case 5:
                name = self._of(("ward", "delta", "age", "smoker"))
                return f"{name} IS {self._of(('', 'NOT '))}NULL"
            case 6:
                return f"({self.condition(inner)} {self._of(('AND', 'OR'))} {self.condition(inner)})"
            case 7:
                return f"NOT ({self.condition(inner)})"
            case 8:
                word = self._of(("NULL", "TRUE", "FALSE"))
                return f"({self.condition(inner)}) IS {self._of(('', 'NOT '))}{word}"
            case _:
                return self._of(
                    (
                        "TRUE",
                        "FALSE",
                        "smoker",
                        "admitted < '2021-06-30'",
                        "age IN (33, 40.0, -1)",
                        "discharged > admitted",
                        "admitted + age <= discharged",
                        "(score * 1) = 3.5",
                        "discharged BETWEEN admitted AND DATE '2023-01-01'",
                    )
                )

    def wild(self, depth: int) -> str:
        """Draw a number without guards, most often one whose bounds cannot be derived."""
        whole = self.number(depth)
        return self._of(
            (
                f"1 / ({whole})",
                f"LN({whole})",
                f"SQRT({whole})",
                f"EXP({whole})",
                f"POWER({whole}, 9)",
                f"FLOOR({whole})",
            )
        )

    def soup(self, length: int = 12) -> str:
        """Throw words together."""
        words = [self._of(SOUP) for _ in range(1 + self._choices.below(length))]
        return self._of((" ", "", " ")).join(words)

    def mutated(self, depth: int = 3) -> str:
        """Put a strange word somewhere into an expression of the language."""
        text = self.text(depth)
        place = self._choices.below(len(text) + 1)
        return f"{text[:place]}{self._of((' ', ''))}{self._of(SOUP)}{self._of((' ', ''))}{text[place:]}"

    def _of(self, options: tuple[str, ...]) -> str:
        return options[self._choices.below(len(options))]
