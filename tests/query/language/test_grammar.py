"""What the language has, what its expressions mean, and that one question has one text."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from discreet.errors import ExpressionRefused, ParameterError
from discreet.query.language import parse
from discreet.query.language._program import values
from discreet.schema import Column, Schema
from tests.query.language.generator import Generator, HashChoices
from tests.query.language.rows import CURATION, SCHEMA, curated, duckdb_connection, named

ARRAYS = curated()
COLUMNS = named(ARRAYS)


def value(text: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Compute an expression itself, not its place on the grid; NaN where it is unknown."""
    expression = parse(text, SCHEMA)
    results = values(expression.program, COLUMNS)
    result = np.broadcast_to(np.asarray(results[expression.place], np.float64), len(COLUMNS["age"]))
    return (
        result
        if expression.known_place is None
        else np.where(results[expression.known_place], result, np.nan)
    )


FORMS = [
    ("age", "age", 18, 90),
    ("AGE", "age", 18, 90),
    ("12", "12", 12, 12),
    ("1e3", "1000", 1000, 1000),
    (".5", "0.5", 0.5, 0.5),
    ("0.1 + 0.2", "0.3", 0.3, 0.3),
    ("-age", "(- age)", -90, -18),
    ("- -age", "age", 18, 90),
    ("+age", "age", 18, 90),
    ("age + 1", "(age + 1)", 19, 91),
    ("1 + age - 2", "(age - 1)", 17, 89),
    ("3 * age * 2", "(6 * age)", 108, 540),
    ("age * -2", "(- (2 * age))", -180, -36),
    ("(age - 18) / 72", "((age - 18) / 72)", 0, 1),
    ("age / -2", "(- (age / 2))", -45, -9),
    ("5 / 2", "2.5", 2.5, 2.5),
    ("1 / 3", "(1 / 3)", 1 / 3, 1 / 3),
    ("age * age", "POWER(age, 2)", 324, 8100),
    ("POWER(delta, 2)", "POWER(delta, 2)", 0, 3.3 * 3.3),
    ("POWER(-age, 3)", "(- POWER(age, 3))", -729000, -5832),
    ("POWER(age, 1)", "age", 18, 90),
    ("POWER(age, 0)", "POWER(age, 0)", 1, 1),
    ("ABS(delta)", "ABS(delta)", 0, 3.3),
    ("ABS(-age)", "ABS(age)", 18, 90),
    ("SQRT(age + 10)", "SQRT((age + 10))", 28**0.5, 10),
    ("FLOOR(delta)", "FLOOR(delta)", -4, 1),
    ("FLOOR(2.7)", "2", 2, 2),
    ("LEAST(age, 30, 40)", "LEAST(30, age)", 18, 30),
    ("GREATEST(GREATEST(age, 5), 50)", "GREATEST(50, age)", 50, 90),
    ("LEAST(age)", "age", 18, 90),
    ("CASE WHEN age > 40 THEN income END", "CASE WHEN (40 < age) THEN income ELSE NULL END", 0, 2e5),
    ("CASE WHEN age > 40 THEN 1 ELSE 0 END", "(40 < age)", 0, 1),
    ("CASE WHEN age > 40 THEN 0 ELSE 1 END", "(age <= 40)", 0, 1),
    ("age >= 40", "(40 <= age)", 0, 1),
    ("age BETWEEN 20 AND 29", "((20 <= age) AND (age <= 29))", 0, 1),
    ("age NOT BETWEEN 20 AND 29", "((29 < age) OR (age < 20))", 0, 1),
    ("NOT (age < 20 OR ward = 'surgery')",
     "((20 <= age) AND (ward IN ('médecine', 'O''Hara', 'A;B--', 'other')))", 0, 1),
    ("ward = 'O''Hara'", "(ward IN ('O''Hara'))", 0, 1),
    ("ward <> 'O''Hara' AND ward <> 'other'",
     "(ward IN ('surgery', 'médecine', 'A;B--'))", 0, 1),
    ("ward = 'surgery' OR ward IS NULL", "((ward IN ('surgery')) OR (ward IS NULL))", 0, 1),
    ("ward = 'surgery' AND NOT ward IS NULL", "((ward IN ('surgery')) AND (ward IS NOT NULL))", 0, 1),
    ("ward = 'surgery' AND ward = 'other'",
     "(ward NOT IN ('surgery', 'médecine', 'O''Hara', 'A;B--', 'other'))", 0, 1),
    ("CASE WHEN delta > 1 THEN 1 ELSE 0 END", "((1 < delta) IS TRUE)", 0, 1),
    ("CASE WHEN delta > 1 THEN 0 ELSE 1 END", "((1 < delta) IS NOT TRUE)", 0, 1),
    ("(delta > 1) + 1", "((1 < delta) + 1)", 1, 2),
    ("(delta > 1 AND age > 40) IS FALSE", "(((delta <= 1) IS TRUE) OR (age <= 40))", 0, 1),
    ("(delta + age) IS NOT NULL", "(delta IS NOT NULL)", 0, 1),
    ("EXP(delta) IS NULL", "(EXP(delta) IS NULL)", 0, 1),
    ("COALESCE(delta, COALESCE(age, 3))", "COALESCE(delta, age, 3)", -3.3, 90),
    ("'surgery' = ward", "(ward IN ('surgery'))", 0, 1),
    ("ward IN ('surgery', 'A;B--')", "(ward IN ('surgery', 'A;B--'))", 0, 1),
    ("ward IS NULL", "(ward IS NULL)", 0, 1),
    ("delta IS NOT NULL", "(delta IS NOT NULL)", 0, 1),
    ("age IS NULL", "FALSE", 0, 0),
    ("owner = 1", "(owner IN (1))", 0, 1),
    ("owner", "owner", 0, 1),
    ("score * 2", "(2 * score)", 2, 20),
    ("smoker", "(smoker IN (TRUE))", 0, 1),
    ("smoker = FALSE", "(smoker IN (FALSE))", 0, 1),
    ("(age > 40) + smoker",
     "(CASE WHEN (40 < age) THEN 1 ELSE 0 END + CASE WHEN (smoker IN (TRUE)) THEN 1 ELSE 0 END)", 0, 2),
    ("admitted < '2020-02-01'", "(admitted < 31)", 0, 1),
    ("admitted BETWEEN '2020-01-11' AND '2020-01-21'", "((10 <= admitted) AND (admitted <= 20))", 0, 1),
    ("admitted IN ('2020-01-02')", "(1 = admitted)", 0, 1),
    ('"hours-per-week" / 99', '("hours-per-week" / 99)', 0, 1),
    ('"case"', '"case"', 0.1, 0.7),
    ("TRUE AND age < 40", "(age < 40)", 0, 1),
    ("age IN (33, 40)", "((33 = age) OR (40 = age))", 0, 1),
    ("1 < 2", "TRUE", 1, 1),
    ("TRUE AND NOT FALSE", "TRUE", 1, 1),
    ("CASE WHEN (CASE WHEN smoker THEN 1 ELSE 0 END) THEN 2 END",
     "CASE WHEN (smoker IN (TRUE)) THEN 2 ELSE NULL END", 2, 2),
    ("POWER(owner + 1, 8) * (owner + 1)", "(POWER((owner + 1), 2) * POWER((owner + 1), 7))", 1, 512),
    ("(-2) * (-3) * age", "(6 * age)", 108, 540),
]  # fmt: skip


