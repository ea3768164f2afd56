"""Newton's method with a certificate: how far the result can be from the only minimizer there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

if TYPE_CHECKING:
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
    Should it come to a halt before, gradient steps go on from where it was, and these are certain to arrive.

    Privacy
    -------
    None: it is for noise to hide what this returns. How many steps it takes depends on the rows too.

    Reference
    ---------
    Strong convexity; docs/explanation/theorems/masked-sensitivity.md, solver-tolerance.md.
    """
    descent = problem.descent
    descent.check(tolerance, "minimize")
    w, left = newton(problem, tolerance)
    if left <= tolerance:
        return w
    # Its distance from the minimizer is known; gradient steps need one of at most descent.norm.
    start = w if left <= problem.regularization * descent.norm else np.zeros(problem.size)
    return descent.run(lambda w: w - problem.gradient(w) / descent.curvature, start, tolerance)


def newton(problem: Problem, tolerance: float) -> tuple[Floats, float]:
    """Return where Newton's method stopped, and a bound on the norm of the true gradient there."""
    w = np.zeros(problem.size)
    value, gradient = problem.value(w), problem.gradient(w)
    for _ in range(MOST_STEPS):
        norm = float(np.linalg.norm(gradient))
        if _bound(problem, w, norm) <= tolerance:
            break
        step = _newton_step(problem, w, gradient)
        if step is None:
            break
        slope = float(gradient @ step)
        length = 1.0
        while length > 1e-12:
            trial = w - length * step
            trial_value, trial_gradient = problem.value(trial), problem.gradient(trial)
            # Near the minimum the values are equal up to rounding, and the gradient decides.
            enough = trial_value <= value - 1e-4 * length * slope
            if enough or float(np.linalg.norm(trial_gradient)) <= norm / 2:
                break
            length /= 2
        else:
            break
        w, value, gradient = trial, trial_value, trial_gradient
    return w, _bound(problem, w, float(np.linalg.norm(gradient)))


def _bound(problem: Problem, w: Floats, norm: float) -> float:
    return norm * (1 + 1e-12 + problem.size * 2.0**-53) + problem.rounding(w)


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
