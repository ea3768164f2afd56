"""Gaussian noise that a trained model does not notice, and random tables with the same products.

:class:`InvariantNoise` keeps two families of equations, ``C'W = 0`` and ``W F = 0``. The first keeps the
gradient, the second every score, so a learner that sees the rows only through its scores ends where it ended
before. The two act on different sides of the matrix: projecting takes two small products, and time and memory
are proportional to the table. Noise is drawn in blocks of rows, each under a key derived from its position,
so that the same noise can be drawn twice: once to compute its effect on the gradient, once to publish it
corrected. In memory the first draw is kept; as a stream, nothing is.

:func:`draw_same_gram` serves learners that read a table through ``[1 X y]'[1 X y]`` alone: least squares,
ridge regression for every penalty, principal components. The tables with this matrix are, up to what is
fixed, the rotations of one another; one of them is drawn at random.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import scipy

from discreet.errors import DataError
from discreet.noise import NormalSampler, standard_maxwell, standard_normal
from discreet.noise.deviates import BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from discreet._types import Floats, Ints
    from discreet.noise import Stream

_BLOCKS_PER_KEY = 8
"""Blocks drawn under one key; a key and its buffers cost as much as a tenth of a block."""
RANK_TOLERANCE = 1e-12
"""Singular values below this share of the largest are rounding errors."""


def orthonormal_basis(matrix: Floats) -> Floats:
    """Return orthonormal columns that span those of ``matrix``, which are scaled to length 1 first."""
    # Dividing by the largest entry first: squares of 1e-200 would vanish.
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    directions = matrix[:, largest > 0] / largest[largest > 0]
    if not directions.size:
        return np.empty((len(matrix), 0))
    left, strength, _ = np.linalg.svd(directions / np.linalg.norm(directions, axis=0), full_matrices=False)
    return np.ascontiguousarray(left[:, strength > RANK_TOLERANCE * strength[0]])


class InvariantNoise:
    """The Gaussian law on the matrices ``W`` with ``C'W = 0`` and ``W F = 0``.

    ``W = (I - Q_C Q_C') G (I - Q_B Q_B') S`` with independent normal ``G`` of the given variance,
    ``S = diag(scales)`` and orthonormal bases ``Q_C`` of the columns of ``C`` and ``Q_B`` of those of ``S
    F``.

    Parameters
    ----------
    derivatives : array of shape (n_rows, n_outputs)
        ``C``: derivative of the loss of each row by each of its scores.
    weights : array of shape (n_columns, n_outputs)
        ``F``: weights of the model, whose scores are ``X F``.
    variance : float
        Variance of the entries of ``G``, before projection; above 0.
    scales : array of shape (n_columns,), optional
        Unit of each column, the diagonal of ``S``; None means 1 for all.
    outward : array of shape (n_rows,), optional
        +1 or -1 for rows that may also move along the score in that direction, 0 for the others; None
        means that no row may.

    Attributes
    ----------
    leverage : array of shape (n_rows,)
        Share of its noise that each row loses to ``C'W = 0``; at 1 the row is published as it is.
    row_variance : float
        Sum over columns of the noise variance of a row with leverage 0, without the outward move.
    dimension : int
        Dimension of the space of the matrices ``W``.

    Privacy
    -------
    None by itself: see :class:`~discreet.release.invariant.InvariantRelease`.

    Notes
    -----
    Row i has covariance ``(1 - h_i) S (I - Q_B Q_B') S variance`` with leverage ``h_i = |row i of Q_C|^2``,
    so its total variance is ``(1 - h_i) row_variance``.

    Reference
    ---------
    docs/explanation/theorems/fisher-invariant.md
    """

    def __init__(
        self,
        derivatives: Floats,
        weights: Floats,
        variance: float,
        *,
        scales: Floats | None = None,
        outward: Floats | None = None,
    ) -> None:
        """Compute both bases and the leverages; nothing is drawn."""
        self.n_rows, self.n_columns = len(derivatives), len(weights)
        ones = np.ones(self.n_columns) if scales is None else np.asarray(scales, np.float64)
        self._scale = math.sqrt(variance) * ones
        self._column_basis = orthonormal_basis(ones[:, None] * weights)
        # Rows without a derivative do not enter C'W, and need no row of the basis.
        self._support: Ints = np.flatnonzero(derivatives.any(axis=1))
        self._row_basis = orthonormal_basis(derivatives[self._support])
        self._outward = outward
        # The sign of a singular vector is a convention of the library; outward is along the weights.
        along = self._column_basis[:, :1] * np.sign(self._column_basis[:, :1].T @ (ones * weights[:, 0]))
        self._outward_move = self._scale * along.sum(axis=1)
        self.leverage = np.zeros(self.n_rows)
        # Rounding can take the squared length of a row of the basis above 1.
        self.leverage[self._support] = np.minimum(
            1.0, np.einsum("ij,ij->i", self._row_basis, self._row_basis)
        )
        squares = self._scale**2
        self._score_variance = float(squares @ (self._column_basis**2).sum(axis=1))
        self.row_variance = max(0.0, float(squares.sum()) - self._score_variance)

    @property
    def n_directions(self) -> int:
        """Dimension of the space in which the noise moves each row."""
        return int(self.n_columns - self._column_basis.shape[1])

    @property
    def dimension(self) -> int:
        """Dimension of the space of the matrices ``W``."""
        return int((self.n_rows - self._row_basis.shape[1]) * self.n_directions)

    def covariance(self, row: int) -> Floats:
        """Return the covariance of the noise of one row, without the outward move."""
        directions = np.eye(self.n_columns) - self._column_basis @ self._column_basis.T
        return np.asarray((1 - self.leverage[row]) * self._scale[:, None] * directions * self._scale)

    def unbiased_bound(self) -> Floats:
        """Return for each row the Cramér-Rao bound on the total squared error of an unbiased guess."""
        bound = (1 - self.leverage) * self.row_variance
        if self._outward is None:
            return bound
        # Fisher information of the outward move is 3, and it is independent of the rest.
        return np.asarray(bound + np.abs(self._outward) * self._score_variance / 3)

    def draw(self, stream: Stream) -> Floats:
        """Return a matrix ``W``, freshly drawn at every call."""
        stream = stream.spawn()
        out = np.empty((self.n_rows, self.n_columns))
        gradient = np.zeros((self._row_basis.shape[1], self.n_columns))
        for rows, block in self._projected_blocks(stream, out):
            gradient += self._gradient_change(rows, block)
        outward = self._outward_lengths(stream)
        for rows in self._blocks():
            self._correct_block(rows, out[rows], gradient, outward)
        return out

    def add(self, batches: Iterable[Floats], stream: Stream) -> Iterator[Floats]:
        """Yield the batches of a table with the noise of :meth:`draw`, one block in memory at a time.

        Raises
        ------
        DataError
            If the batches do not have as many rows together as the derivatives.
        """
        stream = stream.spawn()
        gradient = np.zeros((self._row_basis.shape[1], self.n_columns))
        # A first pass over the same noise adds up what it changes in the gradient; the second takes that
        # back.
        for rows, block in self._projected_blocks(stream, only_support=True):
            gradient += self._gradient_change(rows, block)
        blocks = self._corrected_blocks(stream, gradient)
        unused = np.empty((0, self.n_columns))
        for batch in batches:
            out = np.array(batch, np.float64)
            done = 0
            while done < len(out):
                if not len(unused):
                    try:
                        unused = next(blocks)
                    except StopIteration:
                        raise _length_error(self.n_rows) from None
                n = min(len(unused), len(out) - done)
                out[done : done + n] += unused[:n]
                unused, done = unused[n:], done + n
            yield out
        if len(unused) or next(blocks, None) is not None:
            raise _length_error(self.n_rows)

    def _corrected_blocks(self, stream: Stream, gradient: Floats) -> Iterator[Floats]:
        """Yield the blocks of ``W`` one after the other."""
        outward = self._outward_lengths(stream)
        for rows, block in self._projected_blocks(stream):
            self._correct_block(rows, block, gradient, outward)
            yield block

    def _correct_block(self, rows: slice, block: Floats, gradient: Floats, outward: Floats | None) -> None:
        """Subtract ``Q_C (Q_C' noise)`` from a block, and add the outward moves, in place."""
        part, places = self._basis_rows(rows), self._support_offsets(rows)
        if len(part) == len(block):
            _subtract_product(block, part, gradient)
        elif len(part):
            block[places] -= part @ gradient
        if outward is not None:
            block += outward[rows, None] * self._outward_move

    def _outward_lengths(self, stream: Stream) -> Floats | None:
        """Return the Maxwell-distributed move of each row along its score; None if no row moves."""
        if self._outward is None or not self._column_basis.shape[1]:
            return None
        return self._outward * standard_maxwell(self.n_rows, stream.derive("outward"))

    def _blocks(self) -> Iterator[slice]:
        step = max(1, BLOCK // self.n_columns)
        for start in range(0, self.n_rows, step):
            yield slice(start, min(start + step, self.n_rows))

    def _projected_blocks(
        self, stream: Stream, out: Floats | None = None, *, only_support: bool = False
    ) -> Iterator[tuple[slice, Floats]]:
        """Yield rows and noise ``G (I - Q_B Q_B') S`` of each block; without ``out`` all share one buffer.

        With ``only_support``, keys whose blocks hold no row with a derivative are skipped: they do not change
        the gradient.
        """
        right = np.ascontiguousarray(self._column_basis.T)
        buffer = None
        for i, rows in enumerate(self._blocks()):
            if i % _BLOCKS_PER_KEY == 0:
                # A key is skipped as a whole or not at all: inside it, a block depends on those drawn before.
                last = rows.start + (rows.stop - rows.start) * _BLOCKS_PER_KEY
                needed = not only_support or self._support_offsets(slice(rows.start, last)).size > 0
                if needed:
                    derived = stream.derive(f"rows from {rows.start}")
                    sampler = NormalSampler(self.n_rows * self.n_columns, derived)
            if not needed:
                continue
            if out is not None:
                block = out[rows]
            else:
                if buffer is None:
                    buffer = np.empty((rows.stop - rows.start, self.n_columns))
                block = buffer[: rows.stop - rows.start]
            sampler.fill(block)
            _subtract_product(block, block @ self._column_basis, right)
            block *= self._scale
            yield rows, block

    def _support_range(self, rows: slice) -> slice:
        """Return which rows of the basis belong to a block of rows."""
        low, high = np.searchsorted(self._support, (rows.start, rows.stop))
        return slice(int(low), int(high))

    def _gradient_change(self, rows: slice, block: Floats) -> Floats:
        """Return ``Q_C' noise`` of one block: its contribution to the change of the gradient."""
        part = self._basis_rows(rows)
        return np.asarray(part.T @ (block if len(part) == len(block) else block[self._support_offsets(rows)]))

    def _basis_rows(self, rows: slice) -> Floats:
        """Return the rows of ``Q_C`` that fall into a block."""
        return self._row_basis[self._support_range(rows)]

    def _support_offsets(self, rows: slice) -> Ints:
        """Return the positions of these rows inside the block."""
        return np.asarray(self._support[self._support_range(rows)] - rows.start)


def _subtract_product(block: Floats, left: Floats, right: Floats) -> None:
    """Write ``block - left @ right`` over ``block``, passing over its memory once."""
    if right.shape[0]:
        # BLAS counts by columns: it sees the transposes, which lie in memory as it wants them.
        scipy.linalg.blas.dgemm(-1.0, right.T, left.T, beta=1.0, c=block.T, overwrite_c=1)


def _length_error(n_rows: int) -> DataError:
    return DataError(
        f"batches of InvariantNoise.add must have {n_rows} rows in all, as the derivatives had, and have "
        "not. Invariance holds for the whole table alone."
    )


def draw_same_gram(X: Floats, fixed: Floats, stream: Stream) -> Floats:
    """Return random rows ``Z`` with ``[fixed Z]'[fixed Z] = [fixed X]'[fixed X]``.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        Columns that are replaced by random ones.
    fixed : array of shape (n_rows, n_fixed)
        Columns that are published as they are: ones, the target, public columns. Together with ``X`` they
        must be fewer than the rows.
    stream : Stream
        Source of the random rotation.

    Returns
    -------
    array of shape (n_rows, n_columns)

    Privacy
    -------
    No epsilon. All sums, squares and products are published exactly; an attacker who knows all rows but one
    computes that one from the sums.

    Notes
    -----
    With P the projection on the columns of ``fixed`` and ``X - P X = Q R`` (QR decomposition), the result is
    ``P X + Q' R``, where Q' is the Q of a normal matrix projected off ``fixed``: a uniformly random basis.

    Reference
    ---------
    docs/explanation/theorems/fisher-invariant.md
    """
    basis = orthonormal_basis(fixed)
    explained, rest = _split(X, basis)
    _, shape = _positive_qr(rest)
    # Projected twice: the second removes what rounding left of the fixed columns.
    _, free = _split(_split(standard_normal(X.shape, stream), basis)[1], basis)
    rotation, _ = _positive_qr(free)
    return np.asarray(explained + rotation @ shape)


def _split(matrix: Floats, basis: Floats) -> tuple[Floats, Floats]:
    """Return the projection of each column on ``basis``, and the rest."""
    explained = basis @ (basis.T @ matrix)
    return explained, matrix - explained


def _positive_qr(matrix: Floats) -> tuple[Floats, Floats]:
    """Return the QR decomposition with a nonnegative diagonal, which makes Q of normal columns uniform."""
    left, right = np.linalg.qr(matrix)
    signs = np.where(np.diag(right) < 0, -1.0, 1.0)
    return left * signs, right * signs[:, None]
