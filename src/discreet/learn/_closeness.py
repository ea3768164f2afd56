"""Distance between a model trained on a released table and the one trained on the rows themselves.

The paper proves that a bound exists and gives no number for it. Two quantities do have numbers: the
probability of a small distance, measured by retraining, and the first-order constant at the solution.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from discreet.confidence import clopper_pearson
from discreet.errors import DataError, ParameterError
from discreet.json_record import JsonRecord
from discreet.learn._smooth_problem import SmoothDerivative, smooth_problem, symmetrize
from discreet.learn.arguments import is_number
from discreet.learn.exact_svm import RegularizedSVM
from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats
    from discreet.learn.exact_svm._solver import SvmProblem

_DENSE = 400
"""Size up to which computing all eigenvalues is cheaper than iterating for one."""
_CLEAR = 1e-9
"""Least distance of a row from the edge of its set, relative to theta, at which a derivative exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness(JsonRecord):
    """The share of released tables that train to nearly the same model.

    Attributes
    ----------
    radius : float
        Largest distance of the two solutions that counts as close.
    hits, draws : int
        Number of independent tables that came that close, and of all tables.
    confidence : float
        Probability, over the draws, that the interval holds the true value.

    Examples
    --------
    >>> from discreet.learn import Closeness
    >>> near = Closeness(radius=0.1, hits=19, draws=20, confidence=0.95)
    >>> near.estimate
    0.95
    """

    kind: ClassVar[str] = "closeness"

    radius: float
    hits: int
    draws: int
    confidence: float

    @property
    def estimate(self) -> float:
        """Share of the tables that trained to a close model."""
        return self.hits / self.draws

    @property
    def interval(self) -> tuple[float, float]:
        """The Clopper-Pearson interval of the probability: exact for every number of draws."""
        low, high = clopper_pearson(self.hits, self.draws, (1 - self.confidence) / 2)
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.estimate:.3f} of {self.draws} released tables trained to within {self.radius:g} "
            f"({low:.3f} to {high:.3f} with confidence {self.confidence:g})"
        )


def measure_closeness(
    model: Any,
    release: Callable[[Stream], tuple[Any, Any]],
    *,
    radius: float,
    draws: int = 200,
    confidence: float = 0.95,
    slack: bool = True,
    stream: Stream | None = None,
) -> Closeness:
    """Measure the probability D that a released table trains to nearly the same model.

    Parameters
    ----------
    model : fitted learner
        Model trained on the rows themselves: a linear one with ``coef_``, ``intercept_`` and, for ``slack``,
        ``slack_``, or a network of scikit-learn. It is not changed; a copy is trained on each table. Copies
        of a network begin at its own weights, because its problem has many minima: the question is whether
        the one that was found stays near, and training from a random start may end at another.
    release : callable
        Given a :class:`~discreet.noise.Stream`, returns a released table as rows and labels, in the order
        in which the model saw them. All its randomness must come from that stream.
    radius : float
        Largest distance that counts as close: the paper's epsilon in (7).
    draws : int
        Number of released tables to draw.
    confidence : float
        Confidence level of the interval, above 0 and below 1.
    slack : bool
        Whether the slack of every row counts in the distance, as in the paper, or the classifier alone.
    stream : Stream, optional
        Source of the tables' streams; by default a fresh one.

    Returns
    -------
    Closeness

    Privacy
    -------
    None: the result depends on the rows and on noise that is thrown away. It is for the curator and must not
    be published.

    Reference
    ---------
    Farokhi, (7) and Propositions 2.3 and 2.11; docs/explanation/theorems/fisher-utility.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import RegularizedSVM
    >>> from discreet.learn import measure_closeness
    >>> from discreet.noise import Stream
    >>> X, y = np.array([[-2.0, 0.0], [-1.0, 1.0], [1.0, 0.0], [2.0, 1.0]]), np.array([-1, -1, 1, 1])
    >>> def release(stream):
    ...     return X + 1e-3 * stream.generator().standard_normal(X.shape), y
    >>> near = measure_closeness(
    ...     RegularizedSVM().fit(X, y), release, radius=0.1, draws=20, stream=Stream.from_seed(1)
    ... )
    >>> near.estimate
    1.0
    """
    check_is_fitted(model)
    if not is_number(radius) or radius < 0:
        raise ParameterError(f"radius of measure_closeness must be a number at least 0, was {radius!r}.")
    if not is_number(draws) or draws != int(draws) or draws < 1:
        raise ParameterError(f"draws of measure_closeness must be a whole number from 1 on, was {draws!r}.")
    if not is_number(confidence) or not 0 < confidence < 1:
        raise ParameterError(
            f"confidence of measure_closeness must be above 0 and below 1, was {confidence!r}. 0.95 is usual."
        )
    # Every table has its own stream, so that draws are independent.
    source = Stream() if stream is None else stream
    target = _parameter_vector(model, slack)
    hits = 0
    for _ in range(int(draws)):
        X, y = release(source.spawn())
        moved = _parameter_vector(_copy_to_train(model).fit(X, y), slack)
        if moved.shape != target.shape:
            raise DataError(
                "release of measure_closeness must return as many rows and columns as the model was trained "
                f"on: {len(target)} numbers are compared, {len(moved)} came back. Keep rows in their order."
            )
        hits += bool(np.linalg.norm(moved - target) <= radius)
    return Closeness(radius=float(radius), hits=hits, draws=int(draws), confidence=float(confidence))


