"""The Gaussian mechanism: delta, mu and epsilon of one another, exact and safely rounded."""

from __future__ import annotations

import math
from fractions import Fraction

from scipy.optimize import brentq

from discreet.errors import ParameterError
from discreet.privacy._numbers import UNIT, finite, round_up, sqrt_up, step_until
from discreet.privacy.calibrate._arguments import check_delta, check_epsilon, check_mu, check_rho
from discreet.privacy.calibrate._curve import delta_ceiling, delta_up, log_delta_up, score


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """Return an upper bound on the natural logarithm of :func:`gaussian_delta`.

    Useful where delta itself would underflow; otherwise ask for delta.

    Parameters
    ----------
    epsilon : float
        At least 0.
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
    return log_delta_up(epsilon, mu)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the exact delta of the Gaussian mechanism at ``epsilon``, rounded up.

    Parameters
    ----------
    epsilon : float
        At least 0.
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
    return delta_up(epsilon, mu)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu whose Gaussian mechanism is (epsilon, delta)-private, rounded down.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float
        Between 0 and 1, both excluded.

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
    while score(epsilon, low, delta) >= 0.0:
        low /= 8.0
    while score(epsilon, high, delta) < 0.0:
        high *= 8.0
    log_root = brentq(
        lambda log_mu: score(epsilon, math.exp(log_mu), delta),
        math.log(low),
        math.log(high),
        xtol=1e-16,
        rtol=8.0 * UNIT,
    )
    root = math.exp(log_root)
    return step_until(lambda mu: delta_ceiling(epsilon, mu) <= delta, root, -1.0)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which the Gaussian mechanism has ``delta``, rounded up.

    Parameters
    ----------
    mu : float
        L2 sensitivity divided by the standard deviation of the noise; above 0.
    delta : float
        Between 0 and 1, both excluded.

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
    if delta_up(0.0, mu) <= delta:
        return 0.0
    # Phi(-a) <= delta already at a = sqrt(2 log(1/delta)), so the root is not above this end.
    high = (0.5 * mu + math.sqrt(-2.0 * math.log(delta))) * mu * (1.0 + 1e-9)
    if not math.isfinite(high):
        raise ParameterError(
            f"The parameter mu of gaussian_epsilon must be small enough for epsilon to be a float, and "
            f"was {mu!r}. Add noise: at this mu the data are as good as published."
        )
    root = 0.0
    if score(0.0, mu, delta) > 0.0:
        root = brentq(lambda epsilon: score(epsilon, mu, delta), 0.0, high, xtol=1e-18 * mu, rtol=8.0 * UNIT)
    # The first units are taken of epsilon + mu: near 0 epsilon has no scale of its own.
    shifted = step_until(lambda x: delta_up(max(x - mu, 0.0), mu) <= delta, root + mu, 1.0)
    return max(shifted - mu, 0.0)


def gaussian_rho(mu: float) -> float:
    """Return the zCDP cost of a Gaussian mechanism, ``mu^2 / 2``, rounded up.

    Parameters
    ----------
    mu : float
        Above 0.

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
        Above 0.
    sensitivity : float
        L2 sensitivity; above 0.

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
        What :func:`gaussian_delta` and the ledger ask for.

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
