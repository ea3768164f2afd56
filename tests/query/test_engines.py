"""One suite for every engine: the same exact integers, and no way out of the curated table."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import signal
import subprocess
import sys
import tracemalloc
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
from sqlglot import exp

from discreet.errors import (
    DataError,
    EngineFailed,
    EngineUnavailable,
    ExpressionRefused,
    SchemaError,
    SourceError,
    TableChanged,
    WorkersFailed,
)
from discreet.noise import Stream
from discreet.query.aggregates import (
    Dependence,
    HierarchicalHistogram,
    Histogram,
    Marginals,
    Moments,
    NodeTables,
    Sums,
    TreeNode,
)
from discreet.query.curation import Curation
from discreet.query.engines._curated_rows import Tally, curated_batches
from discreet.query.engines._duckdb import ArraysEngine, DuckDBEngine
from discreet.query.engines.base import ROWS, Engine
from discreet.query.engines.tasks import EngineCells
from discreet.query.features import ONE, Features
from discreet.query.language import parse
from discreet.query.language._program import values
from discreet.query.passes import ClusterPass, GradientPass, GramPass, HalfspacePass
from discreet.query.unit_rows import limited_batches
from discreet.schema import Column, Schema
from discreet.tables import Batch, open_table
from tests.leftovers import Traces
from tests.marked import SCHEMA as SCHEMA_OF_MARKED
from tests.marked import marked_people, write_people
from tests.query.people import people, people_schema
from tests.servers import cannot_start, no_spark
from tests.tables.people import whole_chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from discreet._types import AnyArray, Words
    from discreet.query.aggregates import Aggregate
    from discreet.query.language import Expression
    from tests.postgres import PostgresServer

TYPES = {"income": "float64", "height": "float64", "age": "int64", "job": "string", "owner": "int64"}
SCHEMA = people_schema()
CURATION = Curation.from_schema(SCHEMA)


def _duckdb(_: pytest.FixtureRequest) -> Engine:
    return DuckDBEngine()


def _arrays(_: pytest.FixtureRequest) -> Engine:
    return ArraysEngine()


@pytest.fixture(scope="module")
def lasting_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database that exists for all tests here."""
    with postgres_server.database() as url:
        yield url


def _url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("lasting_url" if request.scope == "module" else "postgres_url"))


def _postgres(request: pytest.FixtureRequest) -> Engine:
    from discreet.query.engines._postgres import PostgresEngine

    return PostgresEngine(_url(request))


def _postgres_schema(request: pytest.FixtureRequest) -> Engine:
    import psycopg

    from discreet.query.engines._postgres import PostgresEngine

    url = _url(request)
    with psycopg.connect(url, autocommit=True) as server:
        server.execute('CREATE SCHEMA IF NOT EXISTS "cu""rated"')
    return PostgresEngine(url, into='cu"rated')


def _spark(request: pytest.FixtureRequest) -> Engine:
    from discreet.query.engines._spark import SparkEngine

    request.getfixturevalue("spark")
    return SparkEngine()


def _in_spark(rows: dict[str, AnyArray]) -> Any:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    table = pa.table({name: pa.array(values.tolist(), TYPES[name]) for name, values in rows.items()})
    session = SparkSession.getActiveSession()
    assert session is not None
    return session.createDataFrame(table)


ENGINES = {
    "duckdb": _duckdb,
    "arrays": _arrays,
    "postgres": _postgres,
    "postgres-schema": _postgres_schema,
    "spark": _spark,
}
KINDS = [pytest.param(name, marks=pytest.mark.slow if name == "spark" else ()) for name in ENGINES]
# pyspark warns about newer versions of pandas whenever Arrow is used.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def _registered(request: pytest.FixtureRequest, rows: Any, curation: Curation) -> Engine:
    engine = ENGINES[request.param](request)
    engine.register(_in_spark(rows) if request.param == "spark" else rows, curation)
    return engine


