"""Zero-concentrated differential privacy: rho read as (epsilon, delta) or as posterior odds, and back."""

from __future__ import annotations

import math

from discreet.privacy.roots import find_root
from discreet.privacy.rounding import (
    UNIT,
    check_delta,
    check_epsilon,
    check_positive_epsilon,
    check_rho,
    step_until,
)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an epsilon that rho-zCDP implies at ``delta``, the smallest known, rounded up.

    Parameters
    ----------
    rho : float
        Concentrated cost of the mechanism; above 0.
    delta : float
        Delta of the promise; strictly between 0 and 1.

    Returns
    -------
    float
        ``min over t > 0 of (1+t) rho + (log(1/delta) - t log(1+1/t) - log(1+t)) / t``, or 0.

    Privacy
    -------
    Every t gives a valid epsilon, so an inexact minimum is merely larger. For Gaussian noise alone
    :func:`gaussian_epsilon` at ``mu = sqrt(2 rho)`` is exact and smaller (about 7 % less noise at
    epsilon 1, delta 1e-6).

    Reference
    ---------
    Canonne, Kamath, Steinke (2020), Proposition 12, solved for its minimum;
    ``docs/explanation/theorems/zcdp.md``.
    """
    rho = check_rho("zcdp_epsilon", rho)
    delta = check_delta("zcdp_epsilon", delta)
    return _minimize_epsilon(rho, delta)


def _minimize_epsilon(rho: float, delta: float) -> float:
    """Return the minimum in :func:`zcdp_epsilon` for checked arguments, rounded up.

    Notes
    -----
    The derivative in t vanishes where ``t^2 rho + log(1 + t) = log(1 / delta)``.
    """
    log_inverse = -math.log(delta) * (1.0 + 2.0 * UNIT)
    # The root is below each end at which one of the two terms alone reaches the right side.
    high = min(math.sqrt(log_inverse / rho), math.expm1(log_inverse)) * (1.0 + 1e-12)
    root = find_root(
        lambda t: t * t * rho + math.log1p(t) - log_inverse,
        0.0,
        high,
        xtol=1e-300,
        rtol=8.0 * UNIT,
    )
    t = max(root, 1e-300)
    terms = ((1.0 + t) * rho, log_inverse / t, -math.log1p(1.0 / t), -math.log1p(t) / t)
    return max(0.0, math.fsum(terms) + 8.0 * UNIT * math.fsum(abs(term) for term in terms))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return a delta that rho-zCDP implies at ``epsilon``, the smallest known, rounded up.

    Parameters
    ----------
    rho : float
        Concentrated cost of the mechanism; above 0.
    epsilon : float
        Epsilon at which delta is read; at least 0.

    Returns
    -------
    float
        At most 1.

    Privacy
    -------
    As :func:`zcdp_epsilon`.

    Reference
    ---------
    Canonne, Kamath, Steinke (2020), Proposition 12; ``docs/explanation/theorems/zcdp.md``.
    """
    rho = check_rho("zcdp_delta", rho)
    epsilon = check_epsilon("zcdp_delta", epsilon)

    def slope(log_t: float) -> float:
        # log(1 + 1/t), written so that a tiny t neither overflows nor loses it.
        gap = math.log1p(math.exp(-log_t)) if log_t > 0 else math.log1p(math.exp(log_t)) - log_t
        return (2.0 * math.exp(log_t) + 1.0) * rho - epsilon - gap

    # Negative at the lower end, where log(1 + 1/t) is above 3 rho + 2, and positive at the upper one.
    low, high = -(3.0 * rho + 2.0), math.log(max(1.0, (epsilon + 1.0) / rho))
    log_t = find_root(slope, max(low, -700.0), high, xtol=1e-14) if slope(max(low, -700.0)) < 0 else low
    # Every t gives a valid delta: an inexact root costs tightness alone.
    t = max(math.exp(log_t), 1e-300)
    terms = (t * (1.0 + t) * rho, -t * epsilon, -t * math.log1p(1.0 / t), -math.log1p(t))
    value = math.fsum(terms) + 8.0 * UNIT * math.fsum(abs(term) for term in terms)
    return min(1.0, math.nextafter(math.exp(min(value, 0.0)) * (1.0 + 4.0 * UNIT), math.inf))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP implies (epsilon, delta), rounded down.

    Parameters
    ----------
    epsilon : float
        Epsilon of the promise; above 0.
    delta : float
        Delta of the promise; strictly between 0 and 1.

    Returns
    -------
    float
        A rho with ``zcdp_epsilon(rho, delta) <= epsilon`` as floats compare.

    Privacy
    -------
    The inverse of :func:`zcdp_epsilon`.

    Reference
    ---------
    ``docs/explanation/theorems/zcdp.md``.
    """
    epsilon = check_positive_epsilon("zcdp_rho", epsilon)
    delta = check_delta("zcdp_rho", delta)
    log_inverse = -math.log(delta)

    def rho_at(t: float) -> float:
        return (log_inverse - math.log1p(t)) / (t * t)

    def excess(log_t: float) -> float:
        t = math.exp(log_t)
        return (2.0 * t + 1.0) * rho_at(t) - math.log1p(1.0 / t) - epsilon

    # There rho_at is 0 and the excess negative; towards t = 0 it grows without bound.
    high = math.log(math.expm1(log_inverse))
    low = high - 1.0
    while excess(low) < 0.0:
        low -= 2.0
    rho = rho_at(math.exp(find_root(excess, low, high, xtol=1e-16, rtol=8.0 * UNIT)))
    return step_until(lambda r: r > 0.0 and _minimize_epsilon(r, delta) <= epsilon, rho, -1.0)


def odds_epsilon(rho: float, delta: float) -> float:
    """Return how far the log-odds of a belief about one row can rise, except with ``delta``.

    Parameters
    ----------
    rho : float
        Total zCDP cost of the Gaussian answers; above 0.
    delta : float
        Delta of the promise; strictly between 0 and 1.

    Returns
    -------
    float
        ``rho + 2 sqrt(rho log(1/delta))``, rounded up.

    Privacy
    -------
    The posterior-odds promise of noisy sums: stronger than (epsilon, delta) differential privacy
    and therefore larger than :func:`zcdp_epsilon`.

    Reference
    ---------
    Blum, Dwork, McSherry, Nissim (2005), Theorem 1, corrected: no number of queries inside the
    logarithm.
    """
    rho = check_rho("odds_epsilon", rho)
    delta = check_delta("odds_epsilon", delta)
    return (rho + 2.0 * math.sqrt(rho * -math.log(delta))) * (1.0 + 8.0 * UNIT)


def odds_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho with ``odds_epsilon(rho, delta) <= epsilon``, rounded down.

    Parameters
    ----------
    epsilon : float
        Epsilon of the promise; above 0.
    delta : float
        Delta of the promise; strictly between 0 and 1.

    Returns
    -------
    float
        ``(sqrt(log(1/delta) + epsilon) - sqrt(log(1/delta)))^2``.

    Privacy
    -------
    The inverse of :func:`odds_epsilon`.

    Reference
    ---------
    As :func:`odds_epsilon`.
    """
    epsilon = check_positive_epsilon("odds_rho", epsilon)
    delta = check_delta("odds_rho", delta)
    log_inverse = -math.log(delta)
    # The difference of the two roots, written so that it does not cancel.
    root = epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))
    return step_until(lambda rho: rho > 0.0 and odds_epsilon(rho, delta) <= epsilon, root * root, -1.0)
