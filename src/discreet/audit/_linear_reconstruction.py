"""Linear reconstruction of unknown cells: one column of many people at once, from all answers."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from discreet.audit._contribution_arrays import RepeatedRows
from discreet.audit.stored_answers import exact_sums
from discreet.errors import ParameterError, PromiseError
from discreet.noise import subsample
from discreet.privacy import GaussianDP, NoPromise, PureDP
from discreet.query.aggregates import BoundAggregate
from discreet.query.engines.tasks import EngineTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit._contribution_arrays import Contributions
    from discreet.audit.stored_answers import StoredAnswer
    from discreet.noise import Stream
    from discreet.privacy import Promise
    from discreet.query.curation import Curated
    from discreet.query.engines.base import Engine
    from discreet.query.execution import QueryExecutor

POINTS = 16
"""Number of values in the prior of a column: its commonest levels, or quantiles of a number."""
MOST_ENTRIES = 512
"""Number of entries of all answers that are used for a column: those with the strongest signal."""
_BLOCK = 256
_BINS = 1024
_DRIFT = 1e-6
"""Relative rounding error that is allowed where a row moves an answer exactly as far as was charged."""
_NOTHING = 1e-20
"""Share of the noise's variance below which an entry depends on a cell by rounding errors alone."""


def sql_names(column: Curated) -> list[str]:
    """Return the names of a column in the engine: those of its cells, and that of the missing flag if any."""
    return [name for name in (column.sql, column.values, column.flag) if name]


@dataclass(frozen=True)
class _RowScan(EngineTask):
    """A pass over the rows themselves, which waits for its turn as an aggregate does.

    Attributes
    ----------
    columns : tuple of str
        SQL names of the curated columns that are read.
    begin : callable
        Called with the number of rows before the first batch.
    see : callable
        Called with the arrays of every batch, in the order of ``columns``.
    """

    columns: tuple[str, ...]
    begin: Callable[[int], None]
    see: Callable[[list[AnyArray]], None]

    @property
    def width(self) -> int:
        """Number of slots in a batch of queries: one pass."""
        return 1

    @property
    def size(self) -> int:
        """Number of sums: none."""
        return 0

    @classmethod
    def run_tasks(cls, engine: Engine, wanted: Sequence[_RowScan]) -> list[list[int]]:
        """Run every scan over the rows of an engine; the sums are empty."""

        def scan() -> list[list[int]]:
            for task in wanted:
                task.begin(engine.count())
                for arrays in engine.batches(task.columns):
                    task.see(arrays)
            return [[] for _ in wanted]

        return engine.run(scan)


