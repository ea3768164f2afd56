"""Sections of a page about columns: the protection of each, and each before and after the release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from discreet import formatting
from discreet.report.charts import MOST_COLUMNS, Mark, correlation_heat, histogram, three_marks
from discreet.report.pages.tables import SHOWN, HtmlTable, name_markup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.report.findings import ColumnComparison, Correlations, Findings
    from discreet.report.statement.documents import ColumnNumbers, Statement

_TITLES = {"without": "Without the release", "attack": "Best attack", "floor": "Proven floor"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One error beside its bar: title, amount, and a note."""

    kind: str
    title: str
    amount: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnView:
    """View of one protected column on a page.

    Attributes
    ----------
    sentences : list of str
        Sentences about the promise and the attacks.
    warning : str
        Warning where an attack on real rows came below the floor; else empty.
    verdict : str
        Verdict of the decisive attacks; empty where none was run.
    strain : float
        Least error over the error without the release, 0 to 1; smaller is worse.
    key, marks, chance
        Identifier, marks and kind of error of the bar.
    """

    column: str
    law: str
    epsilon: str
    sentences: list[str]
    warning: str
    figures: list[Figure]
    verdict: str
    strain: float
    key: str
    marks: list[Mark]
    chance: bool

    @property
    def bar(self) -> Markup:
        """Three-mark bar, drawn only where it is shown."""
        return three_marks(self.key, formatting.name(self.column), self.marks, chance=self.chance)


def is_protected(numbers: ColumnNumbers) -> bool:
    """Return whether a column has noise."""
    return bool(numbers.law.get("kind") != "clear")


def is_chance(numbers: ColumnNumbers) -> bool:
    """Return whether the error of a column is the probability of a wrong guess."""
    if numbers.floor is not None:
        return formatting.is_chance(str(numbers.floor["statistic"]))
    return bool(numbers.law.get("kind") == "response")


def protected_columns(statement: Statement, findings: Findings | None = None) -> list[ColumnView]:
    """Return a view of each protected column, broken ones first; findings add the attacks."""
    guesses: dict[str, list[Mapping[str, Any]]] = {}
    for guess in findings.guesses if findings else ():
        guesses.setdefault(str(guess["column"]), []).append(guess)
    views = [
        _view(f"marks-{k}", numbers, guesses.get(numbers.column, []))
        for k, numbers in enumerate(statement.numbers.columns)
        if is_protected(numbers)
    ]
    if len(views) > SHOWN:
        # Too many to read: the worst first.
        return sorted(views, key=lambda view: (view.verdict != "broken", view.strain))
    return sorted(views, key=lambda view: view.verdict != "broken")


def clear_columns(statement: Statement) -> list[str]:
    """Return the columns that are published as they are."""
    return [n.column for n in statement.numbers.columns if not is_protected(n)]


def best_attack(guesses: Sequence[Mapping[str, Any]], *, on: str) -> Mapping[str, Any] | None:
    """Return the attack with the smallest error."""
    chosen = [guess for guess in guesses if guess["on"] == on]
    return min(chosen, key=lambda guess: (float(guess["error"]), str(guess["attack"])), default=None)


def _view(key: str, numbers: ColumnNumbers, guesses: Sequence[Mapping[str, Any]]) -> ColumnView:
    """Return the view of one protected column, with the attacks on it."""
    chance, measure = is_chance(numbers), numbers.measure
    attack, floor = best_attack(guesses, on="prior"), _floor(numbers)
    marks = []
    if numbers.without is not None:
        marks.append(_mark("without", numbers.without, measure, chance))
    if attack is not None:
        marks.append(_mark("attack", float(attack["error"]), measure, chance, attack))
    if floor is not None:
        marks.append(_mark("floor", floor, measure, chance))
    least = min((m.error for m in marks if m.kind != "without"), default=0.0)
    warning = _row_warning(guesses, floor, measure, chance)
    sentence = _attack_sentence(guesses, floor, measure, chance)
    return ColumnView(
        column=numbers.column,
        law=numbers.law_in_words,
        epsilon="" if numbers.epsilon is None else formatting.number(numbers.epsilon, rounding="up"),
        sentences=[numbers.sentence, *([sentence] if sentence else [])],
        warning=warning,
        figures=[_figure(mark, measure, chance) for mark in marks],
        verdict=_verdict(guesses),
        strain=least / numbers.without if numbers.without else 0.0,
        key=key,
        marks=marks,
        chance=chance,
    )


def _floor(numbers: ColumnNumbers) -> float | None:
    return None if numbers.floor is None else float(numbers.floor["error"])


def _mark(
    kind: str, error: float, measure: str | None, chance: bool, guess: Mapping[str, Any] | None = None
) -> Mark:
    """Return one mark of the bar; `guess` gives the interval of a measured error."""
    amount = formatting.quantity(
        error, measure, chance=chance, rounding="down" if kind == "floor" else "nearest"
    )
    return Mark(
        kind=kind,
        error=error,
        words=f"{_TITLES[kind]}: {amount}{' wrong' if chance else ''}.",
        lower=float(guess["lower"]) if guess else None,
        upper=float(guess["upper"]) if guess else None,
    )


