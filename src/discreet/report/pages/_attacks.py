"""Sections of a page about attacks, worst first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet import formatting
from discreet.privacy.promises import describe_promise
from discreet.report import charts
from discreet.report.pages._columns import best_attack, is_chance
from discreet.report.pages.tables import HtmlTable, badge, names_markup, two_lines, verdict_badge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from discreet.audit import AttackRisk, Risk
    from discreet.report.findings import Findings
    from discreet.report.statement.documents import Statement

_HEAD = (
    "Column", "Attack", "Knowledge assumed", "Error", "Without the row", "Floor under its prior", "Verdict",
)  # fmt: skip
_SHOWN = 13  # columns in a table of attacks before the rest is folded
_CAPTIONS = {
    "prior": "The best attack on each column, on records drawn from the prior of its floor",
    "file": "The best attack on each column that anyone can run on the published file",
    "rows": "The best attack on each column, on real rows",
}


def guess_table(guesses: Sequence[Mapping[str, Any]], *, on: str) -> HtmlTable | None:
    """Return the attacks on one kind of records, one row for columns alike; None if there are none."""
    chosen = [guess for guess in guesses if guess["on"] == on]
    if not chosen:
        return None
    columns: dict[str, list[Mapping[str, Any]]] = {}
    for guess in chosen:
        columns.setdefault(str(guess["column"]), []).append(guess)
    for attacks in columns.values():
        attacks.sort(key=lambda guess: float(guess["error"]))
    # The best attack on each column is what counts; weaker ones follow, folded.
    strongest = _group([attacks[0] for attacks in columns.values()])
    if len(strongest) > _SHOWN:
        strongest.sort(key=lambda alike: _closeness(alike[0]))
    strongest.sort(key=lambda alike: alike[0]["verdict"] != "broken")
    weaker = _group([guess for attacks in columns.values() for guess in attacks[1:]], by_attack=True)
    head = _HEAD if on == "prior" else _HEAD[:-1]
    return HtmlTable(
        caption=_CAPTIONS[on],
        head=head,
        rows=[_row(alike)[: len(head)] for alike in (*strongest, *weaker)],
        stack=True,
        noun="more attack" if len(strongest) > _SHOWN else "weaker attack",
        fold_at=min(len(strongest), _SHOWN),
        note=_certainty(chosen),
    )


def _group(guesses: Sequence[Mapping[str, Any]], *, by_attack: bool = False) -> list[list[Mapping[str, Any]]]:
    """Return groups of guesses about columns alike, the smallest error of each group first."""
    names = ("statistic", "measure", "without", "floor", "verdict", *(("attack",) if by_attack else ()))
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for guess in guesses:
        # Under one prior, columns differ by chance alone; on a file or on rows each has errors of its own.
        own = () if guess["on"] == "prior" else (guess["column"],)
        groups.setdefault((*own, *(guess[name] for name in names)), []).append(guess)
    return [sorted(alike, key=lambda guess: float(guess["error"])) for alike in groups.values()]


def _certainty(guesses: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of attacks and cells, their time, and the failure probability of the intervals."""
    failure = max(float(guess["failure_probability"]) for guess in guesses)
    cells, took = max(int(guess["n"]) for guess in guesses), sum(float(guess["seconds"]) for guess in guesses)
    cost = f", in {formatting.seconds(took)}" if took else ""
    attacks, on = formatting.count_noun(len(guesses), "attack"), formatting.count_noun(cells, "cell")
    text = f"{attacks} on up to {on} each{cost}."
    if not failure:
        return text
    chance = formatting.number(failure, digits=2, rounding="up")
    return f"{text} Each interval holds except with probability {chance}."


def _closeness(guess: Mapping[str, Any]) -> float:
    return float(guess["error"]) / float(guess["floor"] or guess["without"] or 1.0)


def _row(alike: Sequence[Mapping[str, Any]]) -> list[Markup | str]:
    """Return one line of a table of guesses, about one column or several alike: errors, floor and verdict."""
    guess = alike[0]
    chance, measure = formatting.is_chance(str(guess["statistic"])), guess["measure"]
    floor, error = guess["floor"], float(guess["error"])
    # What an attacker expects is computed from the file: no sample, no interval.
    lower, upper = float(guess["lower"]), float(guess["upper"])
    under = "" if lower == upper else _interval(lower, upper, chance=chance)
    if len(alike) > 1:
        under = f"up to {formatting.quantity(float(alike[-1]['error']), measure, chance=chance)}"
    return [
        names_markup([str(one["column"]) for one in alike]),
        two_lines(formatting.printable(str(guess["attack"])), str(guess["note"])),
        formatting.printable(str(guess["knowledge"])),
        two_lines(formatting.quantity(error, measure, chance=chance), under),
        formatting.quantity(float(guess["without"]), measure, chance=chance),
        formatting.NONE
        if floor is None
        else formatting.quantity(float(floor), measure, chance=chance, rounding="down"),
        verdict_badge(str(guess["verdict"])),
    ]


