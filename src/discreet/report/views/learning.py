"""What the release is worth to a learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet.report import wording
from discreet.report.charts import calibration_curve, learning_curve, score_bars
from discreet.report.charts.scores import Bar
from discreet.report.views.table import Table, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from discreet.report.findings import Learning, Score

_NAMES = {
    "original": "trained on the original",
    "release": "trained on the release",
    "aware": "trained on the release, knowing its noise law",
    "majority": "best guess without a row",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningView:
    """Everything of the learning section."""

    target: str
    headline: str
    about: str
    note: str
    scores: Table | None
    bars: Markup
    calibration: Markup
    curve: Markup
    subgroups: Table | None


def learning_view(learning: Learning) -> LearningView:
    """Word the learning section."""
    classes = learning.task == "classification"
    quality = "accuracy" if classes else "R²"
    return LearningView(
        target=learning.target,
        headline=_headline(learning),
        about=(
            f"{wording.visible(learning.model)}, trained on {wording.counted(learning.train_rows, 'row')} "
            f"and tested on {wording.counted(learning.test_rows, 'other row')}."
        ),
        note=learning.note,
        scores=_scores(learning),
        bars=score_bars("scores", _bars(learning.scores, classes), quality=quality, in_percent=classes),
        calibration=calibration_curve(
            "calibration",
            [
                (_NAMES[s.trained_on], s.trained_on, s.calibration)
                for s in learning.scores
                if s.tested_on == "original" and s.trained_on != "majority"
            ],
        ),
        curve=learning_curve(
            "learning-curve",
            learning.curve,
            release=value(_found(learning.scores, "release")),
            equals_share=learning.equals_share,
            quality=quality,
            in_percent=classes,
        ),
        subgroups=_subgroups(learning, classes),
    )


def value(score: Score | None) -> float | None:
    """Return the accuracy of a score, or the R2 of a regression."""
    if score is None:
        return None
    return score.accuracy if score.accuracy is not None else score.r2


def original_scores(learning: Learning | None) -> dict[str, float]:
    """Return what each training is worth on original rows, by what it was trained on."""
    found = {s.trained_on: value(s) for s in learning.scores if s.tested_on == "original"} if learning else {}
    return {name: score for name, score in found.items() if score is not None}


def _found(scores: Sequence[Score], trained_on: str) -> Score | None:
    return next((s for s in scores if s.trained_on == trained_on and s.tested_on == "original"), None)


def _headline(learning: Learning) -> str:
    there = original_scores(learning)
    if "release" not in there:
        return "How well a model learns from the release was not measured."
    named_value = wording.percent if learning.task == "classification" else wording.number
    line = f"A model trained on the release reaches {named_value(there['release'])}"
    if "aware" in there:
        line += f", one that knows its noise law {named_value(there['aware'])}"
    if "original" in there:
        line += f", one trained on the original rows {named_value(there['original'])}"
    if "majority" in there:
        line += f", and the best guess without a row {named_value(there['majority'])}"
    if learning.equals_share is None:
        return line + "."
    if learning.equals_share >= 1:
        return line + f"; the release is worth as much as {learning.train_rows:,} original rows."
    share = wording.percent(learning.equals_share)
    return line + f". The release equals training on {share} of {learning.train_rows:,} original rows."


def _scores(learning: Learning) -> Table | None:
    if not learning.scores:
        return None
    classes = learning.task == "classification"
    counted = any(score.train_rows is not None for score in learning.scores)
    head = (
        *(("Model", "Training rows", "Tested on") if counted else ("Model", "Tested on")),
        *(("Accuracy", "95 % interval", "AUC") if classes else ("R²", "Error")),
    )
    rows = []
    for score in learning.scores:
        tested = "original rows" if score.tested_on == "original" else "released rows"
        if classes:
            interval = (
                wording.between(score.lower, score.upper, None, chance=True)
                if score.lower is not None and score.upper is not None
                else wording.NONE
            )
            cells = [_percent(score.accuracy), interval, _number(score.auc)]
        else:
            cells = [_number(score.r2), _number(score.rmse)]
        trained = [wording.NONE if score.train_rows is None else f"{score.train_rows:,}"] if counted else []
        rows.append([_NAMES[score.trained_on].capitalize(), *trained, tested, *cells])
    return Table(
        caption=f"How well {wording.name(learning.target)} is predicted",
        head=head,
        rows=rows,
        numbers=(1, *range(3, len(head))) if counted else range(2, len(head)),
    )


def _bars(scores: Sequence[Score], classes: bool) -> list[Bar]:
    bars = []
    for trained_on in ("original", "release", "aware", "majority"):
        score = _found(scores, trained_on)
        number = value(score)
        if score is not None and number is not None:
            low, high = (score.lower, score.upper) if classes else (None, None)
            bars.append(Bar(name=_NAMES[trained_on], class_=trained_on, value=number, lower=low, upper=high))
    return bars


def _subgroups(learning: Learning, classes: bool) -> Table | None:
    if not learning.subgroups:
        return None
    ordered = sorted(learning.subgroups, key=lambda g: g.release - g.original)
    said = _percent if classes else _number
    return Table(
        caption="By group, the largest loss first",
        head=("Group", "Rows", "Original", "Release", "Change"),
        rows=[
            [
                named(f"{g.column} = {g.level}"),
                f"{g.rows:,}",
                said(g.original),
                said(g.release),
                _change(g.release - g.original, classes),
            ]
            for g in ordered
        ],
        numbers=(1, 2, 3, 4),
        noun="more group",
    )


def _change(difference: float, classes: bool) -> str:
    text = (
        wording.number(abs(difference) * 100, digits=2)
        if classes
        else wording.number(abs(difference), digits=2)
    )
    sign = "+" if difference > 0 else "\u2212" if difference < 0 else ""
    return f"{sign}{text}" + (" points" if classes else "")


def _percent(share: float | None) -> str:
    return wording.NONE if share is None else wording.percent(share)


def _number(number: float | None) -> str:
    return wording.NONE if number is None else wording.number(number)
