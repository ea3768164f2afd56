"""The training problems of ridge, logistic regression and smooth networks, with their exact derivatives.

All are one problem, ``sum_i L(y_i, f(x_i)) + alpha / 2 |weights|**2``, in which f is a feed-forward network;
ridge and logistic regression are networks without a hidden layer. Second derivatives are taken of the
gradient by complex steps, which have no rounding error of a difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import linalg

from discreet.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats

_STEP = 1e-30
"""Imaginary step: its square vanishes beside any number that occurs."""
_NEAR = 0.02
"""Largest Newton step, relative to the parameters, from which a model counts as trained on the rows."""

# Activations that are twice differentiable and defined for complex numbers, and their slopes by output.
_ACTIVATIONS: dict[str, tuple[Callable[[AnyArray], AnyArray], Callable[[AnyArray], AnyArray]]] = {
    "identity": (lambda z: z, np.ones_like),
    "logistic": (lambda z: 0.5 + 0.5 * np.tanh(0.5 * z), lambda a: a * (1 - a)),
    "tanh": (np.tanh, lambda a: 1 - a * a),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SmoothProblem:
    """A training problem, and the model that is said to solve it.

    Attributes
    ----------
    X : array of shape (n_rows, n_columns)
        Rows that the model was trained on.
    target : array of shape (n_rows, n_outputs)
        Numbers, or one column of 0 and 1 for each output.
    weights, biases : tuple of arrays
        Layers of the model; ``biases`` is empty if the model has no intercept.
    activation : {"identity", "logistic", "tanh"}
        Activation of hidden layers.
    output : {"identity", "logistic", "softmax"}
        Activation of the last layer, with the loss whose derivative is output minus target.
    alpha : float
        Weight of the penalty.
    """

    X: Floats
    target: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activation: str
    output: str
    alpha: float

    @property
    def parameters(self) -> Floats:
        """All weights, then all biases, as one vector."""
        return np.concatenate([part.ravel() for part in (*self.weights, *self.biases)])

    def gradients(self, parameters: AnyArray, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return the gradient of the objective by the parameters, and by the rows: backpropagation.

        Complex numbers pass through, so that the imaginary part of the gradient after an imaginary step is
        the directional derivative.
        """
        parts: list[Any] = []
        start = 0
        for shape in (part.shape for part in (*self.weights, *self.biases)):
            size = int(np.prod(shape))
            parts.append(parameters[start : start + size].reshape(shape))
            start += size
        weights = parts[: len(self.weights)]
        biases = parts[len(weights) :] or [0.0] * len(weights)
        act, slope = _ACTIVATIONS[self.activation]
        signals = [X]
        for layer, bias in zip(weights[:-1], biases[:-1], strict=True):
            signals.append(act(signals[-1] @ layer + bias))
        pull = self._predict(signals[-1] @ weights[-1] + biases[-1]) - self.target
        by_weights, by_biases = [], []
        for i in reversed(range(len(weights))):
            by_weights.append((signals[i].T @ pull + self.alpha * weights[i]).ravel())
            by_biases.append(pull.sum(axis=0))
            pull = pull @ weights[i].T
            if i:
                pull = pull * slope(signals[i])
        return np.concatenate([*by_weights[::-1], *(by_biases[::-1] if self.biases else [])]), pull

    def _predict(self, scores: AnyArray) -> AnyArray:
        """Return the outputs that belong to the scores of the last layer."""
        if self.output != "softmax":
            return _ACTIVATIONS[self.output][0](scores)
        # Shifted by a real number: no power overflows, and the imaginary part, the derivative, stays.
        powers = np.exp(scores - scores.real.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def hessian(self, parameters: Floats) -> Floats:
        """Return the second derivatives by the parameters, one complex step for each."""
        size = len(parameters)
        # No close numbers are subtracted, so that the step can be tiny and the result has all its digits.
        columns = [
            self.gradients(parameters + 1j * _STEP * unit, self.X)[0].imag / _STEP for unit in np.eye(size)
        ]
        out = np.asarray(symmetrize(np.column_stack(columns)))
        if self.output == "softmax" and self.biases:
            # One number added to all outputs changes no probability. The objective is flat along it and no
            # change of the rows moves the gradient there, so that any curvature may be put in.
            out[-self.target.shape[1] :, -self.target.shape[1] :] += 1.0
        return out


def symmetrize(matrix: Floats) -> Floats:
    """Return the mean of a matrix and its transpose: symmetric also after rounding."""
    return (matrix + matrix.T) / 2


class SmoothDerivative:
    """The linear map J from a change N of the rows to the change of a minimizer.

    Notes
    -----
    At a minimum the gradient g vanishes, so that ``H d phi + (dg/dX) N = 0``: ``J = -H^-1 dg/dX``. With
    ``w = H^-1 v`` the adjoint is ``J'v = -grad_X (w . grad_phi)``, one more gradient by the rows.
    """

    def __init__(self, problem: SmoothProblem) -> None:
        """Move to the minimum by Newton's method and factor the Hessian there.

        Raises
        ------
        DataError
            If the model is not near a minimum, or the minimum has a flat direction.
        """
        self.problem = problem
        phi, length = problem.parameters, np.inf
        scale = float(np.linalg.norm(phi))
        for _ in range(8):
            try:
                self._factor = linalg.cho_factor(problem.hessian(phi))
            except linalg.LinAlgError:
                raise DataError(
                    "local_constant needs a model at a strict minimum, and the Hessian of this one is not "
                    "positive definite: the solution has no derivative. Use a larger penalty."
                ) from None
            move = linalg.cho_solve(self._factor, problem.gradients(phi, problem.X)[0])
            if not float(np.linalg.norm(move)) <= _NEAR * scale:
                raise DataError(
                    "local_constant needs the rows that the model was trained on, and a model trained until "
                    "it no longer moves: this one is not near a minimum. Train it with a smaller tol."
                )
            before, length = length, float(np.linalg.norm(move))
            phi = phi - move
            # Newton's steps shrink quadratically until only rounding is left.
            if length <= 1e-12 * scale or length >= before:
                break
        self.phi = phi

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.phi)

    def square(self, change: Floats) -> Floats:
        """Return J J' times a change of the parameters."""
        back = linalg.cho_solve(self._factor, change)
        rows = self.problem.gradients(self.phi + 1j * _STEP * back, self.problem.X)[1].imag / _STEP
        moved = self.problem.gradients(self.phi, self.problem.X + 1j * _STEP * rows)[0].imag / _STEP
        return np.asarray(linalg.cho_solve(self._factor, moved))


