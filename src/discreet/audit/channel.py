"""Likelihoods of published cells given true values, and the columns of a plan as attacks use them.

To let the attacks read another law of :mod:`discreet.noise_law`, write a subclass of :class:`Channel` and add
a case to :func:`build_channel`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.noise_law import (
    Additive,
    BoundedLaw,
    Clear,
    GaussianLaw,
    InRangeLaw,
    JointBoundedLaw,
    JointResponseLaw,
    LaplaceLaw,
    ResponseLaw,
    SampledLaw,
    SphericalLaw,
)

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats
    from discreet.noise import BoxDensity
    from discreet.noise_law import Law
    from discreet.schema import Column

# Multiples of the scale that noise exceeds with probability 2e-17 and 9e-17: 1e-10 in a million draws.
_GAUSSIAN_REACH, _LAPLACE_REACH = 8.5, 37.0
_SPHERICAL_TAIL, _QUANTILES = 1e-16, 400


class Channel(ABC):
    """The likelihood of a published cell given a true value.

    Attributes
    ----------
    reach : float
        Distance from its value that a published number exceeds with probability at most 1e-16.
    fineness : float
        Distance below which the likelihoods of two values hardly differ, in the column's unit.
    """

    reach: float = math.inf
    fineness: float = math.inf

    @abstractmethod
    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Return the log likelihood, broadcast over published cells and values, none of them missing."""


@dataclass(frozen=True, eq=False)
class ClearChannel(Channel):
    """A cell that is published unchanged."""

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Return 0 for the value itself, minus infinity for every other."""
        return np.where(published == values, 0.0, -np.inf)


@dataclass(frozen=True, eq=False)
class ResponseChannel(Channel):
    """Randomized response on codes.

    Attributes
    ----------
    levels : int
        Number L of levels of the list.
    keep : float
        Probability that a code is published unchanged; each other code has ``(1 - keep) / (L - 1)``.
    """

    levels: int
    keep: float

    @property
    def other(self) -> float:
        """Probability of each level other than the true one."""
        return (1 - self.keep) / (self.levels - 1)

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Return ``log keep`` for equal codes and ``log other`` for unequal ones."""
        with np.errstate(divide="ignore"):
            kept, changed = np.log([self.keep, self.other])
        return np.asarray(np.where(published == values, kept, changed))


@dataclass(frozen=True, eq=False)
class SampledChannel(ResponseChannel):
    """Randomized response that only a share of the rows shows; the others have a code of their own.

    Attributes
    ----------
    share : float
        Share of the rows in which the cell is shown.
    hidden : int
        Code that stands for "not published".
    """

    share: float
    hidden: int

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Return that of the response for shown cells, and a constant for those that are not shown."""
        shown = math.log(self.share) + super().log_likelihood(published, values)
        not_shown = math.log1p(-self.share) if self.share < 1 else -math.inf
        likelihood = np.where(published == self.hidden, not_shown, shown)
        # "Not published" is no true value.
        return np.where(values == self.hidden, -np.inf, likelihood)


class AdditiveChannel(Channel):
    """Additive noise, after which the sum may be clamped to the range.

    Parameters
    ----------
    law : Additive
        Published law of the noise.
    bounds : tuple of (float, float)
        Declared range of the column.
    """

    def __init__(self, law: Additive, bounds: tuple[float, float]) -> None:
        self.law = law
        self.bounds = bounds
        self.fineness = math.sqrt(law.variance) / 6

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Return the log density of the difference; at a clamped end, the log mass beyond it."""
        noise = published - values
        inside = self.log_density(noise)
        if not self.law.clamped:
            return inside
        lower, upper = self.bounds
        with np.errstate(divide="ignore"):
            below = np.log(self.cumulative(noise)) if np.any(published <= lower) else inside
            # A clamped end collects all mass beyond it, so its likelihood is a probability and not a density.
            above = np.log(1 - self.cumulative(noise)) if np.any(published >= upper) else inside
        return np.where(published <= lower, below, np.where(published >= upper, above, inside))

    @abstractmethod
    def log_density(self, noise: Floats) -> Floats:
        """Return the logarithm of the density of the noise."""

    @abstractmethod
    def cumulative(self, noise: Floats) -> Floats:
        """Return the distribution function of the noise."""


class GaussianChannel(AdditiveChannel):
    """Gaussian noise."""

    def __init__(self, law: GaussianLaw, bounds: tuple[float, float]) -> None:
        super().__init__(law, bounds)
        self.sd = law.sd
        self.reach = _GAUSSIAN_REACH * self.sd + abs(law.mean)

    def log_density(self, noise: Floats) -> Floats:
        """Return ``-(x - m)**2 / (2 sd**2) - log(sd sqrt(2 pi))``."""
        logs = np.asarray(noise - self.law.mean, np.float64)
        logs *= 1 / (math.sqrt(2) * self.sd)
        np.square(logs, out=logs)
        np.negative(logs, out=logs)
        logs -= math.log(self.sd * math.sqrt(2 * math.pi))
        return logs

    def cumulative(self, noise: Floats) -> Floats:
        """Return ``Phi((x - m) / sd)``."""
        return np.asarray(special.ndtr((noise - self.law.mean) / self.sd))


