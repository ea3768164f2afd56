"""Rows of a synthetic table: a weighted sample of its model, and rows and values drawn from it.

The sample is drawn along the tree of the model, with weights fitted to all tables. Rows are drawn from it
under a public seed, and apportioned to the fine cells inside a cell by noisy counts; values are then uniform
on the grid.
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
from discreet.query.joint_tables import count_tables
from discreet.release.synthetic.arithmetic import add_along, add_up, divide, order_rows
from discreet.release.synthetic.cells import grid_values, step_count, step_width
from discreet.release.synthetic.columns import DrawnColumns, NarrowColumn, narrow_type, split_rows
from discreet.release.synthetic.hidden_classes import HIDDEN_CLASSES, MOST_FITTED, fit_hidden_classes
from discreet.release.synthetic.projection import fit_falling, project
from discreet.release.synthetic.public import match_rows, number_patterns
from discreet.release.synthetic.sampling import apportion, draw_levels, fit_weights, resample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream
    from discreet.privacy import Receipt
    from discreet.release.synthetic.cells import ColumnCells
    from discreet.release.synthetic.public import PublicRows
    from discreet.release.synthetic.questions import NoisyTable
    from discreet.release.synthetic.selection import Pair
    from discreet.release.synthetic.synthesis import Synthesis
    from discreet.release.synthetic.tree import OneWay

SAMPLE_FACTOR, MOST_SAMPLED = 4, 2**20
ROUNDS, _FEW_ROUNDS, _MANY = 6, 3, 2**26
"""Rounds of fitting; the few are for trials, and for more rows times tables than the number after them."""
_CLASS_ROUNDS = 20
_TRIED = 2**17
"""Number of rows of a large sample in which weights are tried."""
LEAST_SHARE = 1 / 8
"""Effective share of the sample below which few rows stand for many: with four sampled rows for each row of
the table, they are worth less than half of them."""
_MANY_PARTS = 2**30  # rows are ordered by no more columns than divide them into so many parts
LEAST_FITTING = 100
"""Smallest number of sampled rows that must fit a condition."""
_LEAST_CELLS = 4  # of a number, of which the first and the last are then its tails


def draw_sample(made: Synthesis, stream: Stream) -> None:
    """Draw rows along the tree, several for each row of the table."""
    if made.public is not None:
        _draw_given(made, made.public, stream)
        return
    size = max(min(SAMPLE_FACTOR * round(made.n), MOST_SAMPLED), 1)
    classes = made.tree.one_way.classes
    counts = apportion(np.array([size]), classes[None], stream.words(len(classes)))[0]
    made.classes = np.repeat(np.arange(len(classes), dtype=np.uint16), counts)
    made.sample = [codes.astype(np.uint16) for codes in made.tree.draw(made.classes, stream)]


def _draw_given(made: Synthesis, public: PublicRows, stream: Stream) -> None:
    """Draw several rows for each kept one, with its public cells: first classes, then along the tree."""
    target, one_way = made.plan.target, made.tree.one_way
    given = {i: public.find_cells(made.cells[n]) for i, n in enumerate(made.names) if n in made.plan.public}
    known = list(given.values())
    if target in made.plan.public:
        known.append(public.find_cells(made.cells[target]))
    made.kept = number_patterns(known, public.n)
    times = max(1, min(SAMPLE_FACTOR, MOST_SAMPLED // public.n))
    made.patterns = np.repeat(made.kept, times)
    if target in made.plan.public:
        classes = np.repeat(known[-1], times)
    else:
        shares = _fit_classes(made.kept, given, one_way)
        classes = draw_levels(made.patterns, shares, stream)
    drawn = made.tree.draw(classes, stream, {i: np.repeat(codes, times) for i, codes in given.items()})
    made.sample = [codes.astype(np.uint16) for codes in drawn]
    made.classes = classes.astype(np.uint16)


def _fit_classes(kept: Ints, given: dict[int, Ints], one_way: OneWay) -> Floats:
    """Return the expected rows of every class for each combination of public cells.

    Of all that have the counts of each public column by class, these are nearest to classes that do not
    depend on public columns: those of a logistic model without interactions.
    """
    rows = np.bincount(kept)
    depth = len(one_way.classes)
    one_row = np.empty(len(rows), np.int64)
    one_row[kept] = np.arange(len(kept))
    pattern = np.repeat(np.arange(len(rows)), depth)
    label = np.tile(np.arange(depth), len(rows))
    codes = [np.repeat(cells[one_row], depth) for cells in given.values()]
    wanted: list[tuple[tuple[int, ...], Floats]] = [((len(codes),), rows.astype(np.float64))]
    wanted += [((i, len(codes) + 1), one_way.columns[column].T) for i, column in enumerate(given)]
    start: Floats = np.take(rows, pattern).astype(np.float64) * np.take(
        divide(one_way.classes, one_way.n), label
    )
    weights = fit_weights([*codes, pattern, label], [*wanted[1:], wanted[0]], start, _CLASS_ROUNDS)
    return weights.reshape(len(rows), depth)


def count_pairs(made: Synthesis, pairs: Sequence[Pair]) -> dict[Pair, Floats]:
    """Return the tables of pairs of columns in the sample, scaled to the number of rows."""
    sizes = [counts.shape[1] for counts in made.tree.one_way.columns]
    counted = zip(pairs, count_tables(made.sample, sizes, pairs), strict=True)
    scale = len(made.classes)
    return {p: (counts * made.n / scale).reshape(sizes[p[0]], sizes[p[1]]) for p, counts in counted}


def weigh_sample(made: Synthesis, stream: Stream) -> None:
    """Fit the weights of the sampled rows to all tables that are known.

    Where many tables contradict the tree, as where all columns follow something that is not among them, a few
    rows would stand for all. The sample is then drawn from hidden classes that have these tables. Where a few
    rows would still stand for all, the tables contradict each other by their noise, and weights are fitted
    to those of the tree alone.

    Parameters
    ----------
    made : Synthesis
        Model with its sample, which is replaced where weights alone would not do.
    stream : Stream
        Source of the random words of another sample.
    """
    wanted = _list_tables(made)
    weights, share = _try_weights(made, wanted)
    cells = add_up(counts.shape[1] for counts in made.tree.one_way.columns)
    if made.pairs and made.public is None and share < LEAST_SHARE and cells <= MOST_FITTED:
        _draw_hidden(made, stream)
        weights, share = _fit(made, wanted, 1)
        if share < LEAST_SHARE:
            weights, share = _fit(made, wanted[len(made.pairs) :], 1)
    if weights is None:
        weights, share = _fit(made, wanted, 1)
    made.weights, made.details["effective_share"] = weights, share


def _list_tables(made: Synthesis) -> list[tuple[tuple[int, ...], Floats]]:
    """Return the tables that the sample shall have, further ones first; the class comes after all columns."""
    one_way, last = made.tree.one_way, len(made.sample)
    wanted: list[tuple[tuple[int, ...], Floats]] = list(made.pairs.items())
    # Without further tables the tree already has all the others, up to rounding.
    wanted += [((column, last), counts.T) for column, counts in enumerate(one_way.columns)]
    wanted += [((*pair, last), np.moveaxis(table, 0, -1)) for pair, table in made.tree.edges.items()]
    if not made.sample:
        wanted = [((last,), one_way.classes)]
    if made.public is not None:
        wanted.append(((last + 1,), np.bincount(made.kept).astype(np.float64)))
    return wanted


def _try_weights(
    made: Synthesis, wanted: Sequence[tuple[tuple[int, ...], Floats]]
) -> tuple[Floats | None, float]:
    """Return fitted weights and their effective share; of a large sample only the share, in a part of it."""
    size = len(made.classes)
    if size <= 2 * _TRIED:
        return _fit(made, wanted, 1)
    return None, _fit(made, wanted, -(-size // _TRIED))[1] if made.pairs else 1.0


def _fit(
    made: Synthesis, wanted: Sequence[tuple[tuple[int, ...], Floats]], step: int
) -> tuple[Floats, float]:
    """Return weights of every so many-th row of the sample, and how many equal ones they are worth.

    Parameters
    ----------
    made : Synthesis
        Model with its sample.
    wanted : sequence of (tuple of int, array)
        Tables that the rows shall have.
    step : int
        1 for all rows, 2 for every other one, and so on.
    """
    columns = [*made.sample, made.classes, *([] if made.public is None else [made.patterns])]
    codes = [np.ascontiguousarray(one[::step]) for one in columns]
    size = len(codes[0])
    rounds = ROUNDS if step == 1 and size * len(wanted) <= _MANY else _FEW_ROUNDS
    weights = fit_weights(codes, wanted, made.n / size, rounds)
    total, squares = add_up(weights), add_up(weights * weights)
    return weights, total * total / (squares * size) if squares > 0 else 0.0


def _draw_hidden(made: Synthesis, stream: Stream) -> None:
    """Draw the sample again, from hidden classes that have the tables of two columns that are known."""
    one_way, last = made.tree.one_way, len(made.sample)
    tables = {(column, last): counts.T for column, counts in enumerate(one_way.columns)}
    tables |= {pair: add_along(table, 0) for pair, table in made.tree.edges.items()} | made.pairs
    sizes = [*(counts.shape[1] for counts in one_way.columns), len(one_way.classes)]
    made.hidden = fit_hidden_classes(tables, sizes, stream)
    made.details["hidden_classes"] = HIDDEN_CLASSES
    *sample, classes = made.hidden.draw(len(made.classes), stream)
    made.sample, made.classes = [codes.astype(np.uint16) for codes in sample], classes.astype(np.uint16)


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
