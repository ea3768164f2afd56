"""A person with several rows: what a promise for one row becomes for all of them.

Every factor is rounded up. Extra rows beyond the declared ``max_rows_per_unit`` are dropped before any
mechanism runs, so that the factor is public.
"""

from __future__ import annotations

import math
from fractions import Fraction

from discreet.privacy._numbers import UNIT, finite, round_up, whole

_WAY_OUT = "Give what the promise for one row says."


def _rows(function: str, value: int) -> int:
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
        What holds for one row; at least 0.
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
        _rows("group_epsilon", rows)
        * Fraction(finite("group_epsilon", "epsilon", epsilon, least=0.0, way_out=_WAY_OUT))
    )


def group_delta(epsilon: float, delta: float, rows: int) -> float:
    """Return the delta for a person with up to ``rows`` rows at ``group_epsilon``, rounded up.

    Parameters
    ----------
    epsilon, delta : float
        What holds for one row.
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
    rows = _rows("group_delta", rows)
    if rows == 1:
        return delta
    if epsilon == 0.0:
        return min(1.0, round_up(rows * Fraction(delta)))
    if rows * epsilon > 700.0:
        return 1.0
    value = delta * (math.expm1(rows * epsilon) / math.expm1(epsilon))
    slack = 1.0 + (8.0 + 2.0 * rows * epsilon) * UNIT
    return min(1.0, math.nextafter(value * slack, math.inf))


def group_mu(mu: float, rows: int) -> float:
    """Return the mu for a person with up to ``rows`` rows: ``rows * mu``, rounded up.

    Parameters
    ----------
    mu : float
        What holds for one row; above 0.
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
        _rows("group_mu", rows) * Fraction(finite("group_mu", "mu", mu, above=0.0, way_out=_WAY_OUT))
    )


def group_rho(rho: float, rows: int) -> float:
    """Return the rho for a person with up to ``rows`` rows: ``rows^2 * rho``, rounded up.

    Parameters
    ----------
    rho : float
        What holds for one row; above 0.
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
        _rows("group_rho", rows) ** 2 * Fraction(finite("group_rho", "rho", rho, above=0.0, way_out=_WAY_OUT))
    )
