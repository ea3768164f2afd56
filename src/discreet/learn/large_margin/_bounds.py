"""How far one row moves what is minimized, and spherical noise on each class's matrix by itself.

Rows have norms of at most 1, neighbors differ in one row with its label. ``C`` is the number of classes,
``M`` of components of each, ``h`` the smoothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy import integrate, optimize, special

from discreet._types import Floats
from discreet.errors import PromiseError
from discreet.learn.perturbation.noise import (
    FineSphericalLaplace,
    PointNoise,
    SphericalNoise,
    zero_sum_basis,
)
from discreet.noise import SphericalLaplace

if TYPE_CHECKING:
    from discreet._types import Ints
    from discreet.noise import Stream


_UP = 1 + 1e-12
"""Covers the rounding of the few operations behind each constant."""


def gradient_change(n_classes: int, components: int = 1) -> float:
    """Return how far one row's derivative can move, over all matrices together, when the row is replaced.

    ``sqrt(2) C`` with one matrix for each class, attained by the same row under another label; with several,
    ``sqrt(2 (C - 1) (C + 2))``.

    Privacy
    -------
    The paper's 2 is for one class, and wrong there too.

    Reference
    ---------
    docs/explanation/theorems/large-margin-sensitivity.md
    """
    if components == 1:
        return math.sqrt(2) * n_classes * _UP
    return math.sqrt(2 * (n_classes - 1) * (n_classes + 2)) * _UP


@lru_cache(maxsize=64)
def classwise_change(n_classes: int) -> float:
    """Return the most that the norms of all classes' changes add up to when a row is replaced.

    The largest value over which rivals are active for the old and the new row, and over the squared cosine
    between the two; it is concave in the latter, so that a tangent bounds it.

    Reference
    ---------
    docs/explanation/theorems/large-margin-sensitivity.md
    """
    # Counts of rivals active for both rows, for the old one alone and for the new one alone.
    others = n_classes - 2
    counts = np.array(
        [
            (i, j, both, a, b)
            for i, j in product((0, 1), repeat=2)
            for both in range(others + 1)
            for a in range(others + 1 - both)
            for b in range(others + 1 - both - a)
        ],
        dtype=np.float64,
    ).T
    rest = np.array(
        [
            (both, a, b)
            for both in range(others + 2)
            for a in range(others + 2 - both)
            for b in range(others + 2 - both - a)
        ],
        dtype=np.float64,
    ).T
    return max(_largest(*_another_label(*counts)), _largest(*_same_label(*rest))) * _UP


_Terms = tuple[list[tuple[Floats, Floats]], Floats, Floats]
"""Terms ``sqrt(A + B r)``, how often ``sqrt(2 - 2 r)``, and what does not depend on ``r``."""


def _another_label(i: Floats, j: Floats, both: Floats, a: Floats, b: Floats) -> _Terms:
    # X = x x' of the old row and Y of the new one have norm 1 at most and inner product r. i and j say
    # whether the other row's class is an active rival. The old class changes by |old X + j Y|, the new one
    # by |new Y + i X| (i and j equal their squares), rivals of both rows by |X - Y|, of one row by 1.
    old, new = i + both + a, j + both + b
    return [(old**2 + j, 2 * old * j), (new**2 + i, 2 * new * i)], both, a + b


def _same_label(both: Floats, a: Floats, b: Floats) -> _Terms:
    # The class of both rows changes by |old X - new Y|, with one more rival than above.
    old, new = both + a, both + b
    return [(old**2 + new**2, -2 * old * new)], both, a + b


def _largest(terms: list[tuple[Floats, Floats]], both: Floats, rest: Floats) -> float:
    """Return the largest sum over ``r`` in [0, 1], rounded up.

    Notes
    -----
    The sum is concave in ``r``, the squared cosine between the old and the new row: the largest value is
    found by bisection of the slope, all cases at once, and the tangent at the end bounds what is missed.

    Reference
    ---------
    docs/explanation/theorems/large-margin-sensitivity.md
    """

    def slope(r: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [np.where(B == 0, 0.0, B / (2 * np.sqrt(A + B * r))) for A, B in terms]
            parts.append(np.where(both == 0, 0.0, -both / np.sqrt(2 - 2 * r)))
        return np.asarray(sum(parts))

    # Short of 1, where the slope is infinite; the tangent at the end covers the rest.
    low, high = np.zeros_like(both), np.full_like(both, 1.0 - 2.0**-40)
    for _ in range(50):
        middle = (low + high) / 2
        rising = slope(middle) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    value = sum(np.sqrt(A + B * low) for A, B in terms) + both * np.sqrt(2 - 2 * low) + rest
    tangent = slope(low)
    # A concave function lies below its tangent, which is largest at one of the ends 0 and 1.
    missed = np.maximum(tangent * (1 - low), -tangent * low)
    return float((value + np.maximum(missed, 0.0)).max())


def jacobian_cost(n_classes: int, smoothing: float, regularization: float, components: int = 1) -> float:
    """Return the part of epsilon that objective perturbation spends on the change of volume.

    With one matrix for each class ``log(1 + C / (2 h L)) + (C - 2) log(1 + 1 / (2 h L))``, ``L`` the
    regularization: attained. With several, the trace of one row's second derivative is at most
    ``(C - 1) max(1 / h, (M + 1) / (2 h M) + (M - 1) / M)`` and its rank ``(C - 1) M``, over which it is
    spread evenly at worst.

    Reference
    ---------
    docs/explanation/theorems/large-margin-private.md
    """
    if components == 1:
        # Second derivative of one rival's hinge over the regularization.
        each = 1 / (2 * smoothing * regularization)
        return (math.log1p(n_classes * each) + (n_classes - 2) * math.log1p(each)) * _UP
    m, h = components, smoothing
    trace = (n_classes - 1) * max(1 / h, (m + 1) / (2 * h * m) + (m - 1) / m)
    rank = (n_classes - 1) * m
    return rank * math.log1p(trace / (rank * regularization)) * _UP


def regularization_for_jacobian(n_classes: int, smoothing: float, cost: float, components: int = 1) -> float:
    """Return the least regularization with a :func:`jacobian_cost` of at most ``cost``.

    Reference
    ---------
    docs/explanation/theorems/large-margin-private.md
    """

    def over(log_regularization: float) -> float:
        return jacobian_cost(n_classes, smoothing, math.exp(log_regularization), components) - cost

    # The cost is at most 2 C (1 / h + 1) / L.
    high = math.log(4 * n_classes * (1 / smoothing + 1) / cost)
    low = high - 1.0
    while over(low) <= 0:
        low -= 2 * (high - low)
    root: float = optimize.brentq(over, low, high, xtol=1e-13, rtol=1e-13)
    # Raised beyond the root's error: the cost falls as the regularization grows.
    return math.exp(root) * (1 + 1e-10)


@lru_cache(maxsize=64)
def mean_supremum(n_classes: int, components: int = 1) -> float:
    """Return a bound on the mean of the largest inner product of a standard normal with a change of gradient.

    ``2 (C - 1)`` times the mean of the positive part of a standard normal plus the largest of ``M`` others:
    ``2 (C - 1) / sqrt(pi)`` for one component.

    Reference
    ---------
    docs/explanation/theorems/large-margin-private.md
    """
    if components == 1:
        return 2 * (n_classes - 1) / math.sqrt(math.pi) * _UP

    def integrand(x: float) -> float:
        # E (g + x)_+ = x Phi(x) + phi(x), weighted by the density of the largest of M normals.
        positive = x * special.ndtr(x) + math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        density = components * special.ndtr(x) ** (components - 1)
        return float(positive * density * math.exp(-x * x / 2) / math.sqrt(2 * math.pi))

    mean, error = integrate.quad(integrand, -40.0, 40.0, points=(-5.0, 0.0, 5.0), epsabs=1e-13, limit=400)
    return float(2 * (n_classes - 1) * (mean + error) * _UP)


def minimizer_sensitivity(change: float, regularization: float, tolerance: float) -> float:
    """Return how far the computed minimizers of two neighbors can be apart.

    Privacy
    -------
    ``change / regularization`` for the exact ones, by strong convexity, with or without the constraint that
    matrices be positive semidefinite; the solver's tolerance for each of the two.

    Reference
    ---------
    docs/explanation/theorems/large-margin-sensitivity.md
    """
    return (change + 2 * tolerance) / regularization * _UP


_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True)
class ClasswiseNoise(PointNoise):
    """One vector of density ``exp(-rate |x|)`` for each class, together ``exp(-rate`` times the sum of norms.

    Privacy
    -------
    Between terms whose class norms differ by at most ``D`` in sum: a point event of ``rate D`` plus twice
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
        """Distance of all classes' draws from their laws."""
        return self.n_classes * self.law.total_variation

    @property
    def rounding_distance(self) -> float:
        """Largest distance that rounding to the lattice adds to two linear terms; projections shorten it."""
        return self.step * math.sqrt(self.n_classes * self.law.dimension)

    @property
    def largest_norm(self) -> float:
        """Bound on the norm of all classes' vectors together; projections shorten."""
        one = SphericalNoise(dimension=self.law.dimension, law=self.law)
        return math.sqrt(self.n_classes) * one.largest_norm

    def delta(self, epsilon: float) -> float:
        """Return the delta that comes with an epsilon without the sampler's distance."""
        one = SphericalNoise(dimension=self.law.dimension, law=self.law)
        # SphericalNoise.delta adds the error of one class itself.
        reached = epsilon + (self.n_classes - 1) * self.law.log_density_error
        return self.n_classes * one.delta(reached)

    def integers(self, stream: Stream) -> Ints:
        """Draw all classes' vectors in lattice steps, one after the other."""
        return np.asarray(self.law.integers(self.n_classes, stream).reshape(-1))

    def draw_with_error(self, stream: Stream) -> tuple[Floats, float]:
        """Draw what acts, in the basis of what sums to zero over classes, and a bound on its float error."""
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
    # Mean squared norms up to the common factor 1 / epsilon^2.
    joint = m * (m + 1) * gradient_change(n_classes) ** 2
    by_class = (n_classes - 1) * coordinates * (coordinates + 1) * classwise_change(n_classes) ** 2
    return by_class < joint
