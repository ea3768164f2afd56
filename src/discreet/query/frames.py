"""Frames for notebooks and files, budgets, and the history of what was paid for."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf

from discreet.errors import MissingExtra
from discreet.formatting import format_amounts, name
from discreet.privacy import Promise, promise_from_dict
from discreet.privacy.promises import describe_promise
from discreet.query.costs import describe_used

if TYPE_CHECKING:
    import os

    from discreet.ledger import Ledger
    from discreet.privacy import Spending

HISTORY_COLUMNS = (
    *("row", "when", "receipt", "what", "question", "statistic", "group"),
    *("value", "sd", "lower", "upper", "law", "cost"),
)
"""Columns of a history, in their order."""
_NUMBER_COLUMNS = ("statistic", "group", "value", "sd", "lower", "upper")

# Of a spreadsheet; the last four are wide forms, which some spreadsheets accept.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_PLAIN_NUMBER = re.compile(r"[+-][0-9]+(\.[0-9]+)?")

Text = TypeVar("Text", bound=str)

Amount: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""Finite amount of one currency."""


def _parse_promise(value: Any) -> Any:
    return promise_from_dict(value) if isinstance(value, Mapping) else value


PromiseValue: TypeAlias = Annotated[InstanceOf[Promise], BeforeValidator(_parse_promise)]
"""Promise, also in the form that ``to_dict`` writes."""


