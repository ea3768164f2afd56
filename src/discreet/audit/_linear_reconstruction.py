"""The linear guess at unknown cells: one column of many people at once, from all answers."""

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
"""Values of a column that the attacker thinks of: its commonest levels, or quantiles of a number."""
MOST_ENTRIES = 512
"""Numbers in all answers that are used for a column: those in which its cells show most."""
_BLOCK = 256
_BINS = 1024
_DRIFT = 1e-6
"""Relative error that floats may have where a person is just as far as was charged."""
_NOTHING = 1e-20
"""Share of the noise's variance below which an entry moves by roundings alone."""


def sql_names(column: Curated) -> list[str]:
    """Return what a column is called in the engine: its cells, and whether they are missing."""
    return [column.sql] if column.flag is None else [column.sql, column.flag]


@dataclass(frozen=True)
class _Look(EngineTask):
    """A look at the rows themselves, which waits for its turn as a question does."""

    columns: tuple[str, ...]
    begin: Callable[[int], None]
    see: Callable[[list[AnyArray]], None]

    @property
    def width(self) -> int:
        """One pass."""
        return 1

    @property
    def size(self) -> int:
        """Nothing is added up."""
        return 0

    @classmethod
    def found(cls, engine: Engine, wanted: Sequence[_Look]) -> list[list[int]]:
        """Go over the rows for each of some."""

        def act() -> list[list[int]]:
            for one in wanted:
                one.begin(engine.count())
                for arrays in engine.batches(one.columns):
                    one.see(arrays)
            return [[] for _ in wanted]

        return engine.run(act)


