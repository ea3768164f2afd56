"""Sections of a statement page: declarations, promises and charges."""

from __future__ import annotations

from dataclasses import dataclass
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
