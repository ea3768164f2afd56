"""Presentation of an answer on a page: text, charts and code examples."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from discreet import formatting
from discreet.formatting import append_unit, number_with_margin
from discreet.query.costs import describe_left, describe_used
from discreet.query.results import QueryResult
from discreet.report.charts import ChartAxis
from discreet.report.charts.bars import IntervalMark, cell_bar, interval_bar
from discreet.server.pages.budget import WHOSE, format_full_cost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.query.result_cells import ResultCell
    from discreet.server.pages.budget import BudgetView

MOST_ROWS = 200
"""Maximum number of groups that a page shows; the JSON has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """An answer without groups: the number, its interval in words, and a chart of the interval."""

    value: str
    sure: str
    bar: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """One number of an answer as a row of a table; `faint` if its interval says little."""

    key: tuple[str, ...]
    statistic: str
    value: str
    interval: str
    bar: Markup
    faint: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerView:
    """Content of the card that shows an answer.

    Attributes
    ----------
    question, measure, caption : str
        Query as text, unit of its answer, and caption of the table of numbers.
    single : Single or None
        The number, if there is one alone; None otherwise.
    axes, rows, more_rows
        Columns of the table before the numbers, the numbers shown, and how many are not shown.
    unreadable : str
        Sentence about the groups that are smaller than the noise; empty if there are none.
    cost, left, when : str
        Cost of the answer, what is left after it, and the time of its charge, as text.
    receipts : tuple of str
        Ids of the receipts by which the answer is recalled.
    cached, refined, trial : bool
        Whether it was paid for before, is merged from several draws, and is computed from dummy rows.
    download : str
        Address of the answer as CSV; empty if it has none.
    json, curl, python : str
        The answer as JSON, and a command and a program that ask the same; empty if none can.
    """

    question: str
    measure: str
    caption: str
    single: Single | None
    axes: tuple[str, ...]
    rows: tuple[CellView, ...]
    more_rows: int
    unreadable: str
    cost: str
    left: str
    when: str
    receipts: tuple[str, ...]
    cached: bool
    refined: bool
    trial: bool
    download: str
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
    download: str = "",
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
    download : str
        Address at which it is saved as CSV; empty if there is none.
    trial : bool
        Whether it was computed from dummy rows.

    Privacy
    -------
    Shows what was paid for, and nothing else about rows.
    """
    cells = answer["cells"]
    result = QueryResult.from_wire(answer)
    several = len(result.columns) > 1
    tabular = bool(answer["by"]) or several
    return AnswerView(
        question=answer["question"],
        measure="" if several else result.columns[0].unit or "",
        caption=_caption(result),
        single=None if tabular else _single(result, earlier),
        axes=(*answer["by"], *(("statistic",) if several else ())),
        rows=_cell_views(result) if tabular else (),
        more_rows=max(0, len(cells) - MOST_ROWS) if tabular else 0,
        unreadable=_unreadable(result) if tabular else "",
        cost=_paid(answer, budget, total_cost if earlier else ()),
        left=format_remaining(answer["remaining"]),
        when=formatting.date(when) if when else "",
        receipts=tuple(part for merged in answer["parts"] for part in merged) or tuple(answer["receipts"]),
        cached=answer["cached"],
        refined=any(len(merged) > 1 for merged in answer["parts"]),
        trial=trial,
        download=download,
        json=json.dumps(answer, indent=2, ensure_ascii=False),
        curl="" if request is None else _curl(request, address, dataset),
        python="" if request is None else _python(request, address, dataset),
    )


def answer_table(result: QueryResult) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return column names and rows of an answer: its groups, value and interval, one row for each number.

    Parameters
    ----------
    result : QueryResult
        Result of a query; an end of an interval that is not finite is left empty.
    """
    columns = (*result.group_by, "statistic", "value", "lower", "upper", "unit")
    rows = []
    for cell in result.cells:
        ends = (end if math.isfinite(end) else None for end in cell.interval)
        statistic = result.columns[cell.column]
        rows.append((*cell.key, statistic.name, cell.value, *ends, statistic.unit))
    return columns, rows


