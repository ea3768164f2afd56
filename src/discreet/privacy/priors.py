"""Public priors over which error floors are averaged, built from declared bounds and lists alone.

An interval, the integers of an interval, or the values of a list, all equally likely. A prior gives its name
for statements, the error of a guess without any file, and the Bayes error under a law of noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from discreet.errors import ParameterError
from discreet.privacy.rounding import UNIT, finite, round_down, round_up

if TYPE_CHECKING:
    from discreet.privacy.additive_noise import Noise

__all__ = ["IntegerPrior", "ListPrior", "UniformPrior"]

_FEW = 2**20
"""Number of 64-bit steps in a range up to which a floor treats the stored values as integers."""


@dataclass(frozen=True, slots=True)
class UniformPrior:
    """Uniform prior on the interval from ``lower`` to ``upper``.

    Parameters
    ----------
    lower, upper : float
        Declared bounds in the column's unit; ``lower < upper``.

    Privacy
    -------
    Public: it is made of declared bounds alone.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        way_out = "Declare the range of the column, lower below upper."
        finite("UniformPrior", "lower", self.lower, way_out=way_out)
        finite("UniformPrior", "upper", self.upper, above=float(self.lower), way_out=way_out)

    @property
    def name(self) -> str:
        """Name of the prior in statements."""
        return f"uniform from {self.lower:g} to {self.upper:g}"

    @property
    def width(self) -> float:
        """Length of the range, rounded up."""
        return round_up(Fraction(self.upper) - Fraction(self.lower))

    @property
    def resolution(self) -> float:
        """Largest distance of neighboring 64-bit numbers: a stored value is off by half of it."""
        return math.ulp(max(abs(self.lower), abs(self.upper)))

    @property
    def steps(self) -> int | None:
        """Number of steps between 64-bit numbers in the range; None unless they are few and equally long."""
        step = Fraction(self.resolution)
        width = Fraction(self.upper) - Fraction(self.lower)
        even = math.ulp(min(abs(self.lower), abs(self.upper))) == self.resolution
        # The end that is nearer to 0 may be a power of two, below which steps are shorter.
        return int(width / step) if even and self.lower * self.upper > 0 and width <= _FEW * step else None

    @property
    def slack(self) -> float:
        """Lattice step that accounts for storing values as 64-bit numbers; 0 where ``steps`` does."""
        # A floor is lowered by half of a lattice step, here by one resolution.
        return 0.0 if self.steps is not None else 2.0 * self.resolution

    @property
    def most_mean_square(self) -> float:
        """Limit of the mean square as the noise grows."""
        if self.steps is None:
            return self.largest**2
        # The variance of a uniform law on that many equally spaced points.
        return (self.steps**2 - 1) / 12.0 * self.resolution**2 * (1.0 - 8.0 * UNIT)

    @property
    def largest(self) -> float:
        """Error of a guess without any file: no noise can prove more."""
        return self.width / math.sqrt(12.0) * (1.0 - 8.0 * UNIT)

    def mean_square(self, noise: Noise) -> float:
        """Lower bound on the Bayes mean square error under ``noise``."""
        steps = self.steps
        if steps is not None:
            # Values rounded down to 64-bit numbers (or all up) are that many integers plus independent rests.
            # One point leaves nothing to guess, whatever the noise.
            if steps < 2:
                return 0.0
            points = noise.scaled(1.0 / self.resolution).integer_mean_square(steps)
            return points * self.resolution**2 * (1.0 - 8.0 * UNIT)
        # Rounded down: the floor grows with the range.
        return noise.interval_mean_square(round_down(Fraction(self.upper) - Fraction(self.lower)))


@dataclass(frozen=True, slots=True)
class IntegerPrior:
    """Uniform prior on the integers from ``lower`` to ``upper``.

    Parameters
    ----------
    lower, upper : int
        Declared bounds, both possible values; ``lower < upper``.

    Privacy
    -------
    Public: it is made of declared bounds alone. Noise well below half a step is undone by rounding,
    and the floor says so by being about 0.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``.
    """

    lower: int
    upper: int

    def __post_init__(self) -> None:
        way_out = "Declare whole bounds, lower below upper, or use UniformPrior."
        lower = finite("IntegerPrior", "lower", self.lower, way_out=way_out)
        upper = finite("IntegerPrior", "upper", self.upper, above=lower, way_out=way_out)
        for name, value in (("lower", lower), ("upper", upper)):
            if not value.is_integer():
                raise ParameterError(
                    f"The parameter {name} of IntegerPrior must be a whole number, and was {value!r}. "
                    f"{way_out}"
                )

    @property
    def name(self) -> str:
        """Name of the prior in statements."""
        return f"uniform on the integers from {self.lower:d} to {self.upper:d}"

    @property
    def points(self) -> int:
        """Number of integers."""
        return int(self.upper) - int(self.lower) + 1

    @property
    def width(self) -> float:
        """Largest distance of two values, rounded up."""
        return round_up(Fraction(self.points - 1))

    @property
    def resolution(self) -> float:
        """Zero: declared integers are stored exactly."""
        return 0.0

    @property
    def slack(self) -> float:
        """Zero, for the same reason."""
        return 0.0

    @property
    def most_mean_square(self) -> float:
        """Limit of the mean square as the noise grows."""
        return self.largest**2

    @property
    def largest(self) -> float:
        """Error of a guess without any file: no noise can prove more."""
        return math.sqrt((self.points**2 - 1) / 12.0) * (1.0 - 8.0 * UNIT)

    def mean_square(self, noise: Noise) -> float:
        """Lower bound on the Bayes mean square error under ``noise``."""
        return noise.integer_mean_square(self.points)


@dataclass(frozen=True, slots=True)
class ListPrior:
    """Uniform prior on the values of a declared list.

    "Other" and "missing", which a release may publish beside them, have no weight: they stand for
    what the list leaves out, and weight on them would raise the floor above what is proven for the list.

    Parameters
    ----------
    codes : tuple of int
        Indices of the listed values among all levels that the column may be published with; at least one.
    what : str
        Plural noun for the values in a statement, such as "declared values".

    Privacy
    -------
    Public: it is made of a declared list alone.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``.
    """

    codes: tuple[int, ...]
    what: str = "declared values"

    @property
    def name(self) -> str:
        """Name of the prior in statements."""
        return f"uniform on the {len(self.codes)} {self.what}"

    @property
    def largest(self) -> float:
        """Probability that a guess without any file is wrong: no noise can prove more."""
        return round_down(1 - Fraction(1, len(self.codes)))


Prior: TypeAlias = UniformPrior | IntegerPrior
"""A prior on numbers, with a root-mean-square error as its floor."""
