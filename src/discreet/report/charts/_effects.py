"""Effects of single columns on what an additive model predicts: step curves of numbers, bars of lists."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet import formatting
from discreet.report.charts._svg import ChartAxis, as_number, figure, label, path, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from markupsafe import Markup

MOST_CLASSES = 8
"""Number of classes that a chart has colors for."""
_WIDTH, _HEIGHT = 400, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 8, 24, 42
_SLOT, _GAP = 48, 6  # width of a value that stands by itself, and its distance from the curve
_BARS_TOP = 4  # above the first bar
_NAMES, _BAR, _ROW = 118, 13, 22  # width of the names of levels, height of a bar and of its row
_LETTERS = 17  # of a level that fit in its place
_LETTER = 6.4  # width of a letter of a label
_TICKS = 7  # most labels of the scale of effects
_RARE = 0.005  # share of the rows below which a cell does not stretch the scale


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCell:
    """Effect of one cell of a column.

    Attributes
    ----------
    name : str
        Level, or the single value that the cell holds; empty for an interval.
    start, end : float
        Ends of an interval of numbers; 0 where the cell has a name.
    first, last : tuple of float
        Effect at both ends, one number for each class that is drawn; they are equal in a named cell.
    sd : tuple of float
        Standard deviation of the effect, one number for each class that is drawn.
    share : float
        Share of the rows in the cell.
    """

    name: str = ""
    start: float = 0.0
    end: float = 0.0
    first: tuple[float, ...]
    last: tuple[float, ...]
    sd: tuple[float, ...]
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEffect:
    """Effect of one column, ready to be drawn.

    Attributes
    ----------
    column : str
        Name of the column.
    cells : sequence of EffectCell
        Levels of a list, or intervals of a number in their order, then values by themselves.
    is_number : bool
        Whether the column is a number or a date.
    axis_title : str
        Title of the axis of a number: its unit, or else its name.
    scale_title : str
        Title of the scale of effects.
    format : callable
        Function that returns the label of a number.
    """

    column: str
    cells: Sequence[EffectCell]
    is_number: bool
    axis_title: str = ""
    scale_title: str = "log-odds"
    format: Callable[[float], str] = as_number

    @property
    def spread(self) -> float:
        """Standard deviation of the effect over the rows; of several classes the largest."""
        squares = [
            math.fsum(cell.share * ((cell.first[k] + cell.last[k]) / 2) ** 2 for cell in self.cells)
            for k in range(len(self.cells[0].first))
        ]
        return math.sqrt(max(squares))

    @property
    def largest(self) -> float:
        """Largest effect in either direction, of any class and value."""
        return max(abs(value) for cell in self.cells for value in (*cell.first, *cell.last))


def effect_axis(effects: Sequence[ColumnEffect]) -> tuple[float, float]:
    """Return the ends of one scale for all columns, so that their effects can be compared.

    Effects of cells with almost no rows do not count, and bands of noise count up to a third more than the
    effects themselves; what is beyond the scale is cut off.
    """
    cells = [cell for effect in effects for cell in effect.cells if cell.share >= _RARE]
    ends = [(values, cell.sd) for cell in cells for values in (cell.first, cell.last)]
    bands = [(value, 2 * sd) for values, sds in ends for value, sd in zip(values, sds, strict=True)]
    largest = max((abs(value) for value, _ in bands), default=0.0) or 1.0
    lower = min((value - band for value, band in bands), default=0.0)
    upper = max((value + band for value, band in bands), default=0.0)
    most = largest * 4 / 3
    return max(min(lower, -largest / 4), -most), min(max(upper, largest / 4), most)


def draw_effect(key: str, effect: ColumnEffect, classes: Sequence[str], ends: tuple[float, float]) -> Markup:
    """Draw the effect of one column, with a band of two standard deviations on both sides.

    Parameters
    ----------
    key : str
        Identifier of the chart, unique on the page.
    effect : ColumnEffect
        Effect that is drawn.
    classes : sequence of str
        Names of the classes that are drawn, in the order of the colors.
    ends : tuple of float
        Smallest and largest number of the scale of effects.
    """
    draw = _draw_steps if effect.is_number else _draw_bars
    shapes, height = draw(effect, ends)
    return figure(
        key,
        *shapes,
        title=f"{effect.column}: effect on the prediction",
        description=_describe(effect, classes),
        width=_WIDTH,
        height=height,
        class_="effect",
    )


def _draw_steps(effect: ColumnEffect, ends: tuple[float, float]) -> tuple[list[Markup], float]:
    """Return the shapes of a number: a curve over its intervals, and dots for values by themselves."""
    spans = [cell for cell in effect.cells if not cell.name]
    alone = [cell for cell in effect.cells if cell.name]
    # The cell of the lower bound stands before the curve, those of the upper bound and of missing after it.
    before = alone[:1] if alone and effect.cells[0] is alone[0] and spans else []
    after = alone[len(before) :]
    left = _LEFT + (len(before) * _SLOT + _GAP if before else 0)
    right = _WIDTH - _RIGHT - (len(after) * _SLOT + _GAP if after else 0)
    y = ChartAxis(lower=ends[0], upper=ends[1], start=_HEIGHT - _BOTTOM, end=_TOP)
    shapes = [*_value_axis(y), label(effect.scale_title, 2, 11, class_="axis-title")]
    if spans:
        places = _span_places(spans, left, right)
        shapes += _curves(spans, places, y)
        shapes += _number_axis(effect, spans, places, is_free=(not before, not after))
    middles = [_LEFT + _SLOT / 2 for _ in before]
    middles += [right + _GAP + _SLOT * (i + 0.5) for i in range(len(after))]
    for cell, at in zip((*before, *after), middles, strict=True):
        shapes += _dots(cell, at, y)
    return shapes, _HEIGHT


def _value_axis(y: ChartAxis) -> list[Markup]:
    """Return the grid of effects with its labels, and the line of no effect."""
    right = _WIDTH - _RIGHT
    shapes: list[Markup] = []
    for tick in y.ticks(_TICKS):
        is_zero = abs(tick) < 1e-9
        shapes += [
            tag("line", class_="zero" if is_zero else "grid", x1=_LEFT, x2=right, y1=y(tick), y2=y(tick)),
            label(_format_effect(tick), _LEFT - 6, y(tick) + 4, anchor="end", class_="tick"),
        ]
    return shapes


def _span_places(spans: Sequence[EffectCell], left: float, right: float) -> list[tuple[float, float]]:
    """Return where each interval begins and ends: to scale, or all alike where some would not be seen."""
    lower, upper = spans[0].start, spans[-1].end
    narrowest = min(cell.end - cell.start for cell in spans)
    if narrowest * (right - left) >= 3 * (upper - lower):
        x = ChartAxis(lower=lower, upper=upper, start=left, end=right)
        return [(x(cell.start), x(cell.end)) for cell in spans]
    width = (right - left) / len(spans)
    return [(left + i * width, left + (i + 1) * width) for i in range(len(spans))]


def _number_axis(
    effect: ColumnEffect,
    spans: Sequence[EffectCell],
    places: Sequence[tuple[float, float]],
    is_free: tuple[bool, bool],
) -> list[Markup]:
    """Return the axis of a number, labeled at round numbers or at ends of intervals not to scale."""
    bottom, (left, right) = _HEIGHT - _BOTTOM, (places[0][0], places[-1][1])
    shapes = [tag("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom)]
    x = ChartAxis(lower=spans[0].start, upper=spans[-1].end, start=left, end=right)
    to_scale = all(abs(x(cell.start) - place) < 1e-6 for cell, (place, _) in zip(spans, places, strict=True))
    ticks = [(tick, x(tick)) for tick in x.ticks(5)]
    if not to_scale:
        ticks = [(cell.start, place) for cell, (place, _) in zip(spans, places, strict=True)]
        ticks = [*ticks[0 if is_free[0] else 1 :], *([(spans[-1].end, right)] if is_free[1] else [])]
    free = 0.0 if is_free[0] else left
    for number, at in ticks:
        text = effect.format(number)
        half = len(text) * _LETTER / 2
        # At the edge of the picture a label ends with the axis.
        middle = min(at, _WIDTH - half) if is_free[1] else at
        if middle - half < free or (not is_free[1] and middle + half > right):
            continue
        free = middle + half + _GAP
        shapes += [
            tag("line", class_="axis", x1=at, x2=at, y1=bottom, y2=bottom + 4),
            label(text, middle, bottom + 17, anchor="middle", class_="tick"),
        ]
    title = effect.axis_title + ("" if to_scale else ", not to scale")
    return [*shapes, label(title, (left + right) / 2, _HEIGHT - 6, anchor="middle", class_="axis-title")]


def _curves(spans: Sequence[EffectCell], places: Sequence[tuple[float, float]], y: ChartAxis) -> list[Markup]:
    """Return a band and a line for each class; the line is thin where the band holds 0."""
    bands, lines = [], []
    for k in range(len(spans[0].first)):
        upper, lower = [], []
        # Runs of cells that are equally sure, as an eye takes a strong line for a finding.
        runs: list[tuple[bool, list[tuple[float, float]]]] = []
        for cell, (start, end) in zip(spans, places, strict=True):
            values = cell.first[k], cell.last[k]
            sure = all(abs(value) > 2 * cell.sd[k] for value in values)
            if not runs or runs[-1][0] != sure:
                runs.append((sure, runs[-1][1][-1:] if runs else []))
            for at, value in zip((start, end), values, strict=True):
                runs[-1][1].append((at, y(value)))
                upper.append((at, y(value + 2 * cell.sd[k])))
                lower.append((at, y(value - 2 * cell.sd[k])))
        bands.append(path([*upper, *reversed(lower)], class_=f"band k{k}"))
        lines += [path(points, class_=f"step k{k}" if sure else f"step unsure k{k}") for sure, points in runs]
    return [*bands, *lines]


def _dots(cell: EffectCell, at: float, y: ChartAxis) -> list[Markup]:
    """Return the effect of a value that stands by itself, side by side for each class."""
    shapes = []
    count = len(cell.first)
    step = min(7.0, (_SLOT - 6) / max(1, count - 1)) if count > 1 else 0.0
    for k, (value, sd) in enumerate(zip(cell.first, cell.sd, strict=True)):
        x = at + (k - (count - 1) / 2) * step
        shapes += [
            tag("line", class_=f"whisker k{k}", x1=x, x2=x, y1=y(value - 2 * sd), y2=y(value + 2 * sd)),
            tag("circle", class_=f"spot k{k}", cx=x, cy=y(value), r=3.5),
        ]
    name = formatting.shorten(cell.name, 9)
    return [*shapes, label(name, at, _HEIGHT - _BOTTOM + 17, anchor="middle", class_="tick")]


def _draw_bars(effect: ColumnEffect, ends: tuple[float, float]) -> tuple[list[Markup], float]:
    """Return the shapes of a list: for each level a bar from no effect to its own, for each class."""
    count = len(effect.cells[0].first)
    thick = _BAR if count == 1 else max(4.0, min(8.0, 28.0 / count))
    row = _ROW if count == 1 else thick * count + 10
    bottom = _BARS_TOP + row * len(effect.cells)
    x = ChartAxis(lower=ends[0], upper=ends[1], start=_NAMES, end=_WIDTH - _RIGHT - 6)
    shapes: list[Markup] = []
    for tick in x.ticks(_TICKS):
        kind = "zero" if abs(tick) < 1e-9 else "grid"
        shapes += [
            tag("line", class_=kind, x1=x(tick), x2=x(tick), y1=_BARS_TOP, y2=bottom),
            label(_format_effect(tick), x(tick), bottom + 15, anchor="middle", class_="tick"),
        ]
    for i, cell in enumerate(effect.cells):
        top = _BARS_TOP + i * row + (row - thick * count) / 2
        shapes.append(_level_name(cell.name, _BARS_TOP + (i + 0.5) * row + 4))
        for k, (value, sd) in enumerate(zip(cell.first, cell.sd, strict=True)):
            start, end = sorted((x(0.0), x(value)))
            at = top + k * thick
            shapes += [
                tag("rect", class_=f"bar k{k}", x=start, y=at, width=max(end - start, 0.5), height=thick - 1),
                tag(
                    "line",
                    class_=f"whisker k{k}",
                    x1=x(value - 2 * sd), x2=x(value + 2 * sd), y1=at + thick / 2, y2=at + thick / 2,
                ),
            ]  # fmt: skip
    shapes.append(label(effect.scale_title, _NAMES - 24, bottom + 15, anchor="end", class_="axis-title"))
    return shapes, bottom + 22


def _level_name(name: str, middle: float) -> Markup:
    """Return the name of a level beside its bar; one that is cut off is shown whole to a pointer."""
    short = formatting.shorten(name, _LETTERS)
    whole = [] if short == formatting.name(name) else [tag("title", formatting.name(name))]
    return tag("text", short, *whole, x=_NAMES - 10, y=middle, text_anchor="end", class_="level")


def _describe(effect: ColumnEffect, classes: Sequence[str]) -> str:
    """Return where the effect is largest and smallest, for each class that is drawn."""
    sentences = []
    for k, name in enumerate(classes):
        values = [(part[k], cell, at) for cell in effect.cells for part, at in _ends(cell)]
        high, low = max(values, key=lambda one: one[0]), min(values, key=lambda one: one[0])
        sentences.append(
            f"For {name} it is largest, {_format_effect(high[0])}, at {_place(effect, high[1], high[2])}, "
            f"and smallest, {_format_effect(low[0])}, at {_place(effect, low[1], low[2])}."
        )
    return " ".join(sentences)


def _ends(cell: EffectCell) -> tuple[tuple[tuple[float, ...], float], ...]:
    return (cell.first, cell.start), (cell.last, cell.end)


def _place(effect: ColumnEffect, cell: EffectCell, at: float) -> str:
    return cell.name or effect.format(at)


def _format_effect(value: float) -> str:
    """Return an effect with its sign, to two digits."""
    text = formatting.number(abs(value), digits=2)
    return text if text == "0" else ("+" if value > 0 else "\u2212") + text
