"""``discreet init``: write a draft of the schema of a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.console import Console
from discreet.cli.options import AnyDelta, Json, LedgerPlace, Table, expand_flags

if TYPE_CHECKING:
    from discreet.pipeline.draft import DraftOptions, DraftReport


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclarationFlags:
    """Flags with what is known about the table, written into the draft in place of a mark."""

    codebook: Annotated[
        str | None,
        typer.Option(
            help="Codebook (.csv, .xlsx, ...) with a line for each column: name, label, lower, upper, "
            "values, missing codes, unit."
        ),
    ] = None
    accept_proposals: Annotated[
        bool,
        typer.Option(
            "--accept-proposals", help="Confirm the ranges that are proposed by names such as age or percent."
        ),
    ] = False
    dataset: Annotated[
        str | None, typer.Option(help="Lasting name of the table, the same for every version of it.")
    ] = None
    unit: Annotated[str | None, typer.Option(help="Whom a promise protects. [default: person]")] = None
    id_column: Annotated[
        str | None, typer.Option(help="Column that tells which rows belong to one person.")
    ] = None
    max_rows_per_unit: Annotated[
        int | None, typer.Option(help="How many rows of one person are used.", min=1)
    ] = None
    neighbors: Annotated[
        str | None, typer.Option(help="replace-one or add-remove. [default: replace-one]")
    ] = None
    row_count: Annotated[
        str | None, typer.Option(help="Whether the number of rows is public or private. [default: public]")
    ] = None

    def privacy(self) -> dict[str, Any]:
        """Return the keys of the ``privacy`` block that were given."""
        keys = ("dataset", "unit", "id_column", "max_rows_per_unit", "neighbors", "row_count")
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateFlags:
    """Flags of a private estimate of bounds."""

    private_bounds: Annotated[
        bool,
        typer.Option(
            "--private-bounds",
            help="Pay --epsilon for an estimate of the bounds that nothing else gives. Needs --dataset and "
            "--max-rows-per-unit.",
        ),
    ] = False
    epsilon: Annotated[
        float | None,
        typer.Option(help="With --private-bounds: differential privacy of all columns together."),
    ] = None
    delta: AnyDelta = None
    ledger: LedgerPlace = None

    def check(self, declared: DeclarationFlags) -> None:
        """Refuse an estimate without a promise, or without what the promise is about."""
        from discreet.errors import ParameterError

        if not self.private_bounds:
            if self.epsilon is not None or self.delta is not None:
                raise ParameterError(
                    "--epsilon and --delta are for --private-bounds, which was not given. Give it, or leave "
                    "them out: a draft of names and types costs nothing."
                )
            return
        needed = {
            "--epsilon": self.epsilon,
            "--dataset": declared.dataset,
            "--max-rows-per-unit": declared.max_rows_per_unit,
        }
        absent = [flag for flag, value in needed.items() if value is None]
        if absent:
            raise ParameterError(
                f"--private-bounds needs {' and '.join(absent)}, and there is none. The promise is charged "
                "to the ledger of a dataset, and its noise depends on how many rows one person has: give "
                "--max-rows-per-unit 1 if that is one, and --id-column too if there may be more."
            )

    def options(self, declared: DeclarationFlags) -> "DraftOptions":
        """Return what the draft may use and pay for."""
        from discreet.pipeline.draft import DraftOptions

        self.check(declared)
        return DraftOptions(
            codebook=declared.codebook,
            privacy=declared.privacy(),
            accept_proposals=declared.accept_proposals,
            epsilon=self.epsilon,
            delta=self.delta,
            ledger=self.ledger,
        )


@expand_flags
def init(
    table: Table,
    declared: DeclarationFlags,
    estimate: EstimateFlags,
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
    """Draft the schema of a table. Names, types and a codebook are read; you fill in what is left."""
    from discreet.pipeline.draft import draft_schema
    from discreet.pipeline.sources import schema_path

    console = Console(as_json=json)
    place = out or schema_path(table)
    report = draft_schema(table, place, replace=replace, header=header, options=estimate.options(declared))
    console.json(
        {
            "schema": str(place),
            "lines_to_fill": list(report.open_lines),
            "not_in_table": list(report.unknown),
            "estimated": list(report.estimated),
            "not_estimated": list(report.unproven),
        }
    )
    _print_report(console, place, report)


def _print_report(console: Console, place: Path, report: "DraftReport") -> None:
    """Print what is left to do, and why some columns are still open."""
    left = len(report.open_lines)
    if left == 0:
        console.line(f"{place}: complete. Read it once: it is published with every release.")
    else:
        console.line(f"{place}: {left} {'place' if left == 1 else 'places'} to fill in, marked ???.")
    if report.estimated:
        console.paragraph(f"Bounds were estimated for {', '.join(report.estimated)}, and are paid for.")
    if report.unproven:
        console.paragraph(
            f"The noisy counts proved no bounds for {', '.join(report.unproven)}; the promise was paid all "
            "the same."
        )
    if report.unknown:
        console.paragraph(
            f"The codebook also names {', '.join(report.unknown)}, which the table does not have."
        )
    if left == 0:
        return
    console.paragraph(
        "Take bounds from a codebook, a law or an instrument, never from the rows: the file is published "
        "with every release. What holds for many columns is written once, under defaults or patterns. "
        "Columns whose names look like ids or free text are not published; give others that anyone may see "
        "`role: public`."
    )
    console.paragraph(
        "For a synthetic table (--method synthetic), give the column that matters most `role: target`: the "
        "others are counted together with it. Where people think of numbers or dates in classes, such as "
        "decades of age, declare where classes begin, `cells: [30, 40, 50]`; otherwise they are cut by noisy "
        "counts, which costs a tenth of the promise."
    )
