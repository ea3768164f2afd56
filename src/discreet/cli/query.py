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
            help="[COUNT | SUM(expression) | MEAN(expression)] [WHERE condition] [BY column, ...]; "
            "an expression alone is summed, so that a condition counts. A number to group by says where "
            "its cells begin: BY age (30, 45, 60). Columns that are no plain words go in double quotes. Or "
            "the same as SQL: SELECT COUNT(*) | SUM(x) | AVG(x) FROM name [WHERE ...] [GROUP BY ...].",
            metavar="QUESTION",
        ),
    ],
    *,
    schema: options.SchemaFile = None,
    promise: PromiseFlags,
    sd: Annotated[
        float | None,
        typer.Option(help="Or else: standard deviation of the noise, in the unit of a count or a sum."),
    ] = None,
    refine: Annotated[
        list[str] | None,
        typer.Option(
            "--refine",
            help="Receipt of an earlier answer to the same question: pay for another one, and merge them. A "
            "mean by groups has two receipts: name both, in their order.",
            metavar="RECEIPT",
        ),
    ] = None,
    ledger: LedgerFlags,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what it would cost and how noisy it would be; read no cell."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Ask a private table: count where age > 40, mean(age) by sex; each answer is charged to the ledger.

    The same question about the same rows is free, and gets the same answer. All declared groups are
    answered, also those without a row. ± is what the noise may do, at 95 %; a population is another matter.
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
        console.line(f"  {_format_cell(cell).removesuffix(' ± 0')}{unit}")
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
    if result.group_words is not None:
        sentences.append(result.group_words)
    return sentences


def _show_groups(console: Console, result: "QueryResult") -> None:
    """Print one line for each group, with an interval drawn on a common scale."""
    from discreet.formatting import name

    shown = result.cells[:_MOST_GROUPS]
    ends = [(c.value - c.margin, c.value + c.margin) for c in shown if c.value is not None and c.margin]
    low, high = min((e[0] for e in ends), default=0.0), max((e[1] for e in ends), default=1.0)
    rows = []
    for cell in shown:
        value, _, margin = _format_cell(cell).partition(" ± ")
        rows.append((*map(name, cell.key), value, f"± {margin}" if margin else "", _whisker(cell, low, high)))
    unit = result.measure or result.question.partition("(")[0].partition(" ")[0]
    console.table("", (*map(name, result.group_by), unit, "at 95 %", ""), rows, left=len(result.group_by))
    if len(result.cells) > len(shown):
        console.line(f"{len(result.cells) - len(shown)} more groups are in --json.")


def _show_cost(console: Console, result: "Preview", delta: float) -> None:
    """Print what a query would cost and how noisy its answer would be."""
    from discreet.formatting import printable
    from discreet.query.results import describe_cost, describe_takes, describe_used, rounded

    unit = f" {printable(result.measure)}" if result.measure else ""
    console.line(printable(result.question))
    mean = result.question.startswith("mean")
    if result.cells:
        (cell,) = result.cells
        assert cell.margin is not None
        each = " in each group" if result.group_by else ""
        least = " if it is over all rows; more with fewer" if mean and " where " in result.question else ""
        console.line(f"  would be ± {rounded(cell.margin, cell.margin)}{unit}{each} at 95 %{least}")
    else:
        console.line("  how noisy it would be depends on how many rows it is over, which is not public")
    console.paragraph(f"Would cost: {describe_cost(result.cost, delta)}.{_describe_assumptions(result)}")
    if result.takes is not None and result.used is not None:
        console.paragraph(f"It would take {describe_takes(result.takes)}; {describe_used(result.used)}.")
    if result.law_words is not None:
        console.paragraph(result.law_words)
    console.line("A dry run: no cell was read, nothing was charged or drawn.")
    console.json({"dry_run": True, **result.to_dict()})


def _describe_cost(result: "QueryResult", delta: float) -> list[str]:
    """Return sentences about the cost, the ledger it was charged to and what is left."""
    from discreet.errors import PromiseError
    from discreet.formatting import count_noun, number
    from discreet.query.results import describe_cost, describe_takes, describe_used

    if not result.cost:
        return ["Cost: nothing. It follows from what is public."]
    rows = f"row{'s' * (len(result.rows) > 1)} {', '.join(map(str, result.rows))}"
    cost = describe_cost(result.cost, delta)
    if result.cached:
        cost_text = f"Cost: nothing. It was asked before ({rows} of the ledger): the same answer again."
    elif result.ledger is None:
        cost_text = f"Cost: {cost}. Nobody counts it (--no-ledger): asked often enough, noise averages out."
    else:
        cost_text = f"Cost: {cost}; {rows} of the ledger."
    cost_text += _describe_assumptions(result)
    if result.ledger is None:
        return [cost_text]
    if result.left is not None:
        currencies = ", ".join(f"{name} {amount:.6g}" for name, amount in result.left.items())
        more = "" if result.more is None else f"; enough for {result.more:,} more like this"
        taken = "" if result.takes is None or result.cached else f"It took {describe_takes(result.takes)}. "
        used = "" if result.used is None else f"{describe_used(result.used)}. "
        return [cost_text, f"{taken}{used}Left: {currencies}{more}."]
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
        f"So far: {so_far}; {total}, if their prices did not depend on answers. The ledger has no limit, so "
        "nothing is guaranteed about the next ones: `discreet ledger create` makes one that has.",
    ]


def _describe_assumptions(result: "QueryResult") -> str:
    """Return what the promises assume, such as how many rows of each person are used."""
    assumed = dict.fromkeys(text for promise in result.cost for text in promise.assumes)
    return "".join(f" {text[0].upper()}{text[1:]}." for text in assumed)


def _format_cell(cell: "ResultCell") -> str:
    from discreet.query.results import rounded

    if cell.value is None or cell.margin is None:
        return "too few rows for its noise"
    return f"{rounded(cell.value, cell.margin)} ± {rounded(cell.margin, cell.margin)}"


def _whisker(cell: "ResultCell", low: float, high: float) -> str:
    """Draw an interval on one line; all groups have the same scale."""
    if cell.value is None or cell.margin is None:
        return ""
    width = (high - low) or 1.0

    def place(value: float) -> int:
        return min(_WHISKER - 1, max(0, round((value - low) / width * (_WHISKER - 1))))

    left, middle, right = (place(cell.value + side * cell.margin) for side in (-1, 0, 1))
    drawn: list[Any] = [" "] * _WHISKER
    for i in range(left, right + 1):
        drawn[i] = "─"
    drawn[left], drawn[right] = "├", "┤"
    drawn[middle] = "●"
    return "".join(drawn)
