"""The same integers from numpy, DuckDB, PostgreSQL and Spark, on rows as bad as a table can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from discreet.errors import ExpressionRefused
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.engines._postgres import PostgresEngine
from discreet.query.language import Expression, Stepwise, _program, hoist, parse
from discreet.query.language._program import Program
from tests.query.language.checks import Tally, accepted, agree, stays_within_bounds
from tests.query.language.generator import Generator, HashChoices
from tests.query.language.rows import (
    CURATION,
    SCHEMA,
    curated,
    duckdb_connection,
    duckdb_indices,
    named,
    postgres_indices,
    selection,
    spark_indices,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import duckdb

    from discreet._types import AnyArray

ARRAYS = curated()
COLUMNS = named(ARRAYS)
FIXED = (
    "age", "income", "delta", "wide", "tiny", "huge", "(age - 18) / 72", "age * income",
    "income / (age + 0.1)", "EXP(delta)", "EXP(-income)", "LN(income + 1)", "LN(GREATEST(huge, 1e-9))",
    "POWER(delta, 7)", "SQRT(income)", "FLOOR(income / 1000) * 1000",
    "1 / (1 + EXP(-(delta * 2 + age / 50)))", "EXP(LN(age) * 0.37)",
    "CASE WHEN age > 40 AND ward IN ('médecine', 'O''Hara') THEN income WHEN delta IS NULL THEN -1 END",
    "ward = 'A;B--' OR smoker", "score * owner - (age BETWEEN 30 AND 39)", "admitted >= '2022-02-02'",
    "TRUE", "(tiny + delta) * (tiny + 2 * delta) * (tiny + income * delta)", "huge / 1e60 + wide / 1e9",
    "ABS(delta) - LEAST(age, 40)", "EXP(EXP(LEAST(delta, 1)))",
    "POWER(age - 40, 2) / POWER(GREATEST(ABS(delta), 0.5), 3)", "0 * age", "age = 33",
    "0 * delta + 1", "delta + age", "-ABS(delta)", "ward <> 'surgery'", "NOT (delta > 0 AND ward = 'A;B--')",
    "(delta > 0 OR ward IN ('surgery')) IS NULL", "(delta < 0) * income - 5", "COALESCE(delta, age / 7)",
    "LEAST(delta, age)", "GREATEST(delta, CASE WHEN ward = 'surgery' THEN income END)",
    "CASE WHEN delta > 0 THEN 0 ELSE 1 END", "FLOOR(delta)", "LN(CASE WHEN delta < 0 THEN age END)",
    "CASE WHEN ward <> 'surgery' THEN delta WHEN smoker THEN NULL ELSE 3 END",
    "CASE WHEN delta IS NOT NULL THEN delta - 3 ELSE 0 END",
    "CEIL(delta)", "ROUND(delta)", "ROUND(income, 2)", "ROUND(wide / 3, -4)", "MOD(wide, 7)", "age % score",
    "MOD(-age, 10)", "NULLIF(score, 5)", "CASE ward WHEN 'surgery' THEN delta WHEN 'O''Hara' THEN 2 END",
    "YEAR(admitted)", "QUARTER(admitted)", "MONTH(admitted)", "DAY(admitted)", "ISODOW(admitted)",
    "YEAR(admitted - 365 * age)", "DAY(LEAST(discharged, DATE '2024-02-29') - score)",
    "discharged - admitted", "discharged - admitted > age", "admitted + age < discharged",
    "COALESCE(discharged, DATE '2025-12-31') - admitted", "MONTH(discharged) IN (2, 3)",
)  # fmt: skip


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    made = duckdb_connection(ARRAYS)
    yield made
    made.close()


def fixed() -> list[Expression]:
    return [parse(text, SCHEMA) for text in FIXED]


def generated(seed: int, count: int, depth: int = 4) -> list[Expression]:
    generator = Generator(HashChoices(seed))
    return accepted([generator.text(1 + i % depth) for i in range(count)], Tally())


def test_duckdb_gives_the_integers_of_numpy(connection: duckdb.DuckDBPyConnection) -> None:
    agree(fixed(), COLUMNS, lambda found: duckdb_indices(connection, found))


def test_duckdb_agrees_on_generated_expressions(connection: duckdb.DuckDBPyConnection) -> None:
    for seed in range(4):
        agree(generated(seed, 30), COLUMNS, lambda found: duckdb_indices(connection, found))


def test_postgres_gives_the_integers_of_numpy(postgres_url: str) -> None:
    with postgres_indices(postgres_url, ARRAYS) as compute:
        agree(fixed(), COLUMNS, compute)
        for seed in range(20, 24):
            agree(generated(seed, 20), COLUMNS, compute)


@pytest.mark.slow
def test_spark_gives_the_integers_of_numpy(spark: Any, tmp_path: Path) -> None:
    compute = spark_indices(spark, ARRAYS, tmp_path)
    agree(fixed(), COLUMNS, compute)
    agree(generated(40, 24, depth=2), COLUMNS, compute)


class Drawn:
    """Choices made by hypothesis, which then looks for the smallest expression that fails."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def below(self, n: int) -> int:
        value: int = self._draw(st.integers(0, n - 1))
        return value


