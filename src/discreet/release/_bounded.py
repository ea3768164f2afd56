"""Publish a whole table with noise of bounded support, or with outputs that stay in the declared range."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from discreet.errors import ParameterError, PromiseError
from discreet.noise import BoundedDensity
from discreet.noise.bounded import STEPS as CELLS
from discreet.noise.in_range import INPUTS, TOTAL_BITS
from discreet.noise.whitening import lattice_places, points_per_double, same_bits
from discreet.noise_law import BoundedLaw, InRangeLaw
from discreet.privacy import ApproxDP, ErrorFloor, NoPromise, Promise, PureDP, floors
from discreet.privacy.bounded import (
    BoundedNoise,
    additive_delta,
    in_range_epsilon,
    in_range_floor,
    in_range_law,
)
from discreet.privacy.calibration import group_epsilon
from discreet.release.base import check_noise
from discreet.release.mechanism import (
    NumberMechanism,
    additive_floor,
    check_weights,
    is_close_size,
    matrix_power,
    prior_of,
)
from discreet.release.table import Label, TableRelease, check_exactly_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Bools, Floats
    from discreet.ledger import Ledger
    from discreet.noise import InRange, Stream
    from discreet.noise_law import Law
    from discreet.privacy import ColumnFloor
    from discreet.schema import Column, Schema

    Support = float | Sequence[float] | Mapping[str, float | tuple[float, float]]

LEAST_RANGE, LARGEST_RANGE = 1e-60, 1e60
MOST_GRID = 1025
"""Integer columns with more values than this are moved to a coarser grid by the in-range mechanism."""


class BoundedNumbers(NumberMechanism):
    """Independent additive noise of bounded support on every number, on a lattice of its own.

    Parameters
    ----------
    columns : tuple of Column
        The numbers.
    densities : tuple of BoundedDensity
        One for each, in its own unit.
    at_epsilon : float
        Where the delta of each column is stated.
    """

    def __init__(
        self, columns: tuple[Column, ...], densities: tuple[BoundedDensity, ...], at_epsilon: float
    ) -> None:
        self.columns = columns
        self.densities = densities
        self.at_epsilon = at_epsilon
        halves = np.array([0.5 * (d.upper - d.lower) for d in densities])
        check_noise(columns, halves, "The support of bounded noise")
        # The upper bound itself, by the operations that every cell goes through.
        self._top = [round(c.width / d.step) for c, d in zip(columns, densities, strict=True)]
        if max(self._top) >= 1 << 50:
            raise ParameterError(
                "The support of bounded noise must be at least 2**-26 of its column's range. "
                "Ask for more noise, or declare tighter bounds."
            )

    def density(self, column: Column) -> BoundedDensity:
        """Return the noise of one column."""
        return self.densities[self.column_index(column)]

    def delta(self, column: Column) -> float:
        """Return the delta of one cell at ``at_epsilon``, for its two farthest lattice points."""
        j = self.column_index(column)
        # Half a step more covers the rounding of the product.
        return additive_delta(
            self.densities[j], self.at_epsilon, (self._top[j] + 0.5) * self.densities[j].step
        )

    def law(self, column: Column) -> BoundedLaw:
        """Return the law of one column."""
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
        """Add the columns up as point events, or say that they promise no differential privacy."""
        covers = tuple(c.name for c in self.columns)
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
        epsilon = group_epsilon(self.at_epsilon * len(self.columns) * (1 + 2.0**-50), rows)
        return [ApproxDP(epsilon=epsilon, delta=delta, covers=covers, **common)]

    def floor(self, column: Column, rows: int) -> ColumnFloor | None:
        """Return the Bayes error under the uniform prior; for one row per unit."""
        if rows > 1:
            return None
        density = self.density(column)
        return additive_floor(column, BoundedNoise(density), lattice_step=density.step)

    def release(self, matrix: Floats, stream: Stream) -> Floats:
        """Round to the lattice, clamp to the integer box, add the noise, map back."""
        out = np.empty(matrix.shape)
        for j, (column, density) in enumerate(zip(self.columns, self.densities, strict=True)):
            lower = column.range[0]
            lattice = np.rint((matrix[:, j] - lower) / density.step)
            np.clip(lattice, 0, self._top[j], out=lattice)
            # Integers below 2**53 in doubles: this sum is exact.
            lattice += density.integers(len(matrix), stream)
            out[:, j] = self._restore(lattice, j)
        return out

    def _restore(self, lattice: Floats, j: int) -> Floats:
        """Map lattice integers of a column back to its own unit."""
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
        """Say which cells are numbers that :meth:`release` writes: on the lattice and within reach."""
        out = np.empty(matrix.shape, bool)
        for j, (column, density) in enumerate(zip(self.columns, self.densities, strict=True)):
            values = matrix[:, j]
            places = (values - (column.range[0] + density.support[0])) / density.step - 0.5
            found = lattice_places(values, places, functools.partial(self._restore, j=j))
            out[:, j] = (found >= 0) & (found <= self._top[j] + CELLS - 1)
        return out

    def repeat_chance(self) -> float:
        """Bound the chance by the largest mass of a lattice cell, in each column."""
        chance = 1.0
        for column, density in zip(self.columns, self.densities, strict=True):
            most = float(density.suprema(np.linspace(*density.support, 2049))[0].max())
            end = np.array(max(map(abs, self.output_range(column))))
            chance *= min(1.0, most * density.step * float(points_per_double(end, density.step)))
        return chance

    def output_range(self, column: Column) -> tuple[float, float]:
        """Return the ends of the declared range, moved by those of the noise and a lattice step."""
        (low, high), step = self.density(column).support, self.density(column).step
        return column.range[0] + low - step, column.range[1] + high + step

    def with_laws(self, laws: Mapping[str, Law]) -> BoundedNumbers:
        """Return the mechanism with the supports that published laws state, where they are as good."""
        densities = []
        for column, density in zip(self.columns, self.densities, strict=True):
            law = laws.get(column.name)
            if isinstance(law, BoundedLaw) and all(
                is_close_size(*ends) for ends in zip((law.lower, law.upper), density.support, strict=True)
            ):
                density = dataclasses.replace(density, lower=law.lower, upper=law.upper)
            densities.append(density)
        return BoundedNumbers(self.columns, tuple(densities), self.at_epsilon)


class InRangeNumbers(NumberMechanism):
    """The in-range mechanism on every number.

    Parameters
    ----------
    columns : tuple of Column
        The numbers.
    laws : tuple of InRange
        One for each, on its declared range.
    """

    def __init__(self, columns: tuple[Column, ...], laws: tuple[InRange, ...]) -> None:
        self.columns = columns
        self.laws = laws

    def epsilon(self, column: Column) -> float:
        """Return what one cell costs, read off its table."""
        return in_range_epsilon(self.laws[self.column_index(column)])

    def law(self, column: Column) -> InRangeLaw:
        """Return the law of one column."""
        law = self.laws[self.column_index(column)]
        return InRangeLaw(
            lower=law.lower,
            upper=law.upper,
            regularization=law.regularization,
            inputs=law.inputs,
            cells=law.cells,
        )

    def promises(self, n_rows: int, rows: int, common: dict[str, Any]) -> list[Promise]:
        """Add the columns up: pure, without any total variation."""
        epsilon = math.fsum(self.epsilon(c) for c in self.columns) * (1 + 2.0**-50)
        covers = tuple(c.name for c in self.columns)
        return [PureDP(epsilon=group_epsilon(epsilon, rows), covers=covers, **common)]

    def floor(self, column: Column, rows: int) -> ColumnFloor | None:
        """Return the Bayes error under the uniform prior; for one row per unit."""
        if rows > 1:
            return None
        prior = prior_of(column)
        # What is stored is off by half the distance of 64-bit numbers; here the floor knows how it is used.
        error = in_range_floor(self.laws[self.column_index(column)], prior) - 0.5 * prior.resolution
        return floors.column_floor(error, prior, measure=column.measure)

    def release(self, matrix: Floats, stream: Stream) -> Floats:
        """Draw every cell from the row of its value."""
        return np.column_stack([law.draw(matrix[:, j], stream) for j, law in enumerate(self.laws)])

    def scaled(self, factor: float) -> InRangeNumbers:
        """Return the mechanism with the epsilon of each column divided by ``factor``."""
        laws = tuple(
            in_range_law(self.epsilon(c) / factor, law.lower, law.upper, inputs=law.inputs)
            for c, law in zip(self.columns, self.laws, strict=True)
        )
        return InRangeNumbers(self.columns, laws)

    def repeat_chance(self) -> float:
        """Bound the chance by the largest mass of an output cell, in each column."""
        return math.prod(float(law.masses.max()) / 2.0**TOTAL_BITS for law in self.laws)

    def output_range(self, column: Column) -> tuple[float, float]:
        """Return the declared range."""
        return column.range

    def is_possible(self, matrix: Floats) -> Bools:
        """Say which cells are middles of output cells, to the last bit."""
        out = np.empty(matrix.shape, bool)
        for j, law in enumerate(self.laws):
            places = np.rint((matrix[:, j] - law.lower) / ((law.upper - law.lower) / law.cells) - 0.5)
            # A missing cell has no place; it is compared with the first, and differs.
            nearest = np.clip(np.nan_to_num(places), 0, law.cells - 1).astype(np.int64)
            near = (np.clip(nearest + shift, 0, law.cells - 1) for shift in (0, -1, 1))
            out[:, j] = np.any([same_bits(law.outputs[index], matrix[:, j]) for index in near], axis=0)
        return out


class BoundedRelease(TableRelease):
    """Add the least informative noise of bounded support, or keep outputs inside the declared range.

    Give exactly one of ``privacy`` and ``support``.

    Parameters
    ----------
    privacy : ErrorFloor or PureDP, optional
        An :class:`ErrorFloor` for additive noise; a :class:`PureDP` with ``in_range=True``.
    support : float, sequence or mapping, optional
        Half-width of the noise in each column's own unit; in a mapping also ``(lower, upper)``.
    regularization : float
        The weight lambda of the mean square of additive noise. At 0 the density is cosine-squared; the
        larger, the nearer to a Gaussian.
    weights : vector or matrix, optional
        ``Pi``: how much the error on each number counts, by default the inverse fourth power of its range.
        A matrix gives the best independent noise for it; the joint optimum of up to three columns is
        :class:`~discreet.noise._box.BoxDensity`.
    in_range : bool
        Publish values that never leave the declared range, by a mechanism that is not additive.
    at_epsilon : float
        Where the delta of additive noise is stated, for each column.
    label, clamp, schema, bounds, ledger, random_state
        See :class:`~discreet.release.table.TableRelease`.

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
        """Say what a release by this method leaves open, in sentences without a full stop."""
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
        in_range: bool = False,
        at_epsilon: float = 1.0,
        label: Label = "randomized",
        clamp: bool = False,
        schema: Schema | None = None,
        bounds: tuple[Any, Any] | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
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
        self.in_range = in_range
        self.at_epsilon = at_epsilon

    @classmethod
    def from_parameters(cls, values: Mapping[str, Any], **common: Any) -> BoundedRelease:
        """Make the method that :meth:`parameters` wrote down."""
        made = dict(values)
        if isinstance(made.get("support"), Mapping):
            ends = made["support"].items()
            made["support"] = {name: tuple(e) if isinstance(e, list) else e for name, e in ends}
        return super().from_parameters(made, **common)

    def _density(self, weight: float, lower: float, upper: float) -> BoundedDensity:
        return BoundedDensity(lower=lower, upper=upper, regularization=self.regularization, weight=weight)

    def _column_weights(self, columns: Sequence[Column]) -> list[float]:
        """Return the weight of each column alone: scores of independent columns are uncorrelated."""
        _check_ranges(columns)
        if self.weights is None:
            return [c.width**-4.0 for c in columns]
        weights = check_weights(self.weights, columns, type(self).__name__)
        alone = weights if weights.ndim == 1 else 1 / np.diagonal(matrix_power(weights, -1.0))
        return [float(weight) for weight in alone]

    def numbers_as_given(self, columns: tuple[Column, ...], schema: Schema, n_rows: int) -> BoundedNumbers:
        """Use the supports."""
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
        return BoundedNumbers(columns, densities, self.at_epsilon)

    def numbers_for_errors(
        self, columns: tuple[Column, ...], errors: Mapping[str, float], rows: int
    ) -> BoundedNumbers:
        """Find the narrowest support whose floors are the ones asked for."""
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

            prior = prior_of(c)
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
        """Spend each column's part on it, inside its range."""
        _check_ranges(columns)
        laws = []
        for c in columns:
            lower, upper = c.range
            values = 0 if c.type == "number" else int(upper) - int(lower) + 1
            inputs = values if 2 <= values <= MOST_GRID else INPUTS
            laws.append(in_range_law(epsilons[c.name] / rows, lower, upper, inputs=inputs))
        return InRangeNumbers(columns, tuple(laws))


def _check_ranges(columns: Sequence[Column]) -> None:
    """Refuse ranges whose fourth power, by which densities weigh them, is no number."""
    for c in columns:
        if not LEAST_RANGE <= c.width <= LARGEST_RANGE:
            raise ParameterError(
                f"The range of column {c.name!r} must be between {LEAST_RANGE:g} and {LARGEST_RANGE:g} for "
                f"BoundedRelease, was {c.width:g}. Give the column in another unit, or use GaussianRelease."
            )