@pytest.fixture(scope="module", params=KINDS)
def thousand(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine of each kind on a thousand people, which tests read and none changes."""
    engine = _registered(request, people(1000), CURATION)
    yield engine
    engine.close()


@pytest.fixture(params=KINDS)
def open_engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Open an engine of each kind on rows, and close what was opened."""
    made: list[Engine] = []

    def opened(rows: Any, curation: Curation = CURATION) -> Engine:
        engine = _registered(request, rows, curation)
        made.append(engine)
        return engine

    yield opened
    for engine in made:
        engine.close()


def curated(rows: dict[str, AnyArray], curation: Curation = CURATION) -> dict[str, AnyArray]:
    """What the curated table must hold, computed without an engine."""
    with open_table(rows) as table:
        parts = [curation.encode(batch) for batch in table.batches(curation.schema)]
    return {name: np.concatenate([part[name] for part in parts]) for name in curation.identifiers()}


def test_the_table_holds_the_curated_rows_and_its_version_says_so(thousand: Engine) -> None:
    wanted = curated(people(1000))
    names = CURATION.identifiers()
    found = [np.concatenate(column) for column in zip(*thousand.batches(names, 300), strict=True)]
    assert sorted(zip(*found, strict=True)) == sorted(zip(*wanted.values(), strict=True))
    assert thousand.version is not None
    assert thousand.version.n_rows == thousand.count() == 1000
    assert thousand.version.checksum == CURATION.checksums(wanted)[0]


def test_sums_are_exact_and_one_question_may_hold_many(thousand: Engine) -> None:
    wanted = curated(people(1000))
    names = [name for name in CURATION.identifiers() if CURATION.kind(name) != "DOUBLE"]
    large = exp.Mul(
        this=exp.Cast(this=exp.column("c1"), to=exp.DataType.build("BIGINT")),
        expression=exp.Literal.number(2**32),
    )
    sums = thousand.aggregate([*map(exp.column, names), large])
    # Past 2**63: a 64-bit sum would overflow or round.
    assert sums[-1] == int(wanted["c1"].astype(object).sum()) * 2**32 > 2**63
    assert sums[:-1] == [int(wanted[name].astype(np.int64).sum()) for name in names]


def test_cells_are_counted_and_summed_and_absent_ones_are_zero(thousand: Engine) -> None:
    wanted = curated(people(1000))
    job, owner = (exp.column("c3"), 5), (exp.column("c4"), 2)
    decade = (exp.column("c2"), 74)
    tables = [
        EngineCells((job, owner)),
        EngineCells((decade,)),
        EngineCells((owner, job)),
        EngineCells((job, (exp.column("m0"), 9))),
    ]
    found = thousand.sum_groups(tables, [None, exp.column("c1"), None, None])
    counts, sums, turned, flags = (np.array(cells) for cells in found)
    reference = np.zeros((5, 2), np.int64)
    np.add.at(reference, (wanted["c3"], wanted["c4"]), 1)
    assert counts.tolist() == reference.ravel().tolist()
    assert turned.tolist() == reference.T.ravel().tolist()
    by_age = np.bincount(wanted["c2"], wanted["c1"].astype(float), minlength=74)
    assert sums.tolist() == by_age.astype(int).tolist()
    assert flags.reshape(5, 9)[:, 2:].sum() == 0
    assert flags.sum() == 1000


def _cell(values: AnyArray, edges: list[float]) -> AnyArray:
    return np.searchsorted(edges, values, side="right")


def test_a_level_of_a_tree_is_one_pass_with_all_its_cells(thousand: Engine) -> None:
    edges = {"age": [30.0, 50.0, 70.5], "height": [0.25]}
    nodes = [TreeNode([("job", 0), ("age", 1)], ["height"]), TreeNode([("job", 2)], ["age", "height"])]
    question = NodeTables("owner", nodes, edges)
    bound = question.bind(CURATION, "replace-one")
    wanted = curated(people(1000))
    age, job, owner = 17 + wanted["c2"], wanted["c3"], wanted["c4"]
    age_cell, height_cell = _cell(age, edges["age"]), _cell(wanted["v1"], edges["height"])
    expected: list[int] = []
    for inside, attributes in [
        ((job == 0) & (age_cell == 1), [(height_cell, 2)]),
        (job == 2, [(age_cell, 4), (height_cell, 2)]),
    ]:
        for cells, size in attributes:
            for cell, label in itertools.product(range(size), range(2)):
                expected.append(int((inside & (cells == cell) & (owner == label)).sum()))
    assert bound.exact(thousand) == expected
    assert 0 < sum(expected) < 2000


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("age", None),
        ("income", "age > 30"),  # may be missing
        ("height", "income > 0.5"),  # tiny numbers, -0.0 and both bounds
        ("height * 100000", None),  # cells that widen on both sides of zero
        ("age / 7", "job = 'clerk'"),
        ("EXP(LEAST(height, 1)) * 9000", "EXP(LEAST(height, 1)) > 0.5"),  # with steps
    ],
)
def test_a_tree_of_counts_has_every_row_in_the_cell_of_its_exact_value(
    thousand: Engine, text: str, where: str | None
) -> None:
    bound = HierarchicalHistogram(text, ("owner",), where=where).bind(CURATION, "replace-one")
    wanted = curated(people(1000))
    columns = CURATION.name_arrays(wanted)
    expression = parse(text, SCHEMA)
    exact = np.broadcast_to(values(expression.program, columns, expression.place)[expression.place], 1000)
    counted = np.ones(1000, bool)
    if expression.known_place is not None:
        counted &= values(expression.program, columns, expression.known_place)[expression.known_place]
    if where is not None:
        counted &= parse(where, SCHEMA).evaluate(columns) == 1
    leaves = np.zeros((2, bound.cells.size), np.int64)
    cell = np.searchsorted(bound.cells.starts()[:-1], exact, side="right") - 1
    np.add.at(leaves, (wanted["c4"][counted], cell[counted]), 1)
    assert bound.exact(thousand) == bound.tree.add_levels(leaves).ravel().tolist()
    assert 100 < leaves.sum() == counted.sum()


def test_questions_that_share_a_pass_get_the_integers_that_they_would_get_alone(thousand: Engine) -> None:
    questions: list[list[Aggregate]] = [
        [
            Sums(("age", "height * income", "7")),
            Sums("EXP(LEAST(height, 1)) > 2"),  # with steps
            Sums("EXP(LEAST(height, 1)) > 1"),  # that share some of them
            Sums("age > 40"),
            Moments(("age", "job")),
        ],
        [
            Histogram("job"),
            Histogram(("owner", "job")),
            Histogram("job", expression="EXP(LEAST(height, 1))"),
            Histogram("owner", expression="age"),
            HierarchicalHistogram("age", "job", where="EXP(LEAST(height, 1)) > 1"),
            NodeTables("owner", [TreeNode([("job", 0)], ["age"])], {"age": [40.0]}),
        ],
    ]
    for asked in questions:
        bounds = [question.bind(CURATION, "replace-one") for question in asked]
        alone = [bound.exact(thousand) for bound in bounds]
        wanted = [bound.wanted for bound in bounds]
        found = wanted[0].run_tasks(thousand, wanted)
        assert [bound.finish(own, 1000) for bound, own in zip(bounds, found, strict=True)] == alone
        assert [len(own) for own in found] == [one.size for one in wanted]


