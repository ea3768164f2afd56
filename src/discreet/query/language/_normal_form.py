"""Constructors of nodes, which bring every spelling of an expression into one form.

``age + 1 > 2 * (income)`` and ``income * 2 < 1 + age`` are one question, so they are one node, one
canonical text, and for a ledger one answer. What is done: operands that may be exchanged are sorted and
flattened, constants are folded as exact fractions, negation is pushed down to comparisons and lists,
repeated factors become powers. What is computed is *defined* as what the node computes, so no rewriting
can make an answer stand for another question; and each rewriting is right for real numbers and for
conditions that are true, false or unknown (Kleene's logic, which is that of SQL). Nothing that was written
is dropped before its bounds were looked at: ``FALSE AND 1 / x > 2`` still needs an ``x`` away from zero.
"""

from __future__ import annotations

import datetime
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from discreet.errors import ExpressionRefused
from discreet.query.language._date_nodes import (
    DateChoice,
    DateColumn,
    DateConstant,
    DateDifference,
    DateField,
    DateShift,
)
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
    Function,
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
    Remainder,
    Sum,
    Test,
    Tested,
    Truth,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_EXPONENT = 8
_LARGEST = Fraction(10**100)
_SURELY_SMALL = 300  # bits, with which a number is below 1e100 and not nearer to zero than 1e-100
_LONGEST = 400  # bits of a numerator or denominator that are kept exactly
_OTHERWISE: dict[Tested, Tested] = {
    "NULL": "NOT NULL",
    "NOT NULL": "NULL",
    "TRUE": "NOT TRUE",
    "NOT TRUE": "TRUE",
}
_OPPOSITE: dict[Relation, tuple[Relation, bool]] = {
    # the relation that holds otherwise, and whether operands change sides
    "<": ("<=", True),
    "<=": ("<", True),
    "=": ("<>", False),
    "<>": ("=", False),
}


def constant(value: Fraction | int) -> Constant:
    """Return the node of a number that is the same for every row."""
    value = Fraction(value)
    size = max(value.numerator.bit_length(), value.denominator.bit_length())
    if size > _SURELY_SMALL and value and not 1 / _LARGEST <= abs(value) <= _LARGEST:
        raise ExpressionRefused(
            "a number beyond 1e100, or nearer to zero than 1e-100", "Write numbers in a smaller unit."
        )
    if size > _LONGEST:
        value = Fraction(float(value))
    return Constant(value)


def total(terms: Iterable[tuple[int, Number]]) -> Number:
    """Return the sum of terms with signs: sums flattened, constants added, terms sorted."""
    kept: list[tuple[int, Number]] = []
    fixed = Fraction(0)
    for sign, term in terms:
        inner = term.terms if isinstance(term, Sum) else ((1, term),)
        for inner_sign, part in inner:
            if isinstance(part, Constant):
                fixed += sign * inner_sign * part.value
            else:
                kept.append((sign * inner_sign, part))
    kept.sort(key=lambda signed: (signed[1].text, -signed[0]))
    if not kept:
        return constant(fixed)
    if fixed:
        kept.append((1 if fixed > 0 else -1, constant(abs(fixed))))
    return kept[0][1] if len(kept) == 1 and kept[0][0] == 1 else Sum(tuple(kept))


def negative(number: Number) -> Number:
    """Return a number with the other sign."""
    return total([(-1, number)])


def product(factors: Iterable[Number]) -> Number:
    """Return the product of factors; repeated factors become powers."""
    sign, fixed = 1, Fraction(1)
    times: dict[Number, int] = {}
    for factor in factors:
        factor_sign, inner = _split_sign(factor)
        sign *= factor_sign
        for part in inner.factors if isinstance(inner, Product) else (inner,):
            if isinstance(part, Constant):
                fixed *= part.value
            elif isinstance(part, Power) and part.exponent:
                times[part.base] = times.get(part.base, 0) + part.exponent
            else:
                times[part] = times.get(part, 0) + 1
    kept = sorted((p for base, n in times.items() for p in _powers(base, n)), key=lambda node: node.text)
    if not kept:
        return constant(sign * fixed)
    if fixed != 1:
        kept.insert(0, constant(fixed))
    result = kept[0] if len(kept) == 1 else Product(tuple(kept))
    return result if sign > 0 else negative(result)


def _powers(base: Number, times: int) -> list[Number]:
    """Return factors for a power, with exponents that the language has."""
    whole, rest = divmod(times, MOST_EXPONENT)
    exponents = [MOST_EXPONENT] * whole + [rest] * bool(rest)
    if whole and rest == 1:
        exponents[-2:] = [MOST_EXPONENT - 1, 2]  # a factor without exponent would be taken apart again
    return [Power(base, exponent) if exponent > 1 else base for exponent in exponents]


