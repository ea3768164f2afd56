"""``discreet release``: the main job."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import options
from discreet.cli.console import HEADINGS, Console, cells_of, print_promises
from discreet.cli.options import PASSPHRASE, Asked, Typed, about_a_method, passphrase_for

if TYPE_CHECKING:
    from discreet.pipeline.result import Published

SIGN_PASSWORD = "DISCREET_SIGN_PASSWORD"  # noqa: S105 - the name of an environment variable
Command = options.MethodCommand
_SECRET = re.compile(r"(://)[^/?#]*@|([?&])[^=&#]*pass[^=&#]*=[^&#]*", re.IGNORECASE)


@about_a_method
def release(
    table: options.Table,
    typed: Typed,
    out: Annotated[Path, typer.Option(help="Folder for public/ and internal/.")] = Path("release"),
    attack_records: options.AttackRecords = 20_000,
    ledger: options.LedgerPlace = None,
    no_ledger: options.NoLedger = False,
    new_ledger: options.NewLedger = False,
    keep_key: Annotated[
        Path | None,
        typer.Option(
            help="Keep the key for an auditor, sealed under a passphrase that is asked for or taken from "
            f"{PASSPHRASE}. By default it is forgotten."
        ),
    ] = None,
    recipient: Annotated[
        Path | None, typer.Option(help="Seal it for this X25519 public key (PEM) instead.")
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(help=f"Sign with this Ed25519 private key (PEM); password in {SIGN_PASSWORD}."),
    ] = None,
    csv: Annotated[
        bool | None, typer.Option("--csv/--no-csv", help="Write data.csv.gz. [default: below a million rows]")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the release at --out.")] = False,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Say that the noise was chosen by looking at private rows.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and plan; read no cell, charge and write nothing.")
    ] = False,
    curator: Annotated[str | None, typer.Option(help="Who publishes; in the statement.")] = None,
    purpose: Annotated[str | None, typer.Option(help="What for; in the statement.")] = None,
    contact: Annotated[str | None, typer.Option(help="Whom to ask; in the statement.")] = None,
    license: Annotated[str | None, typer.Option(help="Under which terms; in the statement.")] = None,
    supersedes: Annotated[str | None, typer.Option(help="The release that this one replaces.")] = None,
    json: options.Json = False,
) -> None:
    """Release a table with safe noise, attack it, and say what that promises."""
    from discreet.pipeline.release import publish

    asked = typed.read(table)
    place = options.ledger_place(ledger, no_ledger)
    with Console(as_json=json) as console:
        if dry_run:
            rehearse(console, table, asked, attack_records)
            return
        done = publish(
            table,
            out=out,
            ledger=place,
            new_ledger=new_ledger,
            about={
                "curator": curator,
                "purpose": purpose,
                "contact": contact,
                "license": license,
                "supersedes": supersedes,
            },
            keep_key=keep_key,
            passphrase=None if keep_key is None or recipient is not None else passphrase_for(keep_key),
            recipient=recipient,
            sign_with=sign,
            sign_password=os.environ.get(SIGN_PASSWORD),
            csv=csv,
            replace=replace,
            tuned=tuned,
            command=command_line(),
            attack_records=attack_records,
            say=console.stage,
            progress=console.progress,
            **asked.request,
        )
        show(console, done)


def rehearse(console: Console, table: str, asked: Asked, attack_records: int) -> None:
    """Do everything that needs no cell: names, plan, attacks on made-up records."""
    from discreet.pipeline.plan import dry_run as run

    done = run(
        table,
        attack_records=attack_records,
        say=console.stage,
        progress=console.progress,
        **asked.request,
    )
    print_rows(console, done.rows)
    print_promises(console, done.notes, done.sentences, done.open)
    console.line("A dry run: no cell was read, nothing was charged, drawn or written.")
    console.json(
        {
            "dry_run": True,
            "columns": [row.to_dict() for row in done.rows],
            "notes": list(done.notes),
            "promises": [promise.to_dict() for promise in done.plan.promises],
        }
    )


def show(console: Console, done: "Published") -> None:
    """Print what was promised and where it is."""
    statement = done.statement
    print_rows(console, done.rows)
    print_promises(console, done.notes, done.sentences, statement.not_protected)
    console.line()
    console.paragraph(f"So far: {statement.composition.total}")
    console.line(f"Publish only {done.public}. Anyone can re-check it: discreet verify {done.public}")
    console.line(f"For your eyes alone: {done.internal / 'report.html'}")
    console.json(
        {
            "public": str(done.public),
            "internal": str(done.internal),
            "release": statement.what.release,
            "columns": [row.to_dict() for row in done.rows],
            "notes": list(done.notes),
            "promises": statement.numbers.promises,
            "epsilon": statement.numbers.epsilon,
            "delta": statement.numbers.delta,
            "composition": statement.composition.total,
            "receipt": statement.composition.receipt,
            "stages": [stage.model_dump() for stage in done.findings.stages],
        }
    )


def print_rows(console: Console, rows: Any) -> None:
    """Print how well anybody can guess each column, where there is a cell of somebody to guess."""
    if not rows:
        return
    console.line()
    console.table(
        "How well can anybody guess a cell? (attacks on made-up records; a floor breaks above the interval)",
        HEADINGS,
        (cells_of(row) for row in rows),
        right=2,
    )


def command_line() -> str:
    """Return how to run it again, without a password that may be in the address of a table or a ledger."""
    given = [_SECRET.sub(r"\1\2", word) if "://" in word else word for word in sys.argv[1:]]
    return shlex.join(["discreet", *given])
