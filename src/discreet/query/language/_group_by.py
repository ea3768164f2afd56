"""The one reader of GROUP BY: columns, with their declared values or the edges of their cells."""

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
    shorten,
    source_text,
    split_list,
    tokenize,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.schema import Column, Level, Schema

_Named: TypeAlias = "tuple[Token, tuple[Any, ...] | None]"  # a name, and what was given as edges
MOST_CELLS = 2**20
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_LARGEST = 1e300  # of a number that is given as an edge
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A column to group by.

    Attributes
    ----------
    column : str
        Name of the column as declared.
    edges : tuple of float
        Where cells begin, for a date in days since its first; empty for a column whose declared values are
        the cells.
    """

    column: str
    edges: tuple[float, ...] = ()

    def written(self, schema: Schema) -> str:
        """Return the key as text, which is read as the same key."""
        if not self.edges:
            return write_name(self.column)
        column = schema.column(self.column)
        return f"{write_name(self.column)} ({', '.join(write_edge(edge, column) for edge in self.edges)})"


def parse_groups(groups: str | Sequence[str | Mapping[str, Any]], schema: Schema) -> tuple[GroupKey, ...]:
    """Return the keys of a GROUP BY; their cells are known without a look at rows.

    Parameters
    ----------
    groups : str or sequence of str or mapping
        Text after BY, ``sex, age (30, 45, 60)``; or its keys, each the name of a column or
        ``{"column": "age", "edges": [30, 45, 60]}``.
    schema : Schema
        Declaration of the table, whose released columns may be named.

    Raises
    ------
    ExpressionRefused
        If a name is unknown or comes twice, if cells are not known, or if there are too many.

    Privacy
    -------
    Which groups exist is public: groups read off the rows would tell who is there.

    Reference
    ---------
    ``docs/reference/expressions.md``.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("ward", values=("a", "b")), Column("age", lower=0, upper=99)])
    >>> parse_groups("WARD, age (30, 60)", schema)
    (GroupKey(column='ward', edges=()), GroupKey(column='age', edges=(30.0, 60.0)))
    """
    named = _typed_groups(groups) if isinstance(groups, str) else [_given_group(item) for item in groups]
    keys = []
    for token, edges in named:
        column = _column(token, schema)
        if edges is not None:
            keys.append(GroupKey(column.name, _edges(edges, column)))
        elif column.is_number and (column.type == "number" or not column.required):
            raise ExpressionRefused(
                "a column of numbers to group by", f"Say where its cells begin: BY {_example_edges(column)}."
            )
        else:
            keys.append(GroupKey(column.name))
    names = [key.column for key in keys]
    if len(set(names)) < len(names):
        raise ExpressionRefused("a column to group by that comes twice", "Write it once.")
    _check_size([schema.column(key.column) for key in keys if not key.edges])
    return tuple(keys)


def declared_cells(column: Column) -> tuple[Level | datetime.date, ...]:
    """Return everything that a row may hold in a category, or in a required column of whole numbers or dates.

    Parameters
    ----------
    column : Column
        Declared column whose values are cells.

    Returns
    -------
    tuple
        Values in the order of the curated integers, those of no row included; None for a missing cell.
    """
    if column.is_category:
        return column.levels
    first = column.lower
    if isinstance(first, datetime.date):
        return tuple(first + datetime.timedelta(days=i) for i in range(column.n_integers))
    assert isinstance(first, int)
    return tuple(range(first, first + column.n_integers))


def _check_size(columns: Sequence[Column]) -> None:
    """Refuse more cells than anyone could read."""
    sizes = [len(column.levels) if column.is_category else column.n_integers for column in columns]
    if max(sizes, default=0) > MOST_CELLS:
        raise ExpressionRefused(f"more than {MOST_CELLS} groups", "Group by a column with fewer values.")
    if math.prod(sizes) > MOST_CELLS:
        raise ExpressionRefused(f"more than {MOST_CELLS} groups", "Group by fewer columns.")


def _typed_groups(text: str) -> list[_Named]:
    """Read names as typed, each with its edges in parentheses where it has some."""
    groups: list[_Named] = []
    for part in split_list(tokenize(text)):
        outside = [token.text for token in part if token.depth == 0]
        if not part or not part[0].is_name or outside[1:] not in ([], ["(", ")"]):
            raise ExpressionRefused(
                "something else than columns to group by",
                "Write names with commas, and of a number where its cells begin: sex, age (30, 45, 60).",
            )
        edges = tuple(source_text(edge) for edge in split_list(part[2:-1], depth=1))
        groups.append((part[0], edges if len(part) > 1 else None))
    return groups


def _given_group(item: str | Mapping[str, Any]) -> _Named:
    """Read a key that was not typed but given in parts."""
    given = {"column": item, "edges": ()} if isinstance(item, str) else item
    given = dict(given) if isinstance(given, Mapping) else {}
    name, edges = given.get("column"), given.get("edges")
    if not isinstance(name, str) or not isinstance(edges, list | tuple) or set(given) != {"column", "edges"}:
        raise ParameterError(
            "by of build_query must hold names of columns, or columns with their edges, and holds something "
            'else. Write {"column": "age", "edges": [30, 45, 60]}.'
        )
    (token,) = tokenize(write_name(name))
    return token, None if isinstance(item, str) else tuple(edges)


def _column(token: Token, schema: Schema) -> Column:
    """Find a column by its name, in any case, or in double quotes as it is."""
    for column in schema.released:
        if token.name == column.name or (
            token.text == token.name and column.name.casefold() == token.name.casefold()
        ):
            return column
    raise refused_word(shorten(token.name), tuple(column.name for column in schema.released))


def _edges(given: Sequence[Any], column: Column) -> tuple[float, ...]:
    edges = [_edge(edge, column) for edge in given]
    rising = all(low < high for low, high in itertools.pairwise(edges))
    if not column.is_number or not edges or not rising or not all(map(math.isfinite, edges)):
        hint = (
            f"Write where cells begin: BY {_example_edges(column)}."
            if column.is_number
            else "Leave them out."
        )
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


def _example_edges(column: Column) -> str:
    """Return an example of edges for a column: at the quarters of its declared range."""
    low, high = column.range
    quarters = [low + (high - low) * i / 4 for i in (1, 2, 3)]
    edges = [edge if column.type == "number" else float(math.floor(edge)) for edge in quarters]
    return f"{write_name(column.name)} ({', '.join(write_edge(edge, column) for edge in edges)})"


def write_edge(edge: float, column: Column) -> str:
    """Return the start of a cell as text that is read as the same number."""
    if column.type == "date" and edge.is_integer():
        try:
            return f"'{_first_day(column) + datetime.timedelta(days=int(edge))}'"
        except OverflowError:
            pass
    return repr(edge).removesuffix(".0")


def write_name(name: str) -> str:
    """Return the name of a column to group by, quoted unless it is a plain word."""
    plain = is_plain(name) and name.upper() not in WORDS
    return name if plain else '"{}"'.format(name.replace('"', '""'))
