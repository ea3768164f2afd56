"""The problem that is solved, and how far any point is from solving it.

With ``Z`` the rows ``y_i (x_i, 1)``, ``z = (a, b)``, ``t = 1 - Z z`` and ``P = diag(1, ..., 1, rho)`` the
slack variables of the paper's problem (2) can be eliminated:

    minimize  z'Pz / 2 + sum h(t_i),    h(t) = theta max(t, 0) + rho max(t, 0)**2 / 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from discreet._typing import Bools, Floats, Ints

EPS = float(np.finfo(np.float64).eps)
_CHUNK = 1 << 17
"""Cells of a matrix that stay in the cache while their Gram matrix is formed."""


@dataclass(frozen=True)
class Problem:
    """Rows, signs and weights; what the mathematics needs of them."""

    X: Floats
    sign: Floats
    theta: float
    rho: float

    @cached_property
    def weights(self) -> Floats:
        """The diagonal of P."""
        return np.append(np.ones(self.X.shape[1]), self.rho)

    @cached_property
    def size(self) -> float:
        """Root mean square of a cell of (X, 1): the scale of rounding errors."""
        q, p = self.X.shape
        return math.sqrt((float(np.einsum("ij,ij->", self.X, self.X)) + q) / (q * (p + 1)))

    def forward(self, z: Floats) -> Floats:
        """Return Z z."""
        return np.asarray(self.sign * (self.X @ z[:-1] + z[-1]))

    def back(self, w: Floats) -> Floats:
        """Return Z'w."""
        c = self.sign * w
        return np.append(self.X.T @ c, c.sum())

    def gram(self, rows: Ints) -> Floats:
        """Return Z'Z over some rows; the signs cancel."""
        p = self.X.shape[1]
        out = np.zeros((p + 1, p + 1))
        step = max(1, _CHUNK // (p + 1))
        for start in range(0, len(rows), step):
            part = self.X[rows[start : start + step]]
            out[:p, :p] += part.T @ part
            out[p, :p] += part.sum(axis=0)
        out[:p, p] = out[p, :p]
        out[p, p] = len(rows)
        return out

    def residual(self, omega: Floats, t: Floats) -> float:
        """Return the scaled natural residual: how far omega is from what t asks of it."""
        wanted = multipliers(omega + self.theta * t, self.theta, self)
        return float(np.abs(omega - wanted).max()) / self.theta

    def objective(self, z: Floats) -> float:
        """Return the value that is minimized."""
        slack = np.maximum(1 - self.forward(z), 0)
        squares = z @ (self.weights * z) + self.rho * (slack @ slack)
        return float(squares / 2 + self.theta * slack.sum())

    def gap(self, z: Floats, omega: Floats) -> float:
        """Return primal minus dual value as a sum of terms none of which is negative.

        The difference of the two values would lose everything below the rounding of either one.
        """
        t, theta, rho = 1 - self.forward(z), self.theta, self.rho
        excess, above = np.maximum(omega - theta, 0), np.maximum(t, 0)
        # Fenchel-Young: h(t) + h*(omega) - omega t, with h*(omega) = max(omega - theta, 0)**2 / (2 rho).
        young = np.maximum(theta - omega, 0) * above - omega * np.minimum(t, 0)
        young += (rho * above - excess) ** 2 / (2 * rho)
        miss = z - self.back(omega) / self.weights
        return float(young.sum() + miss @ (self.weights * miss) / 2)

    def rounding(self, z: Floats, omega: Floats) -> float:
        """Return the gap that an exact solution would show: rows on the margin are there up to rounding."""
        at = (omega > 0) & (omega <= self.theta)
        reach = np.abs(self.X[at]) @ np.abs(z[:-1]) + abs(z[-1]) + 1
        return 4 * EPS * self.theta * float(reach.sum())


def multipliers(u: Floats, step: float, problem: Problem) -> Floats:
    """Return the omega that minimizes the distance to ``u`` plus the conjugate loss."""
    above = np.maximum(u, problem.theta)
    above -= problem.theta
    above *= problem.rho / (problem.rho + step)
    above += np.clip(u, 0, problem.theta)
    return above


class Gram:
    """Z'Z over a set of rows that changes a little from step to step."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        p = problem.X.shape[1]
        self.few = 4 * (p + 1)
        self.member: Bools = np.zeros(len(problem.sign), np.bool_)
        self.matrix: Floats = np.zeros((p + 1, p + 1))

    def over(self, member: Bools) -> Floats:
        """Return the Gram matrix over ``member``, from the last one where that is less work."""
        changed = np.flatnonzero(member != self.member)
        count = int(np.count_nonzero(member))
        if len(changed) > 0.6 * count or count <= self.few:
            self.matrix = self.problem.gram(np.flatnonzero(member))
        elif len(changed):
            came = member[changed]
            self.matrix = self.matrix + self.problem.gram(changed[came]) - self.problem.gram(changed[~came])
        self.member = member
        return self.matrix
