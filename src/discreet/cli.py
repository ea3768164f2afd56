"""The command line: one command per verb. Heavy rooms are imported inside the commands that need them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from discreet.release import Release

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Let others learn from a table without giving its people away.",
)
EXIT_OTHER = 1
EXIT_SCHEMA = 2
EXIT_BUDGET = 4


@app.callback()
def _root() -> None:
    """Let others learn from a table without giving its people away."""


@app.command()
def demo(
    table: Annotated[str, typer.Argument(help="A bundled table: census or clinic.")] = "census",
    out: Annotated[Path, typer.Option(help="Folder for the released table and the ledger.")] = Path(
        "demo-release"
    ),
) -> None:
    """Release a bundled table with safe noise and print what that promises."""
    from rich.console import Console

    from discreet import datasets
    from discreet.privacy import ErrorFloor, Ledger
    from discreet.release import GaussianRelease
    from discreet.tables import open_table

    console = Console(highlight=False)
    dataset = datasets.load(table)
    schema = dataset.schema
    wanted = {"census": ErrorFloor(age=9), "clinic": ErrorFloor(radius_mean=4)}[dataset.name]
    with _stage(console, "read") as say:
        with open_table(dataset.path) as source:
            n_rows = source.count()
        hidden = len(schema.columns) - len(schema.released)
        say(f"{dataset.title}: {n_rows:,} rows, {len(schema.released)} columns leave, {hidden} do not")
    out.mkdir(parents=True, exist_ok=True)
    with Ledger.open(out / "ledger.sqlite") as ledger:
        method = GaussianRelease(privacy=wanted, schema=schema, ledger=ledger)
        with _stage(console, "plan") as say:
            plan = method.plan(schema, n_rows)
            numbers = len(plan.numbers.columns) if plan.numbers else 0
            say(f"{numbers} numbers: Gaussian; {len(plan.responses)} lists: randomized response")
        with _stage(console, "release") as say:
            released = method.release(dataset.path)
            say(f"charged as row {released.receipt.seq} of {out / 'ledger.sqlite'}, then drawn")
        with _stage(console, "write") as say:
            released.write(out / f"{dataset.name}.parquet", replace=True)
            ledger.check(released.receipt)
            say(f"{out / f'{dataset.name}.parquet'}; the ledger's record is intact")
    _print_columns(console, released)
    _print_promises(console, released)


@contextmanager
def _stage(console: Console, name: str) -> Iterator[Callable[[str], None]]:
    """Print one line for a stage when it is done, with its time."""
    said: list[str] = []
    start = time.perf_counter()
    yield said.append
    took = time.perf_counter() - start
    width = max(20, min(console.width, 110) - 20)
    console.print(f" {name:9s} {said[0]:<{width}s} {took:6.2f} s", soft_wrap=True, markup=False)


def _print_columns(console: Console, released: Release) -> None:
    from rich.table import Table

    from discreet.release.law import GaussianLaw, ResponseLaw
    from discreet.release.table import prior_of

    table = Table(title="How well can anybody guess a cell?", title_justify="left", box=None, pad_edge=False)
    for heading in ("column", "declared", "noise", "blind guess", "proven floor", "unit"):
        left = heading in ("column", "unit")
        table.add_column(heading, justify="left" if left else "right", no_wrap=heading != "unit")
    for done in released.summary:
        column = released.schema.column(done.column)
        row = ("public", "none", "", "", "")
        if isinstance(done.law, GaussianLaw) and done.floor is not None:
            lower, upper = column.range
            row = (
                f"{lower:,g} to {upper:,g}",
                f"sd {_three_digits(done.law.sd)}",
                f"± {_three_digits(prior_of(column).largest)}",
                f"± {_three_digits(done.floor.error)}",
                column.measure or "",
            )
        elif isinstance(done.law, ResponseLaw) and done.floor is not None:
            row = (
                f"{done.law.levels} levels",
                f"kept {done.law.keep:.0%}",
                f"wrong {1 - 1 / done.law.levels:.0%}",
                f"wrong {done.floor.error:.0%}",
                "of guesses",
            )
        table.add_row(done.column, *row)
    console.print()
    console.print(table)


def _three_digits(amount: float) -> str:
    """Write an amount as people read it: 0.0123, 9.04, 1,220."""
    from math import floor, log10

    decimals = 2 - floor(log10(amount)) if amount > 0 else 0
    return f"{round(amount, decimals):,.{max(decimals, 0)}f}"


def _print_promises(console: Console, released: Release) -> None:
    from discreet.privacy import ErrorFloor

    console.print("\nWhat is promised")
    for promise in released.promises:
        sentence = promise.sentence()
        if isinstance(promise, ErrorFloor):
            sentence = (
                "The floors above: whoever knows of a person no more than what was declared cannot do "
                "better, on average over what was declared. Whoever knows more may, for instance how "
                "columns go together."
            )
        console.print(f" - {sentence}", markup=False)
    console.print(
        "What is not: the number of rows, the names of columns, declared lists and bounds are public. "
        "Floors are no differential privacy, and a mu or epsilon this large is none worth the name: "
        "ask for one with GaussianRelease(privacy=ApproxDP(epsilon=..., delta=...))."
    )


def main() -> None:
    """Run the command line; errors of ours become a sentence and an exit code."""
    from discreet.errors import BudgetExceeded, DiscreetError, SchemaError

    try:
        app()
    except DiscreetError as error:
        for sentence in error.args:
            typer.echo(f"discreet: {sentence}", err=True)
        code = EXIT_OTHER
        if isinstance(error, SchemaError):
            code = EXIT_SCHEMA
        elif isinstance(error, BudgetExceeded):
            code = EXIT_BUDGET
        raise SystemExit(code) from None
