"""The one reader of GROUP BY: columns and expressions, with their declared values or the edges of cells."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from discreet.errors import ExpressionRefused, ParameterError
from discreet.query.language._date_text import write_dates, write_edge
from discreet.query.language._key_cells import (
    MISSING,
    MOST_VALUES,
    KeyExpression,
    parse_key,
    write_end,
    write_interval,
)
from discreet.query.language._select import WORDS
from discreet.query.language.lexer import (
    Token,
    is_plain,
    shorten,
    source_text,
    split_list,
    tokenize,
    write_names,
)
from discreet.query.language.vocabulary import FUNCTIONS, KEYWORDS, refused_word

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from discreet.schema import Column, Level, Schema

_Named: TypeAlias = "tuple[str, tuple[Any, ...] | None]"  # a column or expression as typed, and its edges
MOST_CELLS = 2**20
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_LARGEST = 1e300  # of a number that is given as an edge
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(rf"{_DAY.pattern}(?:[T ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}})?)?")


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A column or an expression to group by.

    Attributes
    ----------
    column : str or None
        Name of the column as declared; None for an expression.
    edges : tuple of float
        Where cells begin, for a date in days since its first; empty for a key whose values are the cells.
    expression : KeyExpression or None
        Expression with its cells; None for a column.
    """

    column: str | None
    edges: tuple[float, ...] = ()
    expression: KeyExpression | None = None

    @property
    def axis(self) -> str:
        """What a histogram is given for the key: the name of the column, or the canonical text."""
        return self._expression.canonical if self.column is None else self.column

    @property
    def name(self) -> str:
        """What a result calls the key: the name of the column, or the text of the expression."""
        return self._expression.name if self.column is None else self.column

    @property
    def text(self) -> str:
        """The key as text without its edges, which is read as the same key."""
        if self.column is not None:
            return write_name(self.column)
        # With its parentheses before edges: (income / 12) (1000, 2000).
        expression = self._expression
        return (
            write_dates(expression.canonical, expression.schema)
            if self.edges
            else _write_expression(expression)
        )

    @property
    def _expression(self) -> KeyExpression:
        assert self.expression is not None, "a key is a column or an expression"
        return self.expression

    def written(self, schema: Schema) -> str:
        """Return the key as text with its edges, which is read as the same key."""
        return f"{self.text} ({self.edge_text(schema)})" if self.edges else self.text

    def edge_text(self, schema: Schema) -> str:
        """Return where the cells begin as text, as it stands in the parentheses; empty without edges."""
        column = None if self.column is None else schema.column(self.column)
        return ", ".join(
            write_end(edge) if column is None else write_edge(edge, column) for edge in self.edges
        )

    def label(self, value: Any, schema: Schema) -> str:
        """Return a value of the key, or the two ends of a cell, as text."""
        if self.column is None:
            return self._expression.label(value)
        if value is None:
            return MISSING
        column = schema.column(self.column)
        if isinstance(value, tuple):
            low, high = (write_edge(end, column).strip("'") for end in value)
            return write_interval(low, high, value, dates=column.is_calendar)
        return write_edge(float(value), column).strip("'") if column.is_calendar else str(value)


def parse_groups(
    groups: str | Sequence[str | Mapping[str, Any]], schema: Schema, *, typed: bool = False
) -> tuple[GroupKey, ...]:
    """Return the keys of a GROUP BY; their cells are known without a look at rows.

    Parameters
    ----------
    groups : str or sequence of str or mapping
        Text after BY, ``sex, age (30, 45, 60), YEAR(born)``; or its keys, each the name of a column, an
        expression, ``{"column": "age", "edges": [30, 45, 60]}`` or ``{"expression": "income / 12", "edges":
        [1000, 2000]}``.
    schema : Schema
        Declaration of the table, whose released columns may be named.
    typed : bool
        Whether a person typed it, so that what hardly means what it says is refused.

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
    >>> ward, age, old = parse_groups("WARD, age (30, 60), 65 <= age", schema)
    >>> ward.name, age.edges, old.expression.texts
    ('ward', (30.0, 60.0), ('true', 'false'))
    """
    named = (
        _typed_groups(groups, schema)
        if isinstance(groups, str)
        else [_given_group(item, schema) for item in groups]
    )
    keys = [_read_group(text, edges, schema, typed) for text, edges in named]
    if len({key.axis for key in keys}) < len(keys):
        raise ExpressionRefused("a column to group by that comes twice", "Write it once.")
    _check_size([_count_cells(key, schema) for key in keys if key.expression or not key.edges])
    return tuple(keys)


