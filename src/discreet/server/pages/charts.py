"""Pictures of answers and of spending, as inline SVG that follows the width of the page.

Shapes carry classes and no style, so the style sheet colors them on light and dark screens, and a policy that
forbids inline style has nothing to forbid.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from discreet.report import wording
from discreet.report.charts.canvas import coordinate, figure, label, share, tag
from discreet.report.charts.scale import as_number, round_ticks
from discreet.report.wording import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOM = 0.08
_STEPS_HEIGHT, _STEPS_WIDTH = 180, 1000


class Interval(NamedTuple):
    """A number with how far its noise may have moved it.

    Attributes
    ----------
    value, lower, upper : float
        The number and its interval.
    words : str
        What it is.
    """

    value: float
    lower: float
    upper: float
    words: str


class Stretch(NamedTuple):
    """Numbers drawn over the whole width of a picture."""

    lower: float
    upper: float

    @classmethod
    def over(cls, values: Sequence[float], *, room: float = _ROOM) -> Stretch:
        """Return a stretch on which all values have their place, with some room at both ends."""
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        margin = (high - low) * room or abs(high) * room or 1.0
        return cls(low - margin, high + margin)

    def __call__(self, value: float) -> float:
        """Return the place of a number, from 0 to 1."""
        return (value - self.lower) / (self.upper - self.lower)


def interval_bar(key: str, intervals: Sequence[Interval], unit: str) -> Markup:
    """Draw one interval above the other on one scale; the last is the one that counts.

    Parameters
    ----------
    key : str
        Unique on the page.
    intervals : sequence of Interval
        The answer, or the earlier answer and the finer one.
    unit : str
        Of all numbers; may be empty.
    """
    ends = [end for one in intervals for end in (one.lower, one.upper)]
    stretch = Stretch.over(ends, room=0.35)
    shapes, top = [], 4
    for k, one in enumerate(intervals):
        last = "" if k == len(intervals) - 1 else " earlier"
        if len(intervals) > 1:
            shapes.append(label(one.words, "0%", top + 10, class_="axis-title"))
            top += 16
        low, at, high = (share(stretch(x)) for x in (one.lower, one.value, one.upper))
        width = share(stretch(one.upper) - stretch(one.lower))
        shapes += [
            tag("rect", class_="track", x=0, y=top, width="100%", height=16, rx=3),
            tag("rect", class_=f"band{last}", x=low, y=top, width=width, height=16),
            *(tag("line", class_="cap", x1=x, x2=x, y1=top - 2, y2=top + 18) for x in (low, high)),
            tag("circle", class_=f"point{last}", cx=at, cy=top + 8, r=5.5),
        ]
        top += 28
    final = intervals[-1]
    margin = (final.upper - final.lower) / 2
    for value, anchor in ((final.lower, "end"), (final.upper, "start")):
        place = stretch(value)
        shapes.append(
            label(
                format_value(value, margin),
                share(place),
                top + 6,
                anchor=_inside(place, anchor),
                class_="tick",
            )
        )
    said = "; ".join(
        f"{one.words or 'answer'}: {format_value(one.value, (one.upper - one.lower) / 2)}, between "
        f"{format_value(one.lower, (one.upper - one.lower) / 2)} and "
        f"{format_value(one.upper, (one.upper - one.lower) / 2)} {unit}".rstrip()
        for one in intervals
    )
    return figure(
        key, *shapes, title="The interval of the answer", description=said, width=640, height=top + 12,
        class_="interval-bar", fluid=True,
    )  # fmt: skip


def _inside(place: float, anchor: str) -> str:
    """Turn a word around that would run over the edge of the picture."""
    if place < 0.2:
        return "start"
    return "end" if place > 0.8 else anchor


def cell_bar(stretch: Stretch, value: float, lower: float, upper: float, *, from_zero: bool) -> Markup:
    """Draw one group of an answer: its number as a bar or a dot, its interval as a whisker.

    The row of the table says the same in numbers, so readers of the page aloud do not meet it.
    """
    middle = 11
    low, at, high = (share(stretch(x)) for x in (lower, value, upper))
    shapes = []
    if from_zero:
        left, right = sorted((stretch(0.0), stretch(value)))
        shapes.append(
            tag("rect", class_="fill", x=share(left), y=3, width=share(right - left), height=16, rx=2)
        )
        zero = share(stretch(0.0))
        shapes.append(tag("line", class_="axis", x1=zero, x2=zero, y1=0, y2=22))
    shapes += [
        tag("line", class_="whisker", x1=low, x2=high, y1=middle, y2=middle),
        *(tag("line", class_="whisker", x1=x, x2=x, y1=middle - 4, y2=middle + 4) for x in (low, high)),
        tag("circle", class_="point", cx=at, cy=middle, r=3.5),
    ]
    return tag(
        "svg",
        *shapes,
        class_="chart cell-bar",
        width="100%",
        height=22,
        aria_hidden="true",
        focusable="false",
    )


def share_bar(part: float, *, kind: str = "") -> Markup:
    """Draw how much of a limit is spent; the numbers stand beside it."""
    width = share(part)
    fill = "spent" + (f" {kind}" if kind else "")
    return tag(
        "svg",
        tag("rect", class_="track", x=0, y=0, width="100%", height=10, rx=5),
        tag("rect", class_=fill, x=0, y=0, width=width, height=10, rx=5),
        class_="chart share-bar", width="100%", height=10, aria_hidden="true", focusable="false",
    )  # fmt: skip


def spending_steps(
    key: str, points: Sequence[tuple[str, float]], limit: float | None, currency: str
) -> Markup:
    """Draw what was spent over time as steps, under the limit.

    Parameters
    ----------
    points : sequence of (when, spent in all until then)
        In order; moments in ISO 8601.
    limit : float or None
        What may be spent at most.
    currency : str
        What is counted.

    Returns
    -------
    Markup
        Empty if nothing was spent.
    """
    if not points:
        return Markup("")
    times = [_seconds(when) for when, _ in points]
    spent = points[-1][1]
    shown_limit = limit is not None and spent > 0.2 * limit
    top = (limit if shown_limit and limit is not None else spent) * 1.12 or 1.0
    first, width = times[0], (times[-1] - times[0]) or 1.0
    steps = f"M0 {_STEPS_HEIGHT}"
    for time, (_, amount) in zip(times, points, strict=True):
        x = 20 + 960 * (time - first) / width if times[-1] > first else 500
        steps += f"H{coordinate(x)}V{coordinate(_STEPS_HEIGHT * (1 - amount / top))}"
    area = Markup("{}H{}V{}Z").format(steps, _STEPS_WIDTH, _STEPS_HEIGHT)
    inner = tag(
        "svg",
        tag("path", class_="area", d=str(area)),
        tag("path", class_="line", d=f"{steps}H{_STEPS_WIDTH}", vector_effect="non-scaling-stroke"),
        x=0, y=0, width="100%", height=_STEPS_HEIGHT, viewBox=f"0 0 {_STEPS_WIDTH} {_STEPS_HEIGHT}",
        preserveAspectRatio="none",
    )  # fmt: skip
    grid, ticks = [], []  # amounts are written above the steps, which would hide them
    for tick in round_ticks(0.0, top, 4):
        y = _STEPS_HEIGHT * (1 - tick / top)
        grid.append(tag("line", class_="grid", x1="0%", x2="100%", y1=y, y2=y))
        if tick:
            ticks.append(label(as_number(tick), "0%", y - 4, class_="tick"))
    if shown_limit and limit is not None:
        y = _STEPS_HEIGHT * (1 - limit / top)
        grid += [
            tag("line", class_="level-line", x1="0%", x2="100%", y1=y, y2=y),
            label(f"limit {wording.number(limit, rounding='down')}", "100%", y - 4, anchor="end"),
        ]
    ends = [
        label(wording.date(points[0][0]), "0%", _STEPS_HEIGHT + 18, class_="tick"),
        label(wording.date(points[-1][0]), "100%", _STEPS_HEIGHT + 18, anchor="end", class_="tick"),
    ]
    spent_of = wording.number(spent, rounding="up") + (
        "" if limit is None else f" of {wording.number(limit, rounding='down')}"
    )
    description = f"{spent_of} spent from {wording.date(points[0][0])} to {wording.date(points[-1][0])}."
    return figure(
        key, *grid, inner, *ticks, *(ends if times[-1] > first else ends[:1]),
        title=f"{currency} spent over time", description=description, width=640,
        height=_STEPS_HEIGHT + 26, class_="steps", fluid=True,
    )  # fmt: skip


def _seconds(moment: str) -> float:
    parsed = datetime.fromisoformat(moment)
    seconds = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    assert math.isfinite(seconds)
    return seconds
