"""Limits of a request and of a caller: size of an answer, checked before any work, and request rate."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from discreet.errors import ParameterError
from discreet.query import (
    Dependence,
    DistinctUnits,
    GroupedSums,
    Histogram,
    JointAggregate,
    Marginals,
    NodeTables,
    Sums,
)
from discreet.query.language import parse_axis
from discreet.query.statistics import count_tree_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from discreet.query import Aggregate
    from discreet.query.curation import Curation
    from discreet.query.language.query import Query

MOST_SUMS = 64
"""Maximum number of expressions in one aggregate; each is parsed and planned whenever it is previewed."""
HIDDEN_CELLS = 16
"""How many more cells than an answer may have are counted for one that does not show them."""


def check_query_size(query: Query, curation: Curation, most: int) -> None:
    """Refuse a text query with more than `most` numbers."""
    _check(query_size(query, curation), most)


def query_size(query: Query, curation: Curation) -> int:
    """Return how many numbers the answer to a text query has."""
    return _groups(query, curation) * len(query.statistics)


def hidden_size(query: Query, curation: Curation) -> int:
    """Return how many counts get noise for the quantiles of a text query, which its answer does not show."""
    return _groups(query, curation) * count_tree_nodes(query, curation)


def _groups(query: Query, curation: Curation) -> int:
    return math.prod(_axis_cells(curation, key.axis, key.edges) for key in query.by)


def check_aggregate_size(aggregate: Aggregate, curation: Curation, most: int) -> None:
    """Refuse an aggregate with too many expressions, or with more than `most` cells."""
    match aggregate:
        case Sums():
            if len(aggregate.expressions) > MOST_SUMS:
                raise ParameterError(
                    f"A question to a service may have at most {MOST_SUMS} expressions, and this one has "
                    f"{len(aggregate.expressions)}. Split it into several questions."
                )
        case Histogram() | DistinctUnits():
            _check(_product(curation, aggregate.columns, aggregate.edges), most)
        case GroupedSums():
            groups = _product(curation, aggregate.columns, aggregate.edges)
            _check(groups * len(aggregate.expressions), most)
        case JointAggregate():
            for part in aggregate.parts:
                check_aggregate_size(part, curation, most)
        case NodeTables():
            labels = _product(curation, [aggregate.target], aggregate.edges)
            values = sum(
                _product(curation, [name], aggregate.edges)
                for node in aggregate.nodes
                for name in node.attributes
            )
            _check(labels * values, most)
        case Marginals():
            _check(_total(curation, aggregate, aggregate.tables), most)
        case Dependence():
            _check_hidden(_total(curation, aggregate, aggregate.pairs), most * HIDDEN_CELLS)


def check_answer_size(size: int, most: int) -> None:
    """Refuse an answer of more than `most` numbers."""
    _check(size, most)


def _check(size: int, most: int) -> None:
    if size > most:
        raise ParameterError(
            f"An answer of this service may have at most {most} numbers, and this one would have {size}. "
            "Name fewer columns or fewer edges: cells without rows hold nothing but noise."
        )


def _check_hidden(size: int, most: int) -> None:
    if size > most:
        raise ParameterError(
            f"The pairs of one question may have at most {most} cells in all, and these have {size}. Ask "
            "about fewer pairs at a time: the questions of Dependence.split(n) together cost the same."
        )


def _total(curation: Curation, asked: Marginals | Dependence, tables: Iterable[Sequence[str]]) -> int:
    """Return the number of cells of all tables of a question; levels that share a cell count once."""

    def cells(name: str) -> int:
        if name in asked.groups:
            return len(set(asked.groups[name]))
        return _axis_cells(curation, name, asked.edges.get(name, ()))

    return sum(math.prod(map(cells, table)) for table in tables)


def _product(curation: Curation, names: Iterable[str], edges: Mapping[str, Sequence[float]]) -> int:
    return math.prod(_axis_cells(curation, name, edges.get(name, ())) for name in names)


def _axis_cells(curation: Curation, name: str, edges: Sequence[float]) -> int:
    """Return the number of cells of a column or expression, at least 1 even for one refused later."""
    key = parse_axis(name, edges, curation.schema)
    if key is not None:
        return len(key.labels)
    column = curation.column(name)
    if column.is_category:
        return len(column.levels)
    missing = 0 if column.flag is None else 1
    if edges:
        return len(edges) + 1 + missing
    return column.top + 1 + missing if column.whole else 1


class RateLimiter:
    """A token bucket for each caller.

    Parameters
    ----------
    per_minute : float
        Requests that one caller may send per minute; also the capacity of the bucket.
    """

    def __init__(self, per_minute: float) -> None:
        self._capacity = max(1.0, per_minute)
        self._per_second = self._capacity / 60
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str, now: float | None = None) -> int | None:
        """Take one token from a caller's bucket; return None, or the seconds to wait if it is empty."""
        time_now = time.monotonic() if now is None else now
        level, since = self._buckets.get(name, (self._capacity, time_now))
        level = min(self._capacity, level + (time_now - since) * self._per_second)
        if level < 1:
            self._buckets[name] = (level, time_now)
            return max(1, math.ceil((1 - level) / self._per_second))
        self._buckets[name] = (level - 1, time_now)
        return None