def _caption(result: QueryResult) -> str:
    """Return the caption of the table of numbers."""
    if not result.group_by:
        return formatting.count_noun(len(result.columns), "statistic")
    groups = formatting.count_noun(len(result.cells) // len(result.columns), "group")
    if result.simultaneous > 1:
        return f"{groups} of {result.simultaneous:,}; all intervals hold together, 95 times in 100"
    return f"{groups}; every declared group, including empty ones"


def _single(result: QueryResult, earlier: Mapping[str, Any] | None) -> Single:
    """Return the presentation of one number, beside the interval of the answer that it refines."""
    (cell,), measure = result.cells, result.columns[0].unit or ""
    ((value, interval),) = result.cell_texts()
    if not interval:
        return Single(value=value, sure="This is exact: it follows from public facts.", bar=Markup(""))
    marks = [_mark(cell, "now" if earlier else "")]
    if earlier and not earlier["by"]:
        marks.insert(0, _mark(QueryResult.from_wire(earlier).cells[0], "before"))
    sure = f"The exact number is in the interval {append_unit(interval, measure)}, 95 times in 100."
    words = " ".join(filter(None, (result.unreadable_words, sure)))
    return Single(
        value=value, sure=words, bar=interval_bar("interval", marks, measure, result.number_format())
    )


def _mark(cell: ResultCell, words: str) -> IntervalMark:
    """Return the mark of a cell in a chart; a mean over no rows is at the middle of its interval."""
    value = cell.lower / 2 + cell.upper / 2 if cell.value is None else cell.value
    # An interval without an end is drawn to the number.
    lower, upper = (end if math.isfinite(end) else value for end in cell.interval)
    return IntervalMark(value, lower, upper, words)


def _cell_views(result: QueryResult) -> tuple[CellView, ...]:
    """Return the numbers as rows of a table; bars of one statistic share an axis."""
    cells = result.cells[:MOST_ROWS]
    texts = result.cell_texts()[:MOST_ROWS]
    marks = [_mark(cell, "") for cell in cells]
    axes = []
    for i, column in enumerate(result.columns):
        # An average has no natural zero; counts and sums are drawn from theirs.
        from_zero = column.name.startswith(("count", "sum"))
        ends = [end for cell, mark in zip(cells, marks, strict=True) if cell.column == i for end in mark[:3]]
        axis = ChartAxis.from_values([*ends, 0.0] if from_zero else ends, 0.0, 1.0, margin=0.03)
        axes.append((axis, from_zero))
    views = []
    for cell, mark, (value, interval) in zip(cells, marks, texts, strict=True):
        axis, from_zero = axes[cell.column]
        views.append(
            CellView(
                key=cell.key,
                statistic=result.columns[cell.column].name if len(result.columns) > 1 else "",
                value=value,
                interval=interval or "exact",
                bar=cell_bar(axis, *mark[:3], from_zero=from_zero),
                faint=not result.is_readable(cell) or (from_zero and mark.lower <= 0 <= mark.upper),
            )
        )
    return tuple(views)


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
    text = f"{describe_used(used, WHOSE[remaining['nearer']])}; {describe_left(used)}"
    return text if more is None else f"{text}, enough for {more:,} more like it"


def _curl(request: Mapping[str, Any], address: str, dataset: str) -> str:
    body = json.dumps(request, ensure_ascii=False)
    return (
        f"curl -sS {shlex.quote(f'{address}/v1/datasets/{dataset}/query')} \\\n"
        '  -H "Authorization: Bearer $DISCREET_TOKEN" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(body)}"
    )


_CLASSES = {"pure-dp": "PureDP", "approx-dp": "ApproxDP", "zcdp": "ZCDP", "gaussian-dp": "GaussianDP"}


def _python(request: Mapping[str, Any], address: str, dataset: str) -> str:
    """Return a Python program that sends a request."""
    privacy = request.get("privacy")
    if privacy is None:
        names, price = "connect", f"sd={request['sd']!r}"
    else:
        promise = _CLASSES[privacy["kind"]]
        numbers = ", ".join(f"{name}={value!r}" for name, value in privacy.items() if name in _NUMBERS)
        names, price = f"{promise}, connect", f"privacy={promise}({numbers})"
    if request.get("refines"):
        price += f", refines={list(request['refines'])!r}"
    return (
        f"from discreet import {names}\n\n"
        f"with connect({address!r}) as service:  # the token is in DISCREET_TOKEN\n"
        f"    answer = service[{dataset!r}].query({request['text']!r}, {price})"
    )


_NUMBERS = ("epsilon", "delta", "rho", "mu")
