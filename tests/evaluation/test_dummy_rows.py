"""Rows for rehearsal: of the right types and bounds, marked, and the same whatever the true rows hold."""

from __future__ import annotations

import csv
import datetime
import io
import json
from typing import Any

import pytest

from discreet import Column, Database, GaussianDP, Schema
from discreet.errors import ParameterError
from discreet.query.dummy import MAX_DUMMY_ROWS, dummy_rows
from discreet.query.language.query import parse_query
from discreet.query.text_query import run_query
from tests.query.survey import FIRST_DAY, SCHEMA

DUMMY = dummy_rows(SCHEMA, 500, 3)


def test_every_column_holds_what_was_declared_and_all_of_it_turns_up() -> None:
    assert list(DUMMY) == [*SCHEMA.names, "_dummy"]
    assert {len(cells) for cells in DUMMY.values()} == {500}
    assert set(DUMMY["sex"]) == {"f", "m", "x"}
    assert {type(cell) for cell in DUMMY["smoker"]} == {bool}
    assert {type(cell) for cell in DUMMY["age"]} == {int}
    assert all(17 <= age <= 90 for age in DUMMY["age"])
    assert (min(DUMMY["age"]), max(DUMMY["age"])) == (17, 90)
    given = [cell for cell in DUMMY["change"] if cell is not None]
    assert all(-3 <= cell <= 2 for cell in given)
    assert 20 < 500 - len(given) < 90
    days = [(datetime.date.fromisoformat(day) - FIRST_DAY).days for day in DUMMY["admitted"]]
    assert all(0 <= day <= 365 for day in days)


def test_the_watermark_is_in_every_row_and_cannot_be_declared_away() -> None:
    assert DUMMY["_dummy"] == [True] * 500
    with pytest.raises(ParameterError, match="must not declare a column '_dummy'"):
        dummy_rows(Schema(columns=[Column("_dummy", values=(False, True))]), 3, 1)


def test_a_seed_gives_the_same_rows_and_another_one_others() -> None:
    assert dummy_rows(SCHEMA, 500, 3) == DUMMY
    assert dummy_rows(SCHEMA, 500, 4) != DUMMY


def test_columns_that_do_not_leave_are_not_made_up() -> None:
    schema = Schema(columns=[Column("name", role="drop"), Column("age", lower=0, upper=9)])
    assert list(dummy_rows(schema, 2, 1)) == ["age", "_dummy"]


def test_rows_survive_json_and_csv_and_are_answered_like_true_ones() -> None:
    assert json.loads(json.dumps(DUMMY)) == DUMMY
    text = io.StringIO()
    csv.writer(text).writerows([list(DUMMY), *zip(*DUMMY.values(), strict=True)])
    assert len(list(csv.reader(io.StringIO(text.getvalue())))) == 501
    asked = parse_query("count where age > 40 AND admitted < '2020-07-01'", SCHEMA)
    with Database(DUMMY, schema=SCHEMA, random_state=1) as db:
        (cell,) = run_query(db, asked, privacy=GaussianDP(mu=1)).cells
    both = zip(DUMMY["age"], DUMMY["admitted"], strict=True)
    assert cell.value is not None
    assert abs(cell.value - sum(age > 40 and day < "2020-07-01" for age, day in both)) < 5


@pytest.mark.parametrize("n", [0, -1, True, 2.0, MAX_DUMMY_ROWS + 1, None])
def test_a_number_of_rows_that_is_none_is_refused(n: Any) -> None:
    with pytest.raises(ParameterError, match="n of dummy_rows must be a whole number from 1 to"):
        dummy_rows(SCHEMA, n, 1)
