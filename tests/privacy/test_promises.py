from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.errors import ParameterError, PromiseError
from discreet.privacy.calibration import gaussian_delta, pure_delta, zcdp_delta
from discreet.privacy.promises import (
    ZCDP,
    ApproxDP,
    ColumnFloor,
    ErrorFloor,
    GaussianDP,
    NoPromise,
    Promise,
    PureDP,
    promise_from_dict,
)
from discreet.privacy.rounding import Amount, exact, float_down, float_up

FLOOR = ColumnFloor(
    error=9.0,
    measure="years",
    prior="uniform from 17 to 90",
    van_trees=8.0,
    cramer_rao=10.0,
    fisher_information=0.01,
)
EVERY: list[Promise] = [
    PureDP(epsilon=1),
    ApproxDP(epsilon=0.5, delta=1e-6, unit="person", covers=("age", "income")),
    ZCDP(rho=0.1, neighbors="add-remove"),
    GaussianDP(mu=0.5, total_variation=2.0**-100, assumes=("rows are independent",)),
    ErrorFloor(age=FLOOR, income=100),
    ErrorFloor({"unit": 3, "shoe size": 4, "entries": 5}, arithmetic="real"),
    NoPromise("the label leaves in the clear"),
]
PRIVATE = [promise for promise in EVERY if not isinstance(promise, (ErrorFloor, NoPromise))]


@pytest.mark.parametrize("promise", EVERY, ids=lambda promise: promise.kind)
def test_a_promise_survives_json_pickle_and_copy(promise: Promise) -> None:
    written = json.loads(json.dumps(promise.to_dict(), allow_nan=False))
    assert promise_from_dict(written) == promise
    assert pickle.loads(pickle.dumps(promise)) == promise
    assert copy.deepcopy(promise) == promise
    assert hash(copy.deepcopy(promise)) == hash(promise)
    assert type(promise).__name__ in repr(promise)
    assert promise.sentence()
    assert str(promise)


def test_kinds_are_the_published_ones_and_never_change() -> None:
    assert [promise.kind for promise in EVERY] == [
        "pure-dp", "approx-dp", "zcdp", "gaussian-dp", "error-floor", "error-floor", "no-promise",
    ]  # fmt: skip


@pytest.mark.parametrize("promise", EVERY, ids=lambda promise: promise.kind)
def test_a_promise_is_frozen_and_refuses_unknown_keys(promise: Promise) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        promise.unit = "person"  # type: ignore[misc]
    with pytest.raises(ParameterError, match="epsilonn"):
        promise_from_dict(promise.to_dict() | {"epsilonn": 1})


def test_an_unknown_kind_and_a_missing_number_are_refused() -> None:
    with pytest.raises(ParameterError, match="kind"):
        promise_from_dict({"kind": "renyi-dp"})
    with pytest.raises(ParameterError, match="kind"):
        promise_from_dict({"epsilon": 1})
    with pytest.raises(ParameterError, match="PureDP"):
        promise_from_dict({"kind": "pure-dp"})
    written = ErrorFloor(age=9).to_dict()
    written["columns"]["age"]["floor"] = 1
    with pytest.raises(ParameterError, match="floor"):
        promise_from_dict(written)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", None, True])
def test_a_number_outside_its_domain_is_refused_by_name(bad: Any) -> None:
    for make in (
        lambda: PureDP(epsilon=bad),
        lambda: ApproxDP(epsilon=bad, delta=1e-6),
        lambda: ApproxDP(epsilon=1, delta=bad),
        lambda: ZCDP(rho=bad),
        lambda: GaussianDP(mu=bad),
        lambda: ErrorFloor(age=bad),
    ):
        with pytest.raises(ParameterError, match="must be"):
            make()


def test_common_fields_are_checked() -> None:
    with pytest.raises(ParameterError, match="delta of ApproxDP"):
        ApproxDP(epsilon=1, delta=1.0)
    with pytest.raises(ParameterError, match="neighbors of PureDP"):
        PureDP(epsilon=1, neighbors="swap")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="arithmetic of PureDP"):
        PureDP(epsilon=1, arithmetic="float")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="covers of PureDP"):
        PureDP(epsilon=1, covers="age")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="covers of PureDP"):
        PureDP(epsilon=1, covers=())
    with pytest.raises(ParameterError, match="total_variation of PureDP"):
        PureDP(epsilon=1, total_variation=1.0)
    with pytest.raises(ParameterError, match="unit of ErrorFloor"):
        ErrorFloor(age=9, unit=9)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="columns of ErrorFloor"):
        ErrorFloor()
    with pytest.raises(ParameterError, match="columns of ErrorFloor"):
        ErrorFloor({"age": 9}, age=9)
    with pytest.raises(ParameterError, match="reason of NoPromise"):
        NoPromise(" ")
    with pytest.raises(ParameterError, match="below 1"):
        ColumnFloor(error=1.5, statistic="probability of a wrong guess")


