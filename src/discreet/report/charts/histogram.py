"""One column before and after: shares of rows, the original as a line, the release as bars."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from discreet.report import wording
from discreet.report.charts.canvas import figure, label, path, tag
from discreet.report.charts.scale import Axis, as_number, as_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

_WIDTH = 300
_MOST_LEVELS = 12


def histogram(
    key: str,
    column: str,
    labels: Sequence[str],
    original: Sequence[float],
    release: Sequence[float],
    *,
    ordered: bool,
) -> Markup:
    """Draw the shares of rows in each bar.

    Parameters
    ----------
    ordered : bool
        Numbers stand side by side along their range; the levels of a list below one another.
    """
    if ordered:
        return _side_by_side(key, column, labels, original, release)
    return _below_one_another(key, column, labels, original, release)


def _tick(text: str) -> str:
    """Write the middle of a bin as axes write numbers; other names stay."""
    try:
        value = float(text)
    except ValueError:
        return text
    return as_number(value) if math.isfinite(value) else text


def _description(labels: Sequence[str], original: Sequence[float], release: Sequence[float]) -> str:
    if not labels:
        return "There is nothing to show."
    worst = max(range(len(labels)), key=lambda j: abs(original[j] - release[j]))
    before, after = wording.percent(original[worst]), wording.percent(release[worst])
    return (
        f"Shares of rows in {wording.counted(len(labels), 'bar')}. They differ most at {labels[worst]}: "
        f"{before} before, {after} after."
    )


def _side_by_side(
    key: str, column: str, labels: Sequence[str], original: Sequence[float], release: Sequence[float]
) -> Markup:
    height, left, right, top, bottom = 168, 40, 8, 10, 26
    largest = max([*original, *release, 0.0]) or 1.0
    y = Axis(lower=0.0, upper=largest * 1.06, start=height - bottom, end=top)
    step = (_WIDTH - left - right) / max(1, len(labels))
    shapes = []
    for tick in y.ticks(3):
        shapes += [
            tag("line", class_="grid", x1=left, x2=_WIDTH - right, y1=y(tick), y2=y(tick)),
            label(as_percent(tick), left - 6, y(tick) + 4, anchor="end", class_="tick"),
        ]
    for j, after in enumerate(release):
        # The first and last bar stand for what left the declared range.
        beyond = len(labels) > 2 and j in (0, len(labels) - 1)
        shapes.append(
            tag(
                "rect",
                tag(
                    "title",
                    f"{labels[j]}: {wording.percent(original[j])} before, {wording.percent(after)} after",
                ),
                class_="after beyond" if beyond else "after",
                x=left + j * step + 0.5,
                y=y(after),
                width=max(step - 1, 0.5),
                height=max(y(0.0) - y(after), 0.0),
            )
        )
    if original:
        outline: list[tuple[float, float]] = [(left, y(0.0))]
        for j, before in enumerate(original):
            outline += [(left + j * step, y(before)), (left + (j + 1) * step, y(before))]
        shapes.append(path([*outline, (left + len(original) * step, y(0.0))], class_="before"))
    shapes.append(tag("line", class_="axis", x1=left, x2=_WIDTH - right, y1=y(0.0), y2=y(0.0)))
    named = sorted({1, len(labels) // 2, len(labels) - 2} if len(labels) > 4 else set(range(len(labels))))
    shapes += [
        label(
            wording.shortened(_tick(labels[j]), 12),
            left + (j + 0.5) * step,
            height - 8,
            anchor="middle",
            class_="tick",
        )
        for j in named
    ]
    return figure(
        key,
        *shapes,
        title=f"{column}, before and after",
        description=_description(labels, original, release),
        width=_WIDTH,
        height=height,
    )


def _below_one_another(
    key: str, column: str, labels: Sequence[str], original: Sequence[float], release: Sequence[float]
) -> Markup:
    left, right, row, top = 116, 40, 20, 4
    # The levels with most rows, before or after, in the declared order.
    by_size = sorted(range(len(labels)), key=lambda j: (-max(original[j], release[j]), j))
    shown = sorted(by_size[:_MOST_LEVELS])
    rest = len(labels) - len(shown)
    height = top + row * (len(shown) + (1 if rest else 0)) + 4
    x = Axis(lower=0.0, upper=max([*original, *release, 0.0]) or 1.0, start=left, end=_WIDTH - right)
    shapes = []
    for k, j in enumerate(shown):
        y = top + k * row
        full = f"{labels[j]}: {wording.percent(original[j])} before, {wording.percent(release[j])} after"
        shapes += [
            tag(
                "g",
                tag("title", full),
                label(wording.shortened(labels[j], 15), left - 8, y + 13, anchor="end"),
                class_="level",
            ),
            tag(
                "rect", class_="after", x=left, y=y + 3, width=max(x(release[j]) - left, 0.0), height=row - 7
            ),
            tag("line", class_="before", x1=x(original[j]), x2=x(original[j]), y1=y + 1, y2=y + row - 2),
            label(
                wording.percent(release[j], digits=2),
                max(x(release[j]), x(original[j])) + 5,
                y + 13,
                class_="tick",
            ),
        ]
    if rest:
        shapes.append(label(f"and {rest:,} more", left, top + row * len(shown) + 13, class_="tick"))
    return figure(
        key,
        *shapes,
        title=f"{column}, before and after",
        description=_description(labels, original, release),
        width=_WIDTH,
        height=height,
    )