def _split_sign(number: Number) -> tuple[int, Number]:
    """Return a sign and a number: -1 and its operand for a number that is only negated."""
    if isinstance(number, Constant):
        return (-1, constant(-number.value)) if number.value < 0 else (1, number)
    if isinstance(number, Sum) and len(number.terms) == 1:
        return number.terms[0]
    return 1, number


def quotient(numerator: Number, denominator: Number) -> Number:
    """Return the quotient of two numbers."""
    upper_sign, above = _split_sign(numerator)
    lower_sign, below = _split_sign(denominator)
    if isinstance(below, Constant):
        if not below.value:
            raise ExpressionRefused.not_allowed("a division by zero", "Divide by a number that is not zero.")
        if isinstance(above, Constant):
            return constant(upper_sign * lower_sign * above.value / below.value)
        if below.value == 1:
            return total([(upper_sign * lower_sign, above)])
    return total([(upper_sign * lower_sign, Quotient(above, below))])


def power(base: Number, exponent: int) -> Number:
    """Return a number to a whole power from 0 to 8."""
    if isinstance(base, Constant):
        return constant(base.value**exponent)
    sign, inner = _split_sign(base)
    if exponent < 2:
        return base if exponent else Power(inner, 0)
    return total([(sign**exponent, Power(inner, exponent))])


def call(function: Function, argument: Number) -> Number:
    """Return a function of one number."""
    if function == "ABS":
        _, argument = _split_sign(argument)
        if isinstance(argument, Constant):
            return argument
    if function in _ROUNDED and isinstance(argument, Constant):
        return constant(_ROUNDED[function](argument.value))
    return Call(function, argument)


def _round_away(value: Fraction) -> int:
    """Return the nearest whole number, of two the one that is farther from zero."""
    nearest = math.floor(abs(value) + Fraction(1, 2))
    return nearest if value > 0 else -nearest


_ROUNDED: dict[Function, Callable[[Fraction], int]] = {
    "FLOOR": math.floor,
    "CEIL": math.ceil,
    "ROUND": _round_away,
}


def round_to_digits(number: Number, digits: int) -> Number:
    """Return a number rounded to so many digits after the point, before it if they are negative."""
    scale = constant(Fraction(10) ** abs(digits))
    if digits >= 0:
        return quotient(call("ROUND", product([number, scale])), scale)
    return product([call("ROUND", quotient(number, scale)), scale])


def remainder(numerator: Number, denominator: Number) -> Number:
    """Return what is left of one whole number divided by another, with the sign of the first."""
    if isinstance(denominator, Constant):
        if not denominator.value:
            raise ExpressionRefused.not_allowed(
                "a remainder of a division by zero", "Divide by a number that is not zero."
            )
        if isinstance(numerator, Constant):
            whole = math.trunc(numerator.value / denominator.value)
            return constant(numerator.value - whole * denominator.value)
    return Remainder(numerator, denominator)


def extreme(function: Extremum, items: Sequence[Number]) -> Number:
    """Return the smallest or the largest of those of several numbers that are known."""
    flat = [
        part
        for item in items
        for part in (item.items if isinstance(item, Extreme) and item.function == function else (item,))
    ]
    fixed = [part.value for part in flat if isinstance(part, Constant)]
    kept = {part for part in flat if not isinstance(part, Constant)}
    if fixed:
        kept.add(constant(min(fixed) if function == "LEAST" else max(fixed)))
    ordered = tuple(sorted(kept, key=lambda node: node.text))
    return ordered[0] if len(ordered) == 1 else Extreme(function, ordered)


def coalesce(items: Sequence[Number]) -> Number:
    """Return the first of several numbers that is known."""
    flat = [part for item in items for part in (item.items if isinstance(item, Coalesce) else (item,))]
    return flat[0] if len(flat) == 1 else Coalesce(tuple(flat))


def case(branches: Sequence[tuple[Condition, Number]], otherwise: Number) -> Number:
    """Return the number of the first condition that is true."""
    if len(branches) == 1 and isinstance(otherwise, Constant):
        condition, value = branches[0]
        if isinstance(value, Constant) and {value.value, otherwise.value} == {Fraction(0), Fraction(1)}:
            holds = is_true(condition)
            return indicator(holds if value.value else opposite(holds))
    return Case(tuple((where_true(condition), value) for condition, value in branches), otherwise)


def indicator(condition: Condition) -> Number:
    """Return a condition as the number 0 or 1, unknown where it is."""
    return constant(int(condition.value)) if isinstance(condition, Truth) else Indicator(condition)


