"""Which rows of a person are used: the same everywhere, by the person's own rows alone, and not too many."""

from __future__ import annotations

import gc
import hashlib
import inspect
import tracemalloc
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, cast, get_args

import duckdb
import numpy as np
import pandas as pd
import pytest

import discreet.learn
from discreet import ApproxDP, Column, Database, GaussianDP, GaussianRelease, Ledger, PureDP, Schema
from discreet.errors import DataError, DiscreetError
from discreet.noise import Stream
from discreet.query import unit_rows
from discreet.query.aggregates import Aggregate, ClusterSums, Gram, Histogram, Moments, Sums
from discreet.query.calibration import QueryNoise
from discreet.query.curation import Curation, exact_words
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.unit_rows import kept_rows, ledger_salt, row_digests
from discreet.release import METHODS
from discreet.schema.schema import Neighbors
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from discreet._types import AnyArray, Words
    from discreet.query.engines.base import Engine
    from discreet.tables import Table

    Rows = Mapping[str, Sequence[Any] | AnyArray]

SALT = "5a" * 32
PRIVACY = ApproxDP(epsilon=1, delta=1e-6)


def visits_schema(most: int, neighbors: Neighbors = "replace-one") -> Schema:
    return Schema(
        columns=[
            Column("who", role="id"),
            Column("cost", lower=0, upper=3, required=False),
            Column("days", type="integer", lower=0, upper=2),
            Column("ward", values=("a", "b")),
        ],
        id_column="who",
        max_rows_per_unit=most,
        neighbors=neighbors,
    )


def visits(rng: Any, ids: Sequence[Any]) -> dict[str, AnyArray]:
    """Rows of some people, many of them equal, with missing cells."""
    n = len(ids)
    cost = rng.integers(0, 4, n) * 1.0
    cost[rng.random(n) < 0.2] = np.nan
    return {
        "who": np.array(ids, dtype=object),
        "cost": cost,
        "days": rng.integers(0, 3, n),
        "ward": np.array(["a", "b"], dtype=object)[rng.integers(0, 2, n)],
    }


def ids_of(rng: Any, n: int, kind: str) -> list[Any]:
    numbers = rng.integers(-3, n // 4, n).tolist()
    if kind == "integers":
        return list(map(int, numbers))
    return [None if i == 0 else f"pérson:{i}, x" for i in numbers]


def used_rows(rows: Rows, curation: Curation, salt: str) -> dict[Any, list[tuple[int, ...]]]:
    """The rule, written once more: each person's rows sorted by digest and cells, the first few taken."""
    schema = curation.schema
    with open_table({name: values for name, values in rows.items() if name != "who"}) as table:
        bare = Schema(columns=schema.released)
        arrays = [Curation.from_schema(bare).encode(batch) for batch in table.batches(bare)]
    cells = [
        row for part in arrays for row in exact_rows(part[name] for name in curation.exact_identifiers())
    ]
    people: dict[Any, list[tuple[str, tuple[int, ...]]]] = defaultdict(list)
    for who, row in zip(rows["who"], cells, strict=True):
        text = f"{salt}:{'' if who is None else who}:{','.join(map(str, row))}"
        people[who].append((hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), row))
    most = schema.max_rows_per_unit
    return {who: [row for _, row in sorted(own)[:most]] for who, own in people.items()}


def by_hand(rows: Rows, curation: Curation, salt: str) -> Counter[tuple[int, ...]]:
    return Counter(row for own in used_rows(rows, curation, salt).values() for row in own)


def exact_rows(columns: Iterable[AnyArray]) -> list[tuple[int, ...]]:
    """Rows of exact cells as integers: a float by its bits."""
    return list(zip(*(exact_words(values).tolist() for values in columns), strict=True))


def held(engine: Engine) -> Counter[tuple[int, ...]]:
    assert engine.curation is not None
    return Counter(
        row for part in engine.batches(engine.curation.exact_identifiers()) for row in exact_rows(part)
    )


def registered(rows: Any, schema: Schema, salt: str = SALT) -> DuckDBEngine:
    engine = DuckDBEngine()
    engine.register(rows, Curation.from_schema(schema), salt=salt)
    return engine


