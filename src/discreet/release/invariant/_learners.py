"""Learners whose models an invariant release keeps, each solved until only rounding errors are left.

A learner minimizes ``sum_i L(y_i, F'x_i + b) + R(F)``. At the minimum, ``C[i, k]`` is the derivative of the
loss of row ``i`` by its ``k``-th score. Noise with ``W F = 0`` moves no score and noise with ``C'W = 0`` does
not move the gradient, so the minimum stays where it is (docs/explanation/theorems/fisher-invariant.md).
Weights F and derivatives C are all that :class:`~discreet.release.invariant._noise.InvariantNoise` needs to
know of a model. For a network they are those of its first layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import scipy

from discreet.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats

Wants: TypeAlias = Literal["two classes", "classes", "number"]
_ROUNDING = 1e-12
"""Weights below this share of their summands are rounding errors."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnerSolution:
    """A trained model: its weights, and the derivatives of its loss.

    Attributes
    ----------
    weights : array of shape (n_columns, n_outputs)
        ``F``: scores are ``X F`` plus intercepts.
    derivatives : array of shape (n_rows, n_outputs)
        ``C``: derivative of each row's loss by each of its scores.
    intercept : array of shape (n_outputs,)
        Intercept of each score; the noise does not change it.
    residual : float
        Largest entry of the gradient, relative to the absolute values of its summands; 0 at an exact minimum.
    outward : array of shape (n_rows,) or None
        +1 or -1 for rows whose loss stays zero when their score grows in that direction, 0 for others; None
        if no row has such a direction.
    """

    weights: Floats
    derivatives: Floats
    intercept: Floats
    residual: float
    outward: Floats | None = None


@runtime_checkable
class InvariantLearner(Protocol):
    """Interface of the learners that :class:`~discreet.release.invariant.InvariantRelease` accepts.

    Attributes
    ----------
    wants : {"two classes", "classes", "number"}
        Kind of target that the learner is trained on.
    unique : bool
        Whether its training problem has one solution. If not, the trained model stays a stationary point
        of the problem on the released table, and training anew may end at another.
    """

    @property
    def wants(self) -> Wants:
        """Kind of target that the learner is trained on."""
        ...

    @property
    def unique(self) -> bool:
        """Whether the training problem has exactly one solution."""
        ...

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> LearnerSolution:
        """Train to machine precision.

        Parameters
        ----------
        X : array of shape (n_rows, n_columns)
            Features of the rows, as numbers.
        y : array of shape (n_rows,)
            Targets: numbers, or classes counted from 0.
        n_classes : int
            Number of declared classes; 0 where the target is a number.

        Returns
        -------
        LearnerSolution
        """
        ...


def relative_gradient(X: Floats, derivatives: Floats, weights: Floats, penalty: float) -> float:
    """Return the largest entry of ``[X 1]'C + penalty F``, relative to the size of its summands."""
    columns = np.column_stack([X, np.ones(len(X))])
    pull = penalty * np.vstack([weights, np.zeros((1, weights.shape[1]))])
    size = np.abs(columns).T @ np.abs(derivatives) + np.abs(pull)
    return largest_share(columns.T @ derivatives + pull, size)


def largest_share(values: Floats, sizes: Floats) -> float:
    """Return the largest of ``|values| / sizes``; entries of size 0 count as they are."""
    return float(np.max(np.abs(values) / np.where(sizes > 0, sizes, 1.0)))


def check_penalty(owner: str, alpha: float) -> None:
    """Raise if a penalty is not above 0: without one the minimum need not be unique."""
    if not (isinstance(alpha, int | float) and 0 < alpha < np.inf):
        raise ParameterError(
            f"alpha of {owner} must be a number above 0, was {alpha!r}. Without a penalty the minimum need "
            "not be unique; learner='gram' keeps least squares for every penalty."
        )


