"""SVG elements, the frame of a picture, and axes with round ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from discreet import formatting

if TYPE_CHECKING:
    from collections.abc import Iterable


def tag(element: str, *children: Markup | str, **attributes: object) -> Markup:
    """Write one element.

    Parameters
    ----------
    *children : Markup or str
        Markup stays as it is; plain text is made visible and escaped.
    **attributes : object
        ``class_`` is written ``class``, other underscores become hyphens; None is left out. Numbers must be
        finite: a picture without a place for a number must not be drawn.
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
    """Write a place in a picture, to a hundredth; the same number is always written alike."""
    if not math.isfinite(value):
        raise AssertionError(f"a coordinate must be finite, was {value!r}")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def share(value: float) -> str:
    """Write a place as a part of the picture's width, from 0 to 1."""
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
    """Frame a picture.

    Parameters
    ----------
    key : str
        Unique on the page; the ids of title and description are made from it.
    width, height : float
        In pixels of the style sheet.
    fluid : bool
        Places are parts of the width, which follows the page; otherwise the whole picture shrinks with it.
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
    """Draw straight lines from point to point."""
    joined = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)
    return tag("path", d=f"M{joined}", **attributes)


def label(
    text: str, x: float | str, y: float, *, anchor: str | None = None, class_: str | None = None
) -> Markup:
    """Write a word into a picture."""
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def _attribute(value: object) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return coordinate(value)
    return formatting.printable(str(value))


def _child(child: Markup | str) -> Markup:
    return child if isinstance(child, Markup) else escape(formatting.printable(child))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartAxis:
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
    def from_values(
        cls,
        values: list[float],
        start: float,
        end: float,
        *,
        least: float | None = None,
        margin: float = 0.08,
    ) -> ChartAxis:
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
    """Return the label of a tick as a number, thousands as "k"."""
    if abs(value) >= 10_000:
        thousands = formatting.number(value / 1000)
        return f"{thousands}k" if abs(value) < 1e7 else formatting.number(value, digits=2)
    return formatting.number(value)


def as_percent(value: float) -> str:
    """Return the label of a tick as a percentage."""
    return formatting.percent(value)
