"""From nodes to operations, and with them to bounds: the place where an expression proves to be total.

Each node becomes operations of a :class:`~discreet.query.expression.program.Program`. Where the
declared bounds of the columns do not show that an operation is defined for every row (a denominator
away from zero, a logarithm of something positive), the expression is refused with the form that would
show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from discreet.errors import ExpressionRefused
from discreet.query.curation import LARGEST_VALUE
from discreet.query.expression import elementary
from discreet.query.expression.interval import TooWide
from discreet.query.expression.nodes import (
    Call,
    Case,
    Compare,
    Constant,
    Extreme,
    Indicator,
    Junction,
    Member,
    Node,
    Number,
    Power,
    Product,
    Quotient,
    Reference,
    Relation,
    Sum,
    Truth,
)
from discreet.query.expression.program import Program

if TYPE_CHECKING:
    from discreet.query.curation import Curated, Curation

SMALLEST_DENOMINATOR = 1e-9
_LARGEST_WHOLE = 2.0**53
_MOST_OPERATIONS = 560
_MOST_VALUES = 64

_Comparison: TypeAlias = Literal["less", "less_equal", "equal", "not_equal"]
_COMPARISONS: dict[Relation, _Comparison] = {
    "<": "less",
    "<=": "less_equal",
    "=": "equal",
    "<>": "not_equal",
}


class Lowering:
    """Writes the operations of nodes into one program; equal nodes are written once.

    Parameters
    ----------
    curation : Curation
        The layout of the integer columns.
    """

    def __init__(self, curation: Curation) -> None:
        self.program = Program()
        self._curation = curation
        self._places: dict[str, int] = {}

    def place(self, node: Node) -> int:
        """Return the place of a node's value.

        Raises
        ------
        ExpressionRefused
            If declared bounds do not show that the value exists for every row.
        """
        known = self._places.get(node.text)
        if known is not None:
            return known
        try:
            place = self._number(node) if isinstance(node, Number) else self._condition(node)
            self._check(place)
        except TooWide:
            raise ExpressionRefused(
                "a value that could pass 1e100", "Put bounds on a part of it: LEAST(x, 1000)."
            ) from None
        if self.program.weight > _MOST_OPERATIONS:
            raise ExpressionRefused("too much to compute for one row", "Ask in several questions.")
        self._places[node.text] = place
        return place

    def _check(self, place: int) -> None:
        interval = self.program.operations[place].interval
        if interval is not None and interval.magnitude[1] > LARGEST_VALUE:
            raise TooWide

    def _number(self, node: Number) -> int:
        program = self.program
        match node:
            case Constant(value=value):
                return program.constant(float(value))
            case Reference(name=name):
                return self._column(self._curation.column(name))
            case Sum(terms=terms):
                return self._sum(terms)
            case Product(factors=factors):
                return program.balanced(program.multiply, [self.place(factor) for factor in factors])
            case Quotient(numerator=above, denominator=below):
                return self._quotient(self.place(above), self.place(below))
            case Power(base=base, exponent=exponent):
                place = self.place(base)
                return elementary.power(program, place, exponent) if exponent else program.constant(1.0)
            case Call():
                return self._call(node)
            case Extreme(function=function, items=items):
                combine = program.least if function == "LEAST" else program.greatest
                return program.balanced(combine, [self.place(item) for item in items])
            case Case(branches=branches, otherwise=otherwise):
                result = self.place(otherwise)
                for condition, chosen in reversed(branches):
                    result = program.select(self.place(condition), self.place(chosen), result)
                return result
        assert isinstance(node, Indicator)
        return program.select(self.place(node.condition), program.constant(1.0), program.constant(0.0))

    def _condition(self, node: Node) -> int:
        program = self.program
        match node:
            case Truth(value=value):
                return program.truth(value)
            case Compare(relation=relation, left=left, right=right):
                return program.compare(_COMPARISONS[relation], self.place(left), self.place(right))
            case Member(name=name, codes=codes, flag=flag):
                return program.member(flag or name, codes)
        assert isinstance(node, Junction)
        places = [self.place(part) for part in node.parts]
        return program.every(places) if node.word == "AND" else program.some(places)

    def _column(self, column: Curated) -> int:
        """Read a cell: ``lower + step * i``, never above the declared upper bound."""
        program = self.program
        if column.is_category:
            values = [float(level) for level in column.levels if level is not None]
            if values == [values[0] + i for i in range(len(values))]:
                return program.add(program.constant(values[0]), program.column(column.name, column.top))
            if len(values) > _MOST_VALUES:
                raise ExpressionRefused(
                    "a category of many values that are not consecutive where a number is needed",
                    "Compare it with its declared values.",
                )
            return program.lookup(column.name, tuple(values))
        index = program.column(column.name, column.top)
        lower = program.constant(column.lower)
        value = program.add(lower, program.multiply(index, program.constant(column.step)))
        return program.least(value, program.constant(self._curation.schema.column(column.name).range[1]))

    def _sum(self, terms: tuple[tuple[int, Number], ...]) -> int:
        program = self.program
        plus = [self.place(term) for sign, term in terms if sign > 0]
        minus = [self.place(term) for sign, term in terms if sign < 0]
        if not minus:
            return program.balanced(program.add, plus)
        taken = program.balanced(program.add, minus)
        if not plus:
            return program.negate(taken)
        return program.subtract(program.balanced(program.add, plus), taken)

    def _quotient(self, above: int, below: int) -> int:
        if self.program.interval(below).magnitude[0] < SMALLEST_DENOMINATOR:
            raise ExpressionRefused(
                "a division by something that could be zero",
                "Keep the denominator away from zero: x / GREATEST(y, 1).",
            )
        return self.program.divide(above, below)

    def _call(self, node: Call) -> int:
        program = self.program
        argument = self.place(node.argument)
        interval = program.interval(argument)
        if node.function == "ABS":
            return program.absolute(argument)
        if node.function == "SQRT":
            if interval.lower < 0.0:
                raise ExpressionRefused(
                    "SQRT of something that could be negative", "Write SQRT(GREATEST(x, 0))."
                )
            return program.sqrt(argument)
        if node.function == "LN":
            if interval.lower < elementary.LN_SMALLEST:
                raise ExpressionRefused(
                    f"LN of something that could be below {elementary.LN_SMALLEST:g}",
                    "Write LN(GREATEST(x, 1)).",
                )
            return elementary.logarithm(program, argument)
        if node.function == "EXP":
            if interval.upper > elementary.EXP_LARGEST:
                raise ExpressionRefused(
                    f"EXP of something that could pass {elementary.EXP_LARGEST:g}", "Write EXP(LEAST(x, 10))."
                )
            return elementary.exponential(program, argument)
        if interval.magnitude[1] > _LARGEST_WHOLE:
            raise ExpressionRefused("FLOOR of something that could pass 2**53", "Write FLOOR(LEAST(x, 1e6)).")
        return program.floor(argument)
