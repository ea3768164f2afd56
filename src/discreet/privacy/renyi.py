"""Rényi divergence at one order: what charges cost a limit of (epsilon, delta), rounded against the caller.

The order is a decimal above 1 that is fixed when a limit is set. Divergences are counted in units of the
order, ``D / order``, so that a Gaussian event counts its rho whatever the order. Costs are rounded up and
pools down: logarithms are decimals of 120 digits, correctly rounded on every processor, and 10**-90, far more
than they err by, is added on the safe side.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

LEAST, MOST = 1e-9, 1e9
"""Least and largest distance of an order from 1."""

_CONTEXT = decimal.Context(
    prec=120, rounding=decimal.ROUND_HALF_EVEN, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX
)
_SLACK = Fraction(1, 10**90)
_LARGE = 10**6  # an epsilon above which a pure event is charged its epsilon
_LEAST_LOG = -900  # natural logarithm of a delta too small for 64-bit numbers


def _ln(value: Fraction) -> Decimal:
    return _CONTEXT.ln(_decimal(value))


def _decimal(value: Fraction) -> Decimal:
    return _CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))


@lru_cache(maxsize=4096)
def pure_cost(epsilon: Fraction, order: Fraction) -> Fraction:
    """Return the divergence of randomized response in units of the order, rounded up.

    No other pair of laws whose probabilities differ by at most a factor of ``exp(epsilon)`` has a larger one.

    Parameters
    ----------
    epsilon : Fraction
        Epsilon of the pure event; at least 0.
    order : Fraction
        Order of the divergence; above 1.

    Notes
    -----
    With keep probability p = exp(epsilon) / (1 + exp(epsilon)) and q = 1 - p, the logarithm of
    ``p**a q**(1-a) + q**a p**(1-a)`` over a - 1 is
    ``epsilon - (log(1 + exp(-epsilon)) - log(1 + exp(-(2a-1) epsilon))) / (a - 1)``.

    Reference
    ---------
    ``docs/explanation/theorems/renyi-filter.md``.
    """
    # Both exponentials are 0 to all digits, and epsilon itself bounds the divergence at every order.
    if epsilon > _LARGE:
        return epsilon / order
    above, below = (
        _CONTEXT.add(1, _CONTEXT.exp(_decimal(-factor * epsilon))) for factor in (1, 2 * order - 1)
    )
    gain = Fraction(_CONTEXT.ln(_CONTEXT.divide(above, below))) / (order - 1)
    # Never above epsilon, the divergence at an infinite order, nor below 0 by rounding.
    return min(epsilon, max(Fraction(0), epsilon - gain + _SLACK)) / order


def pool(epsilon: Fraction, delta: Fraction, order: Fraction) -> Fraction:
    """Return the largest divergence that implies (epsilon, delta), in units of the order, rounded down.

    Parameters
    ----------
    epsilon, delta : Fraction
        Promise that the divergence implies; above 0.
    order : Fraction
        Order of the divergence; above 1.

    Returns
    -------
    Fraction
        At most 0 where this order implies nothing.

    Reference
    ---------
    Balle, Barthe, Gaboardi, Hsu, Sato (2020), Theorem 21; ``docs/explanation/theorems/renyi-filter.md``.
    """
    return (epsilon - _conversion(delta, order) - _SLACK) / order


def implied_epsilon(cost: Fraction, delta: Fraction, order: Fraction) -> Fraction:
    """Return the epsilon at `delta` that a divergence in units of the order implies, rounded up."""
    return max(Fraction(0), order * cost + _conversion(delta, order) + _SLACK)


def implied_delta(cost: Fraction, epsilon: Fraction, order: Fraction) -> Fraction:
    """Return the delta at `epsilon` that a divergence in units of the order implies, rounded up."""
    # At delta 1 the conversion is what is left of it; the rest is linear in log(delta).
    exponent = (order - 1) * (order * cost + _conversion(Fraction(1), order) + _SLACK - epsilon)
    if exponent >= 0:
        return Fraction(1)
    # A smaller delta has no 64-bit number: it is rounded up to the least one.
    if exponent < _LEAST_LOG:
        exponent = Fraction(_LEAST_LOG)
    return min(Fraction(1), Fraction(_CONTEXT.exp(_decimal(exponent))) + _SLACK * Fraction(1, 10**320))


@lru_cache(maxsize=512)
def _conversion(delta: Fraction, order: Fraction) -> Fraction:
    """Return ``log((a-1)/a) - (log(delta) + log(a)) / (a-1)``: epsilon less the divergence at order a."""
    return Fraction(_ln((order - 1) / order)) - Fraction(_ln(delta * order)) / (order - 1)


def best_order(epsilon: float, delta: float) -> float:
    """Return the order at which the most Gaussian noise fits (epsilon, delta), to three digits.

    Parameters
    ----------
    epsilon, delta : float
        Promise that all events together must keep.

    Notes
    -----
    With t = order - 1 and L = log(1/delta), the derivative of the pool in t has the sign of
    ``(L - log(1+t)) (1+2t) / t**2 - epsilon - log(1+1/t)``, which changes once, from positive to negative.
    Any order is valid, so that this one may be rounded.
    """
    log_inverse = -math.log(delta)

    def rises(t: float) -> bool:
        return (log_inverse - math.log1p(t)) * (1 + 2 * t) / t / t > epsilon + math.log1p(1 / t)

    # In logarithms, because orders range from just above 1 to a billion.
    low, high = math.log(LEAST), math.log(MOST)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(math.exp(middle)) else (low, middle)
    distance = min(max(math.exp(low), LEAST), MOST)
    return float(1 + Decimal(f"{distance:.3g}"))
