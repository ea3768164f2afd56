"""Randomness alone, no epsilon: exact noise on the integer lattice from a cryptographic source.

``stream`` supplies words; ``lattice`` turns them into exact deviates (its inner loops are in ``kernels``);
``gaussian``, ``laplace`` and ``spherical`` are the laws; ``pool`` hands out single draws in constant time;
``categorical`` chooses among levels and rows; ``whiten`` carries real rows to the lattice and back.
"""

from discreet.noise.categorical import (
    keep_per_unit,
    permutation,
    randomized_response,
    response_threshold,
    subsample,
    uniform_integers,
)
from discreet.noise.gaussian import rounded_gaussian
from discreet.noise.laplace import discrete_laplace
from discreet.noise.pool import Pool
from discreet.noise.spherical import SphericalLaplace, spherical_laplace
from discreet.noise.stream import Stream
from discreet.noise.whiten import Whitening

__all__ = [
    "Pool",
    "SphericalLaplace",
    "Stream",
    "Whitening",
    "discrete_laplace",
    "keep_per_unit",
    "permutation",
    "randomized_response",
    "response_threshold",
    "rounded_gaussian",
    "spherical_laplace",
    "subsample",
    "uniform_integers",
]