class LaplaceChannel(AdditiveChannel):
    """Laplace noise."""

    def __init__(self, law: LaplaceLaw, bounds: tuple[float, float]) -> None:
        super().__init__(law, bounds)
        self.scale = law.scale
        self.reach = _LAPLACE_REACH * self.scale + abs(law.mean)

    def log_density(self, noise: Floats) -> Floats:
        """Return ``-|x - m| / b - log(2 b)`` with b the scale."""
        return np.asarray(-np.abs(noise - self.law.mean) / self.scale - math.log(2 * self.scale))

    def cumulative(self, noise: Floats) -> Floats:
        """Return ``exp(-|t|) / 2`` below the mean and 1 minus it above, with ``t = (x - m) / b``."""
        t = (noise - self.law.mean) / self.scale
        tail = 0.5 * np.exp(-np.abs(t))
        return np.where(t < 0, tail, 1 - tail)


class SphericalChannel(AdditiveChannel):
    """One coordinate of spherical Laplace noise.

    Notes
    -----
    With ``d`` the dimension, ``b`` the scale and ``nu = d / 2``, the coordinate is a Gaussian with sd
    ``b sqrt(2 g)``, where ``g`` has the gamma law of shape ``nu + 1/2``.
    """

    def __init__(self, law: SphericalLaw, bounds: tuple[float, float]) -> None:
        super().__init__(law, bounds)
        self.scale, self.order = law.scale, law.dimension / 2
        # No coordinate exceeds the length of the vector, which has a gamma law with shape d.
        self.reach = float(special.gammainccinv(law.dimension, _SPHERICAL_TAIL)) * law.scale

    def log_density(self, noise: Floats) -> Floats:
        """Return the log density, by the modified Bessel function of the second kind.

        Notes
        -----
        ``f(x) = (t/2)**nu K_nu(t) / (b sqrt(pi) Gamma(nu + 1/2))`` with ``t = |x - m| / b``. ``kve`` is
        ``K_nu(t) exp(t)``, which does not underflow; t is kept above 0, where ``K_nu`` is infinite.
        """
        t, nu = np.maximum(np.abs(noise - self.law.mean) / self.scale, 1e-12), self.order
        constant = math.log(self.scale * math.sqrt(math.pi)) + special.gammaln(nu + 0.5)
        with np.errstate(divide="ignore"):
            return np.asarray(nu * np.log(t / 2) + np.log(special.kve(nu, t)) - t - constant)

    def cumulative(self, noise: Floats) -> Floats:
        """Return the distribution function: the mean of normal ones over 400 quantiles of the sd."""
        levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        # A midpoint rule over the mixing law of the standard deviation.
        radius = np.sqrt(2 * special.gammaincinv(self.order + 0.5, levels)) * self.scale
        return np.asarray(special.ndtr((noise - self.law.mean)[..., np.newaxis] / radius).mean(axis=-1))


class BoundedChannel(AdditiveChannel):
    """The least informative noise on a bounded support."""

    def __init__(self, law: BoundedLaw, bounds: tuple[float, float]) -> None:
        from discreet.noise import BoundedDensity

        super().__init__(law, bounds)
        self.density = BoundedDensity(lower=law.lower, upper=law.upper, regularization=law.regularization)
        # A little more than the support, because values are first rounded to the lattice of the noise.
        self.reach = max(abs(law.lower), abs(law.upper)) * (1 + 1e-6)

    def log_density(self, noise: Floats) -> Floats:
        """Return the logarithm of the density on the support."""
        return self.density.logpdf(noise)

    def cumulative(self, noise: Floats) -> Floats:
        """Return the distribution function of the noise."""
        return self.density.cdf(noise)


