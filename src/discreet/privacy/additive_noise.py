"""Laws of additive noise with what an error floor needs of them: Fisher information and exact Bayes errors.

To add a law of noise, write a class with the members of :class:`Noise`; the priors need nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from discreet.errors import PromiseError
from discreet.privacy import _bayes
from discreet.privacy.rounding import (
    UNIT,
    finite,
    round_down,
    round_up,
    sqrt_up,
)

if TYPE_CHECKING:
    from typing import Self


class Noise(Hashable, Protocol):
    """Additive noise, with the members that a floor needs."""

    @property
    def information(self) -> float:
        """Fisher information about the location, rounded up."""

    def compose(self, releases: int) -> Self:
        """Return one draw's noise that tells as much as ``releases`` independent draws around one value."""

    def interval_mean_square(self, width: float) -> float:
        """Return a lower bound on the Bayes mean square error for a uniform prior on an interval."""

    def integer_mean_square(self, points: int) -> float:
        """Return a lower bound on the Bayes mean square error for a uniform prior on integers."""

    def scaled(self, factor: float) -> Self:
        """Return the noise in another unit: ``factor`` times as large."""


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Additive Gaussian noise.

    Parameters
    ----------
    sd : float
        Standard deviation, in the column's unit; above 0.

    Privacy
    -------
    A law, not a promise.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``, Lemmas 1 to 3.
    """

    sd: float

    def __post_init__(self) -> None:
        way_out = "Give the standard deviation in the column's unit."
        finite("GaussianNoise", "sd", self.sd, above=0.0, way_out=way_out)

    @property
    def information(self) -> float:
        """``1 / sd^2``, rounded up."""
        return round_up(1 / Fraction(self.sd) ** 2)

    def compose(self, releases: int) -> GaussianNoise:
        """Return the noise of the average, a sufficient statistic of the releases."""
        if releases == 1:
            return self
        # Rounded down: less noise has a lower floor.
        return GaussianNoise(round_down(Fraction(self.sd) / Fraction(sqrt_up(Fraction(releases)))))

    def interval_mean_square(self, width: float) -> float:
        """Return a lower bound on the Bayes mean square error for a uniform prior on an interval."""
        return _scale_mean_square(_bayes.gaussian_interval(width / self.sd), self.sd)

    def integer_mean_square(self, points: int) -> float:
        """Return a lower bound on the Bayes mean square error for a uniform prior on integers."""
        return _bayes.gaussian_integers(points, self.sd)

    def scaled(self, factor: float) -> GaussianNoise:
        """Return the noise in another unit: ``factor`` times as large."""
        return GaussianNoise(self.sd * factor)


@dataclass(frozen=True, slots=True)
class LaplaceNoise:
    """Additive Laplace noise.

    Parameters
    ----------
    scale : float
        Scale b of the density ``exp(-|n|/b) / (2b)``, in the column's unit; above 0.

    Privacy
    -------
    A law, not a promise.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``, Lemmas 1, 4 and 5.
    """

    scale: float

    def __post_init__(self) -> None:
        way_out = "Give the scale in the column's unit."
        finite("LaplaceNoise", "scale", self.scale, above=0.0, way_out=way_out)

    @property
    def information(self) -> float:
        """``1 / scale^2``, rounded up."""
        return round_up(1 / Fraction(self.scale) ** 2)

    def compose(self, releases: int) -> LaplaceNoise:
        """Return itself for one release; several Laplace draws do not reduce to a single one."""
        if releases == 1:
            return self
        raise PromiseError(
            f"The parameter releases of LaplaceNoise.compose must be 1, and was {releases}. Several "
            "Laplace releases have no exact floor here; use Gaussian noise, or van_trees_floor for a "
            "column that is not made of integers."
        )

    def interval_mean_square(self, width: float) -> float:
        """Return a lower bound on the Bayes mean square error for a uniform prior on an interval."""
        return _scale_mean_square(_bayes.laplace_interval(width / self.scale), self.scale)

    def integer_mean_square(self, points: int) -> float:
        """Return a lower bound on the Bayes mean square error for a uniform prior on integers."""
        return _bayes.laplace_integers(points, self.scale)

    def scaled(self, factor: float) -> LaplaceNoise:
        """Return the noise in another unit: ``factor`` times as large."""
        return LaplaceNoise(self.scale * factor)


def _scale_mean_square(mean_square: float, unit: float) -> float:
    """Return ``mean_square * unit**2``, rounded down."""
    # The three products round by less than the 8 units that are subtracted.
    return mean_square * unit * unit * (1.0 - 8.0 * UNIT)
