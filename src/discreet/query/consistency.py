"""Results adjusted to what is possible: no negative counts, whole numbers, groups that add up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.formatting import name, printable
from discreet.query.intervals import ResultInterval, interval_width, sum_intervals
from discreet.query.result_table import CellNumbers, ResultTable, TableRow, TabularResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet.query.calibration import Law
    from discreet.query.result_table import TableColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentResult(TabularResult):
    """Numbers of a result, adjusted to what is possible: estimates, not the noisy numbers themselves.

    Counts are whole and not negative; where all rows are counted and their number is public, the groups add
    up to it. Sums are within what the declared ranges allow. All other numbers are as they were.

    Attributes
    ----------
    raw : ResultTable
        Table of the noisy numbers, as they were drawn.
    adjusted : ResultTable
        Table of the adjusted numbers. They have no standard deviation.
    totals : dict of str to float
        Public number that the groups of a count add up to, by the name of its column.
    law : {"gaussian", "laplace"}
        Distribution of the noise.

    Notes
    -----
    Before they are rounded, adjusted counts are the possible ones nearest to the noisy ones, in the sum of
    squares. The exact counts are possible too, so the sum of squared errors is never larger than that of the
    noisy counts; rounding moves each by less than 1. The price is a bias: small groups are too large on
    average, and where groups add up, large ones too small. Use the noisy numbers to add up or to average.

    Each interval holds the exact number at least 95 times in 100. It follows from the noise and not from the
    adjusted number. Where groups add up to a public total it is narrower than that of the noisy number, since
    the noise of all groups together is then known.

    Privacy
    -------
    Computed from what was paid for and from public facts: free.

    Reference
    ---------
    docs/explanation/theorems/intervals.md.
    """

    raw: ResultTable
    adjusted: ResultTable
    totals: dict[str, float]
    law: Law

    @classmethod
    def from_table(cls, raw: ResultTable, law: Law, totals: dict[str, float]) -> ConsistentResult:
        """Return the adjusted numbers of a table.

        Parameters
        ----------
        raw : ResultTable
            Table of noisy numbers.
        law : {"gaussian", "laplace"}
            Distribution of the noise.
        totals : dict of str to float
            Public number that the groups of a count add up to, by the name of its column.
        """
        columns = {
            column.name: _adjust_column(column, raw.numbers(column), totals.get(column.name), law)
            for column in raw.columns
        }
        rows = tuple(
            TableRow(row.key, {name: cells[i] for name, cells in columns.items()})
            for i, row in enumerate(raw.rows)
        )
        notes = (_describe(raw.columns, totals),)
        return cls(raw=raw, adjusted=replace(raw, rows=rows, notes=notes), totals=totals, law=law)

    @property
    def table(self) -> ResultTable:
        """Table of the adjusted numbers."""
        return self.adjusted

    @property
    def value(self) -> float | None:
        """Adjusted number of a result with one number and no groups; None for others."""
        return None if self._single is None else self._single.value

    @property
    def interval(self) -> ResultInterval | None:
        """Interval of a result with one number and no groups; None for others."""
        return None if self._single is None else ResultInterval(self._single.lower, self._single.upper)

    @property
    def _single(self) -> CellNumbers | None:
        table = self.adjusted
        return None if table.group_by or len(table.columns) > 1 else table.numbers(table.columns[0])[0]

    def subtotals(self, *group_by: str) -> ConsistentResult:
        """Return counts and sums over the groups of some keys, which add up to the same totals.

        Parameters
        ----------
        *group_by : str
            Keys of the result to keep, as in ``group_by``; none for the total over all groups.

        Returns
        -------
        ConsistentResult
            Sums of the adjusted numbers, with intervals of the sums of the noisy ones.
        """
        unknown = [key for key in group_by if key not in self.raw.group_by]
        if unknown:
            known = ", ".join(self.raw.group_by) or "no key"
            raise ParameterError(
                f"group_by of ConsistentResult.subtotals must be from {known}, was {unknown[0]!r}."
            )
        other = [column.name for column in self.raw.columns if not column.is_additive]
        if other:
            raise ParameterError(
                f"subtotals must be of counts and sums, and the result has {other[0]}, whose groups do not "
                "add up. Ask for it by fewer groups."
            )
        places = [self.raw.group_by.index(key) for key in group_by]
        groups: dict[tuple[str, ...], list[int]] = {}
        for i, row in enumerate(self.raw.rows):
            groups.setdefault(tuple(row.key[place] for place in places), []).append(i)
        added = {column.name: self._add_up(column, list(groups.values())) for column in self.raw.columns}
        kept = {
            field: tuple(
                TableRow(key, {name: numbers[field][i] for name, numbers in added.items()})
                for i, key in enumerate(groups)
            )
            for field in ("raw", "adjusted")
        }
        raw, adjusted = (
            replace(table, group_by=group_by, rows=kept[field])
            for field, table in (("raw", self.raw), ("adjusted", self.adjusted))
        )
        return replace(self, raw=raw, adjusted=adjusted)

    def _add_up(self, column: TableColumn, groups: list[list[int]]) -> dict[str, list[CellNumbers]]:
        """Return the noisy and the adjusted numbers of a column, added up over each group of rows."""
        raw, adjusted = self.raw.numbers(column), self.adjusted.numbers(column)
        noise = _Noise(raw, column, self.totals.get(column.name), self.law)
        found: dict[str, list[CellNumbers]] = {"raw": [], "adjusted": []}
        for group in groups:
            value = math.fsum(raw[i].value or 0.0 for i in group)
            sd = math.hypot(*(raw[i].sd or 0.0 for i in group))
            ends = sum_intervals(np.asarray(value), np.asarray(sd), noise.width, column.bounds)
            found["raw"].append(CellNumbers(value, sd, float(ends[0]), float(ends[1])))
            whole = math.fsum(adjusted[i].value or 0.0 for i in group)
            found["adjusted"].append(_cell(whole, noise.interval(group), column))
        return found

    def __str__(self) -> str:
        table, lines = self.adjusted, [printable(self.adjusted.title)]
        for column in table.columns:
            prefix = f"{column.name} " if len(table.columns) > 1 else ""
            for row, (value, interval) in zip(table.rows, table.texts(column), strict=True):
                group = f"{', '.join(map(name, row.key))}: " if row.key else ""
                lines.append(f"  {prefix}{group}{value}" + (f" (95 %: {interval})" if interval else ""))
        return "\n".join((*lines, *table.notes))

    def __repr__(self) -> str:
        return f"ConsistentResult({self.adjusted.title!r}: {len(self.adjusted.rows)} rows)"


class _Noise:
    """Noisy numbers of one column with what is known of the noise of them all."""

    def __init__(
        self, cells: Sequence[CellNumbers], column: TableColumn, total: float | None, law: Law
    ) -> None:
        self.values = [cell.value or 0.0 for cell in cells]
        self.sds = [cell.sd or 0.0 for cell in cells]
        self.bounds, self.width = column.bounds, interval_width(law)
        # Of noises that all have one variance, the known sum tells each as well as the others.
        known = total is not None and len(set(self.sds)) == 1
        self.excess = math.fsum([*self.values, -(total or 0.0)]) if known else None

    def interval(self, group: Sequence[int]) -> tuple[float, float]:
        """Return the interval of the sum of some rows.

        Given the sum of all ``k`` noises, that of ``m`` of them has the mean ``m/k`` times it, and the
        variance ``m (1 - m/k)`` times that of one.
        """
        value = math.fsum(self.values[i] for i in group)
        sd = math.hypot(*(self.sds[i] for i in group))
        if self.excess is not None:
            part = len(group) / len(self.values)
            value -= part * self.excess
            sd *= math.sqrt(1 - part)
        ends = sum_intervals(np.asarray(value), np.asarray(sd), self.width, self.bounds)
        return float(ends[0]), float(ends[1])


def _adjust_column(
    column: TableColumn, cells: Sequence[CellNumbers], total: float | None, law: Law
) -> list[CellNumbers]:
    """Return the adjusted numbers of one column, each with its interval.

    Parameters
    ----------
    column : TableColumn
        Statistic that the numbers are of; what is no count and no sum stays as it is.
    cells : sequence of CellNumbers
        Noisy numbers of all groups.
    total : float or None
        Public number that they add up to; None if there is none.
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    """
    if not column.is_added_up or any(cell.value is None or cell.sd is None for cell in cells):
        return [cell._replace(sd=None) for cell in cells]
    noisy = [Fraction(cell.value or 0.0) for cell in cells]
    lower, upper = column.bounds
    if column.is_count:
        most = Fraction(upper) if math.isfinite(upper) and column.is_additive else None
        values = project_counts(noisy, most, exactly=total is not None)
        adjusted = [float(value) for value in round_counts(values, None if total is None else int(total))]
    else:
        adjusted = [min(max(float(value), lower), upper) for value in noisy]
    if total is None:
        return [_cell(value, cell[2:], column) for value, cell in zip(adjusted, cells, strict=True)]
    noise = _Noise(cells, column, total, law)
    return [_cell(value, noise.interval([i]), column) for i, value in enumerate(adjusted)]


def _cell(value: float, ends: tuple[float, ...], column: TableColumn) -> CellNumbers:
    """Return an adjusted number with its interval, which is widened to hold the number."""
    lower, upper = ends
    if column.is_count and math.ceil(lower) <= math.floor(upper):
        # Exact counts are whole: the interval holds none beyond its first and its last whole number.
        lower, upper = float(math.ceil(lower)), float(math.floor(upper))
    return CellNumbers(value, None, min(lower, value), max(upper, value))


def project_counts(
    values: Sequence[Fraction], total: Fraction | None, *, exactly: bool = True
) -> list[Fraction]:
    """Return the numbers nearest to given ones, in the sum of squares, that counts can be.

    Parameters
    ----------
    values : sequence of Fraction
        Noisy counts of all groups.
    total : Fraction or None
        Number that the counts add up to, or the most that they do; None if they may add up to any.
    exactly : bool
        Whether the counts add up to the total, and not to less.

    Notes
    -----
    Each number is lowered by the same amount, and set to 0 if it is then negative. Possible counts are a
    convex set, so that its nearest point is no farther from any of its points than the given numbers are.
    """
    clipped = [max(value, Fraction(0)) for value in values]
    if total is None or (not exactly and sum(clipped) <= total):
        return clipped
    shift, running = Fraction(0), Fraction(0)
    for k, value in enumerate(sorted(values, reverse=True), start=1):
        running += value
        if value < (running - total) / k:
            break
        shift = (running - total) / k
    return [max(value - shift, Fraction(0)) for value in values]


def round_counts(values: Sequence[Fraction], total: int | None) -> list[int]:
    """Return numbers as whole ones: each the nearest, or all with their sum kept by largest remainders.

    Parameters
    ----------
    values : sequence of Fraction
        Numbers to round, none of them negative.
    total : int or None
        Whole number that they add up to; None to round each by itself.
    """
    if total is None:
        return [round(value) for value in values]
    whole = [math.floor(value) for value in values]
    order = sorted(range(len(values)), key=lambda i: whole[i] - values[i])
    for i in order[: total - sum(whole)]:
        whole[i] += 1
    return whole


def _describe(columns: Iterable[TableColumn], totals: dict[str, float]) -> str:
    """Return a sentence about what was adjusted and what the intervals are."""
    words = ["counts are whole and not negative"] if any(column.is_count for column in columns) else []
    words += [f"they add up to {total:,.0f} rows" for total in totals.values()]
    done = " and ".join(words) or "sums are within what is possible"
    return f"Adjusted: {done}. Intervals follow from the noise and hold as those of the noisy numbers do."
