"""Charts of distributions: columns before and after, and correlations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from discreet import formatting
from discreet.report.charts._svg import ChartAxis, as_number, as_percent, figure, label, path, tag

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    """Draw the shares of rows in each bar, before and after.

    Parameters
    ----------
    ordered : bool
        Whether bars stand side by side along a range; if not, below one another as levels of a list.
    """
    if ordered:
        return _side_by_side(key, column, labels, original, release)
    return _below_one_another(key, column, labels, original, release)


def _tick(text: str) -> str:
    """Return the label of a bin, numbers in the form of axis labels."""
    try:
        value = float(text)
    except ValueError:
        return text
    return as_number(value) if math.isfinite(value) else text


def _description(labels: Sequence[str], original: Sequence[float], release: Sequence[float]) -> str:
    if not labels:
        return "There is nothing to show."
    worst = max(range(len(labels)), key=lambda j: abs(original[j] - release[j]))
    before, after = formatting.percent(original[worst]), formatting.percent(release[worst])
    return (
        f"Shares of rows in {formatting.count_noun(len(labels), 'bar')}. They differ most at "
        f"{labels[worst]}: {before} before, {after} after."
    )


def _side_by_side(
    key: str, column: str, labels: Sequence[str], original: Sequence[float], release: Sequence[float]
) -> Markup:
    """Draw the bins of a number along its range, the release as bars and the original as an outline."""
    height, left, right, top, bottom = 168, 40, 8, 10, 26
    largest = max([*original, *release, 0.0]) or 1.0
    y = ChartAxis(lower=0.0, upper=largest * 1.06, start=height - bottom, end=top)
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
                    f"{labels[j]}: {formatting.percent(original[j])} before, "
                    f"{formatting.percent(after)} after",
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
            formatting.shorten(_tick(labels[j]), 12),
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
    """Draw the levels of a list as rows: the release as a bar, the original as a tick."""
    left, right, row, top = 116, 40, 20, 4
    # The levels with most rows, before or after, in the declared order.
    by_size = sorted(range(len(labels)), key=lambda j: (-max(original[j], release[j]), j))
    shown = sorted(by_size[:_MOST_LEVELS])
    rest = len(labels) - len(shown)
    height = top + row * (len(shown) + (1 if rest else 0)) + 4
    x = ChartAxis(lower=0.0, upper=max([*original, *release, 0.0]) or 1.0, start=left, end=_WIDTH - right)
    shapes = []
    for k, j in enumerate(shown):
        y = top + k * row
        full = (
            f"{labels[j]}: {formatting.percent(original[j])} before, {formatting.percent(release[j])} after"
        )
        shapes += [
            tag(
                "g",
                tag("title", full),
                label(formatting.shorten(labels[j], 15), left - 8, y + 13, anchor="end"),
                class_="level",
            ),
            tag(
                "rect", class_="after", x=left, y=y + 3, width=max(x(release[j]) - left, 0.0), height=row - 7
            ),
            tag("line", class_="before", x1=x(original[j]), x2=x(original[j]), y1=y + 1, y2=y + row - 2),
            label(
                formatting.percent(release[j], digits=2),
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


MOST_COLUMNS = 30
_MOST_WITH_TEXT = 12
_STEPS = (0.02, 0.05, 0.1, 0.2, 0.4)  # shade k holds differences of at least the k-th


def correlation_heat(
    key: str, columns: Sequence[str], original: Sequence[Sequence[float]], release: Sequence[Sequence[float]]
) -> Markup:
    """Draw release minus original for each pair; at most :data:`MOST_COLUMNS`, the most changed ones."""
    if len(columns) < 2:
        return Markup("")
    shown = most_changed(original, release)
    with_text = len(shown) <= _MOST_WITH_TEXT
    size, left, top = (42, 132, 30) if with_text else (15, 132, 8)
    shapes = []
    for a, i in enumerate(shown):
        y = top + a * size
        shapes.append(
            tag(
                "g",
                tag("title", formatting.name(columns[i])),
                label(
                    f"{formatting.shorten(columns[i], 14)} {a + 1}",
                    left - 8,
                    y + size / 2 + 4,
                    anchor="end",
                ),
                class_="level",
            )
        )
        if with_text:
            shapes.append(
                label(str(a + 1), left + (a + 0.5) * size, top - 10, anchor="middle", class_="tick")
            )
        for b, j in enumerate(shown[:a]):
            difference = release[i][j] - original[i][j]
            pair = f"{formatting.name(columns[i])} and {formatting.name(columns[j])}"
            words = f"{pair}: {signed(original[i][j])} before, {signed(release[i][j])} after"
            inside = [
                tag(
                    "rect",
                    tag("title", words),
                    class_=f"cell {shade(difference)}",
                    x=left + b * size,
                    y=y,
                    width=size - 1,
                    height=size - 1,
                    rx=2,
                )
            ]
            if with_text:
                inside.append(
                    label(
                        signed(difference),
                        left + (b + 0.5) * size - 0.5,
                        y + size / 2 + 4,
                        anchor="middle",
                        class_=f"cell-text {shade(difference)}",
                    )
                )
            shapes += inside
    worst = max(
        ((abs(release[i][j] - original[i][j]), i, j) for a, i in enumerate(shown) for j in shown[:a]),
        default=(0.0, 0, 0),
    )
    return figure(
        key,
        *shapes,
        title="Correlations: release minus original",
        description=(
            f"One cell for each pair of {len(shown)} numeric columns. The largest change is "
            f"{signed(worst[0])[1:]}, of {formatting.name(columns[worst[1]])} and "
            f"{formatting.name(columns[worst[2]])}."
        ),
        width=left + len(shown) * size + 4,
        height=top + len(shown) * size + 4,
        class_="heat",
    )


def most_changed(original: Sequence[Sequence[float]], release: Sequence[Sequence[float]]) -> list[int]:
    """Return the columns whose correlations changed most, in the order of the table."""
    count = len(original)
    change = [
        max((abs(release[i][j] - original[i][j]) for j in range(count) if j != i), default=0.0)
        for i in range(count)
    ]
    worst = sorted(range(count), key=lambda i: (-change[i], i))[:MOST_COLUMNS]
    return sorted(worst)


def shade(difference: float) -> str:
    """Return the class of a cell: the sign of the change, and one of six sizes."""
    size = sum(abs(difference) >= step for step in _STEPS)
    return "h0" if not size else f"{'up' if difference > 0 else 'down'}{size}"


def signed(value: float) -> str:
    """Return a correlation to a hundredth, with its sign."""
    text = f"{value:+.2f}"
    return ("+0.00" if text == "-0.00" else text).replace("-", "\u2212")
