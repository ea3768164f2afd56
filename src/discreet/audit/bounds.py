"""From counts to certainty: what hits under two inputs prove about a promise.

If an event was hit ``k`` times in ``n`` independent runs, its probability lies outside the
Clopper-Pearson bounds with at most the stated probability, whatever it is. Four such bounds (below and
above, under either input) hold together by a union bound, and then everything said about the event and
its complement, in both directions and at every epsilon, is a consequence: no further correction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet.confidence import clopper_pearson
from discreet.errors import ParameterError
from discreet.privacy.promises import ApproxDP, PureDP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet.privacy.promises import Promise

_GRID = 32


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


def foremost(evidence: Sequence[Evidence]) -> int:
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
    return found[foremost(found)]


def _evidence(claim: Promise, least: float, most: float) -> Evidence:
    """Find the point of the claim's curve that ``P >= least`` and ``Q <= most`` strain most."""

    def at(epsilon: float) -> Evidence:
        delta = claim.delta_at(epsilon)
        excess = least - math.exp(epsilon) * most - delta
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
    return seen[foremost(seen)]


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
