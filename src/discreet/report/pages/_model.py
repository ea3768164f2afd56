"""What a page shows of an additive model: the effect of each column, as the model itself predicts it."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet import formatting
from discreet.report.charts import MOST_CLASSES, ColumnEffect, EffectCell, draw_effect, effect_axis
from discreet.report.pages.tables import SummaryTile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from markupsafe import Markup

    from discreet._types import AnyArray, Floats
    from discreet.learn import PrivateClassifier
    from discreet.schema import Column

MISSING = "missing"
_SHOWN = 24  # pictures before the rest is folded
_MOST_LEVELS = 16  # bars of a list; of a longer one the largest and the smallest
_FLAT = 0.01  # effect that no picture shows
_NARROW = 1 / 100  # width of the cell of a bound, as part of the range, below which it stands by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectPicture:
    """Picture of the effect of one column, with its caption."""

    column: str
    caption: str
    picture: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsView:
    """Pictures of all columns, those with the largest effect first.

    Attributes
    ----------
    shown, folded : sequence of EffectPicture
        Pictures that are always shown, and those that can be unfolded.
    flat : sequence of str
        Names of the columns whose effect no picture would show.
    classes : sequence of str
        Classes that are drawn: the second of two, or up to eight of more.
    first : str
        First of two classes; empty if there are more.
    left_out : int
        Number of classes without a color.
    """

    shown: Sequence[EffectPicture]
    folded: Sequence[EffectPicture]
    flat: Sequence[str]
    classes: Sequence[str]
    first: str
    left_out: int


def effects_view(model: PrivateClassifier) -> EffectsView:
    """Return the pictures of a fitted classifier.

    Privacy
    -------
    Shows the published model and nothing else: its curves, their noise and the noisy shares of their cells.
    """
    names = [formatting.printable(str(name)) for name in model.classes_.tolist()]
    drawn = [1] if len(names) == 2 else list(range(min(len(names), MOST_CLASSES)))
    effects = sorted(column_effects(model, drawn), key=lambda effect: -effect.spread)
    visible = [effect for effect in effects if effect.largest >= _FLAT]
    ends = effect_axis(visible)
    classes = [names[k] for k in drawn]
    pictures = [_draw(f"effect-{i}", effect, classes, ends) for i, effect in enumerate(visible)]
    return EffectsView(
        shown=pictures[:_SHOWN],
        folded=pictures[_SHOWN:],
        flat=[effect.column for effect in effects if effect.largest < _FLAT],
        classes=classes,
        first=names[0] if len(names) == 2 else "",
        left_out=0 if len(names) == 2 else len(names) - len(drawn),
    )


def _draw(key: str, effect: ColumnEffect, classes: Sequence[str], ends: tuple[float, float]) -> EffectPicture:
    """Return the picture of one column, on the common scale or two or four times enlarged."""
    lower, upper = effect_axis([effect])
    fitting = (n for n in (4, 2) if lower >= ends[0] / n and upper <= ends[1] / n)
    times = next(fitting, 1)
    enlarged = "" if times == 1 else f", {'twice' if times == 2 else '4 times'} enlarged"
    return EffectPicture(
        column=effect.column,
        caption=f"spread {formatting.number(effect.spread, digits=2)}{enlarged}",
        picture=draw_effect(key, effect, classes, (ends[0] / times, ends[1] / times)),
    )


def score_tiles(model: PrivateClassifier) -> list[SummaryTile]:
    """Return the tiles about the paid score; none if there is no score."""
    score = model.score_
    if score is None:
        return []
    percent = formatting.percent
    interval = f"{percent(score.lower, rounding='down')} to {percent(score.upper, rounding='up')}"
    better = score.gain_lower > 0
    points = " to ".join(f"{100 * gain:.1f}" for gain in (score.gain_lower, score.gain_upper))
    return [
        SummaryTile(
            title="Accuracy", amount=percent(score.accuracy), kind="ok" if better else "warn",
            note="on the training rows, counted with noise that was paid for",
        ),
        SummaryTile(
            title="On new rows", amount=interval, kind="ok" if better else "warn",
            note="95 % interval, if they are from the same population",
        ),
        SummaryTile(
            title="Most common class", amount=percent(score.vote), kind="plain",
            note="right if it is named for every row",
        ),
        SummaryTile(
            title="Gain, in points", amount=points.replace("-", "\u2212"), kind="ok" if better else "warn",
            note="shown to be better than the most common class"
            if better
            else "not shown to be better than the most common class",
        ),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Point:
    """A value of a column at which the model is asked: the cell it is in, and the value."""

    cell: int
    value: Any


def column_effects(model: PrivateClassifier, drawn: Sequence[int]) -> list[ColumnEffect]:
    """Return the effect of each column on the classes that are drawn.

    The model is additive: what a value of one column adds is found by predicting rows that differ in that
    column alone. An effect of 0 is that of the average row, by the noisy shares of the cells.

    Parameters
    ----------
    model : PrivateClassifier
        Fitted classifier whose effects are shown.
    drawn : sequence of int
        Positions of the classes that are drawn; of two classes the second, whose log-odds are drawn.
    """
    columns = model.layout_.schema.columns
    points = [_points(column, model) for column in columns]
    scores = _predict(model, columns, points)
    two = len(model.classes_) == 2
    scores = scores[:, 1:] - scores[:, :1] if two else scores[:, list(drawn)]
    result, at = [], 0
    for column, own in zip(columns, points, strict=True):
        mine = scores[at : at + len(own)]
        at += len(own)
        shares, sd = model.curves_[column.name].shares, model.effect_sd(column.name)
        sd = sd if two else sd[:, list(drawn)]
        first, last = _ends_of_cells(own, mine, len(sd))
        middle = (first + last) / 2
        center = [math.fsum(shares * middle[:, k]) for k in range(middle.shape[1])]
        result.append(_make_effect(column, model, first - center, last - center, sd))
    return result


def _points(column: Column, model: PrivateClassifier) -> list[_Point]:
    """Return the values of a column to ask about: its levels, or both ends of each cell of a number."""
    if column.is_category:
        return [_Point(i, level) for i, level in enumerate(column.levels)]
    points = []
    spans = _spans(column, model)
    step = 1.0 if column.is_whole else column.width * 2.0**-20
    for i, (start, end) in enumerate(spans):
        is_last = i == len(spans) - 1
        points.append(_Point(i, start))
        points.append(_Point(i, end if is_last else max(start, end - step)))
    if len(model.curves_[column.name].values) > len(spans):
        points.append(_Point(len(spans), math.nan))
    return points


def _spans(column: Column, model: PrivateClassifier) -> list[tuple[float, float]]:
    """Return where each cell of a number begins and ends, without that of missing values."""
    lower, upper = column.range
    edges = [lower, *model.cells_.edges[column.name], upper]
    return list(itertools.pairwise(edges))


def _predict(
    model: PrivateClassifier, columns: Sequence[Column], points: Sequence[Sequence[_Point]]
) -> Floats:
    """Return the scores of the classes for rows that differ from one row in a single column each."""
    total = sum(map(len, points))
    rows: dict[str, AnyArray] = {}
    at = 0
    for column, own in zip(columns, points, strict=True):
        cells = [own[0].value] * total
        cells[at : at + len(own)] = [point.value for point in own]
        at += len(own)
        rows[column.name] = _cells(column, cells)
    asked_model = copy.copy(model)
    if model.layout_.plain:
        # With numbers alone the learner takes a matrix, which has no names to compare.
        asked_model.__dict__.pop("feature_names_in_", None)
        return asked_model.predict_joint_log_proba(np.column_stack(list(rows.values())))
    return asked_model.predict_joint_log_proba(rows)


def _cells(column: Column, values: Sequence[Any]) -> AnyArray:
    """Return cells of a column as a frame would hold them."""
    if column.is_category:
        return np.array(values, dtype=object)
    numbers = np.array(values, np.float64)
    return column.moments(np.floor(numbers)) if column.is_calendar else numbers


def _ends_of_cells(points: Sequence[_Point], scores: Floats, n_cells: int) -> tuple[Floats, Floats]:
    """Return the scores at the first and at the last point of each cell."""
    first, last = np.zeros((n_cells, scores.shape[1])), np.zeros((n_cells, scores.shape[1]))
    for point, score in zip(reversed(points), reversed(scores), strict=True):
        first[point.cell] = score
    for point, score in zip(points, scores, strict=True):
        last[point.cell] = score
    return first, last


def _make_effect(
    column: Column, model: PrivateClassifier, first: Floats, last: Floats, sd: Floats
) -> ColumnEffect:
    """Return the effect of one column, its cells named or with their ends."""
    if column.is_category:
        places = [(_level_text(level), 0.0, 0.0) for level in column.levels]
    else:
        places = _number_places(column, _spans(column, model))
        places += [(MISSING, 0.0, 0.0)] * (len(first) - len(places))
    cells = [
        EffectCell(
            name=name, start=start, end=end,
            first=tuple(first[i].tolist()), last=tuple(last[i].tolist()), sd=tuple(sd[i].tolist()),
            share=float(model.curves_[column.name].shares[i]),
        )
        for i, (name, start, end) in enumerate(places)
    ]  # fmt: skip
    if column.is_category:
        cells.sort(key=lambda cell: -cell.first[0])
        if len(cells) > _MOST_LEVELS:
            half = _MOST_LEVELS // 2
            cells = [*cells[:half], *cells[-half:]]
    return ColumnEffect(
        column=column.name,
        cells=cells,
        is_number=column.is_number,
        axis_title=formatting.shorten(column.measure or column.name, 40),
        scale_title="log-odds" if len(model.classes_) == 2 else "score",
        format=_number_format(column),
    )


def _level_text(level: Any) -> str:
    return MISSING if level is None else str(level)


def _number_places(column: Column, spans: Sequence[tuple[float, float]]) -> list[tuple[str, float, float]]:
    """Return name and ends of each cell of a number; only narrow cells of a bound have a name."""
    whole = column.is_whole
    text = _number_format(column)
    lower, upper = column.range
    bounds = f"= {text(lower)}", f"= {text(upper)}"
    if column.is_calendar:
        bounds = f"first {column.step or 'day'}", f"last {column.step or 'day'}"
    narrow = column.width * _NARROW
    places = []
    for i, (start, end) in enumerate(spans):
        is_first, is_last = i == 0, i == len(spans) - 1
        width = end - start + (1.0 if whole and is_last else 0.0)
        # Whole numbers from 3 to 5 are drawn from 2.5 to 5.5.
        ends = (start - 0.5, end + 0.5 if is_last else end - 0.5) if whole else (start, end)
        alone = len(spans) > 1 and width <= narrow and (not whole or width == 1.0)
        places.append((bounds[0] if alone and is_first else bounds[1] if alone and is_last else "", *ends))
    return places


def _number_format(column: Column) -> Callable[[float], str]:
    """Return the function that writes a number of a column: a date or datetime as such, others in short."""
    if not column.is_whole:
        return _short_number
    if column.type == "integer":
        # A cell that is drawn from 2.5 on begins with 3.
        return lambda value: _short_number(math.ceil(value))
    return lambda steps: str(column.moment(math.ceil(steps)))


def _short_number(value: float) -> str:
    """Return a number in little room: thousands and millions as letters."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return formatting.number(value / unit, digits=3) + letter
    return formatting.number(value, digits=3)
