from __future__ import annotations

import dataclasses
import json
import math
from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.errors import BudgetExceeded, ParameterError, PromiseError
from discreet.ledger._account import spend as spend_under
from discreet.ledger._caps import SAMPLERS, Caps, Rule
from discreet.privacy.calibration import gaussian_delta, gaussian_epsilon, gaussian_mu, zcdp_epsilon, zcdp_rho
from discreet.privacy.composition import Spending
from discreet.privacy.promises import (
    ZCDP,
    ApproxDP,
    ColumnFloor,
    ErrorFloor,
    GaussianDP,
    NoPromise,
    Promise,
    PureDP,
)
from discreet.privacy.rounding import ZERO, Amount

if TYPE_CHECKING:
    from collections.abc import Iterable

FLOOR = ErrorFloor(age=ColumnFloor(error=9, van_trees=8, fisher_information=0.01))

numbers = st.floats(1e-6, 10)
promises = st.one_of(
    st.builds(PureDP, epsilon=numbers),
    st.builds(ApproxDP, epsilon=numbers, delta=st.floats(1e-12, 1e-3)),
    st.builds(ZCDP, rho=numbers),
    st.builds(GaussianDP, mu=st.floats(1e-6, 2), total_variation=st.sampled_from([0.0, 1e-30])),
    st.just(FLOOR),
    st.builds(PureDP, epsilon=numbers, covers=st.sampled_from([("age",), ("age", "income")])),
    st.just(NoPromise("because")),
)


def total(parts: Iterable[Promise]) -> Spending:
    spent = Spending()
    for part in parts:
        spent = spent + Spending.from_promises(part)
    return spent


@given(st.lists(promises, max_size=4))
def test_composition_commutes_and_survives_json(parts: list[Promise]) -> None:
    spent = total(parts)
    assert all(total(order) == spent for order in permutations(parts))
    assert Spending.from_dict(json.loads(json.dumps(spent.to_dict()))) == spent


@given(st.lists(promises, min_size=1, max_size=4), promises)
def test_composition_never_shrinks(parts: list[Promise], more: Promise) -> None:
    before, after = total(parts), total([*parts, more])
    for name in ("gaussian", "concentrated", "pure", "point_epsilon", "point_delta"):
        assert getattr(after, name) >= getattr(before, name)
    assert set(after.unpromised) >= set(before.unpromised)
    if not after.unpromised and after.delta < 1e-2:
        assert after.epsilon_at(2e-2) >= before.epsilon_at(2e-2) * (1 - 1e-12)
        for epsilon in (0.1, 1.0, 5.0):
            assert after.delta_at(epsilon) >= before.delta_at(epsilon) * (1 - 1e-12)


def test_each_kind_has_its_own_rule() -> None:
    gaussian = total([GaussianDP(mu=0.3), GaussianDP(mu=0.4)])
    assert gaussian.promise() == GaussianDP(mu=0.5)
    assert gaussian.epsilon_at(1e-6) == gaussian_epsilon(0.5, 1e-6)
    pure = total([PureDP(epsilon=0.1)] * 10)
    assert pure.promise() == PureDP(epsilon=1.0)
    point = total([ApproxDP(epsilon=0.1, delta=1e-7)] * 3)
    assert point.promise() == ApproxDP(epsilon=0.3, delta=3e-7)
    concentrated = total([ZCDP(rho=0.1), GaussianDP(mu=0.2), PureDP(epsilon=0.2)])
    assert concentrated.promise() == ZCDP(rho=0.14)
    mixed = total([PureDP(epsilon=0.2), ApproxDP(epsilon=0.1, delta=1e-7)])
    assert mixed.promise(delta=1e-7) == ApproxDP(epsilon=0.3, delta=1e-7)
    with pytest.raises(PromiseError, match="delta must be given"):
        mixed.promise()
    with pytest.raises(PromiseError, match="point events"):
        mixed.epsilon_at(1e-8)


