"""Pure differential privacy (Laplace noise, randomized response) and group privacy for several rows.

Group factors are rounded up. Rows of a person beyond the declared ``max_rows_per_unit`` are dropped before
any mechanism runs, so that the factor is public.
"""

from __future__ import annotations

import math
from fractions import Fraction

from discreet.privacy.rounding import (
    UNIT,
    check_epsilon,
    check_positive_epsilon,
    finite,
    round_up,
    step_until,
    whole,
)


def laplace_epsilon(sensitivity: float, scale: float) -> float:
    """Return the pure epsilon of Laplace noise, ``sensitivity / scale``, rounded up.

    Parameters
    ----------
    sensitivity : float
        L1 sensitivity of the answer; above 0.
    scale : float
        Scale of the Laplace law, in the same unit; above 0.

    Returns
    -------
    float
        The smallest float that is at least the quotient.

    Privacy
    -------
    Pure epsilon, for the continuous law and, on lattice inputs, for the discrete one.

    Reference
    ---------
    Dwork, McSherry, Nissim, Smith (2006).
    """
    way_out = "Give the declared L1 sensitivity and the scale of the noise in the same unit."
    sensitivity = finite("laplace_epsilon", "sensitivity", sensitivity, above=0.0, way_out=way_out)
    scale = finite("laplace_epsilon", "scale", scale, above=0.0, way_out=way_out)
    # The quotient of two floats is exact as a fraction, so that one rounding up is all.
    return round_up(Fraction(sensitivity) / Fraction(scale))


def laplace_scale(sensitivity: float, epsilon: float) -> float:
    """Return the smallest Laplace scale with ``laplace_epsilon(sensitivity, scale) <= epsilon``.

    Parameters
    ----------
    sensitivity : float
        L1 sensitivity of the answer; above 0.
    epsilon : float
        Pure epsilon to reach; above 0.

    Returns
    -------
    float
        ``sensitivity / epsilon``, rounded up.

    Privacy
    -------
    The inverse of :func:`laplace_epsilon`.

    Reference
    ---------
    As :func:`laplace_epsilon`.
    """
    way_out = "Give the declared L1 sensitivity of the answer."
    sensitivity = finite("laplace_scale", "sensitivity", sensitivity, above=0.0, way_out=way_out)
    epsilon = check_positive_epsilon("laplace_scale", epsilon)
    return round_up(Fraction(sensitivity) / Fraction(epsilon))


def pure_rho(epsilon: float) -> float:
    """Return the zCDP cost of a pure promise, ``epsilon^2 / 2``, rounded up.

    Parameters
    ----------
    epsilon : float
        Pure epsilon that holds; at least 0.

    Returns
    -------
    float
        An upper bound on rho.

    Privacy
    -------
    Never read the result back through ``mu = sqrt(2 rho)``: a pure event is not Gaussian, and its
    delta just below epsilon is far larger (:func:`pure_delta`).

    Reference
    ---------
    Bun and Steinke (2016), Proposition 1.4.
    """
    return round_up(Fraction(check_epsilon("pure_rho", epsilon)) ** 2 / 2)


def pure_delta(claimed: float, epsilon: float) -> float:
    """Return the delta, at a smaller ``epsilon``, of a mechanism that is pure at ``claimed``.

    Parameters
    ----------
    claimed : float
        The pure epsilon that holds; at least 0.
    epsilon : float
        The epsilon to read the promise at; at least 0.

    Returns
    -------
    float
        ``(e^claimed - e^epsilon) / (1 + e^claimed)``, rounded up; 0 from ``claimed`` on.

    Privacy
    -------
    Tight: binary randomized response attains it, and every pure mechanism is dominated by it.

    Reference
    ---------
    Kairouz, Oh, Viswanath (2015).
    """
    claimed = finite("pure_delta", "claimed", claimed, least=0.0, way_out="Give the pure epsilon that holds.")
    epsilon = check_epsilon("pure_delta", epsilon)
    # From the pure epsilon on the promise holds without any delta.
    if epsilon >= claimed:
        return 0.0
    # Divided through by e^claimed, which may overflow.
    value = -math.expm1(epsilon - claimed) / (1.0 + math.exp(-claimed))
    return min(1.0, math.nextafter(value * (1.0 + 8.0 * UNIT), math.inf))


def _check_levels(function: str, value: int) -> int:
    return whole(function, "levels", value, least=2, way_out="Declare at least two categories, or drop it.")


def response_epsilon(keep: float, levels: int) -> float:
    """Return the pure epsilon of randomized response that keeps with probability ``keep``.

    Parameters
    ----------
    keep : float
        Probability that the true category is reported; the others share the rest equally.
    levels : int
        Number of declared categories; at least 2.

    Returns
    -------
    float
        ``|log(keep (levels - 1) / (1 - keep))|``, rounded up.

    Privacy
    -------
    Local, pure, for the one category of one person.

    Reference
    ---------
    Warner (1965); Kairouz, Oh, Viswanath (2014).
    """
    keep = finite(
        "response_epsilon",
        "keep",
        keep,
        above=0.0,
        below=1.0,
        way_out="At 1 the truth is published; at 0 it is excluded. Choose a value between.",
    )
    levels = _check_levels("response_epsilon", levels)
    # Exact, so that odds of 1 are recognized and their distance from 1 keeps all its digits.
    odds = Fraction(keep) * (levels - 1) / (1 - Fraction(keep))
    if odds == 1:
        return 0.0
    # log1p of the exact distance from 1 keeps its digits near odds of 1, log elsewhere.
    near = abs(odds - 1) < Fraction(1, 2)
    value = math.log1p(float(odds - 1)) if near else math.log(float(odds))
    return abs(value) * (1.0 + 8.0 * UNIT)


