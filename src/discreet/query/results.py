"""Results of text queries: cells with their noise, their cost, and the messages that carry them over HTTP."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from discreet.errors import ParameterError, PromiseError
from discreet.formatting import NumberFormat, format_share, name, number, printable
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP, Spending, promise_from_dict
from discreet.privacy.calibration import gaussian_epsilon, gaussian_mu
from discreet.privacy.promises import describe_promise
from discreet.privacy.rounding import four_digits
from discreet.query.consistency import ConsistentResult
from discreet.query.intervals import (
    LEVEL,
    UNBOUNDED,
    ResultInterval,
    interval_width,
    simultaneous_level,
    sum_intervals,
)
from discreet.query.result_table import CellNumbers, ResultTable, TableColumn, TableRow, TabularResult

if TYPE_CHECKING:
    from typing import Self

    from discreet.ledger import Account
    from discreet.privacy import Promise, Receipt
    from discreet.query.calibration import Law

DELTA = 1e-6
"""Delta at which the cost of Gaussian noise is also given as an epsilon."""
_ROUNDING = 1e-9  # relative; another machine may compute the ends of an interval a few units differently
_SUMMED: dict[type[Promise], tuple[str, ...]] = {
    PureDP: ("epsilon",),
    ApproxDP: ("epsilon", "delta"),
    GaussianDP: ("mu",),
    ZCDP: ("rho",),
}
_OVER_COUNTS = ("count", "mean", "var", "stddev")  # how the names of statistics begin that need a count
_CACHE_SIZE = 4096  # costs that are kept: the same few recur again and again


def remaining_amounts(
    cost: tuple[Promise, ...],
    own: Account | None,
    total: Account | None,
    *,
    charged: Sequence[Promise] | None = None,
) -> dict[str, Any]:
    """Return what is left of two budgets, and how many more queries of this cost both pay for.

    Parameters
    ----------
    cost : tuple of Promise
        Charges of one query.
    own, total : Account or None
        Accounts of the owner and of all together; None where it is not known.
    charged : sequence of Promise, optional
        Charges that were made for the query and are in the accounts, none if it was paid for before; None
        before the query is asked.

    Returns
    -------
    dict
        ``own`` and ``total``, the amounts left by currency; ``more``, how many more such queries fit;
        ``nearer``, "own" or "total", the budget that is used up first; ``used`` and ``takes``, the part of
        it that is used and that the query takes, or took if it was charged. None each without a limit.
    """
    accounts = {"own": own, "total": total}
    limited = {name: one for name, one in accounts.items() if one is not None and one.caps is not None}
    counts = [count for account in limited.values() if (count := account.more(cost)) is not None]
    takes = {
        name: account.takes(cost) if charged is None else account.took(charged)
        for name, account in limited.items()
    }
    used = {name: account.used for name, account in limited.items()}

    def share_after(name: str) -> float:
        added = takes[name] if charged is None else None
        return sum((use["share"] or 0.0) for use in (used[name], added) if use is not None)

    nearer = max(limited, key=share_after, default=None)
    return {
        "own": None if own is None else own.left,
        "total": None if total is None else total.left,
        "more": min(counts, default=None),
        "nearer": nearer,
        "used": None if nearer is None else used[nearer],
        "takes": None if nearer is None else takes[nearer],
    }


def describe_used(used: Mapping[str, float | None], whose: str = "the budget") -> str:
    """Return as text how much of a budget is used, in percent, and the epsilon so far beside its limit."""
    share, epsilon, limit, delta = (used[name] for name in ("share", "epsilon", "limit", "delta"))
    assert share is not None
    text = f"{format_share(min(share, 1.0))} of {whose} is used"
    if epsilon is None or limit is None:
        return text
    text += f"; epsilon so far {number(epsilon, rounding='up')} of {limit:g}"
    return f"{text} at delta {delta:g}" if delta else text


def describe_takes(takes: Mapping[str, float | None], whose: str = "the budget") -> str:
    """Return as text which part of a budget a query takes."""
    share = takes["share"]
    assert share is not None
    return f"{format_share(share)} of {whose}"


def describe_left(used: Mapping[str, float | None], whose: str = "") -> str:
    """Return as text which part of a budget is left."""
    share = used["share"]
    assert share is not None
    return f"{format_share(max(0.0, 1.0 - share), up=False)}{whose} is left"


def takes_all(remaining: Mapping[str, Any]) -> bool:
    """Return whether a query fits only as the first of all: nothing could be asked after it."""
    used, takes = remaining["used"], remaining["takes"]
    return bool(takes and used and remaining["more"] == 1 and used["share"] == 0 and takes["share"] >= 1)


def describe_charges(cost: Sequence[Promise]) -> str:
    """Return promises as text, one for each kind, with the costs of charges of the same kind added up.

    Parameters
    ----------
    cost : sequence of Promise
        Promises of the charges, each charged apart.
    """
    kinds: dict[type[Promise], list[Promise]] = {}
    for promise in cost:
        kinds.setdefault(type(promise), []).append(promise)
    texts = []
    for kind, same in kinds.items():
        if len(same) > 1 and kind in _SUMMED:
            whole = sum(map(Spending.from_promises, same), Spending()).promise().to_dict()
            # The exact sum was rounded up in its last digit, which must not show in the third.
            same = [promise_from_dict(whole | {name: float(f"{whole[name]:.12g}") for name in _SUMMED[kind]})]
        texts += [describe_promise(promise.to_dict()) for promise in same]
    return " and ".join(texts)


@lru_cache(maxsize=_CACHE_SIZE)
def describe_cost(cost: tuple[Promise, ...], delta: float) -> str:
    """Return a cost as text; that of Gaussian noise also as an epsilon at `delta`."""
    if not cost:
        return "nothing"
    promises = describe_charges(cost)
    spent = sum((Spending.from_promises(promise) for promise in cost), Spending())
    if not spent.rho or _is_pure(cost):
        return promises
    try:
        epsilon = number(spent.epsilon_at(delta), digits=4, rounding="up")
    except PromiseError:  # so much, or so little, that no epsilon says it
        return promises
    return f"{promises} (epsilon {epsilon} at delta {delta:g})"


def affordable_request(privacy: Promise | None, sd: float | None, scale: float) -> dict[str, Any] | None:
    """Return the largest promise of the requested kind, or the least sd, that the budget still pays for.

    Parameters
    ----------
    privacy, sd
        Promise or standard deviation of the request; the other one is None.
    scale : float
        Largest part of every mu and epsilon of its charges that would fit, as the ledger found it.

    Returns
    -------
    dict or None
        Parameters of the promise with its kind, or ``{"sd": ...}``, rounded to four digits on the affordable
        side; None if nothing fits.
    """
    result: dict[str, Any] = {}
    match privacy:
        case GaussianDP():
            result = {"mu": four_digits(privacy.mu * scale)}
        case ZCDP():
            result = {"rho": four_digits(privacy.rho * scale**2)}
        case ApproxDP():
            mu = gaussian_mu(privacy.epsilon, privacy.delta) * scale
            # The noise may be Gaussian or Laplace: what fits by both fits.
            epsilon = min(gaussian_epsilon(mu, privacy.delta), privacy.epsilon * scale) if mu > 0 else 0.0
            epsilon = four_digits(epsilon)
            result = {"epsilon": epsilon, "delta": privacy.delta}
        case PureDP():
            result = {"epsilon": four_digits(privacy.epsilon * scale)}
        case None if sd is not None and scale > 0:
            result = {"sd": four_digits(sd / scale, up=True)}
    if not result or min(result.values()) <= 0:
        return None
    return result if privacy is None else {"kind": privacy.kind, **result}


def cost_fields(cost: tuple[Promise, ...], remaining: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a message that say what something costs and what is left.

    Parameters
    ----------
    cost : tuple of Promise
        Promises that were charged, or would be.
    remaining : mapping or None
        What is left, as :func:`remaining_amounts` returns it; None where it is not known.
    """
    return {
        "cost": [promise.to_dict() for promise in cost],
        "cost_words": describe_cost(cost, DELTA),
        "remaining": remaining_amounts((), None, None) if remaining is None else dict(remaining),
    }


