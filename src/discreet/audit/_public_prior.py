"""Law of made-up people that follows public rows, which the curator declares as what an attacker may know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit._made_up_people import CELLS, PeopleLaw
from discreet.errors import ParameterError
from discreet.query.dummy import cells_at_shares, uniform_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit._made_up_people import Game
    from discreet.noise import Stream
    from discreet.schema import Column, Schema

LEAST_ROWS = 100
"""Smallest number of public rows that a law is taken from."""
_DEPTH = 3
_STATES = 64
"""Parts of a number's range whose rows are counted; of a list, all levels."""
_INDICATORS = 32
"""Levels of a list that take part in dividing the rows into groups."""


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
        depth = min(_DEPTH, int(math.log2(n / (LEAST_ROWS / 2))))
        groups = _divide_rows(_stack_columns(schema, rows), np.arange(n), depth)
        counts, missing = {}, {}
        for column in schema.released:
            cells, size = rows[column.name], int(_states_of_parts(column).max()) + 1
            gone = np.isnan(cells) if column.is_number else np.zeros(n, bool)
            states = _states_of_cells(column, np.where(gone, column.range[0], cells) if gone.any() else cells)
            counts[column.name] = np.stack(
                [np.bincount(states[group][~gone[group]], minlength=size) for group in groups], axis=1
            )
            missing[column.name] = np.array([int(gone[group].sum()) for group in groups])
        return cls("declared", 0.0, len(groups), True, counts, missing, source, n)

    def cell_weights(self, column: Column) -> Floats:
        """Return the probabilities of the rows of :func:`grid_rows` in a column, given the group."""
        states = _states_of_parts(column)
        parts = np.bincount(states)
        missing = self._missing_shares(column)
        inside = self._shares(column)[states] / parts[states][:, None] * (1 - missing)
        return np.concatenate([inside, missing[None]])

    def draw(self, schema: Schema, n: int, stream: Stream) -> tuple[Ints, dict[str, AnyArray]]:
        """Return the group of each person, and encoded rows of the released columns."""
        place = np.floor(uniform_shares(n, stream) * self.nodes).astype(np.int64)
        rows = {}
        for column in schema.released:
            below = np.cumsum(self._shares(column), axis=0)
            pick, where, gone = (uniform_shares(n, stream) for _ in range(3))
            state = np.minimum((pick > below[:-1, place]).sum(axis=0), len(below) - 1)
            parts = np.bincount(_states_of_parts(column))
            share = ((np.cumsum(parts) - parts)[state] + where * parts[state]) / CELLS
            if column.is_category:
                # The middle of its part, so that codes have exactly the probabilities of the grid.
                share = (np.floor(share * CELLS) + 0.5) / CELLS
            cells = cells_at_shares(column, np.minimum(share, 1 - 2.0**-53))
            if column.is_number:
                cells[gone < self._missing_shares(column)[place]] = np.nan
            rows[column.name] = cells
        return place, rows

    def _shares(self, column: Column) -> Floats:
        """Return the probability of each state given the group, of shape (states, nodes)."""
        counts = self.counts[column.name]
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
                ((cells == level) - shares[level]) / math.sqrt(shares[level] + 1e-9) for level in frequent
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
    half = len(order) // 2
    return [*_divide_rows(matrix, order[:half], depth - 1), *_divide_rows(matrix, order[half:], depth - 1)]