class JointBoundedChannel(AdditiveChannel):
    """Noise of bounded support that columns share: the marginal of one of them, at 4,097 points."""

    def __init__(self, law: JointBoundedLaw, bounds: tuple[float, float]) -> None:
        """Solve for the joint density and tabulate its marginal."""
        super().__init__(law, bounds)
        box = _solve_box(law.supports, law.weights, law.regularization)
        place = next(j for j, pair in enumerate(law.supports) if self._is_own(law, j, pair))
        self.grid = np.linspace(law.lower, law.upper, 4097)
        self.heights = box.marginal(place, self.grid)
        steps = 0.5 * (self.heights[1:] + self.heights[:-1]) * np.diff(self.grid)
        self.below = np.concatenate([[0.0], np.cumsum(steps)])
        self.reach = max(abs(law.lower), abs(law.upper)) * (1 + 1e-6)

    @staticmethod
    def _is_own(law: JointBoundedLaw, j: int, support: tuple[float, float]) -> bool:
        """Return whether a place of the box is that of the law's own column."""
        return support == (law.lower, law.upper) and law.covariances[j] == law.variance

    def log_density(self, noise: Floats) -> Floats:
        """Return the logarithm of the density on the support."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.interp(noise, self.grid, self.heights, left=0.0, right=0.0)))

    def cumulative(self, noise: Floats) -> Floats:
        """Return the distribution function of the noise."""
        return np.asarray(np.interp(noise, self.grid, self.below / self.below[-1]))


# The columns of one box, and every attack on them, need the same solution, which takes seconds.
@lru_cache(maxsize=8)
def _solve_box(
    supports: tuple[tuple[float, float], ...], weights: tuple[tuple[float, ...], ...], regularization: float
) -> BoxDensity:
    """Return the joint density of columns that share noise of bounded support."""
    from discreet.noise import BoxDensity

    lower, upper = np.array(supports, np.float64).T
    return BoxDensity(
        lower=lower, upper=upper, weights=np.array(weights, np.float64), regularization=regularization
    )


class InRangeChannel(Channel):
    """The in-range mechanism: a table of inputs and output cells."""

    def __init__(self, law: InRangeLaw) -> None:
        """Compute the table of the law."""
        from discreet.noise import InRange

        self.table = InRange(
            lower=law.lower,
            upper=law.upper,
            regularization=law.regularization,
            inputs=law.inputs,
            cells=law.cells,
        )
        # A quarter of the distance between inputs; values that are rounded to one input have one law.
        self.fineness = (law.upper - law.lower) / (4 * (law.inputs - 1))

    @cached_property
    def _log_masses(self) -> Floats:
        return np.asarray(np.log(self.table.masses * 2.0**-63))

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Return the log mass of the published number's cell in the row of each value."""
        law = self.table
        # The upper end belongs to the last cell, hence the clip below.
        cell = np.floor((published - law.lower) * (law.cells / (law.upper - law.lower))).astype(np.int64)
        return np.asarray(self._log_masses[law.quantize(values), np.clip(cell, 0, law.cells - 1)])


def build_channel(column: Column, law: Law) -> Channel | None:
    """Return the likelihood of a column's law; None where a cell depends on more than its own value."""
    match law:
        case Clear():
            return ClearChannel()
        case ResponseLaw() | JointResponseLaw():
            return _response(column, law)
        case SampledLaw(law=ResponseLaw() | JointResponseLaw() as shown):
            response = _response(column, shown, hidden=1)
            hidden = column.levels.index(law.unpublished)
            return SampledChannel(response.levels, response.keep, law.share, hidden)
        case GaussianLaw():
            return GaussianChannel(law, column.range)
        case LaplaceLaw():
            return LaplaceChannel(law, column.range)
        case SphericalLaw():
            return SphericalChannel(law, column.range)
        case JointBoundedLaw():
            return JointBoundedChannel(law, column.range)
        case BoundedLaw():
            return BoundedChannel(law, column.range)
        case InRangeLaw():
            return InRangeChannel(law)
        case _:
            return None


def _response(column: Column, law: ResponseLaw | JointResponseLaw, hidden: int = 0) -> ResponseChannel:
    """Return randomized response of one column; of a joint response, its marginal for the column.

    Parameters
    ----------
    column : Column
        Published column with its levels.
    law : ResponseLaw or JointResponseLaw
        Law of the response, for a joint one on all combinations of levels.
    hidden : int
        Number of levels that stand for "not published", 0 or 1.
    """
    levels = len(column.levels) - hidden
    # Joint responses that change only the other columns leave this one unchanged.
    alike = law.levels // levels - 1
    keep = law.keep + alike * (1 - law.keep) / (law.levels - 1) if alike else law.keep
    return ResponseChannel(levels, keep)


def cell_log_likelihood(
    channel: Channel, column: Column, missing_keep: float | None, published: AnyArray, values: AnyArray
) -> Floats:
    """Return the log likelihood of cells that may be missing, with NaN for missing on either side.

    Parameters
    ----------
    channel : Channel
        Likelihood of the cells that are present.
    column : Column
        Declared column, with its fill value.
    missing_keep : float or None
        Probability that the missing flag is published unchanged; None if there is no flag.
    published, values : array
        Published cells and true values, broadcast against each other.

    Notes
    -----
    A missing number is noised as the public middle of its range, and its flag is randomized independently, so
    the log likelihood is that of the flag plus, where a number is published, that of the number.
    """
    if not column.is_number or isinstance(channel, ClearChannel):
        both = np.isnan(published) & np.isnan(values) if column.is_number else False
        return np.where(both, 0.0, channel.log_likelihood(published, values))
    if missing_keep is None:
        return channel.log_likelihood(published, values)
    hidden, absent = np.isnan(published), np.isnan(values)
    number = channel.log_likelihood(
        np.where(hidden, column.fill, published), np.where(absent, column.fill, values)
    )
    with np.errstate(divide="ignore"):
        same, changed = np.log([missing_keep, 1 - missing_keep])
    return np.asarray(np.where(hidden == absent, same, changed) + np.where(hidden, 0.0, number))
