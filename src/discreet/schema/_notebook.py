"""A schema as a notebook shows it: everything in it is public by declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.formatting import append_unit, count_noun, name, number, shorten
from discreet.html_tables import write_cell, write_heading, write_html

if TYPE_CHECKING:
    from discreet.schema.column import Column
    from discreet.schema.schema import Schema

_LONGEST = 60  # characters of a list of values
_MOST_COLUMNS = 60


def draw_schema(schema: Schema) -> str:
    """Return the columns of a schema as an HTML table, the first sixty of them."""
    head = [write_heading(text) for text in ("column", "type", "may hold", "role", "missing")]
    body = [
        [
            write_heading(name(column.name), "row"),
            write_cell(column.type or ""),
            write_cell(_describe_values(column)),
            write_cell(column.role),
            write_cell("no" if column.required else "yes"),
        ]
        for column in schema.columns[:_MOST_COLUMNS]
    ]
    more = len(schema.columns) - _MOST_COLUMNS
    rows = schema.max_rows_per_unit or 1
    protected = (
        f"Promises are for each {schema.unit} ({schema.neighbors}), with at most {count_noun(rows, 'row')}."
    )
    notes = [f"… {count_noun(more, 'more column')}." if more > 0 else "", protected]
    return write_html(schema.title or schema.dataset or "Schema", head, body, filter(None, notes))


def _describe_values(column: Column) -> str:
    """Return the declared range or list of a column, shortened."""
    if column.values is not None:
        return shorten(", ".join(map(str, column.values)), _LONGEST)
    if column.lower is None or column.upper is None:
        return ""
    bounds = [
        number(bound) if isinstance(bound, int | float) else str(bound)
        for bound in (column.lower, column.upper)
    ]
    return append_unit(" to ".join(bounds), column.measure)
