"""Rows of a synthetic table, drawn from its weighted sample under a public seed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.noise import permutation
from discreet.privacy.receipt import canonical
from discreet.release.synthetic.arithmetic import add_up, order_rows
from discreet.release.synthetic.columns import DrawnColumns, NarrowColumn
from discreet.release.synthetic.public import match_rows
from discreet.release.synthetic.sampling import resample
from discreet.release.synthetic.values import draw_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Ints
    from discreet.noise import Stream
    from discreet.privacy import Receipt
    from discreet.release.synthetic.public import PublicRows
    from discreet.release.synthetic.synthesis import Synthesis

_MANY_PARTS = 2**30  # rows are ordered by no more columns than divide them into so many parts
LEAST_FITTING = 100
"""Smallest number of sampled rows that must fit a condition."""


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