@dataclass(frozen=True, slots=True)
class SVMLearner:
    """The support vector machine of the paper's problem (2), :class:`~discreet.learn.RegularizedSVM`.

    Parameters
    ----------
    theta, rho : float
        Weight of the slack, and weight of the squares of slack and intercept; both above 0.

    Examples
    --------
    >>> SVMLearner(theta=2.0).wants
    'two classes'
    """

    theta: float = 1.0
    rho: float = 0.01
    wants: ClassVar[Wants] = "two classes"
    unique: ClassVar[bool] = True
    one_sided: ClassVar[bool] = True

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> LearnerSolution:
        """Train by :class:`~discreet.learn.RegularizedSVM`; see :class:`InvariantLearner`."""
        # Imported here, so that releases without a model do not wait for scikit-learn.
        from discreet.learn.exact_svm import RegularizedSVM

        signs = 2.0 * y - 1.0
        model = RegularizedSVM(theta=self.theta, rho=self.rho).fit(X, signs)
        pull = np.asarray(model.dual_coef_, np.float64).reshape(-1)
        # With weights X'c, primal and dual value on the released rows are those on the true ones, so that the
        # remaining gap of the solver does not grow with the noise.
        weights = X.T @ pull
        certificate = model.certificate_
        open_gap = 0.0 if certificate.converged else certificate.gap / model.objective_
        if np.linalg.norm(weights) <= _ROUNDING * (np.abs(pull) @ np.linalg.norm(X, axis=1)):
            weights = np.zeros_like(weights)
        return LearnerSolution(
            weights=weights[:, None],
            derivatives=-pull[:, None],
            intercept=np.atleast_1d(np.asarray(model.intercept_, np.float64)),
            residual=max(certificate.residual, open_gap),
            outward=np.where(pull == 0, signs, 0.0),
        )


@dataclass(frozen=True, slots=True)
class RidgeLearner:
    """Least squares with ``alpha |f|**2`` and a free intercept, as scikit-learn's ``Ridge(alpha)``.

    Parameters
    ----------
    alpha : float
        Weight of the penalty on the squared weights; above 0.

    Examples
    --------
    >>> RidgeLearner(alpha=2.0).wants
    'number'
    """

    alpha: float = 1.0
    wants: ClassVar[Wants] = "number"
    unique: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_penalty("RidgeLearner", self.alpha)

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> LearnerSolution:
        """Solve the normal equations by Cholesky decomposition, with four steps of iterative refinement."""
        # Centering removes the free intercept from the problem.
        middle, level = X.mean(axis=0), float(y.mean())
        centered = X - middle
        gram = centered.T @ centered
        gram[np.diag_indices_from(gram)] += self.alpha
        solve = positive_solver(gram)
        weights = np.zeros(X.shape[1])
        for _ in range(4):
            weights += solve(centered.T @ (y - level - centered @ weights) - self.alpha * weights)
        residuals = y - level - centered @ weights
        # The derivative by the intercept is exactly zero at the minimum; rounding is removed.
        residuals -= residuals.mean()
        derivatives, column = -residuals[:, None], weights[:, None]
        return LearnerSolution(
            weights=column,
            derivatives=derivatives,
            intercept=np.array([level - middle @ weights]),
            residual=relative_gradient(centered, derivatives, column, self.alpha),
        )


def positive_solver(matrix: Floats) -> Callable[[Floats], Floats]:
    """Return a function that solves with a positive definite matrix, scaled to a unit diagonal first."""
    # Columns in units of very different size would otherwise cost digits.
    size = 1.0 / np.sqrt(np.diag(matrix))
    factor = scipy.linalg.cho_factor(matrix * size * size[:, None])
    return lambda right: np.asarray(size * scipy.linalg.cho_solve(factor, size * right))


def check_classes(y: AnyArray, n_classes: int, where: str) -> None:
    """Raise if a declared class has no row: the model then has no minimum, or a constant one."""
    present = np.bincount(y, minlength=n_classes) > 0
    if not present.all():
        raise DataError(
            f"The target of {where} must have rows of every declared class, and has them of "
            f"{int(present.sum())} of {n_classes}. Leave the class out of its list, or take another target."
        )


_MOST_STEPS = 100
_GRADIENT_TOLERANCE = 1e-14
"""Relative gradient at which Newton's method stops: about the size of rounding errors."""


@dataclass(frozen=True, slots=True)
class LogisticLearner:
    """Logistic regression with ``alpha / 2 |f|**2``, a free intercept: scikit-learn's with ``C = 1 / alpha``.

    Parameters
    ----------
    alpha : float
        Weight of the penalty on the squared weights; above 0.

    Examples
    --------
    >>> LogisticLearner(alpha=2.0).wants
    'two classes'
    """

    alpha: float = 1.0
    wants: ClassVar[Wants] = "two classes"
    unique: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_penalty("LogisticLearner", self.alpha)

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> LearnerSolution:
        """Train by Newton's method; see :class:`InvariantLearner`.

        Notes
        -----
        With signs s and ``c = -s sigma(-s X w)``, the gradient is ``X'c + alpha w`` and the Hessian
        ``X' diag(|c| (1 - |c|)) X + alpha``; the intercept, the last column of ones, has no penalty.
        """
        signs = 2.0 * y - 1.0
        columns = np.column_stack([X, np.ones(len(X))])
        penalty = np.append(np.full(X.shape[1], self.alpha), 0.0)

        def value(w: Floats) -> float:
            return float(np.logaddexp(0.0, -signs * (columns @ w)).sum() + penalty @ w**2 / 2)

        def derivatives(w: Floats) -> Floats:
            return np.asarray(-signs * scipy.special.expit(-signs * (columns @ w)))

        def step(w: Floats) -> tuple[Floats, float]:
            pull = derivatives(w)
            slope = np.abs(pull) * (1 - np.abs(pull))
            curvature = (columns * slope[:, None]).T @ columns + np.diag(penalty)
            gradient = columns.T @ pull + penalty * w
            size = np.abs(columns).T @ np.abs(pull) + penalty * np.abs(w)
            return positive_solver(curvature)(gradient), largest_share(gradient, size)

        w = _newton(np.zeros(columns.shape[1]), value, step)
        weights, pull = w[:-1, None], derivatives(w)[:, None]
        return LearnerSolution(
            weights=weights,
            derivatives=pull,
            intercept=w[-1:],
            residual=relative_gradient(X, pull, weights, self.alpha),
        )


