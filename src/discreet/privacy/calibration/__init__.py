"""Calibration of noise to promises and back: exact trade-offs, rounded in the safe direction.

``_gaussian`` has the Gaussian mechanism, ``_pure`` Laplace noise, randomized response and groups of rows,
``_zcdp`` zero-concentrated differential privacy and posterior odds.

Every cost returned here (epsilon, delta, rho) is at least the true one, and every allowance (a mu, a
rho, a keep probability) is allowed *as floats compare*: ``gaussian_delta(e, gaussian_mu(e, d)) <= d``
holds exactly. ``mu`` is always L2 sensitivity / standard deviation. No function sees data or draws noise.
"""

from __future__ import annotations

from discreet.privacy.calibration._gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    gaussian_rho,
    mu_for_sd,
    rho_mu,
    sd_for_mu,
)
from discreet.privacy.calibration._pure import (
    group_delta,
    group_epsilon,
    group_mu,
    group_rho,
    keep_probability,
    laplace_epsilon,
    laplace_scale,
    pure_delta,
    pure_rho,
    response_epsilon,
)
from discreet.privacy.calibration._zcdp import odds_epsilon, odds_rho, zcdp_delta, zcdp_epsilon, zcdp_rho

__all__ = [
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_log_delta",
    "gaussian_mu",
    "gaussian_rho",
    "group_delta",
    "group_epsilon",
    "group_mu",
    "group_rho",
    "keep_probability",
    "laplace_epsilon",
    "laplace_scale",
    "mu_for_sd",
    "odds_epsilon",
    "odds_rho",
    "pure_delta",
    "pure_rho",
    "response_epsilon",
    "rho_mu",
    "sd_for_mu",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]