def shift_date(date: Date, days: Number) -> Date:
    """Return a date some days later."""
    if isinstance(date, DateShift):
        days = total([(1, date.days), (1, days)])
        date = date.date
    if not isinstance(days, Constant):
        return DateShift(date, days)
    if isinstance(date, DateConstant) and days.value.denominator == 1:
        try:
            return DateConstant(date.day + datetime.timedelta(days=int(days.value)))
        except OverflowError:
            raise beyond_calendar() from None
    return DateShift(date, days) if days.value else date


def beyond_calendar() -> ExpressionRefused:
    """Return the error for a date that the calendar does not have."""
    return ExpressionRefused.not_allowed(
        "a date that could be before the year 1 or after 9999", "Add a smaller number of days."
    )


def date_difference(later: Date, earlier: Date) -> Number:
    """Return the days from one date to another."""
    shifts: list[tuple[int, Number]] = []
    ends = []
    for sign, date in ((1, later), (-1, earlier)):
        if isinstance(date, DateShift):
            shifts.append((sign, date.days))
        ends.append(date.date if isinstance(date, DateShift) else date)
    one, other = ends
    if isinstance(one, DateConstant) and isinstance(other, DateConstant):
        return total([(1, constant((one.day - other.day).days)), *shifts])
    return total([(1, DateDifference(one, other)), *shifts])


def choose_date(function: Literal["COALESCE", "LEAST", "GREATEST"], items: Sequence[Date]) -> Date:
    """Return the first known, the earliest or the latest of several dates."""
    flat = [
        part
        for item in items
        for part in (item.items if isinstance(item, DateChoice) and item.function == function else (item,))
    ]
    if function != "COALESCE":
        flat = sorted(set(flat), key=lambda node: node.text)
    return flat[0] if len(flat) == 1 else DateChoice(function, tuple(flat))


def _compare_dates(relation: Relation, left: Date, right: Date) -> Condition:
    """Return the comparison of two dates; of a column with a day as that of its number."""
    if isinstance(left, DateConstant) and isinstance(right, DateConstant):
        return compare(relation, constant(left.day.toordinal()), constant(right.day.toordinal()))
    if isinstance(left, DateColumn) and isinstance(right, DateColumn) and left.first == right.first:
        return compare(relation, left.reference, right.reference)
    for date, day in ((left, right), (right, left)):
        base, days = (date.date, date.days) if isinstance(date, DateShift) else (date, Constant(Fraction(0)))
        whole = isinstance(days, Constant) and days.value.denominator == 1
        if whole and isinstance(base, DateColumn) and isinstance(day, DateConstant):
            assert isinstance(days, Constant)
            fixed = constant((day.day - base.first).days - days.value)
            try:
                base.first + datetime.timedelta(days=int(fixed.value))
            except OverflowError:
                raise beyond_calendar() from None
            sides = (base.reference, fixed) if date is left else (fixed, base.reference)
            return compare(relation, *sides)
    if relation in ("=", "<>"):
        left, right = sorted((left, right), key=lambda node: node.text)
    return Compare(relation, left, right)


def is_missing(node: Node) -> Condition:
    """Return the test whether a part is unknown."""
    match node:
        case Constant() | Truth() | DateConstant():
            return Truth(False)
        case DateColumn(reference=Reference(missing=missing)):
            return missing or Truth(False)
        case DateField(date=DateColumn() as date):
            return is_missing(date)
        case DateDifference(later=DateColumn() | DateConstant(), earlier=DateColumn() | DateConstant()):
            return junction("OR", [is_missing(node.later), is_missing(node.earlier)])
        case Reference(missing=missing):
            return missing or Truth(False)
        case Member() if node.nullable:
            return _replace(node, set(), True)
        case Indicator(condition=argument) | Power(base=argument) | Call(function="ABS", argument=argument):
            return is_missing(argument)
        case Quotient(numerator=argument, denominator=Constant()):
            return is_missing(argument)
        case Sum(terms=terms):
            return junction("OR", [is_missing(term) for _, term in terms])
        case Product(factors=factors):
            return junction("OR", map(is_missing, factors))
        case Compare(left=left, right=right):
            return junction("OR", [is_missing(left), is_missing(right)])
        case Junction():
            node = min(node, opposite(node), key=lambda either: either.text)
    # The bounds of what could be undefined, such as a quotient, are still to be looked at.
    return Test(node, "NULL")


def is_true(condition: Condition) -> Condition:
    """Return the test whether a condition is true, which is false where the condition is unknown."""
    if not condition.nullable:
        return condition
    if isinstance(condition, Junction):
        return junction(condition.word, map(is_true, condition.parts))
    if isinstance(condition, Member):
        return member(_replace(condition, set(condition.codes), False))
    return Test(condition, "TRUE")