def _codes(wanted: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """The cell of each person along each column, with the edges of :data:`CUTS`."""
    income = np.where(wanted["m0"] == 1, 3, _cell(wanted["v0"], CUTS["income"]))
    heights, ages = _cell(wanted["v1"], CUTS["height"]), _cell(17 + wanted["c2"], CUTS["age"])
    return {"income": income, "height": heights, "age": ages, "job": wanted["c3"], "owner": wanted["c4"]}


CUTS = {"income": [0.2, 0.5], "height": [0.25], "age": [30.0, 50.0, 70.5]}
CELLS = {"income": 4, "height": 2, "age": 4, "job": 5, "owner": 2}
MARGINS = [names for k in (1, 2, 3) for names in itertools.combinations(CELLS, k)]


@pytest.mark.parametrize("tables", [MARGINS, [("job", "income")]], ids=["batches", "grouped"])
def test_tables_of_many_columns_are_counted_in_one_pass(thousand: Engine, tables: Any) -> None:
    codes = _codes(curated(people(1000)))
    edges = {name: cuts for name, cuts in CUTS.items() if any(name in table for table in tables)}
    question = Marginals(tables, edges)
    expected: list[AnyArray] = []
    for table in tables:
        counts = np.zeros([CELLS[name] for name in table], np.int64)
        np.add.at(counts, tuple(codes[name] for name in table), 1)
        expected.append(counts)
    found = question.split(np.array(question.bind(CURATION, "replace-one").exact(thousand)), CURATION)
    assert [one.tolist() for one in found] == [one.tolist() for one in expected]


def test_distances_to_public_tables_are_the_same_whole_numbers(thousand: Engine) -> None:
    codes = _codes(curated(people(1000)))
    pairs = list(itertools.combinations(CELLS, 2))
    margins = {name: [(7 * i) % 11 * 30 for i in range(2 * size)] for name, size in CELLS.items()}
    given = Dependence(pairs, CUTS, {"kind": "given", "margins": margins, "by": "owner"})
    values = [[(5 * i) % 13 for i in range(CELLS[a] * CELLS[b])] for a, b in pairs]
    bound = Dependence(pairs, CUTS, {"kind": "tables", "values": values}).bind(CURATION, "replace-one")
    expected = []
    for (a, b), public in zip(pairs, values, strict=True):
        counts = np.bincount(codes[a] * CELLS[b] + codes[b], minlength=len(public))
        expected.append(int(np.abs(counts - public).sum()))
    assert bound.exact(thousand) == expected
    told = given.bind(CURATION, "replace-one").exact(thousand)
    assert told[:4] == [682, 918, 927, 664]


def test_missing_numbers_have_a_cell_of_their_own(open_engine: Any) -> None:
    rows = people(1000)
    bound = Histogram("income", {"income": [0.5]}).bind(CURATION, "replace-one")
    low, high, missing = bound.exact(open_engine(rows))
    assert missing == int(np.isnan(rows["income"]).sum())
    assert low + high + missing == 1000
    assert bound.labels == (((-np.inf, 0.5), (0.5, np.inf), None),)


FEATURES = Features.from_curation(CURATION, ["height", "age", "job"], center=None, radius=None)
CLIPPED = Features.from_curation(
    CURATION, ["height", "age", "job"], center=[0.1] * 7, radius=0.7, intercept=True
)
WEIGHTS = tuple(range(-3, 5))
IN_CELLS = Features.from_curation(
    CURATION, ["income", "age", "job"], center=None, radius=None, starts={"income": (2**18, 2**19)}
)
PASSES: list[Any] = [
    GramPass(FEATURES, True),
    GramPass(CLIPPED, False),
    GramPass(IN_CELLS, True),
    ClusterPass(FEATURES, ((0,) * 7, (3000, -20000, 5, 5, 5, 5, 5), (0,) * 7), 2**28),
    HalfspacePass(CLIPPED, "c4", 1, WEIGHTS),
    GradientPass(CLIPPED, "c4", 1, WEIGHTS, 2),
]


@cache
def _one_by_one(kernel: Any, n: int) -> list[int]:
    wanted = curated(people(n))
    total = [0] * kernel.size
    for i in range(n):
        single = kernel([wanted[name][i : i + 1] for name in kernel.columns])
        total = [a + int(b) for a, b in zip(total, single, strict=True)]
    return total


def test_passes_give_the_same_integers_as_arithmetic_on_python_integers(open_engine: Any) -> None:
    rows = people(700)
    turned = {name: values[::-1].copy() for name, values in rows.items()}
    for engine in (open_engine(rows), open_engine(turned)):
        for kernel in PASSES:
            assert engine.reduce(kernel) == _one_by_one(kernel, 700), kernel


class _Writer:
    """Writes expressions at random, the same ones every time."""

    def __init__(self, seed: int) -> None:
        self._stream = Stream.from_seed(seed)

    def _pick(self, *choices: str) -> str:
        return choices[int(self._stream.words(1)[0] % np.uint64(len(choices)))]

    def number(self, depth: int) -> str:
        if depth == 0:
            return self._pick("income", "height", "age", "0.1", "3", "1e-9", "age", "height")
        form = self._pick(
            "({a} + {b})", "({a} - {b})", "{a} * {b}", "{a} / GREATEST({b}, 0.5)", "ABS({a})", "-({a})",
            "SQRT(GREATEST({a}, 0))", "LN(GREATEST({a}, 0.01))", "EXP(LEAST({a}, 3))", "FLOOR({a})",
            "POWER({a}, 3)", "LEAST({a}, {b})", "CASE WHEN {c} THEN {a} ELSE {b} END",
        )  # fmt: skip
        return form.format(a=self.number(depth - 1), b=self.number(depth - 1), c=self.condition(depth - 1))

    def condition(self, depth: int) -> str:
        if depth == 0:
            return self._pick("job = 'clerk'", "owner = 1", "income IS NULL", "job IS NULL", "age > 40")
        form = self._pick("{a} < {b}", "{a} BETWEEN 0 AND {b}", "NOT {c}", "({c} AND {d})", "({c} OR {d})")
        return form.format(
            a=self.number(depth - 1),
            b=self.number(depth - 1),
            c=self.condition(depth - 1),
            d=self.condition(depth - 1),
        )


def _expressions(count: int) -> list[Expression]:
    writer = _Writer(20)
    made: dict[str, Expression] = {}
    while len(made) < count:
        text = writer.number(3) if len(made) % 3 else writer.condition(2)
        with contextlib.suppress(ExpressionRefused):
            expression = parse(text, SCHEMA)
            if expression.lower < expression.upper:
                made[expression.canonical] = expression
    return list(made.values())


def _agrees(engine: Engine, expressions: list[Expression], wanted: dict[str, AnyArray]) -> None:
    for start in range(0, len(expressions), 10):
        part = expressions[start : start + 10]
        found = engine.aggregate([e.integer_sql(CURATION.sql_column) for e in part])
        assert found == [int(e.evaluate(wanted).sum()) for e in part]


def harsh_people(n: int) -> dict[str, AnyArray]:
    """NULL, NaN, infinities, the largest and smallest numbers of each type, and categories in Unicode."""
    rows = people(n)
    extremes = np.array([-(2**63), 2**63 - 1, -(2**53) - 1, 2**53 + 1, -1, 0, 2**31, 10**18], np.int64)
    i = np.arange(n)
    rows["age"] = np.where(i % 7 == 1, extremes[i % len(extremes)], rows["age"])
    nasty = rows["income"]
    assert np.isnan(nasty).any()
    assert {np.inf, -np.inf, 1e308} <= set(nasty[~np.isnan(nasty)].tolist())
    assert {None, "nürse", "日本"} <= set(rows["job"].tolist())
    assert set(extremes.tolist()) <= set(rows["age"].tolist())
    return rows


def test_fifty_random_expressions_agree_bit_for_bit_on_duckdb_postgres_and_spark(open_engine: Any) -> None:
    rows = harsh_people(1104)
    engine = open_engine(rows)
    # Spark compiles each anew, for seconds; the long form of this check asks it for all fifty.
    count = 5 if type(engine).__name__ == "SparkEngine" else 50
    _agrees(engine, _expressions(50)[:count], CURATION.name_arrays(curated(rows)))


@pytest.mark.stats
@pytest.mark.parametrize("open_engine", ["spark"], indirect=True)
def test_all_fifty_random_expressions_agree_bit_for_bit_on_spark(open_engine: Any) -> None:
    rows = harsh_people(1104)
    _agrees(open_engine(rows), _expressions(50), CURATION.name_arrays(curated(rows)))


def _capacity(kind: str) -> int:
    """Return the largest sum that a type of an engine holds."""
    if kind.lower().startswith("decimal("):
        return int(10 ** int(kind[8:].partition(",")[0])) - 1
    return {"hugeint": 2**127 - 1, "bigint": 2**63 - 1, "numeric": 10**131072}[kind.lower()]


def test_the_types_of_sums_hold_a_thousand_million_rows(open_engine: Any) -> None:
    engine = open_engine(people(5))
    name = "pg_typeof" if type(engine).__name__ == "PostgresEngine" else "typeof"
    columns = [exp.column(name) for name in CURATION.identifiers() if CURATION.kind(name) != "DOUBLE"]
    expression = parse("height * income + age / 7", SCHEMA).integer_sql(CURATION.sql_column)
    trees: list[Any] = [*columns, expression]
    kinds = [exp.Anonymous(this=name, expressions=[exp.Sum(this=engine._wide(tree))]) for tree in trees]
    query = engine._selection([exp.Cast(this=kind, to=exp.DataType.build("TEXT")) for kind in kinds])
    (found,) = engine._fetch(query)
    for kind in found:
        assert _capacity(kind) >= 10**9 * (2**31 - 1)
    # A batch is added up in floats, exactly; batches in integers of Python, which have no end.
    assert ROWS * ONE**2 < 2**53
    # The twin that is too small: a sum of 32 bits would not hold three rows.
    assert 3 * 2**30 > 2**31 - 1


def test_a_table_without_rows_sums_to_zero(open_engine: Any) -> None:
    engine = open_engine({name: values[:0] for name, values in people(5).items()})
    assert engine.version.n_rows == 0
    assert engine.aggregate([exp.column("c0")]) == [0]
    assert engine.sum_groups([EngineCells(((exp.column("c4"), 2),))], [None]) == [[0, 0]]
    assert engine.reduce(PASSES[0]) == [0] * PASSES[0].size


def test_an_engine_that_fails_says_one_constant_sentence(open_engine: Any) -> None:
    engine = open_engine(people(50))
    said = set()
    for wrong in (exp.column("no_such"), exp.Div(this=exp.column("c0"), expression=exp.column("nor_this"))):
        with pytest.raises(EngineFailed) as caught:
            engine.aggregate([wrong])
        said.add(str(caught.value))
        assert caught.value.__cause__ is None
        link = caught.value.__context__
        while link is not None:
            assert "no_such" not in str(link)
            assert "nor_this" not in str(link)
            link = link.__context__
    with pytest.raises(EngineFailed) as caught:
        engine.sum_groups([EngineCells(((exp.column("no_such"), 2),))], [None])
    assert said == {str(caught.value)}


LIMITED = Schema(
    columns=[Column("who", type="id"), Column("x", lower=0, upper=1)],
    id_column="who",
    max_rows_per_unit=2,
)


def test_extra_rows_of_a_person_are_left_out() -> None:
    engine = DuckDBEngine()
    rows = {"who": ["a"] * 5 + ["b"] + ["c"] * 3, "x": np.ones(9)}
    assert engine.register(rows, Curation.from_schema(LIMITED)).n_rows == 5
    engine.close()


@pytest.mark.parametrize("later", [[1, 1, 2, 1], [1, 1, 1], [1, 1, 1, 1, 1]])
def test_a_table_whose_ids_change_while_it_is_read_is_refused(later: list[int]) -> None:
    class Changing:
        label = "The table"
        seen = iter([[1, 1, 1, 1], later])

        def read_ids(self, schema: Schema, *, id_salt: str = "") -> Iterator[Words]:
            yield np.array(next(self.seen), np.uint64)

        def batches(
            self, schema: Schema, *, ids: bool, id_texts: bool = False, id_salt: str = ""
        ) -> Iterator[Batch]:
            units = np.array(next(self.seen), np.uint64)
            texts = np.array([b"1"] * len(units), object)
            yield Batch({"x": np.ones(len(units))}, n_rows=len(units), start=0, ids=units, id_texts=texts)

    curation = Curation.from_schema(LIMITED)
    reading = curated_batches(Changing(), curation, Tally(curation), "salt")  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="must stay as it is while it is read"):
        list(reading)