@pytest.mark.parametrize(("text", "canonical", "lower", "upper"), FORMS)
def test_an_expression_has_its_canonical_text_and_its_bounds(
    text: str, canonical: str, lower: float, upper: float
) -> None:
    expression = parse(text, SCHEMA)
    assert (expression.canonical, expression.lower, expression.upper) == (canonical, lower, upper)
    assert parse(canonical, SCHEMA) == expression


SAME = [
    ("age + income", "income + age"),
    ("age + 1 > 2 * (income)", "income * 2 < 1 + age"),
    ("age - income", "-(income - age)"),
    ("age * income * 2", "(2 * income) * age"),
    ("-(age) * income", "age * (0 - income)"),
    ("age BETWEEN 20 AND 29", "age <= 29 AND age >= 20"),
    ("NOT (age < 20 AND smoker)", "NOT smoker OR age >= 20"),
    ("ward IN ('surgery', 'other')", "ward = 'other' OR ward = 'surgery'"),
    ("NOT ward IN ('surgery')", "ward <> 'surgery'"),
    ("0.5 * age", "age * (1 / 2)"),
    ("age IN (30, 40)", "age = 40.0 OR 3e1 = age"),
    ("CASE WHEN smoker THEN 1 ELSE 0 END", "smoker"),
    ("LEAST(age, LEAST(income, 3))", "least(3, income, age)"),
    ("POWER(age, 2)", "age * age"),
    ("admitted >= '2020-01-31'", "30 <= admitted"),
    ("1 - 2 * age", "-(age * 2 - 1)"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_spellings_of_one_question_are_equal(one: str, other: str) -> None:
    assert parse(one, SCHEMA) == parse(other, SCHEMA)
    assert hash(parse(one, SCHEMA)) == hash(parse(other, SCHEMA))


DIFFERENT = [
    ("age - income", "income - age"),
    ("age / income2", "income2 / age"),
    ("age < 40", "age <= 40"),
    ("LEAST(age, 40)", "GREATEST(age, 40)"),
    ("CASE WHEN smoker THEN 1 WHEN age > 40 THEN 2 END", "CASE WHEN age > 40 THEN 2 WHEN smoker THEN 1 END"),
    ("ward = 'surgery'", "ward <> 'surgery'"),
    ("(age < 40 AND smoker) OR owner = 1", "age < 40 AND (smoker OR owner = 1)"),
    ("age + income * 2", "(age + income) * 2"),
    ("age / 3", "age * 3"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_questions_are_not_taken_for_one(one: str, other: str) -> None:
    one, other = one.replace("income2", "(income + 1)"), other.replace("income2", "(income + 1)")
    assert parse(one, SCHEMA).canonical != parse(other, SCHEMA).canonical


def test_a_case_without_else_is_unknown_and_the_first_condition_decides() -> None:
    age = value("age")
    expected = np.where(age > 60, 7.0, np.where(age > 40, age, np.nan))
    found = value("CASE WHEN age > 60 THEN 7 WHEN age > 40 THEN age END")
    assert np.array_equal(found, expected, equal_nan=True)


def test_missing_cells_are_unknown_and_are_told_by_is_null() -> None:
    missing = COLUMNS["delta_missing"] == 1
    assert 0 < missing.sum() < len(missing)
    assert np.array_equal(value("delta IS NULL"), missing)
    assert np.array_equal(np.isnan(value("delta")), missing)
    assert np.array_equal(value("ward IS NULL"), COLUMNS["ward"] == len(SCHEMA.column("ward").levels) - 1)


def test_a_missing_category_is_neither_equal_nor_unequal_to_a_value() -> None:
    missing = COLUMNS["ward"] == SCHEMA.column("ward").levels.index(None)
    assert not value("ward <> 'surgery'")[missing].any()
    assert not value("NOT ward <> 'surgery'")[missing].any()


def test_whole_numbers_are_exact() -> None:
    age = COLUMNS["age"] + 18
    assert np.array_equal(value("age"), age)
    assert np.array_equal(value("age = 33"), age == 33)


def test_a_bare_column_says_which_one_it_is() -> None:
    assert parse("income", SCHEMA).bare == "income"
    assert parse("(+AGE)", SCHEMA).bare == "age"
    assert [parse(text, SCHEMA).bare for text in ("income + 0.5", "owner", "smoker", "1", "-age")] == [
        None
    ] * 5
    assert parse("income + 0", SCHEMA).bare == "income"


def test_the_grid_of_a_bare_number_is_its_own() -> None:
    assert np.array_equal(parse("income", SCHEMA).evaluate(COLUMNS), ARRAYS["c1"])


def test_columns_are_those_that_are_read() -> None:
    assert parse("age + delta * (ward = 'other') - (delta IS NULL)", SCHEMA).columns == (
        "age", "delta", "delta_missing", "ward",
    )  # fmt: skip
    assert parse("1 + 1", SCHEMA).columns == ()


def test_what_is_not_whole_is_summed_on_a_grid_of_two_to_the_thirty_steps() -> None:
    expression = parse("(age - 18) / 72", SCHEMA)
    index = expression.evaluate(COLUMNS)
    assert expression.top == 2**30
    assert np.array_equal(index, np.floor(COLUMNS["age"] / 72 * 2**30 + 0.5))
    assert (index.min(), index.max()) == (0, 2**30)


@pytest.mark.parametrize(
    ("text", "top", "step"),
    [
        ("age", 72, 1),
        ("-2 * age", 72, 2),
        ("age * 0.25 + 1", 72, 0.25),
        ("age * owner - admitted", 90 + 1826, 1),
        ("FLOOR(income / 3)", 66666, 1),
        ("CASE WHEN smoker THEN 3 ELSE -7 END", 10, 1),
        ("smoker", 1, 1),
    ],
)
def test_what_is_whole_is_summed_in_its_own_steps(text: str, top: int, step: float) -> None:
    expression = parse(text, SCHEMA)
    assert expression.top == top
    assert (expression.upper - expression.lower) / top == step
    exact = value(text)
    assert np.array_equal(expression.lower + step * expression.evaluate(COLUMNS), exact)


def test_a_constant_has_no_width_and_index_zero() -> None:
    for text in ("3.5", "TRUE", "age IS NULL", "0 * age", "POWER(age, 0)"):
        expression = parse(text, SCHEMA)
        assert expression.lower == expression.upper
        assert not expression.evaluate(COLUMNS).any()
        assert len(expression.evaluate(COLUMNS)) == len(COLUMNS["age"])


def test_evaluating_without_a_column_names_what_is_needed() -> None:
    with pytest.raises(ParameterError, match=r"columns must hold age, income, held age\."):
        parse("age + income", SCHEMA).evaluate({"age": COLUMNS["age"]})
    with pytest.raises(ParameterError, match="held nothing"):
        parse("1", SCHEMA).evaluate({})


def test_an_expression_survives_pickling() -> None:
    expression = parse("EXP(delta) + POWER(age - 40, 2)", SCHEMA)
    twin = pickle.loads(pickle.dumps(expression))
    assert twin == expression
    assert np.array_equal(twin.evaluate(COLUMNS), expression.evaluate(COLUMNS))


def test_a_column_named_like_a_word_of_sql_needs_no_quotes_unless_the_language_has_the_word() -> None:
    schema = Schema(
        columns=[Column(name, lower=0, upper=1) for name in ("date", "Select", "floor", "in", "Größe")]
    )
    assert parse("date + SELECT", schema).canonical == "(Select + date)"
    assert parse('"floor" + "in" + "Größe"', schema).columns == ("Größe", "floor", "in")
    assert parse('FLOOR("floor")', schema).canonical == 'FLOOR("floor")'
    assert parse("floor", schema).bare == "floor"
    with pytest.raises(ExpressionRefused, match="FLOOR without its argument"):
        parse("floor", SCHEMA)


def test_constants_of_many_digits_are_rounded_to_a_double_once() -> None:
    expression = parse("POWER(POWER(POWER(0.987654321, 8), 8), 4) * age", SCHEMA)
    assert parse(expression.canonical, SCHEMA) == expression
    assert len(expression.canonical) < 600
    assert expression.upper == pytest.approx(0.987654321**256 * 90, rel=1e-14)


def test_a_category_of_whole_numbers_with_gaps_is_a_number_if_it_is_short() -> None:
    short, long = (Schema(columns=[Column("x", values=tuple(range(0, 2 * n, 2)))]) for n in (64, 65))
    assert parse("x", short).upper == 126
    with pytest.raises(ExpressionRefused, match="a category of many values"):
        parse("x", long)
    assert parse("x = 4", long).is_condition


def test_ids_and_dropped_columns_cannot_be_named() -> None:
    for name in ("person", "notes"):
        with pytest.raises(ExpressionRefused, match=f"Unknown column {name}"):
            parse(name, SCHEMA)


# Dates are numbers in the table that is compared with, where they have no fields.
JUMPING = (
    "FLOOR",
    "CEIL",
    "ROUND",
    "MOD",
    "NULLIF",
    "discharged",
    "YEAR",
    "MONTH",
    "DAY",
    "QUARTER",
    "ISODOW",
)


class Smooth(Generator):
    """Draws expressions whose value does not jump, so that another arithmetic gives nearly the same."""

    def condition(self, depth: int) -> str:
        left = self._of(("age", "owner", "score", "admitted"))
        simple = (f"{left} {self._of(('=', '<>', '<', '<=', '>', '>='))} {self._of(('1', '5', '33', '400'))}",
                  "ward = 'surgery'", "ward <> 'other'", "ward IN ('O''Hara', 'A;B--')", "smoker", "TRUE",
                  f"{left} BETWEEN 1 AND 40", "score NOT IN (1, 10)")  # fmt: skip
        if depth <= 0 or self._choices.below(2):
            return self._of(simple)
        if self._choices.below(3) == 0:
            return f"NOT ({self.condition(depth - 1)})"
        return f"({self.condition(depth - 1)}) {self._of(('AND', 'OR'))} ({self.condition(depth - 1)})"

    def counted(self, depth: int) -> str:
        return f"CASE WHEN {self.condition(depth)} THEN 1 ELSE 0 END"

    def number(self, depth: int) -> str:
        while True:
            text = super().number(depth)
            jumps = any(word in text for word in (*JUMPING, "tiny", "huge", "wide", "LN(GREATEST(1e-9"))
            if not jumps:
                return text


def test_expressions_mean_what_sql_means_by_them() -> None:
    """DuckDB reads the same texts, over columns of doubles and text, with its own parser and functions."""
    arrays = curated()
    connection = duckdb_connection(arrays)
    connection.execute("CREATE TABLE decoded AS SELECT * FROM (" + _decoding() + ")")
    generator, compared = Smooth(HashChoices(3)), 0
    for _ in range(150):
        text = generator.number(3)
        try:
            expression = parse(text, SCHEMA)
        except ExpressionRefused:
            continue
        found = connection.execute(f"SELECT CAST({text} AS DOUBLE) AS v FROM decoded").fetchnumpy()["v"]
        ours, theirs = value(text), np.ma.filled(found, np.nan)
        size = max(abs(expression.lower), abs(expression.upper), 1e-300)
        assert np.array_equal(np.isnan(ours), np.isnan(theirs)), text
        assert np.nanmax(np.abs(ours - theirs), initial=0.0) <= 1e-9 * size, text
        compared += 1
    assert compared > 100


def _decoding() -> str:
    """Write a query that turns curated cells back into what an analyst thinks of."""
    written = []
    for column in CURATION:
        name = f'"{column.name}"'
        if column.is_category:
            levels = [(i, level) for i, level in enumerate(column.levels) if level is not None]
            whens = " ".join(f"WHEN {i} THEN {_sql(level)}" for i, level in levels)
            written.append(f"CASE {column.sql} {whens} END AS {name}")
        else:
            cell = f"{column.lower!r}::DOUBLE + {column.exact}" if column.whole else column.exact
            known = cell if column.flag is None else f"CASE WHEN {column.flag} = 0 THEN {cell} END"
            written.append(f"{known} AS {name}")
    return f"SELECT {', '.join(written)} FROM curated"


def _sql(word: object) -> str:
    return "'{}'".format(word.replace("'", "''")) if isinstance(word, str) else str(word)
