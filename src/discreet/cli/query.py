"""``discreet query``: one question about a private table, answered with noise."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import options
from discreet.cli.console import Console

if TYPE_CHECKING:
    from discreet.query.results import QueryResult, ResultCell

_MOST_GROUPS = 100
_WHISKER = 24  # characters
_DELTA = 1e-6  # where Gaussian noise is read as an epsilon if nobody named another delta


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
    schema: options.SchemaFile = None,
    epsilon: options.AnyEpsilon = None,
    delta: options.AnyDelta = None,
    mu: options.Mu = None,
    rho: options.Rho = None,
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
    ledger: options.LedgerPlace = None,
    no_ledger: options.NoLedger = False,
    new_ledger: options.NewLedger = False,
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
    from discreet.pipeline.query import ask, price

    declared = options.declared(table, schema, None)
    privacy = options.dp_promise_of(declared, epsilon=epsilon, delta=delta, mu=mu, rho=rho)
    with Console(as_json=json) as console:
        if dry_run:
            _show_price(
                console, price(table, question, schema=declared, privacy=privacy, sd=sd), delta or _DELTA
            )
            return
        place = options.ledger_place(ledger, no_ledger)
        reply = ask(
            table,
            question,
            schema=declared,
            ledger=place,
            new_ledger=new_ledger,
            privacy=privacy,
            sd=sd,
            refines=refine or (),
        )
        _show(console, reply, delta or _DELTA)


def _show(console: Console, reply: "QueryResult", delta: float) -> None:
    from discreet.formatting import printable

    unit = f" {printable(reply.measure)}" if reply.measure else ""
    console.line(printable(reply.question))
    if reply.group_by:
        _show_groups(console, reply)
    else:
        (cell,) = reply.cells
        console.line(f"  {_margin_of(cell).removesuffix(' ± 0')}{unit}")
    for sentence in (*_reading_words(reply), *_price_words(reply, delta)):
        console.paragraph(sentence)
    if reply.ledger is not None and reply.receipts:
        flags = " ".join(f"--refine {receipt}" for receipt in reply.receipts)
        console.line(f"For more precision, pay again and merge: {flags}")
    console.json(reply.to_dict())


def _reading_words(reply: "QueryResult") -> list[str]:
    """Say what the numbers are made of, and which of them to leave alone."""
    said = []
    if reply.refined:
        draws = len(reply.parts[0])
        said.append(f"Merged from {draws} answers, each weighted by the inverse of its variance.")
    if reply.group_words is not None:
        said.append(reply.group_words)
    return said


def _show_groups(console: Console, reply: "QueryResult") -> None:
    from discreet.formatting import name

    shown = reply.cells[:_MOST_GROUPS]
    ends = [(c.value - c.margin, c.value + c.margin) for c in shown if c.value is not None and c.margin]
    low, high = min((e[0] for e in ends), default=0.0), max((e[1] for e in ends), default=1.0)
    rows = []
    for cell in shown:
        value, _, margin = _margin_of(cell).partition(" ± ")
        rows.append((*map(name, cell.key), value, f"± {margin}" if margin else "", _whisker(cell, low, high)))
    unit = reply.measure or reply.question.partition("(")[0].partition(" ")[0]
    console.table("", (*map(name, reply.group_by), unit, "at 95 %", ""), rows, left=len(reply.group_by))
    if len(reply.cells) > len(shown):
        console.line(f"{len(reply.cells) - len(shown)} more groups are in --json.")


def _show_price(console: Console, reply: "QueryResult", delta: float) -> None:
    from discreet.formatting import printable
    from discreet.query.results import describe_cost, rounded

    unit = f" {printable(reply.measure)}" if reply.measure else ""
    console.line(printable(reply.question))
    mean = reply.question.startswith("mean")
    if reply.cells:
        (cell,) = reply.cells
        assert cell.margin is not None
        each = " in each group" if reply.group_by else ""
        least = " if it is over all rows; more with fewer" if mean and " where " in reply.question else ""
        console.line(f"  would be ± {rounded(cell.margin, cell.margin)}{unit}{each} at 95 %{least}")
    else:
        console.line("  how noisy it would be depends on how many rows it is over, which is not public")
    console.paragraph(f"Would cost: {describe_cost(reply.cost, delta)}.{_assumed_words(reply)}")
    console.line("A dry run: no cell was read, nothing was charged or drawn.")
    console.json({"dry_run": True, **reply.to_dict()})


def _price_words(reply: "QueryResult", delta: float) -> list[str]:
    """Say what it cost, where it was charged and what is left."""
    from discreet.errors import PromiseError
    from discreet.formatting import count_noun, number
    from discreet.query.results import describe_cost

    if not reply.cost:
        return ["Cost: nothing. It follows from what is public."]
    rows = f"row{'s' * (len(reply.rows) > 1)} {', '.join(map(str, reply.rows))}"
    cost = describe_cost(reply.cost, delta)
    if reply.cached:
        told = f"Cost: nothing. It was asked before ({rows} of the ledger): the same answer again."
    elif reply.ledger is None:
        told = f"Cost: {cost}. Nobody counts it (--no-ledger): asked often enough, noise averages out."
    else:
        told = f"Cost: {cost}; {rows} of the ledger."
    told += _assumed_words(reply)
    if reply.ledger is None:
        return [told]
    if reply.left is not None:
        currencies = ", ".join(f"{name} {amount:.6g}" for name, amount in reply.left.items())
        more = "" if reply.more is None else f"; enough for {reply.more:,} more like this"
        return [told, f"Left: {currencies}{more}."]
    assert reply.spent is not None
    so_far = count_noun(reply.spent.charges, "charge")
    try:
        total = f"epsilon {number(reply.spent.epsilon_at(delta), digits=4, rounding='up')} at delta {delta:g}"
    except PromiseError:
        total = "no epsilon at all"
    # Whoever chooses the next price after seeing an answer can come to more than the sum says.
    return [
        told,
        f"So far: {so_far}; {total}, if their prices did not depend on answers. The ledger has no limit, so "
        "nothing is guaranteed about the next ones: `discreet ledger create` makes one that has.",
    ]


def _assumed_words(reply: "QueryResult") -> str:
    """Say what the promise stands on, such as how many rows of each person are used."""
    assumed = dict.fromkeys(text for promise in reply.cost for text in promise.assumes)
    return "".join(f" {text[0].upper()}{text[1:]}." for text in assumed)


def _margin_of(cell: "ResultCell") -> str:
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
