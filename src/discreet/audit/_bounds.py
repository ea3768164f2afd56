"""From counts to certainty: what hits under two inputs prove about a promise.

If an event was hit ``k`` times in ``n`` independent runs, its probability lies outside the
Clopper-Pearson bounds with at most the stated probability, whatever it is. Four such bounds (below and
above, under either input) hold together by a union bound, and then everything said about the event and
its complement, in both directions and at every epsilon, is a consequence: no further correction.

Errors are not counts but numbers in a known range, most of them small. :func:`mean_bounds` bounds their
mean, whatever their law.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq

from discreet.confidence import clopper_pearson
from discreet.errors import ParameterError
from discreet.privacy.promises import ApproxDP, PureDP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet._types import Floats
    from discreet.privacy.promises import Promise

_GRID = 32
_LARGEST = 700.0
"""Beyond, the exponential of an epsilon is no double."""
USUAL_DELTA = 1e-6
"""Where a promise with a whole curve is read if no point of it is strained."""
_STAKES = 12
"""Bets that are tried on a mean; the failure probability is shared among them."""


def _inequalities(
    hits_a: int, n_a: int, hits_b: int, n_b: int, failure_probability: float
) -> Iterator[tuple[float, float]]:
    """Yield (at least, at most): probabilities of one event under one input and the other."""
    low_a, high_a = (float(x) for x in clopper_pearson(hits_a, n_a, failure_probability / 4))
    low_b, high_b = (float(x) for x in clopper_pearson(hits_b, n_b, failure_probability / 4))
    yield low_a, high_b
    yield low_b, high_a
    # The same for the event's complement.
    yield 1 - high_a, 1 - low_b
    yield 1 - high_b, 1 - low_a


def epsilon_lower_bound(
    hits_a: int, n_a: int, hits_b: int, n_b: int, delta: float, failure_probability: float
) -> float:
    """Return an epsilon below which the mechanism is not (epsilon, delta)-DP.

    Parameters
    ----------
    hits_a, n_a : int
        How often an event, fixed beforehand, happened in how many independent runs on one input.
    hits_b, n_b : int
        The same on a neighbor of it.
    delta : float
        At least 0 and below 1.
    failure_probability : float
        Largest probability that the true epsilon is below the result.

    Returns
    -------
    float
        At least 0. The event, its complement, and both directions are tried.

    Privacy
    -------
    A lower bound on what leaks, never an upper one: 0 means that this event showed nothing.

    Reference
    ---------
    Clopper and Pearson (1934); Jagielski, Ullman and Oprea (2020), for auditing.

    Examples
    --------
    >>> from discreet.audit import epsilon_lower_bound
    >>> round(epsilon_lower_bound(9_000, 10_000, 1_000, 10_000, 0.0, 1e-6), 2)
    2.03
    """
    _check_counts(hits_a, n_a, hits_b, n_b, delta, failure_probability)
    best = 0.0
    for least, most in _inequalities(hits_a, n_a, hits_b, n_b, failure_probability):
        if least > delta and most > 0:
            best = max(best, math.log((least - delta) / most))
    return best


def mean_bounds(values: Floats, failure_probability: float) -> tuple[float, float]:
    """Return bounds below and above the mean of a law on [0, 1], from independent draws.

    Parameters
    ----------
    values : array
        Independent draws of one law, each from 0 to 1.
    failure_probability : float
        Largest probability that the mean lies outside; half of it on either side.

    Returns
    -------
    (float, float)
        Both from 0 to 1. They are as close as the draws' own variance allows: a mean square error far
        below its largest possible value is not paid for as if it were there.

    Privacy
    -------
    Nothing is assumed about the law, so a verdict that rests on it is as sure as it says.

    Reference
    ---------
    docs/explanation/theorems/bounded-mean.md

    Examples
    --------
    >>> import numpy as np
    >>> low, high = mean_bounds(np.tile([0.0, 0.02, 0.04], 5_000), 1e-6)
    >>> bool(0.018 < low < 0.02 < high < 0.022)
    True
    """
    check_failure_probability(failure_probability, "mean_bounds")
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or not x.size or not (x.min() >= 0 and x.max() <= 1):
        raise ParameterError(
            "values of mean_bounds must be numbers from 0 to 1, at least one. Divide by the largest possible."
        )
    needed = math.log(2 * _STAKES / failure_probability)
    low, high = _mean_at_least(x, needed), 1 - _mean_at_least(1 - x, needed)
    # Sums of logarithms are accurate to far more digits than these.
    return max(0.0, low * (1 - 1e-9)), min(1.0, high * (1 + 1e-9) + 1e-15)


def _mean_at_least(x: Floats, needed: float) -> float:
    """Return the largest mean against which some bet on the draws wins ``exp(needed)``."""
    mean, spread = float(x.mean()), float(x.std())
    if not mean > 0:
        return 0.0
    # The bet that wins most if the draws' own variance is right; its neighbors, because it may not be.
    best = mean * math.sqrt(2 * needed / x.size) / spread if spread else 1.0
    middle = min(_STAKES - 1, max(0, round(-math.log2(best))))
    near = range(max(0, middle - 1), min(_STAKES, middle + 2))
    return max(_bet(x, mean, 2.0**-k, needed) for k in near)


def _bet(x: Floats, mean: float, stake: float, needed: float) -> float:
    """Return the mean ``m`` at which the product of ``1 + stake (x / m - 1)`` is ``exp(needed)``."""
    if stake == 1:
        return math.exp(float(np.log(x).mean()) - needed / x.size) if x.min() > 0 else 0.0

    def short(log_m: float) -> float:
        return float(np.log1p(stake * (x * math.exp(-log_m) - 1)).sum()) - needed

    # By concavity nothing is won at the draws' own mean, and the less the hypothesis, the more.
    top = math.log(mean)
    reach = 2 * needed / (x.size * stake) + stake
    bottom = top - reach
    while short(bottom) < 0:
        reach *= 2
        if reach > 60:
            return 0.0
        bottom = top - reach
    return math.exp(float(brentq(short, bottom, top, xtol=1e-12)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """The point of a claim's curve that an event strains most.

    ``excess`` is by how much ``P - exp(epsilon) Q`` surely exceeds the claim's delta at ``epsilon``:
    above 0 the claim is broken. ``measured`` is the epsilon that the event proves at that delta.
    """

    excess: float
    epsilon: float
    delta: float
    measured: float

    @property
    def strain(self) -> float:
        """The share of the claim's epsilon that is proved; 0 at epsilon 0."""
        return self.measured / self.epsilon if self.epsilon else 0.0


