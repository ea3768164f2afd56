"""Laws of made-up people: uniform on what was declared, or after public rows.

Without public rows every column is uniform, independent or with a common factor. Public rows are what the
curator declares that an attacker may know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from discreet.errors import ParameterError
from discreet.query.dummy import ONE_IN, cells_at_shares, remove_cells, uniform_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream
    from discreet.schema import Column, Schema

PEOPLE = 1_000
"""Number of made-up people that are attacked where nothing else is asked for."""
CELLS = 1024
"""Parts of equal probability into which the range of a column is cut."""

_FEWEST_MADE = 200
"""Smallest number of made-up rows of which a table is made anew, if the table has as many."""
LEAST_ROWS = 100
"""Smallest number of public rows that a law is taken from."""
_DEPTH = 3
_STATES = 64
"""Parts of a number's range whose rows are counted; of a list, all levels."""
_INDICATORS = 32
"""Levels of a list that take part in dividing the rows into groups."""


@dataclass(frozen=True, eq=False)
class PeopleLaw:
    """Law of made-up people: a hidden factor, and given it independent columns.

    Attributes
    ----------
    name : str
        Name of the law: "independent" or "correlated".
    correlation : float
        Correlation of any two columns on the normal scale; 0 for independent columns.
    nodes : int
        Number of values of the hidden factor, all equally likely.
    alike : bool
        Whether all rows of a person who has several are the same, or drawn by themselves.

    Notes
    -----
    With ``F`` the normal distribution function, a cell stands at the share
    ``F(sqrt(r) z + sqrt(1 - r) e)`` of its declared range or list, with ``z`` the factor of the person at
    the middle of one of the parts of equal probability, ``e`` standard normal and ``r`` the correlation.

    Privacy
    -------
    Follows from the schema alone.
    """

    name: str
    correlation: float
    nodes: int
    alike: bool

    @cached_property
    def factors(self) -> Floats:
        """Values of the hidden factor."""
        return np.asarray(special.ndtri((np.arange(self.nodes) + 0.5) / self.nodes))

    @cached_property
    def weights(self) -> Floats:
        """Probability of each of the :data:`CELLS` parts given the factor, of shape (cells, nodes)."""
        edges = special.ndtri(np.arange(CELLS + 1) / CELLS)[:, None]
        below = special.ndtr(
            (edges - math.sqrt(self.correlation) * self.factors) / math.sqrt(1 - self.correlation)
        )
        return np.asarray(np.diff(below, axis=0))

    def cell_weights(self, column: Column) -> Floats:
        """Return the probabilities of the rows of :func:`grid_rows` in a column, given the factor."""
        missing = 1 / ONE_IN if column.is_number and not column.required else 0.0
        last = np.full((1, self.nodes), missing)
        return np.concatenate([(1 - missing) * self.weights, last])

    def draw(self, schema: Schema, n: int, stream: Stream) -> tuple[Ints, dict[str, AnyArray]]:
        """Return the place of each person's factor, and encoded rows of the released columns."""
        place = np.floor(uniform_shares(n, stream) * self.nodes).astype(np.int64)
        factor = math.sqrt(self.correlation) * self.factors[place]
        rows = {}
        for column in schema.released:
            # At least half a step of the doubles above 0, where the normal quantile is infinite.
            own = special.ndtri(uniform_shares(n, stream) + 2.0**-54)
            share = special.ndtr(factor + math.sqrt(1 - self.correlation) * own)
            if column.is_category:
                # The middle of its part, so that codes have exactly the probabilities of the grid.
                share = (np.floor(share * CELLS) + 0.5) / CELLS
            cells = cells_at_shares(column, np.minimum(share, 1 - 2.0**-53))
            rows[column.name] = remove_cells(column, cells, stream)
        return place, rows

    def draw_units(
        self, schema: Schema, n: int, rows_each: int, stream: Stream
    ) -> tuple[Ints, dict[str, AnyArray]]:
        """Return people with some rows each, those of a person one after another, as :meth:`draw` does."""
        if not self.alike:
            return self.draw(schema, n * rows_each, stream)
        place, rows = self.draw(schema, n, stream)
        return np.repeat(place, rows_each), {
            name: np.repeat(cells, rows_each) for name, cells in rows.items()
        }


LAWS = (
    PeopleLaw("independent", 0.0, 1, alike=False),
    PeopleLaw("correlated", 0.5, 7, alike=True),
)
"""The two laws of made-up people that every release is attacked under."""


def grid_rows(schema: Schema) -> dict[str, AnyArray]:
    """Return one row for the middle of each part of every column, and a last one with missing numbers."""
    shares = (np.arange(CELLS) + 0.5) / CELLS
    rows = {}
    for column in schema.released:
        cells = cells_at_shares(column, shares)
        last = cells[:1] if column.is_category or column.required else np.array([np.nan])
        rows[column.name] = np.concatenate([cells, last])
    return rows