class Frame:
    """Named columns of equal length, which become a data frame of pandas or polars.

    Parameters
    ----------
    columns : mapping of str to sequence
        Cells of each column, by its name.

    Examples
    --------
    >>> frame = Frame({"age": [34, 51], "value": [10.2, 11.9]})
    >>> frame.to_pandas().shape
    (2, 2)
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self.columns: dict[str, list[Any]] = {name: list(cells) for name, cells in columns.items()}

    @classmethod
    def from_rows(cls, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Frame:
        """Return the frame of rows that have these names; a name that a row lacks is None."""
        return cls({name: [row.get(name) for row in rows] for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def __eq__(self, other: object) -> bool:
        return self.columns == other.columns if isinstance(other, Frame) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Frame({len(self)} rows: {', '.join(self.columns)})"

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        return import_frames("pandas").DataFrame(self.columns)

    def to_polars(self) -> Any:
        """Return a polars data frame; columns whose cells are lists keep them as Python objects."""
        polars = import_frames("polars")
        nested = [
            name for name, cells in self.columns.items() if any(isinstance(c, list | dict) for c in cells)
        ]
        # Cells of one column may be whole numbers in one row and not in the next.
        return polars.DataFrame(
            self.columns, strict=False, schema_overrides=dict.fromkeys(nested, polars.Object)
        )

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Return the frame as CSV in full precision, or write it to a file in UTF-8.

        Parameters
        ----------
        path : path, optional
            File to write; None returns the text.

        Notes
        -----
        A text that a spreadsheet would take for a formula, because it begins with one of ``= + - @`` and is
        no number, gets an apostrophe in front.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(map(_csv_cell, self.columns))
        writer.writerows(map(_csv_cell, row) for row in zip(*self.columns.values(), strict=True))
        return write_text(out.getvalue(), path)


def _csv_cell(value: Any) -> Any:
    """Return a cell for CSV: no text that a spreadsheet would evaluate, several numbers as JSON."""
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS) and not _PLAIN_NUMBER.fullmatch(value):
        return "'" + value
    if isinstance(value, list | dict):
        return json.dumps(value)
    return "" if value is None else value


def write_text(text: Text, path: str | os.PathLike[str] | None) -> Text | None:
    """Return a text, or write it to a file in UTF-8, with the line ends that it has.

    Parameters
    ----------
    text : str
        Text to return or to write.
    path : path or None
        File to write; None returns the text.
    """
    if path is None:
        return text
    Path(path).write_text(text, encoding="utf-8", newline="")
    return None


def import_frames(name: str) -> Any:
    """Import an optional package, or name it in the error."""
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtra(
            f"A frame of {name} needs {name}, which is not installed. Install it with: pip install {name}"
        ) from None


class _FrozenModel(BaseModel):
    # A newer service may send more fields than are known here; a field that is missing is an error.
    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True, defer_build=True)


class Amounts(_FrozenModel):
    """One budget, in the currencies of its limit.

    Attributes
    ----------
    limit : Promise or None
        Promise that all charges together keep; None without a limit.
    spent : dict of str to float
        Amount spent in each currency.
    left : dict of str to float or None
        Amount left in each currency of the limit; None without a limit.
    used : dict of str to float or None
        Part of the budget that is used: its ``share``, and the ``epsilon`` of everything so far, with the
        ``limit`` and the ``delta`` that it is read at; None without a limit.
    """

    limit: PromiseValue | None
    spent: dict[str, Amount]
    left: dict[str, Amount] | None
    used: dict[str, Amount | None] | None

    def __str__(self) -> str:
        if self.left is None or self.used is None:
            return f"{format_amounts(self.spent, up=True)} spent; there is no limit."
        return f"{describe_used(self.used)}. Left: {format_amounts(self.left, up=False)}."

    @classmethod
    def from_ledger(cls, ledger: Ledger, owner: str | None, *, pooled: bool) -> Amounts:
        """Return the budget of one owner, or of all together for None."""
        (account,) = ledger.accounts(owner)
        return cls(
            limit=None if account.caps is None else ledger.guarantee(owner),
            spent=spent_amounts(account.spent, pooled=pooled),
            left=account.left,
            used=account.used,
        )


class NamedAmounts(Amounts):
    """Budget that several share, and the name of the group or of the people that it belongs to."""

    name: str


class AvailableAmounts(Amounts):
    """Budget of which an owner can spend the least, and whose it is: ``own``, ``group`` or ``total``."""

    whose: str


class Budget(_FrozenModel):
    """What one owner, and all owners together, may spend, have spent and have left.

    Attributes
    ----------
    own : Amounts or None
        Budget of the owner; None where no owner is named.
    total : Amounts or None
        Budget of all owners together; at a service the nearer to its limit of that of the data set and of
        that of all data sets about the same people.
    group : NamedAmounts or None
        Budget of the owner's group; None for an owner in no group, and for a table at hand.
    people : NamedAmounts or None
        Budget of all data sets about the same people; None for one alone, and for a table at hand.
    available : AvailableAmounts or None
        The one of these budgets of which the owner can spend the least; None for a table at hand.
    collusion : str or None
        What the limits assume about owners who share their results; None for a table at hand.
    composition : str or None
        What the limits count, this table alone or all about the same people; None for a table at hand.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Ledger, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99)])
    >>> ledger = Ledger.open(":memory:", limit=GaussianDP(1))
    >>> with Database({"age": [20, 40] * 500}, schema=schema, ledger=ledger) as db:
    ...     budget = db.budget()
    >>> budget.own is None, budget.total is None
    (True, False)
    """

    own: Amounts | None
    total: Amounts | None
    group: NamedAmounts | None = None
    people: NamedAmounts | None = None
    available: AvailableAmounts | None = None
    collusion: str | None = None
    composition: str | None = None

    def __str__(self) -> str:
        """Return a line for each budget, which says of one of several limits that it is used up first."""
        budgets = {"own": ("Own", self.own)}
        if self.group is not None:
            budgets["group"] = (f"Group {name(self.group.name)}", self.group)
        budgets["total"] = ("All", self.total)
        if self.people is not None:
            budgets["people"] = (f"All data sets about {name(self.people.name)}", self.people)
        # Only of several limits one is nearest.
        limited = sum(amounts is not None and amounts.limit is not None for _, amounts in budgets.values())
        nearest = self.available.whose if self.available is not None and limited > 1 else ""
        lines = [
            f"{words}{' (used up first)' if whose == nearest else ''}: {amounts}"
            for whose, (words, amounts) in budgets.items()
            if amounts is not None
        ]
        return "\n".join((*lines, *filter(None, (self.collusion, self.composition))))

    @classmethod
    def from_ledger(cls, ledger: Ledger, owner: str | None) -> Budget:
        """Return the budgets of a ledger; pure charges count in rho too where no limit is in epsilon."""
        left = ledger.remaining()
        pooled = left is not None and "epsilon" not in left
        own = None if owner is None else Amounts.from_ledger(ledger, owner, pooled=pooled)
        return cls(own=own, total=Amounts.from_ledger(ledger, None, pooled=pooled))


def spent_amounts(spent: Spending, *, pooled: bool) -> dict[str, float]:
    """Return the amount spent in each currency.

    Parameters
    ----------
    spent : Spending
        Sum of all charges.
    pooled : bool
        Whether pure charges are also counted in rho. Where the limit counts a Rényi divergence, they are
        counted by it.
    """
    rho = spent.pooled_rho if pooled else spent.gaussian + spent.concentrated
    if spent.order is not None:
        rho = spent.divergence
    return {
        "rho": float(rho),
        "epsilon": float(spent.linear),
        "delta": float(spent.point_delta),
        "charges": spent.charges,
    }


def question_words(asked: Mapping[str, Any] | None, what: str) -> str:
    """Return what was asked for a charge as text.

    Parameters
    ----------
    asked : mapping or None
        What the ledger stores of the query; None where it stores nothing.
    what : str
        Kind of the charge, which is returned where no more is known.
    """
    asked = asked or {}
    question = asked.get("question") or {}
    if asked.get("said"):
        return str(asked["said"])
    if question.get("kind") == "sums":
        return f"sum({', '.join(map(str, question['expressions']))})"
    if question.get("kind") == "histogram":
        summed = question.get("expression")
        verb = "count" if summed is None else f"sum({summed})"
        return f"{verb} by {', '.join(question['columns'])}"
    return what


def history_rows(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one charge as rows with :data:`HISTORY_COLUMNS`: one for each number of a text query.

    Parameters
    ----------
    entry : mapping
        Entry of a history: receipt, row, when, what, asked, cost, value, sd, law, and the numbers of a
        text query. An answer to another aggregate has one row, with the number or the list of all of them;
        so has a charge whose query has its numbers at a later charge, with none.
    """
    asked = entry["asked"]
    question = asked.get("said") or json.dumps(asked.get("question"))
    cost = " and ".join(describe_promise(promise) for promise in entry["cost"])
    common = {**dict.fromkeys(HISTORY_COLUMNS), **entry, "question": question, "cost": cost}
    numbers = entry.get("numbers")
    if numbers is None:
        numbers = [{name: _unwrap(entry[name]) for name in ("value", "sd")}]
    empty = dict.fromkeys(_NUMBER_COLUMNS)
    rows = [{**common, **empty, **{name: one[name] for name in one}} for one in numbers or [empty]]
    return [{name: row[name] for name in HISTORY_COLUMNS} for row in rows]


def _unwrap(value: Any) -> Any:
    """Return the number of a list of one, and everything else as it is."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


class History(Frame):
    """What was paid for, oldest first: a frame with one row for each number of a text query.

    Its columns are the row of the ledger, when it was charged, the receipt, the kind of charge, the question,
    the statistic and the group of the number, value, sd, lower, upper, the law of the noise, and the cost of
    the whole question.
    """

    @classmethod
    def from_entries(cls, entries: Iterable[Mapping[str, Any]]) -> History:
        """Return the history of charges, in the form that the history of a service has."""
        rows = [row for entry in entries for row in history_rows(entry)]
        return cls(Frame.from_rows(HISTORY_COLUMNS, rows).columns)

    def __repr__(self) -> str:
        return f"History({len(set(self.columns['row']))} charges, {len(self)} rows)"

    def _repr_html_(self) -> str:
        from discreet.query.result_drawing import draw_history  # only a notebook draws

        return draw_history(self.columns)
