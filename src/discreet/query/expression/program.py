"""A list of primitive operations, each on earlier results: the one thing that SQL and numpy are made from.

Only operations that every engine rounds correctly, or computes exactly, are primitive: ``+ - * /``, ``sqrt``,
``floor``, comparison, choice. Each translates into one function of SQL and one of numpy, so equal bits are a
matter of construction. Equal operations are recorded once, and operations on constants are carried out here,
in the same arithmetic, so that an engine finds nothing to fold.

Every number carries its :class:`~discreet.query.expression.interval.Interval`, from which follow the refusals
of the language, the sensitivity of a sum, and the two places where small numbers are rounded to a grid
(``_flush``) because their product could not be represented.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from discreet.query.expression.interval import LOWEST_QUANTUM, Interval, exponent, span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Kind: TypeAlias = Literal[
    "constant", "column", "add", "subtract", "negate", "multiply", "divide", "sqrt", "floor", "absolute",
    "least", "greatest", "select", "ladder", "lookup",
    "truth", "less", "less_equal", "equal", "not_equal", "every", "some", "member",
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
    """Record one step of a program.

    Attributes
    ----------
    kind : str
        What is done.
    inputs : tuple of int
        The places of the operations whose results it takes.
    detail : tuple
        ``constant``: the number. ``column``: the name. ``ladder``: thresholds, values (one more).
        ``lookup``: name, values by code. ``truth``: 0 or 1. ``member``: name, codes.
    interval : Interval or None
        What the result can be; None for a truth value.
    """

    kind: Kind
    inputs: tuple[int, ...]
    detail: Detail
    interval: Interval | None


class Program:
    """Operations in the order in which they can be carried out. Results are named by their place."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._places: dict[tuple[Kind, tuple[int, ...], Detail], int] = {}
        self.weight = 0  # operations to carry out; a ladder counts by its rungs

    def copy(self) -> Program:
        """Return a program that can be continued on its own."""
        twin = Program()
        twin.operations, twin._places = self.operations.copy(), self._places.copy()
        return twin

    def columns(self) -> tuple[str, ...]:
        """Return the names of the curated columns that are read, sorted."""
        reading = ("column", "lookup", "member")
        return tuple(sorted({str(o.detail[0]) for o in self.operations if o.kind in reading}))

    def interval(self, place: int) -> Interval:
        """Return what a number can be."""
        interval = self.operations[place].interval
        assert interval is not None, "a truth value has no interval"
        return interval

    def narrow(self, place: int, lower: float, upper: float) -> None:
        """Record that a number was proven to lie within tighter bounds than its operation shows."""
        operation, known = self.operations[place], self.interval(place)
        tight = Interval(max(known.lower, lower), min(known.upper, upper), known.quantum)
        self.operations[place] = Operation(operation.kind, operation.inputs, operation.detail, tight)

    def replay(self, place: int, base: int, value: float) -> float:
        """Carry out sums, differences and products that lead from ``base`` to ``place``, from one number."""
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

    def column(self, name: str, top: int) -> int:
        """Record the integer in a curated column, 0 to ``top``, as a double."""
        return self._record("column", (), (name,), Interval(0.0, float(top), 0))

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
        """Record a number with the other sign."""
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
        """Record a number without its sign."""
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

    def balanced(self, combine: Callable[[int, int], int], places: Sequence[int]) -> int:
        """Combine many numbers in a tree of logarithmic depth, in an order that is fixed."""
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
        return self._record("every", tuple(places), (), None)

    def some(self, places: Sequence[int]) -> int:
        """Record whether at least one condition holds."""
        return self._record("some", tuple(places), (), None)

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
        if interval is not None and interval.is_point and kind != "constant":
            return self.constant(interval.lower)  # every row has the same value, so it is known here
        key = (kind, inputs, detail)
        if key not in self._places:
            self.weight += 0 if kind == "constant" else len(detail[0]) if kind == "ladder" else 1
            self._places[key] = len(self.operations)
            self.operations.append(Operation(kind, inputs, detail, interval))
        return self._places[key]
