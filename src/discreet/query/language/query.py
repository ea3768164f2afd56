"""Queries that people type: ``mean(age) where sex = 'Female' by education``, or the same as SQL.

A query says what to compute, of which rows, for which groups. It is only cut into these clauses here; what
stands inside them is read by the expression language.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from discreet.errors import ExpressionRefused
from discreet.query.curation import SchemaKey
from discreet.query.language._expression import parse_typed, parse_where
from discreet.query.language._group_by import GroupKey, parse_groups
from discreet.query.language._select import ANY_TABLE, WORDS, read_sql_item, split_select
from discreet.query.language._statistic import (
    QueryStatistic,
    StatisticText,
    build_statistics,
    check_summed,
    read_list,
    sum_of_known,
)
from discreet.query.language.lexer import (
    Token,
    is_plain,
    is_statement,
    read_whole,
    shorten,
    source_text,
    split_list,
    tokenize,
)
from discreet.query.language.writing import write_condition, write_expression

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.query.language import Expression
    from discreet.schema import Schema

_WORDS = ("WHERE", "BY", "ORDER", "LIMIT")
_COUNT_OF_KNOWN = re.compile(r'^sum\(("(?:[^"]|"")+"|\w+) IS NOT NULL\)$', re.IGNORECASE)
_MOST = 8192  # characters; an expression has at most half of them
_LONGEST_NEAREST = 1000  # characters of a query that an error repeats
_MOST_STATISTICS = 16
_LARGEST_LIMIT = 2**31


class OrderKey(NamedTuple):
    """What the groups of a result are sorted by: a statistic or a group key, by its place among its kind."""

    place: int
    is_statistic: bool
    descending: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query: statistics, a condition on rows, the keys of groups, and their order.

    Attributes
    ----------
    statistics : tuple of QueryStatistic
        Numbers that are computed of the rows, at least one.
    where : Expression or None
        Condition that is true for the rows that are chosen; None for all of them. Of a single statistic,
        that what it is computed of is known is part of the condition.
    by : tuple of GroupKey
        Keys of the groups; empty for one result over all rows.
    schema : Schema
        Declaration that the query was read under.
    order : tuple of OrderKey
        What the groups are sorted by, the most important first; empty for the declared order.
    limit : int or None
        Maximum number of groups that are returned; None for all of them.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99)])
    >>> query = parse_query("count where age > 40 by age (30, 60)", schema)
    >>> print(query)
    count where 40 < age by age (30, 60)
    >>> query.sql
    'SELECT age, COUNT(*) FROM data WHERE 40 < age GROUP BY age (30, 60)'
    """

    statistics: tuple[QueryStatistic, ...]
    where: Expression | None
    by: tuple[GroupKey, ...]
    schema: Schema
    order: tuple[OrderKey, ...] = ()
    limit: int | None = None

    def __str__(self) -> str:
        words = ", ".join(self.names)
        if self.where is not None:
            words += f" where {write_condition(self.where)}"
        keys = [key.written(self.schema) for key in self.by]
        if keys:
            words += f" by {', '.join(keys)}"
        return words + self._write_ending(self.names, keys)

    @property
    def names(self) -> tuple[str, ...]:
        """Canonical text of each statistic, by which its column of a result is called."""
        return self.write_statistics(sql=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the released columns that it may read: those whose names occur in its text."""
        text = str(self)
        return tuple(column.name for column in self.schema.released if column.name.replace('"', '""') in text)

    @property
    def sql(self) -> str:
        """The query as a SELECT, which is parsed as the same query."""
        named = self.schema.dataset or ""
        table = named if is_plain(named) and named.upper() not in WORDS else ANY_TABLE
        statistics = self.write_statistics(sql=True)
        keys = [key.written(self.schema) for key in self.by]
        columns = ", ".join([*(key.text for key in self.by), *statistics])
        words = f"SELECT {columns} FROM {table}"  # noqa: S608, for people: no engine sees it
        if self.where is not None:
            words += f" WHERE {write_condition(self.where)}"
        if keys:
            words += f" GROUP BY {', '.join(keys)}"
        return words + self._write_ending(statistics, keys, sql=True)

    def write_statistics(self, *, sql: bool) -> tuple[str, ...]:
        """Return the statistics as texts that are read as the same ones."""
        texts = [one.write(write_expression, sql=sql) for one in self.statistics]
        # Among several, a count of what is known is a sum: see sum_of_known.
        several, count = len(texts) > 1, r"COUNT(\1)" if sql else r"count(\1)"
        return tuple(_COUNT_OF_KNOWN.sub(count, text) if several else text for text in texts)

    def _write_ending(self, statistics: Sequence[str], keys: Sequence[str], *, sql: bool = False) -> str:
        """Return ORDER BY and LIMIT as text; empty without them."""
        order, down, limit = (" ORDER BY ", " DESC", " LIMIT ") if sql else (" order by ", " desc", " limit ")
        items = [
            (statistics if key.is_statistic else keys)[key.place] + (down if key.descending else "")
            for key in self.order
        ]
        words = order + ", ".join(items) if items else ""
        return words if self.limit is None else f"{words}{limit}{self.limit}"

    @property
    def is_selective(self) -> bool:
        """Whether the noisy numbers decide which groups are returned."""
        return self.limit is not None and any(key.is_statistic for key in self.order)


def parse_query(text: str, schema: Schema) -> Query:
    """Return the query that a text stands for.

    Parameters
    ----------
    text : str
        ``statistic [, ...] [WHERE condition] [BY key, ...] [ORDER BY statistic or key [DESC], ...] [LIMIT
        n]``, where a statistic is COUNT, SUM(x), MEAN(x), VARIANCE(x), STDDEV(x), RATIO(x, y), MEDIAN(x),
        QUANTILE(x, level) or COUNT(DISTINCT id). COUNT of an expression counts the rows where it is known,
        and MEAN is over them. A number to group by is followed by where its cells begin: ``BY age (30, 45,
        60)``. An expression without a word before it is summed, so that a condition counts. Or the same as
        SQL: ``SELECT [key, ...] AVG(x), ... FROM name [WHERE ...] [GROUP BY ...] [ORDER BY ...] [LIMIT n]``.
    schema : Schema
        Declaration of the table, whose released columns may be named.

    Raises
    ------
    ExpressionRefused
        If a part is missing, is not in the language, or has no bounds. Text and schema alone decide.

    Reference
    ---------
    ``docs/reference/queries.md``; ``docs/decisions/0010-questions-are-sentences.md``.

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
    return _parse(text, schema, typed=True)


def parse_stored_query(text: str, schema: Schema) -> Query:
    """Return the query of a text that was answered before, whatever a person may type today.

    Parameters
    ----------
    text : str
        Canonical text of a query, as a ledger keeps it.
    schema : Schema
        Declaration of the table, whose released columns may be named.

    Raises
    ------
    ExpressionRefused
        As :func:`parse_query`, but for what only a person would mistake.

    Reference
    ---------
    ``docs/reference/expressions.md``.
    """
    return _parse(text, schema, typed=False)


def _parse(text: str, schema: Schema, *, typed: bool) -> Query:
    """Return the query of a text in words or as SQL."""
    if not isinstance(text, str):
        raise ExpressionRefused("no text", "Write a question such as COUNT WHERE age > 40.")
    if len(text) > _MOST:
        raise ExpressionRefused(f"more than {_MOST} characters", "Ask a shorter question.")
    text = _strip_end(text)
    if is_statement(text, _columns(schema)):
        return _read_select(text, schema, suggest=True, typed=typed)
    parts = _split_clauses(text)
    listed = read_list(parts.pop("", ""), _columns(schema))
    if not listed or listed == [""]:
        raise ExpressionRefused("nothing to compute", "Write COUNT, SUM(age) or MEAN(age), then WHERE or BY.")
    if listed == [only := listed[0]] and isinstance(only, str):
        return _read_expression(only, parts, schema, typed)
    for one in listed:
        if isinstance(one, str):
            raise ExpressionRefused(
                f"an item without a statistic, {shorten(one)}",
                f"Write SUM({shorten(one)}) or MEAN({shorten(one)}).",
            )
    texts = [one for one in listed if not isinstance(one, str)]
    return _build_parsed(build_statistics(texts, schema, typed=typed), parts, schema, typed=typed)


def _strip_end(text: str) -> str:
    """Return a text without the one semicolon that may end a statement."""
    last = next(reversed(tokenize(text)), None) if text.rstrip().endswith(";") else None
    return text if last is None or last.text != ";" else text[: last.start]


def _read_expression(text: str, parts: Mapping[str, str], schema: Schema, typed: bool) -> Query:
    """Return the query of an expression without a word before it: its sum, or the count of a condition."""
    expression = parse_typed(text, schema, typed=typed)
    if typed:
        check_summed("sum", expression)
    query = _build_parsed((QueryStatistic("sum", expression),), parts, schema, typed=typed)
    if not expression.is_condition or query.where is not None:
        return query
    return dataclasses.replace(query, statistics=(QueryStatistic("count"),), where=expression)


def build_query(
    statistics: str,
    where: str | None,
    by: Sequence[str | Mapping[str, Any]],
    schema: Schema,
) -> Query:
    """Return the query that consists of given parts.

    Parameters
    ----------
    statistics : str
        Statistics to compute of the rows, in words: ``count, mean(age)``.
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
    ``docs/reference/queries.md``.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99)])
    >>> build_query("count", "age > 17", [{"column": "age", "edges": [30, 60]}], schema).sql
    'SELECT age, COUNT(*) FROM data WHERE 17 < age GROUP BY age (30, 60)'
    """
    parts: dict[str, Any] = {} if where is None else {"WHERE": where}
    statistics_read = _read_statistics(statistics, SchemaKey(schema))
    return _build_parsed(statistics_read, {**parts, "BY": by}, schema, typed=True)


@lru_cache(maxsize=64)
def _read_statistics(text: str, same: SchemaKey) -> tuple[QueryStatistic, ...]:
    # Cached, because most queries that programs ask differ in their conditions alone.
    typed = read_list(text, _columns(same.schema))
    texts = [one for one in typed if not isinstance(one, str)]
    if not texts or len(texts) < len(typed):
        raise ExpressionRefused("nothing to compute", "Write COUNT, SUM(age) or MEAN(age).")
    return build_statistics(texts, same.schema, typed=True)


def _read_select(text: str, schema: Schema, *, suggest: bool, typed: bool) -> Query:
    """Return the query of a SELECT, or refuse it with the nearest one that the schema lets be read."""
    cut = split_select(text, _columns(schema))
    # What stands before a refused part is read first, so that the first error is named.
    statistics = build_statistics(cut.statistics, schema, sql=True, typed=typed) or (QueryStatistic("count"),)
    query = _build_parsed(statistics, cut.clauses, schema, is_sql=True, typed=typed)
    if cut.refused is None:
        return query
    for nearest in cut.refused.nearest if suggest else ():
        try:
            _read_select(nearest, schema, suggest=False, typed=typed)
        except ExpressionRefused:
            continue
        if len(nearest) <= _LONGEST_NEAREST:
            raise ExpressionRefused(cut.refused.construct, f"Write: {nearest}")
    raise ExpressionRefused(cut.refused.construct, cut.refused.otherwise)


def _build_parsed(
    statistics: tuple[QueryStatistic, ...],
    clauses: Mapping[str, Any],
    schema: Schema,
    *,
    is_sql: bool = False,
    typed: bool,
) -> Query:
    """Read the clauses in the order in which they stand, so that the first mistake is named."""
    if len(statistics) > _MOST_STATISTICS:
        raise ExpressionRefused(
            f"{len(statistics)} statistics", f"Ask for at most {_MOST_STATISTICS} at once."
        )
    condition = _condition(clauses.get("WHERE"), schema, typed)
    if len(statistics) == 1 and (known := statistics[0].known) is not None:
        # A mean is over the rows where it is known: the question says so, and so does its reply.
        condition = _both(known, condition, schema)
        # Of both where they contradict each other FALSE is left: once more, the text is read as the same.
        condition = _both(known, condition, schema)
        statistics = (dataclasses.replace(statistics[0], known=None),)
    by = parse_groups(clauses.get("BY", ()), schema, typed=typed)
    query = Query(statistics, condition, by, schema)
    order = _read_order(clauses.get("ORDER"), query, is_sql)
    limit = _read_limit(clauses.get("LIMIT"), query)
    return dataclasses.replace(query, order=order, limit=limit) if order or limit else query


def _read_order(text: str | None, query: Query, is_sql: bool) -> tuple[OrderKey, ...]:
    """Return what ORDER BY sorts groups by: statistics and keys by position, by name, or written again."""
    if text is None:
        return ()
    if not query.by:
        raise ExpressionRefused(
            "ORDER BY without groups", "There is one row: leave it out, or write GROUP BY."
        )
    keys = []
    for part in split_list(tokenize(text)):
        named = part[:-1] if part and part[-1].word in ("ASC", "DESC") else part
        if not named:
            raise ExpressionRefused(
                "an empty place after ORDER BY", "Name a statistic, a column or its position."
            )
        key = _find_order_key(named, query, is_sql)
        keys.append(key._replace(descending=part[-1].word == "DESC"))
    if len({key[:2] for key in keys}) < len(keys):
        raise ExpressionRefused("an order that names one column twice", "Write it once.")
    return tuple(keys)


def _find_order_key(part: list[Token], query: Query, is_sql: bool) -> OrderKey:
    """Return the statistic or group key that an item of ORDER BY names."""
    text = source_text(part)
    keys = [key.written(query.schema) for key in query.by]
    place = None if is_sql else read_whole(text)
    if place is not None and 1 <= place <= len(keys) + len(query.statistics):
        is_statistic = place > len(keys)
        return OrderKey(place - 1 - is_statistic * len(keys), is_statistic, False)
    found = _find_group_key(part, query)
    if found is not None:
        return OrderKey(found, False, False)
    for one in _read_statistic(part, is_sql, query.schema):
        wanted = _as_in(query, build_statistics([one], query.schema, sql=is_sql)[0])
        if wanted in query.statistics:
            return OrderKey(query.statistics.index(wanted), True, False)
    names = shorten(", ".join((*keys, *query.write_statistics(sql=is_sql))))
    raise ExpressionRefused(
        f"an order by {shorten(text)}, which is not returned",
        f"Order by one of these, or ask for it as well: {names}.",
    )


def _as_in(query: Query, statistic: QueryStatistic) -> QueryStatistic:
    """Return a statistic as it would stand in a query, if it is over the same rows."""
    if len(query.statistics) > 1:
        return sum_of_known(statistic, query.schema)
    if statistic.known is None or query.where is None:
        return statistic
    # The condition of a single statistic says that it is known.
    where = _both(statistic.known, query.where, query.schema)
    same = where.canonical == query.where.canonical
    return dataclasses.replace(statistic, known=None) if same else statistic


def _find_group_key(part: list[Token], query: Query) -> int | None:
    """Return the index of the group key that is named, with its edges or without them; None for another."""
    if len(part) == 1 and part[0].is_name:
        columns = [(key.column or key.name).casefold() for key in query.by]
        named = part[0].name.casefold()
        return columns.index(named) if named in columns else None
    try:
        (key,) = parse_groups(source_text(part), query.schema)
    except ExpressionRefused:
        return None
    return query.by.index(key) if key in query.by else None


def _read_statistic(part: list[Token], is_sql: bool, schema: Schema) -> list[StatisticText]:
    """Return the statistic that tokens stand for; empty if they stand for none."""
    if is_sql:
        read = read_sql_item(part)
        return [] if read is None else [read]
    found = read_list(source_text(part), _columns(schema))
    return [one for one in found if not isinstance(one, str)]


def _read_limit(text: str | None, query: Query) -> int | None:
    """Return the maximum number of groups."""
    if text is None:
        return None
    typed = text.strip()
    if not typed:
        raise ExpressionRefused("LIMIT without a number", "Write a whole number of groups: LIMIT 10.")
    number = read_whole(typed)
    if number is None or not 1 <= number < _LARGEST_LIMIT:
        raise ExpressionRefused(f"LIMIT {shorten(typed)}", "Write a whole number of groups: LIMIT 10.")
    if not query.by:
        raise ExpressionRefused("LIMIT without groups", "There is one row: leave it out, or write GROUP BY.")
    return number


def _both(known: str, condition: Expression | None, schema: Schema) -> Expression:
    """Return the condition that something is known and another condition is true."""
    return parse_where(known if condition is None else f"{known} AND {condition.canonical}", schema)


def _condition(text: str | None, schema: Schema, typed: bool) -> Expression | None:
    """Return the condition after WHERE; None without one, or if every row fulfills it."""
    if text is None:
        return None
    if isinstance(text, str) and not text.strip():
        raise ExpressionRefused("nothing after WHERE", "Write a condition: WHERE age > 40.")
    where = parse_typed(text, schema, "where", typed=typed)
    if not where.is_condition:
        raise ExpressionRefused(
            "something other than a condition after WHERE", "Compare it with something: WHERE age > 40."
        )
    # A condition that every row fulfills chooses nothing: the number of rows stays public, if it is.
    return None if where.is_constant and where.lower == 1 else where


def _split_clauses(text: str) -> dict[str, str]:
    """Return the clauses of a query in words by their word, what is computed under the empty one."""
    starts: dict[str, tuple[int, int]] = {"": (0, 0)}
    tokens = tokenize(text)
    if tokens and tokens[-1].depth + (tokens[-1].text == "(") > 0:
        raise ExpressionRefused("a ( that is not closed", "Close it.")
    for i, piece in enumerate(tokens):
        before = tokens[i - 1].word if i and tokens[i - 1].depth == 0 else ""
        word, start = piece.word, piece.start
        if piece.depth or word not in ("WHERE", "BY", "LIMIT"):
            continue
        if word == "BY" and before in ("GROUP", "ORDER"):
            word, start = ("ORDER" if before == "ORDER" else "BY"), tokens[i - 1].start
        if word in starts:
            shown = "ORDER BY" if word == "ORDER" else word
            raise ExpressionRefused(f"a second {shown}", "Join conditions with AND, groups by commas.")
        later = next((other for other in _WORDS[_WORDS.index(word) + 1 :] if other in starts), None)
        if later is not None:
            shown, after = (f"{one} BY" if one == "ORDER" else one for one in (word, later))
            raise ExpressionRefused(
                f"{after} before {shown}", "The order is: COUNT WHERE age > 40 BY sex ORDER BY count LIMIT 3."
            )
        starts[word] = (start, piece.end)
    ends = [*(start for start, _ in starts.values()), len(text)][1:]
    return {word: text[begin:end] for (word, (_, begin)), end in zip(starts.items(), ends, strict=True)}


def _columns(schema: Schema) -> frozenset[str]:
    return frozenset(column.name.casefold() for column in schema.released)
