"""Rehearsal of synthetic releases: the noise of their questions is exactly what the promise needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest

from discreet import ApproxDP, Column, Database, GaussianDP, PureDP, Schema
from discreet.audit import attack_questions
from discreet.audit._rehearsal import question_loss
from discreet.errors import DataError
from discreet.noise import Stream
from discreet.query import Dependence, Marginals
from discreet.release.synthetic import SyntheticRelease
from discreet.schema.schema import Neighbors
from tests.release.synthetic_tables import COLUMNS, mixed_schema

if TYPE_CHECKING:
    from discreet.query import Aggregate

NEIGHBORS: tuple[Neighbors, ...] = get_args(Neighbors)
ROWS: dict[str, Any] = {"a": ["p", "q", "q"], "b": ["u", "v", None], "x": [0.1, 0.9, None], "k": [1, 2, 3]}
COLUMNS_OF_ROWS = (
    Column("a", values=("p", "q"), closed=True),
    Column("b", values=("u", "v", "w", "t"), required=False),
    Column("x", lower=0, upper=1, required=False),
    Column("k", type="integer", lower=0, upper=3),
)
EDGES = {"x": [0.25, 0.5]}
PAIRS = [("a", "b"), ("a", "x"), ("b", "x")]
MARGINS = {"a": [40, 60], "b": [90, 0, 0, 10, 0, 0], "x": [50, 0, 0, 50]}
ASKED: list[Aggregate] = [
    Marginals([("k",)]),
    Marginals([("a",), ("b", "x"), ("a", "b", "k")], EDGES, [1, 5, 4096]),
    Marginals([("b",), ("b", "k")], {}, [3, 1], {"b": (0, 1, 1, 1, 1, 1)}),
    Dependence(PAIRS, EDGES, {"kind": "given", "margins": MARGINS, "by": None}),
    Dependence(
        [("a", "b")], {}, {"kind": "tables", "values": [[2, 9, 0, 0, 0, 1, 3, 3, 3, 0, 0, 0]]}
    ),
]  # fmt: skip


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("question", ASKED, ids=lambda question: question.kind)
def test_the_exact_law_of_every_kind_of_question_attains_its_promise_and_no_more(
    question: Aggregate, law: str, neighbors: Neighbors
) -> None:
    schema = Schema(columns=COLUMNS_OF_ROWS, neighbors=neighbors)
    promise: Any = GaussianDP(mu=0.3, neighbors=neighbors)
    if law == "laplace":
        promise = PureDP(epsilon=0.3, neighbors=neighbors)
    with Database(ROWS, schema=schema, random_state=1) as database:
        answer = database.ask(question, privacy=promise)
    assert answer.law == law
    loss = question_loss(question, answer, schema)
    assert 0.3 * (1 - 1e-9) <= loss <= 0.3 * (1 + 1e-12)


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_a_release_is_rehearsed_without_a_row_and_all_its_promises_hold(
    law: str, neighbors: Neighbors
) -> None:
    count: Any = {"neighbors": neighbors, "row_count": "public" if neighbors == "replace-one" else "private"}
    promise: Any = ApproxDP(epsilon=1, delta=1e-6, neighbors=neighbors)
    if law == "laplace":
        promise = PureDP(epsilon=20, neighbors=neighbors)
    method = SyntheticRelease(promise, schema=mixed_schema(**count))
    results = attack_questions(method, 3000, failure_probability=1e-10, stream=Stream.from_seed(1))
    assert [result.attack for result in results] == ["density", "density", "density", "noise", "follow"]
    assert {result.verdict for result in results} == {"holds"}
    # All questions together take the whole promise, so that the least of it too little would be seen.
    assert results[2].strain == pytest.approx(1, abs=1e-9)
    assert not hasattr(method, "tables_")


def test_people_with_several_rows_are_hidden_with_all_of_them() -> None:
    columns = [Column("who", role="id"), *COLUMNS[3:]]
    schema = Schema(columns=columns, id_column="who", max_rows_per_unit=3)
    method = SyntheticRelease(GaussianDP(mu=1), schema=schema)
    results = attack_questions(method, 2000, failure_probability=1e-10, stream=Stream.from_seed(1))
    assert {result.verdict for result in results} == {"holds"}
    assert results[-3].strain == pytest.approx(1, abs=1e-9)


def test_a_rehearsal_that_ends_early_tests_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def release_database(self: SyntheticRelease, sums: Any, **_: Any) -> Any:
        raise DataError("There are fewer rows than noise.")

    monkeypatch.setattr(SyntheticRelease, "release_database", release_database)
    method = SyntheticRelease(GaussianDP(mu=1), schema=mixed_schema())
    (result,) = attack_questions(method, 2000)
    assert result.verdict == "not tested"
    assert "fewer rows than noise" in result.reason
