"""Head of the report: summary tiles, and the code example for the noise laws of a release."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from discreet import formatting
from discreet.report.pages._attacks import exposures, member_verdict
from discreet.report.pages._learning import original_scores

if TYPE_CHECKING:
    from discreet.report.findings import Findings
    from discreet.report.statement.documents import ColumnNumbers, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTile:
    """Tile with a title, an amount, a note, and ``kind``, the CSS class of its badge."""

    title: str
    amount: str
    note: str
    kind: str = "plain"


def summary_tiles(statement: Statement, findings: Findings) -> list[SummaryTile]:
    """Return the tiles at the head of the internal report."""
    return [
        tile
        for tile in (
            _floors(findings),
            _epsilon(statement),
            _pair_error(findings),
            _quality(findings),
            _exposure(findings),
            _membership(findings),
        )
        if tile
    ]


def _floors(findings: Findings) -> SummaryTile | None:
    """Return how many floors held against attacks on made-up records."""
    decided = [g for g in findings.guesses if g["on"] == "prior" and g["verdict"] in ("holds", "broken")]
    if not decided:
        return SummaryTile(title="Floors", amount="none", note="No error floor is proven.", kind="warn")
    all_columns = {str(g["column"]) for g in decided}
    broken = {str(g["column"]) for g in decided if g["verdict"] == "broken"}
    attacks = formatting.count_noun(len(decided), "attack")
    return SummaryTile(
        title="Floors that held",
        amount=f"{len(all_columns) - len(broken):,} of {len(all_columns):,}",
        note=f"against {attacks} on made-up records",
        kind="bad" if broken else "ok",
    )


def _epsilon(statement: Statement) -> SummaryTile:
    """Return the epsilon of a whole row, or that none is proven."""
    numbers = statement.numbers
    if not statement.definition.differential_privacy or numbers.epsilon is None:
        return SummaryTile(
            title="Differential privacy",
            amount="none",
            note="No epsilon is proven for the release as a whole.",
            kind="warn",
        )
    delta = f"at δ = {formatting.number(numbers.delta, rounding='up')}" if numbers.delta else "pure"
    return SummaryTile(
        title="ε of a whole row",
        amount=formatting.number(numbers.epsilon, rounding="up"),
        note=delta + (", large: see the floors" if numbers.epsilon > 8 else ""),
    )


def _pair_error(findings: Findings) -> SummaryTile | None:
    """Return the mean error of pairs of columns of a synthetic table; None for other releases."""
    quality = findings.quality
    errors = [] if quality is None else [error for row in quality.two_way for error in row]
    if quality is None or not errors:
        return None
    by_chance = formatting.small_percent(quality.two_way_chance)
    return SummaryTile(
        title="Error of a pair of columns",
        amount=formatting.small_percent(sum(errors) / len(errors)),
        note=f"of the rows, on average; by chance {by_chance}",
    )


def _quality(findings: Findings) -> SummaryTile | None:
    """Return the score of a model trained on the release beside the others; None if not measured."""
    scores, task = original_scores(findings.learning), findings.learning and findings.learning.task
    if "release" not in scores:
        return None
    format_score = formatting.percent if task == "classification" else formatting.number
    others = [
        f"{name} {format_score(scores[key])}"
        for key, name in (
            ("aware", "knowing the noise law"),
            ("original", "original"),
            ("majority", "no rows at all"),
        )
        if key in scores
    ]
    return SummaryTile(
        title="Accuracy" if task == "classification" else "R²",
        amount=format_score(scores["release"]),
        note=", ".join(others),
    )


def _exposure(findings: Findings) -> SummaryTile | None:
    worst = next(iter(exposures(findings.exposures)), None)
    if worst is None:
        return None
    return SummaryTile(
        title=worst.attack.capitalize(),
        amount=worst.success,
        note=f"{worst.verdict}; by chance {worst.chance}",
        kind=worst.kind,
    )


def _membership(findings: Findings) -> SummaryTile | None:
    """Return how well people in a synthetic table are told from others, by the best attack on real rows."""
    areas = [one for one in findings.members if one["on"] == "rows" and one["members"] is None]
    if not areas:
        return None
    best = max(areas, key=lambda one: float(one["value"]))
    kind, verdict = member_verdict(best)
    return SummaryTile(
        title="People told from others",
        amount=formatting.percent(float(best["value"])),
        note=f"of pairs, {verdict}; by chance 50{formatting.NO_BREAK}%, at most "
        f"{formatting.percent(float(best['bound']), rounding='up')}",
        kind=kind,
    )


_ADDITIVE = ("gaussian", "laplace", "bounded")
_MADE_FOR = {
    "masked": "Logistic regression",
    "masked-svm": "The support vector machine with the Huberized hinge (half-width in datapackage.json)",
}
"""Learner that finds the classifier again, by the kind of the law of made-up points."""
_CORRECTED = (*_ADDITIVE, "spherical", "response", "joint-response", "clear")
_LEARN = """\
from discreet import {learner}, load_release
release = load_release(".")
model = {learner}().fit(release)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeExample:
    """Advice on the noise laws of a release, and code that corrects for them; empty where none can."""

    words: list[str]
    code: str
    learn: str
    target: str


