"""How likely a published cell is for each value that it may stand for: what the published law tells anybody.

To let the attacks read another law of :mod:`discreet.noise_law`, write a class with the members of
:class:`Channel` and a row in :func:`channel_of`.

Whose cells can be attacked: the protected columns of a plan, as the attacks see them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.noise import BoundedDensity, InRange
from discreet.noise_law import (
    Additive,
    BoundedLaw,
    Clear,
    GaussianLaw,
    InRangeLaw,
    InvariantLaw,
    JointResponseLaw,
    LaplaceLaw,
    ResponseLaw,
    SampledLaw,
    SphericalLaw,
)
from discreet.privacy.priors import ListPrior
from discreet.release.gaussian import GaussianNumbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit._guess import Statistic
    from discreet.noise_law import Law
    from discreet.release import ColumnSummary, ReleasePlan
    from discreet.schema import Column

# Noise goes farther than this with probability 2e-17 and 9e-17, which a million draws leave below 1e-10.
_GAUSSIAN_REACH, _LAPLACE_REACH = 8.5, 37.0
_SPHERICAL_TAIL, _QUANTILES = 1e-16, 400


class Channel(ABC):
    """The law of a published cell given a value, as an attacker uses it.

    Attributes
    ----------
    reach : float
        No published number is farther than this from its value, except with probability 1e-16.
    fineness : float
        A distance below which two values are told apart by hardly anything.
    """

    reach: float = math.inf
    fineness: float = math.inf

    @abstractmethod
    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Return the logarithm of the law, broadcast over published cells and values, none missing."""


@dataclass(frozen=True, eq=False)
class ClearChannel(Channel):
    """A cell that is published as it is."""

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Zero for the value itself, minus infinity for every other."""
        return np.where(published == values, 0.0, -np.inf)


@dataclass(frozen=True, eq=False)
class ResponseChannel(Channel):
    """Randomized response on codes."""

    levels: int
    keep: float

    @property
    def other(self) -> float:
        """How often a level is published in place of each other one."""
        return (1 - self.keep) / (self.levels - 1)

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Compare codes."""
        with np.errstate(divide="ignore"):
            kept, changed = np.log([self.keep, self.other])
        return np.asarray(np.where(published == values, kept, changed))


@dataclass(frozen=True, eq=False)
class SampledChannel(ResponseChannel):
    """Randomized response that some rows do not show: their code stands between or after those of levels.

    Attributes
    ----------
    share : float
        In which share of the rows a cell is shown.
    hidden : int
        The code of "not published".
    """

    share: float
    hidden: int

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Compare codes; a cell that is not shown says the same about every value."""
        told = math.log(self.share) + super().log_likelihood(published, values)
        silent = math.log1p(-self.share) if self.share < 1 else -math.inf
        seen = np.where(published == self.hidden, silent, told)
        return np.where(values == self.hidden, -np.inf, seen)


class AdditiveChannel(Channel):
    """Noise that is added, and the sum moved into the range where the law says so."""

    def __init__(self, law: Additive, bounds: tuple[float, float]) -> None:
        self.law = law
        self.bounds = bounds
        self.fineness = math.sqrt(law.variance) / 6

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Read the noise off the difference; at a clamped end, everything beyond it."""
        noise = published - values
        inside = self.log_density(noise)
        if not self.law.clamped:
            return inside
        lower, upper = self.bounds
        with np.errstate(divide="ignore"):
            below = np.log(self.cumulative(noise)) if np.any(published <= lower) else inside
            above = np.log(1 - self.cumulative(noise)) if np.any(published >= upper) else inside
        return np.where(published <= lower, below, np.where(published >= upper, above, inside))

    @abstractmethod
    def log_density(self, noise: Floats) -> Floats:
        """Logarithm of the density."""

    @abstractmethod
    def cumulative(self, noise: Floats) -> Floats:
        """Distribution function."""


class GaussianChannel(AdditiveChannel):
    """Gaussian noise."""

    def __init__(self, law: GaussianLaw, bounds: tuple[float, float]) -> None:
        super().__init__(law, bounds)
        self.sd = law.sd
        self.reach = _GAUSSIAN_REACH * self.sd + abs(law.mean)

    def log_density(self, noise: Floats) -> Floats:
        """Logarithm of the density."""
        half = np.square((noise - self.law.mean) * (1 / (math.sqrt(2) * self.sd)))
        return np.asarray(-half - math.log(self.sd * math.sqrt(2 * math.pi)))

    def cumulative(self, noise: Floats) -> Floats:
        """Distribution function."""
        return np.asarray(special.ndtr((noise - self.law.mean) / self.sd))


