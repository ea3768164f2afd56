"""The three-mark bar: how far off a guess is without the release, by the best attack, and at least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from discreet.report.charts.canvas import figure, label, share, tag
from discreet.report.charts.scale import as_number, as_percent, round_ticks

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOP, _HEIGHT, _BELOW = 12, 14, 46


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One error on the bar.

    Attributes
    ----------
    kind : {"without", "attack", "floor"}
        No release, best attack, proven floor.
    error : float
        In the column's unit, or a chance.
    words : str
        What the description says of it.
    lower, upper : float or None
        Interval of a measured error.
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
        Whether errors are chances of a wrong guess.

    Returns
    -------
    Markup
        Empty if there is nothing to draw.
    """
    largest = max((m.upper or m.error for m in marks), default=0.0)
    if not largest > 0:
        return Markup("")
    end = min(largest * 1.08, 1.0) if chance else largest * 1.08
    shapes = [tag("rect", class_="track", x=0, y=_TOP, width="100%", height=_HEIGHT, rx=3)]
    order = {"floor": 0, "without": 1, "attack": 2}
    for mark in sorted(marks, key=lambda m: order[m.kind]):
        shapes += _drawn(mark, end)
    return figure(
        key,
        *shapes,
        *_ticks(end, chance=chance),
        title=f"{column}: how far off a guess is",
        description=" ".join(mark.words for mark in marks) + " The bar starts at a perfect guess.",
        width=640,
        height=50,
        class_="marks",
        fluid=True,
    )


def _drawn(mark: Mark, end: float) -> list[Markup]:
    at, middle = share(mark.error / end), _TOP + _HEIGHT / 2
    if mark.kind == "floor":
        return [
            tag("rect", class_="proven", x=0, y=_TOP, width=at, height=_HEIGHT),
            tag("line", class_="mark-floor", x1=at, x2=at, y1=_TOP - 8, y2=_TOP + _HEIGHT + 6),
        ]
    if mark.kind == "without":
        return [tag("line", class_="mark-without", x1=at, x2=at, y1=_TOP - 8, y2=_TOP + _HEIGHT + 6)]
    shapes = []
    if mark.lower is not None and mark.upper is not None:
        low, high = share(mark.lower / end), share(mark.upper / end)
        shapes.append(tag("line", class_="interval", x1=low, x2=high, y1=middle, y2=middle))
    return [*shapes, tag("circle", class_="mark-attack", cx=at, cy=middle, r=5.5)]


def _ticks(end: float, *, chance: bool) -> list[Markup]:
    named = as_percent if chance else as_number
    ticks = [t for t in round_ticks(0.0, end, 4) if t <= end * 0.97]
    return [
        label(
            named(tick), share(tick / end), _BELOW, anchor="start" if tick == 0 else "middle", class_="tick"
        )
        for tick in ticks
    ]
