"""Cells and columns of results, and the fields of the messages that carry them over HTTP."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from discreet.formatting import printable
from discreet.privacy import promise_from_dict
from discreet.query.intervals import (
    UNBOUNDED,
    ResultInterval,
    sum_intervals,
)

_ROUNDING = 1e-9  # relative; another machine may compute the ends of an interval a few units differently


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

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> with Database(rows, schema=schema, random_state=1) as db:
    ...     cell = db.query("count by ill", privacy=GaussianDP(1)).cells[0]
    >>> cell.key, cell.lower < 500 < cell.upper
    (('0',), True)
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
            "lower": finite_or_none(self.lower),
            "upper": finite_or_none(self.upper),
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
        value, sd = read_number(values["value"]), read_number(values["sd"], least=0.0)
        lower, upper = _read_end(values["lower"], -math.inf), _read_end(values["upper"], math.inf)
        expected: Sequence[Any] = (max(lower, bounds.lower), min(upper, bounds.upper))
        if value is not None and sd is not None:
            expected = sum_intervals(np.asarray(value), np.asarray(sd), width, bounds)
        allowed = _ROUNDING * sum(abs(x) for x in (value or 0.0, lower, upper) if math.isfinite(x))
        near = all(e == x or abs(e - x) <= allowed for e, x in zip((lower, upper), expected, strict=True))
        if lower > upper or not near:
            raise ValueError
        return cls(key=read_texts(values["key"]), column=column, value=value, sd=sd, lower=lower, upper=upper)


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
            "bounds": {name: finite_or_none(end) for name, end in self.bounds._asdict().items()},
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
        day = read_text_or_none(values["first_day"])
        return cls(
            name=values["name"],
            measure=read_text_or_none(values["measure"]),
            bounds=bounds,
            first_day=None if day is None else _read_first_day(day, bounds),
            sd=read_number(values["sd"], least=0.0),
            margin=read_number(values["margin"], least=0.0),
            rank_margin=read_number(values["rank_margin"], least=0.0),
        )


def read_common_fields(values: Mapping[str, Any]) -> dict[str, Any]:
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


def finite_or_none(value: float | None) -> float | None:
    """Return a number as a JSON value, None if it is infinite."""
    return value if value is not None and math.isfinite(value) else None


def read_number(value: Any, *, least: float = -math.inf) -> float | None:
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
    return unbounded if value is None else read_known(value)


def read_known(value: Any) -> float:
    """Return a finite number as a float; refuses None as well."""
    read = read_number(value)
    if read is None:
        raise TypeError
    return read


def read_texts(values: Any) -> tuple[str, ...]:
    """Return a list of texts as a tuple."""
    if not isinstance(values, list | tuple) or not all(isinstance(text, str) for text in values):
        raise TypeError
    return tuple(values)


def read_text_or_none(value: Any) -> str | None:
    """Return a text of a message, or None; anything else is a TypeError."""
    if value is not None and not isinstance(value, str):
        raise TypeError
    return value
