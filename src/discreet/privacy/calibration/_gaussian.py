"""The Gaussian mechanism: delta, mu and epsilon from each other, exact up to safe rounding.

With a = epsilon/mu - mu/2, b = epsilon/mu + mu/2 and Mills' ratio R, the identity
e^epsilon phi(b) = phi(a) turns the textbook difference into delta = phi(a) (R(a) - R(b)), where nothing
overflows and no digits cancel unless mu is small. Three cases: mu small (integrate 1 - x R(x), the
slope of -R, from a to b), mu large and a negative (1 - delta is a sum of positive terms), and the rest
as it stands. The slack added is twice the forward error of each case; its derivation is on the page
``docs/explanation/theorems/analytic-gaussian.md``.

Rounding perturbs the computed curve by as much as the slack, so a mu one unit smaller may get a delta one
unit larger. Allowances are therefore measured by :func:`_delta_ceiling`, which lies above all of that.
"""

from __future__ import annotations

import math
from fractions import Fraction

import scipy

from discreet.errors import ParameterError
from discreet.privacy.roots import find_root
from discreet.privacy.rounding import (
    UNIT,
    check_delta,
    check_epsilon,
    check_mu,
    check_rho,
    finite,
    round_up,
    sqrt_up,
    step_until,
)

_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
#: Below this mu the difference of two Mills ratios is integrated instead of subtracted.
_SMALL_MU = 0.25
#: Above this argument 1 - x R(x) is replaced by its upper bound 1/(x^2+1), relative excess 2e-8.
_FAR = 1e4
#: Multiple of the slack above a computed delta that exceeds every computed value of a smaller delta.
_ABOVE_WOBBLE = 3.0
# Gauss-Legendre nodes and weights on [0, 1]; eight are exact to 1e-25 on an interval of length 1/4.
_NODES = (
    0.019855071751231884,
    0.10166676129318664,
    0.2372337950418355,
    0.4082826787521751,
    0.5917173212478249,
    0.7627662049581645,
    0.8983332387068134,
    0.9801449282487681,
)
_WEIGHTS = (
    0.05061426814518813,
    0.11119051722668724,
    0.15685332293894363,
    0.18134189168918100,
    0.18134189168918100,
    0.15685332293894363,
    0.11119051722668724,
    0.05061426814518813,
)


def _mills(x: float) -> float:
    """Return Mills' ratio (1 - Phi(x)) / phi(x), within 8 units in the last place for x >= -1/8."""
    return float(math.sqrt(0.5 * math.pi) * scipy.special.erfcx(x * math.sqrt(0.5)))


def _mills_arguments(epsilon: float, mu: float) -> tuple[float, float]:
    """Return (epsilon/mu - mu/2, epsilon/mu + mu/2), kept finite."""
    # Capped where its square would overflow, which can only raise delta.
    ratio = min(epsilon / mu, 1e150)
    return ratio - 0.5 * mu, ratio + 0.5 * mu


def _needs_complement(a: float, mu: float) -> bool:
    return a < 0.0 and mu > _SMALL_MU


def _log_complement(a: float, b: float, slacks: float = 1.0) -> float:
    """Return a lower bound on log(1 - delta) for a < 0.

    Notes
    -----
    ``1 - delta = phi(a) (R(-a) + R(b))``, a sum of positive terms, so nothing cancels.
    """
    if a < -1e100:
        return -math.inf
    value = -0.5 * a * a - _LOG_SQRT_TWO_PI + math.log(_mills(-a) + _mills(b))
    return value - 2.0 * UNIT * slacks * ((12.0 - a) * (b - a) + a * a + 32.0)


