"""The problem of the support vector machine, and its solution until rounding is all that is left.

With ``Z`` the rows ``y_i (x_i, 1)``, ``z = (a, b)``, ``t = 1 - Z z`` and ``P = diag(1, ..., 1, rho)`` the
slack variables of the paper's problem (2) can be eliminated:

    minimize  z'Pz / 2 + sum h(t_i),    h(t) = theta max(t, 0) + rho max(t, 0)**2 / 2.

Three parts solve it, each exact where the one before is only good: an augmented Lagrangian on the multipliers
``omega``; inside it, Newton's method on a piecewise quadratic function, with an exact line search and Gram
matrices that are updated by the rows that changed sides; at the end, the linear system of the rows on the
margin and beyond it. A solution of that is accepted only if it has the sets that it was computed with; then
it is the optimum.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from discreet.threads import one_thread

if TYPE_CHECKING:
    from discreet._types import Bools, Floats, Ints


EPS = float(np.finfo(np.float64).eps)
_CHUNK = 1 << 17
"""Cells of a matrix that stay in the cache while their Gram matrix is formed."""


@dataclass(frozen=True)
class SvmProblem:
    """Data of one training: the objective, its dual, and products with the rows.

    Attributes
    ----------
    X : array of shape (n_rows, p)
        Rows after the feature map.
    sign : array of shape (n_rows,)
        Label of each row, -1 or 1.
    theta, rho : float
        Weight of the slack, and of its square and of the squared intercept; both above 0.
    """

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
        """Return the natural residual over theta: the distance of omega from its fixed-point equation."""
        target = multipliers(omega + self.theta * t, self.theta, self)
        return float(np.abs(omega - target).max()) / self.theta

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
        # The remaining quadratic part; no term is negative.
        young += (rho * above - excess) ** 2 / (2 * rho)
        miss = z - self.back(omega) / self.weights
        return float(young.sum() + miss @ (self.weights * miss) / 2)

    def rounding_gap(self, z: Floats, omega: Floats) -> float:
        """Return the gap that an exact solution would show: rows on the margin are there up to rounding."""
        at = (omega > 0) & (omega <= self.theta)
        scale = np.abs(self.X[at]) @ np.abs(z[:-1]) + abs(z[-1]) + 1
        return 4 * EPS * self.theta * float(scale.sum())


def multipliers(u: Floats, step: float, problem: SvmProblem) -> Floats:
    """Return the omega that minimizes the distance to ``u`` plus the conjugate loss."""
    # The identity between 0 and theta; above theta the conjugate (omega - theta)**2 / (2 rho) pulls it back.
    above = np.maximum(u, problem.theta)
    above -= problem.theta
    above *= problem.rho / (problem.rho + step)
    above += np.clip(u, 0, problem.theta)
    return above


class GramMatrix:
    """Z'Z over a set of rows that changes a little from step to step."""

    def __init__(self, problem: SvmProblem) -> None:
        self.problem = problem
        p = problem.X.shape[1]
        self.few = 4 * (p + 1)
        self.member: Bools = np.zeros(len(problem.sign), np.bool_)
        self.matrix: Floats = np.zeros((p + 1, p + 1))

    def restrict_to(self, member: Bools) -> Floats:
        """Return the Gram matrix over the rows of a mask, updated from the last one if that is less work."""
        changed = np.flatnonzero(member != self.member)
        count = int(np.count_nonzero(member))
        # Forming it anew is cheaper for small sets and large changes, and sheds accumulated rounding.
        if len(changed) > 0.6 * count or count <= self.few:
            self.matrix = self.problem.gram(np.flatnonzero(member))
        elif len(changed):
            added = member[changed]
            self.matrix = self.matrix + self.problem.gram(changed[added]) - self.problem.gram(changed[~added])
        self.member = member
        return self.matrix


MOST_FINISH = 8
MOST_WORK = 10**10
"""Largest number of cells that :func:`climb` may read."""


