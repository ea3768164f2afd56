"""Several sums in every group, and several aggregates in one answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from discreet.errors import ParameterError
from discreet.query.aggregates.base import (
    Aggregate,
    BoundAggregate,
    IntegerTerm,
    check_cells,
    parse_expression,
    term_of,
)
from discreet.query.aggregates.histogram import (
    bind_keys,
    canonical_keys,
    check_edges,
    key_among,
    plain_edges,
)
from discreet.query.curation import BITS
from discreet.query.engines.tasks import EngineCells, EngineTask, Tables
from discreet.query.language._expression import parse_where
from discreet.query.language._sql import bigint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet.query.curation import Curation
    from discreet.query.engines.base import Engine
    from discreet.schema.schema import Neighbors

_MOST_EXPRESSIONS = 64
_MOST_PARTS = 32
_MIXES = 48  # weights of staying and of leaving that are tried
_SPARE_BITS = 12  # by which whole weights are finer than needed, so that rounding hardly moves a share


def balanced_weights(stays: Sequence[int], leaves: Sequence[int]) -> list[int]:
    """Return weights of sums, all of which one row moves together in one of two ways.

    Parameters
    ----------
    stays, leaves : sequence of int
        How far one row moves each sum in the one way and in the other: squares, or absolute values.

    Notes
    -----
    With the weights ``w`` the sensitivity is ``D = max(sum w stays, sum w leaves)``, and the noise on a sum
    is proportional to ``D / w``. The product of the noises is least where every weight is inverse to the
    same mix of both ways; mixes in steps of 1/48 are compared.
    """
    if len(stays) == 1:
        return [1]
    # In whole numbers, so that every machine finds the same weights.
    large = max(1 << (2 * BITS), max(*stays, *leaves) << _SPARE_BITS)
    best: tuple[int, int, list[int]] | None = None
    for part in range(_MIXES + 1):
        mixed = [part * stay + (_MIXES - part) * leave for stay, leave in zip(stays, leaves, strict=True)]
        if any(stay + leave and not one for one, stay, leave in zip(mixed, stays, leaves, strict=True)):
            continue
        weights = [-(-_MIXES * large // max(one, 1)) for one in mixed]
        moved = max(_dot(weights, stays), _dot(weights, leaves)) ** len(weights)
        product = math.prod(weights)
        if best is None or moved * best[1] < best[0] * product:
            best = moved, product, weights
    assert best is not None
    return best[2]


def _dot(weights: Sequence[int], moves: Sequence[int]) -> int:
    return sum(weight * move for weight, move in zip(weights, moves, strict=True))


@dataclass(frozen=True)
class GroupedSums(Aggregate):
    """Sums of several expressions over the same rows, in every cell of some columns' declared values.

    Parameters
    ----------
    columns : sequence of str
        Columns of the groups; the answer has one axis for each, after the axis of the expressions. None are
        needed where `where` chooses the rows, which then are one cell.
    edges : mapping of str to sequence of float
        For numbers, where cells begin; a whole number with few values needs none.
    expressions : sequence of str, Expression or None
        Expressions that are summed in each cell, 0 for a row where one is unknown; None counts rows.
    where : str or Expression, optional
        Condition that chooses the rows, the others are in no cell; all rows if left out.

    Privacy
    -------
    A row is in one cell, or in none. Staying in it, it moves the sum of each expression by up to ``top``
    steps; leaving it for another, or for none, it moves two cells, or one, by up to ``reach`` each, the
    largest absolute value. The sensitivity of all sums together is that of the worse of the two, which is
    less than what histograms of the expressions would have one by one: no row does both.

    Each expression has an equal share of the promise: its entries are weighted by the inverse of how far one
    row moves them, in that mix of staying and leaving for which the noises are least, by their product.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    kind: ClassVar[str] = "grouped sums"
    columns: Sequence[str] = ()
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    expressions: Sequence[Any] = ()
    where: Any = None

    def __post_init__(self) -> None:
        """Check columns and expressions, and keep them as tuples."""
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if (not columns and self.where is None) or len(set(columns)) != len(columns):
            raise ParameterError(
                f"columns of GroupedSums must be at least one, each once, was {list(columns)}. Sums adds up "
                "all rows."
            )
        expressions = tuple(self.expressions)
        if not 0 < len(expressions) <= _MOST_EXPRESSIONS:
            raise ParameterError(
                f"expressions of GroupedSums must be 1 to {_MOST_EXPRESSIONS}, and are {len(expressions)}. "
                "Ask in several questions."
            )
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "expressions", expressions)
        object.__setattr__(self, "edges", plain_edges(self.edges))
        check_edges(self.edges, columns)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        where = parse_where(self.where, curation.schema) if isinstance(self.where, str) else self.where
        table, labels = bind_keys(curation, self.columns, self.edges)
        size, shape = table.size, table.shape
        if where is not None:
            table = _cells_among(table, where.integer_sql(curation.sql_column))
        parsed = [None if one is None else parse_expression(one, curation) for one in self.expressions]
        terms = [
            IntegerTerm(None, 0, 1.0, 1.0, 1) if one is None else term_of(one, curation) for one in parsed
        ]
        check_cells(size * len(terms))
        # How far one row moves the entries of each expression: staying in its cell, and leaving it.
        alone = neighbors == "add-remove"
        cells_left = 2 if size > 1 and not alone else 1 if alone or where is not None else 0
        tops, reaches = [0 if alone else term.top for term in terms], [term.reach for term in terms]
        stays, leaves = [top**2 for top in tops], [cells_left * reach**2 for reach in reaches]
        precision = balanced_weights(stays, leaves)
        far = [cells_left * reach for reach in reaches]
        weight = balanced_weights(tops, far)

        def finish(integers: list[int], n_rows: int) -> list[int]:
            counts, rest, entries = integers[:size], iter(integers[size:]), []
            for term in terms:
                sums = [0] * size if term.tree is None else [next(rest) for _ in range(size)]
                entries += [term.total(s, c) for s, c in zip(sums, counts, strict=True)]
            return entries

        return BoundAggregate(
            canonical={
                "kind": self.kind,
                **canonical_keys(curation, self.columns, self.edges),
                "where": None if where is None else str(where.canonical),
                "expressions": [None if one is None else str(one.canonical) for one in parsed],
                "terms": [[term.top, term.anchor, term.step] for term in terms],
                "shape": list(shape),
            },
            squared=max(_dot(precision, stays), _dot(precision, leaves)),
            absolute=max(_dot(weight, tops), _dot(weight, far)),
            precision=tuple(p for p in precision for _ in range(size)),
            weight=tuple(w for w in weight for _ in range(size)),
            unit=np.repeat([term.step for term in terms], size),
            shift=np.zeros(size * len(terms)),
            places=np.arange(size * len(terms)).reshape(len(terms), *shape),
            plain_unit=abs(terms[0].step) if len(terms) == 1 else None,
            wanted=Tables(((table, None), *((table, term.tree) for term in terms if term.tree is not None))),
            finish=finish,
            labels=(tuple(range(len(terms))), *labels),
        )


