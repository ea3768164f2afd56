"""Rows about nobody for analysts: to try a question on before it is paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.job.made_up import made_up_rows
from discreet.noise import Stream

if TYPE_CHECKING:
    from discreet._typing import AnyArray
    from discreet.schema import Column, Schema

WATERMARK = "_dummy"
"""A column that is true in every row, so that nobody takes the rows for true ones."""
MAX_DUMMY_ROWS = 100_000


def dummy_rows(schema: Schema, n: int, seed: int) -> dict[str, list[Any]]:
    """Draw rows from the schema alone.

    Parameters
    ----------
    schema : Schema
        What was declared.
    n : int
        How many rows, 1 to :data:`MAX_DUMMY_ROWS`.
    seed : int
        The same seed gives the same rows.

    Returns
    -------
    dict of str to list
        The columns that may be asked about, with values as JSON and text files hold them (a date as
        ``"2024-01-31"``, a missing cell as None), and the column :data:`WATERMARK`.

    Privacy
    -------
    Nothing is read: every column is uniform on what was declared, whatever the true rows hold.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=9)])
    >>> rows = dummy_rows(schema, 3, seed=1)
    >>> list(rows), rows["_dummy"], all(0 <= age <= 9 for age in rows["age"])
    (['age', '_dummy'], [True, True, True], True)
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_DUMMY_ROWS:
        raise ParameterError(f"n of dummy_rows must be a whole number from 1 to {MAX_DUMMY_ROWS}, was {n!r}.")
    if WATERMARK in schema.names:
        raise ParameterError(
            f"schema of dummy_rows must not declare a column {WATERMARK!r}, by which made-up rows are told "
            "from true ones, and does. Rename the column."
        )
    encoded = made_up_rows(schema, n, Stream.from_seed(seed))
    rows = {column.name: _decoded(column, encoded[column.name]) for column in schema.released}
    return {**rows, WATERMARK: [True] * n}


def _decoded(column: Column, values: AnyArray) -> list[Any]:
    """Return cells as a file holds them."""
    if column.is_category:
        return [column.levels[code] for code in values.tolist()]
    if column.type == "date":
        days = np.datetime_as_string(column.dates(values))
        return [None if day == "NaT" else str(day) for day in days]
    whole = column.type == "integer"
    return [None if cell != cell else round(cell) if whole else cell for cell in values.tolist()]
