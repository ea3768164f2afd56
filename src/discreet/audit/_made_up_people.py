"""Laws of made-up people: every column uniform on what was declared, independent or with a common factor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.query.dummy import ONE_IN, cells_at_shares, remove_cells, uniform_shares

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream
    from discreet.schema import Column, Schema

PEOPLE = 1_000
"""Number of made-up people that are attacked where nothing else is asked for."""
CELLS = 1024
"""Parts of equal probability into which the range of a column is cut."""

_FEWEST_MADE = 200
"""Smallest number of made-up rows of which a table is made anew, if the table has as many."""


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
