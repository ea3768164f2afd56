"""Cells of a published file exactly as written, for checks and attacks, which load no statistics for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.schema import Column, Schema, unclipped_column
from discreet.schema.column import unbounded_calendar
from discreet.tables import Table
from discreet.tables.files import ParquetSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from discreet._types import AnyArray

ATTACKED_ROWS = 20_000
"""Number of rows, the first of the file, that the public attacks use."""


def published_batches(path: Path, schema: Schema, *, typed: bool = False) -> Iterator[dict[str, AnyArray]]:
    """Yield the batches of a published file exactly as written: no cell is clipped or replaced.

    Parameters
    ----------
    path : Path
        Published Parquet file that is read.
    schema : Schema
        Schema of the published table, as a plan has it.
    typed : bool
        Whether all columns have their declared types, as ``ReleasePlan.typed`` says.

    Yields
    ------
    dict of str to array
        Columns of a batch by name: numbers, codes of levels, steps since the declared lower bound.
    """
    wide = Schema(columns=[_unbounded_column(column, typed) for column in schema.plain.released])
    shifts = {
        column.name: float(wide.column(column.name).count_steps(np.array([column.lower], "M8[us]"))[0])
        for column in schema.released
        if _holds_moments(column, typed)
    }
    with Table(ParquetSource(path)) as table:
        for batch in table.batches(wide):
            yield {
                name: values - shifts[name] if name in shifts else values for name, values in batch.items()
            }


def _holds_moments(column: Column, typed: bool) -> bool:
    """Return whether a published column holds dates or datetimes, and not steps as plain numbers."""
    return column.is_calendar and (typed or column.role == "public")


def _unbounded_column(column: Column, typed: bool) -> Column:
    """Return a column under which any cell can be read, also those out of bounds."""
    if column.is_category:
        plain = tuple(level for level in column.levels if level is not None)
        return Column(column.name, values=plain, closed=True, required=False)
    if _holds_moments(column, typed):
        return unbounded_calendar(column.name, column.step, required=column.required)
    return unclipped_column(column.name, required=column.required)