def where_true(condition: Condition) -> Condition:
    """Return the one form of the conditions that are true for the same rows.

    After WHERE and WHEN, and under IS TRUE, a condition that is false does what an unknown one does.
    """
    simpler = condition
    if isinstance(condition, Junction):
        parts = tuple(map(where_true, condition.parts))
        # Parts that stay as they are were joined before.
        simpler = condition if parts == condition.parts else junction(condition.word, parts)
    elif isinstance(condition, Test) and condition.word == "TRUE":
        assert isinstance(condition.subject, Condition)
        simpler = condition.subject
    elif isinstance(condition, Member) and not condition.missing and None in condition.levels:
        decided = condition.codes in ((), condition.known_codes)
        simpler = member(_replace(condition, set(condition.codes), False if decided else None))
    return simpler if simpler == condition else where_true(simpler)


def compare(
    relation: Literal["<", "<=", "=", "<>", ">", ">="], left: Number | Date, right: Number | Date
) -> Condition:
    """Return the comparison of two numbers, or of two dates."""
    if relation == ">":
        return compare("<", right, left)
    if relation == ">=":
        return compare("<=", right, left)
    if isinstance(left, Date) or isinstance(right, Date):
        assert isinstance(left, Date)
        assert isinstance(right, Date)
        return _compare_dates(relation, left, right)
    if isinstance(left, Constant) and isinstance(right, Constant):
        a, b = left.value, right.value
        return Truth({"<": a < b, "<=": a <= b, "=": a == b, "<>": a != b}[relation])
    if relation not in ("=", "<>"):
        return Compare(relation, left, right)
    for number, fixed in ((left, right), (right, left)):
        if isinstance(number, Reference) and number.levels and isinstance(fixed, Constant):
            # A category of whole numbers: its text is read as a test for a level.
            codes = tuple(i for i, level in enumerate(number.levels) if level == fixed.value)
            test = member(Member(number.name, number.levels, codes, None if number.nullable else False))
            return test if relation == "=" else opposite(test)
    return Compare(relation, *sorted((left, right), key=lambda node: node.text))


def member(test: Member) -> Condition:
    """Return the test of a column for levels; a constant if it is true, or false, for all of them."""
    chosen = test.true_codes
    if test.missing is None or 0 < len(chosen) < len(test.levels):
        return test
    return Truth(bool(chosen))


def opposite(condition: Condition) -> Condition:
    """Return the negation of a condition, which is unknown where the condition is."""
    if isinstance(condition, Truth):
        return Truth(not condition.value)
    if isinstance(condition, Compare):
        relation, swapped = _OPPOSITE[condition.relation]
        left, right = condition.left, condition.right
        return compare(relation, right, left) if swapped else compare(relation, left, right)
    if isinstance(condition, Test):
        return Test(condition.subject, _OTHERWISE[condition.word])
    if isinstance(condition, Member):
        missing = None if condition.missing is None else not condition.missing
        return member(_replace(condition, set(condition.known_codes) - set(condition.codes), missing))
    assert isinstance(condition, Junction)
    return junction("OR" if condition.word == "AND" else "AND", [opposite(part) for part in condition.parts])


_TRUE, _FALSE = Truth(True), Truth(False)


def junction(word: Literal["AND", "OR"], parts: Iterable[Condition]) -> Condition:
    """Return conditions joined by AND or OR: sorted, each once."""
    kept: set[Condition] = set()
    tests: dict[str, Member] = {}
    neutral = _TRUE if word == "AND" else _FALSE
    for part in parts:
        for inner in part.parts if isinstance(part, Junction) and part.word == word else (part,):
            if not isinstance(inner, Member):
                kept.add(inner)
            elif inner.name in tests:
                tests[inner.name] = _merge(word, tests[inner.name], inner)
            else:
                tests[inner.name] = inner
    kept.update(member(test) for test in tests.values())
    kept.discard(neutral)
    ordered = tuple(sorted(kept, key=lambda node: node.text))
    if not ordered:
        return neutral
    return ordered[0] if len(ordered) == 1 else Junction(word, ordered)


def _merge(word: Literal["AND", "OR"], one: Member, other: Member) -> Member:
    """Return two tests of a column joined, level by level."""
    codes, more = set(one.codes), set(other.codes)
    said = {one.missing, other.missing}
    deciding = word == "OR"  # TRUE OR unknown is true, FALSE AND unknown is false
    missing = deciding if deciding in said else None if None in said else not deciding
    return _replace(one, codes & more if word == "AND" else codes | more, missing)


def _replace(test: Member, codes: set[int], missing: bool | None) -> Member:
    """Return the test of the same column with other answers."""
    return Member(
        test.name, test.levels, tuple(sorted(codes)), missing if None in test.levels else False, test.flag
    )
