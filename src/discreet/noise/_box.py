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
import scipy
from numpy.polynomial import legendre

from discreet.errors import NoiseError, ParameterError
from discreet.noise.bounded import BoundedDensity
from discreet.noise.polynomial import basis, legendre_rule, mass_matrix, moment_matrix
from discreet.noise.samplers import check_count
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from discreet._types import Bools, Floats, Ints

MOST_COLUMNS = 3
"""Columns up to which the joint optimum is solved for."""
LOG2_STEPS = 24
"""log2 of the number of lattice cells per column."""
#: Basis functions per column, tried in turn, by number of columns.
_SIZES = {1: (24, 32, 48, 64), 2: (16, 24, 32, 48, 64), 3: (8, 12, 16, 20)}
# At the corners of a box the optimum for correlated weights is not smooth, so that it converges slowly.
_STABLE = {1: 1e-13, 2: 1e-6, 3: 1e-4}
#: Proposal cells per column, by number of columns.
_PER_COLUMN = {1: 1024, 2: 64, 3: 16}
#: Rows that are drawn together.
_ROWS = 1 << 14
_ACCURACY = 2.0**-42
"""Error of an acceptance probability in double precision."""


def product_density(
    lower: Floats, upper: Floats, *, weights: Floats, regularization: float = 0.0
) -> tuple[BoundedDensity, ...]:
    """Return the best independent noise on a box: one density for each column.

    Parameters
    ----------
    lower, upper : array of float, shape (p,)
        Ends of the columns' supports, in their units.
    weights : array of float, shape (p,) or (p, p)
        Weight matrix ``Pi``: a vector for its diagonal, or a symmetric positive definite matrix.
    regularization : float
        Factor of the mean squares in the objective; at least 0.

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
        weights = 1 / np.diagonal(_check_inverse(weights, "product_density"))
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
    """Proposal cells: cumulative shares of 2**62, in proportion to the squared bounds on ``|u|``."""

    ends: Ints
    bounds: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class BoxDensity:
    """The least informative density on a box of up to three columns, for any weights.

    Minimizes ``Tr(Pi^-1 I) + regularization * E |n|**2`` over all densities on the box.

    Parameters
    ----------
    lower, upper : array of float, shape (p,)
        Finite ends of the box, in the columns' units; p is at most 3.
    weights : array of float, shape (p, p)
        Weight matrix ``Pi``, symmetric positive definite.
    regularization : float
        Factor of the mean square in the objective; at least 0.

    Attributes
    ----------
    objective : float
        Objective of the law, relatively above the least value by about 1e-6 (two columns) or 1e-4 (three).
    information, second_moments : ndarray, shape (p, p)
        Fisher information about the location, and ``E n n'``.
    mean : ndarray, shape (p,)
        Mean of the noise, in the columns' units.
    total_variation : float
        Total variation distance of the sampler from the law, per row.

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
        """Convert the arrays and check shapes, bounds, weights and regularization."""
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
        _check_inverse(self.weights, "BoxDensity")

    @property
    def _half(self) -> Floats:
        return 0.5 * (self.upper - self.lower)

    @cached_property
    def _state(self) -> tuple[Floats, float]:
        """Coefficients of ``u`` on [-1, 1]^p, its square of mass 1 there, and the objective."""
        p = self.lower.size
        before = math.inf
        for size in _SIZES[p]:
            objective, vector = self._lowest_eigenpair(size)
            if abs(objective / before - 1) < _STABLE[p]:
                return vector.reshape((size,) * p), objective
            before = objective
        raise NoiseError(
            "The density of least Fisher information on the box did not converge: the weights are too far "
            "from diagonal, or the regularization is too large for so wide a box. Give a smaller one, or use "
            "product_density: independent noise."
        )

    def _lowest_eigenpair(self, size: int) -> tuple[float, Floats]:
        """Return the least objective and the coefficients of u, flat and of mass 1, for ``size`` functions.

        Notes
        -----
        On [-1, 1]^p with half-widths h_j and middles m_j the energy of u is ``4 sum_jk (Pi^-1)_jk / (h_j h_k)
        <d_j u, d_k u> + regularization sum_j <u, (h_j x_j + m_j)^2 u>``, a sum of Kronecker products of
        one-dimensional matrices. In that basis ``<d u, d u>`` is the identity.
        """
        p, half = self.lower.size, self._half
        middle = 0.5 * (self.lower + self.upper)
        inverse = _check_inverse(self.weights, "BoxDensity")
        mass = scipy.sparse.csc_matrix(_drop_rounding(mass_matrix(size)))
        slope = scipy.sparse.csc_matrix(_drop_rounding(_slope_matrix(size)))
        moments = [scipy.sparse.csc_matrix(_drop_rounding(moment_matrix(size, power))) for power in (1, 2)]

        def tensor(**special: scipy.sparse.csc_matrix) -> scipy.sparse.csc_matrix:
            factors = [special.get(f"at{j}", mass) for j in range(p)]
            return scipy.sparse.csc_matrix(reduce(scipy.sparse.kron, factors))

        energy = scipy.sparse.csc_matrix((size**p, size**p))
        for j in range(p):
            energy = energy + 4 * inverse[j, j] / half[j] ** 2 * tensor(
                **{f"at{j}": scipy.sparse.eye(size, format="csc")}
            )
            square = half[j] ** 2 * moments[1] + 2 * half[j] * middle[j] * moments[0] + middle[j] ** 2 * mass
            energy = energy + self.regularization * tensor(**{f"at{j}": square})
            for k in range(j):
                # The slope matrix is antisymmetric, because basis functions vanish at the ends: -slope is its
                # transpose. 8 is 4 for (j, k) and 4 for (k, j).
                cross = tensor(**{f"at{j}": slope, f"at{k}": -slope})
                energy = energy + 8 * inverse[j, k] / (half[j] * half[k]) * cross
        total_mass = tensor()
        solver = scipy.sparse.linalg.splu(scipy.sparse.csc_matrix(energy))
        # The largest nu of mass v = nu energy v keeps digits that the smallest of the inverse problem loses.
        # With a start vector given, the result is the same at every call.
        nu, vectors = scipy.sparse.linalg.eigsh(
            total_mass,
            k=1,
            M=energy,
            Minv=scipy.sparse.linalg.LinearOperator(energy.shape, solver.solve),
            which="LA",
            v0=np.ones(size**p),
            tol=1e-15,
        )
        vector = vectors[:, 0] * math.copysign(1.0, vectors[0, 0])
        return 1 / float(nu[0]), vector / math.sqrt(float(vector @ (total_mass @ vector)))

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
        """Return u at rows ``x`` of [-1, 1]^p, contracting the coefficients column by column."""
        coefficients = self._state[0]
        size = coefficients.shape[0]
        values = [legendre.legvander(x[:, j], size + 1) @ basis(size).T for j in range(x.shape[1])]
        out = values[0] @ coefficients.reshape(size, -1)
        for factor in values[1:]:
            out = np.einsum("ijk,ij->ik", out.reshape(len(x), size, -1), factor)
        return np.asarray(out[:, 0])

    def pdf(self, n: Floats) -> Floats:
        """Return the density at rows ``n``."""
        return np.square(self.root(n))

    def _quadratic_form(self, first: Floats, second: Floats, j: int, k: int) -> float:
        """Return the quadratic form of u: ``first`` in column j, ``second`` in k, the mass elsewhere."""
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
            out[j, j] = 4 * self._quadratic_form(np.eye(size), mass_matrix(size), j, -1) / half[j] ** 2
            for k in range(j):
                out[j, k] = out[k, j] = 4 * self._quadratic_form(slope, -slope, j, k) / (half[j] * half[k])
        return out

    @cached_property
    def mean(self) -> Floats:
        """First moments of the noise."""
        size = self._state[0].shape[0]
        first = [
            self._quadratic_form(moment_matrix(size, 1), mass_matrix(size), j, -1)
            for j in range(self.lower.size)
        ]
        return np.asarray(0.5 * (self.lower + self.upper) + self._half * np.array(first))

    @cached_property
    def second_moments(self) -> Floats:
        """Second moments ``E n n'``, about 0 and not about the mean."""
        p, size = self.lower.size, self._state[0].shape[0]
        one, two = moment_matrix(size, 1), moment_matrix(size, 2)
        centered = np.empty((p, p))
        for j in range(p):
            centered[j, j] = self._quadratic_form(two, mass_matrix(size), j, -1)
            for k in range(j):
                centered[j, k] = centered[k, j] = self._quadratic_form(one, one, j, k)
        middle = 0.5 * (self.lower + self.upper)
        shift = np.outer(middle, self.mean)
        return np.asarray(
            np.outer(self._half, self._half) * centered + shift + shift.T - np.outer(middle, middle)
        )

    @property
    def covariance(self) -> Floats:
        """Covariance matrix of the noise."""
        return np.asarray(self.second_moments - np.outer(self.mean, self.mean))

    @property
    def largest_density(self) -> float:
        """Bound on the density over the box."""
        return float(self._cells.bounds.max()) ** 2 / float(np.prod(self._half))

    def marginal(self, j: int, n: Floats) -> Floats:
        """Return the density of column ``j`` alone at ``n``, 0 outside its support."""
        coefficients = np.moveaxis(self._state[0], j, 0)
        size, p = coefficients.shape[0], coefficients.ndim
        weighted = coefficients
        for axis in range(1, p):
            weighted = np.moveaxis(np.tensordot(mass_matrix(size), weighted, axes=(1, axis)), 0, axis)
        # The density is a quadratic form of the values of the basis functions of this column.
        form = np.tensordot(coefficients, weighted, axes=(range(1, p), range(1, p)))
        n = np.asarray(n, np.float64)
        x = (n - self.lower[j]) / self._half[j] - 1.0
        values = legendre.legvander(np.clip(x, -1, 1), size + 1) @ basis(size).T
        density = np.einsum("...i,ij,...j->...", values, form, values) / self._half[j]
        return np.where(np.abs(x) <= 1, np.maximum(density, 0.0), 0.0)

    def scaled(self, factor: float) -> BoxDensity:
        """Return the law of ``factor`` times the noise, without solving for it again."""
        wider = BoxDensity(
            lower=self.lower * factor,
            upper=self.upper * factor,
            weights=self.weights,
            regularization=self.regularization / factor**4,
        )
        # On [-1, 1]^p the two problems are one, but for a factor of the objective.
        wider.__dict__["_state"] = (self._state[0], self._state[1] / factor**2)
        return wider

    @property
    def step(self) -> Floats:
        """Width of a lattice cell in each column, ``2**-24`` of the support."""
        return np.asarray((self.upper - self.lower) / (1 << LOG2_STEPS))

    @property
    def total_variation(self) -> float:
        """Distance of a row from the law: acceptance in double precision, and shares rounded to 2**-62."""
        cells = self._cells
        # The mean acceptance probability is the integral of u**2, which is 1, over that of the bounds.
        acceptance = (cells.bounds.size / 2.0**self.lower.size) / float(np.sum(cells.bounds**2))
        return 2 * (_ACCURACY + cells.bounds.size * 2.0**-62) / acceptance

    @cached_property
    def _cells(self) -> _Cells:
        """Bound |u| on every proposal cell by its corners and curvatures, and cumulate the squares."""
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
        # The last factor is for the rounding of these values.
        bounds = (largest.reshape(-1) + slack) * (1 + 1e-9)
        ends = np.floor(np.cumsum(bounds**2) / float(np.sum(bounds**2)) * 2.0**62).astype(np.int64)
        # Rounding must not leave numbers below 2**62 that belong to no cell.
        ends[-1] = 1 << 62
        return _Cells(ends, bounds)

    def _curvature(self, j: int) -> float:
        """Return a bound on the second derivative of ``u`` in column ``j`` over [-1, 1]^p.

        Notes
        -----
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
        size = check_count(size, "size", "BoxDensity.integers")
        stream = stream_or_fresh(stream)
        out = np.empty((size, self.lower.size), np.int64)
        for start in range(0, size, _ROWS):
            part = out[start : start + _ROWS]
            open_rows = np.arange(len(part))
            while open_rows.size:
                # Rejected rows are redrawn in place, so that every position has the same law.
                proposed, accepted = self._propose(open_rows.size, stream)
                part[open_rows[accepted]] = proposed[accepted]
                open_rows = open_rows[~accepted]
        return out

    def _propose(self, n: int, stream: Stream) -> tuple[Ints, Bools]:
        """Return ``n`` proposed rows of lattice cells, and which of them are accepted."""
        p, per_column, cells = self.lower.size, _PER_COLUMN[self.lower.size], self._cells
        words = stream.words(n * (p + 2)).reshape(p + 2, n)
        cell = np.searchsorted(cells.ends, (words[0] >> np.uint64(2)).view(np.int64), side="right")
        place = np.stack(np.unravel_index(cell, (per_column,) * p), axis=1)
        bits = LOG2_STEPS - int(math.log2(per_column))
        offset = words[2:].T
        # Accepted at the point itself and floored afterwards: a lattice cell has the mass of u**2 over it.
        x = (place + offset * 2.0**-64) * (2 / per_column) - 1
        chance = np.square(self._unit_root(x) / cells.bounds[cell])
        accepted = (words[1] >> np.uint64(11)) * 2.0**-53 < chance
        return (place << bits) + (offset >> np.uint64(64 - bits)).view(np.int64), accepted

    def values(self, cells: Ints) -> Floats:
        """Return the middle of each lattice cell."""
        return np.asarray(self.lower + (cells + 0.5) * self.step)


def _check_inverse(weights: Floats, where: str) -> Floats:
    """Return the inverse of a weight matrix; raise ParameterError unless it is positive definite."""
    try:
        if weights.ndim != 2 or not np.allclose(weights, weights.T, rtol=1e-12, atol=0):
            raise np.linalg.LinAlgError
        scipy.linalg.cholesky(weights)
    except (np.linalg.LinAlgError, ValueError):
        raise ParameterError(
            f"weights of {where} must be a symmetric positive definite matrix. "
            "Give a vector if the columns are weighed one by one."
        ) from None
    return np.asarray(scipy.linalg.inv(weights))


def _slope_matrix(size: int) -> Floats:
    """Return the integrals of the derivative of one basis function times another."""
    x, w = legendre_rule(size + 3)
    rows = basis(size)
    values = legendre.legval(x, rows.T)
    slopes = legendre.legval(x, legendre.legder(rows, axis=1).T)
    return np.asarray((slopes * w) @ values.T)


def _drop_rounding(matrix: Floats) -> Floats:
    """Return a banded matrix with entries below 1e-14, which are rounded zeros, set to 0."""
    return np.where(np.abs(matrix) < 1e-14, 0.0, matrix)
