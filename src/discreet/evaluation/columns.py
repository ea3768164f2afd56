"""Comparison of published columns with true ones, from counts and moments over all rows; internal.

:class:`ColumnTotals` accumulates both sides of one column in constant memory. :func:`compare_columns` and
:func:`correlate` make the comparisons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.report.findings import ColumnComparison, Correlations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.schema import Column, Schema

MOST_BARS = 24
MOST_CORRELATED = 40
MOST_BINS = 256
# A value on the upper bound belongs to the last bin; a part in 2**40 moves it there.
_INSIDE = 1 - 2.0**-40


@dataclass(frozen=True, slots=True)
class HistogramBins:
    """Bins of equal width over the declared range of a number.

    Each integer is the middle of a bin of its own if there are at most 256 of them.

    Attributes
    ----------
    lower, upper : float
        Ends of the declared range, for integers and dates half a step farther out.
    count : int
        Number of bins between the two ends.
    """

    lower: float
    upper: float
    count: int

    @classmethod
    def from_column(cls, column: Column) -> HistogramBins:
        """Return the bins of a number, an integer or a date."""
        lower, upper = column.range
        if column.type == "number":
            return cls(lower, upper, MOST_BINS)
        # Half a unit beyond both ends: where every integer has a bin, it lies in its middle.
        return cls(lower - 0.5, upper + 0.5, min(column.n_integers, MOST_BINS))

    @property
    def width(self) -> float:
        """Distance from the first to the last edge."""
        return self.upper - self.lower

    def edges(self) -> Floats:
        """Return the edges of the bins, of shape (count + 1,)."""
        return np.linspace(self.lower, self.upper, self.count + 1)


class ColumnTally:
    """Counts and first two moments of one column on one side.

    Attributes
    ----------
    counts : array of int64
        Number of cells in each level of a list, or in each bin of a number with one bin below and one above.
    missing : int
        Number of missing cells of a number; a list has a level for them.
    """

    __slots__ = ("_bins", "_squares", "_sum", "counts", "missing")

    def __init__(self, bins: HistogramBins | int) -> None:
        self._bins = bins
        self.counts: Ints = np.zeros(bins if isinstance(bins, int) else bins.count + 2, np.int64)
        self.missing = 0
        self._sum = self._squares = 0.0

    def add(self, values: AnyArray) -> None:
        """Add the cells of a batch: codes of a list, or numbers with NaN for missing."""
        if isinstance(self._bins, int):
            self.counts += np.bincount(values, minlength=self._bins)
            return
        bins = self._bins
        share = values - bins.lower
        share *= _INSIDE / bins.width
        sum_ = float(share.sum())
        # The sum shows whether any cell is missing, without a pass of its own.
        if math.isnan(sum_):
            present = share[~np.isnan(share)]
            self.missing += share.size - present.size
            share, sum_ = present, float(present.sum())
        self._sum += sum_
        self._squares += float(share @ share)
        share *= bins.count
        share += 1.0
        # Clipped before the cast, which is undefined for floats beyond the integers.
        np.clip(share, 0.0, bins.count + 1.0, out=share)
        self.counts += np.bincount(share.astype(np.int32), minlength=bins.count + 2)

    @property
    def present(self) -> int:
        """Number of cells that are not missing."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float | None:
        """Mean of a number, in its unit; None for a list or where no cell is present."""
        if isinstance(self._bins, int) or not self.present:
            return None
        return self._bins.lower + self._sum / self.present * self._bins.width / _INSIDE

    @property
    def sd(self) -> float | None:
        """Standard deviation of a number, in its unit; None for a list or where no cell is present."""
        if isinstance(self._bins, int) or not self.present:
            return None
        mean = self._sum / self.present
        # In shares of the declared range: rounding costs about 1e-16 of its square, not of the mean's.
        variance = max(0.0, self._squares / self.present - mean**2)
        return math.sqrt(variance) * self._bins.width / _INSIDE


