"""Two minimizers with a certificate: how far the result can be from the only minimum there is."""

from __future__ import annotations

import math
from collections import deque
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from discreet.learn.large_margin.problem import PROJECTION
from discreet.learn.large_margin.squares import to_coordinates, to_matrices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._typing import Floats
    from discreet.learn.large_margin.problem import MarginProblem
    from discreet.learn.perturbed.descent import GradientDescent

MOST_STEPS = 5000
PAIRS = 20
_FLAT = 0.9
"""Part of the slope along a line that may be left where the search on it stops."""
_UNIT = 2.0**-53


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def minimize(problem: MarginProblem, tolerance: float, *, constrained: bool = False) -> Floats:
    """Return ``w`` no farther from the minimizer than where a (sub)gradient of norm ``tolerance`` can be.

    Parameters
    ----------
    problem : MarginProblem
        Strongly convex with ``problem.regularization``.
    tolerance : float
        At least ``problem.descent(constrained=constrained).least_tolerance``.
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
    None: it is for noise to hide what this returns. How many steps it takes depends on the rows too.

    Reference
    ---------
    Strong convexity; docs/explanation/theorems/large-margin-private.md, solver-tolerance.md.
    """
    descent = problem.descent(constrained=constrained)
    descent.check(tolerance, "minimize")
    most = most_steps(problem)
    # The matrices are narrow: a second BLAS thread costs more than it brings.
    with _blas().limit(limits=1, user_api="blas"):
        found = projected(problem, tolerance, most) if constrained else quasi_newton(problem, tolerance, most)
        if found is None:
            found = _certain(problem, descent, tolerance, constrained=constrained)
    return problem.gathered(found) if constrained else found


def most_steps(problem: MarginProblem) -> int:
    """Return how many steps are worth trying: some multiple of the root of the condition."""
    return MOST_STEPS + 10 * math.isqrt(math.ceil(problem.curvature / problem.regularization))


def _certain(
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
    """Limited-memory BFGS. The function is convex, so the slope along a line decides where to stop."""
    w = np.zeros(problem.size)
    value, gradient = problem.value_and_gradient(w)
    pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=PAIRS)
    length = 1.0 / (problem.regularization + problem.curvature)
    for _ in range(most):
        if _reached(problem, gradient, w, tolerance):
            return w
        step = _direction(gradient, pairs, length)
        slope = float(gradient @ step)
        if slope >= 0.0:
            pairs.clear()
            continue
        found = _search(problem, w, value, step, slope)
        if found is None:
            if not pairs:
                return None
            pairs.clear()
            continue
        taken, new, value, new_gradient = found
        moved, bent = taken * step, new_gradient - gradient
        curvature = float(moved @ bent)
        if curvature > 0.0:
            pairs.append((moved, bent, curvature))
            length = curvature / float(bent @ bent)
        w, gradient = new, new_gradient
    return None


def _reached(problem: MarginProblem, gradient: Floats, w: Floats, tolerance: float) -> bool:
    norm, size = float(np.linalg.norm(gradient)), float(np.linalg.norm(w))
    return norm * (1 + 1e-12 + problem.size * _UNIT) + problem.rounding(size) <= tolerance


def _direction(gradient: Floats, pairs: deque[tuple[Floats, Floats, float]], length: float) -> Floats:
    q = -gradient
    weights = []
    for moved, bent, curvature in reversed(pairs):
        weight = float(moved @ q) / curvature
        q -= weight * bent
        weights.append(weight)
    q *= length
    for (moved, bent, curvature), weight in zip(pairs, reversed(weights), strict=True):
        q += (weight - float(bent @ q) / curvature) * moved
    return q


def _search(
    problem: MarginProblem, w: Floats, value: float, step: Floats, slope: float
) -> tuple[float, Floats, float, Floats] | None:
    """Return a point on a line where the slope has become small, by secants between two signs of it.

    Near the minimum values are equal up to rounding; the slope still tells the two sides apart.
    """
    low, low_slope, high, high_slope = 0.0, slope, math.inf, math.inf
    # Sums of rounding errors; a value that is higher by more than this is higher.
    slack = 1e-12 * abs(value)
    at = 1.0
    for _ in range(60):
        new = w + at * step
        new_value, gradient = problem.value_and_gradient(new)
        new_slope = float(gradient @ step)
        if not math.isfinite(new_slope):
            high, high_slope = at, math.inf
        elif new_slope < _FLAT * slope:
            low, low_slope = at, new_slope
        elif new_slope > -_FLAT * slope or new_value > value + slack:
            high, high_slope = at, new_slope
        else:
            return at, new, new_value, gradient
        if high == math.inf:
            grown = at * slope / (slope - new_slope) if new_slope > slope else math.inf
            at = min(max(2 * at, grown), 10 * at)
        elif high_slope == math.inf:
            at = (low + high) / 2
        else:
            at = low + (high - low) * min(max(low_slope / (low_slope - high_slope), 0.1), 0.9)
    return None


def projected(problem: MarginProblem, tolerance: float, most: int = MOST_STEPS) -> Floats | None:
    """Accelerated projected gradient steps, started anew when they overshoot; coordinates of all matrices.

    With ``x = P(y - g(y) / L)``, ``g(x) - g(y) + L (y - x)`` is a subgradient at ``x`` of the function plus
    the indicator of the cone: the certificate.
    """
    x = np.zeros((problem.n_matrices, problem.squares.dimension))
    y, momentum = x, 1.0
    bound = problem.regularization + problem.curvature
    lipschitz = problem.regularization + bound / 64
    value_y, gradient_y = problem.whole_value_and_gradient(y)
    for _ in range(most):
        for lipschitz in _doubled(lipschitz, bound):  # noqa: B020 - goes on from where it was
            aim = y - gradient_y / lipschitz
            new = psd_part(aim, problem.p)
            value, gradient = problem.whole_value_and_gradient(new)
            moved = new - y
            model = value_y + float(np.vdot(gradient_y, moved)) + lipschitz / 2 * float(np.vdot(moved, moved))
            if value <= model + 1e-12 * abs(value_y):
                break
        subgradient = gradient - gradient_y - lipschitz * moved
        # The projection errs by a few units in the last place of what is projected, and the slope with it.
        size = float(np.linalg.norm(aim))
        slack = 2 * (bound + lipschitz) * PROJECTION * problem.p * _UNIT * size
        slack += 2 * problem.rounding(max(float(np.linalg.norm(new)), float(np.linalg.norm(y))))
        slack += 8 * lipschitz * _UNIT * (size + float(np.linalg.norm(y)))
        if float(np.linalg.norm(subgradient)) * (1 + 1e-12 + x.size * _UNIT) + slack <= tolerance:
            return new
        if float(np.vdot(y - new, new - x)) > 0.0:
            momentum = 1.0
        later = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        y = new + (momentum - 1) / later * (new - x)
        x, momentum = new, later
        value_y, gradient_y = problem.whole_value_and_gradient(y)
        lipschitz *= 0.95
    return None


def _doubled(value: float, bound: float) -> Iterator[float]:
    while value < bound:
        yield value
        value *= 2
    yield bound


def psd_part(coordinates: Floats, p: int) -> Floats:
    """Return the nearest positive semidefinite matrices, all of them at once."""
    values, vectors = np.linalg.eigh(to_matrices(coordinates, p))
    return to_coordinates((vectors * np.maximum(values, 0.0)[..., np.newaxis, :]) @ vectors.swapaxes(-1, -2))
