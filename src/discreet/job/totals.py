"""Counts, sums and squares of one column before and after, over every row of a table of any length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from discreet._typing import AnyArray, Floats, Ints
    from discreet.schema import Column

MOST_BINS = 256
# A value on the upper bound belongs to the last bin; a part in 2**40 moves it there.
_INSIDE = 1 - 2.0**-40


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal bins over what was declared about a number.

    Each whole number is the middle of a bin of its own where there are few enough of them.

    Attributes
    ----------
    lower, upper : float
        The declared range, for whole numbers half a step more on either side.
    count : int
        How many bins.
    """

    lower: float
    upper: float
    count: int

    @classmethod
    def of(cls, column: Column) -> Bins:
        """Return the bins of a number, an integer or a date."""
        lower, upper = column.range
        if column.type == "number":
            return cls(lower, upper, MOST_BINS)
        return cls(lower - 0.5, upper + 0.5, min(column.n_integers, MOST_BINS))

    @property
    def width(self) -> float:
        """Of the whole range."""
        return self.upper - self.lower

    def edges(self) -> Floats:
        """Return the ends of the bins, one more than there are bins."""
        return np.linspace(self.lower, self.upper, self.count + 1)


class Tally:
    """One side of a column: where its cells are, and their first two moments.

    Attributes
    ----------
    counts : array of int64
        Cells in each level of a list; of a number in each bin, with one more bin below and one above.
    missing : int
        Missing cells of a number; a list has a level for them.
    """

    __slots__ = ("_bins", "_squares", "_sum", "counts", "missing")

    def __init__(self, bins: Bins | int) -> None:
        self._bins = bins
        self.counts: Ints = np.zeros(bins if isinstance(bins, int) else bins.count + 2, np.int64)
        self.missing = 0
        self._sum = self._squares = 0.0

    def add(self, values: AnyArray) -> None:
        """Count some cells."""
        if isinstance(self._bins, int):
            self.counts += np.bincount(values, minlength=self._bins)
            return
        bins = self._bins
        share = values - bins.lower
        share *= _INSIDE / bins.width
        sum_ = float(share.sum())
        if math.isnan(sum_):
            present = share[~np.isnan(share)]
            self.missing += share.size - present.size
            share, sum_ = present, float(present.sum())
        self._sum += sum_
        self._squares += float(share @ share)
        share *= bins.count
        share += 1.0
        np.clip(share, 0.0, bins.count + 1.0, out=share)
        self.counts += np.bincount(share.astype(np.int32), minlength=bins.count + 2)

    @property
    def present(self) -> int:
        """How many cells were counted and not missing."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float | None:
        """Of a number, in its unit; None where no cell is present."""
        if isinstance(self._bins, int) or not self.present:
            return None
        return self._bins.lower + self._sum / self.present * self._bins.width / _INSIDE

    @property
    def sd(self) -> float | None:
        """Standard deviation of a number, in its unit; None where no cell is present."""
        if isinstance(self._bins, int) or not self.present:
            return None
        mean = self._sum / self.present
        variance = max(0.0, self._squares / self.present - mean**2)
        return math.sqrt(variance) * self._bins.width / _INSIDE


class ColumnTotals:
    """A column before and after.

    Parameters
    ----------
    column : Column
        What was declared about it.

    Attributes
    ----------
    bins : Bins or None
        Of a number; None for a list.
    original, release : Tally
        The two sides.
    """

    __slots__ = ("bins", "column", "original", "release")

    def __init__(self, column: Column) -> None:
        self.column = column
        self.bins = None if column.is_category else Bins.of(column)
        cells: Bins | int = len(column.levels) if self.bins is None else self.bins
        self.original = Tally(cells)
        self.release = Tally(cells)

    def add(self, original: AnyArray, release: AnyArray) -> None:
        """Count the same rows on both sides."""
        self.original.add(original)
        self.release.add(release)