def test_a_release_of_a_table_that_loses_rows_while_it_is_read_is_refused() -> None:
    class Shrinking:
        label = "The table"

        def read_ids(self, schema: Schema, *, id_salt: str = "") -> Iterator[Words]:
            yield np.array([1, 2, 3], np.uint64)

        def batches(self, schema: Schema, *, ids: bool, id_salt: str = "") -> Iterator[Batch]:
            yield Batch({"x": np.ones(2)}, n_rows=2, start=0, ids=np.array([1, 2], np.uint64))

    reading = limited_batches(Shrinking(), LIMITED, "salt")  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="must stay as it is while it is read"):
        list(reading)


def test_duckdb_cannot_leave_its_own_table_once_it_is_filled(tmp_path: Any) -> None:
    import duckdb

    engine = DuckDBEngine()
    engine.register(people(20), CURATION)
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    for statement in (
        f"SELECT * FROM read_text('{secret}')",
        f"SELECT * FROM read_csv('{secret}')",
        f"COPY curated TO '{tmp_path / 'out.csv'}'",
        f"ATTACH '{tmp_path / 'other.duckdb'}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
    ):
        with pytest.raises(duckdb.Error):
            engine._reader.execute(statement).fetchall()
    assert list(tmp_path.iterdir()) == [secret]
    engine.close()


