"""What may stand in GROUP BY: columns whose values are declared, so that absent ones are known too."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from discreet.errors import ExpressionRefused
from discreet.query.expression.scan import scan
from discreet.query.expression.words import is_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.schema import Column, Level, Schema

Cell: TypeAlias = "Level | datetime.date"
MOST_CELLS = 2**20


@dataclass(frozen=True, slots=True)
class Group:
    """A column to group by.

    Attributes
    ----------
    column : Column
        As declared.
    cells : tuple
        Everything that a row may hold there, in the order of the curated integers; ``None`` for a
        missing cell.
    """

    column: Column
    cells: tuple[Cell, ...]


def parse_groups(names: str | Sequence[str], schema: Schema) -> tuple[Group, ...]:
    """Read the columns of a GROUP BY.

    Parameters
    ----------
    names : str or sequence of str
        Names separated by commas, or a list of names.
    schema : Schema
        What was declared.

    Returns
    -------
    tuple of Group
        With all their cells, also those that no row is in.

    Raises
    ------
    ExpressionRefused
        If a name is unknown, comes twice, has no declared list of values, or if there are too many cells.

    Privacy
    -------
    Which groups exist is public: groups read off the rows would tell who is there.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("ward", values=("a", "b")), Column("age", lower=0, upper=99)])
    >>> parse_groups("ward", schema)[0].cells
    ('a', 'b', 'other')
    """
    columns = _columns(names, schema)
    groups = tuple(Group(column, _cells(column)) for column in columns)
    if math.prod(len(group.cells) for group in groups) > MOST_CELLS:
        raise ExpressionRefused(f"more than {MOST_CELLS} groups", "Group by fewer columns.")
    return groups


def _columns(names: str | Sequence[str], schema: Schema) -> list[Column]:
    if not isinstance(names, str):
        names = ", ".join(map(_written, names))
    scanned = scan(names, schema)
    expected = " , ".join(f"c_{i}" for i in range(len(scanned.columns)))
    if scanned.text != expected:
        raise _not_columns()
    found = [column.name for column in scanned.columns]
    if len(set(found)) < len(found):
        raise ExpressionRefused("a column to group by that comes twice", "Write it once.")
    return list(scanned.columns)


def _written(name: object) -> str:
    if not isinstance(name, str):
        raise _not_columns()
    return name if is_plain(name) else '"{}"'.format(name.replace('"', '""'))


def _not_columns() -> ExpressionRefused:
    return ExpressionRefused("something else than columns to group by", "Write names with commas: sex, ward.")


def _cells(column: Column) -> tuple[Cell, ...]:
    if column.is_category:
        return column.levels
    if column.type == "number":
        raise ExpressionRefused(
            "a column of numbers to group by",
            "Group by a category, by whole numbers or by dates; count a range with x BETWEEN 1 AND 2.",
        )
    if not column.required:
        raise ExpressionRefused(
            "a column of whole numbers or dates that may be missing to group by",
            "Count the missing cells with x IS NULL, or declare the column as a category.",
        )
    if column.n_integers > MOST_CELLS:
        raise ExpressionRefused(f"more than {MOST_CELLS} groups", "Group by a column with fewer values.")
    first = column.lower
    if isinstance(first, datetime.date):
        return tuple(first + datetime.timedelta(days=i) for i in range(column.n_integers))
    assert isinstance(first, int)
    return tuple(range(first, first + column.n_integers))