def _log_delta_up(epsilon: float, mu: float, slacks: float = 1.0) -> float:
    """Return log(delta) plus ``slacks`` times the bound on its rounding error, at most 0.

    Notes
    -----
    ``delta = phi(a) (R(a) - R(b))``. For large a the difference of Mills ratios is bounded by
    ``mu / a^2`` and ``1 / a``; for small mu it is ``mu`` times the integral of ``1 - x R(x)``, by 8 nodes.
    """
    a, b = _mills_arguments(epsilon, mu)
    if _needs_complement(a, mu):
        complement = math.exp(_log_complement(a, b, slacks)) * (1.0 - 4.0 * UNIT)
        return math.nextafter(math.log1p(-complement) * (1.0 - 4.0 * UNIT), math.inf)
    # The four terms of the slack are the rounding of a and b, of a^2/2, of the ratios, and of the rest.
    if a > _FAR:
        log_difference = min(math.log(mu) - 2.0 * math.log(a), -math.log(a))
        ratios = 0.0
    elif mu > _SMALL_MU:
        first, second = _mills(a), _mills(b)
        log_difference = math.log(first - second)
        ratios = 8.0 * (first + second) / (first - second)
    else:
        total = 0.0
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            x = a + mu * node
            total += weight * (1.0 - x * _mills(x))
        log_difference = math.log(mu) + math.log(total)
        ratios = 12.0 * (b * b + 3.0)
    value = -0.5 * a * a - _LOG_SQRT_TWO_PI + log_difference
    slack = (12.0 + abs(a)) * (abs(a) + b) + a * a + ratios + 32.0 + abs(log_difference)
    return min(value + 2.0 * UNIT * slacks * slack, 0.0)


def _delta_up(epsilon: float, mu: float, slacks: float = 1.0) -> float:
    """Return delta plus ``slacks`` times the bound on its rounding error, at most 1."""
    a, b = _mills_arguments(epsilon, mu)
    if _needs_complement(a, mu):
        complement = math.exp(_log_complement(a, b, slacks)) * (1.0 - 4.0 * UNIT)
        return round_up(1 - Fraction(complement))
    value = math.exp(_log_delta_up(epsilon, mu, slacks)) * (1.0 + 4.0 * UNIT)
    return min(math.nextafter(value, math.inf), 1.0)


def _delta_ceiling(epsilon: float, mu: float) -> float:
    """Return a number that :func:`_delta_up` exceeds at no smaller mu and at no larger epsilon."""
    here = _delta_up(epsilon, mu, _ABOVE_WOBBLE)
    # The case of small mu, which ends there, may have the larger slack.
    return here if mu <= _SMALL_MU else max(here, _delta_up(epsilon, _SMALL_MU, _ABOVE_WOBBLE))


