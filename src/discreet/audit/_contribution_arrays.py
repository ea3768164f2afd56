"""Forms in which contributions of rows are held: by cell, dense, and as products of two factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import AnyArray, Floats, Ints


class RepeatedRows(Mapping[str, "AnyArray"]):
    """Curated cells by SQL name of some rows, each repeated for every value of one column.

    Parameters
    ----------
    grid : mapping of str to array
        Cells of shape (rows, 1), and those of that column of shape (1, values).
    shape : (int, int)
        Number of rows and of values; the grid of a table of one column has only the values.
    """

    def __init__(self, grid: Mapping[str, AnyArray], shape: tuple[int, int]) -> None:
        self.grid, self.shape = grid, shape
        self._flat: dict[str, AnyArray] = {}

    def __getitem__(self, name: str) -> AnyArray:
        """Return the cells of a column of all repeated rows, those of one row next to each other."""
        if name not in self._flat:
            self._flat[name] = np.broadcast_to(self.grid[name], self.shape).ravel()
        return self._flat[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.grid)

    def __len__(self) -> int:
        return len(self.grid)


class Contributions(Protocol):
    """Contributions of some rows to the entries of an answer."""

    def total(self, size: int) -> Floats:
        """Return the sum over the rows of every entry, of shape (size,)."""

    def entries(self) -> Ints:
        """Return the indices of the entries to which some row may contribute."""

    def take(self, places: Ints) -> Floats:
        """Return the contribution of each row to some entries, of shape (entries, rows)."""


@dataclass(frozen=True, slots=True, eq=False)
class CellContributions:
    """Contributions ``values[:, row]`` to the entries of one cell per row; none where the code is -1.

    Attributes
    ----------
    start : int
        Index of the first entry of cell 0.
    codes : array of shape (rows,)
        Number of each row's cell, -1 for none.
    values : array of shape (width, rows)
        Contributions to the ``width`` consecutive entries of the cell.
    """

    start: int
    codes: AnyArray
    values: Floats

    def total(self, size: int) -> Floats:
        width = len(self.values)
        in_cell = self.codes >= 0
        codes = self.codes[in_cell]
        cells = (size - self.start) // width
        summed = np.zeros(size)
        # Entries of one cell are consecutive: the sums are interleaved by the columns of the stack.
        block = [np.bincount(codes, row[in_cell], cells)[:cells] for row in self.values]
        summed[self.start : self.start + cells * width] = np.column_stack(block).ravel()
        return summed

    def entries(self) -> Ints:
        width = len(self.values)
        cells = np.unique(self.codes[self.codes >= 0]).astype(np.int64)
        return self.start + (cells[:, None] * width + np.arange(width)).ravel()

    def take(self, places: Ints) -> Floats:
        local = places - self.start
        cells, which = np.divmod(local, len(self.values))
        # Entries before the start have negative cells, which must not match the code -1.
        cells[local < 0] = -2
        taken: Floats = (cells[:, None] == self.codes) * self.values[which]
        return taken


@dataclass(frozen=True, slots=True, eq=False)
class DenseContributions:
    """Contributions ``values[:, row]`` to the consecutive entries from ``start`` on."""

    start: int
    values: Floats

    def total(self, size: int) -> Floats:
        summed = np.zeros(size)
        summed[self.start : self.start + len(self.values)] = self.values.sum(axis=1)
        return summed

    def entries(self) -> Ints:
        return np.arange(self.start, self.start + len(self.values))

    def take(self, places: Ints) -> Floats:
        local = places - self.start
        inside = (local >= 0) & (local < len(self.values))
        taken = np.zeros((places.size, self.values.shape[1]))
        taken[inside] = self.values[local[inside]]
        return taken


@dataclass(frozen=True, slots=True, eq=False)
class ProductContributions:
    """Products of each row's coordinates, upper triangle row by row, added to the first entries."""

    rows: Floats

    def total(self, size: int) -> Floats:
        upper = np.triu_indices(len(self.rows))
        summed = np.zeros(size)
        summed[: len(upper[0])] = (self.rows @ self.rows.T)[upper]
        return summed

    def entries(self) -> Ints:
        return np.arange(len(self.rows) * (len(self.rows) + 1) // 2)

    def take(self, places: Ints) -> Floats:
        first, second = np.triu_indices(len(self.rows))
        inside = places < len(first)
        taken = np.zeros((places.size, self.rows.shape[1]))
        chosen = places[inside]
        taken[inside] = self.rows[first[chosen]] * self.rows[second[chosen]]
        return taken
