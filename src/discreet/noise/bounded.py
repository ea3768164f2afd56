"""Noise of bounded support with the least Fisher information about the value.

The density on the support minimizes Fisher information over ``weight`` plus ``regularization`` times the mean
square. It is the square of a ground state, here of a polynomial that equals one up to rounding. That
polynomial *is* the law: draws follow it exactly, and promises are computed for it. Its distance from the true
minimum only costs a little efficiency, and is certified as ``excess``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import legendre

from discreet.errors import ParameterError
from discreet.noise import polynomial
from discreet.noise.deviates import LOG2_BUCKETS as LATTICE_BUCKETS
from discreet.noise.deviates import Sampler
from discreet.noise.polynomial import (
    LOG2_BUCKETS,
    GroundState,
    PolynomialTable,
    legendre_rule,
    polynomial_table,
)
from discreet.noise.samplers import allocate_result
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from discreet._types import Floats, Ints
    from discreet.noise.samplers import Size

LOG2_STEPS = 24
"""log2 of the number of lattice cells in the support."""
STEPS = 1 << LOG2_STEPS
"""Number of lattice cells in the support."""
ACCURACY = 2.0**-44
"""Error of ``root``, relative to the largest value within 2**-10 of the support."""
# exp(-42) of the height of u is left where an unbounded support is cut: 1e-36 of the density.
_CUT = 42.0
# The same cut for a potential centered in the support: exp(-9.2**2 / 2) is exp(-42).
_GAUSSIAN_CUT = 9.2
# Second eigenvalue minus first for a convex potential on [-1, 1], at least (Lavine 1994).
_GAP = 0.75 * math.pi**2


@dataclass(frozen=True, kw_only=True)
class BoundedDensity:
    """The least informative density on an interval.

    Minimizes ``FI / weight + regularization * E n**2`` over all densities on ``[lower, upper]``.

    Parameters
    ----------
    lower, upper : float
        Ends of the support, in the column's unit; infinite ones need a positive ``regularization``.
    regularization : float
        Factor of the mean square in the objective; at least 0. At 0 the density is
        ``(2 / L) cos(pi (n - middle) / L)**2`` on a support of length L.
    weight : float
        Weight of the column in the objective; above 0.

    Attributes
    ----------
    support : (float, float)
        Finite ends of the law: the interval, cut where 1e-36 of the height remains.
    mean, variance, second_moment, fisher_information : float
        Moments of the noise in the column's unit, and information about its location.
    eigenvalue, objective : float
        Lowest ``mu`` of ``-u'' + (regularization weight / 4) n**2 u = mu u``, and ``4 mu / weight``.
    excess, distance : float
        Certified bounds on how far the law's objective is above the minimum, relatively, and on the total
        variation between the law and the minimizer.
    step : float
        Width of a lattice cell, ``2**-24`` of the support.

    Privacy
    -------
    Additive noise of bounded support has no pure epsilon, only a delta for each epsilon:
    :func:`discreet.privacy.bounded.additive_delta`. :meth:`integers` draws lattice
    cells with their exact probabilities: no total variation is left, given ideal words. Added to values on
    the lattice it is the continuous mechanism, rounded.

    Reference
    ---------
    Farokhi, Theorem 2.6 and Corollary 2.7, corrected: docs/explanation/theorems/fisher-bounded.md.

    Examples
    --------
    >>> from discreet.noise import BoundedDensity
    >>> noise = BoundedDensity(lower=-1, upper=1, regularization=1)
    >>> round(noise.eigenvalue, 12), round(noise.variance, 9)
    (2.5, 0.130100991)
    """

    lower: float
    upper: float
    regularization: float = 0.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Convert the numbers to floats and check their domains."""
        for name in ("lower", "upper", "regularization", "weight"):
            object.__setattr__(self, name, _check_number(name, getattr(self, name)))
        if not self.lower < self.upper:
            raise ParameterError(
                f"lower of BoundedDensity must be below upper, were {self.lower!r} and {self.upper!r}. "
                "Give the ends of the support in order."
            )
        if not 0 <= self.regularization < math.inf:
            raise ParameterError(
                "regularization of BoundedDensity must be finite and at least 0, was "
                f"{self.regularization!r}. It is the price of the mean square; 0 is for bounded supports."
            )
        if not 0 < self.weight < math.inf:
            raise ParameterError(
                f"weight of BoundedDensity must be finite and above 0, was {self.weight!r}. "
                "Use 1 if there is nothing to weigh against."
            )
        if self.regularization == 0 and math.isinf(self.upper - self.lower):
            raise ParameterError(
                "regularization of BoundedDensity must be above 0 on an unbounded support, was 0: wider "
                "noise would always tell less, so there is no best one. Bound the support, or price the mean "
                "square."
            )

    @cached_property
    def support(self) -> tuple[float, float]:
        """Finite ends of the law."""
        if self.regularization == 0:
            return self.lower, self.upper
        # The potential is (a n)**2, so that on the whole line u is exp(-a n**2 / 2).
        a = math.sqrt(self.regularization * self.weight) / 2
        if self.lower >= 0:
            return self.lower, min(self.upper, _find_far_end(self.lower, a))
        if self.upper <= 0:
            return max(self.lower, -_find_far_end(-self.upper, a)), self.upper
        reach = _GAUSSIAN_CUT / math.sqrt(a)
        return max(self.lower, -reach), min(self.upper, reach)

    @cached_property
    def _half(self) -> float:
        return 0.5 * (self.support[1] - self.support[0])

    @cached_property
    def state(self) -> GroundState:
        """The square root of the density as a polynomial on [-1, 1]."""
        low, high = self.support
        strength = 0.25 * self.regularization * self.weight * self._half**4
        return polynomial.solve_ground_state(0.5 * (low + high) / self._half, strength)

    @cached_property
    def table(self) -> PolynomialTable:
        """Table of the exact sampler."""
        return polynomial_table(tuple(self.state.pairs.tolist()))

    @cached_property
    def _series(self) -> Floats:
        """Legendre coefficients of ``u``, its square normalized on [-1, 1]."""
        pairs = self.state.pairs
        series = np.concatenate([pairs, [0.0, 0.0]])
        series[2:] -= pairs
        return np.asarray(series / math.sqrt(float(np.sum(series**2 * 2 / (2 * np.arange(series.size) + 1)))))

    @cached_property
    def _distribution(self) -> Floats:
        """Legendre coefficients of the distribution function."""
        return np.asarray(legendre.legint(legendre.legmul(self._series, self._series), lbnd=-1))

    def _moment(self, power: int, about: float = 0.0) -> float:
        """Return ``E (n - about)**power``, by a Gauss-Legendre rule that is exact for powers up to 5."""
        x, w = legendre_rule(self._series.size + 2)
        n = 0.5 * (self.support[0] + self.support[1]) + self._half * x
        return float(np.sum(w * legendre.legval(x, self._series) ** 2 * (n - about) ** power))

    def _unit_coordinates(self, n: Floats) -> Floats:
        """Return the coordinates of ``n`` in [-1, 1], clipped to it."""
        return np.clip((np.asarray(n, np.float64) - self.support[0]) / self._half - 1.0, -1.0, 1.0)

    def root(self, n: Floats) -> Floats:
        """Return ``u(n)``, the square root of the density with its sign, 0 outside the support.

        Its error is at most :data:`ACCURACY` of the largest value nearby.
        """
        low, high = self.support
        n = np.asarray(n, np.float64)
        t = np.clip((n - low) / (high - low), 0.0, 1.0) * (1 << LOG2_BUCKETS)
        # The upper end of the support belongs to the last bucket.
        bucket = np.minimum(t.astype(np.int64), (1 << LOG2_BUCKETS) - 1)
        value = self.table.value(bucket, 2.0 * (t - bucket) - 1.0) / math.sqrt(high - low)
        return np.where((n >= low) & (n <= high), value, 0.0)

    def pdf(self, n: Floats) -> Floats:
        """Return the density at ``n``."""
        return np.square(self.root(n))

    def logpdf(self, n: Floats) -> Floats:
        """Return the logarithm of the density, minus infinity outside the support."""
        with np.errstate(divide="ignore"):
            return np.asarray(2 * np.log(np.abs(self.root(n))))

    def cdf(self, n: Floats) -> Floats:
        """Return the distribution function, to about 1e-15."""
        return np.clip(legendre.legval(self._unit_coordinates(n), self._distribution), 0.0, 1.0)

    def quantile(self, p: Floats) -> Floats:
        """Return the inverse of the distribution function, by Newton's method inside a shrinking bracket."""
        p = np.asarray(p, np.float64)
        if not np.all((p >= 0) & (p <= 1)):
            raise ParameterError(
                "p of BoundedDensity.quantile must be probabilities. Give numbers from 0 to 1."
            )
        low, high = np.full(p.shape, -1.0), np.full(p.shape, 1.0)
        x = np.zeros(p.shape)
        for _ in range(80):
            miss = legendre.legval(x, self._distribution) - p
            low, high = np.where(miss < 0, x, low), np.where(miss < 0, high, x)
            slope = legendre.legval(x, self._series) ** 2
            with np.errstate(divide="ignore", invalid="ignore"):
                newton = x - miss / slope
            # Newton's step leaves the bracket where the density is near 0; 80 bisections alone would suffice.
            x = np.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high))
        return np.asarray(0.5 * (self.support[0] + self.support[1]) + self._half * x)

    def suprema(self, n: Floats) -> tuple[Floats, Floats, Floats]:
        """Return bounds on ``f``, ``|f'|`` and ``|f''|`` within one bucket of each point.

        A bucket is ``2**-10`` of the support. The three arrays are 0 where no bucket is that near.

        Notes
        -----
        With ``f = u^2``: ``f' = 2 u u'`` and ``f'' = 2 (u'^2 + u u'')``, bucket by bucket.
        """
        low, high = self.support
        u, slope, curvature = self.table.suprema()
        width = high - low
        rows = (u**2 / width, 2 * u * slope / width**2, 2 * (slope**2 + u * curvature) / width**3)
        place = np.floor((np.asarray(n) - low) / width * (1 << LOG2_BUCKETS)).astype(np.int64)
        # Two empty buckets on either side stand for everything outside.
        place = np.clip(place, -2, (1 << LOG2_BUCKETS) + 1) + 2
        padded = [np.pad(row, 3) for row in rows]
        near = [np.maximum(np.maximum(row[:-2], row[1:-1]), row[2:])[place] for row in padded]
        return near[0], near[1], near[2]

    @cached_property
    def mean(self) -> float:
        """First moment: exactly 0 where the support is symmetric, which a sum would miss by rounding."""
        return 0.0 if self.support[0] == -self.support[1] else self._moment(1)

    @cached_property
    def second_moment(self) -> float:
        """``E n**2``, the quantity that the regularization multiplies."""
        return self._moment(2)

    @cached_property
    def variance(self) -> float:
        """Second central moment."""
        return self._moment(2, about=self.mean)

    @cached_property
    def fisher_information(self) -> float:
        """``4`` times the integral of ``u'**2``: information about the location of the noise."""
        x, w = legendre_rule(self._series.size)
        slope = legendre.legval(x, legendre.legder(self._series))
        return 4 * float(np.sum(w * slope**2)) / self._half**2

    @property
    def eigenvalue(self) -> float:
        """Lowest eigenvalue ``mu``."""
        return self.state.eigenvalue / self._half**2

    @property
    def objective(self) -> float:
        """Least value of ``FI / weight + regularization * E n**2``."""
        return 4 * self.eigenvalue / self.weight

    @property
    def excess(self) -> float:
        """Bound on (objective of the law - minimum) / minimum over the support."""
        energy, residual = self._residual
        # Temple's inequality.
        return residual**2 / (_GAP - residual) / energy

    @property
    def distance(self) -> float:
        """Bound on the total variation between the law and the least informative density itself."""
        # Davis and Kahan bound the distance in norm, which bounds the total variation of the squares.
        return math.sqrt(2) * self._residual[1] / (_GAP - self._residual[1])

    @cached_property
    def _residual(self) -> tuple[float, float]:
        """Energy ``e = <u, H u>`` of u on [-1, 1], and the norm of the residual ``H u - e u``."""
        x, w = legendre_rule(self._series.size + 4)
        shift = 0.5 * (self.support[0] + self.support[1]) / self._half
        strength = 0.25 * self.regularization * self.weight * self._half**4
        u = legendre.legval(x, self._series)
        # The least value of the potential changes the energy alone, and would cost digits of the residual.
        least = max(0.0, abs(shift) - 1.0) ** 2
        if abs(shift) > 1:
            # (x + shift)**2 - least as a product, in which nothing cancels.
            sign = math.copysign(1.0, shift)
            potential = strength * (x + sign) * (x + 2 * shift - sign)
        else:
            potential = strength * (x + shift) ** 2
        operator = potential * u - legendre.legval(x, legendre.legder(self._series, 2))
        energy = float(np.sum(w * u * operator))
        return energy + strength * least, math.sqrt(float(np.sum(w * (operator - energy * u) ** 2)))

    @property
    def step(self) -> float:
        """Width of a lattice cell."""
        return (self.support[1] - self.support[0]) / STEPS

    def integers(self, size: Size, stream: Stream | None = None) -> Ints:
        """Draw lattice cells, 0 to ``2**24 - 1``, each with the exact mass of the density on it.

        Parameters
        ----------
        size : int or tuple of int
            Shape of the result.
        stream : Stream, optional
            Source of the random words; None for a fresh one, keyed by the operating system.

        Returns
        -------
        ndarray of int64
            Cell ``k`` is ``support[0] + [k, k + 1) * step``; see :meth:`values`.
        """
        out: Ints = allocate_result(size, np.int64, "BoundedDensity.integers")
        flat = out.reshape(-1)
        sampler = Sampler(self.table, flat.size, stream_or_fresh(stream))
        # The sampler counts buckets of 1/64; a bucket of this table is 2**14 cells wide, in whole digits.
        scale = 2.0 ** (LOG2_STEPS - LOG2_BUCKETS + LATTICE_BUCKETS)
        for block in sampler.blocks(flat.size):
            part = flat[block]
            sampler.floor(sampler.draw(part.size), scale, half=False, out=part)
        return out

    def values(self, cells: Ints) -> Floats:
        """Return the middle of each lattice cell."""
        return np.asarray(self.support[0] + (cells + 0.5) * self.step)


def _check_number(name: str, value: Any) -> float:
    """Return a parameter as a float; raise ParameterError unless it is a number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number) or isinstance(value, bool | str):
        raise ParameterError(f"{name} of BoundedDensity must be a number, was {value!r}. Give one.")
    return number


def _find_far_end(near: float, a: float) -> float:
    """Return the point where ``u`` has fallen to exp(-42) of its height, for a support from ``near`` >= 0 on.

    Notes
    -----
    Beyond its turning point ``sqrt(energy) / a``, u falls like ``exp(-integral of sqrt(a^2 n^2 - energy))``.
    """
    # The energy is at most that of a triangular well below the tangent, or of the half-line oscillator.
    energy = (a * near) ** 2 + 3 * a + 2.34 * (2 * a * a * near) ** (2 / 3)
    turn = math.sqrt(energy) / a

    def decay(n: float) -> float:
        root = math.sqrt(n * n - turn * turn)
        return 0.5 * a * (n * root - turn * turn * math.acosh(n / turn))

    width = turn
    while decay(turn + width) < _CUT:
        width *= 2
    low, high = 0.0, width
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if decay(turn + middle) < _CUT else (low, middle)
    return turn + high
