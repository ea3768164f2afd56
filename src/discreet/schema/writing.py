"""Values to documents: the plain content of a schema file."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.schema.column import Column
    from discreet.schema.table import Schema


def document(schema: Schema) -> dict[str, Any]:
    """Return the content of the file that declares this table."""
    return _given(
        {
            "title": schema.title,
            "description": schema.description,
            "privacy": _given(
                {
                    "kind": schema.kind,
                    "dataset": schema.dataset,
                    "unit": schema.unit,
                    "id_column": schema.id_column,
                    "max_rows_per_unit": schema.max_rows_per_unit,
                    "neighbors": schema.neighbors,
                    "row_count": schema.row_count,
                }
            ),
            "missingValues": list(schema.missing_values),
            "primaryKey": list(schema.primary_key) or None,
            "fields": [field_document(column) for column in schema.columns],
        }
    )


def field_document(column: Column) -> dict[str, Any]:
    """Return the field that declares this column."""
    values = None if column.values is None else list(column.values)
    return _given(
        {
            "name": column.name,
            "type": _frictionless_type(column),
            "title": column.title,
            "description": column.description,
            "constraints": _given(
                {
                    "minimum": _plain(column.lower),
                    "maximum": _plain(column.upper),
                    # Frictionless has no list for booleans: false and true, in that order.
                    "enum": None if values == [False, True] and values[0] is False else values,
                    "required": column.required,
                }
            ),
            "privacy": _given(
                {
                    "role": column.role,
                    "closed": column.closed,
                    "measure": column.measure,
                    "protect": _given(asdict(column.protect)) if column.protect else None,
                    "bounds_source": column.bounds_source,
                    "grid": _plain(column.grid),
                }
            ),
        }
    )


def _frictionless_type(column: Column) -> str:
    if column.is_category:
        kinds = {bool: "boolean", int: "integer", str: "string"}
        return kinds[type(column.values[0])] if column.values else "string"
    return {"id": "any", "text": "string"}.get(str(column.type), str(column.type))


def _given(pairs: dict[str, Any]) -> dict[str, Any]:
    """Leave out what was not declared."""
    return {key: value for key, value in pairs.items() if value is not None}


def _plain(value: object) -> object:
    """Write 120.0 as 120 and a date as text; equal numbers are written alike."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
