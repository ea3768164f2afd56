"""The numbers of an answer as a table whose rows hold charts on one axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet import formatting
from discreet.report.charts import ChartAxis
from discreet.report.charts.bars import IntervalMark, cell_axis, cell_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from discreet.query.result_cells import ResultCell
    from discreet.query.results import QueryResult

MOST_NUMBERS = 400
"""Maximum number of numbers that a page shows; the files have all of them."""

_MOST_ACROSS = 6  # columns of a two-way table that are readable beside one another


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberView:
    """One number of an answer.

    Attributes
    ----------
    value, interval : str
        The number and its interval as texts.
    order : str
        The number by which rows are sorted; empty if there is none.
    bar : Markup
        Chart of the number with its interval.
    faint : bool
        Whether its interval says little.
    """

    value: str
    interval: str
    order: str
    bar: Markup
    faint: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberColumn:
    """A column of numbers: its heading, the unit of its numbers, and the axis of its charts."""

    heading: str
    unit: str
    axis: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRow:
    """A row of the table: the values of its group, and a number for each column."""

    key: tuple[str, ...]
    cells: tuple[NumberView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTable:
    """Numbers of an answer in rows and columns.

    Attributes
    ----------
    caption : str
        Caption of the table.
    keys : tuple of str
        Headings of the columns that name the group.
    across : str
        Column of the data whose values head the columns of a two-way table; empty for other tables.
    columns : tuple of NumberColumn
        Columns of numbers: the statistics, or the values of `across`.
    rows : tuple of NumberRow
        Rows that are shown.
    more : int
        Number of numbers that are not shown.
    """

    caption: str
    keys: tuple[str, ...]
    across: str
    columns: tuple[NumberColumn, ...]
    rows: tuple[NumberRow, ...]
    more: int


def answer_table(result: QueryResult) -> AnswerTable:
    """Return the table of an answer with groups or several statistics.

    One statistic of two columns of groups is a two-way table, unless that would be too wide or has gaps.
    """
    width = len(result.columns)
    shown = result.cells[: MOST_NUMBERS // width * width]
    views, axes = _number_views(result, shown)
    more = len(result.cells) - len(shown)
    across = () if width > 1 or more else _values_across(result)
    if across:
        rows = [
            NumberRow(key=cells[0].key[:1], cells=tuple(views[i : i + len(across)]))
            for i, cells in _chunks(shown, len(across))
        ]
        unit = result.columns[0].unit or ""
        columns = [NumberColumn(heading=value, unit=unit, axis=axes[0]) for value in across]
    else:
        rows = [
            NumberRow(key=cells[0].key, cells=tuple(views[i : i + width]))
            for i, cells in _chunks(shown, width)
        ]
        columns = [
            NumberColumn(heading=column.name, unit=column.unit or "", axis=axis)
            for column, axis in zip(result.columns, axes, strict=True)
        ]
    return AnswerTable(
        caption=_caption(result),
        keys=result.group_by[:1] if across else result.group_by,
        across=result.group_by[1] if across else "",
        columns=tuple(columns),
        rows=tuple(rows),
        more=more,
    )


def interval_mark(cell: ResultCell, words: str) -> IntervalMark:
    """Return the mark of a cell in a chart; a mean over no rows is at the middle of its interval."""
    value = cell.lower / 2 + cell.upper / 2 if cell.value is None else cell.value
    # An interval without an end is drawn to the number.
    lower, upper = (end if math.isfinite(end) else value for end in cell.interval)
    return IntervalMark(value, lower, upper, words)


def _chunks(cells: Sequence[ResultCell], size: int) -> list[tuple[int, Sequence[ResultCell]]]:
    return [(i, cells[i : i + size]) for i in range(0, len(cells), size)]


def _values_across(result: QueryResult) -> tuple[str, ...]:
    """Return the values of the second of two columns of groups, if every row of a table has them all."""
    if len(result.group_by) != 2:
        return ()
    values = tuple(dict.fromkeys(cell.key[1] for cell in result.cells))
    grid = [(first, second) for first in dict.fromkeys(c.key[0] for c in result.cells) for second in values]
    is_whole = grid == [cell.key for cell in result.cells]
    return values if is_whole and 1 < len(values) <= _MOST_ACROSS else ()


def _caption(result: QueryResult) -> str:
    """Return the caption of the table of numbers."""
    if not result.group_by:
        return formatting.count_noun(len(result.columns), "statistic")
    groups = formatting.count_noun(len(result.cells) // len(result.columns), "group")
    if result.simultaneous > 1:
        return f"{groups} of {result.simultaneous:,}; all intervals hold together, 95 times in 100"
    return f"{groups}; every declared group, including empty ones"


def _number_views(result: QueryResult, cells: Sequence[ResultCell]) -> tuple[list[NumberView], list[Markup]]:
    """Return the cells with their bars, and the axes that the bars of each statistic share."""
    marks = [interval_mark(cell, "") for cell in cells]
    axes = []
    for i, column in enumerate(result.columns):
        # An average has no natural zero; counts and sums are drawn from theirs.
        from_zero = column.name.startswith(("count", "sum"))
        ends = [end for cell, mark in zip(cells, marks, strict=True) if cell.column == i for end in mark[:3]]
        axis = ChartAxis.from_values([*ends, 0.0] if from_zero else ends, 0.0, 1.0, margin=0.03)
        axes.append((axis, from_zero))
    views = []
    for cell, mark, (value, interval) in zip(cells, marks, result.cell_texts(), strict=False):
        axis, from_zero = axes[cell.column]
        views.append(
            NumberView(
                value=value,
                interval=interval or "exact",
                order="" if cell.value is None else repr(float(cell.value)),
                bar=cell_bar(axis, *mark[:3], from_zero=from_zero),
                faint=not result.is_readable(cell) or (from_zero and mark.lower <= 0 <= mark.upper),
            )
        )
    drawn = [
        cell_axis(axis, None if column.first_day is None else result.number_format(i))
        for i, (column, (axis, _)) in enumerate(zip(result.columns, axes, strict=True))
    ]
    return views, drawn