def parse_axis(axis: str, edges: Sequence[float], schema: Schema) -> KeyExpression | None:
    """Return the expression of an axis of a histogram; None if it names a column, or should.

    Parameters
    ----------
    axis : str
        Name of a released column, or the text of an expression.
    edges : sequence of float
        Where the cells of a number begin; empty if its values are the cells.
    schema : Schema
        Declaration of the table, whose released columns may be named.

    Raises
    ------
    ExpressionRefused
        If an expression is not in the language, or if its cells do not follow from the schema.
    """
    if axis.isidentifier() or any(column.name == axis for column in schema.released):
        return None
    found = parse_key(axis, edges, schema)
    return None if isinstance(found, str) else found


def _read_group(text: str, given: tuple[Any, ...] | None, schema: Schema, typed: bool) -> GroupKey:
    """Return the key of a column or an expression, with edges if some were given."""
    column = _find_column(text, schema)
    if column is None:
        edges = () if given is None else _numbers(given)
        try:
            key = parse_key(text, edges, schema, typed=typed)
        except ExpressionRefused as refusal:
            raise _rephrase_refusal(refusal) from None
        if isinstance(key, KeyExpression):
            return GroupKey(None, edges, key)
        column = schema.column(key)
    if given is not None:
        read = _edges(given, column)
        if typed:
            _check_edges(given, read, column)
        return GroupKey(column.name, read)
    if column.is_number and column.type == "number":
        raise ExpressionRefused(
            "a column of numbers to group by", f"Say where its cells begin: BY {_example_edges(column)}."
        )
    return GroupKey(column.name)


def _rephrase_refusal(refusal: ExpressionRefused) -> ExpressionRefused:
    """Return the error of a key: of words without a meaning, that they are no keys."""
    if not refusal.construct.startswith(("words in an order", "no text", "two values")):
        return refusal
    return ExpressionRefused(
        "something other than columns and expressions to group by",
        "Write them with commas, and of a number where its cells begin: sex, age (30, 45, 60), YEAR(born).",
    )


def _count_cells(key: GroupKey, schema: Schema) -> int:
    if key.expression is not None:
        return len(key.expression.labels)
    assert key.column is not None
    column = schema.column(key.column)
    return len(column.levels) if column.is_category else column.n_integers + (not column.required)


def declared_cells(column: Column) -> tuple[Level | datetime.date, ...]:
    """Return everything that a row may hold in a category, or in a column of whole numbers or dates.

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
    first, missing = column.lower, () if column.required else (None,)
    if column.is_calendar:
        return (*(column.moment(i) for i in range(column.n_integers)), *missing)
    assert isinstance(first, int)
    return (*range(first, first + column.n_integers), *missing)


def _check_size(sizes: Sequence[int]) -> None:
    """Refuse more cells than anyone could read."""
    if max(sizes, default=0) > MOST_CELLS:
        raise ExpressionRefused.not_allowed(
            f"more than {MOST_CELLS} groups", "Group by a column with fewer values."
        )
    if math.prod(sizes) > MOST_CELLS:
        raise ExpressionRefused.not_allowed(f"more than {MOST_CELLS} groups", "Group by fewer columns.")


def _typed_groups(text: str, schema: Schema) -> list[_Named]:
    """Read keys as typed, each with its edges in parentheses where it has some."""
    groups: list[_Named] = []
    tokens = tokenize(text)
    if not tokens:
        raise ExpressionRefused("nothing after BY", "Name a column: BY sex.")
    for part in split_list(tokens):
        if not part:
            raise ExpressionRefused("nothing beside a comma after BY", "Leave it out, or name a column.")
        _check_commas(part, schema)
        opening = _find_edges(part, schema)
        if opening is None:
            groups.append((source_text(part), None))
        else:
            edges = tuple(source_text(edge) for edge in split_list(part[opening + 1 : -1], depth=1))
            groups.append((source_text(part[:opening]), edges))
    return groups


def _check_commas(part: Sequence[Token], schema: Schema) -> None:
    """Refuse columns to group by with AND between them, in place of a comma."""
    for before, token, after in zip(part, part[1:], part[2:], strict=False):
        names = [one.is_name and _match_column(one, schema) for one in (before, after)]
        if token.word == "AND" and len(part) == 3 and all(names):
            raise ExpressionRefused(
                "AND between columns to group by", f"Write a comma: BY {before.text}, {after.text}."
            )


def _find_edges(part: Sequence[Token], schema: Schema) -> int | None:
    """Return where the parenthesis of a key's edges opens; None if what it ends with is part of the key."""
    if not part or part[-1].text != ")" or part[-1].depth:
        return None
    opening = max(i for i, token in enumerate(part) if token.text == "(" and token.depth == 0)
    if opening == 0:
        return None
    before, inside = part[opening - 1], part[opening + 1 : -1]
    if before.kind != "word":
        return opening if before.kind in ("number", "name") or before.text == ")" else None
    if before.word == "END":
        return opening
    if before.word in KEYWORDS:
        return None
    # A column may be called year: what follows is then its edges, unless they could be an argument.
    literal = all(token.kind in ("number", "value") or token.text in ",-+" for token in inside)
    known = _match_column(before, schema) is not None
    return opening if literal and (known or before.word not in FUNCTIONS) else None