def test_the_smaller_of_the_valid_readings_is_taken() -> None:
    # Many small pure events: sqrt growth by concentration beats the sum; few: the sum wins.
    many = total([PureDP(epsilon=0.01)] * 400)
    assert many.epsilon_at(1e-6) == pytest.approx(zcdp_epsilon(400 * 0.01**2 / 2, 1e-6), rel=1e-9)
    assert many.epsilon_at(1e-6) < 1.1 < many.epsilon
    few = total([PureDP(epsilon=0.5), GaussianDP(mu=0.3)])
    assert few.epsilon_at(1e-6) == pytest.approx(0.5 + gaussian_epsilon(0.3, 1e-6), rel=1e-12)
    for books in (many, few):
        assert books.delta_at(books.epsilon_at(1e-6)) <= 1e-6 * (1 + 1e-12)


def test_readings_dominate_the_exact_delta_of_gaussian_noise_and_randomized_response() -> None:
    # One Gaussian answer and k randomized responses, composed exactly: the loss of the responses is
    # (2 heads - k) epsilon with a binomial number of heads.
    mu, epsilon = 0.7, 0.4
    for k in (1, 3, 8):
        books = total([GaussianDP(mu=mu), *[PureDP(epsilon=epsilon)] * k])
        keep = math.exp(epsilon) / (1 + math.exp(epsilon))
        for x in (1.0, 2.0, 3.5):
            true = 0.0
            for heads in range(k + 1):
                weight = math.comb(k, heads) * keep**heads * (1 - keep) ** (k - heads)
                true += weight * _gaussian(x - (2 * heads - k) * epsilon, mu)
            assert books.delta_at(x) >= true
    # and the twin that adds everything as Gaussian lies below the truth somewhere
    twin = math.sqrt(mu**2 + 8 * epsilon**2)
    assert any(
        gaussian_delta(x, twin)
        < sum(
            math.comb(8, heads) * keep**heads * (1 - keep) ** (8 - heads)
            * _gaussian(x - (2 * heads - 8) * epsilon, mu)
            for heads in range(9)
        )
        for x in (0.0, 0.1, 0.5, 1.0)
    )  # fmt: skip


def _gaussian(epsilon: float, mu: float) -> float:
    """Hockey-stick divergence at any sign of epsilon, from the definition."""
    from scipy.stats import norm

    value = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    return float(value)


def test_samplers_add_up_and_are_paid_in_delta() -> None:
    books = total([GaussianDP(mu=0.1, total_variation=1e-12)] * 5)
    assert books.total_variation == Amount.rounded_up(5e-12)
    clean = gaussian_delta(1.0, math.sqrt(5) * 0.1)
    assert books.delta_at(1.0) >= clean + (1 + math.e) * 5e-12 * (1 - 1e-9)
    alone = Spending(charges=1, unit="row", neighbors="replace-one", total_variation=Amount.rounded_up(0.3))
    assert alone.delta_at(0.0) == pytest.approx(0.6)


def test_books_past_all_bounds_say_so() -> None:
    full = total([ApproxDP(epsilon=0.1, delta=0.6)] * 2)
    assert full.delta_at(0.5) == 1
    assert Spending().delta_at(0.5) == 0


def test_a_kind_without_a_rule_is_refused() -> None:
    class Novel(PureDP):
        kind = "novel"

    class Unruled(Promise):
        def _extend_to_group(self, m: int) -> Unruled:
            return self

        def sentence(self) -> str:
            return "?"

    assert Spending.from_promises(Novel(epsilon=1)).epsilon == 1
    with pytest.raises(PromiseError, match="composition rule"):
        Spending.from_promises(Unruled())


def test_different_people_or_relations_are_never_added_up() -> None:
    with pytest.raises(PromiseError, match="neighbors"):
        total([PureDP(epsilon=1), PureDP(epsilon=1, neighbors="add-remove")])
    with pytest.raises(PromiseError, match="unit"):
        total([PureDP(epsilon=1), PureDP(epsilon=1, unit="household")])


