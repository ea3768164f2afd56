"""Comparisons, cells and groups mean what they say: counts are those of the raw cells, clamped.

The evaluator here starts from the raw cells and knows nothing of grids or engines: Python's own comparisons,
of whole numbers and fractions without any rounding, of other numbers as floats.
"""

from __future__ import annotations

import datetime
import operator
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from discreet.noise import Stream
from discreet.query import Gram, Histogram, Marginals, NodeTables, Sums
from discreet.query.aggregates import TreeNode
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.schema import Column, Schema
from tests.query.language.generator import HashChoices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from discreet._types import AnyArray
    from discreet.query import Aggregate
    from discreet.query.engines import Engine

FIRST, LAST = datetime.date(2020, 1, 1), datetime.date(2024, 12, 31)
SCHEMA = Schema(
    columns=[
        Column("score", lower=0, upper=10),
        Column("inc", type="integer", lower=0, upper=10**7),
        Column("day", lower=FIRST, upper=LAST),
        Column("wide", type="integer", lower=-(2**53), upper=2**53),
        Column("long", type="integer", lower=-(2**31), upper=2**31),
        Column("kelvin", lower=273.1, upper=313.1),
        Column("grade", values=(1, 2, 2**53 - 1)),
        Column("owner", values=(0, 1)),
    ]
)
CURATION = Curation.from_schema(SCHEMA)
N = 30_000
RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, "=": operator.eq, "<>": operator.ne, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