def test_floors_and_no_promise_have_no_epsilon_and_say_so() -> None:
    for promise in (ErrorFloor(age=9), NoPromise("because")):
        with pytest.raises(PromiseError, match="has no epsilon"):
            promise.epsilon_at(1e-6)
        with pytest.raises(PromiseError, match="has no epsilon"):
            promise.delta_at(1.0)


def test_readings_are_the_exact_curves() -> None:
    assert GaussianDP(mu=1).delta_at(1) == pytest.approx(0.1269367375066439, rel=1e-9)
    assert GaussianDP(mu=1).epsilon_at(1e-6) == pytest.approx(4.8865541175, rel=1e-9)
    assert ZCDP(rho=0.5).epsilon_at(1e-6) == pytest.approx(5.2215344445, rel=1e-9)
    assert PureDP(epsilon=1).epsilon_at(0) == 1
    assert PureDP(epsilon=1).delta_at(0) == pytest.approx(math.tanh(0.5), rel=1e-12)
    assert ApproxDP(epsilon=1, delta=1e-6).epsilon_at(1e-6) == 1
    assert PureDP(epsilon=0.1).epsilon_at(0.5) == 0
    with pytest.raises(PromiseError, match="smaller delta"):
        ApproxDP(epsilon=1, delta=1e-6).epsilon_at(1e-7)
    with pytest.raises(PromiseError, match="delta 0"):
        GaussianDP(mu=1).epsilon_at(0)


@pytest.mark.parametrize("promise", PRIVATE, ids=lambda promise: promise.kind)
@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_epsilon_at_and_delta_at_agree_in_the_safe_direction(promise: Promise, delta: float) -> None:
    epsilon = promise.epsilon_at(delta)
    assert promise.delta_at(epsilon) <= delta * (1 + 1e-12)
    if epsilon > 0.01:  # and no smaller epsilon would do
        assert promise.delta_at(epsilon * (1 - 1e-6)) > delta


@pytest.mark.parametrize("promise", PRIVATE, ids=lambda promise: promise.kind)
def test_a_sampler_off_its_law_costs_delta(promise: Promise) -> None:
    tau = 1e-8
    worse = dataclasses.replace(promise, total_variation=tau)
    for epsilon in (0.0, 0.3, 2.0):
        clean = dataclasses.replace(promise, total_variation=0.0).delta_at(epsilon)
        added = worse.delta_at(epsilon) - clean
        assert added == pytest.approx((1 + math.exp(epsilon)) * tau, rel=1e-6)
    epsilon = worse.epsilon_at(1e-5)
    assert worse.delta_at(epsilon) <= 1e-5
    assert epsilon > promise.epsilon_at(1e-5)
    with pytest.raises(PromiseError, match="total variation"):
        worse.epsilon_at(1.01e-6 if isinstance(promise, ApproxDP) else 1e-8)


def test_a_point_is_read_below_its_epsilon_as_leak_or_randomized_response() -> None:
    # With probability delta the row itself comes out, otherwise randomized response: on the two
    # results that favour the first table P - e^x Q is delta + (1 - delta) times that of the response.
    point = ApproxDP(epsilon=1.2, delta=0.01)
    for x in (0.0, 0.4, 1.0):
        p = math.exp(1.2) / (1 + math.exp(1.2))
        direct = 0.01 + 0.99 * (p - math.exp(x) * (1 - p))
        assert point.delta_at(x) == pytest.approx(direct, rel=1e-12)
        assert point.delta_at(x) >= direct * (1 - 1e-15)


@pytest.mark.parametrize("m", [2, 3, 7])
def test_a_group_of_rows_is_m_steps_of_one_row(m: int) -> None:
    pure, point = PureDP(epsilon=0.3).group(m), ApproxDP(epsilon=0.3, delta=1e-6).group(m)
    assert isinstance(pure, PureDP)
    assert isinstance(point, ApproxDP)
    assert 0.3 * m <= pure.epsilon <= 0.3 * m * (1 + 1e-15)
    steps = 1e-6 * sum(math.exp(0.3 * i) for i in range(m))
    assert steps * (1 - 1e-14) <= point.delta <= steps * (1 + 1e-12)
    gaussian, concentrated = GaussianDP(mu=0.2).group(m), ZCDP(rho=0.1).group(m)
    assert isinstance(gaussian, GaussianDP)
    assert isinstance(concentrated, ZCDP)
    assert gaussian.mu == pytest.approx(0.2 * m)
    assert concentrated.rho == pytest.approx(0.1 * m * m)
    assert pure.unit == f"group of {m} persons"
    assert PureDP(epsilon=0.3).group(m, unit="household").unit == "household"


