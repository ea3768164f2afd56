"""Numbers of people with several rows: exact on every engine, and charged for what one person can change."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

from discreet import Database, GaussianDP, Ledger, PureDP, Schema
from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.query.aggregates import DistinctUnits, Histogram, Sums, aggregate_from_dict
from discreet.query.calibration import QueryNoise
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.schema.schema import Neighbors
from tests.query.test_engines import ENGINES, KINDS
from tests.query.test_unit_rows import SALT, ids_of, registered, used_rows, visits, visits_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from discreet.query.engines.base import Engine

    Row = tuple[int, int]  # number of days, code of the ward
    Person = tuple[Row, ...]

# pyspark warns about newer versions of pandas whenever Arrow is used.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

ALL_ROWS: list[Row] = list(itertools.product(range(3), range(3)))  # the last ward is "other"


def _ask(question: DistinctUnits, cells: Sequence[Any], cell: Callable[[Row], Any]) -> Any:
    """A question, its cells, and the cell of a row; None if the row is not looked at."""
    return pytest.param(question, list(cells), cell, id=json.dumps(question.to_dict())[25:])


ASKED = [
    _ask(DistinctUnits(), [0], lambda row: 0),
    _ask(DistinctUnits(where="days > 0"), [0], lambda row: 0 if row[0] > 0 else None),
    _ask(DistinctUnits("ward"), range(3), lambda row: row[1]),
    _ask(DistinctUnits("days", where="ward = 'a'"), range(3), lambda row: row[0] if row[1] == 0 else None),
    _ask(DistinctUnits("days", {"days": [1]}), range(2), lambda row: int(row[0] >= 1)),
    _ask(DistinctUnits(("days", "ward")), ALL_ROWS, lambda row: row),
]


def counts(people: Iterable[Person], cells: Sequence[Any], cell: Callable[[Row], Any]) -> list[int]:
    """The number of people in each cell, by the words of the definition."""
    table = list(people)
    return [sum(any(cell(row) == one for row in person) for person in table) for one in cells]


def persons(most: int) -> list[Person]:
    """Everything that one person can be: one to `most` rows."""
    sizes = range(1, most + 1)
    return [p for size in sizes for p in itertools.combinations_with_replacement(ALL_ROWS, size)]


def largest_changes(
    most: int, neighbors: Neighbors, cells: Sequence[Any], cell: Callable[[Row], Any]
) -> tuple[int, int]:
    """The largest sum of squares and of absolute values of changes, over all small tables and neighbors."""
    everyone = persons(most)
    pairs: list[tuple[list[Person], list[Person]]]
    if neighbors == "add-remove":
        pairs = [([person], []) for person in everyone]
    else:
        pairs = [([a], [b]) for a, b in itertools.combinations(everyone, 2) if len(a) == len(b)]
    squared = absolute = 0
    bystanders = everyone[::6] if most < 3 else []  # other people in the table
    for others in [[], *([person] for person in bystanders)]:
        for before, after in pairs:
            u, v = (counts([*others, *own], cells, cell) for own in (before, after))
            changes = [b - a for a, b in zip(u, v, strict=True)]
            squared = max(squared, sum(c * c for c in changes))
            absolute = max(absolute, sum(map(abs, changes)))
    return squared, absolute


@pytest.mark.parametrize("neighbors", get_args(Neighbors))
@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize(("question", "cells", "cell"), ASKED)
def test_one_person_moves_the_counts_as_far_as_is_charged_and_no_further(
    question: DistinctUnits, cells: list[Any], cell: Callable[[Row], Any], most: int, neighbors: Neighbors
) -> None:
    bound = question.bind(Curation.from_schema(visits_schema(most, neighbors)), neighbors)
    assert bound.by_unit
    found = largest_changes(most, neighbors, cells, cell)
    if neighbors == "replace-one" and question == DistinctUnits():
        # Both tables have as many people; their number is charged all the same: no one declared it public.
        assert found == (0, 0)
        assert (bound.squared, bound.absolute) == (1, 1)
        return
    assert found == (bound.squared, bound.absolute)
    # Wrong twins: 1 for many cells, and a count of rows with the charge of all rows of a person.
    if len(cells) > 1 and (most > 1 or neighbors == "replace-one"):
        assert found[0] > 1
    if most > 1:
        by_row = Histogram(question.columns, question.edges) if question.columns else Sums("days > 0")
        rows = by_row.bind(Curation.from_schema(visits_schema(most, neighbors)), neighbors)
        assert found[0] < most**2 * rows.squared


def test_counting_people_before_their_rows_are_limited_is_caught() -> None:
    person = tuple(ALL_ROWS)
    cells, cell = ALL_ROWS, lambda row: row
    bound = DistinctUnits(("days", "ward")).bind(Curation.from_schema(visits_schema(2)), "add-remove")
    assert sum(counts([person], cells, cell)) == 9 > bound.squared == 2


def test_noise_does_not_grow_with_the_rows_of_a_person_unless_cells_do() -> None:
    def sd(question: Any, most: int, privacy: Any) -> float:
        schema = visits_schema(most)
        bound = question.bind(Curation.from_schema(schema), "replace-one")
        return float(QueryNoise.calibrate(bound, schema, privacy=privacy).sd(bound).ravel()[0])

    where = "days > 0"
    for privacy in (PureDP(epsilon=1.0), GaussianDP(mu=1.0)):
        one = sd(Sums(where), 1, privacy)
        assert sd(DistinctUnits(where=where), 1, privacy) == one
        assert sd(DistinctUnits(where=where), 9, privacy) == one
        assert sd(Sums(where), 9, privacy) == pytest.approx(9 * one, rel=1e-9)
    # With three wards one person is in at most three cells, however many rows there are.
    wards = [sd(DistinctUnits("ward"), most, PureDP(epsilon=1.0)) for most in (1, 2, 9)]
    assert wards[0] == sd(Histogram("ward"), 1, PureDP(epsilon=1.0))
    assert wards[1:] == pytest.approx([1.5 * wards[0]] * 2, rel=1e-4)


@pytest.fixture(params=KINDS)
def open_visits(request: pytest.FixtureRequest) -> Iterator[Callable[..., Engine]]:
    """Open an engine of each kind on visits, and close what was opened."""
    made: list[Engine] = []

    def opened(rows: dict[str, Any], schema: Schema) -> Engine:
        source: Any = rows
        if request.param == "spark":
            import pyarrow as pa

            kinds = {"who": None if len(rows["who"]) else "string", "cost": "float64", "days": "int64"}
            table = {
                name: pa.array(values.tolist(), kinds.get(name, "string"), from_pandas=True)
                for name, values in rows.items()
            }
            source = request.getfixturevalue("spark").createDataFrame(pa.table(table))
        made.append(ENGINES[request.param](request))
        made[-1].register(source, Curation.from_schema(schema), salt=SALT)
        return made[-1]

    yield opened
    for engine in made:
        engine.close()


STEPS = "EXP(cost / 3) > 2 OR EXP(cost / 3) < 1.1 AND SQRT(cost) < 1"


@pytest.mark.parametrize("kind", ["integers", "text"])
def test_every_engine_counts_the_same_people(open_visits: Callable[..., Engine], kind: str) -> None:
    rng = Stream.from_seed(5).generator()
    schema = visits_schema(3)
    curation = Curation.from_schema(schema)
    rows = visits(rng, ids_of(rng, 400, kind))
    engine = open_visits(rows, schema)
    used = used_rows(rows, curation, SALT)
    assert sum(map(len, used.values())) == engine.count() < 400
    # Rows without an id are counted for nobody.
    names = curation.exact_identifiers()
    days, ward, missing, cost = (names.index(name) for name in ("c1", "c2", "m0", "v0"))
    known = {who: own for who, own in used.items() if who is not None}
    costs = {
        word: float(np.int64(word).view(np.float64))
        for own in used.values()
        for word in {r[cost] for r in own}
    }

    def expected(cells: Sequence[Any], cell: Callable[[Any], Any]) -> list[int]:
        pairs = {(cell(row), who) for who, own in known.items() for row in own}
        found = Counter(key for key, _ in pairs)
        return [found[key] for key in cells]

    def holds(row: Any) -> bool:
        x = costs[row[cost]]
        return not row[missing] and bool(np.exp(x / 3) > 2 or (np.exp(x / 3) < 1.1 and x < 1))

    asked: list[tuple[DistinctUnits, Iterable[Any], Callable[[Any], Any]]] = [
        (DistinctUnits(), [0], lambda row: 0),
        (DistinctUnits(where="FALSE"), [1], lambda row: 0),
        (DistinctUnits(where="TRUE"), [0], lambda row: 0),
        (DistinctUnits(where=STEPS), [True], holds),
        (
            DistinctUnits(("ward", "days")),
            itertools.product(range(3), range(3)),
            lambda r: (r[ward], r[days]),
        ),
        (
            DistinctUnits("cost", {"cost": [2]}, "days > 0"),
            range(3),
            lambda r: None if r[days] == 0 else 2 if r[missing] else int(costs[r[cost]] >= 2),
        ),
    ]
    for question, cells, cell in asked:
        assert question.bind(curation, "replace-one").exact(engine) == expected(list(cells), cell), question


def test_an_empty_table_has_no_people(open_visits: Callable[..., Engine]) -> None:
    rng = Stream.from_seed(1).generator()
    schema = visits_schema(2)
    engine = open_visits({name: values[:0] for name, values in visits(rng, [1]).items()}, schema)
    for question in (DistinctUnits(), DistinctUnits("ward", where="days > 1")):
        assert not any(question.bind(Curation.from_schema(schema), "replace-one").exact(engine))


@pytest.mark.parametrize("keep_ids", [False, True])
def test_where_a_person_has_one_row_people_are_rows(keep_ids: bool) -> None:
    schema = visits_schema(1)
    rows = visits(Stream.from_seed(2).generator(), range(50))
    curation = Curation.from_schema(schema, ids=keep_ids)
    engine = DuckDBEngine()
    engine.register(rows, curation, salt=SALT)
    for where in ("TRUE", "days > 1"):
        people, counted = DistinctUnits(where=where), Sums(where)
        assert people.bind(curation, "replace-one").exact(engine) == counted.bind(
            curation, "replace-one"
        ).exact(engine)
    engine.close()


def test_a_table_keeps_no_more_of_an_id_than_a_salted_hash() -> None:
    schema = visits_schema(2)
    rows = visits(Stream.from_seed(3).generator(), ["a", "a", "b", None])
    codes = []
    for salt in (SALT, SALT[::-1]):
        engine = registered(rows, schema, salt)
        codes.append([int(code) for (part,) in engine.batches(["u"]) for code in part])
        engine.close()
    # Rows of one person have one code, rows without an id 0, and another ledger has other codes.
    for found in codes:
        assert found[0] == found[1] != found[2] != 0 == found[3]
    assert not set(codes[0][:3]) & set(codes[1][:3])
    plain = Curation.from_schema(Schema(columns=schema.released))
    assert "u" not in plain.identifiers()


def test_corrected_ids_change_what_people_are_counted_and_no_other_answer() -> None:
    ledger = Ledger.open(":memory:")
    rows = visits(Stream.from_seed(4).generator(), [1, 2, 3, 4])
    privacy = GaussianDP(mu=1)
    schema = visits_schema(4)
    for who, cached in (([1, 2, 3, 4], False), ([1, 2, 3, 4], True), ([1, 1, 3, 4], False)):
        table = {**rows, "who": np.array(who, object)}
        with Database(table, schema=schema, ledger=ledger, random_state=1) as db:
            assert db.ask(DistinctUnits(where="days >= 0"), privacy=privacy).cached == cached
            assert db.ask(DistinctUnits("ward"), privacy=privacy).cached == cached
            answer = db.ask(Sums("days > 0"), privacy=privacy)
    assert answer.cached
    assert len(ledger.entries()) == 5


def test_an_answer_is_stored_recalled_and_refined() -> None:
    rng = Stream.from_seed(6).generator()
    rows = visits(rng, rng.integers(0, 300, 900).tolist())
    question = DistinctUnits(("ward",), where="days > 0")
    privacy = GaussianDP(mu=2)
    with Database(rows, schema=visits_schema(3), random_state=7) as db:
        exact = np.array(question.bind(db.curation, db.neighbors).exact(db._engine))
        answer = db.ask(question, privacy=privacy)
        assert np.all(np.abs(answer.value - exact) < 8 * answer.sd)
        assert answer.labels == (("a", "b", "other"),)
        again = db.ask(aggregate_from_dict(json.loads(json.dumps(question.to_dict()))), privacy=privacy)
        assert again.cached
        assert np.array_equal(db.recall(answer.receipt.id).value, answer.value)
        refined = db.ask(question, privacy=privacy, refines=answer.receipt.id)
        assert np.ravel(refined.sd)[0] == pytest.approx(np.ravel(answer.sd)[0] / np.sqrt(2), rel=1e-6)
        assert np.ravel(answer.sd)[0] == pytest.approx(np.sqrt(3) / 2, rel=1e-6)  # three wards, and mu = 2


def test_spellings_of_a_condition_are_one_question() -> None:
    curation = Curation.from_schema(visits_schema(2))

    def canonical(question: DistinctUnits) -> dict[str, Any]:
        return question.bind(curation, "replace-one").canonical

    assert canonical(DistinctUnits(where="( days )>1")) == canonical(DistinctUnits(where="NOT days <= 1"))
    assert canonical(DistinctUnits(where="TRUE")) == canonical(DistinctUnits())
    forms = {json.dumps(canonical(case.values[0])) for case in ASKED}
    assert len(forms) == len(ASKED)


def test_what_cannot_be_counted_is_refused() -> None:
    curation = Curation.from_schema(visits_schema(2))
    plain = Curation.from_schema(Schema(columns=visits_schema(2).released))
    with pytest.raises(ParameterError, match=r"every row is a person of its own\. Count rows.*COUNT\(\*\)"):
        DistinctUnits().bind(plain, "replace-one")
    with pytest.raises(
        ParameterError, match="where of DistinctUnits must be a condition, was the number days"
    ):
        DistinctUnits(where="days").bind(curation, "replace-one")
    with pytest.raises(ParameterError, match="named once each"):
        DistinctUnits(("ward", "ward"))
    with pytest.raises(ParameterError, match="for its own columns, and 'cost'"):
        DistinctUnits("ward", {"cost": [1]})
    with pytest.raises(ParameterError, match="edges of a question must be given"):
        DistinctUnits("cost").bind(curation, "replace-one")
