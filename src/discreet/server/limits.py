"""Limits of one request and one caller: size of an answer, found before it is laid out, and request rate."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from discreet.errors import ParameterError
from discreet.query import Histogram, NodeTables, Sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from discreet.query import Aggregate
    from discreet.query.curation import Curation
    from discreet.query.language.query import Query

MOST_SUMS = 64
"""Expressions in one question: each is parsed and planned whenever its price is asked."""


def check_query_size(asked: Query, curation: Curation, most: int) -> None:
    """Refuse a sentence with more than `most` groups."""
    _check(math.prod(_axis_cells(curation, axis.column, axis.edges) for axis in asked.by), most)


def check_aggregate_size(question: Aggregate, curation: Curation, most: int) -> None:
    """Refuse a statistical question with too many expressions, or with more than `most` cells."""
    match question:
        case Sums():
            if len(question.expressions) > MOST_SUMS:
                raise ParameterError(
                    f"expressions of a question to a service must be at most {MOST_SUMS}, and are "
                    f"{len(question.expressions)}. Ask in several questions."
                )
        case Histogram():
            _check(_product(curation, question.columns, question.edges), most)
        case NodeTables():
            labels = _product(curation, [question.target], question.edges)
            values = sum(
                _product(curation, [name], question.edges)
                for node in question.nodes
                for name in node.attributes
            )
            _check(labels * values, most)


def check_answer_size(size: int, most: int) -> None:
    """Refuse an answer of more than `most` numbers."""
    _check(size, most)


def _check(size: int, most: int) -> None:
    if size > most:
        raise ParameterError(
            f"An answer of this service must have at most {most} numbers, and this one would have {size}. "
            "Name fewer columns or fewer edges: in cells without rows there is nothing but noise."
        )


def _product(curation: Curation, names: Iterable[str], edges: Mapping[str, Sequence[float]]) -> int:
    return math.prod(_axis_cells(curation, name, edges.get(name, ())) for name in names)


def _axis_cells(curation: Curation, name: str, edges: Sequence[float]) -> int:
    """Return how many cells a column has along an axis; at least 1, also where it is refused later."""
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
        self._most = max(1.0, per_minute)
        self._flow = self._most / 60
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str, now: float | None = None) -> int | None:
        """Take one token from a caller's bucket; return None, or the seconds to wait if it is empty."""
        moment = time.monotonic() if now is None else now
        level, since = self._buckets.get(name, (self._most, moment))
        level = min(self._most, level + (moment - since) * self._flow)
        if level < 1:
            self._buckets[name] = (level, moment)
            return max(1, math.ceil((1 - level) / self._flow))
        self._buckets[name] = (level - 1, moment)
        return None
