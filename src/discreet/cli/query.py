"""``discreet query``: one query on a private table, answered with noise."""

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import options
from discreet.cli.console import Console
from discreet.cli.options import LedgerFlags, PromiseFlags, expand_flags

if TYPE_CHECKING:
    from discreet.query.results import Preview, QueryResult, ResultCell

_MOST_GROUPS = 100
_WHISKER = 24  # characters
_DELTA = 1e-6  # at which Gaussian noise is stated as an epsilon, unless --delta names another


@expand_flags
def query(
    table: options.Table,
    question: Annotated[
        str,
        typer.Argument(
            help="[COUNT | SUM(expression) | MEAN(expression)] [WHERE condition] [BY column, ...]; an "
            "expression alone is summed, so a condition alone is counted. To group by a number, list "
            "where its intervals begin: BY age (30, 45, 60). Put column names that are not plain "
            "words in double quotes. Or write SQL: SELECT COUNT(*) | SUM(x) | AVG(x) FROM name "
            "[WHERE ...] [GROUP BY ...].",
            metavar="QUESTION",
        ),
    ],
    *,
    schema: options.SchemaFile = None,
    promise: PromiseFlags,
    sd: Annotated[
        float | None,
        typer.Option(help="Instead: standard deviation of the noise, in the unit of the count or sum."),
    ] = None,
    refine: Annotated[
        list[str] | None,
        typer.Option(
            "--refine",
            help="Receipt of an earlier answer to the same query: pay for another answer and merge the "
            "two. A mean by groups has two receipts: give both, in order.",
            metavar="RECEIPT",
        ),
    ] = None,
    ledger: LedgerFlags,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the cost and the noise of the answer; read no cell."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Query a private table: count where age > 40, mean(age) by sex; each answer is charged to the ledger.

    Repeating a query on the same rows is free and returns the same answer. All declared groups are answered,
    including empty ones. Intervals are at 95 % and for the noise alone, not for sampling from a population.
    """
    from discreet.errors import BudgetExceeded
    from discreet.pipeline.query import preview_table_query, query_table

    declared = options.load_declaration(table, schema, None)
    privacy = promise.promise(declared)
    delta = promise.delta or _DELTA
    with Console(as_json=json) as console:
        if dry_run:
            preview = preview_table_query(
                table, question, schema=declared, privacy=privacy, sd=sd, ledger=ledger.place
            )
            _show_cost(console, preview, delta)
            return
        try:
            result = query_table(
                table,
                question,
                schema=declared,
                ledger=ledger.place,
                new_ledger=ledger.new_ledger,
                privacy=privacy,
                sd=sd,
                refines=refine or (),
            )
        except BudgetExceeded as problem:
            options.suggest_flag(problem, privacy, sd)
            raise
        _show(console, result, delta)


def _show(console: Console, result: "QueryResult", delta: float) -> None:
    """Print an answer, its cost and what is left of the budget."""
    from discreet.formatting import printable

    console.line(printable(result.question))
    if result.group_by:
        _show_groups(console, result)
    else:
        for line in result.value_lines():
            console.line(f"  {line}")
    for sentence in (*result.value_words, *_describe_cost(result, delta)):
        console.paragraph(sentence)
    if result.ledger is not None and result.receipts:
        flags = " ".join(f"--refine {receipt}" for receipt in result.receipts)
        console.line(f"For more precision, pay again and merge: {flags}")
    console.json(result.to_dict())


def _show_groups(console: Console, result: "QueryResult") -> None:
    """Print one line for each group, with an interval drawn on a common scale."""
    from discreet.formatting import name

    texts, width = result.cell_texts(), len(result.columns)
    for i, column in enumerate(result.columns):
        shown = result.cells[i::width][:_MOST_GROUPS]
        finite = [end for cell in shown for end in cell.interval if math.isfinite(end)]
        low, high = min(finite, default=0.0), max(finite, default=0.0)
        rows = [
            (
                *map(name, cell.key),
                *text,
                _whisker(cell, low, high) if result.is_readable(cell) else "too few rows for its noise",
            )
            for cell, text in zip(shown, texts[i::width], strict=False)
        ]
        unit = column.unit or column.name.partition("(")[0]
        title = column.name if width > 1 else ""
        headings = (*map(name, result.group_by), unit, "at 95 %", "")
        console.table(title, headings, rows, left=len(result.group_by))
        if len(result.cells) > width * len(shown):
            console.line(f"{len(result.cells) // width - len(shown)} more groups are in --json.")


def _show_cost(console: Console, preview: "Preview", delta: float) -> None:
    """Print what a query would cost and how noisy its answer would be."""
    from discreet.formatting import printable
    from discreet.query.results import describe_cost, describe_takes, describe_used, takes_all

    console.line(printable(preview.question))
    console.line(f"  {preview.margin_words}")
    if not preview.cost:
        console.paragraph("Free: it follows from public facts.")
    elif preview.is_free:
        console.paragraph("Free: it was paid for before, unless the rows have changed since.")
    else:
        cost = f"{describe_cost(preview.cost, delta)}{_describe_shares(preview)}"
        console.paragraph(f"Would cost: {cost}.{_describe_assumptions(preview)}")
        if preview.remaining is not None and takes_all(preview.remaining):
            console.paragraph("It would take all of the budget: nothing could be asked after it.")
        elif preview.takes is not None and preview.used is not None:
            more = " That is more than is left." if preview.more == 0 else ""
            console.paragraph(
                f"It would take {describe_takes(preview.takes)}.{more} {describe_used(preview.used)}."
            )
    if preview.law_words is not None:
        console.paragraph(preview.law_words)
    console.line("Dry run: no cell was read, and nothing was charged or drawn.")
    console.json({"dry_run": True, **preview.to_dict()})


def _describe_cost(result: "QueryResult", delta: float) -> list[str]:
    """Return sentences about the cost, the ledger it was charged to and what is left."""
    from discreet.errors import PromiseError
    from discreet.formatting import count_noun, number
    from discreet.query.results import describe_cost, describe_left, describe_takes, describe_used

    if not result.cost:
        return ["Cost: nothing. It follows from public facts."]
    rows = f"row{'s' * (len(result.rows) > 1)} {', '.join(map(str, result.rows))}"
    cost = f"{describe_cost(result.cost, delta)}{_describe_shares(result)}"
    if result.cached:
        cost_text = f"Cost: nothing. The answer was paid for before ({rows} of the ledger)."
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
        noun = "query" if result.more == 1 else "queries"
        more = "" if result.more is None else f", enough for {result.more:,} more {noun} like this"
        taken = "" if result.takes is None else f"It took {describe_takes(result.takes)}. "
        return [cost_text, f"{taken}{describe_used(result.used)}. {describe_left(result.used)}{more}."]
    assert result.spent is not None
    so_far = count_noun(result.spent.charges, "charge")
    try:
        total = (
            f"epsilon {number(result.spent.epsilon_at(delta), digits=4, rounding='up')} at delta {delta:g}"
        )
    except PromiseError:
        total = "no epsilon at all"
    # Costs that are chosen after seeing answers can come to more than the sum says.
    return [
        cost_text,
        f"So far: {so_far}; {total}, provided no query was chosen after seeing an answer. The ledger has "
        "no limit, so nothing is guaranteed about later queries: `discreet ledger create` makes one with a "
        "limit.",
    ]


def _describe_shares(result: "QueryResult") -> str:
    """Return among how many noisy sums the promise is shared; empty for one."""
    return f", in equal shares for {result.sums} sums" if result.sums > 1 else ""


def _describe_assumptions(result: "QueryResult") -> str:
    """Return what the promises assume, such as how many rows of each person are used."""
    assumed = dict.fromkeys(text for promise in result.cost for text in promise.assumes)
    return "".join(f" {text[0].upper()}{text[1:]}." for text in assumed)


def _whisker(cell: "ResultCell", low: float, high: float) -> str:
    """Draw an interval on one line; all groups have the same scale."""
    width = (high - low) or 1.0

    def place(value: float) -> int:
        return min(_WHISKER - 1, max(0, round((value - low) / width * (_WHISKER - 1))))

    left, right = place(cell.lower), place(cell.upper)
    drawn: list[Any] = [" "] * _WHISKER
    for i in range(left, right + 1):
        drawn[i] = "─"
    drawn[left], drawn[right] = "├", "┤"
    if cell.value is not None:
        drawn[place(cell.value)] = "●"
    return "".join(drawn)