def _cells_among(table: EngineCells, holds: Tree) -> EngineCells:
    """Return the cells of a table for the rows where a condition holds; one cell if there are no keys."""
    (key, size), *others = table.keys or ((exp.Literal.number(0), 1),)
    return EngineCells(((key_among(holds, bigint(key)), size), *others))


def _share_factors(moves: Sequence[int], shares: Sequence[int]) -> list[int]:
    """Return whole factors that make the sensitivities of several parts proportional to their shares."""
    large = max(1 << (2 * BITS), max(moves) << _SPARE_BITS)
    return [share * large // max(move, 1) for move, share in zip(moves, shares, strict=True)]


@dataclass(frozen=True, slots=True)
class _TaskList(EngineTask):
    """Tasks of several kinds, one after the other."""

    tasks: tuple[EngineTask, ...]

    @property
    def width(self) -> int:
        """Number of sums or tables of all tasks."""
        return sum(task.width for task in self.tasks)

    @property
    def size(self) -> int:
        """Number of integers of all tasks."""
        return sum(task.size for task in self.tasks)

    @classmethod
    def run_tasks(cls, engine: Engine, tasks: Sequence[_TaskList]) -> list[list[int]]:
        """Return the integers of all tasks; those of one kind that share passes are computed together."""
        results = []
        for one in tasks:
            kinds = dict.fromkeys(type(task) for task in one.tasks)
            found = {
                kind: iter(kind.run_tasks(engine, [task for task in one.tasks if type(task) is kind]))
                for kind in kinds
            }
            results.append([integer for task in one.tasks for integer in next(found[type(task)])])
        return results


@dataclass(frozen=True)
class JointAggregate(Aggregate):
    """Several aggregates, answered and charged as one vector.

    Parameters
    ----------
    parts : sequence of Aggregate
        Aggregates whose entries follow each other in the answer, each raveled.
    shares : sequence of int
        Part of the promise that each aggregate gets, relative to the others.

    Privacy
    -------
    The noise of each aggregate is scaled so that its sensitivity becomes the root of its share, for Gaussian
    noise, or its share, for Laplace noise; of all together the squares, or the absolute values, add up.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    kind: ClassVar[str] = "joint"
    parts: Sequence[Aggregate]
    shares: Sequence[int]

    def __post_init__(self) -> None:
        """Check parts and shares, and keep them as tuples."""
        parts, shares = tuple(self.parts), tuple(self.shares)
        if not 0 < len(parts) <= _MOST_PARTS or len(parts) != len(shares):
            raise ParameterError(
                f"parts of JointAggregate must be 1 to {_MOST_PARTS} with a share each, and are {len(parts)} "
                f"with {len(shares)} shares."
            )
        if not all(isinstance(share, int) and 0 < share <= 2**20 for share in shares):
            raise ParameterError("shares of JointAggregate must be whole numbers of at least 1.")
        if any(isinstance(part, JointAggregate) for part in parts):
            raise ParameterError("parts of JointAggregate must not be joint themselves.")
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "shares", shares)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        bounds = [part.bind(curation, neighbors) for part in self.parts]
        check_cells(sum(bound.size for bound in bounds))
        # A unit may have several rows. A count of units is for all of them; the others are multiplied.
        by_unit = any(bound.by_unit for bound in bounds)
        rows = [curation.schema.max_rows_per_unit or 1 if by_unit and not b.by_unit else 1 for b in bounds]
        squares = [bound.squared * times**2 for bound, times in zip(bounds, rows, strict=True)]
        sizes = [bound.absolute * times for bound, times in zip(bounds, rows, strict=True)]
        # Factors that bring the sensitivities of all parts to their shares.
        finer, factors = _share_factors(squares, self.shares), _share_factors(sizes, self.shares)
        offsets = np.cumsum([0, *(bound.size for bound in bounds)]).tolist()
        places = np.concatenate(
            [
                np.where(bound.places.ravel() == bound.size, offsets[-1], bound.places.ravel() + offset)
                for bound, offset in zip(bounds, offsets, strict=False)
            ]
        )

        def finish(integers: list[int], n_rows: int) -> list[int]:
            entries, start = [], 0
            for bound in bounds:
                end = start + bound.wanted.size
                entries += bound.finish(integers[start:end], n_rows)
                start = end
            return entries

        return BoundAggregate(
            canonical={
                "kind": self.kind,
                "parts": [bound.canonical for bound in bounds],
                "shares": list(self.shares),
            },
            squared=_dot(finer, squares),
            absolute=_dot(factors, sizes),
            precision=tuple(f * p for bound, f in zip(bounds, finer, strict=True) for p in bound.precision),
            weight=tuple(f * w for bound, f in zip(bounds, factors, strict=True) for w in bound.weight),
            unit=np.concatenate([bound.unit for bound in bounds]),
            shift=np.concatenate([bound.shift for bound in bounds]),
            places=places,
            plain_unit=None,
            wanted=_TaskList(tuple(bound.wanted for bound in bounds)),
            finish=finish,
            by_unit=by_unit,
        )
