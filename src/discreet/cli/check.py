"""``discreet check``: list everything in a table for which a release would refuse it."""

from typing import TYPE_CHECKING

from discreet.cli.console import EXIT_SCHEMA, Console, Ended
from discreet.cli.options import Json, SchemaFile, Table

if TYPE_CHECKING:
    from discreet.tables.check import Finding


def check(table: Table, schema: SchemaFile = None, json: Json = False) -> None:
    """List every problem of a table by column and rule. No cell is shown; exit 0, or 2 if there is one.

    Counts and lines are true: they are for you, who own the table, and for nobody else.
    """
    from discreet.pipeline.check import check_table

    result = check_table(table, schema)
    with Console(as_json=json) as console:
        console.json(result.to_dict())
        for sentence in result.schema_problems:
            console.paragraph(sentence, bullet="- ")
        if result.findings:
            headings = ("column", "must", "cells", "first lines", "what to do")
            console.table("", headings, map(_row, result.findings), left=len(headings))
        by = "" if result.by == "schema" else " There is no complete schema: types are as the table suggests."
        verdict = "nothing would be refused." if result.ok else "a release would refuse it."
        console.line(f"{result.table}: {verdict}{by}")
    if not result.ok:
        raise Ended(EXIT_SCHEMA)


def _row(finding: "Finding") -> tuple[str, ...]:
    """Return the cells of a line of the table of findings."""
    must = finding.rule if finding.level == "problem" else f"({finding.rule})"
    lines = ", ".join(map(str, finding.lines))
    return finding.column or "(lines)", must, finding.count or "", lines, finding.way_out