class LaplaceChannel(AdditiveChannel):
    """Laplace noise."""

    def __init__(self, law: LaplaceLaw, bounds: tuple[float, float]) -> None:
        super().__init__(law, bounds)
        self.scale = law.scale
        self.reach = _LAPLACE_REACH * self.scale + abs(law.mean)

    def log_density(self, noise: Floats) -> Floats:
        """Logarithm of the density."""
        return np.asarray(-np.abs(noise - self.law.mean) / self.scale - math.log(2 * self.scale))

    def cumulative(self, noise: Floats) -> Floats:
        """Distribution function."""
        t = (noise - self.law.mean) / self.scale
        tail = 0.5 * np.exp(-np.abs(t))
        return np.where(t < 0, tail, 1 - tail)


class SphericalChannel(AdditiveChannel):
    """One column of spherical noise: a Gaussian whose scale is the norm of normals, mixed over that norm."""

    def __init__(self, law: SphericalLaw, bounds: tuple[float, float]) -> None:
        super().__init__(law, bounds)
        self.scale, self.order = law.scale, law.dimension / 2
        # The whole vector is hardly ever longer.
        self.reach = float(special.gammainccinv(law.dimension, _SPHERICAL_TAIL)) * law.scale

    def log_density(self, noise: Floats) -> Floats:
        """Logarithm of the density, by the modified Bessel function of the second kind."""
        t, nu = np.maximum(np.abs(noise - self.law.mean) / self.scale, 1e-12), self.order
        constant = math.log(self.scale * math.sqrt(math.pi)) + special.gammaln(nu + 0.5)
        with np.errstate(divide="ignore"):
            return np.asarray(nu * np.log(t / 2) + np.log(special.kve(nu, t)) - t - constant)

    def cumulative(self, noise: Floats) -> Floats:
        """Distribution function, in the mean over quantiles of the mixed scale."""
        levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        radius = np.sqrt(2 * special.gammaincinv(self.order + 0.5, levels)) * self.scale
        return np.asarray(special.ndtr((noise - self.law.mean)[..., np.newaxis] / radius).mean(axis=-1))


class BoundedChannel(AdditiveChannel):
    """The least informative noise on a bounded support."""

    def __init__(self, law: BoundedLaw, bounds: tuple[float, float]) -> None:
        super().__init__(law, bounds)
        self.density = BoundedDensity(lower=law.lower, upper=law.upper, regularization=law.regularization)
        # Values are rounded to the lattice of the noise first.
        self.reach = max(abs(law.lower), abs(law.upper)) * (1 + 1e-6)

    def log_density(self, noise: Floats) -> Floats:
        """Logarithm of the density."""
        return self.density.logpdf(noise)

    def cumulative(self, noise: Floats) -> Floats:
        """Distribution function."""
        return self.density.cdf(noise)


