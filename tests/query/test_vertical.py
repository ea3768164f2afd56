"""Columns of the same people in several databases: signs, sketches, products across, and what they cost."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import pytest

from discreet import ApproxDP, Column, Database, GaussianDP, Ledger, NoPromise, PureDP, Schema
from discreet.errors import BudgetExceeded, DataError, ParameterError, PromiseError, SchemaError
from discreet.learn import PrivatePCA, PrivateRidge
from discreet.query import (
    Gram,
    Histogram,
    Moments,
    SignSketches,
    Sums,
    VerticalDatabases,
    aggregate_from_dict,
    cross_products,
)
from discreet.query._person_signs import (
    PRIME,
    SIGNS,
    SketchPass,
    coefficients,
    id_lanes,
    join_lanes,
    polynomial,
    signs,
)
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.features import ONE
from discreet.query.vertical._gram import best_sketches, estimate_products, sketch_variance
from tests.query.people import corners

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats
    from discreet.privacy import Promise
    from discreet.query.engines import Engine
    from discreet.schema.schema import Neighbors

NEIGHBORS: tuple[Neighbors, ...] = ("replace-one", "add-remove")
ID = Column("id", role="id")
MU = GaussianDP(mu=1)
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def schema_of(*columns: Column, neighbors: Neighbors = "replace-one", **more: Any) -> Schema:
    return Schema(columns=[ID, *columns], id_column="id", max_rows_per_unit=1, neighbors=neighbors, **more)


def numbers(*names: str, **more: Any) -> Schema:
    return schema_of(*(Column(name, lower=0, upper=1) for name in names), **more)


def rows_of(n: int) -> dict[str, AnyArray]:
    """Five columns that go together, on the grid of 2**-16 so that nothing is rounded."""
    i = np.arange(n)
    a, b = (i * 7919 % 1009) / 1008, (i * 104729 % 997) / 996
    columns = {"a": a, "b": 0.7 * a + 0.3 * b, "c": 1 - a, "d": (a + b) / 2, "e": 0.2 + 0.1 * b}
    return {name: np.floor(values * ONE + 0.5) / ONE for name, values in columns.items()}


def registered(
    rows: dict[str, AnyArray], names: Sequence[str], *, seed: int = 1, ids: Any = None, **more: Any
) -> Database:
    found = np.arange(len(rows["a"])) if ids is None else ids
    cells = {"id": found, **{name: rows[name] for name in names}}
    ledger = more.pop("ledger", None)
    schema = numbers(*names, **more)
    return Database(cells, schema=schema, keep_ids=True, random_state=seed, ledger=ledger)


def two(rows: dict[str, AnyArray], **more: Any) -> VerticalDatabases:
    databases = registered(rows, "ab", seed=1, **more), registered(rows, "cde", seed=2, **more)
    return VerticalDatabases(databases, key="study")


def mu_of(promises: Sequence[Promise]) -> float:
    (promise,) = promises
    assert isinstance(promise, GaussianDP)
    return promise.mu


def centered(rows: dict[str, AnyArray], names: Sequence[str]) -> Floats:
    return np.column_stack([rows[name] - 0.5 for name in names])


# Signs.


def test_the_polynomial_is_the_one_over_the_field() -> None:
    ids = np.array([0, 1, 2, 2**31 - 1, 2**31, 2**60 - 1, 123456789012345678], np.uint64)
    factors = [*coefficients("k", 20), (PRIME - 1,) * 4, (0, 0, 0, 0)]
    for one in factors:
        expected = [sum(c * pow(i, 3 - k, PRIME) for k, c in enumerate(one)) % PRIME for i in ids.tolist()]
        assert polynomial(ids, one).tolist() == expected


def test_lanes_hold_sixty_bits_of_a_fingerprint() -> None:
    ids = np.array([0, 2**60 - 1, 2**64 - 1, 0x0123456789ABCDEF], np.uint64)
    assert join_lanes(id_lanes(ids)).tolist() == [i % 2**60 for i in ids.tolist()]


def _four_point_means(factors: Sequence[Sequence[int]]) -> Floats:
    """For ids in arithmetic progressions, the mean of products of 1, 2, 3 and 4 of their signs."""
    ids = np.array([5, 9, 13, 17], np.uint64)
    found = []
    for one in factors:
        values = polynomial(ids, one)
        found.append(
            1 - 2 * ((values[:, None] >> np.arange(SIGNS, dtype=np.uint64)) & np.uint64(1)).astype(int)
        )
    table = np.concatenate(found, axis=1)
    subsets = [s for size in (1, 2, 3, 4) for s in itertools.combinations(range(4), size)]
    return np.array([table[list(subset)].prod(axis=0).mean() for subset in subsets])


def test_any_four_signs_are_independent_and_a_polynomial_of_degree_one_is_caught() -> None:
    factors = coefficients("independence", 400)
    limit = 6 / math.sqrt(400 * SIGNS)
    assert np.abs(_four_point_means(factors)).max() < limit
    linear = [one[2:] for one in factors]
    assert np.abs(_four_point_means(linear)).max() > 2 * limit


def test_keys_and_sketches_have_signs_of_their_own() -> None:
    ids = np.arange(4000, dtype=np.uint64)
    table = np.concatenate([signs(ids, "one", 130), signs(ids, "two", 130)]).astype(float)
    overlaps = table @ table.T / len(ids) - np.eye(260)
    assert np.abs(overlaps).max() < 6 / math.sqrt(len(ids))
    assert np.array_equal(signs(ids, "one", 200)[:130], table[:130])


# Sketches in an engine.


def _by_hand(rows: dict[str, AnyArray], names: Sequence[str], ids: AnyArray, key: str, m: int) -> list[int]:
    import hashlib

    digests = [hashlib.md5(str(i).encode(), usedforsecurity=False).digest() for i in ids.tolist()]
    # The half of the digest that the engine calls lower, as it stores it.
    words = np.array([int.from_bytes(digest[8:], "little") for digest in digests], np.uint64)
    table = signs(words % np.uint64(2**60), key, m)
    cells = np.column_stack([np.floor(rows[name] * ONE + 0.5).astype(np.int64) - ONE // 2 for name in names])
    return [int(value) for value in (table @ cells).ravel()]


def test_sketches_are_the_sums_that_they_are_said_to_be() -> None:
    rows = rows_of(70_000)  # more than one batch
    ids = np.arange(70_000) * 3 + 1
    engine = DuckDBEngine()
    curation = Curation.from_schema(numbers("a", "b"), ids=True)
    engine.register({"id": ids, "a": rows["a"], "b": rows["b"]}, curation)
    bound = SignSketches(("a", "b"), 70, "k").bind(curation, "replace-one")
    found = bound.exact(engine)
    engine.close()
    assert found == _by_hand(rows, "ab", ids, "k", 70)


def _engine(name: str, request: pytest.FixtureRequest) -> Engine:
    if name == "postgres":
        from discreet.query.engines._postgres import PostgresEngine

        return PostgresEngine(request.getfixturevalue("postgres_url"))
    from discreet.query.engines._spark import SparkEngine

    request.getfixturevalue("spark")
    return SparkEngine()


def _source(name: str, request: pytest.FixtureRequest, cells: dict[str, Any]) -> Any:
    if name != "spark":
        return cells
    import pyarrow as pa

    return request.getfixturevalue("spark").createDataFrame(pa.table({k: list(v) for k, v in cells.items()}))


@pytest.mark.parametrize("name", ["postgres", pytest.param("spark", marks=pytest.mark.slow)])
def test_every_engine_has_the_same_sketches_and_refuses_the_same_ids(
    name: str, request: pytest.FixtureRequest
) -> None:
    rows = rows_of(500)
    ids = [f"person {i}" for i in range(500)]
    curation = Curation.from_schema(numbers("a", "b"), ids=True)
    bound = SignSketches(("a", "b"), 70, "k").bind(curation, "replace-one")
    cells = {"id": ids, "a": rows["a"].tolist(), "b": rows["b"].tolist()}
    reference = DuckDBEngine()
    version = reference.register(cells, curation)
    expected = bound.exact(reference)
    reference.close()
    engine = _engine(name, request)
    try:
        assert engine.register(_source(name, request, cells), curation) == version
        assert bound.exact(engine) == expected
    finally:
        engine.close()
    for wrong in ([*ids[:-1], ids[0]], [*ids[:-1], None]):
        engine = _engine(name, request)
        try:
            with pytest.raises(DataError, match="'id' must") as caught:
                engine.register(_source(name, request, {**cells, "id": wrong}), curation)
            assert caught.value.column == "id"
            assert "person" not in str(caught.value)
        finally:
            engine.close()


@pytest.mark.parametrize("ids", [[1, 2, 1], [1, 2, None], ["x", "", "y"]])
def test_an_id_that_is_missing_or_there_twice_is_refused_by_its_column(ids: list[Any]) -> None:
    cells = {"id": ids, "a": [0.1, 0.2, 0.3]}
    with pytest.raises(DataError, match="'id' must") as caught:
        Database(cells, schema=numbers("a"), keep_ids=True)
    assert caught.value.column == "id"


def test_ids_are_kept_only_where_they_are_declared_once_for_each_person() -> None:
    bare = Schema(columns=[Column("a", lower=0, upper=1)])
    with pytest.raises(SchemaError, match=r"id_column of a schema must be given.*was left out"):
        Database({"a": [0.5]}, schema=bare, keep_ids=True)
    several = Schema(columns=[ID, Column("a", lower=0, upper=1)], id_column="id", max_rows_per_unit=2)
    with pytest.raises(SchemaError, match=r"max_rows_per_unit=1.*allows more rows"):
        Database({"id": [1], "a": [0.5]}, schema=several, keep_ids=True)


def test_a_table_that_was_registered_without_ids_is_not_asked_for_signs() -> None:
    with (
        Database({"id": [1, 2], "a": [0.1, 0.2]}, schema=numbers("a")) as db,
        pytest.raises(ParameterError, match="keep_ids=True"),
    ):
        db.ask(SignSketches("a", 3, "k"), privacy=MU)


def test_changed_ids_are_another_version_of_the_rows() -> None:
    rows = rows_of(50)
    curation = Curation.from_schema(numbers("a"), ids=True)
    versions = []
    for ids in (np.arange(50), np.arange(50)[::-1].copy()):
        engine = DuckDBEngine()
        versions.append(engine.register({"id": ids, "a": rows["a"]}, curation))
        engine.close()
    assert versions[0] != versions[1]


# Sensitivity.

CORNERS, EVERYBODY = corners()
WITH_IDS = schema_of(*CORNERS.columns)
CURATION = Curation.from_schema(WITH_IDS, ids=True)
CASES: list[tuple[SignSketches, bool]] = [
    (SignSketches("x", 1, "k"), True),
    (SignSketches("x", 5, "k"), True),
    (SignSketches(("x", "a"), 2, "k"), True),
    (SignSketches(("x", "a", "job"), 4, "k"), True),
    (SignSketches(("job", "y"), 2, "k", center=(0, 0, 0, 0)), True),
    (SignSketches(("x", "job"), 70, "k", center=(0.2, 0.3, 0.7)), True),
    (SignSketches(("x", "a"), 3, "k", center=(0.9, 0.1)), True),
    (SignSketches(("x", "a"), 3, "k", radius=0.5), True),
    (SignSketches(("x", "a", "job"), 3, "k", center=(0.1, 0.2, 0, 0), radius=0.6), False),
    (SignSketches(("x", "a"), 3, "k", radius=0.0001), False),
]


class Alone:
    """A stand-in for an engine whose table has one row, with the id that another row was registered with."""

    def __init__(self, row: int, person: int) -> None:
        self._row, self._person = row, person

    def reduce(self, kernel: SketchPass) -> list[int]:
        table = _registered()
        places = [self._person if name in kernel.ids else self._row for name in kernel.columns]
        arrays = [table[name][[place]] for name, place in zip(kernel.columns, places, strict=True)]
        return [int(value) for value in kernel(arrays)]

    def count(self) -> int:
        return 1


@cache
def _registered() -> dict[str, AnyArray]:
    """What an engine hands out of a table with every row of the small domain."""
    engine = DuckDBEngine()
    cells = {name: [row[name] for row in EVERYBODY] for name in CORNERS.names}
    engine.register({"id": list(range(len(EVERYBODY))), **cells}, CURATION)
    names = CURATION.identifiers()
    (arrays,) = engine.batches(names)
    engine.close()
    return dict(zip(names, arrays, strict=True))


def _alone(question: SignSketches, people: Sequence[int]) -> list[list[list[int]]]:
    """The exact sketches of every row of the small domain, alone in a table, as each of some people."""
    bound = question.bind(CURATION, "replace-one")
    rows = range(len(EVERYBODY))
    return [[bound.exact(cast("Engine", Alone(row, person))) for row in rows] for person in people]


def _square(change: Sequence[int]) -> int:
    return sum(value * value for value in change)


@pytest.mark.slow
@pytest.mark.parametrize(("question", "tight"), CASES, ids=str)
def test_no_neighbor_moves_the_sketches_further_than_the_charge_says(
    question: SignSketches, tight: bool
) -> None:
    """Somebody is replaced by somebody else, with every row of the domain, under the same id or another."""
    replaced = question.bind(CURATION, "replace-one")
    alone = question.bind(CURATION, "add-remove")
    found = _alone(question, range(12))
    pairs = [(u, v) for mine, theirs in itertools.product(found, repeat=2) for u in mine for v in theirs]
    changes = [[a - b for a, b in zip(u, v, strict=True)] for u, v in pairs]
    farthest = max(map(_square, changes))
    assert farthest <= replaced.squared
    assert max(sum(map(abs, change)) for change in changes) <= replaced.absolute
    vectors = [vector for own in found for vector in own]
    longest = max(map(_square, vectors))
    assert longest <= alone.squared
    assert max(sum(map(abs, vector)) for vector in vectors) <= alone.absolute
    assert (longest == alone.squared) == tight
    # Attained where two of these ids have opposite signs in all sketches, as they have in a few.
    if tight and question.sketches <= 2:
        assert farthest == replaced.squared
        # The wrong twins charge one sketch for all of them, or as if the id stayed.
        assert farthest > replaced.squared // 2


def test_a_charge_for_rows_that_keep_their_id_is_caught() -> None:
    question = SignSketches(("x", "a"), 1, "k", center=(0.9, 0.1))
    found = _alone(question, range(12))
    kept = max(_square([a - b for a, b in zip(u, v, strict=True)]) for own in found for u in own for v in own)
    moved = max(
        _square([a - b for a, b in zip(u, v, strict=True)])
        for mine, theirs in itertools.product(found, repeat=2)
        for u in mine
        for v in theirs
    )
    assert kept < moved == question.bind(CURATION, "replace-one").squared


# What estimates are worth.

SMALL = rows_of(150)


def _repeated(repetitions: int, each: int, key: str) -> tuple[Floats, float, float]:
    """Estimates from groups of sketches, the true product, and the variance of the theorem."""
    rows, m = SMALL, repetitions * each
    left, right = registered(rows, "a", seed=3), registered(rows, "c", seed=4)
    variance = 5.0
    question = [SignSketches(name, m, key) for name in "ac"]
    x = np.asarray(left.ask(question[0], variance=variance).value)[:, 0]
    y = np.asarray(right.ask(question[1], variance=2 * variance).value)[:, 0]
    a, c = rows["a"] - 0.5, rows["c"] - 0.5
    expected = sketch_variance(
        (float(a @ a), float(c @ c)),
        (variance, 2 * variance),
        product=float(a @ c),
        quartic=float(a**2 @ c**2),
        sketches=each,
    )
    return (x * y).reshape(repetitions, each).mean(axis=1), float(a @ c), expected


def _agrees(found: Floats, true: float, variance: float, within: float) -> None:
    assert abs(found.mean() - true) < 4 * math.sqrt(variance / len(found))
    assert abs(found.var(ddof=1) / variance - 1) < within


def test_the_variance_is_that_of_the_theorem_and_the_mean_is_the_product() -> None:
    found, true, variance = _repeated(4096, 16, "variance")
    _agrees(found, true, variance, 0.1)
    # Wrong twins: without the noise, and as if the product added nothing.
    a, c = SMALL["a"] - 0.5, SMALL["c"] - 0.5
    silent = sketch_variance((float(a @ a), float(c @ c)), (0, 0), product=true, sketches=16)
    careless = sketch_variance((float(a @ a), float(c @ c)), (5, 10), sketches=16)
    for wrong in (silent, careless):
        with pytest.raises(AssertionError):
            _agrees(found, true, wrong, 0.1)


@pytest.mark.stats
@pytest.mark.parametrize("key", ["one", "two", "three", "four", "five", "six"])
@pytest.mark.parametrize("each", [1, 4, 16, 64])
def test_the_variance_is_that_of_the_theorem_for_many_keys(key: str, each: int) -> None:
    found, true, variance = _repeated(2**16 // each, each, key)
    # A product of two normals has a kurtosis of 9, the mean of several less.
    spread = 4 * math.sqrt((2 + 6 / each) / len(found))
    _agrees(found, true, variance, spread)


def test_one_sign_for_all_sketches_is_caught() -> None:
    a, c = SMALL["a"] - 0.5, SMALL["c"] - 0.5
    ids = np.arange(150, dtype=np.uint64)
    table = signs(ids, "shared", 64 * 256).astype(float)
    twin = np.repeat(table[::64], 64, axis=0)
    variance = sketch_variance(
        (float(a @ a), float(c @ c)),
        (0, 0),
        product=float(a @ c),
        quartic=float(a**2 @ c**2),
        sketches=64,
    )
    for signed, good in ((table, True), (twin, False)):
        found = ((signed @ a) * (signed @ c)).reshape(-1, 64).mean(axis=1)
        assert (found.var(ddof=1) < 1.5 * variance) == good


def test_ids_in_another_order_leave_nothing_of_a_product() -> None:
    rows = rows_of(3000)
    question = SignSketches("a", 600, "k"), SignSketches("c", 600, "k")
    left = registered(rows, "a").ask(question[0], privacy=MU)
    true = float((rows["a"] - 0.5) @ (rows["c"] - 0.5))
    shuffled = {**rows, "c": rows["c"][::-1].copy()}
    for ids, cells, good in (
        (np.arange(3000), rows, True),
        (np.arange(3000)[::-1].copy(), shuffled, True),  # rows in another order, ids with them
        (np.arange(3000) * 7 % 3000 if math.gcd(7, 3000) == 1 else None, rows, False),  # ids permuted
        (np.arange(3000) + 10_000, rows, False),  # other people
    ):
        right = registered(cells, "c", seed=2, ids=ids).ask(question[1], privacy=MU)
        found = cross_products((question[0], left), (question[1], right))
        value, sd = found.value[0, 0], found.sd[0, 0]
        assert abs(value - (true if good else 0.0)) < 4 * sd < abs(true)


def test_only_people_whom_both_have_count() -> None:
    rows = rows_of(4000)
    first, second = slice(0, 3000), slice(1000, 4000)
    ids = np.arange(4000)
    question = SignSketches("a", 800, "k"), SignSketches("c", 800, "k")
    answers = [
        registered({k: v[part] for k, v in rows.items()}, name, seed=seed, ids=ids[part]).ask(
            asked, privacy=MU
        )
        for part, name, seed, asked in ((first, "a", 5, question[0]), (second, "c", 6, question[1]))
    ]
    found = cross_products((question[0], answers[0]), (question[1], answers[1]))
    both = slice(1000, 3000)
    true = float((rows["a"][both] - 0.5) @ (rows["c"][both] - 0.5))
    assert abs(found.value[0, 0] - true) < 4 * found.sd[0, 0] < abs(true)


def test_the_stated_deviation_is_that_of_the_theorem_and_intervals_cover() -> None:
    m, repetitions = 64, 512
    rows = rows_of(400)
    x, y = (
        np.asarray(
            registered(rows, name, seed=seed).ask(SignSketches(name, m * repetitions, "k"), variance=9).value
        )
        for name, seed in (("a", 7), ("b", 8))
    )
    a, b = rows["a"] - 0.5, rows["b"] - 0.5
    true = float(a @ b)
    covered, deviations = 0, []
    for r in range(repetitions):
        here = slice(r * m, (r + 1) * m)
        found = estimate_products(x[here], y[here], np.full((m, 1), 3.0), np.full((m, 1), 3.0))
        low, high = found.interval(0.9)
        covered += bool(low[0, 0] <= true <= high[0, 0])
        deviations.append(found.sd[0, 0])
    variance = sketch_variance(
        (float(a @ a), float(b @ b)), (9, 9), product=true, quartic=float(a**2 @ b**2), sketches=m
    )
    assert np.mean(np.square(deviations)) == pytest.approx(variance, rel=0.1)
    # A binomial of 512 at .9 has a deviation of 1.3 %; estimates from 64 products are not quite normal.
    assert 0.9 - 0.06 < covered / repetitions < 0.9 + 0.053
    with pytest.raises(ParameterError, match="level of CrossProducts"):
        found.interval(1.0)


def test_the_best_number_of_sketches_is_where_the_variance_is_least() -> None:
    squares, noises = (900.0, 400.0), (2.0, 0.5)
    best = best_sketches(squares, noises)
    assert best == round(math.sqrt(900 * 400 / (2 * 0.5)))

    def variance(m: int) -> float:
        return sketch_variance(squares, (m * noises[0], m * noises[1]), sketches=m)

    assert variance(best) == min(variance(m) for m in range(1, 4000))
    assert max(variance(best // 2), variance(2 * best)) < 1.13 * variance(best)
    assert best_sketches((1e-9, 1e-9), (1, 1)) == 1
    assert best_sketches((1e30, 1e30), (1, 1)) == 2**16


# The databases together.


def _close(found: Floats, sd: Floats, true: Floats, deviations: float = 5.0) -> None:
    assert (np.abs(found - true) <= deviations * sd + 1e-6 * np.abs(true)).all()


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("with_sums", [True, False])
def test_a_gram_matrix_over_two_databases_is_the_one_over_all_columns(
    neighbors: Neighbors, with_sums: bool
) -> None:
    rows = rows_of(6000)
    both = two(rows, neighbors=neighbors)
    names = ["d", "a", "e", "b"]  # mixed up on purpose
    answer = both.ask(Gram(names, with_sums=with_sums), privacy=GaussianDP(mu=4, neighbors=neighbors))
    vectors = centered(rows, names)
    if with_sums:
        vectors = np.column_stack([np.ones(6000), vectors])
    value, sd = np.asarray(answer.value), np.asarray(answer.sd)
    assert np.array_equal(value, value.T)
    assert np.array_equal(sd, sd.T)
    _close(value, sd, vectors.T @ vectors)
    across = value[-4, -3], sd[-4, -3]  # d with a
    assert abs(across[0]) > 10 * across[1]
    assert 4 * (1 - 1e-9) < mu_of(answer.cost) <= 4
    assert answer.sketches is not None
    assert f"{answer.sketches} sign sketches" in answer.statement
    assert len(answer.answers) == 4
    assert answer.to_dict()["statement"] == answer.statement
    assert [part["kind"] for part in answer.to_dict()["answers"]] == ["answer"] * 4


def test_sketches_about_a_noisy_mean_are_far_better_than_about_the_middle() -> None:
    rows = rows_of(6000)
    narrow = {**rows, "a": 0.1 + 0.05 * rows["a"], "c": 0.1 + 0.05 * rows["b"]}
    both = two(narrow)
    recentered = both.ask(Gram(("a", "c")), privacy=GaussianDP(mu=4))
    plain = both.ask(Gram(("a", "c"), with_sums=False), privacy=GaussianDP(mu=4))
    assert 4 * np.asarray(recentered.sd)[1, 2] < np.asarray(plain.sd)[0, 1]
    products = centered(narrow, "ac").T @ centered(narrow, "ac")
    _close(np.asarray(recentered.value)[1:, 1:], np.asarray(recentered.sd)[1:, 1:], products)


def test_three_databases_with_categories_and_a_radius() -> None:
    rows = rows_of(5000)
    job = np.array(["clerk", "nurse", "judge"])[(rows["a"] * 2.99).astype(int)]
    third = Database(
        {"id": np.arange(5000), "job": job},
        schema=schema_of(Column("job", values=("clerk", "nurse", "judge"), closed=True)),
        keep_ids=True,
        random_state=9,
    )
    databases = [registered(rows, "ab"), third, registered(rows, "cde", seed=2)]
    together = VerticalDatabases(databases, key="study", shares=(1, 1, 2))
    hot = np.column_stack([job == level for level in ("clerk", "nurse", "judge")]).astype(float)
    vectors = np.column_stack([rows["a"] - 0.5, hot, rows["e"] - 0.5])
    question = Gram(("a", "job", "e"), center=(0.5, 0, 0, 0, 0.5), with_sums=False)
    answer = together.ask(question, privacy=GaussianDP(mu=6))
    _close(np.asarray(answer.value), np.asarray(answer.sd), vectors.T @ vectors)
    # Rows are shortened part by part, so the whole is no longer than the radius.
    short = together.ask(Gram(("a", "e"), radius=0.1, with_sums=False), privacy=GaussianDP(mu=6))
    trace, noise = np.trace(np.asarray(short.value)), np.linalg.norm(np.diag(np.asarray(short.sd)))
    assert trace < 5000 * 0.1**2 + 5 * noise


def test_the_promise_is_the_sum_over_databases_and_one_charge_alone_is_too_little() -> None:
    rows = rows_of(40)
    ledgers = Ledger.open(":memory:"), Ledger.open(":memory:")
    left, right = (
        registered(rows, "ab", ledger=ledgers[0]),
        registered(rows, "cde", seed=2, ledger=ledgers[1]),
    )
    both = VerticalDatabases([left, right], key="study", sketches=8)
    assert len(both.promises) == 0
    answer = both.ask(Gram(("a", "b", "c", "d", "e"), with_sums=False), privacy=GaussianDP(mu=1.5))
    # The farthest neighbor: one person goes from a corner to the opposite one, in both databases.
    squared = 0.0
    for part, columns in zip(answer.answers[2:], ("ab", "cde"), strict=True):
        moved = 8 * len(columns)
        squared += moved / float(np.asarray(part.sd)[0, 0]) ** 2
    charged = [sum(mu_of(part.cost) ** 2 for part in answer.answers[i::2]) for i in (0, 1)]
    total = both.promises
    assert total == answer.cost
    assert mu_of(total) ** 2 == pytest.approx(sum(charged))
    assert squared == pytest.approx(1.5**2 * 0.9)
    assert max(charged) < squared <= mu_of(total) ** 2
    spent = [ledger.spent() for ledger in ledgers]
    assert [2 * float(book.gaussian) for book in spent] == pytest.approx(charged)
    # Asked again, it is the same and free; asked for something else, the total grows.
    again = both.ask(Gram(("a", "b", "c", "d", "e"), with_sums=False), privacy=GaussianDP(mu=1.5))
    assert again.cached
    assert np.array_equal(again.value, answer.value)
    assert both.promises == total
    both.ask(Sums("a"), privacy=GaussianDP(mu=1))
    assert mu_of(both.promises) == pytest.approx(math.hypot(1.5, 1))


def test_a_database_without_its_ids_refuses_before_anything_is_paid() -> None:
    rows = rows_of(30)
    cells = {"id": np.arange(30), "c": rows["c"]}
    both = VerticalDatabases([registered(rows, "ab"), Database(cells, schema=numbers("c"))], key="study")
    with pytest.raises(ParameterError, match="keep_ids=True"):
        both.ask(Gram(("a", "c")), privacy=MU)
    assert both.promises == ()


def test_a_database_refuses_before_it_is_paid_for_half() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=0.5))
    rows = rows_of(40)
    poor, rich = registered(rows, "ab", ledger=ledger), registered(rows, "cde", seed=2)
    both = VerticalDatabases([poor, rich], key="study", shares=(1, 1))
    with pytest.raises(BudgetExceeded):
        both.ask(Gram(("a", "c")), privacy=GaussianDP(mu=1))
    assert float(ledger.spent().gaussian) == 0
    with pytest.raises(BudgetExceeded):
        both.ask(Gram(("a", "c")), privacy=GaussianDP(mu=0.5), plan=[GaussianDP(mu=0.6)])
    assert float(ledger.spent().gaussian) == 0
    both.ask(Gram(("a", "c")), privacy=GaussianDP(mu=0.7))
    assert float(ledger.spent().gaussian) == pytest.approx(0.7**2 / 4)


def test_a_gram_matrix_inside_one_database_needs_no_sketches() -> None:
    rows = rows_of(300)
    both = two(rows)
    answer = both.ask(Gram(("b", "a")), privacy=MU)
    alone = registered(rows, "ab").expected_sd(Gram(("b", "a")), privacy=MU)
    assert answer.sketches is None
    assert len(answer.answers) == 1
    assert np.array_equal(np.asarray(answer.sd), alone)
    assert mu_of(both.promises) <= 1


def test_sums_and_moments_are_put_together() -> None:
    rows = rows_of(2000)
    for neighbors in NEIGHBORS:
        both, privacy = two(rows, neighbors=neighbors), GaussianDP(mu=2, neighbors=neighbors)
        sums = both.ask(Sums(("c", "a * b", "POWER(e, 2)", "a")), privacy=privacy)
        true = np.array([rows["c"].sum(), rows["a"] @ rows["b"], rows["e"] @ rows["e"], rows["a"].sum()])
        _close(np.asarray(sums.value), np.asarray(sums.sd), true)
        question = Moments(("e", "a", "d"))
        moments = both.ask(question, privacy=privacy)
        away = np.column_stack([rows[name] for name in question.columns]) - 0.5
        true = np.array([2000, *away.sum(axis=0), *(away**2).sum(axis=0)])
        _close(np.asarray(moments.value), np.asarray(moments.sd), true)
        assert np.allclose(both.expected_sd(question, privacy=privacy), moments.sd)
    with pytest.raises(ParameterError, match="must each have columns of one of them"):
        both.ask(Sums("a * c"), privacy=privacy)


def test_correlations_stay_between_minus_one_and_one() -> None:
    rows = rows_of(400)
    outside = 0
    for seed in range(6):
        databases = [registered(rows, names, seed=seed + i) for i, names in enumerate(("ab", "cde"), 1)]
        both = VerticalDatabases(databases, key=f"study {seed}")
        answer = both.correlation(privacy=GaussianDP(mu=3))
        value = np.asarray(answer.value)
        known = ~np.isnan(value)
        assert (np.abs(value[known]) <= 1).all()
        off_diagonal = known & ~np.eye(len(value), dtype=bool)
        outside += int((np.abs(value[off_diagonal]) == 1).sum())
    assert outside > 0  # noise does take some out


def test_correlations_have_their_deviation_and_no_variance_has_none() -> None:
    rows = {**rows_of(8000), "d": np.full(8000, 0.3)}
    both = two(rows)
    answer = both.correlation(privacy=GaussianDP(mu=3))
    value, sd = np.asarray(answer.value), np.asarray(answer.sd)
    true = np.corrcoef(np.column_stack([rows[name] for name in "abce"]).T)
    kept = np.ix_([0, 1, 2, 4], [0, 1, 2, 4])
    assert np.isnan(value[3]).all()
    _close(value[kept], sd[kept], true)
    assert sd[0, 2] < 0.1
    pair = np.asarray(both.correlation(("a", "c"), privacy=GaussianDP(mu=3)).value)
    assert pair.shape == (2, 2)


def test_expected_deviations_are_near_what_even_columns_get() -> None:
    n = 3000
    rows = {"a": np.arange(n) / n, "c": np.arange(n) * 7 % n / n, "b": np.arange(n) * 11 % n / n}
    rows |= {"d": rows["a"], "e": rows["c"]}
    both = two(rows)
    for with_sums in (True, False):
        question = Gram(("a", "b", "c"), with_sums=with_sums)
        expected = np.asarray(both.expected_sd(question, privacy=GaussianDP(mu=3)))
        found = np.asarray(both.ask(question, privacy=GaussianDP(mu=3)).sd)
        assert np.allclose(expected[-3:-1, -3:-1], found[-3:-1, -3:-1])
        assert expected[-3:-1, -1] == pytest.approx(found[-3:-1, -1], rel=0.3)
    assert mu_of(both.cost(question, privacy=GaussianDP(mu=3))) == 3
    private, about = two(rows, neighbors="add-remove"), GaussianDP(mu=1, neighbors="add-remove")
    with pytest.raises(ParameterError, match="while the number of rows is unknown"):
        private.expected_sd(Gram(("a", "c")), privacy=about)
    private.ask(Gram(("a", "c")), privacy=about)
    assert np.asarray(private.expected_sd(Gram(("a", "c")), privacy=about)).shape == (3, 3)
    for db, other in ((private, MU), (both, about)):
        for asked in (db.ask, db.cost, db.expected_sd):
            with pytest.raises(PromiseError, match="must be about the neighbors of the table"):
                asked(Gram(("a", "c")), privacy=other)


def test_the_loss_against_one_database_is_the_root_of_the_number_of_rows() -> None:
    losses = []
    for n in (2000, 32000):
        rows = rows_of(n)
        across = float(np.asarray(two(rows).ask(Gram(("a", "c")), privacy=MU).sd)[1, 2])
        inside = Database(
            {name: rows[name] for name in "ac"}, schema=Schema(columns=numbers("a", "c").columns[1:])
        )
        central = float(np.asarray(inside.expected_sd(Gram(("a", "c")), privacy=MU))[1, 2])
        losses.append(across / central)
    # Both about 2 |a| sqrt(d) / mu against a constant.
    assert losses[1] / losses[0] == pytest.approx(4, rel=0.25)
    assert 10 < losses[0] < 100


# Learners.


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("radius", ["auto", None])
def test_principal_components_across_databases(neighbors: Neighbors, radius: str | None) -> None:
    rows = rows_of(8000)
    both = two(rows, neighbors=neighbors)
    privacy = GaussianDP(mu=4, neighbors=neighbors)
    model = PrivatePCA(n_components=2, privacy=privacy, radius=radius).fit_database(both)
    X = np.column_stack([rows[name] for name in "abcde"])
    _, vectors = np.linalg.eigh(np.cov(X.T))
    assert abs(model.components_[0] @ vectors[:, -1]) > 0.98
    assert model.distinguishable_[0]
    assert model.promises_[0].mu == 4
    assert mu_of(both.promises) <= 4
    assert model.transform(pd.DataFrame(rows)).shape == (8000, 2)


def test_ridge_across_databases() -> None:
    rows = rows_of(8000)
    first = registered(rows, "ab")
    second = registered(rows, "cde", seed=2, target="d")
    both = VerticalDatabases([first, second], key="study")
    model = PrivateRidge(privacy=ApproxDP(epsilon=20, delta=1e-6)).fit_database(both)
    X, y = pd.DataFrame({name: rows[name] for name in "abce"}), rows["d"]
    assert model.score(X, y) > 0.7
    # Without the other database's columns there is less to learn.
    alone = PrivateRidge(privacy=ApproxDP(epsilon=20, delta=1e-6)).fit_database(second, columns=["e"])
    assert alone.score(X[["e"]], y) < model.score(X, y) - 0.1


# What is refused.


def test_a_question_goes_over_the_wire_and_back() -> None:
    question = SignSketches(("a", "b"), 5, "k", center=(0.5, 0.25), radius=0.5)
    assert aggregate_from_dict(question.to_dict()) == question
    assert SignSketches("a", 5, "k").columns == ("a",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sketches": 0}, "sketches of SignSketches must be a whole number from 1"),
        ({"sketches": 2.5}, "sketches of SignSketches"),
        ({"sketches": True}, "sketches of SignSketches"),
        ({"sketches": 2**16 + 1}, "sketches of SignSketches"),
        ({"key": ""}, "key of SignSketches must be a text"),
        ({"key": b"k"}, "key of SignSketches must be a text"),
        ({"key": "k" * 300}, "key of SignSketches must be a text"),
    ],
)
def test_sketches_that_make_no_sense_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        SignSketches(**{"columns": "a", "sketches": 3, "key": "k", **change})


def test_questions_with_different_signs_are_not_combined() -> None:
    rows = rows_of(30)
    db = registered(rows, "a")
    asked = SignSketches("a", 4, "k")
    answer = db.ask(asked, privacy=MU)
    for other, words in (
        (SignSketches("a", 4, "q"), "key of the two"),
        (SignSketches("a", 5, "k"), "sketches of"),
    ):
        with pytest.raises(ParameterError, match=words):
            cross_products((asked, answer), (other, db.ask(other, privacy=MU)))


def test_databases_that_do_not_go_together_are_refused() -> None:
    rows = rows_of(30)
    first = registered(rows, "ab")
    fewer = registered({name: values[:20] for name, values in rows.items()}, "cde")
    bare = Database({"c": rows["c"]}, schema=Schema(columns=[Column("c", lower=0, upper=1)]))
    for others, words in (
        ([], "must be at least two"),
        ([registered(rows, "bc")], "'b' again"),
        ([fewer], "same number of rows under replace-one neighbors, had 30, 20"),
        ([bare], "must have an id_column, and database 2"),
        ([registered(rows, "cde", neighbors="add-remove")], "neighbors of all schemas"),
        ([registered(rows, "cde", unit="household")], "unit of all schemas"),
        ([registered(rows, "cde", row_count="private")], "row_count of all schemas"),
        ([registered(rows, "cd", target="c"), registered(rows, "e", target="e")], "one target at most"),
    ):
        with pytest.raises(ParameterError, match=words):
            VerticalDatabases([first, *others], key="k")
    hidden = [registered(rows, names, row_count="private") for names in ("ab", "cde")]
    with pytest.raises(ParameterError, match="must be public under replace-one"):
        VerticalDatabases(hidden, key="k")
    private = [registered(r, names, neighbors="add-remove") for r, names in ((rows, "ab"), (SMALL, "cde"))]
    assert VerticalDatabases(private, key="k").n_rows is None  # that they differ is nobody's business


def test_questions_that_cannot_go_across_are_refused_before_anything_is_paid() -> None:
    rows = rows_of(30)
    both = two(rows)
    for question, words in (
        (Histogram("a", {"a": [0.5]}), "must be a Gram, Sums or Moments"),
        (Gram(("a", "c"), edges={"a": [0.5]}, center=(0, 0, 0.5)), "edges of a Gram over several databases"),
        (Gram(("a", "zz")), "'zz'"),
    ):
        with pytest.raises(ParameterError, match=words):
            both.ask(question, privacy=MU)
    for promise in (PureDP(epsilon=1), NoPromise("none"), None):
        with pytest.raises(PromiseError, match="privacy of VerticalDatabases must be"):
            both.ask(Gram(("a", "c")), privacy=promise)
    with pytest.raises(PromiseError, match="was a variance"):
        both.ask(Gram(("a", "c")), variance=1.0)
    with pytest.raises(PromiseError, match="covers a alone"):
        both.ask(Gram(("a", "c")), privacy=GaussianDP(mu=1, covers=("a",)))
    assert both.promises == ()
    for change, words in (
        ({"key": ""}, "key of VerticalDatabases"),
        ({"sketches": 0}, "sketches of VerticalDatabases"),
        ({"shares": (1,)}, "shares of VerticalDatabases must be 2 numbers"),
        ({"shares": (1, 0)}, "shares of VerticalDatabases"),
    ):
        with pytest.raises(ParameterError, match=words):
            VerticalDatabases(both.databases, **{"key": "k", **change})  # type: ignore[arg-type]


def test_a_table_without_rows_answers_with_noise() -> None:
    rows = {name: values[:0] for name, values in SMALL.items()}
    answer = two(rows).ask(Gram(("a", "c")), privacy=MU)
    assert np.isfinite(np.asarray(answer.value)).all()
