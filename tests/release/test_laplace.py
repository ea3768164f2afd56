"""The Laplace release: three ways to match, pure epsilon on the lattice, floors of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.audit import Lattice, LawPair, density
from discreet.errors import ParameterError, PromiseError
from discreet.noise import Stream, rounded_laplace
from discreet.noise.samplers import LAPLACE_TOTAL_VARIATION
from discreet.privacy import ApproxDP, ErrorFloor, GaussianDP, PureDP
from discreet.release import GaussianRelease, LaplaceRelease
from discreet.release._laplace import LaplaceNumbers
from discreet.schema import Column, Schema

SCHEMA = Schema(columns=[Column("a", lower=0, upper=1), Column("b", lower=-5, upper=5)])


def scales(method: LaplaceRelease) -> np.ndarray:
    made = method.plan(SCHEMA, 100).numbers
    assert isinstance(made, LaplaceNumbers)
    return made.scale


@pytest.mark.parametrize(("on", "factor"), [("fisher", 1.0), ("variance", math.sqrt(0.5))])
def test_matching_fisher_information_doubles_the_variance(on: Any, factor: float) -> None:
    gaussian = GaussianRelease(scale={"a": 0.5, "b": 4.0}, schema=SCHEMA)
    matched = LaplaceRelease(match=gaussian, on=on, schema=SCHEMA)
    assert scales(matched) == pytest.approx(np.array([0.5, 4.0]) * factor)
    law = matched.plan(SCHEMA, 10).columns[0].law
    assert law.to_dict()["variance"] == pytest.approx(2 * (0.5 * factor) ** 2)


def test_matching_epsilon_spends_it_without_a_delta() -> None:
    gaussian = GaussianRelease(privacy=ApproxDP(epsilon=2, delta=1e-5), schema=SCHEMA)
    matched = LaplaceRelease(match=gaussian, on="epsilon", schema=SCHEMA)
    assert scales(matched) == pytest.approx([1.0, 10.0], rel=1e-5)
    (pure,) = (p for p in matched.plan(SCHEMA, 10).promises if isinstance(p, PureDP))
    assert 2 * (1 - 1e-5) < pure.epsilon <= 2
    with pytest.raises(PromiseError, match="ApproxDP"):
        LaplaceRelease(match=GaussianRelease(scale=1, schema=SCHEMA), on="epsilon", schema=SCHEMA)


def test_correlated_noise_is_matched_by_its_marginal_variances() -> None:
    gaussian = GaussianRelease(regularization=0.3, weights=[[2.0, 0.8], [0.8, 1.0]], schema=SCHEMA)
    assert scales(LaplaceRelease(match=gaussian, schema=SCHEMA)) == pytest.approx(
        np.sqrt([1.46860825409, 2.14657648271]), rel=1e-10
    )


def test_a_cell_costs_its_integer_range_over_the_scale_and_no_more() -> None:
    """The exact audit of the lattice law at the largest shift, and the same claim with a tenth less."""
    made = LaplaceNumbers((SCHEMA.columns[0],), np.array([0.7]))
    epsilon, steps = made.epsilon(SCHEMA.columns[0]), 64

    def log_pmf(x: np.ndarray) -> np.ndarray:
        inside = np.expm1(1 / steps) * np.exp(-(np.abs(x) + 0.5) / steps) / 2
        return np.asarray(np.log(np.where(x == 0, -np.expm1(-0.5 / steps), inside)))

    # The law in units of the scale is that of every lattice; a coarser one keeps the sums short.
    shift = round(epsilon * steps)
    window: dict[str, Any] = {"lower": -90 * steps, "upper": 90 * steps + shift, "tail": 1e-38}
    pair = LawPair(
        p=Lattice(logpmf=log_pmf, **window),
        q=Lattice(logpmf=lambda x: log_pmf(x - shift), **window),
        claim=PureDP(epsilon=shift / steps * (1 + 1e-9)),
    )
    assert density(pair).verdict == "holds"
    assert density(replace(pair, claim=PureDP(epsilon=0.9 * epsilon))).verdict == "broken"


def test_rounded_laplace_is_symmetric_with_the_right_scale() -> None:
    x = rounded_laplace(1000.0, 200_000, Stream.from_seed(1))
    assert np.abs(x).mean() == pytest.approx(1000, rel=0.02)
    assert abs(np.mean(x > 0) - np.mean(x < 0)) < 0.015
    assert np.mean(rounded_laplace(0.5, 100_000, Stream.from_seed(2)) == 0) == pytest.approx(
        1 - math.exp(-1), abs=0.01
    )


def test_floors_are_met() -> None:
    plan = LaplaceRelease(privacy=ErrorFloor(a=0.1), schema=SCHEMA).plan(SCHEMA, 10)
    (floor,) = (p for p in plan.promises if isinstance(p, ErrorFloor))
    assert 0.1 <= floor["a"].error < 0.10001
    assert floor["b"].error == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "exactly one of privacy, scale and match"),
        ({"privacy": PureDP(epsilon=1), "scale": 1}, "privacy and scale"),
        ({"scale": 1, "on": "luck"}, "on of LaplaceRelease"),
        ({"privacy": GaussianDP(mu=1)}, "ask for PureDP"),
        ({"scale": [1, 2, 3]}, "one number or 2"),
        ({"scale": {"a": 1}}, "exactly the columns"),
        ({"scale": -1}, "above 0"),
        ({"scale": 1e-10}, "at least 2"),
    ],
)
def test_wrong_requests_are_refused_in_words(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises((ParameterError, PromiseError), match=says):
        LaplaceRelease(schema=SCHEMA, **arguments).plan(SCHEMA, 5)


def test_floors_for_several_rows_per_person_are_not_claimed() -> None:
    several = replace(
        SCHEMA, columns=[*SCHEMA.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=2
    )
    with pytest.raises(PromiseError, match="one row per unit"):
        LaplaceRelease(privacy=ErrorFloor(a=0.1), schema=several).plan(several, 5)
    plan = LaplaceRelease(privacy=PureDP(epsilon=1), schema=several).plan(several, 5)
    assert not any(isinstance(p, ErrorFloor) for p in plan.promises)


def test_clamping_keeps_numbers_in_their_range_and_says_so() -> None:
    method = LaplaceRelease(scale=[2.0, 9.0], clamp=True, schema=SCHEMA, random_state=1)
    release = method.release(np.tile([0.5, 0.0], (500, 1)))
    assert release.data.min(axis=0) == pytest.approx([0, -5])
    assert release.data.max(axis=0) == pytest.approx([1, 5])
    assert all(s.law.to_dict()["clamped"] for s in release.summary)
    assert "clamped" in release.summary[0].law.words()


def test_the_sampler_is_counted_once_for_every_cell_of_the_file() -> None:
    for n_rows in (1, 1000):
        plan = LaplaceRelease(scale=1.0, schema=SCHEMA).plan(SCHEMA, n_rows)
        (pure,) = (promise for promise in plan.promises if isinstance(promise, PureDP))
        assert pure.total_variation == n_rows * 2 * LAPLACE_TOTAL_VARIATION
        # It is the whole delta of a Laplace release: a row fewer would be too little.
        assert pure.delta_at(pure.epsilon) >= pure.total_variation


def test_rows_outside_the_box_cost_no_more_than_its_corners() -> None:
    made = LaplaceNumbers(tuple(SCHEMA.columns), np.array([0.5, 4.0]))
    outside = np.array([[-1e9, 1e9], [7.0, -6.0], [np.nextafter(1.0, 2.0), 5.0 + 1e-9]])
    corners = np.array([[0.0, 5.0], [1.0, -5.0], [1.0, 5.0]])
    drawn = [made.release(rows, Stream.from_seed(3)) for rows in (outside, corners)]
    assert (drawn[0] == drawn[1]).all()
