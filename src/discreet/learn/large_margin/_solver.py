"""Two minimizers with a certificate: how far the result can be from the only minimum there is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from discreet.learn.large_margin._problem import PROJECTION, to_coordinates, to_matrices
from discreet.learn.perturbation._solvers import quasi_newton as minimize_smooth
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import Floats
    from discreet.learn.large_margin._problem import MarginProblem
    from discreet.learn.perturbation._solvers import GradientDescent


MOST_STEPS = 5000
_UNIT = 2.0**-53


def minimize(problem: MarginProblem, tolerance: float, *, constrained: bool = False) -> Floats:
    """Return ``w`` no farther from the minimizer than where a (sub)gradient of norm ``tolerance`` can be.

    Parameters
    ----------
    problem : MarginProblem
        Strongly convex with ``problem.regularization``.
    tolerance : float
        Norm of a (sub)gradient to stop at, at least
        ``problem.descent(constrained=constrained).least_tolerance``.
    constrained : bool
        Whether every matrix must be positive semidefinite.

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
    Both solvers stop where the norm of a (sub)gradient and a bound on its rounding are within the tolerance.
    Should one come to a halt before, gradient steps begin, and these are certain to arrive.

    Privacy
    -------
    None: the result is an exact function of the rows, and so is the number of steps. Noise must hide it.

    Reference
    ---------
    Strong convexity; docs/explanation/theorems/large-margin-private.md, solver-tolerance.md.
    """
    descent = problem.descent(constrained=constrained)
    descent.check(tolerance, "minimize")
    most = most_steps(problem)
    with one_thread():
        result = (
            accelerated_projection(problem, tolerance, most)
            if constrained
            else quasi_newton(problem, tolerance, most)
        )
        if result is None:
            result = _certain_steps(problem, descent, tolerance, constrained=constrained)
    return problem.gather(result) if constrained else result


def most_steps(problem: MarginProblem) -> int:
    """Return how many steps are worth trying: some multiple of the root of the condition."""
    return MOST_STEPS + 10 * math.isqrt(math.ceil(problem.curvature / problem.regularization))


def _certain_steps(
    problem: MarginProblem, descent: GradientDescent, tolerance: float, *, constrained: bool
) -> Floats:
    """Return what gradient steps arrive at, in the coordinates of the solver that came to a halt."""
    if not constrained:
        start = np.zeros(problem.size)
        return descent.run(
            lambda w: w - problem.value_and_gradient(w)[1] / descent.curvature, start, tolerance
        )

    def step(x: Floats) -> Floats:
        return psd_part(x - problem.whole_value_and_gradient(x)[1] / descent.curvature, problem.p)

    return descent.run(step, np.zeros((problem.n_matrices, problem.squares.dimension)), tolerance)


def quasi_newton(problem: MarginProblem, tolerance: float, most: int = MOST_STEPS) -> Floats | None:
    """Return where limited-memory BFGS meets the tolerance; None if it comes to a halt before.

    Notes
    -----
    It stops where the norm of the computed gradient, widened by the rounding of the norm, plus the bound of
    ``problem.gradient_error`` is within the tolerance: then the true gradient is.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """

    def near(w: Floats, gradient: Floats) -> bool:
        norm, size = float(np.linalg.norm(gradient)), float(np.linalg.norm(w))
        return norm * (1 + 1e-12 + problem.size * _UNIT) + problem.gradient_error(size) <= tolerance

    result, reached = minimize_smooth(
        lambda w: problem.value_and_gradient(w)[1],
        np.zeros(problem.size),
        near,
        length=1 / (problem.regularization + problem.curvature),
        most=most,
    )
    return result if reached else None


def accelerated_projection(problem: MarginProblem, tolerance: float, most: int = MOST_STEPS) -> Floats | None:
    """Return where accelerated projected gradient steps meet the tolerance; None if they come to a halt.

    The coordinates are those of all matrices, which need not sum to zero.

    Notes
    -----
    Nesterov's momentum, started anew when the step turns against the last one. ``L`` is doubled up to the
    bound of the curvature where the function lies above its model, and lowered a little after each step. With
    ``x = P(y - g(y) / L)``, ``g(x) - g(y) + L (y - x)`` is a subgradient at ``x`` of the function plus the
    indicator of the cone: the certificate.

    Reference
    ---------
    docs/explanation/theorems/large-margin-cone.md, solver-tolerance.md
    """
    x = np.zeros((problem.n_matrices, problem.squares.dimension))
    y, momentum = x, 1.0
    bound = problem.regularization + problem.curvature
    # The bound counts every row as if it were on the bend of its hinges; most are not.
    lipschitz = problem.regularization + bound / 64
    _, gradient_y = problem.whole_value_and_gradient(y)
    for _ in range(most):
        for lipschitz in _double_up_to(lipschitz, bound):  # noqa: B020 - goes on from where it was
            aim = y - gradient_y / lipschitz
            new = psd_part(aim, problem.p)
            _, gradient = problem.whole_value_and_gradient(new)
            moved = new - y
            # Enough for the function to lie below its model, by slopes, which cancel less than values.
            if 2 * float(np.vdot(gradient - gradient_y, moved)) <= lipschitz * float(np.vdot(moved, moved)):
                break
        subgradient = gradient - gradient_y - lipschitz * moved
        # The projection errs by a few units in the last place of what is projected, and the slope with it.
        size = float(np.linalg.norm(aim))
        slack = 2 * (bound + lipschitz) * PROJECTION * problem.p * _UNIT * size
        slack += 2 * problem.gradient_error(max(float(np.linalg.norm(new)), float(np.linalg.norm(y))))
        slack += 8 * lipschitz * _UNIT * (size + float(np.linalg.norm(y)))
        if float(np.linalg.norm(subgradient)) * (1 + 1e-12 + x.size * _UNIT) + slack <= tolerance:
            return new
        # The step turned against the last one: momentum starts anew.
        if float(np.vdot(y - new, new - x)) > 0.0:
            momentum = 1.0
        later = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        y = new + (momentum - 1) / later * (new - x)
        x, momentum = new, later
        _, gradient_y = problem.whole_value_and_gradient(y)
        # Lets the estimate of the curvature fall again where the function is flatter.
        lipschitz *= 0.95
    return None


def _double_up_to(value: float, bound: float) -> Iterator[float]:
    """Yield a value and its doubles as long as they are below a bound, then the bound."""
    while value < bound:
        yield value
        value *= 2
    yield bound


def psd_part(coordinates: Floats, p: int) -> Floats:
    """Return the nearest positive semidefinite matrices, all of them at once."""
    values, vectors = np.linalg.eigh(to_matrices(coordinates, p))
    return to_coordinates((vectors * np.maximum(values, 0.0)[..., np.newaxis, :]) @ vectors.swapaxes(-1, -2))
