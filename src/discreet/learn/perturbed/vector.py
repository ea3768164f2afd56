"""Hiding a vector: round it to a lattice, add noise of that lattice as integers, know what that promises."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import PromiseError
from discreet.noise import SphericalLaplace, gaussian, rounded_gaussian

if TYPE_CHECKING:
    from discreet._typing import Floats, Ints
    from discreet.noise import Stream

_DOWN = 1 - 2.0**-40
"""Covers the rounding of the few operations behind a rate or a scale."""
LARGEST_DELTA = 2.0**-20
"""Of what comes with spherical noise; it passes this near an epsilon of 30."""
LARGEST_NORMAL, LARGEST_EXPONENTIAL = 14.0, 93.0
"""No standard deviate is larger: the samplers cut at 13.5 and 92, and lattices add next to nothing."""
_OUTPUT_STEPS = 20
_INNER_STEPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorNoise(ABC):
    """Noise for vectors of one length on one lattice.

    Attributes
    ----------
    dimension : int
        Entries of a vector.
    """

    dimension: int

    @property
    @abstractmethod
    def step(self) -> float:
        """Of the lattice, a power of two."""

    @property
    @abstractmethod
    def total_variation(self) -> float:
        """The sampler's distance from the law, for one vector."""

    @property
    @abstractmethod
    def longest(self) -> float:
        """Bound on the norm of what is drawn: the samplers cut the tails of their laws."""

    @abstractmethod
    def integers(self, stream: Stream) -> Ints:
        """Draw one vector in lattice steps."""

    def draw(self, stream: Stream) -> Floats:
        """Draw one vector."""
        return np.multiply(self.integers(stream), self.step, dtype=np.float64)

    def hide(self, vector: Floats, stream: Stream) -> Floats:
        """Return the vector, rounded to the lattice, with noise added to it.

        The sum is one of integers of any size; turning it into floats comes after the noise.
        """
        rounded = np.rint(vector / self.step)
        noise = self.integers(stream)
        sums = [int(value) + int(moved) for value, moved in zip(rounded, noise, strict=True)]
        return np.array([float(total) for total in sums]) * self.step

    @property
    def rounding(self) -> float:
        """How far apart rounding to the lattice can push two vectors."""
        return self.step * math.sqrt(self.dimension)


@dataclass(frozen=True, kw_only=True)
class FineSphericalLaplace(SphericalLaplace):
    """The same law on the finest lattice that its sampler has: what rounding costs is then next to nothing.

    A draw's scale is the norm of ``dimension + 1`` normals, none of which the sampler makes larger than 14
    (``LARGEST_NORMAL``), over ``rate`` and ``step``; it stays below the 2**50 steps that the sampler is
    proven for.

    Privacy
    -------
    As of :class:`SphericalLaplace`, whose constants do not depend on the step.

    Reference
    ---------
    docs/explanation/theorems/spherical-laplace.md
    """

    @property
    def step(self) -> float:
        """A power of two."""
        largest = (
            LARGEST_NORMAL * math.sqrt(self.dimension + 1) / self.least_radius if self.dimension > 1 else 1.0
        )
        return math.ldexp(super().step, -(50 - 18 - math.ceil(math.log2(largest))))


