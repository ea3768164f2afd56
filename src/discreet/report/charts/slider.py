"""The ruler below the what-if slider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.report.charts.canvas import figure, label, share, tag

if TYPE_CHECKING:
    from markupsafe import Markup


def slider_ticks(key: str, positions: int, chosen: int) -> Markup:
    """Draw a tick for each position of the slider, and name the one that was chosen."""
    last = max(1, positions - 1)
    shapes = [
        tag("line", class_="axis", x1=share(k / last), x2=share(k / last), y1=0, y2=6)
        for k in range(positions)
        if k != chosen
    ]
    at = share(chosen / last)
    # The words lean inward where the edge is near.
    anchor = "start" if chosen / last < 0.1 else "end" if chosen / last > 0.9 else "middle"
    return figure(
        key,
        *shapes,
        tag("line", class_="mark-floor", x1=at, x2=at, y1=0, y2=9),
        label("as released", at, 22, anchor=anchor, class_="tick release"),
        title="Positions of the slider",
        description=f"{positions} positions; position {chosen + 1} is the release as it is.",
        width=640,
        height=26,
        class_="ticks",
        fluid=True,
    )
