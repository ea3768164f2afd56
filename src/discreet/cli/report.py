"""``discreet report``: write the internal report again."""

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.console import Console
from discreet.cli.options import Json


def report(
    folder: Annotated[Path, typer.Argument(help="A release: the folder with public/ and internal/.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the report. [default: internal/report.html]")
    ] = None,
    json: Json = False,
) -> None:
    """Write internal/report.html again. From attacks.json and the public statement; no row is read."""
    from discreet.pipeline.published_folder import rebuild_report

    place = rebuild_report(folder, out)
    console = Console(as_json=json)
    console.json({"report": str(place)})
    console.line(f"{place}: internal; do not publish.")