def smooth_problem(model: Any, X: AnyArray, y: AnyArray) -> SmoothProblem | None:
    """Return the training problem of a fitted model of scikit-learn; None if it is of another kind.

    Raises
    ------
    ParameterError
        If the problem has another penalty or loss, or an activation that is not twice differentiable.
    """
    # Imported here: networks take a while to import.
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    rows = np.asarray(X, np.float64)
    if isinstance(model, Ridge):
        if model.positive or np.ndim(model.alpha):
            raise _outside(model, "one alpha for all targets and coefficients of either sign")
        return _linear(model, rows, _columns(y), "identity", float(model.alpha))
    if isinstance(model, LogisticRegression):
        penalty = getattr(model, "penalty", "l2")
        plain = penalty in ("l2", "deprecated", None) and model.l1_ratio in (None, 0)
        if not plain or model.class_weight is not None or model.solver == "liblinear":
            raise _outside(model, "an L2 penalty on coefficients alone, and classes of equal weight")
        alpha = 0.0 if penalty is None else 1 / float(model.C)
        output = "logistic" if len(model.coef_) == 1 else "softmax"
        return _linear(model, rows, _indicators(model.classes_, y, output), output, alpha)
    if not isinstance(model, MLPClassifier | MLPRegressor):
        return None
    if model.activation not in _ACTIVATIONS or getattr(model, "loss", None) == "poisson":
        raise _outside(model, "a twice differentiable activation, 'tanh' or 'logistic'")
    output = model.out_activation_
    target = _columns(y) if output == "identity" else _indicators(model.classes_, y, output)
    return SmoothProblem(
        X=rows,
        target=target,
        weights=tuple(np.asarray(layer, np.float64) for layer in model.coefs_),
        biases=tuple(np.asarray(bias, np.float64) for bias in model.intercepts_),
        activation=model.activation,
        output=output,
        alpha=float(model.alpha),
    )


def _linear(model: Any, X: Floats, target: Floats, output: str, alpha: float) -> SmoothProblem:
    """Return the problem of a linear model: a network of one layer."""
    biases = (np.atleast_1d(np.asarray(model.intercept_, np.float64)),) if model.fit_intercept else ()
    weights = (np.atleast_2d(np.asarray(model.coef_, np.float64)).T,)
    return SmoothProblem(
        X=X, target=target, weights=weights, biases=biases, activation="identity", output=output, alpha=alpha
    )


def _columns(y: AnyArray) -> Floats:
    """Return numbers with one column for each output."""
    numbers = np.asarray(y, np.float64)
    return numbers[:, None] if numbers.ndim == 1 else numbers


def _indicators(classes: AnyArray, y: AnyArray, output: str) -> Floats:
    """Return one column of 0 and 1 for the second of two classes, or one for each class."""
    shown = classes[1:] if output == "logistic" else classes
    return np.asarray(np.asarray(y)[:, None] == shown[None, :], np.float64)


def _outside(model: Any, wanted: str) -> ParameterError:
    return ParameterError(
        f"model of local_constant must have {wanted}, as the theorem asks, was {model!r}. "
        "measure_closeness works for every model."
    )
