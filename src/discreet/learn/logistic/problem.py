"""The minimized function of logistic regression, and Newton's method with a certificate.

The function is the mean logistic loss of embedded rows, a quadratic penalty, and a linear term. Two classes
have one vector of weights. More classes have one vector each; because the minimizer's vectors sum to zero,
they are written in an orthonormal basis of that subspace, so that no noise is wasted on a direction without
effect.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, special
from scipy.sparse.linalg import LinearOperator, cg

from discreet.learn.logistic.sensitivity import largest_gain
from discreet.learn.perturbation._solvers import GradientDescent, quasi_newton, search_line
from discreet.learn.perturbation.noise import zero_sum_basis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from discreet._types import Floats, Ints


CHUNK = 1 << 10
"""Rows that are added up at once: the rounding error of a sum grows with them."""
_UNIT = 2.0**-53


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
    return (scores + sums) * _UNIT * 1.01


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
    error += 4 * (2 * regularization * norm + linear) * _UNIT
    return GradientDescent(
        curvature=curvature,
        regularization=regularization,
        norm=norm,
        # A quotient and a difference more, of vectors no longer than 2 norm each.
        step_error=error + 8 * curvature * norm * _UNIT,
    )


class LogisticProblem(ABC):
    """The function ``mean loss + regularization / 2 |w|**2 + linear_term . w`` of a flat vector ``w``.

    Parameters
    ----------
    rows : array of shape (n_rows, dimension)
        Embedded rows, each of norm at most 1.
    codes : array of int
        The class of each row, as a position in the list of classes.
    regularization : float
        Above 0: the function is strongly convex with this constant.

    Attributes
    ----------
    size : int
        Number of entries of ``w``.
    linear_term : array
        Coefficients of the linear term; 0 unless the objective is perturbed.
    linear_term_error : float
        Bound on the distance of the linear term from the one that was drawn.
    """

    size: int

    def __init__(self, rows: Floats, codes: Ints, regularization: float) -> None:
        self.rows = rows
        self.codes = codes
        self.n_rows = len(rows)
        self.regularization = regularization
        self.linear_term: Floats = np.zeros(0)
        self.linear_term_error = 0.0

    def _start(self, size: int) -> None:
        self.size = size
        self.linear_term = np.zeros(size)

    def _blocks(self) -> Iterator[slice]:
        for start in range(0, self.n_rows, CHUNK):
            yield slice(start, start + CHUNK)

    def value(self, w: Floats) -> float:
        """Return the function."""
        loss = math.fsum(self._loss(block, w) for block in self._blocks()) / self.n_rows
        return loss + self.regularization / 2 * float(w @ w) + float(self.linear_term @ w)

    def gradient(self, w: Floats) -> Floats:
        """Return the gradient; :meth:`gradient_error` bounds its error."""
        # Block by block, because the error of a sum grows with its length.
        total = sum((self._slope(block, w) for block in self._blocks()), start=np.zeros(self.size))
        return total / self.n_rows + self.regularization * w + self.linear_term

    def hessian(self, w: Floats) -> Floats:
        """Return the matrix of second derivatives."""
        total = sum((self._curvature(b, w) for b in self._blocks()), start=np.zeros((self.size, self.size)))
        total /= self.n_rows
        total[np.diag_indices(self.size)] += self.regularization
        return total

    def curvature_times(self, w: Floats, v: Floats) -> Floats:
        """Return the matrix of second derivatives times ``v``, without making it."""
        total = sum((self._curvature_times(b, w, v) for b in self._blocks()), start=np.zeros(self.size))
        return total / self.n_rows + self.regularization * v

    def gradient_error(self, w: Floats) -> float:
        """Return how far :meth:`gradient` can be from the true one: see :func:`rounding_error`."""
        size = float(np.linalg.norm(w))
        rest = 4 * (self.regularization * size + float(np.linalg.norm(self.linear_term)))
        return (
            rounding_error(self.n_rows, self.rows.shape[1], self._n_scores, size)
            + rest * _UNIT
            + self.linear_term_error
        )

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

    @property
    @abstractmethod
    def _n_scores(self) -> int: ...

    @abstractmethod
    def _loss(self, block: slice, w: Floats) -> float: ...

    @abstractmethod
    def _slope(self, block: slice, w: Floats) -> Floats: ...

    @abstractmethod
    def _curvature(self, block: slice, w: Floats) -> Floats: ...

    @abstractmethod
    def _curvature_times(self, block: slice, w: Floats, v: Floats) -> Floats: ...

    @abstractmethod
    def weights(self, w: Floats) -> Floats:
        """Return one row of weights for each score."""


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
        return np.asarray(-(special.expit(-sign * (x @ w)) * sign) @ x)

    def _bend(self, block: slice, w: Floats) -> Floats:
        score = self.rows[block] @ w
        # Not p (1 - p): that loses all digits of 1 - p at large scores.
        return np.asarray(special.expit(score) * special.expit(-score))

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
        return float((special.logsumexp(scores, axis=1) - own).sum())

    def _slope(self, block: slice, w: Floats) -> Floats:
        residual = special.softmax(self._scores(block, w), axis=1)
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
        p = special.softmax(self._scores(block, w), axis=1)
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
        p = special.softmax(self._scores(block, w), axis=1)
        moved = self._scores(block, v)
        # The softmax Jacobian diag(p) - p p' applied to the change of scores.
        moved = p * (moved - (p * moved).sum(axis=1, keepdims=True))
        return np.asarray(self.basis @ (moved.T @ self.rows[block])).reshape(-1)


def problem_for(rows: Floats, codes: Ints, regularization: float, n_classes: int) -> LogisticProblem:
    """Return the problem for a number of classes."""
    if n_classes == 2:
        return BinaryProblem(rows, codes, regularization)
    return SoftmaxProblem(rows, codes, regularization, n_classes)


MOST_STEPS = 200
LARGEST_MATRIX = 300
"""Entries of ``w`` up to which Newton's equation is solved by factoring a matrix."""
_CG_TOLERANCE = 1e-3


