"""Release of a table with spherical noise on every row, after the second algorithm of the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy

from discreet.errors import ParameterError, PromiseError
from discreet.noise import SphericalLaplace, samplers
from discreet.noise.whitening import lattice_places, points_per_double
from discreet.noise_law import SphericalLaw
from discreet.privacy import ApproxDP, Promise, PureDP
from discreet.privacy.calibration import group_delta, group_epsilon
from discreet.privacy.floors import GaussianNoise, LaplaceNoise
from discreet.release.mechanism import NumberMechanism, additive_floor
from discreet.release.table import Label, TableRelease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Bools, Floats
    from discreet.ledger import Ledger
    from discreet.noise import Stream
    from discreet.privacy import ColumnFloor
    from discreet.schema import Column, Schema

_UP = 1 + 2.0**-40
"""Factor that rounds a bound up by more than its arithmetic is off."""
_FAR = 100.0  # scales and columns, which no draw passes
_PARTS = 24
"""Parts of equal probability into which the law of the radius is cut for a floor."""


@dataclass(frozen=True, slots=True)
class SphericalColumn:
    """Spherical noise on one column, given the noise of all others, for error floors.

    Attributes
    ----------
    scale : float
        Scale ``1 / rate`` of the noise, in the unit of the column.
    dimension : int
        Number of columns that share the noise; at least 2.

    Privacy
    -------
    A law, not a promise.

    Notes
    -----
    A draw is ``scale sqrt(2 g) z`` with ``g ~ Gamma((dimension + 1) / 2)`` and z standard normal. Given g its
    coordinates are independent Gaussians, so an attacker who knows g too has, in the mean over g, at least
    the error under those. The mean is bounded by the lower ends of parts of equal probability.

    Reference
    ---------
    docs/explanation/theorems/masked-input.md
    """

    scale: float
    dimension: int

    @property
    def information(self) -> float:
        """Fisher information about one cell, the other columns known: ``1 / (dimension scale**2)``."""
        return _UP / (self.dimension * self.scale**2)

    def compose(self, releases: int) -> SphericalColumn:
        """Return the noise itself for one release; raise for several, whose mean is not sufficient."""
        if releases == 1:
            return self
        raise PromiseError("Floors of spherical noise must be for one row per unit.")

    def interval_mean_square(self, width: float) -> float:
        """Return a lower bound on the Bayes mean square error, uniform prior on an interval."""
        return math.fsum(g.interval_mean_square(width) for g in self._gaussians()) / _PARTS * (1 - 1e-12)

    def integer_mean_square(self, points: int) -> float:
        """Return a lower bound on the Bayes mean square error, uniform prior on consecutive integers."""
        return math.fsum(g.integer_mean_square(points) for g in self._gaussians()) / _PARTS * (1 - 1e-12)

    def scaled(self, factor: float) -> SphericalColumn:
        """Return the noise in another unit: ``factor`` times as large."""
        return SphericalColumn(self.scale * factor, self.dimension)

    def _gaussians(self) -> list[GaussianNoise]:
        # Errors grow with the radius: each part is taken at its lower end; the first, at 0, has no error.
        return [GaussianNoise(self.scale * radius) for radius in _radius_quantiles(self.dimension)[1:]]


@lru_cache(maxsize=64)
def _radius_quantiles(dimension: int) -> tuple[float, ...]:
    """Return the lower ends of the parts of the law of ``sqrt(2 g)``, rounded down."""
    quantiles = scipy.special.gammaincinv((dimension + 1) / 2, np.arange(_PARTS) / _PARTS)
    return tuple((np.sqrt(2 * quantiles) * (1 - 1e-12)).tolist())


class SphericalNumbers(NumberMechanism):
    """Spherical noise on the numbers of every row together.

    Numbers are mapped to -1 to 1 over their range. Rows are shortened to the norm bound, if there is one, and
    rounded to the lattice of the noise.

    Parameters
    ----------
    columns : tuple of Column
        Numeric columns that get the noise together.
    rate : float
        Rate of the density, proportional to ``exp(-rate |x|)``, in units of half a range.
    norm_bound : float or None
        Largest norm of a mapped row; None where rows are not shortened.
    """

    def __init__(self, columns: tuple[Column, ...], rate: float, norm_bound: float | None) -> None:
        """Check that the lattice of the noise is fine enough and not too fine."""
        self.columns = columns
        self.rate = rate
        self.norm_bound = norm_bound
        self.noise = SphericalLaplace(rate=rate, dimension=len(columns))
        ranges = np.array([c.range for c in columns])
        self._lower = ranges[:, 0]
        self._half = (ranges[:, 1] - ranges[:, 0]) / 2
        if not self.noise.step < 2.0**-8 or not self.noise.step > 2.0**-48:
            raise ParameterError(
                "epsilon of InputPerturbation must leave noise that is neither far above nor far below the "
                f"range of a column, and a rate of {rate:.3g} does not. Ask for another one."
            )

    @property
    def distance(self) -> float:
        """Largest distance of two mapped rows on the lattice, rounded up."""
        d, step = len(self.columns), self.noise.step
        if self.norm_bound is None:
            # The lattice holds -1 and 1 exactly: its step is a power of two.
            return 2 * math.sqrt(d) * _UP
        # Rounding moves each of two rows by at most half a step per coordinate.
        return (2 * self.norm_bound + step * math.sqrt(d)) * _UP

    @property
    def row_epsilon(self) -> float:
        """Epsilon of the numbers of one row, the error of computing the density counted in."""
        return (self.rate * self.distance + 2 * self.noise.log_density_error) * _UP

    def law(self, column: Column) -> SphericalLaw:
        """Return the public law of the noise of one column."""
        scale, d = float(self._half[self.column_index(column)]) / self.rate, len(self.columns)
        return SphericalLaw(variance=(d + 1) * scale**2, scale=scale, dimension=d)

    def promises(self, n_rows: int, rows: int, common: dict[str, Any]) -> list[Promise]:
        """Return a point event: spherical noise is pure but for a delta of about 2**-60."""
        covers = tuple(c.name for c in self.columns)
        total = n_rows * self.noise.total_variation
        epsilon = self.row_epsilon
        if self.noise.tail == 0.0:
            return [
                PureDP(epsilon=group_epsilon(epsilon, rows), covers=covers, total_variation=total, **common)
            ]
        # Outside the tail the ratio of densities is bounded; the tail counts once for each of the two tables.
        delta = self.noise.tail * (1 + math.exp(min(epsilon, 600.0))) * _UP
        # Rows of one unit have independent noise; each is one step of composition.
        delta = delta if rows == 1 else group_delta(epsilon, delta, rows)
        if not delta < 1e-6:
            raise PromiseError(
                f"epsilon of InputPerturbation must be smaller for {len(covers)} numbers together, and "
                f"{epsilon:.3g} comes with a delta of {min(delta, 1.0):.2g}. Ask for less, or for fewer rows "
                "per unit."
            )
        return [
            ApproxDP(
                epsilon=group_epsilon(epsilon, rows),
                delta=delta,
                covers=covers,
                total_variation=total,
                **common,
            )
        ]

    def floor(self, column: Column, rows: int) -> ColumnFloor | None:
        """Return a lower bound on the Bayes error under the uniform prior; None where none is proven."""
        if rows > 1 or self.norm_bound is not None:
            return None
        law = self.law(column)
        alone = law.dimension == 1
        return additive_floor(
            column,
            LaplaceNoise(law.scale) if alone else SphericalColumn(law.scale, law.dimension),
            lattice_step=self.noise.step * float(self._half[self.column_index(column)]),
            total_variation=samplers.LAPLACE_TOTAL_VARIATION
            if alone
            else self.noise.total_variation + self.noise.tail,
        )

    def release(self, matrix: Floats, stream: Stream) -> Floats:
        """Return rows mapped, shortened, rounded to the lattice, noised and mapped back."""
        mapped = np.clip((matrix - self._lower) / self._half - 1, -1.0, 1.0)
        if self.norm_bound is not None:
            size = np.sqrt(np.einsum("ij,ij->i", mapped, mapped))
            # A little shorter, so that rounding does not lead outside the ball.
            limit = self.norm_bound * (1 - 2.0**-40)
            mapped *= np.minimum(1.0, limit / np.where(size > 0, size, 1.0))[:, np.newaxis]
        steps = np.rint(mapped / self.noise.step)
        # Sums of integers below 2**53 in doubles are exact.
        steps += self.noise.integers(len(steps), stream)
        return self._restore(steps)

    def _restore(self, steps: Floats) -> Floats:
        """Return lattice integers in the units of the columns."""
        return np.asarray((steps * self.noise.step + 1.0) * self._half + self._lower)

    def scaled(self, factor: float) -> SphericalNumbers:
        """Return the mechanism with ``factor`` times the scale."""
        return SphericalNumbers(self.columns, self.rate / factor, self.norm_bound)

    def repeat_chance(self) -> float:
        """Return the largest density of one coordinate, at most half its rate, times a lattice step."""
        # One column is enough: rows that agree in all of them agree in the first.
        half = float(self._half[0])
        end = np.array(abs(float(self._lower[0])) + half * (2 + _FAR * len(self.columns) / self.rate))
        points = float(points_per_double(end, half * self.noise.step))
        return min(1.0, self.rate / 2 * self.noise.step * 1.001 * points)

    def is_possible(self, matrix: Floats) -> Bools:
        """Return, cell by cell, whether :meth:`release` can write the number."""
        places = ((matrix - self._lower) / self._half - 1.0) / self.noise.step
        return ~np.isnan(lattice_places(matrix, places, self._restore))


class InputPerturbation(TableRelease):
    """Add noise that has no direction to the numbers of every row, and randomize everything else.

    Parameters
    ----------
    privacy : PureDP
        Promise of the release; epsilon is split over all sensitive columns and the target, and the parts of
        the numbers are spent on them together.
    norm_bound : float, optional
        Largest norm of the numbers of a row, each mapped to -1 to 1 over its range; longer rows are
        shortened. By default the largest norm that the ranges allow. A smaller one needs less noise.
    label : {"randomized", "clear"}
        Whether the target is randomized; the paper publishes it as it is.
    schema, bounds, ledger, random_state
        As for :class:`~discreet.release.base.ReleaseMethod`.

    Privacy
    -------
    Local: each row is noised by itself. A point event of epsilon and a delta of about ``exp(epsilon)`` times
    2**-64 for the numbers, pure for one number alone and for lists. With ``label="clear"`` no promise covers
    the target. Noise grows with the number of columns: a model trained on the result has smaller weights than
    one trained on true rows, however many rows there are.

    Reference
    ---------
    Pham et al., algorithm 2 and proposition 5, corrected: docs/explanation/theorems/masked-input.md

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.privacy import PureDP
    >>> from discreet.release import InputPerturbation
    >>> method = InputPerturbation(privacy=PureDP(epsilon=2), bounds=(0, 1), random_state=1)
    >>> released = method.release(np.zeros((4, 2)))
    >>> released.data.shape, released.promises[0].epsilon <= 2
    ((4, 2), True)
    """

    name: ClassVar[str] = "input-perturbation"
    accepts: ClassVar[tuple[type[Promise], ...]] = (PureDP,)
    refusal: ClassVar[str] = "Its noise has one shape; ask for PureDP, or take another method."

    def __init__(
        self,
        *,
        privacy: PureDP | None = None,
        norm_bound: float | None = None,
        label: Label = "randomized",
        schema: Schema | None = None,
        bounds: tuple[Any, Any] | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Check that the promise is pure and the norm bound positive, and store them."""
        if privacy is None:
            raise ParameterError(
                "privacy of InputPerturbation must be a PureDP, was None: it has no default."
            )
        super().__init__(
            privacy=privacy,
            label=label,
            clamp=False,
            schema=schema,
            bounds=bounds,
            ledger=ledger,
            random_state=random_state,
        )
        is_number = isinstance(norm_bound, int | float) and not isinstance(norm_bound, bool)
        if norm_bound is not None and not (is_number and 0 < norm_bound < math.inf):
            raise ParameterError(
                f"norm_bound of InputPerturbation must be a finite number above 0, was {norm_bound!r}."
            )
        self.norm_bound = norm_bound

    def numbers_for_epsilon(
        self, columns: tuple[Column, ...], epsilons: Mapping[str, float], n_rows: int, rows: int
    ) -> SphericalNumbers:
        """Return the noise that spends the epsilons of all numbers on them together.

        Notes
        -----
        The epsilon of a row is ``rate * distance + 2 * log_density_error``, which depends on the rate also
        through the lattice; the rate is lowered until it fits.
        """
        epsilon = math.fsum(epsilons.values()) / rows
        bound = self.norm_bound
        if bound is not None and bound >= math.sqrt(len(columns)):
            # Such a bound shortens no row, and without it the lattice costs nothing.
            bound = None
        rate = epsilon / (2 * (math.sqrt(len(columns)) if bound is None else bound))
        for _ in range(20):
            numbers = SphericalNumbers(columns, rate, bound)
            if numbers.row_epsilon <= epsilon:
                return numbers
            rate *= epsilon / numbers.row_epsilon * (1 - 2.0**-44)
        raise PromiseError(
            f"epsilon of InputPerturbation must be larger for {len(columns)} numbers, was {epsilon:g}: it "
            "does not cover what computing the noise costs."
        )

    def numbers_for_errors(
        self, columns: tuple[Column, ...], errors: Mapping[str, float], rows: int
    ) -> NumberMechanism:
        """Raise: an error floor does not determine this noise."""
        raise PromiseError(f"privacy of InputPerturbation must be a PureDP. {self.refusal}")

    def numbers_as_given(self, columns: tuple[Column, ...], schema: Schema, n_rows: int) -> NumberMechanism:
        """Raise: no other parameter determines this noise."""
        raise PromiseError(f"privacy of InputPerturbation must be a PureDP. {self.refusal}")
