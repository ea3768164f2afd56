"""``discreet demo``: release a bundled table."""

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.console import Console
from discreet.cli.options import AttackRecords, Json
from discreet.cli.release import command_line, print_release

FLOORS = {"census": {"age": 9.0}, "clinic": {"radius_mean": 4.0}}


def demo(
    table: Annotated[str, typer.Argument(help="A bundled table: census or clinic.")] = "census",
    out: Annotated[Path, typer.Option(help="Folder for public/ and internal/.")] = Path("demo-release"),
    attack_records: AttackRecords = 20_000,
    json: Json = False,
) -> None:
    """Release a bundled table; the same as `discreet release demo:census --protect age=9 --replace`."""
    from discreet import datasets
    from discreet.pipeline.options import Output, RunOptions
    from discreet.pipeline.release import publish

    name = datasets.load(table).name
    with Console(as_json=json) as console:
        result = publish(
            f"{datasets.PREFIX}{name}",
            out=out,
            protect=FLOORS[name],
            output=Output(replace=True),
            run=RunOptions(
                attack_records=attack_records,
                command=command_line(),
                accept_risk="The bundled tables are public or made up, and this release is an example.",
            ),
            on_stage=console.stage,
            on_progress=console.progress,
        )
        print_release(console, result)
