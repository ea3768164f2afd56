"""How much correlations changed: one cell for each pair of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from discreet.report import wording
from discreet.report.charts.canvas import figure, label, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

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
                tag("title", wording.name(columns[i])),
                label(
                    f"{wording.shortened(columns[i], 14)} {a + 1}", left - 8, y + size / 2 + 4, anchor="end"
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
            pair = f"{wording.name(columns[i])} and {wording.name(columns[j])}"
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
            f"One cell for each pair of {len(shown)} numbers. The largest change is {signed(worst[0])[1:]}, "
            f"of {wording.name(columns[worst[1]])} and {wording.name(columns[worst[2]])}."
        ),
        width=left + len(shown) * size + 4,
        height=top + len(shown) * size + 4,
        class_="heat",
    )


def most_changed(original: Sequence[Sequence[float]], release: Sequence[Sequence[float]]) -> list[int]:
    """Return the columns whose correlations changed most, in the table's order."""
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
    """Write a correlation to a hundredth, with its sign."""
    text = f"{value:+.2f}"
    return ("+0.00" if text == "-0.00" else text).replace("-", "\u2212")
