"""Results of text queries: their cells, intervals and cost, as text, as tables and as messages."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.batching import in_parts
from discreet.errors import ParameterError
from discreet.formatting import NumberFormat, name, printable
from discreet.query.consistency import ConsistentResult
from discreet.query.costs import DELTA, cost_fields, describe_cost
from discreet.query.intervals import (
    LEVEL,
    ResultInterval,
    interval_width,
    simultaneous_level,
    sum_intervals,
)
from discreet.query.result_cells import (
    ResultCell,
    ResultColumn,
    finite_or_none,
    read_common_fields,
    read_number,
    read_texts,
)
from discreet.query.result_table import CellNumbers, ResultTable, TableColumn, TableRow, TabularResult

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from discreet.privacy import Promise, Receipt, Spending
    from discreet.query.calibration import Law

_OVER_COUNTS = ("count", "mean", "var", "stddev")  # how the names of statistics begin that need a count


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult(TabularResult):
    """Result of a text query, of a table at hand or behind a service.

    Attributes
    ----------
    question : str
        Query as it was understood.
    columns : tuple of ResultColumn
        Statistics of the query, with the unit and the bounds of their numbers.
    group_by : tuple of str
        Columns of the groups; empty without groups.
    cells : tuple of ResultCell
        One cell for each statistic, for each declared group all of them, also for groups without a row.
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    cost : tuple of Promise
        Promises that were charged; empty for a free result. For a refined result, those of its newest part.
    unreadable_below : int or None
        Number of rows below which a group cannot be distinguished from an empty one; None without groups,
        for sums, and for exact results.
    sums : int
        Number of noisy sums in each group, which share the promise equally: a mean over a noisy count has
        two.
    simultaneous : int
        Number of groups for which the intervals of a statistic hold together: above 1 if the noisy numbers
        decided which groups are returned.
    cached : bool
        Whether it had been paid for before, and is the same result again.
    receipts : tuple of str
        Id of the charge; empty for a free result.
    parts : tuple of tuple of str
        Receipt ids of all answers that were merged into the result, as one tuple; empty for a free result.
    charges : tuple of Receipt
        Receipts of the charges, as the ledger wrote them; empty for a result that a service sent.
    ledger : str or None
        Identity of the ledger that was charged; None where it is not known.
    remaining : mapping or None
        What is left to the owner and in total, how many more such queries that pays for, and the part of
        the nearer budget that is used and that this query took, or takes in a preview: as
        :func:`remaining_amounts` returns them. None where it is not known.
    spent : Spending or None
        Sum of all charges of the ledger; None where it is not known.
    charged : tuple of Promise
        Promises that were charged now; empty if it had been paid for before, and for a result that a service
        sent.

    Notes
    -----
    Counts, and sums of whole numbers, differ from the exact ones by the noise alone. A sum over ``n`` rows of
    other numbers is off by at most ``n * 2**-30`` of their range besides, and a mean by ``2**-30`` of it:
    docs/reference/expressions.md, "Comparisons and sums".

    Privacy
    -------
    The cells are noisy and paid for; everything else is the same for every table.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> with Database(rows, schema=schema, random_state=1) as db:
    ...     result = db.query("mean(age) by ill", privacy=GaussianDP(1))
    >>> list(result.to_pandas().columns)
    ['ill', 'value', 'sd', 'lower', 'upper']
    """

    question: str
    columns: tuple[ResultColumn, ...]
    group_by: tuple[str, ...]
    cells: tuple[ResultCell, ...]
    law: Law
    cost: tuple[Promise, ...]
    unreadable_below: int | None = None
    sums: int = 1
    simultaneous: int = 1
    cached: bool = False
    receipts: tuple[str, ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()
    charges: tuple[Receipt, ...] = field(default=(), compare=False, repr=False)
    ledger: str | None = None
    remaining: Mapping[str, Any] | None = None
    spent: Spending | None = None
    charged: tuple[Promise, ...] = field(default=(), compare=False, repr=False)

    @property
    def value(self) -> float | None:
        """Noisy number of a result that is one number; None for others, and over exactly no rows."""
        return None if self._single is None else self._single.value

    @property
    def sd(self) -> float | None:
        """Standard deviation of the noise of a result without groups, in its unit; None with groups."""
        return None if self._single is None else self._single.sd

    def interval(self, level: float = LEVEL) -> ResultInterval:
        """Return the interval that holds the exact number of a result that is one number.

        Parameters
        ----------
        level : float
            Probability with which it holds the number; another than :data:`LEVEL` for a count or a sum alone.

        Raises
        ------
        ParameterError
            There are several numbers, whose intervals are in ``cells``, or the number has no sd.
        """
        single = self._single
        if single is None:
            raise ParameterError(
                f"interval of a result must be asked of one number, and there are {len(self.cells)}. Each of "
                "`cells` has its own."
            )
        if level == LEVEL:
            return single.interval
        if single.sd is None or single.value is None or not 0 < level < 1:
            raise ParameterError(
                f"level of interval must be {LEVEL:g}, or of a count or a sum between 0 and 1, was {level!r}."
            )
        width = max(
            interval_width(law, level) for law in {self.law, "gaussian" if self.refined else self.law}
        )
        ends = sum_intervals(np.asarray(single.value), np.asarray(single.sd), width, self.columns[0].bounds)
        return ResultInterval(*map(float, ends))

    @property
    def receipt(self) -> Receipt | None:
        """Receipt of the charge, as the ledger wrote it; None if free, or if a service sent the result."""
        return self.charges[-1] if self.charges else None

    @property
    def _single(self) -> ResultCell | None:
        return self.cells[0] if len(self.cells) == 1 and not self.group_by else None

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the ledger that hold the charges."""
        return tuple(receipt.seq for receipt in self.charges if receipt.seq is not None)

    @property
    def left(self) -> Mapping[str, float] | None:
        """Amount left in each currency, to the owner if there is a limit of their own; None without one."""
        remaining = self.remaining or {}
        own: Mapping[str, float] | None = remaining.get("own")
        return remaining.get("total") if own is None else own

    @property
    def used(self) -> Mapping[str, float | None] | None:
        """Part of the budget that is used: ``share``, and ``epsilon`` at the limit's ``delta``; or None."""
        return (self.remaining or {}).get("used")

    @property
    def takes(self) -> Mapping[str, float | None] | None:
        """Part of the budget that such a query takes, as :attr:`used`; None without a limit, or if free."""
        return (self.remaining or {}).get("takes")

    @property
    def more(self) -> int | None:
        """How many more such queries the rest of the budget pays for; None without a limit, or if free."""
        return (self.remaining or {}).get("more")

    @property
    def cost_words(self) -> str:
        """Cost as text."""
        return describe_cost(self.cost, DELTA)

    @property
    def refined(self) -> bool:
        """Whether several answers were merged into it."""
        return any(len(merged) > 1 for merged in self.parts)

    def is_readable(self, cell: ResultCell) -> bool:
        """Return whether the interval of a cell says more than what is possible in any case."""
        return cell.interval != self.columns[cell.column].bounds or cell.lower == cell.upper

    def number_format(self, column: int = 0) -> NumberFormat:
        """Return how all numbers of a statistic are written; intervals that were cut do not decide it."""
        cells = [cell for cell in self.cells if cell.column == column]
        bounds = self.columns[column].bounds
        finite = [cell for cell in cells if math.isfinite(cell.upper - cell.lower)]
        whole = [cell for cell in finite if not set(cell.interval) & set(bounds)]
        margins = [(cell.upper - cell.lower) / 2 for cell in whole or finite]
        return NumberFormat.from_margins(margins, self.columns[column].first_day)

    def cell_texts(self) -> list[tuple[str, str]]:
        """Return the number and the interval of each cell as texts; exact numbers have no interval."""
        write = [self.number_format(i) for i in range(len(self.columns))]
        return [
            (
                "no rows" if cell.value is None else write[cell.column](cell.value),
                "" if cell.is_exact else write[cell.column].interval(*cell.interval),
            )
            for cell in self.cells
        ]

    def value_lines(self) -> list[str]:
        """Return the numbers with their intervals as lines of text, one for each cell."""
        lines = []
        for cell, (value, interval) in zip(self.cells, self.cell_texts(), strict=True):
            column = self.columns[cell.column]
            unit = f" {column.unit}" if column.unit and value != "no rows" else ""
            named = [", ".join(map(name, cell.key))] if self.group_by else []
            named += [column.name] if len(self.columns) > 1 else []
            line = f"{value}{unit}" + (f" (95 %: {interval})" if interval else "")
            lines.append(": ".join([*filter(None, (", ".join(named),)), line]))
        return lines

    @property
    def value_words(self) -> list[str]:
        """Sentences about how the numbers came about and which of them not to use."""
        merged = (
            f"Merged from {len(self.parts[0])} answers, each weighted by the inverse of its variance."
            if self.refined
            else None
        )
        return [*filter(None, (merged, self.choice_words, self.group_words, self.unreadable_words))]

    def __str__(self) -> str:
        values = (f"  {line}" for line in self.value_lines())
        return "\n".join((printable(self.question), *values, *self.value_words, self._paid_words))

    @property
    def _paid_words(self) -> str:
        cost = "nothing; it was paid for before" if self.cached and self.cost else self.cost_words
        return f"Cost: {cost}."

    def __repr__(self) -> str:
        shown = f"{len(self.cells)} groups" if self.group_by else "".join(self.value_lines())
        return f"{type(self).__name__}({self.question!r}: {shown})"

    @property
    def choice_words(self) -> str | None:
        """That noisy numbers chose the groups, and what it does to intervals; None if they did not."""
        if self.simultaneous == 1:
            return None
        return (
            f"Chosen from {self.simultaneous:,} groups by noisy numbers: the intervals are wider, so that "
            "they hold whichever groups are chosen."
        )

    @property
    def group_words(self) -> str | None:
        """Which groups are too small to be read; None where that is not known."""
        if self.unreadable_below is None:
            return None
        # The first of the statistics that are over a count is the one that it follows from.
        counted = next((one for one in self.columns if one.name.startswith(_OVER_COUNTS)), None)
        units = counted is not None and counted.name.startswith("count(distinct")
        noun = (counted and units and counted.measure) or "rows"
        return f"Noise makes groups below about {self.unreadable_below:,} {noun} unreadable."

    @property
    def unreadable_words(self) -> str | None:
        """What is to be said of means whose interval is the whole declared range; None if there are none."""
        unreadable = sum(not self.is_readable(cell) for cell in self.cells)
        if not unreadable:
            return None
        have = "has" if unreadable == 1 else "have"
        noun = "groups" if len(self.columns) == 1 else "numbers"
        which = f"{unreadable} of {len(self.cells)} {noun} {have}" if len(self.cells) > 1 else "There are"
        source = "the number" if unreadable == 1 else "them"
        return f"{which} too few rows for the noise: nothing can be read from {source}."

    def table_columns(self) -> tuple[TableColumn, ...]:
        """Return the statistics of each group, in their order."""
        return tuple(TableColumn(*column[:4]) for column in self.columns)

    def table_rows(self) -> tuple[TableRow, ...]:
        """Return the groups in their order, each with its numbers by the name of the statistic."""
        width = len(self.columns)
        groups = [self.cells[i : i + width] for i in range(0, len(self.cells), width)]
        return tuple(
            TableRow(
                group[0].key,
                {
                    self.columns[cell.column].name: CellNumbers(cell.value, cell.sd, cell.lower, cell.upper)
                    for cell in group
                },
            )
            for group in groups
        )

    def consistent(self) -> ConsistentResult:
        """Return the numbers adjusted to what is possible: whole counts, none negative, groups that add up.

        Free post-processing for tables that are shown or published; these numbers stay as they are. The
        adjusted numbers have a smaller squared error, and a bias:
        :class:`~discreet.query.ConsistentResult` says which, and what their intervals mean.
        """
        # A row is in exactly one group, but with WHERE it may be in none, and LIMIT leaves groups out.
        partial = " where " in self.question or " limit " in self.question
        totals = {
            column.name: column.bounds.upper
            for column in self.table_columns()
            if column.name == "count" and math.isfinite(column.bounds.upper) and not partial
        }
        return ConsistentResult.from_table(self.table, self.law, totals)

    @property
    def table(self) -> ResultTable:
        """Numbers in rows and columns, with the sentences about them and what they cost."""
        return ResultTable(
            title=self.question,
            group_by=self.group_by,
            columns=self.table_columns(),
            rows=self.table_rows(),
            notes=(*self.value_words, self._paid_words),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as the command line prints them."""
        return {
            "question": self.question,
            "columns": [column.to_dict() for column in self.columns],
            "by": list(self.group_by),
            "level": LEVEL,
            "sums": self.sums,
            "simultaneous": self.simultaneous,
            "law": self.law,
            "answers": [cell.to_dict() for cell in self.cells],
            "cost": [promise.to_dict() for promise in self.cost],
            "cached": self.cached,
            "ledger": self.ledger,
            "rows": list(self.rows),
            "receipts": list(self.receipts),
            "parts": [list(merged) for merged in self.parts],
            "left": None if self.left is None else dict(self.left),
            "more": self.more,
            "used": None if self.used is None else dict(self.used),
            "takes": None if self.takes is None else dict(self.takes),
        }

    def to_wire(self) -> dict[str, Any]:
        """Return the result as the HTTP interface has it."""
        ends = (None, None) if self._single is None else self._single.interval
        return {
            "kind": "answer",
            "question": self.question,
            "columns": [column.to_dict() for column in self.columns],
            "by": list(self.group_by),
            "cells": [cell.to_dict() for cell in in_parts(self.cells)],
            "value": self.value,
            "sd": self.sd,
            "interval": {"level": LEVEL, "lower": finite_or_none(ends[0]), "upper": finite_or_none(ends[1])},
            "sums": self.sums,
            "simultaneous": self.simultaneous,
            "law": self.law,
            "unreadable_below": self.unreadable_below,
            "cached": self.cached,
            "receipts": list(self.receipts),
            "parts": [list(merged) for merged in self.parts],
            **cost_fields(self.cost, self.remaining),
        }

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> Self:
        """Return the result that :meth:`to_wire` wrote, with the same numbers, bit for bit.

        Fields that are not known here are ignored: a newer service may send more.

        Raises
        ------
        ParameterError
            A field is missing, or has another type, or does not fit the others.
        """
        try:
            return cls(**cls._read_fields(values))
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError):
            raise ParameterError(
                f"values of {cls.__name__}.from_wire must be what to_wire() writes, and are not."
            ) from None

    @staticmethod
    def _read_fields(values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a message."""
        if values["kind"] != "answer" or values["law"] not in ("gaussian", "laplace"):
            raise ValueError
        group_by = read_texts(values["by"])
        common = read_common_fields(values)
        columns, together = common["columns"], common["simultaneous"]
        width = interval_width(values["law"], LEVEL if together == 1 else simultaneous_level(together))
        cells = tuple(ResultCell.from_dict(cell, columns, width) for cell in values["cells"])
        value, sd = read_number(values["value"]), read_number(values["sd"], least=0.0)
        single = (cells[0].value, cells[0].sd) if len(cells) == 1 and not group_by else (None, None)
        # The number of a result of one cell is there twice.
        if (value, sd) != single or (not group_by and len(cells) != len(columns)):
            raise ValueError
        in_order = all(cell.column == i % len(columns) for i, cell in enumerate(cells))
        if not in_order or len(cells) % len(columns) or not isinstance(values["cached"], bool):
            raise ValueError
        if any(len(cell.key) != len(group_by) for cell in cells):
            raise ValueError
        return {
            **common,
            "group_by": group_by,
            "cells": cells,
            "law": values["law"],
            "cached": values["cached"],
            "receipts": read_texts(values["receipts"]),
            "parts": tuple(read_texts(merged) for merged in values.get("parts", ())),
        }
