"""Randomness without any epsilon: exact noise on the integer lattice from a cryptographic source.

``stream`` supplies random words and ``deviates`` turns them into exact deviates (inner loops: ``_kernels``).
``samplers`` has Gaussian and Laplace noise on the integers, with single draws in constant time, and normal
floats that promise nothing;
``spherical`` noise is isotropic in several columns. ``bounded`` (one column) and ``_box`` (several) have
bounded support, drawn exactly by ``polynomial``; ``in_range`` stays inside the declared range.
``categorical`` chooses among levels and rows, ``whitening`` maps real rows to the lattice and back, and
``linear_algebra`` has the same bits on every processor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use

if TYPE_CHECKING:
    from discreet.noise._box import BoxDensity, product_density
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
        Pool,
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

__getattr__ = load_on_use(
    __name__,
    {
        "_box": ("BoxDensity", "product_density"),
        "bounded": ("BoundedDensity",),
        "categorical": (
            "permutation",
            "randomized_response",
            "response_threshold",
            "subsample",
            "subsets",
            "uniform_integers",
        ),
        "in_range": ("InRange",),
        "samplers": (
            "NormalSampler",
            "Pool",
            "discrete_laplace",
            "rounded_gaussian",
            "rounded_laplace",
            "standard_maxwell",
            "standard_normal",
        ),
        "spherical": ("SphericalLaplace", "spherical_laplace"),
        "stream": ("Stream",),
        "whitening": ("Whitening",),
    },
)
