"""Cells of a column: levels, whole numbers, or intervals that are declared or cut by noisy counts."""

from __future__ import annotations

import datetime
import itertools
import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.query.curation import LEAST_MAGNITUDE
from discreet.release.synthetic.arithmetic import add_up
from discreet.release.synthetic.projection import project
from discreet.schema.column_checks import MOST_CELLS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Floats, Ints
    from discreet.schema import Column, Schema

FEW_VALUES = 16
"""Largest number of values of a whole number whose values are its cells."""
MANY_LEVELS = 64
"""Largest number of levels of a category none of which are merged."""
_MOST_DECIMALS = 12  # of a step that is taken for a decimal number; 1/3 has more
SUBCELLS = 8
"""Number of equal parts into which a declared cell is divided for values inside it."""
FINE_CELLS = 128
"""Number of public cells by whose noisy counts a number is cut."""
_CUTS, _CUTS_BESIDE_ATOMS = 12, 8
_ATOM = 12  # a fine cell with more than this part of the rows is a cell of its own
_LONG_RANGE = 1000  # steps of a column from 0 on, from which its fine cells grow with the value
_RARE = 1000  # a level with less than this part of the rows is merged with others


@dataclass(frozen=True)
class ColumnCells:
    """Cells of one column, and the finer ones from which values inside a cell are drawn.

    Attributes
    ----------
    column : Column
        Declaration of the column.
    edges : tuple of float
        For numbers, where the second and later cells begin; dates are days since their lower bound.
    fine : tuple of float
        Where the second and later fine cells begin; these include `edges`.
    groups : tuple of int or None
        For a category of which levels were merged, the cell of each level; None for all others.
    is_cut : bool
        Whether `edges` are still to be chosen by the counts of fine cells.
    """

    column: Column
    edges: tuple[float, ...] = ()
    fine: tuple[float, ...] = ()
    groups: tuple[int, ...] | None = None
    is_cut: bool = False

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    def size(self) -> int:
        """Number of cells, that of missing ones included."""
        if self.groups is not None:
            return max(self.groups) + 1
        return self._count(self.edges)

    @property
    def fine_size(self) -> int:
        """Number of fine cells, that of missing ones included."""
        return self._count(self.fine)

    def _count(self, edges: Sequence[float]) -> int:
        if self.column.is_category:
            return len(self.column.levels)
        return len(edges) + 1 + (not self.column.required)

    @property
    def has_fine(self) -> bool:
        """Whether fine cells are counted: some cell has several of them."""
        if self.column.is_category:
            return len(self.column.levels) > MANY_LEVELS
        return self.is_cut or len(self.fine) > len(self.edges)

    @property
    def cell_of_fine(self) -> Ints:
        """Cell of each fine cell, in their order."""
        if self.column.is_category:
            return np.arange(self.size) if self.groups is None else np.array(self.groups)
        starts = np.array(self.fine)
        cells = np.searchsorted(np.array(self.edges), starts, side="right")
        missing = [] if self.column.required else [len(self.edges) + 1]
        return np.concatenate([[0], cells, missing]).astype(np.int64)

    @property
    def expected_size(self) -> int:
        """Number of cells to plan for: for a number that is cut later, as many as it usually gets."""
        if self.is_cut:
            return min(_CUTS, self.fine_size) + (not self.column.required)
        return min(self.size, MANY_LEVELS + 1) if self.column.is_category else self.size

    def intervals(self, edges: Sequence[float]) -> list[tuple[float, float]]:
        """Return where each interval between edges begins and ends; the last includes its end."""
        lower, upper = self.column.range
        return list(itertools.pairwise([lower, *edges, upper]))

    def labels(self, *, fine: bool = False) -> list[Any]:
        """Return what is in each cell, as JSON: a level, a list of levels, or two ends; None for missing."""
        column = self.column
        if column.is_category:
            if self.groups is None or fine:
                return list(column.levels)
            merged: list[list[Any]] = [[] for _ in range(self.size)]
            for level, cell in zip(column.levels, self.groups, strict=True):
                merged[cell].append(level)
            return [levels[0] if len(levels) == 1 else levels for levels in merged]
        points: list[Any] = [column.range[0], *(self.fine if fine else self.edges), column.range[1]]
        if column.is_calendar:
            points = [str(column.moment(point)) for point in points]
        ends: list[Any] = [list(pair) for pair in itertools.pairwise(points)]
        return ends if column.required else [*ends, None]

    def settle(self, counts: Floats | None, sd: float, n: float) -> ColumnCells:
        """Return the cells that noisy counts of fine cells give: cuts of a number, levels that are merged.

        Parameters
        ----------
        counts : array or None
            Noisy counts of the fine cells; None where none were asked for, and nothing is to be chosen.
        sd : float
            Standard deviation of the noise on each count.
        n : float
            Number of rows, public or estimated.
        """
        if counts is None:
            return self
        if self.column.is_category:
            return replace(self, groups=_merge_rare(counts, sd, n))
        return replace(self, edges=self._cut(counts, sd, n), is_cut=False) if self.is_cut else self

    def _cut(self, counts: Floats, sd: float, n: float) -> tuple[float, ...]:
        """Return the fine edges at which cells begin: beside atoms, and at equal mass of what is left."""
        rows = project(counts, n)[: len(self.fine) + 1]
        atoms = (rows > n / _ATOM) & (counts[: len(rows)] > 3 * sd)
        mass = np.where(atoms, 0.0, rows)
        left = add_up(mass)
        cuts = _CUTS_BESIDE_ATOMS if atoms.any() else _CUTS
        if left <= 6 * sd:
            cuts = 1
        middle = np.cumsum(mass) - mass / 2
        part = np.minimum(middle * cuts / left if left > 0 else middle, cuts - 1).astype(np.int64)
        begins = (part[1:] != part[:-1]) | atoms[1:] | atoms[:-1]
        edges = tuple(edge for edge, begin in zip(self.fine, begins.tolist(), strict=True) if begin)
        # A number that may be missing is in tables for that alone, and tables need an edge.
        return edges or (() if self.column.required else self.fine[len(self.fine) // 2 :][:1])


def _merge_rare(counts: Floats, sd: float, n: float) -> tuple[int, ...] | None:
    """Return the cell of each level, the last for all rare ones; None where at most one is rare."""
    rare = counts < max(3 * sd, n / _RARE)
    few = int(np.count_nonzero(rare))
    if few < 2:
        return None
    last = len(counts) - few
    return tuple(np.where(rare, last, np.cumsum(~rare) - 1).tolist())


def make_cells(schema: Schema, declared: Mapping[str, Sequence[Any]] | None) -> tuple[ColumnCells, ...]:
    """Return the cells of every released column; those of numbers without declared cells are cut later.

    Parameters
    ----------
    schema : Schema
        Declaration of the columns.
    declared : mapping of str to sequence, or None
        For some numbers and dates, the values at which the second and later cells begin, in place of those
        in the schema; None for none.

    Raises
    ------
    ParameterError
        If cells are declared for a column that has none to declare, or are not rising within its bounds.
    """
    given = dict(declared or {})
    released = {column.name: column for column in schema.released}
    for name in given:
        if name not in released or released[name].is_category:
            raise ParameterError(
                f"cells of SyntheticRelease must be for numbers and dates that are released, and {name!r} is "
                "none. The levels of a category are its cells."
            )
    return tuple(_make(column, given.get(name)) for name, column in released.items())


def _make(column: Column, declared: Sequence[Any] | None) -> ColumnCells:
    """Return the cells of one column from its declaration alone."""
    if column.is_category:
        return ColumnCells(column)
    edges = column.cell_starts if declared is None else _read_edges(column, declared)
    if edges is not None:
        return ColumnCells(column, edges, _divide_cells(column, edges))
    steps = step_count(column)
    if column.type != "number" and steps is not None and steps < FEW_VALUES:
        lower = column.range[0]
        values = tuple(lower + i for i in range(1, steps + 1))
        return ColumnCells(column, values, values)
    fine = _fine_edges(column)
    return ColumnCells(column, fine=fine, is_cut=True)


def step_count(column: Column) -> int | None:
    """Return the number of steps of a column's grid between its bounds; None where it has no grid."""
    if column.is_whole:
        return round(column.width)
    return None if column.grid is None else round(column.width / column.grid)


def step_width(column: Column) -> float:
    """Return the width of one step of a column's grid; 1 for whole numbers and dates."""
    return 1.0 if column.grid is None or column.type != "number" else float(column.grid)


def grid_values(column: Column, steps: Floats) -> Floats:
    """Return the values so many steps above a column's bound, as its decimals would be read from a text.

    0.1 + 2 * 0.1 is 0.30000000000000004; rows that hold 0.3 would be below that edge.
    """
    lower, step = column.range[0], step_width(column)
    values = lower + steps * step
    digits = max(-int(Decimal(repr(float(x))).normalize().as_tuple().exponent) for x in (lower, step))
    if not 0 < digits <= _MOST_DECIMALS:
        return values
    factor = float(f"1e{digits}")
    return np.rint(values * factor) / factor


def _read_edges(column: Column, declared: Sequence[Any]) -> tuple[float, ...]:
    """Return declared edges as numbers; refuses those that do not rise within the bounds."""
    edges: list[Any] = [_read_moment(edge, column) if column.is_calendar else edge for edge in declared]
    lower, upper = column.range
    plain = all(isinstance(edge, int | float | np.number) and math.isfinite(edge) for edge in edges)
    if column.type != "number" and plain:
        edges = [math.ceil(edge) for edge in edges]
    rising = plain and all(a < b for a, b in itertools.pairwise([lower, *edges]))
    if not rising or not edges or edges[-1] > upper or len(edges) >= MOST_CELLS:
        raise ParameterError(
            f"cells of SyntheticRelease for {column.name!r} must be up to {MOST_CELLS - 1} rising values "
            f"above its lower bound {column.lower} and up to its upper bound {column.upper}, was "
            f"{list(declared)}. Each is where a cell begins; the first begins at the lower bound."
        )
    return tuple(float(edge) for edge in edges)


def _read_moment(edge: Any, column: Column) -> Any:
    """Return a date or datetime, or its text, in steps since the first; anything else as it is."""
    kind, first = (datetime.date if column.type == "date" else datetime.datetime), column.lower
    assert isinstance(first, datetime.date)
    if isinstance(edge, str):
        try:
            edge = kind.fromisoformat(edge)
        except ValueError:
            return edge
    return float((edge - first) // column.step_length) if isinstance(edge, kind) else edge


def _divide_cells(column: Column, edges: Sequence[float]) -> tuple[float, ...]:
    """Return the edges of equal parts of every cell, on the column's grid where it has one."""
    lower, upper = column.range
    step = step_width(column)
    starts = [lower, *edges]
    ends = [*edges, upper + (0.0 if step_count(column) is None else step)]
    fine = set(edges)
    for start, end in zip(starts, ends, strict=True):
        for i in range(1, SUBCELLS):
            edge = start + (end - start) * i / SUBCELLS
            if step_count(column) is not None:
                edge = float(grid_values(column, np.ceil((edge - lower) / step - 2.0**-20)))
            if start < edge < end:
                fine.add(edge)
    return tuple(sorted(fine))


def _fine_edges(column: Column) -> tuple[float, ...]:
    """Return public edges of fine cells: of equal widths, or wider with the value where the range is long.

    The latter are equal steps of ``log(1 + x - lower)``, or of ``log(x)`` where a logarithmic scale from a
    bound above 0 on is declared, computed by square roots and products.
    """
    lower, upper = column.range
    step, steps = step_width(column), step_count(column)
    span = (upper - lower) / step
    long = lower >= 0 and span >= _LONG_RANGE and not column.is_calendar
    if column.scale == "log" and lower > 0:
        places = [(factor - 1) * lower / step for factor in _equal_ratios(upper / lower)]
    elif column.scale == "log" or (column.scale is None and long):
        places = [factor - 1 for factor in _equal_ratios(1 + span)]
    else:
        places = [span * i / FINE_CELLS for i in range(1, FINE_CELLS)]
        if steps is not None:
            places = [(steps + 1) * i / FINE_CELLS for i in range(1, FINE_CELLS)]
    if steps is not None:
        places = [float(math.ceil(place - 2.0**-20)) for place in places]
        if lower == 0:
            places.append(1.0)
        edges = set(grid_values(column, np.array(places)).tolist())
    else:
        edges = {lower + place * step for place in places}
    if lower == 0 and steps is None:
        edges.add(LEAST_MAGNITUDE)  # smaller numbers are read as 0, which has a cell of its own
    return tuple(sorted(edge for edge in edges if lower < edge <= upper))


def _equal_ratios(end: float) -> list[float]:
    """Return the powers ``end**(i / 128)`` for ``i`` from 1 to 127."""
    roots = [end]
    for _ in range(FINE_CELLS.bit_length() - 1):
        roots.append(math.sqrt(roots[-1]))
    powers = []
    for i in range(1, FINE_CELLS):
        power = 1.0
        for bit, root in enumerate(reversed(roots[1:])):
            power = power * root if i >> bit & 1 else power
        powers.append(power)
    return powers


def plain_edges(edges: Sequence[Any]) -> tuple[Any, ...]:
    """Return edges as plain JSON values: dates as text."""
    return tuple(edge.isoformat() if isinstance(edge, datetime.date) else edge for edge in edges)
