"""Privacy promises as values, calibration of noise to promises and back, and composition.

``promises`` holds the values that results carry, ``receipt`` the record of a charge. ``calibration``,
``bounded`` and ``floors`` (over ``priors``) convert noise to promises and back; ``sensitivity`` bounds the
distance of neighbors; ``composition`` adds promises up and ``budget_split`` divides one. ``rounding`` is
the exact arithmetic underneath. Nothing here sees a row or draws a random number.
"""

from __future__ import annotations

from discreet.privacy.calibration import gaussian_delta, gaussian_epsilon, gaussian_mu, zcdp_epsilon, zcdp_rho
from discreet.privacy.composition import Spending
from discreet.privacy.promises import (
    ZCDP,
    ApproxDP,
    ColumnFloor,
    ErrorFloor,
    GaussianDP,
    NoPromise,
    PosteriorOdds,
    Promise,
    PureDP,
    promise_from_dict,
)
from discreet.privacy.receipt import Receipt

__all__ = [
    "ZCDP",
    "ApproxDP",
    "ColumnFloor",
    "ErrorFloor",
    "GaussianDP",
    "NoPromise",
    "PosteriorOdds",
    "Promise",
    "PureDP",
    "Receipt",
    "Spending",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "promise_from_dict",
    "zcdp_epsilon",
    "zcdp_rho",
]
