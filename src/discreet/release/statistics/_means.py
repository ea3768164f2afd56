"""Sums behind a mean: bounds on what is inside cells, with the noise of the counts that they use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.query.intervals import NoisyRatio
from discreet.release.statistics._column_counts import cell_ends
from discreet.release.statistics._published_counts import match_cells

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats
    from discreet.query.aggregates.histogram import Axis
    from discreet.release.statistics._column_counts import ColumnCounts
    from discreet.release.statistics._published_counts import CountTable

_PARTS = 16  # the share of rows in a group is rounded down to parts of this many
_EXACT = 1e-12  # variance of the number of rows, relative to all noise, that is due to rounding


@dataclass(frozen=True)
class MeanSums:
    """Quotients that bound the means of some groups, less a constant.

    Attributes
    ----------
    lower, upper : NoisyRatio
        Sums that no mean is below and none is above, over the numbers of rows.
    middle : NoisyRatio
        Sums with the mean of each cell as far as it is known.
    """

    lower: NoisyRatio
    upper: NoisyRatio
    middle: NoisyRatio


def sum_column(own: ColumnCounts, chosen: AnyArray, shift: float) -> MeanSums:
    """Return the sums of a column over some of its own cells.

    Parameters
    ----------
    own : ColumnCounts
        Counts of the column in its finest cells.
    chosen : array of bool
        Cells that are averaged over.
    shift : float
        Constant that is subtracted from all values.
    """
    below = np.ravel(chosen).astype(np.float64)
    low, high = cell_ends(own.axis)
    parts = [_covary(own, below * (one - shift), below) for one in (low, high, own.representatives(own.axis))]
    return MeanSums(*parts)


def _covary(own: ColumnCounts, above: Floats, below: Floats) -> NoisyRatio:
    """Return two sums of the same counts, with the covariances of their noise."""
    pairs = ((above, above), (above, below), (below, below))
    first, both, second = (float(a @ own.covariance @ b) for a, b in pairs)
    if second <= _EXACT * float(np.trace(own.covariance)):  # a public number of rows
        both = second = 0.0
    parts = (above @ own.values, below @ own.values, max(first, 0.0), both, second)
    return NoisyRatio(*(np.array([part]) for part in parts))


@dataclass(frozen=True, eq=False)
class GroupCounts:
    """Noisy counts of groups, for each cell of the column that is averaged.

    Attributes
    ----------
    axis : Axis
        Cells of the column.
    values, variances : array of shape (groups, cells)
        Counts and the variances of their noise, which is independent.
    own : ColumnCounts or None
        Counts of the column over all rows; None where they are not known.
    fine : CountTable or None
        Fine counts of the column, whose noise is independent of that of the groups; None without any.
    width : float
        Half the width of an interval, in standard deviations.
    """

    axis: Axis
    values: Floats
    variances: Floats
    own: ColumnCounts | None
    fine: CountTable | None
    width: float

    def sums(self, shift: float) -> MeanSums:
        """Return the sums of all groups.

        Parameters
        ----------
        shift : float
            Constant that is subtracted from all values.
        """
        low, high = (end - shift for end in cell_ends(self.axis))
        middle = (low + high) / 2 if self.own is None else self.own.representatives(self.axis) - shift
        # Of values with the opposite sign, the lower bound is less the upper one.
        lower, upper = self._bound(low, high, shift, 1.0), self._bound(-high, -low, shift, -1.0)
        upper = upper._replace(above=-upper.above, covariance=-upper.covariance)
        return MeanSums(lower, upper, self._plain(middle))

    def _plain(self, numbers: Floats) -> NoisyRatio:
        """Return the sums with one number for each cell."""
        return NoisyRatio(
            self.values @ numbers,
            self.values.sum(axis=1),
            self.variances @ (numbers * numbers),
            self.variances @ numbers,
            self.variances.sum(axis=1),
        )

    def _bound(self, low: Floats, high: Floats, shift: float, sign: float) -> NoisyRatio:
        """Return sums that the exact ones are not below: each group has the lowest values there are.

        Notes
        -----
        Any ``N`` of ``F_k`` rows with values from ``x_k`` on have a sum of at least
        ``N t + sum F_k min(x_k - t, 0)``, for every ``t``; it is largest if ``N`` rows are below ``t``. As
        ``t`` serves the place in each cell below which the group's share of all rows would be, were they
        spread evenly: it depends on one precise number alone. The bound is linear in the counts, and used
        where it gains more than the noise of the fine counts costs; otherwise every row is at the lower end
        of its cell.
        """
        plain = self._plain(low)
        places = None if self.fine is None else match_cells(next(iter(self.fine.axes.values())), self.axis)
        if self.fine is None or places is None:
            return plain
        total = max(float(self.fine.values.sum()), 1.0)
        shares = np.floor(_PARTS * np.clip(plain.below / total, 0.0, 1.0)) / _PARTS
        ends = cell_ends(next(iter(self.fine.axes.values())))[0 if sign > 0 else 1]
        fine = sign * (ends - shift)
        for group in np.flatnonzero(shares > 0):
            # Cells outside a condition have no rows of the group, and no noise.
            turn = low + shares[group] * (high - low) * (self.variances[group] > 0)
            beneath = np.minimum(fine - turn[places], 0.0)
            self._improve(plain, int(group), turn, beneath)
        return plain

    def _improve(self, plain: NoisyRatio, group: int, turn: Floats, beneath: Floats) -> None:
        """Write the bound of one group that uses fine counts, where it is the better one."""
        assert self.fine is not None
        above = float(self.values[group] @ turn + beneath @ self.fine.values)
        variances = self.variances[group]
        own = float(variances @ (turn * turn)) + self.fine.sd**2 * float(beneath @ beneath)
        gain = above - float(plain.above[group])
        if gain > 2 * self.width * self.fine.sd * float(np.sqrt(beneath @ beneath)):
            plain.above[group] = above
            plain.above_variance[group] = own
            plain.covariance[group] = float(variances @ turn)


def find_fine(tables: tuple[CountTable, ...], name: str) -> CountTable | None:
    """Return the fine counts of a column; None where it has none."""
    return next((table for table in tables if table.is_fine and tuple(table.axes) == (name,)), None)