def test_charges_on_different_columns_are_still_added_up() -> None:
    books = total([PureDP(epsilon=1, covers=("age",)), PureDP(epsilon=1, covers=("age", "sex"))])
    assert books.epsilon == 2
    assert books.covers == ("age",)
    apart = total([PureDP(epsilon=1, covers=("age",)), PureDP(epsilon=1, covers=("sex",))])
    with pytest.raises(PromiseError, match="share none"):
        apart.epsilon_at(1e-6)
    parts = Spending.from_promises([PureDP(epsilon=1, covers=("age",)), PureDP(epsilon=2, covers=("sex",))])
    assert (parts.covers, parts.epsilon, parts.charges) == (("age", "sex"), 3, 1)


def test_what_promises_no_epsilon_makes_the_total_promise_none() -> None:
    for event, reason in ((NoPromise("published as is"), "published"), (FLOOR, "floor")):
        books = total([PureDP(epsilon=1), event])
        assert isinstance(books.promise(1e-6), NoPromise)
        with pytest.raises(PromiseError, match=reason):
            books.epsilon_at(1e-6)
    assert isinstance(Spending().promise(), NoPromise)
    together = Spending.from_promises([GaussianDP(mu=1), FLOOR])
    assert together.promise() == GaussianDP(mu=1)
    with pytest.raises(ParameterError, match="promises of a charge"):
        Spending.from_promises([])


def test_floors_add_fisher_information_per_column() -> None:
    unbounded = ErrorFloor(income=ColumnFloor(error=3, fisher_information=0.1))
    together = [(FLOOR, ErrorFloor(income=3)), (FLOOR, unbounded, ErrorFloor(sex=1))]
    books = sum((Spending.from_promises(parts) for parts in together), Spending())
    prior = 1 / 8**2 - 0.01
    assert books.floors() == {"age": pytest.approx((0.02 + prior) ** -0.5, rel=1e-8)}
    assert books.floors()["age"] <= (0.02 + prior) ** -0.5


# --- caps -------------------------------------------------------------------------------------


def spend(caps: Caps, parts: Iterable[Promise]) -> Spending:
    books = Spending()
    for part in parts:
        caps, books = charge(caps, books, part)
    return books


def charge(caps: Caps, books: Spending, part: Promise, scope: str = "total") -> tuple[Caps, Spending]:
    after, books = spend_under(caps, books, (part,), (), scope=scope)
    assert after is not None
    return after, books


@given(
    st.floats(0.01, 20),
    st.floats(1e-12, 0.1),
    st.sampled_from(["mixed", "gaussian", "pure"]),
    st.sampled_from([0.0, 1e-40]),
)
def test_everything_the_caps_allow_at_once_is_within_the_limit(
    epsilon: float, delta: float, rule: Rule, tau: float
) -> None:
    caps = Caps.from_limit(ApproxDP(epsilon=epsilon, delta=delta), rule=rule)
    amounts = {"rho": ZERO, "epsilon": ZERO, **dict(caps.amounts)}
    full = Spending(
        charges=3,
        unit="row",
        neighbors="replace-one",
        gaussian=amounts["rho"],
        order=caps.order,
        point_epsilon=amounts["epsilon"],
        point_delta=amounts["delta"].less(Amount.rounded_up(tau).times(caps.weight)),
        total_variation=Amount.rounded_up(tau),
    )
    assert full.delta_at(epsilon) <= delta * (1 + 1e-12)
    assert Caps.from_dict(json.loads(json.dumps(caps.to_dict()))) == caps
    used = caps.epsilon(full)
    assert used is not None
    assert used <= epsilon * (1 + 1e-9)


def test_a_pure_limit_is_filled_exactly_and_refuses_other_kinds() -> None:
    caps = Caps.from_limit(PureDP(epsilon=1))
    books = spend(caps, [PureDP(epsilon=0.1)] * 10)
    with pytest.raises(BudgetExceeded, match="nothing is left") as refusal:
        caps.admit(books, Spending.from_promises(PureDP(epsilon=0.1)), scope="total")
    assert (refusal.value.asked, refusal.value.left, refusal.value.limit) == (0.1, 0.0, 1.0)
    assert (refusal.value.currency, refusal.value.scope) == ("epsilon", "total")
    for event in (GaussianDP(mu=0.01), ZCDP(rho=0.01), ApproxDP(epsilon=0.01, delta=1e-9)):
        with pytest.raises(PromiseError, match="Open the ledger with"):
            spend(caps, [event])
    with pytest.raises(BudgetExceeded, match="total variation"):
        spend(caps, [PureDP(epsilon=0.1, total_variation=2 * SAMPLERS)])
    assert caps.limit.total_variation == pytest.approx(SAMPLERS)


