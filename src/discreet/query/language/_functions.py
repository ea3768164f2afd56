"""Functions, divisions and powers of an expression, in operations that every engine computes with equal bits.

EXP, LN and powers become sums and products. What some numbers do not have, such as a root or a quotient, is
refused unless the bounds show that every row has it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from discreet.errors import ExpressionRefused
from discreet.query.language._program import Program, exponent

if TYPE_CHECKING:
    from collections.abc import Callable

EXP_LARGEST = 200.0
"""Larger arguments are refused; smaller ones than ``-EXP_LARGEST`` count as that, an error of 1.4e-87."""
LN_SMALLEST = 1e-9
"""Smaller arguments are refused."""

_LOG2_E = 1.4426950408889634
# ln 2 in two doubles; the first has 32 significant bits, so that its product with any k used here is exact.
_LN2_HIGH = 0.6931471803691238
_LN2_LOW = 1.9082149292705877e-10
_EXP_TERMS = tuple(1.0 / math.factorial(n) for n in range(14))
_REMAINDER = 0.3466  # ln(2) / 2 = 0.34657..., and the rounding of the reduction
_LN_TERMS = tuple(2.0 / (2 * n + 1) for n in range(12))
_MANTISSA = (0.7071, 1.4143)  # 1 / sqrt(2) to sqrt(2), a little wider
_SQRT2 = 1.4142135623730951
_RUNGS = 24  # powers of two are found in one ladder of this size, or in two
SMALLEST_DENOMINATOR = 1e-9
_LARGEST_WHOLE = 2.0**53


def power(program: Program, base: int, times: int) -> int:
    """Return the place of ``base ** times``, for a whole exponent of at least 1.

    Every factor grows with the base or with its magnitude, and rounding is monotone: on either side of
    zero the computed power is monotone, so it lies between its values at the ends and at zero.
    """
    result = _power(program, base, times)
    known = program.interval(base)
    turns = [known.lower, known.upper, *([0.0] if known.lower < 0.0 < known.upper else [])]
    values = [program.replay(result, base, value) for value in turns]
    program.narrow(result, min(values), max(values))
    return result


def _power(program: Program, base: int, times: int) -> int:
    """Return the place of ``base ** times`` by repeated squaring, in a fixed order of products."""
    factors, square = [], base
    while times:
        if times & 1:
            factors.append(square)
        times >>= 1
        if times:
            square = program.multiply(square, square)
    result = factors.pop()
    while factors:
        result = program.multiply(result, factors.pop())
    return result


def exponential(program: Program, argument: int) -> int:
    """Return the place of ``exp(argument)``, for an argument of at most 200."""
    return _clamp_to_ends(program, argument, _exponential)


def _exponential(program: Program, argument: int) -> int:
    """Return the place of ``exp(argument)``, not yet clamped to its values at the ends.

    Notes
    -----
    ``exp(x) = 2**k exp(r)`` with ``k = floor(x / ln 2 + 1/2)`` and ``r = x - k ln 2``, ``ln 2`` in two parts;
    ``exp(r)`` is a polynomial.
    """
    x = program.greatest(argument, program.constant(-EXP_LARGEST))
    scaled = program.multiply(x, program.constant(_LOG2_E))
    k = program.floor(program.add(scaled, program.constant(0.5)))
    r = program.subtract(x, program.multiply(k, program.constant(_LN2_HIGH)))
    r = program.subtract(r, program.multiply(k, program.constant(_LN2_LOW)))
    r = program.clamp(r, -_REMAINDER, _REMAINDER)
    return program.multiply(_polynomial(program, r, _EXP_TERMS), _power_of_two(program, k))


def _power_of_two(program: Program, k: int) -> int:
    """Return the place of ``2**k`` for a whole number."""
    known = program.interval(k)
    low, high = int(known.lower), int(known.upper)
    if high - low <= _RUNGS:
        rungs = range(low, high + 1)
        return program.ladder(k, [n - 0.5 for n in rungs[1:]], [2.0**n for n in rungs])
    coarse = range(low, high + 1, _RUNGS)
    edges = [n - 0.5 for n in coarse[1:]]
    base = program.ladder(k, edges, [float(n) for n in coarse])
    rest = program.clamp(program.subtract(k, base), 0.0, _RUNGS - 1.0)
    return program.multiply(program.ladder(k, edges, [2.0**n for n in coarse]), _power_of_two(program, rest))


def logarithm(program: Program, argument: int) -> int:
    """Return the place of the natural logarithm of an argument of at least 1e-9."""
    return _clamp_to_ends(program, argument, _logarithm)


def _logarithm(program: Program, argument: int) -> int:
    """Return the place of ``ln(argument)``, not yet clamped to its values at the ends.

    Notes
    -----
    ``x = m 2**e`` with ``m`` from ``sqrt(1/2)`` to ``sqrt(2)``; with ``z = (m - 1) / (m + 1)``,
    ``ln x = e ln 2 + 2 atanh(z)``, whose series is a polynomial in ``z**2``; ``ln 2`` is in two parts.
    """
    known = program.interval(argument)
    low, high = exponent(known.lower / _SQRT2) + 1, exponent(known.upper / _SQRT2) + 1
    m, e = argument, program.constant(0.0)
    if high - low > _RUNGS:
        m, e = _reduce_argument(
            program, m, range(low, high + 1, _RUNGS), upper=_MANTISSA[1] * 2.0 ** (_RUNGS - 1)
        )
        low, high = 0, _RUNGS - 1
    m, rest = _reduce_argument(program, m, range(low, high + 1), upper=_MANTISSA[1])
    e = program.add(e, rest)
    one = program.constant(1.0)
    z = program.divide(program.subtract(m, one), program.add(m, one))
    series = program.multiply(z, _polynomial(program, program.multiply(z, z), _LN_TERMS))
    correction = program.multiply(e, program.constant(_LN2_LOW))
    return program.add(program.multiply(e, program.constant(_LN2_HIGH)), program.add(series, correction))


def _reduce_argument(program: Program, x: int, exponents: range, *, upper: float) -> tuple[int, int]:
    """Divide by the power of two, among those of ``exponents``, that leaves a mantissa; both places."""
    edges = [_SQRT2 * 2.0 ** (n - 1) for n in exponents[1:]]
    scale = program.ladder(x, edges, [2.0**-n for n in exponents])
    mantissa = program.clamp(program.multiply(x, scale), _MANTISSA[0], upper)
    return mantissa, program.ladder(x, edges, [float(n) for n in exponents])


def _polynomial(program: Program, x: int, terms: tuple[float, ...]) -> int:
    """Return the place of a polynomial by Horner's rule, coefficients lowest first."""
    *lower, highest = terms
    value = program.constant(highest)
    for term in reversed(lower):
        value = program.add(program.constant(term), program.multiply(x, value))
    return value


