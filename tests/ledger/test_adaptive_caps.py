"""Analysts who choose each charge by the answers so far, all of them, against caps and against wrong caps.

An analyst is a decision tree: at each node a charge among those that are admitted, below it a branch for each
outcome. With t the factor that is left, the best tree has the value ``max(1 - t, max over charges of sum over
outcomes y of p(y) V(t q(y) / p(y)))``, which is computed backward over all trees at once. Outcomes are few:
randomized response has two, an (epsilon, delta) event four, and a Gaussian answer is told by the cell that it
falls into, which is one more step that keeps its promise. What is reached is therefore a lower bound, and a
limit that a tree passes is broken for certain.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest
from scipy.special import ndtr

from discreet.errors import BudgetExceeded, PromiseError
from discreet.ledger import Caps, Rule
from discreet.ledger._account import spend
from discreet.privacy.calibration import gaussian_delta, gaussian_epsilon, gaussian_mu, zcdp_rho
from discreet.privacy.composition import Spending
from discreet.privacy.promises import ZCDP, ApproxDP, GaussianDP, Promise, PureDP

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats

Admits: TypeAlias = "Callable[[tuple[Promise, ...], Promise], bool]"

CELLS = 12
TOLERANCE = 1e-9


@lru_cache(maxsize=4096)
def outcomes(event: Promise) -> tuple[Floats, Floats]:
    """Return the probabilities of the outcomes of an event for two neighbors."""
    match event:
        case GaussianDP() | ZCDP():
            mu = event.mu if isinstance(event, GaussianDP) else math.sqrt(2 * event.rho)
            edges = np.concatenate([[-np.inf], np.linspace(-2.0, mu + 3.5, CELLS - 1), [np.inf]])
            return np.diff(ndtr(edges - mu)), np.diff(ndtr(edges))
        case PureDP():
            keep = 1 / (1 + math.exp(-event.epsilon))
            return np.array([keep, 1 - keep]), np.array([1 - keep, keep])
        case ApproxDP():
            keep, safe = 1 / (1 + math.exp(-event.epsilon)), 1 - event.delta
            first = np.array([event.delta, safe * keep, safe * (1 - keep), 0.0])
            return first, first[::-1].copy()
    raise AssertionError(event)


def best(admits: Admits, menu: tuple[Promise, ...], epsilon: float, depth: int) -> float:
    """Return the divergence at exp(epsilon) that the best tree of a depth reaches."""

    def value(t: Floats, past: tuple[Promise, ...]) -> Floats:
        reached = np.maximum(1 - t, 0.0)
        if len(past) == depth:
            return reached
        for event in menu:
            if not admitted(past, event):
                continue
            p, q = outcomes(event)
            seen = p > 0
            after = value(np.multiply.outer(t, q[seen] / p[seen]), (*past, event))
            reached = np.maximum(reached, after @ p[seen])
        return reached

    admitted = lru_cache(maxsize=None)(admits)
    return float(value(np.array(math.exp(epsilon)), ()))


# --- who admits -----------------------------------------------------------------------------------


def under(caps: Caps) -> Admits:
    @cache
    def books(past: tuple[Promise, ...]) -> tuple[Caps | None, Spending]:
        if not past:
            return caps, Spending()
        before, spent = books(past[:-1])
        return spend(before, spent, (past[-1],), (), scope="a test")

    def admits(past: tuple[Promise, ...], event: Promise) -> bool:
        try:
            before, spent = books(past)
            spend(before, spent, (event,), (), scope="a test")
        except (BudgetExceeded, PromiseError):
            return False
        return True

    return admits


def running_minimum(limit: ApproxDP) -> Admits:
    """Wrong: whatever leaves the smaller of all valid readings of what was charged within the limit."""

    def admits(past: tuple[Promise, ...], event: Promise) -> bool:
        total = sum(map(Spending.from_promises, (*past, event)), Spending())
        return total.delta_at(limit.epsilon) <= limit.delta

    return admits


def pure_as_gaussian(limit: ApproxDP) -> Admits:
    """Wrong: reads pure events through mu = sqrt(2 rho)."""

    def admits(past: tuple[Promise, ...], event: Promise) -> bool:
        total = sum(map(Spending.from_promises, (*past, event)), Spending())
        if total.point_delta:
            return False
        return gaussian_delta(limit.epsilon, math.sqrt(2 * float(total.pooled_rho))) <= limit.delta

    return admits


def forgotten_deltas(caps: Caps) -> Admits:
    """Wrong: counts the epsilons of (epsilon, delta) events in the pool, and their deltas nowhere."""

    def admits(past: tuple[Promise, ...], event: Promise) -> bool:
        costs = (Spending.from_promises(one, order=caps.order) for one in (*past, event))
        return sum(costs, Spending()).divergence <= dict(caps.amounts)["rho"]

    return admits


def largest_response(caps: Caps, n: int) -> float:
    """Return the epsilon of n equal responses that fill what is left."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        fits = caps.more(Spending(), Spending.from_promises(PureDP(epsilon=middle), order=caps.order))
        low, high = (middle, high) if (fits or 0) >= n else (low, middle)
    return low


