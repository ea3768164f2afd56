"""Checked arguments, directed rounding, and safe readings of privacy curves.

A number that a guarantee rests on is never rounded to nearest: costs go up, allowances and floors go
down. Where the exact value is rational it is computed with :class:`fractions.Fraction` and rounded
once, so that no count of roundings enters the proof.

Exact non-negative amounts for ledgers: decimals of sixty places, rounded in the safe direction.

A privacy parameter is the decimal that it prints: ``0.1`` in a promise, in a statement and in a ledger
is one tenth, though the nearest 64-bit number is not. Counting in decimal units therefore lets ten
charges of 0.1 fill a limit of 1 exactly, where binary units rounded up would refuse the tenth.
"""

from __future__ import annotations

import math
import operator
import sys
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_UP, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError, PromiseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.privacy._base import Promise
    from discreet.schema.schema import Neighbors

PLACES = 60
"""Decimal places: a total variation of 2**-117 per draw still has two dozen digits."""

_ONE = 10**PLACES


@lru_cache(maxsize=1024)
def exact(value: float) -> Fraction:
    """Return the decimal that `value` prints as, as a fraction.

    It differs from the 64-bit number by at most one part in 2**53, and so does a sum of such decimals
    from the sum of the numbers: less than the last digit that either prints.
    """
    # The printed decimal, not the binary number: people add up what they read in statements.
    # By way of Decimal, which reads digits twice as fast as Fraction.
    return Fraction(Decimal(repr(float(value))))


def float_up(value: Fraction) -> float:
    """Return the smallest 64-bit number that prints at least `value`; infinity past the range."""
    return ratio_up(value.numerator, value.denominator)


def float_down(value: Fraction) -> float:
    """Return the largest 64-bit number that prints at most `value`."""
    return ratio_down(value.numerator, value.denominator)


def ratio_up(above: int, below: int) -> float:
    """Return the smallest 64-bit number that prints at least ``above / below``; infinity past the range."""
    # Python divides whole numbers to the nearest 64-bit number, however large they are. They are compared
    # by products: a fraction would first be reduced, which takes most of the time.
    try:
        near = above / below
    except OverflowError:
        return math.inf
    printed = exact(near)
    enough = printed.numerator * below >= above * printed.denominator
    return near if enough else math.nextafter(near, math.inf)