@pytest.mark.parametrize("kind", ["integers", "text"])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_rows_of_a_person_are_ranked_by_a_salted_hash(kind: str, most: int) -> None:
    rng = Stream.from_seed(most).generator()
    schema = visits_schema(most)
    rows = visits(rng, ids_of(rng, 400, kind))
    engine = registered(rows, schema)
    found = held(engine)
    engine.close()
    assert found == by_hand(rows, Curation.from_schema(schema), SALT)
    assert found != by_hand(rows, Curation.from_schema(schema), SALT[::-1])
    # In any order of rows, and in whatever kind of source.
    order = rng.permutation(400)
    sources: list[Any] = [{name: values[order] for name, values in rows.items()}, pd.DataFrame(rows)]
    for again in sources:
        engine = registered(again, schema)
        assert held(engine) == found
        engine.close()


def test_the_rule_is_what_sql_makes_of_it() -> None:
    rng = Stream.from_seed(8).generator()
    schema = visits_schema(2)
    curation = Curation.from_schema(schema)
    rows = visits(rng, ids_of(rng, 300, "text"))
    engine = registered(rows, schema)
    found = held(engine)
    engine.close()
    names = list(curation.exact_identifiers())
    with open_table({name: values for name, values in rows.items() if name != "who"}) as table:
        bare = Schema(columns=schema.released)
        (batch,) = table.batches(bare)
    arrays = Curation.from_schema(bare).encode(batch)
    cells = pd.DataFrame({"id": rows["who"], **{name: exact_words(arrays[name]) for name in names}})
    joined = " || ',' || ".join(names)
    query = (
        f"SELECT {', '.join(names)} FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY "
        f"md5('{SALT}' || ':' || coalesce(id, '') || ':' || {joined}), {', '.join(names)}) AS place "
        "FROM cells) WHERE place <= 2"
    )
    with duckdb.connect() as connection:
        connection.register("cells", cells)
        assert Counter(connection.execute(query).fetchall()) == found


ODD_IDS = [
    "",
    "a",
    "%s %d",
    "it's",
    "a\0b",
    " a ",
    "é",
    "e\u0301",
    "😀" * 3,
    "x" * 70_000,
    "-0",
    "1e5",
    '"',
    "\n",
]


@pytest.mark.parametrize("salt", ["", SALT, "it's 5 %"])
def test_digests_are_those_of_the_text_of_a_row(salt: str) -> None:
    schema = visits_schema(2)
    curation = Curation.from_schema(schema)
    cost = [-1.0, -0.0, 5e-324, 1e-140, 0.1, 2.5, 3.0, 9e300, np.nan, np.inf, -np.inf, 1.5, 2.0, 0.3]
    rows = {"who": np.array(ODD_IDS, object), "cost": cost, "days": np.arange(14) % 3, "ward": ["a", "b"] * 7}
    mask = np.arange(14) != 3
    with open_table(rows) as table:
        (batch,) = table.batches(schema, ids=True, id_texts=True)
    arrays = curation.encode(batch)
    cells = exact_rows(arrays[name] for name in curation.exact_identifiers())
    texts = [f"{salt}:{who}:{','.join(map(str, row))}" for who, row in zip(ODD_IDS, cells, strict=True)]
    expected = [hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() for text in texts]
    for marked in (None, mask, ~mask, np.zeros(14, bool)):
        halves = row_digests(curation, salt, batch, marked)
        found = [f"{first:016x}{second:016x}" for first, second in zip(*halves, strict=True)]
        assert found == [expected[i] for i in np.flatnonzero(np.ones(14, bool) if marked is None else marked)]


def test_hashed_rows_are_let_go_at_once() -> None:
    schema = visits_schema(2)
    with open_table(visits(Stream.from_seed(2).generator(), list(range(20_000)))) as table:
        (batch,) = table.batches(schema, ids=True, id_texts=True)
    gc.disable()  # what is only in a cycle of references would go at some later time
    try:
        tracemalloc.start()
        row_digests(Curation.from_schema(schema), SALT, batch)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            row_digests(Curation.from_schema(schema), SALT, batch)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert grown < 20_000 * 8  # one column of one call


