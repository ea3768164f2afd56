"""What noise promises: promises as values, calibration in both directions, composition.

``promises`` are the values that results carry; ``calibrate`` and ``floors`` turn noise into numbers and
back; ``sensitivity`` says how far neighbors can be apart; ``compose`` adds promises up;
``receipt`` says what was paid. Nothing here sees a row or draws a random number.
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
