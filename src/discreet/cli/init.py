"""``discreet init``: write a draft of the schema of a table."""

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.console import Console
from discreet.cli.options import Json, Table


def init(
    table: Table,
    out: Annotated[
        Path | None,
        typer.Option(help=("Where to write the schema. [default: TABLE.schema.yaml beside the table]")),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite an existing schema.")] = False,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line of a text file holds names. [default: by its looks]",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Draft the schema of a table with names and types only; you fill in the bounds."""
    from discreet.pipeline.draft import draft_schema
    from discreet.pipeline.sources import schema_path

    console = Console(as_json=json)
    place = out or schema_path(table)
    lines = draft_schema(table, place, replace=replace, header=header)
    console.json({"schema": str(place), "lines_to_fill": list(lines)})
    console.line(f"{place}: {len(lines)} places to fill in, marked ???.")
    console.paragraph(
        "Take bounds from a codebook, a law or an instrument, never from the rows: the file is published "
        "with every release. Give ids and free text `role: drop`, and columns that anyone may see `role: "
        "public`."
    )
    console.paragraph(
        "For a synthetic table (--method synthetic), give the column that matters most `role: target`: the "
        "others are counted together with it. Where people think of numbers or dates in classes, such as "
        "decades of age, declare where classes begin, `cells: [30, 40, 50]`; otherwise they are cut by noisy "
        "counts, which costs a tenth of the promise."
    )