def test_rows_are_ranked_as_by_the_whole_digest() -> None:
    rng = Stream.from_seed(13).generator()
    for n, units, most in (
        (0, 1, 9),
        (1, 1, 9),
        (50, 1, 2**64),
        (3000, 40, 2**64),
        (3000, 900, 3),
        (64, 64, 1),
    ):
        unit = rng.integers(0, units, n).astype(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
        first, second = (rng.integers(0, most, n, np.uint64) for _ in range(2))
        assert np.array_equal(unit_rows._rank_order(unit, first, second), np.lexsort((second, first, unit)))


def test_postgresql_holds_the_same_rows(postgres_url: str) -> None:
    import psycopg

    from discreet.query.engines._postgres import PostgresEngine

    rng = Stream.from_seed(9).generator()
    schema = visits_schema(2)
    rows = visits(rng, ids_of(rng, 200, "text"))
    with psycopg.connect(postgres_url) as server:
        server.execute("CREATE TABLE visits (who text, cost float8, days int, ward text)")
        for row in zip(*rows.values(), strict=True):
            who, cost, days, ward = row
            server.execute(
                "INSERT INTO visits VALUES (%s, %s, %s, %s)",
                (who, None if np.isnan(cost) else float(cost), int(days), ward),
            )
    curation = Curation.from_schema(schema)
    engine = PostgresEngine(postgres_url)
    version = engine.register(f"{postgres_url}?table=visits", curation, salt=SALT)
    assert held(engine) == by_hand(rows, curation, SALT)
    engine.close()
    local = registered(rows, schema)
    assert local.version == version
    local.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["integers", "text"])
def test_spark_holds_the_same_rows(spark: Any, kind: str) -> None:
    from discreet.query.engines._spark import SparkEngine

    rng = Stream.from_seed(10).generator()
    schema = visits_schema(2)
    rows = visits(rng, ids_of(rng, 200, kind))
    listed = [
        (who, None if np.isnan(cost) else float(cost), int(days), str(ward))
        for who, cost, days, ward in zip(*rows.values(), strict=True)
    ]
    types = f"who {'long' if kind == 'integers' else 'string'}, cost double, days long, ward string"
    frame = spark.createDataFrame(listed, types).repartition(3)
    local = registered(rows, schema)
    engine = SparkEngine()
    assert engine.register(frame, Curation.from_schema(schema), salt=SALT) == local.version
    engine.close()
    local.close()
    with pytest.raises(DiscreetError, match="Cast the id to text in a view"):
        SparkEngine().register(frame.withColumn("who", frame["cost"]), Curation.from_schema(schema))


def test_asking_again_after_another_registration_is_free(tmp_path: Path) -> None:
    rng = Stream.from_seed(11).generator()
    schema = visits_schema(2)
    rows = visits(rng, ids_of(rng, 500, "integers"))
    answers = []
    for _ in range(3):
        order = rng.permutation(500)
        shown = {name: values[order] for name, values in rows.items()}
        ledger = Ledger.open(tmp_path / "visits.ledger")
        with Database(shown, schema=schema, ledger=ledger) as db:
            answers.append(db.ask(Sums("cost"), privacy=PRIVACY))
    assert [answer.cached for answer in answers] == [False, True, True]
    assert len({tuple(np.asarray(answer.value)) for answer in answers}) == 1


