"""Noise on vectors of weights: its laws on the lattice, its calibration, and its promises."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import PromiseError
from discreet.noise import SphericalLaplace, rounded_gaussian, samplers
from discreet.privacy import ApproxDP, GaussianDP, Promise, PureDP
from discreet.privacy.calibration import gaussian_delta, gaussian_mu, mu_for_sd

if TYPE_CHECKING:
    from discreet._types import Floats, Ints
    from discreet.noise import Stream


_DOWN = 1 - 2.0**-40
"""Covers the rounding of the few operations behind a rate or a scale."""
LARGEST_DELTA = 2.0**-20
"""Largest delta that may come with spherical noise; it passes this near an epsilon of 30."""
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
        """Distance between neighboring lattice points, a power of two."""

    @property
    @abstractmethod
    def total_variation(self) -> float:
        """The sampler's distance from the law, for one vector."""

    @property
    @abstractmethod
    def largest_norm(self) -> float:
        """Bound on the norm of what is drawn: the samplers cut the tails of their laws."""

    @abstractmethod
    def integers(self, stream: Stream) -> Ints:
        """Draw one vector in lattice steps."""

    def draw(self, stream: Stream) -> Floats:
        """Draw one vector."""
        return self.draw_with_error(stream)[0]

    def draw_with_error(self, stream: Stream) -> tuple[Floats, float]:
        """Draw one vector, and return how far floats can have put it from the one on the lattice."""
        return np.multiply(self.integers(stream), self.step, dtype=np.float64), 0.0

    def float_error(self, norm: float) -> float:
        """Return how far floats can put a vector of this norm from the one on the lattice: not at all."""
        return 0.0

    def add_to(self, vector: Floats, stream: Stream) -> Floats:
        """Return the vector, rounded to the lattice, with noise added to it.

        The sum is one of integers of any size; turning it into floats comes after the noise.
        """
        # The step is a power of two: the quotient is exact.
        rounded = np.rint(vector / self.step)
        noise = self.integers(stream)
        # Python integers: lattice positions may exceed 64 bits.
        sums = [int(value) + int(moved) for value, moved in zip(rounded, noise, strict=True)]
        return np.array([float(total) for total in sums]) * self.step

    @property
    def rounding_distance(self) -> float:
        """Largest distance that rounding to the lattice adds between two vectors."""
        return self.step * math.sqrt(self.dimension)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointNoise(VectorNoise):
    """Noise whose promise is a point: one epsilon with one delta, which the noise itself brings."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return the delta that comes with an epsilon without the sampler's distance."""


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
        # At the least radius a scale is below 2**18 base steps, and elsewhere `largest` times that.
        return math.ldexp(super().step, -(50 - 18 - math.ceil(math.log2(largest))))


