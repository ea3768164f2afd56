"""The arguments that calibrations share, each with its own way out."""

from __future__ import annotations

from discreet.privacy._numbers import finite


def check_epsilon(function: str, value: float) -> float:
    return finite(
        function,
        "epsilon",
        value,
        least=0.0,
        way_out="Give the epsilon of the promise; where there is none, there is no promise to read.",
    )


def check_positive_epsilon(function: str, value: float) -> float:
    return finite(
        function,
        "epsilon",
        value,
        above=0.0,
        way_out="Ask for an epsilon above 0: at 0 nothing can be said about the data at all.",
    )


def check_delta(function: str, value: float) -> float:
    return finite(
        function,
        "delta",
        value,
        above=0.0,
        below=1.0,
        way_out="Choose a delta far below one over the number of people, such as 1e-6.",
    )


def check_mu(function: str, value: float) -> float:
    return finite(
        function,
        "mu",
        value,
        above=0.0,
        way_out="Give the L2 sensitivity divided by the standard deviation of the noise.",
    )


def check_rho(function: str, value: float) -> float:
    return finite(
        function,
        "rho",
        value,
        above=0.0,
        way_out="Give the squared L2 sensitivity divided by twice the variance of the noise.",
    )