def test_a_concentrated_limit_is_one_pool() -> None:
    caps = Caps.from_limit(ZCDP(rho=0.1))
    books = spend(caps, [GaussianDP(mu=0.2), ZCDP(rho=0.06), PureDP(epsilon=0.2)])
    assert caps.left(books)["rho"] == 0
    with pytest.raises(BudgetExceeded):
        caps.admit(books, Spending.from_promises(GaussianDP(mu=1e-6)), scope="total")
    with pytest.raises(PromiseError, match="ApproxDP"):
        spend(caps, [ApproxDP(epsilon=0.1, delta=1e-9)])


def test_a_gaussian_limit_takes_gaussian_events_only() -> None:
    caps = Caps.from_limit(GaussianDP(mu=0.5))
    books = spend(caps, [GaussianDP(mu=0.3), GaussianDP(mu=0.4)])
    assert caps.left(books)["rho"] == 0
    for event in (PureDP(epsilon=0.01), ZCDP(rho=0.01)):
        with pytest.raises(PromiseError):
            spend(caps, [event])


def test_an_approximate_limit_is_one_pool_for_every_kind() -> None:
    caps = Caps.from_limit(ApproxDP(epsilon=1, delta=1e-6))
    amounts = dict(caps.amounts)
    assert caps.order == 22.2
    assert float(amounts["rho"]) == pytest.approx(zcdp_rho(1, 9e-7), rel=1e-5)
    books = spend(caps, [PureDP(epsilon=0.1), GaussianDP(mu=0.1), ZCDP(rho=1e-3)])
    books = charge(caps, books, ApproxDP(epsilon=0.1, delta=5e-8))[1]
    assert 0.51 < caps.share(books) < 0.52
    with pytest.raises(
        BudgetExceeded, match=r"for 'ann': this takes 8\d\.\d.% of it and 48\.\d.% is"
    ) as refusal:
        charge(caps, books, GaussianDP(mu=0.2), scope="ann")
    assert refusal.value.scope == "ann"
    with pytest.raises(BudgetExceeded, match="delta"):
        charge(caps, books, ApproxDP(epsilon=0.01, delta=6e-8))
    with pytest.raises(BudgetExceeded, match="delta"):
        spend(caps, [PureDP(epsilon=0.1), GaussianDP(mu=0.01, total_variation=1e-6)])


def test_a_rule_admits_its_own_kinds_alone() -> None:
    limit = ApproxDP(epsilon=1, delta=1e-6)
    events = {
        "gaussian": GaussianDP(mu=0.01), "zcdp": ZCDP(rho=1e-4), "pure": PureDP(epsilon=0.01),
        "point": ApproxDP(epsilon=0.01, delta=1e-8),
    }  # fmt: skip
    rules: dict[Rule, set[str]] = {"mixed": set(events), "gaussian": {"gaussian"}, "pure": {"pure", "point"}}
    for rule, kinds in rules.items():
        caps = Caps.from_limit(limit, rule=rule)
        first = next(iter(sorted(kinds)))
        for kind, event in events.items():
            if kind in kinds:
                spend(caps, [events[first], event])
            else:
                with pytest.raises(PromiseError, match="Open the ledger with rule='mixed'"):
                    spend(caps, [events[first], event])