def _copy_to_train(model: Any) -> Any:
    """Return a copy to be trained anew, or, of a network, one that is trained on from the same weights."""
    if not hasattr(model, "coefs_"):
        return clone(model)
    # A clone would forget the weights.
    return copy.deepcopy(model).set_params(warm_start=True)


def _parameter_vector(model: Any, slack: bool) -> Floats:
    """Return the coefficients, the intercepts and, if wanted, the slack of a model as one vector."""
    network = hasattr(model, "coefs_")
    shown = ("coefs_", "intercepts_") if network else ("coef_", "intercept_")
    attributes = (*shown, "slack_") if slack else shown
    missing = [name for name in attributes if not hasattr(model, name)]
    if missing:
        linear = "Use a linear model, as RegularizedSVM, or a network of scikit-learn."
        raise ParameterError(
            f"model of measure_closeness must have {', '.join(attributes)}, and {type(model).__name__} has "
            f"no {', '.join(missing)}. {'Use slack=False.' if missing == ['slack_'] else linear}"
        )
    values = [getattr(model, name) for name in attributes]
    layers = [*values[0], *values[1], *values[2:]] if network else values
    return np.concatenate([np.ravel(part) for part in layers])


def local_constant(model: Any, X: AnyArray, y: AnyArray) -> float:
    """Return the norm of the derivative of the solution by the rows: a first-order constant.

    If the rows move by a matrix N, then the solution moves by ``J N`` and terms of second order. The result
    is the spectral norm of J: the largest movement over all N of Frobenius norm 1. How small N must be is not
    known, so this is no guarantee for any noise. The solution of a :class:`RegularizedSVM` is (a, b, xi), and
    J holds as long as no row enters or leaves the margin; that of other models is all coefficients and
    intercepts.

    Parameters
    ----------
    model : RegularizedSVM, or a model of scikit-learn
        Model trained on ``X`` and ``y``: besides the SVM a ``Ridge``, a ``LogisticRegression`` with an L2
        penalty, or an ``MLPClassifier`` or ``MLPRegressor`` with a smooth activation. For the last three the
        derivative is taken at the minimum next to the model, found by Newton's method. With a
        ``feature_map``, N moves what the map returns.
    X, y : arrays
        Rows and targets that the model was trained on.

    Returns
    -------
    float

    Raises
    ------
    DataError
        If the solution has no derivative, or the model is not near a minimum of its problem on these rows.

    Privacy
    -------
    None: a function of the rows, for the curator.

    Reference
    ---------
    Farokhi, Propositions 2.3 and 2.11, whose constants are not stated;
    docs/explanation/theorems/fisher-utility.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import RegularizedSVM
    >>> from discreet.learn import local_constant
    >>> X, y = np.array([[-1.0], [1.0]]), np.array([-1, 1])
    >>> local_constant(RegularizedSVM(theta=10.0).fit(X, y), X, y) > 0
    True
    """
    if isinstance(model, RegularizedSVM):
        problem, omega = model.training_problem(X, y)
        return _Derivative(problem, np.append(model.coef_, model.intercept_), omega).norm()
    check_is_fitted(model)
    smooth = smooth_problem(model, X, y)
    if smooth is None:
        raise ParameterError(
            "model of local_constant must be a RegularizedSVM, or a Ridge, LogisticRegression or network of "
            f"scikit-learn, was {type(model).__name__}: the derivative is that of its solution. Use "
            "measure_closeness, which works for every linear model."
        )
    derivative = SmoothDerivative(smooth)
    return _norm(derivative.square, derivative.size)


