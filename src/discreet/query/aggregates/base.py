"""Aggregates, their layout on a curated table, and sums of scalar expressions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from discreet.batching import give_way
from discreet.errors import ParameterError
from discreet.privacy.receipt import canonical
from discreet.query.curation import BITS, Curation
from discreet.query.engines.tasks import EngineTotals
from discreet.query.language._expression import Expression
from discreet.query.language._sql import bigint

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot.expressions import Expr as Tree

    from discreet._types import AnyArray, Floats
    from discreet.query.curation import Curated
    from discreet.query.engines.base import Engine
    from discreet.query.engines.tasks import EngineTask
    from discreet.schema.schema import Neighbors


MOST_CELLS = 2**22
"""Largest number of entries of one aggregate."""


def _keep_integers(integers: list[int], n_rows: int) -> list[int]:
    """Return the integers of an engine as they are."""
    return integers


@dataclass(frozen=True, kw_only=True)
class BoundAggregate:
    """An aggregate bound to a curated table, for one kind of neighbors.

    Attributes
    ----------
    canonical : dict
        JSON values that fix the exact answer.
    squared : int
        Square of the largest ``sqrt(sum precision * change**2)`` that one row, or with ``by_unit`` one unit,
        can cause, as an exact integer.
    absolute : int
        Largest ``sum weight * abs(change)`` that one row, or with ``by_unit`` one unit, can cause.
    precision, weight : tuple of int
        Gaussian noise on an entry has variance ``R / precision``, Laplace noise scale ``b / weight``.
    unit : array
        Value of one integer of each entry, in the unit of the answer.
    shift : array
        Value that each row adds to an entry besides, where the number of rows is public.
    places : array of int
        Index of the entry at each place of the answer; one past the last is the number of rows.
    plain_unit : float or None
        Unit of an entry of precision 1, in which a variance is given; None if entries have several.
    wanted : EngineTask
        Integers that an engine computes, in one pass over the rows.
    finish : callable
        Function of the engine's integers and the number of rows that returns those of the entries. Private.
    labels : tuple or None
        Levels along each axis of the answer; None where the axes are no lists of levels.
    by_unit : bool
        Whether ``squared`` and ``absolute`` are for all used rows of a unit together. Otherwise they are for
        one row, and are multiplied by the rows of a unit.
    """

    canonical: dict[str, Any]
    squared: int
    absolute: int
    precision: tuple[int, ...]
    weight: tuple[int, ...]
    unit: Floats
    shift: Floats
    places: AnyArray
    plain_unit: float | None
    wanted: EngineTask
    finish: Callable[[list[int], int], list[int]] = _keep_integers
    labels: tuple[tuple[Any, ...], ...] | None = None
    by_unit: bool = False

    @cached_property
    def canonical_text(self) -> str:
        """Canonical JSON of what fixes the exact answer."""
        return canonical(self.canonical)

    @property
    def size(self) -> int:
        """Number of entries, each with noise of its own."""
        return len(self.precision)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answer."""
        return self.places.shape

    def exact(self, engine: Engine) -> list[int]:
        """Return the exact integers of the entries, computed by an engine. Private."""
        (integers,) = self.wanted.run_tasks(engine, [self.wanted])
        return self.finish(integers, engine.count())

    def part(self, number: int, wanted: EngineTask) -> BoundAggregate:
        """Return what an engine computes in one of several passes, with its integers as they come."""
        return replace(
            self, canonical={**self.canonical, "part": number}, wanted=wanted, finish=_keep_integers
        )

    def arrange(self, entries: Floats, n_rows: float) -> Floats:
        """Return the answer as an array: entries, and the number of rows, at their places."""
        arranged: Floats = np.append(entries, n_rows)[self.places]
        return arranged


