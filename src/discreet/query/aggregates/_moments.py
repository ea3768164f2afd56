"""Where the rows are and how far they spread: first and second moments of every column, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from sqlglot import exp

from discreet.errors import ParameterError
from discreet.query.aggregates.base import Aggregate, BoundAggregate, check_cells
from discreet.query.curation import BITS
from discreet.query.engines.tasks import EngineTotals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet.query.curation import Curated, Curation
    from discreet.schema.schema import Neighbors

_WIDE = 2 ** (BITS + 1)
"""How wide the range of every number is, at least, in weighted half steps."""
_FREE = 11
"""Squares may count this much, against sums, and cost nothing: t**2 (1 - t) / (1 + t) < 1 / 11."""


@dataclass(frozen=True)
class Moments(Aggregate):
    """The number of rows, sums of coordinates, and sums of squares of numbers.

    Parameters
    ----------
    columns : sequence of str
        A number is one coordinate: its distance from the middle of its range, as a fraction of the range; the
        declared fill stands for a missing cell, which is imputation. A category has one for each level, 0 or
        1.

    Notes
    -----
    The answer is one vector: the number of rows, a sum for each coordinate, and a sum of squares for each
    number, in the order of the columns. All of it is a sum of whole columns, which engines are fast at.

    Privacy
    -------
    A number that moves from ``u`` to ``v`` changes its sum by ``u - v`` and its square by ``u**2 - v**2``.
    With squares weighted by the root of 11 against sums the two together are longest at opposite ends of the
    range, where the squares do not change: they are free. The square of the sensitivity is 1 for each number
    and 2 for each category when a row is replaced. When one is added or removed it is ``1/4 + 11/16`` for a
    number and 1 for a category, and twice that with the number of rows.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    kind: ClassVar[str] = "moments"
    columns: Sequence[str]

    def __post_init__(self) -> None:
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if not columns or len(set(columns)) != len(columns):
            raise ParameterError(f"columns of Moments must be at least one, each once, was {list(columns)}.")
        object.__setattr__(self, "columns", columns)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        columns = [curation.column(name) for name in self.columns]
        numbers = [column for column in columns if not column.is_category]
        check_cells(sum(max(len(column.levels), 1) for column in columns) + len(numbers))
        # In weighted steps a number is at least _WIDE wide, and not much more.
        tops = {column.name: column.top for column in numbers}
        weights = {name: -(-_WIDE // (2 * top)) if top else 1 for name, top in tops.items()}
        widths = {name: 2 * top * weights[name] for name, top in tops.items()}
        widest = max([_WIDE, *widths.values()])
        ratio = -(-(widest**2) // _FREE)
        replaced = neighbors == "replace-one"
        squared, absolute = 0, 0
        precision: list[int] = []
        weight: list[int] = []
        unit: list[float] = []
        for column in columns:
            if column.is_category:
                # A person is in one cell, and moves to another; a category of one level has no other.
                cells = 2 * (len(column.levels) > 1) if replaced else 1
                squared += cells * ratio * widest**2
                absolute += cells * widest**2
                precision += [ratio * widest**2] * len(column.levels)
                weight += [widest**2] * len(column.levels)
                unit += [1.0] * len(column.levels)
                continue
            width, half = widths[column.name], widths[column.name] // 2
            # Opposite ends: a |u - v| + |u**2 - v**2| <= a width for a >= width, and so for squares.
            squared += ratio * width**2 if replaced else ratio * half**2 + half**4
            absolute += widest * width if replaced else widest * half + half**2
            precision.append(ratio * weights[column.name] ** 2)
            weight.append(widest * weights[column.name])
            unit.append(1 / max(2 * tops[column.name], 1))
        precision += [own**4 for own in weights.values()]
        weight += [own**2 for own in weights.values()]
        unit += [1 / max(2 * top, 1) ** 2 for top in tops.values()]
        places = np.array([len(precision), *range(len(precision))])
        if not replaced:
            # The number of rows gets as much of the promise as all the rest together.
            squared, absolute = max(squared, 1), max(absolute, 1)
            precision.append(squared)
            weight.append(absolute)
            unit.append(1.0)
            squared, absolute = 2 * squared, 2 * absolute

        def finish(integers: list[int], n_rows: int) -> list[int]:
            summed = iter(integers)
            sums, squares = [], []
            for column in columns:
                if column.is_category:
                    sums += [next(summed) for _ in column.levels]
                    continue
                first, second, top = next(summed), next(summed), tops[column.name]
                # Twice the distance from the middle, which may lie between two steps, is whole.
                sums.append(2 * first - top * n_rows)
                squares.append(4 * second - 4 * top * first + top * top * n_rows)
            return [*sums, *squares, *([] if replaced else [n_rows])]

        return BoundAggregate(
            canonical={
                "kind": self.kind,
                "columns": list(self.columns),
                "tops": [tops.get(column.name) for column in columns],
                "levels": [len(column.levels) for column in columns],
            },
            squared=squared,
            absolute=absolute,
            precision=tuple(precision),
            weight=tuple(weight),
            unit=np.array(unit),
            shift=np.zeros(len(precision)),
            places=places,
            plain_unit=None,
            wanted=EngineTotals(tuple(tree for column in columns for tree in _trees(column))),
            finish=finish,
        )


def _trees(column: Curated) -> list[Tree]:
    """Return what is summed in the engine: cells and their squares, or one flag for each level."""
    cell = exp.column(column.sql)
    if not column.is_category:
        wide = exp.Cast(this=exp.column(column.sql), to=exp.DataType(this=exp.DataType.Type.BIGINT))
        return [cell, exp.Mul(this=wide, expression=exp.column(column.sql))]
    zero, one = exp.Literal.number(0), exp.Literal.number(1)
    codes = [exp.EQ(this=cell.copy(), expression=exp.Literal.number(i)) for i in range(len(column.levels))]
    return [exp.Case(ifs=[exp.If(this=code, true=one.copy())], default=zero.copy()) for code in codes]
