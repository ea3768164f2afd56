"""Presentation of an answer: numbers as text, tables and charts, files to save, programs that ask again."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import Response

from discreet import formatting
from discreet.formatting import append_unit, number_with_margin
from discreet.query.result_table import CellNumbers
from discreet.query.results import QueryResult
from discreet.report.charts import ChartAxis
from discreet.report.charts.bars import IntervalMark, cell_axis, cell_bar, interval_bar
from discreet.server.api.csv_response import csv_response
from discreet.server.pages.budget import format_full_cost, format_left

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.query.result_cells import ResultCell
    from discreet.server.pages.budget import BudgetView

MOST_NUMBERS = 400
"""Maximum number of numbers that a page shows; the files have all of them."""

_MOST_ACROSS = 6  # columns of a two-way table that are readable beside one another
_CLASSES = {"pure-dp": "PureDP", "approx-dp": "ApproxDP", "zcdp": "ZCDP", "gaussian-dp": "GaussianDP"}
_NUMBERS = ("epsilon", "delta", "rho", "mu")


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
        The answer as JSON, unless it is long, and a command and a notebook cell that ask the same. Where it
        cannot be asked as a text, the cell recalls it, and the command is empty.
    sortings : sequence of (str, str)
        Addresses of the same answer with all its groups sorted, each with its name; for a long answer.
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
    sortings: Sequence[tuple[str, str]] = ()


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
        left=format_remaining(answer["remaining"], budget),
        when=formatting.date(when) if when else "",
        receipts=tuple(part for merged in answer["parts"] for part in merged) or tuple(answer["receipts"]),
        cached=answer["cached"],
        refined=any(len(merged) > 1 for merged in answer["parts"]),
        trial=trial,
        csv="" if trial else files.format("csv") or data_address(csv_file(result)),
        svg="" if trial else files.format("svg") or data_address(svg_file(result)),
        json=json.dumps(answer, indent=2, ensure_ascii=False) if len(result.cells) <= MOST_NUMBERS else "",
        curl="" if request is None else curl_command(request, address, dataset),
        python="" if trial else _python(answer, request, address, dataset),
    )


def _python(answer: Mapping[str, Any], request: Mapping[str, Any] | None, address: str, dataset: str) -> str:
    """Return the notebook cell of an answer; empty if nothing was paid for and it cannot be asked again."""
    if request is not None:
        return notebook_cell(request, address, dataset)
    return recalling_cell(answer["receipts"], address, dataset) if answer["receipts"] else ""


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


def format_remaining(remaining: Mapping[str, Any], budget: BudgetView) -> str:
    """Return what is left after an answer, and how many more like it that pays for, as text."""
    used, more = remaining["used"], remaining["more"]
    if used is None:
        return "no limit"
    text = format_left(used, budget.whose(remaining["nearer"]))
    return text if more is None else f"{text}, enough for {more:,} more like it"


# Tables.


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberView:
    """One number of an answer.

    Attributes
    ----------
    value, interval : str
        The number and its interval as texts.
    order : str
        The number by which rows are sorted; empty if there is none.
    bar : Markup
        Chart of the number with its interval.
    faint : bool
        Whether its interval says little.
    """

    value: str
    interval: str
    order: str
    bar: Markup
    faint: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberColumn:
    """A column of numbers: its heading, the unit of its numbers, and the axis of its charts."""

    heading: str
    unit: str
    axis: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRow:
    """A row of the table: the values of its group, and a number for each column."""

    key: tuple[str, ...]
    cells: tuple[NumberView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTable:
    """Numbers of an answer in rows and columns.

    Attributes
    ----------
    caption : str
        Caption of the table.
    keys : tuple of str
        Headings of the columns that name the group.
    across : str
        Column of the data whose values head the columns of a two-way table; empty for other tables.
    columns : tuple of NumberColumn
        Columns of numbers: the statistics, or the values of `across`.
    rows : tuple of NumberRow
        Rows that are shown.
    shown, more : int
        Number of numbers that are shown, and of those that are not.
    """

    caption: str
    keys: tuple[str, ...]
    across: str
    columns: tuple[NumberColumn, ...]
    rows: tuple[NumberRow, ...]
    shown: int
    more: int


def answer_table(result: QueryResult) -> AnswerTable:
    """Return the table of an answer with groups or several statistics.

    One statistic of two columns of groups is a two-way table, unless that would be too wide or has gaps.
    """
    width = len(result.columns)
    shown = result.cells[: MOST_NUMBERS // width * width]
    views, axes = _number_views(result, shown)
    more = len(result.cells) - len(shown)
    down, across = ((), ()) if width > 1 or more else _two_ways(result)
    keys, over = result.group_by, ""
    if across:
        keys, over = keys[:1], keys[1]
        if len(down) < len(across):  # the shorter way goes across, which also a narrow screen has room for
            keys, over = (over,), keys[0]
            views = [view for i in range(len(across)) for view in views[i :: len(across)]]
            down, across = across, down
        rows = [
            NumberRow(key=(value,), cells=tuple(views[i * len(across) : (i + 1) * len(across)]))
            for i, value in enumerate(down)
        ]
        unit = result.columns[0].unit or ""
        columns = [NumberColumn(heading=value, unit=unit, axis=axes[0]) for value in across]
    else:
        rows = [
            NumberRow(key=shown[i].key, cells=tuple(views[i : i + width]))
            for i in range(0, len(shown), width)
        ]
        columns = [
            NumberColumn(heading=column.name, unit=column.unit or "", axis=axis)
            for column, axis in zip(result.columns, axes, strict=True)
        ]
    return AnswerTable(
        caption=_caption(result),
        keys=keys,
        across=over,
        columns=tuple(columns),
        rows=tuple(rows),
        shown=len(shown),
        more=more,
    )


def interval_mark(cell: ResultCell, words: str) -> IntervalMark:
    """Return the mark of a cell in a chart; a mean over no rows is at the middle of its interval."""
    value = cell.lower / 2 + cell.upper / 2 if cell.value is None else cell.value
    # An interval without an end is drawn to the number.
    lower, upper = (end if math.isfinite(end) else value for end in cell.interval)
    return IntervalMark(value, lower, upper, words)


def _two_ways(result: QueryResult) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the values of both columns of groups, if each value of one is there with each of the other.

    There are none for other groups, and where a table of them would be too wide.
    """
    if len(result.group_by) != 2:
        return (), ()
    first, second = (tuple(dict.fromkeys(cell.key[i] for cell in result.cells)) for i in (0, 1))
    is_whole = [(a, b) for a in first for b in second] == [cell.key for cell in result.cells]
    narrow = 1 < min(len(first), len(second)) <= _MOST_ACROSS
    return (first, second) if is_whole and narrow else ((), ())


