"""Expressions to group by: their cells follow from text and schema, and each row is in the right one."""

from __future__ import annotations

import dataclasses
import datetime
import math
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
from sqlglot import exp

from discreet.errors import ExpressionRefused, ParameterError
from discreet.privacy import GaussianDP
from discreet.query import Database
from discreet.query.aggregates import Histogram, aggregate_from_dict
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.engines._postgres import PostgresEngine
from discreet.query.language import KeyExpression, hoist, parse_groups
from discreet.query.language._lowering import Lowering
from discreet.query.language.query import build_query, parse_query
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

D = datetime.date
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=18, upper=90),
        Column("income", lower=0, upper=120_000, required=False),
        Column("kids", type="integer", lower=0, upper=5, required=False),
        Column("sex", values=("f", "m"), closed=True),
        Column("ward", values=("a", "b"), required=False, closed=True),
        Column("born", lower=D(1990, 5, 5), upper=D(1994, 1, 1), required=False),
        Column("year", type="integer", lower=1, upper=3),
    ]
)
CURATION = Curation.from_schema(SCHEMA)
N = 240
ROWS: dict[str, list[Any]] = {
    "age": [18 + 7 * i % 73 for i in range(N)],
    "income": [None if i % 7 == 0 else (997 * i) % 120_000 / 1.0 for i in range(N)],
    "kids": [None if i % 5 == 0 else i % 6 for i in range(N)],
    "sex": ["fm"[i % 3 == 0] for i in range(N)],
    "ward": [None if i % 4 == 0 else "ab"[i % 2] for i in range(N)],
    "born": [None if i % 6 == 0 else D(1990, 5, 5) + datetime.timedelta(days=5 * i) for i in range(N)],
    "year": [1 + i % 3 for i in range(N)],
}
LINES = [dict(zip(ROWS, line, strict=True)) for line in zip(*ROWS.values(), strict=True)]


def known(function: Callable[..., Any], *cells: Any) -> Any:
    """Return what a function says of cells; None if one is missing."""
    return None if None in cells else function(*cells)


# A key, and the name of the cell that a row is in.
KEYS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "age / 10": lambda r: f"{r['age'] // 10 * 10} to below {r['age'] // 10 * 10 + 10}",
    "10 * FLOOR(age / 10)": lambda r: str(r["age"] // 10 * 10),
    "age >= 65": lambda r: "true" if r["age"] >= 65 else "false",
    "kids > 2": lambda r: known(lambda k: "true" if k > 2 else "false", r["kids"]),
    "kids > 2 OR age > 60": lambda r: (
        "true" if r["age"] > 60 else known(lambda k: "true" if k > 2 else "false", r["kids"])
    ),
    "kids % 2": lambda r: known(lambda k: str(k % 2), r["kids"]),
    "YEAR(born)": lambda r: known(lambda d: str(d.year), r["born"]),
    "MONTH(born)": lambda r: known(lambda d: str(d.month), r["born"]),
    "ISODOW(born)": lambda r: known(lambda d: str(d.isoweekday()), r["born"]),
    "DATE_TRUNC('month', born)": lambda r: known(lambda d: d.isoformat()[:7], r["born"]),
    "DATE_TRUNC('week', born)": lambda r: known(
        lambda d: (d - datetime.timedelta(days=d.weekday())).isoformat(), r["born"]
    ),
    "born + age": lambda r: known(lambda d: (d + datetime.timedelta(days=r["age"])).isoformat(), r["born"]),
    "CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'middle' ELSE 'old' END": lambda r: (
        "young" if r["age"] < 30 else "middle" if r["age"] < 60 else "old"
    ),
    "CASE WHEN kids = 0 THEN 'none' WHEN kids > 0 THEN 'some' END": lambda r: known(
        lambda k: "some" if k else "none", r["kids"]
    ),
    "CASE sex WHEN 'f' THEN ward ELSE 'man' END": lambda r: r["ward"] if r["sex"] == "f" else "man",
    "COALESCE(ward, 'elsewhere')": lambda r: r["ward"] or "elsewhere",
    "NULLIF(ward, 'a')": lambda r: None if r["ward"] == "a" else r["ward"],
    "CASE WHEN age < 40 THEN 1.5 WHEN age < 60 THEN 1000 END": lambda r: (
        "1.5" if r["age"] < 40 else "1000" if r["age"] < 60 else None
    ),
    "income / 12 (1000, 5000)": lambda r: known(
        lambda x: (
            "below 1000" if x / 12 < 1000 else "1000 to below 5000" if x / 12 < 5000 else "5000 or more"
        ),
        r["income"],
    ),
    "ROUND(income, -4)": lambda r: known(lambda x: str(math.floor(x / 10_000 + 0.5) * 10_000), r["income"]),
    "year (2)": lambda r: "below 2" if r["year"] < 2 else "2 or more",
}


def counted(text: str) -> dict[str, int]:
    """Count the rows of every cell by the rule beside a key."""
    cells: dict[str, int] = {}
    for line in LINES:
        name = KEYS[text](line) or "(missing)"
        cells[name] = cells.get(name, 0) + 1
    return cells


