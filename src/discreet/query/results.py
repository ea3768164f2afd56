"""Results of text queries: cells with their noise, their cost, and the messages that carry them over HTTP."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError, PromiseError
from discreet.formatting import format_share, number
from discreet.privacy import PureDP, Spending, promise_from_dict
from discreet.privacy.promises import describe_promise
from discreet.query.frames import Frame
from discreet.query.intervals import LEVEL, UNBOUNDED, ResultInterval, interval_width, sum_intervals

if TYPE_CHECKING:
    from typing import Self

    from discreet.ledger import Account
    from discreet.privacy import Promise, Receipt
    from discreet.query.calibration import Law

DELTA = 1e-6
"""Delta at which the cost of Gaussian noise is also given as an epsilon."""
_ROUNDING = 1e-9  # relative; another machine may compute the ends of an interval a few units differently
_CACHE_SIZE = 4096  # costs that are kept: the same few recur again and again


def remaining_amounts(
    cost: tuple[Promise, ...], own: Account | None, total: Account | None
) -> dict[str, Any]:
    """Return what is left of two budgets, and how many more queries of this cost both pay for.

    Parameters
    ----------
    cost : tuple of Promise
        Charges of one query.
    own, total : Account or None
        Accounts of the owner and of all together; None where it is not known.

    Returns
    -------
    dict
        ``own`` and ``total``, the amounts left by currency; ``more``, how many more such queries fit;
        ``used`` and ``takes``, the part that is used and that one more such query takes, of the owner's
        budget, or of the total where the owner has no limit. None each without a limit.
    """
    limited = [account for account in (own, total) if account is not None and account.caps is not None]
    counts = [count for account in limited if (count := account.more(cost)) is not None]
    return {
        "own": None if own is None else own.left,
        "total": None if total is None else total.left,
        "more": min(counts, default=None),
        "used": limited[0].used if limited else None,
        "takes": limited[0].takes(cost) if limited else None,
    }


def describe_used(used: Mapping[str, float | None], whose: str = "the budget") -> str:
    """Return as text how much of a budget is used, in percent and as an epsilon at the limit's delta."""
    share, epsilon, delta = used["share"], used["epsilon"], used["delta"]
    assert share is not None
    text = f"{format_share(min(share, 1.0))} of {whose} is used"
    return text if epsilon is None else f"{text} ({_epsilon_text(epsilon, delta)})"


def describe_takes(takes: Mapping[str, float | None], whose: str = "the budget") -> str:
    """Return as text which part of a budget a query takes, and by how much it raises the epsilon."""
    share, epsilon, delta = takes["share"], takes["epsilon"], takes["delta"]
    assert share is not None
    text = f"{format_share(share)} of {whose}"
    return text if epsilon is None else f"{text} ({_epsilon_text(epsilon, delta)} more)"


def _epsilon_text(epsilon: float, delta: float | None) -> str:
    text = f"epsilon {number(epsilon, rounding='up')}"
    return f"{text} at delta {delta:g}" if delta else text


@lru_cache(maxsize=_CACHE_SIZE)
def describe_cost(cost: tuple[Promise, ...], delta: float) -> str:
    """Return a cost as text; that of Gaussian noise also as an epsilon at `delta`."""
    if not cost:
        return "nothing"
    promises = " and ".join(describe_promise(promise.to_dict()) for promise in cost)
    spent = sum((Spending.from_promises(promise) for promise in cost), Spending())
    if not spent.rho or _is_pure(cost):
        return promises
    try:
        epsilon = number(spent.epsilon_at(delta), digits=4, rounding="up")
    except PromiseError:  # so much, or so little, that no epsilon says it
        return promises
    return f"{promises} (epsilon {epsilon} at delta {delta:g})"


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


