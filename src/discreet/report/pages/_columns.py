"""Sections of a page about columns: the protection of each, and each before and after the release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from discreet import formatting
from discreet.report import charts
from discreet.report.charts.bars import Mark, three_marks
from discreet.report.pages.tables import SHOWN, HtmlTable, name_markup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.report.findings import ColumnComparison, Correlations
    from discreet.report.statement.documents import ColumnNumbers, Statement

_TITLES = {"attack": "Best attack", "without": "Without the row", "floor": "Floor under its prior"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One error beside its bar: title, amount, and a note."""

    kind: str
    title: str
    amount: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnView:
    """View of a protected column on a page, or of several with the same noise and the same floor.

    Attributes
    ----------
    column : str
        Column that the sentences are about: the one that is guessed best.
    columns : list of str
        Names of all columns of the view.
    sentences : list of str
        What the best attack achieves, and then what is proven under which prior.
    verdict : str
        "broken" if an attack on made-up records did better than is proven; else empty.
    strain : float
        Least error over the error without the release, 0 to 1; smaller is worse.
    key, marks, chance
        Identifier, marks and kind of error of the bar.
    """

    column: str
    columns: list[str]
    law: str
    epsilon: str
    sentences: list[str]
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


def protected_columns(statement: Statement, guesses: Sequence[Mapping[str, Any]]) -> list[ColumnView]:
    """Return a view of the protected columns, broken ones first; equal ones are one view.

    Parameters
    ----------
    statement : Statement
        Public statement of the release.
    guesses : sequence of mappings
        Attacks on the columns, as :meth:`discreet.audit.Guess.to_dict` writes them; on the public page those
        on the file alone.
    """
    attacks: dict[str, list[Mapping[str, Any]]] = {}
    for guess in guesses:
        # Attacks on the people in a table are about no column.
        if "column" in guess:
            attacks.setdefault(str(guess["column"]), []).append(guess)
    alike: dict[str, list[ColumnNumbers]] = {}
    for numbers in filter(is_protected, statement.numbers.columns):
        same = (numbers.law_in_words, numbers.measure, numbers.floor, numbers.without, numbers.epsilon)
        verdict = _verdict(attacks.get(numbers.column, []))
        alike.setdefault(repr((same, verdict)), []).append(numbers)
    views = [_view(f"marks-{k}", equal, attacks) for k, equal in enumerate(alike.values())]
    if len(views) > SHOWN:
        # Too many to read: the worst first.
        return sorted(views, key=lambda view: (view.verdict != "broken", view.strain))
    return sorted(views, key=lambda view: view.verdict != "broken")


def clear_columns(statement: Statement) -> list[str]:
    """Return the columns that are published as they are."""
    return [n.column for n in statement.numbers.columns if not is_protected(n)]


def best_attack(guesses: Sequence[Mapping[str, Any]], *on: str) -> Mapping[str, Any] | None:
    """Return the attack on these kinds of records with the smallest error beside the error without it."""
    chosen = [guess for guess in guesses if guess["on"] in on]
    return min(chosen, key=lambda guess: (_strain(guess), str(guess["attack"])), default=None)


def _strain(guess: Mapping[str, Any]) -> float:
    return float(guess["error"]) / (float(guess["without"]) or 1.0)


def _view(
    key: str, alike: Sequence[ColumnNumbers], attacks: Mapping[str, Sequence[Mapping[str, Any]]]
) -> ColumnView:
    """Return the view of columns with the same noise; of the attacks on them the best one is shown."""
    guesses = [guess for numbers in alike for guess in attacks.get(numbers.column, [])]
    attack = best_attack(guesses, "rows", "file") or best_attack(guesses, "prior")
    first = next((one for one in alike if attack is not None and one.column == attack["column"]), alike[0])
    verdict = _verdict(guesses)
    chance, measure, floor = is_chance(first), first.measure, _floor(first)
    without = first.without if attack is None else float(attack["without"])
    marks = [] if attack is None else [_mark("attack", float(attack["error"]), measure, chance, attack)]
    marks += [] if without is None else [_mark("without", without, measure, chance)]
    marks += [] if floor is None else [_mark("floor", floor, measure, chance)]
    sentences = [] if attack is None else [_attack_sentence(attack, measure, chance)]
    if verdict:
        sentences.append("On made-up records an attack did better than is proven: the floor is broken.")
    return ColumnView(
        column=first.column,
        columns=[numbers.column for numbers in alike],
        law=first.law_in_words,
        epsilon="" if first.epsilon is None else formatting.number(first.epsilon, rounding="up"),
        sentences=[*sentences, first.sentence],
        figures=[_figure(mark, measure, chance) for mark in marks],
        verdict=verdict,
        strain=min((m.error for m in marks if m.kind != "without"), default=0.0) / (without or 1.0),
        key=key,
        marks=marks,
        chance=chance,
    )


def _floor(numbers: ColumnNumbers) -> float | None:
    return None if numbers.floor is None else float(numbers.floor["error"])


def _mark(
    kind: str, error: float, measure: str | None, chance: bool, guess: Mapping[str, Any] | None = None
) -> Mark:
    """Return one mark of the bar; `guess` gives the interval of a measured error, if it was measured."""
    sampled = guess is not None and guess["lower"] != guess["upper"]
    amount = formatting.quantity(
        error, measure, chance=chance, rounding="down" if kind == "floor" else "nearest"
    )
    return Mark(
        kind=kind,
        error=error,
        words=f"{_TITLES[kind]}: {amount}{' wrong' if chance else ''}.",
        lower=float(guess["lower"]) if guess and sampled else None,
        upper=float(guess["upper"]) if guess and sampled else None,
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
    return "broken" if any(guess["verdict"] == "broken" for guess in guesses) else ""


_ATTACKED = {
    "rows": "On the real rows, an attacker who knows {} {}; without the person's published row, {}.",
    "file": "From the file alone, the best attacker expects an error of {1}; without the person's row, {2}.",
    "prior": "On made-up records, an attacker who knows {} {}; without the person's published row, {}.",
}


def _attack_sentence(attack: Mapping[str, Any], measure: str | None, chance: bool) -> str:
    """Return a sentence about the best attack, and about the same attacker without the published row."""
    error, without = (
        formatting.quantity(float(attack[name]), measure, chance=chance) for name in ("error", "without")
    )
    if attack["on"] != "file":
        error = f"is wrong in {error} of cases" if chance else f"is off by {error}"
    return _ATTACKED[str(attack["on"])].format(attack["knowledge"], error, without)


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
        picture=charts.histogram(
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
    """Return the picture of the correlations of numeric columns, and a note on which of them it shows."""
    if correlations is None:
        return Markup(""), ""
    count = len(correlations.columns)
    picture = charts.correlation_heat(
        "heat", correlations.columns, correlations.original, correlations.release
    )
    note = (
        f"The {charts.MOST_COLUMNS} of {count:,} numeric columns whose correlations changed most."
        if count > charts.MOST_COLUMNS
        else ""
    )
    return picture, note
