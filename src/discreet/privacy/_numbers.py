"""Checked arguments and directed rounding, shared by the arithmetic of promises.

A number that a guarantee rests on is never rounded to nearest: costs go up, allowances and floors go
down. Where the exact value is rational it is computed with :class:`fractions.Fraction` and rounded
once, so that nothing needs to be argued about how many roundings there were.
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Half the distance from 1 to the next float: the relative error of one correctly rounded operation.
UNIT = 2.0**-53


def finite(
    function: str,
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    way_out: str,
) -> float:
    """Return ``value`` as a float inside the given limits, or raise :class:`ParameterError`."""
    limits = [
        f"{word} {limit:.17g}"
        for word, limit in (
            ("above", above),
            ("at least", least),
            ("below", below),
            ("at most", most),
        )
        if limit is not None
    ]
    wanted = " ".join(["a finite number", " and ".join(limits)]).strip()
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    fits = (
        math.isfinite(number)
        and (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
        and (most is None or number <= most)
    )
    if not fits:
        raise ParameterError(
            f"The parameter {name} of {function} must be {wanted}, and was {value!r}. {way_out}"
        )
    return number


def whole(function: str, name: str, value: Any, *, least: int, way_out: str) -> int:
    """Return ``value`` as an int of at least ``least``, or raise :class:`ParameterError`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ParameterError(
            f"The parameter {name} of {function} must be a whole number of at least {least}, "
            f"and was {value!r}. {way_out}"
        )
    return number


def round_up(exact: Fraction) -> float:
    """Return the smallest float that is at least ``exact`` (infinity when it is too large)."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def round_down(exact: Fraction) -> float:
    """Return the largest float that is at most ``exact``, which must be in range."""
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, -math.inf)


def binary_root(exact: Fraction) -> tuple[int, int]:
    """Return the square root of a number, rounded down, as an integer of at least 64 bits and a shift."""
    # Scaled by a power of four until the integer root has so many.
    shift = max(0, 128 - exact.numerator.bit_length() + exact.denominator.bit_length())
    shift += shift & 1
    return math.isqrt((exact.numerator << shift) // exact.denominator), shift // 2


def sqrt_up(exact: Fraction) -> float:
    """Return the smallest float whose square is at least ``exact`` (infinity when too large)."""
    # Floats near the root are whole numbers of its last bit, and a whole number is at least a root exactly
    # if it is at least the root rounded up.
    root, shift = binary_root(exact)
    root += Fraction(root * root, 1 << 2 * shift) < exact
    return round_up(Fraction(root, 1 << shift))


def step_until(holds: Callable[[float], bool], start: float, direction: float) -> float:
    """Move ``start`` by a few units in the last place, more each time, until ``holds``.

    ``direction`` is +1 or -1. A root found by iteration stands a few roundings from the place where
    the guarantee is met as floats compare; this closes the gap on the safe side.
    """
    move = 0.0
    value = start
    while not holds(value):
        move = 2.0 * UNIT if move == 0.0 else 2.0 * move
        assert move <= 1.0, "no nearby number meets the requirement"
        value = start * (1.0 + direction * move)
    return value


SHORT_BITS = 24
"""Significant bits of a calibrated amount of noise."""


def shorter_up(value: float) -> float:
    """Return the least number with 24 significant bits that is not below a positive one.

    Whatever two processors compute with different last digits is then the same number on both, but for about
    one in ten million values.
    """
    fraction, exponent = math.frexp(value)
    return math.ldexp(math.ceil(math.ldexp(fraction, SHORT_BITS)), exponent - SHORT_BITS)