def _figure(mark: Mark, measure: str | None, chance: bool) -> Figure:
    rounding: formatting.Rounding = "down" if mark.kind == "floor" else "nearest"
    note = "wrong guesses" if chance else ""
    if mark.lower is not None and mark.upper is not None:
        note = formatting.format_interval(mark.lower, mark.upper, None, chance=chance)
    return Figure(
        kind=mark.kind,
        title=_TITLES[mark.kind],
        amount=formatting.quantity(mark.error, measure, chance=chance, rounding=rounding),
        note=note,
    )


def _verdict(guesses: Sequence[Mapping[str, Any]]) -> str:
    verdicts = {str(guess["verdict"]) for guess in guesses if guess["on"] == "prior"}
    return next((v for v in ("broken", "holds", "no floor") if v in verdicts), "")


def describe_error(error: float, measure: str | None, chance: bool) -> str:
    """Return a clause about an error: how often a guess was wrong, or how far off it was."""
    amount = formatting.quantity(error, measure, chance=chance)
    return f"was wrong {amount} of the time" if chance else f"was off by {amount}"


def _attack_sentence(
    guesses: Sequence[Mapping[str, Any]], floor: float | None, measure: str | None, chance: bool
) -> str:
    """Return a sentence about the best attack on made-up records; empty where none was run."""
    attack = best_attack(guesses, on="prior")
    if attack is None:
        return ""
    count = sum(guess["on"] == "prior" for guess in guesses)
    of = "The one attack" if count == 1 else f"The best of {count} attacks"
    error = describe_error(float(attack["error"]), measure, chance)
    line = f"{of} on made-up records ({attack['attack']}) {error}"
    if attack["verdict"] == "broken":
        return f"{line}: the floor is broken."
    return f"{line}." if floor is None else f"{line}; the floor held."


def _row_warning(
    guesses: Sequence[Mapping[str, Any]], floor: float | None, measure: str | None, chance: bool
) -> str:
    """Return a warning where an attack on real rows came below the floor; empty elsewhere."""
    attack = best_attack([*guesses], on="rows")
    if attack is None or floor is None or float(attack["error"]) >= floor:
        return ""
    without = formatting.quantity(float(attack["without"]), measure, chance=chance)
    return (
        f"On the real rows, an attacker who knows {attack['knowledge']} "
        f"{describe_error(float(attack['error']), measure, chance)}, and without this file {without}. The "
        "floor assumes less knowledge."
    )


_PICTURES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """View of one column before and after the release."""

    column: str
    measure: str
    distance: str
    facts: list[tuple[str, str, str]]
    picture: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class DataView:
    """View of all columns before and after: pictures of the worst, folded ones, and a table of the rest."""

    shown: list[ComparisonView]
    folded: list[ComparisonView]
    rest: HtmlTable | None
    heat: Markup
    heat_note: str


def data_view(columns: Sequence[ColumnComparison], correlations: Correlations | None) -> DataView:
    """Return the section that compares all columns before and after, the most changed first."""
    ordered = sorted(columns, key=lambda c: -c.distance)
    views = [_comparison(f"before-after-{k}", c) for k, c in enumerate(ordered[:SHOWN])]
    rest = ordered[SHOWN:]
    heat, note = _heat(correlations)
    return DataView(
        shown=views[:_PICTURES],
        folded=views[_PICTURES:],
        rest=HtmlTable(
            caption="The other columns, worst first",
            head=("Column", "Distance"),
            rows=[[name_markup(c.column), formatting.number(c.distance)] for c in rest],
            numbers=(1,),
            noun="more column",
        )
        if rest
        else None,
        heat=heat,
        heat_note=note,
    )


def _comparison(key: str, column: ColumnComparison) -> ComparisonView:
    """Return one column before and after: moments, missing cells, and the picture."""
    facts = [
        (title, _number(before), _number(after))
        for title, before, after in (
            ("mean", column.original_mean, column.release_mean),
            ("standard deviation", column.original_sd, column.release_sd),
        )
        if before is not None or after is not None
    ]
    if column.missing_original or column.missing_release:
        facts.append(
            (
                "missing",
                formatting.percent(column.missing_original),
                formatting.percent(column.missing_release),
            )
        )
    if column.outside:
        facts.append(("outside the range", formatting.percent(0.0), formatting.percent(column.outside)))
    return ComparisonView(
        column=column.column,
        measure=column.measure or "",
        distance=formatting.number(column.distance, digits=2),
        facts=facts,
        picture=histogram(
            key,
            formatting.name(column.column),
            column.labels,
            column.original,
            column.release,
            ordered=column.kind == "number",
        ),
    )


def _number(number: float | None) -> str:
    return formatting.NONE if number is None else formatting.number(number)


def _heat(correlations: Correlations | None) -> tuple[Markup, str]:
    if correlations is None:
        return Markup(""), ""
    count = len(correlations.columns)
    picture = correlation_heat("heat", correlations.columns, correlations.original, correlations.release)
    note = (
        f"The {MOST_COLUMNS} of {count:,} numeric columns whose correlations changed most."
        if count > MOST_COLUMNS
        else ""
    )
    return picture, note
