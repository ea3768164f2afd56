"""Constructors of nodes, which bring every spelling of an expression into one form.

``age + 1 > 2 * (income)`` and ``income * 2 < 1 + age`` are one question, so they are one node, one
canonical text, and for a ledger one answer. What is done: operands that may be exchanged are sorted and
flattened, constants are folded as exact fractions, negation is pushed down to comparisons and lists,
repeated factors become powers. What is computed is *defined* as what the node computes, so no rewriting
can make an answer stand for another question; and each rewriting is right for real numbers. Nothing
that was written is dropped before its bounds were looked at: ``FALSE AND 1 / x > 2`` still needs an
``x`` away from zero.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from discreet.errors import ExpressionRefused
from discreet.query.language.nodes import (
    Call,
    Case,
    Compare,
    Condition,
    Constant,
    Extreme,
    Extremum,
    Function,
    Indicator,
    Junction,
    Member,
    Number,
    Power,
    Product,
    Quotient,
    Relation,
    Sum,
    Truth,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_EXPONENT = 8
_LARGEST = Fraction(10**100)
_LONGEST = 400  # bits of a numerator or denominator that are kept exactly
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
    if value and not 1 / _LARGEST <= abs(value) <= _LARGEST:
        raise ExpressionRefused(
            "a number beyond 1e100, or nearer to zero than 1e-100", "Write numbers in a smaller unit."
        )
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LONGEST:
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
        factor_sign, inner = _unsigned(factor)
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


def _unsigned(number: Number) -> tuple[int, Number]:
    """Return a sign and a number: -1 and its operand for a number that is only negated."""
    if isinstance(number, Constant):
        return (-1, constant(-number.value)) if number.value < 0 else (1, number)
    if isinstance(number, Sum) and len(number.terms) == 1:
        return number.terms[0]
    return 1, number


def quotient(numerator: Number, denominator: Number) -> Number:
    """Return the quotient of two numbers."""
    upper_sign, above = _unsigned(numerator)
    lower_sign, below = _unsigned(denominator)
    if isinstance(below, Constant):
        if not below.value:
            raise ExpressionRefused("a division by zero", "Divide by a number that is not zero.")
        if isinstance(above, Constant):
            return constant(upper_sign * lower_sign * above.value / below.value)
        if below.value == 1:
            return total([(upper_sign * lower_sign, above)])
    return total([(upper_sign * lower_sign, Quotient(above, below))])


def power(base: Number, exponent: int) -> Number:
    """Return a number to a whole power from 0 to 8."""
    if isinstance(base, Constant):
        return constant(base.value**exponent)
    sign, inner = _unsigned(base)
    if exponent < 2:
        return base if exponent else Power(inner, 0)
    return total([(sign**exponent, Power(inner, exponent))])


def call(function: Function, argument: Number) -> Number:
    """Return a function of one number."""
    if function == "ABS":
        _, argument = _unsigned(argument)
        if isinstance(argument, Constant):
            return argument
    if function == "FLOOR" and isinstance(argument, Constant):
        return constant(math.floor(argument.value))
    return Call(function, argument)


def extreme(function: Extremum, items: Sequence[Number]) -> Number:
    """Return the smallest or the largest of several numbers."""
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


def case(branches: Sequence[tuple[Condition, Number]], otherwise: Number) -> Number:
    """Return the number of the first condition that holds."""
    if len(branches) == 1 and isinstance(otherwise, Constant):
        condition, value = branches[0]
        if isinstance(value, Constant) and {value.value, otherwise.value} == {Fraction(0), Fraction(1)}:
            return indicator(condition if value.value else opposite(condition))
    return Case(tuple(branches), otherwise)


def indicator(condition: Condition) -> Number:
    """Return a condition as the number 0 or 1."""
    return constant(int(condition.value)) if isinstance(condition, Truth) else Indicator(condition)


def compare(relation: Literal["<", "<=", "=", "<>", ">", ">="], left: Number, right: Number) -> Condition:
    """Return the comparison of two numbers."""
    if relation == ">":
        return compare("<", right, left)
    if relation == ">=":
        return compare("<=", right, left)
    if isinstance(left, Constant) and isinstance(right, Constant):
        a, b = left.value, right.value
        return Truth({"<": a < b, "<=": a <= b, "=": a == b, "<>": a != b}[relation])
    if relation in ("=", "<>") and right.text < left.text:
        left, right = right, left
    return Compare(relation, left, right)


def member(test: Member) -> Condition:
    """Return the test of a category for levels; a constant for none or all of them."""
    if not test.codes:
        return Truth(False)
    return Truth(True) if len(test.codes) == len(test.levels) else test


def opposite(condition: Condition) -> Condition:
    """Return the negation of a condition. No value is NULL or NaN, so each condition is true or false."""
    if isinstance(condition, Truth):
        return Truth(not condition.value)
    if isinstance(condition, Compare):
        relation, swapped = _OPPOSITE[condition.relation]
        left, right = condition.left, condition.right
        return compare(relation, right, left) if swapped else compare(relation, left, right)
    if isinstance(condition, Member):
        return _with_codes(condition, set(range(len(condition.levels))) - set(condition.codes))
    assert isinstance(condition, Junction)
    return junction("OR" if condition.word == "AND" else "AND", [opposite(part) for part in condition.parts])


def junction(word: Literal["AND", "OR"], parts: Iterable[Condition]) -> Condition:
    """Return conditions joined by AND or OR: sorted, each once."""
    kept: set[Condition] = set()
    tests: dict[str, Member] = {}
    neutral = Truth(word == "AND")
    for part in parts:
        for inner in part.parts if isinstance(part, Junction) and part.word == word else (part,):
            if not isinstance(inner, Member):
                kept.add(inner)
            elif inner.name in tests:
                codes = set(tests[inner.name].codes)
                codes = codes & set(inner.codes) if word == "AND" else codes | set(inner.codes)
                tests[inner.name] = _replace_codes(inner, codes)
            else:
                tests[inner.name] = inner
    kept.update(member(test) for test in tests.values())
    kept.discard(neutral)
    ordered = tuple(sorted(kept, key=lambda node: node.text))
    if not ordered:
        return neutral
    return ordered[0] if len(ordered) == 1 else Junction(word, ordered)


def _with_codes(test: Member, codes: set[int]) -> Condition:
    return member(_replace_codes(test, codes))


def _replace_codes(test: Member, codes: set[int]) -> Member:
    return Member(test.name, test.levels, tuple(sorted(codes)), test.flag)
