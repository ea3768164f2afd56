"""Check of a table before a release: everything that would be refused, at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import SchemaError
from discreet.pipeline.sources import find_schema, is_bundled, resolve_source, schema_path
from discreet.tables import open_table
from discreet.tables.check import Finding, check_cells, check_lines, schema_of_draft

if TYPE_CHECKING:
    import os

    from discreet.schema import Schema


@dataclass(frozen=True)
class CheckResult:
    """What a check of a table found.

    Parameters
    ----------
    table : str
        Name of the table in messages.
    schema_problems : tuple of str
        One sentence for each problem of the schema; empty where it is sound.
    findings : tuple of Finding
        What cells, lines and columns do not keep, problems first.
    by : {"schema", "draft"}
        Whether cells were checked by the schema, or, without a sound one, by what the table suggests.
    """

    table: str
    schema_problems: tuple[str, ...]
    findings: tuple[Finding, ...]
    by: str

    @property
    def ok(self) -> bool:
        """Whether a release would not refuse the table."""
        return not self.schema_problems and all(finding.level == "note" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {
            "table": self.table,
            "ok": self.ok,
            "checked_by": self.by,
            "schema_problems": list(self.schema_problems),
            "findings": [finding.to_dict() for finding in self.findings],
        }


def check_table(source: Any, schema: Schema | str | os.PathLike[str] | None = None) -> CheckResult:
    """Return every problem of a table and its schema.

    Parameters
    ----------
    source : Any
        Table that is checked: a path, an address, a frame or a bundled table.
    schema : Schema, path or None
        Schema of the table, or its file; None for the file beside the table. Without any, or with one that is
        not complete, cells are checked by the types and formats that the table suggests.

    Privacy
    -------
    The findings hold true counts, in buckets, and line numbers. They are for the curator alone.
    """
    problems: tuple[str, ...] = ()
    declared = None
    try:
        declared = find_schema(source, schema)
    except SchemaError as error:
        if schema is not None or is_bundled(source) or schema_path(source).exists():
            problems = error.problems
    table = resolve_source(source)
    if declared is not None:
        with open_table(table, schema=declared) as opened:
            return CheckResult(opened.label, problems, tuple(check_cells(opened, declared)), "schema")
    with open_table(table) as opened:
        label, drafted = opened.label, schema_of_draft(opened.draft())
        if drafted is None:
            return CheckResult(label, problems, tuple(check_lines(opened)), "draft")
    with open_table(table, schema=drafted) as opened:
        findings = (finding for finding in check_cells(opened, drafted) if finding.rule != "be declared")
        return CheckResult(label, problems, tuple(findings), "draft")