def menu_of(caps: Caps, parts: int) -> tuple[Promise, ...]:
    """Charges that fill each cap, in one step and in several, and a first charge that fills the limit."""
    limit, left = caps.limit, caps.left(Spending())
    assert isinstance(limit, ApproxDP)
    menu: list[Promise] = [ZCDP(rho=zcdp_rho(limit.epsilon, limit.delta) * (1 - 1e-9))]
    for n in (1, parts):
        if left.get("rho"):
            menu.append(GaussianDP(mu=math.nextafter(math.sqrt(2 * left["rho"] / n), 0)))
        if caps.rule != "gaussian":
            epsilon = largest_response(caps, n)
            menu.append(PureDP(epsilon=epsilon))
            menu.append(ApproxDP(epsilon=epsilon, delta=left["delta"] / n))
    return tuple(menu)


LIMITS = (ApproxDP(epsilon=1, delta=0.05), ApproxDP(epsilon=0.5, delta=0.2), ApproxDP(epsilon=2, delta=0.01))
RULES: tuple[Rule, ...] = ("mixed", "gaussian", "pure")


@pytest.mark.parametrize("limit", LIMITS, ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_no_tree_passes_the_limit_under_caps(limit: ApproxDP, rule: Rule) -> None:
    caps = Caps.from_limit(limit, rule=rule)
    reached = best(under(caps), menu_of(caps, 2), limit.epsilon, depth=3)
    assert 0.3 * limit.delta < reached <= limit.delta * (1 + TOLERANCE)


@pytest.mark.stats
@pytest.mark.parametrize("limit", LIMITS, ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("parts", [2, 3, 4])
def test_no_deeper_tree_passes_the_limit_under_caps(limit: ApproxDP, rule: Rule, parts: int) -> None:
    caps = Caps.from_limit(limit, rule=rule)
    assert best(under(caps), menu_of(caps, parts), limit.epsilon, depth=5) <= limit.delta * (1 + TOLERANCE)


def test_trees_beat_deltas_that_are_forgotten() -> None:
    for limit in LIMITS:
        caps = Caps.from_limit(limit)
        menu = (*menu_of(caps, 2), ApproxDP(epsilon=largest_response(caps, 2), delta=0.9 * limit.delta))
        assert best(forgotten_deltas(caps), menu, limit.epsilon, depth=3) > 1.02 * limit.delta
        assert best(under(caps), menu, limit.epsilon, depth=3) <= limit.delta * (1 + TOLERANCE)


def test_trees_beat_pure_events_that_are_read_as_gaussian() -> None:
    limit = ApproxDP(epsilon=0.25, delta=gaussian_delta(0.25, 1))
    menu = tuple(PureDP(epsilon=1 / math.sqrt(k)) for k in (1, 2, 4))
    assert best(pure_as_gaussian(limit), menu, limit.epsilon, depth=4) > 1.2 * limit.delta
    for rule in RULES:
        assert best(under(Caps.from_limit(limit, rule=rule)), menu, limit.epsilon, depth=4) <= limit.delta


def watching(limit: ApproxDP, looks: int) -> tuple[Promise, ...]:
    """Gaussian looks, and the largest response that the smaller of two readings leaves after each number."""
    pool = zcdp_rho(limit.epsilon, limit.delta)
    step = 0.6 * gaussian_mu(limit.epsilon, limit.delta) ** 2 / 2 / looks
    menu: list[Promise] = [GaussianDP(mu=math.sqrt(2 * step))]
    for past in range(looks + 1):
        spent = math.sqrt(2 * past * step)
        linear = limit.epsilon - (gaussian_epsilon(spent, limit.delta) if past else 0.0)
        menu.append(PureDP(epsilon=max(linear, math.sqrt(2 * (pool - past * step))) * (1 - 1e-6)))
    return tuple(menu)


def test_trees_beat_a_running_minimum() -> None:
    limit = ApproxDP(epsilon=4, delta=1e-3)
    menu = watching(limit, looks=3)
    assert best(running_minimum(limit), menu, limit.epsilon, depth=4) > 1.4 * limit.delta
    for rule in RULES:
        caps = Caps.from_limit(limit, rule=rule)
        both = (*menu, *menu_of(caps, 3))
        assert best(under(caps), both, limit.epsilon, depth=4) <= limit.delta * (1 + TOLERANCE)
