"""Curves: learning, calibration, errors against noise, and the scale of the what-if slider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from discreet import formatting
from discreet.report.charts._svg import ChartAxis, as_number, as_percent, figure, label, path, share, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Point = tuple[float, float]

_WIDTH, _HEIGHT = 400, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 12, 44


@dataclass(frozen=True, slots=True)
class _Frame:
    """Axes of a curve, with their title and the format of their labels."""

    x: ChartAxis
    y: ChartAxis
    x_title: str
    x_named: Callable[[float], str]
    y_named: Callable[[float], str]

    def axes(self) -> list[Markup]:
        """Return the grid, the axes and their names."""
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        shapes = []
        for tick in self.y.ticks(5):
            shapes += [
                tag("line", class_="grid", x1=_LEFT, x2=right, y1=self.y(tick), y2=self.y(tick)),
                label(self.y_named(tick), _LEFT - 8, self.y(tick) + 4, anchor="end", class_="tick"),
            ]
        shapes.append(tag("line", class_="axis", x1=_LEFT, x2=right, y1=bottom, y2=bottom))
        for tick in self.x.ticks(5):
            shapes += [
                tag("line", class_="axis", x1=self.x(tick), x2=self.x(tick), y1=bottom, y2=bottom + 4),
                label(self.x_named(tick), self.x(tick), bottom + 18, anchor="middle", class_="tick"),
            ]
        middle = (_LEFT + right) / 2
        return [*shapes, label(self.x_title, middle, _HEIGHT - 6, anchor="middle", class_="axis-title")]

    def line(self, points: Sequence[Point], class_: str) -> list[Markup]:
        """Return a line with dots through points."""
        places = [(self.x(a), self.y(b)) for a, b in points]
        dots = [tag("circle", class_=f"dot {class_}", cx=a, cy=b, r=3) for a, b in places]
        return [path(places, class_=f"line {class_}"), *dots] if len(places) > 1 else dots

    def horizontal_line(self, value: float, words: str, class_: str) -> list[Markup]:
        """Return a horizontal line with its label at the right end."""
        right, at = _WIDTH - _RIGHT, self.y(value)
        return [
            tag("line", class_=f"level-line {class_}", x1=_LEFT, x2=right, y1=at, y2=at),
            label(words, right, at - 5, anchor="end", class_=f"tick {class_}"),
        ]

    def vertical_line(self, value: float, words: str, class_: str) -> list[Markup]:
        """Return a vertical line with its words on the side that has room."""
        at, bottom = self.x(value), _HEIGHT - _BOTTOM
        left = at > _WIDTH / 2
        return [
            tag("line", class_=f"level-line {class_}", x1=at, x2=at, y1=_TOP, y2=bottom),
            label(
                words,
                at - 6 if left else at + 6,
                bottom - 8,
                anchor="end" if left else "start",
                class_=f"tick {class_}",
            ),
        ]


def _picture(key: str, frame: _Frame, shapes: Sequence[Markup], title: str, description: str) -> Markup:
    return figure(
        key,
        *frame.axes(),
        *shapes,
        title=title,
        description=description,
        width=_WIDTH,
        height=_HEIGHT,
        class_="curve",
    )


def calibration_curve(
    key: str, curves: Sequence[tuple[str, str, Sequence[tuple[float, float, float]]]]
) -> Markup:
    """Draw the observed frequency of an event against its predicted probability.

    Parameters
    ----------
    key : str
        Identifier of the chart, unique on the page.
    curves : sequence of (name, class, points)
        Name, CSS class and points (predicted, observed, share of rows) of each curve.
    """
    drawn = [(name, class_, points) for name, class_, points in curves if points]
    if not drawn:
        return Markup("")
    frame = _Frame(
        ChartAxis(lower=0.0, upper=1.0, start=_LEFT, end=_WIDTH - _RIGHT),
        ChartAxis(lower=0.0, upper=1.0, start=_HEIGHT - _BOTTOM, end=_TOP),
        "predicted chance",
        as_percent,
        as_percent,
    )
    shapes = [path([(frame.x(0), frame.y(0)), (frame.x(1), frame.y(1))], class_="ideal")]
    for _, class_, points in drawn:
        shapes += frame.line([(a, b) for a, b, _ in points], class_)
    sentences = []
    for name, _, points in drawn:
        weight = sum(w for *_, w in points) or 1.0
        error = sum(abs(predicted - observed) * w for predicted, observed, w in points) / weight
        sentences.append(f"{name}: predictions are off by {formatting.percent(error)} on average.")
    return _picture(
        key,
        frame,
        shapes,
        "Calibration: observed frequency against predicted probability",
        " ".join(sentences) + " On the dashed line the two agree.",
    )


def learning_curve(
    key: str,
    curve: Sequence[tuple[float, float]],
    *,
    release: float | None,
    equals_share: float | None,
    quality: str,
    in_percent: bool,
) -> Markup:
    """Draw the quality of training on a share of the original rows, and that of the release."""
    if not curve:
        return Markup("")
    named = as_percent if in_percent else as_number
    values = [v for _, v in curve] + ([] if release is None else [release])
    frame = _Frame(
        ChartAxis(
            lower=min(min(s for s, _ in curve), equals_share or 1.0) / 1.15, upper=1.0,
            start=_LEFT, end=_WIDTH - _RIGHT, log=True,
        ),
        ChartAxis.from_values(values, _HEIGHT - _BOTTOM, _TOP, margin=0.2),
        "share of the original rows trained on",
        as_percent,
        named,
    )  # fmt: skip
    shapes = frame.line(curve, "original")
    text = f"With all original rows {quality} is {named(curve[-1][1])}."
    if release is not None:
        shapes += frame.horizontal_line(release, f"release {named(release)}", "release")
        text += f" With the release it is {named(release)}."
    if equals_share is not None:
        words = f"= {formatting.percent(equals_share)} of the rows"
        shapes += frame.vertical_line(min(1.0, max(equals_share, frame.x.lower)), words, "release")
        text += f" That equals training on {formatting.percent(equals_share)} of the original rows."
    return _picture(key, frame, shapes, f"Learning curve: {quality} against rows", text)


def error_curve(
    key: str,
    column: str,
    floors: Sequence[tuple[float, float]],
    *,
    chosen: float,
    without: float | None,
    attack: float | None,
    measure: str | None,
    chance: bool,
) -> Markup:
    """Draw the proven error of one column against its noise, with the release marked.

    Parameters
    ----------
    floors : sequence of (noise, floor)
        Noise as a standard deviation, or as the share of changed cells of a list, and the floor.
    chosen : float
        Amount of noise in the release.
    without, attack : float or None
        Error without the release, and of the best attack on records from the prior; None if unknown.
    """
    floors = sorted(floors)
    if not floors or not floors[0][0] > 0:
        return Markup("")
    values = [v for _, v in floors] + [v for v in (without, attack) if v is not None]
    lower, upper = floors[0][0], floors[-1][0]
    frame = _Frame(
        ChartAxis(
            lower=lower,
            upper=upper if upper > lower else lower * 2,
            start=_LEFT,
            end=_WIDTH - _RIGHT,
            log=not chance,
        )
        if not chance
        else ChartAxis(lower=0.0, upper=max(upper, 1e-9), start=_LEFT, end=_WIDTH - _RIGHT),
        ChartAxis(lower=0.0, upper=max(values) * 1.12 or 1.0, start=_HEIGHT - _BOTTOM, end=_TOP),
        "share of cells changed"
        if chance
        else f"noise, standard deviation{f' ({formatting.shorten(measure, 24)})' if measure else ''}",
        as_percent if chance else as_number,
        as_percent if chance else as_number,
    )
    shapes = []
    if without is not None:
        shapes += frame.horizontal_line(without, "no release", "without")
    shapes += frame.line(floors, "floor")
    shapes += frame.vertical_line(chosen, "chosen", "release")
    text = f"At the chosen noise the floor is {_at(floors, chosen, measure, chance)}."
    if attack is not None:
        shapes.append(tag("circle", class_="mark-attack", cx=frame.x(chosen), cy=frame.y(attack), r=5))
        text += f" The best attack erred by {formatting.quantity(attack, measure, chance=chance)}."
    if without is not None:
        text += (
            f" Without the release a guess errs by {formatting.quantity(without, measure, chance=chance)}."
        )
    return _picture(key, frame, shapes, f"{column}: proven error against noise", text)


def _at(floors: Sequence[tuple[float, float]], noise: float, measure: str | None, chance: bool) -> str:
    _, nearest = min(floors, key=lambda point: abs(point[0] - noise))
    return formatting.quantity(nearest, measure, chance=chance, rounding="down")


def what_if_curve(
    key: str,
    points: Sequence[tuple[float, float]],
    *,
    chosen: float,
    title: str,
    levels: Sequence[tuple[str, float, str]],
) -> Markup:
    """Draw an accuracy against the factor of the noise, with a cursor for the slider.

    Parameters
    ----------
    points : sequence of (factor, value)
        Factor of the noise, and accuracy at it as a share.
    levels : sequence of (name, value, class)
        Horizontal lines for comparison, each with a name and a CSS class.
    """
    if len(points) < 2:
        return Markup("")
    frame = _Frame(
        factor_axis([f for f, _ in points]),
        ChartAxis.from_values(
            [v for _, v in points] + [v for _, v, _ in levels], _HEIGHT - _BOTTOM, _TOP, margin=0.14
        ),
        "times the chosen noise",
        as_number,
        as_percent,
    )
    shapes = []
    for name, value, class_ in levels:
        shapes += frame.horizontal_line(value, name, class_)
    shapes += frame.line(points, "release")
    at = frame.x(chosen)
    shapes.append(tag("line", class_="cursor", x1=at, x2=at, y1=_TOP, y2=_HEIGHT - _BOTTOM))
    first, last = points[0], points[-1]
    text = (
        f"From {as_percent(first[1])} at {as_number(first[0])} times the noise to {as_percent(last[1])} "
        f"at {as_number(last[0])} times."
    )
    return _picture(key, frame, shapes, title, text)


def factor_axis(factors: Sequence[float]) -> ChartAxis:
    """Return the axis of the noise factor, on which the script moves the cursor too."""
    return ChartAxis(lower=min(factors), upper=max(factors), start=_LEFT, end=_WIDTH - _RIGHT, log=True)


def slider_ticks(key: str, positions: int, chosen: int) -> Markup:
    """Draw a tick for each position of the slider, and name the one that was chosen."""
    last = max(1, positions - 1)
    shapes = [
        tag("line", class_="axis", x1=share(k / last), x2=share(k / last), y1=0, y2=6)
        for k in range(positions)
        if k != chosen
    ]
    at = share(chosen / last)
    # The text is aligned inward near the edge.
    anchor = "start" if chosen / last < 0.1 else "end" if chosen / last > 0.9 else "middle"
    return figure(
        key,
        *shapes,
        tag("line", class_="mark-floor", x1=at, x2=at, y1=0, y2=9),
        label("as released", at, 22, anchor=anchor, class_="tick release"),
        title="Positions of the slider",
        description=f"{positions} positions; position {chosen + 1} is this release.",
        width=640,
        height=26,
        class_="ticks",
        fluid=True,
    )
