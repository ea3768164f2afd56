"""Randomness alone, no epsilon: exact noise on the integer lattice from a cryptographic source.

``stream`` supplies words; ``lattice`` turns them into exact deviates (its inner loops are in ``kernels``);
``gaussian``, ``laplace`` and ``spherical`` are the laws, ``normal`` the one that promises nothing;
``bounded`` (one column) and ``box`` (several) never leave their support, drawn exactly by ``polynomial``, and
``in_range`` never leaves the declared range;
``pool`` hands out single draws in constant time;
``categorical`` chooses among levels and rows; ``whiten`` carries real rows to the lattice and back.
"""

from discreet.noise._box import BoxDensity, product_density
from discreet.noise._pool import Pool
from discreet.noise.bounded import BoundedDensity
from discreet.noise.categorical import (
    permutation,
    randomized_response,
    response_threshold,
    subsample,
    subsets,
    uniform_integers,
)
from discreet.noise.in_range import InRange
from discreet.noise.samplers import (
    NormalSampler,
    discrete_laplace,
    rounded_gaussian,
    rounded_laplace,
    standard_maxwell,
    standard_normal,
)
from discreet.noise.spherical import SphericalLaplace, spherical_laplace
from discreet.noise.stream import Stream
from discreet.noise.whitening import Whitening

__all__ = [
    "BoundedDensity",
    "BoxDensity",
    "InRange",
    "NormalSampler",
    "Pool",
    "SphericalLaplace",
    "Stream",
    "Whitening",
    "discrete_laplace",
    "permutation",
    "product_density",
    "randomized_response",
    "response_threshold",
    "rounded_gaussian",
    "rounded_laplace",
    "spherical_laplace",
    "standard_maxwell",
    "standard_normal",
    "subsample",
    "subsets",
    "uniform_integers",
]