def best_evidence(evidence: Sequence[Evidence]) -> int:
    """Return the place of the evidence that breaks a claim most, or else strains it most."""
    places = range(len(evidence))
    worst = max(places, key=lambda i: evidence[i].excess)
    return worst if evidence[worst].excess > 0 else max(places, key=lambda i: evidence[i].strain)


def strongest_evidence(
    claim: Promise, hits_a: int, n_a: int, hits_b: int, n_b: int, failure_probability: float
) -> Evidence:
    """Return what an event fixed beforehand proves against ``claim``, a promise of DP."""
    pairs = _inequalities(hits_a, n_a, hits_b, n_b, failure_probability)
    found = [_evidence(claim, least, most) for least, most in pairs]
    return found[best_evidence(found)]


def _evidence(claim: Promise, least: float, most: float) -> Evidence:
    """Find the point of the claim's curve that ``P >= least`` and ``Q <= most`` strain most."""

    def at(epsilon: float) -> Evidence:
        delta = claim.delta_at(epsilon)
        excess = least - math.exp(min(epsilon, _LARGEST)) * most - delta
        shown = math.log((least - delta) / most) if least > delta and most > 0 else 0.0
        return Evidence(excess, epsilon, delta, max(0.0, shown))

    if isinstance(claim, PureDP | ApproxDP):
        # Both directions at its own epsilon are all that such a promise says.
        return at(claim.epsilon)
    # Every epsilon is a fair one to look at; past log(least / most) none can show anything.
    reach = math.log(least / most) if 0 < most < least else 0.0
    seen = [at(reach * i / _GRID) for i in range(_GRID + 1)]
    best = max(range(_GRID + 1), key=lambda i: seen[i].excess)
    # A privacy curve is convex in exp(epsilon), so the excess has one hump, next to the best place.
    low, high = (reach * max(0, min(_GRID, i)) / _GRID for i in (best - 1, best + 1))
    while high - low > 1e-6:
        third = (high - low) / 3
        left, right = at(low + third), at(high - third)
        seen += [left, right]
        low, high = (low, high - third) if left.excess >= right.excess else (low + third, high)
    usual = usual_epsilon(claim)
    shown = math.log((least - USUAL_DELTA) / most) if least > USUAL_DELTA and most > 0 else 0.0
    seen.append(Evidence(at(usual).excess, usual, USUAL_DELTA, max(0.0, shown)))
    return seen[best_evidence(seen)]


def usual_epsilon(claim: Promise) -> float:
    """Return the epsilon of a promise with a whole curve at the usual delta, its sampler being ideal."""
    return dataclasses.replace(claim, total_variation=0.0).epsilon_at(USUAL_DELTA)


def _check_counts(
    hits_a: int, n_a: int, hits_b: int, n_b: int, delta: float, failure_probability: float
) -> None:
    for hits, n in ((hits_a, n_a), (hits_b, n_b)):
        if not (n >= 1 and 0 <= hits <= n):
            raise ParameterError(
                f"hits of epsilon_lower_bound must be 0 to n with n at least 1, were {hits} of {n}."
            )
    if not 0 <= delta < 1:
        raise ParameterError(f"delta of epsilon_lower_bound must be at least 0 and below 1, was {delta!r}.")
    check_failure_probability(failure_probability, "epsilon_lower_bound")


def check_failure_probability(value: float, where: str) -> None:
    """Refuse a probability that no test can have."""
    if not 0 < value < 1:
        raise ParameterError(
            f"failure_probability of {where} must be above 0 and below 1, was {value!r}. "
            "1e-6 is the usual choice."
        )