def keep_probability(epsilon: float, levels: int) -> float:
    """Return the largest keep probability of randomized response at ``epsilon``, rounded down.

    Parameters
    ----------
    epsilon : float
        Pure epsilon to reach; above 1e-12, since floats cannot express a closer approach to a blind guess.
    levels : int
        Number of declared categories; at least 2.

    Returns
    -------
    float
        ``e^epsilon / (e^epsilon + levels - 1)``, with ``response_epsilon`` of it at most ``epsilon``
        as floats compare.

    Privacy
    -------
    As :func:`response_epsilon`. From epsilon 36 on the result stays below what epsilon allows,
    because the next float is 1.

    Reference
    ---------
    As :func:`response_epsilon`.
    """
    epsilon = finite(
        "keep_probability",
        "epsilon",
        epsilon,
        above=1e-12,
        way_out="Ask for a larger epsilon, or drop the column.",
    )
    levels = _check_levels("keep_probability", levels)
    # 1 - UNIT is the largest number below 1.
    start = min(1.0 / (1.0 + (levels - 1) * math.exp(-epsilon)), 1.0 - UNIT)
    return step_until(lambda keep: response_epsilon(keep, levels) <= epsilon, start, -1.0)


_WAY_OUT = "Give what the promise for one row says."


def _check_rows(function: str, value: int) -> int:
    return whole(
        function,
        "rows",
        value,
        least=1,
        way_out="Give the declared max_rows_per_unit; extra rows of a person are dropped.",
    )


def group_epsilon(epsilon: float, rows: int) -> float:
    """Return the epsilon for a person with up to ``rows`` rows: ``rows * epsilon``, rounded up.

    Parameters
    ----------
    epsilon : float
        Epsilon for one row; at least 0.
    rows : int
        Declared largest number of rows of one person.

    Returns
    -------
    float
        For pure promises, and for the epsilon of an (epsilon, delta) promise.

    Privacy
    -------
    Group privacy.

    Reference
    ---------
    Dwork and Roth (2014), Theorem 2.2.
    """
    return round_up(
        _check_rows("group_epsilon", rows)
        * Fraction(finite("group_epsilon", "epsilon", epsilon, least=0.0, way_out=_WAY_OUT))
    )


def group_delta(epsilon: float, delta: float, rows: int) -> float:
    """Return the delta for a person with up to ``rows`` rows at ``group_epsilon``, rounded up.

    Parameters
    ----------
    epsilon, delta : float
        Promise for one row: epsilon at least 0, delta strictly between 0 and 1.
    rows : int
        Declared largest number of rows of one person.

    Returns
    -------
    float
        ``delta (e^(rows epsilon) - 1) / (e^epsilon - 1)``, at most 1.

    Privacy
    -------
    Group privacy. For Gaussian noise multiply mu (:func:`group_mu`) instead: it is exact.

    Reference
    ---------
    Dwork and Roth (2014), section 2.3; by induction, the geometric sum kept.
    """
    epsilon = finite("group_delta", "epsilon", epsilon, least=0.0, way_out=_WAY_OUT)
    delta = finite("group_delta", "delta", delta, above=0.0, below=1.0, way_out=_WAY_OUT)
    rows = _check_rows("group_delta", rows)
    if rows == 1:
        return delta
    # The limit of the geometric sum, whose formula divides by 0 here.
    if epsilon == 0.0:
        return min(1.0, round_up(rows * Fraction(delta)))
    # The exponential would overflow; a delta of 1 promises nothing, which is safe.
    if rows * epsilon > 700.0:
        return 1.0
    value = delta * (math.expm1(rows * epsilon) / math.expm1(epsilon))
    # Rounding the exponent rows * epsilon changes its exponential by as many roundings as it is large.
    slack = 1.0 + (8.0 + 2.0 * rows * epsilon) * UNIT
    return min(1.0, math.nextafter(value * slack, math.inf))


def group_mu(mu: float, rows: int) -> float:
    """Return the mu for a person with up to ``rows`` rows: ``rows * mu``, rounded up.

    Parameters
    ----------
    mu : float
        Gaussian mu for one row; above 0.
    rows : int
        Declared largest number of rows of one person.

    Returns
    -------
    float
        Exact for Gaussian noise: the sensitivity grows by this factor.

    Privacy
    -------
    Group privacy.

    Reference
    ---------
    Dong, Roth, Su (2022), Theorem 2.14.
    """
    return round_up(
        _check_rows("group_mu", rows) * Fraction(finite("group_mu", "mu", mu, above=0.0, way_out=_WAY_OUT))
    )


def group_rho(rho: float, rows: int) -> float:
    """Return the rho for a person with up to ``rows`` rows: ``rows^2 * rho``, rounded up.

    Parameters
    ----------
    rho : float
        Concentrated rho for one row; above 0.
    rows : int
        Declared largest number of rows of one person.

    Returns
    -------
    float
        An upper bound on rho.

    Privacy
    -------
    Group privacy.

    Reference
    ---------
    Bun and Steinke (2016), Proposition 1.9.
    """
    return round_up(
        _check_rows("group_rho", rows) ** 2
        * Fraction(finite("group_rho", "rho", rho, above=0.0, way_out=_WAY_OUT))
    )
