"""First page of a report: what is published, the promise, its use, its risk, and whether to publish it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet import formatting
from discreet.audit import max_success_probability
from discreet.audit.risk import LIMITS, MOST_GAIN
from discreet.privacy import NoPromise, promise_from_dict
from discreet.report.pages import _learning
from discreet.report.pages._columns import is_protected
from discreet.report.pages.tables import SummaryTile
from discreet.report.statement.sentences import quote_promise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from discreet.audit import AttackRisk, Risk
    from discreet.report.findings import Findings, Learning, TableQuality
    from discreet.report.statement.documents import Statement
    from discreet.report.statement.model_documents import ModelStatement

_MOST_TILES = 3
_TWO_SIDED = 1.96  # standard deviations of a 95 % interval
_MOST_TEXT = 240  # characters of a text by people; the statement has the whole
_ATTACKS = {
    "linkage": "Finds a person's row",
    "membership": "Knows who is in the table",
    "attribute inference": "Guesses a value",
}
_BASELINES = {
    "linkage": "by chance",
    "membership": "by chance",
    "attribute inference": "without the person's row",
}
_MADE_UP = {"synthetic", "masked", "masked-svm"}  # laws of tables in which no row is anybody's
_SEEDED = "The noise was made from a seed, for a test: whoever knows the seed can remove it."
_ANSWERS = {"yes": ("ok", "Yes"), "with care": ("warn", "With care"), "no": ("bad", "No")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a release may be published: ``kind``, the CSS class, the answer, and why."""

    kind: str
    answer: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPage:
    """Content of the first page.

    Attributes
    ----------
    what, promise : str
        What is published, and what is promised about the people in it: one or two sentences each.
    whom : list of (str, str)
        Title and text of what people said about the publication.
    uses, gains : list of SummaryTile
        What it is good for, and what an attacker gains; up to three numbers each.
    gain : str
        What somebody who knows most of a record gains; empty if no attack was run.
    not_covered, advice : list of str
        Attacks that were not run, and changes that would lower the risk.
    accepted : str
        Reason for which the curator accepts a risk above the limits; empty if there is none.
    """

    what: str
    whom: list[tuple[str, str]]
    promise: str
    uses: list[SummaryTile]
    gain: str
    gains: list[SummaryTile]
    not_covered: list[str]
    advice: list[str]
    accepted: str
    verdict: Verdict


def first_page(statement: Statement, risk: Risk | None, findings: Findings | None = None) -> FirstPage:
    """Return the first page; findings add the use of the release and the attacks on real rows."""
    return FirstPage(
        what=describe_table(statement),
        whom=_whom(statement, ask=findings is not None),
        promise=quote_promise(statement),
        uses=list(_uses(statement, findings))[:_MOST_TILES],
        gain="" if risk is None else risk.sentence,
        gains=[] if risk is None else _gains(statement, risk, findings),
        not_covered=[] if risk is None else list(risk.not_covered),
        advice=[] if risk is None else list(risk.advice),
        accepted="" if risk is None or risk.accepted is None else risk.accepted,
        verdict=_verdict(statement, risk, findings),
    )


def model_first_page(statement: ModelStatement, uses: Sequence[SummaryTile]) -> FirstPage:
    """Return the first page of a published model, all of which follows from its statement."""
    what = statement.what
    reads = formatting.count_noun(len(what.reads), "column")
    predicts = f"predicts {formatting.name(what.predicts)}" if what.predicts else "was trained"
    rows = "" if what.rows is None else f", trained on {formatting.count_noun(what.rows, 'row')}"
    gain, verdict = _model_verdict(statement)
    return FirstPage(
        what=f"A model that {predicts} from {reads}{rows}. No row is published.",
        whom=_whom(statement, ask=False),
        promise=quote_promise(statement),
        uses=list(uses),
        gain="" if gain is None else "No attack can do better than the promise allows, whatever is known.",
        gains=[] if gain is None else [_bound_tile(statement, gain)],
        not_covered=[],
        advice=[],
        accepted="",
        verdict=verdict,
    )


