"""The minimized function of logistic regression, its constants, and how near to its minimum floats come.

The function is the mean logistic loss of embedded rows, a quadratic penalty, and a linear term. Two classes
have one vector of weights. More classes have one vector each; because the minimizer's vectors sum to zero,
they are written in an orthonormal basis of that subspace, so that no noise is wasted on a direction without
effect.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy

from discreet.learn.logistic.sensitivity import (
    gradient_change,
    jacobian_cost,
    largest_gain,
    largest_gradient_change,
    mean_supremum,
    regularization_for_jacobian,
)
from discreet.learn.perturbation._solvers import GradientDescent
from discreet.learn.perturbation.mean_loss import CHUNK, UNIT, MeanLossProblem
from discreet.learn.perturbation.mean_loss_constants import MeanLossConstants
from discreet.learn.perturbation.noise import zero_sum_basis

if TYPE_CHECKING:
    from discreet._types import Floats, Ints
    from discreet.learn.perturbation.noise import VectorNoise

Sensitivity = Literal["tight", "worst-case"]


def rounding_error(n_rows: int, dimension: int, n_scores: int, norm: float) -> float:
    """Return how far the computed gradient of the mean loss can be from the true one at weights of a norm.

    Notes
    -----
    ``u`` is 2**-53. A computed product of ``n`` terms errs by at most ``n u`` times the product of absolute
    values, in any order of additions. Rows have norms of at most 1.

    - Scores: ``dimension u norm`` from the product with a row. Weights of several classes come from ``w``
      through the basis, whose absolute values have a norm below 3: ``3 classes u norm``. A slope changes by
      at most half of what scores change by, and the few operations behind it err by units in the last place
      of at most 1.
    - Sums: a row's slope has a norm of at most ``sqrt(2)``. Blocks of ``CHUNK`` slopes are added up, then the
      blocks, then the basis is applied.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """
    scores = (dimension + 3 * n_scores + 4) * norm / 2
    sums = 1.5 * (CHUNK + n_rows // CHUNK + 8 * n_scores + 16)
    # 1.01 for terms of higher order in u.
    return (scores + sums) * UNIT * 1.01


def gradient_descent(
    *, n_rows: int, dimension: int, n_classes: int, regularization: float, linear: float
) -> GradientDescent:
    """Return what gradient steps are certain to reach, for every table of this shape.

    Parameters
    ----------
    n_rows, dimension, n_classes : int
        Numbers of rows, of coordinates of an embedded row, and of classes.
    regularization : float
        Weight of the quadratic penalty, above 0.
    linear : float
        Bound on the norm of the linear term.

    Notes
    -----
    The loss has second derivatives of at most 1/4 for two classes and 1/2 for more. Without a linear term
    every minimizer has a norm of at most ``sqrt(largest_gain / regularization)``, and the term moves it by at
    most its own norm over the regularization.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md, masked-norm.md
    """
    norm = math.sqrt(largest_gain(n_classes) / regularization) + linear / regularization
    curvature = (0.25 if n_classes == 2 else 0.5) + regularization
    n_scores = 1 if n_classes == 2 else n_classes
    # All points of the descent stay within twice that norm of 0.
    error = rounding_error(n_rows, dimension, n_scores, 2 * norm)
    # A product and two sums for the penalty and the linear term.
    error += 4 * (2 * regularization * norm + linear) * UNIT
    return GradientDescent(
        curvature=curvature,
        regularization=regularization,
        norm=norm,
        # A quotient and a difference more, of vectors no longer than 2 norm each.
        step_error=error + 8 * curvature * norm * UNIT,
    )


class LogisticProblem(MeanLossProblem):
    """The mean logistic loss, of two classes or more."""

    @property
    def descent(self) -> GradientDescent:
        """Guarantee of gradient steps on this problem, which depends on the linear term and on no row."""
        return gradient_descent(
            n_rows=self.n_rows,
            dimension=self.rows.shape[1],
            n_classes=max(2, self._n_scores),
            regularization=self.regularization,
            linear=float(np.linalg.norm(self.linear_term)),
        )

    def _rounding_error(self, norm: float) -> float:
        return rounding_error(self.n_rows, self.rows.shape[1], self._n_scores, norm)

    @property
    @abstractmethod
    def _n_scores(self) -> int: ...


class BinaryProblem(LogisticProblem):
    """Two classes: the loss of a row is ``log(1 + exp(-y w.x))`` with ``y`` -1 or 1."""

    def __init__(self, rows: Floats, codes: Ints, regularization: float) -> None:
        super().__init__(rows, codes, regularization)
        self._sign = np.where(codes == 1, 1.0, -1.0)
        self._start(rows.shape[1])

    @property
    def _n_scores(self) -> int:
        return 1

    def _loss(self, block: slice, w: Floats) -> float:
        return float(np.logaddexp(0.0, -self._sign[block] * (self.rows[block] @ w)).sum())

    def _slope(self, block: slice, w: Floats) -> Floats:
        x, sign = self.rows[block], self._sign[block]
        return np.asarray(-(scipy.special.expit(-sign * (x @ w)) * sign) @ x)

    def _bend(self, block: slice, w: Floats) -> Floats:
        score = self.rows[block] @ w
        # Not p (1 - p): that loses all digits of 1 - p at large scores.
        return np.asarray(scipy.special.expit(score) * scipy.special.expit(-score))

    def _curvature(self, block: slice, w: Floats) -> Floats:
        x = self.rows[block]
        return x.T @ (x * self._bend(block, w)[:, np.newaxis])

    def _curvature_times(self, block: slice, w: Floats, v: Floats) -> Floats:
        x = self.rows[block]
        return (self._bend(block, w) * (x @ v)) @ x

    def weights(self, w: Floats) -> Floats:
        """Return the one row of weights."""
        return w[np.newaxis, :].copy()


class SoftmaxProblem(LogisticProblem):
    """Several classes: the loss of a row is ``logsumexp(W x) - (W x)_y``, the rows of ``W`` summing to 0.

    ``w`` holds the coordinates of ``W`` in :func:`zero_sum_basis`, whose lengths and angles are those of
    ``W``.
    """

    def __init__(self, rows: Floats, codes: Ints, regularization: float, n_classes: int) -> None:
        super().__init__(rows, codes, regularization)
        self.basis = zero_sum_basis(n_classes)
        self._start((n_classes - 1) * rows.shape[1])

    @property
    def _n_scores(self) -> int:
        return int(self.basis.shape[1])

    def weights(self, w: Floats) -> Floats:
        """Return one row of weights for each class."""
        return self.basis.T @ w.reshape(len(self.basis), -1)

    def _scores(self, block: slice, w: Floats) -> Floats:
        return np.asarray(self.rows[block] @ self.weights(w).T)

    def _loss(self, block: slice, w: Floats) -> float:
        scores = self._scores(block, w)
        own = scores[np.arange(len(scores)), self.codes[block]]
        return float((scipy.special.logsumexp(scores, axis=1) - own).sum())

    def _slope(self, block: slice, w: Floats) -> Floats:
        residual = scipy.special.softmax(self._scores(block, w), axis=1)
        residual[np.arange(len(residual)), self.codes[block]] -= 1
        return np.asarray(self.basis @ (residual.T @ self.rows[block])).reshape(-1)

    def _curvature(self, block: slice, w: Floats) -> Floats:
        """Return the sum of second derivatives of some rows' losses.

        Notes
        -----
        With ``b_a`` the basis vectors and ``p`` a row's probabilities, block ``(a, b)`` is the sum over rows
        of ``(p . (b_a b_b) - (p . b_a) (p . b_b)) x x'``: the covariance of ``b_a`` and ``b_b`` under ``p``.
        """
        x = self.rows[block]
        p = scipy.special.softmax(self._scores(block, w), axis=1)
        mean = p @ self.basis.T
        k, d = len(self.basis), x.shape[1]
        out = np.empty((k, d, k, d))
        for a in range(k):
            for b in range(a + 1):
                weight = p @ (self.basis[a] * self.basis[b]) - mean[:, a] * mean[:, b]
                out[a, :, b, :] = x.T @ (x * weight[:, np.newaxis])
                out[b, :, a, :] = out[a, :, b, :]
        return out.reshape(k * d, k * d)

    def _curvature_times(self, block: slice, w: Floats, v: Floats) -> Floats:
        p = scipy.special.softmax(self._scores(block, w), axis=1)
        moved = self._scores(block, v)
        # The softmax Jacobian diag(p) - p p' applied to the change of scores.
        moved = p * (moved - (p * moved).sum(axis=1, keepdims=True))
        return np.asarray(self.basis @ (moved.T @ self.rows[block])).reshape(-1)


def problem_for(rows: Floats, codes: Ints, regularization: float, n_classes: int) -> LogisticProblem:
    """Return the problem for a number of classes."""
    if n_classes == 2:
        return BinaryProblem(rows, codes, regularization)
    return SoftmaxProblem(rows, codes, regularization, n_classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticConstants(MeanLossConstants):
    """Public constants of a mean logistic loss with a quadratic penalty.

    Attributes
    ----------
    tight : bool
        Whether output perturbation uses the constant for its regularization; otherwise the one for every
        regularization.
    """

    tight: bool = True

    @property
    def size(self) -> int:
        """Numbers that are released: one weight per coordinate, for all classes but one."""
        return (self.n_classes - 1) * self.dimension

    @property
    def gradient_change(self) -> float:
        """The largest constant: the minimizer of a perturbed objective may be any vector."""
        return largest_gradient_change(self.n_classes)

    @property
    def gradient_norm(self) -> float:
        """Rows and residuals are at most about 1."""
        return 1.0

    @property
    def usual_curvature(self) -> float:
        """About ``1 / (4 dimension)`` for rows of norm 1, in the mean over directions."""
        return 1 / (4 * self.dimension)

    @property
    def mean_supremum(self) -> float:
        """See :func:`~discreet.learn.logistic.sensitivity.mean_supremum`."""
        return mean_supremum(self.n_classes)

    def change_at_minimizer(self, regularization: float) -> float:
        """See :func:`~discreet.learn.logistic.sensitivity.gradient_change`."""
        return gradient_change(self.n_classes, regularization, tight=self.tight)

    def jacobian_cost(self, regularization: float) -> float:
        """Return the part of epsilon that the change of volume costs."""
        return jacobian_cost(self.n_classes, regularization, self.n_rows)

    def regularization_for(self, cost: float) -> float:
        """Return the least regularization for a cost of the change of volume."""
        return regularization_for_jacobian(self.n_classes, cost, self.n_rows)

    def descent(self, regularization: float, linear_term: VectorNoise | None) -> GradientDescent:
        """Return what gradient steps are certain to reach, whatever is drawn for the linear term."""
        return gradient_descent(
            n_rows=self.most_rows,
            dimension=self.dimension,
            n_classes=self.n_classes,
            regularization=regularization,
            linear=0.0 if linear_term is None else linear_term.largest_norm / self.n_rows,
        )