def _given_group(item: str | Mapping[str, Any], schema: Schema) -> _Named:
    """Read a key that was not typed in a list but given in parts."""
    if isinstance(item, str):
        named = any(column.name == item for column in schema.released)
        typed = [] if named or item.isidentifier() else _typed_groups(item, schema)
        return typed[0] if len(typed) == 1 else (write_name(item), None)
    given = dict(item) if isinstance(item, Mapping) else {}
    what = "expression" if "expression" in given else "column"
    text, edges = given.get(what), given.get("edges", [] if what == "expression" else None)
    if not isinstance(text, str) or not isinstance(edges, list | tuple) or not set(given) <= {what, "edges"}:
        raise ParameterError(
            "by of build_query must hold names of columns, or columns or expressions with their edges, and "
            'holds something else. Write {"column": "age", "edges": [30, 45, 60]} or {"expression": '
            '"income / 12", "edges": [1000, 2000]}.'
        )
    named = what == "column" and (text.isidentifier() or any(c.name == text for c in schema.released))
    return write_name(text) if named else text, None if what == "expression" and not edges else tuple(edges)


def _find_column(text: str, schema: Schema) -> Column | None:
    """Return the column that a key is, by its name in any case, or in double quotes as it is.

    Raises
    ------
    ExpressionRefused
        If the key is a single name, and not of a column.
    """
    tokens = tokenize(text)
    if len(tokens) != 1 or not tokens[0].is_name:
        return None
    column = _match_column(tokens[0], schema)
    if column is None:
        raise refused_word(shorten(tokens[0].name), write_names(schema.released))
    return column


def _match_column(token: Token, schema: Schema) -> Column | None:
    for column in schema.released:
        if token.name == column.name or (
            token.text == token.name and column.name.casefold() == token.name.casefold()
        ):
            return column
    return None


def _numbers(given: Sequence[Any]) -> tuple[float, ...]:
    """Return the edges of an expression."""
    edges = [_number(edge) for edge in given]
    rising = all(low < high for low, high in itertools.pairwise(edges))
    if not edges or not rising or not all(map(math.isfinite, edges)) or len(edges) >= MOST_VALUES:
        raise ExpressionRefused(
            f"cells of an expression that are not rising numbers, fewer than {MOST_VALUES}",
            "Write where cells begin: BY income / 12 (1000, 2000).",
        )
    return tuple(edge + 0.0 for edge in edges)


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


def _check_edges(given: Sequence[Any], edges: Sequence[float], column: Column) -> None:
    """Refuse cells that no row can be in, and days that were typed as numbers."""
    example = f"Write where cells begin: BY {_example_edges(column)}."
    if column.is_calendar and any(isinstance(edge, str) and _NUMBER.fullmatch(edge) for edge in given):
        raise ExpressionRefused(f"a number where a cell of {column.type}s begins", example)
    low, high = column.range
    if not low <= min(edges) <= max(edges) <= high:
        first, last = (write_edge(end, column).strip("'") for end in (low, high))
        raise ExpressionRefused.not_allowed(
            "cells that no row can be in", f"{write_name(column.name)} is declared from {first} to {last}."
        )


def _edge(given: Any, column: Column) -> float:
    """Read where a cell begins; NaN if it cannot be read."""
    if isinstance(given, str):
        moment = given.strip("'")
        if (column.type == "date" and _DAY.fullmatch(moment)) or (
            column.type == "datetime" and _MOMENT.fullmatch(moment)
        ):
            try:
                return float(column.count_steps(np.array([moment], "datetime64[us]"))[0])
            except ValueError:
                return math.nan
    return _number(given)


def _number(given: Any) -> float:
    """Read a number; NaN if it cannot be read."""
    if isinstance(given, str):
        return float(given) if _NUMBER.fullmatch(given) else math.nan
    if not isinstance(given, int | float) or isinstance(given, bool) or abs(given) > _LARGEST:
        return math.nan
    return float(given)


def _example_edges(column: Column) -> str:
    """Return an example of edges for a column: at the quarters of its declared range."""
    low, high = column.range
    quarters = [low + (high - low) * i / 4 for i in (1, 2, 3)]
    edges = [edge if column.type == "number" else float(math.floor(edge)) for edge in quarters]
    return f"{write_name(column.name)} ({', '.join(write_edge(edge, column) for edge in edges)})"


def _write_expression(expression: KeyExpression) -> str:
    """Return an expression to group by, in parentheses if a word in it would end the list of keys."""
    text = expression.name
    ends = any(piece.depth == 0 and piece.word in WORDS for piece in tokenize(text))
    return f"({text})" if ends else text


def write_name(name: str) -> str:
    """Return the name of a column to group by, quoted unless it is a plain word."""
    plain = is_plain(name) and name.upper() not in WORDS
    return name if plain else '"{}"'.format(name.replace('"', '""'))
