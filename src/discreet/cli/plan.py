"""``discreet plan``: what more or less noise would mean, before a cell is read."""

from typing import TYPE_CHECKING, Annotated

import typer

from discreet.cli import words
from discreet.cli.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterable

    from discreet.report.findings import WhatIf
    from discreet.report.wording import Rounding
    from discreet.schema import Schema

Command = words.MethodCommand


def plan(
    table: words.Table,
    schema: words.SchemaFile = None,
    target: words.Target = None,
    protect: words.Protect = None,
    epsilon: words.Epsilon = None,
    delta: words.Delta = None,
    method: words.Method = None,
    scale: words.Scale = None,
    regularization: words.Regularization = None,
    support: words.Support = None,
    in_range: words.InRange = False,
    learner: words.Learner = None,
    variance: words.Variance = None,
    label: words.Label = None,
    clamp: words.Clamp = False,
    more: words.More = None,
    rows: Annotated[
        int | None, typer.Option(help="How many rows, if the table is not to be opened at all.", min=1)
    ] = None,
    public_sample: Annotated[
        str | None, typer.Option(help="A public table of the same columns, to measure accuracy on.")
    ] = None,
    on_private_rows: Annotated[
        bool,
        typer.Option(
            "--on-private-rows",
            help="Measure accuracy on the table itself. Internal; it is logged, and the statement of later "
            "releases says that the noise was tuned on private rows.",
        ),
    ] = False,
    ledger: words.LedgerPlace = None,
    json: words.Json = False,
) -> None:
    """Show how noise, floors, epsilon and accuracy go together; reads no cell and charges nothing."""
    from discreet.job.planning import plan_for
    from discreet.report.wording import visible

    declared = words.declared(table, schema, target)
    options = words.method_options(
        scale=scale,
        regularization=regularization,
        support=support,
        in_range=in_range,
        learner=learner,
        variance=variance,
        label=label,
        clamp=clamp,
        more=more,
    )
    floors = words.protect_of(protect)
    with Console(as_json=json) as console:
        found = plan_for(
            table,
            schema=declared,
            method=method,
            privacy=words.promise_of(declared, floors, epsilon, delta),
            protect=floors,
            n_rows=rows,
            public_sample=public_sample,
            on_private_rows=on_private_rows,
            ledger=ledger,
            progress=console.progress,
            **options,
        )
        console.json(
            {
                "measured_on": found.measured_on,
                "positions": [position.model_dump() for position in found.positions],
            }
        )
        show(console, declared, floors, found.positions)
        console.line()
        if declared.target is not None:
            console.paragraph(f"Accuracy: {visible(found.measured_on)}")
        console.paragraph(
            "Noise is the standard deviation in the column's unit, of a list how often a cell is changed; "
            "the floor is the least error of any guess by somebody who knows no more than what was declared."
        )


def show(
    console: Console, schema: "Schema", asked: "Iterable[str]", positions: "list[WhatIf]", most: int = 3
) -> None:
    """Print one line for each amount of noise; in full the columns that were asked for, and the next ones."""
    from discreet.report.wording import name, number, percent

    floored = [c.name for c in schema.released if any(c.name in p.floors for p in positions)]
    shown = [*(c for c in floored if c in asked), *(c for c in floored if c not in asked)][:most]

    def amount(column: str, value: float | None, rounding: "Rounding" = "nearest") -> str:
        if value is None:
            return "-"
        write = percent if schema.column(column).is_category else number
        return write(value, rounding=rounding)

    def cells(position: "WhatIf") -> list[str]:
        parts = [
            f"{amount(c, position.noise.get(c))} / {amount(c, position.floors.get(c), 'down')}" for c in shown
        ]
        row = [
            f"x {position.factor:.3g}",
            *parts,
            "none" if position.epsilon is None else number(position.epsilon, rounding="up"),
            "-" if position.regularization is None else number(position.regularization),
            "-" if position.accuracy is None else f"{position.accuracy:.3f}",
            "<- chosen" if position.factor == 1 else "",
        ]
        return [cell.replace("\u00a0", " ") for cell in row]

    console.table(
        "Noise / floor of each column, and what goes with them",
        ("noise", *(name(column) for column in shown), "epsilon", "lambda", "accuracy", ""),
        map(cells, positions),
    )
    rest = len(schema.released) - len(shown)
    if rest:
        console.line(f"{rest} more columns are in --json.")
