"""``discreet release``: publish a table with noise, a statement and attacks on it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from discreet.cli import options
from discreet.cli.console import Console
from discreet.cli.method_flags import MethodCommand, MethodFlags, ReleaseRequest
from discreet.cli.options import (
    PASSPHRASE,
    AboutFlags,
    LedgerFlags,
    Sign,
    SparkMaster,
    command_line,
    expand_flags,
    make_signing,
    open_service,
    passphrase_for,
)
from discreet.cli.summary import EXIT_RISK, print_floors, print_promise, print_risk, print_rows

if TYPE_CHECKING:
    from discreet.pipeline.options import KeyEscrow, Output, RunOptions, SparkOptions
    from discreet.pipeline.result import Published

Command = MethodCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFileFlags:
    """Flags about the files of a release: its key, its signature, its place, and who writes them."""

    keep_key: Annotated[
        Path | None,
        typer.Option(
            help="Keep the key for an auditor, sealed under a passphrase that is asked for or taken from "
            f"{PASSPHRASE}. By default it is discarded."
        ),
    ] = None
    recipient: Annotated[
        Path | None, typer.Option(help="Seal it for this X25519 public key (PEM) instead.")
    ] = None
    sign: Sign = None
    replace: Annotated[bool, typer.Option("--replace", help="Replace the release at --out.")] = False
    tuned: Annotated[
        bool, typer.Option("--tuned", help="State that the noise was chosen by looking at private rows.")
    ] = False
    accept_risk: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Release the table though an attack on made-up people is above its threshold, for this "
            "reason, which the statement holds.",
        ),
    ] = None
    public_sample: Annotated[
        str | None,
        typer.Option(
            help="A public table of the same columns that attackers may know: the risk is measured on people "
            "like its rows too.",
        ),
    ] = None

    engine: Annotated[
        Literal["process", "spark"],
        typer.Option(help="Draw in this process, or on the workers of Spark, for tables beyond one machine."),
    ] = "process"
    spark_master: SparkMaster = None
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Finish a release on Spark that was interrupted after its charge, for nothing."
        ),
    ] = False

    def escrow(self) -> "KeyEscrow | None":
        """Return where the key is kept, after asking for its passphrase; None if it is forgotten."""
        from discreet.errors import ParameterError
        from discreet.pipeline.options import KeyEscrow

        if self.keep_key is None:
            if self.recipient is not None:
                raise ParameterError(
                    "--recipient needs --keep-key, which was not given. Give --keep-key FILE, or leave "
                    "out --recipient."
                )
            return None
        passphrase = passphrase_for(self.keep_key, kept=True) if self.recipient is None else None
        return KeyEscrow(self.keep_key, passphrase, self.recipient)

    def spark(self) -> "SparkOptions | None":
        """Return where the workers are; None for a release in one process."""
        from discreet.errors import ParameterError
        from discreet.pipeline.options import SparkOptions

        if self.engine == "spark":
            return SparkOptions(master=self.spark_master, resume=self.resume)
        if self.resume or self.spark_master is not None:
            flag = "--resume" if self.resume else "--spark-master"
            raise ParameterError(
                f"{flag} is for --engine spark, which was not given. Add it, or leave it out."
            )
        return None

    def output(self, about: AboutFlags) -> "Output":
        """Return what is written beside the release."""
        from discreet.pipeline.options import Output

        return Output(
            replace=self.replace,
            about=about.to_dict(),
            escrow=self.escrow(),
            signing=make_signing(self.sign),
        )

    def run(self, attack_records: int, console: Console, *, new_ledger: bool = False) -> "RunOptions":
        """Return how the release is run, and shown as it goes on."""
        from discreet.pipeline.options import RunOptions

        return RunOptions(
            tuned=self.tuned,
            attack_records=attack_records,
            command=command_line(),
            accept_risk=self.accept_risk,
            public_sample=self.public_sample,
            new_ledger=new_ledger,
            spark=self.spark(),
            on_stage=console.stage,
            on_progress=console.progress,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpFlags:
    """Flags of a synthetic table: how many rows are made up, and from which answers."""

    rows: Annotated[
        int | None, typer.Option(help="Number of rows to make up. [default: as many as the table has]", min=1)
    ] = None
    from_tables: Annotated[
        Path | None,
        typer.Option(
            help="Instead of TABLE: tables.json of a synthetic release, from which --rows rows are made, for "
            "nothing."
        ),
    ] = None
    draw: Annotated[
        int, typer.Option(help="With --from-tables, which of many tables to draw; 0 is the release.", min=0)
    ] = 0


@expand_flags
def release(
    table: Annotated[
        str | None,
        typer.Argument(
            help=f"{options.TABLE} With --epsilon also the address of a service, https://..., with a "
            "token in DISCREET_TOKEN.",
            metavar="TABLE",
        ),
    ] = None,
    *,
    method: MethodFlags,
    out: Annotated[Path, typer.Option(help="Folder for public/ and internal/.")] = Path("release"),
    made_up: MadeUpFlags,
    attack_records: options.AttackRecords = 20_000,
    ledger: LedgerFlags,
    files: ReleaseFileFlags,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help=("Check and plan only; read no cell, charge nothing and write nothing.")
        ),
    ] = False,
    about: AboutFlags,
    json: options.Json = False,
) -> None:
    """Release a table with noise. It is attacked, and a statement says what is promised."""
    from discreet.errors import RiskTooHigh
    from discreet.pipeline.options import Output
    from discreet.pipeline.release import publish

    if made_up.from_tables is not None:
        print_redrawn(made_up, table, out, Output(replace=files.replace), as_json=json)
        return
    if table is None:
        raise typer.BadParameter("give a table, or --from-tables", param_hint="TABLE")
    with open_service(table) as database, Console(as_json=json) as console:
        request = method.read(table, schema=None if database is None else database.schema)
        if made_up.rows is not None:
            request.options["n_records"] = made_up.rows
        if dry_run and database is not None:
            raise typer.BadParameter("a service is planned with `discreet plan`", param_hint="--dry-run")
        if dry_run:
            print_dry_run(console, table, request, files.run(attack_records, console))
            return
        arguments = request.to_dict()
        if database is not None:
            arguments |= {"schema": method.schema, "target": method.target}
        try:
            result = publish(
                table if database is None else database,
                out=out,
                ledger=ledger.place,
                output=files.output(about),
                run=files.run(attack_records, console, new_ledger=ledger.new_ledger),
                **arguments,
            )
        except RiskTooHigh as stopped:
            print_risk(console, stopped.risk)
            raise
        print_release(console, result)


def print_redrawn(
    made_up: MadeUpFlags, table: str | None, out: Path, output: "Output", *, as_json: bool
) -> None:
    """Make another table from published answers, and print where it is; refuses a table beside them."""
    from discreet.errors import ParameterError
    from discreet.pipeline.published_folder import redraw_release

    assert made_up.from_tables is not None
    if table is not None:
        raise ParameterError(
            f"--from-tables makes rows from published answers and reads no table, and {table!r} was named "
            "too. Leave one of them out."
        )
    with Console(as_json=as_json) as console:
        public = redraw_release(
            made_up.from_tables, out=out, n_records=made_up.rows, draw=made_up.draw, output=output
        )
        console.line(f"{public}: made from answers that were paid for; nothing was charged.")
        console.line(f"Anyone can re-check it: discreet verify {public}")
        console.json({"public": str(public), "charged": []})


def print_dry_run(console: Console, table: str, request: ReleaseRequest, options: "RunOptions") -> None:
    """Print what a release would do: names, plan and attacks on made-up records; no cell is read.

    The exit code is that of the release, if its risk would stop it.
    """
    from discreet.pipeline.plan import dry_run as run

    result = run(table, run=options, **request.to_dict())
    print_risk(console, result.risk)
    for advice in result.risk.advice:
        console.paragraph(advice, bullet=" - ")
    print_rows(console, result.rows)
    print_promise(console, result.notes, " ".join(result.sentences[:1] + result.sentences[-1:]))
    console.line("Dry run: no cell was read, and nothing was charged, drawn or written.")
    console.json(
        {
            "dry_run": True,
            "columns": [row.to_dict() for row in result.rows],
            "notes": list(result.notes),
            "promises": [promise.to_dict() for promise in result.plan.promises],
            "risk": result.risk.to_dict(),
        }
    )
    if result.risk.stops and options.accept_risk is None:
        console.line("The release would stop here: its risk is above a threshold.")
        raise typer.Exit(EXIT_RISK)


def print_release(console: Console, result: "Published") -> None:
    """Print the promises of a release and where its folders are."""
    from discreet.report.statement.sentences import quote_promise

    statement = result.statement
    print_risk(console, result.risk)
    print_floors(console, statement)
    print_promise(console, result.notes, quote_promise(statement))
    console.paragraph(f"So far: {statement.composition.total}")
    console.paragraph(f"What is not protected: {result.public / 'statement.html'}")
    console.line(f"Publish only {result.public}; to check it: discreet verify {result.public}")
    console.line(f"Read, and do not publish: {result.internal / 'report.html'}")
    console.json(
        {
            "public": str(result.public),
            "internal": str(result.internal),
            "release": statement.what.release,
            "columns": [row.to_dict() for row in result.rows],
            "notes": list(result.notes),
            "promises": statement.numbers.promises,
            "epsilon": statement.numbers.epsilon,
            "delta": statement.numbers.delta,
            "composition": statement.composition.total,
            "receipt": statement.composition.receipt,
            "risk": result.risk.to_dict(),
            "stages": [stage.model_dump() for stage in result.findings.stages],
        }
    )
