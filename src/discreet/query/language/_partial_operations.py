"""Operations that some numbers do not have: refused unless the bounds show that every row has them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from discreet.errors import ExpressionRefused
from discreet.query.language._elementary import EXP_LARGEST, LN_SMALLEST, exponential, logarithm

if TYPE_CHECKING:
    from discreet.query.language._program import Program

SMALLEST_DENOMINATOR = 1e-9
_LARGEST_WHOLE = 2.0**53


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
    """Record a function of one argument; refuses arguments that could be outside its domain.

    Parameters
    ----------
    program : Program
        Program that the operations are recorded in.
    word : str
        Name of the function, in capitals.
    argument : int
        Place of its argument in the program.
    """
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