def _delta_score(epsilon: float, mu: float, delta: float) -> float:
    """Return a quantity that grows with delta(epsilon; mu) and is 0 where it equals ``delta``.

    Square roots of logarithms make it nearly linear in epsilon/mu - mu/2, so that few steps find the
    root; above one half the complement is compared, which keeps its digits where delta has none.
    """
    if delta <= 0.5:
        here, target = _log_delta_up(epsilon, mu), math.log(delta)
        return math.sqrt(-2.0 * target) - math.sqrt(-2.0 * min(here, 0.0))
    a, b = _mills_arguments(epsilon, mu)
    here = _log_complement(a, b) if _needs_complement(a, mu) else math.log1p(-_delta_up(epsilon, mu))
    # 1 - delta is exact for delta above one half.
    return math.sqrt(-2.0 * max(here, -1e300)) - math.sqrt(-2.0 * math.log(1.0 - delta))


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """Return an upper bound on the natural logarithm of :func:`gaussian_delta`.

    Useful where delta itself would underflow.

    Parameters
    ----------
    epsilon : float
        Epsilon at which delta is read; at least 0.
    mu : float
        L2 sensitivity divided by the standard deviation of the noise; above 0.

    Returns
    -------
    float
        At least the true value. The excess, an absolute error of the logarithm, is below 1e-11
        wherever delta is at least 1e-300 and epsilon at most 1e4.

    Privacy
    -------
    For the continuous Gaussian and for its rounding to a lattice on lattice inputs.

    Reference
    ---------
    Balle and Wang (2018), Theorem 8; ``docs/explanation/theorems/analytic-gaussian.md``.
    """
    epsilon = check_epsilon("gaussian_log_delta", epsilon)
    mu = check_mu("gaussian_log_delta", mu)
    return _log_delta_up(epsilon, mu)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the exact delta of the Gaussian mechanism at ``epsilon``, rounded up.

    Parameters
    ----------
    epsilon : float
        Epsilon at which delta is read; at least 0.
    mu : float
        L2 sensitivity divided by the standard deviation of the noise; above 0.

    Returns
    -------
    float
        At least the true delta, and above it by less than 1e-11 of itself wherever it is at least
        1e-300 and epsilon at most 1e4. Never 0: below the range of floats it is the smallest one.

    Privacy
    -------
    ``Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)``, for any pair of neighbors whose
    distance is at most the sensitivity, in any dimension. Holds as it is for noise rounded to a
    lattice when the inputs are on the lattice (post-processing).

    Reference
    ---------
    Balle and Wang (2018), Theorem 8; ``docs/explanation/theorems/analytic-gaussian.md``.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 9)
    0.126936738
    """
    epsilon = check_epsilon("gaussian_delta", epsilon)
    mu = check_mu("gaussian_delta", mu)
    return _delta_up(epsilon, mu)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu whose Gaussian mechanism is (epsilon, delta)-private, rounded down.

    Parameters
    ----------
    epsilon : float
        Epsilon at which delta is read; at least 0.
    delta : float
        Delta of the promise; strictly between 0 and 1.

    Returns
    -------
    float
        A mu with ``gaussian_delta(epsilon, mu) <= delta`` as floats compare, here, at every larger
        epsilon and at every smaller mu, such as the one that noise rounded up has; within 1e-11 of the
        largest. The standard deviation to use is the sensitivity divided by it.

    Privacy
    -------
    The inverse of :func:`gaussian_delta` in mu.

    Reference
    ---------
    ``docs/explanation/theorems/analytic-gaussian.md``; use this instead of Theorem 2.5 of Farokhi,
    see ``docs/explanation/theorems/fisher-2.5.md``.

    Examples
    --------
    >>> round(1.0 / gaussian_mu(1.0, 1e-6), 4)
    4.2247
    """
    epsilon = check_epsilon("gaussian_mu", epsilon)
    delta = check_delta("gaussian_mu", delta)
    low = high = 1.0
    # The score grows with mu, so that these two ends bracket its root.
    while _delta_score(epsilon, low, delta) >= 0.0:
        low /= 8.0
    while _delta_score(epsilon, high, delta) < 0.0:
        high *= 8.0
    log_root = find_root(
        lambda log_mu: _delta_score(epsilon, math.exp(log_mu), delta),
        math.log(low),
        math.log(high),
        xtol=1e-16,
        rtol=8.0 * UNIT,
    )
    root = math.exp(log_root)
    return step_until(lambda mu: _delta_ceiling(epsilon, mu) <= delta, root, -1.0)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which the Gaussian mechanism has ``delta``, rounded up.

    Parameters
    ----------
    mu : float
        L2 sensitivity divided by the standard deviation of the noise; above 0.
    delta : float
        Delta of the promise; strictly between 0 and 1.

    Returns
    -------
    float
        An epsilon with ``gaussian_delta(epsilon, mu) <= delta`` as floats compare, above the
        smallest by less than 1e-11 (epsilon + mu); 0 where delta is reached without any epsilon.

    Privacy
    -------
    The inverse of :func:`gaussian_delta` in epsilon.

    Reference
    ---------
    ``docs/explanation/theorems/analytic-gaussian.md``.
    """
    mu = check_mu("gaussian_epsilon", mu)
    delta = check_delta("gaussian_epsilon", delta)
    if _delta_up(0.0, mu) <= delta:
        return 0.0
    # Phi(-a) <= delta already at a = sqrt(2 log(1/delta)), so the root is not above this end.
    high = (0.5 * mu + math.sqrt(-2.0 * math.log(delta))) * mu * (1.0 + 1e-9)
    if not math.isfinite(high):
        raise ParameterError(
            f"The parameter mu of gaussian_epsilon must be small enough for epsilon to be a float, and "
            f"was {mu!r}. Add noise: at this mu the data are as good as published."
        )
    root = 0.0
    if _delta_score(0.0, mu, delta) > 0.0:
        root = find_root(
            lambda epsilon: _delta_score(epsilon, mu, delta), 0.0, high, xtol=1e-18 * mu, rtol=8.0 * UNIT
        )
    # The first units are taken of epsilon + mu: near 0 epsilon has no scale of its own.
    shifted = step_until(lambda x: _delta_up(max(x - mu, 0.0), mu) <= delta, root + mu, 1.0)
    return max(shifted - mu, 0.0)


def gaussian_rho(mu: float) -> float:
    """Return the zCDP cost of a Gaussian mechanism, ``mu^2 / 2``, rounded up.

    Parameters
    ----------
    mu : float
        L2 sensitivity divided by the standard deviation of the noise; above 0.

    Returns
    -------
    float
        An upper bound on rho.

    Privacy
    -------
    Exact for Gaussian noise.

    Reference
    ---------
    Bun and Steinke (2016), Proposition 1.6.
    """
    return round_up(Fraction(check_mu("gaussian_rho", mu)) ** 2 / 2)


def rho_mu(rho: float) -> float:
    """Return the mu of Gaussian events whose costs add to ``rho``: ``sqrt(2 rho)``, rounded up.

    Parameters
    ----------
    rho : float
        Sum of the Gaussian events' costs alone; above 0.

    Returns
    -------
    float
        An upper bound on mu.

    Privacy
    -------
    Only Gaussian events may be in the sum. A pure event read this way understates delta.

    Reference
    ---------
    Dong, Roth, Su (2022), Corollary 3.3.
    """
    return sqrt_up(2 * Fraction(check_rho("rho_mu", rho)))


def sd_for_mu(mu: float, sensitivity: float) -> float:
    """Return the smallest standard deviation whose mu is at most ``mu``, rounded up.

    Parameters
    ----------
    mu : float
        Largest mu that the promise allows; above 0.
    sensitivity : float
        L2 sensitivity of the answer; above 0.

    Returns
    -------
    float
        ``sensitivity / mu``.

    Privacy
    -------
    The way from a promise to noise: ``sd_for_mu(gaussian_mu(epsilon, delta), sensitivity)``.

    Reference
    ---------
    ``docs/explanation/theorems/analytic-gaussian.md``.
    """
    way_out = "Give the declared L2 sensitivity of the answer."
    sensitivity = finite("sd_for_mu", "sensitivity", sensitivity, above=0.0, way_out=way_out)
    return round_up(Fraction(sensitivity) / Fraction(check_mu("sd_for_mu", mu)))


def mu_for_sd(sensitivity: float, sd: float) -> float:
    """Return mu = ``sensitivity / sd``, rounded up.

    Parameters
    ----------
    sensitivity, sd : float
        L2 sensitivity and standard deviation, in the same unit; above 0.

    Returns
    -------
    float
        The mu that :func:`gaussian_delta` takes and a ledger charges.

    Privacy
    -------
    The definition of mu.

    Reference
    ---------
    Dong, Roth, Su (2022), Theorem 2.7.
    """
    way_out = "Give sensitivity and standard deviation in the same unit."
    sensitivity = finite("mu_for_sd", "sensitivity", sensitivity, above=0.0, way_out=way_out)
    sd = finite("mu_for_sd", "sd", sd, above=0.0, way_out=way_out)
    return round_up(Fraction(sensitivity) / Fraction(sd))