def ratio_down(above: int, below: int) -> float:
    """Return the largest 64-bit number that prints at most ``above / below``."""
    try:
        near = above / below
    except OverflowError:
        return math.nextafter(math.inf, 0.0)
    printed = exact(near)
    enough = printed.numerator * below <= above * printed.denominator
    return near if enough else math.nextafter(near, -math.inf)


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
            # No whole number of units, so that the check below refuses it with one message for all.
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
        # Floor division of the negative number is a ceiling.
        return Amount(-(-self.count * factor.count // _ONE))

    def less(self, other: Amount) -> Amount:
        """Return the difference, or zero if `other` is larger."""
        return Amount(max(0, self.count - other.count))

    def root_up(self) -> Fraction:
        """Return the square root, rounded up to a unit."""
        # count is in units of 10**-60, and so must be the root.
        squared = self.count * _ONE
        root = math.isqrt(squared)
        return Fraction(root + (root * root < squared), _ONE)

    def __bool__(self) -> bool:
        return self.count > 0

    def __float__(self) -> float:
        return ratio_up(self.count, _ONE)

    def float_down(self) -> float:
        """Return the largest 64-bit number that prints at most the amount."""
        return ratio_down(self.count, _ONE)

    def __repr__(self) -> str:
        return f"Amount.parse({str(self)!r})"

    def __str__(self) -> str:
        if not self.count:
            return "0"
        whole, part = divmod(self.count, _ONE)
        digits = f"{part:0{PLACES}d}".rstrip("0")
        return f"{whole}.{digits}" if digits else str(whole)


ZERO = Amount(0)


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
    try:
        # float() would take True for 1 and "0.5" for a number: both are mistakes of the caller.
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
    if fits:
        return number
    stated = {"above": above, "at least": least, "below": below, "at most": most}
    limits = " and ".join(f"{word} {limit:.17g}" for word, limit in stated.items() if limit is not None)
    wanted = f"a finite number {limits}".strip()
    raise ParameterError(f"The parameter {name} of {function} must be {wanted}, and was {value!r}. {way_out}")


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


def check_epsilon(function: str, value: float) -> float:
    """Return epsilon as a float of at least 0, or raise :class:`ParameterError`."""
    return finite(
        function,
        "epsilon",
        value,
        least=0.0,
        way_out="Give the epsilon of the promise; where there is none, there is no promise to read.",
    )


def check_positive_epsilon(function: str, value: float) -> float:
    """Return epsilon as a float above 0, or raise :class:`ParameterError`."""
    return finite(
        function,
        "epsilon",
        value,
        above=0.0,
        way_out="Ask for an epsilon above 0: at 0 nothing can be said about the data at all.",
    )


def check_delta(function: str, value: float) -> float:
    """Return delta as a float strictly between 0 and 1, or raise :class:`ParameterError`."""
    return finite(
        function,
        "delta",
        value,
        above=0.0,
        below=1.0,
        way_out="Choose a delta far below one over the number of people, such as 1e-6.",
    )


def check_mu(function: str, value: float) -> float:
    """Return mu as a float above 0, or raise :class:`ParameterError`."""
    return finite(
        function,
        "mu",
        value,
        above=0.0,
        way_out="Give the L2 sensitivity divided by the standard deviation of the noise.",
    )


def check_rho(function: str, value: float) -> float:
    """Return rho as a float above 0, or raise :class:`ParameterError`."""
    return finite(
        function,
        "rho",
        value,
        above=0.0,
        way_out="Give the squared L2 sensitivity divided by twice the variance of the noise.",
    )


def check_neighbors(privacy: Promise, neighbors: Neighbors, where: str) -> None:
    """Raise PromiseError if a promise has other neighbors than the table."""
    if privacy.neighbors != neighbors:
        raise PromiseError(
            f"privacy of {where} must be about the neighbors of the table, {neighbors}, was about "
            f"{privacy.neighbors}. Ask for {type(privacy).__name__}(..., neighbors={neighbors!r}), or "
            "register the table under a schema with the other neighbors."
        )


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
    """Return the square root, rounded down, as an integer of at least 64 bits and its binary exponent."""
    # Scale by a power of four until the integer root has that many bits.
    shift = max(0, 128 - exact.numerator.bit_length() + exact.denominator.bit_length())
    shift += shift & 1
    return math.isqrt((exact.numerator << shift) // exact.denominator), shift // 2


def sqrt_up(exact: Fraction) -> float:
    """Return the smallest float whose square is at least ``exact`` (infinity when too large)."""
    # Floats near the root are multiples of the integer root's last bit, and an integer is at least the true
    # root exactly if it is at least the root rounded up to an integer.
    root, shift = binary_root(exact)
    root += Fraction(root * root, 1 << 2 * shift) < exact
    return round_up(Fraction(root, 1 << shift))


def root_down(square: Fraction) -> float:
    """Return the square root, rounded down; raise PromiseError if the square is beyond 64-bit numbers."""
    if square > sys.float_info.max:
        raise PromiseError(
            "an amount of privacy must have a square within the range of 64-bit numbers, and has a larger "
            "one: it promises nothing. Ask for a stronger promise."
        )
    root, shift = binary_root(square)
    # The root is rounded down, but float() rounds to nearest, and `exact` reads the decimal it prints.
    near = float(Fraction(root, 1 << shift))
    return near if exact(near) ** 2 <= square else math.nextafter(near, 0.0)


def exp_up(exponent: Fraction) -> Fraction | None:
    """Return ``exp(exponent)`` rounded up, or None past the range of 64-bit numbers."""
    if not exponent:
        return Fraction(1)
    try:
        # The platform's exp errs by less than one unit in the last place; take two.
        value = math.exp(math.nextafter(float_up(exponent), math.inf))
    except OverflowError:
        return None
    return Fraction(math.nextafter(math.nextafter(value, math.inf), math.inf))


SHORT_BITS = 24
"""Significant bits of a calibrated amount of noise."""


def shorter_up(value: float) -> float:
    """Return the least number with 24 significant bits that is not below a positive ``value``.

    Two processors whose results differ in the last digits then agree, except for about one value in ten
    million.
    """
    fraction, exponent = math.frexp(value)
    return math.ldexp(math.ceil(math.ldexp(fraction, SHORT_BITS)), exponent - SHORT_BITS)


def four_digits(value: float, *, up: bool = False) -> float:
    """Return a value rounded down (or up) to four significant digits; 0 if it is not positive and finite.

    For suggestions alone: a value that is within the rounding error of its computation of a number with four
    digits counts as that number.
    """
    if not 0 < value < math.inf:
        return 0.0
    with localcontext() as context:
        # Rounds away the error of the computation, which would turn 0.3 into 0.2999.
        context.prec = 13
        nearest = +Decimal(value)
        context.prec, context.rounding = 4, ROUND_UP if up else ROUND_DOWN
        return float(+nearest)


def step_until(holds: Callable[[float], bool], start: float, direction: float) -> float:
    """Return the first number that ``holds``, moving from ``start`` by steps that double from one rounding.

    ``direction`` is +1 (up) or -1 (down). A root found by iteration is a few roundings off the number at
    which the guarantee is met as floats compare; this closes the gap on the safe side.
    """
    move = 0.0
    value = start
    while not holds(value):
        # Doubling reaches a result that is many roundings off in few steps, and passes it by at most as much.
        move = 2.0 * UNIT if move == 0.0 else 2.0 * move
        assert move <= 1.0, "no nearby number meets the requirement"
        value = start * (1.0 + direction * move)
    return value


def least_epsilon(enough: Callable[[float], bool], high: float) -> float:
    """Return the smallest epsilon in [0, high] that is enough, by bisection; `high` is known to be enough."""
    if enough(0.0):
        return 0.0
    low = 0.0
    # Ends where no number lies between the two.
    while (middle := low + (high - low) / 2) not in (low, high):
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def sampling_delta(total_variation: Fraction, epsilon: float) -> Fraction:
    """Return ``(1 + exp(epsilon)) * total_variation``, rounded up and at most 1."""
    if not total_variation:
        return Fraction(0)
    growth = exp_up(exact(epsilon))
    return Fraction(1) if growth is None else min(Fraction(1), (1 + growth) * total_variation)


def smallest_epsilon(ideal: Callable[[float], float], delta: float, total_variation: Fraction) -> float:
    """Return the smallest epsilon of an ideal curve at `delta`, less the share of the sampler.

    Notes
    -----
    That share, ``(1 + exp(epsilon)) * total_variation``, grows with epsilon. So set a part of delta aside,
    read the curve at the rest, and check that the part covers the resulting epsilon; then tighten: each
    round sets aside what the last valid epsilon needs, and so stays valid. The largest part is tried last,
    because totals with point events may not have it.
    """
    if not total_variation:
        return ideal(delta)
    whole = exact(delta)
    for halvings in (40, 20, 10, 4, 1):
        part = whole / 2**halvings
        # The share is smallest at epsilon 0: a part that is too small there is so everywhere.
        if sampling_delta(total_variation, 0.0) > part:
            continue
        epsilon = ideal(float_down(whole - part))
        if sampling_delta(total_variation, epsilon) <= part:
            break
    else:
        raise PromiseError(
            f"delta must be well above the sampler's total variation {float(total_variation):g}, "
            f"and {delta:g} is not at this epsilon. Read the promise at a larger delta."
        )
    read = 0.0
    for _ in range(4):
        rest = float_down(whole - sampling_delta(total_variation, epsilon))
        if rest == read:
            break
        read, epsilon = rest, min(epsilon, ideal(rest))
    return epsilon