def _model_verdict(statement: ModelStatement) -> tuple[float | None, Verdict]:
    """Return the largest gain that the promise allows any attacker, and whether to publish the model.

    Notes
    -----
    Replacing a person changes the law of all that is published by at most the total variation ``delta(0)``;
    an attacker who decides between two people is then right with probability ``(1 + delta(0)) / 2`` at most.
    """
    promises = [promise_from_dict(values) for values in statement.numbers.promises]
    if statement.implementation.seeded:
        return None, Verdict(kind="bad", answer="No", why=_SEEDED)
    if not promises or any(isinstance(promise, NoPromise) for promise in promises):
        why = "Nothing is promised about the people that it was trained on."
        return None, Verdict(kind="bad", answer="No", why=why)
    gain = min(2 * max_success_probability(promise, (0.5, 0.5)) - 1 for promise in promises)
    share = formatting.percent(gain, rounding="up")
    if gain > MOST_GAIN:
        why = f"About somebody who stands out the promise allows an attacker a gain of up to {share}."
        return gain, Verdict(kind="warn", answer="With care", why=why)
    why = f"Whatever an attacker knows, the promise lets nobody gain more than {share}."
    return gain, Verdict(kind="ok", answer="Yes", why=why)


def _bound_tile(statement: ModelStatement, gain: float) -> SummaryTile:
    """Return how often anybody can be right about one person."""
    return SummaryTile(
        title=f"Knows which of two a {formatting.printable(statement.unit.unit)} is",
        amount=formatting.percent((1 + gain) / 2, rounding="up"),
        note="of cases at most, for somebody who knows everyone else; 50 % by tossing a coin",
        kind="ok" if gain <= MOST_GAIN else "warn",
    )


def describe_table(statement: Statement) -> str:
    """Return what is published, in plain words."""
    what, columns = statement.what, statement.numbers.columns
    kinds = {str(numbers.law["kind"]) for numbers in columns}
    rows, width = formatting.count_noun(what.rows_published, "row"), formatting.count_noun
    table = f"{rows} with {width(len(columns), 'column')}"
    clear = [numbers for numbers in columns if not is_protected(numbers)]
    if "synthetic" in kinds:
        text = f"A synthetic table: {table}, made up from noisy counts of the true table."
        rest = "No row is anybody's."
    elif kinds & _MADE_UP:
        text = f"A masked table: {table}, made up so that a model trained on them is that of the true table."
        rest = "No row is anybody's."
    elif "invariant" in kinds:
        text = f"{table}: the true rows, with noise that one kind of model does not notice."
        rest = "Each row is that of a real person."
    else:
        noisy = width(len(columns) - len(clear), "column")
        text = f"{table}: the true rows, with random noise in {noisy}."
        rest = "Each row is that of a real person."
    if clear:
        listed = formatting.list_names([numbers.column for numbers in clear], 6)
        rest += f" Published unchanged: {listed}."
    return f"{text} {rest}"


def _whom(statement: Statement | ModelStatement, *, ask: bool) -> list[tuple[str, str]]:
    """Return what people said about the publication; `ask` names what the curator left out."""
    what = statement.what
    pairs = [
        ("For", what.purpose or ("not stated (--purpose)" if ask else None)),
        ("Published by", what.curator or ("not stated (--curator)" if ask else None)),
        ("Terms", what.license),
        ("Protected", f"each {formatting.printable(statement.unit.unit)} in the table"),
    ]
    return [(title, formatting.shorten(text, _MOST_TEXT)) for title, text in pairs if text]


def _uses(statement: Statement, findings: Findings | None) -> Iterator[SummaryTile]:
    """Yield what the release is good for, the most telling numbers first; without findings, public ones."""
    if findings is None:
        yield from _precision_tiles(statement)
        return
    learning, quality = findings.learning, findings.quality
    scores = _learning.original_scores(learning)
    if learning is not None and "release" in scores:
        yield _score_tile(learning.task, formatting.name(learning.target), scores)
    yield from _precision_tiles(statement)
    if quality is not None:
        yield from _quality_tiles(quality)
    if learning is not None and "release" in scores:
        yield from _learning_tiles(learning)
    if findings.columns:
        distances = [one.distance for one in findings.columns]
        yield SummaryTile(
            title="Change of a distribution",
            amount=formatting.small_percent(sum(distances) / len(distances)),
            note="of the cells of a column, on average, before the noise is corrected for",
        )