def _norm(square: Callable[[Floats], Floats], size: int) -> float:
    """Return the largest singular value of J, given J J' as a function."""
    if size <= _DENSE:
        # J J' is small enough to be formed column by column; eigvalsh reads one triangle.
        whole = symmetrize(np.column_stack([square(unit) for unit in np.eye(size)]))
        largest = float(linalg.eigvalsh(whole)[-1])
    else:
        operator = LinearOperator((size, size), matvec=square, dtype=np.float64)
        # A fixed start, because the default one is random.
        largest = float(eigsh(operator, k=1, v0=np.ones(size), return_eigenvectors=False)[0])
    return math.sqrt(max(largest, 0.0))


class _Derivative:
    """The linear map J from a change N of the rows to the change of (a, b, xi).

    Notes
    -----
    The active set stays, so the derivative of its linear system is exact. With c = omega y and V the rows
    beyond the margin, M those on it,

        A dz - Z_M' dw = (N'c, 0) - rho Z_V' (y N a)_V,   Z_M dz = -(y N a)_M,   A = P + rho Z_V'Z_V,
        dxi_V = -(Z_V dz + (y N a)_V).
    """

    def __init__(self, problem: SvmProblem, z: Floats, omega: Floats) -> None:
        """Factor the linear system of the active set.

        Parameters
        ----------
        problem : SvmProblem
            Problem that was solved.
        z : array of shape (p + 1,)
            Solution, coefficients ``a`` and intercept ``b``.
        omega : array of shape (n_rows,)
            Multipliers of the rows.

        Raises
        ------
        DataError
            If a row lies at the edge of its set, or rows on the margin depend on each other.
        """
        theta, rho = problem.theta, problem.rho
        t = 1 - problem.forward(z)
        margin, beyond = (omega > 0) & (omega <= theta), omega > theta
        # Distance of each row from the set next to its own.
        edge = np.where(margin, np.minimum(omega, theta - omega) / theta, np.abs(t))
        if edge.min() <= _CLEAR:
            raise DataError(
                "local_constant needs every row to be clearly on, inside or outside the margin, and one is "
                "at the edge of two: the solution has no derivative there. Change theta a little."
            )
        self.at, self.far = np.flatnonzero(margin), np.flatnonzero(beyond)
        self.a, self.c, self.rho = z[:-1], omega * problem.sign, rho
        self.sign = problem.sign
        self.n = n = len(z)
        rows = problem.sign[:, None] * np.column_stack([problem.X, np.ones(len(t))])
        self.on, self.over = rows[self.at], rows[self.far]
        m = len(self.at)
        matrix = np.zeros((n + m, n + m))
        matrix[:n, :n] = np.diag(problem.weights) + rho * (self.over.T @ self.over)
        matrix[:n, n:], matrix[n:, :n] = self.on.T, self.on
        if m and np.linalg.matrix_rank(self.on) < m:
            raise DataError(
                "local_constant needs the rows on the margin to be independent, and some depend on others: "
                "the solution has no derivative there. Remove repeated rows or change theta a little."
            )
        self.factor = linalg.lu_factor(matrix)

    def forward(self, weighted: Floats, along: Floats) -> Floats:
        """Return the change of (a, b, xi_V), given ``weighted`` = N'c and ``along`` = y N a."""
        right = np.concatenate([weighted, [0.0], -along[self.at]])
        # Rows beyond the margin pull on the solution through their slack.
        right[: self.n] -= self.rho * (self.over.T @ along[self.far])
        dz = linalg.lu_solve(self.factor, right)[: self.n]
        return np.concatenate([dz, -(self.over @ dz + along[self.far])])

    def adjoint(self, change: Floats) -> tuple[Floats, Floats]:
        """Return the coefficients of N'c and of y N a in the inner product of ``change`` with J N."""
        dz, slack = change[: self.n], change[self.n :]
        right = np.concatenate([dz - self.over.T @ slack, np.zeros(len(self.at))])
        back = linalg.lu_solve(self.factor, right)
        along = np.zeros(len(self.c))
        along[self.at] = -back[self.n :]
        along[self.far] = -slack - self.rho * (self.over @ back[: self.n])
        return back[: self.n - 1], along

    def square(self, change: Floats) -> Floats:
        """Return J J' times a change, without forming a matrix over all cells."""
        weighted, along = self.adjoint(change)
        signed = self.sign * along
        # N = c weighted' + signed a', of which only N'c and y N a are needed.
        n_c = float(self.c @ self.c) * weighted + float(signed @ self.c) * self.a
        n_a = self.c * float(weighted @ self.a) + float(self.a @ self.a) * signed
        return self.forward(n_c, self.sign * n_a)

    def norm(self) -> float:
        """Return the largest singular value of J."""
        return _norm(self.square, self.n + len(self.far))
