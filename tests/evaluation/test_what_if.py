"""The what-if table: the chosen position is the plan itself, and everything moves the right way."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet import (
    ApproxDP,
    BoundedRelease,
    Column,
    ErrorFloor,
    GaussianRelease,
    InvariantRelease,
    LaplaceRelease,
    PureDP,
    Schema,
)
from discreet.evaluation.learning import choose_meter
from discreet.evaluation.what_if import FACTORS, plan_epsilon, what_if
from discreet.noise import Stream
from discreet.noise_law import GaussianLaw, ResponseLaw
from discreet.privacy.calibration import response_epsilon
from discreet.query.dummy import ONE_IN, rows_from_schema
from discreet.release.invariant.plan import encoded_rows
from discreet.release.mechanism import Response
from tests.pipeline.people import PEOPLE
from tests.statistical import ALPHA
from tests.statistical.checks import chi_square

if TYPE_CHECKING:
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.report.findings import WhatIf

N = 1_000
FEW = (0.5, 1.0, 2.0)
NUMBERS = Schema(columns=[Column("x", lower=0, upper=1), Column("n", type="integer", lower=0, upper=9)])

METHODS: dict[str, ReleaseMethod] = {
    "gaussian floor": GaussianRelease(privacy=ErrorFloor(age=9), schema=PEOPLE),
    "gaussian epsilon": GaussianRelease(privacy=ApproxDP(epsilon=8, delta=1e-6), schema=PEOPLE),
    "gaussian lambda": GaussianRelease(regularization=50.0, schema=PEOPLE),
    "gaussian scale": GaussianRelease(scale={"age": 20.0, "pay": 30.0}, schema=PEOPLE),
    "laplace epsilon": LaplaceRelease(privacy=PureDP(epsilon=8), schema=PEOPLE),
    "bounded support": BoundedRelease(support={"age": 40.0, "pay": 50.0}, schema=PEOPLE),
    "in range": BoundedRelease(privacy=PureDP(epsilon=8), in_range=True, schema=PEOPLE),
}


def wrong(positions: list[WhatIf]) -> str:
    """Say what does not move the right way with the noise, or nothing."""
    for less, more in itertools.pairwise(positions):
        if not less.factor < more.factor:
            return "order"
        for name in less.noise:
            if not less.noise[name] < more.noise[name]:
                return f"noise of {name}"
        for name, floor in less.floors.items():
            if not floor < more.floors[name]:
                return f"floor of {name}"
        if less.epsilon is not None and not (more.epsilon is not None and more.epsilon < less.epsilon):
            return "epsilon"
    return ""


@pytest.mark.parametrize("name", METHODS)
def test_the_chosen_position_is_the_plan_of_the_release_and_more_noise_proves_more(name: str) -> None:
    method = METHODS[name]
    positions = what_if(method, PEOPLE, N, factors=FEW, seconds=600.0)
    (chosen,) = [p for p in positions if p.factor == 1]
    plan = method.plan(PEOPLE, N)

    assert [p.factor for p in positions] == list(FEW)
    assert chosen.floors == {s.column: s.floor.error for s in plan.columns if s.floor is not None}
    assert chosen.epsilon == plan_epsilon(plan, 1e-6)
    assert set(chosen.noise) == {"age", "pay", "sex", "owner"}
    assert wrong(positions) == ""


def test_a_table_whose_lists_stand_still_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Response, "scaled", lambda self, factor: self)

    assert wrong(what_if(METHODS["gaussian floor"], PEOPLE, N, factors=FEW)) == "noise of sex"


def test_the_usual_factors_are_a_dozen_and_include_the_chosen_one() -> None:
    assert 8 <= len(FACTORS) <= 16
    assert FACTORS.count(1.0) == 1


def test_the_chosen_one_is_there_even_if_nobody_asks_for_it() -> None:
    assert [p.factor for p in what_if(METHODS["gaussian floor"], PEOPLE, N, factors=[2.0])] == [1.0, 2.0]


def laws(plan: ReleasePlan) -> dict[str, object]:
    return {s.column: s.law for s in plan.columns}


def test_numbers_scale_by_the_factor_and_lists_by_their_log_odds() -> None:
    method = METHODS["gaussian epsilon"]
    chosen, doubled = (laws(method.scaled_plan(PEOPLE, N, f)) for f in (1.0, 2.0))
    one, two = chosen["age"], doubled["age"]
    assert isinstance(one, GaussianLaw)
    assert isinstance(two, GaussianLaw)
    assert two.sd == pytest.approx(2 * one.sd)
    a, b = chosen["sex"], doubled["sex"]
    assert isinstance(a, ResponseLaw)
    assert isinstance(b, ResponseLaw)
    assert response_epsilon(b.keep, 2) == pytest.approx(response_epsilon(a.keep, 2) / 2)


def test_a_position_is_the_release_that_would_be_made_there() -> None:
    method = GaussianRelease(scale=2.0, schema=NUMBERS)
    (double,) = [p for p in what_if(method, NUMBERS, N, factors=[2.0]) if p.factor == 2]
    (direct,) = what_if(GaussianRelease(scale=4.0, schema=NUMBERS), NUMBERS, N, factors=[])

    assert double.noise == pytest.approx(direct.noise)
    assert double.floors == pytest.approx(direct.floors)
    assert double.epsilon == pytest.approx(direct.epsilon)
    assert double.delta == 1e-6


@pytest.mark.parametrize("weights", [None, [1.0, 2.0], [[2.0, 0.5], [0.5, 1.0]]])
def test_lambda_is_the_one_that_gives_the_same_noise(weights: object) -> None:
    method = GaussianRelease(regularization=50.0, weights=weights, schema=NUMBERS)
    positions = what_if(method, NUMBERS, N, factors=FEW)

    assert [p.regularization for p in positions] == pytest.approx([50 * 16, 50, 50 / 16])
    again = GaussianRelease(regularization=positions[0].regularization, weights=weights, schema=NUMBERS)
    assert what_if(again, NUMBERS, N, factors=[])[0].noise == pytest.approx(positions[0].noise)
    assert (
        what_if(LaplaceRelease(scale=0.2, schema=NUMBERS), NUMBERS, N, factors=[])[0].regularization is None
    )


def test_noise_without_differential_privacy_has_no_epsilon() -> None:
    bounded = what_if(METHODS["bounded support"], PEOPLE, N, factors=[])
    assert (bounded[0].epsilon, bounded[0].delta) == (None, None)


def test_an_epsilon_too_large_to_be_read_at_delta_is_left_out() -> None:
    # The sampler's own distance, times e^epsilon, is above delta.
    tiny = what_if(GaussianRelease(scale=0.001, schema=NUMBERS), NUMBERS, N, factors=[])
    assert tiny[0].epsilon is None


INVARIANT = Schema(
    columns=[
        Column("x", lower=0, upper=1),
        Column("z", lower=0, upper=1),
        Column("y", values=(0, 1), role="target"),
    ]
)


def test_an_invariant_release_has_its_deviation_as_a_knob_and_the_same_model_everywhere() -> None:
    method = InvariantRelease(learner="logistic", variance=4.0, schema=INVARIANT)
    stream = Stream.from_seed(7)
    rows = encoded_rows(INVARIANT, rows_from_schema(INVARIANT, 2000, stream))
    meter = choose_meter(method.plan(INVARIANT, N), rows, stream=stream)
    positions = what_if(method, INVARIANT, N, accuracy=meter, factors=FEW)

    assert [p.noise for p in positions] == [{"x": d, "z": d} for d in (1.0, 2.0, 4.0)]
    assert {p.epsilon for p in positions} == {None}
    assert positions[0].floors == {}
    assert len({p.accuracy for p in positions}) == 1
    assert positions[0].accuracy is not None
    assert positions[0].accuracy > 0.85
    assert method.exposure_ is None  # nothing was released


def test_a_release_without_a_knob_has_one_position() -> None:
    (only,) = what_if(InvariantRelease(learner="gram", schema=INVARIANT), INVARIANT, N)

    assert (only.factor, only.noise) == (1.0, {})


def test_factors_that_cannot_be_drawn_are_left_out() -> None:
    positions = what_if(METHODS["laplace epsilon"], PEOPLE, N, factors=[1e-12, 2.0])

    assert [p.factor for p in positions] == [1.0, 2.0]


def test_when_time_is_up_the_chosen_position_is_still_there() -> None:
    assert [p.factor for p in what_if(METHODS["gaussian floor"], PEOPLE, N, seconds=0.0)] == [1.0]


def test_positions_near_the_chosen_one_come_first_and_are_told() -> None:
    asked: list[float] = []
    told: list[float] = []

    def accuracy(plan: ReleasePlan, factor: float) -> float:
        asked.append(factor)
        return factor

    positions = what_if(
        METHODS["gaussian scale"], PEOPLE, N, factors=[8.0, 0.5, 3.0], accuracy=accuracy, progress=told.append
    )
    assert asked == [1.0, 0.5, 3.0, 8.0]
    assert told[-1] == 1.0
    assert all(p.accuracy == p.factor for p in positions)


# What is planned before a cell is read.


def test_rows_are_drawn_from_what_was_declared() -> None:
    rows = rows_from_schema(PEOPLE, 20_000, Stream.from_seed(1))
    age = np.bincount(rows["age"].astype(int) - 17, minlength=74)

    assert set(rows) == {"age", "pay", "sex", "owner"}
    assert chi_square(age, np.full(74, 1 / 74)) > ALPHA
    assert chi_square(np.bincount(rows["sex"], minlength=2), np.full(2, 0.5)) > ALPHA
    present = rows["pay"][~np.isnan(rows["pay"])]
    assert 0 <= present.min() < 0.1
    assert 99.9 < present.max() < 100
    assert np.isnan(rows["pay"]).mean() == pytest.approx(1 / ONE_IN, abs=0.015)


def test_the_target_follows_the_planted_rule_in_nine_rows_of_ten() -> None:
    rows = rows_from_schema(PEOPLE, 20_000, Stream.from_seed(2))
    places = [(rows["age"] - 17) / 73, np.nan_to_num(rows["pay"] / 100, nan=0.5), rows["sex"] / 1]
    mean = np.mean(places, axis=0)
    rule = mean > np.median(mean)

    assert (rule == rows["owner"]).mean() == pytest.approx(1 - 1 / ONE_IN / 2, abs=0.01)


def test_numbers_and_tables_without_features_have_targets_too() -> None:
    number = Schema(
        columns=[Column("x", lower=0, upper=1), Column("y", type="integer", lower=5, upper=9, role="target")]
    )
    y = rows_from_schema(number, 500, Stream.from_seed(3))["y"]
    assert set(y) == {5.0, 6.0, 7.0, 8.0, 9.0}
    alone = Schema(columns=[Column("y", values=(0, 1), role="target")])
    assert set(rows_from_schema(alone, 50, Stream.from_seed(3))["y"]) == {0, 1}
