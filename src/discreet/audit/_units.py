"""Which rows of a table belong to which person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats, Ints


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Rows of some people, those of one person after another.

    Attributes
    ----------
    places : array of int
        Places of the rows in a table.
    starts : array of int
        Place in `places` of the first row of each person.
    """

    places: Ints
    starts: Ints

    @classmethod
    def from_ids(cls, ids: AnyArray | None, n_rows: int) -> UnitRows:
        """Return the people of a table, by the id of each row; None: every row is another person's."""
        if ids is None:
            return cls(np.arange(n_rows), np.arange(n_rows))
        places = np.argsort(ids, kind="stable")
        changes = np.flatnonzero(ids[places][1:] != ids[places][:-1]) + 1
        return cls(places, np.concatenate([np.zeros(min(1, n_rows), np.int64), changes]))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> Ints:
        """Number of rows of each person."""
        return np.diff(self.starts, append=len(self.places))

    @property
    def owners(self) -> Ints:
        """Number of the person that each row belongs to, from 0 on."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def take(self, people: Ints) -> UnitRows:
        """Return the rows of some people, in the order in which they are given."""
        sizes = self.sizes[people]
        starts = np.cumsum(sizes) - sizes
        inside = np.arange(int(sizes.sum())) + np.repeat(self.starts[people] - starts, sizes)
        return UnitRows(self.places[inside], starts)

    def combine(self, values: Floats, how: np.ufunc) -> Floats:
        """Return one value for each person from the values of the rows."""
        return np.asarray(how.reduceat(values, self.starts))
