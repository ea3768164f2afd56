"""The objective of the large-margin classifier, and its matrices as Gaussians in the columns' units.

Every class has one symmetric matrix ``A``, or several; ``f = x' A x`` is the distance of a row from the
class. The loss of a row is the sum, over the other classes, of the Huberized hinge of ``1 + f(own) -
f(other)``. Only differences between matrices count, so that the minimizer's matrices sum to zero, and they
are written in an orthonormal basis of that subspace: no noise is wasted on a direction without effect.

Frobenius coordinates of a symmetric matrix are its upper triangle, row by row, with everything off the
diagonal times ``sqrt(2)``: lengths and inner products are those of the matrices.

``x' A x`` of an embedded row is ``(x - center)' P (x - center) + offset`` in the columns' units, as soon as
``A`` is positive definite. Adding the same multiple of the identity to every matrix adds the same number
to every class's ``f`` of a row, so that no decision changes; cutting off negative eigenvalues class by class
would change many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.learn.perturbation._solvers import LARGEST_CONDITION, GradientDescent
from discreet.learn.perturbation.noise import zero_sum_basis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import Floats, Ints
    from discreet.learn.perturbation.embedding import Embedding


_UNIT = 2.0**-53
PROJECTION = 64
"""Units in the last place, for each row of a matrix, by which its computed semidefinite part can err."""

CONSTRAINED_CONDITION = 1e9
"""Largest curvature over regularization with a projection at each step: about its root of steps are made."""


def huber_hinge(u: Floats, smoothing: float) -> Floats:
    """Return the Huberized hinge: 0 up to ``-h``, ``(u + h)**2 / (4 h)`` up to ``h``, then ``u``.

    It is ``min over t >= 0 of t**2 / (4 h) + max(u + h - t, 0)``: with ``t`` and the maximum as slack
    variables, the soft margin of a support vector machine.

    Reference
    ---------
    The paper's equation (6) has two signs wrong and no margin:
    docs/explanation/theorems/large-margin-loss.md.
    """
    slope = np.clip((u + smoothing) / (2 * smoothing), 0.0, 1.0)
    return np.asarray(slope * (u + smoothing - smoothing * slope))


class MarginProblem:
    """The loss of all rows, ``regularization / 2`` times the squared norm of all matrices, a linear term.

    A sum over rows, not a mean.

    Parameters
    ----------
    rows : array of shape (n_rows, p)
        Embedded rows, each of norm at most 1.
    codes : array of int
        The class of each row, as a position in the list of classes.
    n_classes : int
        Number of classes, at least 2.
    regularization : float
        Above 0: the function is strongly convex with this constant.
    smoothing : float
        Half-width ``h`` of the interval on which the Huberized hinge is quadratic.
    components : int
        Matrices for each class. A class is as far as the soft minimum over its matrices,
        ``-log(sum(exp(-f)))``.
    proxies : array of int, optional
        For several components: which one of its own class a row belongs to. A function of the row alone.
    trace : float
        Weight of the trace of each matrix without its last row and column. It moves only what all matrices
        have in common, unless they must be positive semidefinite.

    Attributes
    ----------
    size : int
        Entries of ``w``, the coordinates of matrices that sum to zero.
    linear_term : array
        Coefficients of the linear term; 0 unless the objective is perturbed.
    linear_term_error : float
        Bound on the distance of the linear term from the one that was drawn.
    """

    def __init__(
        self,
        rows: Floats,
        codes: Ints,
        *,
        n_classes: int,
        regularization: float,
        smoothing: float,
        components: int = 1,
        proxies: Ints | None = None,
        trace: float = 0.0,
    ) -> None:
        """Store the rows and their squares; the linear term starts at 0."""
        self.n_rows, self.p = rows.shape
        self.n_classes, self.components = n_classes, components
        self.n_matrices = n_classes * components
        self.regularization = regularization
        self.smoothing = smoothing
        self.trace = trace
        self.squares = Squares(rows)
        self.codes = codes
        self.proxies = np.zeros(len(codes), np.intp) if proxies is None else proxies
        self.basis = zero_sum_basis(self.n_matrices)
        self.size = (self.n_matrices - 1) * self.squares.dimension
        self.linear_term: Floats = np.zeros(self.size)
        self.linear_term_error = 0.0

    def spread(self, w: Floats) -> Floats:
        """Return the Frobenius coordinates of the matrices that ``w`` stands for, one row each."""
        return self.basis.T @ w.reshape(len(self.basis), -1)

    def gather(self, coordinates: Floats) -> Floats:
        """Return ``w`` for the part of some matrices that sums to zero; lengths do not grow."""
        return (self.basis @ coordinates).reshape(-1)

    def matrices(self, w: Floats) -> Floats:
        """Return one matrix for each class and component, shape (n_matrices, p, p)."""
        return to_matrices(self.spread(w), self.p)

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Return the function and its gradient; :meth:`gradient_error` bounds the gradient's error."""
        loss, slope = self.loss_and_slope(self.spread(w))
        value = loss + self.regularization / 2 * float(w @ w) + float(self.linear_term @ w)
        return value, self.gather(slope) + self.regularization * w + self.linear_term

    def whole_value_and_gradient(self, coordinates: Floats) -> tuple[float, Floats]:
        """Return the function of matrices that need not sum to zero, with its trace term."""
        loss, slope = self.loss_and_slope(coordinates)
        linear = self.spread(self.linear_term) + self.trace * self.trace_vector
        value = loss + self.regularization / 2 * float((coordinates**2).sum())
        return value + float((linear * coordinates).sum()), slope + self.regularization * coordinates + linear

    @property
    def trace_vector(self) -> Floats:
        """Coordinates of the identity matrix without its last entry."""
        i, j = np.triu_indices(self.p)
        return np.asarray(((i == j) & (i < self.p - 1)).astype(np.float64))

    def loss_and_slope(self, coordinates: Floats) -> tuple[float, Floats]:
        """Return the loss of all rows at some matrices, and its derivative by each matrix."""
        slope, losses = np.zeros_like(coordinates), []
        of_block = self._single_loss if self.components == 1 else self._component_loss
        for block, squares in self.squares:
            loss, weights = of_block(squares @ coordinates.T, block)
            losses.append(loss)
            slope += weights.T @ squares
        return math.fsum(losses), slope

    def _single_loss(self, far: Floats, block: slice) -> tuple[float, Floats]:
        """Return the loss of some rows, and its derivative by the distance of each row from each class.

        Notes
        -----
        ``u_ic = 1 + f(own) - f(c)``; the hinge is ``g (u + h - h g)`` with the slope ``g = clip((u + h) / (2
        h), 0, 1)``. The derivative is ``-g`` by the distance of a rival and the sum of all ``g`` by that of
        the own class.
        """
        h, line, own = self.smoothing, np.arange(len(far)), self.codes[block]
        # `u` holds u + h; 0 for the own class, whose slope is then 0.
        u = (far[line, own] + (1 + h))[:, np.newaxis] - far
        u[line, own] = 0.0
        slope = np.clip(u * (0.5 / h), 0.0, 1.0)
        u -= h * slope
        loss = float(np.vdot(slope, u))
        weights = -slope
        weights[line, own] = slope.sum(axis=1)
        return loss, weights

    def _component_loss(self, far: Floats, block: slice) -> tuple[float, Floats]:
        """Return loss and derivative where the distance of a class is the soft minimum of its components.

        Notes
        -----
        ``f(c) = -log(sum_m exp(-f_cm))`` for rivals, whose derivative is a softmax; the own class counts by
        the row's proxy component alone, which keeps the loss convex.
        """
        h, line, own = self.smoothing, np.arange(len(far)), self.codes[block]
        proxy = own * self.components + self.proxies[block]
        apart = far.reshape(len(far), self.n_classes, self.components)
        share = special.softmax(-apart, axis=2)
        u = (far[line, proxy] + (1 + h))[:, np.newaxis] + special.logsumexp(-apart, axis=2)
        u[line, own] = 0.0
        slope = np.clip(u * (0.5 / h), 0.0, 1.0)
        loss = float(np.vdot(slope, u - h * slope))
        weights = (-slope[:, :, np.newaxis] * share).reshape(far.shape)
        weights[line, proxy] += slope.sum(axis=1)
        return loss, weights

    def gradient_error(self, norm: float) -> float:
        """Return how far a computed gradient can be from the true one, at ``w`` of a norm.

        See :func:`rounding_error` for the loss; the other terms are added to it.
        """
        error = rounding_error(
            self.n_rows, self.p, self.n_classes, self.smoothing, norm, components=self.components
        )
        return (
            error
            + _linear_error(self.n_matrices, self.regularization * norm, self._linear)
            + self.linear_term_error
        )

    @property
    def _linear(self) -> float:
        """Norm of all linear terms."""
        traced = abs(self.trace) * math.sqrt(self.n_matrices * (self.p - 1))
        return float(np.linalg.norm(self.linear_term)) + traced

    @property
    def curvature(self) -> float:
        """A bound on the second derivatives of the loss: that of one row, for every row."""
        return loss_curvature(self.n_rows, self.n_classes, self.smoothing, self.components)

    def descent(self, *, constrained: bool) -> GradientDescent:
        """Return what gradient steps are certain to reach here; it depends on the linear term, on no row."""
        return gradient_descent(
            n_rows=self.n_rows,
            p=self.p,
            n_classes=self.n_classes,
            components=self.components,
            smoothing=self.smoothing,
            regularization=self.regularization,
            linear=(self._linear, self.linear_term_error),
            constrained=constrained,
        )


