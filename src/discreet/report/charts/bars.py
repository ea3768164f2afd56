"""Bars, marks and steps: errors of a column, scores, charges over time, and answers of the service.

Shapes carry classes and no style, so that the style sheet colors them on light and dark screens, and a policy
that forbids inline style is satisfied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from discreet import formatting
from discreet.formatting import NumberFormat
from discreet.report.charts._svg import (
    ChartAxis,
    as_number,
    as_percent,
    coordinate,
    figure,
    label,
    round_ticks,
    share,
    tag,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARKS_TOP, _MARKS_HEIGHT, _MARKS_BELOW = 12, 14, 46


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One error of a column, on its bar.

    Attributes
    ----------
    kind : {"without", "attack", "floor"}
        Kind of error: without the release, of the best attack, or the proven floor.
    error : float
        Size of the error, in the unit of the column or as a probability.
    words : str
        Sentence about the mark in the description of the chart.
    lower, upper : float or None
        Confidence interval of a measured error; None for others.
    """

    kind: str
    error: float
    words: str
    lower: float | None = None
    upper: float | None = None


def three_marks(key: str, column: str, marks: Sequence[Mark], *, chance: bool) -> Markup:
    """Draw the errors of one column on a line that starts at a perfect guess.

    Parameters
    ----------
    chance : bool
        Whether errors are probabilities of a wrong guess.

    Returns
    -------
    Markup
        Empty if there is nothing to draw.
    """
    largest = max((m.upper or m.error for m in marks), default=0.0)
    if not largest > 0:
        return Markup("")
    end = min(largest * 1.08, 1.0) if chance else largest * 1.08
    shapes = [tag("rect", class_="track", x=0, y=_MARKS_TOP, width="100%", height=_MARKS_HEIGHT, rx=3)]
    order = {"floor": 0, "without": 1, "attack": 2}
    for mark in sorted(marks, key=lambda m: order[m.kind]):
        shapes += _mark_shapes(mark, end)
    return figure(
        key,
        *shapes,
        *_ticks(end, chance=chance),
        title=f"{column}: error of a guess",
        description=" ".join(mark.words for mark in marks) + " The bar starts at a perfect guess.",
        width=640,
        height=50,
        class_="marks",
        fluid=True,
    )


def _mark_shapes(mark: Mark, end: float) -> list[Markup]:
    """Return the shapes of one mark; `end` is the error at the right end of the bar."""
    at, middle = share(mark.error / end), _MARKS_TOP + _MARKS_HEIGHT / 2
    if mark.kind == "floor":
        return [
            tag("rect", class_="proven", x=0, y=_MARKS_TOP, width=at, height=_MARKS_HEIGHT),
            tag(
                "line",
                class_="mark-floor",
                x1=at,
                x2=at,
                y1=_MARKS_TOP - 8,
                y2=_MARKS_TOP + _MARKS_HEIGHT + 6,
            ),
        ]
    if mark.kind == "without":
        return [
            tag(
                "line",
                class_="mark-without",
                x1=at,
                x2=at,
                y1=_MARKS_TOP - 8,
                y2=_MARKS_TOP + _MARKS_HEIGHT + 6,
            )
        ]
    shapes = []
    if mark.lower is not None and mark.upper is not None:
        low, high = share(mark.lower / end), share(mark.upper / end)
        shapes.append(tag("line", class_="interval", x1=low, x2=high, y1=middle, y2=middle))
    return [*shapes, tag("circle", class_="mark-attack", cx=at, cy=middle, r=5.5)]


def _ticks(end: float, *, chance: bool) -> list[Markup]:
    """Return round numbers below the bar, named as percentages where errors are chances."""
    named = as_percent if chance else as_number
    ticks = [t for t in round_ticks(0.0, end, 4) if t <= end * 0.97]
    return [
        label(
            named(tick),
            share(tick / end),
            _MARKS_BELOW,
            anchor="start" if tick == 0 else "middle",
            class_="tick",
        )
        for tick in ticks
    ]


