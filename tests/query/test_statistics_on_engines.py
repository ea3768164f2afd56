"""Without noise every statistic is what SQL says: DuckDB on the raw rows, and each engine on the curated."""

from __future__ import annotations

import datetime
import math
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.language.query import parse_query
from discreet.query.statistics import plan_query
from discreet.schema import Column, Schema
from tests.draws import Draws

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.query.engines import Engine
    from tests.postgres import PostgresServer

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

FIRST = datetime.date(2020, 1, 1)
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=99),
        Column("pay", lower=-50.5, upper=1200.25, required=False),
        Column("hours", lower=0, upper=60),
        Column("debt", lower=-10, upper=0, required=False),
        Column("day", type="date", lower=FIRST, upper=datetime.date(2023, 12, 31), required=False),
        Column("ward", values=("a", "b", "c d", "none"), required=False),
    ]
)
CURATION = Curation.from_schema(SCHEMA)
DRAW = Draws("rows of statistics")


def _row(i: int) -> dict[str, Any]:
    missing = DRAW.random() < 0.2
    return {
        "age": DRAW.whole(0, 99),
        "pay": None if missing else round(DRAW.uniform(-50.5, 1200.25), 2),
        "hours": DRAW.whole(0, 120) / 2,
        "debt": None if DRAW.random() < 0.3 else -DRAW.whole(0, 40) / 4,
        "day": None if DRAW.random() < 0.1 else FIRST + datetime.timedelta(days=DRAW.whole(0, 1460)),
        "ward": None if i % 9 == 0 else DRAW.choice(("a", "b", "c d")),  # "none" has no row
    }


ROWS = [_row(i) for i in range(400)]
TABLE = {name: [row[name] for row in ROWS] for name in SCHEMA.names}
DAYS = "date_diff('day', DATE '2020-01-01', day)"
# The query, and what DuckDB computes of the raw rows: its numbers, condition and group.
CASES: list[tuple[str, str, str, str | None]] = [
    ("count", "COUNT(*)", "TRUE", None),
    ("count(pay)", "COUNT(pay)", "TRUE", None),
    ("sum(pay), mean(pay)", "SUM(pay), AVG(pay)", "TRUE", None),
    ("mean(age), variance(age)", "AVG(age), VAR_SAMP(age)", "TRUE", None),
    ("stddev(pay)", "STDDEV(pay)", "TRUE", None),
    ("stddev_pop(pay) where age > 40", "STDDEV_POP(pay)", "age > 40", None),
    ("var_pop(hours), stddev(hours) where ward = 'b'", "VAR_POP(hours), STDDEV(hours)", "ward = 'b'", None),
    ("ratio(pay, hours)", "SUM(pay) / SUM(hours)", "TRUE", None),
    ("ratio(pay, debt) where hours >= 10", "SUM(pay) / SUM(debt)", "hours >= 10", None),
    ("ratio(hours, -debt) by ward", "SUM(hours) / SUM(-debt)", "TRUE", "ward"),
    ("count, mean(pay), stddev(pay) by ward", "COUNT(*), AVG(pay), STDDEV(pay)", "TRUE", "ward"),
    (
        "count(pay), sum(pay), mean(debt), var_pop(pay * 2), ratio(debt, hours) where age < 70 by ward",
        "COUNT(pay), SUM(pay), AVG(debt), VAR_POP(pay * 2), SUM(debt) / SUM(hours)",
        "age < 70",
        "ward",
    ),
    ("mean(pay > 500), stddev(pay > 500)", "AVG((pay > 500)::INT), STDDEV((pay > 500)::INT)", "TRUE", None),
    ("proportion(debt < -5) by ward", "AVG((debt < -5)::INT)", "TRUE", "ward"),
    ("mean(day), stddev(day)", f"AVG({DAYS}), STDDEV({DAYS})", "TRUE", None),
    ("mean(day) where day >= '2021-06-01' by ward", f"AVG({DAYS})", "day >= DATE '2021-06-01'", "ward"),
    ("variance(CASE WHEN age > 50 THEN pay END)", "VAR_SAMP(CASE WHEN age > 50 THEN pay END)", "TRUE", None),
    ("stddev(COALESCE(pay, 0)) by ward", "STDDEV(COALESCE(pay, 0))", "TRUE", "ward"),
    ("mean(pay), mean(age) where pay IS NULL", "AVG(pay), AVG(age)", "pay IS NULL", None),
    ("SELECT ward, AVG(pay), COUNT(*) FROM t GROUP BY ward", "AVG(pay), COUNT(*)", "TRUE", "ward"),
    (
        "SELECT SUM(hours) / SUM(age), VARIANCE(age) FROM t",
        "SUM(hours) / SUM(age), VARIANCE(age)",
        "1 = 1",
        None,
    ),
]


