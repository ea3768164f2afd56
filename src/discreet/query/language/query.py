"""Queries that people type: ``mean(age) where sex = 'Female' by education``, or the same as SQL.

A query says what to compute, of which rows, for which groups. It is only cut into these clauses here; what
stands inside them is read by the expression language.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from discreet.errors import ExpressionRefused, ParameterError
from discreet.query.language._expression import parse, parse_counted, parse_where
from discreet.query.language._group_by import GroupKey, parse_groups, write_edge
from discreet.query.language._select import ANY_TABLE, WORDS, is_select, split_select
from discreet.query.language.lexer import Token, bare, is_plain, refused_aggregate, shorten, tokenize
from discreet.query.language.lexer import write_name as write_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.query.language import Expression
    from discreet.schema import Schema

Verb: TypeAlias = Literal["count", "sum", "mean"]
_VERBS: dict[str, Verb] = {"COUNT": "count", "SUM": "sum", "MEAN": "mean"}
_SQL: dict[str, Verb] = {"COUNT": "count", "SUM": "sum", "AVG": "mean"}
_OTHER_WORDS = {"AVG": "MEAN", "AVERAGE": "MEAN", "TOTAL": "SUM", "NUMBER": "COUNT"}
_COUNTED = re.compile(r"\s*(\*|\(\s*\*?\s*\))?\s*")
_RELATIONS = ("<", "<=", "=", "<>")  # of a canonical text, which mirrors the others
_MOST = 8192  # characters; an expression has at most half of them
_LONGEST_NEAREST = 1000  # characters of a query that an error repeats


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query: one aggregate, a condition on rows, and the keys of its groups.

    Attributes
    ----------
    verb : {"count", "sum", "mean"}
        Aggregate that is computed of the rows.
    expression : Expression or None
        Expression that is summed or averaged; None for a count.
    where : Expression or None
        Condition that is true for the rows that are chosen; None for all of them. Of a mean, and of a COUNT
        of something, that it is known is part of the condition.
    by : tuple of GroupKey
        Keys of the groups; empty for one result over all rows.
    schema : Schema
        Declaration that the query was read under.
    """

    verb: Verb
    expression: Expression | None
    where: Expression | None
    by: tuple[GroupKey, ...]
    schema: Schema

    def __str__(self) -> str:
        words: str = self.verb
        if self.expression is not None:
            words += f"({_write_expression(self.expression)})"
        if self.where is not None:
            words += f" where {_clause(self.where)}"
        if self.by:
            words += f" by {', '.join(axis.written(self.schema) for axis in self.by)}"
        return words

    @property
    def sql(self) -> str:
        """The query as a SELECT, which is parsed as the same query."""
        aggregate = next(word for word, verb in _SQL.items() if verb == self.verb)
        inside = "*" if self.expression is None else _write_expression(self.expression)
        named = self.schema.dataset or ""
        table = named if is_plain(named) and named.upper() not in WORDS else ANY_TABLE
        keys = [axis.text for axis in self.by]
        columns = ", ".join([*keys, f"{aggregate}({inside})"])
        words = f"SELECT {columns} FROM {table}"  # noqa: S608, for people: no engine sees it
        if self.where is not None:
            words += f" WHERE {_clause(self.where)}"
        return words + (
            f" GROUP BY {', '.join(axis.written(self.schema) for axis in self.by)}" if self.by else ""
        )

    @property
    def measure(self) -> str | None:
        """The unit of the result: of a column by itself its own, of dates days, of a count rows."""
        if self.expression is None or (self.expression.is_condition and self.verb == "sum"):
            return "rows"
        alone = self.expression.bare
        if alone is None:
            return None
        column = self.schema.column(alone)
        return column.measure or ("days" if column.type == "date" else None)

    @property
    def first_day(self) -> datetime.date | None:
        """Day that the number 0 stands for in a mean of a column of dates; None for other queries."""
        alone = None if self.expression is None or self.verb != "mean" else self.expression.bare
        first = None if alone is None else self.schema.column(alone).lower
        return first if isinstance(first, datetime.date) else None