@st.composite
def texts(draw: Any) -> str:
    generator = Generator(Drawn(draw))
    kind = draw(st.integers(0, 3))
    return generator.text(3) if kind < 2 else generator.mutated(2) if kind == 2 else generator.soup()


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=texts())
def test_any_text_is_refused_or_gives_the_same_integers_within_bounds(
    connection: duckdb.DuckDBPyConnection, text: str
) -> None:
    try:
        expression = parse(text, SCHEMA)
    except ExpressionRefused:
        return
    index = stays_within_bounds(expression, COLUMNS)
    (theirs,) = duckdb_indices(connection, [expression])
    assert np.array_equal(index, theirs)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(text=st.text(max_size=60))
def test_no_text_whatever_raises_anything_but_a_refusal(text: str) -> None:
    tally = Tally()
    accepted([text], tally)
    assert tally.accepted + tally.refused == 1


def test_an_engine_that_is_off_by_one_is_caught(connection: duckdb.DuckDBPyConnection) -> None:
    def wrong(found: Sequence[Expression]) -> list[AnyArray]:
        results = duckdb_indices(connection, found)
        results[-1] = results[-1] + (np.arange(len(results[-1])) == 7)
        return results

    with pytest.raises(AssertionError):
        agree(fixed(), COLUMNS, wrong)