def test_releases_use_the_rows_that_questions_use(tmp_path: Path) -> None:
    rng = Stream.from_seed(12).generator()
    schema = visits_schema(2)
    rows = visits(rng, ids_of(rng, 300, "integers"))
    ledger = Ledger.open(tmp_path / "visits.ledger")
    salt = ledger_salt(ledger, schema)
    assert ledger.secret().hex() not in salt
    seen: Counter[tuple[int, ...]] = Counter()

    def watch(truth: Mapping[str, AnyArray], _: object) -> None:
        curation = Curation.from_schema(schema)
        arrays = curation.encode(truth)
        seen.update(exact_rows(arrays[name] for name in curation.exact_identifiers()))

    method = GaussianRelease(privacy=PRIVACY, schema=schema, ledger=ledger)
    done = method.publish(rows, tmp_path / "published.parquet", watch=watch)
    assert done.rows_salt == salt
    assert seen == by_hand(rows, Curation.from_schema(schema), salt)
    assert len(method.release(rows).columns["cost"]) == done.n_rows == seen.total()
    # Without a ledger the salt follows from the key of the release.
    alone = GaussianRelease(privacy=PRIVACY, schema=schema, random_state=1)
    salts = {alone.publish(rows, tmp_path / f"{i}.parquet").rows_salt for i in range(2)}
    assert len(salts) == 1
    assert salts != {salt}


QUESTIONS: list[Aggregate] = [
    Sums(("cost", "days * cost", "ward = 'b'", "cost IS NULL")),
    Histogram(("days", "ward")),
    Moments(("cost", "days", "ward")),
    Gram(("cost", "ward")),
    ClusterSums(("cost", "days"), ((0.1, 0.2), (0.8, 0.7)), radius=0.5),
]


def neighbor(rng: Any, rows: dict[str, AnyArray], neighbors: Neighbors) -> dict[str, AnyArray]:
    """Replace, add or remove one person with up to six rows, anywhere in the table."""
    who = rows["who"][rng.integers(len(rows["who"]))]
    others = {name: values[rows["who"] != who] for name, values in rows.items()}
    size = int((rows["who"] == who).sum())
    if neighbors == "add-remove":
        if rng.random() < 0.5:
            return others
        others, size = rows, int(rng.integers(1, 7))
    new = visits(rng, [10_000] * size)
    joined = {name: np.concatenate([others[name], new[name]]) for name in rows}
    order = rng.permutation(len(joined["who"]))
    return {name: values[order] for name, values in joined.items()}


def brute_force(neighbors: Neighbors, most: int, trials: int) -> float:
    """Return the largest change of any question as a part of its stated bound."""
    rng = Stream.from_seed(100 * most + len(neighbors)).generator()
    schema = visits_schema(most, neighbors)
    curation = Curation.from_schema(schema)
    largest = 0.0
    for _ in range(trials):
        rows = visits(rng, rng.integers(0, 4, 14).tolist())
        pair = [registered(table, schema) for table in (rows, neighbor(rng, rows, neighbors))]
        before, after = map(held, pair)
        gone, come = (before - after).total(), (after - before).total()
        assert max(gone, come) <= most
        if neighbors == "replace-one":
            assert gone == come
        for question in QUESTIONS:
            bound = question.bind(curation, neighbors)
            first, second = (np.array(bound.exact(engine), dtype=object) for engine in pair)
            change = np.abs(second - first)
            squared = int(sum(p * c * c for p, c in zip(bound.precision, change, strict=True)))
            absolute = int(sum(w * c for w, c in zip(bound.weight, change, strict=True)))
            assert squared <= most**2 * bound.squared
            assert absolute <= most * bound.absolute
            largest = max(largest, squared / (most**2 * bound.squared))
        for engine in pair:
            engine.close()
    return largest


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", get_args(Neighbors))
@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_person_with_several_rows_changes_sums_by_no_more_than_is_stated(
    neighbors: Neighbors, most: int
) -> None:
    # Some neighbors come close to the bound, so that one without the square of most would fail.
    assert brute_force(neighbors, most, 6) > 0.3


@pytest.mark.stats
@pytest.mark.parametrize("neighbors", get_args(Neighbors))
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_many_neighbors_with_several_rows_per_person(neighbors: Neighbors, most: int) -> None:
    brute_force(neighbors, most, 150)


def test_noise_grows_with_the_rows_of_a_person() -> None:
    sds = []
    for most in (1, 3):
        schema = visits_schema(most)
        bound = Sums("cost").bind(Curation.from_schema(schema), "replace-one")
        sds.append(QueryNoise.calibrate(bound, schema, privacy=PRIVACY).sd(bound)[0])
    assert sds[1] == pytest.approx(3 * sds[0], rel=1e-9)


