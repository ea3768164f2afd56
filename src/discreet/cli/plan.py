"""``discreet plan``: compare the ways to publish a table, or the noise of one of them."""

import shlex
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from discreet.cli import options
from discreet.cli.console import Console
from discreet.cli.method_flags import MethodCommand, MethodFlags, ReleaseRequest
from discreet.cli.options import expand_flags, open_service

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet.evaluation.ways import Way
    from discreet.formatting import Rounding
    from discreet.pipeline.plan import QuestionPlan
    from discreet.pipeline.ways import PlannedWays
    from discreet.report.findings import WhatIf
    from discreet.schema import Schema

Command = MethodCommand

_QUESTIONS = {
    "fine": "counts in fine cells",
    "one": "counts of each column",
    "scores": "scores of dependence",
    "tables": "tables of dependent columns",
    "scores again": "scores against a first model",
    "more tables": "further tables",
}


@expand_flags
def plan(
    table: options.Table,
    method: MethodFlags,
    task: Annotated[
        Literal["model", "tables", "means"] | None,
        typer.Option(help="What recipients want: a model of the target, two-way tables, or means."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Number of rows, to plan without opening the table.", min=1)
    ] = None,
    public_sample: Annotated[
        str | None, typer.Option(help="A public table of the same columns, to measure on.")
    ] = None,
    on_rows: Annotated[
        bool,
        typer.Option(
            "--on-rows",
            help="Measure on the table itself. Internal; it is logged, and the statement of later releases "
            "says that the choice is not covered by the promise.",
        ),
    ] = False,
    explained: Annotated[
        float,
        typer.Option(
            help="Assumed share of the target's variance that the columns explain, for made-up rows and for "
            "the number of rows that a learner needs.",
            min=0.0001,
            max=1.0,
        ),
    ] = 0.25,
    ledger: options.LedgerPlace = None,
    new_ledger: options.NewLedger = False,
    json: options.Json = False,
) -> None:
    """Compare the ways to publish a table. With --method the noise levels of one; nothing is charged.

    No cell is read unless --on-rows is given: the ways are tried on made-up rows, the same for all, with the
    declared columns and as many rows.
    """
    from discreet.pipeline.plan_basis import PlanBasis

    with open_service(table) as database, Console(as_json=json) as console:
        request = method.read(table, schema=None if database is None else database.schema)
        if database is not None:
            rows = rows or database.n_rows or 1
        basis = PlanBasis(n_rows=rows, public_sample=public_sample, on_rows=on_rows, explained=explained)
        common: dict[str, Any] = {
            "ledger": ledger, "new_ledger": new_ledger, "basis": basis, "on_progress": console.progress,
        }  # fmt: skip
        if request.method is not None:
            _plan_levels(console, table, request, common)
            return
        from discreet.pipeline.ways import plan_ways

        _check_ways_flags(request)
        planned = plan_ways(
            table,
            schema=request.schema,
            privacy=request.privacy,
            protect=request.protect,
            task=task,
            answers_only=database is not None,
            **common,
        )
        print_ways(console, table, planned)


def _check_ways_flags(request: ReleaseRequest) -> None:
    """Refuse options of a method where no method is named."""
    from discreet.errors import ParameterError

    for name in request.options:
        raise ParameterError(
            f"--{name.replace('_', '-')} is an option of a method, and no method was named. Give --method to "
            "compare the noise levels of one, or leave it out to compare all ways."
        )


def print_ways(console: Console, table: str, planned: "PlannedWays") -> None:
    """Print the ways to publish side by side, what is impossible and why, and the recommended way."""
    from discreet.evaluation.way_choice import TASKS, describe_way
    from discreet.formatting import number, percent, printable

    promise = f"epsilon {number(planned.privacy.epsilon)}"
    delta = getattr(planned.privacy, "delta", None)
    if delta is not None:
        promise += f", delta {_short(delta)}"
    rows = f"{planned.n_rows:,} rows, {len(planned.schema.released)} columns"
    console.line(f"Ways to publish {printable(table)} ({rows}) at {promise}")
    console.line()
    is_class = planned.schema.target is not None and planned.schema.column(planned.schema.target).is_category

    def share(value: float | None, rounding: "Rounding" = "nearest") -> str:
        if value is None:
            return "-"
        return "< 0.1 %" if 0 < value < 0.001 else percent(value, rounding=rounding).replace("\u00a0", " ")

    def cells(way: "Way") -> tuple[str, ...]:
        if way.why_not:
            return (way.title, "not possible", *("-",) * 4)
        kept = "no epsilon" if way.epsilon is None else f"epsilon {number(way.epsilon, rounding='up')}"
        if way.name == "gaussian" and planned.floors:
            kept = "error floors"
        accuracy = "-" if way.accuracy is None else f"{way.accuracy:.2f}"
        return (
            way.title,
            f"{kept}, {way.trust}".replace("\u00a0", " "),
            share(way.accuracy) if is_class else accuracy,
            share(way.table_error),
            share(way.mean_error),
            "no bound" if way.membership is None else share(way.membership, "up"),
        )

    measure = "share of unseen rows that it gets right" if is_class else "R2 on unseen rows, at most 1"
    console.table(
        "",
        ("way", "promise", "model", "tables", "means", "attack"),
        map(cells, planned.ways),
        left=2,
        right=0,
    )
    for way in planned.ways:
        if way.why_not:
            console.paragraph(printable(f"{way.title}: {way.why_not}"), bullet=" - ")
        elif way.risk is not None and way.stops:
            # A release would stop with this reason, unless the risk is accepted.
            console.paragraph(printable(f"{way.title}, too risky: {way.risk['why']}"), bullet=" - ")
    console.line()
    chosen = planned.choice
    if chosen.way is None:
        console.paragraph(f"Recommended: none. {chosen.reason}")
    else:
        words = describe_way(chosen.way)
        console.paragraph(f"Recommended: {words}, because {chosen.reason}".replace("\u00a0", " "))
        console.line(f"  {printable(ways_command(table, planned, chosen.way))}")
    alone = [f"{TASKS[task]}: {describe_way(way)}" for task, way in chosen.by_task.items()]
    if alone:
        console.paragraph(f"For one purpose alone: {'; '.join(alone)}.")
    console.line()
    constant, unprotected = (planned.baselines.get(name) for name in ("constant", "unprotected"))
    if constant is not None and unprotected is not None and is_class:
        console.paragraph(
            f"Without protection a model is {share(unprotected)} right, always the same answer "
            f"{share(constant)}."
        )
    console.paragraph(printable(f"Measured on {planned.measured_on}"))
    console.paragraph(
        f"model: {measure}. tables: share of rows in the wrong cell of a two-way table. "
        "means: error of a mean as a share of its range. Questions have these errors if all "
        "of the promise pays for them. attack: the largest chance that anyone tells which of two rows a "
        "person has; 50 % is chance. local: noise on every row; central: noise on sums over all rows."
    )
    found = planned.to_dict()
    found["recommended"]["command"] = None
    if chosen.way is not None:
        found["recommended"]["command"] = ways_command(table, planned, chosen.way)
    console.json(found)


def _short(value: float) -> str:
    """Return a small number as it is typed: 1e-6."""
    return f"{value:g}".replace("e-0", "e-")


def ways_command(table: str, planned: "PlannedWays", way: str) -> str:
    """Return the command line that publishes a table in one way."""
    name = shlex.quote(table)
    delta = getattr(planned.privacy, "delta", None)
    promise = f"--epsilon {planned.privacy.epsilon:g}"
    both = promise if delta is None else f"{promise} --delta {_short(delta)}"
    floors = " ".join(f"--protect {shlex.quote(f'{c}={error:g}')}" for c, error in planned.floors.items())
    return {
        "synthetic": f"discreet release {name} {both}",
        "coarse": f"discreet release {name} --method coarse {promise}",
        "gaussian": f"discreet release {name} " + (floors or f"--method gaussian {both}"),
        "masked": f"discreet release {name} --method masked {both}",
        "model": f"discreet learn {name} {both}",
        "questions": f"discreet query {name} {both}",
    }[way]


def _plan_levels(console: Console, table: str, request: ReleaseRequest, common: dict[str, Any]) -> None:
    """Print more and less noise of the named method side by side."""
    from discreet.formatting import printable
    from discreet.pipeline.plan import plan_noise_levels

    planned = plan_noise_levels(table, **common, **request.to_dict())
    console.json(
        {
            "measured_on": planned.measured_on,
            "sample_size": None if planned.sample_size is None else planned.sample_size.to_dict(),
            "positions": [position.model_dump() for position in planned.positions],
            "questions": [position.to_dict() for position in planned.questions],
        }
    )
    others = f"Is another way to publish better? discreet plan {shlex.quote(table)} compares them all."
    if planned.questions:
        show_questions(console, planned.questions)
        console.paragraph(printable(others))
        return
    show(console, planned.schema, request.protect, planned.positions)
    console.line()
    if planned.measured_on:
        console.paragraph(f"Accuracy: {printable(planned.measured_on)}")
    if planned.sample_size is not None:
        console.paragraph(printable(" ".join(planned.sample_size.sentences)))
    console.paragraph(
        "Noise is the standard deviation in the column's unit, or for a list the share of cells that "
        "are changed; the floor is the smallest error of any guess by an attacker who knows only what "
        "was declared."
    )
    console.paragraph(printable(others))


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
    named = ", ".join(_QUESTIONS.get(name, name) for name in chosen.questions)
    console.paragraph(f"Questions, each charged before its noise is drawn: {named}.")
    for note in chosen.notes:
        console.paragraph(printable(note))
    console.paragraph(
        "Counts and scores are in rows. The error is the distance in total variation of one column's counts "
        "by class from the true ones, before they are made consistent, if the whole promise went into "
        "them: below 3 % there is a second round of tables, from 25 % on a warning, above 100 % a refusal. "
        "Which tables are worth their noise is decided by noisy scores; without scores, columns are "
        "independent of each other, given the target. Nothing was read or charged."
    )


def show(
    console: Console, schema: "Schema", requested: "Iterable[str]", positions: "list[WhatIf]", most: int = 3
) -> None:
    """Print one line for each amount of noise, with the requested columns first, at most `most` of them."""
    from discreet.formatting import name, number, percent

    floored = [c.name for c in schema.released if any(c.name in p.floors for p in positions)]
    shown = [*(c for c in floored if c in requested), *(c for c in floored if c not in requested)][:most]

    measured = any(position.accuracy is not None for position in positions)

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
            *(() if not measured else ("-" if position.accuracy is None else f"{position.accuracy:.3f}",)),
            "<- chosen" if position.factor == 1 else "",
        ]
        return [cell.replace("\u00a0", " ") for cell in row]

    headings = ("noise", *map(name, shown), "epsilon", "lambda", *(("accuracy",) if measured else ()), "")
    console.table("Noise / floor of each column, and the resulting privacy", headings, map(cells, positions))
    rest = len(schema.released) - len(shown)
    if rest:
        console.line(f"{rest} more columns are in --json.")
