"""The first layer of a trained network: what noise must keep so that the network does not notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, softmax

from discreet.errors import ParameterError
from discreet.release.invariant.learners import Solution, relative_gradient

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import AnyArray, Floats
    from discreet.release.invariant.learners import Wants

_ACTIVATIONS: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "identity": (lambda z: z, np.ones_like),
    "logistic": (lambda z: np.asarray(expit(z)), lambda z: np.asarray(expit(z) * expit(-z))),
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
        One matrix for each layer, inputs in rows.
    biases : sequence of arrays
        One vector for each layer.
    activation : {"identity", "logistic", "tanh", "relu"}
        Of the hidden layers.
    output : {"number", "two classes", "classes"}
        Squared error on one number, cross entropy of one logistic unit, or of a softmax over classes.
    alpha : float
        Penalty ``alpha / 2 |weights|**2`` beside the summed loss, for the certificate.
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
        """Take the layers of a fitted ``MLPClassifier`` or ``MLPRegressor``."""
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

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> Solution:
        """Propagate forward and back; nothing is trained."""
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
        return Solution(
            weights=first,
            derivatives=pull,
            intercept=self.biases[0],
            residual=relative_gradient(X, pull, first, self.alpha),
        )

    def _output_derivatives(self, score: Floats, y: AnyArray) -> Floats:
        if self.wants == "classes":
            chance = np.asarray(softmax(score, axis=1))
            chance[np.arange(len(y)), y] -= 1.0
            return chance
        out = score if self.wants == "number" else expit(score)
        return np.asarray(out - y[:, None])
