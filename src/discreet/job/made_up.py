"""Rows about nobody, from what was declared alone, for those who plan before a cell is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.job.questions import Question
from discreet.noise import uniform_integers

if TYPE_CHECKING:
    from discreet._typing import AnyArray, Floats
    from discreet.noise import Stream
    from discreet.schema import Column, Schema

MOST_IN_RULE = 5
ONE_IN = 10
"""One in so many cells that may be missing is missing, and one in so many answers is drawn at random."""
RULE = (
    "Rows drawn from the schema: every column uniform on what was declared, independent of the others, and "
    f"one number in {ONE_IN} missing where it may be. The target follows a planted rule: the mean of the "
    f"first {MOST_IN_RULE} protected columns (a number by its place in its range, a list by its place in its "
    "levels) is ranked over the rows, and the rank gives the class or the number; one answer in "
    f"{ONE_IN} is random."
)
"""What the rows are, for whoever reads an accuracy that was measured on them."""


def made_up_rows(schema: Schema, n: int, stream: Stream) -> dict[str, AnyArray]:
    """Draw rows from the schema alone, with a rule that a model can find.

    Parameters
    ----------
    schema : Schema
        What was declared.
    n : int
        How many rows.
    stream : Stream
        Where the random words come from.

    Returns
    -------
    dict of str to array
        Encoded rows; see :data:`RULE`.

    Privacy
    -------
    Nothing is read: the rows are about nobody, and accuracy on them says how noise and learning go
    together, not how well the true table can be learned from.
    """
    rows = {c.name: _cells(c, _uniform(n, stream), stream) for c in schema.released}
    if schema.target is not None:
        column = schema.column(schema.target)
        protected = [c for c in schema.features if c.role == "sensitive"] or list(schema.features)
        if protected:
            places = np.column_stack([_place(c, rows[c.name]) for c in protected[:MOST_IN_RULE]])
            rank = np.empty(n)
            rank[np.argsort(places.mean(axis=1), kind="stable")] = (np.arange(n) + 0.5) / n
            random = uniform_integers(ONE_IN, n, stream) == 0
            rank[random] = _uniform(n, stream)[random]
            rows[column.name] = _answers(column, rank)
    return rows


def _uniform(n: int, stream: Stream) -> Floats:
    return np.asarray((stream.words(n) >> np.uint64(11)) * 2.0**-53)


def _cells(column: Column, share: Floats, stream: Stream) -> AnyArray:
    """Return the cell at each share of what was declared."""
    if column.is_category:
        return np.asarray(np.floor(share * len(column.levels)).astype(np.int32))
    lower, upper = column.range
    if column.type == "number":
        values = lower + share * (upper - lower)
    else:
        values = lower + np.floor(share * column.n_integers)
    if not column.required:
        values[uniform_integers(ONE_IN, len(share), stream) == 0] = np.nan
    return np.asarray(values)


def _place(column: Column, values: AnyArray) -> Floats:
    """Return where each cell stands in what was declared, 0 to 1; a missing one in the middle."""
    if column.is_category:
        return np.asarray(values / max(1, len(column.levels) - 1))
    return np.nan_to_num((values - column.range[0]) / column.width, nan=0.5)


def _answers(column: Column, rank: Floats) -> AnyArray:
    n_classes = Question.of(column).n_classes
    if n_classes:
        return np.asarray(np.floor(rank * n_classes).astype(np.int32))
    values = column.range[0] + rank * column.width
    return np.asarray(values if column.type == "number" else np.rint(values))
