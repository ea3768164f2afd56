"""Linear reconstruction of unknown cells: one column of many people at once, from all answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from discreet.audit.stored_answers import exact_sums
from discreet.errors import ParameterError, PromiseError
from discreet.noise import subsample
from discreet.privacy import GaussianDP, NoPromise, PureDP
from discreet.query.aggregates import BoundAggregate
from discreet.query.engines.base import EngineTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
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


def guess_column(column: Curated, people: People, answers: Sequence[StoredAnswer]) -> ColumnPosterior:
    """Guess one column of some people from answers that depend on it.

    Parameters
    ----------
    column : Curated
        Column whose cells are unknown to the attacker.
    people : People
        Rows that are attacked; all their other cells are known.
    answers : sequence of StoredAnswer
        All stored answers that depend on the column.

    Returns
    -------
    ColumnPosterior
        The linear guess with the least mean square error, if the cells are drawn independently from the
        prior.

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
    prior = Prior.from_counts(column, people.counts[column.name])
    m, k = people.size, prior.size
    # Each row is repeated for every value of the prior.
    copies = {name: np.repeat(values, k) for name, values in people.cells.items()}
    copies[column.sql] = np.tile(prior.cells, m).astype(np.int32)
    if column.values is not None:
        copies[column.values] = np.tile(column.lower + column.step * prior.cells, m)
    if column.flag is not None:
        copies[column.flag] = np.tile(prior.missing, m)
    signals, squared_shifts, violations = _Signals(), np.zeros((m, k)), []
    for answer in answers:
        shift = _add_answer(answer, copies, people, prior, signals, squared_shifts)
        charged = _charged_shift(answer.promise)
        if charged is not None and shift > charged * (1 + _DRIFT):
            violations.append((answer.row, shift, charged))
    before = np.tile(prior.weights, (m, 1))
    weights, control = before, before
    if signals.size:
        H, own, noise = signals.strongest()
        # The covariance of the answers: that of the unknown cells, plus that of the noise, which is 1.
        weighted = H * np.sqrt(before.ravel())
        S = weighted @ weighted.T
        S[np.diag_indices_from(S)] += 1.0
        factor = linalg.cho_factor(S, lower=True, overwrite_a=True, check_finite=False)
        solved = linalg.cho_solve(factor, noise + own.sum(axis=1), check_finite=False)
        solved_own = linalg.cho_solve(factor, own, check_finite=False)
        update = (solved @ H).reshape(m, k)
        own_update = np.einsum("qik,qi->ik", H.reshape(-1, m, k), solved_own)
        weights, control = before * (1 + update), before * (1 + update - own_update)
    return ColumnPosterior(prior, weights, control, float(np.sqrt(squared_shifts.max())), tuple(violations))


class _Signals:
    """The entries of answers that depend most on the unknown cells, in units of their noise."""

    def __init__(self) -> None:
        self._strength: list[Floats] = []
        self._blocks: list[tuple[Floats, Floats, Floats]] = []
        self.size = 0

    def add(self, H: Floats, own: Floats, noise: Floats, strength: Floats) -> None:
        """Add entries, of which those without any signal are dropped.

        Parameters
        ----------
        H : array of shape (entries, people * values)
            Centered contribution of each value of each cell.
        own : array of shape (entries, people)
            Centered contribution of the true cells.
        noise : array of shape (entries,)
            Noise of the entries.
        strength : array of shape (entries,)
            Variance of each entry under the prior, by which entries are chosen.
        """
        useful = np.flatnonzero(strength > 0)
        if useful.size:
            self._blocks.append((H[useful], own[useful], noise[useful]))
            self._strength.append(strength[useful])
            self.size += useful.size
        if self.size > 2 * MOST_ENTRIES:
            self._prune()

    def _prune(self) -> None:
        """Keep the strongest entries, in their order, as one block."""
        strength = np.concatenate(self._strength)
        # A stable sort keeps the choice the same on all platforms where strengths are equal.
        best = np.sort(np.argsort(-strength, kind="stable")[:MOST_ENTRIES])
        H, own, noise = (np.concatenate(parts) for parts in zip(*self._blocks, strict=True))
        if best.size < strength.size:
            H, own, noise = H[best], own[best], noise[best]
        self._blocks, self._strength, self.size = [(H, own, noise)], [strength[best]], best.size

    def strongest(self) -> tuple[Floats, Floats, Floats]:
        """Return ``H``, ``own`` and ``noise`` of the strongest entries."""
        self._prune()
        return self._blocks[0]


def _add_answer(
    answer: StoredAnswer,
    copies: Mapping[str, AnyArray],
    people: People,
    prior: Prior,
    signals: _Signals,
    squared_shifts: Floats,
) -> float:
    """Add the entries of an answer to the signals, and return how far one cell moves it at most.

    Parameters
    ----------
    answer : StoredAnswer
        Answer with its noise and the contributions of single rows.
    copies : mapping of str to array
        Curated cells of the people, each repeated for every value of the prior.
    people : People
        Rows that are attacked, with their true cells.
    prior : Prior
        Values of the unknown cell and their weights.
    signals : _Signals
        Collection to which the entries are added.
    squared_shifts : array of shape (people, values)
        Squared Euclidean shifts of all answers so far, to which those of this answer are added.

    Returns
    -------
    float
        Euclidean shift in standard deviations of the noise, or for Laplace noise the absolute shift in
        units of its scale, which is an epsilon.
    """
    m, k = squared_shifts.shape
    parts, true = answer.contributions.of(copies), answer.contributions.of(people.cells)
    squares, sums = np.zeros((m, k)), np.zeros((m, k))
    # Of a table with millions of cells these people contribute to few.
    entries = np.unique(np.concatenate([part.entries() for part in (*parts, *true)]))
    for start in range(0, entries.size, _BLOCK):
        places = entries[start : start + _BLOCK]
        sd = answer.sd[places, None]
        H = (sum(part.take(places) for part in parts) / sd).reshape(-1, m, k)
        own = sum(part.take(places) for part in true) / sd
        shift = H - own[:, :, None]
        squares += np.square(shift).sum(axis=0)
        if answer.law == "laplace":
            sums += np.abs(shift).sum(axis=0)
        # Centered only now, because the shift above compares uncentered contributions.
        center = H @ prior.weights
        H -= center[:, :, None]
        strength = np.square(H).sum(axis=1) @ prior.weights
        strength[strength < _NOTHING * m] = 0.0
        signals.add(H.reshape(-1, m * k), own - center, answer.noise[places] / sd[:, 0], strength)
    squared_shifts += squares
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
