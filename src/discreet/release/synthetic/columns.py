"""Columns of many drawn rows, kept as narrow codes until they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.release.publication import Release
from discreet.tables import Field

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats
    from discreet.release.publication import Encoded

BATCH = 2**17
"""Number of rows that are drawn at once."""
_BATCH_CELLS = 2**20  # that are handed on at once


def narrow_type(largest: int) -> np.dtype[np.unsignedinteger]:
    """Return the smallest unsigned type that holds whole numbers up to the largest."""
    return np.min_scalar_type(largest)


def split_rows(n: int, size: int = BATCH) -> Iterator[slice]:
    """Yield the places of `n` rows, a batch of some size at a time."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


@dataclass(frozen=True, slots=True, eq=False)
class NarrowColumn:
    """Cells of one column, encoded.

    Attributes
    ----------
    cells : array
        Place of each cell among `values`; without them, codes of levels, or numbers.
    values : array or None
        All values that a cell may have; None where `cells` are what they stand for.
    """

    cells: AnyArray
    values: Floats | None = None

    def expand(self, rows: slice = slice(None)) -> AnyArray:
        """Return numbers as float64 with NaN where one is missing, and codes of levels as int32."""
        cells = self.cells[rows]
        if self.values is not None:
            return np.take(self.values, cells)
        return cells.astype(np.float64 if cells.dtype.kind == "f" else np.int32, copy=False)


class DrawnColumns(Mapping[str, "AnyArray"]):
    """Columns by name; each is a new array whenever it is asked for.

    Ten million rows of integers take an eighth of what they would as float64, so that a table can be
    written in batches.
    """

    def __init__(self, columns: Mapping[str, NarrowColumn]) -> None:
        """Keep the narrow columns, all of one length."""
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> AnyArray:
        return self._columns[name].expand()

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def batches(self) -> Iterator[dict[str, AnyArray]]:
        """Yield the rows in batches, in their order."""
        n = max((len(column.cells) for column in self._columns.values()), default=0)
        for rows in split_rows(n, _BATCH_CELLS // max(len(self), 1) + 1):
            yield {name: column.expand(rows) for name, column in self._columns.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SyntheticTable(Release):
    """A table of no one's rows, with the types and bounds that were declared."""

    columns: DrawnColumns

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of the columns in a file, with their declared types."""
        return tuple(Field.from_column(c) for c in self.schema.released if c.name in self.columns)

    def batches(self) -> Iterable[Encoded]:
        """Return the published columns in batches of rows, however many there are."""
        return self.columns.batches()
