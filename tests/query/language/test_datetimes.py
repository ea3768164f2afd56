"""Datetimes in questions: a number of steps, compared with datetimes in quotes."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from discreet import Column, Database, PureDP, Schema
from discreet.errors import ExpressionRefused
from discreet.query.language.query import parse_query

FIRST = datetime.datetime(2024, 1, 1)
SCHEMA = Schema(
    columns=[
        Column("came", lower=FIRST, upper=datetime.datetime(2024, 1, 31, 23, 59)),
        Column("left", lower=FIRST, upper=datetime.datetime(2024, 2, 29, 23, 59), required=False),
        Column("born", lower=datetime.datetime(1900, 1, 1), upper=datetime.datetime(2024, 1, 1), step="hour"),
    ]
)
MINUTE = np.timedelta64(1, "m")


def test_questions_about_datetimes_count_the_rows_that_python_counts() -> None:
    came = np.datetime64("2024-01-01") + np.arange(0, 44_640, 7) * MINUTE
    stay = (np.arange(len(came)) % 500) * MINUTE
    rows = {"came": came, "left": came + stay, "born": np.full(len(came), np.datetime64("1980-05-05T05"))}
    database = Database(rows, schema=SCHEMA)
    noon = np.datetime64("2024-01-10T12:00")
    exact = {
        "came >= '2024-01-10 12:00'": came >= noon,
        "came BETWEEN '2024-01-10' AND '2024-01-10T12:00'": (came >= noon - 720 * MINUTE) & (came <= noon),
        "left - came > 240": stay > 240 * MINUTE,
        "'2024-01-10 12:00:00' > left": came + stay < noon,
        "left IN ('2024-01-01', '2024-01-01 00:08')": np.isin(came + stay, came[:2] + stay[:2]),
        "born < '1980-05-05 06:00'": came == came,
    }
    for where, wanted in exact.items():
        answer = database.query(f"count where {where}", privacy=PureDP(50.0))
        assert answer.value is not None
        assert abs(answer.value - int(wanted.sum())) < 3, where
    groups = database.query("count by came ('2024-01-10 12:00', '2024-01-20')", privacy=PureDP(50.0))
    first, second, third = (cell.key for cell in groups.cells)
    assert first == ("before 2024-01-10 12:00:00",)
    assert second == ("2024-01-10 12:00:00 to before 2024-01-20 00:00:00",)
    assert third == ("from 2024-01-20 00:00:00",)


def test_a_question_is_written_with_datetimes_and_read_as_the_same() -> None:
    query = parse_query("count where came >= '2024-01-10 12:00' and left - came > 60", SCHEMA)
    assert "'2024-01-10 12:00:00' <= came" in str(query)
    again = parse_query(str(query), SCHEMA)
    assert str(again) == str(query)
    assert parse_query("mean(came)", SCHEMA).statistics[0].measure == "minutes since 2024-01-01 00:00:00"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("count where came > '10.01.2024'", "Write a whole minute: came >= '2024-01-01 00:00:00'"),
        ("count where came > '2024-01-10 12:00:30'", "between two steps of its column"),
        ("count where came > '2024-02-30'", "a datetime in another form"),
        ("count where year(came) = 2024", "a datetime where a date is needed"),
        ("sum(came)", "a sum of datetimes"),
        # Both count from another moment: their difference as numbers would be wrong by years.
        ("count where came > born", "count from different moments"),
        ("mean(came - born)", "count from different moments"),
        ("mean(came + left)", "dates that are added up"),
        ("mean(greatest(came, born))", "count from different moments"),
        ("count by came (100, 200)", "a number where a cell of datetimes begins"),
    ],
)
def test_what_has_no_meaning_is_refused_with_the_way_out(asked: str, said: str) -> None:
    with pytest.raises(ExpressionRefused, match=said):
        parse_query(asked, SCHEMA)
