"""Statistics as they are asked of published tables: a query, and the cells of its groups."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.query.aggregates.histogram import Axis
from discreet.query.curation import Curation
from discreet.query.language import GroupKey, parse_groups
from discreet.query.language.cell_masks import (
    condition_columns,
    describe_cell,
    join_conditions,
    subject_columns,
)
from discreet.query.language.lexer import write_name
from discreet.query.language.query import build_query

if TYPE_CHECKING:
    from discreet.query import Query
    from discreet.query.language import Expression
    from discreet.release.statistics._published_counts import PublishedCounts
    from discreet.release.statistics.interface import By
    from discreet.schema import Schema


@dataclass(frozen=True, eq=False)
class StatisticRequest:
    """Statistic that is asked for.

    Attributes
    ----------
    kind : {"count", "mean", "proportion"}
        Kind of the statistic; a proportion is the mean of a condition.
    query : Query
        Statistic as a query, with condition and groups.
    keys : tuple of GroupKey
        Columns to group by; empty for one number.
    axes : tuple of Axis
        Cells of these columns.
    """

    kind: str
    query: Query
    keys: tuple[GroupKey, ...]
    axes: tuple[Axis, ...]

    @property
    def where(self) -> Expression | None:
        """Condition on rows, that what is averaged is known included."""
        return self.query.where

    @property
    def subject(self) -> Expression | None:
        """Expression that is averaged; None for a count."""
        return self.query.statistics[0].expression

    @cached_property
    def labels(self) -> list[tuple[Any, ...]]:
        """Labels of all groups, in C order; one without labels if there are no groups."""
        return list(itertools.product(*(axis.labels for axis in self.axes)))

    def group_condition(self, label: tuple[Any, ...], *more: str) -> Expression | None:
        """Return the condition that a row is chosen and in a group, and further ones; None for all rows."""
        schema = self.query.schema
        cells = [describe_cell(axis, one, schema) for axis, one in zip(self.axes, label, strict=True)]
        chosen = [] if self.where is None else [self.where.canonical]
        return join_conditions([*chosen, *cells, *more], schema)

    def columns(self) -> tuple[str, ...]:
        """Return all columns that the answer depends on."""
        named = [() if one is None else condition_columns(one) for one in (self.where,)]
        if self.subject is not None:
            named.append(subject_columns(self.subject))
        names = {*itertools.chain.from_iterable(named), *(axis.column.name for axis in self.axes)}
        return tuple(column.name for column in self.query.schema.released if column.name in names)


def read_request(
    counts: PublishedCounts, kind: str, columns: tuple[str, ...], where: str | None, by: By
) -> StatisticRequest:
    """Read what is asked; groups of a number have the cells of the tables unless edges are given.

    Parameters
    ----------
    counts : PublishedCounts
        Noisy counts of a release, whose cells are used.
    kind : {"count", "mean", "proportion"}
        Kind of the statistic.
    columns : tuple of str
        Column of a mean, or condition of a proportion; empty for a count.
    where : str or None
        Condition on rows; None for all of them.
    by : str, sequence or None
        Columns to group by, as of a query; None for one number.
    """
    schema = counts.schema
    text = write_statistic(schema, kind, columns)
    plain = build_query(text, where, (), schema)
    keys = _read_keys(schema, by)
    named = {*StatisticRequest(kind, plain, (), ()).columns(), *(str(key.column) for key in keys)}
    axes = tuple(_find_axis(counts, key, named) for key in keys)
    items = [_key_item(key, axis) for key, axis in zip(keys, axes, strict=True)]
    return StatisticRequest(kind, build_query(text, where, items, schema), keys, axes)


def write_statistic(schema: Schema, kind: str, columns: tuple[str, ...]) -> str:
    """Return a statistic as the text of a query; refuses what is no number or no condition."""
    if kind == "count":
        return kind
    if kind == "mean":
        return f"mean({write_name(check_number(schema, columns[0]))})"
    text = f"mean({columns[0]})"
    found = build_query(text, None, (), schema).statistics
    if len(found) != 1 or found[0].expression is None or not found[0].expression.is_condition:
        raise ParameterError(
            f"condition of proportion must be a condition, such as income = '>50K', was {columns[0]!r}."
        )
    return text


def check_number(schema: Schema, name: str) -> str:
    """Return the name of a column of numbers; refuses any other."""
    column = Curation.from_schema(schema).column(name)
    if column.is_category and not all(isinstance(level, int | None) for level in column.levels):
        raise ParameterError(
            f"column of a mean must hold numbers, and {name!r} is a category. Ask for proportions of its "
            "levels."
        )
    return column.name


def _read_keys(schema: Schema, by: By) -> tuple[GroupKey, ...]:
    """Return the columns to group by; refuses expressions, which no table has."""
    released = {column.name for column in schema.released}
    items = [] if by is None else [by] if isinstance(by, str) else list(by)
    keys: list[GroupKey] = []
    for item in items:
        if isinstance(item, str) and item in released:
            keys.append(GroupKey(item))
        else:
            keys += parse_groups(item if isinstance(item, str) else [item], schema)
    for key in keys:
        if key.column is None:
            raise ParameterError(
                f"by of a statistic must name columns, was {key.text}. Tables count cells of columns."
            )
    return tuple(keys)


def _find_axis(counts: PublishedCounts, key: GroupKey, names: set[str]) -> Axis:
    """Return the cells of a column to group by, if possible of tables that have all columns."""
    assert key.column is not None
    if key.edges:
        return Axis.from_curation(Curation.from_schema(counts.schema), key.column, {key.column: key.edges})
    axis = counts.axis(key.column, names - {key.column}) or counts.axis(key.column)
    if axis is None:
        raise ParameterError(
            f"by of a statistic must name a column that was counted, and {key.column!r} was not: it has "
            "one cell alone."
        )
    return axis


def cell_edges(axis: Axis) -> list[float]:
    """Return where the second and later cells of a number begin."""
    return [label[0] for label in axis.labels[1:] if label is not None]


def _key_item(key: GroupKey, axis: Axis) -> Any:
    """Return a key as a query is given it, with the edges of its cells."""
    if axis.column.is_category or axis.starts is None:
        return key.column
    return {"column": key.column, "edges": list(key.edges or cell_edges(axis))}