def _quality_tiles(quality: TableQuality) -> Iterator[SummaryTile]:
    """Yield the errors of a synthetic table."""
    errors = [error for row in quality.two_way for error in row]
    if errors:
        yield SummaryTile(
            title="Error of a table of two columns",
            amount=formatting.small_percent(sum(errors) / len(errors)),
            note="of the rows are in a wrong cell, on average; if the true rows were drawn again, "
            f"{formatting.small_percent(quality.two_way_chance)}",
        )
    if quality.means:
        mean = sum(quality.means.values()) / len(quality.means)
        yield SummaryTile(
            title="Error of a mean",
            amount=formatting.small_percent(mean),
            note="of the standard deviation of a column, on average over "
            f"{formatting.count_noun(len(quality.means), 'column')} of numbers",
        )
    if quality.one_way:
        yield SummaryTile(
            title="Error of a table of one column",
            amount=formatting.small_percent(sum(quality.one_way) / len(quality.one_way)),
            note="of the rows are in a wrong cell, on average",
        )


def _learning_tiles(learning: Learning) -> Iterator[SummaryTile]:
    """Yield what the release is worth to a learner, beside its score."""
    if learning.equals_share is not None:
        yield SummaryTile(
            title="Worth in true rows",
            amount=formatting.percent(min(learning.equals_share, 1.0)),
            note=f"of {learning.train_rows:,} true rows train a model that is as good",
        )
    areas = {s.trained_on: s.auc for s in learning.scores if s.tested_on == "original" and s.auc is not None}
    if "release" in areas:
        original = (
            f"; {formatting.percent(areas['original'])} from the true rows" if "original" in areas else ""
        )
        yield SummaryTile(
            title="Pairs ranked right",
            amount=formatting.percent(areas["release"]),
            note=f"of people of different classes (area under the ROC curve){original}",
        )


def _precision_tiles(statement: Statement) -> Iterator[SummaryTile]:
    """Yield how precisely a mean and a share can be computed, which follows from the noise laws.

    A mean of n cells with noise of variance v has the variance v / n from the noise. If randomized response
    keeps a cell with probability p and makes it any other level with probability q each, the share of a level
    is (s - q) / (p - q) for an observed share s, whose variance is at most 1 / (4 n).
    """
    columns, n = statement.numbers.columns, statement.what.rows_published
    plain = [one for one in columns if one.law.get("missing_keep") is None]
    for one in plain:
        if one.law["kind"] in ("gaussian", "laplace", "bounded") and not one.law.get("clamped"):
            margin = _TWO_SIDED * math.sqrt(float(one.law["variance"]) / n)
            yield SummaryTile(
                title=f"Mean of {formatting.shorten(one.column, 24)}",
                amount=formatting.quantity(margin, one.measure, chance=False, rounding="up"),
                note=f"by the noise in {n:,} rows, in 95 of 100 cases",
            )
            break
    for one in sorted(plain, key=lambda numbers: numbers.role != "target"):
        if one.law["kind"] == "response" and one.law["levels"] > 1:
            keep, other = float(one.law["keep"]), (1 - float(one.law["keep"])) / (one.law["levels"] - 1)
            if keep > other:
                margin = _TWO_SIDED / (2 * math.sqrt(n) * (keep - other))
                points = formatting.number(100 * margin, digits=2, rounding="up")
                yield SummaryTile(
                    title=f"Share of a value of {formatting.shorten(one.column, 24)}",
                    amount=f"±{formatting.NO_BREAK}{points} points",
                    note=f"at most, in 95 of 100 cases, corrected for the noise in {n:,} rows",
                )
            break


