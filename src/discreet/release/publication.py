"""How a released table looks in a file, and how to read it back without touching a cell."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from discreet.schema import Schema, unclipped_column
from discreet.tables import Field

if TYPE_CHECKING:
    from discreet._types import AnyArray
    from discreet.schema import Column, Level


def published_fields(schema: Schema) -> tuple[Field, ...]:
    """Return how the released columns look in a file: noised integers and dates are plain numbers."""
    return tuple(
        Field.of(c) if c.is_category or c.role == "public" else Field(c.name) for c in schema.released
    )


def published_schema(schema: Schema) -> Schema:
    """Return the schema under which a released file is read back, cell for cell.

    Noised numbers have no bounds worth the name, every list is closed, and nothing else is in the file.
    Codes of lists are positions in the levels of the original column.
    """
    columns = [_as_published(c) for c in schema.released]
    return Schema(columns=columns, target=schema.target, dataset=schema.dataset, unit=schema.unit)


def _as_published(column: Column) -> Column:
    if column.role == "public" and column.is_number:
        return column
    if column.is_number:
        return unclipped_column(column.name, role=column.role, required=column.required)
    plain: tuple[Level, ...] = tuple(level for level in column.levels if level is not None)
    return dataclasses.replace(column, values=plain, closed=True)


def in_words(column: Column, values: AnyArray) -> AnyArray:
    """Return encoded cells as they stand in a published file."""
    if column.is_category:
        levels = np.empty(len(column.levels), object)
        levels[:] = column.levels
        words = levels[values]
        return words if None in column.levels else words.astype(np.array(column.levels).dtype)
    if column.type == "date" and column.role == "public":
        return column.dates(values)
    return values
