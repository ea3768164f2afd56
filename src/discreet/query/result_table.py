"""Numbers of a result as a table: one row for each group, as a frame, as CSV, as HTML and as a chart."""

from __future__ import annotations

import datetime
import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from discreet.errors import ParameterError
from discreet.formatting import NumberFormat, printable
from discreet.query.frames import Frame, write_text

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet.query.intervals import ResultInterval

_ADDED_UP = re.compile(r"(count|sum)\b")  # statistics that are drawn from zero


class CellNumbers(NamedTuple):
    """One noisy number: its value, the standard deviation of its noise, and its interval."""

    value: float | None
    sd: float | None
    lower: float
    upper: float


class TableRow(NamedTuple):
    """One group of a result: its key, and the numbers by the name of their column."""

    key: tuple[str, ...]
    numbers: Mapping[str, CellNumbers]


class TableColumn(NamedTuple):
    """One statistic of a result: its name, its unit, what is possible, and the day that 0 stands for."""

    name: str
    measure: str | None
    bounds: ResultInterval
    first_day: datetime.date | None

    @property
    def heading(self) -> str:
        """Name with the unit behind it; dates have none."""
        unit = None if self.first_day is not None else self.measure
        return printable(f"{self.name} ({unit})" if unit else self.name)

    @property
    def is_added_up(self) -> bool:
        """Whether it is a count or a sum, which has a natural zero."""
        return _ADDED_UP.match(self.name) is not None

    @property
    def is_count(self) -> bool:
        """Whether it counts rows or people, so that the exact number is whole and not negative."""
        return self.name.startswith("count")

    @property
    def is_additive(self) -> bool:
        """Whether the numbers of two groups add up to that of both: one person may be in several groups."""
        return self.is_added_up and "distinct" not in self.name

    def to_cells(self, numbers: CellNumbers) -> Any:
        """Return numbers as cells of a frame: of dates the days, of an interval rounded outward."""
        if self.first_day is None:
            return numbers
        days = (numbers.value and round(numbers.value), math.floor(numbers.lower), math.ceil(numbers.upper))
        value, lower, upper = (
            None if day is None else self.first_day + datetime.timedelta(days=day) for day in days
        )
        return numbers._replace(value=value, lower=lower, upper=upper)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """Numbers of a result in rows and columns.

    Attributes
    ----------
    title : str
        Query that the numbers answer.
    group_by : tuple of str
        Names of the columns that hold the groups; empty without groups.
    columns : tuple of TableColumn
        Statistics of each row, in their order.
    rows : tuple of TableRow
        Groups with their numbers; one row with an empty key without groups.
    notes : tuple of str
        Sentences to be shown below the numbers.
    """

    title: str
    group_by: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    def numbers(self, column: TableColumn) -> list[CellNumbers]:
        """Return the numbers of one column, from the first row to the last."""
        return [row.numbers[column.name] for row in self.rows]

    def number_format(self, column: TableColumn) -> NumberFormat:
        """Return how a column is written; intervals that were cut to what is possible do not decide it."""
        cells = self.numbers(column)
        if column.is_count and all(float(end or 0).is_integer() for cell in cells for end in _shown(cell)):
            return NumberFormat(None)
        whole = [cell for cell in cells if not {cell.lower, cell.upper} & set(column.bounds)]
        margins = [(cell.upper - cell.lower) / 2 for cell in whole or cells]
        return NumberFormat.from_margins(margins, column.first_day)

    def texts(self, column: TableColumn) -> list[tuple[str, str]]:
        """Return each number of a column and its interval as texts; an exact number has no interval."""
        write = self.number_format(column)
        return [
            (
                "no rows" if cell.value is None else write(cell.value),
                "" if cell.lower == cell.upper and cell.sd == 0 else write.interval(cell.lower, cell.upper),
            )
            for cell in self.numbers(column)
        ]

    @property
    def frame(self) -> Frame:
        """One row for each group: its key, then value, sd, lower and upper of every statistic.

        Of several statistics the value is named as the statistic, and its sd and the ends of its interval
        by the name and a word: ``mean(age)``, ``mean(age) sd``, ``mean(age) lower``, ``mean(age) upper``.
        """
        keys = {name: [row.key[i] for row in self.rows] for i, name in enumerate(self.group_by)}
        numbers: dict[str, list[Any]] = {}
        for column in self.columns:
            cells = [column.to_cells(cell) for cell in self.numbers(column)]
            for i, kind in enumerate(CellNumbers._fields):
                numbers[self._field_name(column, kind)] = [cell[i] for cell in cells]
        # A column of the table may have one of these names.
        return Frame({**keys, **{f"noisy {n}" if n in keys else n: cells for n, cells in numbers.items()}})

    def _field_name(self, column: TableColumn, kind: str) -> str:
        if len(self.columns) == 1:
            return kind
        return column.name if kind == "value" else f"{column.name} {kind}"


class TabularResult(ABC):
    """Result that is shown as a table: in a notebook, as a data frame, as CSV and as a chart."""

    __slots__ = ()

    @property
    @abstractmethod
    def table(self) -> ResultTable:
        """Numbers in rows and columns."""

    @property
    def frame(self) -> Frame:
        """One row for each group: its key, then value, sd, lower and upper of every statistic."""
        return self.table.frame

    def to_pandas(self) -> Any:
        """Return the numbers as a pandas data frame, one row for each group."""
        return self.frame.to_pandas()

    def to_polars(self) -> Any:
        """Return the numbers as a polars data frame, one row for each group."""
        return self.frame.to_polars()

    @overload
    def to_csv(self, path: None = None) -> str: ...
    @overload
    def to_csv(self, path: str | os.PathLike[str]) -> None: ...
    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Return the numbers as CSV in full precision, or write them to a file in UTF-8.

        Parameters
        ----------
        path : path, optional
            File to write; None returns the text.

        Notes
        -----
        A name that a spreadsheet would take for a formula, because it begins with one of ``= + - @`` and is
        no number, gets an apostrophe in front.
        """
        return self.frame.to_csv(path)

    def to_svg(self, path: str | os.PathLike[str] | None = None) -> SvgText | None:
        """Return a chart of the numbers with their intervals as SVG, or write it to a file.

        Parameters
        ----------
        path : path, optional
            File to write; None returns the text, which a notebook shows as a picture.
        """
        from discreet.query.result_drawing import draw_chart  # which imports this module

        table = self.table
        if not table.rows:
            raise ParameterError(
                "A chart must have a number to show, and a preview has none. Draw what query() returns."
            )
        return write_text(SvgText(draw_chart(table)), path)

    def plot(self) -> SvgText:
        """Return a chart of the numbers with their intervals, which a notebook shows as a picture."""
        drawn = self.to_svg()
        assert drawn is not None
        return drawn

    def _repr_html_(self) -> str:
        from discreet.query.result_drawing import draw_table

        return draw_table(self.table)


class SvgText(str):
    """Text of an SVG picture, which a notebook shows as the picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def _shown(cell: CellNumbers) -> tuple[float | None, float, float]:
    return cell.value, cell.lower, cell.upper
