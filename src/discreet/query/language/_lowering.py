"""From nodes to operations, and with them to bounds: the place where an expression proves to be total.

Each node becomes operations of a :class:`~discreet.query.language._program.Program`. Where the
declared bounds of the columns do not show that an operation is defined for every row (a denominator
away from zero, a logarithm of something positive), the expression is refused with the form that would
show it.

A program has no NULL. A missing cell holds a declared value, so that every number has a value for every row;
beside the value is recorded whether it is known, and of a condition whether it is true and whether false.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from discreet.errors import ExpressionRefused
from discreet.query.curation import LARGEST_VALUE, LEAST_MAGNITUDE
from discreet.query.language import _calendar
from discreet.query.language._date_nodes import (
    DateChoice,
    DateColumn,
    DateConstant,
    DateDifference,
    DateField,
    DateShift,
    DateTrunc,
)
from discreet.query.language._functions import apply_function, divide, power, remainder
from discreet.query.language._normal_form import beyond_calendar, opposite
from discreet.query.language._program import Interval, Program, TooWide, exponent
from discreet.query.language.nodes import (
    Call,
    Case,
    Coalesce,
    Compare,
    Condition,
    Constant,
    Date,
    Extreme,
    Extremum,
    Indicator,
    Junction,
    Member,
    Node,
    Null,
    Number,
    Power,
    Product,
    Quotient,
    Reference,
    Relation,
    Remainder,
    Sum,
    Test,
    Truth,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from fractions import Fraction

    from discreet.query.curation import Curated, Curation


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
        self._values: dict[str, int] = {}
        self._days: dict[str, int] = {}
        self._truths: dict[str, int] = {}
        self._known: dict[str, int] = {}

    def value(self, node: Number) -> int:
        """Return the place of a number's value, which means something only where it is known.

        Raises
        ------
        ExpressionRefused
            If declared bounds do not show that the value exists for every row.
        """
        return self._write(self._values, node, self._number)

    def day(self, node: Date) -> int:
        """Return the place of a date, as the number of a day of the calendar; refused as :meth:`value` is."""
        return self._write(self._days, node, self._date)

    def holds(self, node: Condition) -> int:
        """Return the place of whether a condition is true; refused as :meth:`value` is."""
        return self._write(self._truths, node, self._condition)

    def known(self, node: Node) -> int | None:
        """Return the place of whether a part is known; None if it is for every row."""
        if isinstance(node, Case):
            return self._case_known(node)
        return self._write(self._known, node, self._is_known) if node.nullable else None

    def _write(self, places: dict[str, int], node: Any, write: Callable[[Any], int]) -> int:
        """Return the place of a node, written if it was not yet."""
        place = places.get(node.text)
        if place is not None:
            return place
        try:
            place = write(node)
            self._check(place)
        except TooWide:
            raise ExpressionRefused.not_allowed(
                "a value that could pass 1e100", "Put bounds on a part of it: LEAST(x, 1000)."
            ) from None
        if self.program.weight > _MOST_OPERATIONS:
            raise ExpressionRefused.not_allowed(
                "too much to compute for one row", "Ask in several questions."
            )
        places[node.text] = place
        return place

    def _check(self, place: int) -> None:
        interval = self.program.operations[place].interval
        if interval is not None and interval.magnitude[1] > LARGEST_VALUE:
            raise TooWide

    def _number(self, node: Number) -> int:
        """Record the operations of a number, and return the place of its value."""
        program = self.program
        match node:
            case Constant(value=value):
                return program.constant(float(value))
            case Reference(name=name):
                return self._column(self._curation.column(name))
            case Sum(terms=terms):
                return self._sum(terms)
            case Product(factors=factors):
                return program.combine_balanced(program.multiply, [self.value(factor) for factor in factors])
            case Quotient(numerator=above, denominator=below):
                return divide(self.program, self.value(above), self.value(below))
            case Power(base=base, exponent=exponent):
                place = self.value(base)
                return power(program, place, exponent) if exponent else program.constant(1.0)
            case Call():
                return apply_function(self.program, node.function, self.value(node.argument))
            case Extreme(items=items):
                return self._extreme(node.function, items)
            case Coalesce(items=items):
                return self._first_known(items)
            case Case():
                return self._case(node)
            case Remainder(numerator=above, denominator=below):
                return remainder(self.program, self.value(above), self.value(below))
            case DateDifference(later=later, earlier=earlier):
                return program.subtract(self.day(later), self.day(earlier))
            case DateField(field=field, date=date):
                return _calendar.read_field(program, self.day(date), field)
        assert isinstance(node, Indicator)
        return program.select(self.holds(node.condition), program.constant(1.0), program.constant(0.0))

    def _date(self, node: Date) -> int:
        """Record the operations of a date, and return the place of the number of its day."""
        program = self.program
        match node:
            case DateColumn(reference=reference, first=first):
                return program.add(
                    self.value(reference), program.constant(float(_calendar.day_number(first)))
                )
            case DateConstant(day=day):
                return program.constant(float(_calendar.day_number(day)))
            case DateShift(date=date, days=days):
                return self._shift(self.day(date), self.value(days))
            case DateChoice(function="COALESCE", items=items):
                return self._first_known(items)
            case DateChoice(items=items):
                return self._extreme("LEAST" if node.function == "LEAST" else "GREATEST", items)
        assert isinstance(node, DateTrunc)
        raise ExpressionRefused.not_allowed(
            "DATE_TRUNC outside of BY", "Group by it: BY DATE_TRUNC('month', admitted)."
        )

    def _shift(self, date: int, days: int) -> int:
        """Record a date some days later; refuses fractions of a day, and days that the calendar has not."""
        if self.program.interval(days).quantum < 0:
            raise ExpressionRefused.not_allowed(
                "a date and a number of days that need not be whole", "Write admitted + FLOOR(x)."
            )
        place = self.program.add(date, days)
        interval = self.program.interval(place)
        if not _calendar.FIRST_DAY <= interval.lower <= interval.upper <= _calendar.LAST_DAY:
            raise beyond_calendar()
        return place

    def _place(self, node: Number | Date) -> int:
        return self.day(node) if isinstance(node, Date) else self.value(node)

    def _extreme(self, function: Extremum, items: Sequence[Number | Date]) -> int:
        """Record the least or greatest of the parts that are known, as PostgreSQL, DuckDB and Spark do."""
        program = self.program
        combine = program.least if function == "LEAST" else program.greatest
        required = [self._place(item) for item in items if not item.nullable]
        others = [item for item in items if item.nullable]
        if required:
            place, there = program.combine_balanced(combine, required), None
        else:
            place, there = self._place(others[0]), self.known(others.pop(0))
        for item in others:
            value, known = self._place(item), self.known(item)
            both = combine(place, value)
            both = both if known is None else program.select(known, both, place)
            place = both if there is None else program.select(there, both, value)
            there = None if there is None or known is None else program.some([there, known])
        return place

    def _first_known(self, items: Sequence[Number | Date]) -> int:
        """Record the first of several parts that is known."""
        *first, last = items
        place = self._place(last)
        for item in reversed(first):
            value, known = self._place(item), self.known(item)
            place = value if known is None else self.program.select(known, value, place)
        return place

    def _case(self, node: Case) -> int:
        """Record the number of the first true condition; for NULL that of a branch, which widens no bound."""
        values = [node.otherwise, *(value for _, value in node.branches)]
        anything = next(value for value in values if not isinstance(value, Null))
        result, *chosen = [self.value(anything if isinstance(value, Null) else value) for value in values]
        for (condition, _), place in zip(reversed(node.branches), reversed(chosen), strict=True):
            result = self.program.select(self.holds(condition), place, result)
        return result

    def _condition(self, node: Condition) -> int:
        """Record the operations of a condition, and return the place of whether it is true."""
        program = self.program
        match node:
            case Truth(value=value):
                return program.truth(value)
            case Compare(relation=relation, left=left, right=right):
                place = self._compare(relation, left, right)
                return program.every([place, *self._all_known((left, right))])
            case Member(name=name, flag=flag):
                return (
                    program.member(flag or name, node.true_codes) if node.true_codes else program.truth(False)
                )
            case Test():
                return self._test(node)
        assert isinstance(node, Junction)
        places = [self.holds(part) for part in node.parts]
        return program.every(places) if node.word == "AND" else program.some(places)

    def _test(self, node: Test) -> int:
        """Record a test of a part, and the operations of the part, so that its bounds are looked at."""
        subject, negated = node.subject, node.word.startswith("NOT")
        if isinstance(subject, Number | Date):
            place = self._place(subject)
        else:
            place = self.holds(_as_condition(subject))
        if node.word.endswith("NULL"):
            known = self.known(subject)
            place, negated = self.program.truth(True) if known is None else known, not negated
        return self.program.opposite(place) if negated else place

    def _all_known(self, parts: Iterable[Node]) -> list[int]:
        """Return the places of whether parts are known, those left out that always are."""
        return [place for place in map(self.known, parts) if place is not None]

    def _every_known(self, parts: Iterable[Node]) -> int:
        """Record whether all parts are known."""
        places = self._all_known(parts)
        return self.program.every(places) if places else self.program.truth(True)

    def _is_known(self, node: Node) -> int:
        """Record whether a part that may be unknown is known."""
        program = self.program
        match node:
            case (
                Reference(missing=Member() as missing)
                | DateColumn(reference=Reference(missing=Member() as missing))
            ):
                return self.holds(_as_condition(opposite(missing)))
            case Sum(terms=terms):
                return self._every_known(term for _, term in terms)
            case Product(factors=factors):
                return self._every_known(factors)
            case Quotient(numerator=one, denominator=two) | Remainder(numerator=one, denominator=two):
                return self._every_known((one, two))
            case DateShift(date=one, days=two) | DateDifference(later=one, earlier=two):
                return self._every_known((one, two))
            case DateField(date=argument) | DateTrunc(date=argument):
                return self._every_known((argument,))
            case Power(base=argument) | Call(argument=argument) | Indicator(condition=argument):
                return self._every_known((argument,))
            case Extreme(items=items) | Coalesce(items=items) | DateChoice(items=items):
                known = [self.known(item) for item in items]
                sure = [place for place in known if place is not None]
                return program.some(sure) if len(sure) == len(known) else program.truth(True)
            case Null():
                return program.truth(False)
            case Compare(left=left, right=right):
                return self._every_known((left, right))
            case Member(name=name, known_codes=codes):
                return program.member(name, codes)
        condition = _as_condition(node)
        return program.some([self.holds(condition), self.holds(opposite(condition))])

    def _case_known(self, node: Case) -> int | None:
        """Record whether the branch that a CASE takes is known; None if it always is."""
        program = self.program
        result = self.known(node.otherwise)
        for condition, value in reversed(node.branches):
            taken, known = self.holds(condition), self.known(value)
            # A branch for the rows where it is known, as of a mean: CASE WHEN x IS NOT NULL THEN x ...
            chosen = [taken] if known is None else [taken, known]
            if len(set(chosen)) == 1 and result is None:
                continue
            passed = [program.opposite(taken)] if result is None else [program.opposite(taken), result]
            result = program.some([program.every(chosen), program.every(passed)])
        return result

    def _column(self, column: Curated) -> int:
        """Read a cell: its number, or ``lower + i`` where it is an exact integer ``i``."""
        program = self.program
        if column.is_category:
            values = [float(level) for level in column.levels if level is not None]
            if values == [values[0] + i for i in range(len(values))]:
                value = program.add(program.constant(values[0]), self._cell(column))
                return program.least(value, program.constant(values[-1]))  # of a missing cell too
            if len(values) > _MOST_VALUES:
                raise ExpressionRefused.not_allowed(
                    "a category of many values that are not consecutive where a number is needed",
                    "Compare it with its declared values.",
                )
            missing = values[-1:] * (None in column.levels)  # any value
            return program.lookup(column.name, (*values, *missing))
        cell = self._cell(column)
        return program.add(program.constant(column.lower), cell) if column.whole else cell

    def _cell(self, column: Curated) -> int:
        """Read the curated column of exact cells."""
        if column.whole:
            return self.program.column(column.name, Interval(0.0, float(column.top), 0))
        whole = self._curation.schema.column(column.name).type != "number"
        quantum = 0 if whole else exponent(LEAST_MAGNITUDE) - 52
        return self.program.column(column.name, Interval(column.lower, column.upper, quantum))

    def _compare(self, relation: Relation, left: Number | Date, right: Number | Date) -> int:
        """Record a comparison; one of a column of whole numbers with a constant is exact for any constant."""
        program, kind = self.program, _COMPARISONS[relation]
        if isinstance(left, Date) or isinstance(right, Date):
            return program.compare(kind, self._place(left), self._place(right))
        up, down = (math.ceil, math.floor) if relation == "<" else (math.floor, math.ceil)
        if self._is_whole(left) and isinstance(right, Constant):
            cell, limit = self._limit(left, up(right.value), right.value, relation)
            return program.compare(kind, cell, limit)
        if self._is_whole(right) and isinstance(left, Constant):
            cell, limit = self._limit(right, down(left.value), left.value, relation)
            return program.compare(kind, limit, cell)
        return program.compare(kind, self.value(left), self.value(right))

    def _is_whole(self, node: Number) -> bool:
        """Return whether a node is a column of whole numbers, dates or levels."""
        return isinstance(node, Reference) and self._curation.schema.column(node.name).type != "number"

    def _limit(self, node: Number, limit: int, value: Fraction, relation: Relation) -> tuple[int, int]:
        """Return the places of a cell and of the whole number that it is compared with instead of a constant.

        A constant beside 2**53 may not be a double. A whole number that is out of the column's range is as
        good as any other there: two past the range, which is a double even at 2**53.
        """
        assert isinstance(node, Reference)
        column = self._curation.column(node.name)
        counted = column.whole and not column.is_category
        place = self._cell(column) if counted else self.value(node)
        first = int(column.lower) if counted else 0
        known = self.program.interval(place)
        low, high = int(known.lower), int(known.upper)
        limit -= first
        if limit > high or (relation in ("=", "<>") and value.denominator > 1):
            limit = high + 2
        elif limit < low:
            limit = low - 2
        return place, self.program.constant(float(limit))

    def _sum(self, terms: tuple[tuple[int, Number], ...]) -> int:
        """Record a sum: positive terms, less negative ones, each in a balanced tree."""
        program = self.program
        plus = [self.value(term) for sign, term in terms if sign > 0]
        minus = [self.value(term) for sign, term in terms if sign < 0]
        if not minus:
            return program.combine_balanced(program.add, plus)
        taken = program.combine_balanced(program.add, minus)
        if not plus:
            return program.negate(taken)
        return program.subtract(program.combine_balanced(program.add, plus), taken)


def _as_condition(node: Node) -> Condition:
    assert isinstance(node, Condition)
    return node
