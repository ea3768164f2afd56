"""Sums of scalar expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from discreet.errors import ParameterError
from discreet.query.curation import BITS, Curation
from discreet.query.engines.base import Totals
from discreet.query.questions.base import Bound, Question

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Tree

    from discreet.schema.table import Neighbors

_MOST_EXPRESSIONS = 1024


@dataclass(frozen=True)
class Term:
    """An integer expression from 0 to ``top`` that stands for ``lower + step * integer``.

    The integer that is summed is ``anchor`` more, so that ``step`` times it is the value itself to half a
    step: a sum can then be told without telling the number of rows.
    """

    tree: Tree | None  # None: the constant 0
    top: int
    lower: float
    step: float
    anchor: int

    @property
    def reach(self) -> int:
        """How far one row can move the sum by being there."""
        return max(abs(self.anchor), abs(self.anchor + self.top))

    def moves(self, neighbors: Neighbors) -> int:
        """Return how far one difference between neighbors can move the sum."""
        return self.top if neighbors == "replace-one" else self.reach

    def total(self, summed: int, n_rows: int) -> int:
        """Return the anchored sum of some rows."""
        return summed + self.anchor * n_rows


def term_of(expression: Any, curation: Curation) -> Term:
    """Lay out an expression as integers."""
    bare = getattr(expression, "bare", None)
    if bare is not None:
        column = curation.column(bare)
        return _spread(exp.column(column.sql), column.top, column.lower, column.step)
    lower, upper = float(expression.lower), float(expression.upper)
    if lower == upper:
        # A constant counts rows: nothing but their number is left to protect.
        return Term(None, 0, lower, lower, 1 if lower else 0)
    bits = 0 if expression.is_condition else BITS
    tree = expression.integer_sql(curation.sql_column, bits)
    return _spread(tree, 2**bits, lower, (upper - lower) / 2**bits)


def _spread(tree: Tree, top: int, lower: float, step: float) -> Term:
    return Term(tree, top, lower, step, math.floor(lower / step + 0.5))


def parsed(expression: Any, curation: Curation) -> Any:
    """Parse text; leave what is parsed already."""
    if isinstance(expression, str):
        from discreet.query.expression import parse

        return parse(expression, curation.schema)
    return expression


def written(expression: Any) -> str:
    """Return the text of an expression."""
    return expression if isinstance(expression, str) else str(expression.canonical)


@dataclass(frozen=True)
class Sums(Question):
    """Sums of scalar expressions over all rows, in one pass.

    Parameters
    ----------
    expressions : sequence of str or Expression
        Scalar SQL expressions over the declared columns.

    Privacy
    -------
    An expression with values in [lo, hi] moves by ``hi - lo`` when one row is replaced and by
    ``max(abs(lo), abs(hi))`` when one is added or removed; squares add up over expressions, each counted in
    units of its own range.

    Reference
    ---------
    The SuLQ primitive: docs/explanation/theorems/sulq-sensitivity.md.
    """

    kind: ClassVar[str] = "sums"
    expressions: Sequence[Any]

    def __post_init__(self) -> None:
        given: Any = self.expressions
        listed = (given,) if isinstance(given, str) or not isinstance(given, Sequence) else tuple(given)
        if not 0 < len(listed) <= _MOST_EXPRESSIONS:
            raise ParameterError(
                f"expressions of Sums must be 1 to {_MOST_EXPRESSIONS}, and are {len(listed)}. Ask in "
                "several questions."
            )
        object.__setattr__(self, "expressions", listed)

    def bind(self, curation: Curation, neighbors: Neighbors) -> Bound:
        """Lay the question out on a curated table."""
        found = [parsed(expression, curation) for expression in self.expressions]
        terms = [term_of(expression, curation) for expression in found]
        moves = [term.moves(neighbors) for term in terms]
        # Every entry gets noise in proportion to how far it can move.
        weights = [-(-(2**BITS) // move) if 0 < move < 2**BITS and len(terms) > 1 else 1 for move in moves]

        def finish(found: list[int], n_rows: int) -> list[int]:
            summed = iter(found)
            return [term.total(0 if term.tree is None else next(summed), n_rows) for term in terms]

        steps = np.array([term.step for term in terms])
        anchors = np.array([float(term.anchor) for term in terms])
        return Bound(
            canonical={
                "kind": self.kind,
                "expressions": [str(expression.canonical) for expression in found],
                "terms": [[term.top, term.anchor, term.lower, term.step] for term in terms],
            },
            squared=sum((w * m) ** 2 for w, m in zip(weights, moves, strict=True)),
            absolute=sum(w * m for w, m in zip(weights, moves, strict=True)),
            precision=tuple(w * w for w in weights),
            weight=tuple(weights),
            unit=steps,
            shift=np.array([term.lower for term in terms]) - anchors * steps,
            places=np.arange(len(terms)),
            plain_unit=abs(terms[0].step) if len({(t.step, t.top) for t in terms}) == 1 else None,
            wanted=Totals(tuple(term.tree for term in terms if term.tree is not None)),
            finish=finish,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"kind": self.kind, "expressions": [written(e) for e in self.expressions]}