def largest_margin_set(p: int) -> int:
    """Return the largest margin, in rows, whose linear system is worth solving."""
    return 3 * (p + 1) + 10


def finish(problem: SvmProblem, z: Floats, omega: Floats, t: Floats) -> tuple[Floats, Floats] | None:
    """Return the optimum if the linear system of an active set confirms it; None if the sets do not repeat.

    Notes
    -----
    A row is on the margin where ``0 < omega + theta t <= theta`` and violated above; the solution of the
    system of :class:`ActiveSet` gives the next sets. Repeated sets satisfy all optimality conditions.
    """
    theta = problem.theta
    v = omega + theta * t
    margin, violated = (v > 0) & (v <= theta), v > theta
    gram = GramMatrix(problem)
    for _ in range(MOST_FINISH):
        if np.count_nonzero(margin) > largest_margin_set(problem.X.shape[1]):
            return None
        system = ActiveSet(problem, z, omega, t, margin, violated, gram.restrict_to(violated))
        system.refine()
        if system.is_confirmed():
            for _ in range(3):
                system.refine()
            return (system.z, system.omega) if system.is_confirmed() and system.meets_margin() else None
        z, omega, t = system.z, np.maximum(system.omega, 0), system.t
        margin, violated = system.sets()
    return None


def climb(problem: SvmProblem, z: Floats, omega: Floats) -> tuple[Floats, Floats] | None:
    """Return the optimum by raising the dual value one row at a time until the set repeats; None if it fails.

    Exchanging many rows at once can go round in circles when they all lie near the margin. Here the
    multipliers go towards the solution of the current set only until the first of them changes sides, so that
    the dual value never falls.
    """
    theta = problem.theta
    margin, violated = (omega > 0) & (omega <= theta), omega > theta
    q, p = problem.X.shape
    most = 10 * (p + 1) + 100
    gram, t = GramMatrix(problem), 1 - problem.forward(z)
    for _ in range(min(2 * most, 50 + MOST_WORK // (q * (p + 1)))):
        if np.count_nonzero(margin) > most:
            return None
        system = ActiveSet(problem, z, omega, t, margin, violated, gram.restrict_to(violated))
        for _ in range(3):
            system.refine()
        change = system.omega - omega
        # Multiplier at which a row leaves its set.
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
            # The first row to reach its bound changes sets.
            margin[row], violated[row] = violated[row], margin[row] and bound[row] == theta
            continue
        z, omega, t = system.z, system.omega, system.t
        # All multipliers reached their targets: the most violated outside row enters.
        outside = np.where(margin | violated, -math.inf, system.t)
        row = int(np.argmax(outside))
        if outside[row] <= 1e-14 * (1 + float(np.abs(problem.X[row]) @ np.abs(z[:-1]) + abs(z[-1]))):
            return (z, omega) if system.meets_margin() else None
        margin[row] = True
    return None


class ActiveSet:
    """The optimum if exactly the rows ``margin`` have t = 0 and exactly ``violated`` have t > 0.

    Then ``P z = Z'omega`` with ``omega = theta + rho t`` on the violated rows and ``Z z = 1`` on the margin
    is linear in z and in the multipliers of the margin.
    """

    def __init__(
        self,
        problem: SvmProblem,
        z: Floats,
        omega: Floats,
        t: Floats,
        margin: Bools,
        violated: Bools,
        gram: Floats,
    ) -> None:
        """Factor the linear system of an active set.

        Parameters
        ----------
        problem : SvmProblem
            Problem to be solved.
        z : array of shape (p + 1,)
            Point from which refinement starts.
        omega : array of shape (n_rows,)
            Multipliers at the start.
        t : array of shape (n_rows,)
            Values of ``1 - Z z`` at the start.
        margin, violated : array of bool
            Rows with ``t = 0``, and rows with ``t > 0``.
        gram : array of shape (p + 1, p + 1)
            Gram matrix ``Z'Z`` over the violated rows.
        """
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
            # An ill-conditioned system is found out by the certificate.
            warnings.simplefilter("ignore", linalg.LinAlgWarning)
            self.factor = linalg.lu_factor(matrix, check_finite=False)
        self.z, self.t, self.omega = z, t, np.where(margin, omega, 0.0)
        self._update_multipliers()

    def _update_multipliers(self) -> None:
        """Set the multipliers of violated rows to ``theta + rho t``."""
        np.copyto(self.omega, self.problem.theta + self.problem.rho * self.t, where=self.violated)

    def refine(self) -> None:
        """Improve the solution by one step of iterative refinement."""
        n = len(self.z)
        miss = self.problem.back(self.omega) - self.problem.weights * self.z
        change = linalg.lu_solve(self.factor, np.append(miss, self.t[self.at]), check_finite=False)
        self.z = self.z + change[:n]
        self.t = 1 - self.problem.forward(self.z)
        # The second unknown is minus the change of omega, which makes the matrix symmetric.
        self.omega[self.at] -= change[n:]
        self._update_multipliers()

    def sets(self) -> tuple[Bools, Bools]:
        """Return the rows that the solution puts on the margin and beyond it."""
        # On the margin t is 0 up to rounding, whose sign must not move a row to another set.
        t = np.where(self.margin, 0.0, self.t)
        v = self.omega + self.problem.theta * t
        return (v > 0) & (v <= self.problem.theta), v > self.problem.theta

    def is_confirmed(self) -> bool:
        """Whether the solution has the sets that it was computed with."""
        margin, violated = self.sets()
        return np.array_equal(margin, self.margin) and np.array_equal(violated, self.violated)

    def meets_margin(self) -> bool:
        """Whether ``t`` is 0 up to rounding on the margin, which may be impossible for dependent rows."""
        scale = 1 + np.abs(self.rows) @ np.abs(self.z)
        return bool(np.all(np.abs(self.t[self.at]) <= 1e-12 * scale))


EXACT, SETTLED = 1e-13, 1e-8
"""Residuals: what double precision can reach, and where to stop if it gets no smaller."""
MOST_OUTER, MOST_NEWTON, MOST_SEARCH = 60, 200, 80
_PIECE = 1 << 14


@dataclass(frozen=True)
class Solution:
    """Result of the solver.

    Attributes
    ----------
    z : array of shape (p + 1,)
        Coefficients of the rows, and the intercept last.
    omega : array of shape (n_rows,)
        Multipliers of the rows, at least 0.
    outer, newton : int
        Numbers of updates of the multipliers and of Newton steps.
    """

    z: Floats
    omega: Floats
    outer: int
    newton: int


def solve(problem: SvmProblem) -> Solution:
    """Return the unique minimizer and its multipliers."""
    with one_thread():
        return _augmented_lagrangian(problem)


def _augmented_lagrangian(problem: SvmProblem) -> Solution:
    """Return the minimizer by the method of multipliers, finished by the active set's linear system.

    Notes
    -----
    Each round minimizes the augmented Lagrangian over ``z`` (:func:`_minimize_inner`), which also gives the
    next multipliers, then multiplies the step by 5. It ends where :func:`finish` confirms an active set,
    where the residual is at the limit of double precision, or where it gets no smaller; then :func:`climb` is
    tried.

    Reference
    ---------
    docs/explanation/theorems/fisher-svm.md
    """
    q, p = problem.X.shape
    theta, rho = problem.theta, problem.rho
    z, omega, t = np.zeros(p + 1), np.zeros(q), np.ones(q)
    # More rows lie closer to the margin, and need a longer step to be separated.
    step, longest = theta + rho, max(1e5, q) * (theta + rho)
    grams = GramMatrix(problem), GramMatrix(problem)
    last, newton, enough, patience = math.inf, 0, 1e-3, 3
    for outer in range(1, MOST_OUTER + 1):
        z, omega, g, steps = _minimize_inner(problem, z, omega, t, step, enough, grams)
        newton += steps
        t = 1 - problem.forward(z)
        complementary = problem.residual(omega, t)
        scale = math.sqrt(q) * float(np.linalg.norm(omega)) * problem.size
        residual = max(complementary, float(np.linalg.norm(g)) / max(scale, EPS))
        v = omega + theta * t
        margin = int(np.count_nonzero((v > 0) & (v <= theta)))
        # A margin that is crowded early on is still changing; one that stays crowded has ties.
        likely = complementary < 1e-2 and margin <= 1.3 * (p + 1) + 2
        if likely or (complementary < 1e-5 and margin <= largest_margin_set(p)):
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


def _minimize_inner(
    problem: SvmProblem,
    z: Floats,
    omega: Floats,
    t: Floats,
    step: float,
    enough: float,
    grams: tuple[GramMatrix, GramMatrix],
) -> tuple[Floats, Floats, Floats, int]:
    """Minimize the augmented Lagrangian over z; return z, the new multipliers, the gradient, the steps.

    Notes
    -----
    Newton's method on a convex piecewise quadratic: its matrix is ``P + step Z'Z`` over rows on the margin
    ``+ rho step / (rho + step) Z'Z`` over violated ones; then the exact line search of :func:`_search`.
    """
    theta, rho, weights = problem.theta, problem.rho, problem.weights
    root = math.sqrt(len(omega)) * problem.size
    # Curvature of the augmented loss beyond the margin.
    curve = rho * step / (rho + step)
    scale = max(1.0, float(np.linalg.norm(1 - t)))
    for count in range(MOST_NEWTON + 1):
        u = omega + step * t
        w = multipliers(u, step, problem)
        g = weights * z - problem.back(w)
        # Below this the gradient is rounding of the two terms it is made of.
        rounding = 1e-15 * root * (float(np.linalg.norm(w)) + step * scale)
        close = max(rounding, enough * float(np.linalg.norm(weights * z)))
        if float(np.linalg.norm(g)) <= close or count == MOST_NEWTON:
            break
        margin, violated = grams[0].restrict_to((u > 0) & (u <= theta)), grams[1].restrict_to(u > theta)
        d = -_solve_positive(np.diag(weights) + step * margin + curve * violated, g)
        e = problem.forward(d)
        length = _search(problem, z, d, e, u, step, float(g @ d))
        if length <= 0:
            break
        z = z + length * d
        t = t - length * e
    return z, w, g, count


def _search(
    problem: SvmProblem, z: Floats, d: Floats, e: Floats, u: Floats, step: float, slope0: float
) -> float:
    """Return the length at which the derivative along ``d``, monotone and piecewise linear, is zero."""
    theta, rho = problem.theta, problem.rho
    pd = problem.weights * d
    start, bend = float(z @ pd), float(d @ pd)
    curve = rho * step / (rho + step)

    def derivatives(s: float) -> tuple[float, float]:
        """Return the first and second derivative of the augmented Lagrangian at length ``s``."""
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
        # Newton left the bracket: bisect, or double while it is open.
        if not low < s < high:
            s = 2 * low if high == math.inf else (low + high) / 2
    return s


def _solve_positive(matrix: Floats, right: Floats) -> Floats:
    """Return the solution of a system whose matrix is positive definite up to rounding.

    A ridge relative to the diagonal is raised until the Cholesky factorization succeeds.
    """
    diagonal = np.diag(matrix)
    for ridge in (0.0, *(10.0**k for k in range(-15, -2))):
        try:
            factor = linalg.cho_factor(matrix + np.diag(ridge * diagonal), check_finite=False)
        except linalg.LinAlgError:
            continue
        return np.asarray(linalg.cho_solve(factor, right, check_finite=False))
    return right / diagonal
