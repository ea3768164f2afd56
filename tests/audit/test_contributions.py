"""What rows add one by one is what engines add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest

from discreet.audit._contribution_arrays import RepeatedRows
from discreet.audit._contributions import parse_expressions, row_contributions
from discreet.query.aggregates import (
    AGGREGATES,
    Aggregate,
    ClassGradients,
    ClusterSums,
    Dependence,
    DistinctUnits,
    GradientSums,
    Gram,
    GroupedSums,
    HalfspaceSums,
    HierarchicalHistogram,
    Histogram,
    JointAggregate,
    Marginals,
    Moments,
    NodeTables,
    PredictionCounts,
    SignSketches,
    Sums,
    TreeNode,
    TreePredictions,
)
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.schema.schema import Neighbors
from tests.query.people import people, people_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

WEIGHTS = (0.5, -1.0, 2.0, 0.25, 0.1)
ASKED: list[Aggregate] = [
    Sums(("income", "age * height", "age > 40 AND owner = 1", "income IS NULL", "3", "-2 - age")),
    Histogram(("age", "job")),
    Histogram(("income", "owner"), {"income": (0.2, 0.5)}, "age - 50"),
    Histogram(("job",), {}, "7"),
    GroupedSums(("job", "age"), {"age": (30, 60)}, (None, "income", "age - 50"), "height > 0"),
    GroupedSums((), {}, ("age - 50", None, "POWER(age - 50, 2)"), "age > 40 AND owner = 1"),
    NodeTables(
        "owner",
        (
            TreeNode((("job", 0), ("age", 1)), ("height",)),
            TreeNode((("job", 0),), ("age", "height", "income")),
            TreeNode((("job", 3),), ("age",)),
        ),
        {"age": (30, 60), "height": (0.0,), "income": (0.5,)},
    ),
    Marginals(
        (("job",), ("income", "owner"), ("age", "job", "height")),
        {"income": (0.2, 0.5), "height": (0.0,)},
        (1, 7, 4096),
    ),
    Moments(("income", "job", "age", "height")),
    Gram(("income", "job", "age")),
    Gram(("income", "job", "age"), radius=0.6, with_sums=False),
    Gram(("height", "age"), edges={"age": (30.0, 50.0)}),
    ClusterSums(("income", "age"), ((0.1, 0.2), (0.8, 0.7), (0.5, 0.5)), radius=0.3),
    ClusterSums(("income", "age"), ((0.4, 0.6),)),
    HalfspaceSums(("income", "height", "age"), "owner", 1, WEIGHTS[:4]),
    HalfspaceSums(("income", "age"), "owner", 1, WEIGHTS[:2], intercept=False, radius=0.5),
    GradientSums(("income", "height", "age"), "owner", 0, WEIGHTS[:4]),
    Gram(
        ("height", "age"),
        radius=1.1,
        edges={"age": (30.0, 50.0)},
        scores={"age": (1.0, -2.0, 0.5)},
        with_sums=False,
        lines={"income": (0.25, 3.0), "height": (0.5, 9.0)},
        intercept=0.5,
    ),
    GradientSums(
        ("income",),
        "owner",
        0,
        WEIGHTS[:4],
        edges={"age": (30.0, 50.0)},
        scores={"age": (1.0, -2.0, 0.5)},
        lines={"height": (0.5, 9.0)},
    ),
    PredictionCounts(
        "owner",
        (1, 0),
        (0.25, 0.0),
        {"age": ((1.0, 0.0), (0.0, 2.0))},
        {"age": (40.0,)},
        {"income": (0.25, 3.0)},
        {"income": (1.0, 0.5)},
    ),
    PredictionCounts(
        "owner",
        (1, 0),
        (0.25, 0.0),
        {"age": ((1.0, 0.0), (0.0, 2.0))},
        {"age": (40.0,)},
        {"income": (0.25, 3.0)},
        {"income": (1.0, 0.5)},
        by_class=True,
    ),
    TreePredictions(
        "owner",
        (1, 0),
        ("age", "income"),
        ((0, 1, 2), (-1, 0), (1, 3, 4, 3), (-1, 1), (-1, 0)),
        {"age": (40.0,), "income": (0.3,)},
        by_class=True,
    ),
    ClassGradients(
        "job",
        ("clerk", "other", "nürse"),
        (0.25, 0.0, -1.0),
        {"age": ((1.0, 0.0, 0.5), (0.0, 2.0, 0.0))},
        {"age": (40.0,)},
        {"income": (0.25, 3.0), "height": (0.5, 9.0)},
        radius=1.5,
        constant=0.5,
        weights=((1.0, 0.0, -1.0), (0.5, 0.0, 0.25), (0.0, 1.0, 0.0)),
    ),
]


@pytest.fixture(params=get_args(Neighbors), scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[DuckDBEngine]:
    made = DuckDBEngine()
    made.register(people(700), Curation.from_schema(people_schema(request.param)))
    yield made
    made.close()


@pytest.mark.parametrize("question", ASKED, ids=lambda question: question.kind)
def test_what_rows_add_one_by_one_is_what_the_engine_adds_up(
    engine: DuckDBEngine, question: Aggregate
) -> None:
    curation = engine.curation
    assert curation is not None
    question = parse_expressions(question, curation)
    bound = question.bind(curation, curation.schema.neighbors)
    rows = row_contributions(question, bound, curation)
    assert rows is not None
    names = curation.identifiers()
    (arrays,) = engine.batches(names)
    found = dict(zip(names, arrays, strict=True))
    exact = np.array([float(value) for value in bound.exact(engine)])
    # A sum of squares is rounded down once; everything else is whole.
    slack = 1.0 if isinstance(question, Moments) else 0.0
    assert np.all(np.abs(rows.total(found) - exact) <= slack)
    places = np.arange(rows.size)
    each = np.sum([part.take(places) for part in rows.of(found)], axis=0)
    assert each.shape == (rows.size, 700)
    assert np.allclose(each.sum(axis=1), exact, rtol=1e-12, atol=slack)
    some = places[:: max(1, rows.size // 3)]
    assert np.array_equal(np.sum([part.take(some) for part in rows.of(found)], axis=0), each[some])
    entries = np.unique(np.concatenate([part.entries() for part in rows.of(found)]))
    assert not np.delete(each, entries, axis=0).any()
    # Only what it says it reads decides what a row adds.
    scrambled = {name: a if name in rows.reads else np.roll(a, 1) for name, a in found.items()}
    assert np.array_equal(rows.total(scrambled), rows.total(found))


@pytest.mark.parametrize("name", ["age", "income", "job"])
@pytest.mark.parametrize("question", ASKED, ids=lambda question: question.kind)
def test_rows_that_are_repeated_for_some_values_of_a_cell_add_what_each_copy_adds(
    engine: DuckDBEngine, question: Aggregate, name: str
) -> None:
    curation = engine.curation
    assert curation is not None
    question = parse_expressions(question, curation)
    rows = row_contributions(question, question.bind(curation, curation.schema.neighbors), curation)
    assert rows is not None
    (arrays,) = engine.batches(curation.identifiers())
    found = {sql: cells[:40] for sql, cells in zip(curation.identifiers(), arrays, strict=True)}
    changed = curation.column(name).sql
    values = np.unique(found[changed])[:5]
    grid = {sql: cells[:, None] for sql, cells in found.items()} | {changed: values[None]}
    copies = {sql: np.repeat(cells, values.size) for sql, cells in found.items()}
    copies[changed] = np.tile(values, 40)
    repeated = RepeatedRows(grid, (40, values.size))
    assert list(repeated) == list(copies)
    assert len(repeated) == len(copies)
    for part, other in zip(rows.of(repeated), rows.of(copies), strict=True):
        places = part.entries()
        assert np.array_equal(places, other.entries())
        assert np.array_equal(part.take(places), other.take(places))


def test_every_kind_of_question_is_here_or_said_to_be_left_out() -> None:
    left_out = {SignSketches, DistinctUnits, Dependence, HierarchicalHistogram, JointAggregate}
    assert {type(question) for question in ASKED} | left_out == set(AGGREGATES.values())


def test_groups_of_an_expression_are_left_out() -> None:
    curation = Curation.from_schema(people_schema())
    question = Histogram(("FLOOR(age / 10)",))
    assert row_contributions(question, question.bind(curation, "replace-one"), curation) is None


def test_signs_of_ids_need_more_than_cells() -> None:
    curation = Curation.from_schema(people_schema())
    bound = Sums(("age",)).bind(curation, "replace-one")
    assert row_contributions(SignSketches(("age",), 2, "key"), bound, curation) is None


def test_people_are_not_counted_row_by_row() -> None:
    curation = Curation.from_schema(people_schema())
    bound = Sums(("age",)).bind(curation, "replace-one")
    assert row_contributions(DistinctUnits(), bound, curation) is None


def test_distances_between_tables_are_no_sums_over_rows() -> None:
    curation = Curation.from_schema(people_schema())
    question = Dependence([("job", "owner")], reference={"kind": "tables", "values": [[0] * 10]})
    bound = question.bind(curation, "replace-one")
    assert row_contributions(question, bound, curation) is None