def _clamp_to_ends(program: Program, argument: int, function: Callable[[Program, int], int]) -> int:
    """Return the place of a monotone function, clamped to its computed values at the argument's ends."""
    interval = program.interval(argument)
    # On a constant the program carries the operations out as they are recorded.
    ends = [
        program.interval(function(program, program.constant(end))).lower
        for end in (interval.lower, interval.upper)
    ]
    return program.clamp(function(program, argument), min(ends), max(ends))


def divide(program: Program, above: int, below: int) -> int:
    """Record a quotient; refuses a denominator that could be zero."""
    if program.interval(below).magnitude[0] < SMALLEST_DENOMINATOR:
        raise ExpressionRefused.not_allowed(
            "a division by something that could be zero",
            "Keep the denominator away from zero: x / GREATEST(y, 1).",
        )
    return program.divide(above, below)


def remainder(program: Program, above: int, below: int) -> int:
    """Record what is left of a division of whole numbers, with the sign of the first."""
    one, two = program.interval(above), program.interval(below)
    if min(one.quantum, two.quantum) < 0 or max(one.magnitude[1], two.magnitude[1]) >= _LARGEST_WHOLE:
        raise ExpressionRefused.not_allowed(
            "MOD of a number that need not be whole", "Write MOD(FLOOR(x), 10), of a number within 2**53."
        )
    if two.magnitude[0] < 1.0:
        raise ExpressionRefused.not_allowed(
            "a remainder of a division by something that could be zero",
            "Keep the divisor away from zero: MOD(x, GREATEST(y, 1)).",
        )
    size, divisor = program.absolute(above), program.absolute(below)
    # Below 2**53 the quotient of whole numbers is never rounded up to the next whole one.
    times = program.floor(program.divide(size, divisor))
    rest = program.subtract(size, program.multiply(times, divisor))
    program.narrow(rest, 0.0, min(one.magnitude[1], two.magnitude[1] - 1.0))
    return _with_sign(program, above, rest)


def apply_function(program: Program, word: str, argument: int) -> int:
    """Record a function of one argument; refuses arguments that could be outside its domain."""
    interval = program.interval(argument)
    if word == "ABS":
        return program.absolute(argument)
    if word == "SQRT":
        if interval.lower < 0.0:
            raise ExpressionRefused.not_allowed(
                "SQRT of something that could be negative", "Write SQRT(GREATEST(x, 0))."
            )
        return program.sqrt(argument)
    if word == "LN":
        if interval.lower < LN_SMALLEST:
            raise ExpressionRefused.not_allowed(
                f"LN of something that could be below {LN_SMALLEST:g}",
                "Write LN(GREATEST(x, 1)).",
            )
        return logarithm(program, argument)
    if word == "EXP":
        if interval.upper > EXP_LARGEST:
            raise ExpressionRefused.not_allowed(
                f"EXP of something that could pass {EXP_LARGEST:g}", "Write EXP(LEAST(x, 10))."
            )
        return exponential(program, argument)
    if interval.magnitude[1] > _LARGEST_WHOLE:
        raise ExpressionRefused.not_allowed(
            f"{word} of something that could pass 2**53", f"Write {word}(LEAST(x, 1e6))."
        )
    if word == "ROUND":
        return _round(program, argument)
    return (
        program.floor(argument)
        if word == "FLOOR"
        else program.negate(program.floor(program.negate(argument)))
    )


def _round(program: Program, argument: int) -> int:
    """Record the nearest whole number, of two the one that is farther from zero."""
    interval = program.interval(argument)
    size = program.absolute(argument)
    below = program.floor(size)
    up = program.compare("less_equal", program.constant(0.5), program.subtract(size, below))
    step = program.select(up, program.constant(1.0), program.constant(0.0))
    place = _with_sign(program, argument, program.add(below, step))
    ends = [
        math.copysign(math.floor(abs(Fraction(e)) + Fraction(1, 2)), e)
        for e in (interval.lower, interval.upper)
    ]
    program.narrow(place, *(end + 0.0 for end in ends))
    return place


def _with_sign(program: Program, signed: int, size: int) -> int:
    """Record a number that is not negative, with the sign of another one."""
    interval = program.interval(signed)
    if interval.lower >= 0.0:
        return size
    if interval.upper <= 0.0:
        return program.negate(size)
    below = program.compare("less", signed, program.constant(0.0))
    return program.select(below, program.negate(size), size)