def parse_query(text: str, schema: Schema) -> Query:
    """Return the query that a text stands for.

    Parameters
    ----------
    text : str
        ``[COUNT | SUM | MEAN] [expression] [WHERE condition] [BY column, ...]``. COUNT of an expression
        counts the rows where it is known, and MEAN is over them. A number to group by is followed by where
        its cells begin: ``BY age (30, 45, 60)``. An expression without a word before it is summed, so that a
        condition counts. Or the same as SQL: ``SELECT COUNT(*) | COUNT(expression) | SUM(expression) |
        AVG(expression) [, column, ...] FROM name [WHERE condition] [GROUP BY column, ...]``.
    schema : Schema
        Declaration of the table, whose released columns may be named.

    Raises
    ------
    ExpressionRefused
        If a part is missing, is not in the language, or has no bounds. Text and schema alone decide.

    Reference
    ---------
    ``docs/reference/expressions.md``; ``docs/decisions/0010-questions-are-sentences.md``.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99),
    ...                          Column("sex", values=("f", "m"))])
    >>> print(parse_query("Mean(age) WHERE sex = 'f' by age (30, 60)", schema))
    mean(age) where sex IN ('f') by age (30, 60)
    >>> print(parse_query("SELECT COUNT(*) FROM people WHERE age > 40", schema))
    count where 40 < age
    """
    if not isinstance(text, str):
        raise ExpressionRefused("no text", "Write a question such as COUNT WHERE age > 40.")
    if len(text) > _MOST:
        raise ExpressionRefused(f"more than {_MOST} characters", "Ask a shorter question.")
    if is_select(text, _columns(schema)):
        return _read_select(text, schema, suggest=True)
    what, condition, groups = _parts(text)
    verb, rest = _verb(what, schema)
    if verb == "count":
        counted = None if _COUNTED.fullmatch(rest) else rest
        return _build_parsed("count", counted, condition, groups, schema)
    if not rest.strip():
        raise ExpressionRefused("nothing to compute", "Write COUNT, SUM(age) or MEAN(age), then WHERE or BY.")
    query = _build_parsed(verb or "sum", rest, condition, groups, schema)
    if verb is None and condition is None and query.expression is not None and query.expression.is_condition:
        return Query("count", None, query.expression, query.by, schema)
    return query


def build_query(
    verb: Verb,
    expression: str | None,
    where: str | None,
    by: Sequence[str | Mapping[str, Any]],
    schema: Schema,
) -> Query:
    """Return the query that consists of given parts.

    Parameters
    ----------
    verb : {"count", "sum", "mean"}
        Aggregate to compute of the rows.
    expression : str or None
        Expression to sum or average; None for a count of rows.
    where : str or None
        Condition that chooses rows; None for all of them.
    by : sequence of str or mapping
        Keys to group by: names of columns or expressions, or ``{"column": "age", "edges": [30, 45, 60]}``
        with where the cells of a number begin; of a date in days since its first, or as ``"2024-01-31"``. An
        expression with edges is ``{"expression": "income / 12", "edges": [1000, 2000]}``.
    schema : Schema
        Declaration of the table, whose released columns may be named.

    Raises
    ------
    ExpressionRefused
        As :func:`parse_query`.

    Reference
    ---------
    ``docs/reference/expressions.md``.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99)])
    >>> build_query("count", None, "age > 17", [{"column": "age", "edges": [30, 60]}], schema).sql
    'SELECT age, COUNT(*) FROM data WHERE 17 < age GROUP BY age (30, 60)'
    """
    if verb not in _VERBS.values():
        raise ParameterError(f"verb of build_query must be count, sum or mean, was {verb!r}.")
    if verb != "count" and expression is None:
        raise ExpressionRefused("nothing to compute", f"Give {verb} a column or an expression.")
    return _build_parsed(verb, expression, where, by, schema)


def _read_select(text: str, schema: Schema, *, suggest: bool) -> Query:
    """Return the query of a SELECT, or refuse it with the nearest one that the schema lets be read."""
    cut = split_select(text, _columns(schema))
    if cut.refused is None:
        return _build_parsed(_SQL[cut.verb], cut.expression, cut.where, cut.groups, schema)
    # What stands before the refused part is read first, so that the first error is named.
    _build_parsed(_SQL.get(cut.verb, "sum"), cut.expression, cut.where, cut.groups, schema)
    for nearest in cut.refused.nearest if suggest else ():
        try:
            _read_select(nearest, schema, suggest=False)
        except ExpressionRefused:
            continue
        if len(nearest) <= _LONGEST_NEAREST:
            raise ExpressionRefused(cut.refused.construct, f"Write: {nearest}")
    raise ExpressionRefused(cut.refused.construct, cut.refused.otherwise)


