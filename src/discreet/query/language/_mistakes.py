"""Texts that can be read, but hardly mean what they say: a date beside a number, a condition of no row.

SQL answers such a question, and the answer is a number about something else: ``admitted > 2023`` compares
days since the first with 2023, and ``age > 60 AND age < 40`` holds for nobody. What a person typed is
checked; the canonical text of an expression is not, for there a day is a number.
"""

from __future__ import annotations

import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from discreet.errors import ExpressionRefused
from discreet.query.language._date_nodes import DateColumn, DateConstant, DateField, DateShift
from discreet.query.language._hints import COMPARED_TWICE, RELATIONS
from discreet.query.language._normal_form import opposite
from discreet.query.language.lexer import write_name
from discreet.query.language.nodes import (
    Compare,
    Condition,
    Constant,
    Date,
    Junction,
    Node,
    Number,
    Reference,
    Truth,
    write_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet.schema import Column, Schema

_FIELDS = {"QUARTER": (1, 4), "MONTH": (1, 12), "DAY": (1, 31), "ISODOW": (1, 7)}
_YEARS = range(1000, 10_000)
_BOUNDARIES = ("AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "END", "(", ")", ",")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


# While a text is read.


def check_tests(tokens: Sequence[str]) -> None:
    """Refuse IS after a comparison without parentheses: engines disagree about what it tests.

    Parameters
    ----------
    tokens : sequence of str
        Words, numbers and signs of an expression; stand-ins for its columns and values.
    """
    compared = {0: False}
    depth = 0
    for word in tokens:
        depth -= word == ")"
        if word in _BOUNDARIES:
            # What follows a closing parenthesis still belongs to the comparison before it.
            compared[depth] = compared.get(depth, False) and word in "()"
        elif word in RELATIONS:
            compared[depth] = True
        elif word == "IS" and compared.get(depth, False):
            raise ExpressionRefused(*COMPARED_TWICE)
        depth += word == "("
        if word == "(":
            compared[depth] = False


def check_types(relation: str, left: Any, right: Any) -> None:
    """Refuse the comparison of a date with a number."""
    for date, other, sign in ((left, right, relation), (right, left, _MIRRORED.get(relation, relation))):
        if not (isinstance(date, Date) and isinstance(other, Number | Condition)):
            continue
        column = date.date if isinstance(date, DateShift) else date
        name, first = "admitted", datetime.date(2024, 1, 31)
        if isinstance(column, DateColumn):
            name, first = write_name(column.reference.name), column.first
        hint = f"Write a day in quotes: {name} {sign} '{first}'."
        if isinstance(other, Constant) and other.value in _YEARS:
            day = f"'{other.value}-{'01-01' if sign in ('<', '>=') else '12-31'}'"
            hint = f"Write YEAR({name}) {sign} {other.value}, or a day in quotes: {name} {sign} {day}."
        raise ExpressionRefused("a date compared with a number", hint)


def check_ends(low: Any, high: Any) -> None:
    """Refuse a BETWEEN whose first end is above its second."""
    ends: list[Any] = [
        part.value if isinstance(part, Constant) else part.day if isinstance(part, DateConstant) else None
        for part in (low, high)
    ]
    if None not in ends and type(ends[0]) is type(ends[1]) and ends[0] > ends[1]:
        higher, lower = (f"'{end}'" if isinstance(end, datetime.date) else write_number(end) for end in ends)
        raise ExpressionRefused.not_allowed(
            "a BETWEEN whose first end is above its second", f"Write BETWEEN {lower} AND {higher}."
        )


# Once it is read.


def check_node(node: Node, words: Sequence[str], schema: Schema) -> None:
    """Refuse what holds for no row, or for every row where that cannot be meant.

    Parameters
    ----------
    node : Node
        What the text means, in its one form: the text of the same question is refused or read with it.
    words : sequence of str
        Words and signs of the text, with stand-ins for columns and values.
    schema : Schema
        Declaration of the table, with the ranges of its columns.
    """
    if isinstance(node, Truth) and any(word.startswith("c_") for word in words):
        if not node.value and "NULL" in words and "AND" not in words:
            raise ExpressionRefused.not_allowed(
                "IS NULL of what is never missing", "Leave it out: the column is declared as required."
            )
        if not node.value:
            raise _no_row()
        if "OR" in words and {"<>", "!=", "NOT"} & {*words}:
            raise _every_row()
    for part in _walk(node):
        if isinstance(part, Compare):
            _check_range(part, schema)
        elif isinstance(part, Junction):
            parts = part.parts if part.word == "AND" else [opposite(one) for one in part.parts]
            if _exclude_each_other(parts):
                raise _no_row() if part.word == "AND" else _every_row()


def _walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes in it."""
    waiting: list[Any] = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting.extend(one)
        elif isinstance(one, Node):
            yield one
            waiting.extend([value for value in vars(one).values() if isinstance(value, (Node, tuple))])


def _no_row() -> ExpressionRefused:
    return ExpressionRefused.not_allowed(
        "conditions that no row fulfills together",
        "Write OR between them for the rows that fulfill one.",
    )


def _every_row() -> ExpressionRefused:
    return ExpressionRefused.not_allowed(
        "conditions of which every row fulfills one",
        "Write AND between them for the rows that fulfill all.",
    )


def _exclude_each_other(conditions: Sequence[Condition]) -> bool:
    """Return whether comparisons of one number with constants leave it no value."""
    least: dict[str, tuple[Fraction, bool]] = {}
    most: dict[str, tuple[Fraction, bool]] = {}
    for part in conditions:
        if not isinstance(part, Compare) or part.relation == "<>":
            continue
        for fixed, subject, ends in ((part.left, part.right, [least]), (part.right, part.left, [most])):
            if not isinstance(fixed, Constant):
                continue
            for known in [least, most] if part.relation == "=" else ends:
                sign = 1 if known is least else -1
                end = (sign * fixed.value, part.relation == "<")
                known[subject.text] = max(known.get(subject.text, end), end)
    both = [(*least[text], *most[text]) for text in least.keys() & most.keys()]
    return any(low > -high or (low == -high and (above or under)) for low, above, high, under in both)


def _check_range(node: Compare, schema: Schema) -> None:
    """Refuse the comparison of a column, or of a field of a date, with a value that none of its cells has."""
    mirrored = _MIRRORED.get(node.relation, node.relation)
    for subject, fixed, relation in (
        (node.left, node.right, node.relation),
        (node.right, node.left, mirrored),
    ):
        if relation == "<>" or not isinstance(fixed, Constant):
            continue
        found = _range(subject, schema)
        if found is None:
            continue
        name, low, high, column = found
        if _is_never(relation, float(fixed.value), low, high):
            # A cell beyond its bounds counts as the bound: the rows as they came may say something else.
            ends = " to ".join(_write_end(end, column) for end in (low, high))
            raise ExpressionRefused.not_allowed(
                "a comparison that no row fulfills",
                f"{name} is {'declared ' if column else ''}from {ends}: compare it with a value in between.",
            )
        if relation == "=" and fixed.value.denominator > 1 and (column is None or column.type != "number"):
            raise ExpressionRefused.not_allowed(
                "a comparison that no row fulfills", f"{name} is a whole number: compare it with one."
            )


def _is_never(relation: str, value: float, low: float, high: float) -> bool:
    """Return whether no number from `low` to `high` stands in a relation to a value."""
    match relation:
        case "<":
            return value <= low
        case "<=":
            return value < low
        case ">":
            return value >= high
        case ">=":
            return value > high
    return not low <= value <= high


def _range(node: Node, schema: Schema) -> tuple[str, float, float, Column | None] | None:
    """Return name and ends of a column or of a field of a date, and the column; None for other nodes."""
    if isinstance(node, DateField) and node.field in _FIELDS:
        return f"{node.field} of a date", *_FIELDS[node.field], None
    if not isinstance(node, Reference):
        return None
    column = schema.column(node.name)
    ends: tuple[float, float] = (
        (min(map(float, _numbers(column))), max(map(float, _numbers(column))))
        if column.is_category
        else column.range
    )
    return write_name(column.name), *ends, column


def _numbers(column: Column) -> list[Any]:
    return [level for level in column.levels if level is not None]


def _write_end(end: float, column: Column | None) -> str:
    """Return the end of a range as text, of dates as a day."""
    if column is not None and column.is_calendar:
        return str(column.moment(int(end)))
    return write_number(Fraction(end))
