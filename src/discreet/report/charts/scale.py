"""Numbers to places: axes with round ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet.report import wording


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A stretch of numbers drawn over a stretch of pixels.

    Attributes
    ----------
    lower, upper : float
        The numbers at the two ends.
    start, end : float
        Where the ends are drawn; ``end`` may be the smaller one.
    log : bool
        Whether equal ratios, and not equal differences, are equally far apart.
    """

    lower: float
    upper: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a number; what lies beyond an end is drawn at that end."""
        if self.log:
            low, high, at = math.log(self.lower), math.log(self.upper), math.log(max(value, self.lower))
        else:
            low, high, at = self.lower, self.upper, value
        part = (at - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)

    @classmethod
    def around(
        cls,
        values: list[float],
        start: float,
        end: float,
        *,
        least: float | None = None,
        margin: float = 0.08,
    ) -> Axis:
        """Return an axis on which all values have their place, with some room at both ends."""
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        room = (high - low) * margin or abs(high) * margin or 0.5
        low -= room
        if least is not None:
            low = max(low, least)
        return cls(lower=low, upper=high + room, start=start, end=end)

    def ticks(self, count: int = 5) -> list[float]:
        """Return round numbers along the axis."""
        if self.log:
            return _log_ticks(self.lower, self.upper)
        return round_ticks(self.lower, self.upper, count)


def round_ticks(lower: float, upper: float, count: int = 5) -> list[float]:
    """Return about ``count`` multiples of 1, 2 or 5 times a power of ten."""
    width = upper - lower
    if not width > 0 or not math.isfinite(width):
        return [lower]
    power = 10.0 ** math.floor(math.log10(width / count))
    step = next((m * power for m in (1, 2, 5, 10) if width / (m * power) <= count), 10 * power)
    first = math.ceil(lower / step - 1e-9)
    last = math.floor(upper / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _log_ticks(lower: float, upper: float) -> list[float]:
    powers = range(math.floor(math.log10(lower)), math.ceil(math.log10(upper)) + 1)
    steps = (1, 2, 5) if upper / lower < 200 else (1,)
    return [
        m * 10.0**p for p in powers for m in steps if lower <= m * 10.0**p * (1 + 1e-9) <= upper * (1 + 2e-9)
    ]


def as_number(value: float) -> str:
    """Name a tick by its number."""
    if abs(value) >= 10_000:
        thousands = wording.number(value / 1000)
        return f"{thousands}k" if abs(value) < 1e7 else wording.number(value, digits=2)
    return wording.number(value)


def as_percent(value: float) -> str:
    """Name a tick by its percentage."""
    return wording.percent(value)
