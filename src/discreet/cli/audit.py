"""``discreet audit``: attack a plan or a published file, without charging anything."""

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli import options
from discreet.cli.console import Console
from discreet.cli.method_flags import MethodCommand, MethodFlags
from discreet.cli.options import expand_flags
from discreet.cli.summary import print_rows

Command = MethodCommand


@expand_flags
def audit(
    table: Annotated[
        str,
        typer.Argument(
            help="A release folder, to attack the published file, or a table, to attack a plan. "
            f"{options.TABLE}",
            metavar="TABLE|FOLDER",
        ),
    ],
    method: MethodFlags,
    attack_records: options.AttackRecords = 20_000,
    json: options.Json = False,
) -> None:
    """Attack a published file, or a plan on made-up records. No private cell is read, nothing is charged.

    For a plan, the exit code is 3 if an attack does better than promised. Attacks on a file do not affect the
    exit code: a floor holds against attackers who know no more than what was declared.
    """
    with Console(as_json=json) as console:
        if Path(table).is_dir():
            _attack_folder(console, Path(table))
            return
        from discreet.pipeline.options import RunOptions
        from discreet.pipeline.plan import dry_run

        result = dry_run(
            table,
            run=RunOptions(
                attack_records=attack_records, on_stage=console.stage, on_progress=console.progress
            ),
            **method.read(table).to_dict(),
        )
        print_rows(console, result.rows)
        console.line()
        console.table(
            "",
            ("attack", "verdict", "promise and why"),
            ((one.attack, one.verdict, f"{one.claim}. {one.reason}") for one in result.audits),
            left=3,
        )
        console.json(
            {
                "guesses": [guess.to_dict() for guess in result.guesses],
                "audits": [one.to_dict() for one in result.audits],
            }
        )


def _attack_folder(console: Console, folder: Path) -> None:
    """Attack the file of a release, and print the error that each attacker expects."""
    from discreet.formatting import is_chance, name, quantity
    from discreet.pipeline.published_folder import attack_folder

    guesses = attack_folder(folder)
    console.json({"guesses": [guess.to_dict() for guess in guesses]})

    def cells() -> "list[tuple[str, ...]]":
        rows = []
        for guess in guesses:
            chance = is_chance(guess.statistic)
            row = (
                name(guess.column),
                guess.attack,
                quantity(guess.without, guess.measure, chance=chance),
                quantity(guess.error, guess.measure, chance=chance),
                guess.knowledge,
            )
            rows.append(tuple(cell.replace("\u00a0", " ") for cell in row))
        return rows

    console.table(
        "What anyone can guess from the published file alone",
        ("column", "attack", "without", "error that the attacker expects", "what the attacker knows"),
        cells(),
        left=2,
    )
