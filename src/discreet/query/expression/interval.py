"""What a number can be, whatever the row: an interval, and a step of which it is a multiple.

Every operation of the language is one correctly rounded operation on doubles, and rounding is monotone. So
the ends of an interval, computed with the very same operations, bound the *computed* values exactly: nothing
has to be widened for rounding.

The step (``quantum``) says that a value is a whole multiple of ``2**quantum``, hence zero or at least that
large. It tells where a product could fall below the smallest double, which PostgreSQL makes an error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LARGEST = 1e200
"""No result of an operation may be larger; beyond that an engine could overflow."""
LOWEST_QUANTUM = -1000
"""Products are kept above 2**-1000; the smallest normal double is 2**-1022."""
_ZERO_QUANTUM = 1023


class TooWide(ArithmeticError):
    """An operation could give a value beyond :data:`LARGEST`."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The values ``lower`` to ``upper``, all multiples of ``2**quantum``.

    Raises
    ------
    TooWide
        If a bound lies beyond 1e200.
    """

    lower: float
    upper: float
    quantum: int

    def __post_init__(self) -> None:
        assert self.lower <= self.upper, "an interval has its lower end first"
        if not -LARGEST <= self.lower <= self.upper <= LARGEST:
            raise TooWide
        smallest = self.magnitude[0]
        if smallest and exponent(smallest) - 52 > self.quantum:
            # A double of at least 2**e is a multiple of 2**(e - 52).
            object.__setattr__(self, "quantum", exponent(smallest) - 52)

    @property
    def magnitude(self) -> tuple[float, float]:
        """The smallest and the largest distance from zero."""
        smallest = 0.0 if self.lower <= 0.0 <= self.upper else min(abs(self.lower), abs(self.upper))
        return smallest, max(abs(self.lower), abs(self.upper))

    @property
    def is_point(self) -> bool:
        """Whether there is only one value."""
        return self.lower == self.upper

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.lower + other.lower, self.upper + other.upper, min(self.quantum, other.quantum))

    def __neg__(self) -> Interval:
        return Interval(-self.upper, -self.lower, self.quantum)

    def __sub__(self, other: Interval) -> Interval:
        return self + -other

    def __mul__(self, other: Interval) -> Interval:
        # Signs decide which corner is the smallest product, so all four are looked at.
        corners = [a * b for a in (self.lower, self.upper) for b in (other.lower, other.upper)]
        return Interval(min(corners), max(corners), self.quantum + other.quantum)

    def square(self) -> Interval:
        """Return the square, which is never negative."""
        smallest, largest = self.magnitude
        return Interval(smallest * smallest, largest * largest, 2 * self.quantum)

    def __truediv__(self, other: Interval) -> Interval:
        assert other.magnitude[0] > 0.0, "a denominator is bounded away from zero"
        corners = [a / b for a in (self.lower, self.upper) for b in (other.lower, other.upper)]
        # A quotient that is not zero is at least 2**quantum / largest denominator, and then a double.
        quantum = self.quantum - exponent(other.magnitude[1]) - 1 - 52
        return Interval(min(corners), max(corners), quantum)

    def sqrt(self) -> Interval:
        """Return the square root of a value that is never negative."""
        return Interval(math.sqrt(self.lower), math.sqrt(self.upper), self.quantum // 2 - 53)

    def floor(self) -> Interval:
        """Return the largest whole number that is not larger."""
        return Interval(float(math.floor(self.lower)), float(math.floor(self.upper)), max(self.quantum, 0))

    def absolute(self) -> Interval:
        """Return the distance from zero."""
        return Interval(*self.magnitude, self.quantum)

    def least(self, other: Interval) -> Interval:
        """Return the smaller of two values."""
        return Interval(
            min(self.lower, other.lower), min(self.upper, other.upper), min(self.quantum, other.quantum)
        )

    def greatest(self, other: Interval) -> Interval:
        """Return the larger of two values."""
        return Interval(
            max(self.lower, other.lower), max(self.upper, other.upper), min(self.quantum, other.quantum)
        )

    def hull(self, other: Interval) -> Interval:
        """Return what either of two values can be."""
        return Interval(
            min(self.lower, other.lower), max(self.upper, other.upper), min(self.quantum, other.quantum)
        )


def span(values: Iterable[float]) -> Interval:
    """Return the interval of some values."""
    values = list(values)
    return Interval(min(values), max(values), min(map(_quantum, values)))


def _quantum(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    if numerator == 0:
        return _ZERO_QUANTUM
    trailing = (numerator & -numerator).bit_length() - 1
    return trailing - (denominator.bit_length() - 1)


def exponent(value: float) -> int:
    """Return the largest ``e`` with ``2**e <= value``."""
    return math.frexp(value)[1] - 1