def _build_parsed(
    verb: Verb,
    expression: str | None,
    where: str | None,
    groups: str | Sequence[str | Mapping[str, Any]] | None,
    schema: Schema,
) -> Query:
    """Read the parts in the order in which they stand, so that the first mistake is named."""
    parsed = counted = None
    if expression is not None and verb == "count":
        counted = parse_counted(expression, schema)
    elif expression is not None:
        parsed = parse(expression, schema)
    condition = _condition(where, schema)
    known = None
    if counted is not None and not counted.is_constant:
        known = counted.canonical
    elif parsed is not None and verb == "mean":
        known = parsed.known
    if known is not None:
        # A mean is over the rows where it is known: the question says so, and so does its reply.
        known = known if condition is None else f"{known} AND {condition.canonical}"
        condition = parse_where(known, schema)
    return Query(verb, parsed, condition, parse_groups(() if groups is None else groups, schema), schema)


def _condition(text: str | None, schema: Schema) -> Expression | None:
    if text is None:
        return None
    where = parse_where(text, schema)
    if not where.is_condition:
        raise ExpressionRefused(
            "something else than a condition after WHERE", "Compare it with something: WHERE age > 40."
        )
    # A condition that every row fulfills chooses nothing: the number of rows stays public, if it is.
    return None if where.is_constant and where.lower == 1 else where


def _parts(text: str) -> tuple[str, str | None, str | None]:
    """Return the parts of a query in words, split at WHERE and BY outside of quotes and parentheses."""
    places: dict[str, tuple[int, int]] = {}
    before: Token | None = None
    for piece in tokenize(text):
        if piece.depth == 0 and piece.word in ("WHERE", "BY"):
            if piece.word in places:
                raise ExpressionRefused(
                    f"a second {piece.word}", "Join conditions with AND, groups by commas."
                )
            grouped = piece.word == "BY" and before is not None and before.word == "GROUP"
            places[piece.word] = (before.start if grouped and before else piece.start, piece.end)
        before = piece
    where, by = places.get("WHERE"), places.get("BY")
    if where and by and by < where:
        raise ExpressionRefused("BY before WHERE", "Write WHERE first: COUNT WHERE age > 40 BY sex.")
    end = by[0] if by else len(text)
    what = text[: where[0] if where else end]
    return what, text[where[1] : end] if where else None, text[by[1] :] if by else None


def _verb(what: str, schema: Schema) -> tuple[Verb | None, str]:
    """Take the first word off, if it says what to compute."""
    pieces = tokenize(what)
    word = pieces[0].word if pieces else ""
    if word in _OTHER_WORDS and word.casefold() not in _columns(schema):
        raise ExpressionRefused(f"the word {word}", f"Write {_OTHER_WORDS[word]} instead.")
    called = len(pieces) > 1 and pieces[1].text == "("
    if word not in _VERBS and called and (refused := refused_aggregate(word)) is not None:
        raise refused
    if word not in _VERBS:
        return None, what
    rest = what[pieces[0].end :]
    outside = [piece for piece in pieces[1:] if piece.depth == 0]
    if len(outside) > 2 and (outside[0].text, outside[1].text) == ("(", ")"):
        # SUM(a) + 1 would be read as SUM(a + 1), which is something else.
        raise ExpressionRefused(
            f"something after {word}(...), {shorten(outside[2].text)}",
            f"Put all that is computed of a row inside the parentheses: {word}(age * 2).",
        )
    return _VERBS[word], rest


# Writing.


def _columns(schema: Schema) -> frozenset[str]:
    return frozenset(column.name.casefold() for column in schema.released)


def _clause(where: Expression) -> str:
    """Write a condition; in parentheses if a word in it would end it."""
    text = _write_expression(where)
    capitals = text.upper()
    if not any(word in capitals for word in WORDS):
        return text
    ends = any(piece.depth == 0 and piece.word in WORDS for piece in tokenize(text))
    return f"({text})" if ends else text


def _write_expression(expression: Expression) -> str:
    """Return an expression as text that is read as the same expression."""
    return bare(_write_dates(expression.canonical, expression.schema))


def _write_dates(text: str, schema: Schema) -> str:
    """Return a canonical text with dates in place of the day numbers that date columns are compared with."""
    dates = {write_column(column.name): column for column in schema.released if column.type == "date"}
    if not any(name in text for name in dates):
        return text
    inside = f"({text})"
    days: list[tuple[Token, str]] = []
    tokens = tokenize(inside)
    for before, left, relation, right, after in zip(*(tokens[i:] for i in range(5)), strict=False):
        # A comparison stands in parentheses, so that what is beside it cannot be part of a sum.
        if (before.text, after.text) != ("(", ")") or relation.text not in _RELATIONS:
            continue
        for day, name in ((left, right), (right, left)):
            if day.text.isdigit() and name.text in dates:
                days.append((day, write_edge(float(day.text), dates[name.text])))
    for day, written in reversed(days):
        inside = inside[: day.start] + written + inside[day.end :]
    return inside[1:-1]
