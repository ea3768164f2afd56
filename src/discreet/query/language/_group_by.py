"""Columns to group by, with their declared values or the edges of their cells."""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from discreet.errors import ExpressionRefused, ParameterError
from discreet.query.language._select import WORDS
from discreet.query.language.lexer import (
    Token,
    is_plain,
    refused_word,
    scan,
    shortened,
    source_text,
    split_list,
    tokenize,
)

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


GivenGroup: TypeAlias = "tuple[str, tuple[Any, ...] | None]"
"""A name as it is typed, and what was given as edges."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_LARGEST = 1e300  # of a number that is given as an edge
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A column to group by.

    Attributes
    ----------
    column : str
        Its name.
    edges : tuple of float
        Where cells begin, for a date in days since its first; empty for a column whose declared values are
        the cells.
    """

    column: str
    edges: tuple[float, ...] = ()

    def written(self, schema: Schema) -> str:
        """Write it, so that it is read as the same."""
        if not self.edges:
            return write_name(self.column)
        column = schema.column(self.column)
        return f"{write_name(self.column)} ({', '.join(write_edge(edge, column) for edge in self.edges)})"


def typed_groups(text: str) -> list[GivenGroup]:
    """Read what stands after BY: names, each with its edges in parentheses where it has some."""
    groups: list[GivenGroup] = []
    for part in split_list(tokenize(text)):
        outside = [piece.text for piece in part if piece.depth == 0]
        if not part or not part[0].is_name or outside[1:] not in ([], ["(", ")"]):
            raise ExpressionRefused(
                "something else than columns to group by",
                "Write names with commas, and of a number where its cells begin: sex, age (30, 45, 60).",
            )
        inside = part[2:-1]
        edges = tuple(source_text(edge) for edge in _commas(inside))
        groups.append((part[0].text, edges if len(part) > 1 else None))
    return groups


def _commas(pieces: Sequence[Token]) -> list[list[Token]]:
    """Cut what stands in one pair of parentheses at its commas."""
    parts: list[list[Token]] = [[]]
    for piece in pieces:
        if piece.text == ",":
            parts.append([])
        else:
            parts[-1].append(piece)
    return parts


def given_group(item: str | Mapping[str, Any]) -> GivenGroup:
    """Read a group that was not typed but given in parts."""
    if isinstance(item, str):
        return write_name(item), None
    given = dict(item) if isinstance(item, Mapping) else {}
    name, edges = given.get("column"), given.get("edges")
    if not isinstance(name, str) or not isinstance(edges, list | tuple) or set(given) != {"column", "edges"}:
        raise ParameterError(
            "by of build_query must hold names of columns, or columns with their edges, and holds something "
            'else. Write {"column": "age", "edges": [30, 45, 60]}.'
        )
    return write_name(name), tuple(edges)


def resolve_groups(groups: Sequence[GivenGroup], schema: Schema) -> tuple[GroupKey, ...]:
    """Find the columns, and check that their cells are known without a look at rows.

    Raises
    ------
    ExpressionRefused
        If a name is unknown or comes twice, if cells are not known, or if there are too many.
    """
    axes = []
    for written, edges in groups:
        column = _column(written, schema)
        if edges is None:
            if column.is_number and (column.type == "number" or not column.required):
                raise ExpressionRefused(
                    "a column of numbers to group by", f"Say where its cells begin: BY {_quartered(column)}."
                )
            axes.append(GroupKey(column.name))
        else:
            axes.append(GroupKey(column.name, _edges(edges, column)))
    names = [axis.column for axis in axes]
    if len(set(names)) < len(names):
        raise ExpressionRefused("a column to group by that comes twice", "Write it once.")
    plain = [axis.column for axis in axes if not axis.edges]
    if plain:
        parse_groups(plain, schema)  # refuses more cells than anybody could read
    return tuple(axes)


def _column(written: str, schema: Schema) -> Column:
    """Find a column by its name, in any case, or in double quotes as it is."""
    (piece,) = tokenize(written)
    for column in schema.released:
        if piece.name == column.name or (
            piece.text == piece.name and column.name.casefold() == piece.name.casefold()
        ):
            return column
    raise refused_word(shortened(piece.name), tuple(column.name for column in schema.released))


def _edges(given: Sequence[Any], column: Column) -> tuple[float, ...]:
    edges = [_edge(edge, column) for edge in given]
    rising = all(low < high for low, high in itertools.pairwise(edges))
    if not column.is_number or not edges or not rising or not all(map(math.isfinite, edges)):
        hint = f"Write where cells begin: BY {_quartered(column)}." if column.is_number else "Leave them out."
        raise ExpressionRefused("cells that are not a column of numbers and rising numbers", hint)
    return tuple(edge + 0.0 for edge in edges)


def _edge(given: Any, column: Column) -> float:
    """Read where a cell begins; NaN if it cannot be read."""
    if isinstance(given, str):
        day = given.strip("'")
        if column.type == "date" and _DAY.fullmatch(day):
            try:
                return float((datetime.date.fromisoformat(day) - _first_day(column)).days)
            except ValueError:
                return math.nan
        return float(given) if _NUMBER.fullmatch(given) else math.nan
    if not isinstance(given, int | float) or isinstance(given, bool) or abs(given) > _LARGEST:
        return math.nan
    return float(given)


def _first_day(column: Column) -> datetime.date:
    assert isinstance(column.lower, datetime.date)
    return column.lower


def _quartered(column: Column) -> str:
    """Show how edges are written, for a column: at the quarters of its declared range."""
    low, high = column.range
    quarters = [low + (high - low) * i / 4 for i in (1, 2, 3)]
    edges = [edge if column.type == "number" else float(math.floor(edge)) for edge in quarters]
    return f"{write_name(column.name)} ({', '.join(write_edge(edge, column) for edge in edges)})"


def write_edge(edge: float, column: Column) -> str:
    """Write where a cell begins, so that it is read as the same number."""
    if column.type == "date" and edge.is_integer():
        try:
            return f"'{_first_day(column) + datetime.timedelta(days=int(edge))}'"
        except OverflowError:
            pass
    return repr(edge).removesuffix(".0")


def write_name(name: str) -> str:
    """Write the name of a column to group by: in quotes if it could be taken for something else."""
    plain = is_plain(name) and name.upper() not in WORDS
    return name if plain else '"{}"'.format(name.replace('"', '""'))