class Aggregate(ABC):
    """Sums over all rows of a table, as :class:`~discreet.query.answers.NoisySums` answer them."""

    kind: ClassVar[str]

    @abstractmethod
    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values: the tag ``kind`` and the fields."""
        return {"kind": self.kind, **{item.name: _to_json(getattr(self, item.name)) for item in fields(self)}}  # type: ignore[arg-type]


def _to_json(value: Any) -> Any:
    """Return a field of an aggregate as JSON, expressions as their texts and aggregates as objects."""
    if isinstance(value, Mapping):
        return {name: _to_json(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_to_json(part) for part in value]
    if isinstance(value, Expression):
        return str(value.canonical)
    return value.to_dict() if isinstance(value, Aggregate) else value


def check_cells(count: int) -> None:
    """Refuse more cells than :data:`MOST_CELLS`."""
    if count > MOST_CELLS:
        raise ParameterError(
            f"columns of a question must come to at most {MOST_CELLS} cells, and come to {count}. Name fewer "
            "columns or fewer edges: in cells without rows there is nothing but noise."
        )


def root_up(square: int) -> int:
    """Return the least whole number whose square is at least `square`."""
    root = math.isqrt(square)
    return root + (root * root < square)


_MOST_EXPRESSIONS = 1024
_FAST_TOP = 2**31  # integers of a term that engines add up as they are stored


@dataclass(frozen=True)
class IntegerTerm:
    """An integer expression from 0 to ``top`` that stands for ``lower + step * integer``.

    The integer that is summed is ``anchor`` more, so that ``step`` times it is the value itself to half a
    step: the sum can then be published without the number of rows.
    """

    tree: Tree | None  # None: the constant 0
    top: int
    lower: float
    step: float
    anchor: int

    @property
    def reach(self) -> int:
        """Largest absolute change of the sum when one row is added or removed, in integers."""
        return max(abs(self.anchor), abs(self.anchor + self.top))

    def moves(self, neighbors: Neighbors) -> int:
        """Return the largest absolute change of the sum between neighbors, in integers."""
        return self.top if neighbors == "replace-one" else self.reach

    def total(self, summed: int, n_rows: int) -> int:
        """Return the anchored sum of rows, given their plain sum and their number."""
        return summed + self.anchor * n_rows


def term_of(expression: Any, curation: Curation) -> IntegerTerm:
    """Return the integer form of a parsed expression on a curated table."""
    if expression.bare is not None:
        column = curation.column(expression.bare)
        term = _spread_term(exp.column(column.sql), column.top, column.lower, column.step)
        if column.flag is None:
            return term
        optional = _optional_term(term, column)
        if optional.top < _FAST_TOP:
            return optional
    if expression.is_constant:
        # A constant counts rows: nothing but their number is left to protect.
        lower = float(expression.lower)
        return IntegerTerm(None, 0, lower, lower, 1 if lower else 0)
    grid = expression.grid()
    # The anchor takes the integer of a row without a value, if there may be some, to 0.
    return _spread_term(expression.integer_sql(curation.sql_column), grid.top, grid.lower, grid.step)


def _spread_term(tree: Tree, top: int, lower: float, step: float) -> IntegerTerm:
    """Return the term of an integer tree, anchored at the multiple of `step` nearest to `lower`."""
    return IntegerTerm(tree, top, lower, step, math.floor(lower / step + 0.5))


def _optional_term(term: IntegerTerm, column: Curated) -> IntegerTerm:
    """Return the term of a column whose cells may be missing: the sum of the others, exactly 0 for these.

    ``-anchor`` is the integer that stands for 0; integers are counted from the least of it and 0. The part of
    a step by which the anchor misses the lower bound is not corrected, as it would be for missing cells too.
    """
    assert term.tree is not None
    assert column.flag is not None
    least, most = min(-term.anchor, 0), max(-term.anchor, term.top)
    fill = int(column.integers(np.array([column.fill]))[0])
    # A missing cell holds the public fill: adding a constant is faster than choosing. In 64 bits, because an
    # engine may add short integers as such, and an overflow would tell about rows.
    to_zero = exp.Mul(this=bigint(exp.column(column.flag)), expression=_integer(-term.anchor - fill))
    tree: Tree = exp.Add(this=bigint(term.tree), expression=to_zero)
    if least:
        tree = exp.Add(this=tree, expression=_integer(-least))
    anchor = term.anchor + least
    return IntegerTerm(tree, most - least, anchor * term.step, term.step, anchor)


def _integer(value: int) -> Tree:
    literal = exp.Literal.number(abs(value))
    return literal if value >= 0 else exp.Paren(this=exp.Neg(this=literal))


def parse_expression(expression: Any, curation: Curation) -> Any:
    """Return an expression parsed; one that is parsed already is returned as it is."""
    if isinstance(expression, str):
        from discreet.query.language import parse

        return parse(expression, curation.schema)
    return expression


@dataclass(frozen=True)
class Sums(Aggregate):
    """Sums of scalar expressions over all rows, in one pass.

    Parameters
    ----------
    expressions : sequence of str or Expression
        Scalar SQL expressions over the declared columns.

    Privacy
    -------
    An expression with values in [lo, hi] moves by ``hi - lo`` when one row is replaced and by
    ``max(abs(lo), abs(hi))`` when one is added or removed; squares add up over expressions, each counted in
    units of its own range. A row where it is unknown adds 0, which is then in the range.

    Reference
    ---------
    The SuLQ primitive: docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> with Database({"age": [20, 80] * 500, "ill": [0, 1] * 500}, schema=schema, random_state=1) as db:
    ...     db.ask(Sums(["age", "age > 50"]), privacy=GaussianDP(1)).value.round()
    array([50044.,   500.])
    """

    kind: ClassVar[str] = "sums"
    expressions: Sequence[Any]

    def __post_init__(self) -> None:
        given: Any = self.expressions
        expressions = (given,) if isinstance(given, str) or not isinstance(given, Sequence) else tuple(given)
        if not 0 < len(expressions) <= _MOST_EXPRESSIONS:
            raise ParameterError(
                f"expressions of Sums must be 1 to {_MOST_EXPRESSIONS}, and are {len(expressions)}. Ask in "
                "several questions."
            )
        object.__setattr__(self, "expressions", expressions)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        expressions, terms = [], []
        for text in self.expressions:
            give_way()
            expressions.append(parse_expression(text, curation))
            terms.append(term_of(expressions[-1], curation))
        moves = [term.moves(neighbors) for term in terms]
        # Every entry gets noise in proportion to how far it can move.
        # One that cannot move is public, and gets as little as any.
        weights = [
            -(-(2**BITS) // max(move, 1)) if move < 2**BITS and len(terms) > 1 else 1 for move in moves
        ]

        def finish(integers: list[int], n_rows: int) -> list[int]:
            summed = iter(integers)
            return [term.total(0 if term.tree is None else next(summed), n_rows) for term in terms]

        units = {abs(term.step) / weight for term, weight in zip(terms, weights, strict=True)}
        steps = np.array([term.step for term in terms])
        anchors = np.array([float(term.anchor) for term in terms])
        return BoundAggregate(
            canonical={
                "kind": self.kind,
                "expressions": [str(expression.canonical) for expression in expressions],
                "terms": [[term.top, term.anchor, term.lower, term.step] for term in terms],
            },
            squared=sum((w * m) ** 2 for w, m in zip(weights, moves, strict=True)),
            absolute=sum(w * m for w, m in zip(weights, moves, strict=True)),
            precision=tuple(w * w for w in weights),
            weight=tuple(weights),
            unit=steps,
            shift=np.array([term.lower for term in terms]) - anchors * steps,
            places=np.arange(len(terms)),
            plain_unit=units.pop() if len(units) == 1 else None,
            wanted=EngineTotals(tuple(term.tree for term in terms if term.tree is not None)),
            finish=finish,
        )