def rounded(value: float, margin: float) -> str:
    """Return a number as text, with as many digits as its margin leaves."""
    if margin == 0:
        return f"{value:,.10g}"
    decimals = max(0, 1 - math.floor(math.log10(margin)))
    text = f"{value:,.{min(decimals, 15)}f}"
    return "0" if float(text.replace(",", "")) == 0 else text


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultCell:
    """One number of a result: of the whole table, or of one group.

    Attributes
    ----------
    key : tuple of str
        Values of the group, one for each column of ``group_by``; empty without groups.
    value : float or None
        Noisy number. A mean is within its declared range; a count or a sum is as drawn, so that sums of
        several stay unbiased, and may be outside its interval. None for a mean over exactly no rows.
    sd : float or None
        Standard deviation of the noise, in the unit of the number; None for a mean over a noisy count, a
        quotient that has none.
    lower, upper : float
        Ends of the interval that holds the exact number with probability :data:`LEVEL`, cut to what is
        possible.
    """

    key: tuple[str, ...]
    value: float | None
    sd: float | None
    lower: float
    upper: float

    @property
    def interval(self) -> ResultInterval:
        """Interval that holds the exact number at :data:`LEVEL`."""
        return ResultInterval(self.lower, self.upper)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "key": list(self.key),
            "value": self.value,
            "sd": self.sd,
            "lower": self.lower,
            "upper": self.upper,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], law: Law, bounds: ResultInterval) -> ResultCell:
        """Return the cell that :meth:`to_dict` wrote; refuses ends that do not fit noise and bounds."""
        value, sd = _read_number(values["value"]), _read_number(values["sd"], least=0.0)
        lower, upper = (_read_known(values[name]) for name in ("lower", "upper"))
        expected: Sequence[Any] = (max(lower, bounds.lower), min(upper, bounds.upper))
        if value is not None and sd is not None:
            expected = sum_intervals(np.asarray(value), np.asarray(sd), interval_width(law), bounds)
        allowed = _ROUNDING * (abs(value or 0.0) + abs(lower) + abs(upper))
        near = all(abs(e - x) <= allowed for e, x in zip((lower, upper), expected, strict=True))
        if lower > upper or not near:
            raise ValueError
        return cls(key=_read_texts(values["key"]), value=value, sd=sd, lower=lower, upper=upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Result of a text query, of a table at hand or behind a service.

    Attributes
    ----------
    question : str
        Query as it was understood.
    measure : str or None
        Unit of the numbers; None where the columns declare none.
    group_by : tuple of str
        Columns of the groups; empty without groups.
    cells : tuple of ResultCell
        One cell, or one for each declared group, also for groups without a row.
    bounds : ResultInterval
        Least and largest number that the declared ranges and the public number of rows allow; infinite where
        they allow any.
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    cost : tuple of Promise
        Promises that were charged; empty for a free result. For a refined result, those of its newest part.
    unreadable_below : int or None
        Number of rows below which a group cannot be distinguished from an empty one; None without groups,
        for sums, and for exact results.
    cached : bool
        Whether it had been paid for before, and is the same result again.
    receipts : tuple of str
        Ids of the charges, one for each aggregate of the query: two for a mean by groups.
    parts : tuple of tuple of str
        For each aggregate, the receipt ids of all answers that were merged into it.
    charges : tuple of Receipt
        Receipts of the charges, as the ledger wrote them; empty for a result that a service sent.
    ledger : str or None
        Identity of the ledger that was charged; None where it is not known.
    remaining : mapping or None
        What is left to the owner and in total, how many more such queries that pays for, and the part of
        the budget that is used and that one more takes: keys ``own``, ``total``, ``more``, ``used`` and
        ``takes``. None where it is not known.
    spent : Spending or None
        Sum of all charges of the ledger; None where it is not known.

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
    measure: str | None
    group_by: tuple[str, ...]
    cells: tuple[ResultCell, ...]
    law: Law
    cost: tuple[Promise, ...]
    bounds: ResultInterval = UNBOUNDED
    unreadable_below: int | None = None
    cached: bool = False
    receipts: tuple[str, ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()
    charges: tuple[Receipt, ...] = field(default=(), compare=False, repr=False)
    ledger: str | None = None
    remaining: Mapping[str, Any] | None = None
    spent: Spending | None = None

    @property
    def value(self) -> float | None:
        """Noisy number of a result without groups; None with groups, and for a mean over exactly no rows."""
        return None if self._single is None else self._single.value

    @property
    def sd(self) -> float | None:
        """Standard deviation of the noise of a result without groups, in its unit; None with groups."""
        return None if self._single is None else self._single.sd

    @property
    def interval(self) -> ResultInterval | None:
        """Interval of a result without groups at :data:`LEVEL`; None with groups."""
        return None if self._single is None else self._single.interval

    @property
    def _single(self) -> ResultCell | None:
        return self.cells[0] if self.cells and not self.group_by else None

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
        return cell.interval != self.bounds or cell.lower == cell.upper

    @property
    def group_words(self) -> str | None:
        """Which groups are too small to be read; None where that is not known."""
        if self.unreadable_below is None:
            return None
        return f"Noise makes groups below about {self.unreadable_below:,} rows unreadable."

    @property
    def unreadable_words(self) -> str | None:
        """What is to be said of means whose interval is the whole declared range; None if there are none."""
        unreadable = sum(not self.is_readable(cell) for cell in self.cells)
        if not unreadable:
            return None
        have = "has" if unreadable == 1 else "have"
        which = f"{unreadable} of {len(self.cells)} groups {have}" if self.group_by else "There are"
        return f"{which} too few rows for the noise: nothing can be read from the number."

    @property
    def frame(self) -> Frame:
        """Cells, one row each: the columns of the groups, then value, sd, lower and upper."""
        keys = {name: [cell.key[i] for cell in self.cells] for i, name in enumerate(self.group_by)}
        numbers = {
            name: [getattr(cell, name) for cell in self.cells] for name in ("value", "sd", "lower", "upper")
        }
        # A column of the table may have one of these names.
        return Frame({**keys, **{f"noisy {n}" if n in keys else n: cells for n, cells in numbers.items()}})

    def to_pandas(self) -> Any:
        """Return the cells as a pandas data frame."""
        return self.frame.to_pandas()

    def to_polars(self) -> Any:
        """Return the cells as a polars data frame."""
        return self.frame.to_polars()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as the command line prints them."""
        return {
            "question": self.question,
            "measure": self.measure,
            "by": list(self.group_by),
            "level": LEVEL,
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
        ends = self.interval or (None, None)
        return {
            "kind": "answer",
            "question": self.question,
            "measure": self.measure,
            "by": list(self.group_by),
            "cells": [cell.to_dict() for cell in self.cells],
            "bounds": self._bounds_field(),
            "value": self.value,
            "sd": self.sd,
            "interval": {"level": LEVEL, "lower": ends[0], "upper": ends[1]},
            "law": self.law,
            "unreadable_below": self.unreadable_below,
            "cached": self.cached,
            "receipts": list(self.receipts),
            "parts": [list(merged) for merged in self.parts],
            **cost_fields(self.cost, self.remaining),
        }

    def _bounds_field(self) -> dict[str, float | None]:
        """Return what is possible as JSON values, with None for an end that is infinite."""
        return {name: end if math.isfinite(end) else None for name, end in self.bounds._asdict().items()}

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
        cells = tuple(ResultCell.from_dict(cell, values["law"], common["bounds"]) for cell in values["cells"])
        value, sd = _read_number(values["value"]), _read_number(values["sd"], least=0.0)
        single = (None, None) if group_by else (cells[0].value, cells[0].sd)
        # The number of a result without groups is there twice.
        if (value, sd) != single or (not group_by and len(cells) != 1):
            raise ValueError
        if any(len(cell.key) != len(group_by) for cell in cells) or not isinstance(values["cached"], bool):
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

    def __str__(self) -> str:
        numbers = [] if self.sd is None else [f"sd {number(self.sd)}"]
        numbers += [] if self.share is None else [f"{format_share(self.share)} of the budget"]
        return self.law.capitalize() + (f" ({', '.join(numbers)})" if numbers else "")

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
    sd : float or None
        Standard deviation of the noise of each number; None for a mean over a noisy count.
    margin : float or None
        Half the width of each interval at :data:`LEVEL`, before it is cut to what is possible; None if it
        depends on what is not public.
    n_rows : float or None
        Number of rows for which the margin of a mean is given: all rows, or for groups an equal part of
        them. It is wider over fewer. None for counts and sums, and where the number is not public.
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
    sd: float | None = None
    margin: float | None = None
    n_rows: float | None = None
    expected: tuple[ExpectedMargin, ...] = ()
    laws: tuple[LawOption, ...] = ()

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
        """Which law of noise is taken, and what the other one would take; None where there is no choice."""
        if len(self.laws) < 2:
            return None
        chosen, *others = map(str, self.laws)
        return f"Noise: {chosen}, rather than {', '.join(others)}."

    def to_wire(self) -> dict[str, Any]:
        """Return the preview as the HTTP interface has it."""
        return {
            "kind": "price",
            "question": self.question,
            "sql": self.sql,
            "learner": None,
            "measure": self.measure,
            "by": list(self.group_by),
            "bounds": self._bounds_field(),
            **self._noise_fields(),
            "unreadable_below": self.unreadable_below,
            **cost_fields(self.cost, self.remaining),
            "more": self.more,
            "free": self.is_free or not self.cost,
        }

    @staticmethod
    def _read_fields(values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a message; it does not name the law, which follows from the cost."""
        sd, margin, n_rows = (_read_number(values[name], least=0.0) for name in ("sd", "margin", "n_rows"))
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
            "sd": sd,
            "margin": margin,
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
    return {
        "question": values["question"],
        "measure": _read_text_or_none(values["measure"]),
        "cost": tuple(promise_from_dict(promise) for promise in values["cost"]),
        "bounds": ResultInterval(
            *(_read_end(values["bounds"][name], end) for name, end in UNBOUNDED._asdict().items())
        ),
        "unreadable_below": least,
        "remaining": dict(remaining),
    }


def _read_number(value: Any, *, least: float = -math.inf) -> float | None:
    """Return a finite number as a float, and None as None; refuses texts and truth values."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if not (math.isfinite(value) and value >= least):
        raise ValueError
    return float(value)


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
