"""Rows drawn from the schema alone: to try a query on before it is paid for, and to plan a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.noise import Stream, uniform_integers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.query.frames import Frame
    from discreet.schema import Column, Schema

MOST_IN_RULE = 5
ONE_IN = 10
"""One cell in this many is missing where it may be, and one target value in this many is random."""


def rows_from_schema(schema: Schema, n: int, stream: Stream) -> dict[str, AnyArray]:
    """Draw encoded rows from the schema alone, with a rule for the target that a model can learn.

    Parameters
    ----------
    schema : Schema
        Declared columns, with their bounds or levels.
    n : int
        Number of rows to draw.
    stream : Stream
        Source of the random words.

    Returns
    -------
    dict of str to array
        Encoded released columns.

    Notes
    -----
    Every column is uniform on what was declared, independent of the others, and one number in
    :data:`ONE_IN` is missing where it may be. The mean place of the first :data:`MOST_IN_RULE` protected
    columns in their range or list is ranked over the rows, and the rank gives the target; one in
    :data:`ONE_IN` is random.

    Privacy
    -------
    No row is read. Accuracy on these rows says nothing about the true table.
    """
    rows = {
        c.name: remove_cells(c, cells_at_shares(c, uniform_shares(n, stream)), stream)
        for c in schema.released
    }
    if schema.target is not None:
        column = schema.column(schema.target)
        protected = [c for c in schema.features if c.role == "sensitive"] or list(schema.features)
        if protected:
            places = np.column_stack([_place(c, rows[c.name]) for c in protected[:MOST_IN_RULE]])
            rank = np.empty(n)
            rank[np.argsort(places.mean(axis=1), kind="stable")] = (np.arange(n) + 0.5) / n
            random = uniform_integers(ONE_IN, n, stream) == 0
            rank[random] = uniform_shares(n, stream)[random]
            rows[column.name] = _answers(column, rank)
    return rows


def uniform_shares(n: int, stream: Stream) -> Floats:
    """Return n numbers that are uniform on [0, 1)."""
    return np.asarray((stream.words(n) >> np.uint64(11)) * 2.0**-53)


def cells_at_shares(column: Column, share: Floats) -> AnyArray:
    """Return the encoded cells at shares in [0, 1) of the declared range or levels."""
    if column.is_category:
        return np.asarray(np.floor(share * len(column.levels)).astype(np.int32))
    lower, upper = column.range
    if column.type == "number":
        return np.asarray(lower + share * (upper - lower))
    return np.asarray(lower + np.floor(share * column.n_integers))


def remove_cells(column: Column, values: AnyArray, stream: Stream) -> AnyArray:
    """Return the cells with one number in :data:`ONE_IN` missing where it may be."""
    if column.is_number and not column.required:
        values[uniform_integers(ONE_IN, len(values), stream) == 0] = np.nan
    return values


def _place(column: Column, values: AnyArray) -> Floats:
    """Return the position of each cell in the declared range or levels, 0 to 1; missing cells at 0.5."""
    if column.is_category:
        return np.asarray(values / max(1, len(column.levels) - 1))
    return np.nan_to_num((values - column.range[0]) / column.width, nan=0.5)


def _answers(column: Column, rank: Floats) -> AnyArray:
    """Return encoded target values at ranks in (0, 1): classes of equal size, or numbers of the range."""
    n_classes = sum(level is not None for level in column.levels) if column.is_category else 0
    if n_classes:
        return np.asarray(np.floor(rank * n_classes).astype(np.int32))
    values = column.range[0] + rank * column.width
    return np.asarray(values if column.type == "number" else np.rint(values))


WATERMARK = "_dummy"
"""Name of the column that is true in every row and marks the rows as made up."""
MAX_DUMMY_ROWS = 100_000
"""Largest number of rows of one call."""


def dummy_rows(schema: Schema, n: int, seed: int) -> dict[str, list[Any]]:
    """Draw rows from the schema alone, with values as files hold them.

    Parameters
    ----------
    schema : Schema
        Declared columns, with their bounds or levels.
    n : int
        Number of rows, 1 to :data:`MAX_DUMMY_ROWS`.
    seed : int
        Seed of the draw; the same rows for the same seed.

    Returns
    -------
    dict of str to list
        The released columns, with values as JSON and text files hold them (a date as
        ``"2024-01-31"``, a missing cell as None), and the column :data:`WATERMARK`.

    Privacy
    -------
    No row is read: every column is uniform on what was declared, whatever the true rows hold.

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
            f"schema of dummy_rows must not declare a column {WATERMARK!r}, which marks made-up rows, and "
            "does. Rename the column."
        )
    encoded = rows_from_schema(schema, n, Stream.from_seed(seed))
    rows = {column.name: _decode(column, encoded[column.name]) for column in schema.released}
    return {**rows, WATERMARK: [True] * n}


def dummy_frame(schema: Schema, rows: Mapping[str, Sequence[Any]]) -> Frame:
    """Return dummy rows as a frame, with dates and datetimes in place of their texts."""
    from discreet.query.frames import Frame  # loaded here, since it is for notebooks

    kinds = {column.name: type(column.lower) for column in schema.columns if column.is_calendar}
    return Frame({name: _to_moments(cells, kinds.get(name)) for name, cells in rows.items()})


def _to_moments(cells: Sequence[Any], kind: Any) -> Sequence[Any]:
    """Return ISO texts as dates or datetimes, and everything else as it is."""
    if kind is None:
        return cells
    moments: list[Any] = []
    for cell in cells:
        try:
            moments.append(kind.fromisoformat(cell))
        except (TypeError, ValueError):
            moments.append(cell)
    return moments


def _decode(column: Column, values: AnyArray) -> list[Any]:
    """Return encoded cells as a file holds them, None where they are missing."""
    if column.is_category:
        return [column.levels[code] for code in values.tolist()]
    if column.is_calendar:
        moments = np.datetime_as_string(column.moments(values))
        return [None if moment == "NaT" else str(moment) for moment in moments]
    whole = column.type == "integer"
    return [None if cell != cell else round(cell) if whole else cell for cell in values.tolist()]
