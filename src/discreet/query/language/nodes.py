"""Nodes of a parsed expression.

Nodes are made by the functions of :mod:`~discreet.query.language._normal_form`, which bring every spelling
of an expression into one form; nothing else constructs them. Each knows its ``text``: an expression of the
language that parses back into the same node, and by which nodes are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from discreet.query.language.lexer import write_name

if TYPE_CHECKING:
    from fractions import Fraction

    from discreet.schema import Level

Relation: TypeAlias = Literal["<", "<=", "=", "<>"]
Function: TypeAlias = Literal["ABS", "SQRT", "LN", "EXP", "FLOOR"]
Extremum: TypeAlias = Literal["LEAST", "GREATEST"]


@dataclass(frozen=True, eq=False)
class Node:
    """A part of an expression.

    Not an abstract class: asking whether something is an instance of one takes ten times as long, and a text
    is read by asking little else.
    """

    text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self._write())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def _write(self) -> str:
        """Return the text."""
        raise NotImplementedError


class Number(Node):
    """A part that is a number for every row."""


class Condition(Node):
    """A part that is true or false for every row."""


@dataclass(frozen=True, eq=False)
class Constant(Number):
    """A number written in the expression, or computed from such numbers."""

    value: Fraction

    def _write(self) -> str:
        return write_number(self.value)


@dataclass(frozen=True, eq=False)
class Reference(Number):
    """A column whose cells are numbers."""

    name: str

    def _write(self) -> str:
        return write_name(self.name)


@dataclass(frozen=True, eq=False)
class Sum(Number):
    """Terms added or subtracted: sorted, without sums among them."""

    terms: tuple[tuple[int, Number], ...]  # the sign, 1 or -1

    def _write(self) -> str:
        signed = [f"{'+' if sign > 0 else '-'} {term.text}" for sign, term in self.terms]
        return f"({' '.join(signed).removeprefix('+ ')})"


@dataclass(frozen=True, eq=False)
class Product(Number):
    """Factors multiplied: sorted, without products among them, a positive constant first."""

    factors: tuple[Number, ...]

    def _write(self) -> str:
        return f"({' * '.join(factor.text for factor in self.factors)})"


@dataclass(frozen=True, eq=False)
class Quotient(Number):
    """One number divided by another."""

    numerator: Number
    denominator: Number

    def _write(self) -> str:
        return f"({self.numerator.text} / {self.denominator.text})"


@dataclass(frozen=True, eq=False)
class Power(Number):
    """A number multiplied by itself; the exponent is a whole number from 0 to 8."""

    base: Number
    exponent: int

    def _write(self) -> str:
        return f"POWER({self.base.text}, {self.exponent})"


@dataclass(frozen=True, eq=False)
class Call(Number):
    """A function of one number."""

    function: Function
    argument: Number

    def _write(self) -> str:
        return f"{self.function}({self.argument.text})"


@dataclass(frozen=True, eq=False)
class Extreme(Number):
    """The smallest or the largest of several numbers, sorted."""

    function: Extremum
    items: tuple[Number, ...]

    def _write(self) -> str:
        return f"{self.function}({', '.join(item.text for item in self.items)})"


@dataclass(frozen=True, eq=False)
class Case(Number):
    """The number of the first condition that holds."""

    branches: tuple[tuple[Condition, Number], ...]
    otherwise: Number

    def _write(self) -> str:
        whens = " ".join(f"WHEN {condition.text} THEN {value.text}" for condition, value in self.branches)
        return f"CASE {whens} ELSE {self.otherwise.text} END"


@dataclass(frozen=True, eq=False)
class Indicator(Number):
    """1 where a condition holds, 0 where it does not."""

    condition: Condition

    def _write(self) -> str:
        return f"CASE WHEN {self.condition.text} THEN 1 ELSE 0 END"


@dataclass(frozen=True, eq=False)
class Truth(Condition):
    """A condition that is the same for every row."""

    value: bool

    def _write(self) -> str:
        return "TRUE" if self.value else "FALSE"


@dataclass(frozen=True, eq=False)
class Compare(Condition):
    """A comparison of two numbers."""

    relation: Relation
    left: Number
    right: Number

    def _write(self) -> str:
        return f"({self.left.text} {self.relation} {self.right.text})"


@dataclass(frozen=True, eq=False)
class Member(Condition):
    """A test whether a cell holds one of several declared levels.

    Attributes
    ----------
    name : str
        Declared name of the column.
    levels : tuple
        All its levels, in declared order; ``None`` stands for a missing cell. A column of numbers that may be
        missing counts as one with the levels ``False`` (there) and ``None``.
    codes : tuple of int
        Positions of the levels that fulfill the test: some, not all.
    flag : str or None
        Name of the flag of a column of numbers.
    """

    name: str
    levels: tuple[Level, ...]
    codes: tuple[int, ...]
    flag: str | None = None

    def _write(self) -> str:
        name = write_name(self.name)
        if self.flag is not None:
            return f"({name} IS {'' if self.codes == (1,) else 'NOT '}NULL)"
        chosen = [self.levels[code] for code in self.codes]
        listed = [write_level(level) for level in chosen if level is not None]
        parts = [f"({name} IN ({', '.join(listed)}))"] if listed else []
        parts += [f"({name} IS NULL)"] if None in chosen else []
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"


@dataclass(frozen=True, eq=False)
class Junction(Condition):
    """Several conditions joined, sorted, each once."""

    word: Literal["AND", "OR"]
    parts: tuple[Condition, ...]

    def _write(self) -> str:
        return f"({f' {self.word} '.join(part.text for part in self.parts)})"


def write_level(level: Level) -> str:
    """Return a declared value of a category as text."""
    if isinstance(level, bool):
        return "TRUE" if level else "FALSE"
    return str(level) if isinstance(level, int) else "'{}'".format(str(level).replace("'", "''"))


def write_number(value: Fraction) -> str:
    """Return a fraction as text: as a decimal if it is one, else as a quotient."""
    rest, places = value.denominator, 0
    for prime in (2, 5):
        times = 0
        while rest % prime == 0:
            rest, times = rest // prime, times + 1
        places = max(places, times)
    if rest != 1:
        return f"({value.numerator} / {value.denominator})"
    digits = str(abs(value.numerator) * 10**places // value.denominator).zfill(places + 1)
    whole, part = digits[: len(digits) - places], digits[len(digits) - places :]
    return f"{'-' if value < 0 else ''}{whole}{'.' if part else ''}{part}"
