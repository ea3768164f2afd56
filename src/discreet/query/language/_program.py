"""Programs: lists of primitive operations on earlier results, from which SQL and numpy code follow.

Only operations that every engine rounds correctly, or computes exactly, are primitive: ``+ - * /``, ``sqrt``,
``floor``, comparison, choice. Each translates into one function of SQL and one of numpy, so equal bits are a
matter of construction. Equal operations are recorded once, and operations on constants are carried out here,
in the same arithmetic, so that an engine finds nothing to fold.

Every number carries its :class:`~discreet.query.language._program.Interval`, from which follow the refusals
of the language, the sensitivity of a sum, and the two places where small numbers are rounded to a grid
(``_flush``) because their product could not be represented.
"""

from __future__ import annotations

import functools
import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from discreet._types import AnyArray


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
        """Return the interval of a value that is one of two."""
        return Interval(
            min(self.lower, other.lower), max(self.upper, other.upper), min(self.quantum, other.quantum)
        )


def span(values: Iterable[float]) -> Interval:
    """Return the least interval of several values."""
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


Kind: TypeAlias = Literal[
    "constant", "column", "add", "subtract", "negate", "multiply", "divide", "sqrt", "floor", "absolute",
    "least", "greatest", "select", "ladder", "lookup",
    "truth", "less", "less_equal", "equal", "not_equal", "every", "some", "opposite", "member",
]  # fmt: skip
Detail: TypeAlias = tuple[Any, ...]

_GRAIN = 2.0**-266
"""Numbers are rounded to multiples of 2**-319 by adding and subtracting this, about 1e-80."""

