"""Newton's method with a certificate: how far the result can be from the only minimizer there is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from discreet.learn.perturbed.quasi_newton import quasi_newton, search_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import Floats
    from discreet.learn.logistic.problem import Problem

MOST_STEPS = 200
LARGEST_MATRIX = 300
"""Entries of ``w`` up to which Newton's equation is solved by factoring a matrix."""
_CG_TOLERANCE = 1e-3


def minimize(problem: Problem, tolerance: float) -> Floats:
    """Return a point no farther from the minimizer than one with a gradient of norm ``tolerance`` can be.

    Parameters
    ----------
    problem : Problem
        Strongly convex with ``problem.regularization``.
    tolerance : float
        At least ``problem.descent.least_tolerance``.

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
    None: it is for noise to hide what this returns. How many steps it takes depends on the rows too.

    Reference
    ---------
    Strong convexity; docs/explanation/theorems/masked-sensitivity.md, solver-tolerance.md.
    """
    descent = problem.descent
    descent.check(tolerance, "minimize")

    def left(w: Floats, gradient: Floats) -> float:
        """Bound the norm of the true gradient."""
        norm = float(np.linalg.norm(gradient))
        return norm * (1 + 1e-12 + problem.size * 2.0**-53) + problem.rounding(w)

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


def newton(problem: Problem, near: Callable[[Floats, Floats], bool]) -> tuple[Floats, bool]:
    """Return where Newton's method stopped, and whether that is near enough."""
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


def _newton_step(problem: Problem, w: Floats, gradient: Floats) -> Floats | None:
    """Return the solution of Newton's equation, None where it has none in floating point."""
    if problem.size <= LARGEST_MATRIX:
        try:
            factor = linalg.cho_factor(problem.hessian(w), check_finite=False)
        except linalg.LinAlgError:
            return None
        step = np.asarray(linalg.cho_solve(factor, gradient, check_finite=False))
    else:
        matrix = LinearOperator(
            (problem.size, problem.size), matvec=lambda v: problem.curvature_times(w, v.reshape(-1))
        )
        step, _ = cg(matrix, gradient, rtol=_CG_TOLERANCE, maxiter=2 * problem.size)
    return step if np.isfinite(step).all() else None
