"""``discreet plan``: compare more and less noise before a cell is read."""

from typing import TYPE_CHECKING, Annotated

import typer

from discreet.cli import options
from discreet.cli.console import Console
from discreet.cli.options import MethodFlags, expand_flags, open_service

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet.formatting import Rounding
    from discreet.pipeline.plan import QuestionPlan
    from discreet.report.findings import WhatIf
    from discreet.schema import Schema

Command = options.MethodCommand


@expand_flags
def plan(
    table: options.Table,
    method: MethodFlags,
    rows: Annotated[
        int | None, typer.Option(help="Number of rows, to plan without opening the table.", min=1)
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
    explained: Annotated[
        float,
        typer.Option(
            help="Assumed share of the target's variance that the true columns explain, summed over "
            "columns; for advice on rows and epsilon.",
            min=0.0001,
            max=1.0,
        ),
    ] = 0.25,
    ledger: options.LedgerPlace = None,
    new_ledger: options.NewLedger = False,
    json: options.Json = False,
) -> None:
    """Compare noise, floors, epsilon and accuracy; reads no cell and charges nothing."""
    from discreet.formatting import printable
    from discreet.pipeline.plan import PlanBasis, plan_noise_levels

    with open_service(table) as database, Console(as_json=json) as console:
        request = method.read(table, schema=None if database is None else database.schema)
        if database is not None:
            rows = rows or database.n_rows or 1
        planned = plan_noise_levels(
            table,
            ledger=ledger,
            new_ledger=new_ledger,
            basis=PlanBasis(
                n_rows=rows,
                public_sample=public_sample,
                on_private_rows=on_private_rows,
                explained=explained,
            ),
            on_progress=console.progress,
            **request.to_dict(),
        )
        console.json(
            {
                "measured_on": planned.measured_on,
                "advice": None if planned.advice is None else planned.advice.to_dict(),
                "positions": [position.model_dump() for position in planned.positions],
                "questions": [position.to_dict() for position in planned.questions],
            }
        )
        if planned.questions:
            show_questions(console, planned.questions)
            return
        show(console, planned.schema, request.protect, planned.positions)
        console.line()
        if request.schema.target is not None:
            console.paragraph(f"Accuracy: {printable(planned.measured_on)}")
        if planned.advice is not None:
            console.paragraph(printable(" ".join(planned.advice.sentences)))
        console.paragraph(
            "Noise is the standard deviation in the column's unit, or for a list the share of cells that "
            "are changed; the floor is the smallest error of any guess by an attacker who knows only what "
            "was declared."
        )


def show_questions(console: Console, positions: "Sequence[QuestionPlan]") -> None:
    """Print what a release of made-up rows would ask and how noisy it would be, one line for each promise."""
    from discreet.formatting import number, percent, printable

    def cells(position: "QuestionPlan") -> list[str]:
        row = [
            "none" if position.epsilon is None else number(position.epsilon, rounding="up"),
            "-" if position.count_sd is None else number(position.count_sd),
            "-" if position.error is None else percent(position.error),
            "-" if position.score_sd is None else number(position.score_sd),
            str(len(position.questions) or "refused"),
            f"up to {position.tables}" if position.tables else "-",
            "<- chosen" if position.requested else "",
        ]
        return [cell.replace("\u00a0", " ") for cell in row]

    console.table(
        "Questions at this promise, and at others",
        ("epsilon", "sd of a count", "error of a column", "sd of a score", "questions", "tables", ""),
        map(cells, positions),
    )
    (chosen,) = (position for position in positions if position.requested)
    console.line()
    console.paragraph(f"Questions, each charged before its noise is drawn: {', '.join(chosen.questions)}.")
    for note in chosen.notes:
        console.paragraph(printable(note))
    console.paragraph(
        "Counts and scores are in rows. The error is the distance in total variation of one column's counts "
        "by class from the true ones, before they are made consistent, if the whole promise went into "
        "them: below 3 % there is a second round of tables, from 25 % on a warning, above 100 % a refusal. "
        "Which tables are worth their noise is decided by noisy scores; without scores, columns are "
        "independent given the target. Nothing was read or charged."
    )


def show(
    console: Console, schema: "Schema", requested: "Iterable[str]", positions: "list[WhatIf]", most: int = 3
) -> None:
    """Print one line for each amount of noise, with the requested columns first, at most `most` of them."""
    from discreet.formatting import name, number, percent

    floored = [c.name for c in schema.released if any(c.name in p.floors for p in positions)]
    shown = [*(c for c in floored if c in requested), *(c for c in floored if c not in requested)][:most]

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
        "Noise / floor of each column, and the resulting privacy and accuracy",
        ("noise", *(name(column) for column in shown), "epsilon", "lambda", "accuracy", ""),
        map(cells, positions),
    )
    rest = len(schema.released) - len(shown)
    if rest:
        console.line(f"{rest} more columns are in --json.")