def test_a_large_table_goes_to_a_file_that_has_no_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from discreet.query.engines import _duckdb as module

    monkeypatch.setattr(module, "_IN_MEMORY", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = DuckDBEngine()
    engine.register(people(300_000), CURATION)
    assert files_without_a_name(tmp_path) > 0
    assert list(tmp_path.iterdir()) == []
    wanted = curated(people(300_000))
    assert engine.aggregate([exp.column("c1")]) == [int(wanted["c1"].sum())]
    assert engine.reduce(PASSES[0])[-1] == _last_sum(wanted)
    assert list(tmp_path.iterdir()) == []
    engine.close()
    assert files_without_a_name(tmp_path) == 0


@pytest.mark.slow
def test_a_table_larger_than_the_memory_of_the_engine_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from discreet.query.engines import _duckdb as module

    names = [f"x{i}" for i in range(100)]
    rows = {name: np.arange(60_000) * (2 * i + 3) % 4093 / 4092 for i, name in enumerate(names)}
    curation = Curation.from_schema(Schema(columns=[Column(name, lower=0, upper=1) for name in names]))
    monkeypatch.setattr(module, "_IN_MEMORY", 1000)
    monkeypatch.setattr(module, "_GROUP_BYTES", 2**22)
    monkeypatch.setattr("discreet.tables.duckdb.MEMORY_LIMIT", "48MB")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = DuckDBEngine()
    engine.register(rows, curation)
    (count,) = engine.aggregate([exp.Literal.number(1)])
    assert count == 60_000
    engine.close()


def files_without_a_name(folder: Path) -> int:
    """Return how many bytes this process has in files of a folder that were removed."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("only Linux tells where an open file without a name was")
    handles = list(Path("/proc/self/fd").iterdir())
    ours = [h for h in handles if h.is_symlink() and h.readlink().is_relative_to(folder)]
    return sum(handle.stat().st_size for handle in ours)


@pytest.mark.parametrize("room", [None, 1000, 200_000])
def test_no_room_for_a_large_table_is_a_sentence_and_leaves_nothing(
    room: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from discreet.query.engines import _duckdb as module

    monkeypatch.setattr(module, "_IN_MEMORY", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path if room else tmp_path / "nowhere"))
    engine = DuckDBEngine()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room or soft, hard))
    try:
        with pytest.raises(SourceError, match="folder for temporary files has room"):
            engine.register(people(300_000), CURATION)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        engine.close()
    assert list(tmp_path.iterdir()) == []
    assert files_without_a_name(tmp_path) == 0


def _last_sum(wanted: dict[str, AnyArray]) -> int:
    """The last sum of the first pass: rows of job 'missing', centered."""
    return int(((wanted["c3"] == 4).astype(np.int64) * 2**16 - 2**15).sum())


def test_a_table_that_changed_is_refused_with_a_constant_sentence() -> None:
    engine = DuckDBEngine()
    engine.register(people(50), CURATION)
    engine._connection.execute("DELETE FROM curated WHERE c4 = 0")
    asks: list[Callable[[], object]] = [
        lambda: engine.aggregate([exp.column("c0")]),
        lambda: engine.reduce(PASSES[0]),
    ]
    for ask in asks:
        with pytest.raises(TableChanged, match="not the one that was registered"):
            ask()
    engine.close()


class _Probed(DuckDBEngine):
    """Counts its probes."""

    probes = 0

    def _probe(self) -> None:
        self.probes += 1
        super()._probe()


def test_after_a_pass_that_failed_an_engine_is_probed_until_it_answers() -> None:
    engine = _Probed()
    engine.register(people(50), CURATION)
    engine.ensure_ready()
    with pytest.raises(EngineFailed):
        engine.aggregate([exp.column("nothing")])
    assert engine.probes == 0
    engine.ensure_ready()
    engine.ensure_ready()
    assert engine.probes == 1
    assert engine.aggregate([exp.Literal.number(1)]) == [50]
    engine.close()
    with pytest.raises(EngineFailed):
        engine.aggregate([exp.Literal.number(1)])
    for _ in range(2):
        with pytest.raises(EngineUnavailable, match="nothing was asked or charged"):
            engine.ensure_ready()


class _FailsWhileProbed(_Probed):
    """Another thread's pass fails while the engine is probed."""

    def _probe(self) -> None:
        super()._probe()
        if self.probes == 1:
            with pytest.raises(EngineFailed):
                self.aggregate([exp.column("nothing")])


def test_a_pass_that_fails_during_a_probe_is_not_forgotten() -> None:
    engine = _FailsWhileProbed()
    engine.register(people(50), CURATION)
    with pytest.raises(EngineFailed):
        engine.aggregate([exp.column("nothing")])
    with pytest.raises(EngineUnavailable):
        engine.ensure_ready()
    engine.ensure_ready()
    assert engine.probes == 2
    engine.close()


def test_an_engine_whose_file_became_invalid_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from discreet.query.engines import _duckdb as module

    monkeypatch.setattr(module, "_IN_MEMORY", 0)
    engine = DuckDBEngine()
    engine._connection.execute("PRAGMA debug_checkpoint_abort = 'before_truncate'")
    engine.register(people(50), CURATION)
    engine._connection.execute("INSERT INTO curated SELECT * FROM curated")
    with pytest.raises(duckdb.Error):
        engine._connection.execute("CHECKPOINT large")
    with pytest.raises(EngineFailed):
        engine.aggregate([exp.Literal.number(1)])
    with pytest.raises(EngineUnavailable):
        engine.ensure_ready()
    with contextlib.suppress(duckdb.Error):  # of the tests, which look into an instance before it is closed
        engine.close()


def test_reading_a_long_table_takes_constant_memory() -> None:
    schema = Schema(columns=[Column("x", lower=0, upper=1)])
    peaks = []
    for n in (2**20, 2**22):
        engine = DuckDBEngine()
        engine.register({"x": np.zeros(n)}, Curation.from_schema(schema))
        kernel = GramPass(
            Features.from_curation(Curation.from_schema(schema), ["x"], center=None, radius=None), True
        )
        tracemalloc.start()
        engine.reduce(kernel)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        engine.close()
    assert peaks[1] < 1.5 * peaks[0]


def test_clipping_gives_the_same_bits_whether_few_rows_or_most_are_too_long() -> None:
    from discreet.query.features import clip

    i = np.arange(5 * 4000).reshape(5, 4000)
    rows = (i * 7919 % 65537 - 32768).astype(np.float64)
    square = int(np.quantile((rows * rows).sum(axis=0), 0.9))
    few, alone = rows.copy(), rows.copy()
    clip(few, square)
    for column in range(4000):
        clip(alone[:, column : column + 1], square)
    most = np.repeat(rows, 2, axis=1)
    most[:, 1::2] = 2.0**16
    clip(most, square)
    assert 0 < ((rows * rows).sum(axis=0) > square).mean() < 0.25
    assert (few == alone).all()
    assert (most[:, ::2] == few).all()
    assert ((few * few).sum(axis=0) <= square).all()
    # Hardly shorter than allowed, and in the same direction.
    over = (rows * rows).sum(axis=0) > square
    assert (np.sqrt((few[:, over] ** 2).sum(axis=0)) > np.sqrt(square) - np.sqrt(5) - 1).all()
    assert (few * rows >= 0).all()


def test_one_center_gives_the_integers_of_the_same_center_twice() -> None:
    arrays = [curated(people(500))[name] for name in FEATURES.columns]
    center = (3000, -20000, 5, 5, 5, 5, 5)
    once = ClusterPass(FEATURES, (center,), 2**28)(arrays)
    twice = ClusterPass(FEATURES, (center, center), 2**28)(arrays)
    # Ties go to the first, so the second is nearest to nobody.
    assert twice[:2].tolist() == [500, 0] == [once[0], 0]
    assert np.array_equal(twice[2:9], once[1:])
    assert not twice[9:].any()


@pytest.mark.stats
def test_a_hundred_million_rows_are_summed_exactly_in_little_memory() -> None:
    import resource

    import duckdb

    n = 10**8
    schema = Schema(columns=[Column("x", lower=0, upper=1), Column("a", type="integer", lower=0, upper=9)])
    curation = Curation.from_schema(schema)
    connection = duckdb.connect()
    relation = connection.sql(f"SELECT (i % 1025) / 1024 AS x, i % 10 AS a FROM range({n}) t(i)")
    engine = DuckDBEngine()
    version = engine.register(relation, curation)
    whole, rest = divmod(n, 1025)
    wanted = 2**20 * (whole * sum(range(1025)) + sum(range(rest)))
    assert version.n_rows == n
    assert engine.aggregate([exp.column("c0"), exp.column("c1")]) == [wanted, 45 * n // 10]
    kernel = GramPass(Features.from_curation(curation, ["a"], center=[0.0], radius=None), False)
    steps = [(i * 2**17 + 9) // 18 for i in range(10)]
    assert engine.reduce(kernel) == [n // 10 * sum(step * step for step in steps)]
    engine.close()
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit < 2**30


@pytest.mark.slow
def test_spark_keeps_no_curated_row_of_a_closed_table(spark: Any) -> None:
    from discreet.query.engines._spark import SparkEngine

    kept = spark.sparkContext._jsc.getPersistentRDDs
    before = set(kept())
    engine = SparkEngine()
    engine.register(_in_spark(people(100)), CURATION)
    assert set(kept()) > before
    engine.close()
    assert set(kept()) == before


MISFITS = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=120),
        Column("ward", values=("a", "b"), closed=True),
        Column("who", role="id"),
    ],
    id_column="who",
    max_rows_per_unit=1,
)


def _misfits(n: int) -> Any:
    """Rows of which every fifth has no age or none that is a number, and every third another ward."""
    import pyarrow as pa

    ages = ["SECRET" if i % 10 == 0 else None if i % 5 == 0 else str(i % 99) for i in range(n)]
    wards = ["SECRET" if i % 3 == 0 else "b" for i in range(n)]
    return pa.table({"age": ages, "ward": wards, "who": list(range(n))})


COUNTED = (
    "The Spark data frame is not as declared. Column 'age' must hold a whole number in every row, and does "
    "not in 6 rows. Correct it, declare type: number, or list what stands for a missing cell. Column 'age' "
    "must hold something in every row, and does not in 6 rows. Declare required: false to publish that a "
    "cell is missing as one more value. Column 'ward' must hold one of the declared values in every row, and "
    "does not in 20 rows. Complete the list, or declare closed: false to read the rest as 'other'."
)


@pytest.mark.parametrize("salt", [None, "5a" * 32])
def test_workers_of_spark_count_the_cells_that_do_not_fit(salt: str | None) -> None:
    from discreet.query.engines._spark import _curate, _problem

    curate = _curate(Curation.from_schema(MISFITS), salt)
    pieces = list(curate(iter(_misfits(60).to_batches(max_chunksize=20))))
    found = [cell for piece in pieces for cell in piece["problem_"].to_pylist() if cell is not None]
    problem = _problem(found)
    assert isinstance(problem, DataError)
    assert str(problem) == COUNTED
    assert problem.column == "age"
    assert {tuple(piece.schema.names) for piece in pieces} == {tuple(pieces[0].schema.names)}
    # What is no matter of cells is returned as it was raised.
    wrong = _misfits(60).set_column(0, "age", [[[1]] * 60])
    (piece,) = curate(iter(wrong.to_batches()))
    assert isinstance(_problem(piece["problem_"].to_pylist()), SchemaError)


@pytest.mark.slow
@pytest.mark.parametrize("limited", [False, True])
def test_spark_names_columns_and_numbers_of_cells_that_do_not_fit(spark: Any, limited: bool) -> None:
    from discreet.query.engines._spark import SparkEngine

    schema = MISFITS if limited else Schema(columns=MISFITS.released)
    frame = spark.createDataFrame(_misfits(60)).repartition(4)
    with contextlib.closing(SparkEngine()) as engine, pytest.raises(DataError) as caught:
        engine.register(frame, Curation.from_schema(schema), salt="5a" * 32)
    assert str(caught.value) == COUNTED


@pytest.mark.slow
def test_spark_says_no_word_about_cells_where_workers_failed(spark: Any) -> None:
    from discreet.query.engines._spark import SparkEngine

    schema = Schema(columns=[Column("x", lower=0, upper=1)])
    frame = spark.sql("SELECT if(id < 9, 0.5D, CAST(raise_error('SECRET') AS DOUBLE)) AS x FROM range(10)")
    with contextlib.closing(SparkEngine()) as engine, pytest.raises(WorkersFailed) as caught:
        engine.register(frame, Curation.from_schema(schema))
    assert re.match(r"Spark ended with \w+ while workers were to build the curated table;", str(caught.value))
    assert "SECRET" not in whole_chain(caught.value)


@pytest.mark.slow
def test_spark_does_not_answer_once_a_worker_took_rows_with_it(spark: Any) -> None:
    from discreet.query.engines._spark import SparkEngine

    engine = SparkEngine()
    engine.register(_in_spark(people(100)), CURATION)
    with pytest.raises(EngineFailed):
        engine.aggregate([exp.column("nothing")])
    engine.ensure_ready()
    engine._frame._jdf.queryExecution().logical().rdd().unpersist(True)
    with pytest.raises(EngineFailed):
        engine.aggregate([exp.Literal.number(1)])
    with pytest.raises(EngineUnavailable):
        engine.ensure_ready()
    engine.close()


STOPPED = """
from sqlglot import exp
from discreet.errors import EngineFailed, EngineUnavailable
from discreet.query.curation import Curation
from discreet.query.engines._spark import SparkEngine
from discreet.schema import Column, Schema
from discreet.tables.spark import open_session
session = open_session("local[1]")
engine = SparkEngine()
schema = Schema(columns=[Column("x", lower=0, upper=1)])
engine.register(session.createDataFrame([(1,)], ["x"]), Curation.from_schema(schema))
session.stop()
count = lambda: engine.aggregate([exp.Literal.number(1)])
for ask, error in ((count, EngineFailed), (engine.ensure_ready, EngineUnavailable)):
    try:
        ask()
    except error:
        print(error.__name__)
"""


@pytest.mark.slow
def test_spark_does_not_answer_once_its_session_was_stopped() -> None:
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STOPPED],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*sys.path, str(Path.cwd())]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["EngineFailed", "EngineUnavailable"]