def _interval(lower: float, upper: float, *, chance: bool) -> str:
    return formatting.format_interval(lower, upper, None, chance=chance).replace(" ", formatting.NO_BREAK)


def risk_table(risk: Risk | None) -> HtmlTable | None:
    """Return every attack on made-up rows beside its limit, worst first; None if none was run."""
    if risk is None or not risk.attacks:
        return None
    ordered = sorted(risk.attacks, key=lambda one: (not one.is_above, -one.gain))
    return HtmlTable(
        caption="What attackers gain, measured on made-up rows",
        head=("Attack", "Knowledge assumed", "Right in", "Without", "Limit", "Promised", "Verdict"),
        rows=[_risk_row(one) for one in ordered],
        numbers=(2, 3, 4, 5),
        stack=True,
        noun="more attack",
    )


def _risk_row(one: AttackRisk) -> list[Markup | str]:
    """Return one line of the table of risks."""
    interval = _interval(one.lower, one.upper, chance=True)
    return [
        two_lines(one.attack.capitalize(), "" if one.column is None else f"of {one.column}"),
        formatting.printable(one.knowledge),
        two_lines(formatting.percent(one.success), interval),
        formatting.small_percent(one.baseline),
        formatting.percent(one.threshold),
        formatting.NONE if one.bound is None else formatting.percent(one.bound, rounding="up"),
        badge("bad", "above the limit") if one.is_above else badge("plain", "below the limit"),
    ]


def audit_table(audits: Sequence[Mapping[str, Any]]) -> HtmlTable | None:
    """Return the attacks on promises that are not floors; None if there are none."""
    if not audits:
        return None
    rows: list[list[Markup | str]] = [
        [
            two_lines(formatting.printable(str(audit["attack"])), str(audit["knowledge"])),
            describe_promise(audit["claim"]),
            formatting.printable(str(audit["quantity"])),
            _amount(audit["measured"], "nearest"),
            _amount(audit["allowed"], "up"),
            two_lines(verdict_badge(str(audit["verdict"])), str(audit["reason"])),
        ]
        for audit in sorted(audits, key=lambda audit: audit["verdict"] != "broken")
    ]
    return HtmlTable(
        caption="Attacks on promises of differential privacy, on made-up extreme rows",
        head=("Attack", "Claim", "Quantity", "Measured", "Allowed", "Verdict"),
        rows=rows,
        numbers=(3, 4),
        stack=True,
        noun="more attack",
    )


def _amount(value: Any, rounding: formatting.Rounding) -> str:
    # JSON has no infinity, so results write it as text.
    if value is None:
        return formatting.NONE
    return formatting.number(value, rounding=rounding) if not isinstance(value, str) else "∞"


_ATTACKED = {
    "made-up": "People drawn from the {}: half of them make a table anew, the others do not",
    "rows": "Real people: a random half makes a table anew, which is thrown away, the others do not",
}
_MEMBER_HEAD = ("Attack", "In the table", "Others", "Result", "By chance", "At most", "Verdict")


def member_table(results: Sequence[Mapping[str, Any]], *, on: str, synthetic: bool) -> HtmlTable | None:
    """Return how much better attacks do on people in a table than on others; None if not run.

    Parameters
    ----------
    results : sequence of mappings
        Comparisons as :meth:`discreet.audit.MemberComparison.to_dict` writes them.
    on : {"made-up", "rows"}
        People whose comparisons are shown.
    synthetic : bool
        Whether the table is synthetic, so that made-up people are drawn from its rows, or masked.
    """
    chosen = [result for result in results if result["on"] == on]
    if not chosen:
        return None
    first = chosen[0]
    failure = formatting.percent(1 - float(first["failure_probability"]))
    return HtmlTable(
        caption=_ATTACKED[on].format("published rows" if synthetic else "declared columns"),
        head=_MEMBER_HEAD,
        rows=[_member_row(result) for result in chosen],
        numbers=(1, 2, 3, 4, 5),
        stack=True,
        noun="more attack",
        note=f"Tables of {int(first['rows']):,} rows; {int(first['n']):,} people in the table and as many "
        f"others; intervals of {failure}. The attacker knows {first['knowledge']}.",
    )