def minimize(problem: LogisticProblem, tolerance: float) -> Floats:
    """Return a point no farther from the minimizer than one with a gradient of norm ``tolerance`` can be.

    Parameters
    ----------
    problem : LogisticProblem
        Strongly convex with ``problem.regularization``.
    tolerance : float
        Norm of a gradient to stop at, at least ``problem.descent.least_tolerance``.

    Returns
    -------
    array
        Its distance from the minimizer is at most ``tolerance / problem.regularization``.

    Raises
    ------
    PromiseError
        If the tolerance is below what is certain to be reached for a table of this shape. No row plays a
        part.

    Notes
    -----
    Newton's method stops where the norm of the gradient and a bound on its rounding are within the tolerance.
    Should it come to a halt before, limited-memory BFGS goes on, and after that gradient steps, which are
    certain to arrive.

    Privacy
    -------
    None: the result is an exact function of the rows, and so is the number of steps. Noise must hide it.

    Reference
    ---------
    Strong convexity; docs/explanation/theorems/masked-sensitivity.md, solver-tolerance.md.
    """
    descent = problem.descent
    descent.check(tolerance, "minimize")

    def left(w: Floats, gradient: Floats) -> float:
        """Bound the norm of the true gradient."""
        norm = float(np.linalg.norm(gradient))
        # The computed norm of `size` entries can be too small by that many units in the last place.
        return norm * (1 + 1e-12 + problem.size * 2.0**-53) + problem.gradient_error(w)

    def near(w: Floats, gradient: Floats) -> bool:
        return left(w, gradient) <= tolerance

    w, reached = newton(problem, near)
    if not reached:
        most = MOST_STEPS + 10 * math.isqrt(math.ceil(descent.curvature / descent.regularization))
        w, reached = quasi_newton(problem.gradient, w, near, length=1 / descent.curvature, most=most)
    if reached:
        return w
    # Its distance from the minimizer is known; gradient steps need one of at most descent.norm.
    known = left(w, problem.gradient(w)) <= descent.regularization * descent.norm
    return descent.run(
        lambda w: w - problem.gradient(w) / descent.curvature,
        w if known else np.zeros(problem.size),
        tolerance,
    )


def newton(problem: LogisticProblem, near: Callable[[Floats, Floats], bool]) -> tuple[Floats, bool]:
    """Return where Newton's method stopped, and whether that is near enough.

    Notes
    -----
    Each step solves ``hessian s = gradient`` and searches the line along ``-s`` by slopes alone. It stops
    where ``near`` says so, where no step is found, or after ``MOST_STEPS``.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """
    w = np.zeros(problem.size)
    gradient = problem.gradient(w)
    for _ in range(MOST_STEPS):
        if near(w, gradient):
            return w, True
        step = _newton_step(problem, w, gradient)
        found = None if step is None else search_line(problem.gradient, w, gradient, -step)
        if found is None:
            break
        w, gradient = found
    return w, near(w, gradient)


def _newton_step(problem: LogisticProblem, w: Floats, gradient: Floats) -> Floats | None:
    """Return the solution of Newton's equation, None where it has none in floating point."""
    if problem.size <= LARGEST_MATRIX:
        try:
            # The matrix is positive definite; rounding can make it fail at tiny regularizations.
            factor = linalg.cho_factor(problem.hessian(w), check_finite=False)
        except linalg.LinAlgError:
            return None
        step = np.asarray(linalg.cho_solve(factor, gradient, check_finite=False))
    else:
        matrix = LinearOperator(
            (problem.size, problem.size), matvec=lambda v: problem.curvature_times(w, v.reshape(-1))
        )
        # A rough solution suffices: the line search needs a direction only.
        step, _ = cg(matrix, gradient, rtol=_CG_TOLERANCE, maxiter=2 * problem.size)
    return step if np.isfinite(step).all() else None
