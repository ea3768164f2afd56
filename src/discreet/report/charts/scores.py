"""How good models are, side by side, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from discreet.report.charts.canvas import figure, label, tag
from discreet.report.charts.scale import Axis, as_number, as_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 400, 30, 12, 12, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One model's score: its name, its class in the style sheet, its value and interval."""

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
    x = Axis.around(values, _LEFT + 4, _WIDTH - _RIGHT - 4, margin=0.15)
    bottom = _TOP + (_ROW + 8) * len(bars) + 2
    shapes = []
    for tick in x.ticks(5):
        shapes += [
            tag("line", class_="axis", x1=x(tick), x2=x(tick), y1=bottom, y2=bottom + 4),
            label(named(tick), x(tick), bottom + 18, anchor="middle", class_="tick"),
        ]
    shapes.append(tag("line", class_="axis", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=bottom, y2=bottom))
    for k, bar in enumerate(bars):
        y = _TOP + k * (_ROW + 8) + 26
        shapes += [
            tag("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y),
            tag("line", class_=f"interval {bar.class_}", x1=x(bar.lower), x2=x(bar.upper), y1=y, y2=y)
            if bar.lower is not None and bar.upper is not None
            else Markup(""),
            tag("circle", class_=f"dot {bar.class_}", cx=x(bar.value), cy=y, r=5),
            label(f"{bar.name}: {named(bar.value)}", _LEFT, y - 10, class_="level"),
        ]
    return figure(
        key,
        *shapes,
        title=f"{quality.capitalize()} of models, side by side",
        description=" ".join(f"{b.name}: {named(b.value)}." for b in bars),
        width=_WIDTH,
        height=bottom + 24,
        class_="scores",
    )