def _member_row(result: Mapping[str, Any]) -> list[Markup | str]:
    """Return one line: an area in percent, or a difference in percentage points, with its interval."""
    value, lower, upper, chance, bound = (
        float(result[name]) for name in ("value", "lower", "upper", "chance", "bound")
    )
    is_area = result["members"] is None
    if is_area:
        amount, interval = (
            formatting.percent(value),
            formatting.format_interval(lower, upper, None, chance=True),
        )
        shares, limits = (
            ["\u2013"] * 2,
            [formatting.percent(chance), formatting.percent(bound, rounding="up")],
        )
    else:
        amount, interval = _points(value), f"{_points(lower)} to {_points(upper)}"
        shares = [formatting.percent(float(result[name])) for name in ("members", "others")]
        limits = [_points(chance), _points(bound)]
    return [
        two_lines(str(result["attack"]).capitalize(), str(result["sentence"])),
        *shares,
        two_lines(amount, interval),
        *limits,
        badge(*member_verdict(result)),
    ]


def member_verdict(result: Mapping[str, Any]) -> tuple[str, str]:
    """Return the CSS class and the text of the badge of a comparison."""
    lower = float(result["lower"])
    if lower > float(result["bound"]):
        return "bad", "above what is promised"
    return (
        ("warn", "above chance, within the promise")
        if lower > float(result["chance"])
        else ("ok", "no better than chance")
    )


def _points(difference: float) -> str:
    """Return a difference of shares in percentage points."""
    text = f"{100 * difference:.1f}"
    return f"{'0.0' if text == '-0.0' else text}".replace("-", "\u2212") + f"{formatting.NO_BREAK}pp"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureView:
    """Result of a linkage or membership attack.

    Attributes
    ----------
    kind : {"bad", "warn", "ok"}
        Certain advantage over chance: a quarter of the way to certainty or more, some, or none.
    """

    attack: str
    kind: str
    verdict: str
    success: str
    interval: str
    chance: str
    sentence: str
    knowledge: str


def exposures(results: Sequence[Mapping[str, Any]]) -> list[ExposureView]:
    """Return linkage and membership on real rows, worst first."""
    views = []
    for item in results:
        lower, chance = float(item["lower"]), float(item["chance"])
        advantage = (lower - chance) / (1 - chance) if chance < 1 else 0.0
        kind = "bad" if advantage >= 0.25 else "warn" if advantage > 0 else "ok"
        verdicts = {"bad": "gives people away", "warn": "better than chance", "ok": "no better than chance"}
        view = ExposureView(
            attack=str(item["attack"]),
            kind=kind,
            verdict=verdicts[kind],
            success=formatting.percent(float(item["success"])),
            interval=formatting.format_interval(lower, float(item["upper"]), None, chance=True),
            chance=f"{formatting.number(100 * chance, digits=2)}{formatting.NO_BREAK}%",
            sentence=str(item["sentence"]),
            knowledge=str(item["knowledge"]),
        )
        views.append((-advantage, view))
    return [view for _, view in sorted(views, key=lambda pair: pair[0])]


def error_curves(
    statement: Statement, findings: Findings, columns: Sequence[str]
) -> list[tuple[str, Markup]]:
    """Return the curve of the proven error against noise, as far as the what-if grid knows it."""
    grid = findings.what_if
    if len(grid) < 2:
        return []
    chosen = min(grid, key=lambda at: abs(at.factor - 1.0))
    by_name = {n.column: (k, n) for k, n in enumerate(statement.numbers.columns)}
    curves = []
    for column in columns:
        k, numbers = by_name[column]
        points = [
            (at.noise[column], at.floors[column]) for at in grid if column in at.noise and column in at.floors
        ]
        if column not in chosen.noise or not points:
            continue
        guess = best_attack([g for g in findings.guesses if g["column"] == column], "prior")
        curve = charts.error_curve(
            f"error-{k}",
            formatting.name(column),
            points,
            chosen=chosen.noise[column],
            without=numbers.without,
            attack=None if guess is None else float(guess["error"]),
            measure=numbers.measure,
            chance=is_chance(numbers),
        )
        if curve:
            curves.append((column, curve))
    return curves