SPARK = """
import sys
from discreet.query.curation import Curation
from discreet.query.engines._spark import SparkEngine
from tests.marked import SCHEMA
engine = SparkEngine()
engine.register(f"spark://local?table={sys.argv[1]}", Curation.from_schema(SCHEMA))
print("registered", flush=True)
sys.stdin.read()
"""


@pytest.mark.stats
@pytest.mark.parametrize("encrypted", [True, False])
def test_a_spark_session_of_ours_leaves_nothing_readable(tmp_path: Path, encrypted: bool) -> None:
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)
    rows = marked_people(5000)
    table = write_people(tmp_path, rows)
    (tmp_path / "local").mkdir()
    code = SPARK if encrypted else f"from discreet.tables import spark; spark.SETTINGS = {{}}\n{SPARK}"
    # Compression would hide cells from the scanner, not from a reader; a collection of Java's garbage before
    # the kill would remove files.
    submit = (
        "--conf spark.shuffle.compress=false --conf spark.cleaner.referenceTracking=false "
        "--conf spark.driver.host=127.0.0.1 pyspark-shell"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code, str(table)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*sys.path, str(Path.cwd())]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": submit,
            "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        start_new_session=True,
    )
    with running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"registered\n"
        os.killpg(running.pid, signal.SIGKILL)
    assert any(path.suffix == ".data" for path in (tmp_path / "local").rglob("*"))
    assert bool(Traces(rows, SCHEMA_OF_MARKED).found_in(tmp_path / "local")) != encrypted


