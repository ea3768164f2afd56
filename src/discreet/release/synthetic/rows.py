"""Rows of a synthetic table, drawn from its weighted sample under a public seed, and values in their cells.

Rows are apportioned to the fine cells inside a cell by noisy counts; values are then uniform on the grid.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from discreet.errors import ParameterError
from discreet.noise import permutation
from discreet.privacy.receipt import canonical
from discreet.query.curation import LEAST_MAGNITUDE
from discreet.release.synthetic.arithmetic import add_up, order_rows
from discreet.release.synthetic.cells import grid_values, step_count, step_width
from discreet.release.synthetic.columns import DrawnColumns, NarrowColumn, narrow_type, split_rows
from discreet.release.synthetic.projection import fit_falling, project
from discreet.release.synthetic.public import match_rows
from discreet.release.synthetic.sampling import draw_levels, resample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream
    from discreet.privacy import Receipt
    from discreet.release.synthetic.cells import ColumnCells
    from discreet.release.synthetic.public import PublicRows
    from discreet.release.synthetic.questions import NoisyTable
    from discreet.release.synthetic.synthesis import Synthesis

_MANY_PARTS = 2**30  # rows are ordered by no more columns than divide them into so many parts
LEAST_FITTING = 100
"""Smallest number of sampled rows that must fit a condition."""
_LEAST_CELLS = 4  # of a number, of which the first and the last are then its tails


def sampling_seed(receipt: Receipt | None, digest: str, index: int = 0) -> str:
    """Return the public seed of rows, in hexadecimal, which follows from the last receipt.

    Nobody may choose it: seeds could be searched until the rows resemble the true ones. Where no ledger
    recorded the receipt, or the noise came from a seed and is public anyway, it follows from the answers.

    Parameters
    ----------
    receipt : Receipt or None
        Receipt of the last question; None where none was asked.
    digest : str
        Digest of all questions with their answers.
    index : int
        Index of the draw; 0 for the release itself.
    """
    is_bound = receipt is not None and receipt.recorded and not receipt.seeded
    source = receipt.hash if receipt is not None and is_bound else digest
    return hashlib.sha256(canonical(["sampling", source, index]).encode()).hexdigest()


def draw_rows(made: Synthesis, n: int, where: Mapping[str, Any], stream: Stream) -> DrawnColumns:
    """Return rows resampled from the weighted sample, with values inside their cells, in random order.

    Parameters
    ----------
    made : Synthesis
        Model with its weighted sample.
    n : int
        Number of rows that are drawn.
    where : mapping of str to level
        Value of some columns that all rows shall have.
    stream : Stream
        Source of the random words.
    """
    if made.public is not None:
        return _draw_kept(made, made.public, stream)
    fitting = _find_rows(made, where)
    if where and len(fitting) < LEAST_FITTING:
        # Rows of what is rare, as many as there were of all.
        made = _redraw(made, where, stream)
        fitting = _find_rows(made, where)
    if where and len(fitting) < LEAST_FITTING:
        raise ParameterError(
            f"where of SyntheticRelease.generate must fit at least {LEAST_FITTING} of "
            f"{len(made.classes)} sampled rows, and fits {len(fitting)}. Ask for less at once."
        )
    order = order_rows(_list_keys(made, fitting), len(fitting))
    picked = resample(fitting[order], made.weights, n, stream)
    return DrawnColumns(_draw_columns(made, picked[permutation(n, stream)], stream))


def _list_keys(made: Synthesis, rows: Ints) -> list[AnyArray]:
    """Return numbers by which rows are ordered: by class, then column by column along the tree."""
    keys = [made.classes[rows]]
    parts = width = len(made.tree.one_way.classes)
    for column, _ in made.tree.order:
        if parts > _MANY_PARTS:
            break
        size = made.tree.one_way.columns[column].shape[1]
        codes = made.sample[column][rows]
        width *= size
        if width < 2**16:
            # As long as they fit, columns share a key: each key is sorted by itself.
            keys[-1] = keys[-1] * np.uint16(size) + codes
        else:
            keys.append(codes)
            width = size
        parts *= size
    return keys


def _draw_kept(made: Synthesis, public: PublicRows, stream: Stream) -> DrawnColumns:
    """Return the kept rows, each with the other columns of a sampled row that has the same public cells."""
    keys = [made.patterns, made.classes, *(made.sample[column] for column, _ in made.tree.order)]
    order = order_rows(keys, len(made.patterns))
    kept, picked = match_rows(made.patterns, made.kept, order, made.weights, stream)
    drawn = _draw_columns(made, picked, stream)
    rows = {name: NarrowColumn(values[kept]) for name, values in public.columns.items()}
    return DrawnColumns(drawn | rows)


def _draw_columns(made: Synthesis, picked: AnyArray, stream: Stream) -> dict[str, NarrowColumn]:
    """Return the columns of sampled rows, with values inside their cells."""
    columns = {}
    n = len(picked)
    for name, cells in made.cells.items():
        if name == made.plan.target:
            codes = made.classes[picked]
        elif name in made.names:
            codes = made.sample[made.names.index(name)][picked]
        else:
            codes = np.zeros(n, np.uint8)
        columns[name] = draw_values(cells, codes, made.fine.get(name), stream)
    return columns


def _redraw(made: Synthesis, where: Mapping[str, Any], stream: Stream) -> Synthesis:
    """Return the model with a sample that has the class and the rarest other cell of a condition."""
    target, one_way = made.plan.target, made.tree.one_way
    cell = None if target is None or target not in where else _find_cell(made, target, where[target])
    rows: list[tuple[float, int, int]] = []
    for name, value in where.items():
        if name in made.names:
            column, place = made.names.index(name), _find_cell(made, name, value)
            by_class = one_way.columns[column][:, place]
            rows.append((add_up(by_class) if cell is None else float(by_class[cell]), column, place))
    if not rows:
        return made.redraw(cell, None, 0, stream)
    count, column, place = min(rows)
    # What no row has cannot be drawn.
    return made if count <= 0 else made.redraw(cell, column, place, stream)


def _find_rows(made: Synthesis, where: Mapping[str, Any]) -> Ints:
    """Return the sampled rows that have given values; refuses columns and levels that are not declared."""
    fits = np.ones(len(made.classes), bool)
    for name, value in where.items():
        if name not in made.cells:
            raise ParameterError(
                f"where of SyntheticRelease.generate must name columns, and {name!r} is none."
            )
        cell = _find_cell(made, name, value)
        if name == made.plan.target:
            fits &= made.classes == cell
        elif name in made.names:
            fits &= made.sample[made.names.index(name)] == cell
    return np.flatnonzero(fits)


def _find_cell(made: Synthesis, name: str, value: Any) -> int:
    """Return the cell of a value."""
    cells = made.cells[name]
    column = cells.column
    if column.is_category:
        if value not in column.levels:
            raise ParameterError(
                f"where of SyntheticRelease.generate must have a declared level of {name!r}, was {value!r}."
            )
        place = column.levels.index(value)
        return place if cells.groups is None else cells.groups[place]
    if value is None:
        return len(cells.edges) + 1
    number = float(column.count_steps(np.array([value]))[0]) if column.is_calendar else float(value)
    return int(np.searchsorted(np.array(cells.edges), number, side="right"))


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
