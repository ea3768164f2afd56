"""The last digits: which rows lie on the margin and beyond it, and the linear system that follows.

A solution is accepted only if it has the sets that it was computed with; then it is the optimum.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from discreet.learn.svm.problem import Gram, Problem

if TYPE_CHECKING:
    from discreet._typing import Bools, Floats

MOST_FINISH = 8
MOST_WORK = 10**10
"""Cells that the slow way may look at."""


def crowd(p: int) -> int:
    """Return the largest margin, in rows, whose linear system is worth solving."""
    return 3 * (p + 1) + 10


def finish(problem: Problem, z: Floats, omega: Floats, t: Floats) -> tuple[Floats, Floats] | None:
    """Solve the linear system of the active set until the set repeats, or give up."""
    theta = problem.theta
    v = omega + theta * t
    margin, violated = (v > 0) & (v <= theta), v > theta
    gram = Gram(problem)
    for _ in range(MOST_FINISH):
        if np.count_nonzero(margin) > crowd(problem.X.shape[1]):
            return None
        system = ActiveSet(problem, z, omega, t, margin, violated, gram.over(violated))
        system.refine()
        if system.confirmed():
            for _ in range(3):
                system.refine()
            return (system.z, system.omega) if system.confirmed() and system.met() else None
        z, omega, t = system.z, np.maximum(system.omega, 0), system.t
        margin, violated = system.sets()
    return None


def climb(problem: Problem, z: Floats, omega: Floats) -> tuple[Floats, Floats] | None:
    """Improve the dual value until the active set repeats, one row at a time.

    Exchanging many rows at once can go round in circles when they all lie near the margin. Here the
    multipliers go towards the solution of the current set only until the first of them changes sides, so that
    the dual value never falls.
    """
    theta = problem.theta
    margin, violated = (omega > 0) & (omega <= theta), omega > theta
    q, p = problem.X.shape
    most = 10 * (p + 1) + 100
    gram, t = Gram(problem), 1 - problem.forward(z)
    for _ in range(min(2 * most, 50 + MOST_WORK // (q * (p + 1)))):
        if np.count_nonzero(margin) > most:
            return None
        system = ActiveSet(problem, z, omega, t, margin, violated, gram.over(violated))
        for _ in range(3):
            system.refine()
        change = system.omega - omega
        bound = np.where(violated, theta, np.where(change < 0, 0.0, theta))
        moving = (margin | violated) & (change != 0) & ~(violated & (change > 0))
        room = np.full(len(omega), math.inf)
        room[moving] = (bound[moving] - omega[moving]) / change[moving]
        row = int(np.argmin(room))
        margin, violated = margin.copy(), violated.copy()
        if room[row] < 1:
            omega = np.maximum(omega + room[row] * change, 0)
            z, t = z + room[row] * (system.z - z), t + room[row] * (system.t - t)
            omega[row] = bound[row]
            margin[row], violated[row] = violated[row], margin[row] and bound[row] == theta
            continue
        z, omega, t = system.z, system.omega, system.t
        outside = np.where(margin | violated, -math.inf, system.t)
        row = int(np.argmax(outside))
        if outside[row] <= 1e-14 * (1 + float(np.abs(problem.X[row]) @ np.abs(z[:-1]) + abs(z[-1]))):
            return (z, omega) if system.met() else None
        margin[row] = True
    return None


class ActiveSet:
    """The optimum if exactly the rows ``margin`` have t = 0 and exactly ``violated`` have t > 0.

    Then ``P z = Z'omega`` with ``omega = theta + rho t`` on the violated rows and ``Z z = 1`` on the margin
    is linear in z and in the multipliers of the margin.
    """

    def __init__(
        self,
        problem: Problem,
        z: Floats,
        omega: Floats,
        t: Floats,
        margin: Bools,
        violated: Bools,
        gram: Floats,
    ) -> None:
        self.problem, self.margin, self.violated = problem, margin, violated
        self.at = np.flatnonzero(margin)
        n, m = len(z), len(self.at)
        self.rows = problem.sign[self.at, None] * np.hstack([problem.X[self.at], np.ones((m, 1))])
        matrix = np.zeros((n + m, n + m))
        matrix[:n, :n] = np.diag(problem.weights) + problem.rho * gram
        matrix[n:, :n] = self.rows
        matrix[:n, n:] = self.rows.T
        # Rows that depend on one another leave multipliers that no equation fixes. A little weight on
        # changing them keeps the matrix regular; refinement removes its effect on all the others.
        scale = np.einsum("ij,ij->", self.rows / np.diag(matrix)[:n], self.rows)
        matrix[range(n, n + m), range(n, n + m)] = -1e-12 * scale / max(m, 1)
        with warnings.catch_warnings():
            # Whether the result is one, its certificate says.
            warnings.simplefilter("ignore", linalg.LinAlgWarning)
            self.factor = linalg.lu_factor(matrix, check_finite=False)
        self.z, self.t, self.omega = z, t, np.where(margin, omega, 0.0)
        self._follow()

    def _follow(self) -> None:
        np.copyto(self.omega, self.problem.theta + self.problem.rho * self.t, where=self.violated)

    def refine(self) -> None:
        """Solve for what is still missing."""
        n = len(self.z)
        miss = self.problem.back(self.omega) - self.problem.weights * self.z
        change = linalg.lu_solve(self.factor, np.append(miss, self.t[self.at]), check_finite=False)
        self.z = self.z + change[:n]
        self.t = 1 - self.problem.forward(self.z)
        self.omega[self.at] -= change[n:]
        self._follow()

    def sets(self) -> tuple[Bools, Bools]:
        """Return the rows that the solution puts on the margin and beyond it."""
        t = np.where(self.margin, 0.0, self.t)
        v = self.omega + self.problem.theta * t
        return (v > 0) & (v <= self.problem.theta), v > self.problem.theta

    def confirmed(self) -> bool:
        """Whether the solution has the sets that it was computed with."""
        margin, violated = self.sets()
        return np.array_equal(margin, self.margin) and np.array_equal(violated, self.violated)

    def met(self) -> bool:
        """Whether the rows on the margin are there, up to rounding: dependent rows need not be able to."""
        reach = 1 + np.abs(self.rows) @ np.abs(self.z)
        return bool(np.all(np.abs(self.t[self.at]) <= 1e-12 * reach))
