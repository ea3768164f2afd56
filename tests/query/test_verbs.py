"""Verbs of a private table: the query that each of them asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from discreet import Column, Database, GaussianDP, Schema
from discreet.errors import ExpressionRefused, ParameterError
from discreet.query.language import parse
from discreet.query.results import QueryResult
from tests.query.survey import ROWS, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MU = GaussianDP(mu=0.5)


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with Database(ROWS, schema=SCHEMA, random_state=5) as made:
        yield made


ASKED: list[tuple[Callable[[Any], QueryResult], str]] = [
    (lambda db: db.count(privacy=MU), "count"),
    (lambda db: db.count("age > 40", privacy=MU), "count where 40 < age"),
    (lambda db: db.count(parse("age > 40", SCHEMA), privacy=MU), "count where 40 < age"),
    (lambda db: db.count(where="smoker or age > 40", sd=4.0), "count where (40 < age) OR smoker"),
    (lambda db: db.count(by=["select", "age (30, 60)"], privacy=MU), 'count by "select", age (30, 60)'),
    (lambda db: db.count(by="sex, smoker", privacy=MU), "count by sex, smoker"),
    (lambda db: db.sum("hours-per-week", privacy=MU), 'sum("hours-per-week")'),
    (lambda db: db.sum("age", where="sex = 'f'", by="by", privacy=MU), "sum(age) where sex = 'f' by \"by\""),
    (lambda db: db.mean("age", by="sex", privacy=MU), "mean(age) by sex"),
    (lambda db: db.proportion("age >= 65", by="sex", privacy=MU), "mean(65 <= age) by sex"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "text"), ASKED)
def test_a_verb_asks_the_query_that_it_says(
    db: Database, ask: Callable[[Any], QueryResult], text: str
) -> None:
    told = ask(db)
    assert told.cells == db.query(text, **({"sd": 4.0} if " or " in text.lower() else {"privacy": MU})).cells
    assert isinstance(told, QueryResult)


class Fake(Database):
    """A table that tells which query it was asked."""

    asked: str = ""

    def query(self, text: str, **how: Any) -> Any:
        self.asked = text
        return how


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda db: db.median("age", by="sex", privacy=MU), "median(age) by sex"),
        (lambda db: db.quantile("hours-per-week", 0.9, privacy=MU), 'quantile("hours-per-week", 0.9)'),
        (lambda db: db.variance("age", where="smoker", privacy=MU), "variance(age) where (smoker)"),
        (lambda db: db.stddev("age + 1", privacy=MU), "stddev(age + 1)"),
        (lambda db: db.ratio("where", "age", by=("sex",), privacy=MU), 'ratio("where", age) by sex'),
        (lambda db: db.count_distinct(where="age > 9", privacy=MU), "count(distinct person) where (age > 9)"),
    ],
)
def test_words_that_the_language_is_asked_in(ask: Callable[[Any], Any], text: str) -> None:
    schema = Schema(
        columns=[*SCHEMA.columns, Column("person", type="integer", role="id")],
        id_column="person",
        max_rows_per_unit=2,
    )
    rows = {name: cells[:2] for name, cells in ROWS.items()} | {"person": [1, 2]}
    with Fake(rows, schema=schema) as db:
        assert ask(db) == {"privacy": MU}
        assert db.asked == text


def test_wrong_arguments_are_refused_before_a_charge(db: Database) -> None:
    before = db.ledger.spent().charges
    with pytest.raises(ExpressionRefused, match="condition"):
        db.count("age", privacy=MU)
    with pytest.raises(ExpressionRefused):  # a condition does not go on as the rest of a query
        db.count("age > 40 by sex", privacy=MU)
    with pytest.raises(ParameterError, match="between 0 and 1, was 90"):
        db.quantile("age", 90, privacy=MU)
    with pytest.raises(ParameterError, match="names an id_column"):
        db.count_distinct(privacy=MU)
    with pytest.raises(ParameterError, match="exactly one of a promise and a noise"):
        db.sum("age")
    assert db.ledger.spent().charges == before
