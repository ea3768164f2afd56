"""Code example of a statement page: how to correct for the noise laws of a release."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.report.statement.documents import ColumnNumbers, Statement


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
