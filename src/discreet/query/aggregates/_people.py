"""Numbers of people, or of whatever the unit is, where one may have several rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from discreet.errors import ParameterError
from discreet.query.aggregates.base import Aggregate, BoundAggregate, check_cells
from discreet.query.aggregates.histogram import _group_key, canonical_keys, check_edges, plain_edges
from discreet.query.engines.tasks import EngineCells, UnitCounts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet.query.curation import Curation
    from discreet.schema.schema import Neighbors


@dataclass(frozen=True)
class DistinctUnits(Aggregate):
    """Numbers of different units in every cell of some columns, or in the table: ``COUNT(DISTINCT id)``.

    Parameters
    ----------
    columns : sequence of str
        Columns of the groups; the answer has one axis for each, and is one number without any.
    edges : mapping of str to sequence of float
        For numbers, where cells begin; a whole number with few values needs none.
    where : str or Expression, optional
        Condition on a row; only rows for which it is true are looked at, all rows if left out.

    Notes
    -----
    Of each unit at most ``max_rows_per_unit`` rows are used, here as everywhere: a unit is counted in a cell
    if one of its used rows is there. A unit with rows in two cells is counted in both, so that cells may add
    up to more than the units of the table. Rows without an id are counted for nobody, as in SQL.

    A unit with at most ``k`` used rows is in a set ``S`` of cells with ``|S| <= min(k, C)``, where ``C`` is
    the number of cells, and adds 1 to each of them and 0 to all others, however many of its rows are there.
    Adding or removing it moves ``|S|`` entries by 1. Replacing it by a unit with the cells ``T`` leaves the
    entries in both sets and in none as they are and moves the others by 1: these are
    ``|S| + |T| - 2 |S and T| <= 2 k``, and no more than ``C``. Disjoint sets with ``min(2 k, C)`` cells in
    all attain it, if each has at most ``k``. As every entry moves by 0 or 1, sum and sum of squares are
    equal. The one case that is not attained: neighbors under replace-one have as many units, so that their
    number, without cells or a condition, is the same; it is not declared public, and is charged 1.

    Privacy
    -------
    Both the sum of the changes and that of their squares are ``min(2 k, C)`` when a unit is replaced and
    ``min(k, C)`` when one is added or removed, for all rows of the unit together: they are not multiplied by
    ``k`` again. One number has the sensitivity 1, a histogram of the same rows ``k``.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    kind: ClassVar[str] = "distinct units"
    columns: Sequence[str] = ()
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    where: Any = None

    def __post_init__(self) -> None:
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if len(set(columns)) != len(columns):
            raise ParameterError(f"columns of DistinctUnits must be named once each, was {list(columns)}.")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "edges", plain_edges(self.edges))
        check_edges(self.edges, columns)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses one in which every row is a unit."""
        schema = curation.schema
        if not curation.has_units:
            raise ParameterError(
                f"id_column of the schema must be declared to count each {schema.unit} once, and is not: "
                f"every row is a {schema.unit} of its own. Count rows instead, as COUNT(*) does; or declare "
                "id_column and max_rows_per_unit."
            )
        keys = [_group_key(curation, name, self.edges) for name in self.columns]
        cells = EngineCells(tuple((key.tree, len(key.labels)) for key in keys))
        check_cells(cells.size)
        condition = _parse_condition(self.where, curation)
        most = schema.max_rows_per_unit or 1
        moved = min(2 * most if neighbors == "replace-one" else most, cells.size)
        return BoundAggregate(
            canonical={
                "kind": self.kind,
                **canonical_keys(curation, self.columns, self.edges),
                "where": None if condition is None else str(condition.canonical),
                "shape": list(cells.shape),
            },
            squared=moved,
            absolute=moved,
            precision=(1,) * cells.size,
            weight=(1,) * cells.size,
            unit=np.ones(cells.size),
            shift=np.zeros(cells.size),
            places=np.arange(cells.size).reshape(cells.shape),
            plain_unit=1.0,
            wanted=UnitCounts(cells, _counted_unit(condition, curation)),
            labels=tuple(key.labels for key in keys) if keys else None,
            by_unit=True,
        )


def _parse_condition(where: Any, curation: Curation) -> Any:
    """Return a condition on rows, parsed; None if it is true for every row. Refuses what is no condition."""
    if where is None:
        return None
    if isinstance(where, str):
        from discreet.query.language._expression import parse_where

        where = parse_where(where, curation.schema)
    if not where.is_condition:
        raise ParameterError(
            f"where of DistinctUnits must be a condition, was the number {where.canonical}. Compare it, as "
            f"in {where.canonical} > 0."
        )
    return None if where.is_constant and where.lower else where


def _counted_unit(condition: Any, curation: Curation) -> Tree:
    """Return the integer expression of the unit that a row is counted for; 0 where the condition fails."""
    unit = curation.unit_sql()
    if condition is None:
        return unit
    holds = exp.EQ(this=condition.integer_sql(curation.sql_column), expression=exp.Literal.number(1))
    return exp.Case(ifs=[exp.If(this=holds, true=unit)], default=exp.Literal.number(0))
