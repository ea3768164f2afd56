"""Spherical Laplace noise: density proportional to ``exp(-rate * norm)`` in several columns, on a lattice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from discreet.errors import ParameterError
from discreet.noise import samplers
from discreet.noise.samplers import check_count, discrete_laplace, fill_rounded_gaussian, rounded_gaussian
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from discreet._types import Floats, Ints

#: Normals behind the radius are rounded at 2**-49.
_LOG2_RADIUS_LATTICE = 49
#: A standard deviation has at least 2**17 lattice steps.
_LOG2_LEAST_SCALE = 17
TAIL = 2.0**-64
"""Probability of the event outside which the density error below holds."""
_UNIT = 2.0**-53
LARGEST_DIMENSION = 10**6
"""Beyond it the computed radius costs more than about 1e-4 of epsilon."""


@dataclass(frozen=True, kw_only=True)
class SphericalLaplace:
    """The law of density ``exp(-rate * norm(x))`` in ``dimension`` dimensions, on a lattice of ``step``.

    A draw is a radius-like ``S = norm(N')`` of ``dimension + 1`` normals, then ``dimension`` rounded
    Gaussians of scale ``S / (rate * step)``: a scale mixture of Gaussians with exactly this density.
    ``S`` is computed from normals rounded at 2**-49, which is what the constants below account for.
    In one dimension the law is the discrete Laplace and has no such error.

    Parameters
    ----------
    rate : float
        Rate of decay, in 1 over the columns' unit; the norm of a draw has mean ``dimension / rate``.
    dimension : int
        Number of columns, from 1 to a million.

    Attributes
    ----------
    step : float
        Lattice step, a power of two: a draw is an integer vector times ``step``, exactly.
    log_density_error : float
        Bound ``eta`` on the error of the log density, outside an event of probability ``tail``.
    tail : float
        Probability of the exceptional event: 2**-64, or 0 in one dimension.
    total_variation : float
        Total variation distance of the sampler from that law, per vector.

    Privacy
    -------
    Added to lattice vectors of L2 sensitivity ``D`` it is ``(rate D + 2 eta, delta)``-DP with
    ``delta = tail (1 + exp(rate D + eta)) + (1 + exp(rate D)) total_variation``: a point event, not
    pure DP, except in one dimension.

    Reference
    ---------
    docs/explanation/theorems/spherical-laplace.md

    Examples
    --------
    >>> from discreet.noise import SphericalLaplace
    >>> law = SphericalLaplace(rate=1.0, dimension=10)
    >>> law.log_density_error < 1e-11, law.step < 1e-6
    (True, True)
    """

    rate: float
    dimension: int

    def __post_init__(self) -> None:
        """Check rate and dimension, and convert the rate to a float."""
        given: Any = self.rate
        rate = given.item() if isinstance(given, np.number) else given
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 1e-250 < rate < 1e250:
            raise ParameterError(
                f"rate of SphericalLaplace must be between 1e-250 and 1e250, was {self.rate!r}. Ask for "
                "noise that 64-bit numbers can hold."
            )
        if isinstance(self.dimension, bool) or not isinstance(self.dimension, int | np.integer):
            raise ParameterError("dimension of SphericalLaplace must be an integer.")
        if not 1 <= self.dimension <= LARGEST_DIMENSION:
            raise ParameterError(
                f"dimension of SphericalLaplace must be from 1 to {LARGEST_DIMENSION}, was {self.dimension}."
            )
        # In single precision the constants below would be wrong from the eighth digit on.
        object.__setattr__(self, "rate", float(rate))

    @cached_property
    def least_radius(self) -> float:
        """``S0``: the radius variable falls below it with probability at most ``TAIL / 2``."""
        if self.dimension == 1:
            return 1.0
        shape = (self.dimension + 1) / 2
        return math.sqrt(2 * float(scipy.special.gammaincinv(shape, TAIL / 2))) * (1 - 1e-9)

    @property
    def step(self) -> float:
        """The largest power of two that leaves at least 2**17 steps per standard deviation."""
        _, exponent = math.frexp(self.least_radius / self.rate)
        return math.ldexp(1.0, exponent - 1 - _LOG2_LEAST_SCALE)

    @property
    def log_density_error(self) -> float:
        """Bound ``eta`` of the theorem, rounded up.

        Notes
        -----
        ``eta = (kappa / 2) R exp(kappa)``: the radius has a relative error below ``exp(kappa / 2)``, and R is
        a quantile of the chi-square law of ``dimension``, exceeded with probability at most ``TAIL / 2``.
        """
        if self.dimension == 1:
            return 0.0
        d = self.dimension
        shift = math.sqrt(d + 1) / 2 ** (_LOG2_RADIUS_LATTICE + 1)
        # d + 1 squares and their sum, a root, a product and a quotient, each rounded once.
        kappa = 2 * math.log1p(shift / (self.least_radius - shift)) + (d + 8) * _UNIT
        farthest = 2 * float(scipy.special.gammainccinv(d / 2, TAIL / 2)) * (1 + 1e-9) * math.exp(kappa)
        return kappa / 2 * farthest * math.exp(kappa) * (1 + 1e-9)

    @property
    def tail(self) -> float:
        """Probability of the exceptional event."""
        return 0.0 if self.dimension == 1 else TAIL

    @property
    def total_variation(self) -> float:
        """Distance of the sampler from its law, per vector."""
        if self.dimension == 1:
            return samplers.LAPLACE_TOTAL_VARIATION
        return (2 * self.dimension + 1) * samplers.GAUSSIAN_TOTAL_VARIATION

    def integers(self, size: int, stream: Stream | None = None) -> Ints:
        """Return ``size`` vectors as integers, in units of ``step``; shape (size, dimension)."""
        size = check_count(size, "size", "SphericalLaplace.integers")
        stream = stream_or_fresh(stream)
        if self.dimension == 1:
            # The reciprocal rounds; a scale above the exact one keeps the promise.
            scale = math.nextafter(1 / (self.rate * self.step), math.inf)
            return discrete_laplace(scale, (size, 1), stream)
        out = np.empty((size, self.dimension), np.int64)
        rows = max(1, (1 << 18) // (self.dimension + 1))
        for start in range(0, size, rows):
            part = out[start : start + rows]
            normals = rounded_gaussian(2.0**_LOG2_RADIUS_LATTICE, (len(part), self.dimension + 1), stream)
            radius = np.sqrt(np.sum(np.square(normals * 2.0**-_LOG2_RADIUS_LATTICE), axis=1))
            # Radii below S0 are part of the exceptional event; raised to S0, their scale has 2**17 steps too.
            scale = np.maximum(radius, self.least_radius) / (self.rate * self.step)
            fill_rounded_gaussian(part.reshape(-1), np.repeat(scale, self.dimension), stream)
        return out


def spherical_laplace(rate: float, dimension: int, size: int, stream: Stream | None = None) -> Floats:
    """Return ``size`` vectors with density proportional to ``exp(-rate * norm)``.

    The floats are exact multiples of ``SphericalLaplace(rate=..., dimension=...).step``, a power of two.
    Add them to values on the same lattice.

    Privacy
    -------
    See :class:`SphericalLaplace`.

    Reference
    ---------
    docs/explanation/theorems/spherical-laplace.md

    Examples
    --------
    >>> from discreet.noise import Stream, spherical_laplace
    >>> spherical_laplace(2.0, 3, 5, stream=Stream.from_seed(1)).shape
    (5, 3)
    """
    law = SphericalLaplace(rate=rate, dimension=dimension)
    return np.multiply(law.integers(size, stream), law.step, dtype=np.float64)
