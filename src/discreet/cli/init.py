"""``discreet init``: write a draft of the schema of a table."""

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.console import Console
from discreet.cli.options import Json, Table


def init(
    table: Table,
    out: Annotated[
        Path | None, typer.Option(help="Where to write it. [default: TABLE.schema.yaml beside it]")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite a declaration that exists.")] = False,
    json: Json = False,
) -> None:
    """Draft what is declared about a table: names and types alone; a person fills in the bounds."""
    from discreet.pipeline.sources import draft_schema, schema_path

    console = Console(as_json=json)
    place = out or schema_path(table)
    lines = draft_schema(table, place, replace=replace)
    console.json({"schema": str(place), "lines_to_fill": list(lines)})
    console.line(f"{place}: {len(lines)} places to fill in, marked ???.")
    console.paragraph(
        "Write what a codebook, a law or an instrument says, never what you see in the rows: the file is "
        "published with every release. Give ids and free text `role: drop`, and what everybody may see "
        "`role: public`."
    )
