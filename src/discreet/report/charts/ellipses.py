"""Classes as ellipses over two columns: a picture of a large-margin Gaussian classifier."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from discreet.report import wording
from discreet.report.charts.canvas import figure, label, path, tag
from discreet.report.charts.scale import Axis, as_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from discreet.learn.large_margin import Ellipse

_SIDE, _LEFT, _RIGHT, _TOP, _BOTTOM = 300, 60, 14, 12, 44
_POINTS = 72


def ellipse_picture(
    key: str,
    ellipses: Sequence[Ellipse],
    columns: tuple[str, str],
    bounds: tuple[tuple[float, float], tuple[float, float]],
) -> Markup:
    """Draw the ellipses of a model of two columns, over the ranges that were declared for them.

    Parameters
    ----------
    key : str
        Unique on the page.
    ellipses : sequence of Ellipse
        As :meth:`~discreet.learn.LargeMarginGaussianClassifier.ellipses` returns them.
    columns : (str, str)
        Names of the two columns.
    bounds : ((float, float), (float, float))
        Lower and upper bound of the first and of the second column.

    Privacy
    -------
    Drawn from the released model and from what was declared; no row is seen.

    Reference
    ---------
    docs/explanation/theorems/large-margin-cone.md
    """
    (left, right), (low, high) = bounds
    x = Axis(lower=left, upper=right, start=_LEFT, end=_LEFT + _SIDE)
    y = Axis(lower=low, upper=high, start=_TOP + _SIDE, end=_TOP)
    frame = {"x": _LEFT, "y": _TOP, "width": _SIDE, "height": _SIDE}
    shapes = [
        tag("clipPath", tag("rect", **frame), id=f"{key}-frame"),
        *_axes(x, y, columns),
        tag(
            "g",
            *(path(_outline(e, bounds), class_="line", fill="none", stroke="currentColor") for e in ellipses),
            clip_path=f"url(#{key}-frame)",
        ),
    ]
    for e in ellipses:
        # A center beyond the declared range is named at the edge that it lies behind.
        at_x, at_y = x(e.center[0]), y(e.center[1])
        shapes += [
            tag("circle", tag("title", str(e.label)), class_="dot", cx=at_x, cy=at_y, r=3),
            label(wording.shortened(str(e.label), 14), at_x + 6, at_y - 5, class_="level"),
        ]
    words = "; ".join(
        f"{wording.name(str(e.label))} around {as_number(e.center[0])}, {as_number(e.center[1])}"
        for e in ellipses
    )
    return figure(
        key,
        *shapes,
        title=f"Classes over {columns[0]} and {columns[1]}",
        description=(
            f"One ellipse for each class or part of one: {words}. A row belongs to the nearest class; "
            "how large an ellipse is drawn is a convention, and where two of them cross is not the boundary."
        ),
        width=_LEFT + _SIDE + _RIGHT,
        height=_TOP + _SIDE + _BOTTOM,
        class_="plane",
    )


def _outline(
    e: Ellipse, bounds: tuple[tuple[float, float], tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return places around an ellipse, also outside of the frame, where the picture is cut off."""
    (left, right), (low, high) = bounds
    turn = math.radians(e.angle)
    points = []
    for i in range(_POINTS + 1):
        t = 2 * math.pi * i / _POINTS
        a, b = e.radii[0] * math.cos(t), e.radii[1] * math.sin(t)
        at_x = e.center[0] + a * math.cos(turn) - b * math.sin(turn)
        at_y = e.center[1] + a * math.sin(turn) + b * math.cos(turn)
        # Far outside, numbers of any size would only make the file longer.
        part_x = min(max((at_x - left) / (right - left), -9.0), 10.0)
        part_y = min(max((at_y - low) / (high - low), -9.0), 10.0)
        points.append((_LEFT + _SIDE * part_x, _TOP + _SIDE * (1 - part_y)))
    return points


def _axes(x: Axis, y: Axis, columns: tuple[str, str]) -> list[Markup]:
    bottom, right = _TOP + _SIDE, _LEFT + _SIDE
    shapes = []
    for tick in y.ticks(5):
        shapes += [
            tag("line", class_="grid", x1=_LEFT, x2=right, y1=y(tick), y2=y(tick)),
            label(as_number(tick), _LEFT - 8, y(tick) + 4, anchor="end", class_="tick"),
        ]
    for tick in x.ticks(5):
        shapes += [
            tag("line", class_="axis", x1=x(tick), x2=x(tick), y1=bottom, y2=bottom + 4),
            label(as_number(tick), x(tick), bottom + 18, anchor="middle", class_="tick"),
        ]
    shapes.append(tag("line", class_="axis", x1=_LEFT, x2=right, y1=bottom, y2=bottom))
    across = f"{wording.shortened(columns[0], 24)}; upwards: {wording.shortened(columns[1], 24)}"
    return [*shapes, label(across, (_LEFT + right) / 2, bottom + 38, anchor="middle", class_="axis-title")]