def asked(db: Database, text: str) -> dict[str, int]:
    """Ask for the counts without noise; those of no row are left out."""
    result = db.query(text, privacy=GaussianDP(mu=1e15))
    return {cell.key[0]: round(cell.value or 0) for cell in result.cells if round(cell.value or 0)}


@pytest.fixture(scope="module")
def db() -> Any:
    with Database(ROWS, schema=SCHEMA, random_state=1) as opened:
        yield opened


@pytest.mark.parametrize("text", KEYS)
def test_every_row_is_in_the_cell_that_its_values_say(db: Database, text: str) -> None:
    assert asked(db, f"count by {text}") == counted(text)
    (key,) = parse_groups(text, SCHEMA)
    assert db.query(f"count by {text}", privacy=GaussianDP(mu=1e15)).group_by == (key.name,)


def expressions() -> list[KeyExpression]:
    keys = [parse_groups(text, SCHEMA)[0].expression for text in KEYS]
    return [key for key in keys if key is not None]


def selection(*, fence: bool = False) -> exp.Select:
    trees = [exp.alias_(key.integer_sql(CURATION.sql_column), f"k{i}") for i, key in enumerate(expressions())]
    return hoist(exp.select(*trees).from_("curated"), fence=fence)


def curated() -> dict[str, Any]:
    batch: dict[str, Any] = {}
    for column in SCHEMA.released:
        cells = ROWS[column.name]
        if column.is_category:
            batch[column.name] = np.array([column.levels.index(cell) for cell in cells])
        elif column.type == "date":
            batch[column.name] = np.array([np.nan if c is None else (c - column.lower).days for c in cells])
        else:
            batch[column.name] = np.array([np.nan if c is None else c for c in cells], np.float64)
    return CURATION.encode(batch)


def positions() -> list[list[int]]:
    columns = CURATION.name_arrays(curated())
    return [key.evaluate(columns).tolist() for key in expressions()]


def insert(connection: Any, arrays: dict[str, Any], double: str) -> None:
    kinds = ", ".join(f"{name} {CURATION.kind(name).replace('DOUBLE', double)}" for name in arrays)
    connection.execute(f"CREATE TEMPORARY TABLE curated ({kinds})")
    rows = ", ".join(str(row) for row in zip(*(values.tolist() for values in arrays.values()), strict=True))
    connection.execute(f"INSERT INTO curated VALUES {rows}")


def test_duckdb_and_postgres_put_rows_into_the_cells_that_numpy_says(postgres_url: str) -> None:
    import psycopg

    ours = positions()
    for key, places in zip(expressions(), ours, strict=True):
        assert 0 <= min(places) <= max(places) < len(key.labels)
    with duckdb.connect() as connection:
        insert(connection, curated(), "DOUBLE")
        rows = connection.execute(DuckDBEngine.sql.write(selection())).fetchall()
    assert [list(column) for column in zip(*rows, strict=True)] == ours
    with psycopg.connect(postgres_url) as server:
        insert(server, curated(), "double precision")
        rows = server.execute(PostgresEngine.sql.write(selection(fence=True))).fetchall()
    assert [list(column) for column in zip(*rows, strict=True)] == ours


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_spark_counts_as_the_rules_say(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [tuple(line.values()) for line in LINES],
        "age int, income double, kids int, sex string, ward string, born date, year int",
    )
    with Database(frame, schema=SCHEMA, random_state=1) as opened:
        for text in KEYS:
            assert asked(opened, f"count by {text}") == counted(text), text


def test_keys_are_mixed_with_columns_and_edges(db: Database) -> None:
    result = db.query("mean(age) by sex, age (30, 60), kids > 2", privacy=GaussianDP(mu=1e15))
    assert result.group_by == ("sex", "age", "2 < kids")
    assert len(result.cells) == 2 * 3 * 3
    assert result.cells[2].key == ("f", "below 30", "(missing)")


SPELLINGS = [
    ("age / 10", "FLOOR(AGE/10)"),
    ("age >= 65", "NOT (65 > age)"),
    ("extract(year from born)", "Year(born)"),
    ("income / 12 (1000, 2000)", "(income/12)(1e3,2000)"),
    ("(age)", "age"),
    ("CASE WHEN NOT age >= 30 THEN 'x' ELSE 'y' END", "case when age < 30 then 'x' else 'y' end"),
]


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_spellings_of_a_key_are_one_key_and_one_question(one: str, other: str) -> None:
    assert parse_groups(one, SCHEMA) == parse_groups(other, SCHEMA)
    query = parse_query(f"count by {one}", SCHEMA)
    assert parse_query(query.sql, SCHEMA) == parse_query(str(query), SCHEMA) == query


