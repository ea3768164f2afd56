"""Points of a masked table for any number of classes, an intercept and fixed records.

With ``W = A Q^T``, Q an orthonormal basis of the row space of the weights W, a point is ``x = Q u + v`` with
v orthogonal to Q. The residual of a point, minus the derivative of its loss by the scores, depends on u
alone. For logistic regression it is the one-hot label minus the probabilities. So u is computed first, by
Gauss-Newton steps that move all points of a group alike; v then follows by one projection.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.noise.linear_algebra import least_squares, norm, product, row_space, symmetric_eigen
from discreet.privacy.roots import find_root
from discreet.release.masked._points import linear_program_start, tilted_shares, tilted_start
from discreet.release.masked.encoding import model_shares, public_ball
from discreet.release.masked.existence import blocks, sample_ball
from discreet.release.masked.losses import LOGISTIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats, Ints
    from discreet.noise import Stream
    from discreet.release.masked.losses import MaskedLoss

TOLERANCE = 1e-14
"""Norm of the mean equations at which the iteration stops."""
ACCEPTED = 2e-13
"""Largest norm of the mean equations that is accepted where further steps do not help."""
_BUCKETS = (1, 8, 64)
"""Numbers of groups per label, tried in this order; the points of a group move alike."""
_MOST_SLOW, _MOST_TRIES, _LONGEST_MOVE = 6, 8, 20.0
"""Slow steps before the groups are divided; tries at one step; largest entry of a step."""
_ROOM = 0.9
"""Share of the radius, or of the room beside u, that points may use before they are projected."""
_ALPHAS = np.concatenate([[0.0], np.geomspace(0.01, 40.0, 40)])
"""Distances by which all points are moved towards their class, from the least to the largest."""


class PointsNotFound(Exception):
    """Raised where no points were found for these weights; smaller weights may have some."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PointTargets:
    """Weights that the points must have as the minimizer of their training problem.

    Attributes
    ----------
    weights : array of shape (n_scores, dimension)
        One row for each score; the last column belongs to the constant coordinate, where there is one.
    codes : array of int
        Position of the label of each point among the classes, shape (n_points,).
    regularization : float
        Weight lambda of the penalty ``lambda / 2 |weights|**2`` beside the mean loss; above 0.
    radius : float
        Radius of the ball that contains the points.
    constant : float
        Last coordinate of every point, for an intercept; 0 if there is none.
    fixed, fixed_codes : array
        Records that are published as they are, shape (n_fixed, dimension), and the positions of their labels.
    loss : MaskedLoss
        Loss of the learner that shall find the weights.
    """

    weights: Floats
    codes: Ints
    regularization: float
    radius: float
    constant: float
    fixed: Floats
    fixed_codes: Ints
    loss: MaskedLoss = LOGISTIC

    @property
    def n_total(self) -> int:
        """Number of points, those of the fixed set included."""
        return len(self.codes) + len(self.fixed)

    @property
    def inner_radius(self) -> float:
        """Radius of the ball of the coordinates that are not constant."""
        return math.sqrt(max(self.radius**2 - self.constant**2, 0.0))

    @property
    def inner(self) -> Floats:
        """Weights of the coordinates that are not constant."""
        return self.weights[:, :-1] if self.constant > 0 else self.weights

    @property
    def offset(self) -> Floats:
        """Score of each class at the origin."""
        return self.weights[:, -1] * self.constant if self.constant > 0 else np.zeros(len(self.weights))


