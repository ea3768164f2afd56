"""One promise over several passes: split by public shares, charged to the letter, never overdrawn."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.errors import BudgetExceeded, ParameterError, PromiseError
from discreet.learn.budget_schedule import BudgetSchedule, NoiselessSums
from discreet.ledger import Ledger
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, NoPromise, PureDP, gaussian_mu
from discreet.privacy.rounding import exact
from discreet.query import Database, Histogram
from discreet.schema import Column, Schema

SCHEMA = Schema(columns=[Column(f"n{i}", type="integer", lower=0, upper=3) for i in range(6)])
ROWS = {f"n{i}": np.arange(40) % 4 for i in range(6)}


@pytest.mark.parametrize(
    "privacy",
    [
        ApproxDP(epsilon=1.0, delta=1e-6),
        PureDP(epsilon=0.7),
        pytest.param(GaussianDP(mu=0.3), marks=pytest.mark.slow),
        pytest.param(ZCDP(rho=0.07), marks=pytest.mark.slow),
    ],
    ids=str,
)
@settings(max_examples=15, deadline=None)
@given(weights=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6))
def test_all_passes_together_fill_a_ledger_of_the_same_limit_and_do_not_overdraw_it(
    privacy: Any, weights: list[float]
) -> None:
    ledger = Ledger.open(":memory:", limit=privacy)
    shares = {f"pass {i}": weight for i, weight in enumerate(weights)}
    with Database(ROWS, schema=SCHEMA, ledger=ledger) as sums:
        passes = BudgetSchedule(sums, privacy, shares)
        for i, name in enumerate(shares):
            passes.ask(name, Histogram(f"n{i}"))
    spent = ledger.spent()
    (whole,) = passes.promises
    if isinstance(privacy, PureDP):
        assert isinstance(whole, PureDP)
        assert 1 - 1e-12 < spent.pure.exact / exact(whole.epsilon) <= 1
    else:
        assert isinstance(whole, GaussianDP)
        assert 1 - 1e-12 < spent.gaussian.exact / (exact(whole.mu) ** 2 / 2) <= 1
    assert sum(passes.split.values()) == pytest.approx(1.0)


def test_each_pass_is_charged_its_share() -> None:
    with Database(ROWS, schema=SCHEMA) as sums:
        passes = BudgetSchedule(sums, GaussianDP(mu=0.5), {"a": 1, "b": 3})
        costs = [passes.ask(name, Histogram("n0")).cost[0] for name in ("a", "b")]
    assert [cost.mu for cost in costs if isinstance(cost, GaussianDP)] == pytest.approx(
        [0.25, 0.5 * np.sqrt(0.75)], rel=1e-12
    )


def test_shares_of_mu_instead_of_rho_would_overspend() -> None:
    # The wrong twin: two halves of mu are sqrt(1/2) of it together, two shares of sqrt(1/2) are all of it.
    with Database(ROWS, schema=SCHEMA) as sums:
        passes = BudgetSchedule(sums, GaussianDP(mu=1.0), {"a": 1, "b": 1})
        parts = [passes.privacy(name) for name in ("a", "b")]
    squares = sum(Fraction(part.mu) ** 2 for part in parts if isinstance(part, GaussianDP))
    assert 1 - Fraction(1, 10**12) < squares <= 1


def test_a_plan_that_wants_more_than_is_left_is_refused_by_the_ledger_before_its_first_pass() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=0.5))
    with Database(ROWS, schema=SCHEMA, ledger=ledger) as sums:
        passes = BudgetSchedule(sums, GaussianDP(mu=0.6), {"a": 1, "b": 1})
        with pytest.raises(BudgetExceeded, match=r"this takes 144\.0.% of it .* would still fit"):
            passes.ask("a", Histogram("n0"))
        assert ledger.spent().charges == 0


def test_a_point_promise_keeps_a_millionth_of_delta_for_samplers() -> None:
    with Database(ROWS, schema=SCHEMA) as sums:
        privacy = ApproxDP(epsilon=1.0, delta=1e-6)
        (whole,) = BudgetSchedule(sums, privacy, {"a": 1}).promises
        assert isinstance(whole, GaussianDP)
        assert whole.delta_at(1.0) <= 1e-6
        assert whole.mu > gaussian_mu(1.0, 1e-6) * (1 - 1e-6)
        with pytest.raises(PromiseError, match="samplers may err"):
            BudgetSchedule(sums, ApproxDP(epsilon=60.0, delta=1e-6), {"a": 1})


def test_the_promise_is_that_of_all_passes_though_some_are_not_asked() -> None:
    with Database(ROWS, schema=SCHEMA) as sums:
        passes = BudgetSchedule(sums, GaussianDP(mu=0.5), {"a": 1, "b": 3})
        passes.ask("a", Histogram("n0"))
        (whole,) = passes.promises
        assert isinstance(whole, GaussianDP)
        assert whole.mu == 0.5
        assert sums.ledger.spent().gaussian.exact < Fraction(1, 31)


@pytest.mark.parametrize("privacy", [GaussianDP(mu=1e300), ZCDP(rho=1.7e308)], ids=str)
def test_amounts_past_the_range_of_numbers_are_refused_and_break_nothing(privacy: Any) -> None:
    with Database(ROWS, schema=SCHEMA) as sums:
        with pytest.raises(PromiseError):
            BudgetSchedule(sums, privacy, {"a": 1, "b": 2}).ask("a", Histogram("n0"))
        assert sums.ledger.spent().charges == 0


def test_shares_must_be_above_zero() -> None:
    with Database(ROWS, schema=SCHEMA) as sums:
        for shares in ({}, {"a": 0.0}, {"a": 1.0, "b": -1.0}):
            with pytest.raises(ParameterError, match="weights of BudgetSplit must be above 0"):
                BudgetSchedule(sums, GaussianDP(mu=1.0), shares)


def test_exact_sums_promise_nothing_and_a_limit_refuses_them() -> None:
    nothing = NoPromise("made up")
    with NoiselessSums(ROWS, schema=SCHEMA) as sums:
        answer = BudgetSchedule(sums, nothing, {"a": 1}).ask("a", Histogram("n0"))
        assert np.asarray(answer.value).tolist() == [10.0] * 4
        assert np.asarray(answer.sd).tolist() == [0.0] * 4
        assert sums.ledger.spent().unpromised == ("made up",)
        with pytest.raises(PromiseError, match="privacy of NoiselessSums must be a NoPromise"):
            sums.ask(Histogram("n0"), privacy=GaussianDP(mu=1.0))
        with pytest.raises(PromiseError, match="must be a promise"):
            BudgetSchedule(sums, GaussianDP(mu=1.0), {"a": 1})
    with (
        NoiselessSums(
            ROWS, schema=SCHEMA, ledger=Ledger.open(":memory:", limit=GaussianDP(mu=9.0))
        ) as limited,
        pytest.raises((BudgetExceeded, PromiseError)),
    ):
        limited.ask(Histogram("n0"), privacy=nothing)
    with Database(ROWS, schema=SCHEMA) as noisy, pytest.raises(PromiseError, match="was NoPromise"):
        BudgetSchedule(noisy, nothing, {"a": 1})
