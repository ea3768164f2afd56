"""Output of queries: answers, previews and plans for people, CSV for programs, charts as files."""

import csv
import dataclasses
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.cli.console import Console

if TYPE_CHECKING:
    from discreet.ledger import Account
    from discreet.pipeline.query_plan import QueryPlan
    from discreet.privacy.composition import Spending
    from discreet.query.previews import Preview
    from discreet.query.result_cells import ResultCell
    from discreet.query.results import QueryResult

_DRY_RUN = "Dry run: no cell was read, and nothing was charged or drawn."
_LONGEST_QUESTION = 60  # characters in a table of a plan
_LONGEST_KEY = 30  # characters of an expression above its groups
_MOST_GROUPS = 100
_WHISKER = 24  # characters


def show_result(console: Console, result: "QueryResult", delta: float) -> None:
    """Print an answer, its cost and what is left of the budget.

    Parameters
    ----------
    console : Console
        Console that prints the text.
    result : QueryResult
        Answer that is to be printed.
    delta : float
        Delta at which Gaussian noise is stated as an epsilon.
    """
    show_values(console, result)
    for sentence in _describe_cost(result, delta):
        console.paragraph(sentence)
    if result.ledger is not None and result.receipts:
        flags = " ".join(f"--refine {receipt}" for receipt in result.receipts)
        console.line(f"For more precision, pay again and merge: {flags}")
    console.json(result.to_dict())


def show_results(
    console: Console, results: Sequence["QueryResult"], account: "Account | None", delta: float
) -> None:
    """Print the answers to several questions, and what they cost together.

    Parameters
    ----------
    console : Console
        Console that prints the text.
    results : sequence of QueryResult
        Answers in the order of their questions; the same question may occur twice.
    account : Account or None
        Budget after the last charge; None without a ledger.
    delta : float
        Delta at which Gaussian noise is stated as an epsilon.
    """
    from discreet.query.costs import remaining_amounts

    for result in results:
        show_values(console, result)
        console.line()
    distinct = {result.question: result for result in results}.values()
    charged = tuple(promise for result in distinct for promise in result.charged)
    cost = charged or tuple(promise for result in distinct for promise in result.cost)
    whole = dataclasses.replace(
        max(distinct, key=lambda result: result.ledger is not None),
        cost=cost,
        charged=charged,
        cached=bool(cost) and not charged,
        charges=tuple(
            receipt for result in distinct if result.charged or not charged for receipt in result.charges
        ),
        remaining=None if account is None else remaining_amounts(cost, None, account, charged=charged),
        spent=None if account is None else account.spent,
    )
    for sentence in _describe_cost(whole, delta, together=True):
        console.paragraph(sentence)
    console.json({"results": [result.to_dict() for result in results]})


def show_values(console: Console, result: "QueryResult", *, question: bool = True) -> None:
    """Print the numbers of an answer with their intervals, and what to know about them.

    Parameters
    ----------
    console : Console
        Console that prints the text.
    result : QueryResult
        Answer that is to be printed.
    question : bool
        Whether to print the question before them.
    """
    from discreet.formatting import printable

    if question:
        console.line(printable(result.question))
    if result.group_by:
        _show_groups(console, result)
    else:
        for line in result.value_lines():
            console.line(f"  {line}")
    for sentence in result.value_words:
        console.paragraph(sentence)


def _show_groups(console: Console, result: "QueryResult") -> None:
    """Print one line for each group, with an interval drawn on a common scale."""
    from discreet.formatting import name, shorten

    texts, width = result.cell_texts(), len(result.columns)
    for i, column in enumerate(result.columns):
        shown = result.cells[i::width][:_MOST_GROUPS]
        finite = [end for cell in shown for end in cell.interval if math.isfinite(end)]
        low, high = min(finite, default=0.0), max(finite, default=0.0)
        rows = [
            (
                *map(name, cell.key),
                *text,
                _draw_interval(cell, low, high) if result.is_readable(cell) else "too few rows for its noise",
            )
            for cell, text in zip(shown, texts[i::width], strict=False)
        ]
        unit = column.unit or column.name.partition("(")[0]
        keys = [shorten(name(key), _LONGEST_KEY) for key in result.group_by]
        headings = (*keys, unit, "at 95 %", "")
        console.table(column.name if width > 1 else "", headings, rows, left=len(result.group_by))
    if len(result.cells) > width * _MOST_GROUPS:
        more = len(result.cells) // width - _MOST_GROUPS
        console.line(f"{more:,} more groups; --csv, or \\csv at the prompt, writes all of them to a file.")