@dataclass(frozen=True)
class Game:
    """Public facts of a release, and how it is attacked.

    Attributes
    ----------
    schema : Schema
        Declaration of the table.
    n_rows : int or None
        Number of rows of the table; None where it is not public.
    people : int
        Number of made-up people that are attacked.
    stream : Stream
        Source of the people and of the noise, which follows from the public facts.
    laws : tuple of PeopleLaw
        Laws that people are made up by; the worst figure counts.
    """

    schema: Schema
    n_rows: int | None
    people: int
    stream: Stream
    laws: tuple[PeopleLaw, ...] = LAWS

    @property
    def made_rows(self) -> int:
        """Number of made-up rows where a whole table must be made."""
        most = max(_FEWEST_MADE, 2 * self.people) * (self.schema.max_rows_per_unit or 1)
        return most if self.n_rows is None else min(self.n_rows, most)


@dataclass(frozen=True, eq=False)
class PublicPrior(PeopleLaw):
    """Law of made-up people like the rows of a public table: equal groups, columns independent in each.

    Attributes
    ----------
    counts : dict of str to array of shape (states, nodes)
        Number of public rows of each group in each part of a column's range or list.
    missing : dict of str to array of shape (nodes,)
        Number of public rows of each group whose cell is missing; only of numbers.
    source : str
        Name of the public table, in words.
    rows : int
        Number of public rows.

    Notes
    -----
    The rows are divided at the median of their first principal component, up to three times. A state that
    was seen c times in a group has the probability ``(c + 1/s) / (n + 1)``, with n the group's cells that
    are not missing and s the number of states.

    Privacy
    -------
    Public rows are public: nothing here is computed from the table that is protected.
    """

    counts: dict[str, Ints]
    missing: dict[str, Ints]
    source: str
    rows: int

    @classmethod
    def from_rows(cls, schema: Schema, rows: Mapping[str, AnyArray], source: str) -> PublicPrior:
        """Return the law of some public rows.

        Parameters
        ----------
        schema : Schema
            Declaration of the table that is protected.
        rows : mapping of str to array
            Released columns of the public rows, encoded.
        source : str
            Name of the public table, in words.
        """
        n = len(next(iter(rows.values()), ()))
        if n < LEAST_ROWS:
            raise ParameterError(
                f"The public sample must have at least {LEAST_ROWS} rows, and has {n}. Give a longer one, or "
                "leave it out: people are then made up from the schema alone."
            )
        # As many groups as leave half of the least number of rows to each.
        depth = min(_DEPTH, int(math.log2(n / (LEAST_ROWS / 2))))
        groups = _divide_rows(_stack_columns(schema, rows), np.arange(n), depth)
        counts, missing = {}, {}
        for column in schema.released:
            cells, size = rows[column.name], int(_states_of_parts(column).max()) + 1
            empty = np.isnan(cells) if column.is_number else np.zeros(n, bool)
            states = _states_of_cells(
                column, np.where(empty, column.range[0], cells) if empty.any() else cells
            )
            counts[column.name] = np.stack(
                [np.bincount(states[group][~empty[group]], minlength=size) for group in groups], axis=1
            )
            missing[column.name] = np.array([int(empty[group].sum()) for group in groups])
        return cls("declared", 0.0, len(groups), True, counts, missing, source, n)

    def cell_weights(self, column: Column) -> Floats:
        """Return the probabilities of the rows of :func:`grid_rows` in a column, given the group."""
        states = _states_of_parts(column)
        parts = np.bincount(states)
        missing = self._missing_shares(column)
        # A state that spans several parts of the grid shares its probability among them.
        inside = self._shares(column)[states] / parts[states][:, None] * (1 - missing)
        return np.concatenate([inside, missing[None]])

    def draw(self, schema: Schema, n: int, stream: Stream) -> tuple[Ints, dict[str, AnyArray]]:
        """Return the group of each person, and encoded rows of the released columns."""
        place = np.floor(uniform_shares(n, stream) * self.nodes).astype(np.int64)
        rows = {}
        for column in schema.released:
            below = np.cumsum(self._shares(column), axis=0)
            # Three draws for every person, used or not, so that columns do not shift each other's draws.
            pick, where, presence = (uniform_shares(n, stream) for _ in range(3))
            state = np.minimum((pick > below[:-1, place]).sum(axis=0), len(below) - 1)
            parts = np.bincount(_states_of_parts(column))
            share = ((np.cumsum(parts) - parts)[state] + where * parts[state]) / CELLS
            if column.is_category:
                # The middle of its part, so that codes have exactly the probabilities of the grid.
                share = (np.floor(share * CELLS) + 0.5) / CELLS
            cells = cells_at_shares(column, np.minimum(share, 1 - 2.0**-53))
            if column.is_number:
                cells[presence < self._missing_shares(column)[place]] = np.nan
            rows[column.name] = cells
        return place, rows

    def _shares(self, column: Column) -> Floats:
        """Return the probability of each state given the group, of shape (states, nodes)."""
        counts = self.counts[column.name]
        # One row is added in equal parts to all states: no person is impossible because nobody in the sample
        # is alike.
        return np.asarray((counts + 1 / len(counts)) / (counts.sum(axis=0) + 1))

    def _missing_shares(self, column: Column) -> Floats:
        """Return the probability of a missing number given the group."""
        if not column.is_number or column.required:
            return np.zeros(self.nodes)
        missing = self.missing[column.name]
        return np.asarray((missing + 0.5) / (missing + self.counts[column.name].sum(axis=0) + 1.0))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal law."""
        columns = {
            name: {"counts": counts.T.tolist(), "missing": self.missing[name].tolist()}
            for name, counts in self.counts.items()
        }
        return {
            "kind": "discreet-public-prior", "source": self.source, "rows": self.rows, "columns": columns,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Any, schema: Schema) -> PublicPrior:
        """Return the law that :meth:`to_dict` wrote, after comparing it with the columns of a schema."""
        try:
            source, rows, columns = (values[key] for key in ("source", "rows", "columns"))
            counts = {name: np.array(one["counts"], np.int64).T for name, one in columns.items()}
            missing = {name: np.array(one["missing"], np.int64) for name, one in columns.items()}
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as problem:
            raise ParameterError("The public prior must have the keys that a release writes.") from problem
        nodes = {len(one) for one in missing.values() if one.ndim == 1}
        shapes = {c.name: (int(_states_of_parts(c).max()) + 1, *nodes) for c in schema.released}
        whole = isinstance(source, str) and isinstance(rows, int) and rows >= LEAST_ROWS and len(nodes) == 1
        if not whole or {name: one.shape for name, one in counts.items()} != shapes or max(nodes) > 2**_DEPTH:
            raise ParameterError("The public prior must be about the columns of the schema, and is not.")
        totals = [counts[name].sum() + missing[name].sum() for name in shapes]
        if any((one < 0).any() for one in (*counts.values(), *missing.values())) or set(totals) != {rows}:
            raise ParameterError("The public prior must count each of its rows once in every column.")
        return cls("declared", 0.0, max(nodes), True, counts, missing, source, rows)


def describe_prior(game: Game) -> dict[str, str]:
    """Return what an attacker knows about people, in words, by the name of the declared law."""
    return {
        law.name: f"the public table {law.source} of {law.rows:,} rows"
        for law in game.laws
        if isinstance(law, PublicPrior)
    }


def _states_of_parts(column: Column) -> Ints:
    """Return the state of each of the :data:`CELLS` parts: a level, an integer, or one of 64 of a range."""
    cells = cells_at_shares(column, (np.arange(CELLS) + 0.5) / CELLS)
    states = np.concatenate([[0], np.cumsum(np.diff(cells) != 0)])
    many = not column.is_category and states[-1] >= _STATES
    return np.asarray(np.arange(CELLS) * _STATES // CELLS if many else states)


def _states_of_cells(column: Column, cells: AnyArray) -> Ints:
    """Return the state of each cell."""
    if column.is_category:
        share = (cells + 0.5) / len(column.levels)
    elif column.type == "number":
        share = (cells - column.range[0]) / column.width
    else:
        share = (cells - column.range[0] + 0.5) / column.n_integers
    parts = np.clip(np.floor(share * CELLS), 0, CELLS - 1).astype(np.int64)
    return np.asarray(_states_of_parts(column)[parts])


def _stack_columns(schema: Schema, rows: Mapping[str, AnyArray]) -> Floats:
    """Return rows as numbers: standardized ones, and indicators of the most frequent levels of lists."""
    parts = []
    for column in schema.released:
        cells = rows[column.name]
        if column.is_category:
            shares = np.bincount(cells, minlength=len(column.levels)) / len(cells)
            frequent = np.argsort(-shares, kind="stable")[:_INDICATORS]
            parts += [
                # Divided by the root of the share, as in correspondence analysis: rare levels count, and do
                # not dominate.
                ((cells == level) - shares[level]) / math.sqrt(shares[level] + 1e-9)
                for level in frequent
            ]
        elif not np.isnan(cells).all():
            centered = np.nan_to_num(cells - np.nanmean(cells))
            parts.append(centered / (centered.std() + 1e-300))
    return np.column_stack(parts)


def _divide_rows(matrix: Floats, rows: Ints, depth: int) -> list[Ints]:
    """Return rows in groups of equal size, divided again and again by their first principal component."""
    if depth == 0:
        return [rows]
    inside = matrix[rows] - matrix[rows].mean(axis=0)
    direction = np.linalg.eigh(inside.T @ inside)[1][:, -1]
    order = rows[np.argsort(inside @ direction, kind="stable")]
    # Groups of equal size, so that all have the same probability and none is rare.
    half = len(order) // 2
    return [*_divide_rows(matrix, order[:half], depth - 1), *_divide_rows(matrix, order[half:], depth - 1)]