def test_an_engine_that_fuses_multiplying_and_adding_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong twin rounds once where two roundings are meant, as a fused instruction does."""

    def fused(found: Sequence[Expression]) -> list[AnyArray]:
        monkeypatch.setitem(_program._UFUNCS, "multiply", lambda a, b: np.asarray(a, np.longdouble) * b)
        monkeypatch.setitem(_program._UFUNCS, "add", lambda a, b: np.asarray(a + b, np.float64))
        monkeypatch.setitem(_program._UFUNCS, "subtract", lambda a, b: np.asarray(a - b, np.float64))
        results = [expression.evaluate(COLUMNS) for expression in found]
        monkeypatch.undo()
        return results

    # A comparison brings the last bits to the surface.
    expression = parse("(income * 0.1 + delta * 0.3) - delta * 0.3 = income * 0.1", SCHEMA)
    with pytest.raises(AssertionError):
        agree([expression], COLUMNS, fused)


def test_sums_in_one_pass_are_the_sums_of_the_integers(connection: duckdb.DuckDBPyConnection) -> None:
    columns = [exp.Sum(this=expression.integer_sql(CURATION.sql_column)) for expression in fixed()]
    row = connection.execute(DuckDBEngine.sql.write(hoist(exp.select(*columns).from_("curated")))).fetchone()
    assert row is not None
    assert [int(value) for value in row] == [int(e.evaluate(COLUMNS).sum()) for e in fixed()]


def test_a_select_without_steps_is_left_alone() -> None:
    plain = exp.select(parse("age * 2", SCHEMA).integer_sql(CURATION.sql_column)).from_("curated")
    assert hoist(plain) is plain


def test_hoisting_leaves_the_given_select_as_it_was() -> None:
    tree = parse("EXP(delta * 2)", SCHEMA).integer_sql(CURATION.sql_column)
    assert isinstance(tree, Stepwise)
    select = exp.select(tree).from_("curated")
    hoist(select)
    assert select.find(Stepwise) is not None


def test_a_step_that_two_expressions_share_is_computed_once() -> None:
    one, two = (parse(text, SCHEMA) for text in ("EXP(age / 9) > 3", "EXP(age / 9) > 4"))
    alone, both = (DuckDBEngine.sql.write(selection(found)).count(" AS s_") for found in ([one], [one, two]))
    assert both == alone > 0


def test_postgres_is_kept_from_merging_the_steps() -> None:
    text = PostgresEngine.sql.write(selection([parse("EXP(delta + 1)", SCHEMA)], fence=True))
    assert text.count("OFFSET 0") == text.count("steps_") > 0


def test_sql_grows_with_the_text_and_not_with_its_nesting(connection: duckdb.DuckDBPyConnection) -> None:
    def nested(depth: int) -> str:
        text = "age / 90"
        for _ in range(depth):
            text = f"POWER({text} - 0.3, 2) + 0.1"
        return text

    sizes = [len(DuckDBEngine.sql.write(selection([parse(nested(depth), SCHEMA)]))) for depth in (4, 8, 12)]
    assert sizes[2] - sizes[1] < 1.2 * (sizes[1] - sizes[0])
    agree([parse(nested(12), SCHEMA)], COLUMNS, lambda found: duckdb_indices(connection, found))


def test_the_largest_expressions_stay_below_60_kb_and_run(connection: duckdb.DuckDBPyConnection) -> None:
    largest = 0
    for text in (
        " + ".join(f"LN(GREATEST(huge, {i}e-9))" for i in range(1, 6)),
        "EXP(LN(" * 6 + "age" + "))" * 6,
        " + ".join(f"EXP(LEAST(huge, {i}))" for i in range(1, 6)),
        "CASE " + " ".join(f"WHEN income * delta < {i} THEN {i} * age" for i in range(38)) + " END",
        "(age * income + delta) IN (" + ", ".join(map(str, range(64))) + ")",
        " + ".join(["age * income"] * 99),
    ):
        expression = parse(text, SCHEMA)
        largest = max(largest, len(PostgresEngine.sql.write(selection([expression]))))
        agree([expression], COLUMNS, lambda found: duckdb_indices(connection, found))
    assert 30_000 < largest <= 60_000


def test_no_text_of_the_analyst_is_part_of_the_sql() -> None:
    text = "CASE WHEN ward = 'A;B--' THEN \"hours-per-week\" ELSE age + 12345.678 END"
    written = DuckDBEngine.sql.write(selection([parse(text, SCHEMA)]))
    for word in ("ward", "A;B", "hours", "age", "--", ";"):
        assert word not in written
    assert set(written) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_'.,()+-*/<>= ")


def test_only_operations_that_engines_compute_alike_are_written() -> None:
    """No EXP, LN or POWER of an engine, whose last bits differ from library to library."""
    text = "EXP(delta) + LN(age) + POWER(delta, 3) + SQRT(age) + FLOOR(delta)"
    tree = selection([parse(text, SCHEMA)])
    called = {str(node.this).upper() for node in tree.find_all(exp.Anonymous)}
    assert called <= {"SQRT", "FLOOR", "ABS", "LEAST", "GREATEST"}
    assert not list(tree.find_all(exp.Exp, exp.Ln, exp.Pow))


def test_operations_on_constants_are_carried_out_before_an_engine_sees_them() -> None:
    program = Program()
    place = program.multiply(program.add(program.constant(0.1), program.constant(0.2)), program.constant(3.0))
    assert program.operations[place].kind == "constant"
    assert program.interval(place).lower == (0.1 + 0.2) * 3.0
