"""True rows beside published ones: a paired sample, and counts of all rows of two tables; internal."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.evaluation.columns import ColumnTotals, CorrelationSums, compare_columns, compare_correlations
from discreet.query.aggregates.histogram import Axis
from discreet.query.curation import Curation
from discreet.query.features import Band
from discreet.query.passes import MarginalsPass
from discreet.report.findings import TableQuality

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from discreet._types import AnyArray, Floats, Ints, Words
    from discreet.noise import Stream
    from discreet.release.publication import Encoded
    from discreet.report.findings import ColumnComparison, Correlations
    from discreet.report.noisy_tables import MeasuredTables
    from discreet.schema import Schema

    Batch = Mapping[str, AnyArray]

MAX_SAMPLE_ROWS = 20_000
MOST_CELLS = 8_000_000
"""Largest number of true cells, and of published cells, in a sample: 64 MB each."""


class PairedSample:
    """A uniform sample of (true, published) rows of a stream of batches, with totals over all rows.

    Give it to a release as ``publish(watch=pairs)``. Memory does not grow with the number of rows.

    Parameters
    ----------
    schema : Schema
        Schema of the published table, as ``ReleasePlan.schema``.
    stream : Stream
        Source of the choice of rows. It must not be the stream of the noise.
    rows : int
        Largest number of rows in the sample; fewer for very wide tables.
    others : callable, optional
        Function called with the published rows that are not in the sample, each once: when they come, or
        when another row replaces them.

    Attributes
    ----------
    ids : array or None
        Fingerprint of the id of the person of each row in the sample; None where the rows have none.
    seen : int
        Number of rows that were added so far.
    totals : dict of str to ColumnTotals
        Totals of every published column, over all rows so far.

    Privacy
    -------
    Holds true rows: nothing that is computed from it may leave the curator.

    Reference
    ---------
    Every row draws a 64-bit word and the rows with the smallest words stay, so every subset is equally
    likely, up to the chance that two of the words at the border are equal (below ``seen / 2**64``).

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import Column, Schema
    >>> from discreet.noise import Stream
    >>> pairs = PairedSample(Schema(columns=[Column("age", lower=0, upper=120)]), Stream.from_seed(1), rows=3)
    >>> for start in (0, 50):
    ...     ages = np.arange(start, start + 50.0)
    ...     pairs({"age": ages}, {"age": ages + 0.5})
    >>> pairs.seen, pairs.rows["age"].size, (pairs.published_rows["age"] - pairs.rows["age"]).tolist()
    (100, 3, [0.5, 0.5, 0.5])
    """

    def __init__(
        self,
        schema: Schema,
        stream: Stream,
        *,
        rows: int = MAX_SAMPLE_ROWS,
        others: Callable[[Encoded], None] | None = None,
    ) -> None:
        """Set up an empty sample."""
        if rows < 1:
            raise ParameterError(
                f"rows of PairedSample must be at least 1, was {rows}. Leave it out for {MAX_SAMPLE_ROWS:,}."
            )
        self.schema = schema
        self.seen = 0
        self._names = [column.name for column in schema.released]
        self._capacity = min(rows, max(1, MOST_CELLS // len(self._names)))
        self._stream = stream
        self._others = others
        self._words: Words = np.empty(self._capacity, np.uint64)
        self._held = 0
        self._ids: Words | None = None
        self._kept: tuple[dict[str, AnyArray], dict[str, AnyArray]] = ({}, {})
        self.totals = {column.name: ColumnTotals(column) for column in schema.released}

    @property
    def rows(self) -> dict[str, AnyArray]:
        """True rows of the sample, encoded."""
        return {name: values[: self._held] for name, values in self._kept[0].items()}

    @property
    def published_rows(self) -> dict[str, AnyArray]:
        """Published rows of the same people, in the same order."""
        return {name: values[: self._held] for name, values in self._kept[1].items()}

    @property
    def ids(self) -> Words | None:
        """Fingerprint of the id of the person of each row in the sample; None where the rows have none."""
        return None if self._ids is None else self._ids[: self._held]

    @property
    def whole(self) -> bool:
        """Whether every row so far is in the sample."""
        return self._held == self.seen

    def __call__(self, rows: Encoded, published: Encoded) -> None:
        """Add a batch of rows.

        Parameters
        ----------
        rows, published : mapping of str to array
            True and published rows of the same people in the same order; true rows may have the fingerprint
            of the person under the name of the id column.
        """
        n = len(rows[self._names[0]])
        for side in (rows, published):
            if any(len(side[name]) != n for name in self._names):
                raise ParameterError(
                    "PairedSample needs true and published rows of the same people, one for one."
                )
        for name in self._names:
            self.totals[name].add(rows[name], published[name])
        self.seen += n
        self._choose(rows, published, self._stream.words(n))

    def _choose(self, rows: Encoded, published: Encoded, words: Words) -> None:
        """Keep the rows with the smallest words, among the sample and a batch."""
        room = min(self._capacity - self._held, len(words))
        if room:
            # Free slots are filled whatever the words: they compete only for a full sample.
            slots = np.arange(self._held, self._held + room)
            self._store(slots, np.arange(room), rows, published, words)
            self._held += room
        if room == len(words):
            return
        # Only rows with a smaller word than the largest of the sample can enter it.
        below = room + np.flatnonzero(words[room:] < self._words.max())
        pool = np.concatenate([self._words, words[below]])
        stays = np.zeros(pool.size, np.bool_)
        # The smallest words of all so far, whichever batch they came in: a uniform sample without knowing n.
        stays[np.argpartition(pool, self._capacity - 1)[: self._capacity]] = True
        slots, comes = np.flatnonzero(~stays[: self._capacity]), below[stays[self._capacity :]]
        if self._others is not None:
            passes = np.ones(len(words), np.bool_)
            passes[:room] = passes[comes] = False
            earlier = self._kept[1]
            self._others({n: np.concatenate([earlier[n][slots], published[n][passes]]) for n in self._names})
        self._store(slots, comes, rows, published, words)

    def _store(self, slots: Ints, places: Ints, rows: Encoded, published: Encoded, words: Words) -> None:
        """Write the rows at some places of a batch into slots of the sample."""
        self._words[slots] = words[places]
        if self.schema.id_column is not None and self.schema.id_column in rows:
            if self._ids is None:
                self._ids = np.zeros(self._capacity, np.uint64)
            self._ids[slots] = rows[self.schema.id_column][places]
        for kept, side in zip(self._kept, (rows, published), strict=True):
            for name in self._names:
                if name not in kept:
                    kept[name] = np.zeros(self._capacity, side[name].dtype)
                kept[name][slots] = side[name][places]


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
