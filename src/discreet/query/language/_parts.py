"""Parts of a text while it is read: numbers, conditions, dates, categories and texts, and how they combine.

A category and a value in quotes mean something only beside another part: ``ward = 'surgery'`` is a condition.
Neither is a node; the functions here make nodes of them, by those of
:mod:`~discreet.query.language._normal_form`.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from discreet.arguments import nearest
from discreet.errors import ExpressionRefused
from discreet.query.language import _normal_form as normal
from discreet.query.language._date_nodes import (
    DateChoice,
    DateColumn,
    DateConstant,
    DateField,
    DateShift,
    DateTrunc,
    MomentColumn,
)
from discreet.query.language._hints import explain_day
from discreet.query.language._text_nodes import TextCase, TextColumn, TextConstant, TextNode
from discreet.query.language.lexer import MOST_ITEMS, write_name
from discreet.query.language.nodes import (
    Condition,
    Constant,
    Date,
    Indicator,
    Member,
    Node,
    Null,
    Number,
    Reference,
    Sum,
    Truth,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from discreet.schema import Column, Level

_LONGEST_NUMBER = 20  # characters of a number that a hint repeats
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ISO_MOMENT = re.compile(rf"{_ISO_DATE.pattern}(?:[T ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}})?)?")
_MOST_ROUNDED = 9  # digits after the point, or before it
_UNITS = ("year", "quarter", "month", "week", "day")
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Category:
    """A category that was named; alone it is neither a number nor a condition."""

    column: Column


@dataclass(frozen=True, slots=True)
class Text:
    """A value in quotes."""

    value: str


Part: TypeAlias = Number | Condition | Date | Category | Text | TextNode


def compare_parts(relation: Any, left: Part, right: Part) -> Condition:
    """Return a comparison: of a category with a declared value, of dates, or of numbers."""
    if isinstance(left, Text) and not isinstance(right, Text):
        left, right, relation = right, left, _MIRRORED[relation]
    if isinstance(right, Category) and not isinstance(left, Category):
        left, right, relation = right, left, _MIRRORED[relation]
    if isinstance(left, Category) and relation in ("=", "<>") and _is_listed(left, right):
        test = normal.member(test_levels(left.column, [read_level(left.column, right)]))
        return test if relation == "=" else normal.opposite(test)
    if are_dates([left, right]):
        return normal.compare(relation, as_date(left), as_date(right))
    number = as_number(left)
    if isinstance(number, MomentColumn) and isinstance(right, Text):
        return normal.compare(relation, number, _read_moment(number, right))
    if isinstance(right, Text):
        quoted = right.value.strip()
        numeric = quoted.replace(".", "", 1).isdecimal() and quoted.isascii()
        raise ExpressionRefused(
            "a value in quotes beside a number",
            f"Numbers stand without quotes: {quoted}."
            if numeric and len(quoted) < _LONGEST_NUMBER
            else "Numbers stand without quotes; compare a category with its declared values, a date with "
            "'YYYY-MM-DD'.",
        )
    other = as_number(right)
    check_moments([number, other])
    return normal.compare(relation, number, other)


def test_levels(column: Column, levels: list[Level]) -> Member:
    """Return the test of a category for some of its declared values."""
    codes = {_code(column, level) for level in levels}
    return Member(column.name, column.levels, tuple(sorted(codes)), False if column.required else None)


# Dates.


def read_column(column: Column) -> Number | Date:
    """Return a column that is no category, with what it is."""
    reference = _reference(column)
    if column.type == "datetime":
        return MomentColumn(column.name, reference.missing, column=column)
    return DateColumn(reference, column.lower) if isinstance(column.lower, datetime.date) else reference


def are_dates(parts: list[Part]) -> bool:
    """Return whether parts are dates, at least one by itself: a value in quotes is one beside another."""
    return all(isinstance(part, Date | Text) for part in parts) and any(isinstance(p, Date) for p in parts)


def as_date(part: Part) -> Date:
    """Read a part as a date: a column or a day in quotes."""
    if isinstance(part, Date):
        return part
    if isinstance(part, MomentColumn):
        assert part.column is not None
        raise ExpressionRefused(
            "a datetime where a date is needed",
            f"A datetime is a number of {part.column.step}s since its smallest value: group by "
            f"FLOOR({write_name(part.name)} / 60), or declare the column as a date.",
        )
    if not isinstance(part, Text):
        raise ExpressionRefused(
            "something other than a date where a date is needed",
            "Name a column of dates, or write DATE '2024-01-31'.",
        )
    try:
        day = datetime.date.fromisoformat(part.value) if _ISO_DATE.fullmatch(part.value) else None
    except ValueError:
        day = None
    if day is None:
        raise ExpressionRefused("a date in another form", explain_day(part.value, "admitted"))
    return DateConstant(day)


def add_dates(terms: list[tuple[int, Part]]) -> Part:
    """Return a sum with dates in it: days between dates, a date some days later, or days since its first."""
    terms = [(sign, as_date(part) if isinstance(part, Text) else part) for sign, part in terms]
    plus, minus = (
        sorted((part for sign, part in terms if sign == way and isinstance(part, Date)), key=lambda p: p.text)
        for way in (1, -1)
    )
    if (len(plus), len(minus)) == (0, 1):
        return add_numbers((sign, as_number(part)) for sign, part in terms)
    if len(plus) - len(minus) not in (0, 1):
        raise _added_dates()
    days = add_numbers(
        (
            *((1, normal.date_difference(*pair)) for pair in zip(plus, minus, strict=False)),
            *((sign, as_number(part)) for sign, part in terms if not isinstance(part, Date)),
        ),
        most=0,
    )
    return days if len(plus) == len(minus) else normal.shift_date(plus[-1], days)


def add_numbers(terms: Iterable[tuple[int, Number]], most: int = 1) -> Number:
    """Return a sum of numbers, in which at most so many are columns of dates counted from their first day."""
    result = normal.total(terms)
    inner = result.terms if isinstance(result, Sum) else ((1, result),)
    if sum(isinstance(term, Reference) and term.is_date for _, term in inner) > most:
        raise _added_dates()
    check_moments([term for _, term in inner])
    if sum(sign for sign, term in inner if isinstance(term, MomentColumn)) > 1:
        raise _added_dates()
    return result


def check_moments(numbers: Iterable[Number]) -> None:
    """Refuse datetimes beside each other that count from different moments or in different steps."""
    found = [
        term
        for number in numbers
        for _, term in (number.terms if isinstance(number, Sum) else ((1, number),))
        if isinstance(term, MomentColumn)
    ]
    if not all(term.counts_as(found[0]) for term in found):
        raise ExpressionRefused(
            "datetimes that count from different moments or in different steps",
            "Declare the same smallest value and the same step for both columns.",
        )


def _read_moment(number: MomentColumn, part: Text) -> Constant:
    """Return a datetime in quotes, or the start of a day, as a whole number of steps of a column."""
    column = number.column
    assert column is not None
    try:
        moment = datetime.datetime.fromisoformat(part.value) if _ISO_MOMENT.fullmatch(part.value) else None
    except ValueError:
        moment = None
    steps, rest = (None, None) if moment is None else divmod(moment - column.lower, column.step_length)  # type: ignore[operator]
    if steps is None or rest:
        raise ExpressionRefused(
            "a datetime in another form, or between two steps of its column",
            f"Write a whole {column.step}: {write_name(number.name)} >= '{column.lower}'.",
        )
    return normal.constant(steps)


def _added_dates() -> ExpressionRefused:
    return ExpressionRefused("dates that are added up", "Subtract one date from another, or add days to one.")


def _date_number(date: Date) -> Number:
    """Return a date as the days since the first day of its column."""
    if isinstance(date, DateColumn):
        return date.reference
    if isinstance(date, DateShift) and isinstance(date.date, DateColumn):
        return normal.total([(1, date.date.reference), (1, date.days)])
    if isinstance(date, DateChoice) and all(isinstance(item, DateColumn) for item in date.items):
        numbers = as_numbers(list(date.items))
        return (
            normal.coalesce(numbers)
            if date.function == "COALESCE"
            else normal.extreme(date.function, numbers)
        )
    if isinstance(date, DateTrunc):
        raise ExpressionRefused(
            "DATE_TRUNC where a number is needed", "Group by it: BY DATE_TRUNC('month', admitted)."
        )
    raise _refuse_date()


def _refuse_date() -> ExpressionRefused:
    return ExpressionRefused(
        "a date where a number is needed", "Say from which day to count: admitted - DATE '2020-01-01'."
    )


def as_numbers(parts: list[Part]) -> list[Number]:
    """Read parts as numbers to choose from; refuses dates that are counted from different days."""
    dates = [part.date if isinstance(part, DateShift) else part for part in parts if isinstance(part, Date)]
    if len({date.first for date in dates if isinstance(date, DateColumn)}) > 1:
        raise _refuse_date()
    numbers = [as_number(part) for part in parts]
    check_moments(numbers)
    return numbers


def read_field_of(name: str) -> Callable[[Part], Number]:
    """Return the function that reads a field off a date."""

    def read_field(part: Part) -> Number:
        date = as_date(part)
        if isinstance(date, DateConstant):
            day = date.day
            fields = {"YEAR": day.year, "QUARTER": (day.month + 2) // 3, "MONTH": day.month, "DAY": day.day}
            return normal.constant({**fields, "ISODOW": day.isoweekday()}[name])
        return DateField(name, date)  # type: ignore[arg-type]

    return read_field


def truncate_date(unit: Part, part: Part) -> Date:
    """Return the first day of a week, month, quarter or year."""
    if not isinstance(unit, Text) or unit.value.lower() not in _UNITS:
        raise ExpressionRefused(
            "DATE_TRUNC to something other than a unit",
            f"Write {', '.join(map(repr, _UNITS[:-1]))} or {_UNITS[-1]!r} first: "
            "DATE_TRUNC('month', admitted).",
        )
    return DateTrunc(unit.value.lower(), as_date(part))  # type: ignore[arg-type]


# Functions of numbers.


def round_up(part: Part) -> Number:
    return normal.call("CEIL", as_number(part))


def round_number(part: Part, digits: Part | None = None) -> Number:
    """Return a number rounded, to a whole number or to some digits."""
    if digits is None:
        return normal.call("ROUND", as_number(part))
    allowed = range(-_MOST_ROUNDED, _MOST_ROUNDED + 1)
    if not isinstance(digits, Constant) or digits.value not in allowed:
        raise ExpressionRefused(
            f"ROUND to something other than -{_MOST_ROUNDED} to {_MOST_ROUNDED} digits", "Write ROUND(x, 2)."
        )
    return normal.round_to_digits(as_number(part), int(digits.value))


def take_remainder(numerator: Part, denominator: Part) -> Number:
    return normal.remainder(as_number(numerator), as_number(denominator))


def null_if(part: Part, value: Part) -> Part:
    """Return a part, unknown where it has a value."""
    return choose([compare_parts("=", part, value)], [Null()], part)


# Choices.


def choose(conditions: list[Condition], values: list[Part], otherwise: Part) -> Part:
    """Return a CASE of numbers, or of texts."""
    parts = [*values, otherwise]
    if all(isinstance(part, Null) for part in parts):
        raise ExpressionRefused("a CASE of nothing but NULL", "Give one branch a number.")
    if are_texts([part for part in parts if not isinstance(part, Null)]):
        cases = [(normal.where_true(c), as_text(v)) for c, v in zip(conditions, values, strict=True)]
        return TextCase(tuple(cases), as_text(otherwise))
    *numbers, default = as_numbers(parts)
    return normal.case(list(zip(conditions, numbers, strict=True)), default)


def are_texts(parts: list[Part]) -> bool:
    """Return whether parts are texts or categories of texts, and there is one."""
    return all(
        isinstance(part, Text | TextNode)
        or (
            isinstance(part, Category) and not (holds_only(part.column, bool) or holds_only(part.column, int))
        )
        for part in parts
    ) and bool(parts)


def as_text(part: Part) -> TextNode:
    """Read a part as a text: a value in quotes, a category of texts, or a choice between such."""
    if isinstance(part, TextNode):
        return part
    if isinstance(part, Text):
        return TextConstant(part.value)
    if isinstance(part, Null):
        return TextConstant(None)
    assert isinstance(part, Category)
    if not holds_only(part.column, str):
        raise ExpressionRefused(
            "a category of texts and other values where a text is needed", "Choose between texts."
        )
    return TextColumn(test_levels(part.column, []))


def as_number(part: Part) -> Number:
    """Read a part as a number: a condition is 0, 1 or unknown, a whole-number category its value."""
    if isinstance(part, Number):
        return part
    if isinstance(part, Condition):
        return normal.indicator(part)
    if isinstance(part, Date):
        return _date_number(part)
    if isinstance(part, TextNode):
        raise ExpressionRefused(
            "texts where a number is needed",
            "Group by them: BY CASE WHEN age < 40 THEN 'young' ELSE 'old' END.",
        )
    if isinstance(part, Text):
        raise ExpressionRefused(
            "a value in quotes where a number is needed", "Compare a category with it: ward = 'surgery'."
        )
    if holds_only(part.column, bool):
        return normal.indicator(as_condition(part))
    if holds_only(part.column, int):
        return _reference(part.column)
    raise ExpressionRefused("a category where a number is needed", _compare(part.column))


def as_condition(part: Part) -> Condition:
    """Read a part as a condition: a category of true and false is one."""
    if isinstance(part, Condition):
        return part
    if isinstance(part, Indicator):
        return part.condition
    if isinstance(part, Category) and holds_only(part.column, bool):
        return normal.member(test_levels(part.column, [True] if True in part.column.levels else []))
    if isinstance(part, Text | Constant):
        raise ExpressionRefused(
            "a value by itself where a condition is needed",
            "Name the column again, age = 40 OR age = 50, or write a list, age IN (40, 50)."
            if isinstance(part, Constant)
            else "Name the column again, ward = 'surgery' OR ward = 'medicine', or write a list, ward IN "
            "('surgery', 'medicine').",
        )
    raise ExpressionRefused("a number or value where a condition is needed", "Compare it: x > 0.")


def _is_listed(category: Category, part: Part) -> bool:
    """Whether a category is compared with a value rather than used as a number."""
    return isinstance(part, Text | Constant | Truth) or not holds_only(category.column, int)


def holds_only(column: Column, kind: type) -> bool:
    """Return whether all values of a category are of a kind; a missing cell is no value."""
    return all(isinstance(level, kind) for level in column.levels if level is not None)


def _reference(column: Column) -> Reference:
    """Return a column as a number, with the test for a missing cell if it may have some."""
    return Reference(column.name, _missing_cell(column), column.levels, column.type == "date")


def _missing_cell(column: Column) -> Member | None:
    """Return the test for a missing cell, of the missing level or of the flag; None if none may be."""
    levels = column.levels if column.is_category else (False, None)
    return None if column.required else Member(column.name, levels, (), True, column.missing_flag)


def is_missing(part: Part) -> Condition:
    """Return the test whether a part is unknown; of a category, whether its cell is missing."""
    if isinstance(part, Category):
        return _missing_cell(part.column) or Truth(False)
    if isinstance(part, TextNode):
        part = as_number(part)
    return normal.is_missing(part if isinstance(part, Node) else as_number(part))


def read_level(column: Column, part: Part) -> Level:
    if isinstance(part, Text):
        return part.value
    if isinstance(part, Truth):
        return part.value
    if isinstance(part, Constant) and part.value.denominator == 1:
        return int(part.value)
    raise ExpressionRefused("a category compared with something other than a value", _compare(column))


def _compare(column: Column) -> str:
    """Return what to write instead of a category by itself."""
    value = next((_write_level(level) for level in column.levels if level is not None), "...")
    return f"Compare it with its declared values: {write_name(column.name)} = {value}."


def _code(column: Column, level: Level) -> int:
    """Return the place of a value among those declared; refuses another value with the nearest one."""
    for code, declared in enumerate(column.levels):
        if type(declared) is type(level) and declared == level:
            return code
    words = [value for value in column.levels if isinstance(value, str)]
    close = nearest(level, words) if isinstance(level, str) else None
    listed = ", ".join(_write_level(value) for value in column.levels[:8] if value is not None)
    more = ", ..." if len(column.levels) > 8 else ""
    hint = f"Did you mean {_write_level(close)}?" if close else f"It may hold {listed}{more}."
    if holds_only(column, bool):
        name = write_name(column.name)
        hint = f"Write {name} = TRUE or {name} alone, {name} = FALSE or NOT {name}."
    raise ExpressionRefused(f"a value that is not declared for {column.name}", hint)


def _write_level(level: Level) -> str:
    """Return a declared value as it is written in a text."""
    if isinstance(level, bool):
        return str(level).upper()
    return "'{}'".format(level.replace("'", "''")) if isinstance(level, str) else str(level)


def check_items(items: list[Any]) -> None:
    if len(items) > MOST_ITEMS:
        raise ExpressionRefused(f"a list of more than {MOST_ITEMS} items", "Write a shorter list.")
