"""Sums over missing cells: a row without a value adds 0, and no neighbor moves a sum beyond the charge."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.privacy import GaussianDP, PureDP
from discreet.query import Database
from discreet.query.aggregates import Aggregate, GroupedSums, Histogram, Sums
from discreet.query.aggregates import base as aggregates
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.language import parse
from discreet.query.language._expression import Expression
from discreet.query.language.query import parse_query
from discreet.query.statistics import plan_query
from discreet.schema import Column, Schema
from tests.draws import Draws

if TYPE_CHECKING:
    from discreet.query.aggregates import BoundAggregate
    from discreet.query.engines import Engine
    from discreet.schema.schema import Neighbors

NEIGHBORS: tuple[Neighbors, ...] = ("replace-one", "add-remove")
SCHEMA = Schema(
    columns=[
        Column("high", lower=35.5, upper=42, required=False),
        Column("age", type="integer", lower=18, upper=90, required=False),
        Column("debt", lower=-7, upper=-3, required=False),
        Column("change", lower=-1.3, upper=2.6, required=False),
        Column("ward", values=("p", "q"), required=False),
        Column("grade", values=(1, 2, 5), required=False),
        Column("there", lower=1, upper=2),
    ]
)
CURATION = Curation.from_schema(SCHEMA)
CELLS: dict[str, tuple[Any, ...]] = {
    "high": (None, 35.5, 37.123, 42.0),
    "age": (None, 18, 55, 90),
    "debt": (None, -7.0, -3.0),
    "change": (None, -1.3, 0.0, 2.6),
    "ward": (None, "p", "q"),
    "grade": (None, 1, 5),
    "there": (1.0, 1.7, 2.0),
}
DRAW = Draws("rows with missing cells")
ROWS = [
    *({name: cells[min(i, len(cells) - 1)] for name, cells in CELLS.items()} for i in range(4)),
    *({name: DRAW.choice(cells) for name, cells in CELLS.items()} for _ in range(16)),
]
TEXTS = (
    "high", "age", "debt", "change", "grade", "there", "age * 2 + 1", "high - there", "debt * there",
    "0 * age + 1", "ABS(change)", "LEAST(age, 40)", "LEAST(age, high)", "COALESCE(high, 30)",
    "CASE WHEN age > 40 THEN high END", "CASE WHEN ward = 'p' THEN change WHEN ward = 'q' THEN 3 END",
    "POWER(age, 0)", "age >= 50", "NOT age >= 50", "ward <> 'p'", "(age > 40) + 1", "(age > 40) - 0.5",
    "EXP(change)", "age IS NULL", "-high", "high / 1e6",
)  # fmt: skip
QUESTIONS: tuple[Aggregate, ...] = (
    *(Sums(text) for text in TEXTS),
    Sums(("high", "age IS NOT NULL", "change", "grade")),
    *(Histogram("ward", expression=text) for text in TEXTS),
    Histogram("age", {"age": [30, 60]}, "high"),
    Histogram(("grade", "age"), {"age": [30]}),
)


@cache
def _engine(i: int) -> Engine:
    engine = DuckDBEngine()
    engine.register({name: [ROWS[i][name]] for name in SCHEMA.names}, CURATION)
    return engine


def _vectors(bound: BoundAggregate) -> list[list[int]]:
    return [bound.exact(_engine(i)) for i in range(len(ROWS))]


def _exceeds(bound: BoundAggregate, neighbors: Neighbors, vectors: list[list[int]]) -> bool:
    """Whether some neighbor moves the integers further than is charged: sums add up, so single rows tell."""
    changes = (
        [[a - b for a, b in zip(u, v, strict=True)] for u, v in itertools.combinations(vectors, 2)]
        if neighbors == "replace-one"
        else vectors
    )
    squares = [sum(p * c * c for p, c in zip(bound.precision, change, strict=True)) for change in changes]
    sizes = [sum(w * abs(c) for w, c in zip(bound.weight, change, strict=True)) for change in changes]
    return max(squares) > bound.squared or max(sizes) > bound.absolute


def _name(question: Aggregate) -> str:
    return str(question.to_dict())


@pytest.mark.parametrize("question", QUESTIONS, ids=_name)
def test_no_neighbor_moves_a_sum_over_missing_cells_further_than_is_charged(question: Aggregate) -> None:
    vectors = _vectors(question.bind(CURATION, "add-remove"))
    for neighbors in NEIGHBORS:
        bound = question.bind(CURATION, neighbors)
        assert not _exceeds(bound, neighbors, vectors)


@pytest.mark.parametrize("text", TEXTS)
def test_a_row_without_a_value_adds_nothing_and_others_their_value(text: str) -> None:
    """The value of each row is that of DuckDB on the raw cells, to half a step."""
    import duckdb

    bound = Sums(text).bind(CURATION, "add-remove")
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE raw (high DOUBLE, age DOUBLE, debt DOUBLE, change DOUBLE, "
        "ward VARCHAR, grade INT, there DOUBLE)"
    )
    connection.executemany(
        "INSERT INTO raw VALUES (?, ?, ?, ?, ?, ?, ?)", [[row[name] for name in CELLS] for row in ROWS]
    )
    written = text.replace("(age > 40)", "CAST((age > 40) AS INTEGER)")
    cells = connection.execute(f"SELECT CAST(({written}) AS DOUBLE) FROM raw").fetchall()
    for (integer,), (cell,) in zip(_vectors(bound), cells, strict=True):
        if cell is None:
            assert integer == 0
        else:
            # A cell of a number is on a grid of its own, and what is computed of it on another.
            assert integer * bound.unit[0] == pytest.approx(cell, rel=1e-5, abs=1e-4)
    whole = parse(text, SCHEMA)
    if whole.known is not None:
        assert bound.shift[0] == 0


def test_required_columns_keep_their_noise_and_optional_ones_pay_for_zero() -> None:
    def moved(text: str, required: bool, neighbors: Neighbors) -> float:
        columns = [Column("high", lower=35, upper=42, required=required)]
        bound = Sums(text).bind(Curation.from_schema(Schema(columns=columns)), neighbors)
        return bound.absolute * float(bound.unit[0])

    assert moved("high", True, "replace-one") == pytest.approx(7)
    assert moved("high", False, "replace-one") == pytest.approx(42)
    assert moved("high - 38.5", False, "replace-one") == pytest.approx(7, rel=1e-5)
    for required in (True, False):
        assert moved("high", required, "add-remove") == pytest.approx(42)


def _no_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charge for the range of the known values alone."""
    real = aggregates.term_of

    def narrow(expression: Any, curation: Curation) -> Any:
        term = real(expression, curation)
        known = round((expression.upper - expression.lower) / term.step)
        return term if expression.is_constant else dataclasses.replace(term, top=known)

    monkeypatch.setattr(aggregates, "term_of", narrow)


