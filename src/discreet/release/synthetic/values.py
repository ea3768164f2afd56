"""Values inside cells: rows are apportioned to fine cells by noisy counts, then uniform on the grid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from discreet.query.curation import LEAST_MAGNITUDE
from discreet.release.synthetic.arithmetic import add_up
from discreet.release.synthetic.cells import grid_values, step_count, step_width
from discreet.release.synthetic.columns import NarrowColumn, narrow_type, split_rows
from discreet.release.synthetic.projection import fit_falling, project
from discreet.release.synthetic.sampling import draw_levels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream
    from discreet.release.synthetic.cells import ColumnCells
    from discreet.release.synthetic.questions import NoisyTable


_LEAST_CELLS = 4  # of a number, of which the first and the last are then its tails


def draw_values(cells: ColumnCells, codes: AnyArray, fine: NoisyTable | None, stream: Stream) -> NarrowColumn:
    """Return the values of a column: codes of levels, or numbers with NaN where a cell is missing.

    Parameters
    ----------
    cells : ColumnCells
        Cells of the column and their fine ones.
    codes : array of int
        Cell of each row.
    fine : NoisyTable or None
        Noisy counts of the fine cells; None where they were not asked for.
    stream : Stream
        Source of the random words.
    """
    column = cells.column
    if column.is_category:
        if cells.groups is None:
            return NarrowColumn(codes)
        return NarrowColumn(_draw_fine(cells, codes, fine, stream))
    if fine is None and not cells.has_fine:
        return _draw_numbers(cells, cells.edges, codes, stream)
    return _draw_numbers(cells, cells.fine, _draw_fine(cells, codes, fine, stream), stream)


def _draw_fine(cells: ColumnCells, codes: AnyArray, fine: NoisyTable | None, stream: Stream) -> AnyArray:
    """Return the fine cell of each row, in proportion to shrunken noisy counts within its cell."""
    parents = cells.cell_of_fine
    rows = np.bincount(codes, minlength=cells.size)
    shares = np.zeros((cells.size, len(parents)))
    for cell in range(cells.size):
        inside = np.flatnonzero(parents == cell)
        tail = _find_tail(cells, cell)
        inside = inside[::-1] if tail == "lower" else inside
        shares[cell, inside] = _share_out(fine, inside, float(rows[cell]), is_tail=tail is not None)
    return draw_levels(codes, shares, stream)


def _find_tail(cells: ColumnCells, cell: int) -> Literal["lower", "upper"] | None:
    """Return on which side of most numbers a cell is; None for one between others, or one of a few."""
    last = len(cells.edges)
    if cells.column.is_category or last + 1 < _LEAST_CELLS or cell not in (0, last):
        return None
    return "upper" if cell else "lower"


def _share_out(fine: NoisyTable | None, inside: Ints, rows: float, *, is_tail: bool) -> Floats:
    """Return how many of the rows of a cell are in each of its fine cells, without rounding.

    Parameters
    ----------
    fine : NoisyTable or None
        Noisy counts of all fine cells; None where they were not asked for.
    inside : array of int
        Fine cells of this cell; those of a tail from the inside outwards.
    rows : float
        Number of rows of the cell.
    is_tail : bool
        Whether it is the first or last cell of a number. These may reach far beyond most rows: counts that
        are taken to be equal, or noise that is left there, would then move the mean of the column.
    """
    expected = np.full(len(inside), rows / max(len(inside), 1))
    if fine is None or len(inside) < 2:
        return expected
    noisy = fine.values.ravel()[inside]
    noisy = noisy + (rows - add_up(noisy)) / len(inside)
    if is_tail:
        expected = project(fit_falling(noisy), rows)
    difference = noisy - expected
    variance = fine.sd * fine.sd
    excess = max(add_up(difference * difference) / len(inside) - variance, 0.0)
    if excess + variance <= 0:
        return expected
    return project(expected + difference * (excess / (excess + variance)), rows)


def _draw_numbers(
    cells: ColumnCells, edges: tuple[float, ...], codes: AnyArray, stream: Stream
) -> NarrowColumn:
    """Return a uniform point of the column's grid in the interval of each row; NaN in the cell after all."""
    column = cells.column
    lower, upper = column.range
    intervals = cells.intervals(edges)
    steps, step = step_count(column), step_width(column)
    if column.type != "number" and steps == len(edges):
        # Every cell is one value, and the one after them is missing.
        values = np.append(np.minimum(lower + np.arange(steps + 1) * step, upper), np.nan)
        return NarrowColumn(codes, values)
    if steps is None or steps >= 2**31:
        return NarrowColumn(_draw_between(intervals, codes, stream, cells))
    first = [max(math.ceil((start - lower) / step - 2.0**-20), 0) for start, _ in intervals]
    after = [*first[1:], steps + 1]
    begin = np.array(first, np.int64)
    count = np.maximum(np.array(after, np.int64) - begin, 1).astype(np.uint64)
    # An interval behind the last step has one point, the step after it.
    missing = steps + 2
    places = np.empty(len(codes), narrow_type(missing))
    for rows in split_rows(len(codes)):
        known = np.minimum(codes[rows], len(intervals) - 1)
        # The high half of a product of 32 bits each: a uniform whole number below the count.
        inside = (stream.words(len(known)) >> np.uint64(32)) * count[known] >> np.uint64(32)
        drawn = begin[known] + inside.astype(np.int64)
        places[rows] = np.where(codes[rows] >= len(intervals), missing, drawn)
    # A long grid is not listed, but for as many rows as it has points.
    is_listed = missing < len(codes)
    drawn = np.arange(missing + 1) if is_listed else places
    points = np.minimum(np.maximum(grid_values(column, drawn.astype(np.float64)), lower), upper)
    points = np.where(drawn == missing, np.nan, points)
    return NarrowColumn(places, points) if is_listed else NarrowColumn(points)


def _draw_between(
    intervals: Sequence[tuple[float, float]], codes: AnyArray, stream: Stream, cells: ColumnCells
) -> Floats:
    """Return a uniform number in the interval of each row, a whole one for a grid too long to be counted."""
    lower, upper = cells.column.range
    starts = np.array([start for start, _ in intervals])
    # The cell of 0 ends at the least number that is not read as 0.
    widths = np.array([0.0 if 0 < end <= LEAST_MAGNITUDE else end - start for start, end in intervals])
    numbers = np.empty(len(codes))
    for rows in split_rows(len(codes)):
        known = np.minimum(codes[rows], len(intervals) - 1)
        part = (stream.words(len(known)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        values = starts[known] + part * widths[known]
        if step_count(cells.column) is not None:
            values = np.floor(values)
        inside = np.minimum(np.maximum(values, lower), upper)
        numbers[rows] = np.where(codes[rows] >= len(intervals), np.nan, inside)
    return numbers