def test_group_keeps_what_it_cannot_change_and_refuses_what_it_cannot_promise() -> None:
    one = PureDP(epsilon=0.3, total_variation=1e-20)
    assert one.group(1) == one
    assert one.group(4).total_variation == 1e-20
    with pytest.raises(ParameterError, match="parameter m of PureDP"):
        one.group(0)
    with pytest.raises(PromiseError, match="nothing"):
        ApproxDP(epsilon=5, delta=1e-3).group(10)
    assert isinstance(NoPromise("so").group(3), NoPromise)


def test_a_floor_for_several_rows_adds_fisher_information() -> None:
    many = ErrorFloor(age=FLOOR).group(4)
    assert isinstance(many, ErrorFloor)
    prior = 1 / 8.0**2 - 0.01
    assert many["age"].van_trees == pytest.approx((4 * 0.01 + prior) ** -0.5, rel=1e-12)
    assert many["age"].error == many["age"].van_trees
    assert Fraction(many["age"].error) ** 2 * (3 * exact(0.01) + 1 / exact(8.0) ** 2) <= 1
    assert many["age"].fisher_information == pytest.approx(0.04)
    with pytest.raises(PromiseError, match="van_trees"):
        ErrorFloor(age=9).group(2)


def test_the_sentence_of_a_floor_says_whom_it_does_not_bind() -> None:
    assert (
        ErrorFloor(age=FLOOR)
        .sentence()
        .startswith(
            "Whoever knows more about a person, such as how age goes with the other columns, may guess age "
            "better than this: if it could equally well be anything from 17 to 90, no method can guess it "
            "from this file with a root-mean-square error below 9 years."
        )
    )
    other = ErrorFloor(entries=ColumnFloor(error=1, prior="cosine squared"), unit="household")
    assert "about one household" in other.sentence()
    assert "if it followed the public prior 'cosine squared'" in other.sentence()
    assert "covers age, income and nothing else" in EVERY[1].sentence()
    assert "rows are independent" in EVERY[3].sentence()
    assert "2.72" in PureDP(epsilon=1).sentence()
    assert "exp(50)" in PureDP(epsilon=50).sentence()


@given(st.floats(1e-30, 1e30))
def test_a_number_is_the_decimal_it_prints(value: float) -> None:
    assert float_up(exact(value)) == value == float_down(exact(value))
    assert abs(exact(value) - Fraction(value)) <= Fraction(value) / 2**53
    third = exact(value) / 3
    assert exact(float_down(third)) <= third <= exact(float_up(third))
    assert Amount.rounded_down(third) <= Amount.rounded_up(third)
    assert Amount.parse(str(Amount.rounded_up(third))) == Amount.rounded_up(third)
    amount = Amount.rounded_up(third)
    low, high = amount.float_down(), float(amount)
    assert exact(low) <= amount.exact <= exact(high)
    # The nearest on either side: the next number is on the other one.
    assert exact(math.nextafter(low, math.inf)) > amount.exact
    assert exact(math.nextafter(high, 0.0)) < amount.exact


def test_amounts_add_exactly_and_never_go_below_nothing() -> None:
    tenth = Amount.rounded_up(0.1)
    total = Amount(0)
    for _ in range(10):
        total = total + tenth
    assert total == Amount.rounded_down(1.0)
    assert not tenth.less(total)
    assert (
        Amount.rounded_up(Fraction(1, 3)).exact > Fraction(1, 3) > Amount.rounded_down(Fraction(1, 3)).exact
    )
    assert Amount.rounded_up(0.25).root_up() == Fraction(1, 2)
    assert float_up(Fraction(10) ** 400) == math.inf
    assert float_down(Fraction(10) ** 400) < math.inf
    assert eval(repr(tenth)) == tenth
    for bad in ("-1", "x", "1e-61", "1/3"):
        with pytest.raises(ParameterError):
            Amount.parse(bad)
    with pytest.raises(ParameterError):
        Amount(-1)


def test_readings_lie_above_a_twin_that_forgets_the_sampler() -> None:
    tau = 1e-9
    assert GaussianDP(mu=1, total_variation=tau).delta_at(1.5) > gaussian_delta(1.5, 1.0)
    assert ZCDP(rho=0.5, total_variation=tau).delta_at(1.5) > zcdp_delta(0.5, 1.5)
    assert PureDP(epsilon=2, total_variation=tau).delta_at(1.5) > pure_delta(2.0, 1.5)
