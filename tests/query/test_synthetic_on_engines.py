"""A synthetic table is the same, bit for bit, whichever engine answers the questions under one key."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pandas
import pytest

from discreet import Database, GaussianDP
from discreet.query.engines._postgres import PostgresEngine
from discreet.release.synthetic import SyntheticRelease
from tests.release.synthetic_tables import mixed_rows, mixed_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
ROWS = 1500


def make(source: Any, **more: Any) -> Mapping[str, AnyArray]:
    """Make a table by all six questions from rows in an engine."""
    schema = mixed_schema()
    method = SyntheticRelease(GaussianDP(mu=2), schema=schema)
    with Database(source, schema=schema, random_state=1, **more) as database:
        made = method.release_database(database).columns
    assert len(method.receipts_) == 6
    return made


@cache
def made_by_duckdb() -> Mapping[str, AnyArray]:
    return make(mixed_rows(ROWS))


def check_same(made: Mapping[str, AnyArray]) -> None:
    assert made.keys() == made_by_duckdb().keys()
    for column, values in made_by_duckdb().items():
        assert values.tobytes() == made[column].tobytes()


def test_postgresql_gives_the_table_that_duckdb_gives(postgres_url: str) -> None:
    check_same(make(mixed_rows(ROWS), engine=PostgresEngine(postgres_url)))


@pytest.mark.slow
def test_spark_gives_the_table_that_duckdb_gives(spark: Any) -> None:
    rows = mixed_rows(ROWS)
    frame = pandas.DataFrame(rows)
    frame["day"] = rows["day"].astype(object)  # a date, not a time
    check_same(make(spark.createDataFrame(frame)))
