"""Spherical noise on each class's matrix by itself, of which what sums to zero over classes acts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import PromiseError
from discreet.learn.large_margin.sensitivity import classwise_change, gradient_change
from discreet.learn.perturbed.vector import FineSphericalLaplace, SphericalNoise, VectorNoise
from discreet.learn.perturbed.zero_sum import zero_sum_basis
from discreet.noise import SphericalLaplace

if TYPE_CHECKING:
    from discreet._typing import Floats, Ints
    from discreet.noise import Stream

_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True)
class ClasswiseNoise(VectorNoise):
    """One vector of density ``exp(-rate |x|)`` for each class, together ``exp(-rate`` times the sum of norms.

    Privacy
    -------
    Between tilts whose class norms differ by at most ``D`` in sum: a point event of ``rate D`` plus twice
    the error of each class's radius, and the tails of all of them. The projection to what sums to zero is
    post-processing: in that space the density's logarithm changes by no more.

    Reference
    ---------
    docs/explanation/theorems/large-margin-noise.md
    """

    law: SphericalLaplace
    n_classes: int

    @classmethod
    def with_rate(cls, rate: float, coordinates: int, n_classes: int) -> ClasswiseNoise:
        """Return the noise of one rate on ``n_classes`` vectors of ``coordinates`` entries."""
        law = FineSphericalLaplace(rate=rate, dimension=coordinates)
        return cls(dimension=(n_classes - 1) * coordinates, law=law, n_classes=n_classes)

    @property
    def step(self) -> float:
        """The lattice of the law."""
        return self.law.step

    @property
    def total_variation(self) -> float:
        """Of all classes' draws."""
        return self.n_classes * self.law.total_variation

    @property
    def rounding(self) -> float:
        """How far apart rounding to the lattice can push two tilts; projections shorten."""
        return self.step * math.sqrt(self.n_classes * self.law.dimension)

    @property
    def longest(self) -> float:
        """Of all classes' vectors together; projections shorten."""
        one = SphericalNoise(dimension=self.law.dimension, law=self.law)
        return math.sqrt(self.n_classes) * one.longest

    def delta(self, epsilon: float) -> float:
        """Return the delta that comes with an epsilon without the sampler's distance."""
        one = SphericalNoise(dimension=self.law.dimension, law=self.law)
        reached = epsilon + (self.n_classes - 1) * self.law.log_density_error
        return self.n_classes * one.delta(reached)

    def integers(self, stream: Stream) -> Ints:
        """Draw all classes' vectors in lattice steps, one after the other."""
        return np.asarray(self.law.integers(self.n_classes, stream).reshape(-1))

    def draw(self, stream: Stream) -> Floats:
        """Draw what acts: coordinates in the basis of what sums to zero over classes."""
        return self.draw_with_error(stream)[0]

    def draw_with_error(self, stream: Stream) -> tuple[Floats, float]:
        """Draw what acts, and return how far floats can have put it from what was meant."""
        whole = np.multiply(self.integers(stream), self.step, dtype=np.float64)
        acts = (zero_sum_basis(self.n_classes) @ whole.reshape(self.n_classes, -1)).reshape(-1)
        return acts, self.float_error(float(np.linalg.norm(whole)))

    def float_error(self, norm: float) -> float:
        """Return how far floats can put what acts of vectors of this norm from what was meant."""
        return (3 * self.n_classes + 16) * _UNIT * norm


def without_classwise_error(epsilon: float, coordinates: int, n_classes: int) -> float:
    """Return what is left of an epsilon once every class's radius is paid for."""
    error = SphericalLaplace(rate=1.0, dimension=coordinates).log_density_error
    left = epsilon - 2 * n_classes * error
    if left <= epsilon / 2:
        raise PromiseError(
            f"epsilon of privacy must be larger for {n_classes * coordinates} weights, and what is left for "
            f"them was {epsilon:g}: it does not cover what computing the noise costs. Use fewer columns, or "
            "ApproxDP."
        )
    return left


def classwise_is_quieter(n_classes: int, coordinates: int) -> bool:
    """Whether noise by class has the smaller mean square, of what acts, than noise on all classes jointly.

    In ``m`` dimensions spherical noise of scale ``b`` has a mean squared norm of ``m (m + 1) b**2``. Jointly
    ``m`` is ``(C - 1) D`` and ``b`` in proportion to ``sqrt(2) C``; by class ``m`` is ``D``, ``C`` times, of
    which the projection leaves ``C - 1`` parts in ``C``.

    Reference
    ---------
    docs/explanation/theorems/large-margin-noise.md
    """
    m = (n_classes - 1) * coordinates
    joint = m * (m + 1) * gradient_change(n_classes) ** 2
    by_class = (n_classes - 1) * coordinates * (coordinates + 1) * classwise_change(n_classes) ** 2
    return by_class < joint
