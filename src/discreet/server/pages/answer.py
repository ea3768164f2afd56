"""Presentation of an answer on a page: text, charts and code examples."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from discreet import formatting
from discreet.formatting import append_unit, number_with_margin
from discreet.query.results import QueryResult
from discreet.report.charts.bars import interval_bar
from discreet.server.pages.answer_files import csv_file, data_address, svg_file
from discreet.server.pages.answer_table import AnswerTable, answer_table, interval_mark
from discreet.server.pages.budget import format_full_cost, format_left
from discreet.server.pages.snippets import curl_command, notebook_cell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.server.pages.budget import BudgetView


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """An answer without groups: the number, its interval in words, and a chart of the interval."""

    value: str
    sure: str
    bar: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerView:
    """Content of the card that shows an answer.

    Attributes
    ----------
    question, measure : str
        Query as text, and the unit of its answer.
    single : Single or None
        The number, if there is one alone; None otherwise.
    table : AnswerTable or None
        The numbers of an answer with groups or several statistics; None otherwise.
    unreadable : str
        Sentence about the groups that are smaller than the noise; empty if there are none.
    cost, left, when : str
        Cost of the answer, what is left after it, and the time of its charge, as text.
    receipts : tuple of str
        Ids of the receipts by which the answer is recalled.
    cached, refined, trial : bool
        Whether it was paid for before, is merged from several draws, and is computed from dummy rows.
    csv, svg : str
        Addresses of the answer as a table and as a chart; empty for a trial.
    json, curl, python : str
        The answer as JSON, and a command and a notebook cell that ask the same; empty if none can.
    """

    question: str
    measure: str
    single: Single | None
    table: AnswerTable | None
    unreadable: str
    cost: str
    left: str
    when: str
    receipts: tuple[str, ...]
    cached: bool
    refined: bool
    trial: bool
    csv: str
    svg: str
    json: str
    curl: str
    python: str


def answer_view(
    answer: Mapping[str, Any],
    request: Mapping[str, Any] | None,
    *,
    budget: BudgetView,
    address: str,
    dataset: str,
    earlier: Mapping[str, Any] | None = None,
    total_cost: Sequence[Mapping[str, Any]] = (),
    when: str = "",
    files: str = "",
    trial: bool = False,
) -> AnswerView:
    """Return the card that shows an answer.

    Parameters
    ----------
    answer : mapping
        Answer as the API returns it.
    request : mapping or None
        Request that asks the same again, for the code examples; None if it is not known.
    budget : BudgetView
        Budget from which the answer was paid.
    address, dataset : str
        Address of the service and name of the data set, for the code examples.
    earlier : mapping, optional
        Answer that this one refines; None if it refines none.
    total_cost : sequence of mapping
        Promises charged for it and for all answers that it refines.
    when : str
        Time of its charge; empty if there was none.
    files : str
        Address of its files with ``{}`` for the ending; empty for one that has no page of its own.
    trial : bool
        Whether it was computed from dummy rows.

    Privacy
    -------
    Shows what was paid for, and nothing else about rows.
    """
    result = QueryResult.from_wire(answer)
    several = len(result.columns) > 1
    tabular = bool(answer["by"]) or several
    return AnswerView(
        question=answer["question"],
        measure="" if several else result.columns[0].unit or "",
        single=None if tabular else _single(result, earlier),
        table=answer_table(result) if tabular else None,
        unreadable=_unreadable(result) if tabular else "",
        cost=_paid(answer, budget, total_cost if earlier else ()),
        left=format_remaining(answer["remaining"]),
        when=formatting.date(when) if when else "",
        receipts=tuple(part for merged in answer["parts"] for part in merged) or tuple(answer["receipts"]),
        cached=answer["cached"],
        refined=any(len(merged) > 1 for merged in answer["parts"]),
        trial=trial,
        csv="" if trial else files.format("csv") or data_address(csv_file(result)),
        svg="" if trial else files.format("svg") or data_address(svg_file(result)),
        json=json.dumps(answer, indent=2, ensure_ascii=False),
        curl="" if request is None else curl_command(request, address, dataset),
        python="" if request is None else notebook_cell(request, address, dataset),
    )


def _single(result: QueryResult, earlier: Mapping[str, Any] | None) -> Single:
    """Return the presentation of one number, beside the interval of the answer that it refines."""
    (cell,), measure = result.cells, result.columns[0].unit or ""
    ((value, interval),) = result.cell_texts()
    if not interval:
        return Single(value=value, sure="This is exact: it follows from public facts.", bar=Markup(""))
    marks = [interval_mark(cell, "now" if earlier else "")]
    if earlier and not earlier["by"]:
        marks.insert(0, interval_mark(QueryResult.from_wire(earlier).cells[0], "before"))
    sure = f"The exact number is in the interval {append_unit(interval, measure)}, 95 times in 100."
    words = " ".join(filter(None, (result.unreadable_words, sure)))
    return Single(
        value=value, sure=words, bar=interval_bar("interval", marks, measure, result.number_format())
    )


def _unreadable(result: QueryResult) -> str:
    """Return sentences about the groups that are smaller than the noise; empty if there are none."""
    if result.group_words is not None:
        return " ".join(filter(None, (result.group_words, result.unreadable_words)))
    margin = max((cell.upper - cell.lower) / 2 for cell in result.cells)
    if not margin or not math.isfinite(margin) or len(result.columns) > 1:
        return ""
    words = append_unit(number_with_margin(margin, margin), result.columns[0].measure)
    return f"Noise makes sums that differ by less than about {words} look alike."


def _paid(answer: Mapping[str, Any], budget: BudgetView, total_cost: Sequence[Mapping[str, Any]]) -> str:
    if not answer["cost"]:
        return "nothing: it follows from public facts"
    words = format_full_cost(answer, budget)
    if total_cost:
        words += f"; {budget.format_cost(total_cost)} including the answers it refines"
    return f"nothing now; {words} when it was first asked" if answer["cached"] else words


def format_remaining(remaining: Mapping[str, Any]) -> str:
    """Return what is left after an answer, and how many more like it that pays for, as text."""
    used, more = remaining["used"], remaining["more"]
    if used is None:
        return "no limit"
    text = format_left(used, remaining["nearer"])
    return text if more is None else f"{text}, enough for {more:,} more like it"
