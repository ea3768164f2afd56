"""The SQL text of our trees is what sqlglot would write, read back into the same tree."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
import sqlglot
from sqlglot import exp

from discreet.noise import Stream
from discreet.query.aggregates import DistinctUnits, Histogram, Moments, NodeTables, Sums, TreeNode
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.engines._postgres import PostgresEngine
from discreet.query.engines._spark import SparkEngine
from discreet.query.language import parse
from discreet.query.language._sql import SqlText
from discreet.schema import Column, Schema
from tests.query.people import people_schema

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Tree

    from discreet.query.aggregates import Aggregate
    from discreet.query.engines import Engine

PEOPLE = people_schema()
SCHEMA = Schema(columns=[Column("who", role="id"), *PEOPLE.columns], id_column="who", max_rows_per_unit=3)
CURATION = Curation.from_schema(SCHEMA)
ENGINES: list[tuple[type[Engine], str]] = [
    (DuckDBEngine, "duckdb"),
    (PostgresEngine, "postgres"),
    (SparkEngine, "spark"),
]
QUESTIONS: list[Aggregate] = [
    Sums(("age", "income * height - age / 7", "job = 'clerk' AND NOT owner = 1", "ABS(height) < 1", "7")),
    Sums(("EXP(LEAST(height, 1))", "SQRT(income) + FLOOR(age / 10)", "POWER(height, 3)", "-(height * -2)")),
    Sums(("LN(GREATEST(income, 0.001))", "CASE WHEN income IS NULL THEN 1 ELSE owner END")),
    Moments(("height", "job")),
    Histogram(("job", "age"), {"age": [30.0, 50.0]}, "height * 2"),
    Histogram("income", {"income": [0.25, 0.5, 0.75]}),
    NodeTables(
        "owner",
        [TreeNode([("job", 0)], ["age"]), TreeNode([("job", 1), ("age", 1)], ["height", "income"])],
        {"age": [40.0], "height": [0.0], "income": [0.5]},
    ),
    DistinctUnits(),
    DistinctUnits(("job", "income"), {"income": [0.5]}, "EXP(LEAST(height, 1)) > age"),
]


def queries(kind: type[Engine], question: Aggregate) -> list[Tree]:
    """What an engine would run, without running it."""
    found: list[Tree] = []

    class Stopped(Exception):
        pass

    class Watched(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.curation = CURATION
            self.exposed = kind is PostgresEngine
            self._seed = 2**62 + 1
            self._name, self._into = "curated_7", 'a "quoted" place'

        def _fetch(self, query: Tree) -> list[tuple[Any, ...]]:
            found.append(query)
            raise Stopped

        def _check_version(self) -> None:
            """Would ask first."""

        def run(self, act: Any) -> Any:
            return act()

    with pytest.raises(Stopped):
        question.bind(CURATION, "replace-one").exact(Watched())
    return found


@pytest.mark.parametrize(("kind", "dialect"), ENGINES, ids=[dialect for _, dialect in ENGINES])
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.kind)
def test_our_text_and_the_text_of_sqlglot_are_read_as_the_same_query(
    kind: type[Engine], dialect: str, question: Aggregate
) -> None:
    (query,) = queries(kind, question)
    # Numbers are written in another way where an engine reads that faster; the next test is about these.
    written = SqlText({}) if kind is DuckDBEngine else kind.sql
    ours, theirs = written.write(query), query.sql(dialect)
    assert sqlglot.parse_one(ours, dialect=dialect) == sqlglot.parse_one(theirs, dialect=dialect)
    # The comparison sees a change of one sign.
    assert sqlglot.parse_one(
        ours.replace("SUM(", "MAX(", 1).replace("COUNT(", "MIN(", 1), dialect=dialect
    ) != (sqlglot.parse_one(theirs, dialect=dialect))


@pytest.mark.parametrize("count", [4_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_duckdb_reads_a_number_with_an_exponent_as_the_double_that_was_meant(count: int) -> None:
    bits = Stream.from_seed(12).words(count)
    doubles = bits.view(np.float64)
    edges = [0.0, 0.1, 20.0, 5e-324, sys.float_info.min, sys.float_info.max, 2.0**53 + 2, 1e22, 1e23]
    numbers = [*edges, *(-edge for edge in edges), *doubles[np.isfinite(doubles)].tolist()]
    double = exp.DataType.build("DOUBLE")
    trees = [exp.Cast(this=exp.Literal.string(repr(number)), to=double.copy()) for number in numbers]
    with closing(duckdb.connect()) as connection:
        for start in range(0, len(trees), 500):
            ours = ", ".join(map(DuckDBEngine.sql.write, trees[start : start + 500]))
            (row,) = connection.execute(f"SELECT {ours}").fetchall()
            assert "CAST" not in ours
            assert list(row) == numbers[start : start + 500]
    # Without an exponent it would be a decimal, which loses digits in a product.
    assert DuckDBEngine.sql.write(trees[2]) == "20.0e0"
    assert (
        DuckDBEngine.sql.write(exp.Cast(this=exp.Literal.string("inf"), to=double)) == "CAST('inf' AS DOUBLE)"
    )


def test_duckdb_clamps_by_case_to_the_same_numbers_and_repeats_no_long_text() -> None:
    def clamp(cell: Tree) -> Tree:
        bounds = [
            exp.Cast(this=exp.Literal.string(t), to=exp.DataType.build("DOUBLE")) for t in ("-1.5", "2.0")
        ]
        greatest = exp.Anonymous(this="GREATEST", expressions=[cell, bounds[0]])
        return exp.Anonymous(this="LEAST", expressions=[greatest, bounds[1]])

    tree = clamp(exp.column("x"))
    by_case, by_function = DuckDBEngine.sql.write(tree), SqlText({}, exponents=True).write(tree)
    assert by_case.startswith("CASE WHEN x < ")
    with closing(duckdb.connect()) as connection:
        numbers = "unnest([-1e300, -1.5, -1.4999999999999998, -5e-324, 0.0, 2.0, 2.0000000000000004, 1e300])"
        query = f"SELECT {by_case} = {by_function} FROM (SELECT CAST({numbers} AS DOUBLE) AS x)"
        assert connection.execute(query).fetchall() == [(True,)] * 8
    nested = tree
    for _ in range(40):
        nested = clamp(nested)
    assert len(DuckDBEngine.sql.write(nested)) < 5000


def test_duckdb_counts_conditions_and_sums_everything_else() -> None:
    condition = exp.column("c0") > exp.Literal.number(3)

    def choice(yes: int, no: int) -> Tree:
        return exp.Case(
            ifs=[exp.If(this=condition, true=exp.Literal.number(yes))], default=exp.Literal.number(no)
        )

    engine = DuckDBEngine()
    big = exp.Cast(this=choice(1, 0), to=exp.DataType.build("BIGINT"))
    assert engine.sql.write(engine._total(big)) == "COUNT_IF(c0 > 3)"
    assert engine.sql.write(engine._total(choice(1, 0))) == "COUNT_IF(c0 > 3)"
    for other in (choice(0, 1), choice(2, 0), exp.column("c0")):
        assert engine.sql.write(engine._total(other)).startswith("CAST(SUM(")
    engine.close()


def test_each_engine_has_its_own_names_of_types() -> None:
    tree = parse("height * 2", SCHEMA).integer_sql(CURATION.sql_column)
    texts = {dialect: kind.sql.write(tree) for kind, dialect in ENGINES}
    assert "AS DOUBLE)" in texts["duckdb"]
    assert "AS DOUBLE PRECISION)" in texts["postgres"]
    assert SparkEngine.sql.write(exp.Cast(this=exp.column("c0"), to=exp.DataType.build("TEXT"))) == (
        "CAST(c0 AS STRING)"
    )
    wide = exp.Cast(this=exp.column("c0"), to=exp.DataType.build("DECIMAL(20, 0)"))
    assert SparkEngine.sql.write(wide) == "CAST(c0 AS DECIMAL(20, 0))"


def test_two_signs_in_a_row_are_no_comment() -> None:
    tree = exp.Neg(this=exp.Neg(this=exp.Literal.number(1)))
    assert DuckDBEngine.sql.write(tree) == "- -1"


def test_quotes_are_doubled() -> None:
    assert DuckDBEngine.sql.write(exp.Literal.string("it's")) == "'it''s'"
    assert DuckDBEngine.sql.write(exp.to_identifier('a"b', quoted=True)) == '"a""b"'


def test_a_long_chain_of_operators_is_written_without_recursion() -> None:
    chain: Any = exp.column("c0")
    for _ in range(5000):
        chain = exp.Add(this=chain, expression=exp.Literal.number(1))
    assert DuckDBEngine.sql.write(chain) == "c0" + " + 1" * 5000


def test_what_we_never_make_is_not_written() -> None:
    with pytest.raises(KeyError):
        DuckDBEngine.sql.write(sqlglot.parse_one("SELECT x FROM t WHERE x IN (SELECT y FROM u)"))


def test_no_clause_of_a_query_is_left_out() -> None:
    query = exp.select(exp.column("c0")).from_("curated").limit(3)
    with pytest.raises((KeyError, AssertionError)):
        DuckDBEngine.sql.write(query)


def test_duckdb_reads_comparisons_of_columns_without_casts_and_parentheses_and_others_with_them() -> None:
    schema = Schema(columns=[Column("age", type="integer", lower=0, upper=120)])
    curation = Curation.from_schema(schema)

    def written(text: str, sql: SqlText) -> str:
        return sql.write(parse(text, schema).integer_sql(curation.sql_column))

    chosen, widened = "CASE WHEN {} THEN 1 ELSE 0 END", "CAST(c0 AS DOUBLE)"
    cases = {
        "age > 20 AND age < 65": "20.0e0 < c0 AND c0 < 65.0e0",
        "age > 20 AND (age < 65 OR age = 99)": "(99.0e0 = c0 OR c0 < 65.0e0) AND 20.0e0 < c0",
        "age + 1 < 3": f"({widened} + 1.0e0) < 3.0e0",
    }
    for text, condition in cases.items():
        assert chosen.format(condition) in written(text, DuckDBEngine.sql), text
        assert widened in written(text, SqlText({})), text