def general_points(targets: PointTargets, stream: Stream) -> Floats:
    """Return points in the ball at which, together with the fixed ones, the gradient vanishes.

    Parameters
    ----------
    targets : PointTargets
        Weights, labels, penalty, ball and fixed records of the table to be made.
    stream : Stream
        Source of the random points from which the construction starts.

    Returns
    -------
    array of shape (n_points, dimension)

    Raises
    ------
    PointsNotFound
        If the iteration does not converge from any start.

    Privacy
    -------
    Depends on rows through the weights, the labels and the fixed points alone.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    n, d = len(targets.codes), targets.inner.shape[1]
    # Sorted by label, so that groups of one label are slices.
    order = np.argsort(targets.codes, kind="stable")
    points = sample_ball(n, d, targets.inner_radius, stream)
    Q = row_space(targets.inner, 1e-13).T
    system = PointEquations(targets, Q, targets.codes[order])
    u = system.map_to_ball(system.solve(product(points, Q) / system.radius))
    _project(points, Q, u, system, targets)
    out = np.empty((n, d + (targets.constant > 0)))
    out[:, d:] = targets.constant
    for block in blocks(n):
        out[order[block], :d] = product(u[block], Q.T) + points[block]
    return out


class PointEquations:
    """The equations for u: ``mean over all points of residual u^T = regularization A``.

    Written in a basis of what residuals can be, so that no equation follows from the others.

    Parameters
    ----------
    targets : PointTargets
        Weights, labels, penalty, ball and fixed records of the table to be made.
    Q : array of shape (dimension, rank)
        Orthonormal basis of the row space of the weights, without the constant coordinate.
    codes : array of int
        Labels of the points, sorted.
    """

    def __init__(self, targets: PointTargets, Q: Floats, codes: Ints) -> None:
        """Compute the right-hand side: what the fixed points leave of ``regularization * weights``."""
        self.codes = codes
        self.A = product(targets.inner, Q)
        self.offset = targets.offset
        self.loss = targets.loss
        self.basis = self.loss.basis(len(targets.weights))
        self.constant = targets.constant
        self.n_total = targets.n_total
        self.fixed = len(targets.fixed) > 0
        self.rank = self.A.shape[1]
        self.n_classes = max(2, len(targets.weights))
        # Where Q spans the whole space there is no part v that would need room in the ball.
        whole = self.rank == targets.inner.shape[1]
        self.radius = targets.inner_radius * ((1 - 1e-12) if whole else _ROOM)
        target = targets.regularization * targets.weights
        fixed_sums = np.zeros_like(targets.weights)
        if len(targets.fixed):
            residuals = self.residuals(
                product(targets.fixed[:, : targets.inner.shape[1]], Q), targets.fixed_codes
            )
            fixed_sums = product(residuals.T, targets.fixed) / self.n_total
        left = target - fixed_sums
        parts = [product(left[:, : targets.inner.shape[1]], Q)]
        if self.constant > 0:
            parts.append(left[:, -1:] / self.constant)
        self.target = product(self.basis, np.hstack(parts))
        self.need = float(np.sum(targets.weights * left))

    def scores(self, u: Floats) -> Floats:
        """Return the scores of points with coordinates u: shape (n_points, n_scores)."""
        return product(u, self.A.T) + self.offset

    def residuals(self, u: Floats, codes: Ints) -> Floats:
        """Return minus the derivatives of the losses by the scores: shape (n_points, n_scores)."""
        return self.loss.residuals(self.scores(u), codes)

    def map_to_ball(self, q: Floats) -> Floats:
        """Map any vectors into the ball: ``u = radius q / sqrt(1 + |q|^2)``."""
        return np.asarray(self.radius * q / np.sqrt(1 + np.einsum("ij,ij->i", q, q))[:, np.newaxis])

    def error(self, q: Floats) -> Floats:
        """Return left minus right side of the equations at q: shape (size of the basis, rank [+ 1])."""
        total = np.zeros_like(self.target)
        for block in blocks(len(q)):
            u = self.map_to_ball(q[block])
            residuals = product(self.residuals(u, self.codes[block]), self.basis.T)
            total += product(residuals.T, self.append_one(u))
        return total / self.n_total - self.target

    def append_one(self, u: Floats) -> Floats:
        return np.hstack([u, np.ones((len(u), 1))]) if self.constant > 0 else u

    def jacobian(self, q: Floats, groups: Sequence[slice]) -> Floats:
        """Return the Jacobian by common moves of the groups: shape (n_equations, n_groups * rank)."""
        n_equations = self.target.size
        result = np.empty((n_equations, len(groups), self.rank))
        for g, group in enumerate(groups):
            result[:, g] = sum(
                (
                    self._jacobian_block(q[group][block], self.codes[group][block])
                    for block in blocks(len(q[group]), 2048)
                ),
                start=np.zeros((n_equations, self.rank)),
            )
        return result.reshape(n_equations, -1) / self.n_total

    def _jacobian_block(self, q: Floats, codes: Ints) -> Floats:
        """Return the derivative of the summed equations by one common move of all q of a block.

        Notes
        -----
        With ``den = sqrt(1 + |q|^2)``, ``r = radius / den`` and B the second derivative of the loss by the
        scores: ``du = r (dq - q (q . dq) / den^2)`` and the residual changes by ``-B A du``. A point
        contributes ``-B A du u^T + residual du^T``, the rows multiplied by the basis.
        """
        den = np.sqrt(1 + np.einsum("ij,ij->i", q, q))[:, np.newaxis]
        u = self.radius * q / den
        scores = self.scores(u)
        residuals = product(self.loss.residuals(scores, codes), self.basis.T)
        n, k, e = len(q), self.rank, len(self.basis)
        # First -B A du u^T, with the scalar r taken in at the end; then residual du^T.
        reduced_slopes = np.einsum("ec,nck->nek", self.basis, self.loss.bend(scores, codes, self.A))
        radial = np.einsum("nek,nk->ne", reduced_slopes, q)[:, :, np.newaxis] * (q / den**2)[:, np.newaxis, :]
        minus_change = ((radial - reduced_slopes) * (self.radius / den)[:, np.newaxis]).reshape(n, e * k)
        out = product(self.append_one(u).T, minus_change).reshape(-1, e, k).transpose(1, 0, 2).copy()
        residuals *= self.radius / den
        out[:, :k] += residuals.sum(axis=0)[:, np.newaxis, np.newaxis] * np.eye(k)
        outer = (q[:, :, np.newaxis] * (q / den**2)[:, np.newaxis, :]).reshape(n, k * k)
        out[:, :k] -= product(residuals.T, outer).reshape(e, k, k)
        return np.asarray(out.reshape(-1, k))

    def solve(self, start: Floats) -> Floats:
        """Return q at which the equations hold, or raise :class:`PointsNotFound`."""
        # Scores that do not sum to zero leave too little room for a guess; whether the candidate places have
        # a solution is known sooner.
        result = self._solve_from(self._initial_guess(start)) if self.loss.zero_sum else None
        # Fixed points leave little room, and shorter weights need not have more: try other starts.
        for further in (tilted_start, linear_program_start) if self.fixed or not self.loss.zero_sum else ():
            if result is None:
                begin = further(self, start)
                result = None if begin is None else self._solve_from(begin)
        if result is None:
            raise PointsNotFound
        return result

    def _solve_from(self, q: Floats) -> Floats | None:
        """Return the solution reached from q by moving ever smaller groups; None if there is none."""
        error = self.error(q)
        for buckets in _BUCKETS if self.rank else ():
            # Where moving all points of a label alike does not suffice, smaller groups move independently.
            before = norm(error)
            q, error = self._improve(q, error, self._groups(buckets))
            # Smaller groups that do not halve the error would not help if divided again.
            if norm(error) <= ACCEPTED or (buckets > 1 and norm(error) > before / 2):
                break
        return q if norm(error) <= ACCEPTED else None

    def _improve(self, q: Floats, error: Floats, groups: list[slice]) -> tuple[Floats, Floats]:
        """Take damped Gauss-Newton steps until the equations hold or the steps help little.

        Notes
        -----
        The step is ``-J^T (J J^T + damping * largest eigenvalue)^-1 error``: with few equations and many
        unknowns, the one of least norm. Damping grows tenfold where a step does not help and then falls
        again.
        """
        damping, slow = 1e-6, 0
        while norm(error) > TOLERANCE and slow < _MOST_SLOW:
            size = norm(error)
            J = self.jacobian(q, groups)
            values, vectors = symmetric_eigen(product(J, J.T))
            values = np.maximum(values, 0.0)  # rounding may make them slightly negative
            if not values[-1] > 0:
                break
            for _ in range(_MOST_TRIES):
                # In the eigenvectors of J J^T every damping costs one division, not another factorization.
                inverse = 1 / (values + (damping + 1e-15) * values[-1])
                moves = -product(J.T, product(vectors, inverse * product(vectors.T, error.reshape(-1))))
                # Beyond this a point is practically on the edge of the ball, where the map is flat.
                moves *= min(1.0, _LONGEST_MOVE / max(float(np.abs(moves).max()), 1e-300))
                trial = q.copy()
                for group, move in zip(groups, moves.reshape(len(groups), self.rank), strict=True):
                    trial[group] += move
                trial_error = self.error(trial)
                if norm(trial_error) < size:
                    break
                damping = max(damping, 1e-12) * 10
            else:
                break
            q, error = trial, trial_error
            damping /= 30
            slow += norm(error) > size / 2
        return q, error

    def _groups(self, buckets: int) -> list[slice]:
        """Cut the points of each label into ``buckets`` groups of about the same size."""
        bounds = np.searchsorted(self.codes, np.arange(self.n_classes + 1))
        groups = []
        for first, last in itertools.pairwise(bounds.tolist()):
            parts = min(buckets, last - first)
            cuts = np.linspace(first, last, parts + 1).round().astype(int).tolist() if parts else []
            groups += [slice(a, b) for a, b in itertools.pairwise(cuts)]
        return groups

    def _initial_guess(self, q: Floats) -> Floats:
        """Move every point towards its own class until the mean gain is the required one.

        Notes
        -----
        The gain of a point is ``residual . scores``. Multiplying the equations by the weights shows that
        its mean must be ``need``; the move alpha is the least one at which it is, or the best one on the
        grid.
        """
        directions = self.loss.directions(self.A)[self.codes]

        def excess(alpha: float) -> float:
            total = 0.0
            for block in blocks(len(q)):
                u = self.map_to_ball(q[block] + alpha * directions[block])
                total += float(np.sum(self.residuals(u, self.codes[block]) * self.scores(u)))
            return total / self.n_total - self.need

        # The gain is not monotonic in alpha, so the first sign change on a grid is refined.
        most, best = excess(0.0), 0.0
        if most >= 0:
            return q
        for low, high in itertools.pairwise(_ALPHAS.tolist()):
            value = excess(high)
            if value >= 0:
                return np.asarray(q + find_root(excess, low, high, xtol=1e-6) * directions)
            most, best = max((most, best), (value, high))
        return np.asarray(q + best * directions)


def label_shares(
    weights: Floats, regularization: float, constant: float, radius: float, loss: MaskedLoss
) -> Floats:
    """Return shares of labels that fit a classifier: equal ones, unless it has an intercept.

    Privacy
    -------
    A function of the released weights. The points are the same for every release.

    Notes
    -----
    :func:`~discreet.release.masked.encoding.model_shares` takes points as they fall in the ball. Scores that
    do not sum to zero leave fewer shares to choose from, and those of :func:`tilted_shares` are tried first.
    """
    fallback = model_shares(weights, regularization, constant, radius, loss)
    if constant == 0 or loss.zero_sum:
        return fallback
    targets = PointTargets(
        weights=weights,
        codes=np.arange(len(fallback)),
        regularization=regularization,
        radius=radius,
        constant=constant,
        fixed=np.zeros((0, weights.shape[1])),
        fixed_codes=np.zeros(0, np.int64),
        loss=loss,
    )
    Q = row_space(targets.inner, 1e-13).T
    found = tilted_shares(PointEquations(targets, Q, targets.codes), product(public_ball(len(Q)), Q))
    return fallback if found is None else found


def _project(points: Floats, Q: Floats, u: Floats, system: PointEquations, targets: PointTargets) -> None:
    """Overwrite random points by parts v orthogonal to Q that solve the remaining equations.

    Notes
    -----
    Required is ``sum of residual_i v_i^T + (the same sum over fixed points) = 0``. With R the matrix of
    residuals, subtracting ``R (R^T R)^-1 R^T v`` makes the sum of the new points vanish, and
    ``-R (R^T R)^-1 S`` balances the sum S of the fixed ones. One common factor on the first part keeps every
    point in the ball and the sum at zero; it does not exist if the second part alone leaves the ball.
    """
    n = len(points)
    square = np.zeros((len(system.basis),) * 2)
    sums = np.zeros((len(system.basis), points.shape[1]))
    room = np.sqrt(np.maximum(targets.inner_radius**2 - np.einsum("ij,ij->i", u, u), 0.0)) * (1 - 1e-12)
    for block in blocks(n):
        part = points[block]
        part -= product(product(part, Q), Q.T)
        size = np.sqrt(np.einsum("ij,ij->i", part, part))
        part *= np.minimum(1.0, _ROOM * room[block] / np.where(size > 0, size, 1.0))[:, np.newaxis]
        residuals = product(system.residuals(u[block], system.codes[block]), system.basis.T)
        square += product(residuals.T, residuals)
        sums += product(residuals.T, part)
    fixed = np.zeros_like(sums)
    if len(targets.fixed):
        inner = targets.fixed[:, : points.shape[1]]
        residuals = product(system.residuals(product(inner, Q), targets.fixed_codes), system.basis.T)
        fixed = product(residuals.T, inner - product(product(inner, Q), Q.T))
    # Residuals may be linearly dependent, so the normal equations are solved by least squares.
    free_coefficients, forced_coefficients = (least_squares(square, side) for side in (sums, fixed))
    if Q.shape[1] == points.shape[1]:
        points[:] = 0.0
        return
    # The largest common factor on the free parts under which all points stay in the ball.
    factor = 1.0
    for block in blocks(n):
        residuals = product(system.residuals(u[block], system.codes[block]), system.basis.T)
        points[block] -= product(residuals, free_coefficients)
        # Once more, because rounding leaves a little along Q.
        points[block] -= product(product(points[block], Q), Q.T)
        if len(targets.fixed):
            forced_part = -product(residuals, forced_coefficients)
            factor = min(factor, _largest_factor(forced_part, points[block], room[block]))
        else:
            size = np.sqrt(np.einsum("ij,ij->i", points[block], points[block]))
            over = size > room[block]
            if over.any():
                factor = min(factor, float(np.min(room[block][over] / size[over])))
    if factor < 0:
        raise PointsNotFound
    for block in blocks(n):
        points[block] *= factor
        if len(targets.fixed):
            residuals = product(system.residuals(u[block], system.codes[block]), system.basis.T)
            points[block] -= product(residuals, forced_coefficients)


def _largest_factor(base: Floats, direction: Floats, room: Floats) -> float:
    """Return the largest factor up to 1 with ``|base + factor * direction| <= room`` in all rows, else -1."""
    a = np.einsum("ij,ij->i", direction, direction)
    b = np.einsum("ij,ij->i", base, direction)
    c = np.einsum("ij,ij->i", base, base) - room**2
    if (c > 0).any():
        return -1.0
    root = np.sqrt(np.maximum(b * b - a * c, 0.0))
    factor = np.divide(root - b, a, out=np.ones_like(a), where=a > 0)
    return float(min(1.0, factor.min(initial=1.0)))