_SCORES_WIDTH, _SCORES_ROW, _SCORES_LEFT, _SCORES_RIGHT, _SCORES_TOP = 400, 30, 12, 12, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Score of one model: its name, its CSS class, its value and interval."""

    name: str
    class_: str
    value: float
    lower: float | None = None
    upper: float | None = None


def score_bars(key: str, bars: Sequence[Bar], *, quality: str, in_percent: bool) -> Markup:
    """Draw one dot with its interval for each model, on one axis."""
    if not bars:
        return Markup("")
    named = as_percent if in_percent else as_number
    values = [v for b in bars for v in (b.value, b.lower, b.upper) if v is not None]
    x = ChartAxis.from_values(values, _SCORES_LEFT + 4, _SCORES_WIDTH - _SCORES_RIGHT - 4, margin=0.15)
    bottom = _SCORES_TOP + (_SCORES_ROW + 8) * len(bars) + 2
    shapes = []
    for tick in x.ticks(5):
        shapes += [
            tag("line", class_="axis", x1=x(tick), x2=x(tick), y1=bottom, y2=bottom + 4),
            label(named(tick), x(tick), bottom + 18, anchor="middle", class_="tick"),
        ]
    shapes.append(
        tag("line", class_="axis", x1=_SCORES_LEFT, x2=_SCORES_WIDTH - _SCORES_RIGHT, y1=bottom, y2=bottom)
    )
    for k, bar in enumerate(bars):
        y = _SCORES_TOP + k * (_SCORES_ROW + 8) + 26
        shapes += [
            tag("line", class_="grid", x1=_SCORES_LEFT, x2=_SCORES_WIDTH - _SCORES_RIGHT, y1=y, y2=y),
            tag("line", class_=f"interval {bar.class_}", x1=x(bar.lower), x2=x(bar.upper), y1=y, y2=y)
            if bar.lower is not None and bar.upper is not None
            else Markup(""),
            tag("circle", class_=f"dot {bar.class_}", cx=x(bar.value), cy=y, r=5),
            label(f"{bar.name}: {named(bar.value)}", _SCORES_LEFT, y - 10, class_="level"),
        ]
    return figure(
        key,
        *shapes,
        title=f"{quality.capitalize()} of models, side by side",
        description=" ".join(f"{b.name}: {named(b.value)}." for b in bars),
        width=_SCORES_WIDTH,
        height=bottom + 24,
        class_="scores",
    )


def timeline(key: str, charges: Sequence[tuple[str, str]], *, current: int) -> Markup:
    """Draw one dot for each charge, in time; the one of this release is filled.

    Parameters
    ----------
    charges : sequence of (when, what)
        Times in ISO 8601 and descriptions, in order; without valid times, dots are equally spaced.
    current : int
        Position of the charge of this release.
    """
    if len(charges) < 2:
        return Markup("")
    places = _time_positions([when for when, _ in charges])
    shapes = [tag("line", class_="axis", x1="2%", x2="98%", y1=18, y2=18)]
    for k, ((when, what), place) in enumerate(zip(charges, places, strict=True)):
        words = f"{formatting.date(when)}: {formatting.printable(what)}"
        class_ = "charge this" if k == current else "charge"
        shapes.append(tag("circle", tag("title", words), class_=class_, cx=share(place), cy=18, r=7))
    first, last = charges[0][0], charges[-1][0]
    shapes += [
        label(formatting.date(first)[:10], "2%", 44, class_="tick"),
        label(formatting.date(last)[:10], "98%", 44, anchor="end", class_="tick"),
    ]
    return figure(
        key,
        *shapes,
        title="Charges to the ledger over time",
        description=f"{len(charges)} charges from {formatting.date(first)} to {formatting.date(last)}.",
        width=640,
        height=50,
        class_="timeline",
        fluid=True,
    )


def _time_positions(moments: Sequence[str]) -> list[float]:
    """Return positions from 0.03 to 0.97 in proportion to the times."""
    try:
        parsed = [datetime.fromisoformat(moment) for moment in moments]
        times = [(m if m.tzinfo else m.replace(tzinfo=UTC)).timestamp() for m in parsed]
    except ValueError:
        times = [float(k) for k in range(len(moments))]
    first, last = min(times), max(times)
    if not last > first:
        times, first, last = [float(k) for k in range(len(moments))], 0.0, float(max(1, len(moments) - 1))
    return [0.03 + 0.94 * (t - first) / (last - first) for t in times]


_STEPS_HEIGHT, _STEPS_WIDTH = 180, 1000


class IntervalMark(NamedTuple):
    """Number with its interval.

    Attributes
    ----------
    value, lower, upper : float
        Value of the answer, and the ends of its interval.
    words : str
        Name of the number; may be empty.
    """

    value: float
    lower: float
    upper: float
    words: str


def interval_bar(
    key: str, intervals: Sequence[IntervalMark], unit: str, numbers: NumberFormat | None = None
) -> Markup:
    """Draw intervals below one another on one scale; the last is the current answer.

    Parameters
    ----------
    key : str
        Identifier of the chart, unique on the page.
    intervals : sequence of IntervalMark
        Interval of the answer, or of an earlier answer and of the finer one.
    unit : str
        Unit of all numbers; may be empty.
    numbers : NumberFormat, optional
        How the numbers are written; None for as many digits as the finest interval leaves.
    """
    # A noisy count may be outside its interval, which is cut to what is possible.
    ends = [end for one in intervals for end in (one.lower, one.value, one.upper)]
    axis = ChartAxis.from_values(ends, 0.0, 1.0, margin=0.35)
    shapes, top = [], 4
    for k, one in enumerate(intervals):
        last = "" if k == len(intervals) - 1 else " earlier"
        if len(intervals) > 1:
            shapes.append(label(one.words, "0%", top + 10, class_="axis-title"))
            top += 16
        low, at, high = (share(axis(x)) for x in (one.lower, one.value, one.upper))
        width = share(axis(one.upper) - axis(one.lower))
        shapes += [
            tag("rect", class_="track", x=0, y=top, width="100%", height=16, rx=3),
            tag("rect", class_=f"band{last}", x=low, y=top, width=width, height=16),
            *(tag("line", class_="cap", x1=x, x2=x, y1=top - 2, y2=top + 18) for x in (low, high)),
            tag("circle", class_=f"point{last}", cx=at, cy=top + 8, r=5.5),
        ]
        top += 28
    final = intervals[-1]
    write = numbers or NumberFormat.from_margins((one.upper - one.lower) / 2 for one in intervals)
    low_text, high_text = write(final.lower, "down"), write(final.upper, "up")
    for value, anchor, text in ((final.lower, "end", low_text), (final.upper, "start", high_text)):
        place = axis(value)
        shapes.append(
            label(
                text,
                share(place),
                top + 6,
                anchor=_flip_anchor(place, anchor, text),
                class_="tick",
            )
        )
    text = "; ".join(
        f"{one.words or 'answer'}: {write(one.value)}, between {write(one.lower, 'down')} and "
        f"{write(one.upper, 'up')} {unit}".rstrip()
        for one in intervals
    )
    return figure(
        key, *shapes, title="The interval of the answer", description=text, width=640, height=top + 12,
        class_="interval-bar", fluid=True,
    )  # fmt: skip


def _flip_anchor(place: float, anchor: str, text: str) -> str:
    """Return the anchor with which a label stays inside the picture, also on a narrow screen."""
    needed = max(0.2, 0.022 * len(text))  # of 300 pixels, where a digit takes 6.5
    if place < needed and anchor == "end":
        return "start"
    return "end" if place > 1 - needed and anchor == "start" else anchor


_CELL_TICKS = 3


def cell_axis(axis: ChartAxis, numbers: NumberFormat | None = None) -> Markup:
    """Draw the axis above the bars of one statistic, with round numbers.

    Parameters
    ----------
    axis : ChartAxis
        Axis of the bars, from 0 to 1.
    numbers : NumberFormat, optional
        How the numbers are written, such as dates; None for plain ones.
    """
    write = numbers or as_number
    shapes = [tag("line", class_="axis", x1=0, x2="100%", y1=19.5, y2=19.5)]
    for tick in axis.ticks(_CELL_TICKS):
        place = axis(tick)
        anchor = "start" if place < 0.1 else "end" if place > 0.9 else "middle"
        shapes += [
            tag("line", class_="axis", x1=share(place), x2=share(place), y1=15, y2=20),
            label(write(tick), share(place), 11, anchor=anchor, class_="tick"),
        ]
    return tag(
        "svg",
        *shapes,
        class_="chart cell-axis",
        width="100%",
        height=20,
        aria_hidden="true",
        focusable="false",
    )


def cell_bar(axis: ChartAxis, value: float, lower: float, upper: float, *, from_zero: bool) -> Markup:
    """Draw one group of an answer: its number as a bar or a dot, its interval as a whisker.

    The table row says the same in numbers, so the bar is hidden from screen readers.
    """
    middle = 11
    low, at, high = (share(axis(x)) for x in (lower, value, upper))
    places = [share(axis(tick)) for tick in axis.ticks(_CELL_TICKS)]
    shapes = [tag("line", class_="grid", x1=x, x2=x, y1=0, y2=22) for x in places]
    if from_zero:
        left, right = sorted((axis(0.0), axis(value)))
        shapes.append(
            tag("rect", class_="fill", x=share(left), y=3, width=share(right - left), height=16, rx=2)
        )
        zero = share(axis(0.0))
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
    """Draw the spent share of a limit; the numbers stand beside it."""
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
    """Draw the spending over time as steps, under the limit.

    Parameters
    ----------
    points : sequence of (when, spent in all until then)
        Times in ISO 8601 and totals until then, in order.
    limit : float or None
        Largest amount that may be spent; None if there is no limit.
    currency : str
        Name of the privacy amount that is summed, such as epsilon.

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
        # The amounts are written to the left of the first step.
        x = 120 + 860 * (time - first) / width if times[-1] > first else 500
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
            ticks.append(label(as_number(tick), "0%", y - 4 if y > 14 else y + 12, class_="tick"))
    if shown_limit and limit is not None:
        y = _STEPS_HEIGHT * (1 - limit / top)
        grid += [
            tag("line", class_="level-line", x1="0%", x2="100%", y1=y, y2=y),
            label(f"limit {formatting.number(limit, rounding='down')}", "100%", y - 4, anchor="end"),
        ]
    ends = [
        label(formatting.date(points[0][0]), "0%", _STEPS_HEIGHT + 18, class_="tick"),
        label(formatting.date(points[-1][0]), "100%", _STEPS_HEIGHT + 18, anchor="end", class_="tick"),
    ]
    spent_of = formatting.number(spent, rounding="up") + (
        "" if limit is None else f" of {formatting.number(limit, rounding='down')}"
    )
    description = (
        f"{spent_of} spent from {formatting.date(points[0][0])} to {formatting.date(points[-1][0])}."
    )
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