@dataclass(frozen=True, slots=True, kw_only=True)
class SphericalNoise(PointNoise):
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
    def for_sensitivity(cls, sensitivity: float, epsilon: float, dimension: int) -> SphericalNoise:
        """Return the least noise that hides a distance of ``sensitivity``, before rounding, at an epsilon."""
        step = 0.0
        # The rate decides the lattice, and the lattice widens the distance: a few rounds suffice.
        left = without_density_error(epsilon, dimension) * _DOWN
        for _ in range(8):
            noise = cls.with_rate(left / (sensitivity + step * math.sqrt(dimension)), dimension)
            # The distance was widened for a lattice at least as coarse as this one: the rate is safe.
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
        """Distance of the sampler from the spherical law."""
        return self.law.total_variation

    @property
    def largest_norm(self) -> float:
        """Bound from a radius variable and coordinates that are normals below ``LARGEST_NORMAL`` each."""
        if self.dimension == 1:
            return LARGEST_EXPONENTIAL / self.law.rate
        factors = math.sqrt(self.dimension * (self.dimension + 1))
        return LARGEST_NORMAL**2 * factors / self.law.rate

    def delta(self, epsilon: float) -> float:
        """Return the delta that comes with an epsilon without the sampler's distance; 0 in one dimension."""
        if self.law.tail == 0.0:
            return 0.0
        # The exponent is capped against overflow: what it is capped at is refused anyway.
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
class GaussianVectorNoise(VectorNoise):
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
    def for_sensitivity(cls, sensitivity: float, mu: float, dimension: int) -> GaussianVectorNoise:
        """Return the least noise that hides a distance of ``sensitivity``, before rounding, at ``mu``."""
        rough = cls(dimension=dimension, sd=sensitivity / mu, log2_steps=_OUTPUT_STEPS)
        # The lattice widens the distance by less than this, also if the wider noise has the next coarser one.
        wider = sensitivity + 2 * rough.rounding_distance
        return cls(dimension=dimension, sd=wider / mu / _DOWN, log2_steps=_OUTPUT_STEPS)

    @property
    def step(self) -> float:
        """A power of two: between ``2**log2_steps`` and twice as many steps are one standard deviation."""
        # frexp returns e with 2**(e - 1) <= sd < 2**e.
        return math.ldexp(1.0, math.frexp(self.sd)[1] - 1 - self.log2_steps)

    @property
    def total_variation(self) -> float:
        """Distance of ``dimension`` draws from the Gaussian law."""
        return self.dimension * samplers.GAUSSIAN_TOTAL_VARIATION

    @property
    def largest_norm(self) -> float:
        """Bound from coordinates that are normals below ``LARGEST_NORMAL`` each."""
        return LARGEST_NORMAL * self.sd * math.sqrt(self.dimension)

    def integers(self, stream: Stream) -> Ints:
        """Draw one vector in lattice steps."""
        # The quotient by a power of two is exact.
        return rounded_gaussian(self.sd / self.step, self.dimension, stream)


def inherited_fields(privacy: Promise) -> dict[str, Any]:
    """Return unit, neighbors and assumptions that a promise inherits from the requested one."""
    assumes = (
        *privacy.assumes,
        f"each {privacy.unit} has one row",
        "the number of rows, the bounds and the list of classes are public",
    )
    return {"unit": privacy.unit, "neighbors": privacy.neighbors, "assumes": assumes}


def spherical_promise(privacy: PureDP, delta: float, total_variation: float) -> Promise:
    """Return what spherical noise promises: a point event, pure in one dimension."""
    rest = {**inherited_fields(privacy), "total_variation": total_variation}
    if delta == 0.0:
        return PureDP(epsilon=privacy.epsilon, **rest)
    return ApproxDP(epsilon=privacy.epsilon, delta=delta, **rest)


def delta_without_sampler(privacy: ApproxDP, total_variation: float) -> float:
    """Return the delta that remains after the sampler's distance from its law."""
    # A sampler within t of its law adds (1 + exp(epsilon)) t to delta; twice that is set aside.
    distance = 2 * (1 + math.exp(min(privacy.epsilon, 700.0))) * total_variation
    if distance >= privacy.delta / 2:
        raise PromiseError(
            f"delta of privacy must be well above the sampler's {distance:.2g} at this epsilon, was "
            f"{privacy.delta:g}. Ask for a larger delta or a smaller epsilon."
        )
    # A little less, so that the promise holds at the requested delta after rounding.
    return (privacy.delta - distance) * (1 - 2.0**-38)


def gaussian_allowance(privacy: ApproxDP, size: int) -> float:
    """Return the largest mu of Gaussian noise on ``size`` numbers."""
    return gaussian_mu(
        privacy.epsilon, delta_without_sampler(privacy, size * samplers.GAUSSIAN_TOTAL_VARIATION)
    )


