"""Nodes of dates, and of the numbers that are read off them.

A date is a day of the calendar, whatever column it is in: the difference of two columns is a number of days
even if they are declared to begin on other days. Where a number is needed, a column of dates stands for the
days since its own first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from discreet.query.language.nodes import (
    Constant,
    Date,
    Extremum,
    Number,
    Reference,
    Sum,
    write_number,
)

if TYPE_CHECKING:
    import datetime

    from discreet.schema import Column

Field: TypeAlias = Literal["YEAR", "QUARTER", "MONTH", "DAY", "ISODOW"]
Unit: TypeAlias = Literal["year", "quarter", "month", "week", "day"]


@dataclass(frozen=True, eq=False)
class DateColumn(Date):
    """A column of dates; as a number it is the days since its first, the reference.

    Attributes
    ----------
    reference : Reference
        Column as a number.
    first : date
        Day that the number 0 stands for.
    """

    reference: Reference
    first: datetime.date

    def _write(self) -> str:
        return self.reference.text

    def _can_be_unknown(self) -> bool:
        return self.reference.nullable


@dataclass(frozen=True, eq=False)
class MomentColumn(Reference):
    """A column of datetimes: a number of steps since its first, which texts in quotes are compared with.

    Attributes
    ----------
    column : Column
        Declaration of the column, which says from when and in which steps it counts.
    """

    column: Column | None = None

    def counts_as(self, other: MomentColumn) -> bool:
        """Return whether another column counts from the same moment in the same steps."""
        assert self.column is not None
        assert other.column is not None
        return (self.column.lower, self.column.step) == (other.column.lower, other.column.step)


@dataclass(frozen=True, eq=False)
class DateConstant(Date):
    """A day written in the expression."""

    day: datetime.date

    def _write(self) -> str:
        return f"DATE '{self.day.isoformat()}'"


@dataclass(frozen=True, eq=False)
class DateShift(Date):
    """A date some days later, by a whole number."""

    date: Date
    days: Number

    def _write(self) -> str:
        days = self.days
        if isinstance(days, Constant):
            return f"({self.date.text} {'-' if days.value < 0 else '+'} {write_number(abs(days.value))})"
        terms = days.terms if isinstance(days, Sum) else ((1, days),)
        signed = " ".join(f"{'+' if sign > 0 else '-'} {term.text}" for sign, term in terms)
        return f"({self.date.text} {signed})"

    def _can_be_unknown(self) -> bool:
        return self.date.nullable or self.days.nullable


@dataclass(frozen=True, eq=False)
class DateChoice(Date):
    """The first known, the earliest or the latest of several dates."""

    function: Extremum | Literal["COALESCE"]
    items: tuple[Date, ...]

    def _write(self) -> str:
        return f"{self.function}({', '.join(item.text for item in self.items)})"

    def _can_be_unknown(self) -> bool:
        return all(item.nullable for item in self.items)


@dataclass(frozen=True, eq=False)
class DateTrunc(Date):
    """The first day of the week, month, quarter or year of a date."""

    unit: Unit
    date: Date

    def _write(self) -> str:
        return f"DATE_TRUNC('{self.unit}', {self.date.text})"

    def _can_be_unknown(self) -> bool:
        return self.date.nullable


@dataclass(frozen=True, eq=False)
class DateDifference(Number):
    """Days from one date to another."""

    later: Date
    earlier: Date

    def _write(self) -> str:
        return f"({self.later.text} - {self.earlier.text})"

    def _can_be_unknown(self) -> bool:
        return self.later.nullable or self.earlier.nullable


@dataclass(frozen=True, eq=False)
class DateField(Number):
    """The year, quarter, month, day of the month or ISO day of the week of a date."""

    field: Field
    date: Date

    def _write(self) -> str:
        return f"{self.field}({self.date.text})"

    def _can_be_unknown(self) -> bool:
        return self.date.nullable