def _scan_aggregate(scan: _RowScan) -> BoundAggregate:
    """Return an aggregate without entries that carries a scan, so that it runs in a batch of queries."""
    empty = np.empty(0)
    return BoundAggregate(
        canonical={}, squared=0, absolute=0, precision=(), weight=(), unit=empty, shift=empty,
        places=empty, plain_unit=None, wanted=scan,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class People:
    """The rows that are attacked, and histograms of the columns over all rows.

    Attributes
    ----------
    cells : mapping of str to array
        Curated cells of the attacked rows, by SQL name.
    counts : mapping of str to array
        For each column the number of rows in each cell of a grid, and at the end the number of missing ones.

    Privacy
    -------
    Internal: these are private rows.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """

    cells: Mapping[str, AnyArray]
    counts: Mapping[str, Ints]

    @classmethod
    def from_counts(
        cls, database: QueryExecutor, columns: Sequence[Curated], people: int, stream: Stream | None
    ) -> People:
        """Draw some rows to attack and count the values of some columns over all rows, in one pass.

        Parameters
        ----------
        database : QueryExecutor
            Database whose table is read.
        columns : sequence of Curated
            Columns whose values are counted.
        people : int
            Number of rows to attack, at most all.
        stream : Stream or None
            Source of the choice of rows; None for a fresh one.
        """
        names = [name for column in database.curation.columns for name in sql_names(column)]
        parts: list[list[AnyArray]] = []
        counts = {column.name: np.zeros(_cells(column) + 1, np.int64) for column in columns}

        chosen, start = np.empty(0, np.int64), 0

        def begin(n_rows: int) -> None:
            nonlocal chosen
            chosen = subsample(n_rows, min(people, n_rows), stream)

        def see(arrays: list[AnyArray]) -> None:
            nonlocal start
            end = start + len(arrays[0])
            # The chosen indices are sorted, so those of this batch are a slice.
            here = chosen[np.searchsorted(chosen, start) : np.searchsorted(chosen, end)] - start
            parts.append([array[here] for array in arrays])
            batch = dict(zip(names, arrays, strict=True))
            for column in columns:
                counts[column.name] += np.bincount(_cell(column, batch), minlength=_cells(column) + 1)
            start = end

        exact_sums(database, _scan_aggregate(_RowScan(tuple(names), begin, see)))
        if not parts:
            raise ParameterError("database of reconstruct must have at least one row, and has none.")
        return cls(
            {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(names)}, counts
        )

    @property
    def size(self) -> int:
        """Number of rows that are attacked."""
        return len(next(iter(self.cells.values())))

    def shares(self, column: Curated) -> Floats:
        """Return the share of each level of a category among all rows."""
        counts = self.counts[column.name][: len(column.levels)]
        shares: Floats = counts / counts.sum()
        return shares

    def mean_and_sd(self, column: Curated) -> tuple[float, float]:
        """Return mean and standard deviation of a number over all rows in which it is present."""
        counts = self.counts[column.name][: _cells(column)]
        if not counts.any():
            return column.lower, 0.0
        numbers = column.lower + column.step * _middles(column)
        mean = float(np.average(numbers, weights=counts))
        return mean, math.sqrt(float(np.average((numbers - mean) ** 2, weights=counts)))

    def min_sd(self, column: Curated) -> float:
        """Return a lower bound on the standard deviation: binning moves a value by half a bin at most."""
        _, sd = self.mean_and_sd(column)
        return sd if column.top < _BINS else max(0.0, sd - column.step * (column.top + 1) / _BINS / 2)


def _cells(column: Curated) -> int:
    """Return the number of cells in which the present values of a column are counted."""
    return min(column.top + 1, _BINS)


def _middles(column: Curated) -> Floats:
    """Return the curated integer in the middle of each cell that is counted."""
    size = _cells(column)
    middles: Floats = (np.arange(size, dtype=np.float64) + 0.5) * ((column.top + 1) / size) - 0.5
    return middles


def _cell(column: Curated, arrays: Mapping[str, AnyArray]) -> Ints:
    """Return for each row the cell of a column; one past the last cell if it is missing."""
    cells = arrays[column.sql].astype(np.int64)
    if column.top >= _BINS:
        # Columns with many values are counted in bins of equal width.
        cells = cells * _BINS // (column.top + 1)
    return cells if column.flag is None else np.where(arrays[column.flag] == 1, _cells(column), cells)


@dataclass(frozen=True, eq=False)
class Prior:
    """The attacker's discrete prior of a cell: some values and their probabilities.

    Attributes
    ----------
    cells, missing : array of shape (k,)
        Curated integers of the values, and 1 where the value is "missing".
    weights : array of shape (k,)
        Probabilities of the values, which add up to 1.
    """

    cells: Ints
    missing: AnyArray
    weights: Floats

    @classmethod
    def from_counts(cls, column: Curated, counts: Ints) -> Prior:
        """Choose the commonest levels, or the means of quantile groups of a number, and "missing".

        Parameters
        ----------
        column : Curated
            Column whose cells are guessed.
        counts : array of int
            Histogram of the column over all rows, its last entry the number of missing cells.
        """
        size = _cells(column)
        present, total = counts[:size], counts.sum()
        if column.is_category:
            cells = np.sort(np.argsort(-present, kind="stable")[:POINTS])
            weights = present[cells] / total
        else:
            # All rows in order of the number are cut into groups of equal size; differences of the
            # interpolated cumulative sum give the mean of each group.
            heights = _middles(column)
            ranks = np.linspace(0.0, present.sum(), POINTS + 1)
            below = np.interp(
                ranks, np.append(0, np.cumsum(present)), np.append(0.0, np.cumsum(present * heights))
            )
            means = np.diff(below) * POINTS / max(present.sum(), 1)
            cells, repeats = np.unique(np.floor(means + 0.5).astype(np.int64), return_counts=True)
            weights = present.sum() / total * repeats / POINTS
        missing = np.zeros(cells.size, np.int32)
        if counts[size]:
            cells = np.append(cells, column.integers(np.array([column.fill])))
            missing = np.append(missing, np.int32(1))
            weights = np.append(weights, counts[size] / total)
        kept = weights > 0
        return cls(cells[kept], missing[kept], weights[kept] / weights[kept].sum())

    @property
    def size(self) -> int:
        """Number k of values in the prior."""
        return self.weights.size

    def numbers(self, column: Curated) -> Floats:
        """Return the values in the column's unit; a missing one counts as the mean of the others."""
        numbers: Floats = column.lower + column.step * self.cells.astype(np.float64)
        known = self.missing == 0
        if known.any():
            numbers[~known] = np.average(numbers[known], weights=self.weights[known])
        return numbers


@dataclass(frozen=True, eq=False)
class ColumnPosterior:
    """The attacker's weights of the values of one column, for all attacked rows, given all answers.

    Attributes
    ----------
    prior : Prior
        Values and weights before any answer.
    weights : array of shape (people, values)
        Posterior weights given all answers; a linear guess, so some may be negative.
    control : array of shape (people, values)
        The same if each row's own cell had not contributed to the answers.
    max_shift : float
        Largest distance by which one cell moves all answers, in standard deviations of their noise.
    violations : tuple of (int, float, float)
        Answers that a cell moves further than was charged: the row of the ledger, the distance, and the
        charged distance.

    Privacy
    -------
    Internal. An answer that a cell moves further than was charged breaks its promise with certainty: the
    comparison draws nothing.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """

    prior: Prior
    weights: Floats
    control: Floats
    max_shift: float
    violations: tuple[tuple[int, float, float], ...]


class ColumnAttacker:
    """Guesses one column of some people from answers that are added piece by piece.

    Only the number and strength of the strongest entries is kept between two pieces, so that its memory is
    bounded; their contributions are computed again for a guess.

    Parameters
    ----------
    column : Curated
        Column whose cells are unknown to the attacker.
    people : People
        Rows that are attacked; all their other cells are known.

    Attributes
    ----------
    answers : int
        Number of answers that depend on the column so far.

    Privacy
    -------
    Internal.

    Notes
    -----
    All entries are divided by the sd of their noise. ``H[q, ik]`` is what person i adds to entry q if the
    cell has value k, centered over the prior ``w``; ``y`` is the sum of the true contributions, centered
    alike, plus the noise. With ``S = H diag(w) H' + I`` the weight of value k of person i is
    ``w_k (1 + h_ik' S^-1 y)``. The control leaves the person's own contribution out of ``y``.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """

    def __init__(self, column: Curated, people: People) -> None:
        self.answers = 0
        self._column, self._people = column, people
        self._prior = Prior.from_counts(column, people.counts[column.name])
        self._squared_shifts = np.zeros((people.size, self._prior.size))
        self._violations: list[tuple[int, float, float]] = []
        self._strongest: list[tuple[float, StoredAnswer, int]] = []  # strength, answer, entry of the answer

    def add(self, answers: Sequence[StoredAnswer]) -> None:
        """Add the answers of a list that depend on the column."""
        relevant = [a for a in answers if not a.contributions.reads.isdisjoint(sql_names(self._column))]
        if not relevant:
            return
        copies = self._copies()
        for answer in relevant:
            shift = self._add_answer(answer, copies)
            charged = _charged_shift(answer.promise)
            if charged is not None and shift > charged * (1 + _DRIFT):
                self._violations.append((answer.row, shift, charged))
            if len(self._strongest) > 2 * MOST_ENTRIES:
                self._prune()
        self.answers += len(relevant)

    def posterior(self) -> ColumnPosterior:
        """Return the linear guess with the least mean square error, if cells are independent draws."""
        prior, m = self._prior, self._people.size
        before = np.tile(prior.weights, (m, 1))
        weights, control = before, before
        if self._strongest:
            self._prune()
            H, own, noise = self._entries()
            # The covariance of the answers: that of the unknown cells, plus that of the noise, which is 1.
            weighted = H * np.sqrt(before.ravel())
            S = weighted @ weighted.T
            del weighted
            S[np.diag_indices_from(S)] += 1.0
            factor = linalg.cho_factor(S, lower=True, overwrite_a=True, check_finite=False)
            solved = linalg.cho_solve(factor, noise + own.sum(axis=1), check_finite=False)
            # By linearity the person's own part can be taken out afterwards, with one factorization for all.
            solved_own = linalg.cho_solve(factor, own, check_finite=False)
            update = (solved @ H).reshape(before.shape)
            own_update = np.einsum("qik,qi->ik", H.reshape(-1, *before.shape), solved_own)
            weights, control = before * (1 + update), before * (1 + update - own_update)
        max_shift = float(np.sqrt(self._squared_shifts.max()))
        return ColumnPosterior(prior, weights, control, max_shift, tuple(self._violations))

    def _copies(self) -> RepeatedRows:
        """Return the cells of the people, each row repeated for every value of the prior."""
        column, prior = self._column, self._prior
        grid = {name: values[:, None] for name, values in self._people.cells.items()}
        grid[column.sql] = prior.cells.astype(np.int32)[None]
        if column.values is not None:
            grid[column.values] = (column.lower + column.step * prior.cells)[None]
        if column.flag is not None:
            grid[column.flag] = prior.missing[None]
        return RepeatedRows(grid, (self._people.size, prior.size))

    def _prune(self) -> None:
        """Keep the strongest entries, in their order."""
        strength = np.array([one[0] for one in self._strongest])
        # A stable sort keeps the choice the same on all platforms where strengths are equal.
        best = np.sort(np.argsort(-strength, kind="stable")[:MOST_ENTRIES])
        self._strongest = [self._strongest[i] for i in best]

    def _entries(self) -> tuple[Floats, Floats, Floats]:
        """Return ``H``, the contributions of the true cells, and the noise, of the strongest entries."""
        m, n = self._people.size, len(self._strongest)
        H, own, noise = np.empty((n, m * self._prior.size)), np.empty((n, m)), np.empty(n)
        copies, done = self._copies(), 0
        for _, group in itertools.groupby(self._strongest, key=lambda one: one[1].row):
            entries = list(group)
            answer, places = entries[0][1], np.array([place for _, _, place in entries])
            parts, true = answer.contributions.of(copies), answer.contributions.of(self._people.cells)
            end = done + places.size
            block, own_block = self._standardize(answer, places, parts, true)
            center = block @ self._prior.weights
            block -= center[:, :, None]
            H[done:end], own[done:end] = block.reshape(places.size, -1), own_block - center
            noise[done:end] = answer.noise[places] / answer.sd[places]
            done = end
        return H, own, noise

    def _standardize(
        self,
        answer: StoredAnswer,
        places: Ints,
        parts: Sequence[Contributions],
        true: Sequence[Contributions],
    ) -> tuple[Floats, Floats]:
        """Return what values of cells, and what true cells, add to entries, in sds of the noise."""
        sd = answer.sd[places, None]
        H, own = (reduce(np.add, [part.take(places) for part in rows]) for rows in (parts, true))
        H /= sd
        own /= sd
        return H.reshape(places.size, self._people.size, self._prior.size), own

    def _add_answer(self, answer: StoredAnswer, copies: Mapping[str, AnyArray]) -> float:
        """Add the entries of an answer, and return how far one cell moves it at most.

        Parameters
        ----------
        answer : StoredAnswer
            Answer with its noise and the contributions of single rows.
        copies : mapping of str to array
            Curated cells of the people, each repeated for every value of the prior.

        Returns
        -------
        float
            Euclidean shift in standard deviations of the noise, or for Laplace noise the absolute shift in
            units of its scale, which is an epsilon.
        """
        m, weights = self._people.size, self._prior.weights
        parts, true = answer.contributions.of(copies), answer.contributions.of(self._people.cells)
        squares, sums = np.zeros_like(self._squared_shifts), np.zeros_like(self._squared_shifts)
        # Of a table with millions of cells these people contribute to few.
        entries = np.unique(np.concatenate([part.entries() for part in (*parts, *true)]))
        for start in range(0, entries.size, _BLOCK):
            places = entries[start : start + _BLOCK]
            H, own = self._standardize(answer, places, parts, true)
            shift = H - own[:, :, None]
            if answer.law == "laplace":
                sums += np.abs(shift).sum(axis=0)
            squares += np.square(shift, out=shift).sum(axis=0)
            # Centered only now, because the shift above compares uncentered contributions.
            H -= (H @ weights)[:, :, None]
            strength = np.square(H, out=H).sum(axis=1) @ weights
            self._strongest += [
                (float(strength[i]), answer, int(places[i])) for i in np.flatnonzero(strength >= _NOTHING * m)
            ]
        self._squared_shifts += squares
        # The standard deviation of Laplace noise is sqrt(2) times its scale, in which epsilon is counted.
        return float(sums.max() * np.sqrt(2.0) if answer.law == "laplace" else np.sqrt(squares.max()))


def row_promise(promise: Promise) -> Promise | None:
    """Return the promise about replacing one row; None if there is none."""
    if isinstance(promise, NoPromise) or promise.neighbors == "replace-one":
        return None if isinstance(promise, NoPromise) else promise
    try:
        return promise.group(2)  # to replace a row is to remove one and to add one
    except PromiseError:
        return None


def _charged_shift(promise: Promise) -> float | None:
    """Return how far replacing a row may move an answer, in sd or in epsilon; None if nothing bounds it."""
    row = row_promise(promise)
    if isinstance(row, GaussianDP):
        return row.mu
    return row.epsilon if isinstance(row, PureDP) else None
