"""Bounded noise on several columns at once: independent columns, or the joint optimum for up to three.

With diagonal weights the least informative density on a box is a product. With other weights it is not:
:class:`BoxDensity` solves for it in up to three columns; :func:`product_density` is the best product for any
number of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.polynomial import legendre
from scipy import sparse
from scipy.linalg import cholesky, inv
from scipy.sparse.linalg import LinearOperator, eigsh, splu

from discreet.errors import NoiseError, ParameterError
from discreet.noise.bounded import BoundedDensity
from discreet.noise.polynomial import basis, mass_matrix, moment_matrix, rule
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from discreet._types import Bools, Floats, Ints

MOST_COLUMNS = 3
LOG2_STEPS = 24
_SIZES = {1: (24, 32, 48, 64), 2: (16, 24, 32, 48, 64), 3: (8, 12, 16, 20)}
# At the corners of a box the optimum for correlated weights is not smooth, so that digits come slowly.
_STABLE = {1: 1e-13, 2: 1e-6, 3: 1e-4}
_PER_COLUMN = {1: 1024, 2: 64, 3: 16}
_ROWS = 1 << 14
_ACCURACY = 2.0**-42
"""Error of an acceptance probability in double precision."""


def product_density(
    lower: Floats, upper: Floats, *, weights: Floats, regularization: float = 0.0
) -> tuple[BoundedDensity, ...]:
    """Return the best independent noise on a box: one density for each column.

    Parameters
    ----------
    lower, upper : array of float
        Ends of the supports.
    weights : array of float
        ``Pi``: a vector for its diagonal, or a symmetric positive definite matrix.
    regularization : float
        Price of the mean squares.

    Privacy
    -------
    A law, not a promise. For a vector of weights it is the optimum. For a matrix it minimizes the same
    objective among products: scores of independent columns are uncorrelated, so only the diagonal of
    ``Pi^-1`` enters, and column ``j`` has weight ``1 / (Pi^-1)_jj``.

    Reference
    ---------
    docs/explanation/theorems/fisher-bounded.md

    Examples
    --------
    >>> import numpy as np
    >>> laws = product_density([-1, -1], [1, 1], weights=np.array([[1, 0.5], [0.5, 1]]), regularization=1)
    >>> round(sum(law.objective for law in laws), 6)
    26.579884
    """
    weights = np.asarray(weights, np.float64)
    low, high = (np.atleast_1d(np.asarray(b, np.float64)) for b in (lower, upper))
    if weights.ndim == 2:
        weights = 1 / np.diagonal(_inverse(weights, "product_density"))
    if not (low.ndim == 1 and low.shape == high.shape == weights.shape):
        raise ParameterError(
            "lower, upper and weights of product_density must be of one length, had shapes "
            f"{low.shape}, {high.shape} and {weights.shape}."
        )
    return tuple(
        BoundedDensity(lower=a, upper=b, regularization=regularization, weight=v)
        for a, b, v in zip(low.tolist(), high.tolist(), weights.tolist(), strict=True)
    )


class _Cells(NamedTuple):
    """Cells of the proposal: cumulative shares of 2**63, and the bound on ``u`` that each was chosen by."""

    ends: Ints
    bounds: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class BoxDensity:
    """The least informative density on a box of up to three columns, for any weights.

    Minimizes ``Tr(Pi^-1 I) + regularization * E |n|**2`` over all densities on the box.

    Parameters
    ----------
    lower, upper : array of float
        Ends of the box, finite.
    weights : array of float, shape (p, p)
        ``Pi``, symmetric positive definite.
    regularization : float
        Price of the mean square, at least 0.

    Attributes
    ----------
    objective : float
        That of the law; above the least value by about 1e-6 (two columns) or 1e-4 (three), relatively.
    information, second_moments : ndarray, shape (p, p)
        Fisher information about the location, and ``E n n'``.
    mean : ndarray
    total_variation : float
        Distance of the sampler from the law, per row.

    Privacy
    -------
    A law, not a promise: as for :class:`~discreet.noise.bounded.BoundedDensity` there is no pure epsilon.

    Reference
    ---------
    docs/explanation/theorems/fisher-bounded.md, "Several columns".

    Examples
    --------
    >>> import numpy as np
    >>> law = BoxDensity(lower=[-1, -1], upper=[1, 1], weights=[[1, 0.5], [0.5, 1]], regularization=1)
    >>> round(law.objective, 6)
    25.155315
    """

    lower: Floats
    upper: Floats
    weights: Floats
    regularization: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "weights"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64))
        p = self.lower.size
        if not (self.lower.shape == self.upper.shape == (p,) and self.weights.shape == (p, p)):
            raise ParameterError(
                "lower, upper and weights of BoxDensity must be two vectors of length p and a p by p matrix."
            )
        if p > MOST_COLUMNS:
            raise ParameterError(
                f"weights of BoxDensity must have at most {MOST_COLUMNS} columns, had {p}: the joint optimum "
                "is too large to solve for. Use product_density, which is the best independent noise."
            )
        if not (
            np.all(np.isfinite(self.lower) & np.isfinite(self.upper)) and np.all(self.lower < self.upper)
        ):
            raise ParameterError("lower and upper of BoxDensity must be finite with lower below upper.")
        if not 0 <= self.regularization < math.inf:
            raise ParameterError(
                f"regularization of BoxDensity must be finite and at least 0, was {self.regularization!r}."
            )
        _inverse(self.weights, "BoxDensity")

    @property
    def _half(self) -> Floats:
        return 0.5 * (self.upper - self.lower)

    @cached_property
    def _state(self) -> tuple[Floats, float]:
        """Coefficients of ``u`` on [-1, 1]^p, its square of mass 1 there, and the objective."""
        p = self.lower.size
        before = math.inf
        for size in _SIZES[p]:
            objective, vector = self._lowest(size)
            if abs(objective / before - 1) < _STABLE[p]:
                return vector.reshape((size,) * p), objective
            before = objective
        raise NoiseError(
            "The density of least Fisher information on the box did not converge: the weights are too far "
            "from diagonal or the regularization is too large. Use product_density."
        )

    def _lowest(self, size: int) -> tuple[float, Floats]:
        p, half = self.lower.size, self._half
        middle = 0.5 * (self.lower + self.upper)
        inverse = _inverse(self.weights, "BoxDensity")
        mass = sparse.csc_matrix(_clean(mass_matrix(size)))
        slope = sparse.csc_matrix(_clean(_slope_matrix(size)))
        moments = [sparse.csc_matrix(_clean(moment_matrix(size, power))) for power in (1, 2)]

        def tensor(**special: sparse.csc_matrix) -> sparse.csc_matrix:
            factors = [special.get(f"at{j}", mass) for j in range(p)]
            return sparse.csc_matrix(reduce(sparse.kron, factors))

        energy = sparse.csc_matrix((size**p, size**p))
        for j in range(p):
            energy = energy + 4 * inverse[j, j] / half[j] ** 2 * tensor(
                **{f"at{j}": sparse.eye(size, format="csc")}
            )
            square = half[j] ** 2 * moments[1] + 2 * half[j] * middle[j] * moments[0] + middle[j] ** 2 * mass
            energy = energy + self.regularization * tensor(**{f"at{j}": square})
            for k in range(j):
                cross = tensor(**{f"at{j}": slope, f"at{k}": -slope})
                energy = energy + 8 * inverse[j, k] / (half[j] * half[k]) * cross
        whole = tensor()
        solver = splu(sparse.csc_matrix(energy))
        nu, vectors = eigsh(
            whole,
            k=1,
            M=energy,
            Minv=LinearOperator(energy.shape, solver.solve),
            which="LA",
            v0=np.ones(size**p),
            tol=1e-15,
        )
        vector = vectors[:, 0] * math.copysign(1.0, vectors[0, 0])
        return 1 / float(nu[0]), vector / math.sqrt(float(vector @ (whole @ vector)))

    @property
    def objective(self) -> float:
        """Least value of ``Tr(Pi^-1 I) + regularization * E |n|**2``."""
        return self._state[1]

    def root(self, n: Floats) -> Floats:
        """Return the square root of the density at rows ``n``, with its sign; 0 outside the box."""
        n = np.atleast_2d(np.asarray(n, np.float64))
        inside = np.all((n >= self.lower) & (n <= self.upper), axis=1)
        x = np.clip((n - self.lower) / self._half - 1.0, -1.0, 1.0)
        return np.where(inside, self._unit_root(x), 0.0) / math.sqrt(float(np.prod(self._half)))

    def _unit_root(self, x: Floats) -> Floats:
        coefficients = self._state[0]
        size = coefficients.shape[0]
        values = [legendre.legvander(x[:, j], size + 1) @ basis(size).T for j in range(x.shape[1])]
        out = values[0] @ coefficients.reshape(size, -1)
        for factor in values[1:]:
            out = np.einsum("ijk,ij->ik", out.reshape(len(x), size, -1), factor)
        return np.asarray(out[:, 0])

    def pdf(self, n: Floats) -> Floats:
        """Density at rows ``n``."""
        return np.square(self.root(n))

    def _form(self, first: Floats, second: Floats, j: int, k: int) -> float:
        """Sum of squares of ``u`` under a matrix in place ``j``, and another in place ``k``, of the mass."""
        coefficients = self._state[0]
        size, p = coefficients.shape[0], coefficients.ndim
        out = coefficients
        for axis in range(p):
            matrix = first if axis == j else second if axis == k else mass_matrix(size)
            out = np.moveaxis(np.tensordot(matrix, out, axes=(1, axis)), 0, axis)
        return float(np.sum(coefficients * out))

    @cached_property
    def information(self) -> Floats:
        """Fisher information matrix about the location of the noise."""
        p, size, half = self.lower.size, self._state[0].shape[0], self._half
        out = np.empty((p, p))
        slope = _slope_matrix(size)
        for j in range(p):
            out[j, j] = 4 * self._form(np.eye(size), mass_matrix(size), j, -1) / half[j] ** 2
            for k in range(j):
                out[j, k] = out[k, j] = 4 * self._form(slope, -slope, j, k) / (half[j] * half[k])
        return out

    @cached_property
    def mean(self) -> Floats:
        """First moments."""
        size = self._state[0].shape[0]
        first = [self._form(moment_matrix(size, 1), mass_matrix(size), j, -1) for j in range(self.lower.size)]
        return np.asarray(0.5 * (self.lower + self.upper) + self._half * np.array(first))

    @cached_property
    def second_moments(self) -> Floats:
        """``E n n'``."""
        p, size = self.lower.size, self._state[0].shape[0]
        one, two = moment_matrix(size, 1), moment_matrix(size, 2)
        centered = np.empty((p, p))
        for j in range(p):
            centered[j, j] = self._form(two, mass_matrix(size), j, -1)
            for k in range(j):
                centered[j, k] = centered[k, j] = self._form(one, one, j, k)
        middle = 0.5 * (self.lower + self.upper)
        shift = np.outer(middle, self.mean)
        return np.asarray(
            np.outer(self._half, self._half) * centered + shift + shift.T - np.outer(middle, middle)
        )

    @property
    def step(self) -> Floats:
        """Width of a lattice cell in each column, ``2**-24`` of the support."""
        return np.asarray((self.upper - self.lower) / (1 << LOG2_STEPS))

    @property
    def total_variation(self) -> float:
        """Distance of a row from the law: acceptance in double precision, and shares of 2**-63."""
        cells = self._cells
        # The mean acceptance probability is the integral of u**2, which is 1, over that of the bounds.
        acceptance = (cells.bounds.size / 2.0**self.lower.size) / float(np.sum(cells.bounds**2))
        return 2 * (_ACCURACY + cells.bounds.size * 2.0**-62) / acceptance

    @cached_property
    def _cells(self) -> _Cells:
        p, per_column = self.lower.size, _PER_COLUMN[self.lower.size]
        corners = np.linspace(-1, 1, per_column + 1)
        points = np.stack(np.meshgrid(*[corners] * p, indexing="ij"), axis=-1).reshape(-1, p)
        values = np.concatenate([np.abs(self._unit_root(part)) for part in np.array_split(points, 64)])
        largest = values.reshape((per_column + 1,) * p)
        for axis in range(p):
            after, before = (np.take(largest, range(a, per_column + a), axis) for a in (1, 0))
            largest = np.maximum(after, before)
        # Between corners u is above its multilinear interpolation by at most s**2 / 8 times its curvatures.
        slack = (2 / per_column) ** 2 / 8 * sum(self._curvature(j) for j in range(p))
        bounds = (largest.reshape(-1) + slack) * (1 + 1e-9)
        ends = np.floor(np.cumsum(bounds**2) / float(np.sum(bounds**2)) * 2.0**62).astype(np.int64)
        ends[-1] = 1 << 62
        return _Cells(ends, bounds)

    def _curvature(self, j: int) -> float:
        """Bound the second derivative of ``u`` in column ``j`` over [-1, 1]^p.

        A polynomial of degree ``d`` is at most ``1 / cos(pi / 4)`` times its largest value on ``2 d``
        Chebyshev points (Ehlich and Zeller 1964), in each variable.
        """
        out = self._state[0]
        size = out.shape[0]
        degree = size + 1
        points = np.cos(math.pi * (np.arange(2 * degree) + 0.5) / (2 * degree))
        value = legendre.legval(points, basis(size).T)
        bend = legendre.legval(points, legendre.legder(basis(size), 2, axis=1).T)
        for axis in range(out.ndim):
            out = np.moveaxis(np.tensordot(bend if axis == j else value, out, axes=(0, axis)), 0, axis)
        return float(np.abs(out).max()) * 2 ** (out.ndim / 2)

    def integers(self, size: int, stream: Stream | None = None) -> Ints:
        """Draw ``size`` rows of lattice cells, 0 to ``2**24 - 1`` in each column."""
        stream = stream_or_fresh(stream)
        out = np.empty((size, self.lower.size), np.int64)
        for start in range(0, size, _ROWS):
            part = out[start : start + _ROWS]
            open_rows = np.arange(len(part))
            while open_rows.size:
                proposed, accepted = self._propose(open_rows.size, stream)
                part[open_rows[accepted]] = proposed[accepted]
                open_rows = open_rows[~accepted]
        return out

    def _propose(self, n: int, stream: Stream) -> tuple[Ints, Bools]:
        p, per_column, cells = self.lower.size, _PER_COLUMN[self.lower.size], self._cells
        words = stream.words(n * (p + 2)).reshape(p + 2, n)
        cell = np.searchsorted(cells.ends, (words[0] >> np.uint64(2)).view(np.int64), side="right")
        place = np.stack(np.unravel_index(cell, (per_column,) * p), axis=1)
        bits = LOG2_STEPS - int(math.log2(per_column))
        offset = words[2:].T
        x = (place + offset * 2.0**-64) * (2 / per_column) - 1
        chance = np.square(self._unit_root(x) / cells.bounds[cell])
        accepted = (words[1] >> np.uint64(11)) * 2.0**-53 < chance
        return (place << bits) + (offset >> np.uint64(64 - bits)).view(np.int64), accepted

    def values(self, cells: Ints) -> Floats:
        """Return the middle of each lattice cell."""
        return np.asarray(self.lower + (cells + 0.5) * self.step)


def _inverse(weights: Floats, where: str) -> Floats:
    try:
        if weights.ndim != 2 or not np.allclose(weights, weights.T, rtol=1e-12, atol=0):
            raise np.linalg.LinAlgError
        cholesky(weights)
    except (np.linalg.LinAlgError, ValueError):
        raise ParameterError(
            f"weights of {where} must be a symmetric positive definite matrix. "
            "Give a vector if the columns are weighed one by one."
        ) from None
    return np.asarray(inv(weights))


def _slope_matrix(size: int) -> Floats:
    """Integrals of the derivative of one basis function times another."""
    x, w = rule(size + 3)
    rows = basis(size)
    values = legendre.legval(x, rows.T)
    slopes = legendre.legval(x, legendre.legder(rows, axis=1).T)
    return np.asarray((slopes * w) @ values.T)


def _clean(matrix: Floats) -> Floats:
    """Remove what rounding left of the zeros of a banded matrix."""
    return np.where(np.abs(matrix) < 1e-14, 0.0, matrix)
