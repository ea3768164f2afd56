"""All problems of a table under its schema at once, without any of its cells.

The counts are true ones, in buckets, and lines are named: the findings are for the eyes of whoever owns the
table, and part of no release.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from discreet.errors import SchemaError
from discreet.schema import Column, Dialect, Schema, TextFormat, unclipped_column
from discreet.schema.column import unbounded_calendar
from discreet.schema.notation import TIME_OF_DAY, UNFILLED
from discreet.tables.cell_encoding import MISSING_CODE, projection
from discreet.tables.foreign_files import SheetSource
from discreet.tables.sources import translate_errors
from discreet.tables.table import WAY_OUT_MISSING, Table, describe_fit
from discreet.tables.text_files import CsvSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet.schema.dialect import FieldDraft, TableDraft
    from discreet.tables.sources import Source

_SHOWN = 3  # lines that are named of each finding
_BUCKETS = ((1, "1"), (9, "2-9"), (99, "10-99"), (999, "100-999"))


@dataclass(frozen=True)
class Finding:
    """One rule that cells of one column, or lines, do not keep.

    Parameters
    ----------
    column : str or None
        Name of the column; None for the table as a whole.
    rule : str
        What a cell, a line or the column must do.
    level : {"problem", "note"}
        Whether a release refuses the table for it, or goes on.
    count : str or None
        How many cells or lines, as a bucket; None where nothing is counted.
    lines : tuple of int
        First lines of a file, or rows of another table, where it happens.
    way_out : str
        What the owner of the table can do about it.
    """

    column: str | None
    rule: str
    level: Literal["problem", "note"]
    count: str | None = None
    lines: tuple[int, ...] = ()
    way_out: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return {**asdict(self), "lines": list(self.lines)}


class _Rule(NamedTuple):
    """Rule of a column, with the SQL condition that an encoded cell breaks it."""

    column: str
    condition: str
    text: str
    level: Literal["problem", "note"]
    way_out: str


def check_cells(table: Table, schema: Schema) -> list[Finding]:
    """Return every problem of a table under a schema; the table is read once, from its beginning to its end.

    Parameters
    ----------
    table : Table
        Table that was opened with this schema.
    schema : Schema
        Declaration of its columns.
    """
    source, findings = table.source, []
    columns = []
    for column in schema.released:
        problem = _column_problem(table, column, schema)
        if problem is None:
            columns.append(column)
            if column.type == "date" and _has_time(table, column, schema):
                findings.append(Finding(column.name, "be a day", "note", way_out=TIME_OF_DAY))
        else:
            findings.append(problem)
    if schema.id_column is not None and schema.id_column not in table.names:
        findings.append(Finding(schema.id_column, "be in the table", "problem", way_out="It names the ids."))
    findings += check_lines(table)
    if isinstance(source, CsvSource):
        source.skips_ragged = True
    try:
        findings += _broken_rules(source, columns, schema)
    finally:
        if isinstance(source, CsvSource):
            source.skips_ragged = False
    extra = () if table.names_look_like_data else table.extra(schema)  # noqa: S610 - a method of ours
    findings += [
        Finding(name, "be declared", "note", way_out="It is not read and not published.") for name in extra
    ]
    return sorted(findings, key=lambda finding: (finding.level == "note", finding.column is not None))


def _column_problem(table: Table, column: Column, schema: Schema) -> Finding | None:
    """Return why a column cannot be read at all; None if it can."""
    try:
        (place,) = table.find_columns([column])
        projection([column], [place], [table.source.sql_types[place]], schema, "")
    except SchemaError as error:
        return Finding(
            column.name, "be in the table as declared", "problem", way_out=" ".join(error.problems)
        )
    return None


def _has_time(table: Table, column: Column, schema: Schema) -> bool:
    """Return whether the cells of a date are declared or stored with a time of day."""
    (place,) = table.find_columns([column])
    written = schema.text_format(column).date_format or ""
    return "TIMESTAMP" in table.source.sql_types[place].upper() or re.search("%[HIMSfp]", written) is not None


def check_lines(table: Table) -> list[Finding]:
    """Return the finding about lines of a text file that have too few or too many cells, if there are any."""
    source = table.source
    if not isinstance(source, CsvSource):
        return []
    ragged = (line for line, n_cells in source.records() if n_cells != source.n_cells)
    first = tuple(islice(ragged, _SHOWN))
    if not first:
        return []
    count = len(first) + sum(1 for _ in ragged)
    way_out = "Put cells that hold the delimiter in double quotes, or correct the lines."
    return [
        Finding(None, f"have {source.n_cells} cells in each line", "problem", _bucket(count), first, way_out)
    ]


def count_misfits(table: Table, schema: Schema) -> Counter[tuple[str, str, str]]:
    """Return how many cells a release or registration would refuse the table for, without any of the cells.

    Parameters
    ----------
    table : Table
        Table that was opened with this schema.
    schema : Schema
        Declaration of its columns, all of them in the table.

    Returns
    -------
    Counter
        Number of cells by the name of the column, what its cells must do, and the way out.
    """
    found = _count_broken(table.source, schema.released, schema)
    problems = [(rule, count) for rule, count, _ in found if rule.level == "problem"]
    return Counter({(rule.column, rule.text, rule.way_out): count for rule, count in problems})


def _broken_rules(source: Source, columns: Sequence[Column], schema: Schema) -> list[Finding]:
    """Return the rules that cells do not keep, with where that happens first."""
    found = _count_broken(source, columns, schema)
    lines = _find_lines(source, {number for _, _, numbers in found for number in numbers})
    return [
        Finding(
            rule.column,
            rule.text,
            rule.level,
            _bucket(count),
            tuple(lines[number] for number in numbers if number in lines),
            rule.way_out,
        )
        for rule, count, numbers in found
    ]


def _count_broken(
    source: Source, columns: Sequence[Column], schema: Schema
) -> list[tuple[_Rule, int, list[int]]]:
    """Return the rules that cells do not keep, each with the number of such cells and their first rows."""
    rules = [rule for i, column in enumerate(columns) for rule in _rules(column, f"e{i}", schema)]
    if not rules:
        return []
    places = [list(source.names).index(column.name) for column in columns]
    types = [source.sql_types[place] for place in places]
    counts = ", ".join(
        f"count(*) FILTER ({rule.condition}), min(n, {_SHOWN}) FILTER ({rule.condition})" for rule in rules
    )
    with translate_errors(source), source.scan(places) as (connection, relation):
        encoded = projection(columns, places, types, schema, relation)
        row = connection.execute(
            f"SELECT {counts} FROM (SELECT row_number() OVER () AS n, * FROM ({encoded}))"  # noqa: S608 - ours
        ).fetchone()
    assert row is not None
    return [(rule, row[2 * i], row[2 * i + 1]) for i, rule in enumerate(rules) if row[2 * i]]


def _rules(column: Column, cell: str, schema: Schema) -> Iterator[_Rule]:
    """Yield the rules of a column: what fits, what may be missing, what is clipped or read as other."""
    must, way_out = describe_fit(column, schema.text_format(column))
    yield _Rule(column.name, f"{cell} IS NULL", must, "problem", way_out)
    if column.required:
        missing = f"{cell} = {MISSING_CODE}" if column.is_category else f"isnan({cell})"
        yield _Rule(column.name, missing, "hold something", "problem", WAY_OUT_MISSING)
    if column.is_number and abs(column.range[1]) < column.largest:
        lower, upper = column.range
        beyond = f"NOT isnan({cell}) AND ({cell} < {lower!r} OR {cell} > {upper!r})"
        way_out = "Such a cell is clipped to them. If it is a code for no answer, list it in missingValues."
        yield _Rule(column.name, beyond, "be within its bounds", "note", way_out)
    elif column.other is not None:
        other = f"{cell} = {column.levels.index(column.other)}"
        yield _Rule(column.name, other, "hold a listed value", "note", "Another is read as 'other'.")


def _find_lines(source: Source, rows: set[int]) -> dict[int, int]:
    """Return the line of each of these rows of a file; the row itself for any other table."""
    if isinstance(source, SheetSource):
        return {row: source.lines[row - 1] for row in rows}
    if not isinstance(source, CsvSource) or not rows:
        return {row: row for row in rows}
    lines = (line for line, n_cells in source.records() if n_cells == source.n_cells)
    return {row: line for row, line in enumerate(islice(lines, max(rows)), 1) if row in rows}


def _bucket(count: int) -> str:
    return next((text for most, text in _BUCKETS if count <= most), "1000+")


def schema_of_draft(draft: TableDraft) -> Schema | None:
    """Return a schema without bounds for what a table says of itself; None if all of its columns are text."""
    columns = [column for name, field in draft.fields.items() for column in _draft_column(name, field)]
    if not columns:
        return None
    return Schema(columns=columns, dialect=draft.dialect or Dialect(), missing_values=draft.missing_values)


def _draft_column(name: str, field: FieldDraft) -> Iterator[Column]:
    """Yield a column without bounds, unless its cells are text or its format is still open."""
    text = field.text or TextFormat()
    if text.date_format == UNFILLED or name != name.strip():
        return
    text = replace(text, censored=None) if str(text.censored) == UNFILLED else text
    if field.type == "datetime":
        yield replace(unbounded_calendar(name, "second", required=False), text=text)
    elif field.type == "date":
        yield replace(unbounded_calendar(name, None, required=False), text=text)
    elif field.type in ("number", "integer"):
        yield replace(unclipped_column(name, required=False), text=text)
    elif field.type == "boolean":
        yield Column(name, values=(False, True), text=text, required=False)