def show_preview(console: Console, preview: "Preview", delta: float) -> None:
    """Print what a query would cost and how noisy its answer would be."""
    from discreet.formatting import printable
    from discreet.query.costs import describe_cost

    console.line(printable(preview.question))
    console.line(f"  {preview.margin_words}")
    if (free := describe_free(preview)) is not None:
        console.paragraph(free)
    else:
        cost = f"{describe_cost(preview.cost, delta)}{_describe_shares(preview)}"
        console.paragraph(f"Would cost: {cost}.{_describe_assumptions(preview)}")
        if preview.remaining is not None:
            _show_takes(console, preview.remaining)
    if preview.law_words is not None:
        console.paragraph(preview.law_words)
    console.line(_DRY_RUN)
    console.json({"dry_run": True, **preview.to_dict()})


def show_plan(console: Console, plan: "QueryPlan", delta: float) -> None:
    """Print what the questions of a plan would cost, each and together, and how noisy they would be."""
    from discreet.formatting import printable, shorten
    from discreet.query.costs import describe_cost

    rows = [
        (
            str(one.written.line),
            shorten(printable(one.preview.question), _LONGEST_QUESTION),
            "exact" if one.preview.margin == 0 else one.preview.margin_words.removeprefix("would be "),
            "free" if one.preview.is_free or not one.preview.cost else describe_cost(one.preview.cost, delta),
        )
        for one in plan.queries
    ]
    console.table("", ("line", "question", "noise", "cost"), rows, left=4)
    if plan.cost:
        console.paragraph(f"Together: {describe_cost(plan.cost, delta)}.")
        if plan.remaining is not None:
            _show_takes(console, plan.remaining)
    else:
        console.paragraph("Free: all of it was paid for before, unless the rows have changed since.")


def plan_fields(plan: "QueryPlan") -> dict[str, Any]:
    """Return a plan as plain JSON values."""
    return {
        "questions": [{"line": one.written.line, **one.preview.to_dict()} for one in plan.queries],
        "cost": [promise.to_dict() for promise in plan.cost],
        **{name: (plan.remaining or {}).get(name) for name in ("more", "used", "takes")},
    }


def describe_free(preview: "Preview") -> str | None:
    """Return why a query costs nothing; None if it does."""
    if not preview.cost:
        return "Free: it follows from public facts."
    return "Free: it was paid for before, unless the rows have changed since." if preview.is_free else None


def _show_takes(console: Console, remaining: Mapping[str, Any]) -> None:
    """Print which part of the budget would be taken, and how much of it is used."""
    from discreet.query.costs import describe_takes, describe_used, takes_all

    takes, used = remaining["takes"], remaining["used"]
    if takes_all(remaining):
        console.paragraph("It would take all of the budget: nothing could be asked after it.")
    elif takes is not None and used is not None:
        more = " That is more than is left." if remaining["more"] == 0 else ""
        console.paragraph(f"It would take {describe_takes(takes)}.{more} {describe_used(used)}.")


def write_results_csv(results: Sequence["QueryResult"]) -> str:
    """Return the answers to several questions as one CSV text, which has a column for the question.

    A column of groups that a question does not have is empty in its lines.
    """
    read = [(result.question, list(csv.DictReader(io.StringIO(result.to_csv())))) for result in results]
    names = dict.fromkeys(name for result in results for name in result.group_by)
    names |= dict.fromkeys(name for _, rows in read for row in rows for name in row)
    text = io.StringIO()
    # A column of the table may be called question.
    first = "asked question" if "question" in names else "question"
    lines = csv.DictWriter(text, (first, *names), restval="", lineterminator="\n")
    lines.writeheader()
    lines.writerows({first: question, **row} for question, rows in read for row in rows)
    return text.getvalue()


