"""Made-up rows with declared relations, on which ways to publish a table are compared before it is read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.query.dummy import ONE_IN, cells_at_shares, remove_cells, uniform_shares

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats
    from discreet.noise import Stream
    from discreet.schema import Column, Schema

CORRELATION = 0.3
"""Correlation of any two features on the normal scale."""
MADE_UP = (
    "made-up rows, not yours: half of the cells are in the lowest quarter of their declared range or list, "
    f"any two columns are correlated by {CORRELATION:g} on the normal scale, and one number in {ONE_IN} is "
    "missing where it may be"
)
"""Description of the rows, printed beside everything that was measured on them."""


def related_rows(schema: Schema, n: int, stream: Stream, *, explained: float) -> dict[str, AnyArray]:
    """Draw encoded rows from the schema alone, with columns that go together and explain the target.

    Parameters
    ----------
    schema : Schema
        Declared columns, with their bounds or levels.
    n : int
        Number of rows to draw.
    stream : Stream
        Source of the random words.
    explained : float
        Share of the target's variance that the features explain on the normal scale, from 0 to 1.

    Returns
    -------
    dict of str to array
        Encoded released columns.

    Notes
    -----
    With ``z`` a hidden factor of the row, ``e_j`` and ``u`` independent of it and all standard normal, a
    feature is ``x_j = sqrt(r) z + sqrt(1 - r) e_j`` with the correlation ``r``, and the target is
    ``sqrt(R) s + sqrt(1 - R) u`` with ``s`` the sum of all features divided by its standard deviation and
    ``R`` the explained share. A cell stands at the square of the normal distribution function of its number,
    as a share of its declared range or list: half of all cells are in the lowest quarter, as in most tables
    there are more small numbers than large ones. On cells that are uniform, the middle would be the right
    guess of a mean, and methods that say nothing would look good.

    Privacy
    -------
    No row is read.
    """
    factor = math.sqrt(CORRELATION) * _normal(n, stream)
    features = [c for c in schema.released if c.name != schema.target]
    rows, total = {}, np.zeros(n)
    for column in features:
        place = factor + math.sqrt(1 - CORRELATION) * _normal(n, stream)
        total += place
        rows[column.name] = remove_cells(column, cells_at_shares(column, _shares(place)), stream)
    if schema.target is not None:
        k = max(1, len(features))
        signal = total / math.sqrt(k + k * (k - 1) * CORRELATION)
        place = math.sqrt(explained) * signal + math.sqrt(1 - explained) * _normal(n, stream)
        rows[schema.target] = _target_cells(schema.column(schema.target), place)
    return {column.name: rows[column.name] for column in schema.released}


def _normal(n: int, stream: Stream) -> Floats:
    """Return standard normal numbers by their quantiles: exact noise is for what is protected."""
    # Half a step of the doubles above 0, where the quantile is infinite.
    return np.asarray(special.ndtri(uniform_shares(n, stream) + 2.0**-54))


def _shares(place: Floats) -> Floats:
    """Return the place of cells in their range or list, from 0 to below 1."""
    return np.asarray(np.minimum(special.ndtr(place) ** 2, 1 - 2.0**-53))


def _target_cells(column: Column, place: Floats) -> AnyArray:
    """Return the encoded cells of the target, none of them missing."""
    classes = sum(level is not None for level in column.levels) if column.is_category else 0
    if not classes:
        return cells_at_shares(column, _shares(place))
    return np.asarray(np.floor(_shares(place) * classes).astype(np.int32))
