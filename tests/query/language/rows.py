"""A schema with every kind of column, rows as unpleasant as a table can hold, and engines over them."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb
import numpy as np
from sqlglot import exp

from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.engines._postgres import PostgresEngine
from discreet.query.engines._spark import SparkEngine
from discreet.query.language import Expression, hoist
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from discreet._types import AnyArray

Compute: TypeAlias = Callable[[Sequence[Expression]], "Sequence[AnyArray]"]

SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=18, upper=90),
        Column("income", lower=0, upper=2e5),
        Column("delta", lower=-3.3, upper=1.7, required=False),
        Column("tiny", lower=-1e-90, upper=3e-88),
        Column("huge", lower=-1e60, upper=1e61),
        Column("wide", type="integer", lower=-(2**50), upper=2**50),
        Column("ward", values=("surgery", "médecine", "O'Hara", "A;B--"), required=False),
        Column("owner", values=(0, 1)),
        Column("smoker", values=(False, True)),
        Column("score", values=(1, 5, 10)),
        Column("admitted", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 12, 31)),
        Column(
            "discharged", lower=datetime.date(2020, 2, 27), upper=datetime.date(2025, 3, 1), required=False
        ),
        Column("hours-per-week", lower=0, upper=99),
        Column("case", lower=0.1, upper=0.7),
        Column("person", role="id"),
        Column("notes", role="drop"),
    ]
)
CURATION = Curation.from_schema(SCHEMA)

_NASTY = (
    np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.1, 1 / 3, 1e308, -1e308, 5e-324, 1e-320, -1e-300,
    1e-90, 3e-88, 2.0**53, 2.0**53 + 2, -(2.0**63), 17.999999999999996, 18.0, 33.0, 90.0,
    90.00000000000001, 1.7, -3.3, 2e5, 199999.99999, 0.7, 0.1, 99.0, 1e61, -1e60, 1825.5, 1826.0,
    4.9e-324,
)  # fmt: skip


def curated(n_rows: int = 400) -> dict[str, AnyArray]:
    """Curate rows that hold every unpleasant cell in every column, and others spread over the bounds."""
    batch: dict[str, AnyArray] = {}
    for place, column in enumerate(SCHEMA.released):
        steps = (np.arange(n_rows) * (place * 2 + 7) + place) % 97
        if column.is_category:
            batch[column.name] = (steps % len(column.levels)).astype(np.int32)
            continue
        lower, upper = column.range
        cells = lower + (upper - lower) * (steps / 96.0) ** (1 + place % 3)
        nasty = np.array(_NASTY)
        start = place * 3
        cells[start : start + len(nasty)] = nasty
        if column.required:
            cells = np.where(np.isnan(cells), column.fill, cells)
        if column.type == "integer":
            cells = np.floor(np.clip(cells, lower, upper))
        batch[column.name] = cells
    return CURATION.encode(batch)


def named(arrays: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Give curated arrays the names that expressions use."""
    return CURATION.name_arrays(arrays)


def selection(expressions: Sequence[Expression], *, fence: bool = False) -> exp.Select:
    """Select the grid indices of some expressions, row by row."""
    columns = [
        exp.alias_(expression.integer_sql(CURATION.sql_column), f"v{i}", copy=False)
        for i, expression in enumerate(expressions)
    ]
    return hoist(exp.Select(expressions=columns).from_("curated", copy=False), fence=fence)


def _types(name: str) -> str:
    return CURATION.kind(name).replace("DOUBLE", "double precision")


def duckdb_connection(arrays: dict[str, AnyArray]) -> duckdb.DuckDBPyConnection:
    """Put the curated rows into an embedded DuckDB."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    names = list(arrays)
    connection.execute(
        f"CREATE TABLE curated ({', '.join(f'{name} {CURATION.kind(name)} NOT NULL' for name in names)})"
    )
    unnested = ", ".join("unnest(?)" for _ in names)
    connection.execute(f"INSERT INTO curated SELECT {unnested}", [arrays[name].tolist() for name in names])
    return connection


def duckdb_indices(
    connection: duckdb.DuckDBPyConnection, expressions: Sequence[Expression]
) -> list[AnyArray]:
    """Compute grid indices in DuckDB."""
    query = DuckDBEngine.sql.write(selection(expressions))
    assert query.count("FROM") == query.count("FROM curated") + query.count("FROM (SELECT")
    found: Any = connection.execute(query).fetchnumpy()
    return [np.asarray(found[f"v{i}"]) for i in range(len(expressions))]


@contextlib.contextmanager
def postgres_indices(url: str, arrays: dict[str, AnyArray]) -> Iterator[Compute]:
    """Put the curated rows into PostgreSQL; yields what computes grid indices there."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(
            f"CREATE TABLE curated ({', '.join(f'{n} {_types(n)} NOT NULL' for n in arrays)})".encode()
        )
        with connection.cursor() as cursor, cursor.copy("COPY curated FROM STDIN") as copy:
            for row in zip(*(values.tolist() for values in arrays.values()), strict=True):
                copy.write_row(row)
        connection.execute("SET jit = off")

        def compute(expressions: Sequence[Expression]) -> list[AnyArray]:
            query: Any = PostgresEngine.sql.write(selection(expressions, fence=True))
            return list(np.array(connection.execute(query).fetchall(), np.int64).T)

        yield compute


def spark_indices(spark: Any, arrays: dict[str, AnyArray], folder: Path) -> Compute:
    """Hand the curated rows to Spark; returns what computes grid indices there."""
    connection = duckdb_connection(arrays)
    connection.execute(f"COPY curated TO '{folder}/curated.parquet'")
    connection.close()
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.read.parquet(f"{folder}/curated.parquet").createOrReplaceTempView("curated")

    def compute(expressions: Sequence[Expression]) -> list[AnyArray]:
        found = spark.sql(SparkEngine.sql.write(selection(expressions))).toArrow()
        return [found.column(i).to_numpy() for i in range(len(expressions))]

    return compute
