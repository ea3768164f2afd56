"""Whatever caps admit keeps the limit: random charges, and everyone who chooses charges by answers."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import mpmath
import pytest

from discreet.errors import BudgetExceeded, LedgerTampered, ParameterError, PromiseError
from discreet.ledger import Account, Caps, Ledger, Rule
from discreet.ledger._account import spend
from discreet.noise import Stream, uniform_integers
from discreet.privacy.budget_split import BudgetSplit
from discreet.privacy.calibration import gaussian_delta, gaussian_mu, zcdp_rho
from discreet.privacy.composition import Spending
from discreet.privacy.promises import (
    ZCDP,
    ApproxDP,
    ErrorFloor,
    GaussianDP,
    NoPromise,
    PosteriorOdds,
    Promise,
    PureDP,
)
from discreet.privacy.receipt import canonical
from discreet.privacy.rounding import ZERO, Amount, exact
from tests.privacy.exact_composition import Composition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from discreet.privacy._posterior_odds import Theorem

LIMIT = ApproxDP(epsilon=1, delta=1e-6)
RULES: tuple[Rule, ...] = ("mixed", "gaussian", "pure")
ONE_AFTER_THE_OTHER = (
    ZCDP(rho=zcdp_rho(1, 1e-6)),
    PureDP(epsilon=0.49),
    GaussianDP(mu=0.1),
    ApproxDP(epsilon=0.009, delta=4e-7),
)


# --- a first charge that the limit cannot add up --------------------------------------------------


def test_nothing_is_admitted_after_a_first_charge_that_has_no_cap(tmp_path: Path) -> None:
    told = Composition()
    for promise in ONE_AFTER_THE_OTHER:
        told.add([promise])
    assert told.delta(1) > 1000 * LIMIT.delta
    with Ledger.open(tmp_path / "one.ledger", limit=LIMIT, owner_limit=LIMIT) as ledger:
        ledger.charge(ONE_AFTER_THE_OTHER[0], owner="ann")
        for owner in (None, "ann"):
            assert set((ledger.remaining(owner) or {}).values()) == {0.0}
        for promise in (*ONE_AFTER_THE_OTHER[1:], ZCDP(rho=1e-9)):
            with pytest.raises(BudgetExceeded, match=r"nothing is left .* took all of it") as refusal:
                ledger.charge(promise)
            assert (refusal.value.left, refusal.value.scale, refusal.value.asked > 0) == (0.0, 0.0, True)
        assert ledger.spent().charges == 1
        assert (ledger.accounts(None)[0].used or {})["share"] == 1.0
        assert ledger.guarantee() == LIMIT
        ledger.check()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("first", [ZCDP(rho=zcdp_rho(1, 1e-6)), GaussianDP(mu=gaussian_mu(1, 1e-6))])
def test_no_plan_fits_with_a_first_charge_that_fills_the_limit(first: Promise, rule: Rule) -> None:
    caps = Caps.from_limit(LIMIT, rule=rule)
    for later in (PureDP(epsilon=0.01), GaussianDP(mu=0.01), ApproxDP(epsilon=0.01, delta=1e-15)):
        with pytest.raises((BudgetExceeded, PromiseError)):
            spend(caps, Spending(), (first,), (later,), scope="total")


def test_a_first_plan_is_reserved_as_a_whole_and_nothing_beside_it() -> None:
    shares = BudgetSplit(LIMIT, {"a": 1, "b": 2, "c": 3}, unit=LIMIT.unit, neighbors=LIMIT.neighbors)
    first, second, third = (shares[name] for name in "abc")
    with Ledger.open(":memory:", limit=LIMIT) as ledger:
        ledger.charge(first, plan=[second, third])
        for other in (PureDP(epsilon=1e-6), GaussianDP(mu=1.0), ZCDP(rho=1e-9)):
            with pytest.raises(BudgetExceeded):
                ledger.charge(other)
        ledger.charge(second, plan=[third])
        ledger.charge(third)
        with pytest.raises(BudgetExceeded):
            ledger.charge(GaussianDP(mu=1e-6))
        assert ledger.spent().delta_at(1) <= LIMIT.delta
        assert 0.999 < (ledger.accounts(None)[0].used or {})["epsilon"] <= 1  # type: ignore[operator]
        assert ledger.guarantee() == LIMIT
        ledger.check()
    with Ledger.open(":memory:", limit=LIMIT) as ledger:  # a used ledger reserves nothing
        ledger.charge(PureDP(epsilon=1e-3))
        with pytest.raises(BudgetExceeded, match="Not enough budget"):
            ledger.charge(first, plan=[second, third])


def test_a_reservation_that_was_written_into_the_record_later_is_told(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "one.ledger", limit=LIMIT) as ledger:
        ledger.charge(GaussianDP(mu=0.1))
        caps, spent = ledger.accounts(None)[0].caps, ledger.spent()
        assert caps is not None
        reserved = dataclasses.replace(caps, plan=spent + spent)
        assert not Caps.from_limit(LIMIT).plan
        text = canonical(reserved.to_dict())
        ledger._store.write(
            lambda transaction: transaction.put_total("total", text, canonical(spent.to_dict()))
        )
        with pytest.raises(LedgerTampered, match="must be the sum of its rows"):
            ledger.check()


# --- random limits, random charges ----------------------------------------------------------------

T = TypeVar("T")
FACTORS = (1.0, 1.0, 1 - 1e-12, 1 + 1e-12, 0.999, 1.001, 0.9, 0.5, 0.5, 0.5, 0.25, 0.1, 0.1, 2.0)
TINY_DELTAS = (1e-300, 1e-61, 1e-30)
ADMITS = {"pure-dp": (1,), "zcdp": (0, 1, 2), "gaussian-dp": (0,), "posterior-odds": (0, 1)}
LIMITS = 500


class Dice:
    """Numbers from 0 to 1 from a seed."""

    def __init__(self, seed: int) -> None:
        self._stream = Stream.from_seed(seed)
        self._ready: list[float] = []

    def roll(self) -> float:
        if not self._ready:
            self._ready = (uniform_integers(2**31, 2**16, self._stream) / 2**31).tolist()
        return self._ready.pop()

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.roll()

    def below(self, n: int) -> int:
        return math.floor(n * self.roll())

    def one_of(self, things: Sequence[T]) -> T:
        return things[self.below(len(things))]


def some_caps(dice: Dice) -> Caps:
    """Draw a limit, its rule, and sometimes an order."""
    epsilon, delta = math.exp(dice.between(-3, 2)), math.exp(dice.between(-23, -1.6))
    limit: Promise
    match dice.below(10):
        case 0:
            limit = PureDP(epsilon=epsilon)
        case 1:
            limit = ZCDP(rho=epsilon**2 / 8)
        case 2:
            limit = GaussianDP(mu=epsilon / 2)
        case 3:
            theorem: Theorem = "corrected" if dice.roll() < 0.8 else "theorem 5"
            limit = PosteriorOdds(epsilon=epsilon, delta=delta, queries=1 + dice.below(6), theorem=theorem)
        case _:
            limit = ApproxDP(epsilon=epsilon, delta=delta)
    rule: Rule = "mixed" if dice.roll() < 0.7 else dice.one_of(RULES)
    caps = Caps.from_limit(limit, rule=rule)
    if caps.order is None or dice.roll() < 0.6:
        return caps
    order = 1 + (caps.order - 1) * math.exp(dice.between(-0.3, 2))
    return Caps.from_limit(limit, order=float(f"{order:.4g}"))


@lru_cache(maxsize=2 * LIMITS)
def whole_limit(limit: Promise) -> tuple[float, float, float, float]:
    """Return epsilon, rho of Gaussian and of concentrated events, and delta that a limit comes to alone."""
    epsilon, delta = getattr(limit, "epsilon", 1.0), getattr(limit, "delta", 1e-6)
    return epsilon, gaussian_mu(epsilon, delta) ** 2 / 2, zcdp_rho(epsilon, delta), delta


def some_part(dice: Dice, left: Mapping[str, float], limit: Promise, first: bool) -> Promise:
    """Draw a promise of a size near what is left, or near the whole limit."""
    factor = dice.one_of(FACTORS)
    if dice.roll() < (0.4 if first else 0.03):
        epsilon, gaussian, concentrated, delta = whole_limit(limit)
    else:
        gaussian = concentrated = left.get("rho", 0.0)
        epsilon, delta = left.get("epsilon", math.sqrt(2 * gaussian)), left.get("delta", 1e-9)
        if "epsilon" not in left and dice.roll() < 0.3:  # large responses cost less than their rho
            epsilon *= 1 + 2 * dice.roll()
    tau = 0.0
    if dice.roll() < 0.15:
        tau = left.get("total variation", delta / (1 + math.exp(whole_limit(limit)[0])))
        tau = min(tau * dice.one_of(FACTORS) * dice.one_of((1.0, 1e-3)), 0.5)
    fits = ADMITS.get(limit.kind, (0, 1, 3))
    match dice.one_of(fits) if dice.roll() < (0.5 if first else 0.9) else dice.below(4):
        case 0:
            return GaussianDP(mu=max(math.sqrt(2 * gaussian * factor), 1e-12), total_variation=tau)
        case 1:
            return PureDP(epsilon=max(epsilon * factor, 1e-12), total_variation=tau)
        case 2:
            return ZCDP(rho=max(concentrated * factor, 1e-20), total_variation=tau)
    point = delta * dice.one_of(FACTORS) if dice.roll() < 0.8 else dice.one_of(TINY_DELTAS)
    point = min(max(point, 1e-300), 0.9)
    return ApproxDP(epsilon=max(epsilon * factor, 1e-12), delta=point, total_variation=tau)


@dataclass
class Scope:
    """The books of one scope under its caps, beside what was admitted."""

    caps: Caps
    books: Spending
    told: Composition

    @classmethod
    def under(cls, caps: Caps) -> Scope:
        return cls(caps, Spending(), Composition())


def some_charge(dice: Dice, near: Scope) -> list[Promise]:
    """Draw the parts of a charge; some have a floor beside them, and some no promise at all."""
    left, first = near.caps.left(near.books), not near.books.charges
    count = 1 if dice.roll() < 0.75 else 2 + dice.below(2)
    parts = [some_part(dice, left, near.caps.limit, first) for _ in range(count)]
    if dice.roll() < 0.1:
        parts.append(ErrorFloor(age=3))
    return parts if dice.roll() < 0.98 else [*parts[1:], NoPromise("an exact count")]


def play(dice: Dice, total: Caps, own: Caps) -> tuple[int, float]:
    """Let two owners charge near their limits; return charges admitted and the worst excess of a limit."""
    scopes = [Scope.under(total), Scope.under(own), Scope.under(own)]
    for _ in range(2 + dice.below(5)):
        charged = [scopes[0]] + ([scopes[1 + dice.below(2)]] if dice.roll() < 0.6 else [])
        near = dice.one_of(charged)
        parts = some_charge(dice, near)
        planned = tuple(some_charge(dice, near)) if dice.roll() < 0.2 else ()
        try:
            after = [spend(one.caps, one.books, tuple(parts), planned, scope="a test") for one in charged]
        except (BudgetExceeded, PromiseError):
            continue
        assert not any(isinstance(part, NoPromise) for part in parts)
        for scope, (caps, books) in zip(charged, after, strict=True):
            assert caps is not None
            scope.caps, scope.books = caps, books
            scope.told.add(parts)
            assert scope.caps.holds(books)
        if planned and dice.roll() < 0.7:  # what was planned does fit
            for part in planned:
                for scope in charged:
                    again, scope.books = spend(scope.caps, scope.books, (part,), (), scope="a test")
                    assert again == scope.caps
                    scope.told.add([part])
    excess = max(scope.told.excess(scope.caps.limit) for scope in scopes)
    return sum(scope.told.charges for scope in scopes), excess


def played(seed: int, sequences: int, kind: type[Caps] = Caps) -> tuple[int, float, int]:
    """Return charges admitted, the worst excess, and how many sequences passed a limit."""
    dice = Dice(seed)
    caps = [some_caps(dice) for _ in range(min(LIMITS, sequences // 4))]
    caps = [kind(**{item.name: getattr(one, item.name) for item in fields(one)}) for one in caps]
    found = []
    for _ in range(sequences):
        total = dice.one_of(caps)
        # Limits of two kinds admit little together.
        found.append(play(dice, total, total if dice.roll() < 0.8 else dice.one_of(caps)))
    admitted, excess = zip(*found, strict=True)
    return sum(admitted), max(excess), sum(one > 1 for one in excess)


@pytest.mark.slow
def test_random_charges_near_what_is_left_never_pass_a_random_limit() -> None:
    admitted, excess, _ = played(1, 3_000)
    assert admitted > 4_500
    assert 0.99 < excess <= 1


def test_a_ledger_admits_what_its_caps_admit() -> None:
    dice = Dice(4)
    admitted = 0
    for _ in range(30):
        caps = some_caps(dice)
        scopes = {name: Scope.under(caps) for name in (None, "ann", "bob")}
        limit, rule = caps.limit, caps.rule or "mixed"
        with Ledger.open(":memory:", limit=limit, owner_limit=limit, rule=rule, order=caps.order) as ledger:
            for _ in range(5):
                owner = dice.one_of((None, "ann", "bob"))
                parts = some_charge(dice, scopes[dice.one_of((None, owner))])
                try:
                    ledger.charge(parts, owner=owner)
                except (BudgetExceeded, PromiseError):
                    continue
                admitted += 1
                for name in {None, owner}:
                    scopes[name].books += Spending.from_promises(parts, order=caps.order)
                    scopes[name].told.add(parts)
            for name, scope in scopes.items():
                assert ledger.spent(name) == scope.books
                assert scope.told.excess(scope.caps.limit) <= 1
            ledger.check()
    assert admitted > 30


@pytest.mark.stats
def test_very_many_random_charges_never_pass_a_random_limit() -> None:
    for seed in range(2, 22):
        admitted, excess, _ = played(seed, 10_000)
        assert admitted > 15_000
        assert excess <= 1


class PureAsGaussian(Caps):
    """Wrong: reads everything but points as one Gaussian of the same rho."""

    def _fits(self, books: Spending) -> bool:
        if not isinstance(self.limit, ApproxDP) or self.plan is not None:
            return super()._fits(books)
        mu = math.sqrt(2 * float(books.pooled_rho))
        delta = gaussian_delta(self.limit.epsilon, mu) if mu else 0.0
        return delta + float(books.point_delta) <= self.limit.delta


class NoSamplers(Caps):
    """Wrong: forgets that samplers err."""

    def _fits(self, books: Spending) -> bool:
        return super()._fits(dataclasses.replace(books, total_variation=ZERO))


class NoPoints(Caps):
    """Wrong: forgets the deltas of (epsilon, delta) events."""

    def _fits(self, books: Spending) -> bool:
        return super()._fits(dataclasses.replace(books, point_delta=ZERO))


class PointsForFree(Caps):
    """Wrong: charges pure and (epsilon, delta) events half of what they cost."""

    def _fits(self, books: Spending) -> bool:
        return super()._fits(
            dataclasses.replace(books, renyi=Amount.rounded_up(books.renyi.exact / 2), point_epsilon=ZERO)
        )


class SecondBudget(Caps):
    """Wrong: reads the first charge exactly, and lets the caps begin after it."""

    def reserve(self, before: Spending, cost: Spending, later: Spending | None = None) -> Caps:
        found = super().reserve(before, cost, later)
        if found is self:
            return self
        more = {name: Amount.rounded_up(2 * amount.exact) for name, amount in self.amounts}
        return dataclasses.replace(self, amounts=tuple(more.items()))


class OneMore(Caps):
    """Wrong: answers one question more than was promised."""

    def _fits(self, books: Spending) -> bool:
        return super()._fits(dataclasses.replace(books, charges=max(0, books.charges - 1)))


@pytest.mark.slow
@pytest.mark.parametrize("twin", [PureAsGaussian, NoSamplers, NoPoints, PointsForFree, SecondBudget, OneMore])
def test_the_same_charges_pass_limits_that_are_kept_wrongly(twin: type[Caps]) -> None:
    _, excess, broken = played(3, 800, twin)
    assert broken
    assert excess > 1.3


# --- the pool, digit for digit ---------------------------------------------------------------------


def exact_pool(promises: Sequence[Promise], order: Fraction) -> Fraction:
    """Return the Rényi divergence of events in units of the order, to seventy digits, by the definition."""
    with mpmath.workdps(1000):
        total, a = mpmath.mpf(0), mpmath.mpf(order.numerator) / order.denominator
        for promise in promises:
            match promise:
                case GaussianDP():
                    total += mpmath.mpf(repr(promise.mu)) ** 2 / 2
                case ZCDP():
                    total += mpmath.mpf(repr(promise.rho))
                case PureDP() | ApproxDP():
                    odds = mpmath.exp(mpmath.mpf(repr(promise.epsilon)))
                    keep, other = odds / (1 + odds), 1 / (1 + odds)
                    moment = keep**a * other ** (1 - a) + other**a * keep ** (1 - a)
                    total += mpmath.log(moment) / (a - 1) / a
        return Fraction(mpmath.nstr(total, 70))


def test_costs_are_rounded_up_and_the_pool_down_by_next_to_nothing() -> None:
    dice, tiny = Dice(7), Fraction(1, 10**55)
    for _ in range(60):
        limit = ApproxDP(epsilon=math.exp(dice.between(-3, 2)), delta=math.exp(dice.between(-60, -1.6)))
        caps = Caps.from_limit(limit)
        assert caps.order is not None
        order = exact(caps.order)
        parts = [
            GaussianDP(mu=dice.between(0.001, 1)), ZCDP(rho=dice.between(1e-9, 1)),
            PureDP(epsilon=math.exp(dice.between(-12, 6))),
            ApproxDP(epsilon=math.exp(dice.between(-12, 6)), delta=1e-9),
        ]  # fmt: skip
        cost = Spending.from_promises(parts, order=caps.order).divergence.exact
        assert 0 <= cost - exact_pool(parts, order) < tiny * (1 + cost)
        with mpmath.workdps(80):
            a, rest = mpmath.mpf(repr(caps.order)), mpmath.mpf(repr(limit.delta)) * 9 / 10
            whole = mpmath.mpf(repr(limit.epsilon)) + mpmath.log(a / (a - 1))
            whole = (whole + (mpmath.log(rest) + mpmath.log(a)) / (a - 1)) / a
            cap = dict(caps.amounts)["rho"].exact
            assert 0 <= Fraction(mpmath.nstr(whole, 70)) - cap < tiny * (1 + cap)
        assert dict(caps.amounts)["delta"].exact <= exact(limit.delta) / 10


def test_a_cost_that_is_rounded_down_would_be_told() -> None:
    parts, order = [PureDP(epsilon=0.1)], Fraction(22)
    cost = Spending.from_promises(parts, order=22.0).divergence
    assert Amount(cost.count - 1).exact < exact_pool(parts, order) <= cost.exact


@pytest.mark.parametrize(
    ("epsilon", "order", "rho", "response", "hundredth"),
    [
        (1.0, 22.0, 0.8612, 0.5524, 0.02237),
        (1.0, 33.0, 0.7626, 0.7174, 0.02145),
        (4.0, 7.2, 0.8794, 2.2389, 0.0804),
    ],
)
def test_what_fits_beside_the_optimum(
    epsilon: float, order: float, rho: float, response: float, hundredth: float
) -> None:
    limit = ApproxDP(epsilon=epsilon, delta=1e-6)
    caps = Caps.from_limit(limit, order=order)
    best = gaussian_mu(epsilon, 1e-6) ** 2 / 2
    assert rho < float(dict(caps.amounts)["rho"]) / best < rho + 1e-4
    for epsilon_each, times in ((response, 1), (response + 1e-4, 0), (hundredth, 100)):
        cost = Spending.from_promises(PureDP(epsilon=epsilon_each), order=order)
        assert caps.more(Spending(), cost) == times
        # Read exactly, the first charge of an unused account fits although the pool has no room for it.
        assert Account(caps, Spending()).more((PureDP(epsilon=epsilon_each),)) == max(times, 1)
    default = float(dict(Caps.from_limit(limit).amounts)["rho"])
    assert rho < default / best < rho + 0.12
    assert float(dict(Caps.from_limit(limit, rule="gaussian").amounts)["rho"]) > 0.9999 * best


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 50.0, 1e4, 1e300])
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-6, 0.5, 0.999])
def test_extreme_limits_have_an_order_and_can_be_spent(epsilon: float, delta: float) -> None:
    caps = Caps.from_limit(ApproxDP(epsilon=epsilon, delta=delta))
    assert caps.order is not None
    assert 1 < caps.order <= 1e9 + 1
    assert dict(caps.amounts)["rho"]
    assert Caps.from_dict(json.loads(json.dumps(caps.to_dict()))) == caps


def test_rules_and_orders_that_make_no_sense_are_refused() -> None:
    for order in (1.0, 0.5, -3.0, math.inf, math.nan, True):
        with pytest.raises(ParameterError, match="order of Ledger must be above 1"):
            Caps.from_limit(LIMIT, order=order)
    with pytest.raises(ParameterError, match="leaves something to spend"):
        Caps.from_limit(LIMIT, order=2.0)
    with pytest.raises(ParameterError, match="rule='mixed'"):
        Caps.from_limit(LIMIT, rule="gaussian", order=22.0)
    with pytest.raises(ParameterError, match="rule of Ledger must be"):
        Caps.from_limit(LIMIT, rule="both")  # type: ignore[arg-type]


def test_costs_at_another_order_are_never_added_up() -> None:
    one, other = (Spending.from_promises(PureDP(epsilon=0.1), order=order) for order in (22.0, 33.0))
    with pytest.raises(ParameterError, match="order must be the same"):
        one + other
    with pytest.raises(ParameterError, match="order must be the same"):
        one + Spending.from_promises(PureDP(epsilon=0.1))
