"""``discreet query``: one query on a private table, answered with noise."""

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
        _show(console, result, delta)


def _show(console: Console, result: "QueryResult", delta: float) -> None:
    """Print an answer, its cost and what is left of the budget."""
    from discreet.formatting import printable

    unit = f" {printable(result.measure)}" if result.measure else ""
    console.line(printable(result.question))
    if result.group_by:
        _show_groups(console, result)
    else:
        (cell,) = result.cells
        value, interval = _format_cell(cell)
        console.line(f"  {value}{unit}" + (f" (95 %: {interval})" if interval else ""))
    for sentence in (*_describe_values(result), *_describe_cost(result, delta)):
        console.paragraph(sentence)
    if result.ledger is not None and result.receipts:
        flags = " ".join(f"--refine {receipt}" for receipt in result.receipts)
        console.line(f"For more precision, pay again and merge: {flags}")
    console.json(result.to_dict())


def _describe_values(result: "QueryResult") -> list[str]:
    """Return sentences about how the numbers came about and which of them not to use."""
    sentences = []
    if result.refined:
        draws = len(result.parts[0])
        sentences.append(f"Merged from {draws} answers, each weighted by the inverse of its variance.")
    sentences += filter(None, (result.group_words, result.unreadable_words))
    return sentences


def _show_groups(console: Console, result: "QueryResult") -> None:
    """Print one line for each group, with an interval drawn on a common scale."""
    from discreet.formatting import name

    shown = result.cells[:_MOST_GROUPS]
    low, high = min(cell.lower for cell in shown), max(cell.upper for cell in shown)
    rows = [
        (
            *map(name, cell.key),
            *_format_cell(cell),
            _whisker(cell, low, high) if result.is_readable(cell) else "too few rows for its noise",
        )
        for cell in shown
    ]
    unit = result.measure or result.question.partition("(")[0].partition(" ")[0]
    console.table("", (*map(name, result.group_by), unit, "at 95 %", ""), rows, left=len(result.group_by))
    if len(result.cells) > len(shown):
        console.line(f"{len(result.cells) - len(shown)} more groups are in --json.")


def _show_cost(console: Console, preview: "Preview", delta: float) -> None:
    """Print what a query would cost and how noisy its answer would be."""
    from discreet.formatting import printable
    from discreet.query.results import describe_cost, describe_takes, describe_used

    console.line(printable(preview.question))
    console.line(f"  {_describe_margin(preview)}")
    console.paragraph(f"Would cost: {describe_cost(preview.cost, delta)}.{_describe_assumptions(preview)}")
    if preview.takes is not None and preview.used is not None:
        console.paragraph(f"It would take {describe_takes(preview.takes)}; {describe_used(preview.used)}.")
    if preview.law_words is not None:
        console.paragraph(preview.law_words)
    console.line("Dry run: no cell was read, and nothing was charged or drawn.")
    console.json({"dry_run": True, **preview.to_dict()})


def _describe_margin(preview: "Preview") -> str:
    """Return how noisy an answer would be, and over how many rows that is."""
    from discreet.formatting import printable
    from discreet.query.results import rounded

    if preview.margin is None:
        return "the noise depends on the number of rows, which is not public"
    unit = f" {printable(preview.measure)}" if preview.measure else ""
    text = f"would be ± {rounded(preview.margin, preview.margin)}{unit}"
    if preview.n_rows is None:
        return f"{text}{' in each group' if preview.group_by else ''} at 95 %"
    if preview.group_by:
        size = f"{preview.n_rows:,.0f} rows, an equal part of all"
        return f"{text} at 95 % in a group of {size}; more over fewer rows"
    least = " over all rows; more over fewer rows" if " where " in preview.question else ""
    return f"{text} at 95 %{least}"


def _describe_cost(result: "QueryResult", delta: float) -> list[str]:
    """Return sentences about the cost, the ledger it was charged to and what is left."""
    from discreet.errors import PromiseError
    from discreet.formatting import count_noun, number
    from discreet.query.results import describe_cost, describe_takes, describe_used

    if not result.cost:
        return ["Cost: nothing. It follows from public facts."]
    rows = f"row{'s' * (len(result.rows) > 1)} {', '.join(map(str, result.rows))}"
    cost = describe_cost(result.cost, delta)
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
    if result.left is not None:
        currencies = ", ".join(f"{name} {amount:.6g}" for name, amount in result.left.items())
        more = "" if result.more is None else f"; enough for {result.more:,} more queries like this"
        again = (
            "" if result.takes is None else f"One more like it would take {describe_takes(result.takes)}. "
        )
        used = "" if result.used is None else f"{describe_used(result.used)}. "
        return [cost_text, f"{used}{again}Left: {currencies}{more}."]
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
        f"So far: {so_far}; {total}, if their prices did not depend on answers. The ledger has no limit, "
        "so nothing is guaranteed about later queries: `discreet ledger create` makes one with a limit.",
    ]


def _describe_assumptions(result: "QueryResult") -> str:
    """Return what the promises assume, such as how many rows of each person are used."""
    assumed = dict.fromkeys(text for promise in result.cost for text in promise.assumes)
    return "".join(f" {text[0].upper()}{text[1:]}." for text in assumed)


def _format_cell(cell: "ResultCell") -> tuple[str, str]:
    """Return a number and its interval as texts; the interval is empty for an exact number."""
    from discreet.query.results import rounded

    half = (cell.upper - cell.lower) / 2
    value = "no rows" if cell.value is None else rounded(cell.value, half)
    return value, f"{rounded(cell.lower, half)} to {rounded(cell.upper, half)}" if half else ""


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
