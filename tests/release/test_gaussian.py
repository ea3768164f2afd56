"""The Gaussian release: each way to ask for noise gives what was asked, and no less."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet import datasets
from discreet.errors import DataError, ParameterError, PromiseError
from discreet.noise_law import GaussianLaw
from discreet.privacy import ZCDP, ApproxDP, ErrorFloor, GaussianDP, PureDP, Spending
from discreet.privacy.calibration import rho_mu
from discreet.privacy.floors import GaussianNoise
from discreet.privacy.rounding import exact
from discreet.release import GaussianRelease
from discreet.release.gaussian import GaussianNumbers
from discreet.release.mechanism import additive_floor
from discreet.schema import Column, Protect, Schema

NUMBERS = Schema(
    columns=[
        Column("age", lower=17, upper=90, measure="years"),
        Column("hours", type="integer", lower=1, upper=99),
    ]
)
CLASSES = Schema(columns=[Column("x", lower=0, upper=1), Column("y", values=("no", "yes"))], target="y")


def floor_of(promises: Any) -> ErrorFloor:
    (floor,) = (p for p in promises if isinstance(p, ErrorFloor))
    return floor


def sds(plan: Any) -> dict[str, float]:
    return {s.column: s.law.sd for s in plan.columns if isinstance(s.law, GaussianLaw)}


def test_a_floor_in_years_is_met_and_hardly_exceeded() -> None:
    plan = GaussianRelease(privacy=ErrorFloor(age=9), schema=NUMBERS).plan(NUMBERS, 1000)
    floor = floor_of(plan.promises)
    assert 9 <= floor["age"].error < 9.001
    assert floor["age"].measure == "years"
    share = 9 / (73 / math.sqrt(12))
    assert floor["hours"].error == pytest.approx(share * math.sqrt((99**2 - 1) / 12), rel=1e-4)


def test_more_than_the_range_allows_is_refused_in_those_words() -> None:
    with pytest.raises(PromiseError, match="age"):
        GaussianRelease(privacy=ErrorFloor(age=22), schema=NUMBERS).plan(NUMBERS, 10)
    with pytest.raises(ParameterError, match="'weight'"):
        GaussianRelease(privacy=ErrorFloor(weight=2), schema=NUMBERS).plan(NUMBERS, 10)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (1.0, 1e-6), (8.0, 1e-6)])
def test_epsilon_covers_all_columns_and_the_label_together(epsilon: float, delta: float) -> None:
    schema = datasets.load("census").schema
    plan = GaussianRelease(privacy=ApproxDP(epsilon=epsilon, delta=delta), schema=schema).plan(schema, 48_842)
    total = Spending.from_promises(plan.promises).epsilon_at(delta)
    assert total <= epsilon
    assert total == pytest.approx(epsilon, rel=1e-4)


def test_the_noise_for_one_column_is_that_of_the_analytic_gaussian() -> None:
    schema = Schema(columns=[Column("x", lower=0, upper=1)])
    plan = GaussianRelease(privacy=ApproxDP(epsilon=1, delta=1e-6), schema=schema).plan(schema, 100)
    assert sds(plan)["x"] == pytest.approx(4.2247, abs=5e-5)


def test_the_rows_of_one_person_have_noise_of_their_own() -> None:
    """Replacing four rows is a step of twice the length, not of four times."""
    several = replace(
        NUMBERS, columns=[*NUMBERS.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=4
    )
    plans = [GaussianRelease(privacy=GaussianDP(mu=0.5), schema=s).plan(s, 10) for s in (NUMBERS, several)]
    assert sds(plans[1])["age"] == pytest.approx(2 * sds(plans[0])["age"], rel=1e-5)
    for plan in plans:
        (promise,) = (p for p in plan.promises if isinstance(p, GaussianDP))
        assert 0.5 * (1 - 1e-5) < promise.mu <= 0.5


def test_gaussian_and_zero_concentrated_promises_calibrate_alike() -> None:
    one = GaussianRelease(privacy=GaussianDP(mu=0.5), schema=NUMBERS).plan(NUMBERS, 10)
    two = GaussianRelease(privacy=ZCDP(rho=0.125), schema=NUMBERS).plan(NUMBERS, 10)
    assert sds(one) == pytest.approx(sds(two), rel=1e-5)
    (promise,) = (p for p in one.promises if isinstance(p, GaussianDP))
    assert 0.5 * (1 - 1e-5) < promise.mu <= 0.5


def test_a_zero_concentrated_promise_is_never_passed_by_a_rounding() -> None:
    for rho in (0.1, 0.3, 0.7, 1 / 3, 1e-3, 0.12345):
        plan = GaussianRelease(privacy=ZCDP(rho=rho), schema=NUMBERS).plan(NUMBERS, 10)
        (promise,) = (p for p in plan.promises if isinstance(p, GaussianDP))
        assert exact(promise.mu) ** 2 / 2 <= exact(rho)
    # The twin that rounds the square root up asks for more than was allowed.
    assert any(exact(rho_mu(rho)) ** 2 / 2 > exact(rho) for rho in (0.1, 0.3, 0.7, 1e-3, 0.12345))


def test_a_given_scale_is_used_as_it_is() -> None:
    method = GaussianRelease(scale={"age": 5, "hours": 20}, schema=NUMBERS, random_state=1)
    rows = np.tile([50.0, 40.0], (50_000, 1))
    data = method.release(rows).data
    assert data.std(axis=0) == pytest.approx([5, 20], rel=0.03)
    assert data.mean(axis=0) == pytest.approx([50, 40], abs=0.6)


def test_declared_shares_of_epsilon_are_taken_first() -> None:
    schema = CLASSES.with_columns(
        Column("y", values=("no", "yes"), role="target", protect=Protect(share=0.25))
    )
    plan = GaussianRelease(privacy=ApproxDP(epsilon=4, delta=1e-6), schema=schema).plan(schema, 10)
    (response,) = plan.responses
    assert response.epsilon == pytest.approx(1.0, rel=1e-6)


def test_a_clear_label_is_published_as_it_is_and_said_to_be() -> None:
    x, y = np.array([[0.1], [0.9]]), np.array(["no", "yes"])
    clear = GaussianRelease(privacy=ApproxDP(epsilon=1, delta=1e-6), schema=CLASSES, label="clear").release(
        x, y
    )
    assert clear.target is not None
    assert clear.target.tolist() == ["no", "yes"]
    for promise in clear.promises:
        assert "y" not in (promise.covers or ())
        assert any("target" in sentence for sentence in promise.assumes)


def test_a_missing_number_is_sometimes_told_and_sometimes_not() -> None:
    schema = Schema(columns=[Column("x", lower=0, upper=1, required=False)])
    rows = np.full((20_000, 1), np.nan)
    rows[:10_000] = 0.5
    release = GaussianRelease(privacy=ApproxDP(epsilon=2, delta=1e-6), schema=schema, random_state=1).release(
        rows
    )
    kept = math.e / (1 + math.e)
    missing = np.isnan(release.columns["x"])
    assert missing[:10_000].mean() == pytest.approx(1 - kept, abs=0.03)
    assert missing[10_000:].mean() == pytest.approx(kept, abs=0.03)
    (pure,) = (p for p in release.promises if isinstance(p, PureDP))
    assert pure.epsilon == pytest.approx(1.0, rel=1e-6)


def test_a_matrix_needs_only_bounds() -> None:
    release = GaussianRelease(privacy=GaussianDP(mu=1.0), bounds=(-1, 1)).release(np.zeros((5, 3)))
    assert release.data.shape == (5, 3)
    assert release.target is None
    labelled = GaussianRelease(privacy=ApproxDP(epsilon=1, delta=1e-6), bounds=(-1, 1)).release(
        np.zeros((400, 3)), np.repeat([-1, 1], 200)
    )
    assert labelled.target is not None
    assert set(labelled.target.tolist()) == {-1, 1}
    vectors = GaussianRelease(privacy=GaussianDP(mu=1.0), bounds=([-1, 0], [1, 9])).release(np.zeros((5, 2)))
    assert vectors.data.shape == (5, 2)


def gaussian(**rest: Any) -> GaussianRelease:
    return GaussianRelease(privacy=GaussianDP(mu=1), **rest)


def approximate(epsilon: float, delta: float, schema: Schema) -> GaussianRelease:
    return GaussianRelease(privacy=ApproxDP(epsilon=epsilon, delta=delta), schema=schema)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: GaussianRelease(schema=NUMBERS), "exactly one of privacy, regularization and scale"),
        (
            lambda: GaussianRelease(privacy=PureDP(epsilon=1), schema=NUMBERS).plan(NUMBERS, 5),
            "no pure epsilon",
        ),
        (lambda: gaussian(schema=CLASSES).plan(CLASSES, 5), "promises no other way"),
        (lambda: GaussianRelease(scale={"age": 1}, schema=NUMBERS).plan(NUMBERS, 5), "must name exactly"),
        (lambda: gaussian(bounds=(0, 1), label="hidden"), "label of"),
        (lambda: gaussian(bounds=(1, 0)).release(np.zeros((2, 1))), "upper"),
        (lambda: gaussian(bounds=(0, np.inf)).release(np.zeros((2, 1))), "infinite|finite"),
        (lambda: gaussian(bounds=([0, 0], 1)).release(np.zeros((2, 3))), "length 3"),
        (lambda: gaussian(bounds=(0, 1)).release(np.zeros(4)), "matrix"),
        (lambda: gaussian(bounds=(0, 1)).release(np.zeros((2, 1)), np.zeros(2)), "-1 and 1 alone"),
        (lambda: gaussian(schema=NUMBERS).release(np.zeros((2, 2)), np.zeros(2)), "no target"),
        (lambda: approximate(1, 1e-6, CLASSES).release(np.zeros((2, 1)), np.zeros(3)), "one entry"),
        (lambda: approximate(60, 1e-12, NUMBERS).plan(NUMBERS, 10**9), "delta of privacy"),
    ],
)
def test_wrong_requests_are_refused_in_words(call: Any, says: str) -> None:
    with pytest.raises((ParameterError, PromiseError, ValueError), match=says):
        call()


def test_an_unlisted_class_is_named_by_its_column_alone() -> None:
    method = GaussianRelease(privacy=ApproxDP(epsilon=1, delta=1e-6), schema=CLASSES)
    with pytest.raises(DataError, match="'y'") as caught:
        method.release(np.zeros((2, 1)), np.array(["no", "perhaps"]))
    assert "perhaps" not in str(caught.value)


def test_a_missing_cell_in_a_required_matrix_column_is_refused() -> None:
    with pytest.raises(DataError, match="'age'"):
        GaussianRelease(privacy=ErrorFloor(age=9), schema=NUMBERS).release(np.array([[np.nan, 5.0]]))


def test_the_bundled_tables_go_through_whole() -> None:
    for name, wanted, columns in (
        ("census", ErrorFloor(age=9), 13),
        ("clinic", ErrorFloor(radius_mean=4), 31),
    ):
        dataset = datasets.load(name)
        release = GaussianRelease(privacy=wanted, schema=dataset.schema).release(dataset.path)
        assert len(release.columns) == columns
        assert all(np.isfinite(v).all() for v in release.columns.values() if v.dtype.kind == "f")


def test_a_floor_pays_for_rounding_to_the_lattice() -> None:
    """By half a step, a millionth of the floor, which no attack can see."""
    column = NUMBERS.columns[0]
    numbers = GaussianRelease(scale=9.0, schema=NUMBERS).plan(NUMBERS, 10).numbers
    assert isinstance(numbers, GaussianNumbers)
    floor = numbers.floor(column, 1)
    variation = numbers.whitening.total_variation(1)
    without = additive_floor(column, GaussianNoise(9.0), lattice_step=0.0, total_variation=variation)
    assert floor is not None
    assert without is not None
    step = numbers.lattice_step(column)
    assert step >= 9.0 / 2**20
    assert without.error - floor.error == pytest.approx(step / 2, rel=1e-3)