def output_noise(apart: float, privacy: PureDP | ApproxDP, size: int) -> tuple[VectorNoise, Promise]:
    """Return the least noise on a vector of weights, and its promise.

    Parameters
    ----------
    apart : float
        Largest distance of the computed weights of two neighbors, before rounding to the lattice.
    privacy : PureDP or ApproxDP
        Promise that the noise must keep.
    size : int
        Number of weights in the vector.

    Privacy
    -------
    Under :class:`PureDP` the density is in proportion to ``exp(-epsilon |x| / apart)``, under
    :class:`ApproxDP` the noise is Gaussian and promised as its whole curve.

    Reference
    ---------
    docs/explanation/theorems/spherical-laplace.md, analytic-gaussian.md
    """
    if isinstance(privacy, PureDP):
        spherical = SphericalNoise.for_sensitivity(apart, privacy.epsilon, size)
        return spherical, spherical_promise(
            privacy, spherical.delta(privacy.epsilon), spherical.total_variation
        )
    noise = GaussianVectorNoise.for_sensitivity(apart, gaussian_allowance(privacy, size), size)
    # Of the noise as it is drawn, which is a little wider than what was asked for.
    promise = GaussianDP(
        mu=mu_for_sd((apart + noise.rounding_distance) * (1 + 2.0**-44), noise.sd),
        total_variation=noise.total_variation,
        **inherited_fields(privacy),
    )
    return noise, promise


LEAST_SHARE, LARGEST_SHARE = 2.0**-10, 0.25
"""Parts of epsilon that may be spent on hiding the solver's error."""
OUTPUT_DELTA = 2.0**-6
"""Part of delta that is spent on the noise that hides the solver's error."""
LARGEST_SCALE = 1e100
"""Standard deviation of a linear term whose powers are still numbers to a solver."""


def gaussian_term_scale(change: float, mean: float, epsilon: float, delta: float) -> float:
    """Return the least standard deviation of a Gaussian linear term that is (epsilon, delta)-private.

    Parameters
    ----------
    change : float
        Largest distance of two linear terms that lead two neighbors to the same minimizer.
    mean : float
        Mean of the largest inner product of a standard normal with such a change.
    epsilon : float
        Epsilon that remains after the change of volume.
    delta : float
        Delta of the promise, between 0 and 1.

    Returns
    -------
    float
        The least ``s`` with ``gaussian_delta(epsilon - mean / s, change / s) <= delta`` and
        ``epsilon - mean / s >= change**2 / (2 s**2)``. Found by bisection, rounded up.

    Raises
    ------
    PromiseError
        If it is above ``LARGEST_SCALE``.

    Privacy
    -------
    The change of the linear term depends on the noise itself, so that the plain Gaussian mechanism does not
    apply: ``mean`` pays for that.

    Reference
    ---------
    docs/explanation/theorems/masked-objective.md
    """

    def enough(s: float) -> bool:
        left, mu = epsilon - mean / s, change / s
        # Strict, because mu * mu underflows to 0 for a tiny mu while `left` must be above it.
        return left > mu * mu / 2 and gaussian_delta(left, mu) <= delta

    high = change / epsilon
    while not enough(high):
        high *= 2
    if high > LARGEST_SCALE:
        raise PromiseError(
            f"epsilon of privacy must leave a linear term of at most {LARGEST_SCALE:g} for the objective, "
            f"and {epsilon:g} asks for more. Ask for a weaker promise: nothing could be learned under such "
            "noise."
        )
    low = high / 2
    while enough(low):
        # The answer may be below half of the first guess.
        low, high = low / 2, low
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    # The upper end, which passed the test.
    return high


def zero_sum_basis(n_classes: int) -> Floats:
    """Return an orthonormal basis, one row each, of the vectors whose ``n_classes`` entries sum to zero."""
    # Helmert contrasts: each class against the mean of those before it.
    basis = np.zeros((n_classes - 1, n_classes))
    for k in range(1, n_classes):
        basis[k - 1, :k] = 1
        basis[k - 1, k] = -k
        basis[k - 1] /= math.sqrt(k * (k + 1))
    return basis