class ColumnTotals:
    """Tallies of one column before and after a release.

    Parameters
    ----------
    column : Column
        Declaration of the column in the schema.

    Attributes
    ----------
    bins : HistogramBins or None
        Bins of a number; None for a list.
    original, release : ColumnTally
        Tallies of the true and of the published cells.
    """

    __slots__ = ("bins", "column", "original", "release")

    def __init__(self, column: Column) -> None:
        self.column = column
        self.bins = None if column.is_category else HistogramBins.from_column(column)
        cells: HistogramBins | int = len(column.levels) if self.bins is None else self.bins
        self.original = ColumnTally(cells)
        self.release = ColumnTally(cells)

    def add(self, original: AnyArray, release: AnyArray) -> None:
        """Add the cells of the same rows on both sides."""
        self.original.add(original)
        self.release.add(release)


def compare_columns(
    totals: Iterable[ColumnTotals], unpublished: Mapping[str, str | int] | None = None
) -> list[ColumnComparison]:
    """Compare every column before and after the release, the one that changed most first.

    Parameters
    ----------
    totals : iterable of ColumnTotals
        Totals over all rows, as ``PairedSample.totals.values()``.
    unpublished : mapping of str to level, optional
        For columns that some rows do not show, the level that stands there; only shown cells are compared.

    Returns
    -------
    list of ColumnComparison
        The distance is that of Kolmogorov and Smirnov for a number, read at the ends of up to 256 bins over
        the declared range, and total variation for a list. It is 1 for a column whose cells are all missing
        on one side only.

    Privacy
    -------
    Computed from all true rows: for the curator only.
    """
    hidden = unpublished or {}
    comparisons = [
        _compare_number(t) if t.bins is not None else _compare_list(t, hidden.get(t.column.name))
        for t in totals
    ]
    return sorted(comparisons, key=lambda comparison: -comparison.distance)


def _shares(counts: AnyArray) -> Floats:
    """Return counts divided by their sum; zeros if all are 0."""
    total = counts.sum()
    return counts / total if total else np.zeros(len(counts))


def _compare_number(totals: ColumnTotals) -> ColumnComparison:
    """Return the comparison of a number: the largest difference of the two distribution functions."""
    bins, column = totals.bins, totals.column
    assert bins is not None
    before, after = _shares(totals.original.counts), _shares(totals.release.counts)
    if (totals.original.present > 0) != (totals.release.present > 0):
        distance = 1.0
    else:
        distance = float(np.abs(np.cumsum(before) - np.cumsum(after)).max())
    labels, groups = _bars(column, bins)
    rows = [t.present + t.missing for t in (totals.original, totals.release)]
    missing = [t.missing for t in (totals.original, totals.release)]
    return ColumnComparison(
        column=column.name,
        kind="number",
        measure=column.measure,
        distance=min(1.0, distance),
        labels=labels,
        original=np.add.reduceat(before, groups).tolist(),
        release=np.add.reduceat(after, groups).tolist(),
        original_mean=totals.original.mean,
        original_sd=totals.original.sd,
        release_mean=totals.release.mean,
        release_sd=totals.release.sd,
        outside=float(after[0] + after[-1]),
        missing_original=missing[0] / max(1, rows[0]),
        missing_release=missing[1] / max(1, rows[1]),
    )