def raw_rows(n: int = N) -> dict[str, AnyArray]:
    """Cells as files hold them: one decimal, whole numbers with many zeros, some outside the range."""
    rng = Stream.from_seed(7).generator()
    edges = np.array([2**53, 2**53 - 1, -(2**53), 2**53 - 2, 0, 2**53 + 2, 5], np.int64)
    wide = rng.integers(-(2**53), 2**53, n)
    wide[: n // 2] = edges[rng.integers(0, len(edges), n // 2)]
    days = np.array(FIRST, "datetime64[D]") + rng.integers(-20, 1850, n)
    return {
        "score": np.round(rng.normal(7.2, 0.2, n), 1),
        "inc": np.where(rng.random(n) < 0.13, 0, np.floor(rng.random(n) ** 20 * 1.1e7)).astype(np.int64),
        "day": days,
        "wide": wide,
        "long": np.where(rng.random(n) < 0.3, 2**31, rng.integers(-(2**31), 2**31, n)),
        "kelvin": np.round(rng.normal(293, 8, n), 1),
        "grade": np.array([1, 2, 2**53 - 1])[rng.integers(0, 3, n)],
        "owner": rng.integers(0, 2, n),
    }


@cache
def cells(n: int = N) -> dict[str, list[Any]]:
    """The raw cells, clamped: whole numbers as int, others as float, dates as days."""
    rows = raw_rows(n)
    found: dict[str, list[Any]] = {}
    for column in SCHEMA.columns:
        values = rows[column.name]
        if column.type == "date":
            values = (values - np.datetime64(FIRST)).astype(int)
            found[column.name] = [min(max(v, 0), (LAST - FIRST).days) for v in values.tolist()]
        elif column.is_category:
            found[column.name] = values.tolist()
        else:
            found[column.name] = [min(max(v, column.lower), column.upper) for v in values.tolist()]
    return found


def constant_of(column: str, text: str) -> Any:
    """What a constant means beside a column: a float beside a number, exact beside whole numbers."""
    if text.startswith("'"):
        return (datetime.date.fromisoformat(text.strip("'")) - FIRST).days
    return float(text) if SCHEMA.column(column).type == "number" else Fraction(text)


def count(engine: Engine, text: str) -> int:
    return Sums(text).bind(CURATION, "replace-one").exact(engine)[0]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = DuckDBEngine()
    made.register(raw_rows(), CURATION)
    yield made
    made.close()


STATED = [
    ("score", ">=", "7.3"),
    ("score", "=", "7.3"),
    ("score", "<>", "7.2"),
    ("inc", ">", "0"),
    ("inc", "=", "30.5"),
    ("inc", "<", "30.5"),
    ("day", ">=", "'2022-02-02'"),
    ("day", "<", "'2031-01-01'"),
    ("wide", "=", "9007199254740992"),
    ("wide", "=", "9007199254740993"),
    ("wide", "<>", "9007199254740993"),
    ("wide", "<", "9007199254740993"),
    ("wide", ">=", "9007199254740991"),
    ("wide", "<=", "9007199254740990.5"),
    ("wide", ">", "-9007199254740993"),
    ("long", "=", "2147483648"),
    ("long", ">", "2147483647.5"),
    ("kelvin", "<=", "293.1"),
    ("grade", ">=", "9007199254740991.25"),
    ("grade", "<", "9007199254740991.25"),
]


@pytest.mark.parametrize(("column", "relation", "constant"), STATED)
def test_a_comparison_counts_the_raw_cells(engine: Engine, column: str, relation: str, constant: str) -> None:
    limit = constant_of(column, constant)
    wanted = sum(RELATIONS[relation](cell, limit) for cell in cells()[column])
    assert count(engine, f"{column} {relation} {constant}") == wanted
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(relation, relation)
    assert count(engine, f"{constant} {mirrored} {column}") == wanted


def test_a_grid_of_a_million_steps_would_give_another_count() -> None:
    """The wrong twin: cells on a grid, constants not."""
    score = np.array(cells()["score"])
    grid = np.floor(score / 10 * 2**20 + 0.5) * (10 / 2**20)
    assert (grid >= 7.3).sum() != (score >= 7.3).sum()
    assert (grid == 7.3).sum() == 0 < (score == 7.3).sum()


class Questions:
    """Random conditions with what they mean for a row, from the same choices on every machine."""

    constants: ClassVar[dict[str, tuple[str, ...]]] = {
        "score": ("7.3", "7.1", "7", "7.25", "0", "10", "7.2000000000000002", "-3"),
        "inc": ("0", "1", "30.5", "10000000", "9999999.5", "12345678", "-0.5"),
        "day": ("'2020-01-01'", "'2022-02-02'", "'2024-12-31'", "'2019-05-05'", "700", "700.5"),
        "wide": ("9007199254740991", "9007199254740993", "5", "-9007199254740992", "4.5", "1e20"),
        "long": ("2147483648", "-2147483648", "2147483647.25", "0"),
        "kelvin": ("293.1", "273.1", "300", "299.95", "1e3"),
        "owner": ("0", "1"),
    }

    def __init__(self, seed: int) -> None:
        self._choices = HashChoices(seed)

    def _pick(self, items: Any) -> Any:
        listed = list(items)
        return listed[self._choices.below(len(listed))]

    def condition(self, depth: int) -> tuple[str, Callable[[dict[str, Any]], bool]]:
        """Return a condition as text and as a function of a row."""
        form = self._choices.below(4 if depth == 0 else 7)
        if form >= 4:
            (a, f), (b, g) = self.condition(depth - 1), self.condition(depth - 1)
            if form == 4:
                return f"NOT ({a})", lambda row: not f(row)
            if form == 5:
                return f"({a} AND {b})", lambda row: f(row) and g(row)
            return f"({a} OR {b})", lambda row: f(row) or g(row)
        name = self._pick(self.constants)
        listed = [self._pick(self.constants[name]) for _ in range(3)]
        limits = [constant_of(name, text) for text in listed]
        if form == 0:
            return (
                f"{name} BETWEEN {listed[0]} AND {listed[1]}",
                lambda row: limits[0] <= row[name] <= limits[1],
            )
        if form == 1 and name != "owner":
            return f"{name} IN ({', '.join(listed)})", lambda row: row[name] in limits
        if form == 2:
            # The smaller of a cell and a constant, which must be a float for this.
            other = float(limits[0]) if name in ("score", "kelvin") else float(round(limits[0]) % 1000)
            text = f"GREATEST({name}, {other!r}) = {name}"
            return text, lambda row: max(float(row[name]), other) == row[name]
        relation = self._pick(RELATIONS)
        return f"{name} {relation} {listed[0]}", lambda row: RELATIONS[relation](row[name], limits[0])


def check_questions(engine: Engine, n: int, first: int, last: int) -> None:
    """Compare noise-free counts of random conditions, many in a pass, with those of the raw cells."""
    columns = cells(n)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for start in range(first, last, 20):
        made = [Questions(seed).condition(2) for seed in range(start, min(last, start + 20))]
        found = Sums(tuple(text for text, _ in made)).bind(CURATION, "replace-one")
        kept = iter(found.exact(engine))
        for text, holds in made:
            assert next(kept) == sum(map(holds, rows)), text


def test_random_conditions_count_the_raw_cells() -> None:
    made = DuckDBEngine()
    made.register(raw_rows(500), CURATION)
    check_questions(made, 500, 0, 400)
    made.close()


def test_random_conditions_count_the_raw_cells_in_postgresql(postgres_url: str) -> None:
    from discreet.query.engines._postgres import PostgresEngine

    made = PostgresEngine(postgres_url)
    made.register(raw_rows(500), CURATION)
    check_questions(made, 500, 400, 600)
    made.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_random_conditions_count_the_raw_cells_in_spark(spark: Any) -> None:
    import pandas as pd

    from discreet.query.engines._spark import SparkEngine

    made = SparkEngine()
    made.register(spark.createDataFrame(pd.DataFrame(raw_rows(500))).repartition(3), CURATION)
    local = DuckDBEngine()
    local.register(raw_rows(500), CURATION)
    assert made.version == local.version
    local.close()
    check_questions(made, 500, 600, 640)
    made.close()


EDGES: dict[str, list[float]] = {
    "score": [7.1, 7.3, 7.4],
    "inc": [0.5, 1.0, 30.5, 1e6],
    "day": [60.0, 700.5],
    "wide": [-(2.0**53), 5.0, 2.0**53 - 1, 2.0**53],
    "long": [0.0, 2.0**31],
    "kelvin": [290.0, 293.1],
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_of_every_kind_of_cell_separate_the_raw_cells(engine: Engine, name: str) -> None:
    codes = [sum(cell >= edge for edge in EDGES[name]) for cell in cells()[name]]
    sizes = len(EDGES[name]) + 1
    wanted = np.bincount(codes, minlength=sizes)
    owner = np.array(cells()["owner"])
    by_owner = [
        [int(((np.array(codes) == code) & (owner == o)).sum()) for o in (0, 1)] for code in range(sizes)
    ]
    edges = {name: EDGES[name]}

    def exact(question: Aggregate) -> list[int]:
        return question.bind(CURATION, "replace-one").exact(engine)

    assert exact(Histogram((name,), edges)) == wanted.tolist()
    assert exact(Histogram((name, "owner"), edges)) == np.array(by_owner).ravel().tolist()
    assert exact(NodeTables("owner", [TreeNode((), [name])], edges)) == np.array(by_owner).ravel().tolist()
    tables = Marginals([(name,), ("owner",), (name, "owner")], edges)  # read in batches
    expected = [wanted, np.bincount(owner, minlength=2), np.array(by_owner)]
    for found, own in zip(tables.split(np.array(exact(tables)), CURATION), expected, strict=True):
        assert found.tolist() == own.tolist()
    # The diagonal of a Gram matrix of cells: 2**32 for each row, less what the center takes.
    gram = exact(Gram((name,), center=[0.0] * sizes, edges=edges, with_sums=False))
    assert [gram[i * sizes - i * (i - 1) // 2] for i in range(sizes)] == (wanted * 2**32).tolist()


def test_sums_of_whole_columns_are_exact_and_of_others_off_by_half_a_step_at_most(engine: Engine) -> None:
    for name in ("inc", "day", "score", "kelvin", "wide"):
        bound = Sums(name).bind(CURATION, "replace-one")
        total = (
            Fraction(bound.exact(engine)[0]) * Fraction(float(bound.unit[0]))
            + Fraction(float(bound.shift[0])) * N
        )
        exact = sum(map(Fraction, cells()[name]))
        column = CURATION.column(name)
        most = 0 if column.whole else N * Fraction(column.upper - column.lower) / 2**31
        assert abs(total - exact) <= most * (1 + Fraction(1, 10**6)), name


def test_the_rows_of_a_person_are_chosen_by_unrounded_cells() -> None:
    """Two rows that a grid would not tell apart have digests of their own; the same one stays anywhere."""
    schema = Schema(
        columns=[Column("who", role="id"), Column("x", lower=0, upper=1)],
        id_column="who",
        max_rows_per_unit=1,
    )
    close = np.nextafter(0.5, 1)
    rows = {"who": np.repeat(np.arange(50), 2), "x": np.tile([0.5, close], 50)}
    kept = []
    for order in (slice(None), slice(None, None, -1)):
        made = DuckDBEngine()
        curation = Curation.from_schema(schema)
        made.register({name: values[order] for name, values in rows.items()}, curation, salt="ab")
        kept.append((made.version, Sums("x > 0.5").bind(curation, "replace-one").exact(made)))
        made.close()
    assert kept[0] == kept[1]
    assert 0 < kept[0][1][0] < 50
