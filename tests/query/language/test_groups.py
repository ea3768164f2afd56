"""Groups are declared: known before a row is read, absent ones included."""

from __future__ import annotations

import datetime

import pytest

from discreet.errors import ExpressionRefused
from discreet.query.language import declared_cells, parse_groups
from discreet.schema import Column, Schema
from tests.query.language.rows import CURATION, SCHEMA


def test_a_category_has_its_levels_as_cells() -> None:
    (group,) = parse_groups("ward", SCHEMA)
    assert group.column == "ward"
    assert declared_cells(SCHEMA.column("ward")) == ("surgery", "médecine", "O'Hara", "A;B--", "other", None)


def test_whole_numbers_and_dates_have_every_value_as_a_cell() -> None:
    names = [key.name for key in parse_groups("AGE, admitted", SCHEMA)]
    age, admitted = (declared_cells(SCHEMA.column(name)) for name in names)
    assert age == tuple(range(18, 91))
    assert admitted[0] == datetime.date(2020, 1, 1)
    assert admitted[-1] == datetime.date(2024, 12, 31)


@pytest.mark.parametrize("name", ["ward", "owner", "smoker", "score", "age", "admitted"])
def test_cells_stand_in_the_order_of_the_curated_integers(name: str) -> None:
    (group,) = parse_groups([name], SCHEMA)
    assert len(declared_cells(SCHEMA.column(group.name))) == CURATION.column(name).top + 1


def test_names_come_as_text_or_as_a_list() -> None:
    assert parse_groups("ward, owner", SCHEMA) == parse_groups(["ward", "owner"], SCHEMA)
    schema = Schema(columns=[Column("job title", values=("a",)), Column("x,y", values=("b",))])
    assert parse_groups(["job title", "x,y"], schema) == parse_groups('"job title", "x,y"', schema)


REFUSED = [
    ("income", "a column of numbers to group by"),
    ("delta", "a column of numbers to group by"),
    ("wide", "more than 1048576 groups"),
    ("admitted, age, score, ward", "more than 1048576 groups"),
    ("ward, ward", "a column to group by that comes twice"),
    ("ward, WARD", "a column to group by that comes twice"),
    ("ward owner", "something other than columns"),
    ("FLOOR(income)", "an expression to group by with more than 4096 values"),
    ("1", "a constant to group by"),
    ("'surgery'", "a constant to group by"),
    ("ward,", "nothing beside a comma after BY"),
    ("wards", "the unknown column wards"),
    ("person", "the unknown column person"),
    ("GROUPING SETS ((ward))", "the unknown column GROUPING"),
    ("", "nothing after BY"),
]


@pytest.mark.parametrize(("names", "construct"), REFUSED)
def test_what_has_no_declared_cells_is_refused(names: str, construct: str) -> None:
    with pytest.raises(ExpressionRefused) as caught:
        parse_groups(names, SCHEMA)
    assert caught.value.construct.startswith(construct)


def test_whole_numbers_that_may_be_missing_have_a_cell_for_that() -> None:
    schema = Schema(columns=[Column("n", type="integer", lower=0, upper=3, required=False)])
    parse_groups("n", schema)
    assert declared_cells(schema.column("n")) == (0, 1, 2, 3, None)
