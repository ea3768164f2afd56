"""SVG elements, whole charts, and axes with round ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from discreet import formatting

if TYPE_CHECKING:
    from collections.abc import Iterable


def tag(element: str, *children: Markup | str, **attributes: object) -> Markup:
    """Return one SVG element.

    Parameters
    ----------
    *children : Markup or str
        Content of the element: markup stays as it is, plain text is escaped.
    **attributes : object
        Attributes of the element: ``class_`` is written ``class``, other underscores become hyphens, None is
        left out. Numbers must be finite.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        return Markup(f"<{element}{written}/>")  # noqa: S704 - names are ours, values escaped
    inside = "".join(_child(child) for child in children)
    return Markup(f"<{element}{written}>{inside}</{element}>")  # noqa: S704 - likewise


def coordinate(value: float) -> str:
    """Return a coordinate as text, to a hundredth, without trailing zeros."""
    if not math.isfinite(value):
        raise AssertionError(f"a coordinate must be finite, was {value!r}")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def share(value: float) -> str:
    """Return a share of the width, clamped to 0 to 1, as a percentage."""
    return coordinate(100 * min(1.0, max(0.0, value))) + "%"


def figure(
    key: str,
    *children: Markup,
    title: str,
    description: str,
    width: float,
    height: float,
    class_: str = "",
    fluid: bool = False,
) -> Markup:
    """Return a whole chart with title and description.

    Parameters
    ----------
    key : str
        Identifier of the chart, unique on the page; the ids of title and description are made from it.
    width, height : float
        Size of the chart in CSS pixels.
    fluid : bool
        Whether coordinates are shares of the width of the page; if not, the whole chart scales with it.
    """
    size: dict[str, object] = {"height": height}
    if fluid:
        size["width"] = "100%"
    else:
        size["viewBox"] = f"0 0 {coordinate(width)} {coordinate(height)}"
        size["width"] = width
    return tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", description, id=f"{key}-desc"),
        *children,
        class_=f"chart {class_}".strip(),
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        **size,
    )


def path(points: Iterable[tuple[float, float]], **attributes: object) -> Markup:
    """Return a path of straight lines from point to point."""
    joined = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)
    return tag("path", d=f"M{joined}", **attributes)


def label(
    text: str, x: float | str, y: float, *, anchor: str | None = None, class_: str | None = None
) -> Markup:
    """Return a text element."""
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def _attribute(value: object) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return coordinate(value)
    return formatting.printable(str(value))


def _child(child: Markup | str) -> Markup:
    return child if isinstance(child, Markup) else escape(formatting.printable(child))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartAxis:
    """Map from an interval of numbers to an interval of pixels.

    Attributes
    ----------
    lower, upper : float
        Numbers at the two ends of the axis.
    start, end : float
        Pixels of the two ends; ``end`` may be the smaller one.
    log : bool
        Whether the axis is logarithmic.
    """

    lower: float
    upper: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a number; numbers beyond an end are drawn at that end."""
        if self.log:
            low, high, at = math.log(self.lower), math.log(self.upper), math.log(max(value, self.lower))
        else:
            low, high, at = self.lower, self.upper, value
        part = (at - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)

    @classmethod
    def from_values(
        cls,
        values: list[float],
        start: float,
        end: float,
        *,
        margin: float = 0.08,
    ) -> ChartAxis:
        """Return an axis that covers all values, with some margin at both ends."""
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        room = (high - low) * margin or abs(high) * margin or 0.5
        return cls(lower=low - room, upper=high + room, start=start, end=end)

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
    """Return the label of a tick as a number, thousands as "k"."""
    if abs(value) >= 10_000:
        thousands = formatting.number(value / 1000)
        return f"{thousands}k" if abs(value) < 1e7 else formatting.number(value, digits=2)
    return formatting.number(value)


def as_percent(value: float) -> str:
    """Return the label of a tick as a percentage."""
    return formatting.percent(value)