@pytest.mark.parametrize(
    ("typed", "name", "text"),
    [
        ("born >= '1992-01-01'", "'1992-01-01' <= born", "'1992-01-01' <= born"),
        (
            "(case when born < '1991-05-05' then income else 0 end) (1000, 2000)",
            "CASE WHEN (born < '1991-05-05') THEN income ELSE 0 END",
            "CASE WHEN (born < '1991-05-05') THEN income ELSE 0 END (1000, 2000)",
        ),
    ],
)
def test_a_date_in_a_key_is_written_as_a_date_and_read_again(typed: str, name: str, text: str) -> None:
    (key,) = parse_groups(typed, SCHEMA, typed=True)
    assert (key.name, key.written(SCHEMA)) == (name, text)
    assert parse_groups(text, SCHEMA, typed=True) == (key,)


def test_keys_are_given_in_parts_too() -> None:
    parts: list[Any] = [
        {"expression": "income / 12", "edges": [1000, 2000]},
        {"expression": "age / 10"},
        "kids > 2",
        "sex",
    ]
    query = build_query("count", None, parts, SCHEMA)
    assert query == parse_query("count by income / 12 (1000, 2000), age / 10, kids > 2, sex", SCHEMA)
    with pytest.raises(ParameterError, match="holds something else"):
        build_query("count", None, [{"expression": "age", "column": "age", "edges": []}], SCHEMA)


def test_a_histogram_of_an_expression_is_written_and_read_and_named_by_its_canonical_text() -> None:
    histogram = Histogram(["AGE/10", "sex", "income / 12"], {"income / 12": [1000]})
    again = aggregate_from_dict(histogram.to_dict())
    assert again.to_dict() == histogram.to_dict()
    bound = histogram.bind(CURATION, "add-remove")
    other = Histogram(["FLOOR((age / 10))", "sex", "(income / 12)"], {"(income / 12)": [1000]})
    assert bound.canonical == other.bind(CURATION, "add-remove").canonical
    assert bound.canonical["columns"] == ["FLOOR((age / 10))", "sex", "(income / 12)"]
    with pytest.raises(ParameterError, match="two are the same one"):
        Histogram(["age / 10", "FLOOR(age / 10)"]).bind(CURATION, "add-remove")


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("income / 12", "an expression to group by whose values need not be whole numbers"),
        ("age * 100 + age", "an expression to group by with more than 4096 values"),
        ("3", "a constant to group by"),
        ("'f'", "a constant to group by"),
        ("age / 10, FLOOR(age / 10)", "a column to group by that comes twice"),
        ("age > 30 (1, 2)", "edges of a condition"),
        ("sex age", "something other than columns and expressions to group by"),
        ("FLOR(age / 10)", "the function FLOR"),
        ("MEDIAN(age)", "an aggregate, MEDIAN"),
        ("income / 12 (2000, 1000)", "cells of an expression that are not rising numbers, fewer than 4096"),
        ("CASE WHEN age < 30 THEN 'x' ELSE 3 END", "a value in quotes where a number is needed"),
        ("DATE_TRUNC('hour', born)", "DATE_TRUNC to something other than a unit"),
    ],
)
def test_keys_without_public_cells_are_refused(text: str, construct: str) -> None:
    with pytest.raises(ExpressionRefused) as caught:
        parse_groups(text, SCHEMA)
    assert caught.value.construct == construct


# Broken twins.


def test_cells_read_off_the_rows_would_be_caught() -> None:
    """A twin leaves out the cells that no row is in: one row more or less, and everyone sees other cells."""
    last = max(range(N), key=lambda i: ROWS["born"][i] or D.min)
    neighbor = {name: [cell for i, cell in enumerate(cells) if i != last] for name, cells in ROWS.items()}
    ours, twins = [], []
    for rows in (ROWS, neighbor):
        with Database(rows, schema=SCHEMA, random_state=1) as db:
            cells = db.query("count by DATE_TRUNC('week', born)", privacy=GaussianDP(mu=1e15)).cells
        ours.append([cell.key for cell in cells])
        twins.append([cell.key for cell in cells if round(cell.value or 0)])
    assert ours[0] == ours[1]
    assert twins[0] != twins[1]


def test_a_missing_value_in_another_cell_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin forgets which rows are unknown, and counts them by the number that stands for a missing one."""
    from discreet.query.language import _key_cells

    class Forgetful(Lowering):
        def known(self, node: Any) -> int | None:
            place = super().known(node)
            return None if place is None else self.program.truth(True)

    monkeypatch.setattr(_key_cells, "Lowering", Forgetful)
    _key_cells._parse_cached.cache_clear()
    with Database(ROWS, schema=SCHEMA, random_state=1) as broken:
        wrong = [
            text for text in ("kids % 2", "YEAR(born)") if asked(broken, f"count by {text}") != counted(text)
        ]
    _key_cells._parse_cached.cache_clear()
    assert len(wrong) == 2


def test_a_label_of_a_key_names_its_cell_and_no_other() -> None:
    for text in KEYS:
        (key,) = parse_groups(text, SCHEMA)
        if key.expression is not None:
            assert len(set(key.expression.texts)) == len(key.expression.labels)
            assert [key.label(value, SCHEMA) for value in key.expression.labels] == list(key.expression.texts)
            assert dataclasses.replace(key) == key
