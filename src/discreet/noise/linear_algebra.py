"""Small linear algebra whose bits are the same on every processor: no BLAS and no LAPACK.

An optimized BLAS adds the terms of a product in an order that depends on the processor, so that its last
bits do too; the replay of a release under its key must give the same bits. These routines use additions,
multiplications and roots of IEEE 754 alone, in a fixed order; they are for matrices with few columns.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from discreet._types import Floats

#: Relative size below which an off-diagonal entry counts as 0.
_NEGLIGIBLE = 2.0**-56
#: Sweeps of rotations at most; convergence is quadratic and takes about ten.
_MOST_SWEEPS = 60


def product(left: Floats, right: Floats) -> Floats:
    """Return ``left @ right`` of two matrices, or of a matrix and a vector on either side."""
    if left.ndim == 1:
        return np.asarray(np.einsum("j,jk->k", left, right))
    return np.asarray(np.einsum("ij,j->i" if right.ndim == 1 else "ij,jk->ik", left, right))


def round_to_bits(values: Floats, bits: int) -> Floats:
    """Return numbers rounded to so many bits of the largest, so that what all processors compute agrees.

    The last digits of a result depend on the order in which a processor adds; what follows must not.
    """
    largest = float(np.max(np.abs(values), initial=0.0))
    grid = math.ldexp(1.0, math.frexp(largest)[1] - bits)
    return np.asarray(np.rint(values / grid) * grid)


def norm(values: Floats) -> float:
    """Return the square root of the sum of squares of all entries."""
    flat = np.asarray(values, np.float64).reshape(-1)
    return math.sqrt(float(np.sum(flat * flat)))


def symmetric_eigen(matrix: Floats) -> tuple[Floats, Floats]:
    """Return the eigenvalues of a symmetric matrix, smallest first, and the eigenvectors in columns.

    Notes
    -----
    Cyclic Jacobi rotations, until every off-diagonal entry is below 2**-56 of the geometric mean of its two
    diagonal entries (or of the largest entry, where one of them is 0): of a positive definite matrix, small
    eigenvalues come out as exactly as large ones.
    """
    a = (matrix + matrix.T) / 2
    size = len(a)
    vectors = np.eye(size)
    smallest = _NEGLIGIBLE**2 * float(np.max(np.abs(a), initial=0.0))
    for _ in range(_MOST_SWEEPS):
        rotated = False
        for p in range(size - 1):
            for q in range(p + 1, size):
                off, first, second = float(a[p, q]), float(a[p, p]), float(a[q, q])
                if abs(off) <= max(_NEGLIGIBLE * math.sqrt(abs(first)) * math.sqrt(abs(second)), smallest):
                    continue
                rotated = True
                tangent = _jacobi_tangent((second - first) / (2 * off))
                _rotate(a.T, p, q, tangent)
                _rotate(a, p, q, tangent)
                _rotate(vectors.T, p, q, tangent)
                # What the rotation makes of these four entries is known, without its rounding errors.
                a[p, q] = a[q, p] = 0.0
                a[p, p], a[q, q] = first - tangent * off, second + tangent * off
        if not rotated:
            break
    order = np.argsort(np.diagonal(a), kind="stable")
    return np.diagonal(a)[order].copy(), vectors[:, order]


def row_space(matrix: Floats, negligible: float) -> Floats:
    """Return an orthonormal basis, in rows, of the row space of a matrix.

    Directions whose singular value is at most ``negligible`` times the largest are left out.

    Notes
    -----
    One-sided Jacobi rotations make the rows orthogonal to each other; the longest come first.
    """
    rows = np.array(matrix, np.float64)
    for _ in range(_MOST_SWEEPS):
        rotated = False
        for p in range(len(rows) - 1):
            for q in range(p + 1, len(rows)):
                first, second = float(np.sum(rows[p] ** 2)), float(np.sum(rows[q] ** 2))
                inner_product = float(np.sum(rows[p] * rows[q]))
                if abs(inner_product) <= 2.0**-50 * math.sqrt(first) * math.sqrt(second):
                    continue
                rotated = True
                _rotate(rows, p, q, _jacobi_tangent((second - first) / (2 * inner_product)))
        if not rotated:
            break
    sizes = np.array([norm(row) for row in rows])
    order = [i for i in np.argsort(-sizes, kind="stable") if sizes[i] > negligible * sizes.max()]
    return rows[order] / sizes[order][:, np.newaxis]


def least_squares(symmetric: Floats, sides: Floats) -> Floats:
    """Return the shortest solution of ``symmetric @ x = sides`` for a positive semidefinite matrix."""
    values, vectors = symmetric_eigen(symmetric)
    # Smaller eigenvalues are rounding errors; leaving their directions out makes the solution the shortest.
    kept = values > len(values) * 2.0**-52 * float(np.max(values, initial=0.0))
    basis = vectors[:, kept]
    inner = product(basis.T, sides)
    inner /= values[kept] if sides.ndim == 1 else values[kept][:, np.newaxis]
    return product(basis, inner)


def _jacobi_tangent(ratio: float) -> float:
    """Return the tangent t of the smaller Jacobi angle: the root of ``t^2 + 2 ratio t - 1`` next to 0."""
    # A ratio of 0 takes a turn by 45 degrees, hence copysign.
    return math.copysign(1.0, ratio) / (abs(ratio) + math.sqrt(ratio * ratio + 1))


def _rotate(rows: Floats, p: int, q: int, tangent: float) -> None:
    """Rotate rows p and q into each other by the angle of that tangent, in place."""
    cosine = 1 / math.sqrt(tangent * tangent + 1)
    sine = tangent * cosine
    rows[p], rows[q] = cosine * rows[p] - sine * rows[q], sine * rows[p] + cosine * rows[q]
