"""The in-range mechanism on the numbers of a row: outputs stay inside the declared ranges."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.noise.in_range import TOTAL_BITS
from discreet.noise.whitening import same_bits
from discreet.noise_law import InRangeLaw
from discreet.privacy import Promise, PureDP, floors
from discreet.privacy.bounded import in_range_epsilon, in_range_floor, in_range_law
from discreet.privacy.calibration import group_epsilon
from discreet.release.mechanism import NumberMechanism, uniform_prior

if TYPE_CHECKING:
    from discreet._types import Bools, Floats
    from discreet.noise import InRange, Stream
    from discreet.privacy import ColumnFloor
    from discreet.schema import Column


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
