"""Bounded noise and the in-range mechanism on whole tables."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.errors import ParameterError, PromiseError
from discreet.ledger import Ledger
from discreet.noise import BoundedDensity
from discreet.noise_law import BoundedLaw, InRangeLaw
from discreet.privacy import ApproxDP, ErrorFloor, GaussianDP, NoPromise, PureDP
from discreet.privacy.bounded import additive_delta
from discreet.release import BoundedRelease
from discreet.release._bounded import BoundedNumbers
from discreet.schema import Column, Schema

AGES = Schema(columns=[Column("age", type="integer", lower=17, upper=90, measure="years")])
PEOPLE = Schema(
    columns=[
        Column("age", type="integer", lower=17, upper=90),
        Column("income", lower=0, upper=2e5, required=False),
        Column("job", values=("clerk", "nurse", "pilot")),
    ]
)
ROWS = {
    "age": np.array([17, 40, 90] * 1000),
    "income": np.array([0.0, np.nan, 2e5] * 1000),
    "job": np.array(["nurse", "clerk", "pilot"] * 1000),
}


def test_an_error_floor_is_reached_by_the_narrowest_support() -> None:
    plan = BoundedRelease(privacy=ErrorFloor(age=9), schema=AGES).plan(AGES, 100)
    law = plan.columns[0].law
    assert isinstance(law, BoundedLaw)
    assert law.upper == -law.lower == pytest.approx(28.68, abs=0.01)
    floor = plan.columns[0].floor
    assert floor is not None
    assert 9 <= floor.error < 9.001
    assert floor.measure == "years"


def test_columns_without_a_request_get_the_same_share_and_lists_are_randomized() -> None:
    method = BoundedRelease(privacy=ErrorFloor(age=9), schema=PEOPLE, random_state=1)
    release = method.release(ROWS, shuffle=False)
    floors = {s.column: s.floor.error for s in release.summary if s.floor is not None}
    assert floors["income"] / (2e5 / 12**0.5) == pytest.approx(9 / np.sqrt((74**2 - 1) / 12), rel=1e-4)
    assert 0 < floors["job"] < 2 / 3
    assert np.isnan(release.columns["income"]).any()
    assert not np.array_equal(release.decoded("job"), ROWS["job"])


def test_additive_noise_stays_inside_its_support_around_the_value() -> None:
    values = np.repeat([17.0, 40.0, 90.0], 20_000).reshape(-1, 1)
    released = BoundedRelease(support=30, schema=AGES, random_state=2).release(values)
    noise = released.data - values
    assert noise.min() > -30.0001
    assert noise.max() < 30.0001
    assert noise.std() == pytest.approx(BoundedDensity(lower=-30, upper=30).variance ** 0.5, rel=0.02)
    assert np.unique(released.data).size > 59_000  # a fine lattice, not a few values


def test_supports_can_be_one_sided_and_say_their_mean() -> None:
    method = BoundedRelease(support={"age": (0.0, 60.0)}, regularization=50, schema=AGES, random_state=3)
    released = method.release(np.full((50_000, 1), 40.0))
    law = released.summary[0].law
    assert isinstance(law, BoundedLaw)
    assert (law.lower, law.upper) == (0, 60)
    assert released.data.min() >= 40 - 1e-4
    assert released.data.mean() - 40 == pytest.approx(law.mean, abs=0.3)


def test_a_support_not_wider_than_the_range_promises_no_differential_privacy() -> None:
    plan = BoundedRelease(support=30, schema=AGES).plan(AGES, 10)
    assert isinstance(plan.promises[0], NoPromise)
    assert plan.promises[0].covers == ("age",)
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=10, delta=1e-5))
    with pytest.raises(PromiseError):
        BoundedRelease(support=30, schema=AGES, ledger=ledger).release(np.full((3, 1), 40.0))


def test_a_wide_support_has_a_delta_at_every_epsilon_and_columns_add_up() -> None:
    two = Schema(columns=[Column("a", lower=0, upper=1), Column("b", lower=0, upper=2)])
    plan = BoundedRelease(support=[20, 40], schema=two, at_epsilon=0.5).plan(two, 10)
    promise = plan.promises[0]
    assert isinstance(promise, ApproxDP)
    each = additive_delta(BoundedDensity(lower=-20, upper=20), 0.5, 1.0)
    assert promise.epsilon == pytest.approx(1.0, rel=1e-12)
    assert 2 * each <= promise.delta < 2 * each * (1 + 1e-5)


def test_in_range_outputs_stay_inside_and_cost_what_was_asked() -> None:
    method = BoundedRelease(privacy=PureDP(epsilon=6), in_range=True, schema=PEOPLE, random_state=4)
    release = method.release(ROWS)
    age, income = release.columns["age"], release.columns["income"]
    assert age.min() > 17
    assert age.max() < 90
    assert np.nanmin(income) > 0
    assert np.nanmax(income) < 2e5
    costs = [p.epsilon for p in release.promises if isinstance(p, PureDP)]
    assert 5.99 < sum(costs) <= 6
    assert release.promises[0].covers == ("age", "income")
    assert release.promises[0].total_variation == 0
    laws = {s.column: s.law for s in release.summary}
    assert isinstance(laws["age"], InRangeLaw)
    assert laws["age"].inputs == 74
    assert laws["income"].missing_keep is not None


def test_in_range_outputs_follow_their_value() -> None:
    method = BoundedRelease(privacy=PureDP(epsilon=8), in_range=True, schema=AGES, random_state=5)
    values = np.repeat([17.0, 90.0], 5_000).reshape(-1, 1)
    data = method.release(values).data
    assert data[5_000:].mean() - data[:5_000].mean() > 20


@pytest.mark.parametrize("privacy", [ErrorFloor(age=9), None])
def test_in_range_needs_an_epsilon(privacy: ErrorFloor | None) -> None:
    support = 30 if privacy is None else None
    with pytest.raises(PromiseError, match="in_range=True"):
        BoundedRelease(privacy=privacy, support=support, in_range=True, schema=AGES)


def test_an_epsilon_needs_in_range() -> None:
    with pytest.raises(PromiseError, match="no epsilon alone"):
        BoundedRelease(privacy=PureDP(epsilon=1), schema=AGES)
    with pytest.raises(PromiseError, match="must be one of ErrorFloor, PureDP"):
        BoundedRelease(privacy=GaussianDP(mu=1), schema=AGES)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({}, "exactly one of privacy and support"),
        ({"privacy": ErrorFloor(age=9), "support": 3}, "exactly one of privacy and support"),
        ({"support": 30, "regularization": -1}, "regularization"),
        ({"support": 30, "at_epsilon": 0}, "at_epsilon"),
        ({"privacy": PureDP(epsilon=1), "in_range": True, "clamp": True}, "clamp"),
        ({"privacy": PureDP(epsilon=1), "in_range": True, "regularization": 1}, "regularization"),
    ],
)
def test_wrong_parameters_are_named(arguments: dict[str, object], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        BoundedRelease(schema=AGES, **arguments)  # type: ignore[arg-type]


def test_a_support_far_narrower_than_the_lattice_can_hold_is_refused() -> None:
    with pytest.raises(ParameterError, match="tighter bounds"):
        BoundedRelease(support=1e-9, schema=AGES).plan(AGES, 1)


def test_floors_for_several_rows_per_person_are_refused_with_a_way_out() -> None:
    several = Schema(columns=[*AGES.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=2)
    with pytest.raises(PromiseError, match="one row per unit"):
        BoundedRelease(privacy=ErrorFloor(age=9), schema=several).plan(several, 10)


def test_clamping_is_part_of_the_law() -> None:
    release = BoundedRelease(support=40, clamp=True, schema=AGES, random_state=1).release(
        np.full((500, 1), 20.0)
    )
    assert release.data.min() == 17
    assert isinstance(release.summary[0].law, BoundedLaw)
    assert release.summary[0].law.clamped


def test_weights_set_the_price_of_each_column_alone() -> None:
    schema = Schema(columns=[Column("a", lower=0, upper=1), Column("b", lower=0, upper=1)])
    dense = np.array([[2.0, 0.8], [0.8, 1.0]])
    found = {}
    for name, weights in (("vector", [2.0, 1.0]), ("matrix", dense), ("range", None)):
        method = BoundedRelease(support=2.0, regularization=5.0, weights=weights, schema=schema)
        numbers = method.plan(schema, 10).numbers
        assert isinstance(numbers, BoundedNumbers)
        found[name] = [density.weight for density in numbers.densities]
    assert found["vector"] == [2.0, 1.0]
    assert found["matrix"] == pytest.approx(1 / np.diagonal(np.linalg.inv(dense)))
    assert found["range"] == [1.0, 1.0]
    with pytest.raises(ParameterError, match="weights of BoundedRelease must be positive definite"):
        BoundedRelease(support=2.0, weights=[1.0, -1.0], schema=schema).plan(schema, 10)
    with pytest.raises(ParameterError, match="for additive noise"):
        BoundedRelease(privacy=PureDP(epsilon=1), in_range=True, weights=[1.0, 1.0], schema=schema)