def _caption(result: QueryResult) -> str:
    """Return the caption of the table of numbers."""
    if not result.group_by:
        return formatting.count_noun(len(result.columns), "statistic")
    groups = formatting.count_noun(len(result.cells) // len(result.columns), "group")
    if result.simultaneous > 1:
        return f"{groups} of {result.simultaneous:,}; all intervals hold together, 95 times in 100"
    return f"{groups}; every declared group, including empty ones"


def _number_views(result: QueryResult, cells: Sequence[ResultCell]) -> tuple[list[NumberView], list[Markup]]:
    """Return the cells with their bars, and the axes that the bars of each statistic share."""
    marks = [interval_mark(cell, "") for cell in cells]
    axes = []
    for i, column in enumerate(result.columns):
        # An average has no natural zero; counts and sums are drawn from theirs.
        from_zero = column.name.startswith(("count", "sum"))
        ends = [end for cell, mark in zip(cells, marks, strict=True) if cell.column == i for end in mark[:3]]
        axis = ChartAxis.from_values([*ends, 0.0] if from_zero else ends, 0.0, 1.0, margin=0.03)
        axes.append((axis, from_zero))
    views = []
    for cell, mark, (value, interval) in zip(cells, marks, result.cell_texts(), strict=False):
        axis, from_zero = axes[cell.column]
        views.append(
            NumberView(
                value=value,
                interval=interval or "exact",
                order="" if cell.value is None else repr(float(cell.value)),
                bar=cell_bar(axis, *mark[:3], from_zero=from_zero),
                faint=not result.is_readable(cell) or (from_zero and mark.lower <= 0 <= mark.upper),
            )
        )
    drawn = [
        cell_axis(axis, None if column.first_day is None else result.number_format(i))
        for i, (column, (axis, _)) in enumerate(zip(result.columns, axes, strict=True))
    ]
    return views, drawn


# Files to save.


def csv_file(result: QueryResult) -> Response:
    """Return a response with an answer as CSV: its groups, statistic, value and interval, a row per number.

    An end of an interval that is not finite is left empty; the mean of dates is a date.
    """
    rows, columns = [], result.table_columns()
    for cell in result.cells:
        statistic = columns[cell.column]
        value, _, *ends = statistic.to_cells(CellNumbers(cell.value, cell.sd, cell.lower, cell.upper))
        ends = [end if not isinstance(end, float) or math.isfinite(end) else None for end in ends]
        rows.append((*cell.key, statistic.name, value, *ends, result.columns[cell.column].unit))
    return csv_response((*result.group_by, "statistic", "value", "lower", "upper", "unit"), rows, "answer")


def svg_file(result: QueryResult) -> Response:
    """Return a response with a chart of an answer as SVG."""
    headers = {"content-disposition": 'attachment; filename="answer.svg"'}
    return Response(result.plot().encode(), media_type="image/svg+xml", headers=headers)


def data_address(file: Response) -> str:
    """Return an address that holds a file itself, for an answer that has no page of its own."""
    return f"data:{file.media_type},{quote(bytes(file.body))}"


# Programs that ask again.


def curl_command(request: Mapping[str, Any], address: str, dataset: str) -> str:
    """Return a command that sends a request to a service at an address, about a data set."""
    body = json.dumps(request, ensure_ascii=False)
    return (
        f"curl -sS {shlex.quote(f'{address}/v1/datasets/{dataset}/query')} \\\n"
        '  -H "Authorization: Bearer $DISCREET_TOKEN" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(body)}"
    )


def recalling_cell(receipts: Sequence[str], address: str, dataset: str) -> str:
    """Return Python code for a notebook, which recalls the sums of an answer by its receipts, for free."""
    return _connecting_cell(
        address,
        dataset,
        f"answers = [table.recall(receipt) for receipt in {list(receipts)!r}]\n"
        "answers  # the noisy sums as they were paid for: answers[0].value, answers[0].sd",
    )


def job_cell(job: str, address: str, dataset: str, *, shown: str = "result") -> str:
    """Return Python code for a notebook, which gets the result of a job for free and shows a part of it."""
    code = f"result = table.job({job!r}).result()\n{shown}"
    return _connecting_cell(address, dataset, code)


def _connecting_cell(address: str, dataset: str, code: str, *names: str) -> str:
    """Return Python code that connects to a data set and runs some code with it; `names` are imported."""
    return (
        f"from discreet import {', '.join((*names, 'connect'))}\n\n"
        f"table = connect({address!r})[{dataset!r}]  # reads the token from DISCREET_TOKEN\n"
        f"{code}"
    )


def notebook_cell(request: Mapping[str, Any], address: str, dataset: str) -> str:
    """Return Python code for a notebook, which asks with the client and shows the answer as a table."""
    privacy, names = request.get("privacy"), list[str]()
    if privacy is None:
        price = f"sd={request['sd']!r}"
    else:
        names = [_CLASSES[privacy["kind"]]]
        numbers = ", ".join(f"{name}={value!r}" for name, value in privacy.items() if name in _NUMBERS)
        price = f"privacy={names[0]}({numbers})"
    if request.get("refines"):
        price += f", refines={list(request['refines'])!r}"
    code = (
        f"answer = table.query({request['text']!r}, {price})\n"
        "answer  # answer.to_pandas() is a data frame, answer.plot() a chart"
    )
    return _connecting_cell(address, dataset, code, *names)
