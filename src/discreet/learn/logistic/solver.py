"""Newton's method with a certificate: how far the result can be from the only minimizer there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from discreet.errors import PromiseError

if TYPE_CHECKING:
    from discreet._typing import Floats
    from discreet.learn.logistic.problem import Problem

MOST_STEPS = 200
LARGEST_MATRIX = 300
"""Entries of ``w`` up to which Newton's equation is solved by factoring a matrix."""
_CG_TOLERANCE = 1e-3


def minimize(problem: Problem, tolerance: float) -> Floats:
    """Return a point at which the true gradient has a norm of at most ``tolerance``.

    Parameters
    ----------
    problem : Problem
        Strongly convex with ``problem.regularization``.
    tolerance : float
        Includes the rounding of the gradient's own computation.

    Returns
    -------
    array
        Its distance from the minimizer is at most ``tolerance / problem.regularization``.

    Raises
    ------
    PromiseError
        If the tolerance is not reached. The noise was calibrated for it, so that nothing may be released.

    Privacy
    -------
    None: it is for noise to hide what this returns. How many steps it takes depends on the rows too.

    Reference
    ---------
    Strong convexity; docs/explanation/theorems/masked-sensitivity.md.
    """
    w = np.zeros(problem.size)
    value, gradient = problem.value(w), problem.gradient(w)
    for _ in range(MOST_STEPS):
        norm = float(np.linalg.norm(gradient))
        if norm * (1 + 1e-12) + problem.rounding(w) <= tolerance:
            return w
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
    raise PromiseError(
        f"regularization must be large enough for the solver to reach a gradient of norm {tolerance:g}, and "
        f"{problem.regularization:g} was not: the noise is calibrated for that tolerance, so nothing is "
        "released. Use a larger regularization, or a larger tolerance, which takes more noise."
    )


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