class InRangeChannel(Channel):
    """The in-range mechanism: a table of inputs and output cells."""

    def __init__(self, law: InRangeLaw) -> None:
        self.table = InRange(
            lower=law.lower,
            upper=law.upper,
            regularization=law.regularization,
            inputs=law.inputs,
            cells=law.cells,
        )
        self.fineness = (law.upper - law.lower) / (4 * (law.inputs - 1))

    @cached_property
    def _log_masses(self) -> Floats:
        return np.asarray(np.log(self.table.masses * 2.0**-63))

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Look the cell up in the row of each value."""
        law = self.table
        cell = np.floor((published - law.lower) * (law.cells / (law.upper - law.lower))).astype(np.int64)
        return np.asarray(self._log_masses[law.quantize(values), np.clip(cell, 0, law.cells - 1)])


def channel_of(column: Column, law: Law) -> Channel | None:
    """Return the law as an attacker uses it; None where cells do not follow from their own value alone."""
    match law:
        case Clear():
            return ClearChannel()
        case ResponseLaw() | JointResponseLaw():
            return _response(column, law)
        case SampledLaw(law=ResponseLaw() | JointResponseLaw() as shown):
            told = _response(column, shown, hidden=1)
            return SampledChannel(told.levels, told.keep, law.share, column.levels.index(law.unpublished))
        case GaussianLaw():
            return GaussianChannel(law, column.range)
        case LaplaceLaw():
            return LaplaceChannel(law, column.range)
        case SphericalLaw():
            return SphericalChannel(law, column.range)
        case BoundedLaw():
            return BoundedChannel(law, column.range)
        case InRangeLaw():
            return InRangeChannel(law)
        case _:
            return None


def _response(column: Column, law: ResponseLaw | JointResponseLaw, hidden: int = 0) -> ResponseChannel:
    """Return what an answer says about one column; of one for several columns, its own part."""
    levels = len(column.levels) - hidden
    # Answers that change the other columns alone leave this one as it is.
    alike = law.levels // levels - 1
    keep = law.keep + alike * (1 - law.keep) / (law.levels - 1) if alike else law.keep
    return ResponseChannel(levels, keep)


def cell_log_likelihood(
    channel: Channel, column: Column, missing_keep: float | None, published: AnyArray, values: AnyArray
) -> Floats:
    """Return the same for cells that may be missing: NaN stands for missing on either side.

    A missing number is noised as the public middle of its range, and its flag is randomized by itself.
    """
    if not column.is_number or isinstance(channel, ClearChannel):
        both = np.isnan(published) & np.isnan(values) if column.is_number else False
        return np.where(both, 0.0, channel.log_likelihood(published, values))
    if missing_keep is None:
        return channel.log_likelihood(published, values)
    hidden, absent = np.isnan(published), np.isnan(values)
    seen = channel.log_likelihood(
        np.where(hidden, column.fill, published), np.where(absent, column.fill, values)
    )
    with np.errstate(divide="ignore"):
        same, changed = np.log([missing_keep, 1 - missing_keep])
    return np.asarray(np.where(hidden == absent, same, changed) + np.where(hidden, 0.0, seen))


MOST_ROWS = 20_000
"""Rows that an attack looks at; stated wherever it says something."""


@dataclass(frozen=True, eq=False)
class Target:
    """A published column: what is declared, what was done to it, what is proven about it."""

    column: Column
    summary: ColumnSummary

    @property
    def name(self) -> str:
        """Of the column."""
        return self.column.name

    @property
    def is_list(self) -> bool:
        """Whether its cells are levels of a declared list."""
        return self.column.is_category

    @property
    def is_clear(self) -> bool:
        """Whether it is published as it is."""
        return isinstance(self.summary.law, Clear)

    @property
    def floor(self) -> float | None:
        """What no guess can beat, under the named prior."""
        return None if self.summary.floor is None else self.summary.floor.error

    @property
    def statistic(self) -> Statistic:
        """What an error of a guess is."""
        return "probability of a wrong guess" if self.is_list else "root-mean-square error"

    @property
    def missing_keep(self) -> float | None:
        """How often a flag of a missing cell is published as it is."""
        return self.summary.law.missing_keep

    @cached_property
    def channel(self) -> Channel | None:
        """The law as an attacker uses it."""
        return channel_of(self.column, self.summary.law)

    @property
    def response(self) -> ResponseChannel:
        """The channel of a list."""
        assert isinstance(self.channel, ResponseChannel)
        return self.channel

    @property
    def codes(self) -> Ints:
        """The codes that a true cell of a list may have: "not published" is none of them."""
        codes = np.arange(len(self.column.levels))
        return codes[codes != self.channel.hidden] if isinstance(self.channel, SampledChannel) else codes

    @property
    def listed(self) -> Ints:
        """The codes of a list that the floor's prior knows: those of declared values, without any other."""
        prior = self.summary.prior
        return np.array(prior.codes) if isinstance(prior, ListPrior) else self.codes

    @property
    def blind(self) -> Floats:
        """For each code of a list, what it is worth to somebody who knows nothing."""
        weights = np.zeros(len(self.column.levels))
        weights[self.listed] = 1 / self.listed.size
        return weights

    @property
    def noise_variance(self) -> float | None:
        """Variance of additive noise that was not clamped afterwards; None for every other law."""
        law = self.summary.law
        if isinstance(law, InvariantLaw):
            return law.variance
        return law.variance if isinstance(law, Additive) and not law.clamped else None


def targets_of(plan: ReleasePlan) -> list[Target]:
    """Return every published column of a plan."""
    return [Target(plan.schema.column(summary.column), summary) for summary in plan.columns]


def noise_covariance(plan: ReleasePlan, names: Sequence[str]) -> Floats | None:
    """Return the covariance of the noise of some columns, which is public; None where it is diagonal."""
    numbers = getattr(plan, "numbers", None)
    if not isinstance(numbers, GaussianNumbers) or numbers.covariance.ndim == 1:
        return None
    places = [[c.name for c in numbers.columns].index(name) for name in names]
    return numbers.covariance[np.ix_(places, places)]


def length(rows: Mapping[str, AnyArray]) -> int:
    """Return how many rows some columns have."""
    return len(next(iter(rows.values()))) if rows else 0


def by_person(columns: Mapping[str, AnyArray], rows: int = 1) -> dict[str, AnyArray]:
    """Put the cells of each person's rows, which follow one another, side by side."""
    return {name: values.reshape(-1, rows) for name, values in columns.items()}
