"""The columns of a table as the pages list them, and suggestions while a question is typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from discreet import formatting
from discreet.query.language.completion import complete
from discreet.query.language.lexer import write_name
from discreet.query.language.nodes import write_level

if TYPE_CHECKING:
    from starlette.responses import Response

    from discreet.schema import Column, Schema
    from discreet.server.pages.page import PageRequest

_TYPES = {
    "number": "number",
    "integer": "whole number",
    "category": "list",
    "date": "date",
    "datetime": "datetime",
}
_MAX_LENGTH = 4000  # characters of a question that are looked at
_MAX_OPTIONS = 50
_SHORT = 30  # characters of an example


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaColumnView:
    """A column that queries can use.

    Attributes
    ----------
    name : str
        Name of the column as declared.
    written : str
        Name as the query language writes it, quoted where needed.
    type, range, description : str
        Type, allowed values and description in words.
    levels : tuple of str
        Values of a categorical column, as the query language writes them.
    is_number : bool
        Whether it is a number, which can be summed and needs edges to be grouped by.
    """

    name: str
    written: str
    type: str
    range: str
    description: str
    levels: tuple[str, ...]
    is_number: bool


def column_views(schema: Schema) -> list[SchemaColumnView]:
    """Return the columns that queries can use, in the order of the schema."""
    return [_view(column) for column in schema.columns if column.is_released]


def examples(columns: list[SchemaColumnView]) -> dict[str, str]:
    """Return the placeholders of empty fields, with column names of this table."""
    numbers = [column.written for column in columns if column.is_number]
    lists = [column for column in columns if column.levels]
    number = numbers[0] if numbers else "1"
    conditions = [f"{column.written} = {column.levels[0]}" for column in lists]
    # The first that a narrow field shows whole.
    where = next((one for one in conditions if len(one) <= _SHORT), (*conditions, f"{number} > 0")[0])
    sql = f"SELECT COUNT(*) FROM t WHERE {where}"  # noqa: S608 - only shown, never run
    return {"of": number, "where": where, "sql": sql}


def _view(column: Column) -> SchemaColumnView:
    """Return the presentation of one column."""
    return SchemaColumnView(
        name=column.name,
        written=write_name(column.name),
        type=_TYPES.get(str(column.type), str(column.type)),
        range=_range(column),
        description=column.description or "",
        levels=tuple(write_level(level) for level in column.levels if level is not None)
        if column.is_category
        else (),
        is_number=column.is_number,
    )


def _range(column: Column) -> str:
    """Return the allowed values of a column in words."""
    gaps = "" if column.required else "; may be missing"
    if column.is_category:
        declared = len(column.values or ())
        levels = sum(level is not None for level in column.levels)
        other = ", or other" if levels > declared else ""
        return f"one of {formatting.count_noun(declared, 'value')}{other}{gaps}"
    unit = f" {formatting.printable(column.measure)}" if column.measure else ""
    return f"{_end(column.lower)} to {_end(column.upper)}{unit}{gaps}"


def _end(value: object) -> str:
    return formatting.number(value) if isinstance(value, int | float) else str(value)


async def suggestions(page_request: PageRequest) -> Response:
    """Return what may follow in an unfinished question, and where the word begins that it replaces, as JSON.

    Privacy
    -------
    Follows from the schema alone.
    """
    text = page_request.http.query_params.get("text", "")[:_MAX_LENGTH]
    start, options = complete(text, page_request.target.dataset.schema)
    # Browsers count a character beyond the basic plane as two.
    start = len(text[:start].encode("utf-16-le", "surrogatepass")) // 2
    return JSONResponse({"start": start, "options": options[:_MAX_OPTIONS]})