_ARITHMETIC: dict[Kind, Callable[[float, float], float]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a program.

    Attributes
    ----------
    kind : str
        Name of the operation.
    inputs : tuple of int
        Places of the operations whose results are its operands.
    detail : tuple
        ``constant``: the number. ``column``: the name. ``ladder``: thresholds, values (one more).
        ``lookup``: name, values by code. ``truth``: 0 or 1. ``member``: name, codes.
    interval : Interval or None
        Range of the result; None for a truth value.
    """

    kind: Kind
    inputs: tuple[int, ...]
    detail: Detail
    interval: Interval | None


class Program:
    """Operations in an order in which they can be executed; a result is named by its place."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._places: dict[tuple[Kind, tuple[int, ...], Detail], int] = {}
        self.weight = 0  # operations to carry out; a ladder counts by its rungs

    def copy(self) -> Program:
        """Return an independent copy of the program."""
        twin = Program()
        twin.operations, twin._places = self.operations.copy(), self._places.copy()
        return twin

    def columns(self) -> tuple[str, ...]:
        """Return the names of the curated columns that are read, sorted."""
        reading = ("column", "lookup", "member")
        return tuple(sorted({str(o.detail[0]) for o in self.operations if o.kind in reading}))

    def interval(self, place: int) -> Interval:
        """Return the interval of a number."""
        interval = self.operations[place].interval
        assert interval is not None, "a truth value has no interval"
        return interval

    def narrow(self, place: int, lower: float, upper: float) -> None:
        """Record that a number was proven to lie within tighter bounds than its operation shows."""
        operation, known = self.operations[place], self.interval(place)
        tight = Interval(max(known.lower, lower), min(known.upper, upper), known.quantum)
        self.operations[place] = Operation(operation.kind, operation.inputs, operation.detail, tight)

    def replay(self, place: int, base: int, value: float) -> float:
        """Return the value at ``place`` for one number at ``base``, by sums, differences and products."""
        results = {base: value}
        for i in range(place + 1):
            operation = self.operations[i]
            if operation.kind == "constant":
                results.setdefault(i, self.interval(i).lower)
            elif operation.kind in _ARITHMETIC and all(j in results for j in operation.inputs):
                results.setdefault(i, _ARITHMETIC[operation.kind](*(results[j] for j in operation.inputs)))
        return results[place]

    # Numbers.

    def constant(self, value: float) -> int:
        """Record a number that is the same for every row."""
        value = value + 0.0  # -0.0 and 0.0 are one constant
        known = self._places.get(("constant", (), (value,)))
        return self._record("constant", (), (value,), span([value])) if known is None else known

    def column(self, name: str, interval: Interval) -> int:
        """Record the number in a curated column, as a double."""
        return self._record("column", (), (name,), interval)

    def lookup(self, name: str, values: tuple[float, ...]) -> int:
        """Record the number that stands for the code in a curated column."""
        return self._record("lookup", (), (name, values), span(values))

    def add(self, a: int, b: int) -> int:
        """Record the sum of two numbers."""
        if self._is(a, 0.0):
            return b
        if self._is(b, 0.0):
            return a
        return self._record("add", (a, b), (), self.interval(a) + self.interval(b))

    def subtract(self, a: int, b: int) -> int:
        """Record the difference of two numbers."""
        if self._is(b, 0.0):
            return a
        return self._record("subtract", (a, b), (), self.interval(a) - self.interval(b))

    def negate(self, a: int) -> int:
        """Record the negative of a number."""
        return self._record("negate", (a,), (), -self.interval(a))

    def multiply(self, a: int, b: int) -> int:
        """Record the product of two numbers; never an underflow."""
        if self._is(a, 1.0):
            return b
        if self._is(b, 1.0):
            return a
        if self.interval(a).quantum + self.interval(b).quantum < LOWEST_QUANTUM:
            a, b = self._flush(a), self._flush(b)
        x, y = self.interval(a), self.interval(b)
        return self._record("multiply", (a, b), (), x.square() if a == b else x * y)

    def divide(self, a: int, b: int) -> int:
        """Record the quotient of two numbers, the second bounded away from zero; never an underflow."""
        if self._is(b, 1.0):
            return a
        if self.interval(a).quantum - exponent(self.interval(b).magnitude[1]) - 53 < LOWEST_QUANTUM:
            a = self._flush(a)
        return self._record("divide", (a, b), (), self.interval(a) / self.interval(b))

    def sqrt(self, a: int) -> int:
        """Record the square root of a number that is not negative."""
        return self._record("sqrt", (a,), (), self.interval(a).sqrt())

    def floor(self, a: int) -> int:
        """Record the largest whole number that is not larger; only for numbers within 2**53."""
        return self._record("floor", (a,), (), self.interval(a).floor())

    def absolute(self, a: int) -> int:
        """Record the absolute value of a number."""
        return self._record("absolute", (a,), (), self.interval(a).absolute())

    def least(self, a: int, b: int) -> int:
        """Record the smaller of two numbers."""
        x, y = self.interval(a), self.interval(b)
        if x.upper <= y.lower:
            return a
        return b if y.upper <= x.lower else self._record("least", (a, b), (), x.least(y))

    def greatest(self, a: int, b: int) -> int:
        """Record the larger of two numbers."""
        x, y = self.interval(a), self.interval(b)
        if x.lower >= y.upper:
            return a
        return b if y.lower >= x.upper else self._record("greatest", (a, b), (), x.greatest(y))

    def clamp(self, a: int, lower: float, upper: float) -> int:
        """Record the nearest number within bounds."""
        return self.least(self.greatest(a, self.constant(lower)), self.constant(upper))

    def fence(self, a: int) -> int:
        """Clamp a number to its own interval, which it leaves only if a table is not as declared."""
        interval = self.interval(a)
        low, high = self.constant(interval.lower), self.constant(interval.upper)
        kept = self._record("greatest", (a, low), (), interval)
        return self._record("least", (kept, high), (), interval)

    def select(self, condition: int, a: int, b: int) -> int:
        """Record one number where a condition holds, another where it does not."""
        interval = self.interval(a).hull(self.interval(b))
        return a if a == b else self._record("select", (condition, a, b), (), interval)

    def ladder(self, a: int, thresholds: Sequence[float], values: Sequence[float]) -> int:
        """Record the first value whose threshold is above the number; the last value if none is.

        Thresholds increase and there is one value more. Rungs that the number cannot reach are left out.
        """
        known = self.interval(a)
        first, last = bisect_right(thresholds, known.lower), bisect_right(thresholds, known.upper)
        detail = (tuple(thresholds[first:last]), tuple(values[first : last + 1]))
        return self._record("ladder", (a,), detail, span(detail[1]))

    def combine_balanced(self, combine: Callable[[int, int], int], places: Sequence[int]) -> int:
        """Combine numbers in a tree of logarithmic depth, in a fixed order, and return its place."""
        places = list(places)
        while len(places) > 1:
            pairs = [places[i : i + 2] for i in range(0, len(places), 2)]
            places = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return places[0]

    # Truth values.

    def truth(self, value: bool) -> int:
        """Record a condition that is the same for every row."""
        return self._record("truth", (), (float(value),), None)

    def compare(self, kind: Literal["less", "less_equal", "equal", "not_equal"], a: int, b: int) -> int:
        """Record whether two numbers stand in a relation."""
        return self._record(kind, (a, b), (), None)

    def every(self, places: Sequence[int]) -> int:
        """Record whether all conditions hold."""
        return self._join("every", places)

    def some(self, places: Sequence[int]) -> int:
        """Record whether at least one condition holds."""
        return self._join("some", places)

    def _join(self, kind: Literal["every", "some"], places: Sequence[int]) -> int:
        places = tuple(dict.fromkeys(places))
        return places[0] if len(places) == 1 else self._record(kind, places, (), None)

    def opposite(self, a: int) -> int:
        """Record whether a condition does not hold."""
        return self._record("opposite", (a,), (), None)

    def member(self, name: str, codes: tuple[int, ...]) -> int:
        """Record whether the code in a curated column is among these."""
        return self._record("member", (), (name, tuple(map(float, codes))), None)

    def _is(self, place: int, value: float) -> bool:
        interval = self.operations[place].interval
        return interval is not None and interval.lower == value == interval.upper

    def _flush(self, a: int) -> int:
        """Round a number to a multiple of 2**-319 if it could be smaller."""
        if self.interval(a).quantum >= LOWEST_QUANTUM // 3:
            return a
        grain = self.constant(_GRAIN)
        shifted = self.add(a, grain)
        known, wide = self.interval(a), self.interval(shifted)
        if wide.is_point:
            return self.constant(wide.lower - _GRAIN)
        # Beyond the grain a double is a multiple of 2**-318 already, up to it the sum is one of 2**-319.
        interval = Interval(wide.lower - _GRAIN, wide.upper - _GRAIN, max(known.quantum, -319))
        return self._record("subtract", (shifted, grain), (), interval)

    def _record(self, kind: Kind, inputs: tuple[int, ...], detail: Detail, interval: Interval | None) -> int:
        """Return the place of an operation, recorded once; a result that is a single point is a constant."""
        if interval is not None and interval.is_point and kind != "constant":
            return self.constant(interval.lower)  # every row has the same value, so it is known here
        key = (kind, inputs, detail)
        if key not in self._places:
            self.weight += 0 if kind == "constant" else len(detail[0]) if kind == "ladder" else 1
            self._places[key] = len(self.operations)
            self.operations.append(Operation(kind, inputs, detail, interval))
        return self._places[key]


Columns: TypeAlias = Mapping[str, "AnyArray"]

_UFUNCS: dict[Kind, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "negate": np.negative, "multiply": np.multiply,
    "divide": np.divide, "sqrt": np.sqrt, "floor": np.floor, "absolute": np.abs,
    "least": np.minimum, "greatest": np.maximum, "select": np.where,
    "less": np.less, "less_equal": np.less_equal, "equal": np.equal, "not_equal": np.not_equal,
    "opposite": np.logical_not,
}  # fmt: skip


def values(program: Program, columns: Columns, place: int | None = None) -> list[Any]:
    """Return the results of a program on arrays.

    Parameters
    ----------
    program : Program
        Operations that compute the values.
    columns : mapping of str to array
        Exact cells of the curated columns, by declared name; flags as ``<name>_missing``.
    place : int, optional
        Place of the value that is needed; all values by default.

    Returns
    -------
    list
        An array for each operation, or a scalar where all rows have the same value; None for what was
        not needed.
    """
    needed = _find_needed(program, place)
    results: list[Any] = []
    for at, operation in enumerate(program.operations):
        inputs = [results[used] for used in operation.inputs] if at in needed else []
        results.append(_result(operation, inputs, columns) if at in needed else None)
    return results


def _find_needed(program: Program, place: int | None) -> set[int]:
    """Return the places that a value depends on, itself among them; all for None."""
    if place is None:
        return set(range(len(program.operations)))
    needed = {place}
    for at in range(place, -1, -1):
        if at in needed:
            needed.update(program.operations[at].inputs)
    return needed


def _result(operation: Operation, inputs: list[Any], columns: Columns) -> Any:
    """Return the result of one operation: an array, or a scalar where all rows have the same value."""
    kind, detail = operation.kind, operation.detail
    if kind == "constant":
        return np.float64(detail[0])
    if kind == "truth":
        return np.bool_(detail[0])
    if kind == "column":
        return columns[str(detail[0])].astype(np.float64)
    if kind == "lookup":
        return np.array(detail[1], np.float64)[columns[str(detail[0])]]
    if kind == "member":
        codes = np.array(detail[1], np.int64)
        member = np.zeros(codes.max() + 2, bool)
        member[codes] = True
        # A table takes a tenth of the time of np.isin. All codes past the last member share its last place.
        return member[np.minimum(columns[str(detail[0])], member.size - 1)]
    if kind == "ladder":
        thresholds, chosen = detail
        return np.array(chosen, np.float64)[np.searchsorted(np.array(thresholds), inputs[0], side="right")]
    if kind in ("every", "some"):
        return functools.reduce(np.logical_and if kind == "every" else np.logical_or, inputs)
    return _UFUNCS[kind](*inputs)