def _is_pure(cost: tuple[Promise, ...]) -> bool:
    return all(isinstance(promise, PureDP) for promise in cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultCell:
    """One number of a result: of the whole table, or of one group.

    Attributes
    ----------
    key : tuple of str
        Values of the group, one for each column of ``group_by``; empty without groups.
    column : int
        Index of the statistic among the columns of the result.
    value : float or None
        Noisy number. A mean is within its declared range; a count or a sum is as drawn, so that sums of
        several stay unbiased, and may be outside its interval. None for a mean over exactly no rows.
    sd : float or None
        Standard deviation of the noise, in the unit of the number; None for a mean over a noisy count, a
        quotient that has none.
    lower, upper : float
        Ends of the interval that holds the exact number with probability :data:`LEVEL`, cut to what is
        possible; infinite where nothing else can be said.
    """

    key: tuple[str, ...]
    column: int = 0
    value: float | None
    sd: float | None
    lower: float
    upper: float

    @property
    def is_exact(self) -> bool:
        """Whether the number has no noise; the interval of a noisy quantile may be a single value too."""
        return self.lower == self.upper and self.sd == 0

    @property
    def interval(self) -> ResultInterval:
        """Interval that holds the exact number at :data:`LEVEL`."""
        return ResultInterval(self.lower, self.upper)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "key": list(self.key),
            "column": self.column,
            "value": self.value,
            "sd": self.sd,
            "lower": _finite(self.lower),
            "upper": _finite(self.upper),
        }

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], columns: Sequence[ResultColumn], width: float
    ) -> ResultCell:
        """Return the cell that :meth:`to_dict` wrote; refuses ends that do not fit noise and bounds.

        Parameters
        ----------
        values : mapping
            Cell as a message has it.
        columns : sequence of ResultColumn
            Columns of the result.
        width : float
            Half the width of an interval of its noise, in standard deviations.
        """
        column = values["column"]
        if isinstance(column, bool) or not isinstance(column, int) or column < 0:
            raise TypeError
        bounds = columns[column].bounds
        value, sd = _read_number(values["value"]), _read_number(values["sd"], least=0.0)
        lower, upper = _read_end(values["lower"], -math.inf), _read_end(values["upper"], math.inf)
        expected: Sequence[Any] = (max(lower, bounds.lower), min(upper, bounds.upper))
        if value is not None and sd is not None:
            expected = sum_intervals(np.asarray(value), np.asarray(sd), width, bounds)
        allowed = _ROUNDING * sum(abs(x) for x in (value or 0.0, lower, upper) if math.isfinite(x))
        near = all(e == x or abs(e - x) <= allowed for e, x in zip((lower, upper), expected, strict=True))
        if lower > upper or not near:
            raise ValueError
        return cls(
            key=_read_texts(values["key"]), column=column, value=value, sd=sd, lower=lower, upper=upper
        )


