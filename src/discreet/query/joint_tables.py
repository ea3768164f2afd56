"""Joint tables of a few columns that hold many smaller ones: rows are gone through once for all of these."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Ints

_MOST_JOINT = 2**15
"""Largest number of cells of a joint table that holds several: it should stay in a processor's cache."""


@dataclass(frozen=True)
class JointTable:
    """Columns of a joint table, and the smaller tables inside of it.

    Attributes
    ----------
    columns : tuple of int
        Indices of its columns.
    shape : tuple of int
        Number of cells of each.
    inside : tuple of int
        Indices of the tables that it holds.
    """

    columns: tuple[int, ...]
    shape: tuple[int, ...]
    inside: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    def place_rows(self, codes: Sequence[AnyArray], rows: slice = slice(None)) -> Ints:
        """Return the cell of every row, in C order.

        Parameters
        ----------
        codes : sequence of array of int
            Cell of every row, for each column of which there is one.
        rows : slice
            Rows whose cells are returned; all of them by default.
        """
        # 16 bits are enough for most tables, and several times as fast as 64.
        kind: Any = np.uint16 if self.size <= 2**16 else np.intp
        place: AnyArray = codes[self.columns[0]][rows].astype(kind)
        for column, size in zip(self.columns[1:], self.shape[1:], strict=True):
            place *= kind(size)
            place += codes[column][rows].astype(kind, copy=False)
        return place.astype(np.intp)

    def place_cells(self, table: Sequence[int]) -> Ints:
        """Return for every cell its place in a smaller table, in C order.

        Parameters
        ----------
        table : sequence of int
            Columns of the smaller table, all of them in this one.
        """
        place = np.zeros(self.shape, np.intp)
        stride = 1
        for column in reversed(table):
            axis = self.columns.index(column)
            steps = np.arange(self.shape[axis]) * stride
            place += steps.reshape([-1 if i == axis else 1 for i in range(len(self.shape))])
            stride *= self.shape[axis]
        return place.ravel()


def join_tables(
    tables: Sequence[tuple[int, ...]], sizes: Sequence[int], n_rows: int
) -> tuple[JointTable, ...]:
    """Return joint tables, such that each table is inside of one of them.

    Parameters
    ----------
    tables : sequence of tuple of int
        Columns of each table.
    sizes : sequence of int
        Number of cells of each column.
    n_rows : int
        Number of rows that will be counted: joint tables of several have fewer cells.
    """
    most = min(_MOST_JOINT, 1 << max(n_rows // 4, 1).bit_length() - 1)
    return _join(tuple(tables), tuple(sizes), most)


@functools.lru_cache(maxsize=16)
def _join(tables: tuple[tuple[int, ...], ...], sizes: tuple[int, ...], most: int) -> tuple[JointTable, ...]:
    """Return joint tables: each starts with a table that is in none, and takes the columns that add most."""
    near: list[list[int]] = [[] for _ in sizes]
    for i, table in enumerate(tables):
        for column in table:
            near[column].append(i)
    waiting = dict.fromkeys(range(len(tables)))
    joined = []
    while waiting:
        columns = set(tables[next(iter(waiting))])
        size = math.prod(sizes[column] for column in columns)
        while True:
            gains: dict[int, int] = {}
            for i in {i for column in columns for i in near[column] if i in waiting}:
                missing = [column for column in tables[i] if column not in columns]
                if len(missing) == 1:
                    gains[missing[0]] = gains.get(missing[0], 0) + 1
            fitting = [column for column in gains if size * sizes[column] <= most]
            if not fitting:
                break
            best = min(fitting, key=lambda column: (-gains[column], sizes[column], column))
            columns.add(best)
            size *= sizes[best]
        inside = [i for i in waiting if columns.issuperset(tables[i])]
        for i in inside:
            del waiting[i]
        order = tuple(sorted(columns))
        joined.append(JointTable(order, tuple(sizes[column] for column in order), tuple(inside)))
    return tuple(joined)


def count_tables(
    codes: Sequence[AnyArray], sizes: Sequence[int], tables: Sequence[tuple[int, ...]]
) -> list[Ints]:
    """Return the counts of rows in every cell of some tables, each in C order.

    Parameters
    ----------
    codes : sequence of array of int
        Cell of every row, for each column.
    sizes : sequence of int
        Number of cells of each column.
    tables : sequence of tuple of int
        Columns of each table.
    """
    counts: dict[int, Ints] = {}
    for joint in join_tables(tables, sizes, len(codes[0])):
        found = np.bincount(joint.place_rows(codes), minlength=joint.size).reshape(joint.shape)
        for i in joint.inside:
            others = tuple(a for a, column in enumerate(joint.columns) if column not in tables[i])
            summed = found.sum(axis=others) if others else found
            kept = [column for column in joint.columns if column in tables[i]]
            counts[i] = summed.transpose([kept.index(column) for column in tables[i]]).ravel()
    return [counts[i] for i in range(len(tables))]
