"""The solution, until rounding is all that is left.

Three parts, each exact where the one before is only good: an augmented Lagrangian on the multipliers
``omega``; inside it, Newton's method on a piecewise quadratic function, with an exact line search and Gram
matrices of which only the rows that changed sides are recomputed; at the end, the linear system of
:mod:`discreet.learn.svm.active_set`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from discreet.learn.svm.active_set import climb, crowd, finish
from discreet.learn.svm.problem import EPS, Gram, Problem, multipliers

if TYPE_CHECKING:
    from discreet._typing import Floats

EXACT, SETTLED = 1e-13, 1e-8
"""Residuals: what double precision can reach, and where to stop if it gets no smaller."""
MOST_OUTER, MOST_NEWTON, MOST_SEARCH = 60, 200, 80
_PIECE = 1 << 14


@dataclass(frozen=True)
class Solution:
    """What the solver hands back: the point, its multipliers and how often it went round."""

    z: Floats
    omega: Floats
    outer: int
    newton: int


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def solve(problem: Problem) -> Solution:
    """Return the unique minimizer and its multipliers."""
    # The matrices are narrow: a second BLAS thread took up to ten times as long (benchmarks/svm.py).
    with _blas().limit(limits=1, user_api="blas"):
        return _augmented_lagrangian(problem)


def _augmented_lagrangian(problem: Problem) -> Solution:
    q, p = problem.X.shape
    theta, rho = problem.theta, problem.rho
    z, omega, t = np.zeros(p + 1), np.zeros(q), np.ones(q)
    # The more rows, the closer they lie at the margin, and the finer they have to be told apart.
    step, longest = theta + rho, max(1e5, q) * (theta + rho)
    grams = Gram(problem), Gram(problem)
    last, newton, enough, patience = math.inf, 0, 1e-3, 3
    for outer in range(1, MOST_OUTER + 1):
        z, omega, g, steps = _inner(problem, z, omega, t, step, enough, grams)
        newton += steps
        t = 1 - problem.forward(z)
        complementary = problem.residual(omega, t)
        scale = math.sqrt(q) * float(np.linalg.norm(omega)) * problem.size
        residual = max(complementary, float(np.linalg.norm(g)) / max(scale, EPS))
        v = omega + theta * t
        margin = int(np.count_nonzero((v > 0) & (v <= theta)))
        # A margin that is crowded early on is still changing; one that stays crowded has ties.
        likely = complementary < 1e-2 and margin <= 1.3 * (p + 1) + 2
        if likely or (complementary < 1e-5 and margin <= crowd(p)):
            finished = finish(problem, z, omega, t)
            if finished is not None:
                return Solution(*finished, outer, newton)
        if residual < EXACT:
            return Solution(z, omega, outer, newton)
        if step == longest and residual > 0.3 * last:
            patience -= 1
            if residual < SETTLED or not patience:
                break
        last = residual
        step = min(5 * step, longest)
        enough /= 5
    z, omega = climb(problem, z, omega) or (z, omega)
    return Solution(z, omega, outer, newton)


def _inner(
    problem: Problem,
    z: Floats,
    omega: Floats,
    t: Floats,
    step: float,
    enough: float,
    grams: tuple[Gram, Gram],
) -> tuple[Floats, Floats, Floats, int]:
    """Minimize the augmented Lagrangian over z; return z, the new multipliers, the gradient, the steps."""
    theta, rho, weights = problem.theta, problem.rho, problem.weights
    root = math.sqrt(len(omega)) * problem.size
    curve = rho * step / (rho + step)
    reach = max(1.0, float(np.linalg.norm(1 - t)))
    for count in range(MOST_NEWTON + 1):
        u = omega + step * t
        w = multipliers(u, step, problem)
        g = weights * z - problem.back(w)
        rounding = 1e-15 * root * (float(np.linalg.norm(w)) + step * reach)
        close = max(rounding, enough * float(np.linalg.norm(weights * z)))
        if float(np.linalg.norm(g)) <= close or count == MOST_NEWTON:
            break
        margin, violated = grams[0].over((u > 0) & (u <= theta)), grams[1].over(u > theta)
        d = -_solve_positive(np.diag(weights) + step * margin + curve * violated, g)
        e = problem.forward(d)
        length = _search(problem, z, d, e, u, step, float(g @ d))
        if length <= 0:
            break
        z = z + length * d
        t = t - length * e
    return z, w, g, count


def _search(
    problem: Problem, z: Floats, d: Floats, e: Floats, u: Floats, step: float, slope0: float
) -> float:
    """Return the length at which the derivative along ``d``, monotone and piecewise linear, is zero."""
    theta, rho = problem.theta, problem.rho
    pd = problem.weights * d
    start, bend = float(z @ pd), float(d @ pd)
    curve = rho * step / (rho + step)

    def derivatives(s: float) -> tuple[float, float]:
        first, second = start + s * bend, bend
        # In pieces that stay in the cache: each is gone over several times.
        for at in range(0, len(e), _PIECE):
            part = e[at : at + _PIECE]
            v = u[at : at + _PIECE] - (step * s) * part
            first -= float(part @ multipliers(v, step, problem))
            square = part * part
            beyond = float(square @ (v > theta))
            second += step * (float(square @ (v > 0)) - beyond) + curve * beyond
        return first, second

    if slope0 >= 0:
        return 0.0
    low, high, s = 0.0, math.inf, 1.0
    for _ in range(MOST_SEARCH):
        slope, second = derivatives(s)
        if abs(slope) <= 1e-6 * -slope0:
            return s
        low, high = (s, high) if slope < 0 else (low, s)
        s -= slope / second
        if not low < s < high:
            s = 2 * low if high == math.inf else (low + high) / 2
    return s


def _solve_positive(matrix: Floats, right: Floats) -> Floats:
    """Solve with a matrix that is positive definite up to rounding."""
    diagonal = np.diag(matrix)
    for ridge in (0.0, *(10.0**k for k in range(-15, -2))):
        try:
            factor = linalg.cho_factor(matrix + np.diag(ridge * diagonal), check_finite=False)
        except linalg.LinAlgError:
            continue
        return np.asarray(linalg.cho_solve(factor, right, check_finite=False))
    return right / diagonal