def test_clipped_rows_are_in_the_ball_in_whole_numbers_whether_few_or_most_are_too_long() -> None:
    from discreet.query.features import clip

    def too_long(clip: Callable[[Any, int], None], columns: int) -> int:
        """Number of rows beyond the ball after clipping 1000 long rows among so many columns."""
        rows = np.zeros((5, columns))
        i = np.arange(5 * 1000).reshape(5, 1000)
        rows[:, :1000] = i * 7919 % 65537 - 32768 + np.copysign(2.0**16, i % 3 - 1)
        clip(rows, square)
        assert (rows == np.rint(rows)).all()
        # Shorter by less than a step in each coordinate: no row is dropped instead.
        assert (np.sqrt((rows[:, :1000] ** 2).sum(axis=0)) > np.sqrt(square) - np.sqrt(5) - 1).all()
        return sum(sum(int(cell) ** 2 for cell in row) > square for row in rows.T)

    def to_nearest(rows: Any, square: int) -> None:
        lengths = np.einsum("ij,ij->j", rows, rows)
        rows *= np.where(lengths > square, np.sqrt(square / np.maximum(lengths, 1)), 1)
        np.rint(rows, out=rows)

    square = 2**30
    for columns in (1000, 8000):  # all are too long, or an eighth
        assert too_long(clip, columns) == 0
        assert too_long(to_nearest, columns) > 100


def test_a_worker_of_spark_opens_its_rows_in_few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark hands out 10,000 rows at a time, and opening each alone takes nearly as long as curating them."""
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)
    import pyarrow as pa

    from discreet.query.engines import _spark

    opened: list[int] = []

    def count_rows(rows: Any) -> Any:
        opened.append(len(rows))
        return open_table(rows)

    monkeypatch.setattr(_spark, "open_table", count_rows)
    (ages,) = pa.table({"age": np.arange(ROWS + 40_000) % 90}).to_batches()
    task = _spark._curate(Curation.from_schema(Schema(columns=[Column("age", lower=0, upper=90)])))
    batches = [ages.slice(start, 10_000) for start in range(0, len(ages), 10_000)]
    curated = pa.Table.from_batches(task(iter([ages.slice(0, 0), *batches])))
    assert opened == [70_000, ROWS - 30_000]
    assert curated.equals(pa.Table.from_batches(task(iter([ages]))))
