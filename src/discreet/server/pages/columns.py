"""The declared columns, as the list beside the question shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet import formatting
from discreet.query.expression.nodes import write_level
from discreet.query.expression.words import write_name

if TYPE_CHECKING:
    from discreet.schema import Column, Schema

_TYPES = {"number": "number", "integer": "whole number", "category": "list", "date": "date"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnView:
    """One column that can be asked about.

    Attributes
    ----------
    name : str
        As declared.
    written : str
        As a question writes it.
    type, range, description : str
        For people.
    levels : tuple of str
        Values of a list, as a question writes them.
    is_number : bool
        Whether it can be summed, and needs cells to be grouped by.
    """

    name: str
    written: str
    type: str
    range: str
    description: str
    levels: tuple[str, ...]
    is_number: bool


def column_views(schema: Schema) -> list[ColumnView]:
    """Return the columns that can be asked about, in the order of the schema."""
    return [_view(column) for column in schema.columns if column.leaves]


def examples(columns: list[ColumnView]) -> dict[str, str]:
    """Return what empty fields suggest, in names of this table."""
    numbers = [column.written for column in columns if column.is_number]
    lists = [column for column in columns if column.levels]
    number = numbers[0] if numbers else "1"
    where = f"{lists[0].written} = {lists[0].levels[0]}" if lists else f"{number} > 0"
    sql = f"SELECT COUNT(*) FROM t WHERE {where}"  # noqa: S608 - a text to show, run by nobody
    return {"of": number, "where": where, "sql": sql}


def _view(column: Column) -> ColumnView:
    return ColumnView(
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
    """Say what cells may hold."""
    gaps = "" if column.required else "; may be missing"
    if column.is_category:
        declared = len(column.values or ())
        levels = sum(level is not None for level in column.levels)
        other = ", or other" if levels > declared else ""
        return f"one of {formatting.count_noun(declared, 'value')}{other}{gaps}"
    unit = f" {formatting.printable(column.measure)}" if column.measure else ""
    if column.type == "date":
        unit += "; averages count days since the first"
    return f"{_end(column.lower)} to {_end(column.upper)}{unit}{gaps}"


def _end(value: object) -> str:
    return formatting.number(value) if isinstance(value, int | float) else str(value)
