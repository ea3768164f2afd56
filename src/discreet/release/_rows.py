"""Rows of a release in memory: reading tables and bare matrices, and drawing all batches."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from discreet.errors import DataError, ParameterError
from discreet.query.unit_rows import limited_batches
from discreet.schema import Column, Schema
from discreet.tables.table import ROWS

if TYPE_CHECKING:
    from discreet._types import AnyArray, Bools, Ints, Words
    from discreet.release.keystream import BatchStreams
    from discreet.release.publication import Encoded, ReleasePlan
    from discreet.tables import Table


def read_limited(table: Table, schema: Schema, salt: str) -> tuple[Encoded, Bools | None]:
    """Return all rows of a table, encoded, and a mask of the rows used.

    Parameters
    ----------
    table : Table
        Open table, read by the names of the schema.
    schema : Schema
        Declaration of the columns and of the rows that one unit may have.
    salt : str
        Salt that decides which rows are kept of a unit that has too many.

    Returns
    -------
    rows : dict of str to array
        Encoded columns; empty for a table without rows.
    kept : array of bool or None
        Whether each row is used; None where every row is a unit.
    """
    parts = list(limited_batches(table, schema, salt))
    if not parts:
        return {}, None
    rows = {c.name: np.concatenate([batch[c.name] for batch, _ in parts]) for c in schema.released}
    masks = [kept for _, kept in parts if kept is not None]
    return rows, np.concatenate(masks) if masks else None


def draw_in_memory(
    plan: ReleasePlan, rows: Encoded, kept: Bools | None, streams: BatchStreams
) -> tuple[dict[str, AnyArray], Words]:
    """Return the columns that ``publish`` would draw, and a random word for each row to sort by."""
    if not plan.is_row_wise:
        rows = rows if kept is None else {name: values[kept] for name, values in rows.items()}
        noise, order = streams.whole(rows)
        columns = plan.draw(rows, noise)
        return columns, order.words(count_rows(columns))
    columns, words = {}, np.empty(0, np.uint64)
    done, total = 0, count_rows(rows) if kept is None else int(kept.sum())
    # Cut and numbered like the batches of a file, so that both have the same noise.
    for number, start in enumerate(range(0, count_rows(rows), ROWS)):
        place: slice | Ints = slice(start, start + ROWS)
        if kept is not None:
            place = start + np.flatnonzero(kept[place])
        batch = {name: values[place] for name, values in rows.items()}
        noise, order = streams.batch(batch, part=0, batch=number)
        drawn = plan.draw(batch, noise)
        if not columns:
            columns = {name: np.empty(total, values.dtype) for name, values in drawn.items()}
            words = np.empty(total, np.uint64)
        # Copied batch by batch: concatenating all of them at the end takes twice as long.
        end = done + count_rows(drawn)
        for name, values in drawn.items():
            columns[name][done:end] = values
        words[done:end] = order.words(end - done)
        done = end
    return columns, words


def count_rows(columns: Encoded) -> int:
    """Return the number of rows of encoded columns."""
    return len(next(iter(columns.values())))


def is_matrix(X: Any) -> bool:
    """Return whether a table is given as an array or a list of rows."""
    return isinstance(X, np.ndarray | list)


def frame_library(X: Any) -> Literal["pandas", "polars"] | None:
    """Return the library of a data frame; None for other rows. No library is imported for it."""
    for name in ("pandas", "polars"):
        library = sys.modules.get(name)
        if library is not None and isinstance(X, library.DataFrame):
            return name
    return None


def read_bare_matrix(X: Any, y: AnyArray | None, bounds: Any) -> tuple[Schema, Encoded, None]:
    """Return schema and rows of a matrix with declared bounds, and labels -1 and 1 if there are any.

    Columns are called x1, x2, and so on, and the labels y. No row is left out: the mask is None.
    """
    matrix = np.asarray(X, np.float64)
    if matrix.ndim != 2:
        raise ParameterError(f"X must be a matrix of rows when bounds are given, had shape {matrix.shape}.")
    try:
        lower, upper = (np.broadcast_to(np.asarray(b, float), matrix.shape[1]) for b in bounds)
    except (TypeError, ValueError):
        raise ParameterError(
            f"bounds must be a pair of numbers or of vectors of length {matrix.shape[1]}. "
            "Write bounds=(0, 1), or one lower and one upper bound for each column."
        ) from None
    columns = [
        Column(f"x{j + 1}", lower=float(low), upper=float(high))
        for j, (low, high) in enumerate(zip(lower, upper, strict=True))
    ]
    if y is None:
        return (*read_matrix(matrix, None, Schema(columns=columns)), None)
    # Two classes under their usual names are the one list that can be known without a declaration.
    if not np.isin(y, (-1, 1)).all():
        raise DataError(
            "y must hold -1 and 1 alone when bounds are given. Give schema= with a target that lists its "
            "classes."
        )
    schema = Schema(columns=[*columns, Column("y", values=(-1, 1), role="target")])
    return (*read_matrix(matrix, y, schema), None)


def read_matrix(X: AnyArray, y: AnyArray | None, schema: Schema) -> tuple[Schema, Encoded]:
    """Return schema and rows of a matrix of numeric features, clipped; without y the target is dropped."""
    if not len(X):
        raise DataError("X must have at least one row.")
    if len(schema.features) != len(schema.numeric_features):
        raise ParameterError(
            "X must be a frame or a mapping of names to arrays when the schema has categories: "
            "a matrix holds numeric features alone."
        )
    clipped = schema.clip(X)
    rows: dict[str, AnyArray] = {c.name: clipped[:, j] for j, c in enumerate(schema.numeric_features)}
    for j, column in enumerate(schema.numeric_features):
        if column.required and np.isnan(clipped[:, j]).any():
            raise DataError(
                f"Column {column.name!r} is declared required and has missing cells. "
                "Declare required=False, and missing becomes a level of its own.",
                column=column.name,
            )
    if y is None:
        if schema.target is not None:
            schema = dataclasses.replace(
                schema, target=None, columns=[c for c in schema.columns if c.role != "target"]
            )
        return schema, rows
    if schema.target is None:
        raise ParameterError("y was given, and the schema declares no target. Write target= in the schema.")
    rows[schema.target] = _encode_target(np.asarray(y), schema.column(schema.target), len(X))
    return schema, rows


def _encode_target(y: AnyArray, column: Column, n_rows: int) -> AnyArray:
    """Return labels as positions in the levels of their column, or clipped numbers."""
    if y.shape != (n_rows,):
        raise ParameterError(f"y must have one entry for each of the {n_rows} rows, had shape {y.shape}.")
    if not column.is_category:
        return column.clip(y)
    codes = np.full(n_rows, -1, np.int32)
    for code, level in enumerate(column.levels):
        codes[y == level] = code
    if (codes < 0).any():
        raise DataError(
            f"y must hold the declared values of {column.name!r} alone. Declare every class in its list.",
            column=column.name,
        )
    return codes