@cache
def _raw() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t (age INT, pay DOUBLE, hours DOUBLE, debt DOUBLE, day DATE, ward VARCHAR)"
    )
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", [list(row.values()) for row in ROWS])
    return connection


def _duckdb(_: pytest.FixtureRequest) -> Engine:
    engine = DuckDBEngine()
    engine.register(TABLE, CURATION)
    return engine


def _postgres(request: pytest.FixtureRequest) -> Engine:
    from discreet.query.engines._postgres import PostgresEngine

    engine = PostgresEngine(request.getfixturevalue("statistics_url"))
    engine.register(TABLE, CURATION)
    return engine


def _spark(request: pytest.FixtureRequest) -> Engine:
    import pyarrow as pa

    from discreet.query.engines._spark import SparkEngine

    session = request.getfixturevalue("spark")
    engine = SparkEngine()
    types = {"age": "int64", "day": "date32", "ward": "string"}
    table = pa.table({name: pa.array(column, types.get(name, "float64")) for name, column in TABLE.items()})
    engine.register(session.createDataFrame(table), CURATION)
    return engine


ENGINES = {"duckdb": _duckdb, "postgres": _postgres, "spark": _spark}


@pytest.fixture(scope="module")
def statistics_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database that exists for all tests here."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture(
    scope="module", params=[pytest.param(one, marks=[pytest.mark.slow] * (one == "spark")) for one in ENGINES]
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine of each kind on the same rows."""
    opened = ENGINES[request.param](request)
    yield opened
    opened.close()


def answer(text: str, engine: Engine, *, public: bool = True) -> list[tuple[Any, list[float]]]:
    """Return the groups of a query and their exact numbers, as they would be without noise."""
    query = parse_query(text, SCHEMA)
    plan = plan_query(query, len(ROWS) if public else None)
    bound = plan.aggregate.bind(CURATION, "replace-one" if public else "add-remove")
    entries = np.array([float(one) for one in bound.exact(engine)]) * bound.unit
    values = bound.arrange(entries + bound.shift * (len(ROWS) if public else 0), 0.0)
    combined = plan.combine(values, np.zeros_like(values), "gaussian")
    groups = plan.labels[0] if plan.labels else (None,)
    return [(group, [float(one.values[i]) for one in combined]) for i, group in enumerate(groups)]


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize(("text", "numbers", "where", "group"), CASES)
def test_statistics_without_noise_are_those_of_sql(
    text: str, numbers: str, where: str, group: str | None, public: bool, engine: Engine
) -> None:
    key = group or "1"
    found = _raw().execute(f"SELECT {key}, {numbers} FROM t WHERE {where} GROUP BY {key}").fetchall()
    wanted = {row[0] if group else None: row[1:] for row in found}
    given = answer(text, engine, public=public)
    assert {name for name, _ in given} >= set(wanted)
    for name, values in given:
        for value, exact in zip(values, wanted.get(name, [None] * len(values)), strict=True):
            if exact is None:  # SQL has NULL where there are no rows; a sum and a count of none are 0
                assert value == 0 or math.isnan(value), (text, name)
            else:
                assert value == pytest.approx(float(exact), rel=1e-6, abs=1e-6), (text, name)


def test_engines_agree_to_the_last_digit(engine: Engine) -> None:
    other = DuckDBEngine()
    other.register(TABLE, CURATION)
    for text, *_ in CASES:
        assert str(answer(text, engine)) == str(answer(text, other)), text
    other.close()


def test_a_spread_that_is_divided_by_the_wrong_number_of_rows_would_be_seen(engine: Engine) -> None:
    (found,) = _raw().execute("SELECT STDDEV(pay), STDDEV_POP(pay) FROM t WHERE ward = 'a'").fetchall()
    for kind, exact, other in (("stddev", *found), ("stddev_pop", *found[::-1])):
        ((_, (value,)),) = answer(f"{kind}(pay) where ward = 'a'", engine)
        assert value == pytest.approx(exact, rel=1e-4)
        assert value != pytest.approx(other, rel=1e-4)