def loss_curvature(n_rows: int, n_classes: int, smoothing: float, components: int) -> float:
    """Return a bound on the second derivatives of the loss of ``n_rows`` rows.

    One row's are at most ``C / (2 h)``, the largest eigenvalue of a star of ``C`` classes times that of the
    hinge; with several components the soft minimum bends too, by at most 1/2.
    """
    bend = 0.5 / smoothing if components == 1 else 1 / smoothing + 1
    return n_rows * n_classes * bend


def _linear_error(n_matrices: int, penalty: float, linear: float) -> float:
    return (3 * n_matrices + 8) * (penalty + linear) * _UNIT


def rounding_error(
    n_rows: int, p: int, n_classes: int, smoothing: float, norm: float, *, components: int = 1
) -> float:
    """Return how far the computed slope of the loss can be from the true one, at ``w`` of a norm.

    Notes
    -----
    ``u`` is 2**-53. A computed product of ``n`` terms errs by at most ``n u`` times the product of absolute
    values, in any order of additions. Rows have norms of at most 1.

    - A distance is a product of as many terms as a matrix has coordinates; the matrices come from ``w``
      through the basis, whose absolute values have a norm below 3. The distances of a row to its own and to
      another class enter the hinge's slope divided by ``2 h``.
    - A row's slope has a norm of at most the number of classes. Blocks of ``CHUNK`` slopes are added up, then
      the blocks, then the basis is applied.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """
    matrices = n_classes * components
    distance = (p * (p + 1) // 2 + 3 * matrices + 16) * norm
    shares = 0.0 if components == 1 else 2 * distance + components + 10
    slope = (2 * distance + (8 + 2 * components) * (1 + 2 * norm)) / (2 * smoothing) + 4
    sums = CHUNK + n_rows // CHUNK + n_classes + 3 * matrices + 24
    # 1.01 for terms of higher order in u.
    return n_rows * n_classes * (slope + shares + sums) * _UNIT * 1.01


def gradient_descent(
    *,
    n_rows: int,
    p: int,
    n_classes: int,
    components: int,
    smoothing: float,
    regularization: float,
    linear: tuple[float, float],
    constrained: bool,
) -> GradientDescent:
    """Return what gradient steps are certain to reach, for every table of this shape.

    Parameters
    ----------
    n_rows, p, n_classes : int
        Numbers of rows, of coordinates of an embedded row, and of classes.
    components, smoothing, regularization
        As for :class:`MarginProblem`.
    linear : tuple of float
        Bounds on the norm of all linear terms, and on how far they are from the one that was drawn.
    constrained : bool
        Whether each step ends with a projection to positive semidefinite matrices.

    Notes
    -----
    At 0 the loss of a row is the hinge of ``1 + log(components)`` for each other class, and half the
    regularization times the squared norm of the minimizer is at most that of all rows; a linear term moves
    the minimizer by at most its own norm over the regularization, with or without the constraint.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """
    largest, drawn_error = linear
    # Loss by one rival at w = 0, where its soft minimum is -log(components).
    worst = float(huber_hinge(np.array(1 + math.log(components)), smoothing))
    norm = math.sqrt(2 * n_rows * (n_classes - 1) * worst / regularization) + largest / regularization
    curvature = loss_curvature(n_rows, n_classes, smoothing, components) + regularization
    # All points of the descent stay within twice that norm of 0.
    error = rounding_error(n_rows, p, n_classes, smoothing, 2 * norm, components=components)
    error += _linear_error(n_classes * components, 2 * regularization * norm, largest) + drawn_error
    # A quotient and a difference more, of vectors no longer than 2 norm each, and a projection of their sum.
    step = 8 + (4 * PROJECTION * p if constrained else 0)
    return GradientDescent(
        curvature=curvature,
        regularization=regularization,
        norm=norm,
        step_error=error + step * curvature * norm * _UNIT,
        largest_condition=CONSTRAINED_CONDITION if constrained else LARGEST_CONDITION,
    )


CHUNK = 1 << 11
"""Rows that are added up at once: the rounding error of a sum grows with them."""
_KEPT_BYTES = 1 << 30
"""Largest size of the squares of all rows that are kept; beyond it they are computed at every pass."""
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


LEAST = 2.0**-10
"""The smallest eigenvalue after the shift, as a part of the spread of all eigenvalues."""


def common_shift(matrices: Floats) -> Floats:
    """Return the matrices with one multiple of the identity added to all, so that all are positive definite.

    By convention the multiple, at least 0, takes the smallest of all eigenvalues to 2**-10 of their spread.

    Reference
    ---------
    docs/explanation/theorems/large-margin-cone.md
    """
    values = np.linalg.eigvalsh(matrices)
    least, most = float(values.min()), float(values.max())
    # Without spread every matrix is the same multiple of the identity; any positive one will do.
    floor = LEAST * (most - least) if most > least else 1.0
    return np.asarray(matrices + max(0.0, floor - least) * np.eye(matrices.shape[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussians:
    """Centers, inverse covariances and offsets of positive definite matrices, in the columns' own units.

    Attributes
    ----------
    centers : array of shape (..., d)
        Points at which ``f`` is smallest, in the columns' units.
    inverse_covariances : array of shape (..., d, d)
        Matrices of the quadratic growth of ``f``: a decision surface, not an estimate of a class's spread.
    offsets : array of shape (...)
        Values of ``f`` at the centers, at least 0.
    """

    centers: Floats
    inverse_covariances: Floats
    offsets: Floats


def gaussians_in(matrices: Floats, embedding: Embedding) -> Gaussians:
    """Return centers, inverse covariances and offsets for rows inside what was declared."""
    d = embedding.n_features
    inner, cross, last = matrices[..., :d, :d], matrices[..., :d, d], matrices[..., d, d]
    # Completing the square: f is smallest at -constant inner^-1 cross.
    toward = np.linalg.solve(inner, cross[..., np.newaxis])[..., 0]
    scale, start = embedding.affine
    constant = embedding.constant
    return Gaussians(
        centers=(-constant * toward - start) / scale,
        inverse_covariances=inner * scale * scale[:, np.newaxis],
        # A Schur complement of a positive definite matrix: only rounding makes it negative.
        offsets=np.maximum(constant**2 * (last - (cross * toward).sum(axis=-1)), 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ellipse:
    """Points in the plane where a class's ``f`` is one margin above its smallest value.

    Attributes
    ----------
    label : object
        Label of the class it belongs to.
    center, radii : (float, float)
        In the columns' units; the longer radius first.
    angle : float
        Angle of the longer radius against the first column, in degrees.

    Examples
    --------
    >>> from discreet.learn.large_margin import Ellipse
    >>> Ellipse(label="a", center=(0.0, 0.0), radii=(2.0, 1.0), angle=30.0).radii
    (2.0, 1.0)
    """

    label: object
    center: tuple[float, float]
    radii: tuple[float, float]
    angle: float


def ellipse_of(label: object, center: Floats, inverse_covariance: Floats, level: float) -> Ellipse:
    """Return the ellipse at which a class's ``f`` is ``level`` above its smallest value."""
    values, vectors = np.linalg.eigh(inverse_covariance)
    # eigh sorts eigenvalues upwards: the smallest belongs to the longest radius. Signs are arbitrary.
    long = vectors[:, 0] if vectors[0, 0] >= 0 else -vectors[:, 0]
    return Ellipse(
        label=label,
        center=(float(center[0]), float(center[1])),
        radii=(math.sqrt(level / values[0]), math.sqrt(level / values[1])),
        angle=math.degrees(math.atan2(long[1], long[0])),
    )
