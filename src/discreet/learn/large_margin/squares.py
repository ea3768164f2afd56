"""Symmetric matrices as vectors, and rows as the symmetric matrices ``x x'``.

Frobenius coordinates of a symmetric matrix are its upper triangle, row by row, with everything off the
diagonal times ``sqrt(2)``: lengths and inner products are those of the matrices.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._typing import Floats

CHUNK = 1 << 11
"""Rows that are added up at once: the rounding error of a sum grows with them."""
_KEPT_BYTES = 1 << 30
"""Coordinates of all rows are kept up to this size, and made again at every pass beyond it."""
_ROOT = math.sqrt(2)


def n_coordinates(p: int) -> int:
    """Return the dimension of symmetric ``p`` by ``p`` matrices."""
    return p * (p + 1) // 2


def to_matrices(coordinates: Floats, p: int) -> Floats:
    """Return the matrices, shape (..., p, p), of vectors of Frobenius coordinates."""
    out = np.empty((*coordinates.shape[:-1], p, p))
    i, j = np.triu_indices(p)
    values = coordinates * np.where(i == j, 1.0, 1 / _ROOT)
    out[..., i, j] = values
    out[..., j, i] = values
    return out


def to_coordinates(matrices: Floats) -> Floats:
    """Return the Frobenius coordinates of symmetric matrices, shape (..., p, p)."""
    i, j = np.triu_indices(matrices.shape[-1])
    return np.asarray(matrices[..., i, j] * np.where(i == j, 1.0, _ROOT))


def squares_of(rows: Floats) -> Floats:
    """Return the coordinates of ``x x'`` for each row ``x``: of norm ``|x|**2``."""
    p = rows.shape[1]
    out = np.empty((len(rows), n_coordinates(p)))
    longer = rows * _ROOT
    at = 0
    for i in range(p):
        np.multiply(rows[:, i], rows[:, i], out=out[:, at])
        np.multiply(longer[:, i : i + 1], rows[:, i + 1 :], out=out[:, at + 1 : at + p - i])
        at += p - i
    return out


class Squares:
    """The coordinates of ``x x'`` for all rows, by blocks of :data:`CHUNK`.

    Memory is that of the rows and at most a gigabyte besides; with ``keep=False``, for one pass, of a block.
    """

    def __init__(self, rows: Floats, *, keep: bool = True) -> None:
        self.rows = rows
        n, p = rows.shape
        self.dimension = n_coordinates(p)
        keep = keep and n * self.dimension * 8 <= _KEPT_BYTES
        self._kept = np.empty((n, self.dimension)) if keep else None
        if self._kept is not None:
            for block in self._slices():
                self._kept[block] = squares_of(rows[block])

    def __iter__(self) -> Iterator[tuple[slice, Floats]]:
        for block in self._slices():
            yield block, squares_of(self.rows[block]) if self._kept is None else self._kept[block]

    def _slices(self) -> Iterator[slice]:
        for start in range(0, len(self.rows), CHUNK):
            yield slice(start, start + CHUNK)
