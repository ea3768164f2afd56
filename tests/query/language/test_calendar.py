"""Fields of every day from the year 1 to 9999, against the calendar of numpy."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from discreet.errors import ExpressionRefused
from discreet.query.language import parse
from discreet.query.language._program import values
from discreet.schema import Column, Schema

WHOLE = Schema(columns=[Column("d", lower=datetime.date.min, upper=datetime.date.max)])
# Every day of the years around the turns of centuries, and every 37th of all others.
_LENGTH = (datetime.date.max - datetime.date.min).days
_ODD = [datetime.date(year, 1, 1).toordinal() - 1 for year in (1, 4, 100, 400, 1600, 1900, 2000, 2024, 9999)]
DAYS = np.unique(
    np.concatenate([np.arange(0, _LENGTH + 1, 37), [_LENGTH], *(np.arange(day, day + 365) for day in _ODD)])
)


def fields() -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the fields of all days as numpy has them."""
    dates = np.datetime64("0001-01-01") + DAYS
    months = dates.astype("datetime64[M]")
    month = months.astype(np.int64) % 12 + 1
    return {
        "YEAR": dates.astype("datetime64[Y]").astype(np.int64) + 1970,
        "QUARTER": (month + 2) // 3,
        "MONTH": month,
        "DAY": (dates - months).astype(np.int64) + 1,
        "ISODOW": (dates.astype(np.int64) + 3) % 7 + 1,  # the first of 1970 was a Thursday
    }


@pytest.mark.parametrize("field", ["YEAR", "QUARTER", "MONTH", "DAY", "ISODOW"])
def test_fields_of_all_days_are_those_of_the_calendar(field: str) -> None:
    expression = parse(f"{field}(d)", WHOLE)
    found = values(expression.program, {"d": DAYS}, expression.place)[expression.place]
    wanted = fields()[field]
    assert np.array_equal(found, wanted)
    assert (expression.lower, expression.upper) == (wanted.min(), wanted.max())


@pytest.mark.parametrize(
    ("first", "last", "text", "bounds"),
    [
        ("2020-03-05", "2020-05-09", "YEAR(d)", (2020, 2020)),
        ("2020-03-05", "2020-05-09", "MONTH(d)", (3, 5)),
        ("2020-03-05", "2020-05-09", "QUARTER(d)", (1, 2)),
        ("2020-03-05", "2020-03-09", "DAY(d)", (5, 9)),
        ("2020-03-05", "2020-05-09", "DAY(d)", (1, 31)),
        ("2019-12-31", "2020-01-01", "MONTH(d)", (1, 12)),
        ("1999-12-31", "2001-01-01", "YEAR(d + 400)", (2001, 2002)),
        ("2020-01-01", "2020-12-31", "d - DATE '2020-01-31'", (-30, 335)),
    ],
)
def test_bounds_of_fields_are_those_of_the_declared_days(
    first: str, last: str, text: str, bounds: tuple[int, int]
) -> None:
    ends = [datetime.date.fromisoformat(day) for day in (first, last)]
    expression = parse(text, Schema(columns=[Column("d", lower=ends[0], upper=ends[1])]))
    assert (expression.lower, expression.upper) == bounds


TWO = Schema(
    columns=[
        Column("admitted", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 12, 31)),
        Column(
            "discharged", lower=datetime.date(2020, 3, 1), upper=datetime.date(2025, 3, 1), required=False
        ),
        Column("x", lower=0, upper=1),
    ]
)


def test_dates_of_columns_with_other_first_days_are_compared_as_dates() -> None:
    cells = {
        "admitted": np.array([60, 61, 59]),  # 2020-03-01, 2020-03-02, 2020-02-29
        "discharged": np.array([0, 0, 0]),  # 2020-03-01
        "discharged_missing": np.array([0, 0, 1]),
    }
    for text, wanted in {
        "admitted = discharged": [1, 0, 0],
        "admitted <= discharged": [1, 0, 0],
        "admitted + 1 > discharged": [1, 1, 0],
        "discharged - admitted = -1": [0, 1, 0],
        "COALESCE(discharged, DATE '2020-02-29') = admitted": [1, 0, 1],
        "LEAST(admitted, discharged) = DATE '2020-03-01'": [1, 1, 0],
        "(discharged - admitted) IS NULL": [0, 0, 1],
    }.items():
        assert parse(text, TWO).evaluate(cells).tolist() == wanted, text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("EXTRACT(YEAR FROM admitted)", "year(admitted)"),
        ("admitted + 30 < DATE '2020-03-01'", "admitted < '2020-01-31'"),
        ("admitted + INTERVAL '30' DAY < discharged", "discharged > 30 + admitted"),
        ("admitted + INTERVAL 30 DAYS < discharged", "admitted + INTERVAL '30 days' < discharged"),
        ("DATE '2020-01-31' - DATE '2020-01-01' = admitted", "admitted = 30"),
        ("(discharged + 5) - (admitted - 2)", "discharged - admitted + 7"),
        ("MONTH(DATE '2020-05-31') * x", "5 * x"),
    ],
)
def test_spellings_of_dates_are_one_expression(one: str, other: str) -> None:
    assert parse(one, TWO) == parse(other, TWO)


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("admitted + discharged", "dates that are added up"),
        ("YEAR(x)", "something other than a date where a date is needed"),
        ("admitted + x < discharged", "a date and a number of days that need not be whole"),
        ("YEAR(admitted + 3e6)", "a date that could be before the year 1 or after 9999"),
        ("COALESCE(discharged, admitted)", "a date where a number is needed"),
        ("CASE WHEN x > 0 THEN discharged ELSE admitted END", "a date where a number is needed"),
        ("admitted < DATE '2020-02-30'", "a date in another form"),
        ("admitted + INTERVAL '1' MONTH < discharged", "an interval of something other than whole days"),
        ("EXTRACT(week FROM admitted)", "EXTRACT of something other than a part of a date"),
        ("DATE_TRUNC('month', admitted) < discharged", "DATE_TRUNC outside of BY"),
        ("DAYOFWEEK(admitted)", "a day of the week that engines count differently, DAYOFWEEK"),
        ("YEAR(admitted, 2)", "YEAR of 2 arguments"),
    ],
)
def test_what_has_no_meaning_of_dates_is_refused(text: str, construct: str) -> None:
    with pytest.raises(ExpressionRefused) as caught:
        parse(text, TWO)
    assert caught.value.construct == construct


def test_rounding_takes_halves_away_from_zero_and_a_remainder_has_the_sign_of_its_number() -> None:
    schema = Schema(
        columns=[Column("x", lower=-10, upper=10), Column("n", type="integer", lower=-9, upper=9)]
    )
    halves = np.array([-2.5, -0.5, -0.49999999999999994, 0.0, 0.49999999999999994, 0.5, 1.5, 2.4])
    expression = parse("ROUND(x)", schema)
    found = values(expression.program, {"x": halves}, expression.place)[expression.place]
    assert found.tolist() == [-3, -1, 0, 0, 0, 1, 2, 2]
    expression = parse("MOD(n, -4)", schema)
    cells = np.arange(19)
    found = values(expression.program, {"n": cells}, expression.place)[expression.place]
    assert found.tolist() == [np.fmod(cell - 9, -4) for cell in cells.tolist()]
    assert (expression.lower, expression.upper) == (-3, 3)