@dataclass(frozen=True, slots=True, kw_only=True)
class SphericalNoise(VectorNoise):
    """Density proportional to ``exp(-rate |x|)``: for promises without a delta of their own.

    Privacy
    -------
    Added to lattice vectors at most ``D`` apart: a point event of ``rate D + 2 eta`` and a delta of about
    ``exp(epsilon)`` times 2**-64; pure in one dimension.

    Reference
    ---------
    docs/explanation/theorems/spherical-laplace.md
    """

    law: SphericalLaplace

    @classmethod
    def with_rate(cls, rate: float, dimension: int) -> SphericalNoise:
        """Return the noise of one rate."""
        return cls(dimension=dimension, law=FineSphericalLaplace(rate=rate, dimension=dimension))

    @classmethod
    def hiding(cls, sensitivity: float, epsilon: float, dimension: int) -> SphericalNoise:
        """Return the least noise that hides a distance of ``sensitivity``, before rounding, at an epsilon."""
        step = 0.0
        left = without_density_error(epsilon, dimension) * _DOWN
        for _ in range(8):
            noise = cls.with_rate(left / (sensitivity + step * math.sqrt(dimension)), dimension)
            if noise.step <= step:
                return noise
            step = noise.step
        raise _too_small(epsilon, dimension)

    @property
    def step(self) -> float:
        """The lattice of the law."""
        return self.law.step

    @property
    def total_variation(self) -> float:
        """Of the law's sampler."""
        return self.law.total_variation

    @property
    def longest(self) -> float:
        """Of a vector: its radius variable and its coordinates are normals below ``LARGEST_NORMAL`` each."""
        if self.dimension == 1:
            return LARGEST_EXPONENTIAL / self.law.rate
        factors = math.sqrt(self.dimension * (self.dimension + 1))
        return LARGEST_NORMAL**2 * factors / self.law.rate

    def delta(self, epsilon: float) -> float:
        """Return the delta that comes with an epsilon without the sampler's distance; 0 in one dimension."""
        if self.law.tail == 0.0:
            return 0.0
        value = self.law.tail * (1 + math.exp(min(epsilon + self.law.log_density_error, 700.0))) * (1 + 1e-12)
        if value > LARGEST_DELTA:
            raise PromiseError(
                f"epsilon of PureDP must be at most {math.log(LARGEST_DELTA / self.law.tail):.0f} for a "
                f"vector of weights, was {epsilon:g}: its noise comes with a delta of exp(epsilon) times "
                "2**-64. Ask for ApproxDP, or for NoPromise."
            )
        return value

    def integers(self, stream: Stream) -> Ints:
        """Draw one vector in lattice steps."""
        return np.asarray(self.law.integers(1, stream)[0])


def without_density_error(epsilon: float, dimension: int) -> float:
    """Return what is left of an epsilon once spherical noise of any rate has paid for its computed radius."""
    left = epsilon - 2 * SphericalLaplace(rate=1.0, dimension=dimension).log_density_error
    if left <= epsilon / 2:
        raise _too_small(epsilon, dimension)
    return left


def _too_small(epsilon: float, dimension: int) -> PromiseError:
    return PromiseError(
        f"epsilon of privacy must be larger for {dimension} weights, and what is left for them was "
        f"{epsilon:g}: it does not cover what computing the noise costs. Use fewer columns, or ApproxDP."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianNoise(VectorNoise):
    """Independent rounded Gaussians.

    Privacy
    -------
    Added to lattice vectors at most ``D`` apart it is exactly ``D / sd`` Gaussian differentially private,
    up to the sampler's distance.

    Reference
    ---------
    docs/explanation/theorems/analytic-gaussian.md, lattice-sampler.md
    """

    sd: float
    log2_steps: int = _INNER_STEPS

    @classmethod
    def hiding(cls, sensitivity: float, mu: float, dimension: int) -> GaussianNoise:
        """Return the least noise that hides a distance of ``sensitivity``, before rounding, at ``mu``."""
        rough = cls(dimension=dimension, sd=sensitivity / mu, log2_steps=_OUTPUT_STEPS)
        # The lattice widens the distance by less than this, also if the wider noise has the next coarser one.
        wider = sensitivity + 2 * rough.rounding
        return cls(dimension=dimension, sd=wider / mu / _DOWN, log2_steps=_OUTPUT_STEPS)

    @property
    def step(self) -> float:
        """A power of two: between ``2**log2_steps`` and twice as many steps are one standard deviation."""
        return math.ldexp(1.0, math.frexp(self.sd)[1] - 1 - self.log2_steps)

    @property
    def total_variation(self) -> float:
        """Of ``dimension`` draws."""
        return self.dimension * gaussian.TOTAL_VARIATION

    @property
    def longest(self) -> float:
        """Of a vector of normals below ``LARGEST_NORMAL`` each."""
        return LARGEST_NORMAL * self.sd * math.sqrt(self.dimension)

    def integers(self, stream: Stream) -> Ints:
        """Draw one vector in lattice steps."""
        # The quotient by a power of two is exact.
        return rounded_gaussian(self.sd / self.step, self.dimension, stream)