def test_a_promise_says_how_many_rows_of_a_person_it_covers() -> None:
    rng = Stream.from_seed(3).generator()
    for most, neighbors in ((1, "replace-one"), (2, "replace-one"), (2, "add-remove")):
        schema = visits_schema(most, neighbors)  # type: ignore[arg-type]
        with Database(visits(rng, [1, 1, 2]), schema=schema) as db:
            (cost,) = db.count("days > 1", privacy=GaussianDP(mu=1, neighbors=schema.neighbors)).cost
        used = f"at most {most} row{'s' * (most > 1)} of each person {'are' if most > 1 else 'is'} used"
        assert cost.assumes[0] == used
        assert ("how many rows each unit has is public" in cost.assumes) == (neighbors == "replace-one")


def test_keeping_other_rows_of_others_is_caught() -> None:
    """A rule that looks at the whole table, such as a random choice by place, moves other people's rows."""
    rng = Stream.from_seed(4).generator()
    schema = visits_schema(1)
    rows = visits(rng, sorted(rng.integers(0, 20, 100).tolist()))
    other = {name: values[rows["who"] != rows["who"][0]] for name, values in rows.items()}

    def by_place(table: Rows) -> Counter[tuple[int, ...]]:
        n = len(table["who"])
        chosen = {table["who"][i]: i for i in Stream.from_seed(n).generator().permutation(n)}
        kept = sorted(chosen.values())
        return Counter(zip(*(np.asarray(table[c])[kept].tolist() for c in ("days", "ward")), strict=True))

    assert ((by_place(rows) - by_place(other)) + (by_place(other) - by_place(rows))).total() > 1
    ids, kept = kept_rows(open_table(rows), schema, SALT)
    assert kept.sum() == len(np.unique(ids))


# A matrix has no ids, so that the rows of a person cannot be limited.

NUMBERS = [Column("id", role="id"), Column("a", lower=0, upper=1), Column("b", lower=0, upper=1)]
MATRIX = Stream.from_seed(0).generator().random((50, 2))
LABELS = (MATRIX[:, 0] > 0.5).astype(int)
OPTIONS: dict[str, dict[str, Any]] = {
    "gaussian": {"privacy": PRIVACY},
    "bounded": {"support": 1.0},
    "invariant": {"variance": 0.1},
}


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("given", [MATRIX, MATRIX.tolist()], ids=["array", "list"])
def test_a_release_of_a_matrix_is_refused_where_the_schema_has_ids(name: str, most: int, given: Any) -> None:
    target = Column("y", values=(0, 1), role="target")
    for columns, labels in ((NUMBERS, None), ([*NUMBERS, target], LABELS)):
        schema = Schema(columns=columns, id_column="id", max_rows_per_unit=most)
        ledger = Ledger.open(":memory:")
        options = OPTIONS.get(name, {"privacy": PureDP(epsilon=1)})
        method = METHODS[name](schema=schema, ledger=ledger, **options)
        with pytest.raises(DataError, match="with the id column 'id', was a matrix"):
            method.release(given, labels)
        assert not list(ledger.entries())


def learners() -> list[Callable[..., Any]]:
    found = [getattr(discreet.learn, name) for name in discreet.learn.__all__]
    return [kind for kind in found if hasattr(kind, "fit") and "schema" in inspect.signature(kind).parameters]


