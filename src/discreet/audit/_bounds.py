"""Confidence bounds: what counts of an event under two inputs prove about a promise, and bounds on a mean.

If an event happened ``k`` times in ``n`` independent runs, its probability lies outside the
Clopper-Pearson bounds with at most the stated probability, whatever it is. Four such bounds (below and
above, under either input) hold together by a union bound. Every inequality about the event and its
complement, in both directions and at every epsilon, follows from them without further correction.

Errors of guesses are not counts but numbers in a known range, most of them small. :func:`mean_bounds` bounds
their mean, whatever their law.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from discreet.confidence import clopper_pearson
from discreet.errors import ParameterError
from discreet.privacy.promises import ApproxDP, PureDP
from discreet.privacy.roots import find_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet._types import Floats
    from discreet.privacy.promises import Promise

_GRID = 32
_LARGEST = 700.0
"""Largest epsilon whose exponential is a finite double, rounded down."""
USUAL_DELTA = 1e-6
"""Delta at which a promise with a privacy curve is read if no point of the curve is strained."""
_STAKES = 12
"""Number of stakes 2**-k allowed against a mean; the failure probability is shared among them."""


def _inequalities(
    hits_a: int, n_a: int, hits_b: int, n_b: int, failure_probability: float
) -> Iterator[tuple[float, float]]:
    """Yield (P at least, Q at most) for an event and its complement, in both directions.

    Notes
    -----
    ``P`` and ``Q`` are the probabilities of one event under the two inputs. Each of the four one-sided
    bounds has a quarter of the failure probability, so all pairs hold together.
    """
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
        Number of times that an event, fixed beforehand, happened, and number of independent runs on one
        input.
    hits_b, n_b : int
        The same two counts on a neighboring input.
    delta : float
        Delta of the tested pair, at least 0 and below 1.
    failure_probability : float
        Largest probability that the true epsilon is below the result.

    Returns
    -------
    float
        At least 0. The event, its complement, and both directions are tried.

    Privacy
    -------
    A lower bound on what leaks, never an upper one: 0 means that this event showed nothing.

    Notes
    -----
    With P the lower bound of an event under one input and Q its upper bound under the other, the result is
    the largest ``log((P - delta) / Q)`` over the four pairs.

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
        Lower and upper bound, both from 0 to 1. Their distance follows the variance of the draws, not the
        width of the range.

    Privacy
    -------
    Nothing is assumed about the law, so a verdict that rests on the bounds fails no more often than stated.

    Notes
    -----
    For a stake ``s`` in (0, 1] and a mean ``m``, the product of ``1 + s (x_i / m - 1)`` over the draws has
    mean 1, so by Markov's inequality it reaches ``1 / a`` with probability at most ``a``. Means ``m`` at
    which it does are rejected. ``a`` is ``failure_probability / (2 K)`` for ``K`` stakes and two sides; the
    upper bound is the lower one of ``1 - x``.

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
    # All allowed stakes share the failure probability, although only three of them are computed.
    needed = math.log(2 * _STAKES / failure_probability)
    low, high = _mean_at_least(x, needed), 1 - _mean_at_least(1 - x, needed)
    # Rounding errors of the sums of logarithms are far below 1e-9, so the bounds stay valid.
    return max(0.0, low * (1 - 1e-9)), min(1.0, high * (1 + 1e-9) + 1e-15)


def _mean_at_least(x: Floats, needed: float) -> float:
    """Return a lower bound on the mean: the largest mean that one of the stakes rejects.

    Notes
    -----
    Stakes are ``2**-k``. The one near ``s = m sqrt(2 needed / n) / sd`` wins most if the sample's variance
    ``sd**2`` is right; it is tried with its two neighbors, which is allowed because all stakes are paid for.
    """
    mean, spread = float(x.mean()), float(x.std())
    if not mean > 0:
        return 0.0
    # The bound is about needed / (n s) + s sd**2 / (2 m**2) below the mean, relatively: least at this s.
    best = mean * math.sqrt(2 * needed / x.size) / spread if spread else 1.0
    middle = min(_STAKES - 1, max(0, round(-math.log2(best))))
    near = range(max(0, middle - 1), min(_STAKES, middle + 2))
    return max(_rejected_mean(x, mean, 2.0**-k, needed) for k in near)


def _rejected_mean(x: Floats, mean: float, stake: float, needed: float) -> float:
    """Return the mean ``m`` at which the product of ``1 + stake (x / m - 1)`` is ``exp(needed)``."""
    if stake == 1:
        # The product is that of x / m, so the equation has a closed form.
        return math.exp(float(np.log(x).mean()) - needed / x.size) if x.min() > 0 else 0.0

    def surplus(log_m: float) -> float:
        return float(np.log1p(stake * (x * math.exp(-log_m) - 1)).sum()) - needed

    # By concavity the logarithm is at most 0 at the sample mean, and it falls in m: one root below the mean.
    top = math.log(mean)
    # A first guess of the bracket's width in log m; the loop widens it where it is too small.
    reach = 2 * needed / (x.size * stake) + stake
    bottom = top - reach
    while surplus(bottom) < 0:
        # A lower bound 26 orders of magnitude below the sample mean is as good as 0.
        reach *= 2
        if reach > 60:
            return 0.0
        bottom = top - reach
    return math.exp(float(find_root(surplus, bottom, top, xtol=1e-12)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """The point of a claim's privacy curve that an event strains most.

    Attributes
    ----------
    excess : float
        Lower bound on ``P - exp(epsilon) Q - delta``; above 0 the claim is broken.
    epsilon, delta : float
        Point of the claim's curve at which the excess is read.
    measured : float
        Lower bound on epsilon that the event proves at this delta.
    """

    excess: float
    epsilon: float
    delta: float
    measured: float

    @property
    def strain(self) -> float:
        """Ratio of the proved epsilon to the claimed one; 0 at epsilon 0."""
        return self.measured / self.epsilon if self.epsilon else 0.0


def best_evidence(evidence: Sequence[Evidence]) -> int:
    """Return the index of the evidence that breaks a claim most, or else strains it most."""
    indices = range(len(evidence))
    worst = max(indices, key=lambda i: evidence[i].excess)
    return worst if evidence[worst].excess > 0 else max(indices, key=lambda i: evidence[i].strain)


def strongest_evidence(
    claim: Promise, hits_a: int, n_a: int, hits_b: int, n_b: int, failure_probability: float
) -> Evidence:
    """Return what an event fixed beforehand proves against ``claim``, a promise of DP."""
    pairs = _inequalities(hits_a, n_a, hits_b, n_b, failure_probability)
    evidence = [_evidence(claim, least, most) for least, most in pairs]
    return evidence[best_evidence(evidence)]


def _evidence(claim: Promise, least: float, most: float) -> Evidence:
    """Return the point of the claim's curve that ``P >= least`` and ``Q <= most`` strain most.

    Notes
    -----
    The excess at epsilon is ``least - exp(epsilon) most - delta(epsilon)``, maximized over a grid on
    ``[0, log(least / most)]`` and then by ternary search next to the best grid point.
    """

    def evidence_at(epsilon: float) -> Evidence:
        delta = claim.delta_at(epsilon)
        excess = least - math.exp(min(epsilon, _LARGEST)) * most - delta
        proved = math.log((least - delta) / most) if least > delta and most > 0 else 0.0
        return Evidence(excess, epsilon, delta, max(0.0, proved))

    if isinstance(claim, PureDP | ApproxDP):
        # Such a promise makes a statement at its own epsilon only.
        return evidence_at(claim.epsilon)
    # Every epsilon may be tried without a price; past log(least / most) none can show an excess.
    reach = math.log(least / most) if 0 < most < least else 0.0
    points = [evidence_at(reach * i / _GRID) for i in range(_GRID + 1 if reach else 1)]
    best = max(range(len(points)), key=lambda i: points[i].excess)
    # A privacy curve is convex in exp(epsilon), so the excess has one maximum, next to the best grid point.
    low, high = (reach * max(0, min(_GRID, i)) / _GRID for i in (best - 1, best + 1))
    # Ternary search; every point is kept, because any of them is valid evidence.
    while high - low > 1e-6:
        third = (high - low) / 3
        left, right = evidence_at(low + third), evidence_at(high - third)
        points += [left, right]
        low, high = (low, high - third) if left.excess >= right.excess else (low + third, high)
    usual = usual_epsilon(claim)
    proved = math.log((least - USUAL_DELTA) / most) if least > USUAL_DELTA and most > 0 else 0.0
    # Where nothing is broken, the strain is read at the delta that readers are used to.
    points.append(Evidence(evidence_at(usual).excess, usual, USUAL_DELTA, max(0.0, proved)))
    return points[best_evidence(points)]


@lru_cache(maxsize=64)
def usual_epsilon(claim: Promise) -> float:
    """Return the epsilon of a promise with a privacy curve at the usual delta for ideal samplers, cached."""
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
    """Raise ParameterError unless the value lies strictly between 0 and 1; ``where`` names the attack."""
    if not 0 < value < 1:
        raise ParameterError(
            f"failure_probability of {where} must be above 0 and below 1, was {value!r}. "
            "1e-6 is the usual choice."
        )
