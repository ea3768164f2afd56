"""Whatever caps admit keeps the limit: random charges, and everyone who chooses charges by answers."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import pytest

from discreet.errors import BudgetExceeded, LedgerTampered, PromiseError
from discreet.ledger import Caps, Ledger
from discreet.noise import Stream, uniform_integers
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
from discreet.privacy.rounding import ZERO
from tests.privacy.exact_composition import Composition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from discreet.privacy._posterior_odds import Theorem

LIMIT = ApproxDP(epsilon=1, delta=1e-6)
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
        for promise in ONE_AFTER_THE_OTHER[1:]:
            with pytest.raises(BudgetExceeded, match="left 0 of") as refusal:
                ledger.charge(promise)
            assert (refusal.value.left, refusal.value.asked > 0) == (0.0, True)
        with pytest.raises(PromiseError, match="concentrated"):
            ledger.charge(ZCDP(rho=1e-9))
        assert ledger.spent().charges == 1
        assert ledger.guarantee() == LIMIT
        ledger.check()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("first", [ZCDP(rho=zcdp_rho(1, 1e-6)), GaussianDP(mu=gaussian_mu(1, 1e-6))])
def test_no_plan_fits_after_a_first_charge_that_passes_a_cap(first: Promise, share: float) -> None:
    caps = Caps.from_limit(LIMIT, gaussian_share=share)
    for later in (PureDP(epsilon=1e-9), GaussianDP(mu=1e-9), ApproxDP(epsilon=1e-9, delta=1e-15)):
        with pytest.raises(BudgetExceeded, match="left 0 of"):
            caps.admit(
                Spending(), Spending.from_promises(first), scope="total", later=Spending.from_promises(later)
            )


class OldCaps(Caps):
    """Wrong: asks only about the currencies that have a cap of their own, as caps once did."""

    def _fits(self, books: Spending) -> bool:
        return not self._exceeded_currencies(books)


def test_a_ledger_that_was_overspent_by_an_earlier_version_is_told_and_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier, Ledger.open(tmp_path / "old.ledger", limit=LIMIT) as ledger:
        earlier.setattr(Caps, "_fits", OldCaps._fits)
        for promise in ONE_AFTER_THE_OTHER:
            ledger.charge(promise)
    with Ledger.open(tmp_path / "old.ledger") as ledger:
        with pytest.raises(LedgerTampered, match=r"row 3 .* must be a step that the ledger allows"):
            ledger.check()
        assert isinstance(ledger.guarantee(), NoPromise)
        assert "pass the limit" in str(ledger.guarantee())
        with pytest.raises(BudgetExceeded):
            ledger.charge(PureDP(epsilon=1e-6))


# --- random limits, random charges ----------------------------------------------------------------

T = TypeVar("T")
FACTORS = (1.0, 1.0, 1 - 1e-12, 1 + 1e-12, 0.999, 1.001, 0.9, 0.5, 0.5, 0.5, 0.25, 0.1, 0.1, 2.0)
SHARES = (0.0, 1e-9, 0.1, 0.5, 0.5, 0.9, 1 - 1e-9, 1.0)
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
    """Draw a limit, and a share for Gaussian events."""
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
    return Caps.from_limit(limit, gaussian_share=dice.one_of(SHARES) if dice.roll() < 0.7 else dice.roll())


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
        asked = Spending.from_promises(parts)
        later = Spending.from_promises(some_charge(dice, near)) if dice.roll() < 0.1 else None
        try:
            after = [one.caps.admit(one.books, asked, scope="a test", later=later) for one in charged]
        except (BudgetExceeded, PromiseError):
            continue
        assert not any(isinstance(part, NoPromise) for part in parts)
        for scope, books in zip(charged, after, strict=True):
            scope.books = books
            scope.told.add(parts)
            assert scope.caps.holds(books)
            if later is not None:  # what was planned does fit
                scope.caps.admit(books, later, scope="a test")
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
    for _ in range(60):
        caps = some_caps(dice)
        share = caps.gaussian_share or 0.5
        caps = Caps.from_limit(caps.limit, gaussian_share=share)
        scopes = {name: Scope.under(caps) for name in (None, "ann", "bob")}
        limit = caps.limit
        with Ledger.open(":memory:", limit=limit, owner_limit=limit, gaussian_share=share) as ledger:
            for _ in range(5):
                owner = dice.one_of((None, "ann", "bob"))
                parts = some_charge(dice, scopes[dice.one_of((None, owner))])
                try:
                    ledger.charge(parts, owner=owner)
                except (BudgetExceeded, PromiseError):
                    continue
                admitted += 1
                for name in {None, owner}:
                    scopes[name].books += Spending.from_promises(parts)
                    scopes[name].told.add(parts)
            for name, scope in scopes.items():
                assert ledger.spent(name) == scope.books
                assert scope.told.excess(scope.caps.limit) <= 1
            ledger.check()
    assert admitted > 60


@pytest.mark.stats
def test_very_many_random_charges_never_pass_a_random_limit() -> None:
    for seed in range(2, 22):
        admitted, excess, _ = played(seed, 10_000)
        assert admitted > 15_000
        assert excess <= 1


class PureAsGaussian(Caps):
    """Wrong: reads everything but points as one Gaussian of the same rho."""

    def _fits(self, books: Spending) -> bool:
        if not isinstance(self.limit, ApproxDP) or books.point_delta or not books.pooled:
            return super()._fits(books)
        return gaussian_delta(self.limit.epsilon, math.sqrt(2 * float(books.pooled))) <= self.limit.delta


class NoSamplers(Caps):
    """Wrong: forgets that samplers err."""

    def _fits(self, books: Spending) -> bool:
        return super()._fits(dataclasses.replace(books, total_variation=ZERO))


class OneMore(Caps):
    """Wrong: answers one question more than was promised."""

    def _fits(self, books: Spending) -> bool:
        return super()._fits(dataclasses.replace(books, charges=max(0, books.charges - 1)))


@pytest.mark.slow
@pytest.mark.parametrize("twin", [OldCaps, PureAsGaussian, NoSamplers, OneMore])
def test_the_same_charges_pass_limits_that_are_kept_wrongly(twin: type[Caps]) -> None:
    _, excess, broken = played(3, 800, twin)
    assert broken
    assert excess > 1.3
