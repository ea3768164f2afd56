"""``discreet ledger``: show, check, export, create, back up and restore a ledger."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from discreet.cli.console import Console, write_out
from discreet.cli.options import Json, open_existing_ledger

if TYPE_CHECKING:
    from discreet.ledger import Rule

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help=("Show and manage what was charged for a data set.")
)
Place = Annotated[
    str, typer.Argument(help="A ledger: a file, or postgresql://host/database#NAME.", metavar="LEDGER")
]


@app.command()
def show(ledger: Place, json: Json = False) -> None:
    """Print what was charged, what it adds up to and what is left."""
    console = Console(as_json=json)
    with open_existing_ledger(ledger) as opened:
        entries, (account,) = opened.entries(), opened.accounts(None)
        guarantee = opened.guarantee()
    console.json(
        {
            "ledger": ledger,
            "identity": opened.identity,
            "guarantee": guarantee.to_dict(),
            "remaining": account.left,
            "used": account.used,
            "spent": account.spent.to_dict(),
            "charges": [entry.receipt.to_dict() for entry in entries],
        }
    )
    from discreet.formatting import count_noun, date, name
    from discreet.privacy.promises import describe_promise
    from discreet.query.frames import question_words

    console.table(
        "",
        ("row", "when", "what", "promised"),
        (
            (
                str(entry.receipt.seq),
                date(entry.receipt.when),
                name(question_words(entry.asked, entry.receipt.what)),
                "; ".join(describe_promise(promise.to_dict()) for promise in entry.receipt.promises),
            )
            for entry in entries
        ),
        left=3,
    )
    console.line(
        f"{count_noun(len(entries), 'charge')}. Guaranteed for everything in this ledger, now and later: "
        f"{guarantee}"
    )
    if account.used is not None:
        from discreet.query.costs import describe_left, describe_used

        console.line(f"{describe_used(account.used)}. {describe_left(account.used)}.")


@app.command()
def check(
    ledger: Place,
    receipt: Annotated[
        Path | None, typer.Option(help="A statement.json whose charge must still be in the ledger.")
    ] = None,
    json: Json = False,
) -> None:
    """Verify a ledger, its totals and its caps. With --receipt, also that it contains a release."""
    from discreet.formatting import count_noun
    from discreet.privacy import Receipt

    console = Console(as_json=json)
    with open_existing_ledger(ledger) as opened:
        opened.check()
        for content in () if receipt is None else _read_receipts(receipt):
            opened.check(Receipt.from_dict(content))
        head = opened.head
    console.json({"ledger": ledger, "intact": True, "rows": head[0], "head": head[1]})
    console.line(f"{ledger}: {count_noun(head[0], 'row')}, intact. Head: {head[0]}:{head[1]}")
    console.line("Keep the head elsewhere: it also reveals a ledger that was rolled back.")


@app.command()
def export(
    ledger: Place,
    out: Annotated[Path | None, typer.Option(help="File to write. [default: standard output]")] = None,
) -> None:
    """Write every charge as one line of JSON."""
    import json

    from discreet.errors import SourceError

    with open_existing_ledger(ledger) as opened:
        lines = "".join(json.dumps(receipt.to_dict(), allow_nan=False) + "\n" for receipt in opened.history())
    if out is None:
        write_out(lines)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(lines)
    except OSError as problem:
        raise SourceError(
            f"{str(out)!r} cannot be written ({problem.strerror}). Choose another --out."
        ) from None


@app.command()
def create(
    ledger: Place,
    epsilon: Annotated[float | None, typer.Option(help="Limit on all charges together.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of the limit; goes with --epsilon.")] = None,
    rho: Annotated[
        float | None,
        typer.Option(help=("Instead of --epsilon: a limit in zero-concentrated differential privacy.")),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(
            help=("With --epsilon and --delta: maximum number of charges; log-odds are bounded by epsilon.")
        ),
    ] = None,
    rule: Annotated[
        str,
        typer.Option(help="With --epsilon and --delta: noise that is admitted, mixed, gaussian or pure."),
    ] = "mixed",
    order: Annotated[
        float | None,
        typer.Option(help="Order of the mixed rule, above 1. [default: the best for Gaussian noise]"),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="Unit that the schema of the table protects, such as patient.")
    ] = "person",
    neighbors: Annotated[
        str, typer.Option(help="Neighbors that the schema declares, replace-one or add-remove.")
    ] = "replace-one",
) -> None:
    """Create a ledger with a limit. It cannot be exceeded or changed later."""
    from discreet.errors import ParameterError
    from discreet.ledger import Ledger
    from discreet.privacy import ZCDP, ApproxDP, PosteriorOdds, Promise, PureDP

    alone = (delta is not None and epsilon is None) or (queries is not None and delta is None)
    if (epsilon is None) == (rho is None) or alone:
        raise ParameterError(
            "discreet ledger create needs --epsilon, with or without --delta (and then --queries), or else "
            "--rho: a ledger without a limit is made by the first release."
        )
    limit: Promise
    about: dict[str, Any] = {"unit": unit, "neighbors": neighbors}
    if rho is not None:
        limit = ZCDP(rho=rho, **about)
    elif epsilon is not None and delta is not None and queries is not None:
        limit = PosteriorOdds(epsilon=epsilon, delta=delta, queries=queries, **about)
    elif epsilon is not None and delta is not None:
        limit = ApproxDP(epsilon=epsilon, delta=delta, **about)
    elif epsilon is not None:
        limit = PureDP(epsilon=epsilon, **about)
    if "://" not in ledger and Path(ledger).exists():
        raise ParameterError(
            f"{ledger!r} exists already, and the limit of a ledger cannot be changed. Create one under a new "
            "name, and charge the table to it with --ledger NEW --new-ledger."
        )
    with Ledger.open(ledger, limit=limit, rule=cast("Rule", rule), order=order) as opened:
        write_out(f"{ledger}: {opened.guarantee()}. Use it for releases, models and queries with --ledger.\n")


@app.command()
def backup(
    ledger: Place,
    out: Annotated[Path, typer.Option(help="A file that does not exist yet.")],
    json: Json = False,
) -> None:
    """Write a checked copy that can replace the ledger. Others may charge it meanwhile."""
    from discreet.formatting import count_noun

    console = Console(as_json=json)
    with open_existing_ledger(ledger) as opened:
        rows, digest = opened.backup(out)
    console.json({"ledger": opened.shown, "backup": str(out), "rows": rows, "head": digest})
    count = count_noun(rows, "row")
    console.line(f"{out}: {count}, intact; its key is in {out.name}.version-key. Head: {rows}:{digest}")
    console.line("Keep the head elsewhere, and never charge a backup: it would be a second budget.")


@app.command()
def restore(
    backup: Annotated[str, typer.Argument(help="What `discreet ledger backup` wrote.")],
    to: Annotated[
        str, typer.Option(help="The ledger: a file, or postgresql://host/database#NAME.", metavar="LEDGER")
    ],
    head: Annotated[
        str | None,
        typer.Option(help="A head of the lost ledger that was kept elsewhere.", metavar="ROW:HASH"),
    ] = None,
    json: Json = False,
) -> None:
    """Replace a ledger by its backup, unless charges would be lost."""
    from discreet.formatting import count_noun
    from discreet.ledger import Ledger

    console = Console(as_json=json)
    known = None if head is None else _parse_head(head)
    with Ledger.restore(backup, to, head=known) as opened:
        rows, digest = opened.head
    console.json({"ledger": opened.shown, "rows": rows, "head": digest})
    console.line(f"{opened.shown}: {count_noun(rows, 'row')}, intact. Head: {rows}:{digest}")
    if head is None:
        console.line(
            "Not compared with a head kept elsewhere: if the ledger was lost, --head reveals missing rows."
        )


def _parse_head(text: str) -> tuple[int, str]:
    """Return row and hash of a head that was written as ROW:HASH."""
    from discreet.errors import ParameterError

    row, colon, digest = text.partition(":")
    if not (colon and row.isascii() and row.isdigit() and len(digest) == 64):
        raise ParameterError(
            f"--head must be the row and the hash that `discreet ledger backup` prints, got {text!r}. "
            "Write them as ROW:HASH."
        )
    return int(row), digest


def _read_receipts(path: Path) -> list[dict[str, Any]]:
    """Return the receipts of a statement of a release or a model, or of a file with one receipt."""
    import json

    from discreet.errors import ParameterError

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if "passes" in content:
            return [part["receipt"] for part in content["passes"] if part["receipt"] is not None]
        return [content["composition"]["receipt"] if "composition" in content else content]
    except (OSError, ValueError, KeyError, TypeError):
        raise ParameterError(f"--receipt must be a statement.json, and {str(path)!r} is not one.") from None