def _at_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a missing cell count as the value that its place holds."""
    real = Expression._with_zero

    def filled(self: Expression, top: int) -> Any:
        program = real(self, top)[0]
        always = dataclasses.replace(self, known_place=program.truth(True), program=program)
        return real(always, top)

    monkeypatch.setattr(Expression, "_with_zero", filled)


def test_a_charge_without_zero_in_the_range_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    _no_zero(monkeypatch)
    bound = Sums("high").bind(CURATION, "replace-one")
    assert _exceeds(bound, "replace-one", _vectors(bound))


def test_a_missing_cell_that_counts_as_its_fill_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    _at_fill(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_row_without_a_value_adds_nothing_and_others_their_value("high")


# Whole questions, with so little noise that numbers can be compared.

EXACT = PureDP(epsilon=2.0**30)
TABLE = {name: [row[name] for row in ROWS] for name in SCHEMA.names}


@pytest.fixture(params=NEIGHBORS)
def db(request: pytest.FixtureRequest) -> Database:
    return Database(TABLE, schema=dataclasses.replace(SCHEMA, neighbors=request.param), random_state=5)


def _known(name: str, *, ward: str | None = None) -> list[Any]:
    return [row[name] for row in ROWS if row[name] is not None and ward in (None, row["ward"])]


def _privacy(db: Database) -> PureDP:
    return dataclasses.replace(EXACT, neighbors=db.neighbors)


def test_means_are_over_known_cells_and_say_so(db: Database) -> None:
    ages = _known("age")
    result = db.query("mean(age)", privacy=_privacy(db))
    assert result.question == "mean(age) where age IS NOT NULL"
    assert result.value == pytest.approx(np.mean(ages), abs=1e-3)
    assert db.preview("mean(age)", privacy=_privacy(db)).question == result.question
    assert db.mean("age", privacy=_privacy(db)).value == pytest.approx(np.mean(ages), abs=1e-3)
    assert db.query("SELECT AVG(age) FROM t", privacy=_privacy(db)).value == result.value
    assert db.query("mean(age >= 50)", privacy=_privacy(db)).value == pytest.approx(
        np.mean(np.array(ages) >= 50), abs=1e-3
    )
    grouped = db.query("mean(age) by ward", privacy=_privacy(db))
    by = {cell.key[0]: cell.value for cell in grouped.cells}
    assert by["p"] == pytest.approx(np.mean(_known("age", ward="p")), abs=1e-2)


def test_counts_and_sums_leave_out_missing_cells(db: Database) -> None:
    asked = {
        "count where age >= 50": sum(age >= 50 for age in _known("age")),
        "count where NOT age >= 50": sum(age < 50 for age in _known("age")),
        "count(age)": len(_known("age")),
        "SELECT COUNT(age) FROM t": len(_known("age")),
        "count where ward <> 'p'": sum(ward != "p" for ward in _known("ward")),
        "count where age IS NULL": len(ROWS) - len(_known("age")),
        "sum(age)": sum(_known("age")),
        "sum(age) where ward = 'p'": sum(_known("age", ward="p")),
        "sum(debt)": sum(_known("debt")),
    }
    for text, exact in asked.items():
        assert db.query(text, privacy=_privacy(db)).value == pytest.approx(exact, abs=1e-2), text
    assert db.count("age >= 50", privacy=_privacy(db)).value == pytest.approx(
        asked["count where age >= 50"], abs=1e-2
    )
    assert db.sum("age", privacy=_privacy(db)).value == pytest.approx(sum(_known("age")), abs=1e-2)


def test_a_column_of_which_all_cells_are_missing_has_no_row_to_count(db: Database) -> None:
    empty = Database({**TABLE, "age": [None] * len(ROWS)}, schema=db.schema, random_state=5)
    for predicate in ("age >= 50", "age < 50", "NOT age >= 50", "age <> 3"):
        assert empty.count(predicate, privacy=_privacy(db)).value == pytest.approx(0, abs=1e-2)


def test_a_mean_over_cells_that_are_there_is_still_one_sum() -> None:
    """Required columns keep the question that they had, and with it their noise."""
    plain = plan_query(parse_query("mean(there)", SCHEMA), len(ROWS)).aggregate
    assert plain.to_dict() == Sums(["there"]).to_dict()
    known = plan_query(parse_query("mean(age)", SCHEMA), len(ROWS)).aggregate
    rows = "(age IS NOT NULL)"
    assert known.to_dict() == GroupedSums(expressions=("(age - 54)", None), where=rows).to_dict()


@pytest.mark.parametrize(
    ("lower", "upper"), [(10_000, 42_000), (-40_000, -10_000), (1, 32_768), (-32_768, -1), (-5, 2**31 - 10)]
)
def test_sums_of_optional_whole_numbers_do_not_overflow_short_integers(lower: int, upper: int) -> None:
    schema = Schema(
        columns=[
            Column("x", type="integer", lower=lower, upper=upper, required=False),
            Column("g", values=("a", "b"), closed=True),
        ]
    )
    cells = np.array([lower, np.nan, upper, lower + 1, np.nan])
    with Database({"x": cells, "g": np.array(list("abbab"))}, schema=schema) as db:
        exact = GaussianDP(mu=1e12)
        assert db.sum("x", privacy=exact).value == pytest.approx(np.nansum(cells), abs=0.1)
        by = db.query("sum(x) by g", privacy=exact).cells
        assert [cell.value for cell in by] == pytest.approx([2 * lower + 1, upper], abs=0.1)


def test_an_interval_holds_the_sum_of_a_case_that_no_row_takes() -> None:
    schema = Schema(columns=[Column("x", lower=35, upper=42), Column("g", values=("a", "b"), closed=True)])
    with Database({"x": np.full(100, 38.0), "g": np.array(["b"] * 100)}, schema=schema) as db:
        for text in ("sum(CASE WHEN g = 'a' THEN x END)", "SELECT SUM(CASE WHEN x > 40 THEN -x END) FROM t"):
            (cell,) = db.query(text, privacy=GaussianDP(mu=100)).cells
            assert cell.lower <= 0 <= cell.upper
