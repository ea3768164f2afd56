"""Small tables and stand-ins that tests of the private database share."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from discreet.query.language._expression import Grid
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray
    from discreet.schema.schema import Neighbors

NASTY = (None, float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 5e-324, -0.0, 0.1, 1 / 3, 0.999999)


def people_schema(neighbors: Neighbors = "replace-one", **more: Any) -> Schema:
    """Numbers that may be missing or not, whole numbers, categories with and without a missing level."""
    return Schema(
        columns=[
            Column("income", lower=0, upper=1, required=False),
            Column("height", lower=-2.5, upper=3.25),
            Column("age", type="integer", lower=17, upper=90),
            Column("job", values=("clerk", "nürse", "日本"), required=False),
            Column("owner", values=(0, 1), role="target"),
        ],
        neighbors=neighbors,
        **more,
    )


def under(privacy: Any, neighbors: Neighbors) -> Any:
    """Return a promise about some neighbors."""
    return replace(privacy, neighbors=neighbors)


def people(n: int) -> dict[str, AnyArray]:
    """Rows in which every kind of cell occurs; deterministic."""
    i = np.arange(n)
    nasty = np.array([np.nan if value is None else value for value in NASTY])
    jobs = np.array(["clerk", "nürse", "日本", "unlisted", None], dtype=object)
    return {
        "income": np.where(i % 5 == 0, nasty[i % len(nasty)], (i * 7919 % 1000) / 999),
        "height": np.where(i % 7 == 0, 1e300 * (-1.0) ** i, np.sin(i) * 4),
        "age": 17 + i * 31 % 74,
        "job": jobs[i * 13 % 5],
        "owner": i * 17 % 2,
    }


@dataclass(frozen=True)
class Bare:
    """What parsing the name of a number gives."""

    bare: str
    lower: float
    upper: float
    is_condition: bool = False
    known: str | None = None

    @property
    def canonical(self) -> str:
        """The name."""
        return self.bare


@dataclass(frozen=True)
class AtLeast:
    """A condition on the curated integer of one column."""

    column: str
    least: int
    lower: float = 0.0
    upper: float = 1.0
    is_condition: bool = True
    bare: str | None = None
    is_constant: bool = False

    @property
    def canonical(self) -> str:
        """A text that fixes it."""
        return f"{self.column} >= #{self.least}"

    def grid(self) -> Grid:
        """Return 0 and 1."""
        return Grid(0.0, 1.0, 1)

    def integer_sql(self, column: Callable[[str], Any]) -> Any:
        """1 or 0."""
        one = exp.Literal.number(1)
        test = exp.GTE(this=column(self.column), expression=exp.Literal.number(self.least))
        return exp.case().when(test, one).else_(exp.Literal.number(0))


@dataclass(frozen=True)
class Constant:
    """A number that is the same for every row."""

    lower: float
    upper: float
    is_condition: bool = False
    bare: str | None = None
    is_constant: bool = True

    @property
    def canonical(self) -> str:
        """The number."""
        return repr(self.lower)


def corners() -> tuple[Schema, list[dict[str, Any]]]:
    """A schema and every row of a small domain that reaches all its corners."""
    schema = Schema(
        columns=[
            Column("x", lower=10, upper=11),
            Column("a", type="integer", lower=0, upper=2),
            Column("job", values=("p", "q"), closed=True),
            Column("y", values=(0, 1), role="target"),
        ]
    )
    rows = [
        {"x": x, "a": a, "job": job, "y": y}
        for x, a, job, y in itertools.product((10.0, 10.3, 11.0), (0, 1, 2), ("p", "q"), (0, 1))
    ]
    return schema, rows
