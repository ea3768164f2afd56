"""Exact non-negative amounts for ledgers: decimals of sixty places, rounded in the safe direction.

A privacy parameter is the decimal that it prints: ``0.1`` in a promise, in a statement and in a ledger
is one tenth, though the nearest 64-bit number is not. Counting in decimal units therefore lets ten
charges of 0.1 fill a limit of 1 exactly, where binary units rounded up would refuse the tenth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from discreet.errors import ParameterError

PLACES = 60
"""Decimal places: a total variation of 2**-117 per draw still has two dozen digits."""

_ONE = 10**PLACES


def exact(value: float) -> Fraction:
    """Return the decimal that `value` prints as, as a fraction.

    It differs from the 64-bit number by at most one part in 2**53, and so does a sum of such decimals
    from the sum of the numbers: less than the last digit that either prints.
    """
    return Fraction(repr(float(value)))


def float_up(value: Fraction) -> float:
    """Return the smallest 64-bit number that prints at least `value`; infinity past the range."""
    try:
        near = float(value)
    except OverflowError:
        return math.inf
    return near if exact(near) >= value else math.nextafter(near, math.inf)


def float_down(value: Fraction) -> float:
    """Return the largest 64-bit number that prints at most `value`."""
    try:
        near = float(value)
    except OverflowError:
        return math.nextafter(math.inf, 0.0)
    return near if exact(near) <= value else math.nextafter(near, -math.inf)


@dataclass(frozen=True, slots=True, order=True, repr=False)
class Amount:
    """Non-negative number stored as an integer count of 10**-60.

    Parameters
    ----------
    count : int
        Number of units of 10**-60; at least 0.
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ParameterError(
                f"count of Amount must be at least 0, got {self.count}. Books never run backwards."
            )

    @classmethod
    def rounded_up(cls, value: Fraction | float | int) -> Amount:
        """Return `value` rounded up to a unit: for what was spent."""
        number = exact(value) if isinstance(value, float) else Fraction(value)
        return cls(math.ceil(number * _ONE))

    @classmethod
    def rounded_down(cls, value: Fraction | float | int) -> Amount:
        """Return `value` rounded down to a unit: for what may be spent."""
        number = exact(value) if isinstance(value, float) else Fraction(value)
        return cls(math.floor(number * _ONE))

    @classmethod
    def parse(cls, text: str) -> Amount:
        """Parse the decimal that :meth:`__str__` wrote; a part of a unit is a ParameterError."""
        try:
            count = Fraction(text) * _ONE
        except (ValueError, ZeroDivisionError, TypeError):
            count = Fraction(1, 2)
        if count.denominator != 1 or count < 0:
            raise ParameterError(
                f"text of Amount must be a decimal of at most {PLACES} places, got {text!r}. "
                "Write it with str(amount)."
            )
        return cls(int(count))

    @property
    def exact(self) -> Fraction:
        """The number as an exact fraction."""
        return Fraction(self.count, _ONE)

    def __add__(self, other: Amount) -> Amount:
        # Most amounts that a ledger adds up are zero.
        if not other.count:
            return self
        return Amount(self.count + other.count) if self.count else other

    def times(self, factor: Amount) -> Amount:
        """Return the product, rounded up to a unit."""
        return Amount(-(-self.count * factor.count // _ONE))

    def less(self, other: Amount) -> Amount:
        """Return the difference, or zero if `other` is larger."""
        return Amount(max(0, self.count - other.count))

    def root_up(self) -> Fraction:
        """Return the square root, rounded up to a unit."""
        squared = self.count * _ONE
        root = math.isqrt(squared)
        return Fraction(root + (root * root < squared), _ONE)

    def __bool__(self) -> bool:
        return self.count > 0

    def __float__(self) -> float:
        return float_up(self.exact)

    def __repr__(self) -> str:
        return f"Amount.parse({str(self)!r})"

    def __str__(self) -> str:
        if not self.count:
            return "0"
        whole, part = divmod(self.count, _ONE)
        digits = f"{part:0{PLACES}d}".rstrip("0")
        return f"{whole}.{digits}" if digits else str(whole)


ZERO = Amount(0)
