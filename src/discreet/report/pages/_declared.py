"""Sections of a statement page: declarations, promises and charges, and a code example.

The code example shows how to correct for the noise laws of a release.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from discreet import formatting
from discreet.privacy.promises import PROMISE_NAMES, describe_promise
from discreet.report.charts import timeline
from discreet.report.pages._columns import is_chance
from discreet.report.pages.tables import HtmlTable, merge_rows, two_lines

if TYPE_CHECKING:
    from markupsafe import Markup

    from discreet.report.findings import Findings
    from discreet.report.statement.documents import ColumnNumbers, Composition, DeclaredBound, Statement


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


def _describe_rows(statement: Statement) -> str:
    """Return how many rows were published, and how many were read where that is public."""
    what = statement.what
    read = "as many as was estimated" if what.rows_read is None else f"{what.rows_read:,} read"
    return f"{formatting.count_noun(what.rows_published, 'row')} published, {read}"


def facts(statement: Statement) -> list[tuple[str, str]]:
    """Return title and text of the facts about the publication; empty ones are left out."""
    what = statement.what
    pairs = [
        ("Data set", what.dataset),
        ("Published by", what.curator),
        ("Purpose", what.purpose),
        ("Contact", what.contact),
        ("License", what.license),
        ("Replaces", what.supersedes),
        ("Method", what.method.name),
        ("Rows", _describe_rows(statement)),
        ("Columns", formatting.count_noun(len(statement.numbers.columns), "column")),
        ("Made", formatting.date(what.created)),
        ("With", f"{what.product} {what.product_version}"),
    ]
    return [(title, formatting.printable(text)) for title, text in pairs if text]


def dropped_columns(statement: Statement) -> list[tuple[str, str]]:
    """Return the declared columns that are not published, each with the reason."""
    why = {"drop": "left out", "id": "an identifier, left out"}
    dropped = []
    for field in statement.declared.get("fields", []):
        role = field.get("privacy", {}).get("role")
        if role in why:
            dropped.append((str(field["name"]), str(field.get("description") or why[role])))
    return dropped


def promise_table(statement: Statement) -> HtmlTable:
    """Return the table of promises, with the columns they cover."""
    rows = []
    for values in statement.numbers.promises:
        covers = values.get("covers")
        kind = str(values["kind"])
        about = (
            "everything published" if covers is None else f"{formatting.count_noun(len(covers), 'column')}"
        )
        if covers is not None and len(covers) <= 8:
            about = ", ".join(formatting.name(str(column)) for column in covers)
        rows.append([PROMISE_NAMES.get(kind, kind).capitalize(), describe_promise(values), about])
    return HtmlTable(
        caption="Every promise that holds",
        head=("Kind", "Numbers", "Covers"),
        rows=rows,
        stack=True,
        noun="more promise",
    )


def column_table(statement: Statement) -> HtmlTable:
    """Return the table of columns: noise, floor and epsilon."""
    return HtmlTable(
        caption="Column by column",
        head=("Column", "Role", "Mechanism", "Without the release", "Floor under its prior", "ε"),
        rows=merge_rows((n.column, _column(n)) for n in statement.numbers.columns),
        stack=True,
        noun="more column",
    )


def _column(numbers: ColumnNumbers) -> list[Markup | str]:
    """Return the cells of one column beside its name."""
    chance, measure = is_chance(numbers), numbers.measure
    wrong = " wrong" if chance else ""
    floor, without = numbers.floor, numbers.without
    return [
        numbers.role,
        formatting.printable(numbers.law_in_words),
        formatting.NONE if without is None else formatting.quantity(without, measure, chance=chance) + wrong,
        formatting.NONE
        if floor is None
        else formatting.quantity(float(floor["error"]), measure, chance=chance, rounding="down") + wrong,
        formatting.NONE if numbers.epsilon is None else formatting.number(numbers.epsilon, rounding="up"),
    ]


def bounds_table(statement: Statement) -> HtmlTable:
    """Return the table of declared bounds and their sources."""
    return HtmlTable(
        caption="What each column may contain, and the source of each declaration",
        head=("Column", "Type", "May contain", "Missing cells", "Who says so"),
        rows=merge_rows((b.column, _bound(b)) for b in statement.bounds),
        stack=True,
        noun="more column",
    )


def _bound(bound: DeclaredBound) -> list[Markup | str]:
    """Return the cells of one declared column beside its name."""
    return [
        bound.type,
        two_lines(_range(bound), bound.outside),
        "possible" if bound.missing else "no",
        formatting.printable(bound.source or "not given"),
    ]


def _range(bound: DeclaredBound) -> str:
    """Return the declared range, or the first 20 values of a list, as text."""
    if bound.values is not None:
        listed = [formatting.name("missing" if v is None else str(v)) for v in bound.values]
        more = f" and {len(listed) - 20:,} more" if len(listed) > 20 else ""
        return ", ".join(listed[:20]) + more
    if bound.lower is None or bound.upper is None:
        return "not declared"
    ends = [
        formatting.number(e, digits=12) if isinstance(e, float) else formatting.printable(e)
        for e in (bound.lower, bound.upper)
    ]
    step = f", in steps of {formatting.number(bound.grid, digits=12)}" if bound.grid else ""
    return f"{ends[0]} to {ends[1]}{step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositionView:
    """View of all charges for the same data set."""

    table: HtmlTable
    picture: Markup


def composition_view(statement: Statement) -> CompositionView:
    """Return the charges of the ledger, this release and all before it, as a table and a timeline."""
    composition: Composition = statement.composition
    charges = [(e.when, e.what, e.promises) for e in composition.earlier]
    receipt = composition.receipt
    current = (
        str(receipt.get("when", statement.what.created)),
        str(receipt.get("what", "this release")),
        list(receipt.get("promises", statement.numbers.promises)),
    )
    charges.append(current)
    rows = [
        [
            formatting.date(when),
            formatting.printable(what) + (" (this release)" if k == len(charges) - 1 else ""),
            "; ".join(describe_promise(p) for p in promises) or "nothing",
        ]
        for k, (when, what, promises) in enumerate(charges)
    ]
    return CompositionView(
        table=HtmlTable(
            caption="Charges for the same data set",
            head=("When", "What", "Charged"),
            rows=rows,
            stack=True,
            noun="more charge",
        ),
        picture=timeline("charges", [(when, what) for when, what, _ in charges], current=len(charges) - 1),
    )


def stage_table(findings: Findings) -> HtmlTable | None:
    """Return the table of the stages of the job and their times; None if there are none."""
    if not findings.stages:
        return None
    return HtmlTable(
        caption="Stages of the job",
        head=("Stage", "What it did", "Time"),
        rows=[[s.name, formatting.printable(s.said), formatting.seconds(s.seconds)] for s in findings.stages],
        numbers=(2,),
        noun="more stage",
    )


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
