"""A canonical text is read as the same question: what one answer is stored under stands for nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from discreet.errors import ExpressionRefused
from discreet.query.language import parse, parse_groups
from discreet.query.language._expression import parse_where
from discreet.query.language._program import values
from discreet.query.language.lexer import MOST_CHARACTERS
from discreet.query.language.query import parse_query
from discreet.schema import Column, Schema
from tests.query.language.generator import Generator, HashChoices
from tests.query.language.rows import SCHEMA, curated, named
from tests.query.language.test_agreement import texts
from tests.query.raw_questions import drawn_questions
from tests.query.raw_tables import Choices, draw_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.query.language import Expression

COLUMNS = named(curated(120))


def check_round_trip(text: str, schema: Schema, read: Callable[[str, Schema], Expression]) -> bool:
    """Check that the canonical text is the same expression, computed alike; False if the text is refused."""
    try:
        expression = read(text, schema)
    except ExpressionRefused:
        return False
    again = read(expression.canonical, schema)
    assert again == expression, text
    assert len(expression.canonical) <= MOST_CHARACTERS
    if schema is SCHEMA:
        for place, twin in ((expression.place, again.place), (expression.known_place, again.known_place)):
            if place is not None and twin is not None:
                ours = values(expression.program, COLUMNS, place)[place]
                assert np.array_equal(ours, values(again.program, COLUMNS, twin)[twin]), text
    return True


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=texts())
def test_a_canonical_text_is_read_as_the_same_expression(text: str) -> None:
    check_round_trip(text, SCHEMA, parse)


def test_hundreds_of_canonical_texts_are_read_as_the_same_expressions() -> None:
    generator = Generator(HashChoices(11))
    drawn = [generator.text(1 + i % 4) for i in range(200)]
    found = [check_round_trip(text, SCHEMA, read) for text in drawn for read in (parse, parse_where)]
    assert sum(found) > 280


def test_questions_are_read_from_their_text_and_from_their_sql_as_themselves() -> None:
    compared = keys = 0
    for seed in ("round trip 1", "round trip 2"):
        table = draw_table(seed)
        for question in drawn_questions(table, Choices(seed), 120):
            try:
                query = parse_query(question.text, table.schema)
            except ExpressionRefused:
                continue
            if query.where is not None and query.where.is_constant:
                continue
            assert parse_query(str(query), table.schema) == query, question.text
            assert parse_query(query.sql, table.schema) == query, question.text
            written = ", ".join(key.written(table.schema) for key in query.by)
            assert not query.by or parse_groups(written, table.schema) == query.by
            compared, keys = compared + 1, keys + sum(key.expression is not None for key in query.by)
    assert compared > 160
    assert keys > 12


LONG = Schema(
    columns=[
        Column("level", values=tuple(range(100))),
        Column("grade", values=tuple(range(500)), required=False),
        Column("place", values=tuple(f"a rather long name of a place, number {i}" for i in range(300))),
        Column("age", type="integer", lower=0, upper=99),
    ]
)


@pytest.mark.parametrize(
    "text",
    [
        "level <> 3",
        "(level * 1) = 3.5",
        "(level * 1) <> 3.5",
        "(grade * 1) = 3.5",
        "(grade * 1) <> 3.5",
        "grade <> 3 AND grade <> 7",
        "grade NOT IN (3, 7) OR grade IS NULL",
        "grade IN (3, 7) AND grade IS NOT NULL",
        f"level IN ({', '.join(map(str, range(50)))}) OR level IN ({', '.join(map(str, range(50, 64)))})",
        f"grade IN ({', '.join(map(str, range(60)))}) OR grade IN ({', '.join(map(str, range(60, 120)))})",
        "place <> 'a rather long name of a place, number 7'",
        "place IN ({})".format(", ".join(f"'a rather long name of a place, number {i}'" for i in range(60))),
    ],
)
def test_lists_of_many_levels_are_written_so_that_they_can_be_read(text: str) -> None:
    for read in (parse, parse_where):
        assert check_round_trip(text, LONG, read)
        assert check_round_trip(f"NOT ({text})", LONG, read)


@pytest.mark.parametrize(
    "text",
    [
        "({}) BETWEEN 0 AND 1",
        "({}) IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)",
        "CASE WHEN age NOT BETWEEN 3 AND ({}) THEN 1 ELSE 0 END",
        "1 / (1 + {})",
        "MOD(FLOOR({}), 7) + 3",
    ],
)
def test_a_text_that_grows_when_it_is_written_out_is_refused_before_it_takes_memory(text: str) -> None:
    whole, refused = "age", 0
    for _ in range(30):
        whole = text.format(whole)
        refused += not check_round_trip(whole, LONG, parse)
    assert refused