@pytest.mark.parametrize(
    "event",
    [
        ApproxDP(epsilon=1, delta=1e-6),
        PureDP(epsilon=1),
        GaussianDP(mu=gaussian_mu(1, 1e-6)),
        ZCDP(rho=zcdp_rho(1, 1e-6)),
    ],
    ids=lambda event: event.kind,
)
def test_a_first_charge_is_read_exactly_and_closes_the_ledger(event: Promise) -> None:
    # It was chosen before any answer, so it may fill the limit; nothing fits after it.
    rules: tuple[Rule, ...] = ("mixed", "gaussian", "pure")
    for rule in rules:
        unused = Caps.from_limit(ApproxDP(epsilon=1, delta=1e-6), rule=rule)
        caps, books = charge(unused, Spending(), event)
        assert caps.holds(books)
        for more in (PureDP(epsilon=1e-9), GaussianDP(mu=1e-9), ApproxDP(epsilon=1e-9, delta=1e-12)):
            with pytest.raises((BudgetExceeded, PromiseError)):
                charge(caps, books, more)
        with pytest.raises((BudgetExceeded, PromiseError)):
            spend_under(unused, Spending(), (event, PureDP(epsilon=1e-3)), (), scope="total")


def test_a_limit_binds_the_same_people_and_columns() -> None:
    caps = Caps.from_limit(PureDP(epsilon=1, covers=("age",)))
    spend(caps, [PureDP(epsilon=0.1), PureDP(epsilon=0.1, covers=("age", "sex"))])
    with pytest.raises(PromiseError, match="covers"):
        spend(caps, [PureDP(epsilon=0.1, covers=("sex",))])
    with pytest.raises(PromiseError, match="neighbors"):
        spend(caps, [PureDP(epsilon=0.1, neighbors="add-remove")])
    with pytest.raises(PromiseError, match="unit"):
        spend(caps, [PureDP(epsilon=0.1, unit="household")])
    for event in (NoPromise("in the clear"), FLOOR):
        with pytest.raises(PromiseError, match="must keep differential privacy"):
            spend(caps, [event])


def test_a_guarantee_speaks_of_the_columns_that_every_charge_protected() -> None:
    def guaranteed(caps: Caps, *covers: tuple[str, ...] | None) -> Promise:
        return caps.guarantee(spend(caps, [PureDP(epsilon=0.1, covers=names) for names in covers]))

    caps = Caps.from_limit(PureDP(epsilon=1))
    assert guaranteed(caps, None) == caps.limit
    assert guaranteed(caps, ("age", "sex"), ("age", "job")) == dataclasses.replace(
        caps.limit, covers=("age",)
    )
    assert isinstance(guaranteed(caps, ("age",), ("job",)), NoPromise)
    named = Caps.from_limit(PureDP(epsilon=1, covers=("age",)))
    assert guaranteed(named, None, ("age", "sex")) == named.limit


def test_a_floor_limit_caps_fisher_information() -> None:
    limit = ErrorFloor(age=ColumnFloor(error=5, fisher_information=0.03))
    caps = Caps.from_limit(limit)
    books = spend(caps, [FLOOR, FLOOR, FLOOR])
    with pytest.raises(BudgetExceeded, match="Fisher information of age"):
        caps.admit(books, Spending.from_promises(FLOOR), scope="total")
    with pytest.raises(PromiseError, match="must include an ErrorFloor for 'age'"):
        caps.admit(books, Spending.from_promises(ErrorFloor(income=3)), scope="total")
    caps.admit(books, Spending.from_promises(ErrorFloor(income=3, unpublished=("age",))), scope="total")
    with pytest.raises(PromiseError, match="fisher_information"):
        spend(caps, [ErrorFloor(age=9)])
    with pytest.raises(PromiseError, match="must include an ErrorFloor"):
        spend(caps, [PureDP(epsilon=0.1)])
    with pytest.raises(ParameterError, match="fisher_information of the limit"):
        Caps.from_limit(ErrorFloor(age=9))


def test_impossible_limits_are_refused() -> None:
    with pytest.raises(ParameterError, match="limit of Ledger"):
        Caps.from_limit(NoPromise("because"))
    with pytest.raises(ParameterError, match="total_variation"):
        Caps.from_limit(ApproxDP(epsilon=1, delta=1e-6, total_variation=1e-9))
    huge = Caps.from_limit(ApproxDP(epsilon=1e4, delta=1e-6))
    spend(huge, [PureDP(epsilon=1), GaussianDP(mu=1)])
    with pytest.raises(BudgetExceeded, match="delta"):
        spend(huge, [PureDP(epsilon=1), PureDP(epsilon=1, total_variation=1e-30)])
