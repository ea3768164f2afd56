"""The Gregorian calendar in whole-number arithmetic: fields of a date, with the same bits on every engine.

A day is the number of days since the first of March of the year 0, so that the day that a leap year has more
is the last of its year, and four centuries (146,097 days) begin at 0. All numbers are whole and below 2**53,
where the floor of a quotient of doubles is that of the exact one.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.query.language._date_nodes import Field, Unit
    from discreet.query.language._program import Program

_ORIGIN = 305  # of the number of a day, less its ordinal
FIRST_DAY = datetime.date.min.toordinal() + _ORIGIN
LAST_DAY = datetime.date.max.toordinal() + _ORIGIN


def day_number(date: datetime.date) -> int:
    """Return the number of days from 1 March of the year 0 to a date."""
    return date.toordinal() + _ORIGIN


def to_date(number: float) -> datetime.date:
    """Return the date of a number of days."""
    return datetime.date.fromordinal(int(number) - _ORIGIN)


def read_field(program: Program, day: int, field: Field) -> int:
    """Return the place of a field of the date at a place, with bounds as narrow as its range of dates.

    Parameters
    ----------
    program : Program
        Program that the operations are recorded in.
    day : int
        Place of the number of a day, within the years 1 to 9999.
    field : {"YEAR", "QUARTER", "MONTH", "DAY", "ISODOW"}
        Which number of the date to compute; Monday is day 1 of the week.
    """
    first, last = (to_date(end) for end in (program.interval(day).lower, program.interval(day).upper))
    if field == "ISODOW":
        # The day with the number -2 is a Monday.
        later = program.add(day, program.constant(2.0))
        weeks = _times(program, _floor(program, later, 7), 7)
        return _narrow(program, program.add(program.subtract(later, weeks), program.constant(1.0)), 1, 7)
    year, month, of_month = _civil(program, day)
    same_year = first.year == last.year
    months = (first.month, last.month) if same_year else (1, 12)
    if field == "YEAR":
        return _narrow(program, year, first.year, last.year)
    if field == "MONTH":
        return _narrow(program, month, *months)
    if field == "QUARTER":
        quarter = _floor(program, program.add(month, program.constant(2.0)), 3)
        return _narrow(program, quarter, *((month + 2) // 3 for month in months))
    days = (first.day, last.day) if same_year and first.month == last.month else (1, 31)
    return _narrow(program, of_month, *days)


def count_units(program: Program, day: int, unit: Unit) -> int:
    """Return the place of the number of years, quarters, months or weeks up to the date at a place."""
    if unit == "day":
        return day
    if unit == "week":
        return _floor(program, program.add(day, program.constant(2.0)), 7)
    year = read_field(program, day, "YEAR")
    if unit == "year":
        return year
    per_year, field = (4.0, "QUARTER") if unit == "quarter" else (12.0, "MONTH")
    part = read_field(program, day, field)  # type: ignore[arg-type]
    whole = program.add(_times(program, year, per_year), program.subtract(part, program.constant(1.0)))
    first, last = (to_date(end) for end in (program.interval(day).lower, program.interval(day).upper))
    return _narrow(program, whole, _count(first, unit), _count(last, unit))


def first_of_unit(number: int, unit: Unit) -> datetime.date:
    """Return the first day of the unit with a number of :func:`count_units`; the year 1 if it is before."""
    if unit == "day":
        return to_date(number)
    if unit == "week":
        return to_date(max(7 * number - 2, FIRST_DAY))
    per_year = {"year": 1, "quarter": 4, "month": 12}[unit]
    year, part = divmod(number, per_year)
    return datetime.date(year, 1 + part * (12 // per_year), 1)


def _count(date: datetime.date, unit: Unit) -> int:
    return date.year * 12 + date.month - 1 if unit == "month" else date.year * 4 + (date.month - 1) // 3


def _civil(program: Program, day: int) -> tuple[int, int, int]:
    """Return the places of year, month and day of the month.

    Notes
    -----
    Within four centuries the year follows from the day less the leap days before it; within a year that
    begins in March, five months have 153 days.
    """
    era = _floor(program, day, 146_097)
    of_era = _narrow(program, program.subtract(day, _times(program, era, 146_097)), 0, 146_096)
    leap_days = [_floor(program, of_era, days) for days in (1_460, 36_524, 146_096)]
    without = program.subtract(
        program.add(program.subtract(of_era, leap_days[0]), leap_days[1]), leap_days[2]
    )
    years = _narrow(program, _floor(program, without, 365), 0, 399)
    before = program.add(_times(program, years, 365), _floor(program, years, 4))
    of_year = program.subtract(of_era, program.subtract(before, _floor(program, years, 100)))
    of_year = _narrow(program, of_year, 0, 365)
    five = program.add(_times(program, of_year, 5), program.constant(2.0))
    march = _narrow(program, _floor(program, five, 153), 0, 11)
    past = _floor(program, program.add(_times(program, march, 153), program.constant(2.0)), 5)
    of_month = program.add(program.subtract(of_year, past), program.constant(1.0))
    next_year = program.compare("less_equal", program.constant(10.0), march)
    zero, one = program.constant(0.0), program.constant(1.0)
    month = program.add(march, program.select(next_year, program.constant(-9.0), program.constant(3.0)))
    year = program.add(years, _times(program, era, 400))
    return program.add(year, program.select(next_year, one, zero)), month, of_month


def _floor(program: Program, place: int, divisor: float) -> int:
    return program.floor(program.divide(place, program.constant(float(divisor))))


def _times(program: Program, place: int, factor: float) -> int:
    return program.multiply(place, program.constant(float(factor)))


def _narrow(program: Program, place: int, lower: float, upper: float) -> int:
    program.narrow(place, float(lower), float(upper))
    return place
