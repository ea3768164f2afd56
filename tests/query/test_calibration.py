"""Prices from the schema alone are those that are charged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import ParameterError, PromiseError
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP
from discreet.privacy.promises import promise_from_dict
from discreet.query import CostModel, Database, Gram, Histogram, PosteriorOdds, Sums
from tests.query.people import people, people_schema, under

if TYPE_CHECKING:
    from discreet.query import Aggregate
    from discreet.schema.schema import Neighbors

QUESTIONS: list[Aggregate] = [Sums(("height", "age > 40")), Histogram(("job", "owner")), Gram(("age",))]
PROMISES = [
    PureDP(epsilon=0.5),
    ApproxDP(epsilon=1.0, delta=1e-6),
    ZCDP(rho=0.1),
    GaussianDP(mu=0.5),
    PosteriorOdds(epsilon=1, delta=1e-6, queries=10),
    PosteriorOdds(epsilon=1, delta=1e-6, queries=10, theorem="theorem 5"),
]


# The paper's promise is about replaced rows alone.
@pytest.mark.parametrize(
    ("privacy", "neighbors"),
    [(p, "replace-one") for p in PROMISES]
    + [(p, "add-remove") for p in PROMISES if not isinstance(p, PosteriorOdds)],
)
def test_what_is_priced_without_rows_is_charged_with_them(privacy: Any, neighbors: Neighbors) -> None:
    schema, privacy = people_schema(neighbors), under(privacy, neighbors)
    pricing = CostModel(schema, 50)
    assert (pricing.n_rows, pricing.neighbors, pricing.schema) == (50, neighbors, schema)
    with Database(people(50), schema=schema) as sums:
        for question in QUESTIONS:
            answer = sums.ask(question, privacy=privacy)
            assert pricing.cost(question, privacy=privacy) == answer.cost
            assert np.array_equal(pricing.expected_sd(question, privacy=privacy), answer.sd)
            assert answer.cost != pricing.cost(question, privacy=GaussianDP(mu=0.123, neighbors=neighbors))


def test_the_papers_promise_is_refused_on_a_table_of_other_neighbors() -> None:
    odds = PosteriorOdds(epsilon=1, delta=1e-6, queries=10)
    with pytest.raises(PromiseError, match="neighbors"):
        CostModel(people_schema("add-remove"), 50).cost(QUESTIONS[0], privacy=odds)


def test_a_variance_is_priced_too_and_what_costs_nothing_is_free() -> None:
    pricing = CostModel(people_schema())
    (promise,) = pricing.cost(Sums("age > 40"), variance=4.0)
    assert isinstance(promise, GaussianDP)
    assert promise.mu == pytest.approx(0.5, rel=1e-12)
    assert pricing.cost(Sums("7"), variance=4.0) == ()
    with pytest.raises(ParameterError, match="neither"):
        pricing.cost(Sums("age > 40"))


def test_a_price_that_is_remembered_is_the_price_of_that_promise_alone() -> None:
    # The same amounts for another unit, other neighbors or another size are other promises.
    one, two = CostModel(people_schema(unit="household")), CostModel(people_schema("add-remove"))
    question = Histogram("job")
    asked = [GaussianDP(mu=0.5, neighbors=pricing.neighbors) for pricing in (one, two, one)]
    costs = [
        pricing.cost(question, privacy=privacy)[0]
        for pricing, privacy in zip((one, two, one), asked, strict=True)
    ]
    assert [cost.unit for cost in costs] == ["household", "person", "household"]
    assert costs[0] == costs[2]
    assert costs[0].neighbors == "replace-one"
    assert costs[1].neighbors == "add-remove"
    sizes = [one.cost(Histogram(columns), privacy=ZCDP(rho=0.1))[0] for columns in ("job", ("job", "owner"))]
    assert sizes[0].total_variation < sizes[1].total_variation


@pytest.mark.parametrize("privacy", PROMISES, ids=str)
def test_what_was_asked_comes_back_from_json(privacy: Any) -> None:
    assert promise_from_dict(privacy.to_dict()) == privacy
