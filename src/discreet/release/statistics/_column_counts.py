"""Counts of one column in its finest cells, from all tables that have it, and the numbers in its cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.query.language.cell_masks import cell_range
from discreet.release.statistics._published_counts import CountTable, match_cells

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats
    from discreet.query.aggregates.histogram import Axis
    from discreet.release.statistics._published_counts import PublishedCounts


@dataclass(frozen=True, eq=False)
class ColumnCounts:
    """Counts of the cells of one column with the covariances of their noise.

    Attributes
    ----------
    table : CountTable
        Table whose cells are counted, which has no other column.
    values : array
        Estimated count of each cell.
    covariance : array
        Covariances of their noise.
    """

    table: CountTable
    values: Floats
    covariance: Floats

    @property
    def axis(self) -> Axis:
        """Cells that are counted."""
        (axis,) = self.table.axes.values()
        return axis

    @classmethod
    def from_tables(cls, counts: PublishedCounts, name: str) -> ColumnCounts | None:
        """Return the best unbiased estimate of all counts of a column; None where no table has it.

        Parameters
        ----------
        counts : PublishedCounts
            Noisy counts of a release.
        name : str
            Name of the column.

        Notes
        -----
        With fine counts of variance ``s^2``, and for the ``K`` of them in one cell its count from other
        tables with variance ``V``, the correction of each is ``s^2 / (K s^2 + V)`` times what the cell lacks.
        A public number of rows corrects all of them by what is then missing.
        """
        axis = counts.axis(name)
        if axis is None:
            return None
        known = counts.estimate(None, [axis], use_total=False)
        fine = next((t for t in counts.tables if t.is_fine and tuple(t.axes) == (name,)), None)
        assert known is not None
        places = None if fine is None else match_cells(fine.axes[name], axis)
        if fine is None or places is None or len(places) <= len(axis.labels):
            values, covariance = known.values, np.diag(known.variances)
            own = _alone(axis, values)
        else:
            own, values, covariance = fine, *_refine(fine, known.values, known.variances, places)
        if counts.n_rows is not None:
            along = covariance.sum(axis=1)
            whole = along.sum()
            if whole > 0:
                values = values + along * ((counts.n_rows - values.sum()) / whole)
                covariance = covariance - np.outer(along, along) / whole
        return cls(own, values, covariance)

    def representatives(self, wanted: Axis) -> Floats:
        """Return a number for each cell of a coarser division: the mean of its values, as far as is known.

        Parameters
        ----------
        wanted : Axis
            Cells for which a number is wanted, of this column.
        """
        lows, highs = cell_ends(self.axis)
        middles = (lows + highs) / 2
        ends = cell_ends(wanted)
        places = match_cells(self.axis, wanted)
        if places is None:
            return (ends[0] + ends[1]) / 2
        weights = np.maximum(self.values, 0.0)
        size = len(wanted.labels)
        total = np.bincount(places, weights=weights, minlength=size)
        sums = np.bincount(places, weights=weights * middles, minlength=size)
        return np.where(total > 0, sums / np.where(total > 0, total, 1.0), (ends[0] + ends[1]) / 2)


def _refine(fine: CountTable, known: Floats, variances: Floats, places: AnyArray) -> tuple[Floats, Floats]:
    """Return fine counts corrected by the counts of the cells they are in, and their covariances."""
    own = fine.sd * fine.sd
    sizes = np.bincount(places, minlength=len(known))
    factors = own / (sizes * own + variances)
    missing = known - np.bincount(places, weights=fine.values, minlength=len(known))
    values = fine.values + (factors * missing)[places]
    together = (places[:, None] == places[None, :]) * factors[places][:, None]
    return values, own * (np.eye(len(places)) - together)


def _alone(axis: Axis, values: Floats) -> CountTable:
    return CountTable({axis.column.name: axis}, values, 0.0, False)


def cell_ends(axis: Axis) -> tuple[Floats, Floats]:
    """Return the least and the largest number of each cell; 0 where it is missing or no number.

    Parameters
    ----------
    axis : Axis
        Cells of a column of numbers or dates, or of a category whose levels are numbers.
    """
    if axis.column.is_category:
        labels = [label if isinstance(label, tuple) else (label,) for label in axis.labels]
        numbers = [[float(x) for x in levels if isinstance(x, int)] or [0.0] for levels in labels]
        ends = [(min(one), max(one)) for one in numbers]
    else:
        ends = [(0.0, 0.0) if x is None else cell_range(axis.column, x) for x in axis.labels]
    low, high = np.array(ends).T
    return low, high
