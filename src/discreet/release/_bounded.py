"""Release of a table with noise of bounded support, or with outputs that stay in the declared range."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from discreet.errors import ParameterError, PromiseError
from discreet.noise import BoundedDensity, BoxDensity
from discreet.noise.bounded import STEPS as CELLS
from discreet.noise.in_range import INPUTS
from discreet.noise.whitening import lattice_places, points_per_double
from discreet.noise_law import BoundedLaw
from discreet.privacy import ApproxDP, ErrorFloor, NoPromise, Promise, PureDP, floors
from discreet.privacy.bounded import (
    BoundedNoise,
    additive_delta,
    in_range_law,
)
from discreet.privacy.calibration import group_epsilon
from discreet.release._bounded_numbers import InRangeNumbers, JointBoundedNumbers, check_joint
from discreet.release.base import check_noise
from discreet.release.mechanism import (
    NumberMechanism,
    additive_floor,
    check_weights,
    is_close_size,
    matrix_power,
    uniform_prior,
)
from discreet.release.table import Label, TableRelease, check_exactly_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Bools, Floats
    from discreet.ledger import Ledger
    from discreet.noise import Stream
    from discreet.noise_law import Law
    from discreet.privacy import ColumnFloor
    from discreet.schema import Column, Schema

    Support = float | Sequence[float] | Mapping[str, float | tuple[float, float]]

LEAST_RANGE, LARGEST_RANGE = 1e-60, 1e60
"""Ranges of columns whose fourth power is a finite number."""
MOST_GRID = 1025
"""Integer columns with more values than this are moved to a coarser grid by the in-range mechanism."""


class BoundedNumbers(NumberMechanism):
    """Independent additive noise of bounded support on every number, on a lattice of its own.

    Parameters
    ----------
    columns : tuple of Column
        Numeric columns that get the noise.
    densities : tuple of BoundedDensity
        Density of the noise of each column, in the unit of the column.
    at_epsilon : float
        Epsilon at which the delta of each column is stated; above 0.

    Notes
    -----
    A cell x becomes ``lower + l + (k + n + 1/2) s`` with the lattice integer ``k = round((x - lower) / s)``,
    a random cell n of the density, whose support begins at l, and the step s of its lattice.
    """

    def __init__(
        self, columns: tuple[Column, ...], densities: tuple[BoundedDensity, ...], at_epsilon: float
    ) -> None:
        """Check the supports against the declared ranges and compute the integer box."""
        self.columns = columns
        self.densities = densities
        self.at_epsilon = at_epsilon
        halves = np.array([0.5 * (d.upper - d.lower) for d in densities])
        check_noise(columns, halves, "The support of bounded noise")
        # The upper bound goes through the same operations as every cell, so that the box is exact.
        self._top = [round(c.width / d.step) for c, d in zip(columns, densities, strict=True)]
        if max(self._top) >= 1 << 50:
            raise ParameterError(
                "The support of bounded noise must be at least 2**-26 of its column's range. "
                "Ask for more noise, or declare tighter bounds."
            )

    def density(self, column: Column) -> BoundedDensity:
        """Return the density of the noise of one column."""
        return self.densities[self.column_index(column)]

    def delta(self, column: Column) -> float:
        """Return the delta of one cell at ``at_epsilon``, for its two farthest lattice points."""
        j = self.column_index(column)
        # Half a step more covers the rounding of the product.
        return additive_delta(
            self.densities[j], self.at_epsilon, (self._top[j] + 0.5) * self.densities[j].step
        )

    def law(self, column: Column) -> BoundedLaw:
        """Return the public law of the noise of one column."""
        density = self.density(column)
        low, high = density.support
        return BoundedLaw(
            variance=density.variance,
            mean=density.mean,
            lower=low,
            upper=high,
            regularization=density.regularization * density.weight,
        )

    def promises(self, n_rows: int, rows: int, common: dict[str, Any]) -> list[Promise]:
        """Return the sum of the columns as point events, or a ``NoPromise`` where the deltas reach 1."""
        covers = tuple(c.name for c in self.columns)
        # Each row of a unit has noise of its own, so that rows add up as columns do.
        delta = math.fsum(self.delta(c) for c in self.columns) * rows * (1 + 2.0**-40)
        if delta >= 1:
            return [
                NoPromise(
                    "additive noise of bounded support excludes values; at epsilon "
                    f"{self.at_epsilon:g} per column the deltas add up to 1 or more",
                    covers=covers,
                    **common,
                )
            ]
        # Point events add up over columns; the factor covers the rounding of the product.
        epsilon = group_epsilon(self.at_epsilon * len(self.columns) * (1 + 2.0**-50), rows)
        return [ApproxDP(epsilon=epsilon, delta=delta, covers=covers, **common)]

    def floor(self, column: Column, rows: int) -> ColumnFloor | None:
        """Return the Bayes error under the uniform prior; None for units with several rows."""
        if rows > 1:
            return None
        density = self.density(column)
        return additive_floor(column, BoundedNoise(density), lattice_step=density.step)

    def release(self, matrix: Floats, stream: Stream) -> Floats:
        """Return rows rounded to the lattice, clamped to the integer box, noised and mapped back."""
        out = np.empty(matrix.shape)
        for j, (column, density) in enumerate(zip(self.columns, self.densities, strict=True)):
            lower = column.range[0]
            lattice = np.rint((matrix[:, j] - lower) / density.step)
            np.clip(lattice, 0, self._top[j], out=lattice)
            # Sums of integers below 2**53 in doubles are exact.
            lattice += density.integers(len(matrix), stream)
            out[:, j] = self._restore(lattice, j)
        return out

    def _restore(self, lattice: Floats, j: int) -> Floats:
        """Return lattice integers of column j in the unit of the column."""
        density = self.densities[j]
        return np.asarray((self.columns[j].range[0] + density.support[0]) + (lattice + 0.5) * density.step)

    def scaled(self, factor: float) -> BoundedNumbers:
        """Return the mechanism with densities of the same shape, ``factor`` times as wide."""
        densities = tuple(
            dataclasses.replace(
                d, lower=d.lower * factor, upper=d.upper * factor, regularization=d.regularization / factor**4
            )
            for d in self.densities
        )
        return BoundedNumbers(self.columns, densities, self.at_epsilon)

    def is_possible(self, matrix: Floats) -> Bools:
        """Return, cell by cell, whether the number is on the lattice and in the range of the outputs."""
        out = np.empty(matrix.shape, bool)
        for j, (column, density) in enumerate(zip(self.columns, self.densities, strict=True)):
            values = matrix[:, j]
            places = (values - (column.range[0] + density.support[0])) / density.step - 0.5
            index = lattice_places(values, places, functools.partial(self._restore, j=j))
            out[:, j] = (index >= 0) & (index <= self._top[j] + CELLS - 1)
        return out

    def repeat_chance(self) -> float:
        """Return the largest mass of a lattice cell, multiplied over columns."""
        chance = 1.0
        for column, density in zip(self.columns, self.densities, strict=True):
            # Two points per bucket, so that no bucket is missed.
            most = float(density.suprema(np.linspace(*density.support, 2049))[0].max())
            end = np.array(max(map(abs, self.output_range(column))))
            chance *= min(1.0, most * density.step * float(points_per_double(end, density.step)))
        return chance

    def output_range(self, column: Column) -> tuple[float, float]:
        """Return the declared range, widened by the support of the noise and a lattice step."""
        (low, high), step = self.density(column).support, self.density(column).step
        return column.range[0] + low - step, column.range[1] + high + step

    def with_laws(self, laws: Mapping[str, Law]) -> BoundedNumbers:
        """Return the mechanism with the supports that published laws state, where they match its own."""
        densities = []
        for column, density in zip(self.columns, self.densities, strict=True):
            law = laws.get(column.name)
            if isinstance(law, BoundedLaw) and all(
                is_close_size(*ends) for ends in zip((law.lower, law.upper), density.support, strict=True)
            ):
                density = dataclasses.replace(density, lower=law.lower, upper=law.upper)
            densities.append(density)
        return BoundedNumbers(self.columns, tuple(densities), self.at_epsilon)


class BoundedRelease(TableRelease):
    """Add the least informative noise of bounded support, or keep outputs inside the declared range.

    Give exactly one of ``privacy`` and ``support``.

    Parameters
    ----------
    privacy : ErrorFloor or PureDP, optional
        Promise of the release: an :class:`ErrorFloor` for additive noise, a :class:`PureDP` with
        ``in_range=True``.
    support : float, sequence or mapping, optional
        Half-width of the noise, in the unit of each column; in a mapping also ``(lower, upper)``.
    regularization : float
        Weight lambda of the mean square of additive noise, at least 0. At 0 the density is cosine-squared;
        the larger, the nearer to a Gaussian.
    weights : vector or matrix, optional
        ``Pi``: weight of the error on each number, by default the inverse fourth power of its range.
        A matrix gives the best independent noise for it, and the optimum for the columns of ``joint``.
    joint : sequence of str, optional
        Two or three columns whose additive noise is drawn together, from the joint density that is best for a
        matrix of ``weights``. It needs ``support``, and no delta is proven for it; floors of numbers hold
        against attackers who know all other cells of the row, and whole numbers have none.
    in_range : bool
        Whether published values never leave the declared range, by a mechanism that is not additive.
    at_epsilon : float
        Epsilon at which the delta of additive noise is stated, for each column; above 0, at most 32.
    label, clamp, schema, bounds, ledger, random_state
        As for :class:`~discreet.release.table.TableRelease`.

    Privacy
    -------
    Additive: error floors under the uniform prior, for units with one row. Noise of bounded support
    excludes values, so it has no pure epsilon; a delta is stated where it is below 1, and otherwise the
    release says that it promises no differential privacy. In range: pure epsilon, exactly, with every output
    inside the range; published values are pulled towards its middle. Open: what is open for the
    Gaussian release.

    Reference
    ---------
    Farokhi's theorem 2.6 and corollary 2.7, corrected: docs/explanation/theorems/fisher-bounded.md,
    fisher-in-range.md

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import BoundedRelease, PureDP
    >>> method = BoundedRelease(privacy=PureDP(epsilon=4), in_range=True, bounds=(0, 1), random_state=1)
    >>> released = method.release(np.linspace(0, 1, 20).reshape(10, 2))
    >>> bool(0 < released.data.min() and released.data.max() < 1), released.promises[0].epsilon <= 4
    (True, True)
    """

    name: ClassVar[str] = "bounded"
    accepts: ClassVar[tuple[type[Promise], ...]] = (ErrorFloor, PureDP)
    refusal: ClassVar[str] = "Bounded noise promises floors; in range, a pure epsilon."

    def not_protected(self, schema: Schema) -> tuple[str, ...]:
        """Return what a release by this method does not protect, as clauses without a full stop."""
        if self.in_range:
            return super().not_protected(schema)
        return (
            *super().not_protected(schema),
            "values that the noise cannot have led from: noise of bounded support rules them out with "
            "certainty, most of all near the ends of a declared range",
        )

    def __init__(
        self,
        *,
        privacy: Promise | None = None,
        support: Support | None = None,
        regularization: float = 0.0,
        weights: Any = None,
        joint: Sequence[str] | None = None,
        in_range: bool = False,
        at_epsilon: float = 1.0,
        label: Label = "randomized",
        clamp: bool = False,
        schema: Schema | None = None,
        bounds: tuple[Any, Any] | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Check the parameters against each other and store them."""
        super().__init__(
            privacy=privacy,
            label=label,
            clamp=clamp,
            schema=schema,
            bounds=bounds,
            ledger=ledger,
            random_state=random_state,
        )
        check_exactly_one(type(self).__name__, privacy=privacy, support=support)
        if not isinstance(in_range, bool):
            raise ParameterError(f"in_range of BoundedRelease must be True or False, was {in_range!r}.")
        if in_range != isinstance(privacy, PureDP):
            raise PromiseError(
                "privacy of BoundedRelease must be PureDP with in_range=True, and only then. Additive noise "
                "of bounded support has no epsilon alone: ask for an ErrorFloor, or for in_range=True."
            )
        if in_range and (clamp or regularization or weights is not None):
            raise ParameterError(
                "clamp, regularization and weights of BoundedRelease are for additive noise. With "
                "in_range=True every output is inside the range already, and the epsilon sets the noise."
            )
        if joint is not None and support is None:
            raise PromiseError(
                "joint of BoundedRelease must be given with support: noise that columns share is not "
                "calibrated to a promise. Give the half-width of each column's noise, or leave joint out."
            )
        if not 0 <= regularization < math.inf:
            raise ParameterError(
                "regularization of BoundedRelease must be finite and at least 0, was "
                f"{regularization!r}. Use 0 for the cosine-squared density."
            )
        if not 0 < at_epsilon <= 32:
            raise ParameterError(
                f"at_epsilon of BoundedRelease must be above 0 and at most 32, was {at_epsilon!r}."
            )
        self.support = support
        self.regularization = regularization
        self.weights = weights
        self.joint = check_joint(joint, weights)
        self.in_range = in_range
        self.at_epsilon = at_epsilon

    @classmethod
    def from_parameters(cls, values: Mapping[str, Any], **common: Any) -> BoundedRelease:
        """Return the method with the parameters that :meth:`parameters` returned."""
        arguments = dict(values)
        if isinstance(arguments.get("support"), Mapping):
            ends = arguments["support"].items()
            arguments["support"] = {name: tuple(e) if isinstance(e, list) else e for name, e in ends}
        return super().from_parameters(arguments, **common)

    def _density(self, weight: float, lower: float, upper: float) -> BoundedDensity:
        return BoundedDensity(lower=lower, upper=upper, regularization=self.regularization, weight=weight)

    def _column_weights(self, columns: Sequence[Column]) -> list[float]:
        """Return the weight of each column alone: ``1 / (Pi^-1)_jj``, for independent noise."""
        _check_ranges(columns)
        if self.weights is None:
            return [c.width**-4.0 for c in columns]
        weights = check_weights(self.weights, columns, type(self).__name__)
        alone = weights if weights.ndim == 1 else 1 / np.diagonal(matrix_power(weights, -1.0))
        return [float(weight) for weight in alone]

    def numbers_as_given(
        self, columns: tuple[Column, ...], schema: Schema, n_rows: int
    ) -> BoundedNumbers | JointBoundedNumbers:
        """Return additive noise with the given supports."""
        assert self.support is not None
        given = self.support
        if isinstance(given, Mapping):
            pairs = {name: ends for name, ends in given.items() if isinstance(ends, tuple)}
            halves = self.per_column(
                "support",
                {name: 1.0 if name in pairs else cast("float", h) for name, h in given.items()},
                columns,
            )
        else:
            pairs, halves = {}, self.per_column("support", given, columns)
        densities = tuple(
            self._density(weight, *pairs.get(c.name, (-h, h)))
            for c, h, weight in zip(columns, halves.tolist(), self._column_weights(columns), strict=True)
        )
        if self.joint is None:
            return BoundedNumbers(columns, densities, self.at_epsilon)
        return self._share_noise(columns, densities, self.joint)

    def _share_noise(
        self, columns: tuple[Column, ...], densities: tuple[BoundedDensity, ...], joint: tuple[str, ...]
    ) -> JointBoundedNumbers:
        """Return the mechanism in which some columns share their noise, on the supports of densities."""
        where = {c.name: j for j, c in enumerate(columns)}
        unknown = [name for name in joint if name not in where]
        if unknown:
            raise ParameterError(
                f"joint of BoundedRelease must name released numbers, and {unknown[0]!r} is none. They are "
                f"{', '.join(where)}."
            )
        places = [where[name] for name in joint]
        inverse = matrix_power(check_weights(self.weights, columns, type(self).__name__), -1.0)
        block = matrix_power(inverse[np.ix_(places, places)], -1.0)
        box = BoxDensity(
            # Noise that columns share has no more variance, so that as little is left beyond the same ends.
            lower=np.array([densities[j].support[0] for j in places]),
            upper=np.array([densities[j].support[1] for j in places]),
            # With the other columns independent, only this block of the inverse enters the objective.
            weights=(block + block.T) / 2,
            regularization=self.regularization,
        )
        rest = [j for j in range(len(columns)) if j not in places]
        others = None
        if rest:
            own = tuple(densities[j] for j in rest)
            others = BoundedNumbers(tuple(columns[j] for j in rest), own, self.at_epsilon)
        return JointBoundedNumbers(columns, joint, box, others)

    def numbers_for_errors(
        self, columns: tuple[Column, ...], errors: Mapping[str, float], rows: int
    ) -> BoundedNumbers:
        """Return noise with the narrowest supports that reach the floors."""
        if rows > 1:
            raise PromiseError(
                "ErrorFloor of BoundedRelease is proven for one row per unit, and the schema allows "
                f"{rows}. Use GaussianRelease, or in_range=True."
            )
        check_noise(columns, np.array([errors[c.name] for c in columns]), "The error floor")
        densities = []
        for c, weight in zip(columns, self._column_weights(columns), strict=True):

            def noise(half: float, weight: float = weight) -> BoundedNoise:
                return BoundedNoise(self._density(weight, -half, half))

            prior = uniform_prior(c)
            # The lattice step depends on the noise itself: solve without it, then with twice the step found.
            rough = floors.least_noise(noise, prior, errors[c.name], column=c.name)
            least = floors.least_noise(
                noise,
                prior,
                errors[c.name],
                column=c.name,
                lattice_step=2 * rough.density.step,
                start=rough.density.upper,
            )
            densities.append(least.density)
        return BoundedNumbers(columns, tuple(densities), self.at_epsilon)

    def numbers_for_epsilon(
        self, columns: tuple[Column, ...], epsilons: Mapping[str, float], n_rows: int, rows: int
    ) -> InRangeNumbers:
        """Return the in-range mechanism that spends its epsilon on each column."""
        _check_ranges(columns)
        laws = []
        for c in columns:
            lower, upper = c.range
            # Where every value has an input of its own, nothing is lost by moving values to inputs.
            values = 0 if c.type == "number" else int(upper) - int(lower) + 1
            inputs = values if 2 <= values <= MOST_GRID else INPUTS
            laws.append(in_range_law(epsilons[c.name] / rows, lower, upper, inputs=inputs))
        return InRangeNumbers(columns, tuple(laws))


def _check_ranges(columns: Sequence[Column]) -> None:
    """Raise if the fourth power of a range, the default weight of its column, is not a finite number."""
    for c in columns:
        if not LEAST_RANGE <= c.width <= LARGEST_RANGE:
            raise ParameterError(
                f"The range of column {c.name!r} must be between {LEAST_RANGE:g} and {LARGEST_RANGE:g} for "
                f"BoundedRelease, was {c.width:g}. Give the column in another unit, or use GaussianRelease."
            )
