"""Every declared cell is looked at once, so that a bad one is named before anything is paid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.schema import Schema

READABLE = "every cell can be read as declared, and counts as its bound where it is outside"
"""What is known then. Numbers outside their bounds are no error: bounds are never widened for a row."""


def look_at_cells(source: Any, schema: Schema, seen: Callable[[int], object] = lambda rows: None) -> int:
    """Read all cells of a table; return the number of rows. ``seen`` hears how many are done."""
    n_rows = 0
    with open_table(source) as table:
        for batch in table.batches(schema, ids=schema.id_column is not None):
            n_rows += batch.n_rows
            seen(n_rows)
    return n_rows
