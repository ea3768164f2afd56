"""Sections of a page about learning: models trained on the release, and the what-if slider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet import formatting
from discreet.report.charts import calibration_curve, learning_curve, score_bars, slider_ticks, what_if_curve
from discreet.report.charts._curves import factor_axis
from discreet.report.charts.bars import Bar
from discreet.report.pages._columns import is_chance, is_protected
from discreet.report.pages.tables import HtmlTable, name_markup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from discreet.report.findings import Findings, Learning, Score, WhatIf
    from discreet.report.statement.documents import ColumnNumbers, Statement

_NAMES = {
    "original": "trained on the original",
    "release": "trained on the release",
    "aware": "trained on the release, knowing its noise law",
    "majority": "best guess without any rows",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningView:
    """Content of the learning section."""

    target: str
    headline: str
    about: str
    note: str
    scores: HtmlTable | None
    bars: Markup
    calibration: Markup
    is_aware: bool
    curve: Markup
    subgroups: HtmlTable | None


def learning_view(learning: Learning) -> LearningView:
    """Return the learning section: sentences, tables and pictures."""
    classes = learning.task == "classification"
    quality = "accuracy" if classes else "R²"
    scores = original_scores(learning)
    return LearningView(
        target=learning.target,
        headline=_headline(learning),
        about=(
            f"{formatting.printable(learning.model)}, trained on "
            f"{formatting.count_noun(learning.train_rows, 'row')} and tested on "
            f"{formatting.count_noun(learning.test_rows, 'other row')}."
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
        is_aware="aware" in scores,
        curve=learning_curve(
            "learning-curve",
            learning.curve,
            # The better of the two models of the release, by which its share of the rows was computed.
            release=max((scores[name] for name in ("release", "aware") if name in scores), default=None),
            equals_share=learning.equals_share,
            quality=quality,
            in_percent=classes,
        ),
        subgroups=_subgroups(learning, classes),
    )


def score_value(score: Score | None) -> float | None:
    """Return the accuracy of a score, or the R2 of a regression."""
    if score is None:
        return None
    return score.accuracy if score.accuracy is not None else score.r2


def original_scores(learning: Learning | None) -> dict[str, float]:
    """Return the score of each model on original rows, by its training rows."""
    scores = (
        {s.trained_on: score_value(s) for s in learning.scores if s.tested_on == "original"}
        if learning
        else {}
    )
    return {name: score for name, score in scores.items() if score is not None}


def _score_of(scores: Sequence[Score], trained_on: str) -> Score | None:
    return next((s for s in scores if s.trained_on == trained_on and s.tested_on == "original"), None)


def _headline(learning: Learning) -> str:
    """Return the scores of all trainings on original rows in one sentence."""
    scores = original_scores(learning)
    if "release" not in scores:
        return "How well a model learns from the release was not measured."
    format_score = formatting.percent if learning.task == "classification" else formatting.number
    line = f"A model trained on the release reaches {format_score(scores['release'])}"
    if "aware" in scores:
        line += f", one that knows its noise law {format_score(scores['aware'])}"
    if "original" in scores:
        line += f", one trained on the original rows {format_score(scores['original'])}"
    if "majority" in scores:
        line += f", and the best guess without any rows {format_score(scores['majority'])}"
    if learning.equals_share is None:
        return line + "."
    if learning.equals_share >= 1:
        return line + f"; the release is as useful as {learning.train_rows:,} original rows."
    share = formatting.percent(learning.equals_share)
    return line + f". The release is as useful as {share} of {learning.train_rows:,} original rows."


def _scores(learning: Learning) -> HtmlTable | None:
    """Return the table of scores; None where nothing was measured."""
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
                formatting.format_interval(score.lower, score.upper, None, chance=True)
                if score.lower is not None and score.upper is not None
                else formatting.NONE
            )
            cells = [_percent(score.accuracy), interval, _number(score.auc)]
        else:
            cells = [_number(score.r2), _number(score.rmse)]
        trained = (
            [formatting.NONE if score.train_rows is None else f"{score.train_rows:,}"] if counted else []
        )
        rows.append([_NAMES[score.trained_on].capitalize(), *trained, tested, *cells])
    return HtmlTable(
        caption=f"How well {formatting.name(learning.target)} is predicted",
        head=head,
        rows=rows,
        numbers=(1, *range(3, len(head))) if counted else range(2, len(head)),
    )


def _bars(scores: Sequence[Score], classes: bool) -> list[Bar]:
    bars = []
    for trained_on in ("original", "release", "aware", "majority"):
        score = _score_of(scores, trained_on)
        number = score_value(score)
        if score is not None and number is not None:
            low, high = (score.lower, score.upper) if classes else (None, None)
            bars.append(Bar(name=_NAMES[trained_on], class_=trained_on, value=number, lower=low, upper=high))
    return bars


def _subgroups(learning: Learning, classes: bool) -> HtmlTable | None:
    """Return the table of groups, the largest loss first; None where there are none."""
    if not learning.subgroups:
        return None
    ordered = sorted(learning.subgroups, key=lambda g: g.release - g.original)
    format_score = _percent if classes else _number
    return HtmlTable(
        caption="By group, largest loss first",
        head=("Group", "Rows", "Original", "Release", "Change"),
        rows=[
            [
                name_markup(f"{g.column} = {g.level}"),
                f"{g.rows:,}",
                format_score(g.original),
                format_score(g.release),
                _change(g.release - g.original, classes),
            ]
            for g in ordered
        ],
        numbers=(1, 2, 3, 4),
        noun="more group",
    )


def _change(difference: float, classes: bool) -> str:
    text = (
        formatting.number(abs(difference) * 100, digits=2)
        if classes
        else formatting.number(abs(difference), digits=2)
    )
    sign = "+" if difference > 0 else "\u2212" if difference < 0 else ""
    return f"{sign}{text}" + (" points" if classes else "")


def _percent(share: float | None) -> str:
    return formatting.NONE if share is None else formatting.percent(share)


def _number(number: float | None) -> str:
    return formatting.NONE if number is None else formatting.number(number)


_SHOWN = 12
_NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfView:
    """View of the what-if slider: the texts of its positions, and the same as a table.

    Attributes
    ----------
    data : mapping
        Data of the script: every text is made here, so that slider and table say the same.
    """

    data: dict[str, Any]
    ticks: Markup
    columns: list[str]
    hidden: int
    quality: str
    measured: bool
    curve: Markup
    table: HtmlTable

    @property
    def chosen(self) -> dict[str, Any]:
        """Texts of the position of the release as it is."""
        chosen: dict[str, Any] = self.data["positions"][self.data["chosen"]]
        return chosen


def what_if_view(statement: Statement, findings: Findings) -> WhatIfView | None:
    """Return the slider with the texts of its positions; None where none were worked out."""
    grid = sorted(findings.what_if, key=lambda at: at.factor)
    if not grid:
        return None
    chosen = min(range(len(grid)), key=lambda k: abs(grid[k].factor - 1.0))
    known = [n for n in statement.numbers.columns if is_protected(n) and n.column in grid[chosen].noise]
    alike: dict[tuple[Any, ...], list[ColumnNumbers]] = {}
    for numbers in known:
        moves = ((at.noise.get(numbers.column), at.floors.get(numbers.column)) for at in grid)
        alike.setdefault((numbers.measure, numbers.law.get("kind"), *moves), []).append(numbers)
    shown = [equal[0] for equal in alike.values()][:_SHOWN]
    regression = findings.learning is not None and findings.learning.task == "regression"
    quality = "R²" if regression else "Accuracy"
    points = [(at.factor, at.accuracy) for at in grid if at.accuracy is not None]
    scores = original_scores(findings.learning)
    names = {"original": "original rows", "majority": "no rows at all"}
    curve = what_if_curve(
        "what-if-curve",
        points,
        chosen=1.0,
        title=f"{quality} against noise",
        levels=[(names[n], scores[n], n) for n in names if n in scores],
    )
    # The script moves the cursor to these places in the picture.
    axis = factor_axis([factor for factor, _ in points]) if curve else None
    positions = [_position(at, shown, quality, here=k == chosen) for k, at in enumerate(grid)]
    if axis is not None:
        for at, position in zip(grid, positions, strict=True):
            position["x"] = round(axis(at.factor), 2)
    return WhatIfView(
        data={"chosen": chosen, "positions": positions},
        ticks=slider_ticks("what-if-ticks", len(grid), chosen),
        columns=[_name_alike(equal) for equal in alike.values()][:_SHOWN],
        hidden=max(0, len(alike) - _SHOWN),
        quality=quality,
        measured=bool(points),
        curve=curve,
        table=_table(positions, shown, quality),
    )


def _name_alike(columns: Sequence[ColumnNumbers]) -> str:
    more = len(columns) - 1
    return columns[0].column + (f" and {more} more" if more else "")


def _position(at: WhatIf, shown: list[ColumnNumbers], quality: str, *, here: bool) -> dict[str, Any]:
    """Return the texts of one position of the slider; `here` marks the release as it is."""
    epsilon = "none" if at.epsilon is None else formatting.number(at.epsilon, rounding="up")
    if at.epsilon is not None and at.delta:
        epsilon += f" at δ = {formatting.number(at.delta, rounding='up')}"
    if at.accuracy is None:
        accuracy = _NOT_MEASURED
    else:
        accuracy = (
            formatting.percent(at.accuracy) if quality == "Accuracy" else formatting.number(at.accuracy)
        )
    columns = [[_noise(at, n), _proven(at, n)] for n in shown]
    factor = formatting.number(at.factor)
    first = next((n for n in shown if n.column in at.floors), None)
    text = "The chosen noise" if here else f"{factor} times the noise"
    if first is not None:
        text += f": {formatting.name(first.column)} is proven to {_proven(at, first)}"
    text += "" if at.epsilon is None else f"; ε {epsilon}"
    text += (
        "" if at.accuracy is None else f"; {quality.lower() if quality == 'Accuracy' else quality} {accuracy}"
    )
    return {
        "factor": f"{factor}\u00a0×",
        "here": here,
        "epsilon": epsilon,
        "accuracy": accuracy,
        "regularization": "" if at.regularization is None else formatting.number(at.regularization),
        "columns": columns,
        "said": text + ".",
    }


def _noise(at: WhatIf, numbers: ColumnNumbers) -> str:
    amount = at.noise.get(numbers.column)
    if amount is None:
        return formatting.NONE
    if numbers.law.get("kind") == "response":
        return f"{formatting.percent(amount)} changed"
    return formatting.quantity(amount, numbers.measure, chance=False)


def _proven(at: WhatIf, numbers: ColumnNumbers) -> str:
    floor = at.floors.get(numbers.column)
    if floor is None:
        return formatting.NONE
    chance = is_chance(numbers)
    return formatting.quantity(floor, numbers.measure, chance=chance, rounding="down") + (
        " wrong" if chance else ""
    )


def _table(positions: list[dict[str, Any]], shown: list[ColumnNumbers], quality: str) -> HtmlTable:
    """Return all positions of the slider as a table, with the floors of the first four columns."""
    few = shown[:4]
    measured = any(position["accuracy"] != _NOT_MEASURED for position in positions)
    rows = [
        [
            p["factor"] + (" (chosen)" if p["here"] else ""),
            p["epsilon"],
            *([p["accuracy"]] if measured else []),
            *(p["columns"][k][1] for k in range(len(few))),
        ]
        for p in positions
    ]
    head = (
        "Noise",
        "ε",
        *([quality] if measured else []),
        *(f"{formatting.name(n.column)}, floor" for n in few),
    )
    return HtmlTable(
        caption="What if: more or less noise",
        head=head,
        rows=rows,
        numbers=range(1, len(head)),
    )