def _score_tile(task: str, target: str, scores: Mapping[str, float]) -> SummaryTile:
    """Return the score of the best model of the release beside the others."""
    is_class = task == "classification"
    text = formatting.percent if is_class else formatting.number
    names = (("original", "from the true rows"), ("majority", "by always the same guess"))
    others = [f"{text(scores[key])} {name}" for key, name in names if key in scores]
    best = max(scores[key] for key in ("release", "aware") if key in scores)
    return SummaryTile(
        title=f"Model of {target}" + ("" if is_class else ", R²"),
        amount=text(best),
        note=("of people predicted right; " if is_class else "") + ", ".join(others),
    )


def _gains(statement: Statement, risk: Risk, findings: Findings | None) -> list[SummaryTile]:
    """Return the worst result of each kind of attack, beside its limit and the result on real rows."""
    made_up = any(numbers.law["kind"] in _MADE_UP for numbers in statement.numbers.columns)
    tiles = []
    for attack in _ATTACKS:
        worst = risk.worst(attack)  # type: ignore[arg-type]
        if worst is not None:
            real = [] if findings is None else _real_results(findings, attack)
            tiles.append(_gain_tile(worst, real, made_up=made_up))
    return tiles


def _gain_tile(worst: AttackRisk, real: Sequence[Mapping[str, Any]], *, made_up: bool) -> SummaryTile:
    """Return the tile of one kind of attack; of rows that are made up, none is a person's."""
    title, beside = _ATTACKS[worst.attack], _BASELINES[worst.attack]
    if made_up and worst.attack == "linkage":
        title, beside = "Finds a row like a person's", "for people who are not in the table"
    if worst.column is not None:
        title = f"Guesses {formatting.shorten(worst.column, 24)}"
    limit = formatting.percent(worst.threshold)
    note = f"of cases; {_share(worst.baseline)} {beside}, limit {limit}"
    measured = max((_success(one) for one in real), default=None)
    if measured is not None:
        note += f". On the real rows: {_share(measured)}"
    is_bad = worst.is_above or any(_is_above(worst.attack, one) for one in real)
    kind = "bad" if is_bad else "warn" if worst.lower > worst.baseline else "ok"
    return SummaryTile(title=title, amount=_share(worst.success), note=note, kind=kind)


def _share(share: float) -> str:
    """Return a share in percent, also one far below a percent."""
    return formatting.small_percent(share) if share < 0.01 else formatting.percent(share)


def _real_results(findings: Findings, attack: str) -> list[Mapping[str, Any]]:
    """Return the attacks of one kind on real rows, those on people of synthetic tables included."""
    found: list[Mapping[str, Any]] = [one for one in findings.exposures if one["attack"] == attack]
    if attack == "membership":
        found += [one for one in findings.members if one["on"] == "rows" and one["members"] is None]
    return found


def _success(result: Mapping[str, Any]) -> float:
    return float(result["success"] if "success" in result else result["value"])


def _is_above(attack: str, result: Mapping[str, Any]) -> bool:
    """Return whether an attack on real rows is surely above the limit."""
    chance = float(result["chance"])
    return float(result["lower"]) > chance + LIMITS[attack] * (1 - chance)  # type: ignore[index]


def _verdict(statement: Statement, risk: Risk | None, findings: Findings | None) -> Verdict:
    """Return whether the release may be published; what the curator finds can only make it worse."""
    if against := _objection(statement, findings):
        return Verdict(kind="bad", answer="No", why=against)
    if risk is None:
        return Verdict(kind="warn", answer="Not assessed", why="No attack was run before the release.")
    kind, answer = _ANSWERS[risk.verdict]
    return Verdict(kind=kind, answer=answer, why=risk.why)


def _objection(statement: Statement, findings: Findings | None) -> str:
    """Return what forbids publishing whatever the risk on made-up rows is; empty if nothing does."""
    if statement.implementation.seeded:
        return _SEEDED
    if findings is None:
        return ""
    if any(one["verdict"] == "broken" for one in (*findings.guesses, *findings.audits)):
        return "An attack on made-up records did better than is proven: a floor or a promise is broken."
    for attack in _ATTACKS:
        above = [one for one in _real_results(findings, attack) if _is_above(attack, one)]
        if above:
            return f"On the real rows: {max(above, key=_success)['sentence']} That is above the limit."
    return ""