def _looking(look: _Look) -> BoundAggregate:
    """Put a look where a question stands."""
    nothing = np.empty(0)
    return BoundAggregate(
        canonical={}, squared=0, absolute=0, precision=(), weight=(), unit=nothing, shift=nothing,
        places=nothing, plain_unit=None, wanted=look,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class People:
    """Those who are attacked, and how often values occur among everybody.

    Attributes
    ----------
    cells : mapping of str to array
        Their curated integers, by SQL name.
    counts : mapping of str to array
        For each column how many rows are in each cell of a grid, and at the end how many are missing.

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
        """Draw some people, and count what everybody has in some columns, in one pass."""
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
            here = chosen[np.searchsorted(chosen, start) : np.searchsorted(chosen, end)] - start
            parts.append([array[here] for array in arrays])
            found = dict(zip(names, arrays, strict=True))
            for column in columns:
                counts[column.name] += np.bincount(_cell(column, found), minlength=_cells(column) + 1)
            start = end

        exact_sums(database, _looking(_Look(tuple(names), begin, see)))
        if not parts:
            raise ParameterError("database of reconstruct must have at least one row, and has none.")
        return cls(
            {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(names)}, counts
        )

    @property
    def size(self) -> int:
        """How many they are."""
        return len(next(iter(self.cells.values())))

    def shares(self, column: Curated) -> Floats:
        """Return how often each level of a category occurs."""
        counts = self.counts[column.name][: len(column.levels)]
        found: Floats = counts / counts.sum()
        return found

    def spread(self, column: Curated) -> tuple[float, float]:
        """Return mean and standard deviation of a number among everybody who has one."""
        there = self.counts[column.name][: _cells(column)]
        if not there.any():
            return column.lower, 0.0
        numbers = column.lower + column.step * _middles(column)
        mean = float(np.average(numbers, weights=there))
        return mean, math.sqrt(float(np.average((numbers - mean) ** 2, weights=there)))

    def least_sd(self, column: Curated) -> float:
        """Return the same deviation, rounded down: counting in bins moves people by half of one at most."""
        _, sd = self.spread(column)
        return sd if column.top < _BINS else max(0.0, sd - column.step * (column.top + 1) / _BINS / 2)


def _cells(column: Curated) -> int:
    return min(column.top + 1, _BINS)


def _middles(column: Curated) -> Floats:
    """Return the curated integer in the middle of each cell that is counted."""
    size = _cells(column)
    middles: Floats = (np.arange(size, dtype=np.float64) + 0.5) * ((column.top + 1) / size) - 0.5
    return middles


def _cell(column: Curated, arrays: Mapping[str, AnyArray]) -> Ints:
    cells = arrays[column.sql].astype(np.int64)
    if column.top >= _BINS:
        cells = cells * _BINS // (column.top + 1)
    return cells if column.flag is None else np.where(arrays[column.flag] == 1, _cells(column), cells)


@dataclass(frozen=True, eq=False)
class Prior:
    """What the attacker thinks a cell may be before he sees an answer: some values and their weights.

    Attributes
    ----------
    cells, missing : array
        The curated integers, and whether the number is missing.
    weights : array
        They add up to 1.
    """

    cells: Ints
    missing: AnyArray
    weights: Floats

    @classmethod
    def from_counts(cls, column: Curated, counts: Ints) -> Prior:
        """Choose the commonest levels, or quantiles of a number, and whether it is missing."""
        size = _cells(column)
        there, total = counts[:size], counts.sum()
        if column.is_category:
            cells = np.sort(np.argsort(-there, kind="stable")[:POINTS])
            weights = there[cells] / total
        else:
            # Everybody in order of the number, in as many parts of the same size: the mean of each.
            heights = _middles(column)
            ranks = np.linspace(0.0, there.sum(), POINTS + 1)
            below = np.interp(
                ranks, np.append(0, np.cumsum(there)), np.append(0.0, np.cumsum(there * heights))
            )
            means = np.diff(below) * POINTS / max(there.sum(), 1)
            cells, repeats = np.unique(np.floor(means + 0.5).astype(np.int64), return_counts=True)
            weights = there.sum() / total * repeats / POINTS
        missing = np.zeros(cells.size, np.int32)
        if counts[size]:
            cells = np.append(cells, column.fill)
            missing = np.append(missing, np.int32(1))
            weights = np.append(weights, counts[size] / total)
        kept = weights > 0
        return cls(cells[kept], missing[kept], weights[kept] / weights[kept].sum())

    @property
    def size(self) -> int:
        """How many values there are."""
        return self.weights.size

    def numbers(self, column: Curated) -> Floats:
        """Return the numbers; a missing one counts as the mean of the others, and so tells nothing."""
        found: Floats = column.lower + column.step * self.cells.astype(np.float64)
        known = self.missing == 0
        if known.any():
            found[~known] = np.average(found[known], weights=self.weights[known])
        return found


@dataclass(frozen=True, eq=False)
class Thought:
    """What the attacker thinks of one column of everybody who is attacked, after all answers.

    Attributes
    ----------
    prior : Prior
        What he thought before.
    after, alike : array of shape (people, values)
        How much he thinks of each value by all answers, and by all answers without people's own cells.
    moved : float
        The furthest that one cell moves all answers, in standard deviations of their noise.
    beyond : tuple of (int, float, float)
        Answers that a cell moves further than was charged: the row of the ledger, how far, and what was
        charged.

    Privacy
    -------
    Internal. That a cell moves an answer further than was charged breaks the promise of that answer: no
    chance is involved.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """

    prior: Prior
    after: Floats
    alike: Floats
    moved: float
    beyond: tuple[tuple[int, float, float], ...]


def guess_column(column: Curated, people: People, answers: Sequence[StoredAnswer]) -> Thought:
    """Guess one column of some people from answers that depend on it.

    Parameters
    ----------
    column : Curated
        Which.
    people : People
        Whose.
    answers : sequence of Told
        All that depend on the column.

    Returns
    -------
    Thought
        The linear guess with the least mean square error, if the cells are drawn from the prior one by one.

    Privacy
    -------
    Internal.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """
    prior = Prior.from_counts(column, people.counts[column.name])
    m, k = people.size, prior.size
    # Everybody once for each value that the cell may have.
    copies = {name: np.repeat(values, k) for name, values in people.cells.items()}
    copies[column.sql] = np.tile(prior.cells, m).astype(np.int32)
    if column.flag is not None:
        copies[column.flag] = np.tile(prior.missing, m)
    signals, far, beyond = _Signals(), np.zeros((m, k)), []
    for answer in answers:
        moved = _take_in(answer, copies, people, prior, signals, far)
        charged = _charged(answer.promise)
        if charged is not None and moved > charged * (1 + _DRIFT):
            beyond.append((answer.row, moved, charged))
    before = np.tile(prior.weights, (m, 1))
    after, alike = before, before
    if signals.size:
        H, own, noise = signals.clearest()
        # In units of the noise: what unknown cells add to the covariance of answers, and the noise itself.
        weighted = H * np.sqrt(before.ravel())
        S = weighted @ weighted.T
        S[np.diag_indices_from(S)] += 1.0
        factor = linalg.cho_factor(S, lower=True, overwrite_a=True, check_finite=False)
        told = linalg.cho_solve(factor, noise + own.sum(axis=1), check_finite=False)
        by_self = linalg.cho_solve(factor, own, check_finite=False)
        shown = (told @ H).reshape(m, k)
        left_out = np.einsum("qik,qi->ik", H.reshape(-1, m, k), by_self)
        after, alike = before * (1 + shown), before * (1 + shown - left_out)
    return Thought(prior, after, alike, float(np.sqrt(far.max())), tuple(beyond))


class _Signals:
    """Entries of answers in which cells show, the clearest of them, in units of their noise."""

    def __init__(self) -> None:
        self._strength: list[Floats] = []
        self._blocks: list[tuple[Floats, Floats, Floats]] = []
        self.size = 0

    def add(self, H: Floats, own: Floats, noise: Floats, strength: Floats) -> None:
        """Take in entries: what each value of a cell and what the true cells add, centered, and the noise."""
        shown = np.flatnonzero(strength > 0)
        if shown.size:
            self._blocks.append((H[shown], own[shown], noise[shown]))
            self._strength.append(strength[shown])
            self.size += shown.size
        if self.size > 2 * MOST_ENTRIES:
            self._prune()

    def _prune(self) -> None:
        strength = np.concatenate(self._strength)
        best = np.sort(np.argsort(-strength, kind="stable")[:MOST_ENTRIES])
        H, own, noise = (np.concatenate(parts) for parts in zip(*self._blocks, strict=True))
        if best.size < strength.size:
            H, own, noise = H[best], own[best], noise[best]
        self._blocks, self._strength, self.size = [(H, own, noise)], [strength[best]], best.size

    def clearest(self) -> tuple[Floats, Floats, Floats]:
        """Return all of it."""
        self._prune()
        return self._blocks[0]


def _take_in(
    answer: StoredAnswer,
    copies: Mapping[str, AnyArray],
    people: People,
    prior: Prior,
    signals: _Signals,
    far: Floats,
) -> float:
    """See how far cells move an answer; return the furthest, in the currency of its promise."""
    m, k = far.shape
    parts, true = answer.by_rows.of(copies), answer.by_rows.of(people.cells)
    squares, sums = np.zeros((m, k)), np.zeros((m, k))
    # Of a table of millions of cells most are far from all of these people.
    touched = np.unique(np.concatenate([part.touched() for part in (*parts, *true)]))
    for start in range(0, touched.size, _BLOCK):
        places = touched[start : start + _BLOCK]
        sd = answer.sd[places, None]
        H = (sum(part.take(places) for part in parts) / sd).reshape(-1, m, k)
        own = sum(part.take(places) for part in true) / sd
        moved = H - own[:, :, None]
        squares += np.square(moved).sum(axis=0)
        if answer.law == "laplace":
            sums += np.abs(moved).sum(axis=0)
        center = H @ prior.weights
        H -= center[:, :, None]
        strength = np.square(H).sum(axis=1) @ prior.weights
        strength[strength < _NOTHING * m] = 0.0
        signals.add(H.reshape(-1, m * k), own - center, answer.noise[places] / sd[:, 0], strength)
    far += squares
    # A Laplace number has the standard deviation sqrt(2) times its scale, in which epsilon is counted.
    return float(sums.max() * np.sqrt(2.0) if answer.law == "laplace" else np.sqrt(squares.max()))


def row_promise(promise: Promise) -> Promise | None:
    """Return what is promised to a row that is replaced; None if nothing is."""
    if isinstance(promise, NoPromise) or promise.neighbors == "replace-one":
        return None if isinstance(promise, NoPromise) else promise
    try:
        return promise.group(2)  # to replace is to remove and to add
    except PromiseError:
        return None


def _charged(promise: Promise) -> float | None:
    """Return how far replacing a row may move an answer: in standard deviations, or in epsilon."""
    row = row_promise(promise)
    if isinstance(row, GaussianDP):
        return row.mu
    return row.epsilon if isinstance(row, PureDP) else None