@pytest.mark.parametrize("learner", learners(), ids=lambda kind: kind.__name__)
def test_a_learner_refuses_a_matrix_where_the_schema_has_ids(learner: Callable[..., Any]) -> None:
    number = learner.__name__ == "PrivateRidge"
    target = (
        Column("y", lower=0, upper=1, role="target") if number else Column("y", values=(0, 1), role="target")
    )
    schema = Schema(columns=[*NUMBERS, target], id_column="id", max_rows_per_unit=2)
    for given in (MATRIX, np.column_stack([np.arange(50), MATRIX])):
        with pytest.raises(DataError, match="with the id column 'id', was a matrix"):
            learner(schema=schema, privacy=PRIVACY).fit(given, LABELS)
    frame = pd.DataFrame({"id": np.arange(50) // 5, "a": MATRIX[:, 0], "b": MATRIX[:, 1]})
    fitted = learner(schema=schema, privacy=PRIVACY, random_state=1).fit(frame, LABELS)
    assert all(promise.unit == "person" for promise in fitted.promises_)


def test_sums_refuse_rows_without_the_ids_that_the_schema_has() -> None:
    schema = Schema(columns=NUMBERS, id_column="id", max_rows_per_unit=2)
    with pytest.raises(DataError, match="source of Database must be a table with the id column"):
        Database(MATRIX, schema=schema)
    with pytest.raises(DiscreetError, match="'id'"):
        Database({"a": MATRIX[:, 0], "b": MATRIX[:, 1]}, schema=schema)


def test_which_rows_stay_depends_on_the_secret_of_the_ledger(tmp_path: Path) -> None:
    schema = visits_schema(2)
    salts = []
    for name in ("first", "second", "first"):
        with Ledger.open(tmp_path / name) as ledger:
            salts.append(ledger_salt(ledger, schema))
    assert salts[0] == salts[2] != salts[1]
    with Ledger.open(tmp_path / "first") as ledger:
        assert ledger_salt(ledger, visits_schema(3)) != salts[0]
        assert ledger.secret().hex() not in salts


def test_groups_of_ids_choose_the_rows_that_one_sort_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    who = Stream.from_seed(7).generator().integers(0, 900, 3000)
    rows = {"who": who, "cost": np.arange(3000.0) % 7, "days": who % 5, "ward": np.full(3000, "a", object)}
    with open_table(rows) as table:
        _, whole = kept_rows(table, visits_schema(2), SALT)
        monkeypatch.setattr(unit_rows, "_ONE_BUCKET", 10)
        _, in_groups = kept_rows(table, visits_schema(2), SALT)
    assert 0 < whole.sum() < 3000
    assert np.array_equal(whole, in_groups)


class _Ids:
    """Table of which only the ids are read."""

    def read_ids(self, schema: Schema, *, id_salt: str = "") -> Iterator[Words]:
        for start in range(0, 2**21, 2**16):
            yield np.arange(start, start + 2**16, dtype=np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)


def test_rows_are_chosen_in_few_bytes_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def peak() -> float:
        tracemalloc.start()
        kept_rows(cast("Table", _Ids()), visits_schema(1), SALT)
        bytes_held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return bytes_held / 2**21

    assert peak() < 14
    monkeypatch.setattr(unit_rows, "_ONE_BUCKET", 2**21)
    assert peak() > 30


def _pairs_kept(people: int) -> float:
    """Chi-squared distance from equal chances of which two of four different rows each person keeps."""
    schema = visits_schema(2)
    cost = np.tile([0.0, 1.0, 2.0, 3.0], people)
    rows = {
        "who": np.repeat(np.arange(people), 4),
        "cost": cost,
        "days": np.ones(4 * people, int),
        "ward": np.full(4 * people, "a", object),
    }
    with open_table(rows) as table:
        _, kept = kept_rows(table, schema, SALT)
    pairs = Counter(map(tuple, cost[kept].reshape(people, 2).tolist()))
    expected = people / 6
    return sum((pairs[a, b] - expected) ** 2 for a in range(4) for b in range(a + 1, 4)) / expected


def test_every_row_of_a_person_is_kept_equally_often(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 51.2  # of chi-squared with 5 degrees of freedom, passed once in 10**9
    assert _pairs_kept(3000) < limit
    real = unit_rows.row_digests

    def without_id(curation: Curation, salt: str, batch: Any, rows: Any = None) -> tuple[Words, Words]:
        batch.id_texts[:] = b""
        return real(curation, salt, batch, rows)

    def linear(curation: Curation, _: str, batch: Any, rows: Any = None) -> tuple[Words, Words]:
        # A uniform number for the person, to which the cells are added.
        sums = batch.ids[rows] + batch["cost"][rows].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return sums, sums

    for twin in (without_id, linear):
        monkeypatch.setattr(unit_rows, "row_digests", twin)
        assert _pairs_kept(3000) > limit