def code_example(statement: Statement) -> CodeExample:
    """Return the advice for the laws that this release has, with its own columns as examples."""
    columns = statement.numbers.columns
    number = next((n for n in columns if _is_plain_additive(n)), None)
    listed = next((n for n in columns if n.law["kind"] == "response" and len(n.levels or ()) > 1), None)
    examples = []
    if number is not None:
        called = _literal(number.column)
        examples += [f"print('mean:', mean({called}))", f"print('variance:', variance({called}))"]
    if listed is not None:
        levels = [level for level in listed.levels or () if level is not None]
        examples.append(f"print('share:', share({_literal(listed.column)}, {_literal(levels[0])}))")
    code = f"{_source()}\n\n" + "\n".join(examples) + "\n" if examples else ""
    target = next((n for n in columns if n.role == "target"), None)
    learner = _learner(columns, target)
    return CodeExample(
        words=_advice(columns),
        code=code,
        learn=_LEARN.format(learner=learner) if learner else "",
        target="" if target is None else target.column,
    )


def _learner(columns: list[ColumnNumbers], target: ColumnNumbers | None) -> str | None:
    """Return the learner that corrects for the laws of a release; None if it cannot for one of them."""
    if target is None or len(columns) < 2:
        return None
    laws = [n.law.get("law", n.law) for n in columns]
    if any(law["kind"] not in _CORRECTED or law.get("clamped") or law.get("grid") for law in laws):
        return None
    if target.levels is None:
        return "NoiseAwareRidge"
    return None if target.missing else "NoiseAwareClassifier"


def _is_plain_additive(numbers: ColumnNumbers) -> bool:
    law = numbers.law
    untouched = not law.get("clamped") and law.get("grid") is None and law.get("missing_keep") is None
    return law["kind"] in _ADDITIVE and untouched


def _advice(columns: list[ColumnNumbers]) -> list[str]:
    """Return one paragraph for each kind of noise law that the columns have."""
    kinds = {str(n.law["kind"]) for n in columns}
    paragraphs = []
    if kinds & set(_ADDITIVE):
        paragraphs.append(
            "Noise was added to numbers. To correct a mean, subtract the mean of the noise; to correct a "
            "variance, subtract the variance of the noise. Slopes in a regression are too small until the "
            "variance of the noise is subtracted from the sums of squares."
        )
    if "response" in kinds:
        paragraphs.append(
            "Each categorical cell was kept, or replaced by one of the other levels with equal "
            "probability. An observed share is a known linear function of the true share; solve it for "
            "the true share."
        )
    if "joint-response" in kinds or any(
        n.law.get("law", {}).get("kind") == "joint-response" for n in columns
    ):
        paragraphs.append(
            "Some columns were randomized together: each combination was kept, or replaced by one of the "
            "others with equal probability. Solve for the shares of combinations."
        )
    if "sampled" in kinds:
        paragraphs.append(
            "Each row shows a random selection of its columns. Ignore the hidden cells: they are not "
            "missing values and carry no information. Each shown cell was kept, or replaced by one of the "
            "other levels with equal probability."
        )
    if any(n.law.get("clamped") for n in columns):
        paragraphs.append(
            "Numbers were clamped to their range after noise was added, so subtracting moments no longer "
            "corrects for it. Use the likelihood of a clamped cell instead."
        )
    if any(n.law.get("missing_keep") is not None for n in columns):
        paragraphs.append(
            "Whether a number is missing was randomized: a shown cell may have been missing, and then "
            "holds the middle of the range plus noise. First solve for the share of missing cells, using "
            "missing_keep."
        )
    if "in-range" in kinds:
        paragraphs.append(
            "Numbers were redrawn inside their range from a distribution that depends on the value, so "
            "means are biased towards the middle. Use the likelihood of the published law instead of "
            "subtracting moments."
        )
    if "invariant" in kinds:
        paragraphs.append(
            "This noise leaves the model of one named learner unchanged. Train that learner on the file "
            "without correcting for the noise, and do not rely on other statistics of this file."
        )
    if made_for := [_MADE_FOR[kind] for kind in _MADE_FOR if kind in kinds]:
        paragraphs.append(
            f"The rows belong to no real person. {made_for[0]} trained on all coordinates, at "
            "full precision, without another intercept and with the penalty given in datapackage.json, "
            "yields the released classifier. To apply it to your own rows, transform them by `coordinate = "
            "scale * cell + shift`. The file contains nothing else about the table: do not compute means or "
            "correlations from it."
        )
    if "synthetic" in kinds:
        paragraphs.append(
            "The rows belong to no real person: they are made up from noisy tables of counts. Use them for "
            "models and pictures. Numbers that you report come with their intervals from tables.json, as "
            "README.txt shows: an interval computed from rows as if they were a sample covers the truth in "
            "18 to 64 % of cases instead of 95 %, at epsilon 0.1 and 1."
        )
    if kinds <= {"clear"}:
        paragraphs.append("No noise was added: use the file as it is published.")
    return paragraphs


def _literal(value: object) -> str:
    """Return a name or a level as a Python literal, in ASCII."""
    return json.dumps(value) if isinstance(value, str) else repr(value)


@cache
def _source() -> str:
    return (Path(__file__).parents[1] / "templates" / "debias.py.txt").read_text(encoding="utf-8").rstrip()
