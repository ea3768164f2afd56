"""Distances between a synthetic table and the rows it was made from, counted over all rows; internal."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from discreet.evaluation.columns import ColumnTotals, CorrelationSums, compare_columns, compare_correlations
from discreet.query.aggregates.histogram import Axis
from discreet.query.curation import Curation
from discreet.query.features import Band
from discreet.query.passes import MarginalsPass
from discreet.report.findings import TableQuality

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.report.findings import ColumnComparison, Correlations
    from discreet.report.noisy_tables import MeasuredTables
    from discreet.schema import Schema

    Batch = Mapping[str, AnyArray]


class TableTally:
    """Counts of true and of made rows in the cells of every column and pair, with moments of numbers.

    One pass over each side, in memory that does not grow with the rows.

    Parameters
    ----------
    schema : Schema
        Schema of the table that the release was made from.
    measured : MeasuredTables
        Cells of every column, from the published answers.

    Privacy
    -------
    Counts true rows without noise: nothing computed from it may leave the curator.
    """

    def __init__(self, schema: Schema, measured: MeasuredTables) -> None:
        """Lay out one table for every column and every pair, as the questions of the release do."""
        self.measured = measured
        self._curation = Curation.from_schema(schema)
        self._kernel = _make_kernel(self._curation, measured)
        self._counts = tuple(np.zeros(self._kernel.size if self._kernel else 0, np.int64) for _ in range(2))
        self._totals = {column.name: ColumnTotals(column) for column in schema.released}
        self._sums = CorrelationSums(schema), CorrelationSums(schema)
        self._rows = [0, 0]

    def add_true(self, batches: Iterable[Batch]) -> None:
        """Count true rows, encoded as tables are read."""
        self._add(0, batches)

    def add_made(self, batches: Iterable[Batch]) -> None:
        """Count made rows, encoded alike."""
        self._add(1, batches)

    def _add(self, side: int, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self._rows[side] += len(next(iter(batch.values())))
            for name, totals in self._totals.items():
                (totals.release if side else totals.original).add(batch[name])
            self._sums[side].add(batch)
            if self._kernel is not None:
                arrays = self._curation.encode(batch)
                self._counts[side][:] += self._kernel([arrays[name] for name in self._kernel.columns])

    def compare_columns(self) -> list[ColumnComparison]:
        """Return every column before and after, the one that changed most first."""
        return compare_columns(self._totals.values())

    def compare_correlations(self) -> Correlations | None:
        """Return the correlations between numbers before and after."""
        return compare_correlations(*self._sums)

    def measure(self) -> TableQuality:
        """Return all distances; there must be rows on both sides."""
        tables = [self._split(counts) for counts in self._counts]
        distances = [_distance(true, made) for true, made in zip(*tables, strict=True)]
        chances = [_expected_distance(true) for true in tables[0]]
        size = len(self.measured.names)
        pairs = iter(distances[size:])
        correlations = self.compare_correlations()
        return TableQuality(
            measured=self.measured,
            rows=self._rows[0],
            made_rows=self._rows[1],
            one_way=distances[:size],
            one_way_chance=chances[:size],
            two_way=[[next(pairs) for _ in range(i)] for i in range(size)],
            two_way_chance=float(np.mean(chances[size:])) if len(chances) > size else 0.0,
            means=self._mean_errors(),
            correlation_error=None if correlations is None else _mean_error(correlations),
        )

    def _split(self, counts: Ints) -> list[Ints]:
        """Return the counts of each table: those of columns, then those of pairs."""
        if self._kernel is None:
            return []
        sizes = [math.prod(self._kernel.bands[i].size for i in table) for table in self._kernel.tables]
        return np.split(counts, np.cumsum(sizes)[:-1])

    def _mean_errors(self) -> dict[str, float]:
        """Return the error of the mean of each number, in standard deviations of the true column."""
        errors = {}
        for name, totals in self._totals.items():
            true, sd, made = totals.original.mean, totals.original.sd, totals.release.mean
            if true is not None and made is not None and sd:
                errors[name] = abs(made - true) / sd
        return errors


def _make_kernel(curation: Curation, measured: MeasuredTables) -> MarginalsPass | None:
    """Return the pass that counts every column and, by rows of the lower triangle, every pair."""
    columns: list[str] = []
    bands: list[Band] = []
    for one in measured.columns:
        if one.cells < 2:
            continue
        axis = Axis.from_curation(curation, one.column, {one.column: one.edges} if one.edges else {})
        place, curated = len(columns), axis.column
        columns.append(curated.sql if axis.starts is None else curated.exact)
        flag = None if curated.flag is None else len(columns)
        columns.extend([] if curated.flag is None else [curated.flag])
        bands.append(Band(place, axis.starts, flag, curated.top, tuple(one.groups) or None))
    if not bands:
        return None
    places = range(len(bands))
    tables = [(i,) for i in places] + [(i, j) for i in places for j in range(i)]
    return MarginalsPass(tuple(columns), tuple(bands), tuple(tables))


def _distance(true: Ints, made: Ints) -> float:
    """Return the distance in total variation of two tables of counts."""
    return float(np.abs(true / max(true.sum(), 1) - made / max(made.sum(), 1)).sum() / 2)


def _expected_distance(counts: Ints) -> float:
    """Return the mean distance of a table from one of as many rows, drawn from it with replacement.

    Notes
    -----
    A share ``p`` of ``n`` rows then deviates by ``sqrt(2 p (1 - p) / (pi n))`` on average, by the normal
    approximation, and by at most ``2 p (1 - p)``, which counts where few rows are expected.
    """
    n = max(int(counts.sum()), 1)
    shares: Floats = counts / n
    spread = shares * (1 - shares)
    return float(np.minimum(np.sqrt(2 * spread / (math.pi * n)), 2 * spread).sum() / 2)


def _mean_error(correlations: Correlations) -> float:
    pairs = itertools.combinations(range(len(correlations.columns)), 2)
    return float(np.mean([abs(correlations.release[i][j] - correlations.original[i][j]) for i, j in pairs]))
