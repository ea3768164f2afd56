"""Mean losses with a quadratic penalty: the minimized function, Newton's method with a certificate, defaults.

Learners whose loss depends on scores that are linear in the weights share all of it: they add their loss, its
derivatives, and the public constants that follow from them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import scipy

from discreet.learn.perturbation._solvers import quasi_newton, search_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from discreet._types import Floats, Ints
    from discreet.learn.perturbation._solvers import GradientDescent


CHUNK = 1 << 10
"""Rows that are added up at once: the rounding error of a sum grows with them."""
UNIT = 2.0**-53
"""Half of the distance from 1 to the next float."""


class MeanLossProblem(ABC):
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
        """Return how far :meth:`gradient` can be from the true one, by rounding."""
        size = float(np.linalg.norm(w))
        rest = 4 * (self.regularization * size + float(np.linalg.norm(self.linear_term)))
        return self._rounding_error(size) + rest * UNIT + self.linear_term_error

    @property
    def parts(self) -> list[MeanLossProblem]:
        """Problems that share no weight and add up to this one; a list of this one by default."""
        return [self]

    @property
    @abstractmethod
    def descent(self) -> GradientDescent:
        """Guarantee of gradient steps on this problem, which depends on the linear term and on no row."""

    @abstractmethod
    def _rounding_error(self, norm: float) -> float:
        """Return how far the computed gradient of the mean loss can be from the true one, at this norm."""

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


MOST_STEPS = 200
LARGEST_MATRIX = 300
"""Entries of ``w`` up to which Newton's equation is solved by factoring a matrix."""
_CG_TOLERANCE = 1e-3


def minimize(problem: MeanLossProblem, tolerance: float) -> Floats:
    """Return a point no farther from the minimizer than one with a gradient of norm ``tolerance`` can be.

    Parameters
    ----------
    problem : MeanLossProblem
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
    parts = problem.parts
    if len(parts) > 1:
        # Gradients of parts that share no weight are orthogonal: their squared norms add up.
        return np.concatenate([minimize(part, tolerance / math.sqrt(len(parts))) for part in parts])
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


def newton(problem: MeanLossProblem, near: Callable[[Floats, Floats], bool]) -> tuple[Floats, bool]:
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


def _newton_step(problem: MeanLossProblem, w: Floats, gradient: Floats) -> Floats | None:
    """Return the solution of Newton's equation, None where it has none in floating point."""
    if problem.size <= LARGEST_MATRIX:
        try:
            # The matrix is positive definite; rounding can make it fail at tiny regularizations.
            factor = scipy.linalg.cho_factor(problem.hessian(w), check_finite=False)
        except scipy.linalg.LinAlgError:
            return None
        step = np.asarray(scipy.linalg.cho_solve(factor, gradient, check_finite=False))
    else:
        matrix = scipy.sparse.linalg.LinearOperator(
            (problem.size, problem.size), matvec=lambda v: problem.curvature_times(w, v.reshape(-1))
        )
        # A rough solution suffices: the line search needs a direction only.
        step, _ = scipy.sparse.linalg.cg(matrix, gradient, rtol=_CG_TOLERANCE, maxiter=2 * problem.size)
    return step if np.isfinite(step).all() else None