@dataclass(frozen=True, slots=True)
class MultinomialLearner:
    """Logistic regression for several classes: scikit-learn's with ``C = 1 / alpha``.

    Newton's method solves for all classes at once, so time grows with the square of classes times columns.

    Parameters
    ----------
    alpha : float
        Weight of the penalty on the squared weights; above 0.

    Examples
    --------
    >>> MultinomialLearner(alpha=2.0).wants
    'classes'
    """

    alpha: float = 1.0
    wants: ClassVar[Wants] = "classes"
    unique: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_penalty("MultinomialLearner", self.alpha)

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> LearnerSolution:
        """Train by Newton's method; see :class:`InvariantLearner`.

        Notes
        -----
        With probabilities p, the gradient for class a is ``X'(p_a - 1[y = a]) + alpha w_a`` and the block a,
        b of the Hessian ``X' diag(p_a (1[a = b] - p_b)) X``, plus alpha on the diagonal.
        """
        n, k = len(X), n_classes
        columns = np.column_stack([X, np.ones(n)])
        width = columns.shape[1]
        true = np.zeros((n, k))
        true[np.arange(n), y] = 1.0
        penalty = np.append(np.full(X.shape[1], self.alpha), 0.0)

        # One number added to all intercepts changes no probability; a penalty holds their sum at zero.
        def value(w: Floats) -> float:
            table = w.reshape(k, width)
            loss = -(true * scipy.special.log_softmax(columns @ table.T, axis=1)).sum()
            return float(loss + (penalty * table**2).sum() / 2 + table[:, -1].sum() ** 2 / 2)

        def step(w: Floats) -> tuple[Floats, float]:
            table = w.reshape(k, width)
            chance = scipy.special.softmax(columns @ table.T, axis=1)
            pull = chance - true
            gradient = pull.T @ columns + penalty * table
            gradient[:, -1] += table[:, -1].sum()
            size = np.abs(pull).T @ np.abs(columns) + penalty * np.abs(table)
            curvature = np.zeros((k, width, k, width))
            for a in range(k):
                for b in range(a, k):
                    slope = chance[:, a] * ((a == b) - chance[:, b])
                    curvature[a, :, b] = curvature[b, :, a] = (columns * slope[:, None]).T @ columns
                curvature[a, :, a] += np.diag(penalty)
            curvature[:, -1, :, -1] += 1.0
            move = positive_solver(curvature.reshape(k * width, -1))(gradient.reshape(-1))
            return move, largest_share(gradient, size)

        table = _newton(np.zeros(k * width), value, step).reshape(k, width)
        weights = np.ascontiguousarray(table[:, :-1].T)
        pull = scipy.special.softmax(columns @ table.T, axis=1) - true
        return LearnerSolution(
            weights=weights,
            derivatives=pull,
            intercept=table[:, -1].copy(),
            residual=relative_gradient(X, pull, weights, self.alpha),
        )


def _newton(
    w: Floats, value: Callable[[Floats], float], step: Callable[[Floats], tuple[Floats, float]]
) -> Floats:
    """Return the minimizer of a smooth, strictly convex function, by Newton's method with backtracking.

    ``step`` returns the Newton step and the relative gradient at w. Of all iterates, the one with the
    smallest relative gradient is returned: at the end, rounding errors move it up and down.
    """
    best, least = w, np.inf
    stalled = 0
    for _ in range(_MOST_STEPS):
        move, gradient = step(w)
        if gradient < least:
            best, least, stalled = w, gradient, 0
        else:
            stalled += 1
        # Three steps without progress at a small gradient: only rounding is left.
        if least <= _GRADIENT_TOLERANCE or (stalled >= 3 and least <= 1e-9):
            break
        length, start = 1.0, value(w)
        # Far from the minimum a full step may overshoot; close to it, values differ by rounding alone.
        while value(w - length * move) > start + 1e-12 * abs(start) and length > 1e-10:
            length /= 2
        w = w - length * move
    return best


