"""Another table with exactly the same sums, squares and products.

Least squares, ridge regression for every penalty and principal components read a table through
``[1 X y]'[1 X y]`` alone. The rows that have this matrix are, up to what is fixed, the rotations of one
another; this draws one at random. A true row then enters the released ones only through those aggregates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.noise import standard_normal
from discreet.release.invariant.noise import orthonormal_basis

if TYPE_CHECKING:
    from discreet._typing import Floats
    from discreet.noise import Stream


def draw_same_gram(X: Floats, fixed: Floats, stream: Stream) -> Floats:
    """Return random rows ``Z`` with ``[fixed Z]'[fixed Z] = [fixed X]'[fixed X]``.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        What is replaced.
    fixed : array of shape (n_rows, n_fixed)
        What is published as it is: ones, the target, public columns. Together with ``X`` it must have fewer
        columns than there are rows.
    stream : Stream
        Where the random words come from.

    Returns
    -------
    array of shape (n_rows, n_columns)

    Privacy
    -------
    No epsilon. All sums, squares and products are published exactly; whoever knows all rows but one computes
    that one from the sums.

    Reference
    ---------
    docs/explanation/theorems/fisher-invariant.md
    """
    basis = orthonormal_basis(fixed)
    explained, rest = _split(X, basis)
    _, shape = _positive_qr(rest)
    # Twice: what rounding leaves of the fixed columns after one projection is gone after the second.
    _, free = _split(_split(standard_normal(X.shape, stream), basis)[1], basis)
    rotation, _ = _positive_qr(free)
    return np.asarray(explained + rotation @ shape)


def _split(matrix: Floats, basis: Floats) -> tuple[Floats, Floats]:
    """Return the part of each column that ``basis`` explains, and the rest."""
    explained = basis @ (basis.T @ matrix)
    return explained, matrix - explained


def _positive_qr(matrix: Floats) -> tuple[Floats, Floats]:
    """Factor with a nonnegative diagonal, so that normal columns give a uniformly random basis."""
    left, right = np.linalg.qr(matrix)
    signs = np.where(np.diag(right) < 0, -1.0, 1.0)
    return left * signs, right * signs[:, None]
