"""How large the answer to a question would be, found before anything is laid out."""

from __future__ import annotations

import math
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


def check_sentence(asked: Query, curation: Curation, most: int) -> None:
    """Refuse a sentence with more than `most` groups."""
    _check(math.prod(_along(curation, axis.column, axis.edges) for axis in asked.by), most)


def check_question(question: Aggregate, curation: Curation, most: int) -> None:
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


def check_size(size: int, most: int) -> None:
    """Refuse an answer of more than `most` numbers."""
    _check(size, most)


def _check(size: int, most: int) -> None:
    if size > most:
        raise ParameterError(
            f"An answer of this service must have at most {most} numbers, and this one would have {size}. "
            "Name fewer columns or fewer edges: in cells without rows there is nothing but noise."
        )


def _product(curation: Curation, names: Iterable[str], edges: Mapping[str, Sequence[float]]) -> int:
    return math.prod(_along(curation, name, edges.get(name, ())) for name in names)


def _along(curation: Curation, name: str, edges: Sequence[float]) -> int:
    """Return how many cells a column has along an axis; at least 1, also where it is refused later."""
    column = curation.column(name)
    if column.is_category:
        return len(column.levels)
    missing = 0 if column.flag is None else 1
    if edges:
        return len(edges) + 1 + missing
    return column.top + 1 + missing if column.whole else 1