def write_chart(result: "QueryResult", path: Path) -> None:
    """Write the chart of an answer to a file.

    Raises
    ------
    SourceError
        The file cannot be written; the answer was paid for and can be asked for again.
    """
    from discreet.errors import SourceError

    try:
        path.write_text(result.plot(), encoding="utf-8")
    except OSError as problem:
        raise SourceError(
            f"The chart {str(path)!r} cannot be written ({problem.strerror}). The answer is remembered: ask "
            "again with another place, free of charge."
        ) from None


def _describe_cost(result: "QueryResult", delta: float, *, together: bool = False) -> list[str]:
    """Return sentences about the cost, the ledger it was charged to and what is left."""
    from discreet.formatting import count_noun
    from discreet.query.costs import describe_cost, describe_left, describe_takes, describe_used

    if not result.cost:
        return ["Cost: nothing. It follows from public facts."]
    rows = f"row{'s' * (len(result.rows) > 1)} {', '.join(map(str, result.rows))}"
    cost = f"{describe_cost(result.cost, delta)}{'' if together else _describe_shares(result)}"
    if result.cached:
        answer = "All answers were" if together else "The answer was"
        cost_text = f"Cost: nothing. {answer} paid for before ({rows} of the ledger)."
    elif result.ledger is None:
        cost_text = (
            f"Cost: {cost}. It was not charged to a ledger (--no-ledger): the noise of repeated queries "
            "averages out."
        )
    else:
        cost_text = f"Cost: {cost}; {rows} of the ledger."
    cost_text += _describe_assumptions(result)
    if result.ledger is None:
        return [cost_text]
    if result.used is not None:
        noun = "file" if together else "query"
        noun = noun if result.more == 1 else {"file": "files", "query": "queries"}[noun]
        more = "" if result.more is None else f", enough for {result.more:,} more {noun} like this"
        taken = "" if result.takes is None else f"It took {describe_takes(result.takes)}. "
        return [cost_text, f"{taken}{describe_used(result.used)}. {describe_left(result.used)}{more}."]
    assert result.spent is not None
    so_far = count_noun(result.spent.charges, "charge")
    return [
        cost_text,
        f"So far: {so_far}; {_describe_total(result.spent, delta)}. The ledger has no limit, so nothing is "
        "guaranteed about later queries: `discreet ledger create` makes one with a limit.",
    ]


def _describe_total(spent: "Spending", delta: float) -> str:
    """Return the epsilon of all charges together, at a larger delta if need be, or why there is none."""
    from discreet.errors import ParameterError, PromiseError
    from discreet.formatting import number

    none = "no epsilon is proven for all of them together"
    if spent.unpromised:
        return f"{none} ({'; '.join(spent.unpromised)})"
    if spent.covers == ():
        return f"{none} (they protect no column in common)"
    at = f"{delta:g}"
    if spent.delta >= delta:
        delta += spent.delta
        at = number(delta, digits=2, rounding="up")
    try:
        epsilon = number(spent.epsilon_at(delta), digits=4, rounding="up")
    except (ParameterError, PromiseError):
        return f"{none}, since they cost too much (`discreet ledger show` lists them)"
    # Costs that are chosen after seeing answers can come to more than the sum says.
    return f"epsilon {epsilon} at delta {at}, provided no query was chosen after seeing an answer"


def _describe_shares(result: "QueryResult") -> str:
    """Return among how many noisy sums the promise is shared; empty for one."""
    return f", in equal shares for {result.sums} sums" if result.sums > 1 else ""


def _describe_assumptions(result: "QueryResult") -> str:
    """Return what the promises assume, such as how many rows of each person are used."""
    assumed = dict.fromkeys(text for promise in result.cost for text in promise.assumes)
    return "".join(f" {text[0].upper()}{text[1:]}." for text in assumed)


def _draw_interval(cell: "ResultCell", low: float, high: float) -> str:
    """Draw an interval on one line; all groups have the same scale."""
    width = (high - low) or 1.0

    def place(value: float) -> int:
        at = min(max(value, low), high)  # an interval may have no end
        return round((at - low) / width * (_WHISKER - 1))

    left, right = place(cell.lower), place(cell.upper)
    drawn: list[Any] = [" "] * _WHISKER
    for i in range(left, right + 1):
        drawn[i] = "─"
    drawn[left], drawn[right] = "├", "┤"
    if cell.value is not None:
        drawn[place(cell.value)] = "●"
    return "".join(drawn)
