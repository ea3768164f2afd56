"""Conditions on tables of counts: which cells lie inside a condition, and which it touches.

A table of counts can answer a condition that holds in whole cells. Whether it does is decided on points: the
ends of a cell, and the values on either side of each number that the condition compares with. Between these
the condition cannot change.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from discreet.errors import ParameterError
from discreet.query.curation import LEAST_MAGNITUDE, SchemaKey
from discreet.query.language._date_nodes import DateColumn, DateConstant
from discreet.query.language._expression import parse_where
from discreet.query.language._parser import read
from discreet.query.language.lexer import write_name
from discreet.query.language.nodes import (
    Compare,
    Condition,
    Constant,
    Indicator,
    Junction,
    Member,
    Node,
    Reference,
    Test,
    Truth,
    write_level,
    write_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from discreet._types import AnyArray
    from discreet.query.aggregates.histogram import Axis
    from discreet.query.curation import Curated
    from discreet.query.language._expression import Expression
    from discreet.schema import Column, Schema

_MOST_POINTS = 2**22


class CellMasks(NamedTuple):
    """Cells of some columns that a condition holds in.

    Attributes
    ----------
    inside : array of bool
        Whether the condition holds for every row of a cell.
    touched : array of bool
        Whether it holds for some row that a cell can have.
    """

    inside: AnyArray
    touched: AnyArray

    @property
    def is_exact(self) -> bool:
        """Whether the condition cuts no cell."""
        return bool(np.array_equal(self.inside, self.touched))


def condition_columns(where: Expression) -> tuple[str, ...]:
    """Return the declared columns that a condition depends on, in the order of the schema."""
    named = {name for name, _ in _comparisons(where)}
    return tuple(column.name for column in where.schema.released if column.name in named)


def subject_columns(subject: Expression) -> tuple[str, ...]:
    """Return the declared columns of what is averaged: those of a condition, or the one of a number."""
    if subject.is_condition:
        return condition_columns(subject)
    return tuple(column.name for column in subject.schema.released if column.name in subject.columns)


def mask_cells(where: Expression, axes: Mapping[str, Axis]) -> CellMasks:
    """Return which cells a condition holds in.

    Parameters
    ----------
    where : Expression
        Condition that compares columns with constants.
    axes : mapping of str to Axis
        Cells of each column of the condition, in the order of the dimensions of the result.

    Raises
    ------
    ParameterError
        If the condition computes with columns, or needs too many points.
    """
    constants: dict[str, set[float]] = {name: set() for name in axes}
    for name, value in _comparisons(where):
        if value is not None:
            constants[name].add(value)
    points = [_points(axis, sorted(constants[name])) for name, axis in axes.items()]
    sizes = [len(cells) for cells, _ in points]
    if math.prod(sizes) > _MOST_POINTS:
        raise ParameterError(
            "where of a statistic must have fewer cells to look at, and has more than 4 million. Name fewer "
            "columns."
        )
    grids = np.meshgrid(*(np.arange(size) for size in sizes), indexing="ij")
    arrays: dict[str, AnyArray] = {"": np.zeros(math.prod(sizes), np.int64)}
    for grid, (axis, (_, encoded)) in zip(grids, zip(axes.values(), points, strict=True), strict=True):
        column = axis.column
        arrays[column.name] = encoded[column.exact][grid.ravel()]
        if column.flag is not None:
            arrays[f"{column.name}_missing"] = encoded[column.flag][grid.ravel()]
    holds = (
        (where.evaluate(arrays) > 0) if not where.is_constant else np.full(len(arrays[""]), where.lower > 0)
    )
    found = holds.reshape(sizes)
    inside, touched = found, found
    for dimension, (cells, _) in enumerate(points):
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        inside = np.logical_and.reduceat(inside, starts, axis=dimension)
        touched = np.logical_or.reduceat(touched, starts, axis=dimension)
    return CellMasks(inside, touched)


def _comparisons(where: Expression) -> tuple[tuple[str, float | None], ...]:
    """Return the columns of a condition, with the numbers that they are compared with."""
    return _find_comparisons(where.canonical, SchemaKey(where.schema))


@lru_cache(maxsize=128)
def _find_comparisons(canonical: str, same: SchemaKey) -> tuple[tuple[str, float | None], ...]:
    # Cached, because a condition is looked at for every table.
    return tuple(_walk(read(canonical, same.schema)))


def _walk(node: Node) -> Iterator[tuple[str, float | None]]:
    """Yield what the parts of a condition compare; refuses those that compute."""
    match node:
        case Indicator():
            yield from _walk(node.condition)
        case Truth():
            return
        case Member():
            yield node.name, None
        case Junction():
            for part in node.parts:
                yield from _walk(part)
        case Test() if isinstance(node.subject, Condition):
            yield from _walk(node.subject)
        case Test(subject=Reference() | DateColumn()):
            yield _reference(node.subject).name, None
        case Compare():
            yield _read_comparison(node)
        case _:
            raise _computes(node)


def _read_comparison(node: Compare) -> tuple[str, float]:
    """Return the column and the number of a comparison; refuses one of two columns, or of an expression."""
    for column, constant in itertools.permutations((node.left, node.right)):
        if isinstance(column, Reference) and isinstance(constant, Constant):
            return column.name, float(constant.value)
        if isinstance(column, DateColumn) and isinstance(constant, DateConstant):
            return column.reference.name, float((constant.day - column.first).days)
    raise _computes(node)


def _reference(node: Node) -> Reference:
    return node.reference if isinstance(node, DateColumn) else node  # type: ignore[return-value]


def _computes(node: Node) -> ParameterError:
    return ParameterError(
        f"where of a statistic must compare columns with constants, was {node.text}. Counts of cells say "
        "nothing about a computed number: ask a query."
    )


def _points(axis: Axis, constants: Sequence[float]) -> tuple[AnyArray, dict[str, AnyArray]]:
    """Return points in every cell of a column, cell after cell: the cell of each, and its curated columns."""
    column = axis.column
    values: list[float] = []
    cells: list[int] = []
    for cell, label in enumerate(axis.labels):
        found = _cell_points(column, label, constants)
        values += found
        cells += [cell] * len(found)
    encoded = column.encode(np.array(values, np.float64))
    return np.array(cells), encoded


def _cell_points(column: Curated, label: Any, constants: Sequence[float]) -> list[float]:
    """Return points of one cell between which a comparison with these constants cannot change."""
    if column.is_category:
        levels = label if isinstance(label, tuple) else (label,)
        places = {_identify(level): place for place, level in enumerate(column.levels)}
        return [float(places[_identify(level)]) for level in levels]
    if label is None:
        return [math.nan]
    low, high = cell_range(column, label)
    inner = [c for c in constants if low < c < high]
    if column.whole:
        near = {math.floor(c) + shift for c in constants for shift in (-1, 0, 1)}
        return sorted({low, high} | {float(x) for x in near if low < x < high})
    ends = [low, *inner, high]
    return sorted({*ends, *((a + b) / 2 for a, b in itertools.pairwise(ends))})


def _identify(level: Any) -> tuple[str, Any]:
    # True == 1 to Python, and both may be levels of a list.
    return type(level).__name__, level


def cell_range(column: Curated, label: Any) -> tuple[float, float]:
    """Return the least and the largest number of a cell; of numbers without steps, the last below its end.

    Parameters
    ----------
    column : Curated
        Layout of the column in the curated table.
    label : tuple of two floats, or number
        Ends of an interval, infinite at the bounds of the column; or the one value of the cell.
    """
    if not isinstance(label, tuple):
        return float(label), float(label)
    start, end = label
    low = max(float(start), column.lower)
    if column.whole:
        low = column.lower + math.ceil(low - column.lower)
        last = column.upper if math.isinf(end) else column.lower + math.ceil(end - column.lower) - 1
        return low, max(low, min(float(last), column.upper))
    # Where a cell begins at the upper bound, the cell before it ends below.
    high = column.upper if end > column.upper else math.nextafter(float(end), -math.inf)
    if abs(high) < LEAST_MAGNITUDE:  # smaller numbers are read as 0
        high = -LEAST_MAGNITUDE if end <= 0 else 0.0
    return low, max(low, high)


def join_conditions(parts: Sequence[str], schema: Schema) -> Expression | None:
    """Return the condition that all of several texts say; None for none.

    Parameters
    ----------
    parts : sequence of str
        Canonical texts of conditions.
    schema : Schema
        Schema with the columns that they name.
    """
    return parse_where(" AND ".join(f"({part})" for part in parts), schema) if parts else None


def describe_cell(axis: Axis, label: Any, schema: Schema) -> str:
    """Return the condition that a row is in a cell, as text that can be read again.

    Parameters
    ----------
    axis : Axis
        Cells of a column.
    label : level, number, tuple or None
        Label of one of them.
    schema : Schema
        Declaration of the column.
    """
    column, name = axis.column, write_name(axis.column.name)
    levels = label if isinstance(label, tuple) else (label,)
    if column.is_category:
        known = [write_level(level) for level in levels if level is not None]
        parts = [f"{name} IN ({', '.join(known)})"] if known else []
        return " OR ".join([*parts, *([f"{name} IS NULL"] if None in levels else [])])
    if label is None:
        return f"{name} IS NULL"
    declared = schema.column(column.name)
    low, high = label if isinstance(label, tuple) else (label, label + 1)
    sides = [(">=", low)] if low > column.lower else []
    sides += [("<", high)] if high <= column.upper else []
    written = [f"{name} {sign} {_write_number(end, declared)}" for sign, end in sides]
    return " AND ".join(written or [f"{name} IS NOT NULL" if column.flag else "TRUE"])


def _write_number(value: float, column: Column) -> str:
    if column.is_calendar:
        kind = "DATE " if column.type == "date" else ""
        return f"{kind}'{column.moment(math.ceil(value))}'"
    return write_number(Fraction(value))
