"""Nodes of a parsed expression.

Nodes are made by the functions of :mod:`~discreet.query.language._normal_form`, which bring every spelling
of an expression into one form; nothing else constructs them. Each knows its ``text``: an expression of the
language that parses back into the same node, and by which nodes of one kind are equal; and whether it can be
unknown (SQL's NULL) for a row with missing cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from discreet.errors import ExpressionRefused
from discreet.query.language.lexer import MOST_CHARACTERS, MOST_ITEMS, write_name

if TYPE_CHECKING:
    from fractions import Fraction

    from discreet.schema import Level

Relation: TypeAlias = Literal["<", "<=", "=", "<>"]
Function: TypeAlias = Literal["ABS", "SQRT", "LN", "EXP", "FLOOR", "CEIL", "ROUND"]
Extremum: TypeAlias = Literal["LEAST", "GREATEST"]
Tested: TypeAlias = Literal["NULL", "NOT NULL", "TRUE", "NOT TRUE"]

_LONGEST_TEXT = 16 * MOST_CHARACTERS  # of a node; beyond it a small text could take any amount of memory
_LONGEST_LIST = 3072  # characters of a list of levels before it is written the other way round


@dataclass(frozen=True, eq=False)
class Node:
    """A part of an expression.

    Not an abstract class: asking whether something is an instance of one takes ten times as long, and a text
    is read by asking little else.
    """

    text: str = field(init=False)
    nullable: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nullable", self._can_be_unknown())
        text = self._write()
        if len(text) > _LONGEST_TEXT:
            raise too_long()
        object.__setattr__(self, "text", text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def _write(self) -> str:
        """Return the text."""
        raise NotImplementedError

    def _can_be_unknown(self) -> bool:
        """Return False only if no row makes the part unknown."""
        return False


class Number(Node):
    """A part that is a number for every row, or unknown."""


class Condition(Node):
    """A part that is true, false or unknown for every row."""


class Date(Node):
    """A part that is a day of the calendar for every row, or unknown."""


@dataclass(frozen=True, eq=False)
class Constant(Number):
    """A number written in the expression, or computed from such numbers."""

    value: Fraction

    def _write(self) -> str:
        return write_number(self.value)


@dataclass(frozen=True, eq=False)
class Null(Number):
    """The value NULL, which only a branch of a CASE may have."""

    def _write(self) -> str:
        return "NULL"

    def _can_be_unknown(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Reference(Number):
    """A column whose cells are numbers.

    Attributes
    ----------
    name : str
        Declared name of the column.
    missing : Member or None
        Test for a missing cell; None if no cell may be missing.
    levels : tuple
        All levels of a category of whole numbers; empty for a column of numbers.
    is_date : bool
        Whether it is a column of dates, counted from its first day.
    """

    name: str
    missing: Member | None = None
    levels: tuple[Level, ...] = ()
    is_date: bool = False

    def _can_be_unknown(self) -> bool:
        return self.missing is not None

    def _write(self) -> str:
        return write_name(self.name)


@dataclass(frozen=True, eq=False)
class Sum(Number):
    """Terms added or subtracted: sorted, without sums among them."""

    terms: tuple[tuple[int, Number], ...]  # the sign, 1 or -1

    def _write(self) -> str:
        signed = [f"{'+' if sign > 0 else '-'} {term.text}" for sign, term in self.terms]
        return f"({' '.join(signed).removeprefix('+ ')})"

    def _can_be_unknown(self) -> bool:
        return any(term.nullable for _, term in self.terms)


@dataclass(frozen=True, eq=False)
class Product(Number):
    """Factors multiplied: sorted, without products among them, a positive constant first."""

    factors: tuple[Number, ...]

    def _write(self) -> str:
        return f"({' * '.join(factor.text for factor in self.factors)})"

    def _can_be_unknown(self) -> bool:
        return any(factor.nullable for factor in self.factors)


@dataclass(frozen=True, eq=False)
class Quotient(Number):
    """One number divided by another."""

    numerator: Number
    denominator: Number

    def _write(self) -> str:
        return f"({self.numerator.text} / {self.denominator.text})"

    def _can_be_unknown(self) -> bool:
        return self.numerator.nullable or self.denominator.nullable


@dataclass(frozen=True, eq=False)
class Power(Number):
    """A number multiplied by itself; the exponent is a whole number from 0 to 8."""

    base: Number
    exponent: int

    def _write(self) -> str:
        return f"POWER({self.base.text}, {self.exponent})"

    def _can_be_unknown(self) -> bool:
        return self.base.nullable


@dataclass(frozen=True, eq=False)
class Call(Number):
    """A function of one number."""

    function: Function
    argument: Number

    def _write(self) -> str:
        return f"{self.function}({self.argument.text})"

    def _can_be_unknown(self) -> bool:
        return self.argument.nullable


@dataclass(frozen=True, eq=False)
class Extreme(Number):
    """The smallest or the largest of those of several numbers that are known, sorted."""

    function: Extremum
    items: tuple[Number, ...]

    def _write(self) -> str:
        return f"{self.function}({', '.join(item.text for item in self.items)})"

    def _can_be_unknown(self) -> bool:
        return all(item.nullable for item in self.items)


@dataclass(frozen=True, eq=False)
class Coalesce(Number):
    """The first of several numbers that is known."""

    items: tuple[Number, ...]

    def _write(self) -> str:
        return f"COALESCE({', '.join(item.text for item in self.items)})"

    def _can_be_unknown(self) -> bool:
        return all(item.nullable for item in self.items)


@dataclass(frozen=True, eq=False)
class Case(Number):
    """The number of the first condition that is true."""

    branches: tuple[tuple[Condition, Number], ...]
    otherwise: Number

    def _write(self) -> str:
        whens = " ".join(f"WHEN {condition.text} THEN {value.text}" for condition, value in self.branches)
        return f"CASE {whens} ELSE {self.otherwise.text} END"

    def _can_be_unknown(self) -> bool:
        return self.otherwise.nullable or any(value.nullable for _, value in self.branches)


@dataclass(frozen=True, eq=False)
class Indicator(Number):
    """1 where a condition is true, 0 where it is false, and unknown where it is."""

    condition: Condition

    def _write(self) -> str:
        # The CASE is never unknown, so it is written only for a condition that is not either.
        return self.condition.text if self.nullable else f"CASE WHEN {self.condition.text} THEN 1 ELSE 0 END"

    def _can_be_unknown(self) -> bool:
        return self.condition.nullable


@dataclass(frozen=True, eq=False)
class Remainder(Number):
    """What is left of a whole number divided by another, with the sign of the first."""

    numerator: Number
    denominator: Number

    def _write(self) -> str:
        return f"MOD({self.numerator.text}, {self.denominator.text})"

    def _can_be_unknown(self) -> bool:
        return self.numerator.nullable or self.denominator.nullable


@dataclass(frozen=True, eq=False)
class Truth(Condition):
    """A condition that is the same for every row."""

    value: bool

    def _write(self) -> str:
        return "TRUE" if self.value else "FALSE"


@dataclass(frozen=True, eq=False)
class Compare(Condition):
    """A comparison of two numbers, or of two dates."""

    relation: Relation
    left: Number | Date
    right: Number | Date

    def _write(self) -> str:
        return f"({self.left.text} {self.relation} {self.right.text})"

    def _can_be_unknown(self) -> bool:
        return self.left.nullable or self.right.nullable


@dataclass(frozen=True, eq=False)
class Test(Condition):
    """A test whether a part is unknown, or whether a condition is true; itself never unknown."""

    subject: Node
    word: Tested

    def _write(self) -> str:
        return f"({self.subject.text} IS {self.word})"


@dataclass(frozen=True, eq=False)
class Member(Condition):
    """A test whether a cell holds one of several declared levels.

    Attributes
    ----------
    name : str
        Declared name of the column.
    levels : tuple
        All its levels, in declared order; ``None``, the last if it is one, stands for a missing cell. A
        column of numbers that may be missing counts as one with the levels ``False`` (there) and ``None``.
    codes : tuple of int
        Positions of the levels that fulfill the test, that of a missing cell not among them.
    missing : bool or None
        What the test says of a missing cell: true, false, or None for unknown, as every comparison does.
        False where no cell may be missing.
    flag : str or None
        Name of the flag of a column of numbers.
    """

    name: str
    levels: tuple[Level, ...]
    codes: tuple[int, ...]
    missing: bool | None = False
    flag: str | None = None

    @property
    def written_name(self) -> str:
        """Name of the column as text."""
        return write_name(self.name)

    @property
    def known_codes(self) -> tuple[int, ...]:
        """Positions of all levels that are not a missing cell."""
        return tuple(code for code, level in enumerate(self.levels) if level is not None)

    @property
    def true_codes(self) -> tuple[int, ...]:
        """Positions of all levels for which the test is true."""
        return (*self.codes, len(self.levels) - 1) if self.missing else self.codes

    def _write(self) -> str:
        """Return the test as IN and IS NULL, which parse back into it."""
        name = write_name(self.name)
        every = self.codes == self.known_codes
        among = self._write_codes(name)
        if self.missing is None or None not in self.levels:
            return among
        if self.missing:
            return f"({among} OR ({name} IS NULL))" if self.codes else f"({name} IS NULL)"
        return f"({name} IS NOT NULL)" if every else f"({among} AND ({name} IS NOT NULL))"

    def _write_codes(self, name: str) -> str:
        """Return the test of the levels alone; a list that is too long to be read is written another way."""
        # Of no level, with a missing cell unknown: what is not in the list of all of them.
        chosen = self.codes or self.known_codes
        listed = self._write_lists(name, "IN" if self.codes else "NOT IN", chosen)
        if listed is not None:
            return listed
        first, second = (write_level(self.levels[code]) for code in self.known_codes[:2])
        if not self.codes:
            return f"(({name} IN ({first})) AND ({name} IN ({second})))"
        if self.codes == self.known_codes:
            return f"(({name} IN ({first})) OR ({name} NOT IN ({first})))"
        chosen_set = set(self.codes)
        others = tuple(code for code in self.known_codes if code not in chosen_set)
        forms = [self._write_split(name, "IN", chosen), self._write_split(name, "NOT IN", others)]
        return min(forms, key=len)

    def _write_lists(self, name: str, word: str, codes: tuple[int, ...]) -> str | None:
        """Return the test as one list; None if it is too long."""
        listed = ", ".join(write_level(self.levels[code]) for code in codes)
        fits = len(codes) <= MOST_ITEMS and len(listed) <= _LONGEST_LIST
        return f"({name} {word} ({listed}))" if fits or len(codes) == 1 else None

    def _write_split(self, name: str, word: str, codes: tuple[int, ...]) -> str:
        """Return the test as lists that are short enough, joined."""
        parts = [codes[i : i + MOST_ITEMS] for i in range(0, len(codes), MOST_ITEMS)]
        lists = [
            f"({name} {word} ({', '.join(write_level(self.levels[c]) for c in part)}))" for part in parts
        ]
        return lists[0] if len(lists) == 1 else f"({(' OR ' if word == 'IN' else ' AND ').join(lists)})"

    def _can_be_unknown(self) -> bool:
        return self.missing is None


@dataclass(frozen=True, eq=False)
class Junction(Condition):
    """Several conditions joined, sorted, each once."""

    word: Literal["AND", "OR"]
    parts: tuple[Condition, ...]

    def _write(self) -> str:
        return f"({f' {self.word} '.join(part.text for part in self.parts)})"

    def _can_be_unknown(self) -> bool:
        return any(part.nullable for part in self.parts)


def too_long() -> ExpressionRefused:
    """Return the error for an expression whose canonical text is too long to be read again."""
    return ExpressionRefused.not_allowed(
        "an expression that is too long or too deep once it is written out in full",
        "Ask in several questions, each of a part.",
    )


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