_ACTIVATIONS: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "identity": (lambda z: z, np.ones_like),
    "logistic": (
        lambda z: np.asarray(scipy.special.expit(z)),
        lambda z: np.asarray(scipy.special.expit(z) * scipy.special.expit(-z)),
    ),
    "tanh": (np.tanh, lambda z: np.asarray(1 - np.tanh(z) ** 2)),
    "relu": (lambda z: np.maximum(z, 0.0), lambda z: (z > 0).astype(np.float64)),
}


class NetworkLearner:
    """The first layer of a trained feed-forward network.

    Noise that keeps the scores of the first layer and the gradient by its weights keeps every output and
    the whole gradient. The trained network is then as stationary on the released table as on the true one,
    and no more than that: its training problem has many solutions, and training anew may end at another.

    Parameters
    ----------
    weights : sequence of arrays
        Weight matrix of each layer, of shape (n_inputs, n_outputs).
    biases : sequence of arrays
        Bias vector of each layer, of shape (n_outputs,).
    activation : {"identity", "logistic", "tanh", "relu"}
        Activation function of the hidden layers.
    output : {"number", "two classes", "classes"}
        Loss: squared error on one number, cross entropy of one logistic unit, or of a softmax over classes.
    alpha : float
        Weight of the penalty ``alpha / 2 |weights|**2`` beside the summed loss; used for the residual alone.

    Examples
    --------
    >>> NetworkLearner([np.ones((1, 2)), np.ones((2, 1))], [np.zeros(2), np.zeros(1)]).unique
    False
    """

    unique = False

    def __init__(
        self,
        weights: Any,
        biases: Any,
        *,
        activation: str = "relu",
        output: Wants = "number",
        alpha: float = 0.0,
    ) -> None:
        """Store the layers as arrays, after checking the activation."""
        if activation not in _ACTIVATIONS:
            raise ParameterError(
                f"activation of NetworkLearner must be one of {', '.join(_ACTIVATIONS)}, was {activation!r}."
            )
        self.weights = [np.asarray(w, np.float64) for w in weights]
        self.biases = [np.asarray(b, np.float64) for b in biases]
        self.activation = activation
        self.wants = output
        self.alpha = alpha

    @classmethod
    def from_sklearn(cls, model: Any) -> NetworkLearner:
        """Return the learner of a fitted ``MLPClassifier`` or ``MLPRegressor`` of scikit-learn."""
        loss = {"squared_error": "number", "log_loss": "two classes", "binary_log_loss": "two classes"}
        output = loss.get(model.loss)
        if output is None or model.n_outputs_ != 1:
            output = "classes" if model.out_activation_ == "softmax" else None
        if output is None:
            raise ParameterError(
                f"model of NetworkLearner.from_sklearn must have one number or classes as output, had "
                f"{model.n_outputs_} outputs and the loss {model.loss!r}. Give weights and biases instead."
            )
        return cls(
            model.coefs_,
            model.intercepts_,
            activation=model.activation,
            output=output,  # type: ignore[arg-type]
            alpha=float(model.alpha),
        )

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> LearnerSolution:
        """Return the first layer and the derivatives by its scores, by backpropagation, without training."""
        if X.shape[1] != len(self.weights[0]):
            raise ParameterError(
                f"weights of NetworkLearner must start with one row for each of the {X.shape[1]} columns, "
                f"had {len(self.weights[0])}. Train it on the columns that are released."
            )
        act, slope = _ACTIVATIONS[self.activation]
        scores, signal = [], X
        for weights, bias in zip(self.weights, self.biases, strict=True):
            scores.append(signal @ weights + bias)
            signal = act(scores[-1])
        pull = self._output_derivatives(scores[-1], y)
        for weights, score in zip(self.weights[:0:-1], scores[-2::-1], strict=True):
            pull = (pull @ weights.T) * slope(score)
        first = self.weights[0]
        return LearnerSolution(
            weights=first,
            derivatives=pull,
            intercept=self.biases[0],
            residual=relative_gradient(X, pull, first, self.alpha),
        )

    def _output_derivatives(self, score: Floats, y: AnyArray) -> Floats:
        """Return the derivative of the loss by the scores of the last layer: output minus target."""
        if self.wants == "classes":
            chance = np.asarray(scipy.special.softmax(score, axis=1))
            chance[np.arange(len(y)), y] -= 1.0
            return chance
        out = score if self.wants == "number" else scipy.special.expit(score)
        return np.asarray(out - y[:, None])