class ResultColumn(NamedTuple):
    """A statistic of a result: its name and what its numbers can be.

    Attributes
    ----------
    name : str
        Statistic as it was understood: ``mean(age)``.
    measure : str or None
        Unit of the numbers; None where the columns declare none.
    bounds : ResultInterval
        Least and largest number that the declared ranges and the public number of rows allow; infinite where
        they allow any.
    first_day : date or None
        For dates, the day that the number 0 stands for: value, sd and interval are in days since it. None
        for other numbers.
    sd : float or None
        In a preview, the standard deviation that the noise of each number would have; None where it is not
        known in advance.
    margin : float or None
        In a preview, half the width that each interval would have before it is cut to what is possible;
        None where it is not known in advance.
    rank_margin : float or None
        In a preview of a quantile, by how many rows its rank may be off; None for other statistics.
    """

    name: str
    measure: str | None
    bounds: ResultInterval = UNBOUNDED
    first_day: datetime.date | None = None
    sd: float | None = None
    margin: float | None = None
    rank_margin: float | None = None

    @property
    def unit(self) -> str | None:
        """Unit to write behind the numbers; None without one, and for dates."""
        return None if self.first_day is not None or not self.measure else printable(self.measure)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, with None for an end of the bounds that is infinite."""
        return {
            "name": self.name,
            "measure": self.measure,
            "bounds": {name: _finite(end) for name, end in self.bounds._asdict().items()},
            "first_day": None if self.first_day is None else self.first_day.isoformat(),
            "sd": self.sd,
            "margin": self.margin,
            "rank_margin": self.rank_margin,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ResultColumn:
        """Return the column that :meth:`to_dict` wrote."""
        if not isinstance(values["name"], str):
            raise TypeError
        bounds = ResultInterval(
            *(_read_end(values["bounds"][name], end) for name, end in UNBOUNDED._asdict().items())
        )
        day = _read_text_or_none(values["first_day"])
        return cls(
            name=values["name"],
            measure=_read_text_or_none(values["measure"]),
            bounds=bounds,
            first_day=None if day is None else _read_first_day(day, bounds),
            sd=_read_number(values["sd"], least=0.0),
            margin=_read_number(values["margin"], least=0.0),
            rank_margin=_read_number(values["rank_margin"], least=0.0),
        )


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
        return f"{which} too few rows for the noise: nothing can be read from the number."

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
            "cells": [cell.to_dict() for cell in self.cells],
            "value": self.value,
            "sd": self.sd,
            "interval": {"level": LEVEL, "lower": _finite(ends[0]), "upper": _finite(ends[1])},
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
        group_by = _read_texts(values["by"])
        common = _read_common_fields(values)
        columns, together = common["columns"], common["simultaneous"]
        width = interval_width(values["law"], LEVEL if together == 1 else simultaneous_level(together))
        cells = tuple(ResultCell.from_dict(cell, columns, width) for cell in values["cells"])
        value, sd = _read_number(values["value"]), _read_number(values["sd"], least=0.0)
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
            "receipts": _read_texts(values["receipts"]),
            "parts": tuple(_read_texts(merged) for merged in values.get("parts", ())),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedMargin:
    """Half the width of the interval that a mean over some rows is expected to have.

    Attributes
    ----------
    key : tuple of str
        Values of the group, one for each column of ``group_by``.
    n_rows : float
        Number of rows of the group in an earlier count, which was paid for; at least 0.
    margin : float
        Half the width of the interval at :data:`LEVEL`, if the mean is at the middle of its range.
    """

    key: tuple[str, ...]
    n_rows: float
    margin: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"key": list(self.key), "n_rows": self.n_rows, "margin": self.margin}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ExpectedMargin:
        """Return what :meth:`to_dict` wrote."""
        n_rows, margin = (_read_known(values[name]) for name in ("n_rows", "margin"))
        return cls(key=_read_texts(values["key"]), n_rows=n_rows, margin=margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class LawOption:
    """Cost and noise of a query by one law of noise.

    Attributes
    ----------
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    sd : float or None
        Standard deviation of each number; None if it depends on what is not public.
    cost : tuple of Promise
        Promises that would be charged.
    share : float or None
        Part of the whole budget that they take, of the nearer one if there are two; None without a limit.
    """

    law: Law
    sd: float | None
    cost: tuple[Promise, ...]
    share: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        cost = [promise.to_dict() for promise in self.cost]
        return {"law": self.law, "sd": self.sd, "cost": cost, "share": self.share}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the option that :meth:`to_dict` wrote."""
        if values["law"] not in ("gaussian", "laplace"):
            raise ValueError
        return cls(
            law=values["law"],
            sd=_read_number(values["sd"], least=0.0),
            cost=tuple(promise_from_dict(promise) for promise in values["cost"]),
            share=_read_number(values["share"], least=0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview(QueryResult):
    """Cost and noise of a text query in advance: no cells and no receipts.

    Attributes
    ----------
    sql : str or None
        Query as a SELECT, which is read as the same query; None where a service does not send it.
    is_free : bool
        Whether nothing would be charged: the result follows from what is public, or was paid for before.
    n_rows : float or None
        Number of rows for which margins are given that depend on it, as those of a mean: all rows, or for
        groups an equal part of them. They are wider over fewer. None for counts and sums, and where the
        number is not public.
    expected : tuple of ExpectedMargin
        For means by groups that the owner has counted before: the margin of each. Empty otherwise.
    laws : tuple of LawOption
        Cost and noise by each law that the request leaves open and the limit admits, first the one that is
        taken: for an ``ApproxDP`` promise and for an sd both, otherwise one.

    Privacy
    -------
    Follows from the schema, the public number of rows and what the owner has paid.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    sql: str | None
    is_free: bool = False
    n_rows: float | None = None
    expected: tuple[ExpectedMargin, ...] = ()
    laws: tuple[LawOption, ...] = ()

    @property
    def sd(self) -> float | None:
        """Standard deviation of the noise of a single statistic; None if it is not known in advance."""
        return self.columns[0].sd if len(self.columns) == 1 else None

    @property
    def margin(self) -> float | None:
        """Half the width of each interval of a single statistic; None if it is not known in advance."""
        return self.columns[0].margin if len(self.columns) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as the command line prints them."""
        # The zero-argument form does not work in a class with slots.
        return {**QueryResult.to_dict(self), **self._noise_fields()}

    def _noise_fields(self) -> dict[str, Any]:
        """Return the fields of a message that say how noisy the result would be."""
        return {
            "sd": self.sd,
            "margin": self.margin,
            "n_rows": self.n_rows,
            "expected": [one.to_dict() for one in self.expected],
            "laws": [option.to_dict() for option in self.laws],
        }

    @property
    def law_words(self) -> str | None:
        """Which law of noise is taken, and why rather than the other; None where there is no choice."""
        if len(self.laws) < 2:
            return None
        chosen, other = self.laws[:2]
        law, instead = chosen.law.capitalize(), other.law.capitalize()
        if chosen.share is not None and other.share is not None and chosen.share < other.share:
            shares = f"{format_share(chosen.share)}, not {format_share(other.share)}"
            return f"Noise: {law}, which takes less of the budget here than {instead} ({shares})."
        if chosen.sd is not None and other.sd is not None and chosen.sd < other.sd:
            sds = f"sd {number(chosen.sd)}, not {number(other.sd)}"
            return f"Noise: {law}, smaller here than {instead} ({sds})."
        # Of a mean over a noisy count no sd is known; the law is still the one with less noise.
        return f"Noise: {law}, smaller here than {instead}."

    @property
    def margin_words(self) -> str:
        """How noisy the result would be, and over how many rows that is."""
        several = len(self.columns) > 1
        margins = []
        for column in self.columns:
            margin = column.margin if column.rank_margin is None else column.rank_margin
            if margin is None:
                continue
            unit = f" {printable(column.measure)}" if column.measure else ""
            rank = " rows in rank" if column.rank_margin is not None else unit
            written = NumberFormat.from_margins([margin])(margin, "up")
            margins.append(f"{f'{column.name} ' if several else ''}± {written}{rank}")
        if not margins:
            of_ratio = any(column.name.startswith("ratio(") for column in self.columns)
            depends_on = "its second sum" if of_ratio else "the number of rows"
            return f"the noise depends on {depends_on}, which is not public"
        text = f"would be {', '.join(margins)}"
        if self.n_rows is None:
            return f"{text}{' in each group' if self.group_by else ''} at 95 %"
        if self.group_by:
            size = f"{self.n_rows:,.0f} rows (rows split evenly)"
            return f"{text} at 95 % in a group of {size}; wider in smaller groups"
        least = " over all rows; wider over fewer rows" if " where " in self.question else ""
        return f"{text} at 95 %{least}"

    def __str__(self) -> str:
        lines = (printable(self.question), f"  {self.margin_words}", f"Would cost: {self.cost_words}.")
        return "\n".join((*lines, *filter(None, (self.law_words,))))

    def __repr__(self) -> str:
        return f"Preview({self.question!r}: {self.margin_words})"

    def _repr_html_(self) -> str:
        from discreet.query.result_drawing import draw_facts  # only a notebook draws

        law = (self.law_words or "").removeprefix("Noise: ")
        facts = {"as SQL": self.sql, "numbers": self.margin_words, "noise": law}
        facts |= {"would cost": "nothing" if self.is_free else self.cost_words}
        drawn = None
        if self.used is not None and self.takes is not None and not self.is_free:
            drawn = (self.used["share"] or 0.0, self.takes["share"] or 0.0)
        return draw_facts(self.question, [(name, text) for name, text in facts.items() if text], drawn)

    def to_wire(self) -> dict[str, Any]:
        """Return the preview as the HTTP interface has it."""
        return {
            "kind": "price",
            "question": self.question,
            "sql": self.sql,
            "learner": None,
            "columns": [column.to_dict() for column in self.columns],
            "by": list(self.group_by),
            "sums": self.sums,
            "simultaneous": self.simultaneous,
            **self._noise_fields(),
            "unreadable_below": self.unreadable_below,
            **cost_fields(self.cost, self.remaining),
            "more": self.more,
            "free": self.is_free or not self.cost,
        }

    @staticmethod
    def _read_fields(values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a message; it does not name the law, which follows from the cost."""
        n_rows = _read_number(values["n_rows"], least=0.0)
        free = values.get("free", False)
        if values["kind"] != "price" or not isinstance(free, bool):
            raise ValueError
        common = _read_common_fields(values)
        return {
            **common,
            "group_by": _read_texts(values.get("by", ())),
            "cells": (),
            "law": "laplace" if common["cost"] and _is_pure(common["cost"]) else "gaussian",
            "sql": _read_text_or_none(values.get("sql")),
            "is_free": free,
            "n_rows": n_rows,
            "expected": tuple(ExpectedMargin.from_dict(one) for one in values["expected"]),
            "laws": tuple(LawOption.from_dict(option) for option in values.get("laws", ())),
        }


def _read_common_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that results and previews have in common."""
    least, remaining = values.get("unreadable_below"), values["remaining"]
    if not isinstance(values["question"], str) or not isinstance(remaining, Mapping):
        raise TypeError
    if least is not None and (isinstance(least, bool) or not isinstance(least, int) or least < 0):
        raise TypeError
    sums, together = (_read_count(values[name]) for name in ("sums", "simultaneous"))
    if not values["columns"]:
        raise ValueError
    return {
        "question": values["question"],
        "columns": tuple(ResultColumn.from_dict(column) for column in values["columns"]),
        "sums": sums,
        "simultaneous": together,
        "cost": tuple(promise_from_dict(promise) for promise in values["cost"]),
        "unreadable_below": least,
        "remaining": dict(remaining),
    }


def _finite(value: float | None) -> float | None:
    """Return a number as a JSON value, None if it is infinite."""
    return value if value is not None and math.isfinite(value) else None


def _read_number(value: Any, *, least: float = -math.inf) -> float | None:
    """Return a finite number as a float, and None as None; refuses texts and truth values."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if not (math.isfinite(value) and value >= least):
        raise ValueError
    return float(value)


def _read_count(value: Any) -> int:
    """Return a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TypeError
    return value


def _read_first_day(text: str, bounds: ResultInterval) -> datetime.date:
    """Return the day that the number 0 stands for; refuses one from which no number may be written."""
    first = datetime.date.fromisoformat(text)
    for end in bounds:
        first + datetime.timedelta(days=math.floor(end) + 1)
    return first


def _read_end(value: Any, unbounded: float) -> float:
    """Return an end of what is possible, which a message leaves out where it is infinite."""
    return unbounded if value is None else _read_known(value)


def _read_known(value: Any) -> float:
    """Return a finite number as a float; refuses None as well."""
    read = _read_number(value)
    if read is None:
        raise TypeError
    return read


def _read_texts(values: Any) -> tuple[str, ...]:
    """Return a list of texts as a tuple."""
    if not isinstance(values, list | tuple) or not all(isinstance(text, str) for text in values):
        raise TypeError
    return tuple(values)


def _read_text_or_none(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError
    return value
