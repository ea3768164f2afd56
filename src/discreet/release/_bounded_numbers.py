"""Bounded noise on the numbers of a row: outputs inside their range, and columns that share their noise.

The in-range mechanism draws every output inside the declared range. Noise that two or three columns share has
the least informative density on their box.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.noise.bounded import STEPS as CELLS
from discreet.noise.in_range import TOTAL_BITS
from discreet.noise.whitening import lattice_places, points_per_double, same_bits
from discreet.noise_law import InRangeLaw, JointBoundedLaw
from discreet.privacy import NoPromise, Promise, PureDP, floors
from discreet.privacy.bounded import in_range_epsilon, in_range_floor, in_range_law
from discreet.privacy.calibration import group_epsilon
from discreet.release.base import check_noise
from discreet.release.mechanism import NumberMechanism, uniform_prior

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Bools, Floats
    from discreet.noise import BoxDensity, InRange, Stream
    from discreet.noise_law import BoundedLaw, Law
    from discreet.privacy import ColumnFloor
    from discreet.release._bounded import BoundedNumbers
    from discreet.schema import Column


MOST_COLUMNS = 3
"""Columns up to which a joint density is solved for."""
NO_DELTA = "noise of bounded support excludes values, and no delta is proven for noise that columns share"


class InRangeNumbers(NumberMechanism):
    """In-range mechanism: every output is drawn inside the declared range, from a table by input.

    Parameters
    ----------
    columns : tuple of Column
        Numeric columns that are randomized.
    laws : tuple of InRange
        Table of output probabilities of each column, on its declared range.
    """

    def __init__(self, columns: tuple[Column, ...], laws: tuple[InRange, ...]) -> None:
        self.columns = columns
        self.laws = laws

    def epsilon(self, column: Column) -> float:
        """Return the pure epsilon of one cell, computed from its table of probabilities."""
        return in_range_epsilon(self.laws[self.column_index(column)])

    def law(self, column: Column) -> InRangeLaw:
        """Return the public law of the noise of one column."""
        law = self.laws[self.column_index(column)]
        return InRangeLaw(
            lower=law.lower,
            upper=law.upper,
            regularization=law.regularization,
            inputs=law.inputs,
            cells=law.cells,
        )

    def promises(self, n_rows: int, rows: int, common: dict[str, Any]) -> list[Promise]:
        """Return the sum of the epsilons of the columns: pure, without total variation."""
        # The sum is rounded once, to the nearest; the factor takes it above the exact one.
        epsilon = math.fsum(self.epsilon(c) for c in self.columns) * (1 + 2.0**-50)
        covers = tuple(c.name for c in self.columns)
        return [PureDP(epsilon=group_epsilon(epsilon, rows), covers=covers, **common)]

    def floor(self, column: Column, rows: int) -> ColumnFloor | None:
        """Return the Bayes error under the uniform prior; None for units with several rows."""
        if rows > 1:
            return None
        prior = uniform_prior(column)
        # Stored numbers are off by up to half the spacing of 64-bit numbers, which no floor may count.
        error = in_range_floor(self.laws[self.column_index(column)], prior) - 0.5 * prior.resolution
        return floors.column_floor(error, prior, measure=column.measure)

    def release(self, matrix: Floats, stream: Stream) -> Floats:
        """Return cells drawn from the row of the table that belongs to their value."""
        return np.column_stack([law.draw(matrix[:, j], stream) for j, law in enumerate(self.laws)])

    def scaled(self, factor: float) -> InRangeNumbers:
        """Return the mechanism with the epsilon of each column divided by ``factor``."""
        laws = tuple(
            in_range_law(self.epsilon(c) / factor, law.lower, law.upper, inputs=law.inputs)
            for c, law in zip(self.columns, self.laws, strict=True)
        )
        return InRangeNumbers(self.columns, laws)

    def repeat_chance(self) -> float:
        """Return the largest mass of an output cell, multiplied over columns."""
        return math.prod(float(law.masses.max()) / 2.0**TOTAL_BITS for law in self.laws)

    def output_range(self, column: Column) -> tuple[float, float]:
        """Return the declared range of a column."""
        return column.range

    def is_possible(self, matrix: Floats) -> Bools:
        """Return, cell by cell, whether the number is the middle of an output cell, to the last bit."""
        out = np.empty(matrix.shape, bool)
        for j, law in enumerate(self.laws):
            places = np.rint((matrix[:, j] - law.lower) / ((law.upper - law.lower) / law.cells) - 0.5)
            # A missing cell has no index; it is compared with the first output, and differs.
            nearest = np.clip(np.nan_to_num(places), 0, law.cells - 1).astype(np.int64)
            near = (np.clip(nearest + shift, 0, law.cells - 1) for shift in (0, -1, 1))
            out[:, j] = np.any([same_bits(law.outputs[index], matrix[:, j]) for index in near], axis=0)
        return out


class JointBoundedNumbers(NumberMechanism):
    """Noise of one joint density on some numbers of a row, and independent bounded noise on the others.

    Parameters
    ----------
    columns : tuple of Column
        Numeric columns that get the noise, in the order of the matrices.
    names : tuple of str
        Names of the columns that share their noise, two or three of them.
    box : BoxDensity
        Joint density of their noise, in the units of the columns.
    others : BoundedNumbers or None
        Independent noise of all other columns; None if there are none.

    Notes
    -----
    As for :class:`~discreet.release._bounded.BoundedNumbers`, a cell x becomes
    ``lower + l + (k + n + 1/2) s`` with the lattice integer ``k = round((x - lower) / s)``; the cells n of a
    row are drawn together.
    """

    def __init__(
        self,
        columns: tuple[Column, ...],
        names: tuple[str, ...],
        box: BoxDensity,
        others: BoundedNumbers | None,
    ) -> None:
        """Check the supports against the declared ranges and compute the integer box."""
        self.columns = columns
        self.names = names
        self.box = box
        self.others = others
        self._joint = tuple(next(c for c in columns if c.name == name) for name in names)
        check_noise(self._joint, 0.5 * (box.upper - box.lower), "The support of bounded noise")
        self._top = [round(c.width / step) for c, step in zip(self._joint, box.step.tolist(), strict=True)]
        if max(self._top) >= 1 << 50:
            raise ParameterError(
                "The support of bounded noise must be at least 2**-26 of its column's range. "
                "Ask for more noise, or declare tighter bounds."
            )

    def _place(self, column: Column) -> int | None:
        """Return the position of a column in the box; None if its noise is its own."""
        return self.names.index(column.name) if column.name in self.names else None

    @property
    def covariance(self) -> Floats:
        """Covariance of the noise of all columns, in their units."""
        out = np.zeros((len(self.columns), len(self.columns)))
        if self.others is not None:
            for column in self.others.columns:
                j = self.column_index(column)
                out[j, j] = self.others.density(column).variance
        places = [self.column_index(column) for column in self._joint]
        out[np.ix_(places, places)] = self.box.covariance
        return out

    def law(self, column: Column) -> BoundedLaw:
        """Return the public law of the noise of one column, with the joint density that it belongs to."""
        j = self._place(column)
        if j is None:
            assert self.others is not None
            return self.others.law(column)
        covariance = self.box.covariance
        return JointBoundedLaw(
            variance=float(covariance[j, j]),
            mean=float(self.box.mean[j]),
            lower=float(self.box.lower[j]),
            upper=float(self.box.upper[j]),
            regularization=float(self.box.regularization),
            columns=self.names,
            covariances=tuple(covariance[j].tolist()),
            supports=tuple(zip(self.box.lower.tolist(), self.box.upper.tolist(), strict=True)),
            weights=tuple(map(tuple, self.box.weights.tolist())),
        )

    def promises(self, n_rows: int, rows: int, common: dict[str, Any]) -> list[Promise]:
        """Return a ``NoPromise`` for the columns that share their noise, and what the others promise."""
        away = min(n_rows * self.box.total_variation, 0.5)
        own: list[Promise] = [NoPromise(NO_DELTA, covers=self.names, total_variation=away, **common)]
        return own if self.others is None else [*own, *self.others.promises(n_rows, rows, common)]

    def floor(self, column: Column, rows: int) -> ColumnFloor | None:
        """Return a floor under the uniform prior, for numbers of units with one row; None for others.

        Notes
        -----
        It holds against attackers who know all other cells of the row, so that the information is that of
        the joint density, ``I_jj``. An integer may be given back exactly by noise of any information.
        """
        j = self._place(column)
        if j is None:
            assert self.others is not None
            return self.others.floor(column, rows)
        if rows > 1 or column.type != "number":
            return None
        prior = uniform_prior(column)
        # The information of the law is a sum of its coefficients, rounded up by more than their rounding.
        information = float(self.box.information[j, j]) * (1 + 1e-9)
        error = floors.root_floor(
            uniform_mean_square(information, column.width),
            prior,
            total_variation=self.box.total_variation,
            lattice_step=float(self.box.step[j]),
        )
        return floors.column_floor(error, prior, measure=column.measure)

    def release(self, matrix: Floats, stream: Stream) -> Floats:
        """Return rows rounded to the lattice, clamped to the integer box, noised and mapped back."""
        out = np.empty(matrix.shape)
        if self.others is not None:
            places = [self.column_index(column) for column in self.others.columns]
            out[:, places] = self.others.release(matrix[:, places], stream)
        drawn = self.box.integers(len(matrix), stream)
        for j, column in enumerate(self._joint):
            place = self.column_index(column)
            lattice = np.rint((matrix[:, place] - column.range[0]) / self.box.step[j])
            np.clip(lattice, 0, self._top[j], out=lattice)
            out[:, place] = self._restore(lattice + drawn[:, j], j)
        return out

    def _restore(self, lattice: Floats, j: int) -> Floats:
        """Return lattice integers of column j of the box in the unit of the column."""
        start = self._joint[j].range[0] + self.box.lower[j]
        return np.asarray(start + (lattice + 0.5) * self.box.step[j])

    def scaled(self, factor: float) -> JointBoundedNumbers:
        """Return the mechanism with densities of the same shape, ``factor`` times as wide."""
        others = None if self.others is None else self.others.scaled(factor)
        return JointBoundedNumbers(self.columns, self.names, self.box.scaled(factor), others)

    def is_possible(self, matrix: Floats) -> Bools:
        """Return, cell by cell, whether the number is on the lattice and in the range of the outputs."""
        out = np.empty(matrix.shape, bool)
        if self.others is not None:
            places = [self.column_index(column) for column in self.others.columns]
            out[:, places] = self.others.is_possible(matrix[:, places])
        for j, column in enumerate(self._joint):
            values = matrix[:, self.column_index(column)]
            cells = (values - (column.range[0] + self.box.lower[j])) / self.box.step[j] - 0.5
            index = lattice_places(values, cells, functools.partial(self._restore, j=j))
            out[:, self.column_index(column)] = (index >= 0) & (index <= self._top[j] + CELLS - 1)
        return out

    def repeat_chance(self) -> float:
        """Return the largest mass of a lattice cell of the box, times that of the other columns."""
        chance = self.box.largest_density * math.prod(self.box.step.tolist())
        for column, step in zip(self._joint, self.box.step.tolist(), strict=True):
            # Far from 0 several lattice points may be stored as one 64-bit number.
            end = np.array(max(map(abs, self.output_range(column))))
            chance *= float(points_per_double(end, step))
        return float(min(1.0, chance)) * (1.0 if self.others is None else self.others.repeat_chance())

    def output_range(self, column: Column) -> tuple[float, float]:
        """Return the declared range, widened by the support of the noise and a lattice step."""
        j = self._place(column)
        if j is None:
            assert self.others is not None
            return self.others.output_range(column)
        step = float(self.box.step[j])
        return (
            column.range[0] + float(self.box.lower[j]) - step,
            column.range[1] + float(self.box.upper[j]) + step,
        )

    def with_laws(self, laws: Mapping[str, Law]) -> JointBoundedNumbers:
        """Return the mechanism with the sizes that published laws state; those of the box are parameters."""
        if self.others is None:
            return self
        return JointBoundedNumbers(self.columns, self.names, self.box, self.others.with_laws(laws))


def uniform_mean_square(information: float, width: float) -> float:
    """Return a lower bound on the Bayes mean square error of a value from a uniform prior.

    Parameters
    ----------
    information : float
        Fisher information of the observation about the location of the value.
    width : float
        Width of the range over which the value is uniform.

    Notes
    -----
    ``(1 - tanh(s) / s) / information`` with ``s = sqrt(information) width / 2``: the best of van Trees'
    bounds with a weight that vanishes at both ends. Without information it is the variance of the prior.

    Reference
    ---------
    docs/explanation/theorems/fisher-bounded.md, Lemma 5; Gill and Levit (1995).

    Examples
    --------
    >>> round(uniform_mean_square(1e-9, 1.0), 6), round(uniform_mean_square(1e6, 1.0) * 1e6, 3)
    (0.083333, 0.998)
    """
    s = math.sqrt(information) * width / 2
    if s < 1e-3:
        # Of the series 1/3 - 2 s^2 / 15 + ..., whose terms alternate; the difference would lose all digits.
        return width * width / 4 * (1 / 3 - 2 * s * s / 15)
    return (1 - math.tanh(s) / s) / information * (1 - 1e-9)


def check_joint(given: Any, weights: Any) -> tuple[str, ...] | None:
    """Return the names of columns that share their noise; raise unless there are two or three of them.

    Parameters
    ----------
    given : sequence of str or None
        Parameter ``joint`` of a release.
    weights : array or None
        Parameter ``weights`` of it.
    """
    if given is None:
        return None
    names = tuple(given) if isinstance(given, list | tuple) else ()
    if not (2 <= len(set(names)) == len(names) <= MOST_COLUMNS and all(isinstance(n, str) for n in names)):
        raise ParameterError(
            f"joint of BoundedRelease must be a list of two or three different columns, was {given!r}. Noise "
            "of more columns is independent, which is best for weights without correlations."
        )
    if np.ndim(weights) != 2:
        raise ParameterError(
            "weights of BoundedRelease must be a matrix where joint= names columns: with one weight for each "
            "column independent noise is the optimum already. Leave joint out, or give the matrix."
        )
    return names