def _bars(column: Column, bins: HistogramBins) -> tuple[list[str], list[int]]:
    """Return the labels of the bars of a chart, and the index of the first bin of each.

    The first and the last bar hold what lies outside of the declared range.
    """
    size = -(-bins.count // MOST_BARS)
    starts = list(range(0, bins.count, size))
    edges = bins.edges()
    ends = [*starts[1:], bins.count]
    middles = [(edges[a] + edges[b]) / 2 for a, b in zip(starts, ends, strict=True)]
    lower, upper = column.range
    labels = [
        f"below {_format_value(column, lower)}",
        *(_format_value(column, float(middle)) for middle in middles),
        f"above {_format_value(column, upper)}",
    ]
    return labels, [0, *(start + 1 for start in starts), bins.count + 1]


def _format_value(column: Column, value: float) -> str:
    """Return a number or date as text for a label."""
    if column.is_calendar:
        return str(column.moment(value))
    return f"{value:.4g}"


def _compare_list(totals: ColumnTotals, unpublished: str | int | None) -> ColumnComparison:
    """Return the comparison of a list: the total variation distance of the shares of its levels."""
    column = totals.column
    shown = np.array([unpublished is None or level != unpublished for level in column.levels])
    before, after = (_shares(side.counts[shown]) for side in (totals.original, totals.release))
    levels = [level for level, stays in zip(column.levels, shown, strict=True) if stays]
    labels = ["missing" if level is None else str(level) for level in levels]
    missing = [float(side[-1]) if None in column.levels else 0.0 for side in (before, after)]
    distance = float(np.abs(before - after).sum()) / 2
    if len(labels) > MOST_BARS:
        # The commonest levels stay, in the order of the list; the rest becomes one bar.
        commonest = np.argsort(-(before + after), kind="stable")[: MOST_BARS - 1]
        charted = np.zeros(len(labels), np.bool_)
        charted[commonest] = True
        labels = [label for label, stays in zip(labels, charted, strict=True) if stays]
        labels.append(f"{int((~charted).sum())} others")
        before, after = (np.append(side[charted], side[~charted].sum()) for side in (before, after))
    return ColumnComparison(
        column=column.name,
        kind="list",
        measure=column.measure,
        distance=min(1.0, distance),
        labels=labels,
        original=before.tolist(),
        release=after.tolist(),
        missing_original=missing[0],
        missing_release=missing[1],
    )


def correlate(
    schema: Schema, rows: Mapping[str, AnyArray], published: Mapping[str, AnyArray]
) -> Correlations | None:
    """Return the correlations between numbers before and after the release.

    Parameters
    ----------
    schema : Schema
        Schema of the published table.
    rows, published : mapping of str to array
        True and published rows of the same people; the first 40 numeric columns are used.

    Returns
    -------
    Correlations or None
        None with fewer than two numbers or three rows. Missing cells are left out pair by pair; a constant
        column has the correlation 0.

    Privacy
    -------
    Computed from true rows: for the curator only.
    """
    before, after = CorrelationSums(schema), CorrelationSums(schema)
    before.add(rows)
    after.add(published)
    return compare_correlations(before, after)


def compare_correlations(original: CorrelationSums, release: CorrelationSums) -> Correlations | None:
    """Return the correlations of two tables; None with fewer than two numbers or three rows."""
    if len(original.columns) < 2 or original.n_rows < 3:
        return None
    return Correlations(
        columns=[c.name for c in original.columns],
        original=original.matrix().tolist(),
        release=release.matrix().tolist(),
    )


class CorrelationSums:
    """Sums over rows from which Pearson's correlations follow, each over rows in which both are present.

    Parameters
    ----------
    schema : Schema
        Schema of the table; its first 40 numeric columns are used.

    Notes
    -----
    With indicator ``P`` of present cells, centered cells ``Z`` and counts ``N = P'P``, the products are
    ``Z'Z - S * S' / N`` and the squares ``(Z**2)'P - S**2 / N``, where ``S = Z'P``, entry by entry.
    """

    def __init__(self, schema: Schema) -> None:
        self.columns = [c for c in schema.released if c.is_number][:MOST_CORRELATED]
        self.n_rows = 0
        self._center: Floats | None = None
        size = len(self.columns)
        self._both, self._sums, self._products, self._squares = np.zeros((4, size, size))

    def add(self, rows: Mapping[str, AnyArray]) -> None:
        """Add the rows of a batch: numbers, with NaN for missing."""
        if not self.columns:
            return
        # In units of the declared range no square overflows.
        cells = np.column_stack([(rows[c.name] - c.range[0]) / c.width for c in self.columns])
        present = (~np.isnan(cells)).astype(np.float64)
        cells = np.nan_to_num(cells, nan=0.0)
        if self._center is None:
            # Centered first, so that the subtraction of sums below cancels few digits.
            self._center = cells.sum(axis=0) / np.maximum(present.sum(axis=0), 1)
        cells = (cells - self._center) * present
        self.n_rows += len(cells)
        self._both += present.T @ present
        self._sums += cells.T @ present
        self._products += cells.T @ cells
        self._squares += (cells**2).T @ present

    def matrix(self) -> Floats:
        """Return the matrix of correlations; 0 for a constant column."""
        both, sums = np.maximum(self._both, 1), self._sums
        products = self._products - sums * sums.T / both
        spread = self._squares - sums**2 / both
        # The remaining variance of a constant column is rounding error.
        spread[spread <= 1e-24 * both] = 0.0
        size = np.sqrt(spread * spread.T)
        correlations = np.divide(products, size, out=np.zeros_like(size), where=size > 0)
        np.fill_diagonal(correlations, 1.0)
        return np.asarray(np.clip(correlations, -1.0, 1.0))
